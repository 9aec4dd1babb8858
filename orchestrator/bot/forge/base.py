"""The bot's interface to a forge: values, and operations that can be repeated safely. All are synchronous."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta

    from orchestrator.core.redaction import Credential


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository. `clone_url` never holds a credential; `default_branch` is None while it is empty."""

    name: str
    clone_url: str
    default_branch: str | None
    url: str


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue. Other people wrote its title and body. `author` is empty for a deleted account.

    Attributes:
        association: what the author is to the repository, in GitHub's words; empty if unknown. It gives no permission.
        blocked_by: how many open issues it is marked as blocked by.
        open_parts: how many of its sub-issues are open.
    """

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
    association: str = ""
    blocked_by: int = 0
    open_parts: int = 0


BOT_ENDING = "[bot]"
"""The end of a bot's login, which no person's has."""


def is_bot(login: str) -> bool:
    """Return whether a login is a bot's."""
    return login.endswith(BOT_ENDING)


class Permission(StrEnum):
    """A permission in the repository: GitHub's roles, the lowest first."""

    NONE = "none"
    READ = "read"
    TRIAGE = "triage"
    WRITE = "write"
    MAINTAIN = "maintain"
    ADMIN = "admin"

    @property
    def may_write(self) -> bool:
        """Whether the permission is enough to change the code. Triage, which may label, is not."""
        return self in {Permission.WRITE, Permission.MAINTAIN, Permission.ADMIN}


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of an issue's `title` or `body`, which `what` names. `editor` is empty for a deleted account."""

    editor: str
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class IssueHistory:
    """Who labelled an issue and who edited its texts.

    Attributes:
        labelled_by: who put on the label that the issue has now; empty for a deleted account, None if
            unknown.
        labelled_at: when, to the second.
        edits: the edits of title and body, in no order. The body's creation may be one of them.
        is_complete: False if there were more edits than were read.
    """

    labelled_by: str | None
    labelled_at: datetime | None
    edits: tuple[Edit, ...]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, written by other people. `author` ends in `[bot]` for bots only.

    `updated_at` is later than `created_at` if the comment was edited.
    """

    id: int
    author: str
    body: str
    created_at: datetime
    url: str
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AttachmentPlace:
    """The location of a file that a person attached to an issue, a pull request or a comment.

    Attributes:
        url: its address on the forge's own server. It is first requested without a credential.
        hosts: the hosts to which it may redirect: the forge's own stores. No other host is contacted.
        credential: sent only to the host of `url`, if that host does not give the file to everybody; empty
            for none.
        private: places (`host:port`) that the operator configured, and that may have private addresses.
    """

    url: str
    hosts: frozenset[str]
    credential: str = field(default="", repr=False)
    private: frozenset[str] = frozenset()


class PullRequestState(StrEnum):
    """The state of a pull request. `closed` means closed without being merged."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request. `commit` is its head.

    Attributes:
        branch: its branch in the same repository; only `Forge.pull_request` also returns branches of forks.
        reference: what git fetches from the target repository to get the head; empty if the forge did not
            say.
        base_commit: the base branch's head when the forge looked last; for a merged one, before the merge.
            Empty if the forge does not keep it.
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

    @property
    def address(self) -> str:
        """Its URL; for a local one number and branch, because the files of a local forge are for programs."""
        return self.url if self.url.startswith("http") else f"#{self.number} (branch {self.branch})"


class FeedbackKind(StrEnum):
    """The kind of feedback on a pull request."""

    REVIEW = "review"
    """A review as a whole: its text, and its verdict in `Feedback.state`."""
    LINE = "line"
    """A review's comment on a line."""
    COMMENT = "comment"
    """A comment in the conversation."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on a pull request, written by other people. Ids are unique per kind.

    Attributes:
        author: ends in `[bot]` for a bot; empty for a deleted account.
        state: of a review: `approved`, `changes_requested`, `commented` or `dismissed`; else empty.
        path: the file of a comment on a line; else empty.
        line: the line of such a comment; None if the line does not exist any more.
        is_resolved: whether the thread of such a comment is resolved.
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
    """The state of a check of a commit."""

    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    OTHER = "other"
    """Skipped, neutral, cancelled, stale: says nothing about the change."""


@dataclass(frozen=True, slots=True)
class OwnCheck:
    """A check run that the program writes for a commit.

    Attributes:
        key: identifies it, so that a later one replaces it.
        state: passed, failed, or other if the result is unknown.
        title: one line.
        summary: Markdown without links, images or other active markup.
    """

    key: str
    name: str
    commit: str
    state: CheckState
    title: str
    summary: str


ACTIONS_APP = "github-actions"
"""The name of the app that reports the jobs of workflows as checks."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check run or a commit status.

    Attributes:
        summary: the check's own text, written by other people.
        app: the name of the app that reports the check, as in the app's address; empty for a commit status.
        app_id: the number of that app, or 0.
    """

    name: str
    state: CheckState
    summary: str
    url: str
    app: str = ""
    app_id: int = 0


class TokenKind(StrEnum):
    """The kind of a token, found from its form and from what the forge says about it."""

    NONE = "none"
    WORKFLOW = "workflow"
    """`GITHUB_TOKEN` of an Actions run. What is done with it starts no workflow."""
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
    """The number of requests so far. `unchanged` ones (304) do not count against the rate limit."""

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
    """The wanted content of a pull request, for `ensure_pull_request`."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool


@dataclass(frozen=True, slots=True)
class TextVersion:
    """A text as it was from a moment on."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class PastComment:
    """A comment of the past, written by other people.

    Attributes:
        is_writers: whether its author may write to the repository according to the forge today.
        edited_at: the time of the last edit; None if there was none.
    """

    author: str
    body: str
    created_at: datetime
    is_writers: bool
    edited_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PastIssue:
    """An issue that a merged pull request closed, with its known earlier texts.

    Attributes:
        edited_at: the time of the body's last edit; None if there was none.
        versions: the known bodies that it had, in no order; may be empty.
        comments: its oldest comments.
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
    """A merged pull request, with the issues that it closed.

    Attributes:
        merge_commit: its commit on the base: a merge, or the last commit of a squash or a rebase.
        commits: the ids of its own commits, as far as they are listed; `commit_count` is their full number.
        began_at: when its first commit was written, or when it was opened if that was earlier.
        files, added, removed: the size of its change in files and lines.
        issues: the issues that its text closed.
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


@runtime_checkable
class PastForge(Protocol):
    """The history of a repository on a forge. Every method may raise a subclass of `ForgeError`."""

    def merged_pull_requests(self) -> Iterator[MergedPullRequest]:
        """Yield the merged pull requests, the newest first. They are requested as needed."""

    def title_at(self, issue: PastIssue, moment: datetime) -> str:
        """Return the title that an issue had at a moment."""

    def issue_rate(self) -> float | None:
        """Return how many issues a month were opened recently; None if there are too few to compute it."""


class Forge(Protocol):
    """A forge, seen from one repository. Every operation can be repeated safely.

    Every method may raise a subclass of `ForgeError`, and waits for rate limits itself. A method that takes the
    number of an issue or a pull request raises `ForgeNotFoundError` if there is none.
    """

    def repository(self) -> Repository:
        """Return the repository itself."""

    def credential(self) -> Credential | None:
        """Return the credential that git needs to clone and push, or None if it needs none. Called before each use."""

    def open_issues(self, label: str) -> list[Issue]:
        """Return the open issues with this label, oldest first, without pull requests. Empty if issues are disabled."""

    def labelled_issues(self, label: str) -> list[int]:
        """Return the numbers of issues, open and closed, that have this label: at most 100 of them."""

    def issue(self, number: int) -> Issue:
        """Return one issue. Raise `ForgeNotFoundError` if no issue has this number, or it is a pull request."""

    def permission(self, login: str) -> Permission:
        """Return the permission of a person or bot, which may be cached. `NONE` if the forge does not know the login.

        Raises:
            ForgePermissionError: the token may not ask.
        """

    def history(self, number: int, label: str) -> IssueHistory:
        """Return who put the label on an issue, and who edited it, read now.

        With several labels, separated by commas, the one that was added last counts.
        """

    def labelled_by(self, number: int, label: str) -> str | None:
        """Return who put on the label that an issue or pull request has now, read now.

        Returns:
            A login, empty for a deleted account; None if unknown.
        """

    def comments(self, number: int) -> list[Comment]:
        """Return the newest comments on an issue or pull request, at most 200, oldest first."""

    def attachment(self, url: str) -> AttachmentPlace | None:
        """Return how the attachment at an address is fetched; None if it is no attachment of this forge."""

    def signed_image(self, number: int, url: str) -> AttachmentPlace | None:
        """Return a temporary public address of an image in an issue's body; None if the forge gives none.

        It is for tokens that the forge accepts for its interface but not for attachments.
        """

    def read_file(self, path: str, fingerprint: str = "") -> str | None:
        """Return a file's text on the default branch, or None if there is no such file.

        Args:
            fingerprint: the last one; then the text may be the one of that moment.
        """

    def pull_request(self, number: int) -> PullRequest:
        """Return any pull request, also from forks and by other people, read now."""

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Return the pull requests in every state whose branch in this repository has this prefix; newest first."""

    def why_not_pushed(self, branch: str, email: str) -> str | None:
        """Return why the forge would refuse a new branch of this name, or None if nothing is known before the push.

        The branch need not exist. `email` is the address of the committer.
        """

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or update the open one.

        Returns:
            The pull request, and whether it was created now. An existing one stays a draft or not, as people
            left it.
        """

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request without merging it. Raise `ForgeError` if it is merged."""

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Publish a question for people, once per key: as a comment on the issue.

        Args:
            issue: the issue's number, or None if the task is no issue.
            key: names the question; a second question with this key replaces the first.

        Returns:
            The address of the question, or None if there was no place for it.
        """

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Write a comment on an issue or pull request, once per key; a second one replaces the first.

        On a forge that notifies people of comments, all keys share one comment, which is changed in place.

        Args:
            key: names the comment, in at most 80 characters.
            body: Markdown, without HTML comments; an empty one removes the comment.

        Returns:
            The address of the comment.
        """

    def ensure_label(self, number: int, label: str) -> None:
        """Add a label to an issue or pull request unless it has the label."""

    def make_label(self, label: str, description: str) -> bool:
        """Create a label of the repository unless it exists, or the forge has no labels of its own.

        Returns:
            Whether it was created now.
        """

    def remove_label(self, number: int, label: str) -> None:
        """Remove a label from an issue or pull request if it has the label."""

    def blockers(self, issue: Issue) -> list[Issue]:
        """Return the open issues that an issue waits for: those that block it, and its sub-issues.

        Some may belong to other repositories, as their addresses tell. Nothing is requested if the issue counts none.
        """

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Return all open pull requests, also from forks and by other people, that say they close this issue."""

    def feedback(self, number: int) -> list[Feedback]:
        """Return the newest feedback on a pull request, oldest first. The forge limits how much."""

    def has_conflict(self, number: int) -> bool:
        """Return whether a pull request has a merge conflict with its base. False while the forge does not know yet."""

    def checks(self, commit: str) -> list[Check]:
        """Return the newest run of each check of a commit, and its statuses. Empty if there are none.

        Raises:
            ForgeNotFoundError: there is no such commit.
            ForgePermissionError: the token may not read some of them, and none of the others failed.
        """

    def ensure_check(self, check: OwnCheck) -> str:
        """Write a check run for a commit, or replace the one with its key.

        Returns:
            The address of the check run.

        Raises:
            ForgePermissionError: the token may not, or there are no check runs here.
        """

    def attestations(self, digest: str) -> list[dict[str, Any]]:
        """Return the Sigstore bundles about what has this digest, such as `sha256:…`, as JSON that others wrote.

        There are none where the forge keeps no attestations.

        Raises:
            ForgePermissionError: the token may not read them.
        """

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Return those of a commit's checks that belong to a workflow or an app that its base branch configures.

        A check for which this is unknown is left out. `commit` is the head of a pull request, and `base` its
        base branch.
        """

    def fingerprint(self) -> str:
        """Return a short text that stays the same while no issue, no pull request and no default branch changes.

        It takes at most two requests, and none that counts against the rate limit if nothing has changed
        since the last call. Runs of checks do not change it.
        """

    def traffic(self) -> Traffic:
        """Return the requests that this object made so far."""

    def quotas(self) -> Sequence[RequestQuota]:
        """Return what the server said last of how many requests it still answers; asks nothing."""

    def ahead(self) -> timedelta:
        """Return how far the forge's clock is ahead of ours, as its last reply says; zero if it does not say."""

    def begin_step(self) -> None:
        """Show a new credential from now on, if we make them ourselves: a step of a cycle begins."""

    def own_login(self) -> str | None:
        """Return our login as the author of comments and pull requests; None if the forge does not tell."""

    def token_kind(self) -> TokenKind:
        """Return the kind of our token."""
