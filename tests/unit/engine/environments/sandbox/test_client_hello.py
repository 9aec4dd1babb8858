"""Which server a TLS hello asks for. OpenSSL makes the hellos, and says what it reads in those that were changed."""

from __future__ import annotations

import asyncio
import functools
import itertools
import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.environments.sandbox.proxy import (
    ANSWER_BYTES,
    MAX_HELLO_BYTES,
    ClientHello,
    asks_for_second_hello,
    host_name,
    receive_hello,
)
from tests.doubles.certificates import client_context, server_context
from tests.tables import table

SERVER = server_context()
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,20}(-[a-z0-9]{1,9})?(\.[a-z0-9]{1,20}){1,4}", fullmatch=True)
VERSIONS = st.sampled_from([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@functools.cache
def client(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client_context()
    context.maximum_version = version
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def made(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """One record of OpenSSL's."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client(version).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def answered(server: ssl.SSLContext, data: bytes) -> bytes:
    """What OpenSSL's server says to a hello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(data)
    with suppress(ssl.SSLError):
        server.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return outgoing.read()


def read_by_openssl(data: bytes) -> str | None:
    """The name that a server of OpenSSL is asked for; None where it does not come to that."""
    asked: list[str] = []
    SERVER.sni_callback = lambda _socket, name, _context: asked.append(name or "")
    answered(SERVER, data)
    return asked[0] if asked else None


def received(*pieces: bytes) -> tuple[bytes, ClientHello]:
    """What is read of pieces that come one after the other, and then no more."""

    async def read() -> tuple[bytes, ClientHello]:
        reader = asyncio.StreamReader()
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        return await receive_hello(reader)

    return asyncio.run(read())


def records(message: bytes, cuts: list[int]) -> bytes:
    """A message in records that end at these places."""
    places = sorted({0, len(message), *(cut % len(message) for cut in cuts)})
    parts = [message[start:end] for start, end in itertools.pairwise(places)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


@given(NAMES, VERSIONS, st.lists(st.integers(1, 2_000), max_size=9), st.integers(0, 2_000))
def test_the_name_is_found_in_whatever_records_and_pieces(
    name: str, version: ssl.TLSVersion, cuts: list[int], piece: int
) -> None:
    data = records(made(name, version)[5:], cuts)
    assert read_by_openssl(data) == name
    raw, hello = received(data[: piece % len(data)], data[piece % len(data) :])
    assert raw == data
    assert hello == ClientHello(name, encrypted=False)


@given(NAMES, st.integers(0, 2_000))
def test_a_part_of_it_is_not_enough(name: str, end: int) -> None:
    data = made(name)
    with pytest.raises(EOFError):
        received(data[: end % len(data)])


@given(st.data())
def test_a_server_reads_no_other_name_in_what_was_changed(data: st.DataObject) -> None:
    """The name that is let through is the one that OpenSSL goes by, or OpenSSL does not go on."""
    name = data.draw(NAMES)
    hello = bytearray(made(name))
    for place in data.draw(st.lists(st.integers(0, len(hello) - 1), max_size=4)):
        hello[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        hello += made(data.draw(NAMES))
    try:
        raw, read = received(bytes(hello))
    except (ValueError, EOFError):
        return
    said = read_by_openssl(raw)
    assert said is None or host_name(said) == read.name or said == read.name


def with_extension(record: bytes, number: int, content: bytes) -> bytes:
    """A hello with one more extension at its end."""
    more = number.to_bytes(2) + len(content).to_bytes(2) + content
    message = bytearray(record[5:])
    place = 4 + 34
    place += 1 + message[place]
    place += 2 + int.from_bytes(message[place : place + 2])
    place += 1 + message[place]
    length = int.from_bytes(message[place : place + 2]) + len(more)
    message[place : place + 2] = length.to_bytes(2)
    message += more
    message[1:4] = (len(message) - 4).to_bytes(3)
    return records(bytes(message), [])


def named(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes([kind]) + len(name).to_bytes(2) + name for name in names)
    return len(entries).to_bytes(2) + entries


def test_no_name_and_a_hidden_one() -> None:
    assert received(made(None))[1] == ClientHello("", encrypted=False)
    assert received(with_extension(made("a.example"), 0xFE0D, b"\0" * 40))[1] == ClientHello(
        "a.example", encrypted=True
    )
    assert received(with_extension(made("a.example"), 0xFFCE, b""))[1].encrypted
    assert received(with_extension(made(None), 0, named(b"A.Example.")))[1].name == "a.example"


BARE = made(None)


@table(
    "data",
    [
        with_extension(made("a.example"), 0, named(b"b.example")),  # a second one
        with_extension(BARE, 0, named(b"a.example", b"b.example")),
        with_extension(BARE, 0, named(b"a.example", kind=1)),
        with_extension(BARE, 0, named(b"a.example") + b"x"),
        with_extension(BARE, 0, named(b"a\0.example")),
        with_extension(BARE, 0, named(b"")),
        with_extension(BARE, 0, b""),
        records(BARE[5:] + made("b.example")[5:], []),  # another message in the same record
        b"\x16\x03\x01\0\0" + BARE,  # a record with nothing in it
        b"\x16\x02\x01" + BARE[3:],
        b"\x80\x2e\x01\x03\x01" + BARE,  # the hello of SSL 2
        b"\x15\x03\x01\0\x02\x02\x28" + BARE,
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n" + bytes(30_000),
        b"\x16\x03\x01\x40\x01" + bytes(20_000),  # longer than a record may be
        b"".join(b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(16_380) for _ in range(4)),
        records(b"\x02" + BARE[6:], []),
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_no_hello(data: bytes) -> None:
    with pytest.raises(ValueError, match="TLS"):
        received(data, bytes(MAX_HELLO_BYTES))


def test_a_server_that_asks_for_a_second_hello() -> None:
    server = server_context()
    assert not asks_for_second_hello(answered(server, made("a.example")))
    server.set_ecdh_curve("secp521r1")  # of which a client sends no key unasked
    answer = answered(server, made("a.example"))
    assert asks_for_second_hello(answer)
    assert asks_for_second_hello(answer[:ANSWER_BYTES])
    assert not asks_for_second_hello(answer[: ANSWER_BYTES - 1])
