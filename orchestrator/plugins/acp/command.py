"""`pullwright acp`: serves one editor on standard input and output, until it closes them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, INTERRUPTED, refuse_secrets
from orchestrator.app.terminal import RedactedOutput, known_secrets, standard_output
from orchestrator.bot.suggestions import install_command
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.event_loop import in_abandoned_thread
from orchestrator.core.json_rpc import read_message
from orchestrator.plugins.chat.command import StandardInput, refuse_contract

if TYPE_CHECKING:
    import argparse

    from orchestrator.app.wiring import Observers

_PARSE_ERROR = {"code": -32_700, "message": "this line is no message of the protocol"}
_ANSWER_SECONDS, _READ_SECONDS = 5.0, 1.0
"""Time at the end for the answers to requests whose work has ended, or was cancelled, and then to read them."""


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

    agent, is_stopped = EditorAgent(options, observers, lines.put), asyncio.Event()
    connection = AgentSideConnection(agent, lines, listening=False)  # type: ignore[arg-type]
    listening = asyncio.ensure_future(connection.listen())

    def end() -> None:
        is_stopped.set()
        for session in agent.sessions.values():
            session.chat.context.stop.at_once()
        listening.cancel()

    event_loop.on_ending_signals(end, interrupt=end)
    await asyncio.wait([listening])
    for session in agent.sessions.values():
        session.cancel()
    await lines.end()
    for session in agent.sessions.values():
        for line in await session.close():
            print(line, file=sys.stderr)
    await connection.close()
    return INTERRUPTED if is_stopped.is_set() else DONE


class _Lines:
    """The library's transport: one JSON message a line. What is none is answered, and never reaches the library.

    A thread writes, because an editor may stay and not read. The end of the process does not wait for it.
    """

    def __init__(self, handle: int) -> None:
        self._input, self._output = StandardInput(), SimpleQueue[dict[str, Any] | None]()
        self._asked: set[Any] = set()
        self._answered = asyncio.Event()
        self._writing = threading.Thread(target=self._write, args=[handle], daemon=True)
        self._writing.start()

    def put(self, message: dict[str, Any]) -> None:
        """Have a message written, after those that were put before. Any thread may call this."""
        self._output.put(message)

    async def send(self, message: dict[str, Any]) -> None:
        """Have a message of the library written."""
        self.put(message)
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
                self.put({"jsonrpc": "2.0", "id": None, "error": _PARSE_ERROR})

    async def end(self) -> None:
        """Wait for the answers to what was asked."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while self._asked:
                    self._answered.clear()
                    await self._answered.wait()

    async def close(self) -> None:
        """Wait until everything is written, but no longer than the editor reads."""
        self._output.put(None)
        await in_abandoned_thread(lambda: self._writing.join(_READ_SECONDS))

    def _write(self, handle: int) -> None:
        """Write the messages until the end, or until nobody reads any more."""
        with suppress(OSError), os.fdopen(handle, "w", encoding="utf-8", closefd=False) as stream:
            os.set_blocking(handle, True)
            output = RedactedOutput(stream, lambda: known_secrets(os.environ))
            for message in iter(self._output.get, None):
                output.write_json(message)
