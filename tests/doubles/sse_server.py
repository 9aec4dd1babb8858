"""A loopback HTTP server that plays raw answers, whatever protocol they are in.

Each POST takes the next answer and is recorded::

    with SseServer([json_answer({"error": {}}, status=429), sse_answer(events)]) as server:
        ...                                  # point the program at server.url
    assert server.requests[0].body["input"]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.doubles.loopback import Loopback, LoopbackHandler

if TYPE_CHECKING:
    import threading


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


class SseServer(Loopback):
    """Plays answers over HTTP on an ephemeral port. A request beyond the last of them gets a 400.

    Attributes:
        answers: those still to come; a test may add to them while the server runs.
        requests: every POST so far, in order.
    """

    def __init__(self, answers: Iterable[AnswerItem] = ()) -> None:
        super().__init__(_Handler)
        self.answers: list[AnswerItem] = list(answers)
        self.requests: list[PostedRequest] = []

    @property
    def url(self) -> str:
        """The server's root, without a path."""
        return self.root

    def take(self, request: PostedRequest) -> Answer:
        """Record a request and take the answer to it."""
        with self.lock:
            self.requests.append(request)
            if not self.answers:
                return json_answer({"error": {"message": "the server has no answers left"}}, status=400)
            item = self.answers.pop(0)
        return item if isinstance(item, Answer) else item(request)


class _Handler(LoopbackHandler):
    def do_POST(self) -> None:  # noqa: N802  the base class calls it so
        headers, body, raw = self.posted()
        self._play(self.server.owner.take(PostedRequest(self.path, headers, body, raw)))

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
                self.wait_at(answer.gate)
            self._write(piece, chunked=answer.chunked)
        if answer.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, piece: bytes, *, chunked: bool) -> None:
        if piece:  # an empty chunk would end the body
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            self.wfile.flush()
