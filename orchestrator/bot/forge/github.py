"""GitHub, and GitHub Enterprise, as a forge. PyGithub carries and signs the requests."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from orchestrator.bot.forge.address import (
    DEFAULT_API_URL,
    NOT_GITHUB,
    api_url_for,
    git_host_of,
    is_githubs_own,
)
from orchestrator.bot.forge.app_line import AppLine
from orchestrator.bot.forge.base import Credential, TokenKind, Traffic
from orchestrator.bot.forge.calls import Patience
from orchestrator.bot.forge.github_rest import RestForge
from orchestrator.bot.forge.github_token import TokenFacts, kind_of
from orchestrator.bot.forge.line import Request
from orchestrator.bot.forge.refusals import TOKEN_VARIABLE, Reply
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeNotFoundError,
    ForgeUnavailableError,
)
from orchestrator.core.redaction import without_secrets

if TYPE_CHECKING:
    from github import Auth
    from github.Requester import Requester

__all__ = [
    "DEFAULT_API_URL",
    "GitHubApp",
    "GitHubAuth",
    "GitHubForge",
    "GitHubToken",
    "Patience",
    "TokenFacts",
    "api_url_for",
]

_TIMEOUT_SECONDS = 30
_TELLING_PATHS = ("/meta", "/rate_limit")
"""What anybody may ask of GitHub; an Enterprise server has both."""
_TELLING_KEYS = frozenset(
    {"verifiable_password_authentication", "documentation_url", "resources", "full_name"}
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]+")


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


class GitHubForge(RestForge):
    """One repository on GitHub.

    Args:
        name: `owner/name`. A former name is followed to the present one.
        auth: who we are; None for nobody.
        patience: how calls behave in time.
        api_url: the REST interface's address, as `api_url_for` gives it.
        in_workflow: whether this runs in GitHub Actions, whose token looks like any app's.
        token_variable: where a token for this server is set, for messages.

    Raises:
        ConfigurationError: the name is not `owner/name`, or the token is none.
        ForgeAuthenticationError: the app's private key is none.
    """

    def __init__(  # noqa: PLR0913  who we are, where, and how, given by name
        self,
        name: str,
        auth: GitHubAuth,
        patience: Patience,
        api_url: str = DEFAULT_API_URL,
        *,
        in_workflow: bool = False,
        token_variable: str = TOKEN_VARIABLE,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} is not a repository: give owner/name")
        token = auth.token.strip() if isinstance(auth, GitHubToken) else ""
        if not re.fullmatch(r"[!-~]*", token):
            raise ConfigurationError(f"{token_variable} holds characters that no token has: copy it again")
        self._token = token
        self._api_url = api_url
        self._app_line = _app_line(name, auth, patience, api_url) if isinstance(auth, GitHubApp) else None
        line = self._app_line or _token_line(api_url, token, token_variable)
        kind = TokenKind.APP if self._app_line else kind_of(token, in_workflow=in_workflow)
        super().__init__(name, line, patience, is_app=kind in {TokenKind.APP, TokenKind.WORKFLOW})
        self._kind, self._in_workflow = kind, in_workflow and self._app_line is None

    def __repr__(self) -> str:
        return f"GitHubForge({self._name!r}, api_url={self._api_url!r})"

    def traffic(self) -> Traffic:
        """The requests so far, those for an app's token among them."""
        own = super().traffic()
        spent = self._app_line.traffic() if self._app_line else Traffic()
        return Traffic(
            own.requests + spent.requests, own.unchanged + spent.unchanged, own.writes + spent.writes
        )

    def credential(self) -> Credential | None:
        """What git shows to the server; None without a token."""
        token = self._app_line.token() if self._app_line else self._token
        return Credential(git_host_of(self._api_url), "x-access-token", token) if token else None


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


def _token_line(api_url: str, token: str, variable: str = TOKEN_VARIABLE) -> _PyGithubLine:
    """A line that is signed with a token, or with nothing if it is empty."""
    from github import Auth

    return _PyGithubLine(api_url, Auth.Token(token) if token else None, token, variable)


def _app_line(name: str, app: GitHubApp, patience: Patience, api_url: str) -> AppLine:
    signer = _app_auth(app)
    return AppLine(
        name,
        patience,
        as_app=lambda: _PyGithubLine(api_url, signer),
        with_token=lambda token: _token_line(api_url, token),
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
