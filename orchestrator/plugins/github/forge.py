"""One repository on GitHub, or on GitHub Enterprise, as a forge: its files, its attachments and its history."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from orchestrator.bot.forge.base import (
    AttachmentPlace,
    MergedPullRequest,
    PastComment,
    PastIssue,
    TextVersion,
    TokenKind,
    Traffic,
)
from orchestrator.core.errors import ConfigurationError, ForgeError
from orchestrator.core.redaction import Credential
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.github.address import (
    DEFAULT_API_URL,
    STORES,
    TOKEN_VARIABLE,
    git_host_of,
    is_attachment,
    is_githubs_own,
)
from orchestrator.plugins.github.parsing import (
    to_datetime,
    to_datetime_or_none,
    to_issue,
    to_login,
    to_signed_image,
    to_text,
)
from orchestrator.plugins.github.pull_requests import RestPullRequests
from orchestrator.plugins.github.repository import token_kind_of
from orchestrator.plugins.github.transport import (
    AppTransport,
    GitHubApp,
    GitHubAuth,
    GitHubToken,
    open_transport,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from orchestrator.bot.forge.base import RequestQuota
    from orchestrator.plugins.github.calls import CallTiming

_DIGEST_CHARS = 8
"""Enough to tell the tokens of a fleet apart, and too few to tell anything of one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]+")


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
        doing = "read merged pull requests"
        self._need_token(doing)
        before: str | None = None
        for _ in range(MOST_PAST_PAGES):
            found, before = self._query(PAST_PULL_REQUESTS, "", doing, _to_page, before=before)
            yield from reversed(found)
            if before is None:
                return

    def title_at(self, issue: PastIssue, moment: datetime) -> str:
        """Return the title that an issue had at a moment: the old title of the first renaming after it."""
        request = self._request(
            "GET", f"/issues/{issue.number}/events", f"read the history of #{issue.number}"
        )
        events = self._calls.pages(request, _to_old_title, most=5)
        later = sorted(event for event in events if event is not None and event[0] > moment)
        return later[0][1] if later else issue.title

    def issue_rate(self) -> float | None:
        """Return how many issues a month were opened, from the newest hundred entries; None for too few issues."""
        query = {"state": "all", "sort": "created", "direction": "desc", "per_page": "100"}
        request = self._request("GET", "/issues", "list the newest issues", query=query)
        found = self._calls.pages(request, to_issue, most=1)
        times = sorted(issue.created_at for issue in found if issue is not None)
        if len(times) < _LEAST_ISSUES:
            return None
        days = (self._clock.now() + self.ahead() - times[0]).total_seconds() / _SECONDS_A_DAY
        return len(times) / max(days, 1.0) * _MONTH_DAYS


class GitHubForge(RestPast):
    """One repository on GitHub.

    Args:
        name: `owner/name`. A former name is resolved to the present one.
        auth: how requests are authenticated; None for anonymous access.
        timing: pacing, retries and waits.
        api_url: the REST interface's address, as `api_url_for` returns it.
        in_workflow: whether this runs in GitHub Actions, whose token looks like any app's.
        token_variable: the variable for this server's token, for messages.
        redactor: removes secrets from everything that is sent; None for one that knows only their forms.

    Raises:
        ConfigurationError: the name is not `owner/name`, or the token has invalid characters.
        ForgeAuthenticationError: the app's private key is invalid.
    """

    def __init__(  # noqa: PLR0913  all but the first are given by name
        self,
        name: str,
        auth: GitHubAuth,
        timing: CallTiming,
        api_url: str = DEFAULT_API_URL,
        *,
        in_workflow: bool = False,
        token_variable: str = TOKEN_VARIABLE,
        redactor: Redactor | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} is not a repository: give owner/name")
        token = auth.token.strip() if isinstance(auth, GitHubToken) else ""
        if not re.fullmatch(r"[!-~]*", token):
            raise ConfigurationError(f"{token_variable} holds characters that no token has: copy it again")
        self._token = token
        self._api_url = api_url
        known = redactor or Redactor()
        known.learn([token] if token else [])
        self._app = AppTransport(name, auth, timing, api_url, known) if isinstance(auth, GitHubApp) else None
        transport = self._app or open_transport(api_url, token, known, token_variable)
        kind = TokenKind.APP if self._app else token_kind_of(token, in_workflow=in_workflow)
        super().__init__(name, transport, timing, kind, in_workflow and self._app is None)
        self._missing: dict[str, str | None] = {}
        """Files that do not exist, each with the head of the default branch at which this was found."""

    def __repr__(self) -> str:
        return f"GitHubForge({self._name!r}, api_url={self._api_url!r})"

    def traffic(self) -> Traffic:
        """Return the requests so far, including those for an app's token."""
        own = super().traffic()
        return own + self._app.traffic() if self._app else own

    def quotas(self) -> list[RequestQuota]:
        """Return what the headers of replies said last. Requests without a token have no name to count by."""
        name = self._quota_name()
        return [replace(one, name=name) for one in self._calls.quotas()] if name else []

    def _quota_name(self) -> str:
        """Under which name GitHub counts: the installation, or the token, of which a part of a digest is told."""
        host = urlsplit(self._api_url).netloc
        if self._app is not None:
            number = self._app.installation
            return f"{host} installation {number}" if number is not None else ""
        digest = hashlib.sha256(self._token.encode()).hexdigest()[:_DIGEST_CHARS]
        return f"{host} token {digest}" if self._token else ""

    def begin_step(self) -> None:
        """Have an app make a new token for what comes next. A token that a person made stays the same."""
        if self._app is not None:
            self._app.begin_step()

    def credential(self) -> Credential | None:
        """Return the credential that git shows to the server; None without a token."""
        token = self._app.token() if self._app else self._token
        return Credential(git_host_of(self._api_url), "x-access-token", token) if token else None

    def attachment(self, url: str) -> AttachmentPlace | None:
        """Return how an attachment is fetched. The token is used only at the server that it belongs to."""
        if not is_attachment(url, self._api_url, self._name):
            return None
        own, place = git_host_of(self._api_url), urlsplit(url)
        credential = self.credential() if place.netloc.lower() == own.lower() else None
        password = credential.password if credential else ""
        if is_githubs_own(self._api_url):
            return AttachmentPlace(url, STORES | {own}, password)
        port = place.port or (443 if place.scheme == "https" else 80)
        trusted = frozenset({f"{place.hostname}:{port}"})
        return AttachmentPlace(url, frozenset({place.hostname or ""}), password, trusted)

    def signed_image(self, number: int, url: str) -> AttachmentPlace | None:
        """Find an image in GitHub's HTML of an issue, which has signed addresses.

        A fine-grained token or an app's may read a private issue, but not its attachments:
        github.com/josegonzalez/python-github-backup/issues/477
        """
        as_html = {"Accept": "application/vnd.github.full+json"}
        request = replace(self._request("GET", f"/issues/{number}", f"read issue #{number}"), headers=as_html)
        name = urlsplit(url).path.rpartition("/")[2]
        found = self._calls.read(request, lambda data: to_signed_image(data, name))
        return AttachmentPlace(found, STORES) if found else None

    def read_file(self, path: str, fingerprint: str = "") -> str | None:  # noqa: ARG002  always read now
        """Return a file's text on the default branch, or None if there is no such file."""
        if ".." in path.split("/") or path.startswith("/"):
            raise ForgeError(f"cannot read {path!r} of {self._name}: give a path inside the repository")
        request = self._request("GET", f"/contents/{quote(path)}", f"read the file {path}")
        head = None
        if path in self._missing:
            # A 404 has no ETag, but the branch's head has. If the head did not change, the file is still missing.
            head = self._settled_head()
            if head is not None and head == self._missing[path]:
                return None
        reply = self._calls.get(request, accept=(HTTPStatus.NOT_FOUND,))
        if reply.status == HTTPStatus.NOT_FOUND:
            self._missing[path] = head
            return None
        self._missing.pop(path, None)
        return self._calls.parsed(reply, request.doing, to_text)


def _to_page(repository: Mapping[str, Any]) -> tuple[list[MergedPullRequest], str | None]:
    """Return a page, and the cursor of the page before it."""
    listed = repository["pullRequests"]
    page = listed["pageInfo"]
    found = [to_merged_pull_request(node) for node in listed["nodes"] if node and node["mergeCommit"]]
    return found, str(page["startCursor"]) if page["hasPreviousPage"] else None


def to_merged_pull_request(node: Mapping[str, Any]) -> MergedPullRequest:
    """Return a merged pull request."""
    created = to_datetime(node["createdAt"])
    commits = [one["commit"] for one in node["commits"]["nodes"] if one]
    issues = (node["closingIssuesReferences"] or {"nodes": ()})["nodes"]
    return MergedPullRequest(
        number=int(node["number"]),
        title=str(node["title"]),
        url=str(node["url"]),
        created_at=created,
        began_at=min([created, *(to_datetime(commit["authoredDate"]) for commit in commits)]),
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
        created_at=to_datetime(node["createdAt"]),
        edited_at=to_datetime_or_none(node["lastEditedAt"]),
        versions=tuple(
            TextVersion(to_datetime(edit["editedAt"]), str(edit["diff"]))
            for edit in edits
            if edit and edit["diff"] is not None
        ),
        comments=tuple(
            PastComment(
                to_login(comment["author"]),
                str(comment["body"]),
                to_datetime(comment["createdAt"]),
                comment["authorAssociation"] in _WRITERS,
                to_datetime_or_none(comment["lastEditedAt"]),
            )
            for comment in node["comments"]["nodes"]
            if comment
        ),
    )


def _to_old_title(data: Mapping[str, Any]) -> tuple[datetime, str] | None:
    """Return when a title was replaced, and its text; None for another event."""
    if data["event"] != "renamed":
        return None
    return to_datetime(data["created_at"]), str(data["rename"]["from"])
