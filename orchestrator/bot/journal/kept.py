"""Unfinished work that only this machine has: one file a task, replaced as a whole."""

from __future__ import annotations

import itertools
import os
import re
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import is_full
from orchestrator.core.errors import DiskFullError, JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SUFFIX = ".zip"
_ASIDE = ".old"
# The keys of tasks, which are names of files on every system.
_KEY = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_PRIVATE_FOLDER = 0o700
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class KeptWork:
    """The unfinished work of one repository's tasks on this machine. Nothing is created by looking.

    Attributes:
        folder: where it is; nobody else can read it.
    """

    folder: Path

    def write(self, key: str, files: Mapping[str, bytes]) -> Path:
        """Keep the files of a task instead of those that were kept before.

        Raises:
            DiskFullError: no space is left; what was kept before is as it was.
            JournalError: it cannot be written.
        """
        target = self._path(key)
        scratch = target.with_name(f"{target.name}.{os.getpid()}.new")
        try:
            self.folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            handle = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE)
            with os.fdopen(handle, "w+b") as stream:
                with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
                    for name, content in files.items():
                        archive.writestr(name, content)
                stream.flush()
                os.fsync(stream.fileno())
            scratch.replace(target)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            kind = DiskFullError if is_full(error) else JournalError
            raise kind(f"cannot keep unfinished work in {target}: {error.strerror or error}") from error
        return target

    def read(self, key: str) -> Mapping[str, bytes] | None:
        """The files of a task, or None where there are none, or none that can be read."""
        try:
            with zipfile.ZipFile(self._path(key)) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
        except (OSError, zipfile.BadZipFile, zlib.error, JournalError):
            return None

    def keys(self) -> set[str]:
        """The tasks of which something is kept."""
        try:
            names = [path.name.removesuffix(_SUFFIX) for path in self.folder.glob(f"*{_SUFFIX}")]
        except OSError:
            return set()
        return {name for name in names if _KEY.fullmatch(name)}

    def remove(self, key: str) -> None:
        """Keep nothing of a task any more: it is done, or the remote has it."""
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def set_aside(self, key: str) -> Path | None:
        """Leave what is kept of a task to a person, because somebody went on without it; where it is now."""
        names = (self._path(key).with_suffix(f".{number}{_ASIDE}") for number in itertools.count(1))
        aside = next(path for path in names if not path.exists())
        try:
            self._path(key).replace(aside)
        except OSError:
            return None
        return aside

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise JournalError(f"{key!r} is not the key of a task")
        return self.folder / f"{key}{_SUFFIX}"
