"""Requests to a GitHub server. PyGithub sends and signs them, with a token or for an App."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from orchestrator.bot.forge.base import Traffic
from orchestrator.core.addresses import SCHEME_PORTS
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeNotFoundError,
    ForgeUnavailableError,
)
from orchestrator.core.redaction import without_secrets
from orchestrator.plugins.github.address import NOT_GITHUB, TOKEN_VARIABLE, is_githubs_own
from orchestrator.plugins.github.calls import ApiRequest, Calls, CallTiming, Reply
from orchestrator.plugins.github.parsing import to_datetime

if TYPE_CHECKING:
    from collections.abc import Callable

    from github import Auth
    from github.Requester import Requester

    from orchestrator.engine.policy.secrets import Redactor

_TIMEOUT_SECONDS = 30
_PUBLIC_PATHS = ("/meta", "/rate_limit")
"""Paths that anybody may request from GitHub; an Enterprise server has both."""
_GITHUB_KEYS = frozenset(
    {"verifiable_password_authentication", "documentation_url", "resources", "full_name"}
)
RENEWAL_MARGIN = timedelta(minutes=5)
"""A token is not used in its last minutes, so that a clone or push that begins with it ends with it."""


@dataclass(frozen=True, slots=True)
class GitHubToken:
    """A personal access token, or a workflow run's token."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """A GitHub App: its id and its private key as PEM text. Its installation is found by repository."""

    app_id: str
    private_key: str = field(repr=False)


GitHubAuth: TypeAlias = GitHubToken | GitHubApp | None
"""None stands for anonymous access: public repositories, read only, sixty requests an hour."""


class PyGithubTransport:
    """Sends requests through PyGithub, which is loaded at the first one, under one authentication.

    Args:
        make_auth: makes the authentication; None if requests are not signed.
        redactor: removes secrets from everything that is sent to the server, but for the authentication.
    """

    def __init__(
        self,
        api_url: str,
        make_auth: Callable[[], Auth.Auth] | None,
        redactor: Redactor,
        secret: str = "",
        variable: str = TOKEN_VARIABLE,
    ) -> None:
        self._redactor = redactor
        # PyGithub logs whole replies at level DEBUG, and one of them holds an app's token.
        logging.getLogger("github.Requester").setLevel(logging.WARNING)
        self._make_auth = make_auth
        self._requester: Requester | None = None
        self._lock = threading.Lock()  # several threads may send the first request
        self._api_url = api_url
        self._host = urlsplit(api_url).netloc
        self._secret = secret
        self._variable = variable
        self._is_known = is_githubs_own(api_url)

    @property
    def has_token(self) -> bool:
        """Whether requests are signed."""
        return self._make_auth is not None

    @property
    def token_variable(self) -> str:
        """The environment variable for this server's token."""
        return self._variable

    def send(self, request: ApiRequest) -> Reply:
        """Send one request, and return its reply.

        An Enterprise server is first asked, without a credential, whether it is GitHub.

        Raises:
            ConfigurationError: the server is not GitHub.
            ForgeUnavailableError: there is no reply.
            ForgeNotFoundError: the server redirects to another server.
        """
        if not self._is_known:
            self._require_github(request)
            self._is_known = True
        with self._lock:
            if self._requester is None:
                self._requester = _requester(self._api_url, self._make_auth() if self._make_auth else None)
        return self._sent(self._requester, request)

    def _require_github(self, request: ApiRequest) -> None:
        """Refuse a server that does not answer as GitHub does. The check sends nothing secret."""
        anonymous, status, doing = _requester(self._api_url, None), 0, request.doing
        # A server that has only a part of the interface has at least the requested path.
        own = (request.path,) if request.method == "GET" and "://" not in request.path else ()
        try:
            for path in (*_PUBLIC_PATHS, *own):
                reply = self._sent(anonymous, ApiRequest("GET", path, doing))
                if _answers_as_github(reply):
                    return
                if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise ForgeUnavailableError(
                        f"cannot {doing}: {self._host} has a problem ({reply.status})"
                    )
                status = status or reply.status
        finally:
            anonymous.close()
        raise ConfigurationError(
            f"{self._host} does not answer as GitHub does ({status}), so no token was sent to it: "
            f"check --repo and --github-url; {NOT_GITHUB}"
        )

    def _sent(self, requester: Requester, request: ApiRequest) -> Reply:
        if "://" in request.path and _origin(request.path) != _origin(self._api_url):
            # The next page of a list is named by the server, and is asked for with the token.
            raise ForgeNotFoundError(f"cannot {request.doing}: {self._host} redirects to another server")
        try:
            status, headers, text = requester.requestJson(
                request.method,
                requester.graphql_url if request.is_graphql else request.path,
                parameters=dict(request.query),
                headers=dict(request.headers),
                input=None if request.body is None else self._redactor.redact_value(dict(request.body)),
            )
        except OSError as error:  # every error of the HTTP library below PyGithub is one
            why = type(error).__name__
            raise ForgeUnavailableError(
                f"cannot {request.doing}: no answer from {self._host} ({why})"
            ) from None
        except RuntimeError:
            raise ForgeNotFoundError(
                f"cannot {request.doing}: {self._host} redirects to another server: check --github-url"
            ) from None
        if self._secret and status >= HTTPStatus.MULTIPLE_CHOICES:
            text = without_secrets(text, self._secret)  # a proxy may echo what it refuses
        return Reply(status, {name.lower(): str(value) for name, value in headers.items()}, text)

    def close(self) -> None:
        """Close the connections."""
        if self._requester is not None:
            self._requester.close()


class AppTransport:
    """Signs requests as a GitHub App, with a token for one repository.

    The token is replaced when a step of a cycle begins, and before it expires, so that it is valid until the end
    of what begins with it.

    Attributes:
        installation: the number of the app's installation; None before the first token.

    Raises:
        ForgeAuthenticationError: the app's key cannot sign.
    """

    has_token = True
    token_variable = TOKEN_VARIABLE

    def __init__(
        self, name: str, app: GitHubApp, timing: CallTiming, api_url: str, redactor: Redactor
    ) -> None:
        self._name, self._timing, self._api_url, self._redactor = name, timing, api_url, redactor
        self._app, self._signer = app, _app_signer(app)
        self._transport: PyGithubTransport | None = None
        self._token = ""
        self._expires_at = datetime.min.replace(tzinfo=UTC)
        self._ahead = timedelta(0)
        # Git asks for the token in one thread while requests go out in another.
        self._lock = threading.RLock()
        self._spent = Traffic()
        self.installation: int | None = None
        self._needs_new_token = False

    def begin_step(self) -> None:
        """Request a new token at the next use. This makes no request yet."""
        self._needs_new_token = True

    def send(self, request: ApiRequest) -> Reply:
        """Send a request with a token that stays valid for at least `RENEWAL_MARGIN`."""
        return self._renewed().send(request)

    def token(self) -> str:
        """Return a token that stays valid for at least `RENEWAL_MARGIN`."""
        with self._lock:
            self._renewed()
            return self._token

    def traffic(self) -> Traffic:
        """Return the requests for tokens so far."""
        return self._spent

    def close(self) -> None:
        """Close the connections."""
        if self._transport is not None:
            self._transport.close()

    def _renewed(self) -> PyGithubTransport:
        with self._lock:
            now = self._timing.clock.now()
            is_old = self._needs_new_token or self._expires_at - now < RENEWAL_MARGIN
            if self._transport is None or is_old:
                self._token, self._expires_at = self._token_in_time()
                self.close()
                self._redactor.learn([self._token])
                self._transport = open_transport(self._api_url, self._token, self._redactor)
                self._needs_new_token = False
            return self._transport

    def _token_in_time(self) -> tuple[str, datetime]:
        """Return a new token, and when it expires by our clock. A signature is good for minutes by the server's."""
        ahead = self._ahead
        try:
            return self._signed_token()
        except ForgeAuthenticationError:
            if self._ahead == ahead:
                raise
            self._signer = _app_signer(self._app, self._ahead)
            return self._signed_token()

    def _signed_token(self) -> tuple[str, datetime]:
        as_app = PyGithubTransport(self._api_url, lambda: self._signer, self._redactor)
        calls = Calls(as_app, self._timing)
        try:
            token, expires_at = self._new_token(calls)
            return token, expires_at - calls.ahead()
        finally:
            as_app.close()
            self._ahead = calls.ahead()
            self._spent += calls.traffic()

    def _new_token(self, calls: Calls) -> tuple[str, datetime]:
        doing = f"get the GitHub App's token for {self._name}"
        try:
            if self.installation is not None:
                with suppress(ForgeNotFoundError):  # it was removed, and installed again
                    return self._token_of(self.installation, calls, doing)
            found = ApiRequest("GET", f"/repos/{self._name}/installation", doing)
            self.installation = calls.read(found, lambda data: int(data["id"]))
            return self._token_of(self.installation, calls, doing)
        except ForgeNotFoundError:
            raise ForgeNotFoundError(
                f"cannot {doing}: no such repository, or the app is not installed on it"
            ) from None
        except ForgeAuthenticationError:
            raise ForgeAuthenticationError(
                f"cannot {doing}: check the app's id and its private key"
            ) from None

    def _token_of(self, installation: int, calls: Calls, doing: str) -> tuple[str, datetime]:
        only = {"repositories": [self._name.split("/")[1]]}
        asked = ApiRequest("POST", f"/app/installations/{installation}/access_tokens", doing, body=only)
        return calls.read(
            asked, lambda data: (str(data["token"]), to_datetime(data["expires_at"])), repeatable=True
        )


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an address; the port is 0 if it is invalid."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    usual = SCHEME_PORTS.get(parts.scheme, 0)
    return parts.scheme, (parts.hostname or "").lower(), usual if port is None else port


def _requester(api_url: str, auth: Auth.Auth | None) -> Requester:
    """Return PyGithub's requester, without its own retries and pauses, which `Calls` does visibly."""
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
    """Return whether a reply to one of `_PUBLIC_PATHS` is GitHub's, also if it requires a login (private mode).

    Its headers and its JSON: docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api,
    docs.github.com/rest/meta/meta
    """
    if any(name.startswith("x-github-") or name == "x-ratelimit-resource" for name in reply.headers):
        return True
    body = reply.json()
    return isinstance(body, dict) and not body.keys().isdisjoint(_GITHUB_KEYS)


def open_transport(
    api_url: str, token: str, redactor: Redactor, variable: str = TOKEN_VARIABLE
) -> PyGithubTransport:
    """Return a transport that signs requests with a token, or does not sign them if it is empty."""

    def make_auth() -> Auth.Token:
        from github import Auth

        return Auth.Token(token)

    return PyGithubTransport(api_url, make_auth if token else None, redactor, token, variable)


def _app_signer(app: GitHubApp, ahead: timedelta = timedelta(0)) -> Auth.AppAuth:
    """Return PyGithub's signer, after trying it once. It signs for a server whose clock is ahead of ours."""
    import jwt
    from github import Auth

    # A key in an environment variable often has its line ends written as `\n`.
    key, seconds = app.private_key.replace("\\n", "\n"), int(ahead.total_seconds())

    def sign(payload: dict[str, Any]) -> str:
        times = {name: payload[name] + seconds for name in ("iat", "exp")}
        return jwt.encode({**payload, **times}, key, algorithm="RS256")

    try:
        auth = Auth.AppAuth(app.app_id, sign_func=sign)
        auth.create_jwt()
    except (jwt.PyJWTError, AssertionError, ValueError, TypeError):
        raise ForgeAuthenticationError(
            "the GitHub App's private key cannot be used: give the whole PEM file that GitHub made"
        ) from None
    return auth
