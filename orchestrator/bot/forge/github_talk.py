"""GraphQL for what REST does not tell: whether a thread is resolved, and which pull requests close an issue.

The fields are described at docs.github.com/graphql/reference/objects, under PullRequest and Issue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import Feedback, FeedbackKind, PullRequest, PullRequestState
from orchestrator.bot.forge.github_json import to_labels, to_login, to_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LINKED = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    issue(number: $number) {
      closedByPullRequestsReferences(first: 100) {
        nodes {
          number title body url isDraft state headRefName baseRefName headRefOid createdAt updatedAt
          author { __typename login }
          labels(first: 100) { nodes { name } }
        }
      }
    }
  }
}
"""
FEEDBACK = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviews(last: 100) {
        nodes { fullDatabaseId state body createdAt submittedAt lastEditedAt url author { __typename login } }
      }
      reviewThreads(last: 100) {
        nodes {
          isResolved path line
          comments(last: 50) {
            nodes { fullDatabaseId state body createdAt publishedAt lastEditedAt url author { __typename login } }
          }
        }
      }
      comments(last: 100) {
        nodes { fullDatabaseId body createdAt lastEditedAt url author { __typename login } }
      }
    }
  }
}
"""
"""`databaseId` is too small a number for today's ids. `updatedAt` moves when nobody has edited."""


def to_linked(data: Mapping[str, Any]) -> list[PullRequest] | None:
    """The open ones of the pull requests that close an issue, or None where there is no such issue.

    Those that are merged are among GitHub's answer, although it says that only open ones are.
    """
    repository = data["data"]["repository"]
    issue = repository and repository["issue"]
    if issue is None:
        return None
    listed = issue["closedByPullRequestsReferences"]
    return [_to_pull_request(node) for node in _nodes(listed) if node["state"] == "OPEN"]


def _to_pull_request(node: Mapping[str, Any]) -> PullRequest:
    labels = node["labels"]
    return PullRequest(
        number=int(node["number"]),
        title=node["title"],
        body=node["body"],
        url=node["url"],
        draft=bool(node["isDraft"]),
        state=PullRequestState.OPEN,
        branch=node["headRefName"],
        base=node["baseRefName"],
        commit=node["headRefOid"],
        author=to_login(node["author"]),
        labels=to_labels(_nodes(labels)),
        created_at=to_time(node["createdAt"]),
        updated_at=to_time(node["updatedAt"]),
    )


def to_feedback(data: Mapping[str, Any]) -> list[Feedback] | None:
    """Everything that is said about a pull request, oldest first, or None where there is no such one.

    What its writer has not sent off yet is left out.
    """
    repository = data["data"]["repository"]
    pull = repository and repository["pullRequest"]
    if pull is None:
        return None
    found = [
        *(_said(node, FeedbackKind.REVIEW) for node in _nodes(pull["reviews"]) if _is_sent(node)),
        *_lines(_nodes(pull["reviewThreads"])),
        *(_said(node, FeedbackKind.COMMENT) for node in _nodes(pull["comments"])),
    ]
    return sorted(found, key=lambda said: (said.created_at, said.id))


def _lines(threads: Iterable[Mapping[str, Any]]) -> Iterator[Feedback]:
    for thread in threads:
        for node in _nodes(thread["comments"]):
            if _is_sent(node):
                yield _said(node, FeedbackKind.LINE, thread)


def _said(node: Mapping[str, Any], kind: FeedbackKind, thread: Mapping[str, Any] | None = None) -> Feedback:
    sent = node.get("submittedAt") or node.get("publishedAt") or node["createdAt"]
    created, edited = to_time(sent), node["lastEditedAt"]
    return Feedback(
        kind=kind,
        id=int(node["fullDatabaseId"]),
        author=to_login(node["author"]),
        body=node["body"],
        created_at=created,
        updated_at=max(created, to_time(edited)) if edited else created,
        url=node["url"],
        state=str(node["state"]).lower() if kind is FeedbackKind.REVIEW else "",
        path=thread["path"] if thread else "",
        line=thread["line"] if thread else None,
        is_resolved=bool(thread and thread["isResolved"]),
    )


def _is_sent(node: Mapping[str, Any]) -> bool:
    return str(node["state"]) != "PENDING"


def _nodes(connection: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """What a connection holds; GitHub may give null for it, and for what the token cannot see."""
    nodes = connection["nodes"] if connection else None
    return [node for node in nodes or () if node is not None]
