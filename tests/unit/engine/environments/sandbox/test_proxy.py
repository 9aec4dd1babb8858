"""The door to the network: which names, which addresses, and what it makes of bad requests."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.addresses import is_public
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.environments.sandbox import proxy as proxy_module
from orchestrator.engine.environments.sandbox.proxy import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    Proxy,
    connect_public,
    explain_refused,
    host_rule,
)
from tests.doubles.certificates import client_context, server_context
from tests.tables import table
from tests.unit.engine.environments.sandbox.test_client_hello import with_extension

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RULES = [
    host_rule("pypi.org"), host_rule("*.example.org"), host_rule("db.example.com:5432"), host_rule("db.example.com:6432"),
    host_rule("93.184.215.14"),
]  # fmt: skip


@table(
    ("host", "port", "allowed"),
    [
        ("pypi.org", 443, True),
        ("pypi.org", 80, True),
        ("pypi.org", 22, False),
        ("xpypi.org", 443, False),
        ("pypi.org.evil.example", 443, False),
        ("a.pypi.org", 443, False),
        ("a.b.example.org", 443, True),
        ("example.org", 443, False),
        ("evilexample.org", 443, False),
        ("db.example.com", 5432, True),
        ("db.example.com", 443, False),
    ],
)
def test_rules(host: str, port: int, allowed: bool) -> None:  # noqa: FBT001  a table's column
    assert any(rule.allows(host, port) for rule in RULES) is allowed


@table(
    "text", ["", "*", "*.", "*.org", "http://pypi.org", "a:b", "a:0", "a:70000", "a b", "a:", "::1", "a/b"]
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-host"):
        host_rule(text)


def test_the_message_about_a_refused_host() -> None:
    told = "refused connection to {}; the person who runs this can allow it with --allow-host {}"
    for place, host in (("a.b:80", "a.b"), ("pypi.org:443", "pypi.org"), ("pypi.org:8443", "pypi.org:8443")):
        assert explain_refused(place) == told.format(place, host)
    assert explain_refused("a.b:443 it is late") == "refused connection to a.b:443: it is late"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "0.0.0.1", "224.0.0.1", "255.255.255.255",
     "100.64.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
     "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "168.63.129.16", "nonsense", ""],
)  # fmt: skip
async def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(OSError):  # noqa: PT011  of any kind
        await connect_public(address, 80)


def test_addresses_that_are_public() -> None:
    assert is_public("93.184.215.14")
    assert is_public("2606:2800:21f:cb07:6820:80da:af6b:8b2c")


class Door:
    """A proxy in front of one server that answers what it was sent."""

    def __init__(self, port: int) -> None:
        self.asked: list[tuple[str, int]] = []
        self.proxy = Proxy(RULES, self.connect)
        self.port = 0
        self._far = port

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.asked.append((host, port))
        if port == 5432:
            raise PermissionError("no public address")
        return await asyncio.open_connection("127.0.0.1", self._far)

    async def say(self, data: bytes, *, half_close: bool = False) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            if half_close or not data.startswith(b"CONNECT"):
                writer.write_eof()
            async with asyncio.timeout(10):
                return await reader.read(-1 if half_close else 100_000)
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"FAR " + await reader.read(100_000))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    door = Door(server.sockets[0].getsockname()[1])
    listener = socket.create_server(("127.0.0.1", 0))
    door.port = listener.getsockname()[1]
    await door.proxy.serve(listener)
    yield door
    await door.proxy.close()
    server.close()


async def test_a_plain_request_is_handed_on_to_the_named_host_only(door: Door) -> None:
    answer = await door.say(
        b"GET http://pypi.org/a?b HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\nA: b\r\n\r\n"
    )
    assert answer == b"FAR GET /a?b HTTP/1.1\r\nHost: pypi.org\r\nA: b\r\nConnection: close\r\n\r\n"
    assert door.asked == [("pypi.org", 80)]


async def test_a_host_that_is_not_allowed_is_reported_once_by_name(door: Door) -> None:
    for _ in range(2):
        answer = await door.say(b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"--allow-host evil.example" in answer
    await door.say(b"GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n")
    await door.say(b"GET http://user@pypi.org@evil.example:81/ HTTP/1.1\r\n\r\n")
    assert door.proxy.refused == ("evil.example:443", "169.254.169.254:80", "evil.example:81")
    assert door.asked == []
    assert (await door.say(b"CONNECT db.example.com:5432 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize(
    "head",
    [b"", b"x", b"GET / HTTP/1.1", b"PRI * HTTP/2.0", b"GET http://pypi.org/ HTTP/2.0", b"GET http://pypi.org/ HTTP/0.9",
     b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
     b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
     b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: +1", b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: 1 1",
     b"POST http://pypi.org/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
     b"POST http://pypi.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
     b"POST http://pypi.org/ HTTP/1.1\r\nTransfer-Encoding: xchunked", b"GET https://pypi.org/ HTTP/1.1", b"CONNECT pypi.org HTTP/1.1",
     b"CONNECT pypi.org:x HTTP/1.1", b"CONNECT [::1]:443 HTTP/1.1", b"GET http://pypi.org:99999/ HTTP/1.1",
     b"GET http://[::1 HTTP/1.1", b"CONNECT evil.example\t:443 HTTP/1.1", b"\xff \xff \xff", b"GET file:///etc/passwd HTTP/1.1",
     b"CONNECT pypi.org\x00.evil.example:443 HTTP/1.1", b"CONNECT pypi.org:443@evil.example:443 HTTP/1.1",
     b"CONNECT 2130706433 HTTP/1.1", b"GET http://pypi.org/ HTTP/1.1\r\nHost : evil.example",
     b"GET http://pypi.org/ HTTP/1.1\r\nA: b\nHost: evil.example", b"GET http://pypi.org/ HTTP/1.1\r\nA: b\r\n Host: evil.example",
     b"GET http://pypi.org/ HTTP/1.1\r\nA: b\rHost: evil.example", b"GET http://pypi.org/ HTTP/1.1\r\nA: b\x00c",
     b"GET http://pypi.org/ HTTP/1.1\nX-Forwarded-Host:evil.example", b"GET http://pypi.org/ HTTP/1.1\rForwarded:host=evil.example",
     b"GET http://pypi.org/\tHTTP/1.1 HTTP/1.1", b"GET\n http://pypi.org/ HTTP/1.1"],
)  # fmt: skip
async def test_requests_that_make_no_sense(head: bytes, door: Door) -> None:
    assert (await door.say(head + b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert door.asked == []
    assert door.proxy.refused == ()


async def test_a_head_without_end_and_too_many_at_once(door: Door) -> None:
    assert await door.say(b"GET http://pypi.org/" + b"x" * (MAX_HEAD_BYTES * 3)) == b""
    long = b"GET http://pypi.org/ HTTP/1.1\r\nA: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n"
    assert await door.say(long) == b""
    assert door.asked == []
    waiting = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(MAX_CONNECTIONS)]
    assert await door.say(b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n") == b""
    for _, writer in waiting:
        writer.transport.abort()


FAR = b"FAR "
FIELDS = b"Connection: close\r\n\r\n"
OTHER = b"GET http://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"


@pytest.mark.parametrize(
    ("asked", "handed_on"),
    [
        (b"GET http://pypi.org/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + OTHER, b"GET / HTTP/1.1\r\nHost: pypi.org\r\n"),
        (b"GET http://pypi.org HTTP/1.1\r\n\r\n" + OTHER, b"GET / HTTP/1.1\r\nHost: pypi.org\r\n"),
        (b"POST http://pypi.org/p HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody" + OTHER,
         b"POST /p HTTP/1.1\r\nHost: pypi.org\r\nContent-Length: 4\r\n"),
        (b"POST http://pypi.org/p HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\n"
         b"Host: evil.example.org\r\n\r\n" + OTHER, b"POST /p HTTP/1.1\r\nHost: pypi.org\r\nTransfer-Encoding: chunked\r\n"),
        ((b"GET http://pypi.org/ HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nConnection: upgrade, http2-settings, b, host\r\n"
         b"A: b\r\nB: c\r\nX-Forwarded-Host: evil.example.org\r\nX_Forwarded_Host: evil.example.org\r\nForwarded: host=evil.example.org\r\nKeep-Alive: 9\r\n\r\n"),
         b"GET / HTTP/1.1\r\nHost: pypi.org\r\nA: b\r\n"),
        (b"GET http://evil@pypi.org:80//evil.example.org/?http://x#y HTTP/1.1\r\n\r\n",
         b"GET //evil.example.org/?http://x HTTP/1.1\r\nHost: pypi.org\r\n"),
    ],
)  # fmt: skip
async def test_one_request_is_made_anew_and_what_follows_is_dropped(
    asked: bytes, handed_on: bytes, door: Door
) -> None:
    answer = await door.say(asked)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head + b"\r\n\r\n" == FAR + handed_on + FIELDS
    assert body in {b"", b"body"} or h11_body(answer.removeprefix(FAR)) == b"body"
    assert b"evil.example.org" not in body
    assert len(door.asked) == 1


def h11_body(request: bytes) -> bytes:
    """The body as another reader of HTTP finds it, and nothing after it."""
    server, body = h11.Connection(h11.SERVER), b""
    server.receive_data(request)
    while not isinstance(event := server.next_event(), h11.EndOfMessage):
        body += bytes(event.data) if isinstance(event, h11.Data) else b""
    assert server.trailing_data == (b"", False)
    assert not list(event.headers)
    return body


@given(
    st.lists(st.binary(max_size=60), max_size=4),
    st.sampled_from([b"5", b"05", b"0", b" 5", b"5, 5", b"0x5", b"-1", b"5_0"]),
)
def test_whatever_stands_in_a_head_one_request_for_one_host_goes_out(
    lines: list[bytes], length: bytes
) -> None:
    head = b"\r\n".join([b"POST http://pypi.org/x HTTP/1.1", *lines, b"Content-Length: " + length, b"", b""])
    if head.count(b"\r\n\r\n") > 1:
        return
    request = proxy_module._Request(head, "pypi.org", 80, "/x")
    if request.is_plain:
        server = h11.Connection(h11.SERVER)
        server.receive_data(request._first)
        event = server.next_event()
        assert isinstance(event, h11.Request)
        assert [value for name, value in event.headers if name == b"host"] == [b"pypi.org"]
        assert request._first.count(b"\r\n\r\n") == 1


async def test_an_unfinished_body_reaches_nobody_as_a_whole_request(door: Door) -> None:
    answer = await door.say(
        b"POST http://pypi.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\nx\r\n"
    )
    assert b"0\r\n\r\n" not in answer


async def test_after_connect_port_80_takes_one_request_as_well(door: Door) -> None:
    answer = await door.say(
        b"CONNECT pypi.org:80 HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\nHost: evil.example.org\r\n\r\n" + OTHER,
        half_close=True,
    )
    assert answer.partition(b"\r\n\r\n")[2] == b"FAR GET /a HTTP/1.1\r\nHost: pypi.org\r\n" + FIELDS
    for inner in (
        b"SSH-2.0-x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        OTHER,
        b"\r\n" + OTHER,
        b"GET /a HTTP/1.1\nForwarded:host=evil.example.org\r\n\r\n",
    ):
        answer = await door.say(b"CONNECT pypi.org:80 HTTP/1.1\r\n\r\n" + inner, half_close=True)
        assert b"FAR" not in answer
        assert b" 400 " in answer


@pytest.mark.parametrize(
    "inner", [b"GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01"]
)
async def test_port_443_begins_with_tls(inner: bytes, door: Door) -> None:
    answer = await door.say(b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n" + inner, half_close=True)
    assert b"FAR" not in answer
    assert b"refused connection to pypi.org:443: it does not begin with TLS" in answer
    assert door.proxy.refused == ("pypi.org:443 it does not begin with TLS",)


async def test_a_port_that_was_named_carries_any_protocol(door: Door) -> None:
    answer = await door.say(b"CONNECT db.example.com:6432 HTTP/1.1\r\n\r\nhello", half_close=True)
    assert answer.endswith(b"FAR hello")


class Tls:
    """A server that answers in TLS with the name it was asked for, behind a proxy."""

    def __init__(self, port: int, seen: list[str]) -> None:
        self.seen = seen
        self.proxy = Proxy(RULES, lambda _host, _port: asyncio.open_connection("127.0.0.1", port))
        self.port = 0

    async def open(self, place: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A tunnel."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def ask(self, place: str, name: str | None, *, change: Change = bytes, piece: int = 1 << 20) -> str:
        """What the server says, or the reason why nothing was said."""
        reader, writer = await self.open(place)
        context = client_context()
        context.check_hostname = name is not None
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = context.wrap_bio(incoming, outgoing, server_hostname=name)
        try:
            async with asyncio.timeout(20):
                while True:
                    try:
                        near.do_handshake()
                        writer.write(outgoing.read())
                        return near.read(100).decode()
                    except ssl.SSLWantReadError:
                        data = change(outgoing.read())
                        for start in range(0, len(data), piece):
                            writer.write(data[start : start + piece])
                            await writer.drain()
                        if not (said := await reader.read(10_000)):
                            return "nothing"
                        incoming.write(said)
        except (ssl.SSLError, ConnectionError) as error:
            return str(error)
        finally:
            writer.transport.abort()


Change: TypeAlias = Callable[[bytes], bytes]


@pytest.fixture
async def tls() -> AsyncIterator[Tls]:
    seen: list[str] = []

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"in TLS")
        with suppress(OSError):
            await writer.drain()
            writer.close()

    context = server_context()
    context.set_ecdh_curve("secp521r1")  # so that a client of today is asked for a second hello
    context.sni_callback = lambda _socket, name, _context: seen.append(name or "")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    made = Tls(server.sockets[0].getsockname()[1], seen)
    listener = socket.create_server(("127.0.0.1", 0))
    made.port = listener.getsockname()[1]
    await made.proxy.serve(listener)
    yield made
    await made.proxy.close()
    server.close()


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("place", ["pypi.org:443", "PyPI.org.:443", "pypi.org:80"])
async def test_tls_to_the_host_that_was_allowed(place: str, piece: int, tls: Tls) -> None:
    assert await tls.ask(place, "pypi.org", piece=piece) == "in TLS"
    assert set(tls.seen) == {"pypi.org"}
    assert tls.proxy.refused == ()


@pytest.mark.parametrize(
    ("place", "name", "told"),
    [
        ("pypi.org:443", "evil.example", "evil.example:443"),
        ("pypi.org:80", "evil.example", "evil.example:80"),
        ("db.example.com:6432", "evil.example", "evil.example:6432"),
        ("pypi.org:443", "a.example.org", "pypi.org:443 its TLS asks for a.example.org"),
        ("a.example.org:443", "evil.example.org", "a.example.org:443 its TLS asks for evil.example.org"),
        ("pypi.org:443", None, "pypi.org:443 its TLS names no server"),
    ],
)
async def test_tls_to_another_host_behind_the_same_address(
    place: str, name: str | None, told: str, tls: Tls
) -> None:
    said = await tls.ask(place, name)
    assert "unrecognized name" in said
    assert tls.seen == []
    assert tls.proxy.refused == (told,)


async def test_an_address_that_was_allowed_needs_no_name(tls: Tls) -> None:
    await tls.ask("93.184.215.14:443", None)
    assert tls.seen == [""] * len(tls.seen) != []
    assert tls.proxy.refused == ()


async def test_a_second_hello_asks_for_the_same_host(tls: Tls) -> None:
    """A server that wants another kind of key asks again, and goes by the second name."""
    hellos = itertools.count()

    def change(data: bytes) -> bytes:
        return data.replace(b"a.example.org", b"b.example.org") if next(hellos) else data

    said = await tls.ask("a.example.org:443", "a.example.org", change=change)
    assert "unrecognized name" in said
    assert "b.example.org" not in tls.seen
    assert tls.proxy.refused == ("a.example.org:443 its TLS asks for b.example.org",)


async def test_a_hidden_second_name_is_refused(tls: Tls) -> None:
    said = await tls.ask(
        "pypi.org:443", "pypi.org", change=lambda data: with_extension(data, 0xFE0D, bytes(99))
    )
    assert "unrecognized name" in said
    assert "(ECH)" in tls.proxy.refused[0]


async def test_what_is_no_hello(tls: Tls) -> None:
    said = await tls.ask("pypi.org:443", "pypi.org", change=lambda _data: b"\x16" + bytes(99))
    assert "unrecognized name" in said
    assert tls.proxy.refused == ("pypi.org:443 not a TLS hello",)


@given(st.binary(max_size=200))
def test_no_first_line_is_a_surprise(line: bytes) -> None:
    _, host, port, _ = proxy_module._destination(line)
    assert not host or (host.isascii() and host.isprintable() and 0 < port < 65_536)
