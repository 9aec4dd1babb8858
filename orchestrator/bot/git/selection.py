"""Which changed paths may be committed, and what is said about the others. Looks at files, never into them."""

from __future__ import annotations

import os
import posixpath
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import LeftOut
from orchestrator.core.changes import SUBMODULE_MODE
from orchestrator.core.git_names import is_git_name

if TYPE_CHECKING:
    from collections.abc import Mapping

# GitHub refuses larger files: https://docs.github.com/en/repositories/working-with-files/managing-large-files
_LARGEST_BYTES = 100 * 1024 * 1024
# A folder with more new files than this is build output or installed packages, however small each file is.
_MOST_NEW_FILES = 500


@dataclass(slots=True)
class Selection:
    """What is to be done with paths.

    Attributes:
        add: to be staged as they are on disk.
        remove: to be taken out of the index.
        left_out: to be named and not touched.
    """

    add: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Selector:
    """Sorts changed paths into a `Selection`.

    Attributes:
        tree: the work tree.
        index: what is tracked, path by path, with its mode.
        large_limit_bytes: for new files that only commands made.
    """

    tree: Path
    index: Mapping[str, str]
    large_limit_bytes: int

    def select(self, touched: set[str], by_commands: set[str]) -> Selection:
        """Judge every path once. Paths in both sets count as touched."""
        selection = Selection()
        crowded = self._crowded_folders(by_commands - touched)
        selection.left_out += [
            LeftOut(
                f"{folder}/",
                f"a new folder of {count} files; list it in .gitignore, or add files with a tool",
            )
            for folder, count in sorted(crowded.items())
        ]
        for path in sorted(touched | by_commands):
            command_only = path not in touched
            if command_only and any(parent in crowded for parent in folders_above(path)):
                continue
            reason = self._refusal(path) or self._judge(path, selection, command_only=command_only)
            if reason is not None:
                selection.left_out.append(LeftOut(path, reason))
        return selection

    def _refusal(self, path: str) -> str | None:
        """Why a path is out whatever is there, if it is."""
        parts = path.rstrip("/").split("/")
        if not path or "\0" in path or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
            return "not a path inside the repository"
        if any(is_git_name(part) for part in parts):
            return "inside .git"
        for parent in folders_above(path):
            if self.index.get(parent) == SUBMODULE_MODE:
                return f"inside the submodule {parent}"
        return None

    def _judge(self, path: str, selection: Selection, *, command_only: bool) -> str | None:
        """Decide by what is on disk; a text says why the path is left out."""
        tracked = path in self.index
        obstacle = self._obstacle(path)
        status = _status(self.tree / path) if obstacle is None else None
        if status is None or (
            tracked and stat.S_ISDIR(status.st_mode) and self.index[path] != SUBMODULE_MODE
        ):
            if tracked:
                selection.remove.append(path)
                return None
            return obstacle
        reason = self._reason_against(path, status, tracked=tracked, command_only=command_only)
        if reason is None:
            selection.add.append(path)
        return reason

    def _obstacle(self, path: str) -> str | None:
        """Why the folders above the path do not lead there, if so."""
        for parent in reversed(folders_above(path)):
            if (self.tree / parent).is_symlink():
                return f"behind the symbolic link {parent}"
        return None

    def _reason_against(
        self, path: str, status: os.stat_result, *, tracked: bool, command_only: bool
    ) -> str | None:
        if self.index.get(path) == SUBMODULE_MODE:
            return "a submodule"
        if not tracked and any(
            os.path.lexists(self.tree / parent / ".git") for parent in folders_above(path)
        ):
            return "inside a nested repository"
        if stat.S_ISREG(status.st_mode):
            limit = self.large_limit_bytes if command_only and not tracked else _LARGEST_BYTES
            size = status.st_size
            return f"too large ({size:,} bytes, the limit is {limit:,})" if size > limit else None
        if stat.S_ISLNK(status.st_mode):
            return self._reason_against_link(path)
        if os.path.lexists(self.tree / path / ".git"):
            return "a nested repository"
        return "not a regular file"

    def _reason_against_link(self, path: str) -> str | None:
        root = Path(os.path.realpath(self.tree))
        end = Path(os.path.realpath(self.tree / path))
        stays = link_stays(path, str((self.tree / path).readlink()))
        if stays and end.is_relative_to(root) and not any(map(is_git_name, end.relative_to(root).parts)):
            return None
        return "a symbolic link that leaves the repository"

    def _crowded_folders(self, paths: set[str]) -> dict[str, int]:
        """The outermost new folders that hold too many new files, with how many."""
        new = [path for path in paths if path not in self.index]
        if len(new) <= _MOST_NEW_FILES:
            return {}
        known = {parent for path in self.index for parent in folders_above(path)}
        counts: dict[str, int] = {}
        for path in new:
            outermost = next(
                (parent for parent in reversed(folders_above(path)) if parent not in known), None
            )
            if outermost is not None:
                counts[outermost] = counts.get(outermost, 0) + 1
        return {folder: count for folder, count in counts.items() if count > _MOST_NEW_FILES}


def link_stays(path: str, target: str) -> bool:
    """Whether a link's text leads to a place inside the repository and not into `.git`."""
    if target.startswith("/"):
        return False
    parts = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")
    return parts[0] != ".." and not any(map(is_git_name, parts))


def folders_above(path: str) -> list[str]:
    """The folders above a path, the nearest first."""
    pieces = path.rstrip("/").split("/")
    return ["/".join(pieces[:count]) for count in range(len(pieces) - 1, 0, -1)]


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
