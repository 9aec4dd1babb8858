"""The nouns of a forge and its idempotent verbs. Everything here is synchronous."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Credential:
    """What git shows to the forge's server. It goes to no other host, and into no file."""

    host: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credential(host={self.host!r}, username={self.username!r}, password='***')"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository. `clone_url` never holds a credential; `default_branch` is None while it is empty."""

    name: str
    clone_url: str
    default_branch: str | None
    url: str


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue. Title and body are other people's words. `author` is empty for an account that is gone."""

    number: int
    title: str
    body: str
    is_open: bool
    labels: tuple[str, ...]
    author: str
    url: str
    created_at: datetime


class Permission(StrEnum):
    """What a person may do in the repository: GitHub's roles, the least first."""

    NONE = "none"
    READ = "read"
    TRIAGE = "triage"
    WRITE = "write"
    MAINTAIN = "maintain"
    ADMIN = "admin"

    @property
    def may_write(self) -> bool:
        """Whether it is enough to change the code. Triage, which may label, is not."""
        return self in {Permission.WRITE, Permission.MAINTAIN, Permission.ADMIN}


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of an issue's `title` or `body`. `editor` is empty for an account that is gone."""

    editor: str
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class IssueHistory:
    """Who made an issue what it is.

    Attributes:
        labelled_by: who put the label on that is on it now; empty for an account that is gone,
            None if nobody is known to have done so.
        labelled_at: when, to the second.
        edits: of title and body, in no order. The body's creation may be one of them.
        is_complete: False if there were more edits than were read.
    """

    labelled_by: str | None
    labelled_at: datetime | None
    edits: tuple[Edit, ...]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment: other people's words. `author` ends in `[bot]` for a bot, and only then."""

    id: int
    author: str
    body: str
    created_at: datetime
    url: str


class PullRequestState(StrEnum):
    """`closed` means closed without being merged."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request from a branch of the same repository. `commit` is the branch's head."""

    number: int
    title: str
    body: str
    url: str
    draft: bool
    state: PullRequestState
    branch: str
    base: str
    commit: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a pull request should say; `ensure_pull_request` makes it so."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool


class Forge(Protocol):
    """A forge, seen from one repository. Every verb may be repeated without harm.

    Every method may raise a subclass of `ForgeError`; waiting for rate limits is done inside.
    """

    def repository(self) -> Repository:
        """The repository itself."""

    def credential(self) -> Credential | None:
        """What git needs to clone and push, or None where it needs nothing. Asked for at each use."""

    def open_issues(self, label: str) -> list[Issue]:
        """Open issues with this label, oldest first, pull requests left out. Empty where there are no issues."""

    def issue(self, number: int) -> Issue:
        """One issue.

        Raises:
            ForgeNotFoundError: there is none of this number, or it is a pull request.
        """

    def permission(self, login: str) -> Permission:
        """What a person or bot may do, asked from the forge and remembered. `NONE` where it knows no such name.

        Raises:
            ForgePermissionError: we may not ask.
        """

    def history(self, number: int, label: str) -> IssueHistory:
        """Who put the label on an issue, and who edited it, read now.

        Args:
            number: the issue's.
            label: as for `open_issues`; of several, the last one that went on counts.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """

    def comments(self, number: int) -> list[Comment]:
        """The newest comments on an issue or pull request, oldest of them first; at most 200.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def read_file(self, path: str) -> str | None:
        """A file's text on the default branch, or None where there is none."""

    def our_pull_requests(self, branch_prefix: str) -> list[PullRequest]:
        """Pull requests in every state whose branch, in this repository, begins so; newest first."""

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date.

        Returns:
            The pull request, and whether it was created now. An existing one stays a draft or
            not, as people left it.
        """

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Put a question where a person will see it, once per key: a comment on the issue.

        Args:
            issue: the issue's number, or None where the task is none.
            key: names the question; a second one with this key replaces the first.
            body: Markdown.

        Returns:
            Where it can be read, or None where there was no place to put it.
        """

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Put a comment on an issue or pull request, once per key; a second one replaces the first.

        Returns:
            Where it can be read.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def ensure_label(self, number: int, label: str) -> None:
        """Put a label on an issue or pull request, unless it is there.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
