"""What of a staged change may be committed: some paths wait for a person, some changes may not leave at all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.bot.git.aliases import MOST_NAMES, Aliases
from orchestrator.bot.git.base import LeftOut
from orchestrator.bot.git.changes import DIFFERENCES, Contents, differences
from orchestrator.bot.git.selection import folders_above
from orchestrator.bot.git.staging import COMMITTING
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from orchestrator.bot.git.base import Screen
    from orchestrator.bot.git.changes import Difference
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.staging import Stager
    from orchestrator.core.changes import FileChange

_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", *DIFFERENCES)
# A patch is read by people; looking for secrets in a larger one would take many seconds.
_MOST_PATCH_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Screened:
    """What `Screening.run` found; the attributes are those of `CommitOutcome`.

    Attributes:
        tree: what may be committed.
        diff: what it changes since the base, where it was made and is the one that people are shown.
    """

    tree: str
    files: list[str]
    changes: tuple[FileChange, ...]
    held: list[LeftOut]
    notes: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    held_patch: bytes = b""
    refused: str | None = None
    diff: bytes | None = None


@dataclass(frozen=True, slots=True)
class Screening:
    """The checks between staging and committing.

    Attributes:
        git: git on our objects.
        stager: writes the index.
        base: where the pull request begins.
        tip: what is committed already.
        screen: the checks.
        known: the tree of the tip and all that it changes since the base, where an earlier run found that.
    """

    git: HostGit
    stager: Stager
    base: str
    tip: str
    screen: Screen
    known: tuple[str, tuple[FileChange, ...]] | None = None

    def run(self, index: Path) -> Screened:
        """Judge what is staged, and take out of the index what is held.

        Raises:
            WorkspaceError: git failed, or the index still has what is held.
        """
        staged = tree = self.stager.write_tree(index)
        if self.known is not None and self.known[0] == tree:
            changes = self.known[1]
            return Screened(tree, [], changes, [], refused=self.screen.refuse(changes))
        new = differences(self.git, self.tip, staged)
        whole = self._since_base(staged, new)
        # A held path goes back to what the tip or the base has; both are among these.
        links = self.stager.links if new else {}
        contents = Contents(self.git, [*new, *whole], links.values())
        aliases = Aliases({link: contents.target(object_id) for link, object_id in links.items()})
        judged = [contents.change(difference) for difference in new]
        held = held_paths(judged, lambda change: self._hold(change, aliases))
        size = sum(_size(change) for change in judged if change.path in held)
        if held:
            self.stager.restore([difference for difference in new if difference.path in held], index)
            tree = self.stager.write_tree(index)
            new = differences(self.git, self.tip, tree)
            whole = self._since_base(tree, new)
            if any(difference.path in held for difference in new):
                message = f"{COMMITTING}: what waits for a person could not be taken out of the change"
                raise WorkspaceError(message)
        changes = tuple(contents.change(difference) for difference in whole)
        waiting = [LeftOut(path, reason) for path, reason in sorted(held.items())]
        files = [difference.path for difference in new]
        # Before the search for secrets, which takes long where a change is very large.
        if (refused := self.screen.refuse(changes)) is not None:
            return Screened(tree, files, changes, waiting, refused=refused)
        notes = []
        patch = b""
        if size > _MOST_PATCH_BYTES:
            notes.append(f"what waits for a person is {size:,} bytes, too many for a patch; none was made")
        elif held:
            patch = binary_patch(self.git, tree, staged)
        searched = diff(self.git, self.tip, tree, "--text") if files else b""
        secrets = self._secrets(searched) if files else []
        secrets += self._secrets(diff(self.git, tree, staged, "--text")) if patch else []
        shown = searched if files and self.tip == self.base and _is_text(changes) else None
        return Screened(tree, files, changes, waiting, notes, secrets, b"" if secrets else patch, None, shown)

    def _hold(self, change: FileChange, aliases: Aliases) -> str | None:
        """Why a change waits, under its own name or another that links of the repository give it."""
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
    """Which paths wait for a person, and why.

    Where a file makes way for a folder of its name, or a folder for a file, no tree can have one half of
    that: with one path the others are held as well.
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
    """Whether git takes all of it for text, so that its diff is the same with and without `--text`.

    No attribute has a say in our diffs, and a NUL makes a file binary. What was not read may have one.
    """
    versions = [version for change in changes for version in (change.old, change.new) if version is not None]
    return all(version.content is not None and b"\0" not in version.content for version in versions)


def _size(change: FileChange) -> int:
    return sum(version.size for version in (change.old, change.new) if version is not None)


def diff(git: HostGit, old: str, new: str, *options: str, paths: Iterable[str] = ()) -> bytes:
    """A unified diff that nothing of the clone has a say in; of everything where no path is named."""
    return git.run(*_DIFF, *options, old, new, "--", *paths, doing="cannot make the diff")


def binary_patch(git: HostGit, old: str, new: str) -> bytes:
    """A patch for `git apply`, with binary files."""
    return diff(git, old, new, "--binary", "--full-index")
