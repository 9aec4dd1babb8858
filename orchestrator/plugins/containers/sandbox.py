"""The sandbox of containers: commands of a folder run in a container of an image, by `docker` or `podman`.

The container has no network, no capability and no writable disk except the folder. Its first process
(`first_process`) hands over a handle on itself, its `/proc` and a listening socket for the proxy. So the
kernel, and not the engine's program, reports which processes run inside, counts them and ends them. The first
process ends when its standard input is closed, also by the death of this program.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import string
import tempfile
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.engine.environments.commands import VERSIONS, start_program
from orchestrator.engine.environments.sandbox import try_sandbox
from orchestrator.engine.environments.sandbox.limits import NICENESS, Watch, WatchedLaunch, limits_as_shell
from orchestrator.engine.environments.sandbox.proxy import PROXY_PORT, Proxy, host_rule, proxy_variables
from orchestrator.engine.environments.sandbox.visible import (
    HOME,
    Protection,
    check_root,
    checked_grants,
    private_folders,
    protections,
    user_variables,
)
from orchestrator.plugins.containers.engines import (
    ENGINES,
    HANDOVER,
    USE_SYSTEM_SANDBOX,
    ContainerPlan,
    find_image,
    last_line,
    start_container,
)
from orchestrator.plugins.containers.first_process import init_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxLimits, SandboxOptions
    from orchestrator.engine.environments.commands import Program
    from orchestrator.plugins.containers.engines import (
        Container,
        ContainerEngine,
        ContainerImage,
    )

_QUEUE_SECONDS = 300.0
"""Time limit for a container to start, while many others are started."""
_AT_ONCE = 2
"""The number of containers that start at the same time, and of idle ones that are kept for the next command."""
_INIT = f"{HOME}/.pullwright-init"
"""The path of its first process in a container.

Engines give a folder in memory the mode of the image's own folder of that name, and no image has this one.
"""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BEGUN = b"\x02pullwright: begun\x03"
_MAX_WORD_BYTES = 131_071
"""The longest argument. Linux allows 131,072 bytes for each, with the NUL character at its end."""
_SCRIPT = "PULLWRIGHT_SCRIPT"
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits} '\"$()-=/._<>&|")
_PIECE_BYTES = 1 << 16
_KILLED = -int(signal.SIGKILL)


def find_container_sandbox(
    wanted: str, options: SandboxOptions, inherited: Mapping[str, str] | None = None
) -> ContainerSandbox | None:
    """Find a sandbox of containers; None if the text names another one. A test command has run in it.

    Args:
        wanted: `docker:IMAGE` or `podman:IMAGE`.
        inherited: this program's variables; None reads them.

    Raises:
        SandboxMissingError: the engine or the image is not there, or cannot be used.
        ConfigurationError: a host or a path of the options is invalid.
    """
    if wanted.partition(":")[0] not in ENGINES:
        return None
    variables = os.environ if inherited is None else inherited
    sandbox = ContainerSandbox(*find_image(wanted, variables), options, variables)
    failure = try_sandbox(sandbox)
    if 'exec: "sh"' in failure or "executable file `sh`" in failure:
        failure = f"the image {sandbox.plan.image.name} has no sh, which starts commands; use one that has it"
    if failure:
        raise SandboxMissingError(
            f"no sandbox for commands: {' '.join(failure.split())}, {USE_SYSTEM_SANDBOX}"
        )
    return sandbox


class ContainerSandbox:
    """A `Sandbox` of containers. Created by `find_container_sandbox`.

    Raises:
        ConfigurationError: a host or a path of the options is invalid.
        SandboxMissingError: the image is for an unknown processor.
    """

    def __init__(
        self,
        engine: ContainerEngine,
        image: ContainerImage,
        options: SandboxOptions,
        inherited: Mapping[str, str],
    ) -> None:
        self.options, self._inherited = options, dict(inherited)
        self.proxy = partial(Proxy, [host_rule(text) for text in options.hosts], options.connect)
        """Creates the proxy of one command."""
        readable = tuple(checked_grants(options.readable, inherited))
        init = init_program(image.architecture, _INIT, f"{HANDOVER}/socket", PROXY_PORT)
        if init is None:
            raise SandboxMissingError(
                f"no sandbox for commands: {image.name} is for {image.architecture} processors; "
                f"use an image for amd64 or arm64, {USE_SYSTEM_SANDBOX}"
            )
        octal = "".join(f"\\{byte:03o}" for byte in init)
        first = f"umask 077; printf '{octal}' >{_INIT} && chmod 700 {_INIT} && exec {_INIT}"
        self.plan = ContainerPlan(engine, image, options.limits, readable, first)
        self.name = self.plan.name

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. The image's variables override this machine's; folders that tools write to are private."""
        image = {name: value for name, value in self.plan.image.variables.items() if value}
        return {
            "PATH": _DEFAULT_PATH,
            **image,
            **private_folders(image, HOME),
            **user_variables(),
            "SHELL": "/bin/sh",
            **proxy_variables(),
        }

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`. Empty, because the image has its own toolchains."""
        return {}

    def open(self, folder: SandboxFolder) -> _OpenContainers:
        """See `Sandbox`."""
        check_root(folder.root, self._inherited)
        if any(char in folder.root for char in "\n\r"):
            raise ToolError(f"{folder.root!r} has a line break in its name, so it cannot be mounted")
        return _OpenContainers(self, folder)


class _OpenContainers:
    """An `OpenSandbox`: one container, started with the first command, that runs one command after the other.

    A command that starts while another one runs gets its own container. So no command sees another one's
    processes, and each may use all that the limits allow. A container that still has processes after a
    command is not used again.
    """

    def __init__(self, sandbox: ContainerSandbox, folder: SandboxFolder) -> None:
        self.sandbox, self.folder = sandbox, folder
        self._starting = asyncio.Semaphore(_AT_ONCE)
        self._idle: list[Container] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._made: dict[str, Protection] = {}
        self._closed = False

    def launch(self, command: Command) -> _ContainerLaunch:
        for path in [path for path in self._made if not self._is_empty(path)]:
            del self._made[path]  # a command has created a repository there
        script = _script(command, self.sandbox.options.limits, self.sandbox.plan.image)
        kept = [self._made.get(one.path, one) for one in protections(self.folder)]
        return _ContainerLaunch(self, script, kept)

    async def take(self, protections: Sequence[Protection]) -> Container:
        """Return a container in which no command runs; raise `ToolError` if none starts."""
        async with self._starting:
            if self._closed:
                raise ToolError("the sandbox was closed, so no command can run in it")
            return self._take_idle(protections) or await self._new(protections)

    def _take_idle(self, protections: Sequence[Protection]) -> Container | None:
        while self._idle:
            found = self._idle.pop()
            if found.is_alive() and found.protections == tuple(protections):
                return found
            self._end(found)
        return None

    async def _new(self, protections: Sequence[Protection]) -> Container:
        for one in protections:
            if one.is_missing:
                with ConfinedFolder(self.folder.root) as folder:
                    path = one.path.removeprefix(f"{self.folder.root}/")
                    if folder.find(path) is None:
                        folder.make_folder(path)
                        self._made[one.path] = one
        return await start_container(self.sandbox.plan, self.folder, protections)

    async def give_back(self, container: Container) -> None:
        """Keep a container for the next command if no process is left in it and few are kept, else end it."""
        if await container.is_quiet() and len(self._idle) < _AT_ONCE and not self._closed:
            self._idle.append(container)
        else:
            self._end(container)

    def _end(self, container: Container) -> None:
        container.kill()
        task = asyncio.get_running_loop().create_task(container.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._end(self._idle.pop())
        await asyncio.gather(*self._ending)
        for path in self._made:
            with suppress(OSError), ConfinedFolder(self.folder.root) as folder:
                folder.remove_empty(path.removeprefix(f"{self.folder.root}/"))
        self._made.clear()

    def _is_empty(self, path: str) -> bool:
        with suppress(OSError), ConfinedFolder(self.folder.root) as folder:
            return not folder.entries(path.removeprefix(f"{self.folder.root}/"))
        return False


class _ContainerLaunch(WatchedLaunch):
    """A `Launch`: the engine runs a shell in a container, which reads its script from standard input.

    A command that has an input of its own gets the script in a variable instead. It is not an argument of the
    engine's program, because everybody on the machine can read those.
    """

    start_seconds = _QUEUE_SECONDS

    def __init__(self, opened: _OpenContainers, script: bytes, protections: Sequence[Protection]) -> None:
        super().__init__(opened.sandbox.proxy())
        self._opened, self._script, self._protections = opened, script, protections
        self._container: Container | None = None
        self._process: Program | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self, stdout: int, stderr: int, stdin: int | None = None) -> None:
        self._container = container = await self._opened.take(self._protections)
        engine, limits = self._opened.sandbox.plan.engine, self._opened.sandbox.options.limits
        given = {} if stdin is None else {_SCRIPT: _as_text(self._script)}
        reading = "cat" if stdin is None else f'printf %b "${_SCRIPT}"'
        named = [word for name in given for word in ("--env", name)]
        words = [engine.program, "exec", "--interactive", *named, container.name]
        with tempfile.TemporaryFile() as file:
            file.write(b"exec </dev/null\n" + self._script)
            file.seek(0)
            self._process = await start_program(
                *(*words, "sh", "-c", f'eval "$({reading})"'),
                stdin=file if stdin is None else stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env={**engine.variables, **given},
                cwd="/",
            )
        loop = asyncio.get_running_loop()
        self._following = loop.create_task(self._follow(self._process, os.dup(stderr)))
        await self._begun.wait()
        if self._finished.is_set():
            return
        await self._doors.serve(socket.socket(fileno=os.dup(container.listener)))
        self._watch = Watch(
            os.dup(container.proc), self._opened.folder.root, limits, group=container.memory(limits)
        )
        self._watching = loop.create_task(self._watch.run(self.kill))

    async def _follow(self, process: asyncio.subprocess.Process, stderr: int) -> None:
        """Read the command's standard error to the end, and wait for the exit code."""
        try:
            error_output = await self._forward(process, stderr)
            self._code = await process.wait()
            if not self._begun.is_set():
                self._problem = last_line(error_output)
        finally:  # also when the task is cancelled because the program ends
            self._finished.set()
            self._begun.set()

    async def _forward(self, process: asyncio.subprocess.Process, stderr: int) -> bytes:
        """Forward the output after the mark with which the command begins; return the output before it."""
        assert process.stderr is not None  # noqa: S101  for the type checker
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()
        out, _ = await loop.connect_write_pipe(lambda: _WriteProtocol(closed), os.fdopen(stderr, "wb", 0))
        before = b""
        try:
            while piece := await process.stderr.read(_PIECE_BYTES):
                if not self._begun.is_set():
                    before, mark, piece = (before + piece).partition(_BEGUN)
                    if not mark:
                        continue
                    self._begun.set()
                out.write(piece)
        finally:
            out.close()
        await closed
        return before

    async def ended(self) -> int:
        if self._process is not None:
            await self._finished.wait()
        if self._killed:
            return _KILLED
        if self._problem:
            raise ToolError(f"the command could not be started: {self._problem}")
        return self._code

    def kill(self) -> None:
        """Kill the container's processes (see `Launch`); those that outlive the command are killed by its shell."""
        if self._finished.is_set() or self._process is None or self._container is None:
            return
        self._killed = True
        self._container.kill()
        with suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        self.kill()
        if self._following is not None:
            await self._following
        if self._process is not None:
            await self._process.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
        await self._doors.close()
        container, self._container = self._container, None
        if container is not None:
            if self.killed_for:  # the kernel may kill the first process next
                container.kill()
            await self._opened.give_back(container)


class _WriteProtocol(asyncio.BaseProtocol):
    """A protocol that sets a future when everything is written; asyncio calls `connection_lost` then."""

    def __init__(self, closed: asyncio.Future[None]) -> None:
        self._closed = closed

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)


def _script(command: Command, limits: SandboxLimits, image: ContainerImage) -> bytes:
    """Return the script for the shell in a container.

    It starts the command with its limits, and ends the processes that the command leaves running.

    Raises:
        ValueError, OSError: the command has a NUL character, or is too long.
    """
    variables = {
        name: value
        for name, value in command.variables.items()
        if name not in VERSIONS or name in image.variables  # these select toolchains of this machine
    }
    assignments = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
    line, folder = os.fsencode(command.line), os.fsencode(command.folder)
    if any(b"\0" in text for text in (*assignments, line, folder)):
        raise ValueError("embedded null byte")
    if any(len(text) > _MAX_WORD_BYTES for text in (*assignments, line)):
        raise OSError(7, "Argument list too long")
    quoted = b" ".join(_quoted(text) for text in assignments)
    shell = b'"$(command -v bash || command -v sh)"'
    nice = b"$(command -v nice >/dev/null && echo nice -n %d)" % NICENESS
    return b"\n".join(
        [
            b"trap : TERM",
            limits_as_shell(limits).encode(),
            b"cd %s || exit 126" % _quoted(folder),
            b"printf '%s' >&2" % _BEGUN,
            b"%s env -i %s %s -c %s" % (nice, quoted, shell, _quoted(line)),
            b"code=$?",
            b"kill -9 -1 2>/dev/null",
            b"exit $code",
        ]
    )


def _as_text(script: bytes) -> str:
    """Return a script for `printf %b`, in ASCII: engines change other bytes. Raise `OSError` if it is too long."""
    text = "".join(chr(byte) if chr(byte) in _PLAIN else f"\\0{byte:03o}" for byte in script)
    if len(text) > _MAX_WORD_BYTES - len(_SCRIPT):
        raise OSError(7, "Argument list too long")
    return text


def _quoted(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
