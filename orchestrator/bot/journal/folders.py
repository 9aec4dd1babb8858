"""The folders of the program's state: one home with the runs, the local forge, unfinished work and the cache."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError, DiskFullError, JournalError
from orchestrator.core.files import is_full, make_folder, replace_file
from orchestrator.core.repositories import is_task_key

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping


JOURNAL_FILE = "journal.jsonl"
PATCH_NAME = "changes.patch"
"""Changes that were not proposed, for people."""
HOME_VARIABLE = "PULLWRIGHT_HOME"
RUN_NAME = re.compile(r"(\d{8}-\d{6})-[0-9a-f]{6,7}")
"""Matches ids of `new_run_id`, and those of earlier versions, whose last part had six digits."""
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of all state. Its properties create nothing."""

    root: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Home:
        """Return the folder in `PULLWRIGHT_HOME`, else the platform's state folder of the user."""
        named = environ.get(HOME_VARIABLE)
        if named:
            return cls(Path(named).expanduser().absolute())
        import platformdirs

        return cls(platformdirs.user_state_path("pullwright", appauthor=False))

    @property
    def runs(self) -> Path:
        """The folder with one subfolder per run."""
        return self.root / "runs"

    @property
    def looks(self) -> Path:
        """The run of the last look at each repository that found no task."""
        return self.root / "looks"

    @property
    def forge(self) -> Path:
        """Pull requests and questions of local repositories."""
        return self.root / "forge"

    @property
    def unfinished(self) -> Path:
        """Unfinished work that the remote did not accept, one folder per repository."""
        return self.root / "unfinished"

    @property
    def statements(self) -> Path:
        """What models answered about statements of repositories."""
        return self.root / "statements.json"

    @property
    def memory(self) -> Path:
        """The memory file of sessions without a repository."""
        return self.root / "memory.db"

    @property
    def memories(self) -> Path:
        """Memory files of sessions on repositories, one file each."""
        return self.root / "memories"

    @property
    def fleets(self) -> Path:
        """Queues of fleets without a database server, one file each."""
        return self.root / "fleets"

    @property
    def cache(self) -> Path:
        """Files that may be deleted at any time."""
        return self.root / "cache"


def new_run_id(now: datetime, source: random.Random) -> str:
    """Create a run id such as `20261121-033112-7f3ab12`. Ids sort by time, even within a second.

    The last part is the 4096th of the second (three hex digits) and a random number (four).
    """
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond * 4096 // 1_000_000:03x}{source.getrandbits(16):04x}"


def run_names(home: Home) -> list[str]:
    """Return the ids of all runs, newest first."""
    try:
        with os.scandir(home.runs) as entries:
            return sorted((entry.name for entry in entries), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {home.runs}: {error.strerror or error}") from error


def create_run_folder(home: Home, run: str) -> Path:
    """Create the folder of a new run, readable by its owner only.

    Raises:
        ConfigurationError: the home cannot be written to, or the run exists.
        DiskFullError: no space is left.
    """
    folder = home.runs / run
    try:
        make_folder(home.root, _PRIVATE)
        make_folder(home.runs, _PRIVATE)
        folder.mkdir(mode=_PRIVATE)
    except OSError as error:
        if is_full(error):
            raise DiskFullError(f"no space is left for the run's folder {folder}") from error
        reason = error.strerror or error
        raise ConfigurationError(
            f"cannot create the run's folder {folder}: {reason}; {HOME_VARIABLE} names another place"
        ) from error
    return folder


_SUFFIX = ".zip"
_ASIDE = ".old"
_PRIVATE_FILE = 0o600


@dataclass(frozen=True, slots=True)
class KeptWork:
    """Unfinished work of one repository's tasks on this machine. Reading creates nothing.

    Attributes:
        folder: its folder, which only its owner can read.
    """

    folder: Path

    def write(self, key: str, files: Mapping[str, bytes]) -> Path:
        """Store the files of a task in place of earlier ones.

        If it fails, the earlier files are unchanged.
        """
        import zipfile

        target, zipped = self._path(key), io.BytesIO()
        with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        try:
            make_folder(self.folder, _PRIVATE)
            replace_file(target, zipped.getvalue(), _PRIVATE_FILE)
        except OSError as error:
            kind = DiskFullError if is_full(error) else JournalError
            raise kind(f"cannot keep unfinished work in {target}: {error.strerror or error}") from error
        return target

    def read(self, key: str) -> Mapping[str, bytes] | None:
        """Return the files of a task; None if there are none, or none that can be read."""
        import zipfile
        import zlib

        try:
            with zipfile.ZipFile(self._path(key)) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
        except (OSError, zipfile.BadZipFile, zlib.error, JournalError):
            return None

    def keys(self) -> set[str]:
        """Return the tasks with stored files."""
        try:
            names = [path.name.removesuffix(_SUFFIX) for path in self.folder.glob(f"*{_SUFFIX}")]
        except OSError:
            return set()
        return set(filter(is_task_key, names))

    def remove(self, key: str) -> None:
        """Delete the files of a task, because it is done or the remote has them."""
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def set_aside(self, key: str) -> Path | None:
        """Move the files of a task out of the way for a person, because the task continued without them.

        Return their new place.
        """
        names = (self._path(key).with_suffix(f".{number}{_ASIDE}") for number in itertools.count(1))
        aside = next(path for path in names if not path.exists())
        try:
            self._path(key).replace(aside)
        except OSError:
            return None
        return aside

    def _path(self, key: str) -> Path:
        if not is_task_key(key):
            raise JournalError(f"{key!r} is not the key of a task")
        return self.folder / f"{key}{_SUFFIX}"


_KNOWN_FOR = timedelta(days=1)
_MOST_KNOWN = 20_000
_MOST_BYTES = 8_000_000


@dataclass(slots=True)
class RefusedIssues:
    """Issues of one repository that nobody with the permission asked for, so that each look need not find that out again.

    A changed issue is looked at again, and each after a day: a permission changes without its issue.

    Attributes:
        path: the file that keeps them for later runs. It may be deleted at any time.
    """

    path: Path
    _known: dict[str, tuple[str, str, str]] | None = None
    _is_changed: bool = False

    def why(self, number: int, changed_at: datetime | None, now: datetime) -> str:
        """Return why an issue was refused that has not changed since; empty if that is not known."""
        changed, seen, reason = self._read().get(str(number), ("", "", ""))
        if changed_at is None or changed != changed_at.isoformat():
            return ""
        return reason if abs(now - datetime.fromisoformat(seen)) < _KNOWN_FOR else ""

    def note(self, number: int, changed_at: datetime | None, now: datetime, reason: str) -> None:
        """Remember why an issue was refused that was last changed at this time."""
        if changed_at is not None:
            self._read()[str(number)] = changed_at.isoformat(), now.isoformat(), reason
            self._is_changed = True

    def save(self, now: datetime) -> None:
        """Keep what is known for later runs. A failure only costs them requests."""
        if not self._is_changed:
            return
        recent = {
            number: entry
            for number, entry in self._read().items()
            if abs(now - datetime.fromisoformat(entry[1])) < _KNOWN_FOR
        }
        kept = dict(list(recent.items())[-_MOST_KNOWN:])
        with suppress(OSError):
            make_folder(self.path.parent, _PRIVATE)
            replace_file(self.path, json.dumps(kept).encode("ascii"), _PRIVATE_FILE)
            self._is_changed = False

    def _read(self) -> dict[str, tuple[str, str, str]]:
        if self._known is None:
            self._known = {}
            with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
                if self.path.stat().st_size > _MOST_BYTES:
                    return self._known
                for number, (changed, seen, reason) in json.loads(self.path.read_bytes()).items():
                    if all(isinstance(text, str) for text in (changed, seen, reason)):
                        datetime.fromisoformat(seen).astimezone(UTC)
                        self._known[number] = changed, seen, reason
        return self._known
