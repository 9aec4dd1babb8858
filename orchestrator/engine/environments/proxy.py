"""The one door from a sandbox to the network: an HTTP proxy that knows the allowed hosts by name.

An address serves many names, so the name that was allowed is held on the way too: in a TLS
connection the client's first message must ask for it, and a plain request is built anew for it,
one in each connection. What is said inside of TLS nobody here can read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.engine.environments.client_hello import ANSWER_BYTES, HANDSHAKE, asks_again, receive_hello
from orchestrator.engine.environments.hosts import WEB_PORTS, connect_public, host_name, port_number, refusal

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from orchestrator.engine.environments.confinement import Connect
    from orchestrator.engine.environments.hosts import HostRule

MAX_HEAD_BYTES = 32_768
MAX_CONNECTIONS = 64
MAX_REFUSED = 100
HEAD_SECONDS = 20.0
IDLE_SECONDS = 300.0
_CHUNK_BYTES = 65_536
_HTTP_PORT = 80
_TAKES = "this proxy takes CONNECT host:port and http:// addresses"
_FIRST = re.compile(rb"[A-Za-z]+ [!-~]+ HTTP/1\.[01]")
"""The first line of a request; a server may take any other byte for a blank or for the end of a line."""
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*")
_NOT_HANDED_ON = frozenset(
    {b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"http2-settings", b"forwarded"}
)
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_NOT_HANDED_ON_BEGIN = (b"proxy-", b"x-forwarded-")
"""What is between a client and its proxy, asks for another protocol, or names another host to some servers."""
_ALERT = bytes([21, 3, 3, 0, 2, 2, 112])
"""The fatal TLS alert `unrecognized_name` (RFC 8446 6.2), which a client shows."""


class Proxy:
    """Serves one command. Closing it ends all its connections.

    Args:
        rules: what is allowed; nothing where it is empty.
        connect: the way out.
    """

    def __init__(self, rules: Sequence[HostRule], connect: Connect | None = None) -> None:
        self._rules = rules
        self._connect = connect or connect_public
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[str, None] = {}

    @property
    def refused(self) -> tuple[str, ...]:
        """What was not allowed, once each, the first 100: see `ExecResult.refused_hosts`."""
        return tuple(self._refused)

    async def serve(self, listener: socket.socket) -> None:
        """Answer at a listening socket, which is this object's from now on."""
        listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)

    async def close(self) -> None:
        """Stop, and drop all connections."""
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
            pass  # one side went away, said nothing in time, or said too much: the other is dropped
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _head(reader)
        method, host, port, target = _destination(head.partition(b"\r\n")[0])
        request = _Request(head, host, port, target)
        if not host or not (request.is_plain or method == b"CONNECT"):
            await _say(writer, "400 Bad Request", _TAKES)
            return
        if not self._allows(host, port):
            await _say(writer, "403 Forbidden", self._refuse(f"{host}:{port}"))
            return
        try:
            far_reader, far_writer = await self._connect(host, port)
        except OSError as error:
            await _say(writer, "502 Bad Gateway", f"{host}:{port} cannot be reached: {error}")
            return
        begun: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as both:
                if request.is_plain:
                    both.create_task(request.send(reader, far_writer))
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    both.create_task(self._tunnel(host, port, reader, writer, far_writer, begun))
                both.create_task(_copy(far_reader, writer, begun))
        finally:
            far_writer.transport.abort()

    async def _tunnel(  # noqa: PLR0913, PLR0917  two sides of one connection
        self,
        host: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_writer: asyncio.StreamWriter,
        begun: asyncio.Future[bytes],
    ) -> None:
        """Hand on what a client says after CONNECT: TLS to this host, or at port 80 one plain request.

        A port that a person named may carry any protocol; where that is TLS, it is held to the host too.
        `begun` will be the first bytes of the far side's answer.
        """
        async with asyncio.timeout(HEAD_SECONDS if port in WEB_PORTS else IDLE_SECONDS):
            first = await reader.readexactly(1)
        if first[0] == HANDSHAKE:
            far_writer.write(await self._hello(host, port, first, reader, writer))
            if asks_again(await begun):
                far_writer.write(await self._hello(host, port, b"", reader, writer))
        elif port == _HTTP_PORT:
            head = first + await _head(reader)
            target = head.partition(b"\r\n")[0].split(b" ")[1:2]
            request = _Request(head, host, port, (target or [b""])[0].decode("latin-1"))
            if not request.is_plain:
                await _say(writer, "400 Bad Request", _TAKES)
                raise ConnectionAbortedError
            await request.send(reader, far_writer)
            return
        elif port in WEB_PORTS:
            await _say(writer, "403 Forbidden", self._refuse(f"{host}:{port} it does not begin with TLS"))
            raise ConnectionAbortedError
        else:
            far_writer.write(first)
        await _copy(reader, far_writer)

    async def _hello(
        self, host: str, port: int, begun: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """The bytes of a TLS hello that asks for this host and for no other.

        Raises:
            ConnectionAbortedError: it asks for another, or does not say for which.
        """
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                raw, hello = await receive_hello(reader, begun)
        except ValueError as error:
            objection = f"{host}:{port} {error}"
        else:
            named = hello.name or (host if _is_address(host) else "")
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
        if len(self._refused) < MAX_REFUSED:
            self._refused[place] = None
        return refusal(place)


class _Request:
    """A plain request, to be made anew for one host. Nothing that the client says after it is handed on.

    Args:
        head: up to the empty line.
        host: the host that was allowed.
        port: its port.
        target: what is asked of it, which begins with a slash.
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
        own = [f"Host: {named}".encode(), *_handed_on(lines), b"Connection: close", b"", b""]
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
        """Send it, and its body as it comes.

        Raises:
            OSError, EOFError: a side went away, or the body makes no sense.
        """
        import h11

        far_writer.write(self._first)
        while True:
            try:
                event = self._near.next_event()
                if event is h11.NEED_DATA:
                    async with asyncio.timeout(IDLE_SECONDS):
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
    """Method, host, port and what is asked of the host; no host where the line makes no sense."""
    nothing = (b"", "", 0, "")
    words = first.split(b" ")
    if len(words) != 3 or not first.isascii() or any(byte < 0x21 for byte in words[1]):  # noqa: PLR2004
        return nothing
    method, target = words[0], words[1].decode("ascii")
    if method == b"CONNECT":
        name, _, port = target.rpartition(":")
        number = port_number(port)
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


def _handed_on(lines: Sequence[bytes]) -> list[bytes]:
    """The fields of a request that are for the server, not for the proxy.

    Programs behind CGI and its like read `_` in a field's name as `-`: https://www.rfc-editor.org/rfc/rfc3875#section-4.1.18
    """
    named = [(line.partition(b":")[0].lower().replace(b"_", b"-"), line) for line in lines]
    words = b",".join(line.partition(b":")[2] for name, line in named if name == b"connection")
    dropped = _NOT_HANDED_ON | ({word.strip().lower() for word in words.split(b",")} - _FRAMING)
    return [line for name, line in named if name not in dropped and not name.startswith(_NOT_HANDED_ON_BEGIN)]


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


async def _head(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(HEAD_SECONDS):
        return await reader.readuntil(b"\r\n\r\n")


async def _copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, begun: asyncio.Future[bytes] | None = None
) -> None:
    """Hand on to the end, and say how it begins."""
    seen = b""
    while True:
        async with asyncio.timeout(IDLE_SECONDS):
            data = await source.read(_CHUNK_BYTES)
        if begun is not None and not begun.done():
            seen += data
            if not data or len(seen) >= ANSWER_BYTES:
                begun.set_result(seen)
        if not data:
            break
        target.write(data)
        await target.drain()
    with suppress(OSError, NotImplementedError):
        target.write_eof()


async def _say(writer: asyncio.StreamWriter, status: str, words: str) -> None:
    body = f"{words}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await _finish(writer)


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Let the client read what was said, and close."""
    with suppress(OSError):
        async with asyncio.timeout(HEAD_SECONDS):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
