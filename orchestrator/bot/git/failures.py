"""What git and the disk say when they fail, turned into this program's errors of one line."""

from __future__ import annotations

import contextlib
import errno
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from orchestrator.core.errors import (
    DiskFullError,
    RemoteRateLimitError,
    RemoteRefusedError,
    RemoteUnavailableError,
    WorkspaceError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_CHARACTERS = 300
_MOST_SERVER_CHARACTERS = 4000
_SERVERS = ("remote:", "ERROR: ")
_SSH_ENDED = "Could not read from remote repository"
_GITS_OWN = re.compile(
    r"(?:fatal|error|warning|hint|Warning): |Please make sure you have|and the repository exists|To |Cloning into"
)
_RULED = re.compile(r"[\u2010-\u2015\u2500-\u257f]{2,}|[=_*~-]{3,}")  # lines that are drawn
_PROGRESS = re.compile(r"objects: +\d+|deltas: +\d+|: +\d+% \(\d+/\d+\)|^Total \d+ \(delta")
_NO_SPACE = "no space is left on the disk; free some and run again"
# Comes after the line that says which path could not be written.
_SAYS_LITTLE = "fatal: unable to checkout working tree"
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|out of disk space", re.IGNORECASE)

_NO_CREDENTIAL = "the server asks for a credential and accepted none; check the token"
_NO_SSH = "ssh was not let in; check the key and the server's entry in known_hosts"
_NO_PERMISSION = "no permission; check what the token may do"
_ARCHIVED = "the repository is archived, so nothing can be pushed; unarchive it, or name another one"
_SINGLE_SIGN_ON = "the organization wants single sign-on; authorize the token or the ssh key for it"
_NOT_LET_IN = frozenset({_NO_CREDENTIAL, _NO_SSH, _NO_PERMISSION, _ARCHIVED, _SINGLE_SIGN_ON})

# The first that matches decides. Git runs with LC_ALL=C, so these are its own words; the `remote:` lines
# are GitHub's.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), reason)
    for pattern, reason in (
        (
            r"dubious ownership",
            "the repository belongs to another user, so git does not trust it; run as its owner",
        ),
        (r"^remote: .*\barchived\b", _ARCHIVED),
        (r"SAML SSO|single sign-on", _SINGLE_SIGN_ON),
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
# GitHub says a minute where it names no time: docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
_LIMIT_SECONDS = 60.0
_LONGEST_LIMIT_SECONDS = 900.0
_LIMITED = re.compile(
    r"error: 429|HTTP 429|rate limited by|^remote:.*\brate limit", re.IGNORECASE | re.MULTILINE
)
_NAMED_WAIT = re.compile(
    r"(?:retry|again|wait)[^\d\n]{0,20}(?P<count>\d{1,12}(?:\.\d{1,9})?)\s*(?P<unit>s|m|h)", re.IGNORECASE
)
_TRACED = re.compile(r"\d\d:\d\d:\d\d\.\d+ \S+\.c:\d+ +(?:<= Recv header: (?P<header>.*))?")
_ASKED_WAIT = re.compile(r"^retry-after: (?P<count>\d+) (?P<unit>s)$", re.MULTILINE)
_PASSES = re.compile(r"error: (?:403|408|5\d\d)|HTTP (?:403|408|5\d\d)")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# A time-out (408) passes; what stands above has a reason of its own.
_NEEDS_PERSON = frozenset({"402", "407", "410", "451"})
_REFUSED = re.compile(r"returned error: (?P<status>4(?!08)\d\d)")
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
    said = server_words(stderr)
    if _LIMITED.search(stderr) or (_ASKED_WAIT.search(stderr) and _PASSES.search(stderr)):
        seconds = _wait_seconds(stderr)
        return RemoteRateLimitError(
            f"{doing}: the server wants a pause of {seconds:.0f} s{said}", seconds=seconds
        )
    for pattern, reason in _REASONS:
        if pattern.search(stderr):
            kind = RemoteRefusedError if reason in _NOT_LET_IN else WorkspaceError
            return kind(f"{doing}: {reason}{said}")
    if refused := _REFUSED.search(stderr):
        kind = RemoteRefusedError if refused["status"] in _NEEDS_PERSON else WorkspaceError
        return kind(f"{doing}: the server refuses it (HTTP {refused['status']}){said}")
    line = main_line(stderr)
    if _NETWORK.search(stderr):
        message = f"{doing}: the server cannot be reached ({line}){said}"
        # A certificate that is not accepted today is not accepted in an hour either.
        return WorkspaceError(message) if "certificate" in stderr else RemoteUnavailableError(message)
    return WorkspaceError(f"{doing}: {line}{said}")


def without_trace(stderr: str) -> str:
    """What git said, without what curl did (`GIT_TRACE_CURL`); the wait that the last reply asked for stays, as words.

    Its form: `trace_strbuf` in https://github.com/git/git/blob/master/trace.c, `Retry-After` in RFC 9110, 10.2.3.
    """
    lines: list[str] = []
    headers: dict[str, str] = {}
    for line in stderr.splitlines(keepends=True):
        traced = _TRACED.match(line)
        if traced is None:
            lines.append(line)
        elif traced["header"] is not None:
            name, _, value = traced["header"].partition(":")
            headers = {} if name.startswith("HTTP/") else headers | {name.lower(): value.strip()}
    said, seconds = "".join(lines), _retry_after(headers)
    return said if seconds is None else f"{said.rstrip()}\nretry-after: {seconds} s\n"


def _retry_after(headers: Mapping[str, str]) -> int | None:
    """Seconds, by the server's own clock where it names a moment."""
    wanted = headers.get("retry-after", "")
    if wanted.isdecimal():
        return int(wanted)
    try:
        until, now = (parsedate_to_datetime(text) for text in (wanted, headers.get("date", "")))
        return max(0, int((until - now).total_seconds()))
    except (ValueError, TypeError):
        return None


def _wait_seconds(stderr: str) -> float:
    """The pause that a server names, by its header or in words."""
    found = _ASKED_WAIT.search(stderr) or _NAMED_WAIT.search(stderr)
    if found is None:
        return _LIMIT_SECONDS
    return min(float(found["count"]) * _UNIT_SECONDS[found["unit"].lower()], _LONGEST_LIMIT_SECONDS)


def server_words(stderr: str) -> str:
    """All that the server says, for the end of a message on one line; empty where it says nothing.

    Args:
        stderr: what git said. Git puts `remote:` before a server's lines, and before the plain text that
            comes with an HTTP error; over ssh they come as they are until the protocol begins.
    """
    over_ssh = _SSH_ENDED in stderr
    said: list[str] = []
    for line in stderr.splitlines():
        is_servers = line.startswith(_SERVERS)
        if not is_servers and (not over_ssh or _GITS_OWN.match(line)):
            continue
        text = _RULED.sub(" ", line.removeprefix("remote:"))
        text = " ".join(printable(text).split())
        if any(letter.isalnum() for letter in text) and not _PROGRESS.search(text):
            said.append(text)
    words = " | ".join(said)
    if len(words) > _MOST_SERVER_CHARACTERS:
        words = f"{words[:_MOST_SERVER_CHARACTERS]} … (cut off here)"
    return f"; the server says: {words}" if words else ""


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
