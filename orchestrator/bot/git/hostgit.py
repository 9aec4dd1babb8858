"""Runs git safely, without configuration of a repository or a user, and reports errors in one line."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from orchestrator.bot.git.foreign import View, find_repository, refuse_special_files
from orchestrator.core.errors import (
    DiskFullError,
    GitMissingError,
    RemoteRateLimitError,
    RemoteRefusedError,
    RemoteUnavailableError,
    WorkspaceError,
)
from orchestrator.core.files import is_full
from orchestrator.core.http_client import asked_seconds
from orchestrator.core.watchdog import owner_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from git import Git

    from orchestrator.bot.git.foreign import FoundRepository
    from orchestrator.core.redaction import Credential

_MOST_CHARACTERS = 300
_MOST_SERVER_CHARACTERS = 4000
_SERVERS = ("remote:", "ERROR: ")
_SSH_ENDED = "Could not read from remote repository"
_GIT_MESSAGE = re.compile(
    r"(?:fatal|error|warning|hint|Warning): |Please make sure you have|and the repository exists|To |Cloning into"
)
_DRAWN_LINE = re.compile(r"[\u2010-\u2015\u2500-\u257f]{2,}|[=_*~-]{3,}")
_PROGRESS = re.compile(r"objects: +\d+|deltas: +\d+|: +\d+% \(\d+/\d+\)|^Total \d+ \(delta")
_NO_SPACE = "no space is left on the disk; free some and run again"
# Comes after the line that says which path could not be written.
_VAGUE_LINE = "fatal: unable to checkout working tree"
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|out of disk space", re.IGNORECASE)

_NO_CREDENTIAL = "the server asks for a credential and accepted none; check the token"
_NO_SSH = "ssh was refused access; check the key and the server's entry in known_hosts"
_NO_PERMISSION = "no permission; check what the token may do"
_ARCHIVED = "the repository is archived, so nothing can be pushed; unarchive it, or name another one"
_SINGLE_SIGN_ON = "the organization wants single sign-on; authorize the token or the ssh key for it"
_ACCESS_REASONS = frozenset({_NO_CREDENTIAL, _NO_SSH, _NO_PERMISSION, _ARCHIVED, _SINGLE_SIGN_ON})

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
_WAIT_IN_WORDS = re.compile(
    r"(?:retry|again|wait)[^\d\n]{0,20}(?P<count>\d{1,12}(?:\.\d{1,9})?)\s*(?P<unit>s|m|h)", re.IGNORECASE
)
_TRACE_LINE = re.compile(r"\d\d:\d\d:\d\d\.\d+ \S+\.c:\d+ +(?:<= Recv header: (?P<header>.*))?")
_RETRY_AFTER = re.compile(r"^retry-after: (?P<count>\d+) (?P<unit>s)$", re.MULTILINE)
_TEMPORARY = re.compile(r"error: (?:403|408|5\d\d)|HTTP (?:403|408|5\d\d)")
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
    """Return the error for a failed git command.

    Args:
        stderr: git's output, already without secrets.
        doing: what was attempted, such as `cannot clone https://...`.
    """
    if _DISK_FULL.search(stderr):
        return DiskFullError(f"{doing}: {_NO_SPACE}")
    said = server_words(stderr)
    if _LIMITED.search(stderr) or (_RETRY_AFTER.search(stderr) and _TEMPORARY.search(stderr)):
        seconds = _wait_seconds(stderr)
        return RemoteRateLimitError(
            f"{doing}: the server asks for a pause of {seconds:.0f} s{said}", seconds=seconds
        )
    for pattern, reason in _REASONS:
        if pattern.search(stderr):
            kind = RemoteRefusedError if reason in _ACCESS_REASONS else WorkspaceError
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
    """Remove curl's trace (`GIT_TRACE_CURL`) from git's output; a wait that the last reply asked for stays, in words.

    Format: `trace_strbuf` in https://github.com/git/git/blob/master/trace.c, `Retry-After` in RFC 9110,
    10.2.3.
    """
    lines: list[str] = []
    headers: dict[str, str] = {}
    for line in stderr.splitlines(keepends=True):
        traced = _TRACE_LINE.match(line)
        if traced is None:
            lines.append(line)
        elif traced["header"] is not None:
            name, _, value = traced["header"].partition(":")
            headers = {} if name.startswith("HTTP/") else headers | {name.lower(): value.strip()}
    said, seconds = "".join(lines), asked_seconds(headers)
    return said if seconds is None else f"{said.rstrip()}\nretry-after: {seconds:.0f} s\n"


def _wait_seconds(stderr: str) -> float:
    """Return the wait that a server asks for, in its header or in words."""
    found = _RETRY_AFTER.search(stderr) or _WAIT_IN_WORDS.search(stderr)
    if found is None:
        return _LIMIT_SECONDS
    return min(float(found["count"]) * _UNIT_SECONDS[found["unit"].lower()], _LONGEST_LIMIT_SECONDS)


def server_words(stderr: str) -> str:
    """Return the server's message, for the end of a message on one line; empty without one.

    Args:
        stderr: git's output. Git prefixes a server's lines, and the plain text of an HTTP error, with
            `remote:`; over ssh they are unchanged until the protocol begins.
    """
    over_ssh = _SSH_ENDED in stderr
    said: list[str] = []
    for line in stderr.splitlines():
        is_servers = line.startswith(_SERVERS)
        if not is_servers and (not over_ssh or _GIT_MESSAGE.match(line)):
            continue
        text = _DRAWN_LINE.sub(" ", line.removeprefix("remote:"))
        text = " ".join(printable_line(text).split())
        if any(letter.isalnum() for letter in text) and not _PROGRESS.search(text):
            said.append(text)
    words = " | ".join(said)
    if len(words) > _MOST_SERVER_CHARACTERS:
        words = f"{words[:_MOST_SERVER_CHARACTERS]} … (cut off here)"
    return f"; the server says: {words}" if words else ""


def main_line(stderr: str) -> str:
    """Return the most informative line of git's output: the first fatal one, else an error, else the last."""
    lines = [shown for line in stderr.splitlines() if (shown := printable_line(line))]
    lines = [line for line in lines if line != _VAGUE_LINE] or lines
    for prefix in ("fatal: ", "error: "):
        for line in lines:
            if line.startswith(prefix):
                return line.removeprefix(prefix)[:_MOST_CHARACTERS]
    return lines[-1][:_MOST_CHARACTERS] if lines else "git printed nothing"


def printable_line(text: str) -> str:
    """Remove terminal control characters from a text, and show undecodable bytes as `?`."""
    shown = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter for letter in shown if letter.isprintable()).strip()


def name_paths(paths: Sequence[str], most: int) -> str:
    """Return the first paths for a message, and the number of the others."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(map(printable_line, paths[:most])) + more


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Convert errors of the file system into `DiskFullError` or `WorkspaceError`."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DiskFullError(f"{doing}: {_NO_SPACE}") from error
        message = f"{doing}: {error.strerror or error}"
        if error.filename is not None:
            message += f" ({printable_line(str(error.filename))})"
        raise WorkspaceError(message) from error


# The only variables of this process that git sees; names of keys and tokens are not among them.
_KEPT_VARIABLES = frozenset(
    {
        *("TMPDIR", "TZ"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    }
)

_VARIABLES = {
    # A file and not a folder, so that no program finds a configuration (.gitconfig, .netrc) below it.
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "GIT_ADVICE": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_DEFAULT_REF_FORMAT": "files",
    "GIT_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone fetches missing objects by itself; a command that needs no remote reaches none.
    "GIT_ALLOW_PROTOCOL": "none",
}

_ALLOWED_PROTOCOLS = "file:http:https:ssh"
_HTTP = frozenset({"http", "https"})

# No filter, textconv or merge driver is named here: drivers come from configuration only, and there is
# none but ours. `transfer.fsckObjects` stays off: it costs nothing measurable, but refuses many old and
# harmless repositories; what would be dangerous to check out is refused by the protect settings.
_SETTINGS = (
    "core.askPass=",
    f"core.attributesFile={os.devnull}",
    "core.autocrlf=false",
    f"core.excludesFile={os.devnull}",
    "core.fsmonitor=false",
    # What git writes here is a clone, or a cache of one, which can be made again after a power cut. What a push
    # writes is the other side's, under its own settings.
    "core.fsync=none",
    f"core.hooksPath={os.devnull}",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.symlinks=true",
    "core.untrackedCache=false",
    "commit.gpgSign=false",
    "credential.helper=",
    "diff.external=",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
    "log.showSignature=false",
    "maintenance.auto=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "tag.gpgSign=false",
)
OPTIONS = tuple(word for setting in _SETTINGS for word in ("-c", setting))
"""Options before the subcommand of every command."""


class Peer(Protocol):
    """The repository that a command contacts. `orchestrator.bot.git.remote.Remote` is one."""

    @property
    def url(self) -> str:
        """The address for git, without a password."""

    @property
    def scheme(self) -> str:
        """One of `file`, `http`, `https`, `ssh`."""

    @property
    def folder(self) -> Path | None:
        """The path of a local repository, else None."""

    @property
    def cancelled(self) -> Callable[[], bool]:
        """Polled while the command contacts it; True ends the command."""

    def current_credential(self) -> Credential | None:
        """Return the credential for it. See `Remote`."""

    def variables(self, credential: Credential, helper: Path) -> dict[str, str]:
        """Return the variables by which git gets the credential. See `Remote`."""


def _network_variables(remote: Peer) -> dict[str, str]:
    """Return the additional variables of a command that may contact one remote."""
    variables = {"GIT_ALLOW_PROTOCOL": _ALLOWED_PROTOCOLS}
    if remote.scheme in _HTTP:
        # Onto standard error, which stays in memory: git tells a server's headers in no other way. It leaves
        # out credentials (GIT_TRACE_REDACT), and `HostGit` takes them out once more.
        variables |= {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
    if remote.scheme == "ssh":
        variables["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"
        if "SSH_AUTH_SOCK" in os.environ:
            variables["SSH_AUTH_SOCK"] = os.environ["SSH_AUTH_SOCK"]
    return variables


_STOP_REQUESTED: ContextVar[Callable[[], bool]] = ContextVar("stop_requested")


def end_git_when(stop_requested: Callable[[], bool]) -> None:
    """End the git programs that this task starts when a stop is requested, also those of its threads and tasks.

    Those that contact a remote are ended by its own `cancelled`.
    """
    _STOP_REQUESTED.set(stop_requested)


_TIME_LIMIT_SECONDS = 1800.0
_STOP_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.2
_PAUSE_SECONDS = 0.01

# While GitPython loads it runs `git version` under the user's configuration, and fails if that is broken.
# With these it finds no program and says nothing; ours is named in each command.
_LOADING_VARIABLES = {"GIT_PYTHON_REFRESH": "quiet", "GIT_PYTHON_GIT_EXECUTABLE": os.devnull}
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class GitResult:
    """The result of a command. `stderr` contains no secret."""

    status: int
    stdout: bytes
    stderr: str


_OBJECTS = "objects"
# A lock is of a command that failed.
_UNSHARED = frozenset({_OBJECTS, "index.lock", "shallow.lock"})


class HostGit:
    """Git on one git directory that only this program writes.

    Args:
        folder: a folder that only this user can enter; git starts there, and the credential helper is written
            there.
        git_dir: the git directory, or None if there is none yet.
        work_tree: the files that belong to it, for commands that read or write them: a folder in which only this
            program has written, because git opens whatever is there.
        foreign: the repository of somebody else that the git directory belongs to; then its configuration and hooks
            do not apply.
    """

    def __init__(
        self,
        folder: Path,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        *,
        foreign: FoundRepository | None = None,
    ) -> None:
        self.folder = folder
        self._git_dir = git_dir
        self._work_tree = work_tree
        self._foreign = foreign

    @property
    def git_dir(self) -> Path:
        """The git directory. Raises `WorkspaceError` if there is none yet."""
        if self._git_dir is None:
            raise WorkspaceError("git has no repository here")
        return self._git_dir

    @property
    def object_folder(self) -> Path:
        """The folder of the objects, which several working trees may share."""
        return (self.git_dir if self._foreign is None else self._foreign.common) / "objects"

    def continue_in(self, folder: Path) -> None:
        """Write into a git directory in a new folder from now on. The objects of the old one are still read.

        Raises:
            OSError: it cannot be made; nothing changes.
        """
        old, new = self.git_dir, folder / self.git_dir.name
        folder.mkdir(mode=0o700)
        shutil.copytree(
            old, new, ignore=lambda place, names: _UNSHARED & set(names) if place == str(old) else ()
        )
        for name in ("info", "pack"):
            (new / _OBJECTS / name).mkdir(parents=True)
        (new / _OBJECTS / "info" / "alternates").write_bytes(os.fsencode(old / _OBJECTS) + b"\n")
        self.folder, self._git_dir = folder, new

    def require_program(self) -> None:
        """Raise `GitMissingError` if there is no git on this machine."""
        _find_git(self._environment(None)["PATH"])

    def without_tree(self) -> HostGit:
        """Return git for the same objects, without the working tree."""
        return HostGit(self.folder, self._git_dir, foreign=self._foreign)

    def on(self, work_tree: Path) -> HostGit:
        """Return git for the same objects, with another working tree."""
        return HostGit(self.folder, self._git_dir, work_tree)

    def run(
        self,
        *arguments: str,
        doing: str,
        stdin: bytes = b"",
        index: Path | None = None,
        variables: Mapping[str, str] | None = None,
        remote: Peer | None = None,
    ) -> bytes:
        """Run a command that must succeed, and return its output.

        Args:
            arguments: the subcommand and its arguments; untrusted text only after `--` or validated.
            doing: begins the error message, such as `cannot commit`.
            index: the index file to use in place of the git directory's own.
            remote: the only place that the command may contact.
        """
        result = self.attempt(
            *arguments, doing=doing, stdin=stdin, index=index, variables=variables, remote=remote
        )
        if result.status != 0:
            raise error_for(result.stderr, doing)
        return result.stdout

    def attempt(
        self,
        *arguments: str,
        doing: str,
        stdin: bytes = b"",
        index: Path | None = None,
        variables: Mapping[str, str] | None = None,
        remote: Peer | None = None,
    ) -> GitResult:
        """Run a command that may fail. The arguments are those of `run`."""
        environment = {**self._environment(index), **(variables or {})}
        # Only http asks this program for a credential.
        is_http = remote is not None and remote.scheme in _HTTP
        credential = remote.current_credential() if remote is not None and is_http else None
        with storage_errors(doing):
            if remote is not None:
                environment |= _network_variables(remote)
            if remote is not None and credential is not None:
                helper = write_helper(self.folder)
                environment |= remote.variables(credential, helper)
            cancelled = remote.cancelled if remote is not None else _STOP_REQUESTED.get(lambda: False)
            environment |= self._instead_of(remote, doing)
            with self._in_view() as inside:
                result = _execute(arguments, environment | inside, self.folder, stdin, doing, cancelled)
        said = without_trace(result.stderr) if is_http else result.stderr
        return replace(result, stderr=credential.redact(said) if credential is not None else said)

    @contextmanager
    def _in_view(self) -> Iterator[dict[str, str]]:
        """Yield the variable by which git uses a view in place of somebody else's git directory."""
        if self._foreign is None:
            yield {}
            return
        with tempfile.TemporaryDirectory(prefix="view-") as place:  # its own folder is not ours
            yield {"GIT_DIR": str(View.of(self._foreign).make(Path(place)))}

    def _instead_of(self, remote: Peer | None, doing: str) -> dict[str, str]:
        """Return the variables by which git uses a view in place of a repository on this machine.

        The program that git starts for the other side, `git-upload-pack` or `git-receive-pack`, then finds a
        configuration of ours, and no hooks.
        """
        if remote is None or remote.folder is None or not remote.folder.is_dir():
            return {}
        refuse_special_files(remote.folder)
        found = find_repository(remote.folder)
        if found is None:
            raise WorkspaceError(f"{doing}: it is not a git repository")
        if not found.is_owned:
            raise WorkspaceError(
                f"{doing}: the repository belongs to another user, so git does not trust it; run as its owner"
            )
        # As variables: a key on the command line ends at the first `=`, which a path may contain.
        return {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{View.of(found).keep_in(self.folder).as_uri()}.insteadOf",
            "GIT_CONFIG_VALUE_0": remote.url,
        }

    def _environment(self, index: Path | None) -> dict[str, str]:
        """Return the environment of a command that contacts no remote."""
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        # A relative entry of PATH would find a clone's own programs.
        path = filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))
        environment = {**kept, **_VARIABLES, "PATH": os.pathsep.join(path)}
        places = {"GIT_DIR": self._git_dir, "GIT_WORK_TREE": self._work_tree, "GIT_INDEX_FILE": index}
        return environment | {name: str(place) for name, place in places.items() if place is not None}


def _execute(  # noqa: PLR0913, PLR0917  one command, fact by fact
    arguments: Sequence[str],
    environment: dict[str, str],
    folder: Path,
    stdin: bytes,
    doing: str,
    cancelled: Callable[[], bool],
) -> GitResult:
    program = _find_git(environment["PATH"])
    # Without a work tree nothing reads the attributes that lie in it: they could hide a change from a diff.
    bare = ("-c", "core.bare=true") if "GIT_DIR" in environment and "GIT_WORK_TREE" not in environment else ()
    command = [program, *OPTIONS, *bare, *arguments]
    holder = _gitpython().AutoInterrupt
    with _file_of(stdin, folder) as source:
        # GitPython's own `execute` adds to the environment of this process and cannot take away from it. Here
        # the environment is given whole; GitPython then ends the program if it is forgotten.
        running = subprocess.Popen(  # noqa: S603  git itself, found on an absolute path
            command,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**environment, **owner_variables()},
            # Ctrl+C in the terminal is for this program, which may still want its push to end well.
            start_new_session=True,
        )
        process = holder(running, command)
    try:
        stdout, stderr = _wait(process, doing, cancelled)
    finally:
        _end(process)
    return GitResult(process.returncode, stdout, stderr.decode("utf-8", "replace"))


@functools.cache
def _find_git(path: str) -> str:
    """Return the first git in the folders of a PATH. Raise `GitMissingError` if there is none."""
    program = shutil.which("git", path=path)
    if program is None:
        raise GitMissingError("no git program was found; install git (https://git-scm.com) and run again")
    return program


def _file_of(stdin: bytes, folder: Path) -> IO[bytes]:
    """Return git's input as a file.

    A pipe does not work: `communicate` writes into it only in its first call, so git would wait for the rest
    for ever if that call timed out.
    """
    if not stdin:
        return Path(os.devnull).open("rb")
    source = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  the caller closes it
    try:
        source.write(stdin)
        source.seek(0)
    except OSError:
        with suppress(OSError):  # what the full disk did not take is written once more
            source.close()
        raise
    return source


def _wait(process: Git.AutoInterrupt, doing: str, cancelled: Callable[[], bool]) -> tuple[bytes, bytes]:
    for _ in range(int(_TIME_LIMIT_SECONDS / _LOOK_SECONDS)):
        try:
            # A call after a time-out goes on where the one before it was.
            output: tuple[bytes, bytes] = process.communicate(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if cancelled():
                raise WorkspaceError(f"{doing}: interrupted") from None
            continue
        return output
    raise WorkspaceError(f"{doing}: git did not end within {_TIME_LIMIT_SECONDS:.0f} s")


@functools.cache
def _gitpython() -> type[Git]:
    """Return GitPython's class, imported at the first use."""
    with _LOADING:
        before = {name: os.environ.get(name) for name in _LOADING_VARIABLES}
        os.environ.update(_LOADING_VARIABLES)
        try:
            from git import Git
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    return Git


def _end(process: Git.AutoInterrupt) -> None:
    """End the process and close its pipes, so that git does not write into a clone that is being removed."""
    running = process.proc
    if running is None:
        return
    try:
        if running.poll() is None:
            _stop(running)
    finally:
        for pipe in (running.stdout, running.stderr):
            if pipe is not None:
                pipe.close()


def _stop(running: subprocess.Popen[bytes]) -> None:
    """Stop git and the programs that it started, also those that are deaf to SIGTERM and outlive it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        if _has_ended(running.pid):
            break
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)  # its number is not reused before it is waited for
    # Not `communicate`: a signal may have struck in the middle of it, and left it half done.
    with suppress(subprocess.TimeoutExpired):
        running.wait(timeout=_STOP_GRACE_SECONDS)


def _has_ended(process: int) -> bool:
    """Wait a short time for the end of a child, and return whether it came. The child is not reaped."""
    end = time.monotonic() + _STOP_GRACE_SECONDS
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def decode_paths(output: bytes) -> list[str]:
    """Decode NUL-terminated paths of git. Bytes that are not UTF-8 become surrogates."""
    return [os.fsdecode(path) for path in output.split(b"\0") if path]


def encode_paths(paths: Iterable[str]) -> bytes:
    """Encode paths for git's standard input: the reverse of `decode_paths`."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


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


def write_helper(folder: Path) -> Path:
    """Write the credential helper into a folder that only this user can enter. It contains no secret."""
    helper = folder / _HELPER_NAME
    if not helper.exists():
        helper.write_text(_HELPER, encoding="ascii")
        helper.chmod(0o700)
    return helper
