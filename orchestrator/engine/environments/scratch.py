"""A folder of this machine that belongs to one command or container, and is swept if its process died."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from orchestrator.core.errors import ToolError
from orchestrator.core.locks import try_lock

# As `bot/git/folders.py` names and marks its folders.
_PREFIX = "pullwright-"
_OWNER = "owner"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """A folder, marked as clones are: what a dead process leaves of it is swept like them.

    The mark is a file beside `path` that this process keeps locked. No command can write there.

    Attributes:
        path: the folder.

    Raises:
        ToolError: it cannot be made.
    """

    def __init__(self) -> None:
        try:
            self._folder = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
            self._owner = os.open(os.path.join(self._folder, _OWNER), _NEW, 0o600)  # noqa: PTH118  names
            try_lock(self._owner)
            self.path = os.path.join(self._folder, "home")  # noqa: PTH118  names
            Path(self.path).mkdir(mode=0o700)
        except OSError as error:
            raise ToolError(
                f"the sandbox has no place for temporary files: {error.strerror or error}"
            ) from error

    def remove(self) -> None:
        """Remove it. What a command made so that it cannot be removed here is left to the sweep."""
        shutil.rmtree(self.path, ignore_errors=True)
        if not os.path.lexists(self.path):
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._owner)
