"""The addresses of a GitHub server: its REST interface, its clone URLs and its attachments."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from orchestrator.core.addresses import SCHEME_PORTS, bracketed, holds_credential
from orchestrator.core.errors import ConfigurationError

DEFAULT_API_URL = "https://api.github.com"
TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105  a variable's name
ENTERPRISE_VARIABLE = "GH_ENTERPRISE_TOKEN"
"""The variable for every server except github.com, as in gh: cli.github.com/manual/gh_help_environment"""
NOT_GITHUB = (
    "Pullwright opens pull requests on GitHub, and in repositories on disk: clone it, and pass its folder"
)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OTHER_FORGES = (
    *("gitlab.com", "bitbucket.org", "codeberg.org", "gitea.com", "sr.ht", "gitee.com", "notabug.org"),
    *("dev.azure.com", "visualstudio.com", "sourceforge.net", "launchpad.net", "huggingface.co", "pagure.io"),
    *("salsa.debian.org", "gitlab.gnome.org", "gitlab.freedesktop.org", "framagit.org", "kernel.org"),
)
"""Well-known public servers that are not GitHub. Any other server is asked."""


def api_url_for(github_url: str) -> str:
    """Return the address of the REST interface for a server's web address, or for that address itself.

    `github.com` has it at `api.github.com`, `NAME.ghe.com` at `api.NAME.ghe.com`, any other server (GitHub
    Enterprise Server) at `HOST/api/v3`: docs.github.com/en/enterprise-server@latest/rest/enterprise-admin

    All spellings of a server give one address: a default port and a trailing dot are left out.

    Raises:
        ConfigurationError: the text is no address of a server, holds a credential, or would send the token
            unencrypted to another machine.
    """
    text = github_url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
    except ValueError:
        raise ConfigurationError(
            "--github-url is not an address: give one like https://github.example.com"
        ) from None
    if holds_credential(parts.geturl()):
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
    web = web.removeprefix("ssh.") if web == "ssh.github.com" else web  # for ssh through a firewall
    if path == "" and (web == "github.com" or web.endswith(".ghe.com")):
        return f"https://api.{web}"
    named = port and port != SCHEME_PORTS[parts.scheme]
    return f"{parts.scheme}://{bracketed(host)}{f':{port}' if named else ''}/api/v3"


def is_githubs_own(api_url: str) -> bool:
    """Return whether GitHub itself runs the server: github.com, or a company's part of ghe.com."""
    host = urlsplit(api_url).hostname or ""
    return api_url == DEFAULT_API_URL or (urlsplit(api_url).scheme == "https" and host.endswith(".ghe.com"))


_ASSET_HOSTS = frozenset({"user-images.githubusercontent.com", "private-user-images.githubusercontent.com"})
"""GitHub's stores of images, which an issue may link to directly."""

STORES = frozenset(
    {
        *_ASSET_HOSTS,
        "objects.githubusercontent.com",
        "objects-origin.githubusercontent.com",
        "github-production-user-asset-6210df.s3.amazonaws.com",
        "github-production-repository-file-5c1aeb.s3.amazonaws.com",
    }
)
"""Where github.com stores attachments. These are whole host names, because anybody may own other buckets."""

_ATTACHED = re.compile(
    r"/user-attachments/(?:assets/[0-9A-Fa-f-]{36}|files/[0-9]+/[^/]+)"
    r"|/(?P<repository>[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)/(?:assets/[0-9]+/[0-9A-Fa-f-]{36}|files/[0-9]+/[^/]+)"
    r"|/storage/user/[0-9]+/files/[0-9A-Fa-f-]{36}"
)
"""The paths of attachments. The last form is an Enterprise server's."""


def is_attachment(url: str, api_url: str, repository: str) -> bool:
    """Return whether an address is that of an attachment, on the server of a REST interface.

    If the address names a repository, it must be this one, because our token may read others.
    """
    try:
        parts = urlsplit(url)
        server = urlsplit(f"{urlsplit(api_url).scheme}://{git_host_of(api_url)}")
        same_place = (parts.scheme, parts.hostname, parts.port) == (
            server.scheme,
            server.hostname,
            server.port,
        )
    except ValueError:
        return False
    if parts.username is not None or parts.password is not None:
        return False
    if (
        api_url == DEFAULT_API_URL
        and parts.scheme == "https"
        and parts.port is None
        and parts.hostname in _ASSET_HOSTS
    ):
        return True
    found = _ATTACHED.fullmatch(parts.path) if same_place else None
    return found is not None and (found["repository"] or repository).lower() == repository.lower()


def refuse_other_forge(host: str) -> None:
    """Refuse a host that is known not to be GitHub, before anything is sent to it."""
    name = host.lower().rstrip(".")
    if any(name == other or name.endswith(f".{other}") for other in _OTHER_FORGES):
        raise ConfigurationError(f"{name} is not GitHub: {NOT_GITHUB}")


def git_host_of(api_url: str) -> str:
    """Return the host, with its port if it has one, in this server's clone URLs."""
    parts = urlsplit(api_url)
    return parts.netloc.removeprefix("api.") if parts.path in {"", "/"} else parts.netloc
