"""What `--repo` may name: `owner/name` on GitHub, a URL, or a path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from orchestrator.bot.forge.address import api_url_for, git_host_of, refuse_other_forge
from orchestrator.core.errors import ConfigurationError, PullwrightError
from orchestrator.core.repositories import GITHUB, OWNER_AND_NAME, SSH_ADDRESS

if TYPE_CHECKING:
    import re


@dataclass(frozen=True, slots=True)
class OnGitHub:
    """A repository on GitHub or on an Enterprise server, whose web address is `server`."""

    server: str
    name: str

    @property
    def label(self) -> str:
        """What people and journals call it, wherever and however it was typed.

        Raises:
            ConfigurationError: the server's address is none.
        """
        api = api_url_for(self.server)
        host = git_host_of(api)
        return self.name if host == GITHUB else f"{urlsplit(api).scheme}://{host}/{self.name}"


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A repository in a folder.

    Attributes:
        path: what is cloned: the top of a work tree, or a bare repository.
        home: the repository itself, the same for all of its work trees.
        origin: the address that it was cloned from, without a credential; empty if there is none.
    """

    path: Path
    home: Path
    origin: str = ""

    @property
    def label(self) -> str:
        """What people and journals call it, wherever and however it was typed."""
        return str(self.home)


def parse_place(text: str, github_url: str) -> OnGitHub | OnDisk:
    """Tell what a `--repo` value names. A folder that exists wins over `owner/name`.

    This is the one answer to "which repository is this?": `label` goes into journals, and
    `core.repositories.repository_key` of it is what pauses, failures and pull requests are kept by.

    Args:
        text: what the person typed.
        github_url: the configured server, for `owner/name`.

    Raises:
        ConfigurationError: it is none of the three.
    """
    if not text.strip():
        raise ConfigurationError("--repo is empty: name owner/name, a URL, or a folder")
    path = Path(text).expanduser()
    if path.is_dir():
        return _on_disk(path)
    if match := OWNER_AND_NAME.fullmatch(text):
        return _on_server(github_url, match)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return _named_folder(unquote(parts.path), text)
    if parts.scheme in {"http", "https"}:
        if parts.username or parts.password:
            raise ConfigurationError("--repo holds a credential: take it out, and set GITHUB_TOKEN instead")
        return _from_url(f"{parts.scheme}://{parts.netloc}", parts.path, text)
    if match := SSH_ADDRESS.fullmatch(text):
        return _from_url(f"https://{match['host']}", match["path"], text)
    return _named_folder(text, text)


def label_of(text: str, github_url: str) -> str:
    """What journals call the repository that `--repo` names; what is none, or is gone, keeps the name it was given.

    Args:
        text: what the person typed.
        github_url: the configured server, for `owner/name`.
    """
    try:
        return parse_place(text, github_url).label
    except PullwrightError:
        return text


def _named_folder(path: str, text: str) -> OnDisk:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigurationError(f"--repo {text}: no such folder, and not owner/name or a URL")
    return _on_disk(folder)


def _on_disk(folder: Path) -> OnDisk:
    """The repository that a folder is, or lies in. What is none is told by whoever opens it."""
    from orchestrator.bot.git.local import locate

    found = locate(folder)
    return OnDisk(found.top, found.home, found.origin)


def _on_server(server: str, match: re.Match[str]) -> OnGitHub:
    refuse_other_forge(urlsplit(server if "://" in server else f"https://{server}").hostname or "")
    return OnGitHub(server, f"{match['owner']}/{match['name']}")


def _from_url(server: str, path: str, text: str) -> OnGitHub:
    refuse_other_forge(urlsplit(server).hostname or "")
    match = OWNER_AND_NAME.fullmatch(path.strip("/"))
    if match is None:
        raise ConfigurationError(f"--repo {text}: the address of a repository ends with owner/name")
    return _on_server(server, match)
