"""Runs one shell command: its variables, its process group, its time, and as much of its output as is kept."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ToolError
from orchestrator.core.redaction import is_secret
from orchestrator.engine.environments.base import ExecResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.base import Launch, OpenSandbox, Sandbox


class EnvPolicy(StrEnum):
    """What is inherited from this program's own variables."""

    FILTERED = "filtered"
    """Everything that does not look like a secret."""
    SANDBOXED = "sandboxed"
    """Only harmless ones. A sandbox adds the folders of toolchains that it has."""
    CORE = "core"
    """Only what programs need to run: `PATH`, `HOME` and the like."""
    NONE = "none"
    """Nothing."""
    ALL = "all"
    """Everything, secrets included."""


CORE = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TMP", "TEMP", "TZ"}
    | {"GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "PYENV_ROOT"}
    | {"RBENV_ROOT", "GEM_HOME", "JAVA_HOME", "ANDROID_HOME", "DOTNET_ROOT", "VIRTUAL_ENV", "SSL_CERT_FILE"}
)
"""Variables that are always inherited, unless nothing is; and every `LC_*`."""

VERSIONS = frozenset({"PYENV_VERSION", "RBENV_VERSION", "RUSTUP_TOOLCHAIN"})
"""Variables that name one of the toolchains of this machine."""

_HARMLESS = frozenset(
    {"PATH", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    | {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8", "SOURCE_DATE_EPOCH"}
    | VERSIONS
)

# Ours and git's steer programs, and OpenTelemetry's would have a repository's own tests send to our collector; the
# others lead to an agent that signs in for any program.
_WITHHELD = re.compile(
    r"(?:PULLWRIGHT|GIT|OTEL)_.*|SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|KRB5CCNAME", re.IGNORECASE
)


def child_variables(inherited: Mapping[str, str], policy: EnvPolicy) -> dict[str, str]:
    """Choose which of this program's variables a command gets.

    The filter takes out secrets (`orchestrator.core.redaction`), everything of ours, of git's and of OpenTelemetry's,
    and the socket of an agent that holds keys. It does not stop a hostile command from finding them elsewhere.
    """
    match policy:
        case EnvPolicy.ALL:
            return dict(inherited)
        case EnvPolicy.NONE:
            return {}
        case EnvPolicy.CORE:
            return {name: value for name, value in inherited.items() if _is_core(name)}
        case EnvPolicy.SANDBOXED:
            return {
                name: value
                for name, value in inherited.items()
                if (name in _HARMLESS or name.startswith("LC_")) and not is_secret(name, value)
            }
        case EnvPolicy.FILTERED:
            return {
                name: value
                for name, value in inherited.items()
                if _is_core(name) or not (_WITHHELD.fullmatch(name) or is_secret(name, value))
            }


def _is_core(name: str) -> bool:
    return name in CORE or name.startswith("LC_")


def command_variables(
    sandbox: Sandbox | None, asked: EnvPolicy, inherited: Mapping[str, str]
) -> dict[str, str]:
    """What commands are given: in a sandbox only harmless variables, and those of the sandbox."""
    if sandbox is None:
        return child_variables(inherited, asked)
    policy = EnvPolicy.SANDBOXED if asked in {EnvPolicy.FILTERED, EnvPolicy.CORE} else asked
    tools = sandbox.tools() if policy is EnvPolicy.SANDBOXED else {}
    return {**child_variables(inherited, policy), **tools, **sandbox.variables()}


_MAX_KEPT_CHARS = 10_000_000
"""Of each stream; half from its beginning, half from its end."""


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
        """Append a piece."""
        if self._head_room and text:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room -= len(self._head[-1])
        if not text:
            return
        self._tail.append(text)
        self._tail_chars += len(text)
        while self._tail_chars - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_chars -= gone
            self._dropped += gone

    def text(self) -> str:
        """What was kept, with a marker where something is missing."""
        tail = "".join(self._tail)
        surplus = max(0, len(tail) - self._half)
        dropped = self._dropped + surplus
        marker = f"\n[... {dropped} characters of output were not kept ...]\n" if dropped else ""
        return "".join(self._head) + marker + tail[surplus:]


_PIECE_BYTES = 1 << 16
_PIECES = 16
"""As many as a pipe can hold, unless root makes it larger: pipe(7)."""


class _Pipe:
    """A new pipe: decodes its bytes as they come, and hands the text on. Either side can close it.

    Attributes:
        writing: the descriptor to write to, which the caller closes.
        ended: set when the pipe is closed.
    """

    def __init__(self, *takers: Callable[[str], None]) -> None:
        self._takers = takers
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self.read)

    def read(self) -> bool:
        """Take a piece of what is there now. False where nothing is, or no more will be."""
        if self.ended.done():
            return False
        try:
            piece = os.read(self._reading, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if piece:
            self._hand_on(self._decode(piece))
        else:
            self.close()
        return bool(piece)

    def drain(self) -> bool:
        """Take what was written before now. True where no more can come."""
        for _ in range(_PIECES):
            if not self.read():
                break
        return self.ended.done()

    def close(self) -> None:
        """Close the reading end; an incomplete character becomes U+FFFD. May be called again."""
        if not self.ended.done():
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._hand_on(self._decode(b"", final=True))
            self.ended.set_result(None)

    def _hand_on(self, text: str) -> None:
        if text:
            for take in self._takers:
                take(text)


async def until_readable(descriptor: int) -> None:
    """Wait until a descriptor can be read. One of a process (`os.pidfd_open`) can be read when the process has ended."""
    loop = asyncio.get_running_loop()
    await _until_ready(descriptor, loop.add_reader, loop.remove_reader)


async def until_writable(descriptor: int) -> None:
    """Wait until a descriptor takes more."""
    loop = asyncio.get_running_loop()
    await _until_ready(descriptor, loop.add_writer, loop.remove_writer)


async def _until_ready(
    descriptor: int, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_ready() -> None:
        remove(descriptor)
        if not ready.done():  # cancelled meanwhile
            ready.set_result(None)

    add(descriptor, set_ready)
    try:
        await ready
    finally:
        remove(descriptor)


async def start_program(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """`asyncio.create_subprocess_exec` in a process group of its own, whose start is not cancelled half-way.

    A cancelled start may make asyncio wait for ever for a program that has ended already
    (https://github.com/python/cpython/issues/103847). Here the start is waited for, the program
    is killed with its group, and then the cancellation goes on.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, start_new_session=True, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        while not starting.done():
            with suppress(asyncio.CancelledError):  # of a second one; the first is passed on below
                await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            process = starting.result()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
            ending = asyncio.ensure_future(process.wait())
            while not ending.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ending])
        raise


_GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""

START_SECONDS = 20.0
"""For a sandbox to be built; the command's own time begins after that."""

DRAIN_SECONDS = 0.5
"""How long output is awaited after the command's end, if a process that left its group has the pipe open."""

_SANDBOX_TERMINATED = 128 + signal.SIGTERM
"""The exit code with which a sandbox says SIGTERM; a command may exit with it too."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and where.

    Attributes:
        line: shell text.
        folder: the working directory.
        variables: all environment variables.
        timeout_ms: after this SIGTERM goes to the process group, and SIGKILL 2 seconds later.
    """

    line: str
    folder: str
    variables: Mapping[str, str]
    timeout_ms: int


class ProgramLaunch:
    """A `Launch` of a program of this machine in a process group of its own. What leaves the group is not ended.

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

    async def start(self, stdout: int, stderr: int) -> None:
        """See `Launch`."""
        self._process = subprocess.Popen(  # noqa: S603, ASYNC220  a shell, as asked; it takes a millisecond
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=self._command.folder,
            env=self._command.variables,
            start_new_session=True,
        )
        loop = asyncio.get_running_loop()
        if hasattr(os, "pidfd_open"):
            try:
                self._handle = os.pidfd_open(self._process.pid)
            except OSError:
                self._take_end()
                raise
            loop.add_reader(self._handle, self._take_end)
        else:
            waiting = asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            loop.create_task(waiting).add_done_callback(lambda _: self._take_end())

    def _take_end(self) -> None:
        """End its group, and take its exit code. Until then its number is not given out again."""
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
        on_output: gets the output as it comes.
        sandbox: None runs it as this user does.
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
        self._takers = (self._both.add, on_output) if on_output else (self._both.add,)
        self._running: Launch | None = None
        self._terminated = self._stopped = False

    async def run(self) -> ExecResult:
        """Run it to its end, and end what it left behind.

        Raises:
            ToolError: it could not be started.
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
        out = _Pipe(self._stdout.add, *self._takers)
        try:
            err = _Pipe(self._stderr.add, *self._takers)
        except OSError:  # too many files are open
            out.close()
            os.close(out.writing)
            raise
        try:
            code, timed_out = await self._to_its_end(launch, out.writing, err.writing)
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
        """End it: SIGTERM, 2 seconds, SIGKILL; at once where it is only being started."""
        self._stopped = True
        if self._running is not None:
            await self._end(self._running)

    async def _to_its_end(self, launch: Launch, stdout: int, stderr: int) -> tuple[int, bool]:
        """Its exit code, and whether its time ran out."""
        try:
            try:
                async with asyncio.timeout(launch.start_seconds):
                    await launch.start(stdout, stderr)
            finally:
                os.close(stdout)
                os.close(stderr)
            self._running = launch
            if self._stopped:  # while it was being started
                launch.kill()
            async with asyncio.timeout(self._command.timeout_ms / 1_000):
                return await launch.ended(), False
        except TimeoutError:
            return await self._end(launch), True
        except asyncio.CancelledError:
            await self._end(launch)  # gently too: it may have something to put back
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
    """The shell that runs commands."""
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"  # noqa: PTH110  one stat
