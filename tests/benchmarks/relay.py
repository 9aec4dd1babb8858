"""What the relay adds to a request and to each piece of its reply, against a direct connection, in one run.

Run: python -m tests.benchmarks.relay [TRIES]

The model server, the relay and the agent are three processes. The server thinks for a while and then sends a piece
every few milliseconds, each with the time at which it was sent. The conversation grows with each request, as an
agent's does, so that each entry is new once.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import socket
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.clock import SystemClock
from orchestrator.engine.models.catalog import ModelRef, Provider
from orchestrator.engine.models.connect import AddressedModel
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.budget import Budget, Limits
from orchestrator.plugins.agents.relay import Relay, Upstream
from tests.doubles.vendor_replies import MODEL, Protocol, VendorReply, render

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from orchestrator.core.messages import Usage

THINK_SECONDS = 0.3
PIECE_SECONDS = 0.01
PIECES = 60
PLACEHOLDER = "placeholder-of-the-session"
SIZES = (40_000, 120_000, 600_000)
"""Bytes of the first request: an agent in its safe form, one with all tools, and a long conversation."""
TOOL_CHARS = 30_000
STEP_CHARS = 4_000
"""What each further request adds."""
SECRETS = [f"secret-{number}-{'abcdefghij' * 3}" for number in range(20)]


def free(_usage: Usage) -> float:
    """A price, so that all is counted."""
    return 0.000001


async def _serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, which is kept as vendors keep it."""
    try:
        while True:
            await _answer(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(int(length.split(b":")[1]))
    pieces = 0 if b'"short"' in body else PIECES
    await asyncio.sleep(THINK_SECONDS)
    begin, *_, delta, message_stop = (
        part + b"\n\n" for part in render(Protocol.MESSAGES, VendorReply(())).split(b"\n\n") if part
    )
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number in range(pieces + 1):
        sent = {"type": "text_delta", "text": f"word {number} "}
        event: dict[str, Any] = {"type": "content_block_delta", "index": 0, "delta": sent}
        data = f"event: x\ndata: {json.dumps({**event, 'at': time.monotonic_ns()})}\n\n".encode()
        if number == 0:
            data = begin + f"event: x\ndata: {json.dumps({**start, 'at': time.monotonic_ns()})}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(PIECE_SECONDS)
    data = delta + message_stop
    writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
    await writer.drain()


def _serve(ready: Connection) -> None:
    async def run() -> None:
        server = await asyncio.start_server(_serve_one, "127.0.0.1", 0, limit=2**22)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def _relay(ready: Connection, port: int) -> None:
    async def run() -> None:
        clock, redactor = SystemClock(), Redactor(SECRETS)
        named = AddressedModel(
            ModelRef(Provider.ANTHROPIC, MODEL), f"http://127.0.0.1:{port}", "key-0123456789"
        )
        relay = Relay(
            Upstream.of(named, price=free),
            budget=Budget(Limits(usd=1_000.0), clock),
            emit=lambda _event: None,
            redactor=redactor,
            placeholder=PLACEHOLDER,
            clock=clock,
            random=random.random,
        )
        redactor.redact(
            "What a session reads before, such as its task, has loaded what finds secrets: abcdefghijklmnop1"
        )
        await relay.open()
        listener = socket.create_server(("127.0.0.1", 0))
        ready.send(listener.getsockname()[1])
        await relay.serve(listener)

    asyncio.run(run())


@dataclass
class Times:
    """Milliseconds: to the first byte, of the whole reply, and from the sending of each piece to its arrival."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    pieces: list[float] = field(default_factory=list)


async def _ask(port: int, body: bytes, times: Times) -> None:
    begun = time.monotonic_ns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {PLACEHOLDER}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    status = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in status:
        raise RuntimeError(status, await reader.read(2_000))
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data = (await reader.readexactly(size + 2))[:-2]
        now = time.monotonic_ns()
        if not times.first or len(times.first) == len(times.whole):
            times.first.append((now - begun) / 1e6)
        for event in data.split(b"\n\n"):
            if b'"at"' in event:
                times.pieces.append((now - json.loads(event.partition(b"data: ")[2])["at"]) / 1e6)
    times.whole.append((time.monotonic_ns() - begun) / 1e6)
    writer.transport.abort()


def _prose(chars: int, seed: int) -> str:
    rng = random.Random(seed)  # noqa: S311  not for secrets
    words = [
        f"{rng.choice('abcdefgh')}{rng.randrange(10**5):x} = value_{rng.randrange(99)}(path)"
        for _ in range(chars // 28)
    ]
    return "\n".join(words)


def bodies(size: int, tries: int) -> list[bytes]:
    """Return the requests of a conversation that begins with this size."""
    tools = [
        {"name": f"tool_{n}", "description": _prose(TOOL_CHARS // 10, n), "input_schema": {}}
        for n in range(10)
    ]
    said = [
        {"role": "user", "content": _prose(STEP_CHARS, 100 + n)}
        for n in range((size - TOOL_CHARS) // STEP_CHARS)
    ]
    made = []
    for number in range(tries):
        said.append({"role": "assistant", "content": f"step {number}"})
        said.append({"role": "user", "content": _prose(STEP_CHARS, 10_000 + number)})
        value = {"model": MODEL, "stream": True, "max_tokens": 1_000, "tools": tools, "messages": said}
        made.append(json.dumps(value).encode())
    return made


def _cpu_ms(process: int) -> float:
    """Milliseconds of processor time of a process, which say more than its pace on a busy machine."""
    return time.clock_gettime(~process << 3 | 2) * 1e3  # the kernel's number of another process's clock


async def _measure(direct: int, relay: int, process: int, tries: int) -> None:
    print("                      first byte  added      %   a piece  added    processor time of the relay")
    print("                              ms     ms             ms     ms    a request ms    a piece ms")
    for size in SIZES:
        times = {"direct": Times(), "relay": Times(), "relay, 1st": Times()}
        cpu: list[float] = []
        cpu_of_one: list[float] = []
        for number, body in enumerate(bodies(size, tries)):
            await _ask(direct, body, times["direct"])
            before = _cpu_ms(process)
            await _ask(relay, body, times["relay" if number else "relay, 1st"])
            cpu.append(_cpu_ms(process) - before)
            before = _cpu_ms(process)
            await _ask(
                relay,
                body.replace(b'"stream": true', b'"stream": true, "stop_sequences": ["short"]'),
                Times(),
            )
            cpu_of_one.append(_cpu_ms(process) - before)
        whole, alone = (statistics.median(values[1:]) for values in (cpu, cpu_of_one))
        base = times["direct"]
        for name, one in times.items():
            first, most = statistics.median(one.first), statistics.median(base.first)
            piece, least = statistics.median(one.pieces), statistics.median(base.pieces)
            line = f"{size // 1_000:>6} kB {name:>11} {first:>10.1f} {first - most:>7.2f} {100 * (first / most - 1):>6.1f}"
            line += f" {piece:>9.3f} {piece - least:>6.3f}"
            print(line, f"{alone:>15.1f} {(whole - alone) / PIECES:>13.3f}" if name == "relay" else "")


def main() -> None:
    """Print the table."""
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    context = multiprocessing.get_context("spawn")
    started = []
    ports: list[int] = []
    try:
        for target in (_serve, _relay):
            ours, theirs = context.Pipe()
            process = context.Process(target=target, args=(theirs, *ports), daemon=True)
            process.start()
            theirs.close()
            started.append(process)
            ports.append(ours.recv())
        asyncio.run(_measure(ports[0], ports[1], started[1].pid or 0, tries))
    finally:
        for process in started:
            process.terminate()
            process.join()


if __name__ == "__main__":
    main()
