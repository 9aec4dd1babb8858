"""The nouns of a forge: repositories, issues, pull requests, and what people say about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.core.redaction import REPLACEMENT

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Credential:
    """What git shows to the forge's server. It goes to no other host, and into no file."""

    host: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credential(host={self.host!r}, username={self.username!r}, password={REPLACEMENT!r})"


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
    assignees: tuple[str, ...] = ()
    updated_at: datetime | None = None


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
    """A comment: other people's words. `author` ends in `[bot]` for a bot, and only then.

    `updated_at` is later than `created_at` if it was edited.
    """

    id: int
    author: str
    body: str
    created_at: datetime
    url: str
    updated_at: datetime | None = None


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
    author: str = ""
    labels: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None


class FeedbackKind(StrEnum):
    """How somebody said something about a pull request."""

    REVIEW = "review"
    """A review as a whole: its words, and its verdict in `Feedback.state`."""
    LINE = "line"
    """A review's comment on a line."""
    COMMENT = "comment"
    """A comment in the conversation."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What somebody said about a pull request: other people's words. Ids count per kind.

    Attributes:
        author: ends in `[bot]` for a bot; empty for an account that is gone.
        state: of a review: `approved`, `changes_requested`, `commented` or `dismissed`; else empty.
        path: of a comment on a line: the file; `line` is None where the line is gone.
        is_resolved: of a comment on a line: its thread is resolved.
    """

    kind: FeedbackKind
    id: int
    author: str
    body: str
    created_at: datetime
    updated_at: datetime
    url: str
    state: str = ""
    path: str = ""
    line: int | None = None
    is_resolved: bool = False


class CheckState(StrEnum):
    """How far a check of a commit is."""

    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    OTHER = "other"
    """Skipped, neutral, cancelled, stale: says nothing about the change."""


ACTIONS_APP = "github-actions"
"""The name of the app whose checks are jobs of workflows."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check run or a commit status.

    Attributes:
        summary: what it says itself: other people's words.
        app: the name of the app whose check it is, as in its address; empty for a commit status.
        app_id: the number of that app, or 0.
    """

    name: str
    state: CheckState
    summary: str
    url: str
    ended_at: datetime | None = None
    app: str = ""
    app_id: int = 0


class TokenKind(StrEnum):
    """Whose authority a token has, told by its form and by what the forge says of it."""

    NONE = "none"
    WORKFLOW = "workflow"
    """`GITHUB_TOKEN` of an Actions run: what it does starts no workflow."""
    APP = "app"
    """A GitHub App's installation token other than a workflow's."""
    CLASSIC = "classic"
    """A personal access token with scopes (`ghp_`)."""
    FINE_GRAINED = "fine-grained"
    """A personal access token with permissions (`github_pat_`)."""
    OAUTH = "oauth"
    """An OAuth app's token on behalf of a user (`gho_`, `ghu_`)."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests so far. `unchanged` ones (304) cost nothing of the rate limit."""

    requests: int = 0
    unchanged: int = 0
    writes: int = 0

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests - other.requests, self.unchanged - other.unchanged, self.writes - other.writes
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a pull request should say; `ensure_pull_request` makes it so."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool
