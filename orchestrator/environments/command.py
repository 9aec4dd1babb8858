"""Runs one shell command: its process group, its time, and as much of its output as is kept."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.environments.base import ExecResult
from orchestrator.environments.pipes import PipeReader, open_pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.clock import Clock

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""

DRAIN_SECONDS = 0.5
"""How long output is awaited after the command's end, if a process that left its group holds the pipe."""

MAX_KEPT_CHARS = 10_000_000
"""Of each stream; half from its beginning, half from its end."""

_BASH = "/bin/bash"
_SH = "/bin/sh"


class KeptText:
    """The beginning and the end of a long text, in bounded memory."""

    def __init__(self, max_chars: int = MAX_KEPT_CHARS) -> None:
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


class _Text:
    """Takes one pipe's bytes, decodes them, and hands the text on."""

    def __init__(self, takers: tuple[Callable[[str], None], ...]) -> None:
        self._takers = takers
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def take(self, data: bytes) -> None:
        self._hand_on(self._decode(data))

    def finish(self) -> None:
        self._hand_on(self._decode(b"", final=True))

    def _hand_on(self, text: str) -> None:
        if text:
            for take in self._takers:
                take(text)


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


class RunningCommand:
    """One command from its start to its end. Use it once."""

    def __init__(self, command: Command, clock: Clock, on_output: Callable[[str], None] | None) -> None:
        self._command = command
        self._clock = clock
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
        began = self._clock.monotonic()
        out, out_end = await self._pipe(self._stdout)
        try:
            err, err_end = await self._pipe(self._stderr)
        except BaseException:
            out.close()
            os.close(out_end)
            raise
        try:
            process = self._process = await self._start(out_end, err_end)
            if self._stopped:  # while it was being started
                self.signal_group(signal.SIGKILL)
            timed_out = await self._await_end(process)
            self.signal_group(signal.SIGKILL)
            await asyncio.wait([out.ended, err.ended], timeout=DRAIN_SECONDS)
        finally:
            self.signal_group(signal.SIGKILL)
            out.close()
            err.close()
            if self._process is not None:
                await self._process.wait()
        await asyncio.gather(out.ended, err.ended)
        return ExecResult(
            stdout=self._stdout.text(),
            stderr=self._stderr.text(),
            output=self._both.text(),
            exit_code=process.returncode if process.returncode is not None else -signal.SIGKILL,
            timed_out=timed_out,
            duration_ms=round((self._clock.monotonic() - began) * 1_000),
        )

    async def stop(self) -> None:
        """End it from outside: SIGTERM, 2 seconds, SIGKILL; at once where it is only being started."""
        self._stopped = True
        if self._process is not None:
            await self._end(self._process)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the command and everything that it started and that stayed in its group."""
        if self._process is None or self._killed:  # once dead, its number may be another group's
            return
        self._killed = number == signal.SIGKILL
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _pipe(self, kept: KeptText) -> tuple[PipeReader, int]:
        text = _Text((kept.add, *self._shared))
        return await open_pipe(text.take, text.finish)

    async def _start(self, stdout: int, stderr: int) -> asyncio.subprocess.Process:
        shell = _BASH if Path(_BASH).exists() else _SH  # noqa: ASYNC240  one stat
        try:
            return await asyncio.create_subprocess_exec(
                shell,
                "-c",
                self._command.line,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self._command.folder,
                env=self._command.variables,
                start_new_session=True,
            )
        except (
            OSError,
            ValueError,
        ) as error:  # too long, a NUL character, no processes left, the folder is gone
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ToolError(f"the command could not be started: {reason}") from error
        finally:
            os.close(stdout)
            os.close(stderr)

    async def _await_end(self, process: asyncio.subprocess.Process) -> bool:
        try:
            async with asyncio.timeout(self._command.timeout_ms / 1_000):
                await process.wait()
        except TimeoutError:
            await self._end(process)
            return True
        except asyncio.CancelledError:
            await self._end(process)  # gently too: it may have something to put back
            raise
        return False

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self.signal_group(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()
        self.signal_group(signal.SIGKILL)
        await process.wait()
