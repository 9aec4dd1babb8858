"""Repository names: one key for all spellings. And the commands that messages suggest."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import unquote, urlsplit

OWNER_AND_NAME = re.compile(
    r"(?P<owner>[A-Za-z0-9][A-Za-z0-9-]{0,38})/(?P<name>[A-Za-z0-9._-]{1,100}?)(?:\.git)?/?"
)
SSH_ADDRESS = re.compile(r"(?:ssh://)?(?:[^@/]+@)(?P<host>[^:/]+)(?::\d+/|[:/])(?P<path>.+)")
GITHUB = "github.com"
_USUAL_PORT = re.compile(r"^(http://.*):80$|^(https://.*):443$")


def repository_key(name: str) -> str:
    """Return the key that identifies a repository, from any of its names.

    `owner/name` is the repository on github.com. A path is resolved, so that links, `.` and `..` make no
    difference. A relative path is returned unchanged and equals no key, because it names another folder in
    each working directory. Names in journals are complete: the wiring makes them so.

    Args:
        name: `owner/name`, a URL, `git@host:owner/name`, or a path.
    """
    text = name.strip()
    parts = urlsplit(text) if "://" in text else None
    if parts is not None and parts.scheme == "file":
        return _of_path(unquote(parts.path))
    if text.startswith(("/", "~")):
        return _of_path(text)
    if match := OWNER_AND_NAME.fullmatch(text):
        return f"{GITHUB}/{match['owner']}/{match['name']}".lower()
    if parts is not None and parts.scheme in {"http", "https"}:
        match = OWNER_AND_NAME.fullmatch(parts.path.strip("/"))
        return (
            f"{_host(parts.scheme, parts.netloc)}/{match['owner']}/{match['name']}".lower() if match else text
        )
    if (ssh := SSH_ADDRESS.fullmatch(text)) and (match := OWNER_AND_NAME.fullmatch(ssh["path"].strip("/"))):
        return f"{_host('https', ssh['host'])}/{match['owner']}/{match['name']}".lower()
    return text


def same_repository(one: str, other: str) -> bool:
    """Return whether two names mean the same repository. A relative path never does."""
    return repository_key(one) == repository_key(other)


def _of_path(path: str) -> str:
    folder = Path(os.path.realpath(Path(path).expanduser()))
    return str(folder.parent if folder.name == ".git" else folder)


def _host(scheme: str, authority: str) -> str:
    address = f"{scheme}://{authority.rpartition('@')[2]}".lower()
    host = _USUAL_PORT.sub(r"\1\2", address).partition("://")[2].rstrip(".")
    return GITHUB if host == f"ssh.{GITHUB}" else host.removeprefix("www.").removeprefix("api.")


PROGRAM = "pullwright"
_SOURCE_TREE = Path(__file__).parents[2]


def install_command(extra: str) -> str:
    """Return the command that installs an optional part of this program, for a message.

    In a source tree it installs from there, into the environment of this process: the package index may not have it.
    """
    if (_SOURCE_TREE / "pyproject.toml").exists():
        return f"{quote(sys.executable)} -m pip install {quote(f'{_SOURCE_TREE}[{extra}]')}"
    return f"pip install '{PROGRAM}[{extra}]'"


@dataclass(frozen=True, slots=True)
class Commands:
    """Builds the commands about the tasks of one repository that messages suggest.

    Attributes:
        repository: its name as in journals, which is valid in every folder.
        github_url: the server, if the user named one and the command needs it; else empty.
    """

    repository: str = "REPO"
    github_url: str = ""

    def retry(self, task: str) -> str:
        """Return the command that makes a task available again."""
        return self._on("retry", task)

    def forget(self, task: str) -> str:
        """Return the command that deletes what is stored about a task."""
        return self._on("forget", task)

    def close(self, number: int) -> str:
        """Return the command that closes one of our pull requests."""
        return self._on("close", str(number))

    def release(self, task: str) -> str:
        """Return the command that takes a task away from its holder."""
        return self._on("claims release", task)

    def answer(self, task: str) -> str:
        """Return the command that answers a task's question. The user replaces ANSWER."""
        return f"{PROGRAM} run --repo {quote(self.repository)}{self._server()} --task {quote(task)} --answer ANSWER"

    def _on(self, action: str, what: str) -> str:
        return f"{PROGRAM} {action} {quote(what)} --repo {quote(self.repository)}{self._server()}"

    def _server(self) -> str:
        return f" --github-url {quote(self.github_url)}" if self.github_url else ""
