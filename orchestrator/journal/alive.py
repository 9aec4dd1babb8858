"""Whether the process of a run is alive: it holds a lock on its journal, which the system lets go with it."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import JournalError
from orchestrator.journal.folders import JOURNAL_FILE

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class RunHold:
    """Says that this process works on a run, until it is closed or the process is gone, however it ends.

    Args:
        folder: the run's folder, with a journal in it.

    Raises:
        JournalError: there is no journal, or the file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / JOURNAL_FILE
        file: int | None = None
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(file, fcntl.LOCK_EX)  # others hold it for a moment only: see `is_alive`
        except OSError as error:
            if file is not None:
                os.close(file)
            raise JournalError(f"cannot lock the journal {path}: {error.strerror or error}") from error
        self._file: int | None = file

    def close(self) -> None:
        """Let go. May be called again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_alive(folder: Path) -> bool:
    """Whether some process holds this run. Where that cannot be told it counts as alive."""
    try:
        file = os.open(folder / JOURNAL_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
