"""Where the state is kept: one home with the runs, the local forge and the cache in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError, DiskFullError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from datetime import datetime

JOURNAL_FILE = "journal.jsonl"
HOME_VARIABLE = "PULLWRIGHT_HOME"
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of all state. Nothing is created by looking at it."""

    root: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Home:
        """What `PULLWRIGHT_HOME` names, else the user's state folder as the platform has it."""
        named = environ.get(HOME_VARIABLE)
        if named:
            return cls(Path(named).expanduser().absolute())
        import platformdirs

        return cls(platformdirs.user_state_path("pullwright", appauthor=False))

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return self.root / "runs"

    @property
    def forge(self) -> Path:
        """Pull requests and questions of local repositories."""
        return self.root / "forge"

    @property
    def unfinished(self) -> Path:
        """Work that the remote did not take, one folder a repository."""
        return self.root / "unfinished"

    @property
    def cache(self) -> Path:
        """What may be deleted at any time."""
        return self.root / "cache"


def new_run_id(now: datetime, source: random.Random) -> str:
    """A name such as `20261121-033112-ab12cd`, so that names sort by time."""
    return f"{now:%Y%m%d-%H%M%S}-{source.getrandbits(24):06x}"


def create_run_folder(home: Home, run: str) -> Path:
    """Create the folder of a new run, readable by its owner only.

    Raises:
        ConfigurationError: the home cannot be written to, or the run exists.
        DiskFullError: no space is left.
    """
    folder = home.runs / run
    try:
        home.root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        home.runs.mkdir(mode=_PRIVATE, exist_ok=True)
        folder.mkdir(mode=_PRIVATE)
    except OSError as error:
        if is_full(error):
            raise DiskFullError(f"no space is left for the run's folder {folder}") from error
        reason = error.strerror or error
        raise ConfigurationError(
            f"cannot create the run's folder {folder}: {reason}; {HOME_VARIABLE} names another place"
        ) from error
    return folder


def is_full(error: OSError) -> bool:
    """Whether the disk, the quota or the size that a file may have is used up."""
    import errno

    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
