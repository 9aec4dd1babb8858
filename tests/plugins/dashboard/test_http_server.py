"""Who keeps connections shuts nobody out: real sockets, and clients that never do what they should."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.app.http_server import ServerLimits, listen, serving
from orchestrator.plugins.worker.serving import Receiver, receiving, serving_health
from tests.plugins.dashboard.scene import make_scene
from tests.plugins.worker.test_health import Scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from starlette.types import Receive, Send
    from starlette.types import Scope as AsgiScope

PATIENT = ServerLimits(
    connections=8,
    head_seconds=1e6,
    body_seconds=1e6,
    answer_seconds=1e6,
    stream_seconds=1e6,
    reader_seconds=1e6,
    closing_seconds=1e6,
    end_seconds=60.0,
)
"""No deadline helps."""
SOON = 0.2
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
HUGE = 20_000_000
"""More than the kernel keeps of a connection, in bytes."""

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class App:
    """Responds with what it got, waits at a gate, or never ends, as the path says."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])
        try:
            body = (await receive()).get("body", b"")
            if scope["path"] == "/wait":
                await self.gate.wait()
            if scope["path"] == "/left":
                await receive()
            told = f"{scope['method']} {scope['http_version']} {len(body)}".encode()
            if scope["path"] == "/huge":
                told = b"x" * HUGE
            length = [] if scope["path"] == "/stream" else [(b"content-length", str(len(told)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": length})
            if scope["path"] == "/stream":
                await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
                await self.gate.wait()
            await send({"type": "http.response.body", "body": told})
        except asyncio.CancelledError:
            self.cut.set()
            raise


class Clients:
    """Connections to one server, all open until the end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open: list[Client] = []

    async def send(self, data: bytes = b"") -> Client:
        client = await asyncio.open_connection("127.0.0.1", self.port)
        self.open.append(client)
        client[1].write(data)
        return client

    async def ask(self, data: bytes = GET) -> bytes:
        """The status and body of one response to somebody honest."""
        reader, _ = await self.send(data)
        return await response(reader)


async def response(reader: asyncio.StreamReader) -> bytes:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await asyncio.wait_for(reader.readexactly(int(length.split(b":")[1])), 60)
    return head.split(b" ")[1] + b" " + body


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection; the reader may have some bytes before it."""
    with suppress(ConnectionError):
        while await asyncio.wait_for(reader.read(65_536), 60):
            pass
    return True


@asynccontextmanager
async def served(app: Any, limits: ServerLimits) -> AsyncIterator[Clients]:
    """A server whose every failure fails the test."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: failures.append(told))
    with listen("127.0.0.1", 0) as bound:
        async with serving(app, bound, limits=limits):
            clients = Clients(bound.getsockname()[1])
            try:
                yield clients
            finally:
                await hang_up(clients)
    assert failures == []


async def hang_up(clients: Clients) -> None:
    for _, writer in clients.open:
        writer.transport.abort()
    await asyncio.sleep(0)


async def until(happened: Callable[[], bool]) -> None:
    """Let the server run until something has happened."""

    async def look() -> None:
        while not happened():  # noqa: ASYNC110  what is waited for is outside of this loop
            await asyncio.sleep(0)

    await asyncio.wait_for(look(), 60)


ATTACKS = {
    "nothing": b"",
    "a letter": b"G",
    "half a head": b"GET / HTTP/1.1\r\nHost: x\r\nX: ",
    "the longest head": b"GET / HTTP/1.1\r\nX: " + b"a" * 8_000,
    "a head without end": b"GET / HTTP/1.1\r\nX: " + b"a" * 1_000_000,
    "a request and a piece": GET + b"GET / HT",
    "a request": GET,
    "requests whose responses nobody reads": GET * 200,
    "a body that does not come": POST + b"Content-Length: 100\r\n\r\nx",
    "a body that is asked for": POST + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
    "a body in endless chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 500,
    "the extension of a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 4_000,
    "trailers": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n",
    "a length of many digits": POST + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a body that is too long": POST + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00",
    "an upgrade to HTTP/2": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "a tunnel": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a response that nobody reads": GET.replace(b"/ ", b"/huge ", 1),
    "HTTP/1.0": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_connections_that_wait_for_their_clients_make_room(attack: str) -> None:
    async with served(App(), PATIENT) as clients:
        for _ in range(3 * PATIENT.connections):
            await clients.send(ATTACKS[attack])
            assert await clients.ask() == b"200 GET 1.1 0"


@pytest.mark.parametrize("attack", ["a request and a piece", "a body that does not come", "a letter"])
async def test_half_closed_connections_make_room(attack: str) -> None:
    async with served(App(), PATIENT) as clients:
        for _ in range(3 * PATIENT.connections):
            _, writer = await clients.send(ATTACKS[attack])
            writer.write_eof()
            assert await clients.ask() == b"200 GET 1.1 0"


class Real:
    """The servers of the program, with their own limits."""

    @staticmethod
    @asynccontextmanager
    async def dashboard(folder: Path) -> AsyncIterator[tuple[int, bytes, int]]:
        with listen("127.0.0.1", 0) as bound:
            async with serving(make_scene(folder).app, bound):
                yield bound.getsockname()[1], b"403", 64

    @staticmethod
    @asynccontextmanager
    async def webhook(_folder: Path) -> AsyncIterator[tuple[int, bytes, int]]:
        async with receiving(Receiver("secret", [], lambda _digest, _key: True), "127.0.0.1", 0) as port:
            yield port, b"404", 64

    @staticmethod
    @asynccontextmanager
    async def health(_folder: Path) -> AsyncIterator[tuple[int, bytes, int]]:
        async with serving_health(Scene().health, "127.0.0.1", 0) as port:
            yield port, b"403", 16


@pytest.mark.parametrize("server", ["dashboard", "webhook", "health"])
async def test_a_whole_request_and_a_piece_of_the_next_one_shut_nobody_out(
    tmp_path: Path, server: str
) -> None:
    async with getattr(Real, server)(tmp_path) as (port, status, most):
        clients = Clients(port)
        for _ in range(most):
            reader, writer = await clients.send(GET)
            assert (await response(reader)).startswith(status)
            writer.write(b"GET / HT")
        assert (await clients.ask()).startswith(status)
        assert await is_closed(clients.open[0][0])
        await hang_up(clients)


async def test_an_idle_connection_makes_room_before_one_that_has_just_come() -> None:
    async with served(App(), replace(PATIENT, connections=3)) as clients:
        fresh, sender = await clients.send(b"GET / HT")
        bodies, _ = await clients.send(POST + b"Content-Length: 3\r\n\r\nx")
        idle, _ = await clients.send(GET)
        assert await response(idle) == b"200 GET 1.1 0"
        await clients.send()
        assert await is_closed(idle)
        await clients.send()
        assert await is_closed(fresh)
        clients.open[1][1].write(b"yz")
        assert await response(bodies) == b"200 POST 1.1 3"
        del sender


async def test_if_all_are_at_work_a_further_connection_is_refused() -> None:
    app = App()
    async with served(app, replace(PATIENT, connections=3)) as clients:
        working = [await clients.send(GET.replace(b"/ ", b"/wait ", 1)) for _ in range(3)]
        await until(lambda: len(app.begun) == 3)
        for _ in range(5):
            assert await clients.ask() == b"503 there are too many connections\n"
        app.gate.set()
        assert [await response(reader) for reader, _ in working] == [b"200 GET 1.1 0"] * 3
        assert await clients.ask() == b"200 GET 1.1 0"


async def test_the_oldest_stream_makes_room_for_a_new_one() -> None:
    app = App()
    async with served(app, replace(PATIENT, streams=4)) as clients:
        streams = []
        for _ in range(7):
            reader, _ = await clients.send(GET.replace(b"/ ", b"/stream ", 1))
            assert b"first" in await reader.readuntil(b"first\n")
            streams.append(reader)
        assert [await is_closed(reader) for reader in streams[:3]] == [True] * 3
        assert await clients.ask() == b"200 GET 1.1 0"
        app.gate.set()
        for reader in streams[3:]:
            assert b"0\r\n\r\n" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 60)


async def test_a_stream_ends_when_its_client_leaves() -> None:
    app = App()
    async with served(app, PATIENT) as clients:
        reader, writer = await clients.send(GET.replace(b"/ ", b"/left ", 1))
        await until(lambda: app.begun == ["/left"])
        writer.write_eof()
        assert await response(reader) == b"200 GET 1.1 0"


DRIPS: dict[str, tuple[bytes, bytes, dict[str, Any], bytes]] = {
    "a first head": (b"G", b"E", {"head_seconds": SOON}, b""),
    "a field of a head": (b"GET / HTTP/1.1\r\nX: ", b"x", {"head_seconds": SOON}, b""),
    "a next head": (GET, b"\r\n", {"head_seconds": SOON}, b"200"),
    "a piece of a next head": (GET + b"GET /", b"x", {"head_seconds": SOON}, b"200"),
    "a body": (POST + b"Content-Length: 100000\r\n\r\n", b"x", {"body_seconds": SOON}, b"408"),
    "a body in chunks": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n",
        b"1;x=y\r\nx\r\n",
        {"body_seconds": SOON},
        b"408",
    ),
    "an extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x", {"body_seconds": SOON}, b"408"),
    "after the last response": (
        GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        b"x",
        {"closing_seconds": SOON},
        b"200",
    ),
    "while the application works": (
        GET.replace(b"/ ", b"/wait ", 1),
        b"x",
        {"answer_seconds": SOON},
        b"503",
    ),
    "while it sends": (GET.replace(b"/ ", b"/stream ", 1), b"x", {"stream_seconds": SOON}, b"200"),
}


@pytest.mark.parametrize("place", DRIPS)
async def test_no_byte_moves_a_deadline(place: str) -> None:
    first, drop, limits, status = DRIPS[place]
    async with served(App(), replace(PATIENT, **limits)) as clients:
        reader, writer = await clients.send(first)
        got = bytearray()
        reading = asyncio.ensure_future(read_all(reader, got))
        for _ in range(2_000):
            writer.write(drop)
            done, _ = await asyncio.wait([reading], timeout=0.01)
            if done:
                break
        assert reading.done()
        assert got.partition(b"\r\n")[0].removeprefix(b"HTTP/1.1 ").partition(b" ")[0] == status


async def read_all(reader: asyncio.StreamReader, got: bytearray) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            got += data


async def test_who_does_not_read_is_cut_off() -> None:
    app = App()
    async with served(app, replace(PATIENT, reader_seconds=SOON)) as clients:
        await clients.send(GET.replace(b"/ ", b"/huge ", 1))
        await asyncio.wait_for(app.cut.wait(), 60)


async def test_a_huge_response_comes_whole_to_who_reads_it() -> None:
    async with served(App(), PATIENT) as clients:
        assert len(await clients.ask(GET.replace(b"/ ", b"/huge ", 1))) == HUGE + len(b"200 ")


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (GET.replace(b"1.1", b"1.0"), b"200 GET 1.0 0"),
        (POST + b"Content-Length: 3\r\n\r\nabc", b"200 POST 1.1 3"),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\nX: y\r\n\r\n",
            b"200 POST 1.1 3",
        ),
        (POST + b"Content-Length: 131073\r\n\r\n", b"413 the body is too long\n"),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n20001\r\n" + b"x" * 131_073,
            b"413 the body is too long\n",
        ),
        (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", b"400 this is not a request\n"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", b"400 this is not a request\n"),
    ],
)
async def test_what_is_answered(request_bytes: bytes, answer: bytes) -> None:
    async with served(App(), PATIENT) as clients:
        assert await clients.ask(request_bytes) == answer


async def test_requests_in_a_row_are_answered_in_a_row() -> None:
    async with served(App(), PATIENT) as clients:
        reader, writer = await clients.send(GET + POST + b"Content-Length: 2\r\n\r\nab" + GET)
        got = [await response(reader) for _ in range(3)]
        assert got == [b"200 GET 1.1 0", b"200 POST 1.1 2", b"200 GET 1.1 0"]
        writer.write(POST + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"x")
        assert await response(reader) == b"200 POST 1.1 1"
        writer.write(GET.replace(b"GET", b"HEAD"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 10\r\n" in head
        writer.write(GET)
        assert await response(reader) == b"200 GET 1.1 0"


PIECES = [
    *(GET, POST, b"\r\n", b"\r\n\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"abc"),
    *(
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: x\r\n",
        b"3\r\nabc\r\n",
    ),
    *(
        b"0\r\n\r\n",
        b"1;",
        b"\x00",
        b"\xff" * 9,
        b"HEAD /stream HTTP/1.0\r\n",
        b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    *(
        b"CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /left HTTP/1.1\r\nHost: x\r\n\r\n",
        b"Content-Length: 9999999999\r\n",
    ),
]


@settings(max_examples=60)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=12), st.booleans())
def test_whatever_is_sent_the_server_goes_on_and_nothing_fails(pieces: list[bytes], half: bool) -> None:  # noqa: FBT001  a drawn value
    async def play() -> None:
        app = App()
        app.gate.set()
        async with served(app, replace(PATIENT, connections=2)) as clients:
            for _ in range(3):
                _, writer = await clients.send()
                for piece in pieces:
                    writer.write(piece)
                if half:
                    writer.write_eof()
                assert await clients.ask() == b"200 GET 1.1 0"

    asyncio.run(play())
