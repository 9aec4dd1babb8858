"""Pull requests on GitHub: feedback and checks, and which pull requests are linked to an issue."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from orchestrator.bot.forge.base import (
    ACTIONS_APP,
    Check,
    CheckState,
    Feedback,
    FeedbackKind,
    Proposal,
    PullRequest,
    PullRequestState,
)
from orchestrator.bot.forge.github.issues import RestIssues, normalized
from orchestrator.bot.forge.github.parsing import (
    to_datetime,
    to_labels,
    to_listed_pull_request,
    to_login,
    to_own_pull_request,
    to_pull_request,
)
from orchestrator.core.errors import ForgeError, ForgeNotFoundError, ForgePermissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.bot.forge.base import OwnCheck

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
"""`databaseId` is too small for today's ids. `updatedAt` changes without an edit."""
MOST_PULL_PAGES = 10
MOST_CHECK_PAGES = 3
"""The most pages of a hundred checks."""
_WORKFLOWS = (".github/workflows/", ".github/actions/")
"""Where a repository keeps workflows and, by convention, the local actions that they use."""
_MOST_COMPARED = 300
"""The most files that GitHub lists in a comparison: docs.github.com/rest/commits/commits#compare-two-commits"""
_RUN_STATES = {
    "success": CheckState.PASSED,
    "failure": CheckState.FAILED,
    "timed_out": CheckState.FAILED,
    "action_required": CheckState.FAILED,
    "startup_failure": CheckState.FAILED,
}
"""The states by conclusion: docs.github.com/rest/checks/runs"""
_STATUS_STATES = {
    "success": CheckState.PASSED,
    "failure": CheckState.FAILED,
    "error": CheckState.FAILED,
    "pending": CheckState.RUNNING,
}
"""The states of commit statuses: docs.github.com/rest/commits/statuses"""
_CONCLUSIONS = {
    CheckState.PASSED: "success",
    CheckState.FAILED: "failure",
    CheckState.OTHER: "neutral",
    CheckState.RUNNING: "neutral",
}
_CHECK_TITLE_CHARS = 200
_MOST_ATTESTATIONS = "30"
_CHECK_SUMMARY_CHARS = 65_535
"""The limit of GitHub: docs.github.com/rest/checks/runs#create-a-check-run"""
_Entry = tuple[str, str, int, Check]
"""The kind of check, when it began, its id, and the check."""


class RestPullRequests(RestIssues):
    """Pull requests, with reviews, checks and linked issues."""

    def pull_request(self, number: int) -> PullRequest:
        """Return any pull request, also from forks and by other people, read now."""
        request = self._request("GET", f"/pulls/{number}", f"read pull request #{number}")
        return self._calls.read(request, to_pull_request)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Return the pull requests of our branches among the newest thousand; newest first."""
        query = {"state": "all", "sort": "created", "direction": "desc"}
        request = self._request("GET", "/pulls", "list the pull requests", query=query)
        found = self._calls.pages(request, to_listed_pull_request, most=MOST_PULL_PAGES, skips=True)
        return [pull for pull in found if pull is not None and pull.branch.startswith(branch_prefix)]

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or update the open one."""
        self._need_token("open a pull request")
        pull, created = self._ensure(
            lambda: self._open_pull_request(proposal), lambda: self._create_pull_request(proposal)
        )
        same = (pull.title, normalized(pull.body)) == (proposal.title, normalized(proposal.body))
        if created or same:
            return pull, created
        request = self._request(
            "PATCH",
            f"/pulls/{pull.number}",
            f"update pull request #{pull.number}",
            body={"title": proposal.title, "body": proposal.body},
        )
        return self._calls.read(request, to_pull_request), False

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request without merging it: docs.github.com/rest/pulls/pulls#update-a-pull-request."""
        self._need_token("close a pull request")
        doing = f"close pull request #{number}"
        request = self._request("PATCH", f"/pulls/{number}", doing, body={"state": "closed"})
        pull = self._calls.read(request, to_pull_request)
        if pull.state is PullRequestState.MERGED:
            raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
        return pull

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Return all open pull requests, also from forks and by other people, that say they close this issue."""
        doing = f"read the pull requests of issue #{number}"
        return self._query(LINKED, "issue", doing, _to_linked, number=number)

    def feedback(self, number: int) -> list[Feedback]:
        """Return the feedback on a pull request, oldest first.

        At most the newest 100 reviews, 100 comments, and 100 threads on lines with their newest 50 comments.
        """
        doing = f"read the feedback on pull request #{number}"
        return self._query(FEEDBACK, "pullRequest", doing, _to_feedback, number=number)

    def checks(self, commit: str) -> list[Check]:
        """Return the newest run of each check of a commit, and its statuses. Empty if there are none."""
        newest: dict[tuple[str, str], tuple[str, int, Check]] = {}
        unreadable: ForgePermissionError | None = None
        for part in _PARTS:
            try:
                entries = self._read_entries(commit, part)
            except ForgePermissionError as error:
                unreadable, entries = error, []
            for kind, moment, number, check in entries:
                known = newest.get((kind, check.name))
                if known is None or (moment, number) > known[:2]:
                    newest[kind, check.name] = (moment, number, check)
        found = [newest[key][2] for key in sorted(newest)]
        if unreadable is not None and not any(check.state is CheckState.FAILED for check in found):
            raise unreadable
        return found

    def ensure_check(self, check: OwnCheck) -> str:
        """Write a check run for a commit, or replace our own with its key.

        Only apps may do so. A workflow's token is an app's: docs.github.com/rest/checks/runs
        """
        doing = f"write a check run for {check.commit[:12]}"
        self._need_token(doing)
        output = {"title": check.title[:_CHECK_TITLE_CHARS], "summary": check.summary[:_CHECK_SUMMARY_CHARS]}
        said = {"status": "completed", "conclusion": _CONCLUSIONS[check.state], "output": output}
        body = {"name": check.name, "head_sha": check.commit, "external_id": check.key, **said}
        create = self._request("POST", "/check-runs", doing, body=body)
        known, is_new = self._ensure(
            lambda: self._own_check(check, doing), lambda: self._calls.read(create, _to_place)
        )
        if is_new:
            return known[1]
        change = self._request("PATCH", f"/check-runs/{known[0]}", doing, body=said)
        try:
            # Repeating the request changes nothing.
            return self._calls.read(change, _to_place, repeatable=True)[1]
        except (ForgePermissionError, ForgeNotFoundError):  # another App's, which only that App can change
            return self._calls.read(create, _to_place)[1]

    def attestations(self, digest: str) -> list[dict[str, Any]]:
        """Return the bundles of attestations: docs.github.com/rest/repos/attestations. An older server has none."""
        request = self._request(
            "GET",
            f"/attestations/{quote(digest, safe=':')}",
            "read the attestations",
            query={"per_page": _MOST_ATTESTATIONS},
        )
        reply = self._calls.get(request, accept=(HTTPStatus.NOT_FOUND,))
        if reply.status == HTTPStatus.NOT_FOUND:
            return []
        return self._calls.parsed(reply, request.doing, _to_bundles)

    def _own_check(self, check: OwnCheck, doing: str) -> tuple[int, str] | None:
        """Return the number and the address of the newest check run of a commit with this key."""
        query = {"check_name": check.name, "per_page": "100"}
        request = self._request(
            "GET", f"/commits/{quote(check.commit, safe='')}/check-runs", doing, query=query
        )
        found = self._calls.read(request, lambda data: list(data["check_runs"]))
        ours = [_to_place(run) for run in found if run.get("external_id") == check.key]
        return max(ours, default=None)

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Return those of a commit's checks that belong to a workflow or an app that its base branch configures.

        A workflow's job counts if the commit changes no workflow of the branch. Another app's check counts if
        a rule for the branch requires a check of this name by this app. A commit status has no app and does
        not count, and neither does a check for which the token may not read the rules.
        """
        jobs = [check for check in checks if check.app == ACTIONS_APP]
        others = [check for check in checks if check.app_id and check.app != ACTIONS_APP]
        if jobs and self._may_change_workflows(commit, base):
            jobs = []
        required = self._required_checks(base) if others else frozenset()
        return [*jobs, *(check for check in others if (check.name, check.app_id) in required)]

    def _may_change_workflows(self, commit: str, base: str) -> bool:
        """Return whether a commit changes workflows since it left the branch, or this is unknown."""
        place = f"/compare/{quote(base, safe='')}...{quote(commit, safe='')}"
        request = self._request("GET", place, f"compare {commit[:12]} with {base}")
        try:
            changed = self._calls.read_cached(request, _to_paths)
        except (ForgeNotFoundError, ForgePermissionError):
            return True
        return len(changed) >= _MOST_COMPARED or any(path.startswith(_WORKFLOWS) for path in changed)

    def _required_checks(self, base: str) -> frozenset[tuple[str, int]]:
        """Return the checks that a branch's rules require from a certain app: the name, and the app's number."""
        try:
            rules = self.rules(base)
        except (ForgeNotFoundError, ForgePermissionError):
            return frozenset()
        wanted = [
            one
            for rule in rules
            if rule.kind == "required_status_checks"
            for one in rule.parameters.get("required_status_checks") or ()
        ]
        return frozenset(
            (str(one["context"]), int(one["integration_id"])) for one in wanted if one.get("integration_id")
        )

    def unreadable_checks(self, commit: str) -> list[str]:
        """Return the permissions that the token lacks to read the checks of a commit, or of a branch's head.

        Raises:
            ForgeError: they cannot be read for another reason.
        """
        lacking = []
        for part in _PARTS:
            try:
                self._read_entries(commit, part)
            except ForgePermissionError:
                lacking.append(part.permission)
        return lacking

    def _read_entries(self, commit: str, part: _Part) -> list[_Entry]:
        doing = f"read the checks of {commit[:12]}'s {part.words}"
        found: list[_Entry] = []
        for page in range(1, MOST_CHECK_PAGES + 1):
            query = {"per_page": "100", "page": str(page)}
            request = self._request(
                "GET", f"/commits/{quote(commit, safe='')}/{part.path}", doing, query=query
            )
            total, entries = self._calls.read_cached(request, part.read)
            found += entries
            if not entries or len(found) >= total:
                break
        return found

    def has_conflict(self, number: int) -> bool:
        """Return whether GitHub says that a pull request has a merge conflict with its base.

        False while GitHub is still finding out.
        """
        request = self._request("GET", f"/pulls/{number}", f"read pull request #{number}")
        return self._calls.read_cached(request, lambda data: str(data["mergeable_state"]) == "dirty")

    def _open_pull_request(self, proposal: Proposal) -> PullRequest | None:
        """Return the open pull request of the branch; if there are several, the one to the same base."""
        owner = self._name.split("/")[0]
        query = {"state": "open", "head": f"{owner}:{proposal.branch}"}
        request = self._request("GET", "/pulls", "list the pull requests", query=query)
        found = [
            pull
            for pull in self._calls.pages(request, to_own_pull_request)
            if pull and pull.branch == proposal.branch and pull.state is PullRequestState.OPEN
        ]
        found.sort(key=lambda pull: pull.base != proposal.base)
        return found[0] if found else None

    def _create_pull_request(self, proposal: Proposal) -> PullRequest | None:
        body = {
            "title": proposal.title,
            "body": proposal.body,
            "head": proposal.branch,
            "base": proposal.base,
        }
        doing = f"open a pull request from {proposal.branch} to {proposal.base}"
        rejected = (HTTPStatus.UNPROCESSABLE_ENTITY,)
        request = self._request("POST", "/pulls", doing, body={**body, "draft": proposal.draft})
        reply = self._calls.call(request, accept=rejected)
        if reply.status in rejected and proposal.draft and "draft" in reply.messages().lower():
            request = self._request("POST", "/pulls", doing, body=body)
            reply = self._calls.call(request, accept=rejected)
        if reply.status in rejected:
            if "already exists" in reply.messages():
                return None
            raise ForgeError(f"cannot {request.doing}: GitHub rejected it ({reply.messages()})")
        return self._calls.parsed(reply, doing, to_pull_request)


def _to_bundles(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(one["bundle"]) for one in data["attestations"] if isinstance(one.get("bundle"), dict)]


def _to_place(run: Mapping[str, Any]) -> tuple[int, str]:
    return int(run["id"]), str(run["html_url"] or "")


def _to_paths(data: Mapping[str, Any]) -> list[str]:
    """Return the changed files. A renamed file gives both of its names."""
    names = ("filename", "previous_filename")
    return [str(file[name]) for file in data.get("files") or () for name in names if file.get(name)]


def _to_run(run: Mapping[str, Any]) -> _Entry:
    if run["status"] == "completed":
        state = _RUN_STATES.get(run["conclusion"] or "", CheckState.OTHER)
    else:
        state = CheckState.RUNNING
    output = run["output"]
    words = [output[part] for part in ("title", "summary", "text") if output[part]]
    app = run["app"] or {}
    check = Check(
        name=str(run["name"]),
        state=state,
        summary="\n\n".join(words),
        url=run["html_url"] or run["details_url"] or "",
        app=str(app.get("slug") or ""),
        app_id=int(app.get("id") or 0),
    )
    # Two apps may use the same name for a check, and one must not hide the other.
    return f"run {app.get('id', '')}", run["started_at"] or "9", int(run["id"]), check


def _to_status(status: Mapping[str, Any]) -> _Entry:
    state = _STATUS_STATES.get(status["state"], CheckState.OTHER)
    check = Check(
        name=str(status["context"]),
        state=state,
        summary=status["description"] or "",
        url=status["target_url"] or "",
    )
    return "status", status["updated_at"], int(status["id"]), check


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two interfaces that return checks, and the permission that it needs."""

    permission: str
    path: str
    words: str
    key: str
    to_entry: Callable[[Mapping[str, Any]], _Entry]

    def read(self, data: Mapping[str, Any]) -> tuple[int, list[_Entry]]:
        """Return the total number of entries, and those of this page."""
        return int(data["total_count"]), [self.to_entry(one) for one in data[self.key]]


_PARTS = (
    _Part("checks", "check-runs", "runs", "check_runs", _to_run),
    _Part("statuses", "status", "statuses", "statuses", _to_status),
)


def _to_linked(issue: Mapping[str, Any]) -> list[PullRequest]:
    """Return the open pull requests that close an issue.

    GitHub's answer includes merged ones, although its documentation says that only open ones are returned.
    """
    listed = issue["closedByPullRequestsReferences"]
    return [_to_pull_request(node) for node in _nodes(listed) if node["state"] == "OPEN"]


def _to_pull_request(node: Mapping[str, Any]) -> PullRequest:
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
        labels=to_labels(_nodes(node["labels"])),
        created_at=to_datetime(node["createdAt"]),
        updated_at=to_datetime(node["updatedAt"]),
    )


def _to_feedback(pull: Mapping[str, Any]) -> list[Feedback]:
    """Return the feedback on a pull request, oldest first, without what its author has not submitted yet."""
    found = [
        *(_to_one_feedback(node, FeedbackKind.REVIEW) for node in _nodes(pull["reviews"]) if _is_sent(node)),
        *(
            _to_one_feedback(node, FeedbackKind.LINE, thread)
            for thread in _nodes(pull["reviewThreads"])
            for node in _nodes(thread["comments"])
            if _is_sent(node)
        ),
        *(_to_one_feedback(node, FeedbackKind.COMMENT) for node in _nodes(pull["comments"])),
    ]
    return sorted(found, key=lambda said: (said.created_at, said.id))


def _to_one_feedback(
    node: Mapping[str, Any], kind: FeedbackKind, thread: Mapping[str, Any] | None = None
) -> Feedback:
    sent = node.get("submittedAt") or node.get("publishedAt") or node["createdAt"]
    created, edited = to_datetime(sent), node["lastEditedAt"]
    return Feedback(
        kind=kind,
        id=int(node["fullDatabaseId"]),
        author=to_login(node["author"]),
        body=node["body"],
        created_at=created,
        updated_at=max(created, to_datetime(edited)) if edited else created,
        url=node["url"],
        state=str(node["state"]).lower() if kind is FeedbackKind.REVIEW else "",
        path=thread["path"] if thread else "",
        line=thread["line"] if thread else None,
        is_resolved=bool(thread and thread["isResolved"]),
    )


def _is_sent(node: Mapping[str, Any]) -> bool:
    return str(node["state"]) != "PENDING"


def _nodes(connection: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the nodes of a connection. GitHub may return null for it, and for nodes that the token cannot see."""
    nodes = connection["nodes"] if connection else None
    return [node for node in nodes or () if node is not None]
