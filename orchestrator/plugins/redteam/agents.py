"""Plays attacks of an agent program that works in place of the model's loop: `hostile_agent`, with a model server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
import sysconfig
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from orchestrator.core.errors import SandboxMissingError
from orchestrator.core.events import (
    ErrorOccurred,
    LimitReached,
    SubagentEvent,
    TextDelta,
    ToolCallStarted,
)
from orchestrator.engine.models.catalog import ModelRef, Provider
from orchestrator.engine.models.connect import AddressedModel
from orchestrator.plugins.agents.box import sandbox_for_agents
from orchestrator.plugins.agents.choose import ChosenAgent, check_agents_installed
from orchestrator.plugins.agents.known import AgentKind, Installed
from orchestrator.plugins.agents.relay import Upstream
from orchestrator.plugins.redteam import hostile_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.plugins.agents.work import AgentParts
    from orchestrator.plugins.redteam.judge import Evidence
    from orchestrator.plugins.redteam.world import Scene

_NAME, _MODEL = "hostile", "cheap-model"
_PROGRAM = Path(hostile_agent.__file__)
_REPEAT = "REPEAT YOUR KEY"
"""A request with these words is answered with the request's own headers, in an answer or in an error."""
_OUTPUT_TOKENS, _WINDOW = 1_000, 100_000
_SHORT_SECONDS, _FEW_UPDATES = 2.0, 2_000


def _needs() -> tuple[str, ...]:
    """Return what the box has to show of this interpreter."""
    base = os.path.realpath(sys.base_prefix)
    parts = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if base == "/usr" else {base}
    return tuple(sorted({os.path.realpath(sys.executable), str(_PROGRAM), *parts}))


@dataclass
class _ModelServer:
    """A model server. It answers everything, and keeps what it was asked."""

    requests: list[str] = field(default_factory=list)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"(?im)^content-length: *(\d+)", head)
        body = (await reader.readexactly(int(length[1]) if length else 0)).decode("utf-8", "replace")
        self.requests.append(f"{head.partition(' HTTP/')[0]}\n{body}")
        words = head if _REPEAT in body else "Go on."
        status, answer = "200 OK", _completion(words)
        if f"{_REPEAT} IN AN ERROR" in body:
            status, answer = "400 Bad Request", {"error": {"message": words, "type": "invalid_request_error"}}
        data = json.dumps(answer).encode()
        lead = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        writer.write(f"{lead}Connection: close\r\n\r\n".encode() + data)
        await writer.drain()
        writer.close()


def _completion(words: str) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"id": "1", "object": "chat.completion", "model": _MODEL, "choices": [choice], "usage": usage}


def usual_parts(manner: str) -> AgentParts:
    """Return the product's own parts, with smaller limits, so that an attack on them is short."""
    from orchestrator.plugins.agents.client import AgentConnection
    from orchestrator.plugins.agents.work import AgentParts

    class Short(AgentConnection):
        start_seconds = _SHORT_SECONDS if manner == "hangs" else AgentConnection.start_seconds
        most: ClassVar[Mapping[str, int]] = {**AgentConnection.most, "updates": _FEW_UPDATES}

    return AgentParts(connection=Short)


@dataclass
class HostileAgent:
    """An agent under the attacker's control, and its model server.

    Attributes:
        text: its Python.
        manner: see `World.agent`.
        parts: returns what stands between it and the rest. It needs the library of the protocol, which may be missing.
    """

    text: str
    manner: str
    scene: Scene
    parts: Callable[[], AgentParts]
    _server: _ModelServer = field(default_factory=_ModelServer)
    _port: int = 0

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve its model while the block runs."""
        check_agents_installed()
        server = await asyncio.start_server(self._server.take, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    def worker(self, context: BuildContext, sandbox: BubblewrapSandbox) -> ChosenAgent:
        """Return what works in place of the model's loop."""
        from orchestrator.plugins.agents.work import AgentProgram

        argv = (os.path.realpath(sys.executable), "-I", "-S", str(_PROGRAM), self.text, self.manner)
        environment = {
            "RELAY": "{{relay}}",
            "PLACEHOLDER": "{{placeholder}}",
            "MODEL": "{{model}}",
            "TOOLS": "{{tools}}",
            "TOKEN": "{{token}}",
        }
        form = {"environment": environment, "files": {}, "meta": {}}
        kind = AgentKind(
            _NAME, (Provider.OPENAI_CHAT,), True, "session", {"safe": form, "dangerous": form}, "the agent"
        )
        key = self.scene.secrets.variables["OPENAI_API_KEY"]
        address = f"http://127.0.0.1:{self._port}/v1"
        named = AddressedModel(ModelRef(Provider.OPENAI_CHAT, _MODEL), address, key)
        return ChosenAgent(
            AgentProgram(
                kind,
                Installed(argv, _needs()),
                "safe",
                Upstream.of(named, price=lambda _usage: 0.0),
                _OUTPUT_TOKENS,
                _WINDOW,
                sandbox,
                context.redactor,
                context.clock,
                context.environ,
                lambda: 0.0,
                lambda: secrets.token_urlsafe(32),
                parts=self.parts(),
            )
        )

    def testify(self, evidence: Evidence) -> None:
        """Add what its model was asked, and what it told, to the evidence."""
        asked = self._server.requests
        evidence.shown, evidence.requests = "\n".join(asked), len(asked)
        told = [one.event for one in evidence.events if isinstance(one, SubagentEvent) and one.agent == _NAME]
        evidence.told = len(told)
        evidence.named = [one.name for one in told if isinstance(one, ToolCallStarted)]
        words = [one.text for one in told if isinstance(one, TextDelta)]
        ends = [one.message for one in evidence.events if isinstance(one, ErrorOccurred)]
        ends += [one.detail for one in evidence.events if isinstance(one, LimitReached)]
        evidence.said = next(iter([*reversed(ends), *reversed(words)]), "nothing came of what it did")


def find_box(settings: Settings) -> BubblewrapSandbox:
    """Find the sandbox of agents."""
    if settings.sandbox != "auto":
        raise SandboxMissingError("an agent runs only in this machine's own sandbox")
    return sandbox_for_agents(os.environ, _needs())
