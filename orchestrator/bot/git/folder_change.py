"""Turns a conversation's changes in a folder into work for a fresh clone, on top of a commit that the remote has."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import Packed
from orchestrator.bot.git.hostgit import HostGit, decode_paths, printable_line, storage_errors
from orchestrator.bot.git.local import locate
from orchestrator.bot.git.objects import (
    Difference,
    TreeEntry,
    changed_tree,
    commit_of,
    differences,
    entries_at,
    merge_trees,
    pack_commit,
    read_objects,
    tree_of,
    update_index,
    write_blob,
    write_tree,
)
from orchestrator.bot.git.staging import diff
from orchestrator.core.changes import SUBMODULE_MODE
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DOING = "cannot read the change to propose"
_MESSAGE = "What was changed in a conversation"
_REMOTES = "refs/remotes/"
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ChangeBase:
    """The commit that a change is proposed on, and the files that it is compared with.

    Attributes:
        commit: a commit that the remote has.
        head: the commit checked out in the folder.
        top: the top of the working tree.
        folder: the conversation's folder below `top` in git's form: empty, or with a trailing `/`.
        git_dir: of the repository. It is only read.
        index: the folder's own index, of which a copy is used.
    """

    commit: str
    head: str
    top: Path
    folder: str
    git_dir: Path
    index: Path


@dataclass(frozen=True, slots=True)
class FolderChange:
    """A change of a folder's files that can be proposed.

    Attributes:
        work: for `Clone.apply_work`.
        paths: changed paths from the top of the repository, each with `A`, `M` or `D`.
        left_out: paths at which the folder's files differ from it: other people's edits.
        diff: the change as a unified diff.
        tree: identifies the change: the files and what they are compared with.
    """

    work: Packed
    paths: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    diff: str
    tree: str


def find_base(folder: Path, branch: str, *, is_here: bool) -> ChangeBase:
    """Find the base of a folder's change: the newest commit of its history that the remote has.

    Args:
        branch: the target branch.
        is_here: whether the folder's own repository receives the proposal.

    Raises:
        WorkspaceError: the folder is in no repository, or there is no such commit; the message says what to
            do.
    """
    found, folder = locate(folder), folder.resolve()
    if not found.is_repository:
        raise WorkspaceError(f"{folder} is not in a git repository: /pr proposes changes of one")
    git = HostGit(folder)

    def ask(*words: str) -> str:
        result = git.attempt(*words, doing=_DOING)
        return os.fsdecode(result.stdout.removesuffix(b"\n")) if result.status == 0 else ""

    head = ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head:
        raise WorkspaceError(f"{found.top} has no commit yet: make a first one, then use /pr")
    remotes = ask("for-each-ref", "--format=%(refname)", _REMOTES).splitlines()
    named = f"refs/heads/{branch}" if is_here else f"{_REMOTES}origin/{branch}"
    groups = ([named],) if is_here else ([named], remotes)
    commit = next((base for refs in groups if refs and (base := ask("merge-base", head, *refs))), "")
    if not commit:
        what = f"the branch {branch}" if is_here else "a remote"
        remedy = "name another one with --base" if is_here else "run git fetch"
        raise WorkspaceError(f"no commit of this folder is known to be on {what}: {remedy}, then use /pr")
    common = (folder / ask("rev-parse", "--git-common-dir")).resolve()
    index = folder / ask("rev-parse", "--git-path", "index")
    return ChangeBase(commit, head, found.top, ask("rev-parse", "--show-prefix"), common, index)


@dataclass(frozen=True, slots=True)
class ChangeMaker:
    """Builds changes in a git directory that only this program writes.

    Args:
        store: a folder of ours, for index files.
        git_dir: in it; it has the objects of the tools' changes.
    """

    store: Path
    git_dir: Path
    base: ChangeBase

    def make(self, turns: Iterable[Mapping[str, Difference]], *, everything: bool) -> FolderChange:
        """Build the change.

        Args:
            turns: the changes of each turn's tools, by path below the folder, oldest first.
            everything: whether to take the folder as it is, with other people's edits.

        Raises:
            WorkspaceError: there is no change, tools and people changed the same lines, or git failed.
        """
        self._share_objects()
        git, base = HostGit(self.store, self.git_dir), self.base
        start, whole = tree_of(git, base.commit), self._files()
        tree = whole if everything else self._by_tools(git, start, whole, turns)
        found = differences(git, start, tree)
        others = differences(git, tree, whole)
        left_out = tuple(one.path for one in others if not self._is_same_but_line_ends(git, one))
        if not found:
            yours = f" ({_named(left_out)}: changed by you; /pr --all takes it too)" if left_out else ""
            raise WorkspaceError(f"there is nothing to propose: this conversation changed no file{yours}")
        work = commit_of(git, tree, [base.commit], _MESSAGE)
        pack = pack_commit(git, work, base.commit, doing=_DOING)
        paths = tuple((one.path, change_letter(one)) for one in found)
        text = diff(git, start, tree).decode("utf-8", "replace")
        return FolderChange(Packed(work, base.commit, base.commit, pack), paths, left_out, text, work)

    def _by_tools(
        self, git: HostGit, start: str, whole: str, turns: Iterable[Mapping[str, Difference]]
    ) -> str:
        """Return the base with the tools' changes only, without other edits before, between and after their turns."""
        tree = start
        touched: set[str] = set()
        for turn in turns:
            raw = {f"{self.base.folder}{path}": one for path, one in turn.items()}
            known = entries_at(git, tree, raw.keys())
            changes = [
                replace(self._as_committed(git, one, known.get(path)), path=path) for path, one in raw.items()
            ]
            touched |= raw.keys()
            before = self._with(git, tree, map(_reverse, changes))
            after = self._with(git, tree, changes)
            merged = merge_trees(git, before, tree, after, ("yours", "conversation"))
            if merged.conflicts:
                raise WorkspaceError(
                    f"{_named(merged.conflicts)}: the model changed lines that you had changed, and your "
                    "changes are on no remote: /pr --all proposes both"
                )
            tree = merged.tree
        # A change that somebody has reverted since is not proposed.
        touched -= {one.path for one in differences(git, start, whole)}
        reverted = [one for one in differences(git, start, tree) if one.path in touched]
        return self._with(git, tree, [_reverse(one) for one in reverted]) if reverted else tree

    def _as_committed(self, git: HostGit, one: Difference, base: TreeEntry | None) -> Difference:
        """Return a change in the form in which it would be committed, if git converted line ends at checkout."""
        if (
            base is None
            or one.old is None
            or not self._is_same_but_line_ends(git, Difference(one.path, base, one.old))
        ):
            return one
        new = one.new
        if new is not None:
            [content] = read_objects(git, [new.object_id], doing=_DOING)
            new = TreeEntry(new.mode, write_blob(git, content.replace(b"\r\n", b"\n"), doing=_DOING))
        return Difference(one.path, TreeEntry(one.old.mode, base.object_id), new)

    def _is_same_but_line_ends(self, git: HostGit, one: Difference) -> bool:
        """Return whether the new file differs from the old one only by CRLF line ends."""
        if one.old is None or one.new is None or one.old.object_id == one.new.object_id:
            return False
        if any(entry.mode == SUBMODULE_MODE for entry in (one.old, one.new)):
            return False
        old, new = read_objects(git, [one.old.object_id, one.new.object_id], doing=_DOING)
        return b"\r\n" not in old and new.replace(b"\r\n", b"\n") == old

    def _with(self, git: HostGit, tree: str, wanted: Iterable[Difference]) -> str:
        return changed_tree(git, tree, wanted, self.store / "index.change", doing=_DOING)

    def _files(self) -> str:
        """Return the tree of all present files, except ignored ones and submodules."""
        index, top = self.store / "index.files", self.base.top
        git = HostGit(self.store, self.git_dir, top)
        with storage_errors(_DOING):
            index.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy2(
                    self.base.index, index
                )  # it has the times of unchanged files, which are not read again
        if git.attempt("ls-files", "--cached", doing=_DOING, index=index).status or not index.exists():
            index.unlink(missing_ok=True)
            git.run("read-tree", self.base.head, doing=_DOING, index=index)
        ignored = ("-c", f"core.excludesFile={_global_ignore_file()}")
        listing = (*ignored, "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
        listed = dict.fromkeys(decode_paths(git.run(*listing, doing=_DOING, index=index)))
        present = [path for path in listed if _is_file(top / path)]
        removed = [path for path in listed if not os.path.lexists(top / path)]
        update_index(git, index, present, removed, doing=_DOING)
        return write_tree(git, index, doing=_DOING)

    def _share_objects(self) -> None:
        """Give git access to the repository's objects, its shallow boundary and its ignore rules."""
        ours, theirs = self.git_dir, self.base.git_dir
        with storage_errors(_DOING):
            alternates = ours / "objects" / "info" / "alternates"
            line = os.fsencode(theirs / "objects") + b"\n"
            known = alternates.read_bytes() if alternates.is_file() else b""
            if line not in known.splitlines(keepends=True):
                alternates.write_bytes(known + line)
            for name in ("shallow", "info/exclude"):
                if (theirs / name).is_file():
                    shutil.copyfile(theirs / name, ours / name)


def _global_ignore_file() -> str:
    """Return the person's global ignore file, as git finds it; it may not exist."""
    home = Path.home()
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    for file in (home / ".gitconfig", settings / "config"):
        words = ("config", "--file", str(file), "--get", "core.excludesFile")
        found = HostGit(home).attempt(*words, doing=_DOING) if file.is_file() else None
        if found is not None and found.status == 0:
            return str(Path(os.fsdecode(found.stdout.strip())).expanduser())
    return str(settings / "ignore")


def _reverse(change: Difference) -> Difference:
    return Difference(change.path, change.new, change.old)


def change_letter(found: Difference) -> str:
    """Return the letter of a change, as in git's status."""
    return "A" if found.old is None else "D" if found.new is None else "M"


def _named(paths: Sequence[str]) -> str:
    """Return the first of the paths for a message."""
    more = len(paths) - _MOST_NAMED
    named = ", ".join(map(printable_line, paths[:_MOST_NAMED]))
    return f"{named} and {more} more" if more > 0 else named


def _is_file(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
