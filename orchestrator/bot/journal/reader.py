"""Reads journals: one run, all runs, one that is still written. Locks runs, and finds and closes those of dead processes."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.records import (
    FORMAT,
    HEADER_TYPE,
    TYPE_KEY,
    UnknownRecord,
    append_last,
    decode_event,
)
from orchestrator.core.cycle_events import CycleEnded, CycleStarted
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    EMBEDDING_AGENT,
    SUMMARY_AGENT,
    ReplyReceived,
    SubagentEvent,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.files import lock_file, read_own, replace_file, try_lock
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import same_repository
from orchestrator.core.watchdog_process import NOTE_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.policy.secrets import Redactor


_Kind = TypeVar("_Kind")
LAST = "last"
"""The name that refers to the newest run."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One entry of a journal. `at` is in UTC; `data` is the complete entry as written."""

    seq: int
    at: datetime
    event: Event | UnknownRecord
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as read from its journal.

    Attributes:
        id: name of the run's folder.
        version: version of the program that wrote it; empty if missing.
        torn: whether the last line was cut off while it was written; it is left out.
    """

    id: str
    folder: Path
    version: str
    records: tuple[JournalRecord, ...]
    torn: bool

    @property
    def events(self) -> tuple[Event, ...]:
        """The events, without those that only a newer version understands."""
        return tuple(record.event for record in self.records if not isinstance(record.event, UnknownRecord))

    def last(self, kind: type[_Kind]) -> _Kind | None:
        """Return the last event of a kind; None if there is none."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    def is_about(self, repository: str) -> bool:
        """Return whether it was on this repository, under any of its absolute names."""
        start = self.last(CycleStarted)
        return start is not None and same_repository(start.repository, repository)

    @property
    def spent(self) -> Spent:
        """The cost of all replies, and the possible cost of requests without a reply, including the last one.

        Its rounds are those of the run itself; it has no minutes.
        """
        unanswered = Unanswered()
        for record in self.records:
            if not isinstance(record.event, UnknownRecord):
                unanswered.take(record.event, record.at)
        replies = responses(self)
        tokens = sum(reply.usage.total_tokens for reply in replies)
        rounds = sum(isinstance(event, TurnStarted) for event in self.events)
        return Spent(cost_of_all(replies).usd, tokens, rounds=rounds) + unanswered.total


def read_run(folder: Path) -> Run:
    """Read the journal in a run's folder.

    Raises:
        JournalError: it does not exist, needs a newer version, or has a damaged line before the last.
    """
    path = folder / JOURNAL_FILE
    lines, torn = _lines(path)
    records = []
    version = ""
    for number, data in enumerate(lines, start=1):
        try:
            if number == 1:
                version = read_header(data)
            else:
                records.append(read_record(data, number - 1))
        except JournalError as error:
            raise JournalError(f"{path}, line {number}: {error}") from error
    return Run(folder.name, folder, version, tuple(records), torn)


def responses(run: Run) -> list[ReplyReceived]:
    """Return the model's replies, including those to subagents, in the order of arrival."""
    inner = [event.event if isinstance(event, SubagentEvent) else event for event in run.events]
    return [event for event in inner if isinstance(event, ReplyReceived)]


def replay_of(run: Run) -> list[ReplyReceived]:
    """Return the replies for a replay. Summaries and vectors are not needed: prepared replies depend on nothing.

    Raises:
        JournalError: subagents took part, whose replies arrived at the same time as the session's own.
    """
    agents = {event.agent for event in run.events if isinstance(event, SubagentEvent)}
    if agents - {SUMMARY_AGENT, EMBEDDING_AGENT}:
        message = (
            f"run {run.id} used subagents: the order of its replies is not known, so it cannot be replayed"
        )
        raise JournalError(message)
    return [event for event in run.events if isinstance(event, ReplyReceived)]


def runs(home: Home) -> list[Path]:
    """Return the folders of all runs with a journal, newest first."""
    folders = (home.runs / name for name in run_names(home))
    return [folder for folder in folders if (folder / JOURNAL_FILE).is_file()]


def find_run(home: Home, name: str) -> Path:
    """Return the folder of the run with this id or unambiguous prefix, or of the `last` run.

    Raises:
        JournalError: there is no such run, or more than one.
    """
    folders = {folder.name: folder for folder in runs(home)}
    if not folders:
        raise JournalError(f"there is no run in {home.runs}")
    if name == LAST:
        return next(iter(folders.values()))
    if name in folders:
        return folders[name]
    matches = [run for run in folders if name and run.startswith(name)]
    if len(matches) == 1:
        return folders[matches[0]]
    if matches:
        raise JournalError(f"{len(matches)} runs begin with {name!r}: {', '.join(matches[:5])}")
    nearest = difflib.get_close_matches(name, folders, n=1, cutoff=0.0)[0]
    raise JournalError(f"there is no run {name!r}; the nearest is {nearest}")


def _lines(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """Return the JSON objects of a file, and whether its last line is cut off."""
    try:
        pieces = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise JournalError(f"there is no journal {path}") from None
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror or error}") from error
    if not pieces[-1]:
        pieces.pop()
    found: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces, start=1):
        data = _parse(piece)
        if data is None:
            if number == len(pieces):
                return found, True
            raise JournalError(f"{path}, line {number}: not a JSON object; the journal is damaged")
        found.append(data)
    return found, False


def _parse(piece: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def read_header(data: dict[str, Any]) -> str:
    """Return the version of the program that wrote a journal, from the JSON object of its first line.

    Raises:
        JournalError: it is no header, or this version cannot read its format.
    """
    written = data.get("format")
    if data.get(TYPE_KEY) != HEADER_TYPE or type(written) is not int:
        raise JournalError("this is not the header of a journal")
    if written > FORMAT:
        raise JournalError(
            f"written in format {written}, this version reads up to {FORMAT}; update Pullwright"
        )
    return str(data.get("version", ""))


def read_record(data: dict[str, Any], seq: int) -> JournalRecord:
    """Return the record with this number from the JSON object of its line.

    Raises:
        JournalError: it has another number, no time, or a value of the wrong kind.
    """
    if data.get("seq") != seq:
        raise JournalError(f"record {seq} is missing")
    try:
        at = datetime.fromisoformat(data["at"])
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError("the record has no valid time") from error
    return JournalRecord(seq, at, decode_event(data), data)


_MOST_TAIL_BYTES = 4_000_000


class JournalTail:
    """Reads the lines that were appended to a run's journal since the last read.

    Args:
        folder: the run's folder, which may have no journal yet.
        after: number of the last known record; the journal's header has 0.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        self._path = folder / JOURNAL_FILE
        self._offset = 0
        self._next = 0
        self._after = max(after, 0)

    @property
    def seq(self) -> int:
        """The number of the last record that was read or skipped."""
        return max(self._next - 1, self._after)

    def lines(self, most_bytes: int = _MOST_TAIL_BYTES) -> list[tuple[int, bytes]]:
        """Return at most `most_bytes` of new lines, each with its number. The next call returns the rest.

        Raises:
            JournalError: the journal cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while self._next <= self._after:
                    known = file.readline()
                    if not known.endswith(b"\n"):
                        return []
                    self._offset, self._next = self._offset + len(known), self._next + 1
                chunk = file.read(most_bytes)
                while b"\n" not in chunk and (more := file.read(most_bytes)):  # one line that is longer
                    chunk += more
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"cannot read the journal {self._path}: {error.strerror or error}") from error
        whole = chunk[: chunk.rfind(b"\n") + 1]
        found = list(enumerate(whole.split(b"\n")[:-1], start=self._next))
        self._offset += len(whole)
        self._next += len(found)
        return found

    def records(self) -> Iterator[JournalRecord]:
        """Yield all new records, without unreadable ones.

        Raises:
            JournalError: the journal cannot be read.
        """
        while found := self.lines():
            for seq, line in found:
                if (record := read_line(line, seq)) is not None:
                    yield record


def read_line(line: bytes, seq: int) -> JournalRecord | None:
    """Return the record of a line; None for other lines, such as the journal's header."""
    try:
        data = json.loads(line)
        return read_record(data, seq) if seq and isinstance(data, dict) else None
    except (ValueError, RecursionError, JournalError):
        return None


@dataclass(slots=True)
class Unanswered:
    """Tracks the requests of a run, including those of subagents, that received no reply.

    A request counts with its whole reservation if the next one of its session follows without a reply: it
    failed, and only the process knew whether it was billed. A completed run reports this itself.

    Attributes:
        failed: requests that certainly received no reply, each with the time of its start or failure.
    """

    failed: list[tuple[datetime, Spent]] = field(default_factory=list)
    _open: dict[tuple[str, ...], tuple[datetime, Spent]] = field(default_factory=dict)

    def take(self, event: Event, at: datetime) -> None:
        """Add the next event of the journal."""
        session: tuple[str, ...] = ()
        while isinstance(event, SubagentEvent):
            session, event = (*session, event.agent), event.event
        match event:
            case TurnStarted(tokens=tokens, usd=usd):
                if before := self._open.pop(session, None):
                    self.failed.append(before)
                if tokens is not None:  # older versions recorded none
                    self._open[session] = at, _spent(tokens, usd)
            case WaitStarted(tokens=tokens, usd=usd) if tokens is not None:
                self.failed.append((at, _spent(tokens, usd)))
            case ReplyReceived():
                self._open.pop(session, None)
            case _:
                pass

    @property
    def all(self) -> list[tuple[datetime, Spent]]:
        """The failed requests, and those under way when the journal stopped."""
        return [*self.failed, *self._open.values()]

    @property
    def total(self) -> Spent:
        """The sum of all."""
        return sum((spent for _at, spent in self.all), Spent())


def cost_of(reply: ReplyReceived) -> Spent:
    """Return the cost of a reply. Servers report the tokens; negative values are ignored."""
    tokens = max(reply.usage.input_tokens, 0) + max(reply.usage.output_tokens, 0)
    return replace(_spent(tokens, reply.usd), rounds=1)


def cost_of_all(replies: Iterable[ReplyReceived]) -> Spent:
    """Return the cost of several replies."""
    return sum(map(cost_of, replies), Spent())


def _spent(tokens: int, usd: float | None) -> Spent:
    is_known = usd is not None and math.isfinite(usd)
    return Spent(max(usd, 0.0) if usd is not None and is_known else None, max(tokens, 0))


LOCK_FILE = "lock"
"""Locked by the run's process. The kernel releases the lock however the process ends."""
_LOCK_SECONDS = 1.0
_PRIVATE = 0o600

# The form of our writer, at the beginning of a line. Inside a text the quotation marks would be escaped.
_END = re.compile(rb'^\{"seq":\d+,"at":"[^"\\]*","type":"CycleEnded",.*\}\n', re.MULTILINE)
_TAIL_BYTES = 4096
_MOST_NOTE_BYTES = 1_000


@contextmanager
def lock_run(folder: Path, *, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Lock a run's folder: before its journal is begun, or to recover a dead run.

    After locking a dead run, check `is_open` again: another process may have recovered it.

    Args:
        seconds: longest wait, in real time: a check whether the run is alive locks it for a moment.

    Raises:
        JournalError: another process holds the lock, or the folder does not exist.
    """
    try:
        handle = lock_file(folder / LOCK_FILE, seconds)
    except OSError as error:
        raise JournalError(f"cannot lock the run in {folder}: {error.strerror or error}") from error
    try:
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


def why_killed(folder: Path) -> str:
    """Return what the watchdog wrote about the end of a run's process; empty if it wrote nothing."""
    try:
        handle = os.open(folder / NOTE_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(handle, _MOST_NOTE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(handle)
    return " ".join(text.split())


def open_runs(home: Home) -> list[Run]:
    """Return the runs of dead processes that were not closed, newest first. Lock one by `lock_run` before any action.

    A run is dead if its lock is free. A run without a lock file was made by an old version, or is just
    beginning: it is skipped, and so is a journal that is damaged in the middle or needs a newer version.
    """
    found = []
    for folder in unended_runs(home):
        with suppress(JournalError):
            if (folder / JOURNAL_FILE).exists() and (folder / LOCK_FILE).exists() and not is_alive(folder):
                run = read_run(folder)
                if run.last(CycleEnded) is None:  # else only its last line break is missing
                    found.append(run)
    return found


@dataclass(frozen=True, slots=True)
class DeadRuns:
    """The runs of this machine that are over, and others that are known to be dead. Their claims are free.

    Whether a run is over is looked up when it is asked for, however many newer ones there are.
    """

    home: Home
    known: frozenset[str] = frozenset()

    def __contains__(self, run: object) -> bool:
        """Return whether a run is over or known to be dead."""
        if run in self.known:
            return True
        # A claim is foreign text.
        if not isinstance(run, str) or RUN_NAME.fullmatch(run) is None:
            return False
        return _has_end(self.home.runs / run)

    def __or__(self, others: Iterable[str]) -> DeadRuns:
        """Return these and others."""
        return replace(self, known=self.known | frozenset(others))


OPEN_RUNS_FILE = "open-runs.json"
"""The index of the runs that may not be over, in the home."""
_MOST_INDEX_BYTES = 10_000_000


def unended_runs(home: Home) -> list[Path]:
    """Return the folders of all runs that are not known to be over, newest first; living ones and empty ones too.

    A file in the home, the index, has those of the runs that were there when it was written. Only they and other
    runs are looked at. The index repeats what the folders say, and has a digest of their names: one that is lost,
    damaged, of another time or of another process that wrote at the same time is not used, or is not wrong.
    """
    try:
        names = sorted(name for name in run_names(home) if RUN_NAME.fullmatch(name))
    except JournalError:
        return []
    last, before = _read_index(home, names)
    looked_at = (name for name in names if name > last or name in before)
    # A folder whose journal is not yet there, and one that is still locked, may get records that it does not have yet.
    found = [name for name in looked_at if is_alive(home.runs / name) or not _has_end(home.runs / name)]
    if names and (last != names[-1] or before != set(found)):
        _write_index(home, names, found)
    return [home.runs / name for name in reversed(found)]


def _read_index(home: Home, names: Sequence[str]) -> tuple[str, set[str]]:
    """Return the newest run that the index knows, and those that were not over; if it is not valid, none."""
    try:
        data = json.loads(read_own(home.root / OPEN_RUNS_FILE, _MOST_INDEX_BYTES))
        last, found, digest = data["last"], data["open"], data["digest"]
        is_valid = digest == _digest_of((name for name in names if name <= last), found)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "", set()
    return (last, set(found)) if is_valid else ("", set())


def _write_index(home: Home, names: Sequence[str], found: Sequence[str]) -> None:
    """Write the index. If it cannot be written, each call looks at more runs than it had to."""
    data = {"last": names[-1], "open": found, "digest": _digest_of(names, found)}
    with suppress(OSError):
        replace_file(home.root / OPEN_RUNS_FILE, json.dumps(data).encode("ascii"), _PRIVATE)


def _digest_of(names: Iterable[str], found: Iterable[str]) -> str:
    return hashlib.sha256("\n".join((*names, "", *found)).encode()).hexdigest()


def _has_end(folder: Path) -> bool:
    """Return whether there is a journal that has an end, as far as it can be read."""
    try:
        return (folder / JOURNAL_FILE).exists() and not is_open(folder)
    except (JournalError, OSError):
        return False


def close_run(folder: Path, result: JsonObject, redactor: Redactor, clock: Clock) -> None:
    """Write the end of a dead run into its journal, so that it is never recovered again.

    The caller holds the lock. A line that was cut off is removed first. A run with an end is left unchanged.

    Raises:
        JournalError: the journal is missing or damaged, or cannot be written.
        DiskFullError: no space is left.
    """
    if not is_open(folder) and (folder / JOURNAL_FILE).exists():
        return
    run = read_run(folder)
    if run.last(CycleEnded) is not None:
        return  # only its last line break is missing
    append_last(folder, CycleEnded(result), len(run.records) + 1, redactor, clock)
