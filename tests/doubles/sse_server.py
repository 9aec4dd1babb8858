"""A loopback HTTP server that plays raw answers, whatever protocol they are in.

Each POST takes the next answer and is recorded::

    with SseServer([json_answer({"error": {}}, status=429), sse_answer(events)]) as server:
        ...                                  # point the program at server.url
    assert server.requests[0].body["input"]
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


@dataclass(frozen=True, slots=True)
class PostedRequest:
    """What came in. Header names are in lower case; `body` is empty where `raw` was not a JSON object."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    raw: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it goes over the wire; the functions below make the usual ones.

    Attributes:
        pieces: the body, sent piece by piece, each flushed.
        chunked: HTTP chunks, one for each piece, as streams come; otherwise a Content-Length.
        cut_after: close the connection after so many pieces, in the middle of the HTTP message.
        gate: where given, the answer waits before its last piece until the test sets this event.
    """

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunked: bool = False
    cut_after: int | None = None
    gate: threading.Event | None = None


AnswerItem: TypeAlias = Answer | Callable[[PostedRequest], Answer]
"""An answer, or a function that makes it from the request."""


def json_answer(
    value: object,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    cut: bool = False,
) -> Answer:
    """A JSON document; `bytes` are sent as they are. `cut` sends half of it, then closes."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    half = len(raw) // 2
    kind = {"content-type": "application/json", **(headers or {})}
    return Answer((raw[:half], raw[half:]), status, kind, cut_after=1 if cut else None)


def sse_answer(
    events: bytes | Iterable[Mapping[str, Any]],
    *,
    headers: Mapping[str, str] | None = None,
    cut_after: int | None = None,
    gate: threading.Event | None = None,
) -> Answer:
    """A stream of server-sent events: raw bytes, or JSON objects, each named by its `type` if it has one.

    Args:
        events: raw bytes are cut at blank lines, so that each event is a piece.
        headers: in addition to the content type.
        cut_after: close the connection after so many events.
        gate: hold the last event back until the test sets it.
    """
    if isinstance(events, bytes):
        pieces = tuple(part + b"\n\n" for part in events.split(b"\n\n") if part.strip())
    else:
        pieces = tuple(sse_event(event) for event in events)
    kind = {"content-type": "text/event-stream", **(headers or {})}
    return Answer(pieces, 200, kind, chunked=True, cut_after=cut_after, gate=gate)


def sse_event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event with a JSON object in it."""
    name = f"event: {value['type']}\n" if isinstance(value.get("type"), str) else ""
    return f"{name}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


class SseServer:
    """Plays answers over HTTP on an ephemeral port. A request beyond the last of them gets a 400.

    Attributes:
        answers: those still to come; a test may add to them while the server runs.
        requests: every POST so far, in order.
    """

    def __init__(self, answers: Iterable[AnswerItem] = ()) -> None:
        self.answers: list[AnswerItem] = list(answers)
        self.requests: list[PostedRequest] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._http = _Server(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The server's root, without a path."""
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

    def take(self, request: PostedRequest) -> Answer:
        """Record a request and take the answer to it."""
        with self._lock:
            self.requests.append(request)
            if not self.answers:
                return json_answer({"error": {"message": "the server has no answers left"}}, status=400)
            item = self.answers.pop(0)
        return item if isinstance(item, Answer) else item(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for the handlers, so that no socket outlives its test

    def __init__(self, owner: SseServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client was faster

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is not an error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Stay silent."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        headers = {name.lower(): value for name, value in self.headers.items()}
        posted = PostedRequest(self.path, headers, body if isinstance(body, dict) else {}, raw)
        self._play(self.server.owner.take(posted))

    def _play(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(sum(map(len, answer.pieces))))
        self.end_headers()
        for number, piece in enumerate(answer.pieces):
            if number == answer.cut_after:
                self.close_connection = True
                return
            if number == len(answer.pieces) - 1:
                self._wait_at(answer.gate)
            self._write(piece, chunked=answer.chunked)
        if answer.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, piece: bytes, *, chunked: bool) -> None:
        if piece:  # an empty chunk would end the body
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            self.wfile.flush()

    def _wait_at(self, gate: threading.Event | None) -> None:
        while gate is not None and not gate.wait(0.01) and not self.server.owner.closing.is_set():
            pass
