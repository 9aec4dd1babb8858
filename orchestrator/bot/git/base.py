"""The nouns of the clone: who commits, what is tracked, what was committed and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.core.changes import FileChange

FileKind = Literal["file", "link", "submodule"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Author and committer of every commit made here."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class TrackedFile:
    """An entry of the base commit. `path` is relative, with `/`; `size` in bytes, 0 for a submodule.

    A path that is not UTF-8 carries its bytes as surrogates, as `os.fsdecode` makes them.
    """

    path: str
    size: int
    kind: FileKind


@dataclass(frozen=True, slots=True)
class CommitLine:
    """One line of history. `date` is the day of the commit, `YYYY-MM-DD`."""

    commit: str
    subject: str
    date: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A changed path that was not committed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What `Clone.commit` did.

    Attributes:
        commit: the new head, or None where there was nothing to commit.
        files: paths that differ between the head before and the new one, sorted.
        left_out: what was changed and is not in the commit.
        notes: what else a person should know, one line each.
        held_back: places at which the change, or what is held of it, adds a secret; then nothing was
            committed.
        held: changed paths that wait for a person, with the reason; they are not in the commit.
        held_patch: the held changes for `git apply` on top of the head; empty where there are none, where
            the rest was not committed because of `held_back` or `refused`, or where a note says why.
        changes: everything in which the head differs from the base, thus the whole pull request. With
            `held_back` or `refused`: in which it would.
        refused: why the whole change may not be committed; then nothing was.
    """

    commit: str | None
    files: list[str]
    left_out: list[LeftOut]
    notes: list[str]
    held_back: list[str] = field(default_factory=list)
    held: list[LeftOut] = field(default_factory=list)
    held_patch: bytes = b""
    changes: tuple[FileChange, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class RemoteTip:
    """The head of a branch on the remote, and who committed it."""

    commit: str
    committer_email: str
    committer_name: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """Earlier work that was brought onto the files of a clone.

    Attributes:
        paths: what differs from the clone's head by now: what `Clone.commit` is to be given as touched.
        conflicts: paths that need a decision. A text has git's conflict markers, labelled
            `pullwright/...`, and is not committed before they are gone. Of a binary file or a submodule
            the clone's own version is there.
        base_moved: the work was made on top of something else than what the clone had.
        tip: the branch's head that the next commit goes on top of; empty where none was joined.
    """

    paths: set[str]
    conflicts: list[str]
    base_moved: bool
    tip: str = ""


@dataclass(frozen=True, slots=True)
class BranchCommit:
    """A commit of a branch. Whoever pushed it could choose both names and addresses."""

    commit: str
    committer_name: str
    committer_email: str
    author_email: str


@dataclass(frozen=True, slots=True)
class BranchState:
    """What a branch of the remote has on top of the base.

    Attributes:
        tip: its head.
        commits_since_base: newest first; not all of them where `complete` is False.
        is_ours: exactly one commit, by the asked address, on top of a commit that is known as the base's.
        base_moved: the branch does not begin at the commit that was cloned.
        complete: everything down to the base's history was seen.
    """

    tip: str
    commits_since_base: tuple[BranchCommit, ...]
    is_ours: bool
    base_moved: bool
    complete: bool


@dataclass(frozen=True, slots=True)
class ProposedCommits:
    """What somebody proposes to merge.

    Attributes:
        onto: the head of the branch that it is to be merged into.
        start: the last commit that both have in common: the change is what differs from it.
        is_merged: the branch has the head already. Then `start` is where it stood before, as far as the history
            tells: before the commit that merged the head, else the head's parent.
    """

    head: str
    onto: str
    start: str
    is_merged: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit of everything that was changed, which no branch has.

    Attributes:
        commit: it, or None where nothing was changed.
        start: the commit before it.
        left_out: what was changed and is not in it, sorted by path.
    """

    commit: str | None
    start: str
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """Unfinished work outside of any repository, for a clone that is made later.

    Attributes:
        work: the commit with the changed files, or None where none was changed.
        base: the commit that it is on top of.
        onto: the commit that was cloned; `base`, unless a branch was continued.
        pack: what a clone at `onto` lacks of `work`, as `git pack-objects` packs it.
    """

    work: str | None
    base: str
    onto: str
    pack: bytes


@dataclass(frozen=True, slots=True)
class Staged:
    """What `Clone.commit_staged` would commit.

    Attributes:
        tree: git's id of the files; they are among the clone's objects, committed or not.
        outcome: as `Clone.commit` would return it, without a commit.
        is_new: there is something to commit, and nothing that forbids it.
    """

    tree: str
    outcome: CommitOutcome
    is_new: bool


@dataclass(frozen=True, slots=True)
class CommitScreen:
    """What every commit passes before it counts. By default all of it passes.

    Attributes:
        find_secrets: names the places at which a diff adds secrets. The diff shows binary files as text
            too, and is decoded with U+FFFD for what is not UTF-8. With one place nothing is committed,
            so that no history has it.
        hold: why the change to one path waits for a person, or None. A renamed file is two changes.
        refuse: why a whole change may not be committed, or None. It is given all that would differ from
            the base.
    """

    find_secrets: Callable[[str], list[str]] = lambda _diff: []
    hold: Callable[[FileChange], str | None] = lambda _change: None
    refuse: Callable[[Sequence[FileChange]], str | None] = lambda _changes: None
