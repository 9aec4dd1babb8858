"""Where a GitHub server has its REST interface, and where its repositories are cloned from."""

from __future__ import annotations

from urllib.parse import urlsplit

from orchestrator.core.errors import ConfigurationError
from orchestrator.forge.refusals import TOKEN_VARIABLE

DEFAULT_API_URL = "https://api.github.com"
_USUAL_PORTS = {"http": 80, "https": 443}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def api_url_for(github_url: str) -> str:
    """The address of the REST interface for a server's web address, or for that address itself.

    `github.com` has it at `api.github.com`, `NAME.ghe.com` at `api.NAME.ghe.com`, any other
    server (GitHub Enterprise Server) at `HOST/api/v3`:
    docs.github.com/en/enterprise-server@latest/rest/enterprise-admin
    All spellings of a server give one address: a usual port and a last dot are left out.

    Raises:
        ConfigurationError: it is no address of a server, holds a credential, or would send the
            token unencrypted to another machine.
    """
    text = github_url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
    except ValueError:
        raise ConfigurationError(
            "--github-url is not an address: give one like https://github.example.com"
        ) from None
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"--github-url holds a credential: take it out, and set {TOKEN_VARIABLE} instead"
        )
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise ConfigurationError(f"--github-url {text}: give an address like https://github.example.com")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ConfigurationError(f"--github-url {text}: use https, the token must not travel unencrypted")
    path = parts.path.rstrip("/")
    if path not in {"", "/api/v3"}:
        raise ConfigurationError(f"--github-url {text}: leave out {path}, it names the server only")
    web = host.removeprefix("www.").removeprefix("api.")
    if path == "" and (web == "github.com" or web.endswith(".ghe.com")):
        return f"https://api.{web}"
    place = f"[{host}]" if ":" in host else host
    named = port and port != _USUAL_PORTS[parts.scheme]
    return f"{parts.scheme}://{place}{f':{port}' if named else ''}/api/v3"


def git_host_of(api_url: str) -> str:
    """The host, with its port if it has one, that clone URLs of this server name."""
    parts = urlsplit(api_url)
    return parts.netloc.removeprefix("api.") if parts.path in {"", "/"} else parts.netloc
