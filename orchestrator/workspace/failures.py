"""What git and the disk say when they fail, turned into this program's errors of one line."""

from __future__ import annotations

import contextlib
import errno
import re
from typing import TYPE_CHECKING

from orchestrator.core.errors import DiskFullError, RemoteRefusedError, RemoteUnavailableError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_CHARACTERS = 300
_NO_SPACE = "no space is left on the disk; free some and run again"
# Comes after the line that says which path could not be written.
_SAYS_LITTLE = "fatal: unable to checkout working tree"
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|out of disk space", re.IGNORECASE)

_NO_CREDENTIAL = "the server asks for a credential and accepted none; check the token"
_NO_SSH = "ssh was not let in; check the key and the server's entry in known_hosts"
_NO_PERMISSION = "no permission; check what the token may do"
_NOT_LET_IN = frozenset({_NO_CREDENTIAL, _NO_SSH, _NO_PERMISSION})

# The first that matches decides. Git runs with LC_ALL=C, so these are its own words; the `remote:` lines
# are GitHub's.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (
            r"dubious ownership",
            "the repository belongs to another user, so git does not trust it; run as its owner",
        ),
        (
            r"Authentication failed|could not read (?:Username|Password)|Invalid username or|error: 401|askpass",
            _NO_CREDENTIAL,
        ),
        (
            r"Permission denied \(|Host key verification failed|Too many authentication failures",
            _NO_SSH,
        ),
        (
            r"Permission to \S+ denied|error: 403|access to repository not granted|not authorized",
            _NO_PERMISSION,
        ),
        (
            r"Repository not found|repository '[^']*' not found|returned error: 404",
            "there is no such repository, or it is hidden from this token",
        ),
        (r"not appear to be a git repository|not a git repository", "it is not a git repository"),
        (r"transport '\S*' not allowed", "this kind of address is not accepted"),
    )
)
_NETWORK = re.compile(
    r"Could not resolve|Failed to connect|Connection (?:refused|timed out|reset|closed)|unable to access"
    r"|early EOF|hung up|RPC failed|Operation too slow|Network is unreachable|No route to host|certificate"
    r"|unexpected disconnect",
    re.IGNORECASE,
)


def error_for(stderr: str, doing: str) -> WorkspaceError:
    """The error for a git command that failed.

    Args:
        stderr: what git said, already without secrets.
        doing: what was tried, such as `cannot clone https://...`.
    """
    if _DISK_FULL.search(stderr):
        return DiskFullError(f"{doing}: {_NO_SPACE}")
    for pattern, reason in _REASONS:
        if pattern.search(stderr):
            kind = RemoteRefusedError if reason in _NOT_LET_IN else WorkspaceError
            return kind(f"{doing}: {reason}")
    line = main_line(stderr)
    if _NETWORK.search(stderr):
        message = f"{doing}: the server cannot be reached ({line})"
        # A certificate that is not accepted today is not accepted in an hour either.
        return WorkspaceError(message) if "certificate" in stderr else RemoteUnavailableError(message)
    return WorkspaceError(f"{doing}: {line}")


def main_line(stderr: str) -> str:
    """The line of git's output that says most: the first fatal one, else an error, else the last."""
    lines = [shown for line in stderr.splitlines() if (shown := printable(line))]
    lines = [line for line in lines if line != _SAYS_LITTLE] or lines
    for prefix in ("fatal: ", "error: "):
        for line in lines:
            if line.startswith(prefix):
                return line.removeprefix(prefix)[:_MOST_CHARACTERS]
    return lines[-1][:_MOST_CHARACTERS] if lines else "git said nothing"


def printable(text: str) -> str:
    """The text without what moves a terminal's cursor, and with undecodable bytes shown as `?`."""
    shown = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter for letter in shown if letter.isprintable()).strip()


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn errors of the file system into `DiskFullError` or `WorkspaceError`."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFullError(f"{doing}: {_NO_SPACE}") from error
        message = f"{doing}: {error.strerror or error}"
        if error.filename is not None:
            message += f" ({printable(str(error.filename))})"
        raise WorkspaceError(message) from error
