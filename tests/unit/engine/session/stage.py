"""A session with prepared replies in a real folder, for the tests of this room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall, ToolDefinition, Usage
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.base import Completed, Response, TextPiece
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ok, Order, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.files import overwrite_file, read_text_or_image
from orchestrator.engine.tools.registry import ToolRegistry
from orchestrator.engine.tools.search import glob, grep
from orchestrator.engine.tools.shell import shell

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from orchestrator.engine.models.base import Model, Request, StreamEvent
    from orchestrator.engine.session.event_bus import SessionEvent

USAGE = Usage(input_tokens=10, output_tokens=5)


def says(text: str, *calls: tuple[str, Mapping[str, Any]], finish: FinishReason | None = None) -> Response:
    """A reply with text and calls; their ids are `c1`, `c2` and so on."""
    parts = [Text(text)] if text else []
    made = [ToolCall(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls, 1)]
    reason = finish or (FinishReason.TOOL_CALLS if calls else FinishReason.STOP)
    return Response(Message(Role.ASSISTANT, (*parts, *made)), reason, USAGE, "scripted", "id-1")


Step = Response | Exception | Callable[["Request"], Response]


@dataclass
class ScriptedModel:
    """Answers with the next step: a reply, an error, or what a function makes of the request."""

    steps: list[Step]
    name: str = "scripted:1"
    requests: list[Request] = field(default_factory=list)
    hangs: bool = False
    closed: int = 0
    let_go: int = 0

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step(request) if callable(step) else step

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        try:
            if self.hangs:
                yield TextPiece("I begin")
                await asyncio.Event().wait()
            response = await self.complete(request)
            for word in response.text.split(" "):
                yield TextPiece(word)
            yield Completed(response)
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        self.let_go += 1


def tool(
    name: str,
    run: Callable[[Mapping[str, Any]], Any],
    *,
    order: Order = Order.TOGETHER,
    required: tuple[str, ...] = (),
) -> Tool:
    """A tool without effects of its own. `run` may be a coroutine function."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        result = run(arguments)
        if asyncio.iscoroutine(result):
            result = await result
        return result if isinstance(result, Ok) else Ok(str(result))

    schema = {"type": "object", "properties": {}, "required": list(required)}
    return Tool(ToolDefinition(name, f"{name}: a tool of the test.", schema), execute, order=order)


def profile(*tools: Tool, **fields: Any) -> Profile:
    """A profile with real tools and those given."""
    real = (read_text_or_image(), overwrite_file(), shell(), grep("core/grep"), glob("core/glob"))
    name = fields.pop("name", "test")
    return Profile(name, ToolRegistry([*real, *tools]), "Base words.", **fields)


@asynccontextmanager
async def session_in(
    folder: Path,
    *steps: Step,
    tools: Iterable[Tool] = (),
    config: SessionConfig | None = None,
    host: Host | None = None,
    model: ScriptedModel | None = None,
    **fields: Any,
) -> AsyncGenerator[tuple[Session, ScriptedModel]]:
    """A session over these replies; it is closed at the end."""
    model = model or ScriptedModel(list(steps))
    async with session_with(folder, model, tools=tools, config=config, host=host, **fields) as session:
        yield session, model


@asynccontextmanager
async def session_with(
    folder: Path,
    model: Model,
    *,
    tools: Iterable[Tool] = (),
    config: SessionConfig | None = None,
    host: Host | None = None,
    **fields: Any,
) -> AsyncGenerator[Session]:
    """A session with any model; it is closed at the end."""
    arguments = {key: fields.pop(key) for key in ("contract", "clock", "earlier") if key in fields}
    async with Session(
        profile=profile(*tools, **fields),
        environment=LocalEnvironment(folder, sandbox="off"),
        model=model,
        config=config,
        host=host or Host(system=lambda _shown: "You are tested."),
        **arguments,
    ) as session:
        yield session


async def events_of(session: Session, text: str) -> list[SessionEvent]:
    """All events of one input."""
    return [event async for event in session.submit(text)]


def kinds(events: Iterable[SessionEvent]) -> list[str]:
    """Their kinds, without those that the specification does not name."""
    return [event.kind.value for event in events if event.kind.value != "other"]
