"""What a forge is for the bot: its values, and its verbs, which may be repeated without harm. Everything is synchronous."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.redaction import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class AttachmentPlace:
    """Where a file is that somebody attached to an issue, a pull request or a comment.

    Attributes:
        url: of the forge's own server. It is asked without a credential first.
        hosts: to which it may lead by redirects: the forge's own stores. No other host is asked.
        credential: shown to the host of `url` alone, where it does not give the file to everybody; empty for none.
        private: places (`host:port`) that the operator named, and that may be private.
    """

    url: str
    hosts: frozenset[str]
    credential: str = ""
    private: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"AttachmentPlace(url={self.url!r}, hosts={sorted(self.hosts)!r}, credential={REPLACEMENT!r})"


class PullRequestState(StrEnum):
    """`closed` means closed without being merged."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request. `commit` is its head.

    Attributes:
        branch: of the same repository, but for one that `Forge.pull_request` was asked for.
        reference: what git fetches to have the head, from the repository that it is to be merged into; empty where
            the forge did not say.
        base_commit: the base branch's head when the forge looked last; of a merged one, before that. Empty where the
            forge does not keep it.
    """

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
    reference: str = ""
    base_commit: str = ""


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


@dataclass(frozen=True, slots=True)
class OwnCheck:
    """A check run of ours: what the program says of a commit.

    Attributes:
        key: by which it is known again, and replaced.
        state: passed, failed, or other for what could not be told.
        title: one line.
        summary: Markdown in which nothing is live.
    """

    key: str
    name: str
    commit: str
    state: CheckState
    title: str
    summary: str


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

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests + other.requests, self.unchanged + other.unchanged, self.writes + other.writes
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests - other.requests, self.unchanged - other.unchanged, self.writes - other.writes
        )


@dataclass(frozen=True, slots=True)
class RequestQuota:
    """How many requests a server still answers, as it said last.

    Attributes:
        name: under which it counts them, such as `api.github.com installation 7`. No credential is in it.
        resource: which requests, as the server names them: `core`, `graphql`.
        limit: in an hour.
        remaining: until `reset`.
    """

    name: str
    resource: str
    limit: int
    remaining: int
    reset: datetime


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a pull request should say; `ensure_pull_request` makes it so."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool


@dataclass(frozen=True, slots=True)
class TextVersion:
    """What a text was from a moment on."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class PastComment:
    """A comment of the past: other people's words.

    Attributes:
        is_writers: its author belongs to those who may write to the repository, as the forge tells it today.
        edited_at: when it was changed last; None if it never was.
    """

    author: str
    body: str
    created_at: datetime
    is_writers: bool
    edited_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PastIssue:
    """An issue that a merged pull request closed, with what is known of its earlier texts.

    Attributes:
        edited_at: when its body was changed last; None if it never was.
        versions: the bodies that it had, in no order; empty where that is not known.
        comments: the oldest of them.
    """

    number: int
    title: str
    body: str
    url: str
    created_at: datetime
    edited_at: datetime | None = None
    versions: tuple[TextVersion, ...] = ()
    comments: tuple[PastComment, ...] = ()


@dataclass(frozen=True, slots=True)
class MergedPullRequest:
    """A pull request that was merged, with what it closed.

    Attributes:
        merge_commit: what it became on its base: a merge, or the last commit of a squash or a rebase.
        commits: the ids of its own commits, as far as they are listed; `commit_count` is how many there are.
        began_at: when the first of its commits was written, or the pull request if that was earlier.
        files, added, removed: the size of its change.
        issues: those that it closed by what it says.
    """

    number: int
    title: str
    url: str
    created_at: datetime
    began_at: datetime
    merge_commit: str
    commits: tuple[str, ...]
    commit_count: int
    files: int
    added: int
    removed: int
    issues: tuple[PastIssue, ...] = ()


class PastForge(Protocol):
    """The past of a repository on a forge. Every method may raise a subclass of `ForgeError`."""

    def merged_pull_requests(self) -> Iterator[MergedPullRequest]:
        """Yield the pull requests that were merged, the newest first. They are asked for as they are needed."""

    def title_at(self, issue: PastIssue, moment: datetime) -> str:
        """Return the title that an issue had at a moment."""

    def issue_rate(self) -> float | None:
        """Tell how many issues are opened a month of late; None where there are too few to tell."""


class Forge(Protocol):
    """A forge, seen from one repository. Every verb may be repeated without harm.

    Every method may raise a subclass of `ForgeError`; waiting for rate limits is done inside.
    """

    def repository(self) -> Repository:
        """Return the repository itself."""

    def credential(self) -> Credential | None:
        """Tell what git needs to clone and push, or None where it needs nothing. Asked for at each use."""

    def open_issues(self, label: str) -> list[Issue]:
        """Return open issues with this label, oldest first, pull requests left out. Empty where there are no issues."""

    def issue(self, number: int) -> Issue:
        """Return one issue.

        Raises:
            ForgeNotFoundError: there is none of this number, or it is a pull request.
        """

    def permission(self, login: str) -> Permission:
        """Tell what a person or bot may do, asked from the forge and remembered. `NONE` where it knows no such name.

        Raises:
            ForgePermissionError: we may not ask.
        """

    def history(self, number: int, label: str) -> IssueHistory:
        """Tell who put the label on an issue, and who edited it, read now.

        Of several labels, separated by commas, the last one that went on counts.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """

    def labelled_by(self, number: int, label: str) -> str | None:
        """Tell who put on the label that is on an issue or pull request now, read now.

        Returns:
            A login, empty for an account that is gone; None if nobody is known to have done so.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def comments(self, number: int) -> list[Comment]:
        """Return the newest comments on an issue or pull request, oldest of them first; at most 200.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def attachment(self, url: str) -> AttachmentPlace | None:
        """Tell how the attachment at an address is fetched; None if it is no attachment of this forge."""

    def signed_image(self, number: int, url: str) -> AttachmentPlace | None:
        """Tell where an image of an issue's body is for some minutes, for anybody; None where the forge does not say.

        It is for tokens that the forge takes for its interface, and not for attachments.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """

    def read_file(self, path: str) -> str | None:
        """Return a file's text on the default branch, or None where there is none."""

    def pull_request(self, number: int) -> PullRequest:
        """Return one pull request, of anybody and from anywhere, read now.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Return pull requests in every state whose branch, in this repository, begins so; newest first."""

    def why_not_pushed(self, branch: str, email: str) -> str | None:
        """Tell why a new branch of this name would be refused, as far as it is known before, or None.

        The branch need not exist. The address is that of those who commit to it.
        """

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date.

        Returns:
            The pull request, and whether it was created now. An existing one stays a draft or
            not, as people left it.
        """

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request without merging it.

        Raises:
            ForgeNotFoundError: there is none of this number.
            ForgeError: it is merged.
        """

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Put a question where a person will see it, once per key: a comment on the issue.

        Args:
            issue: its number, or None where the task is none.
            key: names the question; a second one with this key replaces the first.

        Returns:
            Where it can be read, or None where there was no place to put it.
        """

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Say something on an issue or pull request, once per key; a second one replaces the first.

        Where people are notified of comments, all keys share one comment, which changes in place.

        Args:
            key: names what is said, in at most 80 characters.
            body: Markdown, without HTML comments; an empty one takes back what was said.

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

    def make_label(self, label: str, description: str) -> bool:
        """Make a label of the repository, unless it is there, or the forge has no labels of its own.

        Returns:
            Whether it was made now.
        """

    def remove_label(self, number: int, label: str) -> None:
        """Take a label off an issue or pull request, if it is there.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Return open pull requests, of anybody and from anywhere, that say they close this issue.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """

    def feedback(self, number: int) -> list[Feedback]:
        """Tell what people said about a pull request, oldest first; at most the newest 200 of each kind.

        Raises:
            ForgeNotFoundError: there is no such pull request.
        """

    def has_conflict(self, number: int) -> bool:
        """Tell whether a pull request cannot be merged into its base as it is. False where the forge does not know yet."""

    def checks(self, commit: str) -> list[Check]:
        """Return the newest run of each check of a commit, and its statuses. Empty where there are none.

        Raises:
            ForgeNotFoundError: there is no such commit.
            ForgePermissionError: the token may not read some of them, and none of the others failed.
        """

    def ensure_check(self, check: OwnCheck) -> str:
        """Write a check run for a commit, or replace the one with its key.

        Returns:
            Where it can be read.

        Raises:
            ForgePermissionError: the token may not, or there are no check runs here.
        """

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Return those of a commit's checks that belong to a workflow or an app that its base branch configures.

        What cannot be told is not one of them. `commit` is the head of a pull request, and `base` the branch
        that it is to be merged into.
        """

    def fingerprint(self) -> str:
        """Return a short text that stays the same while no issue, no pull request and no default branch changes.

        It costs at most two requests, and none that counts where nothing has changed since it was
        asked last. Runs of checks do not show in it.
        """

    def traffic(self) -> Traffic:
        """Return the requests that this object made so far."""

    def quotas(self) -> Sequence[RequestQuota]:
        """Return what the server said last of how many requests it still answers; asks nothing."""

    def begin_step(self) -> None:
        """Show a new credential from now on, if we make them ourselves: a step of a cycle begins."""

    def own_login(self) -> str | None:
        """Return our name as the author of comments and pull requests; None where the forge does not tell."""

    def token_kind(self) -> TokenKind:
        """Tell what kind of token we show."""
