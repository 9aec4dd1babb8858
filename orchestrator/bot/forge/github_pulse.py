"""Whether anything has changed on GitHub since it was asked last, for two requests at most."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from orchestrator.bot.forge.github_place import SETTLED_SECONDS, RestPlace
from orchestrator.core.errors import ForgeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.forge.calls import Patience
    from orchestrator.bot.forge.line import Line

_NONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""How GitHub says that there is no such branch, and that there is no commit at all."""
_NEWEST = {"sort": "updated", "direction": "desc", "per_page": "100"}


class RestPulse(RestPlace):
    """The newest changes, and the head of the default branch."""

    def __init__(self, name: str, line: Line, patience: Patience, *, is_app: bool) -> None:
        super().__init__(name, line, patience, is_app=is_app)
        self._head_seen: tuple[str | None, float] = (None, 0.0)

    def pulse(self) -> str:
        """A short text that stays the same while nothing changes that a worker would act on.

        It looks at the hundred issues and pull requests that were changed last, and at the default
        branch's head. Both are asked for with an ETag. The very first pulse of an object that has
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

    def _newest(self) -> list[Any] | None:
        """What counts of the newest changes; None if they are those of a repository of another name."""
        kind = "issues" if self._has_issues or not self._is_resolved else "pulls"
        query = {"state": "all", **_NEWEST}
        request = self._request("GET", f"/{kind}", "look for changes", query=query)
        reply = self._calls.get(request, accept=(HTTPStatus.GONE,))
        if reply.status == HTTPStatus.GONE:
            self._has_issues = False
            request = self._request("GET", "/pulls", "look for changes", query=query)
            reply = self._calls.get(request)
        found = self._calls.understood(
            reply, request.doing, lambda data: [(str(item["url"]), _changing(item)) for item in data]
        )
        if not all(self._is_ours(url) for url, _ in found):
            return None
        return [changing for _, changing in found]

    def _head(self) -> str | None:
        """The default branch and its commit; None where the branch is not there under this name."""
        if not self._is_resolved:
            self.repository()
        if self._default_branch is None:
            return self._first_commit()
        place = f"/git/ref/heads/{quote(self._default_branch)}"
        request = self._request("GET", place, "look at the default branch")
        reply = self._calls.get(request, accept=_NONE)
        if reply.status in _NONE:
            return None
        url, commit = self._calls.understood(
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
        """Whether an empty repository still is: it says so without an ETag, so this request counts."""
        branch = self.repository().default_branch
        return "no commit" if branch is None else self._head()

    def _is_ours(self, url: str) -> bool:
        return f"/repos/{self._name}/".lower() in url.lower()


def _changing(item: Mapping[str, Any]) -> list[Any]:
    """What shows a change of an issue or pull request. Labels and comments are there for changes within a second."""
    labels = sorted(label if isinstance(label, str) else str(label["name"]) for label in item["labels"])
    return [int(item["number"]), str(item["updated_at"]), str(item["state"]), labels, item.get("comments")]
