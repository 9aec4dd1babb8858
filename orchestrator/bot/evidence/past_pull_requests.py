"""Merged pull requests as past changes: their commits, and the text of their issues when they were begun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.evidence.past_changes import PastChange, UnfitChange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from orchestrator.bot.forge.base import MergedPullRequest, PastForge, PastIssue
    from orchestrator.bot.git.local import RepositoryHistory

_MOST_COMMITS = 50
"""GitHub lists no more commits of a pull request."""
_MOST_COMMENT_CHARS = 2_000


class FetchCommits(Protocol):
    """Fetches commits of the repository into a history."""

    def __call__(self, commit: str, depth: int) -> RepositoryHistory:
        """Fetch a commit and `depth` ancestors.

        Raises:
            WorkspaceError: the server no longer has it, or cannot be reached.
        """


def from_pull_requests(
    forge: PastForge, fetch: FetchCommits, *, with_comments: bool
) -> Iterator[PastChange | UnfitChange]:
    """Yield the merged pull requests that closed an issue, newest first.

    Args:
        with_comments: whether the task includes comments on the issue by people with write permission.

    Raises:
        ForgeError: the forge cannot be reached.
        WorkspaceError: git failed.
    """
    for pull in forge.merged_pull_requests():
        if pull.issues:
            yield _change(pull, forge, fetch, with_comments=with_comments)


def _change(
    pull: MergedPullRequest, forge: PastForge, fetch: FetchCommits, *, with_comments: bool
) -> PastChange | UnfitChange:
    def unfit(reason: str) -> UnfitChange:
        return UnfitChange(f"pull-{pull.number}", pull.title, reason)

    issue = min(pull.issues, key=lambda one: one.created_at)
    if issue.created_at >= pull.began_at:
        return unfit("its issue was written after the change was begun")
    if pull.commit_count > _MOST_COMMITS:
        return unfit(f"it has more than {_MOST_COMMITS} commits")
    history = fetch(pull.merge_commit, pull.commit_count + 1)
    base = _base_of(pull, history)
    if base is None:
        return unfit("its commits on the base cannot be told from others")
    text = text_at(issue, forge.title_at(issue, pull.began_at), pull, with_comments=with_comments)
    return PastChange(
        f"pull-{pull.number}",
        base,
        pull.merge_commit,
        text.title,
        text.body,
        pull.created_at.isoformat(),
        pull.url,
        pull.number,
        (*pull.commits, pull.merge_commit),
        text.left_out,
    )


def _base_of(pull: MergedPullRequest, history: RepositoryHistory) -> str | None:
    """Return the commit before a pull request on its base branch; None if unknown.

    A squash is one commit there, a rebase as many as the pull request has: the size of the change tells
    which.
    """
    parents = history.parents(pull.merge_commit)
    if len(parents) != 1:
        return parents[0] if parents else None
    wanted = pull.files, pull.added, pull.removed
    found = []
    for back in sorted({1, pull.commit_count}):
        base = history.before(pull.merge_commit, back)
        if base is not None and history.size_of_change(base, pull.merge_commit) == wanted:
            found.append(base)
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class IssueText:
    """The text of an issue at a moment. `left_out` counts texts that are newer, or may be."""

    title: str
    body: str
    left_out: int


def text_at(issue: PastIssue, title: str, pull: MergedPullRequest, *, with_comments: bool) -> IssueText:
    """Return the text of an issue when its change was begun, without later comments and edits."""
    left_out = int(title != issue.title)
    body = body_at(issue, pull.began_at)
    if body is None:
        left_out += 1
        body = ""
    elif body != issue.body:
        left_out += 1
    parts = [body]
    for comment in issue.comments if with_comments else ():
        if not comment.is_writers:
            continue
        if (
            comment.created_at >= pull.created_at
            or (comment.edited_at or comment.created_at) >= pull.began_at
        ):
            left_out += 1
        else:
            parts.append(
                f"Comment by {comment.author or 'an account that is gone'}:\n{comment.body[:_MOST_COMMENT_CHARS]}"
            )
    return IssueText(title, "\n\n".join(filter(None, parts)), left_out)


def body_at(issue: PastIssue, moment: datetime) -> str | None:
    """Return the body of an issue at a moment; None if unknown.

    GitHub calls the record of an edit a diff, but it was the complete text in all samples. It is used as such
    only if the newest record equals the present body.
    """
    if issue.edited_at is None or issue.edited_at < moment:
        return issue.body
    versions = sorted(issue.versions, key=lambda one: one.at)
    earlier = [one.text for one in versions if one.at < moment]
    if not earlier or _plain(versions[-1].text) != _plain(issue.body):
        return None
    return earlier[-1]


def _plain(text: str) -> str:
    return " ".join(text.split())
