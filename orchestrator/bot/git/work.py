"""Work from elsewhere: a conversation's changes in a folder become work for a clone, and a clone takes up earlier work.

Files are merged in three ways, and nothing of a clone or a folder is run.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.git.base import AppliedWork, Packed
from orchestrator.bot.git.branches import fetch, is_here, parents
from orchestrator.bot.git.hostgit import HostGit, name_paths, printable_line, storage_errors
from orchestrator.bot.git.local import locate
from orchestrator.bot.git.objects import (
    Contents,
    Difference,
    Merged,
    TreeEntry,
    change_index,
    changed_tree,
    commit_at,
    commit_of,
    differences,
    entries_at,
    merge_trees,
    pack_commit,
    read_entries,
    read_objects,
    tree_of,
    with_markers,
    write_blob,
    write_tree,
)
from orchestrator.bot.git.remote import HIDDEN, is_commit_id
from orchestrator.bot.git.staging import diff, folders_above, link_ends_inside, link_stays
from orchestrator.bot.git.working_tree import WorkingTree
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.repositories import MODULES_FILE, folded_name, is_git_name
from orchestrator.engine.environments.patterns import MAX_RULES_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orchestrator.bot.git.base import MovedBase
    from orchestrator.bot.git.branches import Branches
    from orchestrator.bot.git.remote import Remote

_PROPOSING = "cannot read the change to propose"
_MESSAGE = "What was changed in a conversation"
_REMOTES = "refs/remotes/"
_MOST_NAMED = 5
_MOST_SHALLOW_BYTES = 64 << 20


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
    """
    located, folder = locate(folder), folder.resolve()
    found = located.found
    if found is None:
        raise WorkspaceError(f"{folder} is not in a git repository: /pr proposes changes of one")
    git = HostGit(found.git_dir, found.git_dir, foreign=found)

    def ask(*words: str) -> str:
        result = git.attempt(*words, doing=_PROPOSING)
        return os.fsdecode(result.stdout.removesuffix(b"\n")) if result.status == 0 else ""

    head = ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head:
        raise WorkspaceError(f"{located.top} has no commit yet: make a first one, then use /pr")
    remotes = ask("for-each-ref", "--format=%(refname)", _REMOTES).splitlines()
    named = f"refs/heads/{branch}" if is_here else f"{_REMOTES}origin/{branch}"
    groups = ([named],) if is_here else ([named], remotes)
    commit = next((base for refs in groups if refs and (base := ask("merge-base", head, *refs))), "")
    if not commit:
        what = f"the branch {branch}" if is_here else "a remote"
        remedy = "name another one with --base" if is_here else "run git fetch"
        raise WorkspaceError(f"no commit of this folder is known to be on {what}: {remedy}, then use /pr")
    below = folder.relative_to(located.top).as_posix()
    prefix = "" if below == "." else f"{below}/"
    return ChangeBase(commit, head, located.top, prefix, found.common, found.git_dir / "index")


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
        start, (whole, unread) = tree_of(git, base.commit), self._files(git)
        tree = whole if everything else self._by_tools(git, start, whole, turns)
        found = differences(git, start, tree)
        others = differences(git, tree, whole)
        left_out = tuple(
            sorted({*unread, *(one.path for one in others if not self._is_same_but_line_ends(git, one))})
        )
        if not found:
            yours = (
                f" ({name_paths(left_out, _MOST_NAMED)}: changed by you; /pr --all takes it too)"
                if left_out
                else ""
            )
            raise WorkspaceError(f"there is nothing to propose: this conversation changed no file{yours}")
        work = commit_of(git, tree, [base.commit], _MESSAGE)
        pack = pack_commit(git, work, base.commit, doing=_PROPOSING)
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
            before = self._with(git, tree, [one.reversed() for one in changes])
            after = self._with(git, tree, changes)
            merged = merge_trees(git, before, tree, after, ("yours", "conversation"))
            if merged.conflicts:
                raise WorkspaceError(
                    f"{name_paths(merged.conflicts, _MOST_NAMED)}: the model changed lines that you had changed, and your "
                    "changes are on no remote: /pr --all proposes both"
                )
            tree = merged.tree
        # A change that somebody has reverted since is not proposed.
        touched -= {one.path for one in differences(git, start, whole)}
        reverted = [one for one in differences(git, start, tree) if one.path in touched]
        return self._with(git, tree, [one.reversed() for one in reverted]) if reverted else tree

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
            [content] = read_objects(git, [new.object_id], doing=_PROPOSING)
            new = TreeEntry(new.mode, write_blob(git, content.replace(b"\r\n", b"\n"), doing=_PROPOSING))
        return Difference(one.path, TreeEntry(one.old.mode, base.object_id), new)

    def _is_same_but_line_ends(self, git: HostGit, one: Difference) -> bool:
        """Return whether the new file differs from the old one only by CRLF line ends."""
        if one.old is None or one.new is None or one.has_submodule or one.old.object_id == one.new.object_id:
            return False
        old, new = read_objects(git, [one.old.object_id, one.new.object_id], doing=_PROPOSING)
        return b"\r\n" not in old and new.replace(b"\r\n", b"\n") == old

    def _with(self, git: HostGit, tree: str, wanted: Iterable[Difference]) -> str:
        return changed_tree(git, tree, wanted, self.store / "index.change", doing=_PROPOSING)

    def _files(self, git: HostGit) -> tuple[str, list[str]]:
        """Return the tree of all present files, except ignored ones and submodules, and what could not be read."""
        index = self.store / "index.files"
        with storage_errors(_PROPOSING):
            index.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                # It has the times of unchanged files, which are not read again.
                copy_index(self.base.index, index)
        if git.attempt("ls-files", "--cached", doing=_PROPOSING, index=index).status or not index.exists():
            index.unlink(missing_ok=True)
            git.run("read-tree", self.base.head, doing=_PROPOSING, index=index)
        files = WorkingTree(git, self.base.top, times=index, rules=self._ignore_rules())
        found = files.scan(index)
        stored = files.store([*found.modified, *found.new], index)
        gone = [Difference(path, found.index[path], None) for path in found.removed]
        here = [Difference(path, None, entry) for path, entry in stored.entries.items()]
        files.change(index, [*gone, *here], doing=_PROPOSING)
        return files.tree(index, doing=_PROPOSING), sorted(stored.refused)

    def _ignore_rules(self) -> list[bytes]:
        """Return the contents of the ignore files of the repository and of the person."""
        found = []
        for path in (self.base.git_dir / "info" / "exclude", _global_ignore_file()):
            with suppress(OSError), ConfinedFolder(path.parent) as folder:
                found.append(folder.read(path.name, MAX_RULES_BYTES))
        return found

    def _share_objects(self) -> None:
        """Give git access to the repository's objects and its shallow boundary."""
        ours, theirs = self.git_dir, self.base.git_dir
        with storage_errors(_PROPOSING):
            alternates = ours / "objects" / "info" / "alternates"
            line = os.fsencode(theirs / "objects") + b"\n"
            known = alternates.read_bytes() if alternates.is_file() else b""
            if line not in known.splitlines(keepends=True):
                alternates.write_bytes(known + line)
            with suppress(FileNotFoundError), ConfinedFolder(theirs) as folder:
                content = folder.read("shallow", _MOST_SHALLOW_BYTES)
                (ours / "shallow").write_bytes(content)


def copy_index(source: Path, target: Path) -> None:
    """Copy an index with the time at which it was written. Raise `OSError` if it is no regular file."""
    with ConfinedFolder(source.parent) as folder, folder.file(source.name) as file, target.open("wb") as copy:
        written = os.fstat(file.fileno())
        shutil.copyfileobj(file, copy)
    os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))


def _global_ignore_file() -> Path:
    """Return the person's global ignore file, as git finds it; it may not exist."""
    home = Path.home()
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    for file in (home / ".gitconfig", settings / "config"):
        words = ("config", "--file", str(file), "--get", "core.excludesFile")
        found = HostGit(home).attempt(*words, doing=_PROPOSING) if file.is_file() else None
        if found is not None and found.status == 0:
            return Path(os.fsdecode(found.stdout.strip())).expanduser()
    return settings / "ignore"


def change_letter(found: Difference) -> str:
    """Return the letter of a change, as in git's status."""
    return "A" if found.old is None else "D" if found.new is None else "M"


_READING = "cannot read what changed"


def _require_valid(git: HostGit, old: str, new: Iterable[str], remedy: str) -> None:
    """Refuse trees with invalid entries that the present tree does not have.

    Args:
        old: the tree whose files are on disk.
        new: the tree whose files will be on disk, and those that it is made from: a merge may hide an invalid
            entry.
        remedy: end of the message.
    """
    trees = set(new) - {old}
    known = invalid_entries(read_entries(git, old, doing=_READING)) if trees else set()
    found = {
        fault for tree in trees for fault in invalid_entries(read_entries(git, tree, doing=_READING)) - known
    }
    found = found or {fault for tree in trees for fault in _links_that_leave(git, old, tree)}
    if found:
        path, reason = min(found)
        raise WorkspaceError(f"{_RESTORING}: {printable_line(path)!r} {reason}{remedy}")


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
    links = {
        found.path: found.new.object_id
        for found in differences(git, old, new)
        if found.new is not None and found.new.mode == LINK_MODE
    }
    contents = Contents(git, [], links.values())
    return [
        (path, "is a symbolic link that leaves the repository")
        for path, link in links.items()
        if not link_stays(path, os.fsdecode(contents.target(link) or b"/"))
    ]


_RESTORING = "cannot restore earlier work"
_MOVING = "cannot put the change onto the base as it is now"
_FOLDER_MODE = 0o755
_FILE_MODES = {"100644": 0o644, "100755": 0o755}
_RUN_AGAIN = ": another worker has finished it, or saved other work there; run again"
_FETCHED = "refs/pullwright/fetched/work"
# A record of work, the work, and what it was made on top of.
_DEPTH_COMMITS = 3


class WorkingClone(Protocol):
    """What the application of changes uses of a clone. `Clone` is one, and documents the attributes."""

    git: HostGit
    remote: Remote
    tree: Path
    index: Path
    base_commit: str
    head: str
    conflicts: set[str]
    applied: set[str]
    fresh: bool

    def join(self, tip: str, parents: list[str], tree: str, index: Path) -> None:
        """See `Clone`."""


class WorkApplier:
    """Applies changes to the files of a clone that nobody has changed yet."""

    def __init__(self, clone: WorkingClone) -> None:
        self._clone, self._git = clone, clone.git
        # The tree whose files were written here, if any, and its index.
        self._written: str | None = None
        self._index = clone.index

    def apply_work(self, commit: str, reference: str | None, packed: Packed | None = None) -> AppliedWork:
        """Apply a commit's change: see `Clone.apply_work`."""
        self._require_fresh()
        if packed is not None:
            self._unpack(packed)
        else:
            self._fetch(commit, reference)
        above = parents(self._git, commit, doing=_RESTORING)
        if len(above) != 1 or not is_here(self._git, above[0], doing=_RESTORING):
            message = f"{_RESTORING}: {commit} does not have exactly one readable parent"
            raise WorkspaceError(message + self._remedy(reference))
        old, ours = tree_of(self._git, above[0]), self._present_tree()
        theirs = tree_of(self._git, commit)
        remedy = self._remedy(reference)
        _require_valid(self._git, ours, [theirs], remedy)
        merged = merge_trees(self._git, old, ours, theirs, ("base", "work"))
        tree, submodules = self._without_submodules(ours, merged.tree)
        self._write_files(tree, remedy)
        paths = {difference.path for difference in differences(self._git, self._clone.head, tree)}
        # Work may be saved with conflicts in it, which then are no conflict of this merge.
        marked = with_markers(self._git, tree, paths)
        conflicts = sorted({*merged.conflicts, *submodules, *marked})
        self._clone.conflicts.update(set(merged.conflicts) | set(marked))
        self._clone.applied |= paths
        return AppliedWork(paths, conflicts, base_moved=old != ours)

    def continue_branch(self, branch: str, branches: Branches) -> AppliedWork:
        """Continue a branch: see `Clone.continue_branch`."""
        self._require_fresh()
        if self._written is not None:
            raise WorkspaceError(f"{_RESTORING}: a branch must be continued before other work is applied")
        tip, start = branches.beginning(branch)
        base = self._clone.base_commit
        if start == tip:
            merged = Merged(tree_of(self._git, base), [])
        else:
            old, ours, theirs = (tree_of(self._git, name) for name in (start, tip, base))
            remedy = self._remedy(f"refs/heads/{branch}")
            _require_valid(self._git, theirs, [ours], remedy)
            merged = merge_trees(self._git, old, ours, theirs, ("branch", "base"))
        above = [tip, base] if start not in {tip, base} else [base if start == tip else tip]
        self._write_files(merged.tree, self._remedy(f"refs/heads/{branch}"))
        with storage_errors(_RESTORING):
            index = self._clone.index.with_name("index.join")
            shutil.copy2(self._index, index)
        self._clone.join(tip, above, merged.tree, index)
        self._clone.conflicts.update(merged.conflicts)
        return AppliedWork(set(merged.conflicts), merged.conflicts, base_moved=start != base, tip=tip)

    def put_onto(self, base: MovedBase, ours: str) -> Merged:
        """Merge the tree of the present files with another base, and write the result: see `Clone.put_onto`."""
        old, theirs = (tree_of(self._git, name) for name in (self._clone.base_commit, base.commit))
        _require_valid(self._git, old, [theirs], "")
        merged = merge_trees(self._git, old, theirs, ours, ("base", "work"))
        tree = merged.tree
        if base.is_rewritten and merged.conflicts:
            there, here = (entries_at(self._git, name, merged.conflicts) for name in (theirs, tree))
            gone = [Difference(path, here[path], None) for path in here.keys() - there.keys()]
            tree = changed_tree(self._git, tree, gone, self._index.with_name("index.onto"), doing=_MOVING)
        self._write_over(ours, tree)
        return Merged(tree, merged.conflicts)

    def _write_over(self, old: str, new: str) -> None:
        """Replace files of a tree by those of another, where somebody else may write at the same time."""
        found = [one for one in differences(self._git, old, new) if not one.has_submodule]
        wanted = {one.path: one.new for one in found if one.new is not None}
        contents = read_objects(self._git, [entry.object_id for entry in wanted.values()], doing=_MOVING)
        with storage_errors(_MOVING), ConfinedFolder(self._clone.tree) as folder:
            taken = [one.path for one in found if one.old is None and folder.exists(one.path)]
            if taken:
                raise WorkspaceError(f"{_MOVING}: {name_paths(taken, _MOST_NAMED)} is in the way")
            for one in found:
                if one.old is not None and (one.new is None or one.old.mode != one.new.mode):
                    folder.remove_file(one.path)
                    with suppress(OSError):  # it is not empty
                        for above in folders_above(one.path):
                            folder.remove_empty(above)
            for (path, entry), content in zip(wanted.items(), contents, strict=True):
                if above := path.rpartition("/")[0]:
                    folder.make_folder(above, _FOLDER_MODE)
                if entry.mode == LINK_MODE:
                    folder.remove_file(path)
                    folder.make_link(path, content)
                else:
                    folder.write(path, content, _FILE_MODES.get(entry.mode))

    def _require_fresh(self) -> None:
        if not self._clone.fresh:
            raise WorkspaceError(f"{_RESTORING}: something was committed here already")

    def _present_tree(self) -> str:
        return self._written or tree_of(self._git, self._clone.base_commit)

    def _fetch(self, commit: str, reference: str | None) -> None:
        """Fetch the commit and its parent. Raise `WorkspaceError` if the ref does not lead to it."""
        if not is_commit_id(commit):
            raise WorkspaceError(f"{_RESTORING}: {printable_line(commit)!r} is not a commit id")
        if reference is None:
            # Not every server gives a commit by its id.
            if not is_here(self._git, commit, doing=_RESTORING) and not self._fetch_as(commit):
                raise WorkspaceError(
                    f"{_RESTORING}: the server does not serve {commit} by its id; name a ref that contains it"
                )
            return
        is_full = reference.startswith("refs/")
        if not is_full or self._git.attempt("check-ref-format", reference, doing=_RESTORING).status != 0:
            raise WorkspaceError(
                f"{_RESTORING}: {printable_line(reference)!r} cannot be the name of a reference"
            )
        if not self._fetch_as(reference):
            raise WorkspaceError(f"{_RESTORING}: {reference} does not exist any more{_RUN_AGAIN}")
        tip = commit_at(self._git, _FETCHED, doing=_RESTORING)
        if commit not in {tip, *parents(self._git, tip, doing=_RESTORING)}:
            raise WorkspaceError(f"{_RESTORING}: {reference} does not lead to {commit} any more{_RUN_AGAIN}")

    def _unpack(self, packed: Packed) -> None:
        """Store the objects of earlier work, and fetch the commit that it is based on."""
        if not is_here(self._git, packed.onto, doing=_RESTORING) and not self._fetch_as(packed.onto):
            raise WorkspaceError(
                f"{_RESTORING}: the server does not have the commit {packed.onto} any more, which it is based on"
            )
        self._git.run("unpack-objects", "-q", doing=_RESTORING, stdin=packed.pack)

    def _remedy(self, reference: str | None) -> str:
        """Return what a person can do about work that cannot be applied, as the end of a message."""
        if reference is None:
            return ""
        if not reference.startswith(HIDDEN):
            return f"; a person has to repair {reference}"
        return f"; to begin without it: git push {quote(self._clone.remote.shown)} {quote(f':{reference}')}"

    def _fetch_as(self, wanted: str) -> bool:
        return fetch(self._git, self._clone.remote, {wanted: _FETCHED}, _DEPTH_COMMITS, doing=_RESTORING)

    def _without_submodules(self, ours: str, tree: str) -> tuple[str, list[str]]:
        """Return the tree with our submodules, and the paths at which it had others, whose files we do not have."""
        changed = differences(self._git, ours, tree)
        other = [found for found in changed if found.new is not None and found.has_submodule]
        if not other:
            return tree, []
        index = self._index.with_name("index.submodules")
        self._git.run("read-tree", tree, doing=_RESTORING, index=index)
        change_index(self._git, index, [found.reversed() for found in other], doing=_RESTORING)
        return write_tree(self._git, index, doing=_RESTORING), [difference.path for difference in other]

    def _write_files(self, tree: str, remedy: str) -> None:
        """Replace the files by those of a tree."""
        old = self._present_tree()
        _require_valid(self._git, old, [tree], remedy)
        index = self._index.with_name("index.apply")
        with storage_errors(_RESTORING):
            shutil.copy2(self._index, index)
            index.with_name("index.apply.lock").unlink(missing_ok=True)
        before = self._links_out(old)
        self._replace(old, tree, index)
        if bad := self._links_out(tree) - before:
            self._replace(tree, old, index)
            raise WorkspaceError(
                f"{_RESTORING}: {printable_line(min(bad))!r} is a symbolic link that leaves the repository{remedy}"
            )
        written = index.with_name("index.written")
        with storage_errors(_RESTORING):
            index.replace(written)
        self._index, self._written = written, tree

    def _replace(self, old: str, new: str, index: Path) -> None:
        """Replace the files by git, which writes no path outside of the tree and overwrites no unknown file.

        Nobody else has written into them yet, so git finds only files of its own.
        """
        self._git.on(self._clone.tree).run("read-tree", "-m", "-u", old, new, doing=_RESTORING, index=index)

    def _links_out(self, tree: str) -> set[str]:
        """Return the links of a tree that, on disk, lead out of the working tree or into `.git`."""
        listed = read_entries(self._git, tree, doing=_RESTORING)
        links = [path for mode, path in listed if mode == LINK_MODE]
        with storage_errors(_RESTORING), ConfinedFolder(self._clone.tree) as folder:
            return {path for path in links if not link_ends_inside(folder, path)}
