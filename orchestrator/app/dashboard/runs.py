"""Summaries of runs in memory. Each journal is read once, the newest first, and again only after a change."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.app.event_lines import Narrator, RunProgress
from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import JournalTail, read_line
from orchestrator.bot.journal.records import UnknownRecord

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.event_lines import EventLine
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.index import RunSummary

MOST_RUNS = 10_000
"""Number of the newest runs that are listed and counted. Older runs have pages only."""
_CHANGEABLE = 64
"""Number of the newest runs that are read again after their end: a worker may add a pause to them."""
_MOST_PLAN_CHARS = 2_000
_MOST_LINES = 200
_SHOWN_LINES = 6
# Records that are never skipped, however many were written since the last reading.
_CALL = re.compile(rb'^\{"seq":\d+,"at":"[^"]*","type":"ToolCallEnded"')
_TELLING = re.compile(
    rb'^\{"seq":\d+,"at":"[^"]*","type":"(?:PhaseEntered|TurnStarted|PlanAccepted|TodosChanged)"'
)


@dataclass(slots=True)
class LiveRun:
    """The state of a run in progress.

    Attributes:
        lines: the last lines about its events. The tuple is replaced, never changed, because other threads read it.
    """

    tail: JournalTail
    progress: RunProgress = field(default_factory=lambda: RunProgress("starting"))
    lines: tuple[EventLine, ...] = ()
    _narrator: Narrator = field(default_factory=Narrator)

    def read_on(self) -> bool:
        """Read the new records, and return whether there are any. Of very many, only the last and some kinds are parsed."""
        is_new = False
        while found := self.tail.lines():
            is_new = True
            last = found[-1][0] - _MOST_LINES
            for seq, line in found:
                if seq > last or _TELLING.match(line):
                    self._take(line, seq)
                else:
                    self.progress.calls += _CALL.match(line) is not None
        return is_new

    def _take(self, line: bytes, seq: int) -> None:
        record = read_line(line, seq)
        if record is None or isinstance(record.event, UnknownRecord):
            return
        self.progress.take(record.event)
        if (told := self._narrator.line(record.event)) is not None:
            self.lines = (*self.lines, told)[-_SHOWN_LINES:]


@dataclass(frozen=True, slots=True)
class _Stored:
    key: tuple[int, int]
    run: RunSummary


class RunStore:
    """Keeps the summaries of the newest runs. `refresh` may be called from any thread.

    Attributes:
        version: grows with every change.
        unread: number of journals that are not read yet.
        live: the runs in progress, by id.
    """

    def __init__(self, home: Home, most: int = MOST_RUNS) -> None:
        self.home = home
        self.version = 0
        self.unread = 0
        self.live: dict[str, LiveRun] = {}
        self._most = most
        self._stored: dict[str, _Stored] = {}
        self._names: list[str] = []
        self._lock = threading.Lock()

    @property
    def runs(self) -> list[RunSummary]:
        """The known runs, newest first."""
        stored = self._stored
        return [stored[name].run for name in self._names if name in stored]

    def refresh(self, seconds: float = float("inf")) -> bool:
        """Read new and changed journals, the newest first, for at most this time. Return whether anything changed.

        Raises:
            JournalError: the folder of the runs cannot be read.
        """
        with self._lock:
            before = self.version
            until = time.monotonic() + seconds
            names = [name for name in run_names(self.home)[: self._most] if RUN_NAME.fullmatch(name)]
            if gone := self._stored.keys() - set(names):
                self._stored = {name: one for name, one in self._stored.items() if name not in gone}
                self.version += 1
            self._names = names
            self.unread = 0
            for number, name in enumerate(names):
                known = self._stored.get(name)
                if known is not None and number >= _CHANGEABLE and _is_over(known.run):
                    continue
                if number and time.monotonic() > until:  # the newest one is always read
                    self.unread += known is None
                    continue
                self._look(name, known)
            self._follow()
            return self.version != before

    def _look(self, name: str, known: _Stored | None) -> None:
        folder = self.home.runs / name
        key = _key(folder)
        if known is not None and known.key == key and not known.run.is_running:
            return
        run = _compact(summarise(folder))
        if known is None or known.run != run:
            self.version += 1
        self._stored[name] = _Stored(key, run)

    def _follow(self) -> None:
        """Read the new records of the runs in progress."""
        going = [one.run.id for one in self._stored.values() if one.run.is_running]
        self.live = {
            name: self.live.get(name) or LiveRun(JournalTail(self.home.runs / name)) for name in going
        }
        for live in self.live.values():
            self.version += live.read_on()


def _key(folder: Path) -> tuple[int, int]:
    try:
        found = (folder / JOURNAL_FILE).stat()
    except OSError:
        return (-1, 0)
    return found.st_size, found.st_mtime_ns


def _is_over(run: RunSummary) -> bool:
    return not run.is_running and run.outcome not in {"unfinished", "damaged"}


def _compact(run: RunSummary) -> RunSummary:
    """Remove what only the run's own page shows, because there may be thousands of runs."""
    task = replace(run.task, body="") if run.task is not None else None
    return replace(run, task=task, plan=run.plan[:_MOST_PLAN_CHARS], touched=())
