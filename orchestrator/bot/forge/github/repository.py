"""One repository on GitHub: requests below it, under its present name, and whether anything in it has changed."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from orchestrator.bot.forge.github.calls import BACKOFF_SECONDS, ApiRequest, Calls, CallTiming, Transport
from orchestrator.bot.forge.github.parsing import to_repository
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgeUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.bot.forge.base import Repository, Traffic

T = TypeVar("T")
SETTLED_SECONDS = 60.0
"""How long one of GitHub's answers may lag behind another: what both say is remembered only after that."""
_NONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""How GitHub says that there is no such branch, and that there is no commit at all."""
_NEWEST = {"sort": "updated", "direction": "desc", "per_page": "100"}


class RestRepository:
    """One repository, seen through any transport that carries requests.

    Args:
        name: `owner/name`. A former name is followed to the present one.
        transport: carries and signs the requests.
        timing: how calls behave in time.
    """

    def __init__(self, name: str, transport: Transport, timing: CallTiming) -> None:
        self._name, self._transport = name, transport
        self._calls, self._clock = Calls(transport, timing), timing.clock
        self._is_resolved = False
        self._default_branch: str | None = None
        self._has_issues = True
        self._url = ""
        self._head_seen: tuple[str | None, float] = (None, 0.0)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def repository(self) -> Repository:
        """Return the repository itself, under its present name."""
        request = ApiRequest("GET", f"/repos/{self._name}", f"open the repository {self._name}")
        repository, has_issues = self._calls.read_cached(
            request,
            lambda data: (
                to_repository(data, is_empty=data["size"] == 0 and self._is_empty(data)),
                data.get("has_issues") is not False,
            ),
        )
        self._name, self._is_resolved, self._url = repository.name, True, repository.url
        self._default_branch, self._has_issues = repository.default_branch, has_issues
        return repository

    def traffic(self) -> Traffic:
        """Return the requests so far. One that GitHub redirects counts once here, and twice there."""
        return self._calls.traffic()

    def fingerprint(self) -> str:
        """Return a short text that stays the same while nothing changes that a worker would act on.

        It looks at the hundred issues and pull requests that were changed last, and at the default
        branch's head. Both are asked for with an ETag. The very first fingerprint of an object that has
        not seen the repository yet makes one request more, for its present name.

        GitHub moves `updated_at` for titles, bodies, labels, assignees, comments, reviews, pushes
        to a pull request's branch, closing and merging. It does not for reactions, resolved
        threads, runs of checks, statuses and people's permissions, nor always for an edited
        comment. Of a switch to another default branch this object learns when it asks for the
        repository again.
        """
        page, head = self._newest(), self._head()
        if page is None or head is None:
            # Renamed: GitHub redirects, and the query was lost on the way. Or the branch is gone.
            self.repository()
            page, head = self._newest(), self._head()
        if page is None or head is None:
            raise ForgeError(f"cannot look for changes in {self._name}: its name does not settle")
        return hashlib.sha256(json.dumps([head, page]).encode()).hexdigest()

    def _request(
        self,
        method: str,
        rest: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiRequest:
        """Return a request below the repository, under its present name: a redirection would lose the query."""
        if not self._is_resolved:
            self.repository()
        return ApiRequest(method, f"/repos/{self._name}{rest}", f"{doing} of {self._name}", query or {}, body)

    def _query(
        self, query: str, number: int, doing: str, reader: Callable[[Any], T | None], **more: str | None
    ) -> T:
        """Ask GraphQL about an issue or a pull request; `reader` gives None where there is none."""
        if not self._is_resolved:
            self.repository()
        owner, name = self._name.split("/")
        body = {"query": query, "variables": {"owner": owner, "name": name, "number": number, **more}}
        doing = f"{doing} of {self._name}"
        found = self._calls.read(ApiRequest("POST", "", doing, body=body, is_graphql=True), reader)
        if found is None:
            raise ForgeNotFoundError(f"cannot {doing}: there is none of this number")
        return found

    def _need_token(self, doing: str) -> None:
        if not self._transport.has_token:
            raise ForgeAuthenticationError(
                f"cannot {doing} in {self._name} without a token: set {self._transport.token_variable}"
            )

    def _is_empty(self, data: Mapping[str, Any]) -> bool:
        """GitHub says `main` for a repository without a commit, and size 0 for a new one with some."""
        path = f"/repos/{data['full_name']}/git/ref/heads/{quote(data['default_branch'])}"
        reply = self._calls.get(
            ApiRequest("GET", path, f"look into {self._name}"),
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

    def _newest(self) -> list[Any] | None:
        """Tell what counts of the newest changes; None if they are those of a repository of another name."""
        kind = "issues" if self._has_issues or not self._is_resolved else "pulls"
        query = {"state": "all", **_NEWEST}
        request = self._request("GET", f"/{kind}", "look for changes", query=query)
        reply = self._calls.get(request, accept=(HTTPStatus.GONE,))
        if reply.status == HTTPStatus.GONE:
            self._has_issues = False
            request = self._request("GET", "/pulls", "look for changes", query=query)
            reply = self._calls.get(request)
        found = self._calls.parsed(
            reply, request.doing, lambda data: [(str(item["url"]), _changing(item)) for item in data]
        )
        if not all(self._is_ours(url) for url, _ in found):
            return None
        return [changing for _, changing in found]

    def _head(self) -> str | None:
        """Return the default branch and its commit; None where the branch is not there under this name."""
        if not self._is_resolved:
            self.repository()
        if self._default_branch is None:
            return self._first_commit()
        place = f"/git/ref/heads/{quote(self._default_branch)}"
        request = self._request("GET", place, "look at the default branch")
        reply = self._calls.get(request, accept=_NONE)
        if reply.status in _NONE:
            return None
        url, commit = self._calls.parsed(
            reply, request.doing, lambda data: (str(data["url"]), str(data["object"]["sha"]))
        )
        return f"{self._default_branch} {commit}" if self._is_ours(url) else None

    def _settled_head(self) -> str | None:
        """As `_head`, but None as long as it has not been the same for a while."""
        head, now = self._head(), self._clock.monotonic()
        if head != self._head_seen[0]:
            self._head_seen = head, now
        return head if now - self._head_seen[1] > SETTLED_SECONDS else None

    def _first_commit(self) -> str | None:
        """Tell whether an empty repository still is: it says so without an ETag, so this request counts."""
        branch = self.repository().default_branch
        return "no commit" if branch is None else self._head()

    def _is_ours(self, url: str) -> bool:
        return f"/repos/{self._name}/".lower() in url.lower()


def _changing(item: Mapping[str, Any]) -> list[Any]:
    """Tell what shows a change of an issue or pull request. Labels and comments are there for changes within a second."""
    labels = sorted(label if isinstance(label, str) else str(label["name"]) for label in item["labels"])
    return [int(item["number"]), str(item["updated_at"]), str(item["state"]), labels, item.get("comments")]
