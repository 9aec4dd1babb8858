"""Removes what dead processes left in the folder for temporary files, and nothing else."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.bot.git.owner import KEPT_FILE, OWNER_FILE, hold_again
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from orchestrator.core.clock import Clock

# What `tempfile.mkdtemp` makes of our prefixes: those of clones and scratch folders, and `pw-` of the
# environments (a folder for one container's number, one for the socket of a connection).
_CLONE = re.compile(r"pullwright-[a-z0-9_]{8}")
_SMALL = re.compile(r"pw-[a-z0-9_]{8}")
_OURS = re.compile(f"{_CLONE.pattern}|{_SMALL.pattern}")
_SMALL_CONTENT = frozenset({"complaints", "number", "s"})
_PRIVATE = 0o700
# Between the making of a folder and its lock lie microseconds; the machine may sleep there.
_UNMARKED_SECONDS = 600.0
_UNKNOWN_SECONDS = 7 * 24 * 3600.0
# No environment lives longer without touching its folder.
_SMALL_SECONDS = 2 * 24 * 3600.0


def sweep(
    parent: Path,
    keep: Collection[Path] = (),
    *,
    is_over: Callable[[str], bool] = lambda _run: True,
    clock: Clock | None = None,
) -> list[Path]:
    """Remove the clones of dead processes, and their small leftovers. Several may sweep at once.

    A clone is removed only where its owner's file is ours and its lock is free. A folder without that file
    is removed only if it is old and empty: it may be one that is being made, or somebody's. Folders that
    `Clone.keep` marked stay.

    Args:
        parent: where the clones are made.
        keep: folders that stay, because somebody goes on with them.
        is_over: whether a run is known to have come to its end. The clone of any other run stays for a week:
            another process may be about to save what is in it, or one with another state folder.
        clock: tells how old an unmarked folder is; the machine's clock by default.

    Returns:
        The folders that were removed. One that could not be is left for the next time.
    """
    now = (clock or SystemClock()).now().timestamp()
    parent = parent.resolve()
    kept = {os.path.realpath(folder) for folder in keep}
    try:
        with os.scandir(parent) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if _OURS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []
    removed = []
    for name in names:
        folder = parent / name
        if str(folder) in kept:
            continue
        with suppress(OSError, WorkspaceError):
            is_clone = _CLONE.fullmatch(name) is not None
            if _remove_clone(folder, is_over, now) if is_clone else _remove_small(folder, now):
                removed.append(folder)
    return removed


def _remove_clone(folder: Path, is_over: Callable[[str], bool], now: float) -> bool:
    if os.path.lexists(folder / KEPT_FILE):
        return False
    if not os.path.lexists(folder / OWNER_FILE):
        if not _is_old(folder, now, _UNMARKED_SECONDS):
            return False
        folder.rmdir()  # fails where there is anything in it
        return True
    owner = hold_again(folder)
    if owner is None:
        return False
    run = owner.facts.run
    if owner.kept or (run and not is_over(run) and not _is_old(folder, now, _UNKNOWN_SECONDS)):
        owner.release()
        return False
    owner.remove()
    return True


def _remove_small(folder: Path, now: float) -> bool:
    """Remove a folder of an environment: old, and with nothing in it but what they put there."""
    found = list(folder.iterdir())
    if not _is_old(folder, now, _SMALL_SECONDS) or any(path.name not in _SMALL_CONTENT for path in found):
        return False
    for path in found:
        path.unlink(missing_ok=True)
    folder.rmdir()
    return True


def _is_old(folder: Path, now: float, seconds: float) -> bool:
    """Whether it is ours alone, and nothing was put into it or taken out for so long."""
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return ours and stat.S_IMODE(found.st_mode) == _PRIVATE and found.st_mtime < now - seconds
