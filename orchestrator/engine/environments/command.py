"""Runs one shell command: its process group, its time, and as much of its output as is kept."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.base import ExecResult
from orchestrator.engine.environments.kept import Decoded, KeptText
from orchestrator.engine.environments.pipes import open_pipes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.confinement import Launch, OpenSandbox

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""

START_SECONDS = 20.0
"""For the walls of a sandbox to be built; the command's own time begins after that."""

DRAIN_SECONDS = 0.5
"""How long output is awaited after the command's end, if a process that left its group holds the pipe."""

SHELLS = ("/bin/bash", "/bin/sh")
_SHELL_SIGNAL_BASE = 128


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
    """A `Launch` of a program of this machine in a process group of its own; what leaves the group is not ended.

    Args:
        argv: the program and its arguments.
        command: its folder and variables.
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
        """End its group, and take its exit code: until then its number is nobody else's."""
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
    """One command from its start to its end. Use it once.

    Args:
        command: what to run.
        clock: measures how long it takes.
        on_output: gets the output as it comes.
        walls: the sandbox; None runs it as this user does.
    """

    def __init__(
        self,
        command: Command,
        clock: Clock,
        on_output: Callable[[str], None] | None,
        walls: OpenSandbox | None = None,
    ) -> None:
        self._command = command
        self._clock = clock
        self._walls = walls
        self._stdout, self._stderr, self._both = KeptText(), KeptText(), KeptText()
        self._shared = (self._both.add, on_output) if on_output else (self._both.add,)
        self._running: Launch | None = None
        self._terminated = self._stopped = False

    async def run(self) -> ExecResult:
        """Run it to its end, and end what it left behind.

        Raises:
            ToolError: it could not be started.
        """
        try:
            launch = self._launch()
            try:
                return await self._run(launch)
            finally:
                await launch.close()
        except (
            OSError,
            ValueError,
        ) as error:  # too long, a NUL character, no processes left, the folder is gone
            raise _not_started(error) from error

    def _launch(self) -> Launch:
        if self._walls is not None:
            return self._walls.launch(self._command)
        return ProgramLaunch((shell(), "-c", self._command.line), self._command)

    async def _run(self, launch: Launch) -> ExecResult:
        began = self._clock.monotonic()
        out, err = open_pipes(self._taker(self._stdout), self._taker(self._stderr))
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
            exit_code=self._exit_code(code),
            timed_out=timed_out,
            duration_ms=round((self._clock.monotonic() - began) * 1_000),
            refused_hosts=launch.refused_hosts,
            killed_for=launch.killed_for,
        )

    async def stop(self) -> None:
        """End it from outside: SIGTERM, 2 seconds, SIGKILL; at once where it is only being started."""
        self._stopped = True
        if self._running is not None:
            await self._end(self._running)

    def _exit_code(self, code: int) -> int:
        """A sandbox adds 128 to a signal's number, as an exit may too; what we sent ourselves is known."""
        ours = self._terminated and code == _SHELL_SIGNAL_BASE + signal.SIGTERM
        return -signal.SIGTERM if ours else code

    def _taker(self, kept: KeptText) -> tuple[Callable[[bytes], None], Callable[[], None]]:
        text = Decoded((kept.add, *self._shared))
        return text.take, text.finish

    async def _to_its_end(self, launch: Launch, stdout: int, stderr: int) -> tuple[int, bool]:
        """Its exit code, and whether its time was over."""
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
            async with asyncio.timeout(GRACE_SECONDS):
                return await launch.ended()
        launch.kill()
        return await launch.ended()


def shell() -> str:
    """The shell that runs commands."""
    return SHELLS[0] if os.path.exists(SHELLS[0]) else SHELLS[1]  # noqa: PTH110  one stat


def _not_started(error: OSError | ValueError) -> ToolError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ToolError(f"the command could not be started: {reason}")
