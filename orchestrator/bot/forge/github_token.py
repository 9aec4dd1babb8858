"""Whose authority a token has, what it is called, and what GitHub says about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.forge.github_json import LOGIN
from orchestrator.bot.forge.github_place import RestPlace
from orchestrator.bot.forge.line import Line, Request
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.forge.calls import Patience

WORKFLOW_LOGIN = "github-actions[bot]"
ACTIONS_APP_ID = "15368"
"""The App of GitHub Actions on github.com, whose installation tokens are what workflows get."""
VIEWER = "query { viewer { login } }"
"""docs.github.com/graphql/reference/queries#viewer; it answers for apps as well, unlike `GET /user`."""
_PREFIXES = {
    "ghp_": TokenKind.CLASSIC,
    "github_pat_": TokenKind.FINE_GRAINED,
    "gho_": TokenKind.OAUTH,
    "ghu_": TokenKind.OAUTH,
    "ghs_": TokenKind.APP,
}
"""github.blog/engineering/behind-githubs-new-authentication-token-formats"""
_APP_ID = re.compile(r"ghs_([0-9]+)_")
_EXPIRY_FORM = "%Y-%m-%d %H:%M:%S %z"
_LATEST_RESET = 10**11
"""In seconds since 1970: what lies behind it is no time."""


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """What GitHub says about a token. None is what it does not say.

    Attributes:
        kind: whose authority it has.
        scopes: of a classic or an OAuth token; it may have none.
        expires_at: of a personal access token that expires.
        rate_limit: requests an hour; `rate_remaining` of them are left until `rate_reset`.
        server_date: the server's clock when it answered.
    """

    kind: TokenKind
    scopes: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    rate_limit: int | None = None
    rate_remaining: int | None = None
    rate_reset: datetime | None = None
    server_date: datetime | None = None


def kind_of(token: str, *, in_workflow: bool = False) -> TokenKind:
    """The kind of a token by its form.

    A workflow's token and another app's look the same where they do not name the app.

    Args:
        token: the token, or nothing.
        in_workflow: whether this runs in GitHub Actions.
    """
    if not token:
        return TokenKind.NONE
    found = next((kind for prefix, kind in _PREFIXES.items() if token.startswith(prefix)), TokenKind.OTHER)
    if found is TokenKind.APP and in_workflow:
        app = _APP_ID.match(token)
        return TokenKind.WORKFLOW if app is None or app[1] == ACTIONS_APP_ID else TokenKind.APP
    return found


class RestToken(RestPlace):
    """Whose the token is."""

    def __init__(self, name: str, line: Line, patience: Patience, *, is_app: bool) -> None:
        super().__init__(name, line, patience, is_app=is_app)
        self._kind = TokenKind.OTHER if line.has_token else TokenKind.NONE
        self._in_workflow = False
        self._login: str | None = None
        self._login_is_known = False

    def own_login(self) -> str | None:
        """Our name as an author, a bot's with `[bot]`; asked once. None without a token, or if GitHub does not tell."""
        if not self._login_is_known and self._line.has_token:
            self._login = (None if self._is_app else self._user()) or self._viewer()
            self._login_is_known = True
        return self._login

    def token_kind(self) -> TokenKind:
        """What kind of token we show.

        In a workflow its own token and that of another app may have the same form: our name tells them apart.
        """
        if self._in_workflow and self._kind in {TokenKind.WORKFLOW, TokenKind.APP}:
            login = self.own_login()
            if login is not None:
                return TokenKind.WORKFLOW if login == WORKFLOW_LOGIN else TokenKind.APP
        return self._kind

    def about_token(self) -> TokenFacts:
        """What GitHub says about the token and its limits, by one request that counts against none.

        docs.github.com/rest/rate-limit/rate-limit; Enterprise servers without limits answer 404.

        Raises:
            ForgeAuthenticationError: it is not valid.
        """
        kind = self.token_kind()
        request = Request("GET", "/rate_limit", "ask about the token")
        reply = self._calls.call(request, accept=(HTTPStatus.NOT_FOUND,))
        limit: Mapping[str, int] = {}
        if reply.status != HTTPStatus.NOT_FOUND:
            limit = self._calls.understood(reply, request.doing, _to_limit)
        scopes = reply.headers.get("x-oauth-scopes")
        reset = limit.get("reset")
        return TokenFacts(
            kind=kind,
            scopes=None if scopes is None else tuple(filter(None, map(str.strip, scopes.split(",")))),
            expires_at=to_expiry(reply.headers.get("github-authentication-token-expiration", "")),
            rate_limit=limit.get("limit"),
            rate_remaining=limit.get("remaining"),
            rate_reset=None if reset is None else datetime.fromtimestamp(reset, UTC),
            server_date=_to_date(reply.headers.get("date", "")),
        )

    def _user(self) -> str | None:
        """A person's name. None for a token that speaks for no person."""
        try:
            request = Request("GET", "/user", "ask whose the token is")
            return self._calls.read(request, lambda data: str(data["login"]))
        except ForgePermissionError:
            return None

    def _viewer(self) -> str | None:
        """An app's name, as of a workflow's token."""
        body = {"query": VIEWER, "variables": {}}
        request = Request("POST", "", "ask whose the token is", body=body, is_graphql=True)
        try:
            login = self._calls.read(request, lambda data: str(data["data"]["viewer"]["login"]))
        except (ForgeAuthenticationError, ForgeRateLimitError, ForgeUnavailableError):
            raise
        except ForgeError:
            return None
        login = f"{login.removesuffix('[bot]')}[bot]"
        return login if LOGIN.fullmatch(login) else None


def to_expiry(text: str) -> datetime | None:
    """The time in `github-authentication-token-expiration`, or None if it is none.

    It is written as `2026-01-31 08:00:00 UTC` or with an offset, `2026-01-31 08:00:00 +0100`.
    """
    try:
        return datetime.strptime(text.strip().replace(" UTC", " +0000"), _EXPIRY_FORM).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _to_limit(data: Mapping[str, Any]) -> Mapping[str, int]:
    core = data["resources"]["core"]
    limit = {name: int(core[name]) for name in ("limit", "remaining", "reset")}
    if not 0 <= limit["reset"] < _LATEST_RESET:
        raise ValueError(limit["reset"])
    return limit


def _to_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
