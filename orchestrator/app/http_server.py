"""An HTTP/1.1 server for ASGI applications, in which no connection can keep other people out.

A connection is in one state at a time, and each state has one deadline, which no byte of the client moves. A connection
that waits for its client makes room for a new one. What the server keeps of a client is a head and a body of limited
size; a response is written piece by piece, and never faster than the client reads.
"""

from __future__ import annotations

import asyncio
import http
import itertools
import re
import socket
import struct
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h11

from orchestrator.core.addresses import bracketed
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp, Message, Scope

_MAX_HEAD_BYTES = 8_192
_PIECE_BYTES = 65_536
_READ_BYTES = 262_144
"""What the event loop reads at once: a long body in fewer pieces takes a fraction of the time."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""Makes the end of a connection a reset, which no client takes for the end of a response."""


class ResponseBrokenError(Exception):
    """Raised by an application that cannot end the response that it began: no client takes it for a whole one."""


class ConnectionState(IntEnum):
    """What a connection waits for. Of several that wait for their clients, the lowest state makes room first."""

    CLOSING = 0
    """The client still has to read the last response."""
    IDLE = 1
    """The client, which had a response, has not sent another whole head."""
    HEAD = 2
    """The client has not sent its first whole head."""
    BODY = 3
    """The client has not sent its whole body."""
    READER = 4
    """The client has not read what was sent."""
    ANSWER = 5
    """The application has not begun to respond."""
    STREAM = 6
    """The application has not ended its response."""

    @property
    def waits_for_client(self) -> bool:
        """Whether a connection in this state makes room for a new one."""
        return self <= ConnectionState.READER


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server.

    Attributes:
        connections: most connections at a time. A further one replaces the one that has waited longest for its
            client, or is refused if the application works for all of them.
        streams: most responses at a time that the application does not end soon. A further one replaces the oldest.
        body_bytes: longest body of a request.
        all_body_bytes: most bytes of bodies, of all requests that have no whole response.
        head_seconds: time for a whole head, from the first moment of waiting for it.
        body_seconds: time for a whole body.
        answer_seconds: time for the application to begin its response.
        stream_seconds: time for the application to end its response. Browsers ask for an ended stream again.
        reader_seconds: time for a client to read one piece of a response.
        closing_seconds: time for a client to read the last response.
        end_seconds: time for responses at the end of the server.
    """

    connections: int = 64
    streams: int = 16
    body_bytes: int = 131_072
    all_body_bytes: int = 8_388_608
    head_seconds: float = 5.0
    body_seconds: float = 10.0
    answer_seconds: float = 300.0
    stream_seconds: float = 3_600.0
    reader_seconds: float = 20.0
    closing_seconds: float = 1.0
    end_seconds: float = 5.0

    def seconds(self, state: ConnectionState) -> float:
        """Return the longest time in a state."""
        match state:
            case ConnectionState.CLOSING:
                return self.closing_seconds
            case ConnectionState.IDLE | ConnectionState.HEAD:
                return self.head_seconds
            case ConnectionState.BODY:
                return self.body_seconds
            case ConnectionState.READER:
                return self.reader_seconds
            case ConnectionState.ANSWER:
                return self.answer_seconds
            case ConnectionState.STREAM:
                return self.stream_seconds


@asynccontextmanager
async def serving(
    app: ASGIApp, *bound: socket.socket, limits: ServerLimits = ServerLimits()
) -> AsyncIterator[None]:
    """Serve requests at sockets that listen, while the block runs. They are closed at its end."""
    server = _Server(app, limits)
    listeners = [await asyncio.start_server(server.accept, sock=one, limit=_READ_BYTES) for one in bound]
    try:
        yield
    finally:
        for one in listeners:
            one.close()
        await server.end()


class _Server:
    """The connections of one server."""

    def __init__(self, app: ASGIApp, limits: ServerLimits) -> None:
        self.app = app
        self.limits = limits
        self.is_ending = False
        self.body_bytes = 0
        self.moments = itertools.count()
        self.connections: set[_Connection] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection, in place of one that waits for its client if there are too many."""
        while len(self.connections) >= self.limits.connections:
            waiting = [one for one in self.connections if one.state.waits_for_client]
            if not waiting:
                break
            min(waiting, key=lambda one: (one.state, one.since)).drop()
        is_refused = len(self.connections) >= self.limits.connections
        _Connection(self, reader, writer).start(is_refused=is_refused)

    def limit_streams(self) -> None:
        """End the oldest stream if there are too many."""
        streams = [one for one in self.connections if one.stream_since is not None]
        if len(streams) > self.limits.streams:
            min(streams, key=lambda one: one.stream_since or 0).drop()

    async def end(self) -> None:
        """End all connections: at once if they wait for their clients, else after their responses or a time limit."""
        self.is_ending = True
        tasks = [one.task for one in self.connections]
        for one in list(self.connections):
            if one.state.waits_for_client:
                one.drop()
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.end_seconds)
        for one in list(self.connections):
            one.drop()
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.end_seconds)
        await asyncio.sleep(0)  # the transports are closed in the next pass of the loop


class _Connection:
    """One connection: its requests one after another, under the deadline of its state."""

    task: asyncio.Task[None]

    def __init__(self, server: _Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._deadline = asyncio.timeout(None)
        self._gone = asyncio.Event()
        self.state = ConnectionState.HEAD
        self.since = next(server.moments)
        self.stream_since: int | None = None
        self._body_bytes = 0
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until all is written

    def start(self, *, is_refused: bool) -> None:
        """Begin to serve it, or to say that there are too many."""
        self._server.connections.add(self)
        self.task = asyncio.create_task(self._run(is_refused=is_refused))
        self.task.add_done_callback(self._ended)

    def drop(self) -> None:
        """Close it at once."""
        self._server.connections.discard(self)
        self._writer.transport.abort()
        self.task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._server.connections.discard(self)
        self._release_body()
        error = None if task.cancelled() else task.exception()
        raw = self._writer.get_extra_info("socket")
        # A client of HTTP/1.1 misses the end of what was announced. For an older one the end is that of the connection.
        if isinstance(error, ResponseBrokenError) and raw and self._http.their_http_version != b"1.1":
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._writer.transport.abort()
        if error is not None and not isinstance(error, ResponseBrokenError):
            told = {"message": "a response failed", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(told)

    async def _run(self, *, is_refused: bool) -> None:
        try:
            async with self._deadline:
                if is_refused:
                    await self._refuse(503, "there are too many connections")
                else:
                    await self._serve()
        except TimeoutError:
            if not self._deadline.expired():
                raise  # the application's own
            self._say_late()

    async def _serve(self) -> None:
        self._enter(ConnectionState.HEAD)
        try:
            while isinstance(event := await self._next_event(), h11.Request):
                if not await self._exchange(event) or self._server.is_ending:
                    return
                self._http.start_next_cycle()
                self._enter(ConnectionState.IDLE)
        except h11.RemoteProtocolError:
            await self._refuse(400, "this is not a request")

    async def _exchange(self, request: h11.Request) -> bool:
        """Respond to a request. Return whether the connection can have another one."""
        if request.method == b"CONNECT":
            await self._refuse(405, "this is no proxy")
            return False
        self._enter(ConnectionState.BODY)
        body = await self._body(request)
        if body is None:
            await self._refuse(413, "the body is too long")
            return False
        self._enter(ConnectionState.ANSWER)
        answer = _Answer(self, request, body)
        await self._server.app(self._scope(request), answer.receive, answer.send)
        self._release_body()
        self.stream_since = None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            return True
        if self._http.our_state in {h11.DONE, h11.MUST_CLOSE}:
            await self._close()
        return False

    async def _body(self, request: h11.Request) -> bytes | None:
        """Return the body of a request; None if it is too long."""
        most = self._server.limits.body_bytes
        told = next((value for name, value in request.headers if name == b"content-length"), b"0")
        if int(told) > most:
            return None
        if self._http.they_are_waiting_for_100_continue:
            await self.write(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            self._body_bytes += len(event.data)
            self._server.body_bytes += len(event.data)
            if len(body) > most or self._server.body_bytes > self._server.limits.all_body_bytes:
                return None
        return bytes(body)

    def _release_body(self) -> None:
        self._server.body_bytes -= self._body_bytes
        self._body_bytes = 0

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._read())
        return event

    async def _read(self) -> bytes:
        """Return the next bytes of the client; none if it has closed its side of the connection."""
        with suppress(ConnectionError):
            return await self._reader.read(_READ_BYTES)
        return b""

    async def left(self) -> None:
        """Wait until the client closes its side of the connection. What it sends before is the next request."""
        while len(self._http.trailing_data[0]) <= _MAX_HEAD_BYTES:
            data = await self._read()
            self._http.receive_data(data)
            if not data:
                return
        await self._gone.wait()  # noticed by the next write

    async def write(self, event: h11.Event) -> None:
        """Write a part of a response, as fast as the client reads. A client that left is no error."""
        data = self._http.send(event) or b""
        for start in range(0, len(data), _PIECE_BYTES):
            if self._gone.is_set():
                return
            with self._in(ConnectionState.READER):
                try:
                    self._writer.write(data[start : start + _PIECE_BYTES])
                    await self._writer.drain()
                except ConnectionError:
                    self._gone.set()

    def begin_stream(self) -> None:
        """Note that the application goes on with its response."""
        if self.stream_since is None:
            self._enter(ConnectionState.STREAM)
            self.stream_since = self.since
            self._server.limit_streams()

    async def _refuse(self, status: int, words: str) -> None:
        """Send a response of the server's own, and close."""
        body = f"{words}\n".encode()
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
        await self.write(_response(status, [*headers, ("connection", "close")]))
        await self.write(h11.Data(data=body))
        await self.write(h11.EndOfMessage())
        await self._close()

    def _say_late(self) -> None:
        """Send, without waiting, why a request has no response. A client that sent none is told nothing."""
        late = {ConnectionState.BODY: 408, ConnectionState.ANSWER: 503}.get(self.state)
        if late is not None and self._http.our_state is h11.SEND_RESPONSE:
            self._writer.write(
                self._http.send(_response(late, [("content-length", "0"), ("connection", "close")])) or b""
            )

    async def _close(self) -> None:
        """Let the client read the last response: closed with unread bytes, a connection loses what was sent."""
        self._enter(ConnectionState.CLOSING)
        with suppress(OSError):
            self._writer.write_eof()
        while await self._read():
            pass

    def _enter(self, state: ConnectionState) -> None:
        """Begin a state, and with it its deadline."""
        self.state = state
        self.since = next(self._server.moments)
        self._reschedule(asyncio.get_running_loop().time() + self._server.limits.seconds(state))

    @contextmanager
    def _in(self, state: ConnectionState) -> Iterator[None]:
        """Be in another state while the block runs. Neither its deadline nor the outer one moves the other."""
        before = self.state, self.since, self._deadline.when()
        self._enter(state)
        try:
            yield
        finally:
            self.state, self.since = before[:2]
            self._reschedule(before[2])

    def _reschedule(self, when: float | None) -> None:
        if not self._deadline.expired():
            self._deadline.reschedule(when)

    def _scope(self, request: h11.Request) -> Scope:
        path, _, query = request.target.partition(b"?")
        transport = self._writer.transport
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "server": transport.get_extra_info("sockname"),
            "client": transport.get_extra_info("peername"),
            "scheme": "http",
            "method": request.method.decode("ascii"),
            "root_path": "",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": list(request.headers),
        }


class _Answer:
    """Speaks [ASGI](https://asgi.readthedocs.io/en/latest/specs/www.html) with the application for one request."""

    def __init__(self, connection: _Connection, request: h11.Request, body: bytes) -> None:
        self._connection = connection
        self._has_no_body = request.method == b"HEAD"
        self._body: bytes | None = body

    async def receive(self) -> Message:
        """Return the body, and then wait until the client leaves."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._connection.left()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Write a message of the application."""
        if message["type"] == "http.response.start":
            await self._connection.write(_response(message["status"], message.get("headers", ())))
            return
        data = b"" if self._has_no_body else message.get("body", b"")
        await self._connection.write(h11.Data(data=data))
        if message.get("more_body", False):
            self._connection.begin_stream()
        else:
            await self._connection.write(h11.EndOfMessage())


def _response(status: int, headers: Any) -> h11.Response:
    return h11.Response(status_code=status, headers=list(headers), reason=http.HTTPStatus(status).phrase)


_BACKLOG = 64
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
NOT_HERE = "this address is for programs of this machine\n"
"""The answer to a request for another host name: a foreign site's name may resolve to this machine."""


def listen(host: str, port: int) -> socket.socket:
    """Open a socket at an address.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    bound = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise ConfigurationError(
            f"cannot listen at {bracketed(host)}:{port}: {error.strerror or error}"
        ) from error
    return bound


def without_port(host: str) -> str:
    """Return the value of a `Host` header without its port."""
    return re.sub(r":[0-9]{1,5}$", "", host)
