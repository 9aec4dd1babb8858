"""What people say about the double's pull requests, and its answers to GraphQL about that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.doubles.github.render import stamp
from tests.doubles.github.state import Review, ReviewThread, Said

if TYPE_CHECKING:
    from datetime import datetime

    from tests.doubles.github.graphql import Selection
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Caller, Comment, Pull, Repo

Json = dict[str, Any]


def review(  # noqa: PLR0913, PLR0917  the parts of one review
    github: GitHub, pull: Pull, by: str, body: str = "", state: str = "COMMENTED", at: datetime | None = None
) -> Review:
    """Somebody reviews. `PENDING` is a review that is not sent off."""
    moment = at or github.tick()
    sent = None if state == "PENDING" else moment
    made = Review(github.next_id(), by, body, moment, sent, state=state)
    pull.reviews.append(made)
    pull.updated_at = max(pull.updated_at, moment)
    return made


def say(  # noqa: PLR0913, PLR0917  the parts of one comment
    github: GitHub,
    pull: Pull,
    by: str,
    body: str,
    path: str = "README.md",
    line: int | None = 1,
    at: datetime | None = None,
) -> ReviewThread:
    """Somebody begins a thread on a line."""
    thread = ReviewThread(path, line)
    pull.review_threads.append(thread)
    said = answer_in(github, thread, by, body, at)
    pull.updated_at = max(pull.updated_at, said.created_at)
    return thread


def answer_in(github: GitHub, thread: ReviewThread, by: str, body: str, at: datetime | None = None) -> Said:
    """Somebody answers in a thread."""
    moment = at or github.tick()
    made = Said(github.next_id(), by, body, moment, moment)
    thread.comments.append(made)
    return made


def asks(wanted: Selection) -> bool:
    """Whether a query is about these things."""
    repository = wanted.fields["repository"].fields if "repository" in wanted.fields else {}
    issue = repository["issue"].fields if "issue" in repository else {}
    return "pullRequest" in repository or "closedByPullRequestsReferences" in issue


def answer(github: GitHub, caller: Caller, wanted: Selection, variables: Json) -> Json:
    """The answer to a query about an issue's pull requests, or about one pull request."""
    repository = wanted.the("repository")
    name = f"{repository.value('owner', variables)}/{repository.value('name', variables)}"
    repo = github.repository(name)
    needed = "pull_requests" if "pullRequest" in repository.fields else "issues"
    if repo is None or (repo.private and not (caller.grant and caller.grant.allows(repo, needed, "read"))):
        return _missing("repository", f"Could not resolve to a Repository with the name '{name}'.", None)
    repo.refresh_heads()
    if "pullRequest" in repository.fields:
        asked = wanted.the("repository", "pullRequest")
        pull = repo.pulls.get(asked.value("number", variables))
        if pull is None:
            return _missing("pullRequest", "Could not resolve to a PullRequest.", {"pullRequest": None})
        return {"data": {"repository": {"pullRequest": asked.of(_talk(github, repo, pull, asked))}}}
    asked = wanted.the("repository", "issue")
    number = asked.value("number", variables)
    if number not in repo.issues:
        return _missing("issue", "Could not resolve to an Issue.", {"issue": None})
    # Merged ones are among them, as they are among GitHub's.
    found = [
        pull
        for pull in repo.pulls.values()
        if number in pull.closes and (pull.state == "open" or pull.merged_at)
    ]
    limit = asked.the("closedByPullRequestsReferences").value("first", variables)
    linked = {"nodes": [_linked(github, repo, pull) for pull in found[:limit]]}
    return {"data": {"repository": {"issue": asked.of({"closedByPullRequestsReferences": linked})}}}


def actor(github: GitHub, login: str) -> Json | None:
    """Somebody, as GraphQL tells: a bot without its `[bot]`."""
    user = github.render.user(login)
    return {"__typename": user["type"], "login": login.removesuffix("[bot]")} if user else None


def _linked(github: GitHub, repo: Repo, pull: Pull) -> Json:
    state = "MERGED" if pull.merged_at else pull.state.upper()
    return {
        "number": pull.number,
        "title": pull.title,
        "body": pull.body or "",
        "url": f"{github.web_url}/{repo.full_name}/pull/{pull.number}",
        "isDraft": pull.draft,
        "state": state,
        "headRefName": pull.head,
        "baseRefName": pull.base,
        "headRefOid": pull.head_sha,
        "createdAt": stamp(pull.created_at),
        "updatedAt": stamp(pull.updated_at),
        "author": actor(github, pull.author),
        "labels": {"nodes": [{"name": name} for name in pull.labels]},
    }


def _talk(github: GitHub, repo: Repo, pull: Pull, asked: Selection) -> Json:
    page = f"{github.web_url}/{repo.full_name}/pull/{pull.number}"

    def last(name: str, items: list[Any]) -> list[Any]:
        return items[-asked.the(name).value("last", {}) :]

    threads = [
        {
            "isResolved": thread.is_resolved,
            "isOutdated": thread.line is None,
            "path": thread.path,
            "line": thread.line,
            "comments": {"nodes": [_line(github, page, said) for said in thread.comments]},
        }
        for thread in last("reviewThreads", pull.review_threads)
    ]
    return {
        "reviews": {"nodes": [_review(github, page, one) for one in last("reviews", pull.reviews)]},
        "reviewThreads": {"nodes": threads},
        "comments": {"nodes": [_comment(github, page, one) for one in last("comments", pull.comments)]},
    }


def _said(github: GitHub, said: Said, url: str) -> Json:
    return {
        "fullDatabaseId": str(said.id),
        "body": said.body,
        "createdAt": stamp(said.created_at),
        "updatedAt": stamp(github.tick()),
        "lastEditedAt": stamp(said.edited_at),
        "url": f"{url}{said.id}",
        "author": actor(github, said.author),
    }


def _review(github: GitHub, page: str, said: Review) -> Json:
    json = _said(github, said, f"{page}#pullrequestreview-")
    return {**json, "state": said.state, "submittedAt": stamp(said.sent_at)}


def _line(github: GitHub, page: str, said: Said) -> Json:
    json = _said(github, said, f"{page}#discussion_r")
    return {**json, "state": "SUBMITTED" if said.sent_at else "PENDING", "publishedAt": stamp(said.sent_at)}


def _comment(github: GitHub, page: str, comment: Comment) -> Json:
    edited = comment.updated_at if comment.updated_at > comment.created_at else None
    said = Said(comment.id, comment.author, comment.body, comment.created_at, comment.created_at, edited)
    return {**_said(github, said, f"{page}#issuecomment-"), "publishedAt": stamp(comment.created_at)}


def _missing(field: str, message: str, data: Json | None) -> Json:
    path = ["repository"] if field == "repository" else ["repository", field]
    return {"data": {"repository": data}, "errors": [{"type": "NOT_FOUND", "path": path, "message": message}]}
