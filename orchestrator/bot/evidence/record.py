"""A file of results to which lines are only appended, so that a process that dies loses at most the last line."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.folders import is_full
from orchestrator.core.errors import ConfigurationError, DiskFullError, JournalError
from orchestrator.core.files import try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_DIGITS = 16
_VERSION = 1
"""Version of a line; lines of other versions are ignored."""


def digest_of(*facts: object) -> str:
    """Return a short digest that is equal for equal values."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


class JsonLines:
    """A file with one JSON object per line.

    Raises:
        JournalError: it cannot be read or written.
        DiskFullError: the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[dict[str, Any]]:
        """Return all complete lines in order. An incomplete line, which a process left when it died, is ignored."""
        try:
            raw = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"cannot read {self._path}: {error.strerror}") from error
        return [found for line in raw if (found := _object(line)) is not None]

    def add(self, values: Mapping[str, Any]) -> None:
        """Append a line, and wait until it is on the disk."""
        line = json.dumps({"form": _VERSION, **values}).encode("ascii")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                # End an incomplete line first, so that this one is separate.
                file.seek(max(size - 1, 0))
                is_incomplete = size > 0 and file.read(1) != b"\n"
                file.write(b"\n" * is_incomplete + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if is_full(error):
                raise DiskFullError(f"cannot write {self._path}: no space is left on the disk") from error
            raise JournalError(f"cannot write {self._path}: {error.strerror}") from error


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.pop("form", None) == _VERSION else None


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Lock a folder, so that no other process works in it.

    Raises:
        ConfigurationError: another process holds the lock.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not try_lock(handle):
            raise ConfigurationError(f"another process works in {folder}: wait for it, or end it")
        yield
    finally:
        os.close(handle)
