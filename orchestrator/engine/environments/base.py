"""The protocols of the environment in which tools act, and of the sandbox in which its commands run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Awaitable, Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class DirEntry:
    """An entry of a folder. `name` is relative to the folder listed; `size` in bytes, None for folders.

    Attributes:
        modified_ns: the time of the last change of the content, in nanoseconds since 1970; None if it is not known.
        mode: kind and permissions, as `stat` reports them; None if they are not known.
    """

    name: str
    is_dir: bool
    size: int | None
    modified_ns: int | None = field(default=None, compare=False)
    mode: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of a command. `exit_code` is negative if a signal ended the command.

    Attributes:
        output: standard output and standard error together, in the order of arrival.
        refused_hosts: `host:port` of each connection that the sandbox did not allow, followed by a blank and
            the reason where allowing the host would not help.
        killed_for: the sandbox limit that the command exceeded, such as `more than 1,024 processes`.
    """

    stdout: str
    stderr: str
    output: str
    exit_code: int
    timed_out: bool
    duration_ms: int
    refused_hosts: tuple[str, ...] = ()
    killed_for: str = ""


@dataclass(frozen=True, slots=True)
class GrepOptions:
    """The options of a search. `glob_filter` is a file pattern such as `*.py`."""

    glob_filter: str | None = None
    case_insensitive: bool = False
    max_results: int = 100


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A line that matches. `line` counts from 1."""

    path: str
    line: int
    text: str


class ExecutionEnvironment(Protocol):
    """The files and commands of one folder. Paths are relative to it and written with `/`.

    Every method raises `PathRefusedError` for a path that leaves the folder, enters a `.git` or passes
    through a symbolic link. An absolute path inside the folder is treated as the relative one.
    """

    async def initialize(self) -> None:
        """Prepare the environment. Called once, before anything else."""

    async def cleanup(self) -> None:
        """Stop running commands and close everything."""

    def working_directory(self) -> str:
        """Return the folder's path as its commands see it."""

    def platform(self) -> str:
        """Return `linux`, `darwin` or `windows`."""

    def os_version(self) -> str:
        """Return the version of the operating system as the system itself reports it."""

    def relative(self, path: str) -> str:
        """Return the path's normal form. The file need not exist.

        Raises:
            PathRefusedError: see the class.
        """

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """Return the file's whole content.

        Raises:
            FileMissingError: the path does not exist.
            FileUnreadableError: not a regular file, over `max_bytes`, or no permission.
        """

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """Create or replace a file, and create missing folders above it. An existing file keeps its mode.

        Args:
            mode_of: a file whose mode is used instead, for example the old file of a move.

        Raises:
            FileMissingError: `mode_of` does not exist.
            ToolError: no permission, no space, or a folder exists at the path.
        """

    async def remove_file(self, path: str) -> None:
        """Remove a regular file; its folder stays.

        Raises:
            FileMissingError: the path does not exist.
            FileUnreadableError: not a regular file, or no permission.
        """

    async def file_exists(self, path: str) -> bool:
        """Return whether the path is a regular file."""

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """Return a folder's entries, `depth` levels deep, sorted and without `.git`.

        Raises:
            FileMissingError: the path does not exist.
            FileUnreadableError: the path is not a folder.
        """

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """Return lines that match a regular expression (ripgrep's syntax). Ignored files are not searched.

        Raises:
            ToolError: the expression is invalid, or the path does not exist.
        """

    async def glob(self, pattern: str, path: str) -> list[str]:
        """Return the files whose path matches, newest first, without ignored files."""

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """Run a shell command in its own process group; on time-out send SIGTERM and 2 s later SIGKILL."""


class HostView(Protocol):
    """A folder of this machine, the folders above it, and the git repository that contains it.

    It is read as this program itself sees it; sandboxed commands see less.
    """

    def at(self, below: tuple[str, ...]) -> HostView:
        """Return the view of a folder below this one."""

    @property
    def is_trusted(self) -> bool:
        """Whether no command can have created the repository of the folder, or changed its configuration."""

    async def git(self, script: str, timeout_ms: int) -> str:
        """Run a script that asks git about the repository, and return its output; empty without a repository.

        Raises:
            ToolError: the script could not be started.
        """

    async def documents(
        self, names: Sequence[str], *, from_root: bool, most_bytes: int
    ) -> list[tuple[str, bytes]]:
        """Return the instruction files from the repository's top down to the folder, as path and content.

        Paths are absolute. The only symbolic link that is followed is one to a known document in the same
        folder that is not among the names.

        Args:
            names: file names, relative to each folder.
            from_root: begin at the root of the file system.
            most_bytes: limit of all files together; the last one is cut there.
        """


@runtime_checkable
class HasHostView(Protocol):
    """An environment whose folder this program itself may read."""

    def host_view(self) -> HostView | None:
        """Return the view, or None if commands have to read the folder instead."""


@runtime_checkable
class RunsReadOnly(Protocol):
    """An environment whose `exec_command` has one more argument: `read_only=True` lets no command change the folder."""

    def runs_read_only(self) -> bool:
        """Return whether it takes that argument."""


_GIB = 1 << 30

Connect: TypeAlias = "Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]"
"""Opens a connection to a named host and port.

It resolves the name and refuses an address that is not public (OSError).
"""


class Doors(Protocol):
    """Answers connections to ports of a command's own loopback device: its only way to the network."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Each connection that was not allowed, once: see `ExecResult.refused_hosts`."""

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections of a listening socket, which is closed at the end. Called once for each port."""

    async def close(self) -> None:
        """Stop serving, and drop all connections."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """The resources that one command may use. The command's time-out limits its time.

    CPU time has no other limit: every process in the sandbox ends with the command.

    Attributes:
        memory_bytes: private memory of each process, and of all processes together with the memory that the
            kernel holds for them. None means 8 GiB or three quarters of the machine's memory, whichever is
            smaller.
        processes: number of processes and threads together.
        file_bytes: size of the largest file.
        open_files: number of open descriptors of each process.
        scratch_bytes: size of the private `/tmp` and of the private home, each.
        disk_floor_bytes: free space on the clone's disk below which the command is killed. The size of the
            clone itself cannot be limited.
        grouped: whether a control group of the kernel counts memory where possible.
    """

    memory_bytes: int | None = None
    processes: int = 1_024
    file_bytes: int = 4 * _GIB
    open_files: int = 2_048
    scratch_bytes: int = _GIB
    disk_floor_bytes: int = _GIB // 2
    grouped: bool = True

    def memory(self) -> int:
        """Return `memory_bytes`, or the default of this machine where it is None."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(8 * _GIB, physical * 3 // 4)


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """The access that the user grants to commands.

    Attributes:
        hosts: `pypi.org`, `*.pypi.org` or `name:port`; without a port, 80 and 443 are allowed.
        readable: additional absolute paths that commands may read.
        connect: opens connections to allowed hosts; None allows public addresses only.
    """

    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    connect: Connect | None = None


@dataclass(frozen=True, slots=True)
class SandboxFolder:
    """The folder in which commands run.

    Attributes:
        root: its real path.
        protected: relative paths inside it that commands cannot change.
        read_only: whether commands can change nothing in it.
        masked: relative paths of files and folders inside it that commands see empty, and cannot change.
    """

    root: str
    protected: tuple[str, ...] = (".git",)
    read_only: bool = False
    masked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command and the conditions under which it runs.

    Attributes:
        line: shell text.
        folder: the working directory.
        variables: all environment variables.
        timeout_ms: time after which the process group gets SIGTERM, and 2 seconds later SIGKILL.
        argv: a program with its arguments that is started in place of a shell. These last three are for
            bubblewrap alone.
        files: files that are written into private folders before, by absolute path.
        programs: the only programs that it sees, with the folders and files that they need, apart from C
            libraries; None shows it all.
    """

    line: str
    folder: str
    variables: Mapping[str, str]
    timeout_ms: int
    argv: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    programs: tuple[str, ...] | None = None


class Launch(Protocol):
    """One run of one command, from start to end."""

    @property
    def start_seconds(self) -> float:
        """The time limit of `start`; the command's own time begins after that."""

    @property
    def killed_for(self) -> str:
        """The limit that the command exceeded and was killed for; empty if it was not."""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """Each connection that was not allowed, once: see `ExecResult.refused_hosts`."""

    async def start(self, stdout: int, stderr: int, stdin: int | None = None) -> None:
        """Start the command, and watch it from then on. The caller closes the descriptors.

        Args:
            stdin: its standard input; None gives it an empty one.

        Raises:
            ToolError, OSError, ValueError: the command cannot be started.
        """

    async def ended(self) -> int:
        """Wait for the end of the command and return its exit code. Several tasks may wait.

        The exit code is negative if a signal ended the command.

        Raises:
            ToolError: starting the command failed after all.
        """

    def terminate(self) -> None:
        """Send SIGTERM, or kill the command if no process can receive the signal."""

    def kill(self) -> None:
        """Kill the command and the processes that it started. May be called again, and after the end."""

    async def close(self) -> None:
        """Kill the command, wait until all its processes are gone, and close everything."""


class OpenSandbox(Protocol):
    """A sandbox for the commands of one folder."""

    def launch(self, command: Command) -> Launch:
        """Prepare to run a command.

        Raises:
            ToolError: the command cannot be run in this folder.
            ValueError: a text of the command has a NUL character or is not valid Unicode.
        """

    async def close(self) -> None:
        """End every process inside. May be called again."""


class Sandbox(Protocol):
    """Confines commands: the files they see and change, the resources they use, and the hosts they reach."""

    @property
    def name(self) -> str:
        """The name of the mechanism, such as `bubblewrap`."""

    @property
    def options(self) -> SandboxOptions:
        """The access that the user grants."""

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables that have different values inside, such as `HOME`."""

    def tools(self) -> Mapping[str, str]:
        """Return the variables of toolchains whose folders are visible inside, such as `JAVA_HOME`."""

    def open(self, folder: SandboxFolder) -> OpenSandbox:
        """Prepare a sandbox for commands in a folder. No process is started yet.

        Raises:
            ToolError: no command may run in this folder.
        """
