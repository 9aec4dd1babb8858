"""Runs whose process died: finds them at the next start by their journals, and closes them after recovery."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.reader import Unanswered, cost_of_all, read_run, responses
from orchestrator.bot.journal.records import UnknownRecord, append_last
from orchestrator.core.cycle_events import (
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    Proposed,
    QuestionAsked,
    Resumed,
    TaskTaken,
)
from orchestrator.core.errors import JournalError
from orchestrator.core.events import TurnStarted
from orchestrator.core.locks import explain_lock, try_lock, wait_for_lock
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.reader import Run
    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import JsonObject

LOCK_FILE = "lock"
"""Locked by the run's process. The kernel releases the lock however the process ends."""
MOST_RUNS = 200
"""Newest folders that are searched."""
_LOCK_SECONDS = 1.0

_Kind = TypeVar("_Kind")
# The form of our writer, at the beginning of a line. Inside a text the quotation marks would be escaped.
_END = re.compile(rb'^\{"seq":\d+,"at":"[^"\\]*","type":"CycleEnded",.*\}\n', re.MULTILINE)
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run without an end, as read from its journal. Fields are None or empty if the run did not get that far.

    Attributes:
        folder: its folder; lock it by `lock_run` before any action.
        start: its parameters.
        clone_folder: the place of its clone, which may be gone.
        claim: its last claim; `number` is the fencing number.
        proposed: the pull request, if there is one.
        question: the last question.
        resumed: the run that this one continued.
        spent: cost of all replies, and possible cost of requests without a reply, including the last one.
            Its rounds are those of the run itself; it has no minutes.
    """

    folder: Path
    start: CycleStarted | None
    task: TaskTaken | None
    clone_folder: str
    claim: Claimed | None
    proposed: Proposed | None
    question: QuestionAsked | None
    resumed: Resumed | None
    spent: Spent

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.name


@contextmanager
def lock_run(folder: Path, *, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Lock a run's folder: before its journal is begun, or to recover a dead run.

    After locking a dead run, check `is_open` again: another process may have recovered it.

    Args:
        seconds: longest wait, in real time: a check whether the run is alive locks it for a moment.

    Raises:
        JournalError: another process holds the lock, or the folder does not exist.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(folder / LOCK_FILE, flags, 0o600)
    except OSError as error:
        raise JournalError(f"cannot lock the run in {folder}: {error.strerror or error}") from error
    try:
        if not wait_for_lock(handle, seconds):
            raise JournalError(
                f"the run is held by another process: {explain_lock(handle, folder / LOCK_FILE)}"
            )
        yield
    finally:
        os.close(handle)


def is_alive(folder: Path) -> bool:
    """Return whether a process holds this run. Without a lock file none does; if unknown, it counts as held."""
    try:
        handle = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not try_lock(handle, shared=True)
    finally:
        os.close(handle)


def is_open(folder: Path) -> bool:
    """Return whether the run has a journal without an end. Only the journal's end is read.

    Raises:
        JournalError: the journal cannot be read.
    """
    try:
        with (folder / JOURNAL_FILE).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            length = _TAIL_BYTES
            while True:
                start = max(0, size - length)
                file.seek(start)
                tail = file.read()
                if start:
                    # What comes before the first line break is the rest of a longer line.
                    tail = tail.partition(b"\n")[2]
                if tail or not start:
                    return _END.search(tail) is None
                length *= 4
    except FileNotFoundError:
        return False
    except OSError as error:
        raise JournalError(f"cannot read the journal in {folder}: {error.strerror or error}") from error


def open_runs(home: Home) -> list[OpenRun]:
    """Return the runs of dead processes that were not closed, newest first.

    A run is dead if its lock is free. A run without a lock file was made by an old version, or is just
    beginning: it is skipped, and so is a journal that is damaged in the middle or needs a newer version.
    """
    found = []
    with suppress(JournalError):
        names = [name for name in run_names(home) if RUN_NAME.fullmatch(name)]
        for folder in (home.runs / name for name in names[:MOST_RUNS]):
            with suppress(JournalError):
                if is_open(folder) and (folder / LOCK_FILE).exists() and not is_alive(folder):
                    run = _to_open_run(read_run(folder))
                    if run is not None:
                        found.append(run)
    return found


def ended_runs(home: Home) -> list[str]:
    """Return the ids of the newest completed runs. A claim that one of them could not release is free."""
    ended = []
    with suppress(JournalError):
        for name in run_names(home)[:MOST_RUNS]:
            with suppress(JournalError):
                if (home.runs / name / JOURNAL_FILE).is_file() and not is_open(home.runs / name):
                    ended.append(name)
    return ended


def close_run(folder: Path, result: JsonObject, clock: Clock, redact: Callable[[str], str] = str) -> None:
    """Write the end of a dead run into its journal, so that it is never recovered again.

    The caller holds the lock. A line that was cut off is removed first. A run with an end is left unchanged.

    Raises:
        JournalError: the journal is missing or damaged, or cannot be written.
        DiskFullError: no space is left.
    """
    if not is_open(folder) and (folder / JOURNAL_FILE).exists():
        return
    run = read_run(folder)
    if _last(run, CycleEnded) is not None:
        return  # only its last line break is missing
    append_last(folder, CycleEnded(result), len(run.records) + 1, redact, clock)


def _to_open_run(run: Run) -> OpenRun | None:
    """Build the open run from its journal; None if it has an end after all."""
    if _last(run, CycleEnded) is not None:
        return None
    unanswered = Unanswered()
    for record in run.records:
        if not isinstance(record.event, UnknownRecord):
            unanswered.take(record.event, record.at)
    replies = responses(run)
    tokens = sum(reply.usage.total_tokens for reply in replies)
    rounds = sum(isinstance(event, TurnStarted) for event in run.events)
    cloned = _last(run, Cloned)
    return OpenRun(
        folder=run.folder,
        start=_last(run, CycleStarted),
        task=_last(run, TaskTaken),
        clone_folder=cloned.folder if cloned else "",
        claim=_last(run, Claimed),
        proposed=_last(run, Proposed),
        question=_last(run, QuestionAsked),
        resumed=_last(run, Resumed),
        spent=Spent(cost_of_all(replies).usd, tokens, rounds=rounds) + unanswered.total,
    )


def _last(run: Run, kind: type[_Kind]) -> _Kind | None:
    return next((event for event in reversed(run.events) if isinstance(event, kind)), None)
