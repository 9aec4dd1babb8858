"""Reads, compares and merges trees of our own git objects. No file of a clone is read, and no attribute applies."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import CommitLine, FileKind, Identity, TrackedFile
from orchestrator.bot.git.hostgit import (
    HostGit,
    decode_paths,
    error_for,
    printable_line,
    storage_errors,
)
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

DIFFERENCES = ("--no-renames", "--ignore-submodules=none")
"""Options of git's diffs. Without the second a `.gitmodules` with `ignore = all` hides changes of submodules."""

_MOST_CONTENT_BYTES = 1_000_000
# Of all versions together; the smallest are read first.
_MOST_TOTAL_BYTES = 100_000_000
_GONE_MODE = "000000"
_READING = "cannot read what changed"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A tree's entry at a path: git's mode and the object's id."""

    mode: str
    object_id: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two trees differ. A missing entry is None."""

    path: str
    old: TreeEntry | None
    new: TreeEntry | None

    @property
    def has_submodule(self) -> bool:
        """Whether one of the two entries is a submodule."""
        return any(entry is not None and entry.mode == SUBMODULE_MODE for entry in (self.old, self.new))

    def reversed(self) -> Difference:
        """Return the difference in the other direction."""
        return Difference(self.path, self.new, self.old)


def differences(git: HostGit, old: str, new: str) -> list[Difference]:
    """Return the differences between two commits or trees, sorted by path, without rename detection."""
    options = ("-r", "-z", "--raw", "--no-abbrev", *DIFFERENCES)
    output = git.run("diff-tree", *options, old, new, doing=_READING)
    # `:<old mode> <mode> <old object> <object> <status>NUL<path>NUL`
    pieces = output.split(b"\0")[:-1]
    found = []
    for header, path in zip(pieces[::2], pieces[1::2], strict=True):
        old_mode, mode, old_id, object_id, _ = header.decode("ascii").removeprefix(":").split()
        found.append(Difference(os.fsdecode(path), _entry(old_mode, old_id), _entry(mode, object_id)))
    return sorted(found, key=lambda difference: difference.path)


def _entry(mode: str, object_id: str) -> TreeEntry | None:
    return None if mode == _GONE_MODE else TreeEntry(mode, object_id)


class Contents:
    """The contents of entries, read with two git processes, however many there are.

    Args:
        listed: the differences whose entries may be requested.
        links: ids of links whose targets may be requested as well.
    """

    def __init__(self, git: HostGit, listed: Iterable[Difference], links: Iterable[str] = ()) -> None:
        entries = {entry for difference in listed for entry in (difference.old, difference.new) if entry}
        blobs = sorted({entry.object_id for entry in entries if entry.mode != SUBMODULE_MODE} | set(links))
        known = look_up(git, blobs, doing=_READING)
        if any(blob not in known or known[blob].kind != "blob" for blob in blobs):
            raise WorkspaceError(f"{_READING}: a file's content is missing")
        self._sizes = {blob: header.size for blob, header in known.items()}
        wanted = _within_limits(self._sizes)
        self._contents = dict(zip(wanted, read_objects(git, wanted, doing=_READING), strict=True))

    def change(self, difference: Difference) -> FileChange:
        """Return the difference with both contents; None for contents over 1 MB, or over 100 MB together."""
        return FileChange(difference.path, self._version(difference.old), self._version(difference.new))

    def target(self, link: str) -> bytes:
        """Return a link's target; empty if it is too long for any system."""
        return self._contents.get(link) or b""

    def _version(self, entry: TreeEntry | None) -> FileVersion | None:
        if entry is None:
            return None
        if entry.mode == SUBMODULE_MODE:
            return FileVersion(entry.mode, entry.object_id.encode("ascii"), len(entry.object_id))
        return FileVersion(entry.mode, self._contents.get(entry.object_id), self._sizes[entry.object_id])


def _within_limits(sizes: dict[str, int]) -> list[str]:
    chosen: list[str] = []
    total = 0
    for size, blob in sorted((size, blob) for blob, size in sizes.items()):
        total += size
        if size > _MOST_CONTENT_BYTES or total > _MOST_TOTAL_BYTES:
            break
        chosen.append(blob)
    return chosen


@dataclass(frozen=True, slots=True)
class Header:
    """The kind and size of an object. `size` in bytes."""

    kind: str
    size: int


def look_up(git: HostGit, names: Sequence[str], *, doing: str) -> dict[str, Header]:
    """Return kind and size of those objects that exist, by the requested names."""
    if not names:
        return {}
    output = git.run("cat-file", "--batch-check", doing=doing, stdin=_lines(names)).decode("ascii", "replace")
    found = {}
    for name, line in zip(names, output.splitlines(), strict=True):
        words = line.split(" ")
        if len(words) == 3 and words[2].isdecimal():  # noqa: PLR2004  id, kind, size
            found[name] = Header(words[1], int(words[2]))
    return found


def read_objects(git: HostGit, names: Sequence[str], *, doing: str) -> list[bytes]:
    """Return the contents of existing objects, read with one process."""
    output = git.run("cat-file", "--batch", doing=doing, stdin=_lines(names)) if names else b""
    contents = []
    position = 0
    # `<object> <kind> <size>NL<content>NL`, one after another
    while position < len(output):
        end = output.index(b"\n", position)
        size = int(output[position:end].rpartition(b" ")[2])
        start, position = end + 1, end + 2 + size
        contents.append(output[start : position - 1])
    return contents


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode("ascii")


def ls_tree(git: HostGit, *words: str, doing: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each entry that `git ls-tree` lists, with its mode, kind, object, and with `-l` its size.

    The entries are in git's order, unmodified.
    """
    for line in decode_paths(git.run("ls-tree", "-z", "--full-tree", *words, doing=doing)):
        # `<mode> <kind> <object>TAB<path>NUL`; with `-l` the size follows the object, `-` for a submodule
        fields, _, path = line.partition("\t")
        yield path, fields.split()


def read_entries(git: HostGit, tree: str, *, doing: str) -> list[tuple[str, str]]:
    """Return mode and path of every entry that is not a folder, in git's order."""
    return [(fields[0], path) for path, fields in ls_tree(git, "-r", tree, doing=doing)]


def entries_at(git: HostGit, tree: str, paths: Collection[str]) -> dict[str, TreeEntry]:
    """Return a tree's entries at these paths that are not folders."""
    listed = ls_tree(git, "-r", tree, doing=_READING)
    return {path: TreeEntry(mode, object_id) for path, (mode, _, object_id) in listed if path in paths}


def change_index(git: HostGit, index: Path, wanted: Iterable[Difference], *, doing: str) -> None:
    """Write the new entry of each difference into an index, or remove the path if there is none.

    Raises:
        WorkspaceError: git refuses one of the paths, or it is a file and a folder at once.
    """
    lines = []
    for found in wanted:
        # `<mode> <object>TAB<path>NUL`; mode 0 removes the path
        digits = len(found.old.object_id) if found.old is not None else 0
        head = f"{found.new.mode} {found.new.object_id}" if found.new is not None else f"0 {'0' * digits}"
        lines.append(head.encode("ascii") + b"\t" + os.fsencode(found.path) + b"\0")
    if not lines:
        return
    # Without --replace, which would make room for an entry by removing others.
    result = git.attempt(
        *("update-index", "-z", "--index-info"),
        doing=doing,
        stdin=b"".join(lines),
        index=index,
    )
    if result.status != 0 or IGNORING in result.stderr:
        raise error_for(result.stderr, doing)


IGNORING = "Ignoring path"
"""What `update-index` prints, without failing, about a name that some system treats as `.git`."""

_KINDS: dict[str, FileKind] = {LINK_MODE: "link", SUBMODULE_MODE: "submodule"}


def write_tree(git: HostGit, index: Path, *, doing: str) -> str:
    """Return the tree id of an index."""
    return git.run("write-tree", doing=doing, index=index).decode("ascii").strip()


def changed_tree(git: HostGit, tree: str, wanted: Iterable[Difference], index: Path, *, doing: str) -> str:
    """Return the tree with the new entry of each difference.

    It raises what `change_index` raises.

    Args:
        index: a file of ours, which is overwritten.
    """
    git.run("read-tree", tree, doing=doing, index=index)
    # Removed entries first: they make room for new ones, such as a folder in place of a file.
    change_index(git, index, sorted(wanted, key=lambda found: found.new is not None), doing=doing)
    return write_tree(git, index, doing=doing)


def write_blob(git: HostGit, content: bytes, *, doing: str) -> str:
    """Store a file's content unchanged, and return its id."""
    words = ("hash-object", "-w", "--no-filters", "--stdin")
    return git.run(*words, doing=doing, stdin=content).decode("ascii").strip()


def pack_commit(git: HostGit, commit: str, base: str, *, doing: str) -> bytes:
    """Return a pack of the objects of a commit that another commit does not have."""
    words = ("pack-objects", "--revs", "--stdout", "-q")
    return git.run(*words, doing=doing, stdin=f"{commit}\n^{base}\n".encode("ascii"))


def blobs_of(git: HostGit, commit: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the blobs of a commit's files, by path; other entries are left out."""
    if not paths:
        return {}
    listed = ls_tree(git, commit, "--", *paths, doing="cannot look up files")
    return {path: name for path, (_, kind, name) in listed if kind == "blob"}


def recent_commits(git: HostGit, commit: str, count: int) -> list[CommitLine]:
    """Return a commit and its ancestors, newest first."""
    if count < 1:
        return []
    output = git.run(
        *("log", "-z", f"--max-count={count}", "--encoding=UTF-8", "--format=%H%x09%cs%x09%s", commit),
        doing="cannot read the history",
    )
    lines = (line.decode("utf-8", "replace").split("\t", 2) for line in output.split(b"\0") if line)
    return [CommitLine(found, subject, date) for found, date, subject in lines]


LABELS = "pullwright/"
"""Prefix of a side's name in a conflict marker."""

LEAST_GIT = (2, 39)
"""The oldest git known to merge trees as needed; `merge-tree --write-tree` itself appeared in 2.38."""
INSTALL_GIT = f"install git {'.'.join(map(str, LEAST_GIT))} or newer"
"""What a person can do about an older one."""

_MERGING = "cannot merge"
# https://git-scm.com/docs/git-merge-tree: an older git knows none of the options, and shows how it is used.
_USAGE = 129
_HAS_CONFLICTS = 1
_NOTHING_FOUND = 1
_PATHS_AT_ONCE = 200
# Folders that were renamed on one side would move files of the other: a file stays where it was written.
_SETTINGS = ("-c", "merge.directoryRenames=false", "-c", "merge.renames=true", "-c", "merge.renameLimit=1000")


def identity_variables(identity: Identity, seconds: int | None = None) -> dict[str, str]:
    """Return the variables that name the author and the committer of git's next commit.

    Args:
        seconds: its time, since 1970; None for the present.
    """
    facts = {"NAME": identity.name, "EMAIL": identity.email}
    if seconds is not None:
        facts["DATE"] = f"@{seconds} +0000"
    return {f"GIT_{role}_{fact}": value for role in ("AUTHOR", "COMMITTER") for fact, value in facts.items()}


_NEUTRAL = identity_variables(Identity("Pullwright", "pullwright@invalid"), 0)


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree of a merge. A text in conflict contains markers, a binary file in conflict has our version."""

    tree: str
    conflicts: list[str]


def tree_of(git: HostGit, name: str) -> str:
    """Return the tree id of a commit or tree."""
    return _resolve(git, f"{name}^{{tree}}", _READING)


def commit_at(git: HostGit, name: str, *, doing: str) -> str:
    """Return the commit of a ref, a tag or an id. Raise `WorkspaceError` if there is none."""
    return _resolve(git, f"{name}^{{commit}}", doing)


def _resolve(git: HostGit, name: str, doing: str) -> str:
    return git.run("rev-parse", "--verify", "--end-of-options", name, doing=doing).decode("ascii").strip()


def commit_of(git: HostGit, tree: str, parents: Sequence[str], message: str) -> str:
    """Create a commit with a neutral author, to give a tree a history. Equal arguments create equal commits."""
    named = [word for parent in parents for word in ("-p", parent)]
    stdin = f"{message}\n".encode()
    made = git.run("commit-tree", tree, *named, doing=_MERGING, stdin=stdin, variables=_NEUTRAL)
    return made.decode("ascii").strip()


def merge_trees(git: HostGit, old: str, ours: str, theirs: str, labels: tuple[str, str]) -> Merged:
    """Apply the changes from `old` to `theirs` to `ours`.

    Args:
        old: the common ancestor of both sides.
        labels: names of our side and theirs in conflict markers, after `pullwright/`.
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
        git.run("update-ref", f"refs/{name}", commit, doing=_MERGING)
    result = git.attempt(
        *_SETTINGS,
        *("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *names),
        doing=_MERGING,
    )
    if result.status == _USAGE:
        version = git.run("version", doing=_MERGING).decode("utf-8", "replace").strip()
        raise WorkspaceError(
            f"{_MERGING}: this is {printable_line(version)}, which is too old for it; {INSTALL_GIT}"
        )
    if result.status not in {0, _HAS_CONFLICTS}:
        raise error_for(result.stderr, _MERGING)
    merged, _, paths = result.stdout.partition(b"\0")
    return Merged(merged.decode("ascii"), sorted(set(decode_paths(paths))))


def with_markers(git: HostGit, tree: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that contain markers of `merge_trees` in a tree, sorted."""
    listed = sorted(set(paths))
    found: list[str] = []
    for start in range(0, len(listed), _PATHS_AT_ONCE):
        result = git.attempt(
            *("grep", "-l", "-z", "-a", "--full-name", "-E", "-e", f"^(<<<<<<<|>>>>>>>) {LABELS}", tree),
            *("--", *listed[start : start + _PATHS_AT_ONCE]),
            doing=_MERGING,
        )
        if result.status not in {0, _NOTHING_FOUND}:
            raise error_for(result.stderr, _MERGING)
        # `<tree>:<path>`
        found += [name.partition(":")[2] for name in decode_paths(result.stdout)]
    # A literal path also stands for all below it.
    return sorted(set(found) & set(listed))


_DOING = "cannot make the files of a test run"


class Trees:
    """Reads and creates trees in a git directory that only this program writes. It runs nothing of the repository.

    It is not thread-safe.
    """

    def __init__(self, git: HostGit) -> None:
        self._git = git.without_tree()
        self._git_dir = git.git_dir
        # The modes by path of each tree that was listed.
        self._listed: dict[str, Mapping[str, str]] = {}

    def tree_of(self, commit: str) -> str:
        """Return the id of a commit's tree; for a tree, its own id."""
        return tree_of(self._git, commit)

    def commit_sha256(self, commit: str) -> str:
        """Return the SHA-256 of a commit's object, as `git cat-file commit` prints it, in hex."""
        return hashlib.sha256(self._git.run("cat-file", "commit", commit, doing=_READING)).hexdigest()

    def entries(self, tree: str) -> Mapping[str, str]:
        """Return git's mode of each path in a tree: `100644`, `100755`, `120000` (link), `160000` (submodule)."""
        if tree not in self._listed:
            listed = ls_tree(self._git, "-r", tree, doing=_DOING)
            self._listed[tree] = {path: fields[0] for path, fields in listed}
        return self._listed[tree]

    def files(self, tree: str) -> list[TrackedFile]:
        """Return every entry of a tree or commit with its size, sorted by path."""
        listed = sorted(ls_tree(self._git, "-r", "-l", tree, doing="cannot list the files"))
        self._listed[tree] = {path: fields[0] for path, fields in listed}
        return [
            TrackedFile(path, 0 if size == "-" else int(size), _KINDS.get(mode, "file"))
            for path, (mode, _, _, size) in listed
        ]

    def text(self, tree: str, path: str, *, most_bytes: int) -> str | None:
        """Return a file's text in a tree; None if it is missing, larger, or not UTF-8."""
        if not self.entries(tree).get(path, "").startswith("100"):
            return None
        name = f"{tree}:{path}"
        if int(self._git.run("cat-file", "-s", name, doing=_DOING)) > most_bytes:
            return None
        try:
            return self._git.run("cat-file", "blob", name, doing=_DOING).decode("utf-8")
        except UnicodeDecodeError:
            return None

    def link_target(self, tree: str, path: str) -> str:
        """Return the target of a symbolic link in a tree, as it is written; empty if there is no link."""
        if self.entries(tree).get(path) != LINK_MODE:
            return ""
        return os.fsdecode(self._git.run("cat-file", "blob", f"{tree}:{path}", doing=_DOING))

    def changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        """Return all differences between two commits or trees, with both contents."""
        found = differences(self._git, old, new)
        contents = Contents(self._git, found)
        return tuple(map(contents.change, found))

    def importing(self, tree: str, module: str) -> list[str]:
        """Return the Python files of a tree with a line that begins with the import of a module."""
        pattern = rf"^(import|from)[[:space:]]+{re.escape(module)}([^[:alnum:]_]|$)"
        return self.containing(tree, pattern, ("*.py",))

    def containing(self, tree: str, pattern: str, names: Iterable[str]) -> list[str]:
        """Return the files of a tree with these names and a line that matches a pattern, as in `grep -E`."""
        found = self._git.attempt(
            *("grep", "-l", "-z", "-I", "-E", "-e", pattern, tree, "--", *names),
            doing=_DOING,
            variables={"GIT_LITERAL_PATHSPECS": "0"},
        )
        if found.status not in {0, 1}:  # 1 where there is none
            raise error_for(found.stderr, _DOING)
        return [path.removeprefix(f"{tree}:") for path in decode_paths(found.stdout)]

    def mixed(self, onto: str, source: str, paths: Collection[str]) -> str:
        """Return the tree `onto` with these paths taken from `source`; paths that it lacks are removed.

        Entries in the way of such a path, such as a file in place of a folder, are removed as well.
        """
        listed = differences(self._git, onto, source) if paths else ()
        taken = [found for found in listed if found.path in paths]
        if not taken:
            return self.tree_of(onto)
        return changed_tree(self._git, onto, taken, self._index(), doing=_DOING)

    def replaced(self, tree: str, contents: Mapping[str, bytes]) -> str:
        """Return the tree with new content of some of its files."""
        changed = []
        for path, content in contents.items():
            blob = write_blob(self._git, content, doing=_DOING)
            changed.append(Difference(path, None, TreeEntry(self.entries(tree)[path], blob)))
        return changed_tree(self._git, tree, changed, self._index(), doing=_DOING) if changed else tree

    def export(self, tree: str, folder: Path) -> None:
        """Write a tree's files into an empty folder, as a checkout does.

        No filter runs, a submodule is an empty folder, and a symbolic link that leads out of the folder is
        left out.
        """
        git = self._git.on(folder)
        index = self._index()
        git.run("read-tree", "--reset", "-u", tree, doing=_DOING, index=index)
        with storage_errors(_DOING):
            index.unlink(missing_ok=True)
            _remove_links_out(
                folder, (path for path, mode in self.entries(tree).items() if mode == LINK_MODE)
            )

    def _index(self) -> Path:
        """Return the path of a new index file of our own; leftovers of a dead process are removed."""
        index = self._git_dir / "index.tests"
        with storage_errors(_DOING):
            for path in (index, index.with_name(f"{index.name}.lock")):
                path.unlink(missing_ok=True)
        return index


def _remove_links_out(folder: Path, links: Iterable[str]) -> None:
    root = os.path.realpath(folder)
    for path in links:
        # Resolved one by one: a link may lead out by way of another one, however its own words read.
        link = os.path.join(root, path)  # noqa: PTH118  a name of git's, joined as it is
        target = os.path.realpath(link)
        if target != root and not target.startswith(f"{root}/"):
            with ConfinedFolder(folder) as opened:
                opened.remove(path)
