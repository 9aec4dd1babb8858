"""Applies earlier work to the files of a clone, by a three-way merge that runs nothing of the clone's."""

from __future__ import annotations

import os
import shutil
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import AppliedWork
from orchestrator.bot.git.branches import fetch, is_here, parents
from orchestrator.bot.git.hostgit import printable_line, storage_errors
from orchestrator.bot.git.objects import (
    Contents,
    Merged,
    commit_at,
    differences,
    list_entries,
    merge_trees,
    tree_of,
    with_markers,
    write_tree,
)
from orchestrator.bot.git.remote import HIDDEN, is_commit_id
from orchestrator.bot.git.staging import Stager, folders_above, link_ends_inside, link_stays
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.repositories import MODULES_FILE, folded_name, is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from orchestrator.bot.git.base import Packed
    from orchestrator.bot.git.branches import Branches
    from orchestrator.bot.git.clone import Committer
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote

_READING = "cannot read what changed"


def require_valid(git: HostGit, old: str, new: Iterable[str], *, doing: str, remedy: str = "") -> None:
    """Refuse trees with invalid entries that the present tree does not have.

    Args:
        old: the tree whose files are on disk.
        new: the tree whose files will be on disk, and those that it is made from: a merge may hide an invalid
            entry.
        doing: beginning of the message.
        remedy: end of the message.

    Raises:
        WorkspaceError: there is one; the message names it.
    """
    trees = set(new) - {old}
    known = invalid_entries(list_entries(git, old, doing=_READING)) if trees else set()
    found = {
        fault for tree in trees for fault in invalid_entries(list_entries(git, tree, doing=_READING)) - known
    }
    found = found or {fault for tree in trees for fault in _links_that_leave(git, old, tree)}
    if found:
        path, reason = min(found)
        message = f"{doing}: {printable_line(path)!r} {reason}{remedy}"
        raise WorkspaceError(message)


def invalid_entries(entries: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the entries that git itself would not make, each with the reason.

    Nothing may be located below a link or a submodule, under any name that some file system treats as the
    same.
    """
    # A large repository has a hundred thousand paths, made of a few thousand names.
    key_of = cache(folded_name)
    is_git = cache(is_git_name)

    def key(path: str) -> str:
        return "/".join(map(key_of, path.split("/")))

    found: set[tuple[str, str]] = set()
    files_and_links: set[str] = set()
    not_folders: set[str] = set()
    folders: dict[str, str] = {}
    for mode, path in entries:
        if reason := _reason_against(mode, path, is_git):
            found.add((path, reason))
        if path in files_and_links:
            found.add((path, "occurs twice"))
        files_and_links.add(path)
        if mode in {LINK_MODE, SUBMODULE_MODE}:
            not_folders.add(key(path))
        for folder in folders_above(path):
            if folder in folders:
                break
            folders[folder] = path
    for folder, path in folders.items():
        if folder in files_and_links or key(folder) in not_folders:
            found.add((path, "is below something that is not a folder"))
    return found


def _reason_against(mode: str, path: str, is_git: Callable[[str], bool]) -> str | None:
    """Return why a single entry is invalid, or None."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts) or any(map(is_git, parts)):
        return "is not a path inside the repository"
    if mode == LINK_MODE and is_git_name(parts[-1], MODULES_FILE):
        return f"is a link in place of {MODULES_FILE}"
    return None


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


_DOING = "cannot restore earlier work"
_RUN_AGAIN = ": another worker has finished it, or saved other work there; run again"
_FETCHED = "refs/pullwright/fetched/work"
# A record of work, the work, and what it was made on top of.
_DEPTH_COMMITS = 3


class WorkApplier:
    """Applies changes to the files of a clone that nobody has changed yet."""

    def __init__(self, files: HostGit, committer: Committer, remote: Remote, base: str) -> None:
        self._files = files
        self._git = files.without_tree()
        self._committer = committer
        self._remote = remote
        self._base = base
        self._tree = files.work_tree
        self._stager = Stager(files, files.work_tree)
        # The tree whose files were written here, if any, and its index.
        self._written: str | None = None
        self._index = committer.index

    def apply_work(self, commit: str, reference: str | None, packed: Packed | None = None) -> AppliedWork:
        """Apply a commit's change: see `Clone.apply_work`."""
        self._require_fresh()
        if packed is not None:
            self._unpack(packed)
        else:
            self._fetch(commit, reference)
        above = parents(self._git, commit, doing=_DOING)
        if len(above) != 1 or not is_here(self._git, above[0], doing=_DOING):
            message = f"{_DOING}: {commit} does not have exactly one readable parent"
            raise WorkspaceError(message + self._remedy(reference))
        old, ours = tree_of(self._git, above[0]), self._present_tree()
        theirs = tree_of(self._git, commit)
        remedy = self._remedy(reference)
        require_valid(self._git, ours, [theirs], doing=_DOING, remedy=remedy)
        merged = merge_trees(self._git, old, ours, theirs, ("base", "work"))
        tree, submodules = self._without_submodules(ours, merged.tree)
        self._write_files(tree, remedy)
        paths = {difference.path for difference in differences(self._git, self._committer.head, tree)}
        # Work may be saved with conflicts in it, which then are no conflict of this merge.
        marked = with_markers(self._git, tree, paths)
        conflicts = sorted({*merged.conflicts, *submodules, *marked})
        self._committer.conflicts.update(set(merged.conflicts) | set(marked))
        self._committer.applied |= paths
        return AppliedWork(paths, conflicts, base_moved=old != ours)

    def continue_branch(self, branch: str, branches: Branches) -> AppliedWork:
        """Continue a branch: see `Clone.continue_branch`."""
        self._require_fresh()
        if self._written is not None:
            message = f"{_DOING}: a branch must be continued before other work is applied"
            raise WorkspaceError(message)
        tip, start = branches.beginning(branch)
        base = self._base
        if start == tip:
            merged = Merged(tree_of(self._git, base), [])
        else:
            old, ours, theirs = (tree_of(self._git, name) for name in (start, tip, base))
            remedy = self._remedy(f"refs/heads/{branch}")
            require_valid(self._git, theirs, [ours], doing=_DOING, remedy=remedy)
            merged = merge_trees(self._git, old, ours, theirs, ("branch", "base"))
        above = [tip, base] if start not in {tip, base} else [base if start == tip else tip]
        self._write_files(merged.tree, self._remedy(f"refs/heads/{branch}"))
        with storage_errors(_DOING):
            index = self._committer.index.with_name("index.join")
            shutil.copy2(self._index, index)
        self._committer.join(tip, above, merged.tree, index)
        self._committer.conflicts.update(merged.conflicts)
        return AppliedWork(set(merged.conflicts), merged.conflicts, base_moved=start != base, tip=tip)

    def _require_fresh(self) -> None:
        if not self._committer.fresh:
            message = f"{_DOING}: something was committed here already"
            raise WorkspaceError(message)

    def _present_tree(self) -> str:
        return self._written or tree_of(self._git, self._base)

    def _fetch(self, commit: str, reference: str | None) -> None:
        """Fetch the commit and its parent.

        Raises:
            WorkspaceError: the ref does not lead to it.
        """
        if not is_commit_id(commit):
            message = f"{_DOING}: {printable_line(commit)!r} is not a commit id"
            raise WorkspaceError(message)
        if reference is None:
            # Not every server gives a commit by its id.
            if not is_here(self._git, commit, doing=_DOING) and not self._fetch_as(commit):
                message = (
                    f"{_DOING}: the server does not serve {commit} by its id; name a ref that contains it"
                )
                raise WorkspaceError(message)
            return
        is_full = reference.startswith("refs/")
        if not is_full or self._git.attempt("check-ref-format", reference, doing=_DOING).status != 0:
            message = f"{_DOING}: {printable_line(reference)!r} cannot be the name of a reference"
            raise WorkspaceError(message)
        if not self._fetch_as(reference):
            message = f"{_DOING}: {reference} does not exist any more{_RUN_AGAIN}"
            raise WorkspaceError(message)
        tip = commit_at(self._git, _FETCHED, doing=_DOING)
        if commit not in {tip, *parents(self._git, tip, doing=_DOING)}:
            message = f"{_DOING}: {reference} does not lead to {commit} any more{_RUN_AGAIN}"
            raise WorkspaceError(message)

    def _unpack(self, packed: Packed) -> None:
        """Store the objects of earlier work, and fetch the commit that it is based on.

        Raises:
            WorkspaceError: the server does not serve that commit, or the pack is damaged.
        """
        if not is_here(self._git, packed.onto, doing=_DOING) and not self._fetch_as(packed.onto):
            message = (
                f"{_DOING}: the server does not have the commit {packed.onto} any more, which it is based on"
            )
            raise WorkspaceError(message)
        self._git.run("unpack-objects", "-q", doing=_DOING, stdin=packed.pack)

    def _remedy(self, reference: str | None) -> str:
        """Return what a person can do about work that cannot be applied, as the end of a message."""
        if reference is None:
            return ""
        if not reference.startswith(HIDDEN):
            return f"; a person has to repair {reference}"
        return f"; to begin without it: git push {quote(self._remote.shown)} {quote(f':{reference}')}"

    def _fetch_as(self, wanted: str) -> bool:
        return fetch(self._git, self._remote, {wanted: _FETCHED}, _DEPTH_COMMITS, doing=_DOING)

    def _without_submodules(self, ours: str, tree: str) -> tuple[str, list[str]]:
        """Return the tree with our submodules, and the paths at which it had others, whose files we do not have."""
        other = [
            difference
            for difference in differences(self._git, ours, tree)
            if difference.new is not None
            and SUBMODULE_MODE in {entry.mode for entry in (difference.old, difference.new) if entry}
        ]
        if not other:
            return tree, []
        index = self._index.with_name("index.submodules")
        self._git.run("read-tree", tree, doing=_DOING, index=index)
        self._stager.restore(other, index)
        return write_tree(self._git, index, doing=_DOING), [difference.path for difference in other]

    def _write_files(self, tree: str, remedy: str) -> None:
        """Replace the files by those of a tree.

        Raises:
            WorkspaceError: the tree is invalid, or somebody changed a file in the way.
        """
        old = self._present_tree()
        require_valid(self._git, old, [tree], doing=_DOING, remedy=remedy)
        index = self._index.with_name("index.apply")
        with storage_errors(_DOING):
            shutil.copy2(self._index, index)
            index.with_name("index.apply.lock").unlink(missing_ok=True)
        before = self._links_out(old)
        self._replace(old, tree, index)
        if bad := self._links_out(tree) - before:
            self._replace(tree, old, index)
            message = f"{_DOING}: {printable_line(min(bad))!r} is a symbolic link that leaves the repository{remedy}"
            raise WorkspaceError(message)
        written = index.with_name("index.written")
        with storage_errors(_DOING):
            index.replace(written)
        self._index, self._written = written, tree

    def _replace(self, old: str, new: str, index: Path) -> None:
        """Replace the files by git, which writes no path outside of the tree and overwrites no unknown file."""
        self._files.run("read-tree", "-m", "-u", old, new, doing=_DOING, index=index)

    def _links_out(self, tree: str) -> set[str]:
        """Return the links of a tree that, on disk, lead out of the working tree or into `.git`."""
        listed = list_entries(self._git, tree, doing=_DOING)
        return {path for mode, path in listed if mode == LINK_MODE and not link_ends_inside(self._tree, path)}
