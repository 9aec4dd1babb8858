"""The box of an agent program: the session's sandbox, with two doors and without anything that a repository configures.

It is the sandbox of commands. The program is one command in it, with a home that lives as long as it does. Its only way
out are two ports of its own loopback device, whose listening sockets this program gets before the program starts. The
sandbox starts the program when it is told to by this process, and ends with it, so that no program is left running.
"""

from __future__ import annotations

import asyncio
import posixpath
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.app.http_server import ServerLimits, serving
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import BadReplyError, SandboxMissingError, WorkspaceError
from orchestrator.core.event_loop import in_thread
from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxOptions
from orchestrator.engine.environments.commands import EnvPolicy, command_variables
from orchestrator.engine.environments.running_program import ProgramReport, RunningProgram
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
from orchestrator.engine.environments.sandbox.proxy import PROXY_PORT, proxy_variables

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from starlette.types import Receive, Scope, Send

    from orchestrator.plugins.agents.known import Filled, Installed


_T = TypeVar("_T")
MODEL_PORT, TOOLS_PORT = PROXY_PORT, PROXY_PORT + 1
HOME = "/home/sandbox"
_UNUSED_TIMEOUT_MS = 1
_MAX_LINE_BYTES = 32 << 20
_MAX_UNREQUESTED_BYTES = 512 << 20
_MOST_HOPS = 5

SETTINGS = (
    ".claude", ".codex", ".gemini", ".opencode", ".agents", ".mcp.json", "opencode.json", "opencode.jsonc", ".env",
    ".envrc", ".npmrc", ".geminiignore", ".claude.json",
)  # fmt: skip
"""Names of files and folders in a clone by which a repository configures agents: hooks, servers, addresses, plug-ins. A
program finds the clone's own empty, and the host's guards keep those that it makes from being proposed."""


@dataclass(frozen=True, slots=True)
class Start:
    """All that is needed to start a program in its box.

    Attributes:
        folder: the clone's tree.
        repositories: each `.git` in it, which the program cannot change.
        is_bare: whether it sees no other programs.
    """

    installed: Installed
    filled: Filled
    folder: str
    repositories: tuple[str, ...]
    is_bare: bool


@dataclass(eq=False)
class Door:
    """An application that serves one port of a box.

    Attributes:
        server_limits: of its server.
    """

    server_limits: ServerLimits = field(default=ServerLimits(), init=False, repr=False)
    _closing: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _running: dict[asyncio.Task[Any], str | int] = field(default_factory=dict, init=False, repr=False)

    @property
    def is_working(self) -> bool:
        """Whether it works for the program now."""
        return bool(self._running)

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections at a listening socket until `close`. The socket is closed then."""
        async with serving(self, listener, limits=self.server_limits):
            await self._closing.wait()

    async def close(self) -> None:
        """Stop serving. What runs is cancelled, and has ended then."""
        self._closing.set()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        raise NotImplementedError

    def _start(self, work: Coroutine[Any, Any, _T], name: str | int = "") -> asyncio.Task[_T]:
        """Begin work for the program, which `close` cancels."""
        task = asyncio.ensure_future(work)
        self._running[task] = name
        task.add_done_callback(self._running.pop)
        return task


class _Doors:
    """The two doors of a box, each served until it is closed."""

    refused = ()

    def __init__(self, doors: Mapping[int, Door]) -> None:
        self._doors = doors
        self._serving: list[asyncio.Task[None]] = []

    async def serve(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        door = self._doors[listener.getsockname()[1]]
        self._serving.append(asyncio.create_task(door.serve(listener)))

    async def close(self) -> None:
        closing = (door.close() for door in self._doors.values())
        await asyncio.gather(*closing, *self._serving, return_exceptions=True)


def sandbox_for_agents(inherited: Mapping[str, str], readable: tuple[str, ...]) -> BubblewrapSandbox:
    """Find the sandbox for an agent program. A test command has run in it.

    Args:
        inherited: this program's variables; their `PATH` decides which programs it sees, if it may run any.
        readable: what the agent program consists of.

    Raises:
        SandboxMissingError: this machine has no bubblewrap, or may not use it.
    """
    granted = tuple(path for path in readable if not path.startswith(("/usr/", "/bin/", "/lib")))
    found = find_sandbox(SandboxOptions(readable=granted), inherited=inherited)
    if not isinstance(found, BubblewrapSandbox):
        raise SandboxMissingError("an agent program runs only in bubblewrap, which needs Linux")
    return found


@asynccontextmanager
async def boxed(
    start: Start,
    sandbox: BubblewrapSandbox,
    inherited: Mapping[str, str],
    doors: Mapping[int, Door],
    report: ProgramReport,
) -> AsyncGenerator[RunningProgram]:
    """Start a program in its box. At the end of the block every process in it has ended.

    Raises:
        BadReplyError: the program cannot be started.
        ToolError, WorkspaceError: the clone cannot be shown safely.
    """
    policy = EnvPolicy.NONE if start.is_bare else EnvPolicy.SANDBOXED
    given = command_variables(sandbox, policy, inherited)
    given = {name: given[name] for name in given.keys() - proxy_variables().keys()}
    variables = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", **given, **start.filled.environment}
    argv, readable = start.installed.argv, start.installed.readable if start.is_bare else None
    command = Command("", start.folder, variables, _UNUSED_TIMEOUT_MS, argv, start.filled.files, readable)
    hidden = await in_thread(lambda: masked_paths(start.folder))
    place = SandboxFolder(start.folder, start.repositories, masked=hidden)
    async with AsyncExitStack() as stack:
        opened = sandbox.with_doors(_Doors(doors), (MODEL_PORT, TOOLS_PORT)).open(place)
        stack.push_async_callback(opened.close)
        running = RunningProgram(opened.launch(command), report, _MAX_LINE_BYTES, _MAX_UNREQUESTED_BYTES)
        try:
            await running.start(stack)
        except (OSError, ValueError, TimeoutError) as error:
            raise BadReplyError(f"the agent program cannot be started: {error}") from error
        yield running


def masked_paths(folder: str) -> tuple[str, ...]:
    """Return the existing settings for agents in a clone, at its top and further down, by relative path.

    Of a link it is what it leads to inside the clone; nothing outside of it is in the box.
    """
    found: set[str] = set()
    try:
        with ConfinedFolder(folder) as opened:
            names = opened.walk(
                enters=lambda _, one: one.name != ".git" and one.name.casefold() not in SETTINGS,
                on_error=lambda _path, _error: None,
            )
            for path, one in names:
                if one.name.casefold() in SETTINGS:
                    found.add(_end_of_links(opened, path))
    except OSError as error:
        raise WorkspaceError(f"the clone cannot be searched for settings of agents: {error}") from error
    return tuple(sorted(found - {"", "."}))


def _end_of_links(opened: ConfinedFolder, path: str) -> str:
    """Return the path behind links inside the clone; empty if it leads out of it, into a `.git`, or nowhere."""
    for _ in range(_MOST_HOPS):
        entry = opened.find(path)
        if entry is None or not entry.is_link:
            return "" if entry is None or ".git" in path.split("/") else path
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), opened.link_target(path)))
        if path.startswith(("/", "..")):
            return ""
    return ""
