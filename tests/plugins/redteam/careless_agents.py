"""What stands between an agent program and the rest, without some of its defences."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from orchestrator.core.events import Defence
from orchestrator.engine.environments.base import Command
from orchestrator.engine.environments.commands import ProgramLaunch
from orchestrator.engine.environments.running_program import RunningProgram
from orchestrator.plugins.agents.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.types import Scope, Send

    from orchestrator.engine.environments.running_program import ProgramReport
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.plugins.agents.box import Door, Start
    from orchestrator.plugins.agents.client import AgentConnection, Told
    from orchestrator.plugins.agents.work import AgentParts

_SECONDS = 20
_MANY = 1_000_000_000
_LINE_BYTES = 1 << 20


def careless_agent(off: frozenset[Defence], parts: AgentParts) -> AgentParts:
    """The parts without the defences in `off`."""
    if Defence.SANDBOX in off:
        parts = replace(parts, box=_unboxed)
    if off & {Defence.NETWORK, Defence.SECRETS}:
        parts = replace(parts, relay=_PassingRelay)
    if Defence.WORKER in off:
        parts = replace(parts, connection=_patient(), told=_showing())
    return parts


@asynccontextmanager
async def _unboxed(
    start: Start,
    _sandbox: BubblewrapSandbox,
    inherited: Mapping[str, str],
    doors: Mapping[int, Door],
    report: ProgramReport,
) -> AsyncGenerator[RunningProgram]:
    """Start the program as any other program of the user's, with doors at ports of this machine."""
    environment = dict(start.filled.environment)
    async with AsyncExitStack() as stack:
        for port, door in doors.items():
            listener = socket.create_server(("127.0.0.1", 0))
            opened = f":{listener.getsockname()[1]}"
            environment = {name: re.sub(rf":{port}\b", opened, value) for name, value in environment.items()}
            listener.setblocking(False)
            serving = asyncio.ensure_future(door.serve(listener))
            stack.push_async_callback(asyncio.wait, [serving])
            stack.push_async_callback(door.close)
        command = Command("", start.folder, {**inherited, **environment}, 1)
        running = RunningProgram(ProgramLaunch(start.installed.argv, command), report, _LINE_BYTES, _MANY)
        await running.start(stack)
        yield running


class _PassingRelay(Relay):
    """Puts the key into whatever it is given, and passes on whatever comes back."""

    async def _respond(self, scope: Scope, body: bytes, send: Send) -> None:
        place = urlsplit(self.upstream.wire.url)
        status, data = await asyncio.to_thread(_sent, place.netloc, scope["path"], self.upstream.key, body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": data})


def _sent(address: str, path: str, key: str, body: bytes) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=_SECONDS)) as connection:
        connection.request("POST", path, body, {"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def _patient() -> type[AgentConnection]:
    from orchestrator.plugins.agents.client import AgentConnection

    class Patient(AgentConnection):
        """Waits for ever, hears everything, and speaks with everybody."""

        versions = range(_MANY)
        start_seconds = float("inf")
        most: ClassVar[Mapping[str, int]] = dict.fromkeys(AgentConnection.most, _MANY)

    return Patient


def _showing() -> type[Told]:
    from orchestrator.plugins.agents.client import Told

    class Showing(Told):
        """Shows names as they are told."""

        def _named(self, title: str) -> str:
            return title

    return Showing
