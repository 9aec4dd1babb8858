"""The door to the network: which names, which addresses, and what it makes of bad requests."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.addresses import is_public
from orchestrator.core.errors import ConfigurationError
from orchestrator.environments import proxy as proxy_module
from orchestrator.environments.hosts import connect_public, flag_for, host_rule
from orchestrator.environments.proxy import MAX_CONNECTIONS, MAX_HEAD_BYTES, Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RULES = [host_rule("pypi.org"), host_rule("*.example.org"), host_rule("db.example.com:5432")]


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "*.org", "http://pypi.org", "a:b", "a:0", "a:70000", "a b", "a:", "::1", "a/b"]
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-host"):
        host_rule(text)


def test_flags() -> None:
    assert flag_for("pypi.org:443") == "--allow-host pypi.org"
    assert flag_for("pypi.org:8443") == "--allow-host pypi.org:8443"


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

    async def say(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            if not data.startswith(b"CONNECT"):
                writer.write_eof()
            async with asyncio.timeout(10):
                return await reader.read(100_000)
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


async def test_a_tunnel(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"CONNECT PyPI.org.:443 HTTP/1.1\r\n\r\n")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"hello")
    assert await reader.read(100) == b"FAR hello"
    writer.transport.abort()
    assert door.asked == [("pypi.org", 443)]


async def test_what_is_not_allowed_is_refused_by_name_and_told_once(door: Door) -> None:
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
    [b"", b"x", b"GET / HTTP/1.1", b"GET https://pypi.org/ HTTP/1.1", b"CONNECT pypi.org HTTP/1.1",
     b"CONNECT pypi.org:x HTTP/1.1", b"CONNECT [::1]:443 HTTP/1.1", b"GET http://pypi.org:99999/ HTTP/1.1",
     b"GET http://[::1 HTTP/1.1", b"CONNECT evil.example\t:443 HTTP/1.1", b"\xff \xff \xff", b"GET file:///etc/passwd HTTP/1.1",
     b"CONNECT pypi.org\x00.evil.example:443 HTTP/1.1", b"CONNECT pypi.org:443@evil.example:443 HTTP/1.1",
     b"CONNECT 2130706433 HTTP/1.1", b"GET http://pypi.org/ HTTP/1.1\r\nHost : evil.example",
     b"GET http://pypi.org/ HTTP/1.1\r\nA: b\nHost: evil.example", b"GET http://pypi.org/ HTTP/1.1\r\nA: b\r\n Host: evil.example",
     b"GET http://pypi.org/ HTTP/1.1\r\nA: b\rHost: evil.example", b"GET http://pypi.org/ HTTP/1.1\r\nA: b\x00c"],
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


@given(st.binary(max_size=200))
def test_no_first_line_is_a_surprise(line: bytes) -> None:
    _, host, port, _ = proxy_module._destination(line)
    assert not host or (host.isascii() and host.isprintable() and 0 < port < 65_536)
