"""A running program that speaks in lines over its standard input and output.

Its input and outputs are pipes without a name, whose ends it inherits through the sandbox. So nothing that the program
can write to is opened by its path.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.core.errors import PullwrightError
from orchestrator.engine.environments.commands import until_ready

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from orchestrator.engine.environments.base import Launch

MAX_MESSAGE_BYTES = 8 << 20
"""Size of one message."""
MAX_UNREQUESTED_MESSAGES = 8
"""Messages of maximum size that a program may send between two that are written to it."""
_STDERR_CHARS = 2_000
_PIECE_BYTES = 1 << 16
_END_SECONDS = 2.0
"""Time between the end of its input and SIGTERM, and between SIGTERM and SIGKILL."""
_DRAIN_SECONDS = 0.5


@dataclass(slots=True)
class ProgramReport:
    """The state of a program or of a remote server, for messages to a person.

    Attributes:
        stderr_tail: the end of its standard error.
        problem: why it was stopped, if it was.
    """

    stderr_tail: str = ""
    problem: str = ""

    @property
    def last_line(self) -> str:
        """The last line of its standard error."""
        return next((line.strip() for line in reversed(self.stderr_tail.splitlines()) if line.strip()), "")


class RunningProgram:
    """A running program that speaks in lines: its three pipes, and the launch.

    Args:
        report: receives the end of its standard error, and why this program stopped it.
        max_message_bytes: size of one line.
        max_unrequested_bytes: size of all lines between two that are written to it.
    """

    def __init__(
        self,
        launch: Launch,
        report: ProgramReport,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        max_unrequested_bytes: int | None = None,
    ) -> None:
        self._launch, self._report, self._max_message_bytes = launch, report, max_message_bytes
        self._max_unrequested_bytes = max_unrequested_bytes or MAX_UNREQUESTED_MESSAGES * max_message_bytes
        self._stdin = -1
        self.stdout = asyncio.StreamReader(limit=max_message_bytes)
        self._stderr = asyncio.StreamReader()
        self._unrequested_bytes = 0

    async def start(self, stack: AsyncExitStack) -> None:
        """Start the program, and follow it; push what must be closed later onto the stack, its end too."""
        theirs, self._stdin = os.pipe()
        os.set_blocking(self._stdin, False)  # the program's end stays as programs expect it
        stack.callback(self.close_input)
        loop = asyncio.get_running_loop()
        with ExitStack() as started:
            started.callback(os.close, theirs)
            writing = []
            for reader in (self.stdout, self._stderr):
                reading, end = os.pipe()
                started.callback(os.close, end)
                writing.append(end)
                transport, _ = await loop.connect_read_pipe(
                    partial(asyncio.StreamReaderProtocol, reader), os.fdopen(reading, "rb", 0)
                )
                stack.callback(transport.close)
            stack.push_async_callback(self._launch.close)
            async with asyncio.timeout(self._launch.start_seconds):
                await self._launch.start(writing[0], writing[1], theirs)
        for work in (self._listen(), self._watch()):
            following = asyncio.ensure_future(work)
            stack.push_async_callback(asyncio.wait, [following])
            stack.callback(following.cancel)
        stack.push_async_callback(self.end)

    async def line(self) -> bytes:
        """Return the next line; empty at the end."""
        try:
            line = await self.stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError:
            return self.end_for(f"it sent a message of more than {self._max_message_bytes >> 20} MiB")
        self._unrequested_bytes += len(line)
        most = self._max_unrequested_bytes
        if self._unrequested_bytes > most:
            return self.end_for(f"it sent more than {most >> 20} MiB without a request")
        return line

    async def write(self, data: bytes) -> None:
        """Write a message."""
        self._unrequested_bytes = 0
        view = memoryview(data)
        while view and self._stdin >= 0:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await until_ready(self._stdin, to_write=True)

    async def _listen(self) -> None:
        """Record its standard error until the end."""
        while piece := await self._stderr.read(_PIECE_BYTES):
            text = self._report.stderr_tail + piece.decode("utf-8", "replace")
            self._report.stderr_tail = text[-_STDERR_CHARS:]

    async def _watch(self) -> None:
        """Wait for its end; then ignore further output of processes that it left behind."""
        with suppress(PullwrightError):
            await self._launch.ended()
        self._report.problem = self._report.problem or self._launch.killed_for
        await asyncio.sleep(_DRAIN_SECONDS)
        if not self.stdout.at_eof():
            self.stdout.feed_eof()

    def close_input(self) -> None:
        """Close its standard input. May be called again."""
        descriptor, self._stdin = self._stdin, -1
        if descriptor >= 0:
            os.close(descriptor)

    async def end(self) -> None:
        """Stop it by closing its input, by SIGTERM, or by SIGKILL. May be called again."""
        self.close_input()
        for stop in (self._launch.terminate, self._launch.kill):
            with suppress(TimeoutError, PullwrightError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._launch.ended()
                break
            stop()

    def end_for(self, problem: str) -> bytes:
        """Stop it at once, and record why."""
        self._report.problem = problem
        self._launch.kill()
        return b""
