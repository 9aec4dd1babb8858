"""One repository on GitHub: requests under its present name, and a fingerprint of its state."""

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
"""How long one of GitHub's answers may lag behind another. Combined answers are cached only after that."""
_NONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""How GitHub answers if there is no such branch, and if there is no commit at all."""
_NEWEST = {"sort": "updated", "direction": "desc", "per_page": "100"}


class RestRepository:
    """One repository, seen through any transport that sends requests.

    Args:
        name: `owner/name`. A former name is resolved to the present one.
        transport: sends and signs the requests.
        timing: pacing, retries and waits.
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
        """Return the requests so far. A request that GitHub redirects counts once here, and twice at GitHub."""
        return self._calls.traffic()

    def fingerprint(self) -> str:
        """Return a short text that stays the same while nothing changes that a worker would act on.

        It covers the hundred issues and pull requests that were changed last, and the default branch's head.
        Both are requested with an ETag. The first call on an object that has not read the repository yet
        makes one request more, for its present name.

        GitHub updates `updated_at` for titles, bodies, labels, assignees, comments, reviews, pushes to a pull
        request's branch, closing and merging. It does not for reactions, resolved threads, runs of checks,
        statuses and people's permissions, nor always for an edited comment. This object learns of another
        default branch only when it reads the repository again.
        """
        page, head = self._newest_changes(), self._head()
        if page is None or head is None:
            # Either the repository was renamed, and the redirection lost the query, or the branch is gone.
            self.repository()
            page, head = self._newest_changes(), self._head()
        if page is None or head is None:
            raise ForgeError(
                f"cannot look for changes in {self._name}: its name or default branch keeps changing: try again later"
            )
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
        """Return a request below the repository, under its present name, because a redirection would lose the query."""
        if not self._is_resolved:
            self.repository()
        return ApiRequest(method, f"/repos/{self._name}{rest}", f"{doing} of {self._name}", query or {}, body)

    def _query(
        self, query: str, number: int, doing: str, reader: Callable[[Any], T | None], **more: str | None
    ) -> T:
        """Ask GraphQL about an issue or a pull request; `reader` returns None if there is none."""
        if not self._is_resolved:
            self.repository()
        owner, name = self._name.split("/")
        body = {"query": query, "variables": {"owner": owner, "name": name, "number": number, **more}}
        doing = f"{doing} of {self._name}"
        found = self._calls.read(ApiRequest("POST", "", doing, body=body, is_graphql=True), reader)
        if found is None:
            raise ForgeNotFoundError(f"cannot {doing}: nothing has this number")
        return found

    def _need_token(self, doing: str) -> None:
        if not self._transport.has_token:
            raise ForgeAuthenticationError(
                f"cannot {doing} in {self._name} without a token: set {self._transport.token_variable}"
            )

    def _is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether a repository of size 0 has no commit. GitHub names `main` for it all the same.

        A new repository with commits may have size 0, too.
        """
        path = f"/repos/{data['full_name']}/git/ref/heads/{quote(data['default_branch'])}"
        reply = self._calls.get(
            ApiRequest("GET", path, f"look for commits in {self._name}"),
            accept=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
        )
        return reply.status != HTTPStatus.OK

    def _ensure(self, look: Callable[[], T | None], create: Callable[[], T | None]) -> tuple[T, bool]:
        """Look, then create; after a lost reply look again, so that nothing is created twice.

        `create` returns None if GitHub says that the thing exists.
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
                reason = "GitHub says that it exists, but does not list it yet"
            if delay is not None:
                self._calls.wait(delay, reason)
        raise ForgeUnavailableError(f"{self._name}: {reason}: try again later")

    def _newest_changes(self) -> list[Any] | None:
        """Return the relevant fields of the newest changes; None if they belong to a repository of another name."""
        kind = "issues" if self._has_issues or not self._is_resolved else "pulls"
        query = {"state": "all", **_NEWEST}
        request = self._request("GET", f"/{kind}", "look for changes", query=query)
        reply = self._calls.get(request, accept=(HTTPStatus.GONE,))
        if reply.status == HTTPStatus.GONE:
            self._has_issues = False
            request = self._request("GET", "/pulls", "look for changes", query=query)
            reply = self._calls.get(request)
        found = self._calls.parsed(
            reply, request.doing, lambda data: [(str(item["url"]), _relevant_fields(item)) for item in data]
        )
        if not all(self._is_ours(url) for url, _ in found):
            return None
        return [changing for _, changing in found]

    def _head(self) -> str | None:
        """Return the default branch and its commit; None if there is no branch of this name."""
        if not self._is_resolved:
            self.repository()
        if self._default_branch is None:
            return self._first_commit()
        place = f"/git/ref/heads/{quote(self._default_branch)}"
        request = self._request("GET", place, "read the default branch")
        reply = self._calls.get(request, accept=_NONE)
        if reply.status in _NONE:
            return None
        url, commit = self._calls.parsed(
            reply, request.doing, lambda data: (str(data["url"]), str(data["object"]["sha"]))
        )
        return f"{self._default_branch} {commit}" if self._is_ours(url) else None

    def _settled_head(self) -> str | None:
        """Return the same as `_head`, but None until it has stayed the same for `SETTLED_SECONDS`."""
        head, now = self._head(), self._clock.monotonic()
        if head != self._head_seen[0]:
            self._head_seen = head, now
        return head if now - self._head_seen[1] > SETTLED_SECONDS else None

    def _first_commit(self) -> str | None:
        """Return the head of a repository that was empty, or `no commit` while it still is.

        GitHub's answer for an empty repository has no ETag, so this request counts against the rate limit.
        """
        branch = self.repository().default_branch
        return "no commit" if branch is None else self._head()

    def _is_ours(self, url: str) -> bool:
        return f"/repos/{self._name}/".lower() in url.lower()


def _relevant_fields(item: Mapping[str, Any]) -> list[Any]:
    """Return the fields that show a change of an issue or pull request.

    Labels and comments show changes within the same second.
    """
    labels = sorted(label if isinstance(label, str) else str(label["name"]) for label in item["labels"])
    return [int(item["number"]), str(item["updated_at"]), str(item["state"]), labels, item.get("comments")]
