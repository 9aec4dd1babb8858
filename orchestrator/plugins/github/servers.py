"""GitHub's servers: the repositories that are on them, and the credential that each may receive."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.app.config.settings import SourceKind
from orchestrator.app.wiring.repository import OnServer, Site, Source, named_branch
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import WaitStarted, Warned
from orchestrator.core.repositories import GITHUB, OWNER_AND_NAME, SSH_ADDRESS
from orchestrator.plugins.github.address import (
    DEFAULT_API_URL,
    ENTERPRISE_VARIABLE,
    TOKEN_VARIABLE,
    api_url_for,
    git_host_of,
    refuse_other_forge,
)
from orchestrator.plugins.github.options import github_options

if TYPE_CHECKING:
    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.plugins.github.transport import GitHubAuth


class GitHubServers:
    """What `Point.FORGE` asks for: `owner/name`, and every address of a repository on no server of another kind."""

    def find(self, text: str, settings: Settings) -> OnServer | None:
        """Return the repository that a `--repo` value names; None if it is none on a server."""
        if OWNER_AND_NAME.fullmatch(text):
            return self._on(github_options(settings).github_url, text, text)
        parts = urlsplit(text)
        if parts.scheme in {"http", "https"}:
            return self._on(f"{parts.scheme}://{parts.netloc}", parts.path, text)
        if match := SSH_ADDRESS.fullmatch(text):
            return self._on(f"https://{match['host']}", match["path"], text)
        return None

    def _on(self, server: str, path: str, text: str) -> OnServer:
        refuse_other_forge(urlsplit(server if "://" in server else f"https://{server}").hostname or "")
        match = OWNER_AND_NAME.fullmatch(path.strip("/"))
        if match is None:
            raise ConfigurationError(f"--repo {text}: the address of a repository ends with owner/name")
        api, name = api_url_for(server), f"{match['owner']}/{match['name']}"
        host = git_host_of(api)
        label = name if host == GITHUB else f"{urlsplit(api).scheme}://{host}/{name}"
        return OnServer(self, server, name, label)

    def open(self, place: OnServer, context: BuildContext, *, writes: bool) -> Site:
        """Return the repository with its forge."""
        from orchestrator.plugins.github.calls import CallTiming
        from orchestrator.plugins.github.forge import GitHubForge

        known = credential_for(place.server, context)
        if writes and known.auth is None:
            # Report it before anything is paid for: the push would fail at the end.
            raise ConfigurationError(known.missing)

        def on_wait(seconds: float, reason: str) -> None:
            context.emit(WaitStarted(seconds, reason))

        def on_unreadable(text: str) -> None:
            context.emit(Warned(text))

        # GitHub asks for a pause between writing requests; a server on this machine does not.
        is_here = is_loopback(urlsplit(place.server).hostname or "")
        pacing = 0.0 if is_here else 1.0
        timing = CallTiming(context.clock, context.stop.sleep, on_wait, on_unreadable, pacing_seconds=pacing)
        forge = GitHubForge(
            place.name,
            known.auth,
            timing,
            api_url_for(place.server),
            in_workflow=context.in_workflow,
            token_variable=known.variable,
            redactor=context.redactor,
        )

        def source() -> Source:
            repository = forge.repository()
            branch = context.settings.base or repository.default_branch
            return Source(repository.clone_url, named_branch(branch, place.name))

        flags = _typed_server(context.loaded) if "://" in place.label else ""
        return Site(forge, source, forge.credential, label=place.label, flags=flags)

    def has_credential(self, place: OnServer, context: BuildContext) -> bool:
        """Return whether there is a token, or an App's key, for the repository's server."""
        return credential_for(place.server, context).auth is not None

    def why_not_trusted(self, place: OnServer, settings: Settings) -> str:
        """Return why a folder's origin is not used unasked: it is neither on github.com nor on the configured server."""
        configured = api_url_for(github_options(settings).github_url)
        if api_url_for(place.server) in {DEFAULT_API_URL, configured}:
            return ""
        return f"which is not configured as a GitHub server: start with --github-url {place.server}"

    def web_hosts(self, settings: Settings) -> tuple[str, ...]:
        """Return the host of the configured server."""
        return (urlsplit(github_options(settings).github_url).hostname or "",)


SERVERS = GitHubServers()


def _typed_server(loaded: Loaded) -> str:
    """Return the flag with the server's address if a person typed it; empty if it comes from elsewhere."""
    is_typed = loaded.origin["github_url"].kind is SourceKind.FLAG
    return f"--github-url {quote(github_options(loaded.settings).github_url)}" if is_typed else ""


@dataclass(frozen=True, slots=True)
class HostCredential:
    """The credential for one server.

    Attributes:
        auth: the credential; None if there is none.
        variable: environment variable of a token for the server.
        missing: message for the case that a token is needed and there is none.
    """

    auth: GitHubAuth
    variable: str
    missing: str


def credential_for(server: str, context: BuildContext) -> HostCredential:
    """Return the credential that a server may receive. No other code decides this.

    ===============================================  ===============================================
    credential                                       goes to
    ===============================================  ===============================================
    the GitHub App                                   the configured server, which is github.com if
                                                     neither --github-url nor GITHUB_SERVER_URL is set
    GITHUB_TOKEN, GH_TOKEN                           github.com and the configured server
    GH_ENTERPRISE_TOKEN, GITHUB_ENTERPRISE_TOKEN     every other server that is named, and before
                                                     GITHUB_TOKEN the configured one
    ===============================================  ===============================================

    Args:
        server: web address of the server, from the configuration or from `--repo`.
    """
    from orchestrator.plugins.github.transport import GitHubApp, GitHubToken

    keys, settings = context.keys, github_options(context.settings)
    asked, configured = api_url_for(server), api_url_for(settings.github_url)
    if settings.github_app_id is not None and asked == configured:
        if keys.github_app is None:
            raise ConfigurationError("github_app_id is set: set PULLWRIGHT_GITHUB_APP_KEY_FILE as well")
        return HostCredential(GitHubApp(settings.github_app_id, keys.github_app), TOKEN_VARIABLE, "")
    own = keys.github if asked in {DEFAULT_API_URL, configured} else None
    token = own if asked == DEFAULT_API_URL else keys.github_enterprise or own
    if asked in {DEFAULT_API_URL, configured}:
        variable = TOKEN_VARIABLE
        missing = f"no token for GitHub: set {variable}, or try --dry-run with --task, which only reads"
    else:
        variable, host = ENTERPRISE_VARIABLE, git_host_of(asked)
        missing = (
            f"no token for {host}: set {variable}, or name the server with --github-url "
            f"{urlsplit(asked).scheme}://{host}, so that {TOKEN_VARIABLE} may go there"
        )
    return HostCredential(GitHubToken(token) if token else None, variable, missing)
