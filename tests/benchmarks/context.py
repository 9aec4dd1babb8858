"""What it costs to keep a conversation short: a step at any length, and tokens by the share at which it is due.

The model is scripted and the tool gives 2 kB, so all time that is measured is our own: that of the processor,
which other programs on the machine do not change much.
Run: python -m tests.benchmarks.context
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import (
    FinishReason,
    Message,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    Usage,
)
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.base import Completed, Response
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.config import CompactionPolicy, Host, SessionConfig
from orchestrator.engine.session.history import message_bytes
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ok, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from orchestrator.engine.models.base import Request, StreamEvent

LENGTHS = (100, 1_000, 10_000)
WINDOWS = (16_000, 200_000)
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
STEPS = 300
OUTPUT = "word " * 400
SYSTEM = "System. " * 1_000
SUMMARY = "\n".join(
    f"## {name}\n{'A few words of it. ' * 20}"
    for name in ("Goal", "Progress and decisions", "Constraints", "Remaining", "Critical data")
)
CACHED_PRICE, WRITTEN_PRICE, REPLY_PRICE = 0.1, 1.25, 5.0
"""Of a token of plain input, as the vendors with a cache have it."""


@dataclass
class Model:
    """Looks so many times; counts what a vendor's cache would have had of each request."""

    steps: int
    name: str = "bench:1"
    given: int = 0
    cost: float = 0.0
    tokens: int = 0
    summaries: int = 0
    _last: list[Message] = field(default_factory=list)

    async def complete(self, request: Request) -> Response:
        said = list(request.messages)
        is_question = said[-1].text.startswith("Call nothing now")
        reply = SUMMARY if is_question else "next"
        self.summaries += is_question
        usage = self._usage(said, reply)
        if is_question:
            return Response(Message.assistant(reply), FinishReason.STOP, usage, "bench")
        self._last = said
        self.given += 1
        if self.given > self.steps:
            return Response(Message.assistant("Done."), FinishReason.STOP, usage, "bench")
        call = ToolCall(f"c{self.given}", "look", {"n": self.given})
        return Response(Message(Role.ASSISTANT, (Text(reply), call)), FinishReason.TOOL_CALLS, usage, "bench")

    def _usage(self, said: list[Message], reply: str) -> Usage:
        known = 0
        for one, other in zip(said, self._last, strict=False):
            if one is not other:
                break
            known += 1
        size = len(SYSTEM) + sum(map(message_bytes, said))
        cached = (len(SYSTEM) if self._last else 0) + sum(map(message_bytes, said[:known]))
        self.tokens += size // 4
        self.cost += (cached * CACHED_PRICE + (size - cached) * WRITTEN_PRICE + len(reply) * REPLY_PRICE) / 4
        return Usage(size // 4, len(reply) // 4)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        yield Completed(await self.complete(request))

    async def aclose(self) -> None:
        pass


async def look(_arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
    return Ok(OUTPUT)


async def one(folder: Path, steps: int, window: int, share: float | None) -> tuple[float, Model]:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    model = Model(steps)
    policy = None if share is None else CompactionPolicy(share=share)
    async with Session(
        profile=Profile(
            "bench", ToolRegistry([Tool(ToolDefinition("look", "Looks.", schema), look)]), "Base."
        ),
        environment=LocalEnvironment(folder),
        model=model,
        host=Host(system=lambda _shown: SYSTEM),
        config=SessionConfig(context_window=window, compaction=policy, enable_loop_detection=False),
    ) as talk:
        start = time.process_time()
        await talk.run("Go")
        return time.process_time() - start, model


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await one(folder, 100, WINDOWS[0], 0.5)
        print(f"A step, with 2 kB each and a window of {WINDOWS[0]:,} tokens")
        for steps in LENGTHS:
            seconds, model = await one(folder, steps, WINDOWS[0], 0.5)
            print(f"{steps:>10,} steps{seconds / steps * 1000:10.3f}ms{model.summaries:10,} summaries")
        for window in WINDOWS:
            steps = STEPS if window == WINDOWS[0] else 4 * STEPS
            print(f"\nCost of {steps} steps in {window:,} tokens, in thousands of tokens of plain input")
            for share in SHARES:
                _seconds, model = await one(folder, steps, window, share)
                print(f"{share:10.0%}{model.cost / 1000:12,.0f}{model.summaries:10,} summaries")


if __name__ == "__main__":
    asyncio.run(main())
