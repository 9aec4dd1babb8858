"""Runs whose process died: found at the next start, told by their journals, and closed when they are dealt with."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from orchestrator.bot.journal.folders import JOURNAL_FILE, run_names
from orchestrator.bot.journal.reader import Unanswered, cost_of_all, read_run, responses
from orchestrator.bot.journal.records import UnknownRecord, append_last
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    MessageAdded,
    Proposed,
    QuestionAsked,
    ReplyReceived,
    Resumed,
    TaskTaken,
    TurnStarted,
    WorkSaved,
)
from orchestrator.core.locks import keeper, try_lock, wait_for_lock
from orchestrator.core.messages import Spent, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.reader import Run
    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import JsonObject, Message

LOCK_FILE = "lock"
"""Locked by the process whose run it is. The kernel releases the lock however the process ends."""
MOST_RUNS = 200
"""So many of the newest folders are looked at."""
_LOCK_SECONDS = 1.0

_Kind = TypeVar("_Kind")
_RUN_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
# Our writer's own form, at the beginning of a line: inside a text the quotation marks would be escaped.
_END = re.compile(rb'^\{"seq":\d+,"at":"[^"\\]*","type":"CycleEnded",.*\}\n', re.MULTILINE)
_TAIL_BYTES = 4096
_MOST_PATCH_BYTES = 20_000_000
_PATCHED = re.compile(r"^diff --git a/(.+) b/\1$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has no end, as its journal tells it. None or empty is what the run did not come to.

    Attributes:
        folder: its folder; `lock_run` it before anything is done about the run.
        started: the time of its first record.
        start: with what it began.
        clone_folder: where its clone is, or was.
        claim: the last claim that it held; `number` is the fencing number.
        base_branch: the branch that was cloned.
        base_commit: the commit that was cloned.
        proposed: the pull request, if it came to that.
        conversation: in order, `message` for what the program said and `reply` for what the model said.
        usage: tokens, those of subagents too.
        usd: what replies cost, or None where the price of one is unknown.
        saved: the work that was put away, in order.
        touched: the paths in the last saved patch, as far as it can be read.
        question: the last one that was asked.
        resumed: the run that this one went on with.
        torn: the last line was cut off.
        uncertain: what requests may have cost to which no reply came, the last one's among them.
    """

    id: str
    folder: Path
    started: datetime | None
    start: CycleStarted | None
    task: TaskTaken | None
    clone_folder: str
    claim: Claimed | None
    base_branch: str
    base_commit: str
    proposed: Proposed | None
    conversation: tuple[tuple[str, Message], ...]
    rounds: int
    usage: Usage
    usd: float | None
    saved: tuple[WorkSaved, ...]
    touched: frozenset[str]
    question: QuestionAsked | None
    resumed: Resumed | None
    torn: bool
    uncertain: Spent = field(default_factory=Spent)


@contextmanager
def lock_run(folder: Path, *, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Lock a run's folder while the block runs: before its journal is begun, or to recover a dead run.

    Whoever has locked a dead run asks `is_open` once more: somebody else may have dealt with it meanwhile.

    Args:
        seconds: how long to wait, in real time: who only asks whether a run is alive has its lock for a moment.

    Raises:
        JournalError: another process holds it, or there is no such folder.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(folder / LOCK_FILE, flags, 0o600)
    except OSError as error:
        raise JournalError(f"cannot hold the run in {folder}: {error.strerror or error}") from error
    try:
        if not wait_for_lock(handle, seconds):
            raise JournalError(f"the run is held by another process: {keeper(handle, folder / LOCK_FILE)}")
        yield
    finally:
        os.close(handle)


def is_alive(folder: Path) -> bool:
    """Whether some process holds this run. Without a lock file none does; where it cannot be told, it counts as held."""
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
    """Whether the run has a journal that does not tell its end. Only the journal's end is read.

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


def open_runs(home: Home, *, since: datetime | None = None, most: int = MOST_RUNS) -> list[OpenRun]:
    """The runs of dead processes that were not closed, newest first.

    A run is dead if its lock is free. Without a lock file it belongs to a version that had none, or to a
    process that is just beginning it: neither is looked at, nor is a journal that is damaged in the middle
    or needs a newer version.

    Args:
        since: in UTC; older runs are not looked at.
        most: so many of the newest folders are looked at.
    """
    oldest = "" if since is None else f"{since:%Y%m%d-%H%M%S}"
    try:
        names = [name for name in run_names(home) if _RUN_NAME.fullmatch(name)]
    except JournalError:
        return []
    found = []
    for name in names[:most]:
        folder = home.runs / name
        with suppress(JournalError):
            if name >= oldest and is_open(folder) and (folder / LOCK_FILE).exists() and not is_alive(folder):
                run = _told(read_run(folder))
                if run is not None:
                    found.append(run)
    return found


def ended_runs(home: Home) -> list[str]:
    """The names of the newest runs that came to their end. A claim that one of them could not release is nobody's."""
    ended = []
    with suppress(JournalError):
        for name in run_names(home)[:MOST_RUNS]:
            with suppress(JournalError):
                if (home.runs / name / JOURNAL_FILE).is_file() and not is_open(home.runs / name):
                    ended.append(name)
    return ended


def close_run(folder: Path, result: JsonObject, clock: Clock, redact: Callable[[str], str] = str) -> None:
    """Write the end of a dead run into its journal, so that it is never looked at again.

    The caller holds the run. A line that was cut off is taken away first. Nothing is done about a run that
    has its end.

    Raises:
        JournalError: the journal is missing or damaged, or cannot be written to.
        DiskFullError: no space is left.
    """
    if not is_open(folder) and (folder / JOURNAL_FILE).exists():
        return
    run = read_run(folder)
    if any(isinstance(event, CycleEnded) for event in run.events):
        return  # whole but for its line break
    append_last(folder, CycleEnded(result), len(run.records) + 1, redact, clock)


def _told(run: Run) -> OpenRun | None:
    """The run's story, or None where it has an end after all."""
    events = run.events
    if any(isinstance(event, CycleEnded) for event in events):
        return None
    replies = responses(run)
    cloned = _last(run, Cloned)
    saved = tuple(event for event in events if isinstance(event, WorkSaved))
    return OpenRun(
        id=run.id,
        folder=run.folder,
        started=run.records[0].at if run.records else None,
        start=_last(run, CycleStarted),
        task=_last(run, TaskTaken),
        clone_folder=cloned.folder if cloned else "",
        claim=_last(run, Claimed),
        base_branch=cloned.branch if cloned else "",
        base_commit=cloned.commit if cloned else "",
        proposed=_last(run, Proposed),
        conversation=tuple(_conversation(run)),
        rounds=sum(isinstance(event, TurnStarted) for event in events),
        usage=sum((reply.usage for reply in replies), Usage()),
        usd=cost_of_all(replies).usd,
        saved=saved,
        touched=_touched(saved[-1]) if saved else frozenset(),
        question=_last(run, QuestionAsked),
        resumed=_last(run, Resumed),
        torn=run.torn,
        uncertain=_uncertain(run),
    )


def _uncertain(run: Run) -> Spent:
    unanswered = Unanswered()
    for record in run.records:
        if not isinstance(record.event, UnknownRecord):
            unanswered.take(record.event, record.at)
    return unanswered.total


def _last(run: Run, kind: type[_Kind]) -> _Kind | None:
    return next((event for event in reversed(run.events) if isinstance(event, kind)), None)


def _conversation(run: Run) -> Iterator[tuple[str, Message]]:
    for event in run.events:
        if isinstance(event, MessageAdded):
            yield "message", event.message
        elif isinstance(event, ReplyReceived):
            yield "reply", event.message


def _touched(saved: WorkSaved) -> frozenset[str]:
    """The names in a patch. They are hints: what really changed is in the clone or in the patch itself."""
    try:
        with open(saved.path, "rb") as file:  # noqa: PTH123  the path is a text, and may be empty
            text = file.read(_MOST_PATCH_BYTES).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return frozenset()
    return frozenset(_PATCHED.findall(text))
