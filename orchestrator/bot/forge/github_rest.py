"""The verbs of a forge in GitHub's REST interface, over any line that carries requests."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.bot.forge.base import Issue, Proposal, PullRequest, PullRequestState
from orchestrator.bot.forge.comment_sections import same_lines
from orchestrator.bot.forge.github_json import (
    to_issue,
    to_listed_pull_request,
    to_own_pull_request,
    to_pull_request,
    to_text,
)
from orchestrator.bot.forge.github_people import RestPeople
from orchestrator.bot.forge.github_pulse import RestPulse
from orchestrator.bot.forge.github_reviews import RestReviews
from orchestrator.bot.forge.github_survey import RestSurvey
from orchestrator.bot.forge.github_threads import RestThreads
from orchestrator.core.errors import ForgeError, ForgeNotFoundError

if TYPE_CHECKING:
    from orchestrator.bot.forge.calls import Patience
    from orchestrator.bot.forge.line import Line

MOST_PULL_PAGES = 10


class RestForge(RestThreads, RestPulse, RestPeople, RestReviews, RestSurvey):
    """One repository, seen through REST; the questions that REST has no answer to go to GraphQL."""

    def __init__(self, name: str, line: Line, patience: Patience, *, is_app: bool) -> None:
        super().__init__(name, line, patience, is_app=is_app)
        self._missing: dict[str, str | None] = {}
        """Files that are not there, and the default branch's head at which they are known not to be."""

    def open_issues(self, label: str) -> list[Issue]:
        """Open issues with this label, oldest first. Empty where issues are switched off."""
        query = {"state": "open", "labels": label, "sort": "created", "direction": "asc"}
        request = self._request("GET", "/issues", "list the issues", query=query)
        found = self._calls.pages(request, to_issue, empty=(HTTPStatus.GONE,), skips=True)
        # PyGithub drops the query when it follows a redirection, so the answer is checked and sorted.
        wanted = {part.strip().lower() for part in label.split(",")}
        issues = [i for i in found if i and i.is_open and wanted <= {name.lower() for name in i.labels}]
        return sorted(issues, key=lambda issue: (issue.created_at, issue.number))

    def issue(self, number: int) -> Issue:
        """One issue.

        Raises:
            ForgeNotFoundError: there is none, it is a pull request, or it went to another repository.
        """
        request = self._request("GET", f"/issues/{number}", f"read issue #{number}")
        issue, place = self._calls.look(request, lambda data: (to_issue(data), str(data["repository_url"])))
        if not place.lower().endswith(f"/repos/{self._name}".lower()):
            raise ForgeNotFoundError(
                f"cannot {request.doing}: it was transferred to {place.partition('/repos/')[2]}"
            )
        if issue is None:
            raise ForgeNotFoundError(f"#{number} in {self._name} is a pull request: name an issue")
        return issue

    def read_file(self, path: str) -> str | None:
        """A file's text on the default branch, or None where there is none."""
        if ".." in path.split("/") or path.startswith("/"):
            raise ForgeError(f"cannot read {path!r} of {self._name}: give a path inside the repository")
        request = self._request("GET", f"/contents/{quote(path)}", f"read the file {path}")
        head = None
        if path in self._missing:
            # A 404 has no ETag, but the branch's head has: where nothing moved, nothing came.
            head = self._settled_head()
            if head is not None and head == self._missing[path]:
                return None
        reply = self._calls.get(request, accept=(HTTPStatus.NOT_FOUND,))
        if reply.status == HTTPStatus.NOT_FOUND:
            self._missing[path] = head
            return None
        self._missing.pop(path, None)
        return self._calls.understood(reply, request.doing, to_text)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Pull requests of our branches among the newest thousand; newest first."""
        query = {"state": "all", "sort": "created", "direction": "desc"}
        request = self._request("GET", "/pulls", "list the pull requests", query=query)
        found = self._calls.pages(request, to_listed_pull_request, most=MOST_PULL_PAGES, skips=True)
        return [pull for pull in found if pull is not None and pull.branch.startswith(branch_prefix)]

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date."""
        self._need_token("open a pull request")
        pull, created = self._ensure(
            lambda: self._open_pull_request(proposal), lambda: self._create_pull_request(proposal)
        )
        same = (pull.title, same_lines(pull.body)) == (proposal.title, same_lines(proposal.body))
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
        """Close a pull request without merging it, as docs.github.com/rest/pulls/pulls#update-a-pull-request has it.

        Raises:
            ForgeNotFoundError: there is none of this number.
            ForgeError: it is merged.
        """
        self._need_token("close a pull request")
        doing = f"close pull request #{number}"
        request = self._request("PATCH", f"/pulls/{number}", doing, body={"state": "closed"})
        pull = self._calls.read(request, to_pull_request)
        if pull.state is PullRequestState.MERGED:
            raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
        return pull

    def _open_pull_request(self, proposal: Proposal) -> PullRequest | None:
        """The open pull request of the branch; the one to the same base where there are several."""
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
        request = self._request("POST", "/pulls", doing, body={**body, "draft": proposal.draft})
        reply = self._calls.call(request, accept=(HTTPStatus.UNPROCESSABLE_ENTITY,))
        if (
            reply.status == HTTPStatus.UNPROCESSABLE_ENTITY
            and proposal.draft
            and "draft" in reply.messages().lower()
        ):
            request = self._request("POST", "/pulls", doing, body=body)
            reply = self._calls.call(request, accept=(HTTPStatus.UNPROCESSABLE_ENTITY,))
        if reply.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            if "already exists" in reply.messages():
                return None
            raise ForgeError(f"cannot {request.doing}: GitHub rejected it ({reply.messages()})")
        return self._calls.understood(reply, doing, to_pull_request)
