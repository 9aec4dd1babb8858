"""Decides which changes are committed: selects and stages paths, then checks the change."""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import CommitOutcome, LeftOut
from orchestrator.bot.git.hostgit import decode_paths, encode_paths, storage_errors
from orchestrator.bot.git.lfs import EDITED_POINTER, LfsFile
from orchestrator.bot.git.objects import (
    DIFFERENCES,
    Contents,
    Difference,
    TreeEntry,
    differences,
    read_objects,
    write_blob,
)
from orchestrator.bot.git.working_tree import LARGEST_BYTES
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.errors import DiskFullError, WorkspaceError
from orchestrator.core.lfs_pointers import is_pointer, pointer_to
from orchestrator.core.prompts import shown_path
from orchestrator.core.repositories import is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.git.base import CommitScreen
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.working_tree import WorkingTree
    from orchestrator.core.changes import FileChange
    from orchestrator.core.confined import ConfinedFolder, Entry

# Of a new file that only commands made.
_LARGE_BYTES = 1_000_000
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", *DIFFERENCES)
# A patch is read by people; looking for secrets in a larger one would take many seconds.
_MOST_PATCH_BYTES = 10_000_000
# A folder with more new files than this is build output or installed packages, however small each file is.
_MOST_NEW_FILES = 500


_NOT_ON_WINDOWS = re.compile(
    r"[<>:\"|?*\\\x01-\x1f]|[. ](?:/|\Z)|(?:\A|/)(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\.[^/]{0,255})?(?:/|\Z)",
    re.IGNORECASE,
)
"""https://learn.microsoft.com/windows/win32/fileio/naming-a-file"""
_MOST_NAME_NOTES = 5
IN_SUBMODULE = "inside the submodule "
A_SUBMODULE = "a submodule with files in it, which belong to its own repository"
"""Why something is left out: `IN_SUBMODULE` is followed by the submodule's path."""


@dataclass(slots=True)
class Selection:
    """The decision about paths.

    Attributes:
        add: paths to stage as they are on disk.
        remove: paths to remove from the index.
        left_out: paths to report and leave alone.
    """

    add: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Selector:
    """Sorts changed paths into a `Selection`. `index` has the entries of the tracked paths."""

    tree: ConfinedFolder
    index: Mapping[str, TreeEntry]

    def select(self, touched: set[str], by_commands: set[str]) -> Selection:
        """Decide about every path once. Paths in both sets count as touched."""
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
        """Return why a path is left out whatever its content, or None."""
        parts = path.rstrip("/").split("/")
        if not path or "\0" in path or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
            return "not a path inside the repository"
        if any(is_git_name(part) for part in parts):
            return "inside .git"
        for parent in folders_above(path):
            if self._mode(parent) == SUBMODULE_MODE:
                return f"{IN_SUBMODULE}{parent}"
        return None

    def _judge(self, path: str, selection: Selection, *, command_only: bool) -> str | None:
        """Decide by what is on disk; return why the path is left out, or None."""
        tracked = path in self.index
        obstacle = self._obstacle(path)
        found = self.tree.find(path) if obstacle is None else None
        if found is None or (tracked and found.is_dir and self._mode(path) != SUBMODULE_MODE):
            if tracked:
                selection.remove.append(path)
                return None
            return obstacle
        reason = self._reason_against(path, found, tracked=tracked, command_only=command_only)
        if reason is None:
            selection.add.append(path)
        return reason

    def _obstacle(self, path: str) -> str | None:
        """Return why the path's parent folders do not lead to it, or None."""
        for parent in reversed(folders_above(path)):
            above = self.tree.find(parent)
            if above is not None and above.is_link:
                return f"behind the symbolic link {parent}"
        return None

    def _reason_against(self, path: str, found: Entry, *, tracked: bool, command_only: bool) -> str | None:
        if self._mode(path) == SUBMODULE_MODE:
            return A_SUBMODULE
        if not tracked and any(self.tree.exists(f"{parent}/.git") for parent in folders_above(path)):
            return "inside a nested repository"
        if found.is_file:
            limit = _LARGE_BYTES if command_only and not tracked else LARGEST_BYTES
            return f"too large ({found.size:,} bytes, the limit is {limit:,})" if found.size > limit else None
        if found.is_link:
            return self._reason_against_link(path)
        if self.tree.exists(f"{path}/.git"):
            return "a nested repository"
        return "not a regular file"

    def _reason_against_link(self, path: str) -> str | None:
        if link_stays(path, self.tree.link_target(path)) and link_ends_inside(self.tree, path):
            return None
        return "a symbolic link that leaves the repository"

    def _mode(self, path: str) -> str | None:
        return self.index[path].mode if path in self.index else None

    def _crowded_folders(self, paths: set[str]) -> dict[str, int]:
        """Return the outermost new folders with too many new files, and their numbers."""
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
    """Return whether a link's target is inside the repository and not in `.git`."""
    if target.startswith("/"):
        return False
    parts = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")
    return parts[0] != ".." and not any(map(is_git_name, parts))


_MOST_LINKS = 40
"""Links on the way to a file, as on Linux; more are taken for a loop, which leads nowhere."""


def link_ends_inside(tree: ConfinedFolder, path: str) -> bool:
    """Return whether a link on disk finally leads to a place in the working tree, and not in `.git`.

    Every step stays inside, so nothing outside is looked at.
    """
    waiting, place, links = path.split("/")[::-1], list[str](), 0
    while waiting and links < _MOST_LINKS:
        name = waiting.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            if not place:
                return False
            place.pop()
            continue
        place.append(name)
        found = tree.find("/".join(place))
        if found is not None and found.is_link:
            links += 1
            target = tree.link_target("/".join(place))
            if target.startswith("/"):
                return False
            place.pop()
            waiting += target.split("/")[::-1]
    return not any(map(is_git_name, place))


def folders_above(path: str) -> list[str]:
    """Return the parent folders of a path, the nearest first."""
    pieces = path.rstrip("/").split("/")
    return ["/".join(pieces[:count]) for count in range(len(pieces) - 1, 0, -1)]


# A link to a link to a link; nobody uses more, and links to parent folders would never end.
_MOST_STEPS = 3
MOST_NAMES = 1000
"""Most names of one path. Hundreds of packages may link to one licence, and links can form endless chains."""


class Aliases:
    """The further names under which a file is reachable through links.

    A file behind a link with the name of an instruction file or a workflow has the same effect.

    Args:
        targets: targets of the links as written, by path.
    """

    def __init__(self, targets: Mapping[str, bytes]) -> None:
        self._links: dict[str, list[str]] = {}
        for link, target in sorted(targets.items()):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(link), os.fsdecode(target)))
            if place != "." and not place.startswith(("/", "..")):
                self._links.setdefault(place, []).append(link)

    def of(self, path: str) -> list[str]:
        """Return the further names, the nearest first; at most `MOST_NAMES`, and one more if there are others."""
        if not self._links:
            return []
        found: dict[str, None] = {}
        names = [path]
        for _ in range(_MOST_STEPS):
            new = (
                name
                for known in names
                for name in self._one_step(known)
                if name != path and name not in found
            )
            names = list(dict.fromkeys(islice(new, MOST_NAMES + 1 - len(found))))
            found |= dict.fromkeys(names)
        return list(found)

    def _one_step(self, path: str) -> Iterator[str]:
        for place in (path, *folders_above(path)):
            for link in self._links.get(place, ()):
                yield link + path[len(place) :]


_MOST_IGNORED_NAMED = 5
MADE_AND_IGNORED = "made by a command, and ignored by .gitignore"


COMMITTING = "cannot commit"


class Stager:
    """Stages changes of the working tree into an index file.

    Attributes:
        links: the links of the index that was staged into last, with their objects.
        taken: the paths in the index that was staged into last.
        admits: returns whether a path is taken although an ignore rule names it.
        in_lfs: the files that were staged last whose content belongs into Git LFS. They are staged with it.
        edited_pointers: paths that were left out last because somebody edited a pointer of Git LFS.
    """

    def __init__(self, git: HostGit, files: WorkingTree) -> None:
        self.links: Mapping[str, str] = {}
        self.taken: set[str] = set()
        self.admits: Callable[[str], bool] = lambda _path: False
        self.in_lfs: dict[str, LfsFile] = {}
        self.edited_pointers: set[str] = set()
        self._git = git
        self._files = files

    def stage(
        self, index: Path, touched: set[str], *, include_commands: bool, changed: set[str] | None = None
    ) -> list[LeftOut]:
        """Stage the touched paths, and with `include_commands` all changed ones. Return what was not staged.

        Args:
            changed: the changed paths, if the folder was just compared with the index.
        """
        by_commands = set[str]()
        if include_commands:
            by_commands = self._files.changed(index) if changed is None else changed
        tracked = self._files.index(index)
        self.links = {path: one.object_id for path, one in tracked.items() if one.mode == LINK_MODE}
        with storage_errors(COMMITTING), self._files.opened() as tree:
            selection = Selector(tree, tracked).select(touched, by_commands)
        # What commands made and is ignored is not among the changes; what a tool wrote may be.
        new = [path for path in selection.add if path not in tracked and not self.admits(path)]
        ignored = self._files.ignored(new)
        selection.left_out += [
            LeftOut(path, "ignored by .gitignore", may_be_allowed=True) for path in ignored
        ]
        stored = self._files.store([path for path in selection.add if path not in ignored], index)
        removed = [Difference(path, tracked[path], None) for path in selection.remove]
        self._files.change(index, removed, doing=COMMITTING)
        refused = {**stored.refused, **self._add(index, stored.entries)}
        new_entries = {path: entry for path, entry in stored.entries.items() if path not in refused}
        self.in_lfs, self.edited_pointers = self._look_for_lfs(index, tracked, new_entries)
        if self.edited_pointers:
            self.restore(
                [Difference(path, tracked.get(path), new_entries[path]) for path in self.edited_pointers],
                index,
            )
            refused |= dict.fromkeys(self.edited_pointers, EDITED_POINTER)
        self.taken = {*tracked, *stored.entries} - {*selection.remove, *refused}
        left_out = [LeftOut(path, reason) for path, reason in refused.items()]
        return sorted(selection.left_out + left_out, key=lambda item: item.path)

    def _look_for_lfs(
        self, index: Path, tracked: Mapping[str, TreeEntry], new: Mapping[str, TreeEntry]
    ) -> tuple[dict[str, LfsFile], set[str]]:
        """Return the staged files whose content belongs into Git LFS, and the paths of edited pointers.

        A pointer that the index had before, under any name, stays one: the file was moved. An empty file has none.
        """
        if not any(path.rpartition("/")[2] == ".gitattributes" for path in (*tracked, *new)):
            return {}, set()
        asked = [
            path for path, entry in new.items() if entry.mode != LINK_MODE and entry != tracked.get(path)
        ]
        if not asked:
            return {}, set()
        words = ("check-attr", "--cached", "-z", "--stdin", "filter")
        said = self._git.run(*words, doing=COMMITTING, stdin=encode_paths(asked), index=index)
        fields = decode_paths(said)
        # Three fields each: the path, the attribute, its value.
        below = [path for path, value in zip(fields[::3], fields[2::3], strict=True) if value == "lfs"]
        found, edited = dict[str, LfsFile](), set[str]()
        before = {entry.object_id for entry in tracked.values()} if below else set[str]()
        for path in below:
            (content,) = read_objects(self._git, [new[path].object_id], doing=COMMITTING)
            if is_pointer(content):
                edited |= set() if new[path].object_id in before else {path}
            elif content:
                pointer, oid = pointer_to(content)
                blob = write_blob(self._git, pointer, doing=COMMITTING)
                entry = TreeEntry(new[path].mode, blob)
                self._files.pointers[new[path].object_id] = blob
                found[path] = LfsFile(new[path], entry, oid, len(content), entry == tracked.get(path))
        return found, edited

    def made_and_ignored(self, named: Collection[str]) -> list[LeftOut]:
        """Return what commands made and ignore rules exclude: the first ones by name, and how many more there are.

        It is about the folder as it was compared last as a whole.

        Args:
            named: paths that are told already.
        """
        there = self._files.ignored_there
        found = [path for path in there if not any(one == path or one.startswith(path) for one in named)]
        more = len(found) - _MOST_IGNORED_NAMED
        listed = [LeftOut(path, MADE_AND_IGNORED) for path in found[:_MOST_IGNORED_NAMED]]
        return listed + ([LeftOut(f"{more} more files and folders", MADE_AND_IGNORED)] if more > 0 else [])

    def put_pointers(self, index: Path, files: Mapping[str, LfsFile]) -> None:
        """Stage the pointers of files in place of their contents."""
        changes = [Difference(path, file.content, file.pointer) for path, file in files.items()]
        self._files.change(index, changes, doing=COMMITTING)

    def restore(self, listed: Sequence[Difference], index: Path) -> None:
        """Reset each difference in the index to its old entry."""
        self._files.change(index, [found.reversed() for found in listed], doing=COMMITTING)

    def tree(self, index: Path) -> str:
        """Return the tree id of an index that was staged into."""
        return self._files.tree(index, doing=COMMITTING)

    def _add(self, index: Path, entries: Mapping[str, TreeEntry]) -> dict[str, str]:
        """Write entries into an index. Return the paths that git refuses, with reasons."""
        refused: dict[str, str] = {}
        pending = [list(entries)] if entries else []
        while pending:
            paths = pending.pop()
            try:
                added = [Difference(path, None, entries[path]) for path in paths]
                self._files.change(index, added, doing=COMMITTING)
            except DiskFullError:
                raise
            except WorkspaceError as error:
                # Halving finds the paths that git does not take.
                if len(paths) == 1:
                    refused[paths[0]] = f"git does not accept this path ({error})"
                else:
                    half = len(paths) // 2
                    pending += [paths[half:], paths[:half]]
        return refused


@dataclass(frozen=True, slots=True)
class Screened:
    """The result of `Screening.run`.

    Attributes:
        tree: what may be committed.
        outcome: the outcome so far, without a commit.
        diff: the tree's changes since the base, if it was computed and is the one that people see.
    """

    tree: str
    outcome: CommitOutcome
    diff: bytes | None = None


@dataclass(frozen=True, slots=True)
class Screening:
    """The checks between staging and committing.

    Attributes:
        stager: writes the index.
        base: where the pull request begins.
        tip: what is committed already.
        screen: the checks.
        known: the tree of the tip and all its changes since the base, if an earlier run found them.
    """

    git: HostGit
    stager: Stager
    base: str
    tip: str
    screen: CommitScreen
    known: tuple[str, tuple[FileChange, ...]] | None = None

    def run(self, index: Path, left_out: list[LeftOut]) -> Screened:
        """Check what is staged, and remove held changes from the index.

        Raises:
            WorkspaceError: git failed, or the index still has held changes.
        """
        staged = tree = self.stager.tree(index)
        outcome = CommitOutcome(None, [], left_out, [])
        if self.known is not None and self.known[0] == tree:
            changes = self.known[1]
            return Screened(tree, replace(outcome, changes=changes, refused=self.screen.refuse(changes)))
        new = differences(self.git, self.tip, staged)
        whole = self._since_base(staged, new)
        # A held path goes back to what the tip or the base has; both are among these.
        links = self.stager.links if new else {}
        contents = Contents(self.git, [*new, *whole], links.values())
        aliases = Aliases({link: contents.target(object_id) for link, object_id in links.items()})
        judged = [contents.change(difference) for difference in new]
        held = held_paths(judged, lambda change: self._hold(change, aliases))
        if held:
            self.stager.restore([difference for difference in new if difference.path in held], index)
            tree = self.stager.tree(index)
            new = differences(self.git, self.tip, tree)
            whole = self._since_base(tree, new)
            if any(difference.path in held for difference in new):
                raise WorkspaceError(
                    f"{COMMITTING}: what needs a person's approval could not be removed from the change"
                )
        changes = tuple(contents.change(difference) for difference in whole)
        waiting = [LeftOut(path, reason, may_be_allowed=True) for path, reason in sorted(held.items())]
        files = [difference.path for difference in new]
        made = [difference.path for difference in new if difference.old is None]
        notes = list(name_notes(made, self.stager.taken))
        outcome = replace(outcome, files=files, changes=changes, held=waiting, notes=notes)
        # Before the search for secrets, which takes long where a change is very large.
        if (refused := self.screen.refuse(changes)) is not None:
            return Screened(tree, replace(outcome, refused=refused))
        size = sum(_size(change) for change in judged if change.path in held)
        return self._search(tree, staged, outcome, size)

    def _search(self, tree: str, staged: str, outcome: CommitOutcome, held_bytes: int) -> Screened:
        """Search for secrets in the change and in the patch of held changes, which is created here."""
        patch = b""
        if held_bytes > _MOST_PATCH_BYTES:
            note = (
                f"the changes that need a person's approval have {held_bytes:,} bytes, too many for a patch"
            )
            outcome.notes.append(note)
        elif outcome.held:
            patch = binary_patch(self.git, tree, staged)
        searched = diff(self.git, self.tip, tree, "--text") if outcome.files else b""
        secrets = self._secrets(searched) if searched else []
        secrets += self._secrets(diff(self.git, tree, staged, "--text")) if patch else []
        is_shown = outcome.files and self.tip == self.base and _is_text(outcome.changes)
        outcome = replace(outcome, held_back=secrets, held_patch=b"" if secrets else patch)
        return Screened(tree, outcome, searched if is_shown else None)

    def _hold(self, change: FileChange, aliases: Aliases) -> str | None:
        """Return why a change waits, under its own name or another that links of the repository give it."""
        if (reason := self.screen.hold(change)) is not None:
            return reason
        names = aliases.of(change.path)
        if len(names) > MOST_NAMES:
            return "symbolic links give it too many names"
        judged = ((name, self.screen.hold(replace(change, path=name))) for name in names)
        return next((f"{found}, as {name}" for name, found in judged if found is not None), None)

    def _since_base(self, tree: str, new: list[Difference]) -> list[Difference]:
        return new if self.tip == self.base else differences(self.git, self.base, tree)

    def _secrets(self, text: bytes) -> list[str]:
        return self.screen.find_secrets(text.decode("utf-8", "replace"))


def name_notes(made: Sequence[str], paths: Collection[str]) -> Iterator[str]:
    """Yield remarks on new files that not everybody can check out: of names that differ in case alone, and on Windows.

    A folder that other files have already is not new.

    Args:
        paths: all paths of the commit.
    """
    firsts = {_folded(path.partition("/")[0]) for path in made}
    near = [path for path in paths if _folded(path.partition("/")[0]) in firsts] if made else []
    old = {folder for path in set(near).difference(made) for folder in folders_above(path)}
    own = {_folded(part): part for path in made for part in (*folders_above(path), path) if part not in old}
    twins: dict[str, str] = {}
    for path in near:
        for part in (*folders_above(path), path):
            if (other := own.get(_folded(part), part)) != part:
                twins.setdefault(other, part)
    for one, other in sorted(twins.items())[:_MOST_NAME_NOTES]:
        yield f"{shown_path(one)} and {shown_path(other)} are one file on Windows and macOS: give the new one another name"
    odd = [path for path in made if _NOT_ON_WINDOWS.search(path)]
    for path in odd[:_MOST_NAME_NOTES]:
        yield f"{shown_path(path)} cannot be checked out on Windows: give it another name"


def _folded(path: str) -> str:
    """Return what names have in common that some file systems take for the same."""
    return path if path.isascii() and path.islower() else unicodedata.normalize("NFC", path).casefold()


def held_paths(changes: list[FileChange], hold: Callable[[FileChange], str | None]) -> dict[str, str]:
    """Return the paths that wait for a person, with reasons.

    If a file is replaced by a folder of its name, or a folder by a file, no tree can contain only one half:
    all paths are held together.
    """
    held = {change.path: reason for change in changes if (reason := hold(change)) is not None}
    pending = list(held)
    below: dict[str, list[str]] = {}
    for change in changes:
        for folder in folders_above(change.path):
            below.setdefault(folder, []).append(change.path)
    changed = {change.path for change in changes}
    while pending:
        path = pending.pop()
        for other in (*folders_above(path), *below.get(path, ())):
            if other in changed and other not in held:
                held[other] = f"goes together with {path}"
                pending.append(other)
    return held


def _is_text(changes: Iterable[FileChange]) -> bool:
    """Return whether git treats all changes as text, so that the diff is the same with and without `--text`.

    Attributes do not apply to our diffs, and a NUL makes a file binary. Content that was not read may contain
    one.
    """
    versions = [version for change in changes for version in (change.old, change.new) if version is not None]
    return all(version.content is not None and b"\0" not in version.content for version in versions)


def _size(change: FileChange) -> int:
    return sum(version.size for version in (change.old, change.new) if version is not None)


def diff(git: HostGit, old: str, new: str, *options: str, paths: Iterable[str] = ()) -> bytes:
    """Return a unified diff that the clone cannot influence; of everything if no path is given."""
    return git.run(*_DIFF, *options, old, new, "--", *paths, doing="cannot make the diff")


def binary_patch(git: HostGit, old: str, new: str) -> bytes:
    """Return a patch for `git apply`, with binary files."""
    return diff(git, old, new, "--binary", "--full-index")
