"""Reads journals: one run, all runs, one that is still written. Locks runs, and finds and closes those of dead processes."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO

from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.records import (
    FORMAT,
    HEADER_TYPE,
    TYPE_KEY,
    UnknownRecord,
    append_last,
    decode_event,
)
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core.cycle_events import CycleEnded
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    EMBEDDING_AGENT,
    SUMMARY_AGENT,
    ReplyReceived,
    SessionStarted,
    SubagentEvent,
)
from orchestrator.core.files import lock_file, read_own, replace_file, try_lock
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


RECOVERIES_FILE = "recoveries"
_COUNTING = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
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
        records: those that can be read, in the order of their numbers.
        torn: whether the last line was cut off while it was written; it is left out.
        damage: what is wrong with the journal before its last line, one text a fault; empty if it is whole.
        facts: what happened, as far as it can be read.
    """

    id: str
    folder: Path
    version: str
    records: tuple[JournalRecord, ...]
    torn: bool
    damage: tuple[str, ...] = ()
    facts: RunFacts = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        facts = RunFacts()
        for one in self.records:
            facts.saw(one.at)
            if not isinstance(one.event, UnknownRecord):
                facts.take(one.event, one.at)
        object.__setattr__(self, "facts", facts)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events, without those that only a newer version understands."""
        return tuple(record.event for record in self.records if not isinstance(record.event, UnknownRecord))

    @property
    def unbroken(self) -> Run:
        """The run up to the first record that is missing since the session began, if it is known when it began.

        What was said before a gap can be continued; what was said after it may refer to what is missing.
        """
        began = (at for at, record in enumerate(self.records) if isinstance(record.event, SessionStarted))
        start = next(began, 0)
        first = self.records[start].seq if start else 1
        following = enumerate(self.records[start:], start=first)
        end = start + sum(1 for _ in itertools.takewhile(lambda one: one[0] == one[1].seq, following))
        return replace(self, records=self.records[:end])

    @property
    def next_seq(self) -> int:
        """The number of the record that would be appended."""
        return self.records[-1].seq + 1 if self.records else 1

    def require_whole(self) -> None:
        """Raise `JournalError` if the journal is damaged."""
        if self.damage:
            raise JournalError(f"{self.folder / JOURNAL_FILE}, {self.damage[0]}; the journal is damaged")

    def is_about(self, repository: str) -> bool:
        """Return whether it was on this repository, under any of its absolute names."""
        start = self.facts.start
        return start is not None and same_repository(start.repository, repository)


def read_run(folder: Path) -> Run:
    """Read the journal in a run's folder. Lines that cannot be read are left out, and named in `damage`."""
    path = folder / JOURNAL_FILE
    reading = _Reading()
    try:
        with path.open("rb") as file:
            for line in bounded_lines(file):
                reading.add(line)
    except FileNotFoundError:
        raise JournalError(f"there is no journal {path}") from None
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror or error}") from error
    except JournalError as error:
        raise JournalError(f"{path}, line 1: {error}") from None
    records = tuple(sorted(reading.found.values(), key=lambda record: record.seq))
    return Run(folder.name, folder, reading.version, records, reading.torn, tuple(reading.damage()))


@dataclass(slots=True)
class _Reading:
    """Reads the lines of a journal in the order of the file, which may be damaged anywhere.

    Attributes:
        found: the records by number.
        torn: whether the last line was no JSON object: it was cut off while it was written, if it is the last.
    """

    found: dict[int, JournalRecord] = field(default_factory=dict)
    version: str = ""
    torn: bool = False
    _lines: int = 0
    _before: int = 0
    _unreadable: int = 0
    _faults: list[str] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        """Read the next line."""
        if self.torn:
            self._note("not a JSON object", is_lost=True)
        self._lines += 1
        data = _parse(line)
        self.torn = data is None
        if data is None:
            return
        if data.get(TYPE_KEY) == HEADER_TYPE and type(data.get("format")) is int:
            self.version = read_header(data)
            if self._lines > 1:
                self._note("the header is not at the beginning")
            return
        try:
            record = _record_of(data)
        except JournalError as error:
            self._note(str(error), is_lost=True)
            return
        if record.seq in self.found:
            self._note(f"record {record.seq} is there twice")
        elif record.seq < self._before:
            self._note(f"record {record.seq} comes too late")
        self.found.setdefault(record.seq, record)
        self._before = record.seq

    def damage(self) -> list[str]:
        """Return what is wrong before the last line."""
        newest = max(self.found, default=0)
        missing = newest - len(self.found)
        # The lines that cannot be read are said already. One of them may be the header.
        if missing > self._unreadable:
            return [*self._faults, f"{missing} of {newest} records are missing"]
        has_header = self.version or not self.found or self._unreadable
        return self._faults if has_header else [*self._faults, "line 1: this is not the header of a journal"]

    def _note(self, fault: str, *, is_lost: bool = False) -> None:
        self._unreadable += is_lost
        self._faults.append(f"line {self._lines}: {fault}")


MOST_LINE_BYTES = 1 << 27
"""Longest line that is read: far more than a record has with the longest reply."""


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long only the beginning, which is no JSON object."""
    while line := file.readline(MOST_LINE_BYTES):
        yield line
        if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(_PIECE_BYTES)) and not rest.endswith(b"\n"):
                pass


def replay_of(run: Run) -> list[ReplyReceived]:
    """Return the replies for a replay. Summaries and vectors are not needed: prepared replies depend on nothing.

    Raises:
        JournalError: the journal is damaged, or subagents took part, whose replies arrived at the same time as the
            session's own.
    """
    run.require_whole()
    agents = {event.agent for event in run.events if isinstance(event, SubagentEvent)}
    if agents - {SUMMARY_AGENT, EMBEDDING_AGENT}:
        message = (
            f"run {run.id} used subagents: the order of its replies is not known, so it cannot be replayed"
        )
        raise JournalError(message)
    return [event for event in run.events if isinstance(event, ReplyReceived)]


def run_folders(home: Home) -> list[Path]:
    """Return the folders of all runs with a journal, newest first, and with them the last looks that found no task."""
    folders = [home.runs / name for name in run_names(home)]
    with suppress(OSError):
        folders += home.looks.iterdir()
        folders.sort(key=lambda folder: folder.name, reverse=True)
    return [folder for folder in folders if (folder / JOURNAL_FILE).is_file()]


def find_run(home: Home, name: str) -> Path:
    """Return the folder of the run with this id or unambiguous prefix, or of the `last` run.

    Raises:
        JournalError: there is no such run, or more than one.
    """
    folders = {folder.name: folder for folder in run_folders(home)}
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


def _parse(piece: bytes) -> dict[str, Any] | None:
    if not piece.startswith(b"{"):
        return None
    try:
        data = json.loads(piece.decode())  # bytes may be in other encodings
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def read_header(data: dict[str, Any]) -> str:
    """Return the version of the program that wrote a journal, from the JSON object of its first line."""
    written = data.get("format")
    if data.get(TYPE_KEY) != HEADER_TYPE or type(written) is not int:
        raise JournalError("this is not the header of a journal")
    if written > FORMAT:
        raise JournalError(
            f"written in format {written}, this version reads up to {FORMAT}; update Pullwright"
        )
    return str(data.get("version", ""))


def _record_of(data: dict[str, Any]) -> JournalRecord:
    """Return the record of a line from its JSON object."""
    seq = data.get("seq")
    if type(seq) is not int or seq < 1:
        raise JournalError("the record has no valid number")
    try:
        at = datetime.fromisoformat(data["at"])
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError("the record has no valid time") from error
    if at.tzinfo is None:
        raise JournalError("the record has no valid time")
    return JournalRecord(seq, at, decode_event(data), data)


_PIECE_BYTES = 1 << 16
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
        """Return at most `most_bytes` of new lines, each with its number. The next call returns the rest."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while self._next <= self._after:
                    known = file.readline()
                    if not known.endswith(b"\n"):
                        return []
                    self._offset, self._next = self._offset + len(known), self._next + 1
                chunk = file.read(most_bytes)
                while b"\n" not in chunk and len(chunk) < MOST_LINE_BYTES and (more := file.read(most_bytes)):
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
        """Yield all new records, without unreadable ones."""
        while found := self.lines():
            for _number, line in found:
                if (record := read_line(line)) is not None:
                    yield record


def read_line(line: bytes) -> JournalRecord | None:
    """Return the record of a line; None for other lines, such as the journal's header."""
    data = _parse(line)
    try:
        return None if data is None else _record_of(data)
    except JournalError:
        return None


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


@contextmanager
def recovery_of(folder: Path) -> Iterator[int]:
    """Recover a run in the block, which is given the number of earlier recoveries whose process died.

    Each begun recovery is a byte of a file beside the journal, and takes it away at its end.
    """
    try:
        handle = os.open(folder / RECOVERIES_FILE, _COUNTING, 0o600)
    except OSError:  # no space is left: this recovery does not count
        yield 0
        return
    try:
        died = os.fstat(handle).st_size
        with suppress(OSError):
            os.write(handle, b".")
        try:
            yield died
        finally:
            os.ftruncate(handle, died)
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
    """Return whether the run has a journal without an end. Only the journal's end is read."""
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
                if length > MOST_LINE_BYTES:
                    return True  # the last line is no record
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
    beginning: it is skipped. So are those of `unreadable_runs`.
    """
    found = []
    for folder in _dead_folders(home):
        with suppress(JournalError):
            run = read_run(folder)
            if run.facts.result is None:  # else only its last line break is missing
                found.append(run)
    return found


def unreadable_runs(home: Home) -> list[str]:
    """Return why journals of dead runs cannot be read at all, one line each: a newer version wrote them, or an error."""
    found = []
    for folder in _dead_folders(home):
        try:
            read_run(folder)
        except JournalError as error:
            found.append(str(error))
    return found


def _dead_folders(home: Home) -> list[Path]:
    folders = unended_runs(home)
    begun = [one for one in folders if (one / JOURNAL_FILE).exists() and (one / LOCK_FILE).exists()]
    return [folder for folder in begun if not is_alive(folder)]


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
    runs = home.runs
    looked_at = (runs / name for name in names if name > last or name in before)
    # A folder whose journal is not yet there, and one that is still locked, may get records that it does not have yet.
    found = [folder for folder in looked_at if is_alive(folder) or not _has_end(folder)]
    open_runs = [folder.name for folder in found]
    if names and (last != names[-1] or before != set(open_runs)):
        _write_index(home, names, open_runs)
    return found[::-1]


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
        replace_file(home.root / OPEN_RUNS_FILE, json.dumps(data).encode("ascii"), _PRIVATE, is_durable=False)


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
    """
    if not is_open(folder) and (folder / JOURNAL_FILE).exists():
        return
    run = read_run(folder)
    if run.facts.result is not None:
        return  # only its last line break is missing
    append_last(folder, CycleEnded(result), run.next_seq, redactor, clock)
