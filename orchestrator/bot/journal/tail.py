"""Reads a journal while it is written: complete lines only, from the last position, in limited portions."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.reader import JournalRecord, read_record
from orchestrator.core.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_BYTES = 4_000_000
_COUNTED_BYTES = 1_000_000


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

    def lines(self, most_bytes: int = _MOST_BYTES) -> list[tuple[int, bytes]]:
        """Return at most `most_bytes` of new lines, each with its number. The next call returns the rest.

        Raises:
            JournalError: the journal cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                while self._next <= self._after:
                    if not self._pass_over(file.fileno()):
                        return []
                file.seek(self._offset)
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

    def _pass_over(self, file: int) -> bool:
        """Skip known lines. Return False if the next one is not written yet."""
        chunk = os.pread(file, _COUNTED_BYTES, self._offset)
        while chunk and b"\n" not in chunk:
            more = os.pread(file, _COUNTED_BYTES, self._offset + len(chunk))
            if not more:
                return False
            chunk += more
        at = 0
        while self._next <= self._after and (end := chunk.find(b"\n", at)) >= 0:
            at, self._next = end + 1, self._next + 1
        self._offset += at
        return at > 0


def read_line(line: bytes, seq: int) -> JournalRecord | None:
    """Return the record of a line; None for other lines, such as the journal's header."""
    try:
        data = json.loads(line)
        return read_record(data, seq) if seq and isinstance(data, dict) else None
    except (ValueError, RecursionError, JournalError):
        return None
