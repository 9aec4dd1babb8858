"""The index of runs: folds each journal into one summary, which answers all questions about many runs."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, BinaryIO

from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.reader import MOST_LINE_BYTES, bounded_lines, is_alive, read_header, why_killed
from orchestrator.bot.journal.records import UnknownRecord, append_last, decode_event
from orchestrator.bot.journal.run_facts import (
    PATCHERS,
    WRITERS,
    Pause,
    RunFacts,
    RunSummary,
    minutes_between,
    moment,
)
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    Paused,
    Proposed,
    QuestionAsked,
    Reserved,
    TaskTaken,
    Verified,
    WorkSaved,
)
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import (
    Guarded,
    PlanAccepted,
    ReplyReceived,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.policy.secrets import Redactor

MOST_RUNS_FOR_PAUSES = 1_000
"""Newest runs that are searched. Each look at a repository is a run: a fleet makes many in an hour."""
MOST_RUNS_FOR_TASKS = 300
_MOST_SUMMARIES = 2_048  # that a process remembers
_BEGINNING_BYTES = 1024 * 1024
# The beginning of each line, as the journal's writer makes it.
_HEAD = re.compile(rb'\{"seq":(\d{1,12}),"at":"([0-9T:.+-]{25,32})","type":"(\w+)"')
_FOLDED = frozenset(
    kind.__name__.encode()
    for kind in (
        *(CycleStarted, TaskTaken, Verified, Proposed, QuestionAsked, WorkSaved, Reserved),
        *(PlanAccepted, ReplyReceived, ToolCallStarted, ToolCallEnded, Guarded, ForgeUsed, Paused),
        *(CycleEnded, TurnStarted, WaitStarted),
    )
)
# Of subagents only costs count. Inside a text the quotation marks would be escaped.
_REPLY = b'"type":"ReplyReceived"'
_PAID = re.compile(rb'"type":"(?:TurnStarted|WaitStarted|ReplyReceived)"')
_WRITING = re.compile(
    rb'"name":"(?:' + b"|".join(name.encode() for name in sorted(WRITERS | PATCHERS)) + rb')"'
)


def summarise(folder: Path) -> RunSummary:
    """Summarize a run from its journal. Unreadable lines are skipped.

    Only the new part of a grown journal is read.
    """
    path = folder / JOURNAL_FILE
    try:
        summary, is_over = _FOLDS.summary(path)
    except (FileNotFoundError, NotADirectoryError):
        return RunSummary(folder.name)
    except OSError as error:
        return RunSummary(folder.name, fault=f"cannot read the journal {path}: {error.strerror or error}")
    if is_over:
        return summary
    if not is_alive(folder):
        return replace(summary, error=summary.error or why_killed(folder))
    outcome = "running" if summary.outcome == "unfinished" else summary.outcome
    return replace(summary, outcome=outcome, is_running=True)


@dataclass(slots=True)
class _Fold:
    """Reads the facts of a run from the lines of its journal. Only the records that a summary needs are parsed."""

    lines: int = 0
    first_broken: float = math.inf
    facts: RunFacts = field(default_factory=RunFacts)

    def add(self, line: bytes) -> None:
        """Add the next line."""
        self.lines += 1
        head = _HEAD.match(line)
        at = moment(head[2].decode("ascii")) if head else None
        if head is None or at is None or not line.endswith(b"}\n"):
            self.first_broken = min(self.first_broken, self.lines)
        elif int(head[1]) != self.lines - 1 or (self.lines == 1 and not _is_header(line)):
            self.first_broken = 0
        if head is None or at is None:
            return
        facts, kind = self.facts, head[3]
        facts.saw(at)
        if kind == b"ToolCallStarted" and not _WRITING.search(line):
            return
        is_paid = kind == b"SubagentEvent" and _PAID.search(line) is not None
        is_first_message = kind == b"MessageAdded" and not facts.said and facts.start and facts.start.door
        if not (is_paid or is_first_message or kind in _FOLDED) or (
            kind == b"ToolCallEnded" and not facts.is_writing
        ):
            return
        event = _event(line)
        if event is not None:
            facts.take(event, at)
        elif _REPLY in line:
            facts.count(at, Spent(None, rounds=1))  # the cost of an unreadable reply is unknown
        if kind == b"CycleEnded" and facts.result is None:
            facts.result = {}

    def summary(self, run: str) -> RunSummary:
        """Return the summary, for a run whose process is dead."""
        # The last line may have been cut off while it was written.
        return self.facts.summary(run, is_damaged=not self.lines or self.first_broken < self.lines)


@dataclass(slots=True)
class _KnownJournal:
    """What was read of a journal, up to the end of its last complete line."""

    file: tuple[int, int]
    size: int = -1
    changed: int = -1
    read: int = 0
    fold: _Fold = field(default_factory=_Fold)
    result: tuple[RunSummary, bool] | None = None


class _Folds:
    """Caches the summaries of recently read journals. It is thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Path, _KnownJournal] = OrderedDict()
        self._lock = threading.Lock()

    def summary(self, path: Path) -> tuple[RunSummary, bool]:
        """Return the summary of a journal, and whether it has an end."""
        with self._lock, path.open("rb") as file:
            found = os.fstat(file.fileno())
            known = self._known.pop(path, None)
            if known is None or known.file != (found.st_dev, found.st_ino) or known.read > found.st_size:
                known = _KnownJournal((found.st_dev, found.st_ino))
            if known.result is None or (known.size, known.changed) != (found.st_size, found.st_mtime_ns):
                known.result = _read_on(known, file, path.parent.name)
                known.size, known.changed = found.st_size, found.st_mtime_ns
            self._known[path] = known
            if len(self._known) > self._most:
                self._known.popitem(last=False)
            return known.result


def _read_on(known: _KnownJournal, file: BinaryIO, run: str) -> tuple[RunSummary, bool]:
    """Fold the appended lines. An incomplete last line counts for now, and is read again later."""
    fold = known.fold
    file.seek(known.read)
    for line in bounded_lines(file):
        if not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES:
            fold = copy.deepcopy(fold)
            fold.add(line)
            break
        fold.add(line)
        known.read = file.tell()
    summary, is_over = fold.summary(run), fold.facts.result is not None
    if is_over:  # it seldom grows again: then it is read from its beginning
        known.fold, known.read = _Fold(), 0
    return summary, is_over


_FOLDS = _Folds(_MOST_SUMMARIES)


def newest_run(
    home: Home,
    *,
    repository: str | None = None,
    model: str | None = None,
) -> RunSummary | None:
    """Return the newest run whose journal contains the start.

    Args:
        repository: only runs on this one count, under any of its absolute names.
        model: only runs with this one count.
    """
    return next(_newest_runs(home, MOST_RUNS_FOR_PAUSES, repository, model), None)


def keep_look(home: Home, run: str) -> None:
    """Move the folder of a completed run that found no task to the last looks, in place of that at its repository.

    Only the last look says why tasks wait. If the folder cannot be moved, it is removed.
    """
    folder = home.runs / run
    earlier = [look.id for look in last_looks(home) if _is_at_same_place(home.looks / look.id, folder)]
    with suppress(OSError):
        home.looks.mkdir(mode=0o700, exist_ok=True)
        folder.rename(home.looks / run)
    for path in (folder, *(home.looks / name for name in earlier)):
        shutil.rmtree(path, ignore_errors=True)


def _is_at_same_place(first: Path, second: Path) -> bool:
    begins = [_beginning(folder / JOURNAL_FILE) for folder in (first, second)]
    places = {begin and repository_key(begin.repository) for begin in begins}
    return len(places) == 1


def last_looks(home: Home) -> list[RunSummary]:
    """Return the last look at each repository that found no task, oldest first."""
    with suppress(OSError):
        names = sorted(path.name for path in home.looks.iterdir() if RUN_NAME.fullmatch(path.name))
        return [summarise(home.looks / name) for name in names]
    return []


def _newest_runs(
    home: Home, most: int, repository: str | None, model: str | None = None
) -> Iterator[RunSummary]:
    """Yield the newest runs on a repository with a model. Only the beginning of others is read."""
    wanted = None if repository is None else repository_key(repository)
    with suppress(JournalError):
        for name in run_names(home)[:most]:
            begin = _beginning(home.runs / name / JOURNAL_FILE)
            if begin is None or model not in (None, begin.model):
                continue
            if wanted is None or repository_key(begin.repository) == wanted:
                yield summarise(home.runs / name)


def _beginning(path: Path) -> CycleStarted | None:
    """Return the first record after the header, with the parameters of the run."""
    try:
        with path.open("rb") as file:
            file.readline(_BEGINNING_BYTES)
            event = _event(file.readline(_BEGINNING_BYTES))
    except OSError:
        return None
    return event if isinstance(event, CycleStarted) else None


def last_pause(
    home: Home,
    now: datetime,
    *,
    repository: str | None = None,
    model: str | None = None,
) -> Pause | None:
    """Return the pause after the run that `newest_run` returns, if it is not over. Unreadable records are ignored.

    A restart with another model need not wait.
    """
    run = newest_run(home, repository=repository, model=model)
    return None if run is None else run.pause_at(now)


def note_pause(home: Home, run: str, pause: Pause, redactor: Redactor, clock: Clock) -> None:
    """Append a pause to the journal of a completed run, so that a restart knows it.

    Write errors are ignored: the waiting worker knows the time anyway.
    """
    folder = home.runs / run
    with suppress(DiskFullError, JournalError, OSError):
        with (folder / JOURNAL_FILE).open("rb") as journal:
            number = sum(1 for _ in journal)
        append_last(folder, pause.event, number, redactor, clock)


def tasks_taken(home: Home, repository: str) -> dict[str, TaskTaken]:
    """Return the tasks of the newest runs on a repository, in their latest form, by key; the newest first."""
    found = dict[str, TaskTaken]()
    for run in _newest_runs(home, MOST_RUNS_FOR_TASKS, repository):
        if run.task is not None:
            found.setdefault(run.task.key, run.task)
    return found


def find_task(home: Home, repository: str, key: str) -> TaskTaken | None:
    """Return the task with this key in its latest form, however many newer runs there are; None if no run took it."""
    runs = _newest_runs(home, sys.maxsize, repository)
    return next((run.task for run in runs if run.task is not None and run.task.key == key), None)


def typed_for(home: Home, repository: str, key: str) -> tuple[str, JsonObject]:
    """Return the newest run that asked a question on a task, and the options that a person typed for it; or empty."""
    for run in _newest_runs(home, sys.maxsize, repository):
        if run.task is not None and run.task.key == key and run.question:
            begin = _beginning(home.runs / run.id / JOURNAL_FILE)
            return run.id, begin.typed if begin is not None else {}
    return "", {}


def spent_on(home: Home, now: datetime, *, besides: str = "") -> Spent:
    """Return what the runs of this UTC day have cost, or may still cost.

    A completed run counts with its journal's costs; one whose process is dead also with possible costs of
    requests without a reply; one that is alive with its reservation. Only runs that began today or yesterday
    are read.

    Args:
        besides: the run that asks, which does not count.
    """
    today = now.astimezone(UTC).date()
    days = tuple(f"{day:%Y%m%d}-" for day in (today - timedelta(days=1), today))
    total = Spent()
    for name in run_names(home):
        if name.startswith(days) and name != besides:
            run = summarise(home.runs / name)
            if run.fault:
                raise JournalError(run.fault)
            total += _charge(run, today, now)
    return total


def _charge(run: RunSummary, day: date, now: datetime) -> Spent:
    """Return the cost of a run on a day."""
    start = datetime.combine(day, time(), UTC)
    end = max(now, run.ended) if run.is_running and run.ended else run.ended
    before = sum((cost for on, cost in run.costs_by_day.items() if on < day), Spent())
    before += Spent(minutes=minutes_between(run.started, end and min(end, start)))
    first = run.started and max(run.started, start)
    spent = run.costs_by_day.get(day, Spent())
    spent += Spent(minutes=minutes_between(first, end and min(end, start + timedelta(days=1))))
    held = run.reserved
    if not run.is_running or held is None:
        return spent
    usd = spent.usd
    if held.usd is not None and usd is not None and before.usd is not None:
        usd = max(usd, held.usd - before.usd)
    return Spent(
        usd,
        spent.tokens if held.tokens is None else max(spent.tokens, held.tokens - before.tokens),
        spent.minutes if held.minutes is None else max(spent.minutes, held.minutes - before.minutes),
        spent.rounds if held.rounds is None else max(spent.rounds, held.rounds - before.rounds),
    )


def _is_header(line: bytes) -> bool:
    """Return whether a line is the header of a journal that this version can read."""
    try:
        read_header(json.loads(line))
    except (ValueError, RecursionError, JournalError):
        return False
    return True


def _event(line: bytes) -> Event | None:
    try:
        data = json.loads(line.decode())
        event = decode_event(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError, JournalError):
        return None
    return None if isinstance(event, UnknownRecord) else event
