"""`pullwright acp`: serves one editor on standard input and output, until it closes them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, INTERRUPTED, refuse_secrets
from orchestrator.app.terminal import standard_output
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.suggestions import install_command
from orchestrator.plugins.chat.command import StandardInput, refuse_contract

if TYPE_CHECKING:
    import argparse

    from orchestrator.app.terminal import RedactedOutput
    from orchestrator.app.wiring import Observers

_PARSE_ERROR = {"code": -32_700, "message": "this line is no message of the protocol"}


def serve(options: argparse.Namespace) -> int:
    """Serve an editor until it leaves, and return the exit status.

    Standard output has the protocol alone: what anything else prints goes to standard error.
    """
    if find_spec("acp") is None:
        raise ConfigurationError(f"acp needs the package agent-client-protocol: {install_command('agents')}")
    refuse_contract(options)
    refuse_secrets(options)
    from orchestrator.app.wiring import observing
    from orchestrator.core.clock import SystemClock

    out = standard_output()
    with redirect_stdout(sys.stderr), observing(os.environ, SystemClock(), print) as observers:
        return event_loop.run(_serve(options, out, observers))


async def _serve(options: argparse.Namespace, out: RedactedOutput, observers: Observers) -> int:
    from acp.agent.connection import AgentSideConnection

    from orchestrator.plugins.acp.agent import EditorAgent

    agent = EditorAgent(options, observers)
    connection = AgentSideConnection(agent, _Lines(out), listening=False)  # type: ignore[arg-type]
    listening = asyncio.ensure_future(connection.listen())

    def end() -> None:
        agent.stop()
        listening.cancel()

    event_loop.on_ending_signals(end, interrupt=end)
    await asyncio.wait([listening])
    for line in await agent.close():
        print(line, file=sys.stderr)
    await connection.close()
    return INTERRUPTED if agent.is_stopped else DONE


class _Lines:
    """The library's transport: one JSON message a line. What is none is answered, and never reaches the library."""

    def __init__(self, out: RedactedOutput) -> None:
        self._out, self._input, self._order = out, StandardInput(), asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message, after those that were sent before."""
        async with self._order:
            try:
                await asyncio.to_thread(self._out.write_json, message)
            except (OSError, ValueError) as error:
                raise ConnectionError(str(error)) from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input."""
        while True:
            try:
                line = await self._input.line()
            except (EOFError, OSError):
                return None
            if (message := _parsed(line)) is not None:
                return message
            if line.strip():
                await self.send({"jsonrpc": "2.0", "id": None, "error": _PARSE_ERROR})

    async def close(self) -> None:
        """Do nothing: the streams are the process's own."""


def _parsed(line: str) -> dict[str, Any] | None:
    """Return a line as a request, a notification or an answer; None if it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    name, error = message.get("id"), message.get("error")
    if "method" in message:
        is_good = isinstance(message["method"], str) and isinstance(name, str | int | None)
    else:
        is_good = isinstance(name, int) and isinstance(error, dict | None)
    return message if is_good else None
