"""`pullwright acp`: serves one editor on standard input and output, until it closes them."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO, cast

from orchestrator.app.cli.arguments import DONE, INTERRUPTED, refuse_secrets
from orchestrator.app.terminal import RedactedOutput, known_secrets, standard_output
from orchestrator.bot.suggestions import install_command
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.json_rpc import read_message
from orchestrator.plugins.chat.command import StandardInput, refuse_contract

if TYPE_CHECKING:
    import argparse

    from orchestrator.app.wiring import Observers

_PARSE_ERROR = {"code": -32_700, "message": "this line is no message of the protocol"}
_LOOK_MILLISECONDS = 200
"""How often a write that the editor does not read looks whether the input has ended, and how long it waits then."""
_ANSWER_SECONDS = 5.0
"""Time for the answers to requests whose work has ended, or was cancelled."""


def acp(options: argparse.Namespace) -> int:
    """Serve an editor until it leaves, and return the exit status.

    Standard output has the protocol alone: what anything else prints goes to standard error.
    """
    if find_spec("acp") is None:
        raise ConfigurationError(f"acp needs the package agent-client-protocol: {install_command('agents')}")
    refuse_contract(options)
    refuse_secrets(options)
    try:
        handle = standard_output().fileno()
    except (OSError, ValueError):
        raise ConfigurationError("acp talks on standard output, which is no file or pipe here") from None
    from orchestrator.app.wiring import observing
    from orchestrator.core.clock import SystemClock

    lines = _Lines(handle)
    with redirect_stdout(sys.stderr), observing(os.environ, SystemClock(), print) as observers:
        return event_loop.run(_serve(options, lines, observers))


async def _serve(options: argparse.Namespace, lines: _Lines, observers: Observers) -> int:
    from acp.agent.connection import AgentSideConnection

    from orchestrator.plugins.acp.agent import EditorAgent

    agent = EditorAgent(options, observers)
    connection = AgentSideConnection(agent, lines, listening=False)  # type: ignore[arg-type]
    listening = asyncio.ensure_future(connection.listen())

    def end() -> None:
        agent.stop()
        listening.cancel()

    event_loop.on_ending_signals(end, interrupt=end)
    await asyncio.wait([listening])
    agent.cancel_all()
    await lines.end()
    for line in await agent.close():
        print(line, file=sys.stderr)
    await connection.close()
    return INTERRUPTED if agent.is_stopped else DONE


class _Lines:
    """The library's transport: one JSON message a line. What is none is answered, and never reaches the library."""

    def __init__(self, handle: int) -> None:
        self._pipe = _Pipe(handle)
        self._out = RedactedOutput(cast("TextIO", self._pipe), lambda: known_secrets(os.environ))
        self._input, self._order = StandardInput(), asyncio.Lock()
        self._asked: set[Any] = set()
        self._answered = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message, after those that were sent before."""
        async with self._order:
            await asyncio.to_thread(self._out.write_json, message)
        if "method" not in message:
            self._asked.discard(message["id"])
            self._answered.set()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input."""
        while True:
            try:
                line = await self._input.line()
            except (EOFError, OSError):
                return None
            if (message := read_message(line)) is not None:
                if "method" in message and "id" in message:
                    self._asked.add(message["id"])
                return message
            if line.strip():
                await self.send({"jsonrpc": "2.0", "id": None, "error": _PARSE_ERROR})

    async def end(self) -> None:
        """Wait for the answers to what was asked, and write no longer than the editor reads."""
        self._pipe.is_ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while self._asked:
                    self._answered.clear()
                    await self._answered.wait()

    async def close(self) -> None:
        """Do nothing: the streams are the process's own."""


class _Pipe:
    """Standard output, whose reader may go, or stay and not read. Then the end of the process does not wait for it.

    Attributes:
        is_ending: whether to drop what is not read within a moment.
    """

    def __init__(self, handle: int) -> None:
        self._handle, self._is_gone, self.is_ending = handle, False, False
        self._poll = select.poll()
        self._poll.register(handle, select.POLLOUT)

    def write(self, text: str) -> None:
        """Write a text. At most `PIPE_BUF` bytes are written without a wait when there is room."""
        rest = memoryview(text.encode())
        while rest and not self._is_gone:
            if self._poll.poll(_LOOK_MILLISECONDS):
                try:
                    rest = rest[os.write(self._handle, rest[: select.PIPE_BUF]) :]
                except OSError:  # nobody reads any more
                    self._is_gone = True
            else:
                self._is_gone = self.is_ending

    def flush(self) -> None:
        """Do nothing: everything is written at once."""
