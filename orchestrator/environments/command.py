"""Runs one shell command: its process group, its time, and as much of its output as is kept."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.environments.base import ExecResult
from orchestrator.environments.kept import Decoded, KeptText
from orchestrator.environments.pipes import PipeReader, open_pipe
from orchestrator.environments.starting import start_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.clock import Clock
    from orchestrator.environments.confinement import Launch, Place, Sandbox

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""

START_SECONDS = 20.0
"""For the walls of a sandbox to be built; the command's own time begins after that."""

DRAIN_SECONDS = 0.5
"""How long output is awaited after the command's end, if a process that left its group holds the pipe."""

_SHOWN_CHARS = 500
_SHELL_SIGNAL_BASE = 128
_BASH = "/bin/bash"
_SH = "/bin/sh"


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


@dataclass(frozen=True, slots=True)
class Bare:
    """A `Launch` without walls: the shell runs as this user does."""

    argv: tuple[str, ...]
    variables: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    killed_for: str = ""
    refused_hosts: tuple[str, ...] = ()

    async def started(self, kill: Callable[[], None]) -> str:  # noqa: ARG002  the protocol's
        """See `Launch`."""
        return ""

    def terminate(self) -> bool:
        """See `Launch`: its process group is asked."""
        return False

    async def close(self) -> None:
        """See `Launch`."""


class RunningCommand:
    """One command from its start to its end. Use it once.

    Args:
        command: what to run.
        clock: measures how long it takes.
        on_output: gets the output as it comes.
        walls: the sandbox, and what it leaves open; None runs it as this user does.
    """

    def __init__(
        self,
        command: Command,
        clock: Clock,
        on_output: Callable[[str], None] | None,
        walls: tuple[Sandbox, Place] | None = None,
    ) -> None:
        self._command = command
        self._clock = clock
        self._walls = walls
        self._launch: Launch | None = None
        self._terminated = False
        self._stdout, self._stderr, self._both = KeptText(), KeptText(), KeptText()
        self._shared = (self._both.add, on_output) if on_output else (self._both.add,)
        self._process: asyncio.subprocess.Process | None = None
        self._killed = False
        self._stopped = False

    async def run(self) -> ExecResult:
        """Run it to its end, and end what it left behind in its process group.

        Raises:
            ToolError: it could not be started.
        """
        launch = self._prepare()
        try:
            return await self._run(launch)
        finally:
            await launch.close()

    def _prepare(self) -> Launch:
        if self._walls is None:
            shell = _BASH if Path(_BASH).exists() else _SH
            return Bare((shell, "-c", self._command.line), self._command.variables)
        sandbox, place = self._walls
        try:
            return sandbox.launch(self._command, place)
        except (OSError, ValueError) as error:
            raise _not_started(error) from error

    async def _run(self, launch: Launch) -> ExecResult:
        began = self._clock.monotonic()
        out, out_end = await self._pipe(self._stdout)
        try:
            err, err_end = await self._pipe(self._stderr)
        except BaseException:
            out.close()
            os.close(out_end)
            raise
        try:
            process = self._process = await self._start(launch, out_end, err_end)
            if self._stopped:  # while it was being started
                self.signal_group(signal.SIGKILL)
            problem, timed_out = await self._await_end(process, launch)
            self.signal_group(signal.SIGKILL)
            await asyncio.wait([out.ended, err.ended], timeout=DRAIN_SECONDS)
        finally:
            self.signal_group(signal.SIGKILL)
            out.close()
            err.close()
            if self._process is not None:
                await self._process.wait()
        await asyncio.gather(out.ended, err.ended)
        if problem and not (timed_out or self._stopped or launch.killed_for):
            said = " ".join(self._stderr.text()[-_SHOWN_CHARS:].split())
            raise ToolError(f"the command could not be started: {problem}{f' ({said})' if said else ''}")
        return ExecResult(
            stdout=self._stdout.text(),
            stderr=self._stderr.text(),
            output=self._both.text(),
            exit_code=self._exit_code(process.returncode),
            timed_out=timed_out,
            duration_ms=round((self._clock.monotonic() - began) * 1_000),
            refused_hosts=launch.refused_hosts,
            killed_for=launch.killed_for,
        )

    async def stop(self) -> None:
        """End it from outside: SIGTERM, 2 seconds, SIGKILL; at once where it is only being started."""
        self._stopped = True
        if self._process is not None:
            await self._end(self._process)

    def _exit_code(self, code: int | None) -> int:
        """A sandbox adds 128 to a signal's number, as an exit may too; what we sent ourselves is known."""
        if code is None:
            return -signal.SIGKILL
        ours = self._terminated and code == _SHELL_SIGNAL_BASE + signal.SIGTERM
        return -signal.SIGTERM if ours else code

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the command and everything that it started and that stayed in its group."""
        if self._process is None or self._killed:  # once dead, its number may be another group's
            return
        self._killed = number == signal.SIGKILL
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _pipe(self, kept: KeptText) -> tuple[PipeReader, int]:
        text = Decoded((kept.add, *self._shared))
        return await open_pipe(text.take, text.finish)

    async def _start(self, launch: Launch, stdout: int, stderr: int) -> asyncio.subprocess.Process:
        self._launch = launch
        try:
            return await start_program(
                *launch.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self._command.folder,
                env=launch.variables,
                pass_fds=launch.pass_fds,
            )
        except (
            OSError,
            ValueError,
        ) as error:  # too long, a NUL character, no processes left, the folder is gone
            raise _not_started(error) from error
        finally:
            os.close(stdout)
            os.close(stderr)

    async def _await_end(self, process: asyncio.subprocess.Process, launch: Launch) -> tuple[str, bool]:
        """Why it did not start, if so, and whether its time was over."""
        problem = ""
        try:
            async with asyncio.timeout(START_SECONDS):
                problem = await launch.started(lambda: self.signal_group(signal.SIGKILL))
            if problem:
                self.signal_group(signal.SIGKILL)
            async with asyncio.timeout(self._command.timeout_ms / 1_000):
                await process.wait()
        except TimeoutError:
            await self._end(process)
            return problem, True
        except asyncio.CancelledError:
            await self._end(process)  # gently too: it may have something to put back
            raise
        return problem, False

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()
        self.signal_group(signal.SIGKILL)
        await process.wait()

    def _terminate(self) -> None:
        """Ask the command to end. A sandbox's own program must not get the signal: with it, all dies at once."""
        self._terminated = True
        if self._walls is None:
            self.signal_group(signal.SIGTERM)
        elif self._launch is None or not self._launch.terminate():
            self.signal_group(signal.SIGKILL)


def _not_started(error: OSError | ValueError) -> ToolError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ToolError(f"the command could not be started: {reason}")
