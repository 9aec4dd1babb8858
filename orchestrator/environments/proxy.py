"""The one door from a sandbox to the network: an HTTP proxy that knows the allowed hosts by name."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.environments.hosts import connect_public, flag_for, host_name, port_number

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from orchestrator.environments.confinement import Connect
    from orchestrator.environments.hosts import HostRule

MAX_HEAD_BYTES = 32_768
MAX_CONNECTIONS = 64
MAX_REFUSED = 100
HEAD_SECONDS = 20.0
IDLE_SECONDS = 300.0
_CHUNK_BYTES = 65_536
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*")
_NOT_HANDED_ON = (b"proxy-", b"connection:", b"keep-alive:", b"host:")


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
        """`host:port` of what was not allowed, once each, the first 100."""
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
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # it went away, said nothing in time, or said too much
        finally:
            writer.transport.abort()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, _, rest = head.partition(b"\r\n")
        method, host, port, target = _destination(first)
        if not host or not all(_is_field(line) for line in rest.split(b"\r\n") if line):
            await _say(writer, "400 Bad Request", "this proxy takes CONNECT host:port and http:// addresses")
            return
        if not any(rule.allows(host, port) for rule in self._rules):
            await self._refuse(writer, f"{host}:{port}")
            return
        try:
            far_reader, far_writer = await self._connect(host, port)
        except OSError as error:
            await _say(writer, "502 Bad Gateway", f"{host}:{port} cannot be reached: {error}")
            return
        try:
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(_request(method, host, port, target, rest))
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, far_writer))
                both.create_task(_copy(far_reader, writer))
        except* OSError:
            pass  # one side went away: the other is dropped
        finally:
            far_writer.transport.abort()

    async def _refuse(self, writer: asyncio.StreamWriter, place: str) -> None:
        if len(self._refused) < MAX_REFUSED:
            self._refused[place] = None
        words = f"refused connection to {place}; the person who runs this can allow it with {flag_for(place)}"
        await _say(writer, "403 Forbidden", words)


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


def _is_field(line: bytes) -> bool:
    """Whether a line is a name, a colon and a value: what servers read in different ways goes to none."""
    return _FIELD.fullmatch(line) is not None


def _request(method: bytes, host: str, port: int, target: str, rest: bytes) -> bytes:
    kept = [line for line in rest.split(b"\r\n") if line and not line.lower().startswith(_NOT_HANDED_ON)]
    named = host if port == 80 else f"{host}:{port}"  # noqa: PLR2004  http's
    lines = [method + f" {target} HTTP/1.1".encode(), f"Host: {named}".encode(), *kept, b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while True:
        async with asyncio.timeout(IDLE_SECONDS):
            data = await source.read(_CHUNK_BYTES)
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
    with suppress(OSError):
        async with asyncio.timeout(HEAD_SECONDS):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
