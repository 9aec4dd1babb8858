"""The words of a sandbox: what it is asked for, its limits, and one command's way through it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orchestrator.environments.command import Command

GIB = 1 << 30

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
    """

    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: Limits = Limits()
    connect: Connect | None = None


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
    """One command on its way through a sandbox, from its program to its end. Used once."""

    @property
    def argv(self) -> Sequence[str]:
        """The program to start and its arguments. Nothing secret is in them."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of that program, which are not the command's."""

    @property
    def pass_fds(self) -> Sequence[int]:
        """Descriptors that the program inherits."""

    @property
    def killed_for(self) -> str:
        """The limit for which the command was killed, or nothing."""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """Each connection that was not allowed, once: see `ExecResult.refused_hosts`."""

    async def started(self, kill: Callable[[], None]) -> str:
        """Called when the program runs: hand the command over and watch it.

        Args:
            kill: ends everything at once.

        Returns:
            why it could not be started, or nothing.
        """

    def terminate(self) -> bool:
        """Send SIGTERM to everything inside. False: nobody there can be asked."""

    async def close(self) -> None:
        """Let go of everything. Closing twice is no error."""


class Sandbox(Protocol):
    """Walls around commands."""

    @property
    def name(self) -> str:
        """The program that makes the walls."""

    def variables(self) -> Mapping[str, str]:
        """Variables that are as they are inside whatever the outside says, such as `HOME`."""

    def tools(self) -> Mapping[str, str]:
        """The variables of languages' tools (`toolchains`), whose folders are there inside."""

    def launch(self, command: Command, place: Place) -> Launch:
        """Make ready to run a command.

        Raises:
            ToolError: it cannot be run in this place.
            ValueError: a text of it has a NUL character or is not valid Unicode.
        """
