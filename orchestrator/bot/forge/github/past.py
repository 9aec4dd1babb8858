"""The history of a repository on GitHub: merged pull requests and the issues that they closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import MergedPullRequest, PastComment, PastIssue, TextVersion
from orchestrator.bot.forge.github.calls import ApiRequest
from orchestrator.bot.forge.github.parsing import to_issue, to_login, to_time, to_time_or_none
from orchestrator.bot.forge.github.pull_requests import RestPullRequests
from orchestrator.core.errors import ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

MOST_PAST_PAGES = 20
"""The most pages of twenty-five pull requests."""
PAST_PULL_REQUESTS = """
query($owner: String!, $name: String!, $before: String) {
  repository(owner: $owner, name: $name) {
    pullRequests(last: 25, before: $before, states: MERGED) {
      nodes {
        number title url createdAt changedFiles additions deletions
        mergeCommit { oid }
        commits(first: 50) { totalCount nodes { commit { oid authoredDate } } }
        closingIssuesReferences(first: 3) {
          nodes {
            number title body url createdAt lastEditedAt
            userContentEdits(first: 20) { nodes { editedAt diff } }
            comments(first: 30) {
              nodes { body createdAt lastEditedAt authorAssociation author { __typename login } }
            }
          }
        }
      }
      pageInfo { hasPreviousPage startCursor }
    }
  }
}
"""
"""docs.github.com/graphql/reference/objects#pullrequest; REST has neither closed issues nor earlier texts."""
_WRITERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
"""docs.github.com/graphql/reference/enums#commentauthorassociation"""
_MONTH_DAYS = 30.0
_SECONDS_A_DAY = 86_400.0
_LEAST_ISSUES = 5


class RestPast(RestPullRequests):
    """The repository's earlier pull requests and issues: see `PastForge`."""

    def merged_pull_requests(self) -> Iterator[MergedPullRequest]:
        """Yield merged pull requests, the newest first, a page at a time; only those with a known merge commit."""
        self._need_token("read merged pull requests")
        if not self._is_resolved:
            self.repository()
        owner, name = self._name.split("/")
        before: str | None = None
        for _ in range(MOST_PAST_PAGES):
            variables = {"owner": owner, "name": name, "before": before}
            body = {"query": PAST_PULL_REQUESTS, "variables": variables}
            doing = f"read merged pull requests of {self._name}"
            request = ApiRequest("POST", "", doing, body=body, is_graphql=True)
            page = self._calls.read(request, _to_page)
            if page is None:
                raise ForgeNotFoundError(f"cannot {doing}: there is no such repository")
            found, before = page
            yield from reversed(found)
            if before is None:
                return

    def title_at(self, issue: PastIssue, moment: datetime) -> str:
        """Return the title that an issue had at a moment: the old title of the first renaming after it."""
        request = self._request(
            "GET", f"/issues/{issue.number}/events", f"read the history of #{issue.number}"
        )
        events, _ = self._calls.first_pages(request, _to_old_title, most=5)
        later = sorted(event for event in events if event is not None and event[0] > moment)
        return later[0][1] if later else issue.title

    def issue_rate(self) -> float | None:
        """Return how many issues a month were opened, from the newest hundred entries; None for too few issues."""
        query = {"state": "all", "sort": "created", "direction": "desc", "per_page": "100"}
        request = self._request("GET", "/issues", "list the newest issues", query=query)
        found, _ = self._calls.first_pages(request, to_issue, most=1)
        times = sorted(issue.created_at for issue in found if issue is not None)
        if len(times) < _LEAST_ISSUES:
            return None
        days = (self._clock.now() - times[0]).total_seconds() / _SECONDS_A_DAY
        return len(times) / max(days, 1.0) * _MONTH_DAYS


def _to_page(data: Mapping[str, Any]) -> tuple[list[MergedPullRequest], str | None] | None:
    """Return a page, and the cursor of the page before it; None if there is no such repository."""
    repository = data["data"]["repository"]
    if repository is None:
        return None
    listed = repository["pullRequests"]
    page = listed["pageInfo"]
    found = [to_merged_pull_request(node) for node in listed["nodes"] if node and node["mergeCommit"]]
    return found, str(page["startCursor"]) if page["hasPreviousPage"] else None


def to_merged_pull_request(node: Mapping[str, Any]) -> MergedPullRequest:
    """Return a merged pull request."""
    created = to_time(node["createdAt"])
    commits = [one["commit"] for one in node["commits"]["nodes"] if one]
    issues = (node["closingIssuesReferences"] or {"nodes": ()})["nodes"]
    return MergedPullRequest(
        number=int(node["number"]),
        title=str(node["title"]),
        url=str(node["url"]),
        created_at=created,
        began_at=min([created, *(to_time(commit["authoredDate"]) for commit in commits)]),
        merge_commit=str(node["mergeCommit"]["oid"]),
        commits=tuple(str(commit["oid"]) for commit in commits),
        commit_count=int(node["commits"]["totalCount"]),
        files=int(node["changedFiles"]),
        added=int(node["additions"]),
        removed=int(node["deletions"]),
        issues=tuple(_to_past_issue(issue) for issue in issues if issue),
    )


def _to_past_issue(node: Mapping[str, Any]) -> PastIssue:
    edits = (node["userContentEdits"] or {"nodes": ()})["nodes"]
    return PastIssue(
        number=int(node["number"]),
        title=str(node["title"]),
        body=str(node["body"] or ""),
        url=str(node["url"]),
        created_at=to_time(node["createdAt"]),
        edited_at=to_time_or_none(node["lastEditedAt"]),
        versions=tuple(
            TextVersion(to_time(edit["editedAt"]), str(edit["diff"]))
            for edit in edits
            if edit and edit["diff"] is not None
        ),
        comments=tuple(
            PastComment(
                to_login(comment["author"]),
                str(comment["body"]),
                to_time(comment["createdAt"]),
                comment["authorAssociation"] in _WRITERS,
                to_time_or_none(comment["lastEditedAt"]),
            )
            for comment in node["comments"]["nodes"]
            if comment
        ),
    )


def _to_old_title(data: Mapping[str, Any]) -> tuple[datetime, str] | None:
    """Return when a title was replaced, and its text; None for another event."""
    if data["event"] != "renamed":
        return None
    return to_time(data["created_at"]), str(data["rename"]["from"])
