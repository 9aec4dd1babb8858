"""Makes a folder of files harmless for a person who runs git in it. No link is followed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import storage_errors
from orchestrator.bot.git.removal import remove_folder
from orchestrator.core.git_names import folded_name, is_git_name

if TYPE_CHECKING:
    from pathlib import Path

# Each level holds one open folder; systems let a process have at least 256 open files.
_MOST_LEVELS = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# With a file HEAD and one of these, git takes a folder for a bare repository and obeys its configuration
# (`is_git_directory` in https://github.com/git/git/blob/master/setup.c).
_HEAD = "head"
_SIGNS = {"refs", "commondir"}
_DOING = "cannot make the kept clone safe for git"


def disarm(tree: Path, beside: Path) -> None:
    """Remove every `.git` in `tree`, and rename what makes a folder a bare repository.

    Anything whose name some file system takes for `.git` is removed, be it a folder, a file or a link.
    `HEAD` beside what a repository has becomes `HEAD.disarmed`. What lies below 100 folders is removed:
    it cannot be looked at.

    Args:
        tree: the files; nothing is done where this is no folder.
        beside: a folder of ours on the same file system, for what is being removed.

    Raises:
        WorkspaceError: something stayed.
    """
    if tree.is_symlink() or not tree.is_dir():
        return
    with storage_errors(_DOING):
        _Disarming(beside).look(os.open(tree, _FOLDER), 0)


class _Disarming:
    def __init__(self, beside: Path) -> None:
        self._beside = beside
        self._removed = 0

    def look(self, folder: int, level: int) -> None:
        """Disarm an open folder, and close it."""
        try:
            # Without these rights nothing in it can be seen or moved.
            os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
            with os.scandir(folder) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            names = {folded_name(name) for name, _ in found}
            for name, is_folder in found:
                if is_git_name(name) or (is_folder and level >= _MOST_LEVELS):
                    self._remove(folder, name, is_folder=is_folder)
                elif is_folder:
                    self.look(_open(folder, name), level + 1)
                elif folded_name(name) == _HEAD and names & _SIGNS:
                    _rename_head(folder, name)
        finally:
            os.close(folder)

    def _remove(self, folder: int, name: str, *, is_folder: bool) -> None:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            return
        moved = _open(folder, name)
        try:
            # Moving a folder writes into it.
            os.fchmod(moved, stat.S_IRWXU)
        finally:
            os.close(moved)
        self._removed += 1
        target = self._beside / f"removed-{self._removed}"
        os.rename(name, target, src_dir_fd=folder)
        remove_folder(target)


def _open(folder: int, name: str) -> int:
    """Open a folder in a folder, with all rights for its owner."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        # Between this and the next line nobody else can put a link here: the folder above is ours.
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _rename_head(folder: int, name: str) -> None:
    target = f"{name}.disarmed"
    while _is_there(folder, target):
        target += "-"
    os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
