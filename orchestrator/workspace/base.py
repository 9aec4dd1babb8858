"""The nouns of the clone: who commits, what is tracked, what was committed and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

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
        held_back: places at which the change adds a secret; then nothing was committed.
    """

    commit: str | None
    files: list[str]
    left_out: list[LeftOut]
    notes: list[str]
    held_back: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RemoteTip:
    """The head of a branch on the remote, and who committed it."""

    commit: str
    committer_email: str
    committer_name: str


@dataclass(frozen=True, slots=True)
class Screen:
    """What every commit passes before it counts.

    Attributes:
        clean_message: gives the message of a commit that the model made as it may be pushed.
        find_secrets: names the places at which a diff adds secrets; with one, nothing is committed,
            so that no history has it.
    """

    clean_message: Callable[[str], str] = str
    find_secrets: Callable[[str], list[str]] = lambda _diff: []
