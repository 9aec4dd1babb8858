"""Which entries of a tree may not be brought onto files: they would leave the work tree or enter `.git`."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.changes import Contents, differences
from orchestrator.bot.git.failures import printable
from orchestrator.bot.git.selection import folders_above, link_stays
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.git_names import MODULES_FILE, folded_name, is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.bot.git.hostgit import HostGit

_READING = "cannot read what changed"


def require_sound(git: HostGit, old: str, new: Iterable[str], *, doing: str, remedy: str = "") -> None:
    """Refuse trees that are worse than one which is on disk already.

    Args:
        git: git on our objects.
        old: the tree whose files are there.
        new: the tree whose files are to be there, and others that it is made from: a merge may make what
            is wrong with a tree look right.
        doing: begins the message.
        remedy: ends it.

    Raises:
        WorkspaceError: it names the first entry that may not be there.
    """
    trees = set(new) - {old}
    known = unsound(list_entries(git, old)) if trees else set()
    found = {fault for tree in trees for fault in unsound(list_entries(git, tree)) - known}
    found = found or {fault for tree in trees for fault in _links_that_leave(git, old, tree)}
    if found:
        path, reason = min(found)
        message = f"{doing}: {printable(path)!r} {reason}{remedy}"
        raise WorkspaceError(message)


def list_entries(git: HostGit, tree: str) -> list[tuple[str, str]]:
    """Mode and path of every entry that is no folder, in git's order, as the tree has them."""
    output = git.run("ls-tree", "-r", "-z", "--full-tree", tree, doing=_READING)
    lines = (os.fsdecode(line).partition("\t") for line in output.split(b"\0")[:-1])
    return [(fields.partition(" ")[0], path) for fields, _, path in lines]


def unsound(entries: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Entries that no honest tree has, each with the reason.

    A link or a submodule is a wall: nothing may lie behind it, under any name that some file system takes
    for its own.
    """
    # A large repository has a hundred thousand paths, made of a few thousand names.
    key_of = cache(folded_name)
    is_git = cache(is_git_name)

    def key(path: str) -> str:
        return "/".join(map(key_of, path.split("/")))

    found: set[tuple[str, str]] = set()
    leaves: set[str] = set()
    walls: set[str] = set()
    folders: dict[str, str] = {}
    for mode, path in entries:
        if reason := _reason_against(mode, path, is_git):
            found.add((path, reason))
        if path in leaves:
            found.add((path, "is there twice"))
        leaves.add(path)
        if mode in {LINK_MODE, SUBMODULE_MODE}:
            walls.add(key(path))
        for folder in folders_above(path):
            if folder in folders:
                break
            folders[folder] = path
    for folder, path in folders.items():
        if folder in leaves or key(folder) in walls:
            found.add((path, "lies below something that is no folder"))
    return found


def _reason_against(mode: str, path: str, is_git: Callable[[str], bool]) -> str | None:
    """Why no honest tree has an entry, by itself."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts) or any(map(is_git, parts)):
        return "is not a path inside the repository"
    if mode == LINK_MODE and is_git_name(parts[-1], MODULES_FILE):
        return f"is a link in place of {MODULES_FILE}"
    return None


def leaving(tree: Path, links: Iterable[str]) -> set[str]:
    """Those of the links on disk that lead out of the work tree, or into `.git`, in the end."""
    root = Path(os.path.realpath(tree))
    found = set()
    for link in links:
        end = Path(os.path.realpath(root / link))
        if not end.is_relative_to(root) or any(map(is_git_name, end.relative_to(root).parts)):
            found.add(link)
    return found


def _links_that_leave(git: HostGit, old: str, new: str) -> list[tuple[str, str]]:
    listed = [
        difference
        for difference in differences(git, old, new)
        if difference.new is not None and difference.new.mode == LINK_MODE
    ]
    contents = Contents(git, listed)
    return [
        (difference.path, "is a symbolic link that leaves the repository")
        for difference in listed
        if difference.new is not None
        and not link_stays(difference.path, os.fsdecode(contents.target(difference.new.object_id) or b"/"))
    ]
