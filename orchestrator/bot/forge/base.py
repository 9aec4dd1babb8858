"""The idempotent verbs of a forge, and its nouns. Everything here is synchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.forge.values import (
    ACTIONS_APP,
    Check,
    CheckState,
    Comment,
    Credential,
    Edit,
    Feedback,
    FeedbackKind,
    Issue,
    IssueHistory,
    Permission,
    Proposal,
    PullRequest,
    PullRequestState,
    Repository,
    TokenKind,
    Traffic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ACTIONS_APP",
    "Check",
    "CheckState",
    "Comment",
    "Credential",
    "Edit",
    "Feedback",
    "FeedbackKind",
    "Forge",
    "Issue",
    "IssueHistory",
    "Permission",
    "Proposal",
    "PullRequest",
    "PullRequestState",
    "Repository",
    "TokenKind",
    "Traffic",
]


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

    def labelled_by(self, number: int, label: str) -> str | None:
        """Who put on the label that is on an issue or pull request now, read now.

        Returns:
            A login, empty for an account that is gone; None if nobody is known to have done so.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def comments(self, number: int) -> list[Comment]:
        """The newest comments on an issue or pull request, oldest of them first; at most 200.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def read_file(self, path: str) -> str | None:
        """A file's text on the default branch, or None where there is none."""

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Pull requests in every state whose branch, in this repository, begins so; newest first.

        Args:
            branch_prefix: one, or several.
        """

    def why_not_pushed(self, branch: str, email: str) -> str | None:
        """Why a new branch of this name would be refused, as far as it is known before, or None.

        Args:
            branch: it need not exist.
            email: of those who commit to it.
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
            issue: the issue's number, or None where the task is none.
            key: names the question; a second one with this key replaces the first.
            body: Markdown.

        Returns:
            Where it can be read, or None where there was no place to put it.
        """

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Say something on an issue or pull request, once per key; a second one replaces the first.

        Where people are notified of comments, all keys share one comment, which changes in place.

        Args:
            number: the issue's or pull request's.
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

    def remove_label(self, number: int, label: str) -> None:
        """Take a label off an issue or pull request, if it is there.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Open pull requests, of anybody and from anywhere, that say they close this issue.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """

    def feedback(self, number: int) -> list[Feedback]:
        """What people said about a pull request, oldest first; at most the newest 200 of each kind.

        Raises:
            ForgeNotFoundError: there is no such pull request.
        """

    def has_conflict(self, number: int) -> bool:
        """Whether a pull request cannot be merged into its base as it is. False where the forge does not know yet."""

    def checks(self, commit: str) -> list[Check]:
        """The newest run of each check of a commit, and its statuses. Empty where there are none."""

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Those of a commit's checks that belong to a workflow or an app that its base branch configures.

        What cannot be told is not one of them.

        Args:
            checks: of this commit.
            commit: the head of a pull request.
            base: the branch that it is to be merged into.
        """

    def pulse(self) -> str:
        """A short text that stays the same while no issue, no pull request and no default branch changes.

        It costs at most two requests, and none that counts where nothing has changed since it was
        asked last. Runs of checks do not show in it.
        """

    def traffic(self) -> Traffic:
        """The requests that this object made so far."""

    def own_login(self) -> str | None:
        """Our name as the author of comments and pull requests; None where the forge does not tell."""

    def token_kind(self) -> TokenKind:
        """What kind of token we show."""
