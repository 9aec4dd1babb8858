"""Where a repository is: which addresses are accepted, and what a git command needs to reach one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.bot.git.names import is_commit_id
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.git.credential import GitCredential

_SCHEMES = ("file", "http", "https", "ssh")
# `user@host:path`, git's short form for ssh: no slash before the first colon.
_SHORT_SSH = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!:)[^\0]+")


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository's address, checked.

    Attributes:
        url: what git is given; never holds a password.
        shown: what a person is told.
        scheme: one of `file`, `http`, `https`, `ssh`.
        authority: `host` or `host:port` of an http(s) URL, else empty.
        credential: asked for at each use.
        folder: where a local repository lies, else None.
        cancelled: asked while a command contacts the remote; True ends the command.
    """

    url: str
    shown: str
    scheme: str
    authority: str
    credential: Callable[[], GitCredential | None]
    folder: Path | None = None
    cancelled: Callable[[], bool] = lambda: False

    def has_detached_head(self) -> bool:
        """Whether a local repository's HEAD names a commit and no branch.

        `git clone` would take any branch at the same commit for it, and say nothing.
        """
        if self.folder is None:
            return False
        for head in (self.folder / ".git" / "HEAD", self.folder / "HEAD"):
            if head.is_file():
                return is_commit_id(head.read_bytes().decode("ascii", "replace").strip())
        return False

    def current_credential(self) -> GitCredential | None:
        """The credential of this moment, if it is for this server."""
        if self.scheme not in {"http", "https"}:
            return None
        credential = self.credential()
        return credential if credential is not None and credential.suits(self.authority) else None


def parse_remote(text: str, credential: Callable[[], GitCredential | None]) -> Remote:
    """Check an address: a URL, `user@host:path`, or a local path.

    Raises:
        WorkspaceError: a scheme that is not accepted, a URL with a password, or a path that does not exist.
    """
    if not text or any(ord(letter) < 32 for letter in text):  # noqa: PLR2004  ASCII control characters
        message = f"{text!r} is not the address of a repository"
        raise WorkspaceError(message)
    if "://" in text:
        return _from_url(text, credential)
    if not Path(text).exists() and _SHORT_SSH.fullmatch(text) and not text.startswith("-"):
        return Remote(text, text, "ssh", "", credential)
    return _from_path(text, Path(text), credential)


def _from_url(text: str, credential: Callable[[], GitCredential | None]) -> Remote:
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES:
        message = (
            f"the address begins with {text.partition('://')[0]!r}; use https, http, ssh, file or a path"
        )
        raise WorkspaceError(message)
    if scheme == "file":
        from urllib.request import url2pathname

        return _from_path(text, Path(url2pathname(parts.path)), credential)
    if scheme == "ssh":
        if parts.password is not None:
            raise WorkspaceError("the address holds a password; leave it out and use an ssh key")
        return Remote(text, text, scheme, "", credential)
    if "@" in parts.netloc:
        raise WorkspaceError(
            "the address holds a user name or a token; leave it out and set the token instead"
        )
    if not parts.netloc:
        message = f"{text!r} names no server"
        raise WorkspaceError(message)
    return Remote(text, text, scheme, parts.netloc, credential)


def _from_path(text: str, path: Path, credential: Callable[[], GitCredential | None]) -> Remote:
    if not path.exists():
        message = f"{text} does not exist"
        raise WorkspaceError(message)
    # A file URL and not the path: git takes a plain path as a wish for a full copy and ignores the depth.
    return Remote(path.resolve().as_uri(), text, "file", "", credential, path.resolve())
