"""Run git, and nothing that a repository, a user's configuration or a variable brings."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for, storage_errors, without_trace
from orchestrator.bot.git.remote import write_helper
from orchestrator.core.errors import GitMissingError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from git import Git

    from orchestrator.bot.git.remote import Remote

# The only variables of this process that git sees; names of keys and tokens are not among them.
_KEPT_VARIABLES = frozenset(
    {
        *(
            "TMPDIR",
            "TZ",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "CURL_CA_BUNDLE",
            "GIT_SSL_CAINFO",
            "GIT_SSL_CAPATH",
        ),
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

# No filter, textconv or merge driver is named here: drivers come from configuration only, and there is
# none but ours. `transfer.fsckObjects` stays off: it costs nothing measurable, but refuses many old and
# harmless repositories; what would be dangerous to check out is refused by the protect settings.
_SETTINGS = (
    "core.askPass=",
    f"core.attributesFile={os.devnull}",
    "core.autocrlf=false",
    f"core.excludesFile={os.devnull}",
    "core.fsmonitor=false",
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
"""Before the subcommand of every command."""


def environment_for(git_dir: Path | None, work_tree: Path | None) -> dict[str, str]:
    """The environment of a command on a git directory, and on the files that belong to it."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment = {**kept, **_VARIABLES, "PATH": _absolute_path()}
    if git_dir is not None:
        environment["GIT_DIR"] = str(git_dir)
    if work_tree is not None:
        environment["GIT_WORK_TREE"] = str(work_tree)
    return environment


def network_variables(remote: Remote) -> dict[str, str]:
    """What a command needs besides that may contact one remote."""
    variables = {"GIT_ALLOW_PROTOCOL": _ALLOWED_PROTOCOLS}
    if remote.scheme in {"http", "https"}:
        # Onto standard error, which stays in memory: git tells a server's headers in no other way. It leaves
        # out credentials (GIT_TRACE_REDACT), and `HostGit` takes them out once more.
        variables |= {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
    if remote.scheme == "ssh":
        variables["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"
        if "SSH_AUTH_SOCK" in os.environ:
            variables["SSH_AUTH_SOCK"] = os.environ["SSH_AUTH_SOCK"]
    return variables


def _absolute_path() -> str:
    """PATH without relative entries: in a clone they would find the clone's own programs."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())


_TIME_LIMIT_SECONDS = 1800.0
_STOP_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.2

# While GitPython loads it runs `git version` under the user's configuration, and fails if that is broken.
# With these it finds no program and says nothing; ours is named in each command.
_LOADING_VARIABLES = {"GIT_PYTHON_REFRESH": "quiet", "GIT_PYTHON_GIT_EXECUTABLE": os.devnull}
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class GitResult:
    """How a command ended. `stderr` holds no secret."""

    status: int
    stdout: bytes
    stderr: str


class HostGit:
    """Git on one git directory that only this program writes.

    Args:
        folder: a folder that only this user can enter; git starts there, and the helper that hands over
            the credential is written there.
        git_dir: the git directory, or None while there is none yet.
        work_tree: the files that belong to it, for the commands that look at them.
    """

    def __init__(self, folder: Path, git_dir: Path | None = None, work_tree: Path | None = None) -> None:
        self.folder = folder
        self._git_dir = git_dir
        self._work_tree = work_tree

    @property
    def git_dir(self) -> Path:
        """The git directory.

        Raises:
            WorkspaceError: there is none yet.
        """
        if self._git_dir is None:
            raise WorkspaceError("git has no repository here")
        return self._git_dir

    @property
    def work_tree(self) -> Path:
        """The files.

        Raises:
            WorkspaceError: git is blind to them.
        """
        if self._work_tree is None:
            raise WorkspaceError("git has no files here")
        return self._work_tree

    def without_tree(self) -> HostGit:
        """Git on the same objects, blind to the work tree."""
        return HostGit(self.folder, self._git_dir)

    def run(
        self,
        *arguments: str,
        doing: str,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        remote: Remote | None = None,
    ) -> bytes:
        """Run a command that must succeed, and return what it prints.

        Args:
            arguments: the subcommand and its arguments; text from elsewhere only after `--` or checked.
            doing: begins the message if it fails, such as `cannot commit`.
            stdin: what the command reads.
            variables: added to the environment of this command.
            remote: the only place that the command may contact.

        Raises:
            WorkspaceError: one of its subclasses; the command failed or git is missing.
        """
        result = self.attempt(*arguments, doing=doing, stdin=stdin, variables=variables, remote=remote)
        if result.status != 0:
            raise error_for(result.stderr, doing)
        return result.stdout

    def attempt(
        self,
        *arguments: str,
        doing: str,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        remote: Remote | None = None,
    ) -> GitResult:
        """Run a command that may fail. The arguments are those of `run`."""
        environment = {**environment_for(self._git_dir, self._work_tree), **(variables or {})}
        credential = remote.current_credential() if remote is not None else None
        with storage_errors(doing):
            if remote is not None:
                environment |= network_variables(remote)
            if remote is not None and credential is not None:
                helper = write_helper(self.folder)
                environment |= credential.variables(remote.scheme, remote.authority, helper)
            cancelled = remote.cancelled if remote is not None else _never
            result = _execute(arguments, environment, self.folder, stdin, doing, cancelled)
        said = result.stderr if remote is None else without_trace(result.stderr)
        return GitResult(
            result.status, result.stdout, said if credential is None else credential.redact(said)
        )


def _never() -> bool:
    return False


def _execute(  # noqa: PLR0913, PLR0917  one command, fact by fact
    arguments: Sequence[str],
    environment: dict[str, str],
    folder: Path,
    stdin: bytes,
    doing: str,
    cancelled: Callable[[], bool],
) -> GitResult:
    program = shutil.which("git", path=environment["PATH"])
    if program is None:
        raise GitMissingError("no git program was found; install git (https://git-scm.com) and run again")
    # Without a work tree nothing reads the attributes that lie in it: they could hide a change from a diff.
    bare = ("-c", "core.bare=true") if "GIT_DIR" in environment and "GIT_WORK_TREE" not in environment else ()
    command = [program, *OPTIONS, *bare, *arguments]
    holder = _gitpython().AutoInterrupt
    # A file and no pipe: `communicate` writes into a pipe only in its first call, so that git would wait for
    # ever for the rest where that call was not given the processor within its time.
    with TemporaryFile(dir=folder) as source:
        source.write(stdin)
        source.seek(0)
        # GitPython's own `execute` adds to the environment of this process and cannot take away from it. Here
        # the environment is given whole; GitPython then ends the program if it is forgotten.
        running = subprocess.Popen(  # noqa: S603  git itself, found on an absolute path
            command,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
            # Ctrl+C in the terminal is for this program, which may still want its push to end well.
            start_new_session=True,
        )
        process = holder(running, command)
    try:
        stdout, stderr = _wait(process, doing, cancelled)
    finally:
        _end(process)
    return GitResult(process.returncode, stdout, stderr.decode("utf-8", "replace"))


def _wait(process: Git.AutoInterrupt, doing: str, cancelled: Callable[[], bool]) -> tuple[bytes, bytes]:
    for _ in range(int(_TIME_LIMIT_SECONDS / _LOOK_SECONDS)):
        try:
            # A call after a time-out goes on where the one before it was.
            output: tuple[bytes, bytes] = process.communicate(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if cancelled():
                message = f"{doing}: interrupted"
                raise WorkspaceError(message) from None
            continue
        return output
    message = f"{doing}: git did not end within {_TIME_LIMIT_SECONDS:.0f} s"
    raise WorkspaceError(message)


def _gitpython() -> type[Git]:
    """GitPython, loaded at the first use."""
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
    """Nothing of git may write into a clone that is being removed, and no pipe stays open, however it ended."""
    running = process.proc
    if running is None:
        return
    if running.poll() is None:
        _stop(running)
    for pipe in (running.stdout, running.stderr):
        if pipe is not None:
            pipe.close()


def _stop(running: subprocess.Popen[bytes]) -> None:
    """End git and the programs that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        try:
            # Not `communicate`: a signal may have struck in the middle of it, and left it half done.
            running.wait(timeout=_STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def decode_paths(output: bytes) -> list[str]:
    """Paths that git ended with NUL each. Bytes that are not UTF-8 become surrogates."""
    return [os.fsdecode(path) for path in output.split(b"\0") if path]


def encode_paths(paths: Iterable[str]) -> bytes:
    """The reverse of `decode_paths`, for git's standard input."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
