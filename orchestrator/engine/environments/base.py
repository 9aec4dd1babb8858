"""The interfaces: the environment in which tools act, and the sandbox in which its commands run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from orchestrator.engine.environments.commands import Command


@dataclass(frozen=True, slots=True)
class DirEntry:
    """An entry of a folder. `name` is relative to the folder listed; `size` in bytes, None for folders."""

    name: str
    is_dir: bool
    size: int | None


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did. `exit_code` is negative where a signal ended it.

    Attributes:
        output: standard output and standard error together, in the order of arrival.
        refused_hosts: `host:port` of connections that the sandbox did not allow; after a blank the reason,
            where allowing the host would not help.
        killed_for: the limit of the sandbox that it passed, such as `more than 1,024 processes`.
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
    """How to search. `glob_filter` is a file pattern such as `*.py`."""

    glob_filter: str | None = None
    case_insensitive: bool = False
    max_results: int = 100


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A line that matches. Lines count from 1."""

    path: str
    line: int
    text: str


class ExecutionEnvironment(Protocol):
    """Files and commands of one folder. Paths are relative to it, with `/`.

    No path leaves the folder, enters a `.git`, or passes through a symbolic link: such a
    path raises `PathRefusedError`, from every method. An absolute path inside the folder is
    taken as the relative one.
    """

    async def initialize(self) -> None:
        """Make ready. Called once, before anything else."""

    async def cleanup(self) -> None:
        """End running commands and close everything."""

    def working_directory(self) -> str:
        """The folder, as commands that run in it see it."""

    def platform(self) -> str:
        """`linux`, `darwin` or `windows`."""

    def os_version(self) -> str:
        """The operating system's own words for its version."""

    def relative(self, path: str) -> str:
        """The path's normal form. No file needs to be there.

        Raises:
            PathRefusedError: see the class.
        """

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """The file's whole content.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: not a regular file, over `max_bytes`, or no permission.
        """

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """Create or replace a file, and the folders above it. An existing file's mode is kept.

        Args:
            mode_of: a file whose mode it takes instead, as when that file moves here.

        Raises:
            FileMissingError: there is nothing at `mode_of`.
            ToolError: no permission, no space, or a folder is in the way.
        """

    async def remove_file(self, path: str) -> None:
        """Remove a regular file; the folder it was in stays.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: it is not a regular file, or no permission.
        """

    async def file_exists(self, path: str) -> bool:
        """Whether a regular file is there."""

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """What is in a folder, `depth` levels deep, sorted; `.git` is left out.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: it is not a folder.
        """

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """Lines that match a regular expression (ripgrep's syntax), ignored files left out.

        Raises:
            ToolError: the expression is invalid, or nothing is at the path.
        """

    async def glob(self, pattern: str, path: str) -> list[str]:
        """Files whose path matches, newest first, ignored files left out."""

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """Run a shell command in a process group of its own; on time-out SIGTERM, 2 s, SIGKILL."""


_GIB = 1 << 30

Connect: TypeAlias = "Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]"
"""Opens a connection to a named host and port. It resolves the name and refuses what is not public (OSError)."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one command may use. Its time is the command's own time-out.

    There is no limit of CPU time beside that: everything inside ends with the command.

    Attributes:
        memory_bytes: private memory of each process; of all together with what the kernel holds for
            them. None takes the smaller of 8 GiB and three quarters of the machine's.
        processes: processes and threads together.
        file_bytes: the largest file.
        open_files: descriptors of each process.
        scratch_bytes: of the private `/tmp` and of the private home, each.
        disk_floor_bytes: the command ends when the clone's disk has less than this left. A clone
            as such cannot be limited.
        grouped: whether the kernel counts memory in a control group where it can.
    """

    memory_bytes: int | None = None
    processes: int = 1_024
    file_bytes: int = 4 * _GIB
    open_files: int = 2_048
    scratch_bytes: int = _GIB
    disk_floor_bytes: int = _GIB // 2
    grouped: bool = True

    def memory(self) -> int:
        """`memory_bytes`, or what stands for None on this machine."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(8 * _GIB, physical * 3 // 4)


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """What the person who runs this grants to commands.

    Attributes:
        hosts: `pypi.org`, `*.pypi.org`, `name:port`; ports are 80 and 443 where none is given.
        readable: more absolute paths that commands may read.
        connect: opens connections to allowed hosts; None refuses all but public addresses.
        container: `docker:IMAGE` or `podman:IMAGE`, in which commands run; empty for the system's own sandbox.
    """

    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    connect: Connect | None = None
    container: str = ""


@dataclass(frozen=True, slots=True)
class WritableFolder:
    """The folder that commands may change.

    Attributes:
        root: its real path.
        protected: relative paths in it that commands cannot change.
    """

    root: str
    protected: tuple[str, ...] = (".git",)


class Launch(Protocol):
    """One run of one command, from its start to its end."""

    @property
    def start_seconds(self) -> float:
        """How long `start` may take; the command's own time begins after that."""

    @property
    def killed_for(self) -> str:
        """The limit for which the command was killed, or nothing."""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """Each connection that was not allowed, once: see `ExecResult.refused_hosts`."""

    async def start(self, stdout: int, stderr: int) -> None:
        """Start it, and watch it from then on. The caller closes the descriptors.

        Raises:
            ToolError, OSError, ValueError: it cannot be started.
        """

    async def ended(self) -> int:
        """Wait for its end. The exit code is negative if a signal ended it. Several may wait.

        Raises:
            ToolError: it was not started after all.
        """

    def terminate(self) -> None:
        """Send SIGTERM. Where nothing can receive it, kill."""

    def kill(self) -> None:
        """Kill it and what it started. May be called again, and after its end."""

    async def close(self) -> None:
        """Kill it, wait until nothing of it is left, and close everything."""


class OpenSandbox(Protocol):
    """A sandbox for the commands of one folder."""

    def launch(self, command: Command) -> Launch:
        """Make ready to run a command.

        Raises:
            ToolError: it cannot be run in this folder.
            ValueError: a text of it has a NUL character or is not valid Unicode.
        """

    async def close(self) -> None:
        """End everything inside. May be called again."""


class Sandbox(Protocol):
    """Confines commands: what they see, change, use and reach."""

    @property
    def name(self) -> str:
        """What confines them, such as `bubblewrap`."""

    @property
    def options(self) -> SandboxOptions:
        """What the person who runs this grants."""

    def variables(self) -> Mapping[str, str]:
        """Variables that have other values inside, such as `HOME`."""

    def tools(self) -> Mapping[str, str]:
        """The variables of toolchains whose folders are seen inside, such as `JAVA_HOME`."""

    def open(self, folder: WritableFolder) -> OpenSandbox:
        """Make ready for commands in a folder. Nothing is started yet.

        Raises:
            ToolError: no command may run in this folder.
        """
