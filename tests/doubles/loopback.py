"""What the HTTP doubles share: a server on an ephemeral port that leaves no socket and no thread behind."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Loopback:
    """Runs a handler in a thread, from `with` to the end of the block.

    Attributes:
        connections: how many were opened so far.
        closing: set when the block ends; a handler that waits for something else looks at it.
        lock: for what several handlers change.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections = 0
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._http = LoopbackHttp(self, handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def root(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join()


class LoopbackHttp(ThreadingHTTPServer):
    """The server under a `Loopback`, which its handlers find as `owner`."""

    daemon_threads = False  # closing waits for the handlers, so that no socket outlives its test

    def __init__(self, owner: Any, handler: type[BaseHTTPRequestHandler]) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        self.owner.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Close the connections that clients keep."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client was faster

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is not an error here."""


class LoopbackHandler(BaseHTTPRequestHandler):
    """A silent handler of HTTP/1.1."""

    protocol_version = "HTTP/1.1"
    server: LoopbackHttp

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Stay silent."""

    def posted(self) -> tuple[dict[str, str], dict[str, Any], bytes]:
        """Headers in lower case, the body as a JSON object (empty where it is none), and its bytes."""
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        headers = {name.lower(): value for name, value in self.headers.items()}
        return headers, body if isinstance(body, dict) else {}, raw

    def wait_at(self, gate: threading.Event | None) -> None:
        """Wait until the test sets the event, or the server closes."""
        while gate is not None and not gate.wait(0.01) and not self.server.owner.closing.is_set():
            pass
