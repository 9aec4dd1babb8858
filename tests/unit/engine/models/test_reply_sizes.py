"""What a reply may hold: a small packed body never becomes a huge one in memory, whatever its form."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError, ProviderError
from orchestrator.core.messages import Message
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import parse_model
from orchestrator.engine.models.listing import find_model, only_model
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.transport import MAX_DOCUMENT_BYTES, HttpModel
from tests.doubles.loopback import Loopback, LoopbackHandler
from tests.doubles.sse_server import Answer, SseServer

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(300)  # one process unpacks all of them, on however busy a machine

_BLOCK_BYTES = 2**20
_BLOCKS = 140
_EVENTS = 20_000
_PEAK_BYTES = 220 * 2**20  # of the whole process; one that only imports what is needed has about 60

_CHUNK = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
_END = b'data: {"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}\n\n'

# What is unpacked first, and what is repeated 140 times after it.
_FORMS = {
    "a document": ("application/json", b'{"choices":[{"message":{"content":"', b"a" * _BLOCK_BYTES),
    "one event": ("text/event-stream", b'data: {"choices":[{"delta":{"content":"', b"a" * _BLOCK_BYTES),
    "many events": ("text/event-stream", b"", _CHUNK % (b"a" * (_BLOCK_BYTES - len(_CHUNK)))),
    "comments": ("text/event-stream", b"", b": aaaaaaaa\n" * 100_000),
    "lists": ("application/json", b'{"choices":[', b"[]," * 350_000),
    "a complete reply first": ("text/event-stream", _END, b"data: " + b"a" * _BLOCK_BYTES),
}
_ASK = """
import asyncio, pathlib, resource, sys
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ModelError
from orchestrator.core.messages import Message
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.transport import HttpModel
from orchestrator.engine.models.openai_chat import ChatWire

async def ask(model):
    try:
        async for event in model.stream(Request("", (Message.user("Hello"),))):
            last = event
        return last.response.text
    except ModelError as error:
        return f"{type(error).__name__}: {error}"

def peak_bytes():
    # Not from `ru_maxrss` where that can be helped: of a child it also counts the parent that it was forked from.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main():
    wire = ChatWire.at(sys.argv[1], "m")
    model = HttpModel("m", wire, api_key=None, clock=ManualClock(), random=lambda: 0.0)
    for _ in range(int(sys.argv[2])):
        said = await ask(model)
        print(peak_bytes(), said, flush=True)
    await model.aclose()

resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
asyncio.run(main())
"""


def packed(first: bytes, block: bytes, *, wbits: int) -> bytes:
    """A body that unpacks to `first` and 140 times `block`. It is cut: nobody reads as far as its end."""
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    begun = packer.compress(first) + packer.flush(zlib.Z_FULL_FLUSH)
    return begun + (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)) * _BLOCKS


def gzipped(first: bytes, block: bytes) -> bytes:
    return packed(first, block, wbits=zlib.MAX_WBITS | 16)


def deflated(first: bytes, block: bytes) -> bytes:
    return packed(first, block, wbits=zlib.MAX_WBITS)


_CASES = [
    *((form, gzipped, "gzip", 200) for form in _FORMS),
    ("a document", deflated, "deflate", 200),
    ("many events", deflated, "deflate", 200),
    ("a document", gzipped, "gzip", 400),
]


def _answer(case: tuple[str, Callable[[bytes, bytes], bytes], str, int]) -> Answer:
    form, packing, encoding, status = case
    kind, first, block = _FORMS[form]
    return Answer((packing(first, block),), status, {"content-type": kind, "content-encoding": encoding})


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[int, str]]:
    """The peak of one process that asks for all of them, after each, and what it got."""
    with SseServer(map(_answer, _CASES)) as server:
        command = [sys.executable, "-c", _ASK, server.url, str(len(_CASES))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert len(server.requests) == len(_CASES), f"none is asked for again; {done.stderr[-2_000:]}"
    assert {request.headers["accept-encoding"] for request in server.requests} == {"identity"}
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return [(int(peak), said) for peak, _, said in lines]


@pytest.mark.slow(reason="unpacks gigabytes")
@pytest.mark.parametrize(
    "number", range(len(_CASES)), ids=[f"{case[0]} {case[2]} {case[3]}" for case in _CASES]
)
def test_a_decompression_bomb_is_not_unpacked(number: int, outcomes: list[tuple[int, str]]) -> None:
    form, _, _, status = _CASES[number]
    peak, said = outcomes[number]
    assert peak < _PEAK_BYTES
    if form == "a complete reply first":
        assert said == "done"
    elif status == 200:
        assert "ProviderError" in said
        assert "bytes; the rest was not read" in said


async def test_a_reply_that_unpacks_to_many_events_can_be_cancelled() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    body = packer.compress(_CHUNK % b"a" * _EVENTS) + packer.flush()
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    seen = 0

    async def read() -> None:
        nonlocal seen
        async for _ in model.stream(Request("", (Message.user("Hello"),))):
            if not seen:
                asyncio.get_running_loop().call_soon(reading.cancel)
            seen += 1

    with SseServer([Answer((body,), headers=headers)]) as server:
        wire = ChatWire.at(server.url, "m")
        model = HttpModel("m", wire, api_key=None, clock=ManualClock(), random=lambda: 0.0)
        reading = asyncio.create_task(read())
        await asyncio.wait({reading})
        await model.aclose()
    assert reading.cancelled()
    assert 0 < seen < _EVENTS / 2


class _Endless(LoopbackHandler):
    def do_GET(self) -> None:  # noqa: N802  the base class's name
        assert self.headers["accept-encoding"] == "identity"
        self.send_response(200)
        self.send_header("Content-Length", str(MAX_DOCUMENT_BYTES + 1))
        self.end_headers()
        self.wfile.write(b"x" * (MAX_DOCUMENT_BYTES + 1))


def test_a_list_of_models_is_bounded_too() -> None:
    with (
        Loopback(_Endless) as server,
        pytest.raises(ConfigurationError, match="sent a list of models that is too large"),
    ):
        only_model(f"{server.root}/v1", None)
    ref = parse_model("openai:m")
    with Loopback(_Endless) as server, pytest.raises(ProviderError, match="sent a list of more than"):
        find_model(
            ref,
            f"{server.root}/v1",
            ChatWire.at(f"{server.root}/v1", "m"),
            None,
            now=datetime.now(UTC),
            seconds=60,
        )
