"""Writes the journal of a run: one line a record, nothing ever changed."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any, Self

from orchestrator import __version__
from orchestrator.bot.journal.codec import TYPE_KEY, encode
from orchestrator.bot.journal.folders import JOURNAL_FILE, is_full
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import (
    CycleEnded,
    InputReceived,
    Proposed,
    Proposing,
    ReasoningDelta,
    ReplyReceived,
    SubagentEvent,
    TextDelta,
    ToolOutputDelta,
    TurnStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event

FORMAT = 1
"""Raised when a version that knows the old format only could no longer read the journal."""
HEADER_TYPE = "Journal"

# A secret cut across two pieces would escape redaction, and the record that ends them has the whole.
# What somebody asked is in the message that says it to the model.
_UNWRITTEN = (TextDelta, ReasoningDelta, ToolOutputDelta, InputReceived)
# What was paid for, and what the world was told.
_FLUSHED = (TurnStarted, ReplyReceived, Proposing, Proposed, CycleEnded)
_PRIVATE = 0o600


class JournalWriter:
    """Appends events to `journal.jsonl` in a run's folder. It is an `Emit`, and may be called from any thread.

    When the disk is full, the first event that does not fit raises `DiskFullError`; from then
    on nothing is written and nothing raised, so that the cycle can save its work elsewhere.

    Args:
        folder: the run's folder; it holds no journal yet.
        redact: takes the secrets out of a text.
        clock: stamps the records.

    Raises:
        JournalError: the file cannot be created.
        DiskFullError: no space is left.
    """

    def __init__(self, folder: Path, redact: Callable[[str], str], clock: Clock) -> None:
        self.path = folder / JOURNAL_FILE
        self._redact = redact
        self._clock = clock
        self._seq = 0
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._file: int | None = os.open(self.path, flags, _PRIVATE)
        except OSError as error:
            raise _failure(self.path, error) from error
        self._append({TYPE_KEY: HEADER_TYPE, "format": FORMAT, "version": __version__})

    def __call__(self, event: Event) -> None:
        """Write an event down.

        Raises:
            DiskFullError: no space is left; raised once.
            JournalError: the file cannot be written; raised once.
        """
        innermost = event
        while isinstance(innermost, SubagentEvent):
            innermost = innermost.event
        if isinstance(innermost, _UNWRITTEN):
            return
        self._append(encode(event, self._redact), flush=isinstance(innermost, _FLUSHED))

    def close(self) -> None:
        """Flush to the disk and let go of the file. What comes later is not written."""
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _append(self, record: Mapping[str, Any], *, flush: bool = False) -> None:
        with self._lock:
            if self._file is None:
                return
            at = self._clock.now().astimezone(UTC).isoformat(timespec="microseconds")
            line = _line({"seq": self._seq, "at": at, **record})
            try:
                _write_whole(self._file, line)
                if flush:
                    os.fsync(self._file)
            except OSError as error:
                self._close()
                raise _failure(self.path, error) from error
            self._seq += 1

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a file system without fsync, or a full one: what is written is written
                os.fsync(self._file)
            os.close(self._file)
            self._file = None


def append_last(folder: Path, event: Event, seq: int, redact: Callable[[str], str], clock: Clock) -> None:
    """Append one record to the journal of a run whose process is dead, and flush it to the disk.

    A line that was cut off in the middle of writing is taken away first: it would damage the journal.

    Args:
        folder: the run's folder; nobody else writes into its journal.
        event: what is to be recorded.
        seq: the number of the record.
        redact: takes the secrets out of a text.
        clock: stamps the record.

    Raises:
        JournalError: the file cannot be written.
        DiskFullError: no space is left. The journal is as it was, without the cut line.
    """
    path = folder / JOURNAL_FILE
    at = clock.now().astimezone(UTC).isoformat(timespec="microseconds")
    line = _line({"seq": seq, "at": at, **encode(event, redact)})
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            end = _end_of_lines(file)
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            try:
                _write_whole(file, line)
            except OSError:
                os.ftruncate(file, end)
                raise
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise _failure(path, error) from error


def _end_of_lines(file: int) -> int:
    """Where the last whole line ends. A last record that only lacks its line break is given one."""
    size = os.fstat(file).st_size
    content = os.pread(file, size, 0)
    end = content.rfind(b"\n") + 1
    try:
        whole = isinstance(json.loads(content[end:]), dict)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        return end
    os.pwrite(file, b"\n", size)
    return size + 1


def _failure(path: Path, error: OSError) -> DiskFullError | JournalError:
    if is_full(error):
        return DiskFullError(f"no space is left for the journal {path}; the run is not recorded any further")
    return JournalError(f"cannot write the journal {path}: {error.strerror or error}")


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair: from a model, or a file name that is not UTF-8
        return f"{json.dumps(record, separators=(',', ':'), allow_nan=False)}\n".encode()


def _write_whole(file: int, line: bytes) -> None:
    """One write. A second one is made only to learn why the first stopped early."""
    written = os.write(file, line)
    while written < len(line):
        written += os.write(file, line[written:])
