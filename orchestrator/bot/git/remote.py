"""Where a repository is: addresses that are accepted, names that are checked, and the credential of a server."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from orchestrator.bot.git.failures import printable
from orchestrator.core.addresses import holds_credential
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.git_names import is_branch_name
from orchestrator.core.masking import REPLACEMENT, without

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# A task's key: what every file system and every git takes for one and the same name.
_KEY = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_MOST_KEY_CHARACTERS = 100
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def is_commit_id(text: str) -> bool:
    """Whether the text is a full object id, SHA-1 or SHA-256."""
    return _COMMIT.fullmatch(text) is not None


def in_the_way(name: str, there: Collection[str], *, below: bool = True) -> str | None:
    """The reference that keeps one of this name from being made, or None.

    Git keeps references as files, so `a` and `a/b` exclude each other; on some servers `A` and `a` do.

    Args:
        name: a full name.
        there: the full names of those that exist. `name` itself is not in its own way.
        below: whether those below `name` count too.
    """
    folded = name.casefold()
    above = {folded[:at] for at, letter in enumerate(folded) if letter == "/"}
    for one in there:
        other = one.casefold()
        if one == name:
            continue
        if other == folded or other in above or (below and other.startswith(f"{folded}/")):
            return one
    return None


def plain_branch(text: str) -> str:
    """The name, if it can be a branch's.

    Raises:
        WorkspaceError: it cannot.
    """
    if not is_branch_name(text):
        message = f"{printable(text)!r} cannot be the name of a branch"
        raise WorkspaceError(message)
    return text


def plain_key(text: str) -> str:
    """The text, if it can be the key of a task: the last part of its references' names.

    Raises:
        WorkspaceError: it cannot.
    """
    if len(text) > _MOST_KEY_CHARACTERS or not _KEY.fullmatch(text) or text.endswith(".lock"):
        message = f"{printable(text)[:_MOST_KEY_CHARACTERS]!r} is not the key of a task, such as issue-12"
        raise WorkspaceError(message)
    return text


_HELPER_NAME = "askpass"

# Git calls the helper with its question as the only argument. The questions of one server are compared
# as a whole, so a redirect to another host, scheme or port gets no answer. `printf` is built into the
# shell: the secret is in no process's arguments.
_HELPER = """#!/bin/sh
case "$1" in
    "$PULLWRIGHT_GIT_ASKS_USERNAME") printf '%s\\n' "$PULLWRIGHT_GIT_USERNAME" ;;
    "$PULLWRIGHT_GIT_ASKS_PASSWORD") printf '%s\\n' "$PULLWRIGHT_GIT_PASSWORD" ;;
    *) exit 1 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class GitCredential:
    """A user name and a password (or token) for one server.

    Attributes:
        host: the server's name, with `:port` where only that port may have it.
    """

    host: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"GitCredential(host={self.host!r}, username={self.username!r}, password={REPLACEMENT!r})"

    def suits(self, authority: str) -> bool:
        """Whether this is for the server `name` or `name:port` of a URL."""
        wanted = self.host.casefold()
        given = authority.casefold()
        return wanted in {given, given.rpartition(":")[0]}

    def variables(self, scheme: str, authority: str, helper: Path) -> dict[str, str]:
        """The environment of one git command that may show this credential to that server.

        Raises:
            WorkspaceError: the user name or the password has a control character.
        """
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in self.username + self.password):  # noqa: PLR2004  ASCII control
            message = f"the credential for {self.host} contains a line break or another control character"
            raise WorkspaceError(message)
        # The wording of both questions: https://github.com/git/git/blob/master/credential.c
        user = quote(self.username, safe="")
        return {
            "GIT_ASKPASS": str(helper),
            "PULLWRIGHT_GIT_ASKS_USERNAME": f"Username for '{scheme}://{authority}': ",
            "PULLWRIGHT_GIT_ASKS_PASSWORD": f"Password for '{scheme}://{user}@{authority}': ",
            "PULLWRIGHT_GIT_USERNAME": self.username,
            "PULLWRIGHT_GIT_PASSWORD": self.password,
        }

    def redact(self, text: str) -> str:
        """The text without the password in the forms in which git or curl could print it."""
        basic = base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")
        return without(text, self.password).replace(basic, REPLACEMENT)


def write_helper(folder: Path) -> Path:
    """Write the helper into a folder that only this user can enter. It holds no secret."""
    helper = folder / _HELPER_NAME
    if not helper.exists():
        helper.write_text(_HELPER, encoding="ascii")
        helper.chmod(0o700)
    return helper


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
        if holds_credential(text):
            raise WorkspaceError("the address holds a password; leave it out and use an ssh key")
        return Remote(text, text, scheme, "", credential)
    if holds_credential(text):
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
