"""The only way from a sandbox to the network: an HTTP proxy that allows hosts by name.

One address serves many names, so the allowed name is checked in the connection too. In a TLS connection the
client's first message must ask for it. A plain request is rebuilt for the allowed host, one in each
connection. The content of TLS cannot be read here.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.core.addresses import ip_address, is_public
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.engine.environments.base import Connect

PROXY_PORT = 61_080
"""A port above those that Linux assigns itself. In a network namespace of its own it is always free."""
_WEB_PORTS = frozenset({80, 443})
_CONNECT_SECONDS = 20.0
_MAX_PORT = 65_535
_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*\Z"
)


@dataclass(frozen=True, slots=True)
class HostRule:
    """One `--allow-host`. With `below` it allows the hosts below the name, but not the name itself."""

    name: str
    ports: frozenset[int]
    below: bool = False

    def allows(self, host: str, port: int) -> bool:
        """Return whether this host may be reached at this port."""
        if port not in self.ports:
            return False
        return host.endswith(f".{self.name}") if self.below else host == self.name


def host_rule(text: str) -> HostRule:
    """Parse `pypi.org`, `*.pypi.org` or `name:port`.

    Raises:
        ConfigurationError: the text has none of these forms.
    """
    name, colon, port = text.strip().lower().partition(":")
    below = name.startswith("*.")
    name = host_name(name.removeprefix("*."))
    number = _port_number(port) if colon else None
    if not name or (colon and number is None) or (below and "." not in name):
        raise ConfigurationError(
            f"--allow-host {text!r} is no host: write name, *.example.org or name:port, without http://"
        )
    return HostRule(name, _WEB_PORTS if number is None else frozenset({number}), below)


def host_name(text: str) -> str:
    """Return the name in lower case and without a final dot; empty if it is no valid name."""
    name = text.lower().removesuffix(".")
    return name if _NAME.match(name) else ""


def _port_number(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT)) else 0
    return number if 0 < number <= _MAX_PORT else None


def explain_refused(refused: str) -> str:
    """Return the message for an entry of `refused_hosts`: `host:port`, or that, a blank and a reason."""
    place, _, why = refused.partition(" ")
    if why:
        return f"refused connection to {place}: {why}"
    host, _, port = place.rpartition(":")
    flag = f"--allow-host {host if int(port) in _WEB_PORTS else place}"
    return f"refused connection to {place}; the person who runs this can allow it with {flag}"


async def connect_public(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first public address of a name that answers.

    Raises:
        OSError: the name has no public address, or none answers.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    public = [address for address in dict.fromkeys(addresses) if is_public(address)]
    if not public:
        raise PermissionError(f"{host} has no public address")
    failure: OSError = ConnectionError(f"{host} does not answer")
    for address in public:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncio.open_connection(address, port)
        except OSError as error:  # TimeoutError is an OSError
            failure = error
    raise failure


MAX_HELLO_BYTES = 32_768
"""The size limit of all records of a hello together.

With post-quantum keys and a resumed session a hello has about 4,000 bytes.
"""
_HANDSHAKE = 22
"""The first byte of a handshake record. The first line of no other protocol begins with it."""
ANSWER_BYTES = 43
"""The number of first bytes of a server's answer that show whether it asks for a second hello."""
_CHANGE_CIPHER_SPEC = 20
_RECORD_HEAD, _MESSAGE_HEAD = 5, 4
_MAX_RECORD = 1 << 14
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
# RFC 6066, RFC 9849, and the first draft of RFC 9849
_SERVER_NAME, _ENCRYPTED_HELLO, _ENCRYPTED_NAME = 0, 0xFE0D, 0xFFCE
_RETRY = hashlib.sha256(b"HelloRetryRequest").digest()
"""The value in place of a server's random bytes that asks for a second hello (RFC 8446 4.1.3)."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The information about the server in a client's first TLS message.

    Attributes:
        name: see `host_name`.
        encrypted: whether it has a second, encrypted hello, which may name another server.
    """

    name: str
    encrypted: bool


async def receive_hello(reader: asyncio.StreamReader, first_bytes: bytes = b"") -> tuple[bytes, ClientHello]:
    """Read a hello, in any number of records. Return the received bytes and the parsed hello.

    A change-cipher-spec record before a second hello is returned with it.

    Args:
        reader: the client's bytes.
        first_bytes: the record's first bytes, if they have already been read.

    Raises:
        ValueError: the bytes are no hello, or more than `MAX_HELLO_BYTES`.
        EOFError: the client closed the connection in the middle.
    """
    raw, message = bytearray(first_bytes), bytearray()
    head = first_bytes
    while len(message) < _MESSAGE_HEAD or len(message) < _MESSAGE_HEAD + int.from_bytes(message[1:4]):
        rest = await reader.readexactly(_RECORD_HEAD - len(head))
        head += rest
        size = int.from_bytes(head[3:])
        fragment = await reader.readexactly(size)
        raw += rest + fragment
        if head[0] == _CHANGE_CIPHER_SPEC and not message and fragment == b"\x01":
            head = b""
            continue
        if head[0] != _HANDSHAKE or head[1] != 3 or not 0 < size <= _MAX_RECORD or len(raw) > MAX_HELLO_BYTES:  # noqa: PLR2004  TLS is 3.x
            raise ValueError("not a TLS hello")
        message += fragment
        head = b""
    return bytes(raw), _read_hello(bytes(message))


def _read_hello(message: bytes) -> ClientHello:
    """Parse a complete handshake message; raise `ValueError` if it is no hello, or is ambiguous."""
    kind, rest = _split_off(message, 1)
    body, rest = _split_field(rest, 3)
    if kind[0] != _CLIENT_HELLO or rest:  # further bytes of the record could be a second hello
        raise ValueError("not a TLS hello")
    _, body = _split_off(body, 34)  # version and random bytes
    for width in (1, 2, 1):  # session, ciphers, compressions
        _, body = _split_field(body, width)
    found: dict[int, bytes] = {}
    if body:
        extensions, body = _split_field(body, 2)
        while extensions:
            number, extensions = _split_off(extensions, 2)
            content, extensions = _split_field(extensions, 2)
            if int.from_bytes(number) in found:
                raise ValueError("an extension occurs twice in the TLS hello")
            found[int.from_bytes(number)] = content
    if body:
        raise ValueError("not a TLS hello")
    encrypted = not found.keys().isdisjoint({_ENCRYPTED_HELLO, _ENCRYPTED_NAME})
    return ClientHello(_name(found[_SERVER_NAME]) if _SERVER_NAME in found else "", encrypted)


def asks_for_second_hello(answer: bytes) -> bool:
    """Return whether a server's first bytes, at least `ANSWER_BYTES` of them, ask for a second hello."""
    is_hello = answer[:1] == bytes([_HANDSHAKE]) and answer[_RECORD_HEAD : _RECORD_HEAD + 1] == bytes(
        [_SERVER_HELLO]
    )
    return is_hello and answer[ANSWER_BYTES - len(_RETRY) : ANSWER_BYTES] == _RETRY


def _name(extension: bytes) -> str:
    names, rest = _split_field(extension, 2)
    kind, names = _split_off(names, 1)
    name, more = _split_field(names, 2)
    known = host_name(name.decode("ascii", "replace"))
    if rest or more or kind != b"\x00" or not known:
        raise ValueError("the TLS hello has no plain server name")
    return known


def _split_off(data: bytes, size: int) -> tuple[bytes, bytes]:
    if len(data) < size:
        raise ValueError("the TLS hello ends too early")
    return data[:size], data[size:]


def _split_field(data: bytes, width: int) -> tuple[bytes, bytes]:
    """Split off a field with a length prefix of `width` bytes; return the field and the rest."""
    length, rest = _split_off(data, width)
    return _split_off(rest, int.from_bytes(length))


MAX_HEAD_BYTES = 32_768
MAX_CONNECTIONS = 64
_MAX_REFUSED = 100
_HEAD_SECONDS = 20.0
_IDLE_SECONDS = 300.0
_CHUNK_BYTES = 65_536
_HTTP_PORT = 80
_USAGE = "this proxy takes CONNECT host:port and http:// addresses"
_FIRST = re.compile(rb"[A-Za-z]+ [!-~]+ HTTP/1\.[01]")
"""The first line of a request. A server may treat any other byte as a blank or as the end of a line."""
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*")
_NOT_FORWARDED = frozenset(
    {b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"http2-settings", b"forwarded"}
)
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_NOT_FORWARDED_PREFIXES = (b"proxy-", b"x-forwarded-")
"""Prefixes of further fields that are not forwarded.

Such fields concern only a client and its proxy, ask for another protocol, or name another host to some
servers.
"""
_ALERT = bytes([21, 3, 3, 0, 2, 2, 112])
"""The fatal TLS alert `unrecognized_name` (RFC 8446 6.2), which a client shows."""


def proxy_variables(port: int = PROXY_PORT) -> dict[str, str]:
    """Return the variables that make programs use the proxy, in upper and lower case."""
    address = f"http://127.0.0.1:{port}"
    names = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address)
    names["NO_PROXY"] = "localhost,127.0.0.1,::1"
    return {spelled: value for name, value in names.items() for spelled in (name, name.lower())}


class Proxy:
    """The HTTP proxy of one command. Closing it ends all its connections.

    Args:
        rules: the allowed hosts.
        connect: opens a connection to an allowed host; None allows public addresses only.
    """

    def __init__(self, rules: Sequence[HostRule], connect: Connect | None = None) -> None:
        self._rules = rules
        self._connect = connect or connect_public
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[str, None] = {}

    @property
    def refused(self) -> tuple[str, ...]:
        """The first 100 different connections that were not allowed: see `ExecResult.refused_hosts`."""
        return tuple(self._refused)

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections of a listening socket, which is closed at the end."""
        listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)

    async def close(self) -> None:
        """Stop serving, and drop all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve_one(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except* (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # a side closed, timed out or sent too much: drop the other one
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _head(reader)
        method, host, port, target = _destination(head.partition(b"\r\n")[0])
        request = _Request(head, host, port, target)
        if not host or not (request.is_plain or method == b"CONNECT"):
            await _respond(writer, "400 Bad Request", _USAGE)
            return
        if not self._allows(host, port):
            await _respond(writer, "403 Forbidden", self._refuse(f"{host}:{port}"))
            return
        try:
            far_reader, far_writer = await self._connect(host, port)
        except OSError as error:
            await _respond(writer, "502 Bad Gateway", f"{host}:{port} cannot be reached: {error}")
            return
        first_bytes: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as both:
                if request.is_plain:
                    both.create_task(request.send(reader, far_writer))
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    both.create_task(self._tunnel(host, port, reader, writer, far_writer, first_bytes))
                both.create_task(_copy(far_reader, writer, first_bytes))
        finally:
            far_writer.transport.abort()

    async def _tunnel(  # noqa: PLR0913, PLR0917  two sides of one connection
        self,
        host: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_writer: asyncio.StreamWriter,
        first_bytes: asyncio.Future[bytes],
    ) -> None:
        """Forward a client's bytes after CONNECT: TLS to this host, or at port 80 one plain request.

        At a port that the user allowed explicitly any protocol may be used; if it is TLS, its name must be
        this host too. `first_bytes` will be the first bytes of the server's answer.
        """
        async with asyncio.timeout(_HEAD_SECONDS if port in _WEB_PORTS else _IDLE_SECONDS):
            first = await reader.readexactly(1)
        if first[0] == _HANDSHAKE:
            far_writer.write(await self._hello(host, port, first, reader, writer))
            if asks_for_second_hello(await first_bytes):
                far_writer.write(await self._hello(host, port, b"", reader, writer))
        elif port == _HTTP_PORT:
            head = first + await _head(reader)
            target = head.partition(b"\r\n")[0].split(b" ")[1:2]
            request = _Request(head, host, port, (target or [b""])[0].decode("latin-1"))
            if not request.is_plain:
                await _respond(writer, "400 Bad Request", _USAGE)
                raise ConnectionAbortedError
            await request.send(reader, far_writer)
            return
        elif port in _WEB_PORTS:
            await _respond(writer, "403 Forbidden", self._refuse(f"{host}:{port} it does not begin with TLS"))
            raise ConnectionAbortedError
        else:
            far_writer.write(first)
        await _copy(reader, far_writer)

    async def _hello(
        self,
        host: str,
        port: int,
        first_bytes: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bytes:
        """Return the bytes of a TLS hello that asks for this host; raise `ConnectionAbortedError` for any other."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                raw, hello = await receive_hello(reader, first_bytes)
        except ValueError as error:
            objection = f"{host}:{port} {error}"
        else:
            # TLS has no server name for addresses.
            named = hello.name or (host if ip_address(host) else "")
            if named == host and not hello.encrypted:
                return raw
            objection = f"{host}:{port} its TLS names no server"
            if hello.encrypted:
                objection = (
                    f"{host}:{port} its TLS hello has an encrypted part (ECH), which may name another server"
                )
            elif named and self._allows(named, port):
                objection = f"{host}:{port} its TLS asks for {named}"
            elif named:
                objection = f"{named}:{port}"
        self._refuse(objection)
        writer.write(_ALERT)
        await _finish(writer)
        raise ConnectionAbortedError

    def _allows(self, host: str, port: int) -> bool:
        return any(rule.allows(host, port) for rule in self._rules)

    def _refuse(self, place: str) -> str:
        if len(self._refused) < _MAX_REFUSED:
            self._refused[place] = None
        return explain_refused(place)


class _Request:
    """A plain request, rebuilt for one host. Bytes that the client sends after the request are not forwarded.

    Args:
        head: the request's head up to the empty line.
        host: the host that was allowed.
        port: its port.
        target: path and query, which begin with a slash.
    """

    def __init__(self, head: bytes, host: str, port: int, target: str) -> None:
        import h11

        self._near, self._far = h11.Connection(h11.SERVER, MAX_HEAD_BYTES), h11.Connection(h11.CLIENT)
        self._first = b""
        self.is_plain = False
        """Whether it is a request that all servers read in the same way."""
        first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        is_plain = _FIRST.fullmatch(first) and all(_FIELD.fullmatch(line) for line in lines)
        if not target.startswith("/") or not is_plain:
            return
        named = host if port == _HTTP_PORT else f"{host}:{port}"
        own = [f"Host: {named}".encode(), *_server_fields(lines), b"Connection: close", b"", b""]
        with suppress(h11.ProtocolError):
            self._near.receive_data(b"\r\n".join([first, *own]))
            request = self._near.next_event()
            if not isinstance(request, h11.Request) or {name for name, _ in request.headers} >= _FRAMING:
                return
            fields = request.headers.raw_items()
            made = h11.Request(method=request.method, target=target.encode("latin-1"), headers=fields)
            self._first = self._far.send(made) or b""
            self.is_plain = True

    async def send(self, reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter) -> None:
        """Send the request, and its body as it comes."""
        import h11

        far_writer.write(self._first)
        while True:
            try:
                event = self._near.next_event()
                if event is h11.NEED_DATA:
                    async with asyncio.timeout(_IDLE_SECONDS):
                        self._near.receive_data(await reader.read(_CHUNK_BYTES))
                    continue
                if isinstance(event, h11.Data):
                    far_writer.write(self._far.send(h11.Data(data=event.data)) or b"")
                else:
                    far_writer.write(self._far.send(h11.EndOfMessage()) or b"")
                await far_writer.drain()
            except h11.ProtocolError as error:
                raise EOFError(str(error)) from error
            if not isinstance(event, h11.Data):
                return


def _destination(first: bytes) -> tuple[bytes, str, int, str]:
    """Return method, host, port and request target; an empty host if the line is invalid."""
    nothing = (b"", "", 0, "")
    words = first.split(b" ")
    if len(words) != 3 or not first.isascii() or any(byte < 0x21 for byte in words[1]):  # noqa: PLR2004
        return nothing
    method, target = words[0], words[1].decode("ascii")
    if method == b"CONNECT":
        name, _, port = target.rpartition(":")
        number = _port_number(port)
        return (method, host_name(name), number, "") if number else nothing
    try:
        parts = urlsplit(target)
        number = parts.port or 80
        name = parts.hostname or ""
    except ValueError:
        return nothing
    if parts.scheme != "http" or not method.isalpha():
        return nothing
    return method, host_name(name), number, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _server_fields(lines: Sequence[bytes]) -> list[bytes]:
    """Return the fields of a request that are for the server, not for the proxy.

    Programs behind CGI and similar interfaces read `_` in a field's name as `-`:
    https://www.rfc-editor.org/rfc/rfc3875#section-4.1.18
    """
    named = [(line.partition(b":")[0].lower().replace(b"_", b"-"), line) for line in lines]
    words = b",".join(line.partition(b":")[2] for name, line in named if name == b"connection")
    dropped = _NOT_FORWARDED | ({word.strip().lower() for word in words.split(b",")} - _FRAMING)
    return [
        line for name, line in named if name not in dropped and not name.startswith(_NOT_FORWARDED_PREFIXES)
    ]


async def _head(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(_HEAD_SECONDS):
        return await reader.readuntil(b"\r\n\r\n")


async def _copy(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    first_bytes: asyncio.Future[bytes] | None = None,
) -> None:
    """Copy bytes until the source ends. `first_bytes` is set to the first bytes."""
    seen = b""
    while True:
        async with asyncio.timeout(_IDLE_SECONDS):
            data = await source.read(_CHUNK_BYTES)
        if first_bytes is not None and not first_bytes.done():
            seen += data
            if not data or len(seen) >= ANSWER_BYTES:
                first_bytes.set_result(seen)
        if not data:
            break
        target.write(data)
        await target.drain()
    with suppress(OSError, NotImplementedError):
        target.write_eof()


async def _respond(writer: asyncio.StreamWriter, status: str, words: str) -> None:
    body = f"{words}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await _finish(writer)


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has received the response, and close the connection."""
    with suppress(OSError):
        async with asyncio.timeout(_HEAD_SECONDS):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
