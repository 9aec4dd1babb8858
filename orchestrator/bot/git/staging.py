"""Decides which changes are committed: selects and stages paths, then checks the change."""

from __future__ import annotations

import os
import posixpath
import stat
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import CommitOutcome, LeftOut
from orchestrator.bot.git.hostgit import decode_paths, encode_paths, error_for, main_line, storage_errors
from orchestrator.bot.git.objects import (
    DIFFERENCES,
    IGNORING,
    Contents,
    Listing,
    change_index,
    differences,
    update_index,
    write_tree,
)
from orchestrator.core.changes import SUBMODULE_MODE
from orchestrator.core.errors import DiskFullError, WorkspaceError
from orchestrator.core.repositories import is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.git.base import CommitScreen
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.objects import Difference
    from orchestrator.core.changes import FileChange

# GitHub refuses larger files: https://docs.github.com/en/repositories/working-with-files/managing-large-files
_LARGEST_BYTES = 100 * 1024 * 1024
# Of a new file that only commands made.
_LARGE_BYTES = 1_000_000
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", *DIFFERENCES)
# A patch is read by people; looking for secrets in a larger one would take many seconds.
_MOST_PATCH_BYTES = 10_000_000
# A folder with more new files than this is build output or installed packages, however small each file is.
_MOST_NEW_FILES = 500


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
    """Sorts changed paths into a `Selection`. `index` has the modes of the tracked paths."""

    tree: Path
    index: Mapping[str, str]

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
            if self.index.get(parent) == SUBMODULE_MODE:
                return f"inside the submodule {parent}"
        return None

    def _judge(self, path: str, selection: Selection, *, command_only: bool) -> str | None:
        """Decide by what is on disk; return why the path is left out, or None."""
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
        """Return why the path's parent folders do not lead to it, or None."""
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
            limit = _LARGE_BYTES if command_only and not tracked else _LARGEST_BYTES
            size = status.st_size
            return f"too large ({size:,} bytes, the limit is {limit:,})" if size > limit else None
        if stat.S_ISLNK(status.st_mode):
            return self._reason_against_link(path)
        if os.path.lexists(self.tree / path / ".git"):
            return "a nested repository"
        return "not a regular file"

    def _reason_against_link(self, path: str) -> str | None:
        target = str((self.tree / path).readlink())
        if link_stays(path, target) and link_ends_inside(self.tree, path):
            return None
        return "a symbolic link that leaves the repository"

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


def link_ends_inside(tree: Path, path: str) -> bool:
    """Return whether a link on disk finally leads to a place in the working tree, and not in `.git`."""
    root = Path(os.path.realpath(tree))
    end = Path(os.path.realpath(root / path))
    return end.is_relative_to(root) and not any(map(is_git_name, end.relative_to(root).parts))


def folders_above(path: str) -> list[str]:
    """Return the parent folders of a path, the nearest first."""
    pieces = path.rstrip("/").split("/")
    return ["/".join(pieces[:count]) for count in range(len(pieces) - 1, 0, -1)]


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


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


COMMITTING = "cannot commit"


class Stager:
    """Stages changes of the working tree into an index file.

    Attributes:
        links: the links of the index that was staged into last, with their objects.
        taken: the paths in the index that was staged into last.
    """

    def __init__(self, files: HostGit, tree: Path) -> None:
        self.links: Mapping[str, str] = {}
        self.taken: set[str] = set()
        self._git = files.without_tree()
        self._files = files
        self._tree = tree

    def changed(self, index: Path) -> set[str]:
        """Return the tracked paths that differ from the index, and new ones that are not ignored."""
        output = self._files.run(
            *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"),
            "--ignore-submodules=all",
            doing="cannot see what changed",
            index=index,
        )
        # `XY path`: X is the index against HEAD, which is not asked here; Y is the files against the index.
        return {entry[3:].rstrip("/") for entry in decode_paths(output) if entry[1] != " "}

    def stage(
        self, index: Path, touched: set[str], known: Listing | None, *, include_commands: bool
    ) -> list[LeftOut]:
        """Stage the touched paths, and with `include_commands` all changed ones. Return what was not staged.

        Args:
            known: what the index has now; None to read it.
        """
        by_commands = self.changed(index) if include_commands else set[str]()
        listing = known or self._read(index)
        tracked, self.links = listing.modes, listing.links
        with storage_errors(COMMITTING):
            selection = Selector(self._tree, tracked).select(touched, by_commands)
        # What commands made and is ignored is not among the changes; what a tool wrote may be.
        ignored = self._ignored([path for path in selection.add if path not in tracked], index)
        selection.add = [path for path in selection.add if path not in ignored]
        selection.left_out += [LeftOut(path, "ignored by .gitignore") for path in ignored]
        update_index(self._files, index, [], selection.remove, doing=COMMITTING)
        refused = self._add(selection, index)
        self.taken = {*tracked, *selection.add} - {*selection.remove, *(item.path for item in refused)}
        return sorted(selection.left_out + refused, key=lambda item: item.path)

    def restore(self, listed: Sequence[Difference], index: Path) -> None:
        """Reset each difference in the index to its old entry.

        Raises:
            WorkspaceError: git refuses one of the paths, or it is a file and a folder at once.
        """
        # With the files, as for every write of an index: git then checks files again that changed at the time of
        # the write.
        change_index(self._files, index, [found.reversed() for found in listed], doing=COMMITTING)

    def _read(self, index: Path) -> Listing:
        """Read an index, from lines `<mode> <object> <stage>TAB<path>`."""
        output = self._git.run("ls-files", "-z", "--stage", doing=COMMITTING, index=index)
        lines = (line.partition("\t") for line in decode_paths(output))
        return Listing.of({path: fields.split() for fields, _, path in lines}, 1)

    def _ignored(self, paths: list[str], index: Path) -> set[str]:
        if not paths:
            return set()
        result = self._files.attempt(
            *("check-ignore", "-z", "--stdin"),
            doing=COMMITTING,
            # This command knows no literal paths; behind `./` no character begins a pattern's magic.
            stdin=encode_paths(f"./{path}" for path in paths),
            index=index,
            variables={"GIT_LITERAL_PATHSPECS": "0"},
        )
        none_is_ignored = 1
        if result.status not in {0, none_is_ignored}:
            raise error_for(result.stderr, COMMITTING)
        return {path.removeprefix("./") for path in decode_paths(result.stdout)}

    def _add(self, selection: Selection, index: Path) -> list[LeftOut]:
        refused: list[LeftOut] = []
        pending = [selection.add] if selection.add else []
        while pending:
            paths = pending.pop()
            result = self._files.attempt(
                *("update-index", "-z", "--add", "--remove", "--replace", "--stdin"),
                doing=COMMITTING,
                stdin=encode_paths(paths),
                index=index,
            )
            if result.status == 0 and IGNORING not in result.stderr:
                continue
            if result.status == 0:
                taken = self._read(index).modes
                refused += [
                    LeftOut(path, "git does not accept this path") for path in paths if path not in taken
                ]
                continue
            error = error_for(result.stderr, COMMITTING)
            if isinstance(error, DiskFullError):
                raise error
            # A run that failed changed nothing. Halving finds the paths that git does not take.
            if len(paths) == 1:
                refused.append(LeftOut(paths[0], f"git does not accept it: {main_line(result.stderr)}"))
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
        staged = tree = write_tree(self.git, index, doing=COMMITTING)
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
            tree = write_tree(self.git, index, doing=COMMITTING)
            new = differences(self.git, self.tip, tree)
            whole = self._since_base(tree, new)
            if any(difference.path in held for difference in new):
                raise WorkspaceError(
                    f"{COMMITTING}: what needs a person's approval could not be removed from the change"
                )
        changes = tuple(contents.change(difference) for difference in whole)
        waiting = [LeftOut(path, reason) for path, reason in sorted(held.items())]
        files = [difference.path for difference in new]
        outcome = replace(outcome, files=files, changes=changes, held=waiting)
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
