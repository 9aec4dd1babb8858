"""A web site on loopback: each path has an answer, and every request is recorded::

with WebServer({"/": html("<p>hello</p>")}) as site:
    ...                                  # point the program at site.url
assert site.requests[0].path == "/"
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """What came in. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes out.

    Attributes:
        gate: where given, the second half of the body waits until the test sets this event.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None


Route: TypeAlias = Answer | Callable[[SiteRequest], Answer]


def html(body: str, charset: str = "utf-8") -> Answer:
    """A page of HTML, with its character set in the header."""
    return Answer(body.encode(charset), headers={"Content-Type": f"text/html; charset={charset}"})


def plain(body: str) -> Answer:
    """A page of plain text."""
    return Answer(body.encode(), headers={"Content-Type": "text/plain; charset=utf-8"})


def redirect(location: str, status: int = 302) -> Answer:
    """Leads elsewhere."""
    return Answer(status=status, headers={"Location": location})


class WebServer:
    """Serves the routes on an ephemeral port; a path without a route is a 404.

    Attributes:
        routes: may be changed while the server runs.
        requests: every request so far, in order.
    """

    def __init__(self, routes: Mapping[str, Route], *, tls: ssl.SSLContext | None = None) -> None:
        self.routes = dict(routes)
        self.requests: list[SiteRequest] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def place(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.place}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(site: WebServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = SiteRequest(self.command, self.path, headers, body)
            site.requests.append(request)
            route = site.routes.get(self.path.partition("?")[0], Answer(status=404))
            answer = route(request) if callable(route) else route
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.gate is None:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            half = len(answer.body) // 2 if answer.gate else len(answer.body)
            try:
                self.wfile.write(answer.body[:half])
                if answer.gate:
                    self.wfile.flush()
                    answer.gate.wait(30)
                    self.wfile.write(answer.body[half:])
            except OSError:  # the client has gone: that is what some tests are about
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
            pass

    return Handler
