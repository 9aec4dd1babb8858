"""How requests reach GitHub: PyGithub carries and signs them, with a token or for a GitHub App."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from orchestrator.bot.forge.base import Traffic
from orchestrator.bot.forge.github.address import NOT_GITHUB, TOKEN_VARIABLE, is_githubs_own
from orchestrator.bot.forge.github.calls import Calls, Line, Patience, Reply, Request
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeNotFoundError,
    ForgeUnavailableError,
)
from orchestrator.core.redaction import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from github import Auth
    from github.Requester import Requester

_TIMEOUT_SECONDS = 30
_TELLING_PATHS = ("/meta", "/rate_limit")
"""What anybody may ask of GitHub; an Enterprise server has both."""
_TELLING_KEYS = frozenset(
    {"verifiable_password_authentication", "documentation_url", "resources", "full_name"}
)
RENEWAL_MARGIN = timedelta(minutes=5)
"""A token is not used in its last minutes, so that a clone or push that begins with it ends with it."""


@dataclass(frozen=True, slots=True)
class GitHubToken:
    """A personal access token, or the one that a workflow run is given."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """A GitHub App: its id and its private key as PEM text. Its installation is found by repository."""

    app_id: str
    private_key: str = field(repr=False)


GitHubAuth: TypeAlias = GitHubToken | GitHubApp | None
"""None reads public repositories, sixty requests an hour, and writes nothing."""


class _PyGithubLine:
    """Sends requests through PyGithub under one authentication."""

    def __init__(
        self, api_url: str, auth: Auth.Auth | None, secret: str = "", variable: str = TOKEN_VARIABLE
    ) -> None:
        # PyGithub logs whole replies at level DEBUG, and one of them holds an app's token.
        logging.getLogger("github.Requester").setLevel(logging.WARNING)
        self._requester = _requester(api_url, auth)
        self._api_url = api_url
        self._host = urlsplit(api_url).netloc
        self._secret = secret
        self._variable = variable
        self._is_known = is_githubs_own(api_url)

    @property
    def has_token(self) -> bool:
        """Whether requests are signed."""
        return self._requester.auth is not None

    @property
    def token_variable(self) -> str:
        """Where a token for this server is set."""
        return self._variable

    def send(self, request: Request) -> Reply:
        """One request, one reply. A server of a company is asked first, without a credential, whether it is GitHub.

        Raises:
            ConfigurationError: the server is not GitHub.
            ForgeUnavailableError: no reply.
            ForgeNotFoundError: the server sends us to another server.
        """
        if not self._is_known:
            self._require_github(request)
            self._is_known = True
        return self._sent(self._requester, request)

    def _require_github(self, request: Request) -> None:
        """Refuse a server that does not answer as GitHub does. Nothing secret is sent to find out."""
        nobody, status, doing = _requester(self._api_url, None), 0, request.doing
        # A stand-in that knows a part of the interface knows at least what is asked of it.
        own = (request.path,) if request.method == "GET" and "://" not in request.path else ()
        try:
            for path in (*_TELLING_PATHS, *own):
                reply = self._sent(nobody, Request("GET", path, doing))
                if _answers_as_github(reply):
                    return
                if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise ForgeUnavailableError(
                        f"cannot {doing}: {self._host} is in trouble ({reply.status})"
                    )
                status = status or reply.status
        finally:
            nobody.close()
        raise ConfigurationError(
            f"{self._host} does not answer as GitHub does ({status}), and was sent no token: "
            f"check --repo and --github-url; {NOT_GITHUB}"
        )

    def _sent(self, requester: Requester, request: Request) -> Reply:
        if "://" in request.path and _origin(request.path) != _origin(self._api_url):
            # The next page of a list is named by the server, and is asked for with the token.
            raise ForgeNotFoundError(f"cannot {request.doing}: {self._host} sends us to another server")
        try:
            status, headers, text = requester.requestJson(
                request.method,
                requester.graphql_url if request.is_graphql else request.path,
                parameters=dict(request.query),
                headers=dict(request.headers),
                input=None if request.body is None else dict(request.body),
            )
        except OSError as error:  # every error of the HTTP library below PyGithub is one
            why = type(error).__name__
            raise ForgeUnavailableError(
                f"cannot {request.doing}: no answer from {self._host} ({why})"
            ) from None
        except RuntimeError:
            raise ForgeNotFoundError(
                f"cannot {request.doing}: {self._host} sends us to another server: is --github-url right?"
            ) from None
        if self._secret and status >= HTTPStatus.MULTIPLE_CHOICES:
            text = without_secrets(text, self._secret)  # a proxy may echo what it refuses
        return Reply(status, {name.lower(): str(value) for name, value in headers.items()}, text)

    def close(self) -> None:
        """Let go of connections."""
        self._requester.close()


class AppLine:
    """Signs requests with an app's installation token.

    Args:
        name: the repository, `owner/name`; the token is good for no other.
        patience: how the calls for a token behave in time.
        as_app: opens a line that is signed with the app's own key.
        with_token: opens a line that is signed with a token.
    """

    def __init__(
        self,
        name: str,
        patience: Patience,
        *,
        as_app: Callable[[], Line],
        with_token: Callable[[str], Line],
    ) -> None:
        self._name, self._patience = name, patience
        self._as_app, self._with_token = as_app, with_token
        self._line: Line | None = None
        self._token = ""
        self._expires_at: datetime | None = None
        self._lock = threading.RLock()
        self._spent = Traffic()

    @property
    def has_token(self) -> bool:
        """Always: without one there is an error."""
        return True

    @property
    def token_variable(self) -> str:
        """What would be used in place of the app."""
        return TOKEN_VARIABLE

    def send(self, request: Request) -> Reply:
        """One request, one reply, with a token that is good for some minutes more."""
        return self._renewed().send(request)

    def token(self) -> str:
        """A token that is good for some minutes more."""
        with self._lock:
            self._renewed()
            return self._token

    def traffic(self) -> Traffic:
        """The requests that the tokens took so far."""
        return self._spent

    def close(self) -> None:
        """Let go of connections."""
        if self._line is not None:
            self._line.close()

    def _renewed(self) -> Line:
        # Git asks for the token in one thread while requests go out in another.
        with self._lock:
            return self._with_good_token()

    def _with_good_token(self) -> Line:
        now = self._patience.clock.now()
        if self._line is None or self._expires_at is None or self._expires_at - now < RENEWAL_MARGIN:
            line = self._as_app()
            calls = Calls(line, self._patience)
            try:
                self._token, self._expires_at = self._new_token(calls)
            finally:
                line.close()
                new, old = calls.traffic(), self._spent
                self._spent = Traffic(old.requests + new.requests, old.unchanged, old.writes + new.writes)
            self.close()
            self._line = self._with_token(self._token)
        return self._line

    def _new_token(self, calls: Calls) -> tuple[str, datetime]:
        doing = f"get the GitHub App's token for {self._name}"
        try:
            found = Request("GET", f"/repos/{self._name}/installation", doing)
            number = calls.read(found, lambda data: int(data["id"]))
            only = {"repositories": [self._name.split("/")[1]]}
            asked = Request("POST", f"/app/installations/{number}/access_tokens", doing, body=only)
            return calls.read(
                asked,
                lambda data: (str(data["token"]), datetime.fromisoformat(data["expires_at"])),
                repeatable=True,
            )
        except ForgeNotFoundError:
            raise ForgeNotFoundError(
                f"cannot {doing}: no such repository, or the app is not installed on it"
            ) from None
        except ForgeAuthenticationError:
            raise ForgeAuthenticationError(
                f"cannot {doing}: check the app's id and its private key"
            ) from None


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address; port 0 where it is none."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    usual = {"http": 80, "https": 443}.get(parts.scheme, 0)
    return parts.scheme, (parts.hostname or "").lower(), usual if port is None else port


def _requester(api_url: str, auth: Auth.Auth | None) -> Requester:
    """PyGithub's way to send. Its own retries and pauses sleep where nobody sees it; `Calls` does that work."""
    import github

    return github.Github(
        auth=auth,
        base_url=api_url,
        timeout=_TIMEOUT_SECONDS,
        user_agent="pullwright",
        retry=None,
        seconds_between_requests=None,
        seconds_between_writes=None,
    ).requester


def _answers_as_github(reply: Reply) -> bool:
    """Whether a reply to one of `_TELLING_PATHS` is GitHub's, also where it asks for a name first (private mode).

    Its headers and its JSON: docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api,
    docs.github.com/rest/meta/meta
    """
    if any(name.startswith("x-github-") or name == "x-ratelimit-resource" for name in reply.headers):
        return True
    body = reply.json()
    return isinstance(body, dict) and not body.keys().isdisjoint(_TELLING_KEYS)


def token_line(api_url: str, token: str, variable: str = TOKEN_VARIABLE) -> _PyGithubLine:
    """A line that is signed with a token, or with nothing if it is empty."""
    from github import Auth

    return _PyGithubLine(api_url, Auth.Token(token) if token else None, token, variable)


def app_line(name: str, app: GitHubApp, patience: Patience, api_url: str) -> AppLine:
    """Open a line that signs as an app for one repository."""
    signer = _app_auth(app)
    return AppLine(
        name,
        patience,
        as_app=lambda: _PyGithubLine(api_url, signer),
        with_token=lambda token: token_line(api_url, token),
    )


def _app_auth(app: GitHubApp) -> Auth.AppAuth:
    """PyGithub's signer, tried once.

    Raises:
        ForgeAuthenticationError: the key cannot sign.
    """
    from github import Auth
    from jwt import PyJWTError

    # A key in an environment variable often has its line ends written as `\n`.
    try:
        auth = Auth.AppAuth(app.app_id, app.private_key.replace("\\n", "\n"))
        auth.create_jwt()
    except (PyJWTError, AssertionError):
        raise ForgeAuthenticationError(
            "the GitHub App's private key cannot be used: give the whole PEM file that GitHub made"
        ) from None
    return auth
