"""Runs one shell command: its variables, process group, time-out, and the part of its output that is kept."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import subprocess
from asyncio.subprocess import SubprocessStreamProtocol
from collections import deque
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ToolError
from orchestrator.core.event_loop import to_the_end
from orchestrator.core.redaction import is_secret
from orchestrator.core.watchdog import owner_variables
from orchestrator.engine.environments.base import Command, ExecResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.base import Launch, OpenSandbox, Sandbox


class EnvPolicy(StrEnum):
    """Which of this program's own variables a command inherits."""

    FILTERED = "filtered"
    """Every variable that does not look like a secret."""
    SANDBOXED = "sandboxed"
    """Only harmless variables. A sandbox adds the folders of the toolchains that it provides."""
    CORE = "core"
    """Only variables that programs need to run: `PATH`, `HOME` and the like."""
    NONE = "none"
    """No variable."""
    ALL = "all"
    """Every variable, secrets included."""


CORE = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TMP", "TEMP", "TZ"}
    | {"GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "PYENV_ROOT"}
    | {"RBENV_ROOT", "GEM_HOME", "JAVA_HOME", "ANDROID_HOME", "DOTNET_ROOT", "VIRTUAL_ENV", "SSL_CERT_FILE"}
)
"""Variables that every policy except `NONE` and `SANDBOXED` passes on, in addition to every `LC_*`."""

VERSIONS = frozenset({"PYENV_VERSION", "RBENV_VERSION", "RUSTUP_TOOLCHAIN"})
"""Variables that select one of the toolchains of this machine."""

_HARMLESS = frozenset(
    {"PATH", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    | {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8", "SOURCE_DATE_EPOCH"}
    | VERSIONS
)

# Variables of Pullwright and git control these programs; with those of OpenTelemetry a repository's own tests
# would send data to our collector. Byte code outside the tree outlives it: a file of the same size that is written within
# the same second, at the same place, would be run as it was before. The others name agents that sign in for any program.
_WITHHELD = re.compile(
    r"(?:PULLWRIGHT|GIT|OTEL)_.*|PYTHONPYCACHEPREFIX|SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|KRB5CCNAME",
    re.IGNORECASE,
)


def child_variables(inherited: Mapping[str, str], policy: EnvPolicy) -> dict[str, str]:
    """Return those of this program's variables that a command gets.

    `FILTERED` removes secrets (`orchestrator.core.redaction`), all variables of Pullwright, git and OpenTelemetry,
    and the sockets of agents that hold keys. It does not stop a hostile command from finding them elsewhere.
    """
    return {name: value for name, value in inherited.items() if _is_passed_on(name, value, policy)}


def _is_passed_on(name: str, value: str, policy: EnvPolicy) -> bool:
    is_locale = name.startswith("LC_")
    match policy:
        case EnvPolicy.ALL:
            return True
        case EnvPolicy.NONE:
            return False
        case EnvPolicy.CORE:
            return is_locale or name in CORE
        case EnvPolicy.SANDBOXED:
            return (is_locale or name in _HARMLESS) and not is_secret(name, value)
        case EnvPolicy.FILTERED:
            is_core = is_locale or name in CORE
            return is_core or not (_WITHHELD.fullmatch(name) or is_secret(name, value))


def command_variables(
    sandbox: Sandbox | None, requested: EnvPolicy, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of commands: in a sandbox only harmless ones and those of the sandbox."""
    if sandbox is None:
        return child_variables(inherited, requested)
    policy = EnvPolicy.SANDBOXED if requested in {EnvPolicy.FILTERED, EnvPolicy.CORE} else requested
    tools = sandbox.tools() if policy is EnvPolicy.SANDBOXED else {}
    return {**child_variables(inherited, policy), **tools, **sandbox.variables()}


_MAX_KEPT_CHARS = 10_000_000
"""The limit of each stream; half is kept from its beginning and half from its end."""


class KeptText:
    """The beginning and the end of a long text, in bounded memory."""

    def __init__(self, max_chars: int = _MAX_KEPT_CHARS) -> None:
        self._half = max_chars // 2
        self._head: list[str] = []
        self._head_room = self._half
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        """Append a piece of text."""
        if self._head_room and text:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room -= len(self._head[-1])
        if not text:
            return
        self._tail.append(text)
        self._tail_chars += len(text)
        while self._tail_chars - len(self._tail[0]) >= self._half:
            dropped_chars = len(self._tail.popleft())
            self._tail_chars -= dropped_chars
            self._dropped += dropped_chars

    def text(self) -> str:
        """Return the kept text, with a marker where characters are missing."""
        tail = "".join(self._tail)
        surplus = max(0, len(tail) - self._half)
        dropped = self._dropped + surplus
        marker = f"\n[... {dropped} characters of output were not kept ...]\n" if dropped else ""
        return "".join(self._head) + marker + tail[surplus:]


_PIECE_BYTES = 1 << 16
_PIECES = 16
_BUFFER_BYTES = 1 << 16
"""How much of a program's output waits for its reader, twice: asyncio's own limit."""
"""The number of pieces that a pipe can hold, unless root makes it larger: pipe(7)."""


class _Pipe:
    """A new pipe that decodes its bytes as they come and passes the text on. Either side can close it.

    Attributes:
        writing: the descriptor to write to, which the caller closes.
        ended: set when the pipe is closed.
    """

    def __init__(self, *consumers: Callable[[str], None]) -> None:
        self._consumers = consumers
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self.read)

    def read(self) -> bool:
        """Read one available piece. Return False if none is available now, or the pipe has ended."""
        if self.ended.done():
            return False
        try:
            piece = os.read(self._reading, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if piece:
            self._forward(self._decode(piece))
        else:
            self.close()
        return bool(piece)

    def drain(self) -> bool:
        """Read everything that was written before now. Return whether the pipe has ended."""
        for _ in range(_PIECES):
            if not self.read():
                break
        return self.ended.done()

    def close(self) -> None:
        """Close the reading end; an incomplete character becomes U+FFFD. May be called again."""
        if not self.ended.done():
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._forward(self._decode(b"", final=True))
            self.ended.set_result(None)

    def _forward(self, text: str) -> None:
        if text:
            for consume in self._consumers:
                consume(text)


async def until_ready(descriptor: int, *, to_write: bool = False) -> None:
    """Wait until a descriptor is readable (that of a process: until the process has ended), or writable."""
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        remove(descriptor)
        if not ready.done():  # cancelled meanwhile
            ready.set_result(None)

    add(descriptor, set_ready)
    try:
        await ready
    finally:
        remove(descriptor)


class ChildProgram(asyncio.subprocess.Process):
    """A running program of this machine, in its own process group. `async with` closes it."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: SubprocessStreamProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, loop)
        self._pipes = transport

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Kill the process group if it runs, close the pipes, and wait for both, even if the wait is cancelled.

        `wait` does neither: it waits for ever for a pipe that nobody reads, and not at all for the pipes of a
        program that has ended, which a process that it started may hold. May be called again.
        """
        if self.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if self.stdin is not None and not self.stdin.transport.is_closing():
            self.stdin.transport.abort()
        # The transport's own `close` asks for the exit status in place of asyncio's watcher, which then finds none.
        for descriptor in (1, 2):
            if (pipe := self._pipes.get_pipe_transport(descriptor)) is not None:
                pipe.close()
        await to_the_end(asyncio.ensure_future(self.wait()))
        self._pipes.close()


async def start_program(*argv: str, env: Mapping[str, str], **options: Any) -> ChildProgram:
    """Start a program in its own process group, and do not abandon the start on cancellation.

    The watchdog ends it if this process dies.

    Otherwise like `asyncio.create_subprocess_exec`. A cancelled start may make asyncio wait for ever for a
    program that has ended already (https://github.com/python/cpython/issues/103847). So this function waits
    until the program is started, closes it, and then raises the cancellation.

    Raises:
        OSError, ValueError: the program cannot be started.
    """
    options |= {"env": {**env, **owner_variables()}, "start_new_session": True}
    starting = asyncio.ensure_future(_start(argv, options))
    try:
        await to_the_end(starting)
    except asyncio.CancelledError:
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().close()
        raise
    return starting.result()


async def _start(argv: Sequence[str], options: Mapping[str, Any]) -> ChildProgram:
    """Do what `asyncio.create_subprocess_exec` does, with a process that can be closed."""
    loop = asyncio.get_running_loop()
    options = {"stdin": None, "stdout": None, "stderr": None, **options}  # else asyncio makes pipes
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(_BUFFER_BYTES, loop), *argv, **options
    )
    return ChildProgram(transport, protocol, loop)


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process, and kill it if that takes longer than `seconds`."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL."""

START_SECONDS = 20.0
"""Time limit for building a sandbox; the command's own time begins after that."""

DRAIN_SECONDS = 0.5
"""How long to wait for output after the command's end.

A process that left its process group may still have the pipe open.
"""

_SANDBOX_TERMINATED = 128 + signal.SIGTERM
"""The exit code with which a sandbox reports SIGTERM; a command may exit with it too."""


class ProgramLaunch:
    """A `Launch` of a program of this machine in its own process group.

    A process that leaves the group is not ended. If this program dies, the watchdog ends all of them.

    Args:
        command: the program's folder and variables.
    """

    start_seconds = START_SECONDS

    def __init__(self, argv: Sequence[str], command: Command) -> None:
        self.argv, self._command = argv, command
        self._process: subprocess.Popen[bytes] | None = None
        self._handle = -1
        self._ended = asyncio.Event()

    @property
    def killed_for(self) -> str:
        """See `Launch`."""
        return ""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """See `Launch`."""
        return ()

    async def start(self, stdout: int, stderr: int, stdin: int | None = None) -> None:
        """See `Launch`."""
        self._process = subprocess.Popen(  # noqa: S603, ASYNC220  a shell on purpose; it takes a millisecond
            self.argv,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self._command.folder,
            env={**self._command.variables, **owner_variables()},
            start_new_session=True,
        )
        loop = asyncio.get_running_loop()
        if hasattr(os, "pidfd_open"):
            try:
                self._handle = os.pidfd_open(self._process.pid)
            except OSError:
                self._reap()
                raise
            loop.add_reader(self._handle, self._reap)
        else:
            waiting = asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            loop.create_task(waiting).add_done_callback(lambda _: self._reap())

    def _reap(self) -> None:
        """Kill the process group, then reap the process: until then its number cannot be another process's."""
        assert self._process is not None  # noqa: S101  for the type checker
        self._signal(signal.SIGKILL)
        self._process.wait()
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
        self._ended.set()

    async def ended(self) -> int:
        """See `Launch`."""
        if self._process is None:
            return -signal.SIGKILL
        await self._ended.wait()
        return self._process.wait()

    def terminate(self) -> None:
        """See `Launch`."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """See `Launch`."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    async def close(self) -> None:
        """See `Launch`."""
        self.kill()
        await self.ended()


class RunningCommand:
    """Runs one command, once.

    Args:
        on_output: called with each piece of output as it comes.
        sandbox: the sandbox to run in; None runs the command as this user, unconfined.
    """

    def __init__(
        self,
        command: Command,
        clock: Clock,
        on_output: Callable[[str], None] | None,
        sandbox: OpenSandbox | None = None,
    ) -> None:
        self._command = command
        self._clock = clock
        self._sandbox = sandbox
        self._stdout, self._stderr, self._both = KeptText(), KeptText(), KeptText()
        self._consumers = (self._both.add, on_output) if on_output else (self._both.add,)
        self._running: Launch | None = None
        self._terminated = self._stopped = False

    async def run(self) -> ExecResult:
        """Run the command to its end, then end the processes that it left running.

        Raises:
            ToolError: the command could not be started.
        """
        command = self._command
        try:
            launch = (
                ProgramLaunch((shell_program(), "-c", command.line), command)
                if self._sandbox is None
                else self._sandbox.launch(command)
            )
            try:
                return await self._run(launch)
            finally:
                await launch.close()
        except (OSError, ValueError) as error:  # too long, a NUL character, no processes left, no folder
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ToolError(f"the command could not be started: {reason}") from error

    async def _run(self, launch: Launch) -> ExecResult:
        began = self._clock.monotonic()
        out = _Pipe(self._stdout.add, *self._consumers)
        try:
            err = _Pipe(self._stderr.add, *self._consumers)
        except OSError:  # too many files are open
            out.close()
            os.close(out.writing)
            raise
        try:
            code, timed_out = await self._wait_for_end(launch, out.writing, err.writing)
            launch.kill()
            if not (out.drain() and err.drain()):
                await asyncio.wait([out.ended, err.ended], timeout=DRAIN_SECONDS)
        finally:
            launch.kill()
            out.close()
            err.close()
        return ExecResult(
            stdout=self._stdout.text(),
            stderr=self._stderr.text(),
            output=self._both.text(),
            exit_code=-signal.SIGTERM if self._terminated and code == _SANDBOX_TERMINATED else code,
            timed_out=timed_out,
            duration_ms=round((self._clock.monotonic() - began) * 1_000),
            refused_hosts=launch.refused_hosts,
            killed_for=launch.killed_for,
        )

    async def stop(self) -> None:
        """Stop the command: SIGTERM, 2 seconds, SIGKILL; at once while it is still being started."""
        self._stopped = True
        if self._running is not None:
            await self._end(self._running)

    async def _wait_for_end(self, launch: Launch, stdout: int, stderr: int) -> tuple[int, bool]:
        """Return the exit code, and whether the time ran out."""
        try:
            try:
                async with asyncio.timeout(launch.start_seconds):
                    await launch.start(stdout, stderr)
            finally:
                os.close(stdout)
                os.close(stderr)
            self._running = launch
            if self._stopped:  # `stop` was called during the start
                launch.kill()
            async with asyncio.timeout(self._command.timeout_ms / 1_000):
                return await launch.ended(), False
        except TimeoutError:
            return await self._end(launch), True
        except asyncio.CancelledError:
            await self._end(launch)  # with SIGTERM first, so that it can clean up
            raise

    async def _end(self, launch: Launch) -> int:
        self._terminated = True
        launch.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                return await launch.ended()
        launch.kill()
        return await launch.ended()


def shell_program() -> str:
    """Return the path of the shell that runs commands."""
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
