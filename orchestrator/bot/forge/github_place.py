"""One repository on GitHub: its present name, and requests below it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from orchestrator.bot.forge.calls import BACKOFF_SECONDS, Calls, Patience
from orchestrator.bot.forge.github_json import to_repository
from orchestrator.bot.forge.line import Line, Request
from orchestrator.core.errors import ForgeAuthenticationError, ForgeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.bot.forge.base import Repository, Traffic

T = TypeVar("T")
SETTLED_SECONDS = 60.0
"""How long one of GitHub's answers may lag behind another: what both say is remembered only after that."""


class RestPlace:
    """One repository, seen through any line that carries requests.

    Args:
        name: `owner/name`. A former name is followed to the present one.
        line: carries and signs the requests.
        patience: how calls behave in time.
        is_app: the line speaks for an app, which has no user name.
    """

    def __init__(self, name: str, line: Line, patience: Patience, *, is_app: bool) -> None:
        self._name, self._line, self._is_app = name, line, is_app
        self._calls, self._clock = Calls(line, patience), patience.clock
        self._is_resolved = False
        self._default_branch: str | None = None
        self._has_issues = True
        self._url = ""

    def close(self) -> None:
        """Let go of connections."""
        self._line.close()

    def repository(self) -> Repository:
        """The repository itself, under its present name."""
        request = Request("GET", f"/repos/{self._name}", f"open the repository {self._name}")
        repository, has_issues = self._calls.look(
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
        """The requests so far. One that GitHub redirects counts once here, and twice there."""
        return self._calls.traffic()

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
                f"cannot {doing} in {self._name} without a token: set {self._line.token_variable}"
            )

    def _is_empty(self, data: Mapping[str, Any]) -> bool:
        """GitHub says `main` for a repository without a commit, and size 0 for a new one with some."""
        path = f"/repos/{data['full_name']}/git/ref/heads/{quote(data['default_branch'])}"
        reply = self._calls.get(
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
