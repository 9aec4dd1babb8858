"""The three-way merge of two trees, made of objects only: no file is read or written, no attribute looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for, printable
from orchestrator.bot.git.hostgit import decode_paths
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.bot.git.hostgit import HostGit

LABELS = "pullwright/"
"""Begins the name of a side in a conflict marker; what follows it says which one."""

LEAST_GIT = (2, 39)
"""The first git that is known to merge trees as we ask it to; `merge-tree --write-tree` itself came with 2.38."""
INSTALL_GIT = f"install git {'.'.join(map(str, LEAST_GIT))} or newer"
"""What a person does about an older one."""

_DOING = "cannot merge"
# https://git-scm.com/docs/git-merge-tree: an older git knows none of the options, and shows how it is used.
_USAGE = 129
_HAS_CONFLICTS = 1
_NOTHING_FOUND = 1
_PATHS_AT_ONCE = 200
# Folders that were renamed on one side would move files of the other: a file stays where it was written.
_SETTINGS = ("-c", "merge.directoryRenames=false", "-c", "merge.renames=true", "-c", "merge.renameLimit=1000")
_NOBODY = {
    f"GIT_{role}_{fact}": value
    for role in ("AUTHOR", "COMMITTER")
    for fact, value in (("NAME", "Pullwright"), ("EMAIL", "pullwright@invalid"), ("DATE", "@0 +0000"))
}


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree that a merge gave; a text in conflict has markers in it, a binary file our version."""

    tree: str
    conflicts: list[str]


def tree_of(git: HostGit, name: str) -> str:
    """The id of a commit's or a tree's tree."""
    return git.run("rev-parse", "--verify", f"{name}^{{tree}}", doing=_DOING).decode("ascii").strip()


def commit_of(git: HostGit, tree: str, parents: Sequence[str], message: str) -> str:
    """A commit by nobody, to give a tree a history. Equal arguments make an equal commit."""
    named = [word for parent in parents for word in ("-p", parent)]
    stdin = f"{message}\n".encode()
    made = git.run("commit-tree", tree, *named, doing=_DOING, stdin=stdin, variables=_NOBODY)
    return made.decode("ascii").strip()


def merge_trees(git: HostGit, old: str, ours: str, theirs: str, labels: tuple[str, str]) -> Merged:
    """Bring what changed from `old` to `theirs` onto `ours`.

    Args:
        git: git on our objects.
        old: the tree that both sides come from.
        ours: a tree.
        theirs: a tree.
        labels: what a conflict marker calls our side and theirs, after `pullwright/`.

    Raises:
        WorkspaceError: git does not take one of the trees, or is too old.
    """
    if ours in {old, theirs}:
        return Merged(theirs, [])
    if old == theirs:
        return Merged(ours, [])
    # Two commits on top of one: git 2.39 merges commits, and finds by itself what they come from.
    root = commit_of(git, old, (), "old")
    names = [f"{LABELS}{label}" for label in labels]
    for name, tree in zip(names, (ours, theirs), strict=True):
        commit = commit_of(git, tree, (root,), name)
        git.run("update-ref", f"refs/{name}", commit, doing=_DOING)
    result = git.attempt(
        *_SETTINGS,
        *("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *names),
        doing=_DOING,
    )
    if result.status == _USAGE:
        version = git.run("version", doing=_DOING).decode("utf-8", "replace").strip()
        message = f"{_DOING}: this is {printable(version)}, which is too old for it; {INSTALL_GIT}"
        raise WorkspaceError(message)
    if result.status not in {0, _HAS_CONFLICTS}:
        raise error_for(result.stderr, _DOING)
    merged, _, paths = result.stdout.partition(b"\0")
    return Merged(merged.decode("ascii"), sorted(set(decode_paths(paths))))


def with_markers(git: HostGit, tree: str, paths: Iterable[str]) -> list[str]:
    """Those of the paths that have markers of `merge_trees` in a tree, sorted.

    Raises:
        WorkspaceError: git failed.
    """
    listed = sorted(set(paths))
    found: list[str] = []
    for start in range(0, len(listed), _PATHS_AT_ONCE):
        result = git.attempt(
            *("grep", "-l", "-z", "-a", "--full-name", "-E", "-e", f"^(<<<<<<<|>>>>>>>) {LABELS}", tree),
            *("--", *listed[start : start + _PATHS_AT_ONCE]),
            doing=_DOING,
        )
        if result.status not in {0, _NOTHING_FOUND}:
            raise error_for(result.stderr, _DOING)
        # `<tree>:<path>`
        found += [name.partition(":")[2] for name in decode_paths(result.stdout)]
    # A literal path also stands for all below it.
    return sorted(set(found) & set(listed))
