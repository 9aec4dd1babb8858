"""Removing a clone, whatever its files' modes are and whatever still writes into it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path

_TRIES = 4
# Twelve names of 255 bytes are still shorter than the longest path that systems take (4,096 bytes).
_MOST_LEVELS = 12


def remove_folder(folder: Path) -> None:
    """Remove a folder and all below it. Links are removed, never followed. A missing folder is no error.

    Raises:
        WorkspaceError: something could not be removed; the message names the folder.
    """
    failure: OSError | RecursionError | None = None
    for _ in range(_TRIES):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError as error:
            # Either it is gone, or a program that still runs removed something at the same time.
            failure = error
        except (OSError, RecursionError) as error:
            failure = error
            with suppress(OSError):
                _loosen(folder)
        if not os.path.lexists(folder):
            return
    message = f"the clone in {folder} could not be removed ({failure}); remove it by hand"
    raise WorkspaceError(message) from failure


def _loosen(folder: Path) -> None:
    """Give the owner all rights on every folder, and move those that lie deep to the top.

    Removing an entry needs rights on its folder only; `rmtree` calls itself once a level.
    """
    number = 0
    pending = [(folder, 0)]
    while pending:
        current, level = pending.pop()
        current.chmod(0o700)
        for child in list(current.iterdir()):
            if child.is_symlink() or not child.is_dir():
                continue
            if level < _MOST_LEVELS:
                pending.append((child, level + 1))
                continue
            child.chmod(0o700)
            number += 1
            pending.append((child.rename(folder / f"deep-{os.getpid()}-{number}"), 1))
