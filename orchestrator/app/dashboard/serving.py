"""A web server for the page and for the health of a worker: small limits, and an end that nobody can hold up."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp

MOST_CONNECTIONS = 64
READ_SECONDS = 5.0
_END_SECONDS = 5
_MAX_HEAD_BYTES = 8_192
_BACKLOG = 64


def listen(host: str, port: int) -> socket.socket:
    """Open a socket at an address.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return bound


def _impatient_protocol() -> Any:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        """Closes connections on which no request comes, and answers who sends half of one and stops."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(READ_SECONDS, self._close_if_silent)

        def _close_if_silent(self) -> None:
            if self._request() is None:
                self.transport.close()

        def _request(self) -> Any:
            """Return the last request; None if there was none."""
            return vars(self).get("cycle")

        def eof_received(self) -> bool:  # type: ignore[override]
            request = self._request()
            if request is None:
                self.send_400_response("this is no request")
            elif request.response_complete:
                self.transport.close()
            else:
                request.keep_alive = False
            return True  # the answer is still to be sent

    return Impatient


def _server(app: ASGIApp, most: int) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves signals to whoever runs it."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=_impatient_protocol(),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=most,
        timeout_keep_alive=int(READ_SECONDS),
        timeout_graceful_shutdown=_END_SECONDS,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
    )
    return Server(config)


@asynccontextmanager
async def serving(app: ASGIApp, bound: socket.socket, most: int = MOST_CONNECTIONS) -> AsyncIterator[None]:
    """Answer requests while the block runs."""
    server = _server(app, most)
    task = asyncio.ensure_future(server.serve([bound]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


async def serve(app: ASGIApp, bound: socket.socket, stopping: asyncio.Event) -> None:
    """Answer requests until somebody ends the program by a signal."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    async with serving(app, bound):
        await stopping.wait()
