"""The words of a sandbox: what it is asked for, its limits, and one command's way through it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from orchestrator.engine.environments.command import Command

GIB = 1 << 30
NICENESS = 10
"""Of commands: what watches from outside must get its turn among thousands."""

Connect: TypeAlias = "Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]"
"""Opens a connection to a named host and port. It resolves the name and refuses what is not public (OSError)."""


@dataclass(frozen=True, slots=True)
class Limits:
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
    file_bytes: int = 4 * GIB
    open_files: int = 2_048
    scratch_bytes: int = GIB
    disk_floor_bytes: int = GIB // 2
    grouped: bool = True

    def memory(self) -> int:
        """`memory_bytes`, or what stands for None on this machine."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(8 * GIB, physical * 3 // 4)


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """What the person who runs this grants to commands.

    Attributes:
        hosts: `pypi.org`, `*.pypi.org`, `name:port`; ports are 80 and 443 where none is given.
        readable: more absolute paths that commands may read.
        limits: see there.
        connect: opens connections to allowed hosts; None refuses all but public addresses.
        container: `docker:IMAGE` or `podman:IMAGE`, in which commands run; empty for the system's own sandbox.
    """

    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: Limits = Limits()
    connect: Connect | None = None
    container: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder that commands may change.

    Attributes:
        root: its real path.
        protected: relative paths in it that stay as they are, such as `.git`.
    """

    root: str
    protected: tuple[str, ...] = (".git",)


class Launch(Protocol):
    """One command, from its start to its end. Used once."""

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
        """Start it, and watch it from then on. The descriptors stay the caller's.

        Raises:
            ToolError, OSError, ValueError: it cannot be started.
        """

    async def ended(self) -> int:
        """Wait for its end; the exit code, negative where a signal ended it. Several may wait.

        Raises:
            ToolError: it could not be started, as turned out since.
        """

    def terminate(self) -> None:
        """Ask it to end, with SIGTERM; where nobody can be asked, it is killed."""

    def kill(self) -> None:
        """End it and what it started, at once. Doing it again, or after its end, is no error."""

    async def close(self) -> None:
        """Kill, wait until nothing is left that can be waited for, and let go of everything."""


class OpenSandbox(Protocol):
    """Walls around the commands of one place."""

    def launch(self, command: Command) -> Launch:
        """Make ready to run a command.

        Raises:
            ToolError: it cannot be run in this place.
            ValueError: a text of it has a NUL character or is not valid Unicode.
        """

    async def close(self) -> None:
        """End everything inside and let go of it. Closing twice is no error."""


class Sandbox(Protocol):
    """Walls around commands."""

    @property
    def name(self) -> str:
        """The program that makes the walls."""

    @property
    def options(self) -> SandboxOptions:
        """What the person who runs this grants."""

    def variables(self) -> Mapping[str, str]:
        """Variables that are as they are inside whatever the outside says, such as `HOME`."""

    def tools(self) -> Mapping[str, str]:
        """The variables of languages' tools (`toolchains`), whose folders are there inside."""

    def open(self, place: Place) -> OpenSandbox:
        """Make ready for commands in a place. Nothing is started yet.

        Raises:
            ToolError: no command may run in this place.
        """


def limits_as_shell(limits: Limits) -> str:
    """Shell text that sets limits of one process, where they are not lower already.

    Units of `ulimit`: POSIX for `-f`, and what all shells agree on.
    """
    values = {
        "-c": 0,
        "-d": limits.memory() // 1_024,
        "-f": limits.file_bytes // 512,
        "-n": limits.open_files,
    }
    return "; ".join(f"ulimit {option} {value} 2>/dev/null || :" for option, value in values.items())
