"""The verbs of a forge in GitHub's REST interface, over any line that carries requests."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeUnavailableError,
)
from orchestrator.forge.base import Issue, Proposal, PullRequest, PullRequestState, Repository
from orchestrator.forge.calls import BACKOFF_SECONDS, Calls, Line, Patience, Request
from orchestrator.forge.github_json import (
    Comment,
    to_comment,
    to_issue,
    to_own_pull_request,
    to_pull_request,
    to_repository,
    to_text,
)
from orchestrator.forge.refusals import TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
MOST_PULL_PAGES = 10
LONGEST_COMMENT = 65_536
"""Characters that GitHub takes as a comment or as a pull request's body."""


class RestForge:
    """One repository, seen through REST.

    Args:
        name: `owner/name`. A former name is followed to the present one.
        line: carries and signs the requests.
        patience: how calls behave in time.
        is_app: the line speaks for an app, which has no user name.
    """

    def __init__(self, name: str, line: Line, patience: Patience, *, is_app: bool) -> None:
        self._name, self._line, self._is_app = name, line, is_app
        self._calls = Calls(line, patience)
        self._is_resolved = False
        self._login: str | None = None

    def close(self) -> None:
        """Let go of connections."""
        self._line.close()

    def repository(self) -> Repository:
        """The repository itself, under its present name."""
        request = Request("GET", f"/repos/{self._name}", f"open the repository {self._name}")
        repository = self._calls.read(
            request, lambda data: to_repository(data, is_empty=data["size"] == 0 and self._is_empty(data))
        )
        self._name, self._is_resolved = repository.name, True
        return repository

    def open_issues(self, label: str) -> list[Issue]:
        """Open issues with this label, oldest first. Empty where issues are switched off."""
        query = {"state": "open", "labels": label, "sort": "created", "direction": "asc"}
        request = self._request("GET", "/issues", "list the issues", query=query)
        found = self._calls.pages(request, to_issue, empty=(HTTPStatus.GONE,))
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
        issue, place = self._calls.read(request, lambda data: (to_issue(data), str(data["repository_url"])))
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
        reply = self._calls.call(request, accept=(HTTPStatus.NOT_FOUND,))
        return (
            None
            if reply.status == HTTPStatus.NOT_FOUND
            else self._calls.understood(reply, request.doing, to_text)
        )

    def our_pull_requests(self, branch_prefix: str) -> list[PullRequest]:
        """Pull requests of our branches among the newest thousand; newest first."""
        query = {"state": "all", "sort": "created", "direction": "desc"}
        request = self._request("GET", "/pulls", "list the pull requests", query=query)
        found = self._calls.pages(request, to_own_pull_request, most=MOST_PULL_PAGES)
        return [pull for pull in found if pull is not None and pull.branch.startswith(branch_prefix)]

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date."""
        self._need_token("open a pull request")
        pull, created = self._ensure(
            lambda: self._open_pull_request(proposal), lambda: self._create_pull_request(proposal)
        )
        same = (pull.title, _lines(pull.body)) == (proposal.title, _lines(proposal.body))
        if created or same:
            return pull, created
        request = self._request(
            "PATCH",
            f"/pulls/{pull.number}",
            f"update pull request #{pull.number}",
            body={"title": proposal.title, "body": proposal.body},
        )
        return self._calls.read(request, to_pull_request), False

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Put a question on the issue, or replace the one with this key. None without an issue."""
        if issue is None:
            return None
        self._need_token(f"comment on issue #{issue}")
        marker = f"<!-- pullwright:question:{quote(key, safe='')} -->"
        text = f"{body[: LONGEST_COMMENT - len(marker) - 2]}\n\n{marker}"
        comment, _ = self._ensure(
            lambda: self._own_comment(issue, marker), lambda: self._comment(issue, text)
        )
        if _lines(comment.body) != _lines(text):
            place, doing = f"/issues/comments/{comment.id}", f"update the comment on issue #{issue}"
            self._calls.read(self._request("PATCH", place, doing, body={"body": text}), to_comment)
        return comment.url

    def _request(
        self,
        method: str,
        rest: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Request:
        """A request below the repository, under its present name: a redirection would lose the query."""
        if not self._is_resolved:
            self.repository()
        return Request(method, f"/repos/{self._name}{rest}", f"{doing} of {self._name}", query or {}, body)

    def _need_token(self, doing: str) -> None:
        if not self._line.has_token:
            raise ForgeAuthenticationError(
                f"cannot {doing} in {self._name} without a token: set {TOKEN_VARIABLE}"
            )

    def _is_empty(self, data: Mapping[str, Any]) -> bool:
        """GitHub says `main` for a repository without a commit, and size 0 for a new one with some."""
        path = f"/repos/{data['full_name']}/git/ref/heads/{quote(data['default_branch'])}"
        reply = self._calls.call(
            Request("GET", path, f"look into {self._name}"),
            accept=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
        )
        return reply.status != HTTPStatus.OK

    def _ensure(self, look: Callable[[], T | None], create: Callable[[], T | None]) -> tuple[T, bool]:
        """Look, then create; after a lost reply look again, so that nothing is there twice.

        `create` returns None if GitHub says that it exists.
        """
        lost, reason = False, ""
        for delay in (*BACKOFF_SECONDS, None):
            found = look()
            if found is not None:
                return found, lost
            try:
                made = create()
            except ForgeUnavailableError as error:
                if delay is None:
                    raise
                lost, reason = True, str(error)
            else:
                if made is not None:
                    return made, True
                reason = "GitHub says that it exists, and does not list it yet"
            if delay is not None:
                self._calls.wait(delay, reason)
        raise ForgeUnavailableError(f"{self._name}: {reason}: try again later")

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

    def _own_comment(self, issue: int, marker: str) -> Comment | None:
        """Our comment with the marker. Somebody else may have quoted or planted it, so the author counts."""
        request = self._request("GET", f"/issues/{issue}/comments", f"read the comments on issue #{issue}")
        marked = [comment for comment in self._calls.pages(request, to_comment) if marker in comment.body]
        if not marked:
            return None
        me = self._own_login()
        return next((c for c in marked if (c.by_bot if me is None else c.author == me)), None)

    def _own_login(self) -> str | None:
        """Our user name. None for an app and a workflow's token, which GitHub does not tell theirs."""
        if self._login is None and not self._is_app:
            try:
                request = Request("GET", "/user", "ask whose the token is")
                self._login = self._calls.read(request, lambda data: str(data["login"]))
            except ForgePermissionError:
                return None
        return self._login

    def _comment(self, issue: int, text: str) -> Comment:
        request = self._request(
            "POST", f"/issues/{issue}/comments", f"comment on issue #{issue}", body={"body": text}
        )
        return self._calls.read(request, to_comment)


def _lines(text: str) -> str:
    """Text as it is compared: GitHub's web pages write other line ends, and trim."""
    return text.replace("\r\n", "\n").strip()
