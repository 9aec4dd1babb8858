"""Data types of the clone: identity, tracked files, commits, and their outcomes."""

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

    Bytes of a path that are not UTF-8 are surrogates, as `os.fsdecode` makes them.
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
    """A changed path that was not committed, with the reason.

    Attributes:
        may_be_allowed: whether the owner's patterns of allowed paths would let it in.
    """

    path: str
    reason: str
    may_be_allowed: bool = False


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The result of `Clone.commit_staged`.

    Attributes:
        commit: the new head, or None if there was nothing to commit.
        files: paths that differ between the previous head and the new one, sorted.
        left_out: changed paths that are not in the commit.
        notes: further remarks for a person, one line each.
        held_back: places at which the change, or its held part, adds a secret; then nothing was committed.
        held: changed paths that wait for a person, with the reason; they are not in the commit.
        held_patch: the held changes for `git apply` on top of the head; empty if there are none, if the rest
            was not committed because of `held_back` or `refused`, or if a note says why.
        changes: all differences between head and base, which is the whole pull request. With `held_back` or
            `refused`: those that there would be.
        refused: why the whole change must not be committed; then nothing was.
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
    """The head of a branch on the remote, and its committer."""

    commit: str
    committer_email: str
    committer_name: str


@dataclass(frozen=True, slots=True)
class AppliedWork:
    """Earlier work that was restored onto the files of a clone.

    Attributes:
        paths: paths that now differ from the clone's head, to be passed to `Clone.stage` as touched.
        conflicts: paths that need a decision. A text contains git's conflict markers, labelled
            `pullwright/...`, and is not committed until they are removed. A binary file or a submodule has
            the clone's own version.
        base_moved: whether the work is based on another commit than the clone.
        tip: the branch's head that the next commit continues; empty if no branch was joined.
    """

    paths: set[str]
    conflicts: list[str]
    base_moved: bool
    tip: str = ""


@dataclass(frozen=True, slots=True)
class MovedBase:
    """The head of a base branch that has moved since it was cloned.

    Attributes:
        is_rewritten: whether the cloned commit is not known to be below it: somebody replaced commits.
    """

    commit: str
    is_rewritten: bool


@dataclass(frozen=True, slots=True)
class BranchCommit:
    """A commit of a branch. Its names and addresses are untrusted."""

    commit: str
    committer_name: str
    committer_email: str
    author_email: str


@dataclass(frozen=True, slots=True)
class BranchState:
    """The commits of a remote branch on top of the base.

    Attributes:
        tip: its head.
        commits_since_base: newest first; incomplete if `complete` is False.
        is_ours: whether there is exactly one commit, by the given address, on top of a known commit of the
            base.
        has_only_ours: whether there are commits, and all are by the given address: author and committer, since who
            amends a commit of ours is its committer.
        base_moved: whether the branch does not begin at the cloned commit.
        complete: whether all commits down to the base's history were read.
    """

    tip: str
    commits_since_base: tuple[BranchCommit, ...]
    is_ours: bool
    has_only_ours: bool
    base_moved: bool
    complete: bool


@dataclass(frozen=True, slots=True)
class ProposedCommits:
    """The commits of a change that is proposed for a merge.

    Attributes:
        onto: the head of the target branch.
        start: the merge base: the change is what differs from it.
        is_merged: whether the target already contains the head. Then `start` is the commit before it was
            merged, as far as the history shows: before the merge commit, else the head's parent.
    """

    head: str
    onto: str
    start: str
    is_merged: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit of all changes that belongs to no branch.

    Attributes:
        commit: its id, or None if nothing was changed.
        start: its parent.
        left_out: changed paths that are not in it, sorted by path.
    """

    commit: str | None
    start: str
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """Unfinished work outside of any repository, for a later clone.

    Attributes:
        work: the commit with the changed files, or None if none was changed.
        base: its parent.
        onto: the cloned commit; equal to `base`, unless a branch was continued.
        pack: the objects of `work` that a clone at `onto` lacks, from `git pack-objects`.
    """

    work: str | None
    base: str
    onto: str
    pack: bytes


@dataclass(frozen=True, slots=True)
class Staged:
    """The change that `Clone.commit_staged` would commit.

    Attributes:
        tree: git's tree id; its objects are in the clone, committed or not.
        outcome: the result of `Clone.commit_staged`, without a commit.
        is_new: whether there is something to commit, and nothing forbids it.
    """

    tree: str
    outcome: CommitOutcome
    is_new: bool


@dataclass(frozen=True, slots=True)
class CommitScreen:
    """The checks of every commit. By default everything passes.

    Attributes:
        find_secrets: returns the places at which a diff adds secrets. The diff shows binary files as text,
            decoded with U+FFFD for invalid UTF-8. With any place nothing is committed, so that no history
            contains it.
        hold: returns why the change to one path waits for a person, or None. A rename is two changes.
        refuse: returns why a whole change must not be committed, or None. Its argument are all differences
            from the base.
        admits: returns whether a path is committed although an ignore rule names it.
    """

    find_secrets: Callable[[str], list[str]] = lambda _diff: []
    hold: Callable[[FileChange], str | None] = lambda _change: None
    refuse: Callable[[Sequence[FileChange]], str | None] = lambda _changes: None
    admits: Callable[[str], bool] = lambda _path: False
