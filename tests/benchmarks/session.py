"""What the agent loop costs by itself: a step at any length, with traces, many sessions, memory, the first event.

The model is a replay and the tool does nothing, so all time that is measured is our own.
Run: python -m tests.benchmarks.session
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from contextlib import aclosing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring import observing
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import CycleStarted
from orchestrator.core.messages import (
    FinishReason,
    Message,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import Request, Response, TextPiece
from orchestrator.engine.models.gemini import GeminiWire
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.models.replay import ReplayModel
from orchestrator.engine.models.transport import HttpModel
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.profiles.catalog import openai
from orchestrator.engine.session.config import Host
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ok, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.events import Emit
    from orchestrator.engine.models.wire import Wire

LENGTHS = (100, 1_000, 10_000)
SESSIONS, STEPS = 100, 50
FIRST_BYTES = 40
OUTPUT = "x" * 400


def wires() -> dict[str, Wire]:
    return {
        "openai-chat": ChatWire.at("http://127.0.0.1:9/v1", "m"),
        "openai-responses": ResponsesWire.at("http://127.0.0.1:9/v1", "gpt-5.2"),
        "anthropic": AnthropicWire.at("http://127.0.0.1:9", "claude-sonnet-4-5"),
        "gemini": GeminiWire.at("http://127.0.0.1:9", "gemini-3-pro"),
    }


async def nothing(_arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
    return Ok(OUTPUT)


def noop() -> Tool:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(ToolDefinition("noop", "Does nothing.", schema), nothing)


def replies(steps: int) -> list[Response]:
    """So many steps with one call each, and the last words."""
    listed = [
        Response(
            Message(Role.ASSISTANT, (Text("next"), ToolCall(f"c{n}", "noop", {"n": n}))),
            FinishReason.TOOL_CALLS,
            Usage(10, 5),
            "replay",
        )
        for n in range(steps)
    ]
    return [*listed, Response(Message.assistant("Done."), FinishReason.STOP, Usage(10, 5), "replay")]


def session(folder: Path, steps: int, emit: Emit | None = None) -> Session:
    return Session(
        profile=Profile("bench", ToolRegistry([noop()]), "Base."),
        environment=LocalEnvironment(folder),
        model=ReplayModel("replay", replies(steps)),
        host=Host(system=lambda _shown: "System.", emit=emit),
    )


async def one(folder: Path, steps: int, emit: Emit | None = None) -> float:
    """Seconds of a whole session, its events read as a host reads them."""
    async with session(folder, steps, emit) as talking:
        start = time.perf_counter()
        async for _event in talking.submit("Go"):
            pass
        return time.perf_counter() - start


async def per_step(folder: Path) -> None:
    print(f"\nOverhead of a step, replay model{'':10}{'a step':>10}{'of 100':>10}")
    await one(folder, 100)
    seconds = {
        steps: min([await one(folder, steps) for _ in range(3 if steps < LENGTHS[-1] else 1)]) / steps
        for steps in LENGTHS
    }
    for steps, each in seconds.items():
        print(f"{steps:>10,} steps{'':25}{each * 1000:8.3f}ms{each / seconds[LENGTHS[0]]:10.2f}")


ANSWERS = """
import http.server
class Takes(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Takes)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
"""A collector in a process of its own, which takes everything."""


@contextmanager
def collector() -> Iterator[str]:
    """The address of a collector in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", ANSWERS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def traces(folder: Path) -> None:
    """CPU time of a step whose events become spans that a collector takes, against the same step without."""
    steps, turns = 1_000, 5
    with collector() as address:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
        told: list[str] = []
        with observing(os.environ, SystemClock(), told.append) as opened:
            (spans,) = opened.follow("")
            spans(CycleStarted("run", "ada/calc", "replay", "native"))
            seconds: dict[str, list[float]] = {"off": [], "on": []}
            for turn in range(turns + 1):  # in turns, so that a busy machine is busy for both
                for name, emit in (("off", None), ("on", spans)):
                    start = time.process_time()  # of all threads, also the one that sends
                    await one(folder, steps, emit)
                    seconds[name] += [(time.process_time() - start) / steps] if turn else []
        assert told == []
        del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    off = statistics.median(seconds["off"])
    print(f"\nTraces, CPU of a step of {steps:,}, replay model, 3 spans{'':6}{'a step':>10}{'ratio':>10}")
    for name, values in seconds.items():
        each = statistics.median(values)
        print(f"{name:32}{each * 1000:8.3f}ms{each / off:10.2f}")


async def many(folder: Path) -> None:
    alone = await one(folder, STEPS) / STEPS
    start = time.perf_counter()
    await asyncio.gather(*(one(folder, STEPS) for _ in range(SESSIONS)))
    together = (time.perf_counter() - start) / (SESSIONS * STEPS)
    print(f"\n{SESSIONS} sessions at the same time, {STEPS} steps each")
    print(f"{'a step, one session':32}{alone * 1000:8.3f}ms")
    print(f"{'a step, all of them':32}{together * 1000:8.3f}ms{together / alone:10.2f}")


async def memory(folder: Path) -> None:
    """What Python holds while 100 finished sessions of 50 steps are kept, their history included."""

    async def kept() -> Session:
        talking = session(folder, STEPS)
        await talking.run("Go")
        return talking

    first = await kept()
    tracemalloc.start()
    all_of_them = [await kept() for _ in range(SESSIONS)]
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nMemory of a session of {STEPS} steps: {held / SESSIONS / 1000:.0f} kB")
    for talking in (first, *all_of_them):
        await talking.close()


def prefixes() -> None:
    """How much of each request's body is the beginning of the next one's, over a session of 50 steps."""
    print(f"\nShare of a request that begins the next one, {STEPS} steps{'':6}{'mean':>8}{'least':>8}")
    tools = tuple(tool.definition for tool in openai().tools)
    for name, wire in wires().items():
        bodies = [
            wire.encode(
                Request("System. " * 200, conversation, tools, reasoning_effort="low"), stream=True
            ).content
            for conversation in growing()
        ]
        shares = [common(a, b) / len(a) for a, b in pairwise(bodies)]
        print(f"{name:56}{statistics.mean(shares):8.1%}{min(shares):8.1%}")


def growing() -> list[Sequence[Message]]:
    said: list[Message] = [Message.user("Go")]
    stages: list[Sequence[Message]] = [tuple(said)]
    for n, reply in enumerate(replies(STEPS)[:-1]):
        said += [reply.message, Message(Role.TOOL, (ToolResult(f"c{n}", "noop", OUTPUT),))]
        stages.append(tuple(said))
    return stages


def common(a: bytes, b: bytes) -> int:
    """Length of the common beginning, without a loop over bytes."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


class FirstByte:
    """A server that sends the head of a stream and its first piece, and notes when."""

    PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    def __init__(self) -> None:
        self.sent = 0.0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.005)
        self.sent = time.perf_counter()
        writer.write(self.PIECE)
        await writer.drain()
        await asyncio.sleep(0.005)
        writer.write(self.END)
        writer.close()


async def first_event() -> None:
    """From the byte that the server sends to our event, against the bare HTTP library's first bytes."""
    import httpx2

    stub = FirstByte()
    server = await asyncio.start_server(stub.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    model = HttpModel("m", ChatWire.at(url, "m"), api_key=None, clock=SystemClock(), random=lambda: 0.0)
    request = Request("", (Message.user("Go"),))
    bare: list[float] = []
    ours: list[float] = []
    async with httpx2.AsyncClient() as client:
        for _ in range(FIRST_BYTES):
            async with client.stream("POST", f"{url}/chat/completions", content=b"{}") as response:
                async for _chunk in response.aiter_bytes():
                    bare.append(time.perf_counter() - stub.sent)
                    break
            async with aclosing(model.stream(request)) as events:
                times = [time.perf_counter() async for event in events if isinstance(event, TextPiece)]
                ours.append(times[0] - stub.sent)
    await model.aclose()
    server.close()
    base, mine = statistics.median(bare), statistics.median(ours)
    print("\nFrom the model's first byte to")
    print(f"{'the HTTP library':32}{base * 1000:8.3f}ms")
    print(f"{'our first event':32}{mine * 1000:8.3f}ms{mine / base:10.2f}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await per_step(folder)
        await traces(folder)
        await many(folder)
        await memory(folder)
    prefixes()
    await first_event()


if __name__ == "__main__":
    asyncio.run(main())
