"""What `--repo` may name: `owner/name` on GitHub, a URL, or a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.core.errors import ConfigurationError
from orchestrator.forge.address import api_url_for, git_host_of

_OWNER_AND_NAME = re.compile(
    r"(?P<owner>[A-Za-z0-9][A-Za-z0-9-]{0,38})/(?P<name>[A-Za-z0-9._-]{1,100}?)(?:\.git)?/?"
)
_SSH = re.compile(r"(?:ssh://)?(?:[^@/]+@)(?P<host>[^:/]+)(?::\d+/|[:/])(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class OnGitHub:
    """A repository on GitHub or on an Enterprise server, whose web address is `server`."""

    server: str
    name: str


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A repository in a folder: bare, or a work tree."""

    path: Path


def parse_place(text: str, github_url: str) -> OnGitHub | OnDisk:
    """Tell what a `--repo` value names. A folder that exists wins over `owner/name`.

    Args:
        text: what the person typed.
        github_url: the configured server, for `owner/name`.

    Raises:
        ConfigurationError: it is none of the three.
    """
    path = Path(text).expanduser()
    if not text.strip():
        raise ConfigurationError("--repo is empty: name owner/name, a URL, or a folder")
    if path.is_dir():
        return OnDisk(path.resolve())
    if match := _OWNER_AND_NAME.fullmatch(text):
        return OnGitHub(github_url, f"{match['owner']}/{match['name']}")
    parts = urlsplit(text)
    if parts.scheme == "file":
        return _on_disk(unquote(parts.path), text)
    if parts.scheme in {"http", "https"}:
        if parts.username or parts.password:
            raise ConfigurationError("--repo holds a credential: take it out, and set GITHUB_TOKEN instead")
        return _from_url(f"{parts.scheme}://{parts.netloc}", parts.path, text)
    if match := _SSH.fullmatch(text):
        return _from_url(f"https://{match['host']}", match["path"], text)
    return _on_disk(text, text)


def identity(place: OnGitHub | OnDisk) -> str:
    """A text that is the same for all ways to name a repository.

    Raises:
        ConfigurationError: the server's address is none.
    """
    if isinstance(place, OnDisk):
        return str(place.path)
    return f"{git_host_of(api_url_for(place.server))}/{place.name}".lower()


def _on_disk(path: str, text: str) -> OnDisk:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(f"--repo {text}: no such folder, and not owner/name or a URL")
    return OnDisk(folder.resolve())


def _from_url(server: str, path: str, text: str) -> OnGitHub:
    match = _OWNER_AND_NAME.fullmatch(path.strip("/"))
    if match is None:
        raise ConfigurationError(f"--repo {text}: the address of a repository ends with owner/name")
    return OnGitHub(server, f"{match['owner']}/{match['name']}")
