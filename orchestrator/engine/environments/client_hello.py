"""The first message of TLS, in which a client says in clear which server it wants (RFC 8446 4.1.2, RFC 6066 3)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.environments.hosts import host_name

if TYPE_CHECKING:
    import asyncio

MAX_HELLO_BYTES = 32_768
"""Of all records together. With keys against quantum computers and a resumed session it has about 4,000."""
HANDSHAKE = 22
"""The first byte of a record with a message of the handshake; no other protocol's first line begins with it."""
ANSWER_BYTES = 43
"""Of a server's first record, up to the end of what shows whether it asks for a second hello."""
_CHANGE_CIPHER_SPEC = 20
_RECORD_HEAD, _MESSAGE_HEAD = 5, 4
_MAX_RECORD = 1 << 14
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_SERVER_NAME, _ENCRYPTED_HELLO, _ENCRYPTED_NAME = 0, 0xFE0D, 0xFFCE  # RFC 6066, RFC 9849, its first draft
_RETRY = hashlib.sha256(b"HelloRetryRequest").digest()
"""Stands in the place of a server's random bytes where it asks for a second hello (RFC 8446 4.1.3)."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What it says of the server.

    Attributes:
        name: the server's name in the form in which names are compared; empty where it has none.
        encrypted: whether it has a second, encrypted hello, in which another name may stand.
    """

    name: str
    encrypted: bool


async def receive_hello(reader: asyncio.StreamReader, begun: bytes = b"") -> tuple[bytes, ClientHello]:
    """Read a hello that comes in whatever records and pieces: the bytes as they came, and what they say.

    A record of another kind that a second hello may follow is handed on with it.

    Args:
        reader: the client's bytes.
        begun: the record's first bytes, if they have been read.

    Raises:
        ValueError: it is no hello, or more than `MAX_HELLO_BYTES`.
        EOFError: the client went away in the middle.
    """
    raw, message = bytearray(begun), bytearray()
    head = begun
    while len(message) < _MESSAGE_HEAD or len(message) < _MESSAGE_HEAD + int.from_bytes(message[1:4]):
        rest = await reader.readexactly(_RECORD_HEAD - len(head))
        head += rest
        size = int.from_bytes(head[3:])
        fragment = await reader.readexactly(size)
        raw += rest + fragment
        if head[0] == _CHANGE_CIPHER_SPEC and not message and fragment == b"\x01":
            head = b""
            continue
        if head[0] != HANDSHAKE or head[1] != 3 or not 0 < size <= _MAX_RECORD or len(raw) > MAX_HELLO_BYTES:  # noqa: PLR2004  TLS is 3.x
            raise ValueError("not a TLS hello")
        message += fragment
        head = b""
    return bytes(raw), read_hello(bytes(message))


def read_hello(message: bytes) -> ClientHello:
    """Read a whole message of the handshake.

    Raises:
        ValueError: it is no hello, or can be read in two ways.
    """
    kind, rest = _taken(message, 1)
    body, rest = _counted(rest, 3)
    if kind[0] != _CLIENT_HELLO or rest:  # what follows in the same record could be a second one
        raise ValueError("not a TLS hello")
    _, body = _taken(body, 34)  # version and random bytes
    for width in (1, 2, 1):  # session, ciphers, compressions
        _, body = _counted(body, width)
    found: dict[int, bytes] = {}
    if body:
        extensions, body = _counted(body, 2)
        while extensions:
            number, extensions = _taken(extensions, 2)
            content, extensions = _counted(extensions, 2)
            if int.from_bytes(number) in found:
                raise ValueError("an extension stands twice in the TLS hello")
            found[int.from_bytes(number)] = content
    if body:
        raise ValueError("not a TLS hello")
    encrypted = not found.keys().isdisjoint({_ENCRYPTED_HELLO, _ENCRYPTED_NAME})
    return ClientHello(_name(found[_SERVER_NAME]) if _SERVER_NAME in found else "", encrypted)


def asks_again(answer: bytes) -> bool:
    """Whether a server's first bytes, at least `ANSWER_BYTES` of them, ask for a second hello."""
    is_hello = answer[:1] == bytes([HANDSHAKE]) and answer[_RECORD_HEAD : _RECORD_HEAD + 1] == bytes(
        [_SERVER_HELLO]
    )
    return is_hello and answer[ANSWER_BYTES - len(_RETRY) : ANSWER_BYTES] == _RETRY


def _name(extension: bytes) -> str:
    names, rest = _counted(extension, 2)
    kind, names = _taken(names, 1)
    name, more = _counted(names, 2)
    known = host_name(name.decode("ascii", "replace"))
    if rest or more or kind != b"\x00" or not known:
        raise ValueError("the TLS hello has no plain server name")
    return known


def _taken(data: bytes, size: int) -> tuple[bytes, bytes]:
    if len(data) < size:
        raise ValueError("the TLS hello ends too early")
    return data[:size], data[size:]


def _counted(data: bytes, width: int) -> tuple[bytes, bytes]:
    """A field whose length stands before it, in so many bytes, and what follows."""
    length, rest = _taken(data, width)
    return _taken(rest, int.from_bytes(length))
