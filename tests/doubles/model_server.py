"""A model server on loopback that plays a script: real HTTP, real streams, real failures.

It speaks OpenAI Chat Completions. Each POST takes the next step of the script and is recorded::

    with ModelServer([fail(429, {"Retry-After": "1"}), reply("hello")]) as server:
        ...                                  # point the program at server.url
    assert server.requests[0].body["messages"]
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.doubles.loopback import Loopback, LoopbackHandler

if TYPE_CHECKING:
    import threading

PIECE_CHARACTERS = 12
MODEL = "scripted-1"
NO_OTHERS = {"PULLWRIGHT_MODEL_PORTS": "none"}
"""No model server is looked for but at `OLLAMA_HOST`, so that no test depends on what listens on this machine."""


class Ending(Enum):
    """How a reply comes to its end."""

    PROPER = "proper"
    CUT = "cut"  # the connection closes in the middle of the reply
    UNFINISHED = "unfinished"  # HTTP ends properly, the reply has no finish reason
    RESET = "reset"  # the connection is reset before a byte is sent
    ERROR = "error"  # an error object takes the place of the reply's end


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """What came in. Header names are in lower case; `body` is empty where it was not a JSON object."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One scripted answer; the functions below make the usual ones.

    Attributes:
        raw: sent as it is, instead of a reply made from the other fields.
        pause_seconds: waited before each piece of a stream, or before a whole reply.
        gate: where given, the answer stops after its first half until the test sets this event.
        usage: whether the reply counts tokens at all.
        input_tokens: what it counts for the prompt.
    """

    text: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    finish: str = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    ending: Ending = Ending.PROPER
    error: Mapping[str, Any] = field(default_factory=dict)
    pause_seconds: float = 0.0
    gate: threading.Event | None = None
    usage: bool = True
    input_tokens: int = 100


ScriptItem: TypeAlias = Step | Callable[[RecordedRequest], Step]
"""A step, or a function that makes it from the request (to answer what was really asked)."""


def reply(text: str, *, finish: str = "stop", reasoning: str = "", usage: bool = True) -> Step:
    """A good reply. `finish="length"` makes it one that ran into the output limit."""
    return Step(text=text, finish=finish, reasoning=reasoning, usage=usage)


def plan(text: str, calls: Sequence[tuple[str, Mapping[str, Any]]] = ()) -> Step:
    """A reply that is a JSON plan; each call is `(tool_name, arguments)`."""
    listed = [{"tool_name": name, "arguments": dict(arguments)} for name, arguments in calls]
    return reply(json.dumps({"plan": text, "tool_calls": listed}))


def calls(*tool_calls: tuple[str, Mapping[str, Any]], text: str = "") -> Step:
    """A reply with native function calls; each is `(name, arguments)`."""
    listed = tuple(
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(tool_calls, start=1)
    )
    return Step(text=text, tool_calls=listed, finish="tool_calls")


def fail(
    status: int, headers: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
) -> Step:
    """An HTTP error; without a body it has one in the vendor's usual form."""
    error = body or {"error": {"message": f"scripted failure {status}", "type": "scripted", "code": None}}
    return Step(status=status, headers=headers or {}, raw=json.dumps(error).encode())


def malformed(raw: bytes = b'{"choices": [{"mess') -> Step:
    """Status 200 and a body that is not what it should be."""
    return Step(raw=raw)


def cut(text: str, *, clean: bool = False) -> Step:
    """Half of the reply, then the connection closes; `clean` ends the HTTP message properly."""
    return Step(text=text, ending=Ending.UNFINISHED if clean else Ending.CUT)


def reset() -> Step:
    """No answer: the connection is reset."""
    return Step(ending=Ending.RESET)


def fail_inside(text: str, error: Mapping[str, Any]) -> Step:
    """Status 200, half of the text, then `{"error": error}` in the stream."""
    return Step(text=text, ending=Ending.ERROR, error=error)


def slow(text: str, seconds: float) -> Step:
    """A reply that waits before each of its pieces."""
    return Step(text=text, pause_seconds=seconds)


def gated(text: str, gate: threading.Event) -> Step:
    """Half of the reply at once, the rest when the test sets the event."""
    return Step(text=text, gate=gate)


class ModelServer(Loopback):
    """Plays a script over HTTP on an ephemeral port. A request beyond the script's end gets a 400.

    Attributes:
        script: the steps that are still to come; a test may add to it while the server runs.
        requests: every POST so far, in order.
        parameters: what its list says of the model's size, as llama.cpp's does; None says nothing.
        listed: the names of its models.
    """

    def __init__(self, script: Sequence[ScriptItem] = ()) -> None:
        super().__init__(_Handler)
        self.script: list[ScriptItem] = list(script)
        self.requests: list[RecordedRequest] = []
        self.parameters: float | None = None
        self.listed: tuple[str, ...] = (MODEL,)

    @property
    def url(self) -> str:
        """What a user would configure as the API's address."""
        return f"{self.root}/v1"

    def take(self, request: RecordedRequest) -> Step:
        """Record a request and take the step that answers it."""
        with self.lock:
            self.requests.append(request)
            if not request.path.endswith("/chat/completions"):
                return fail(404)
            if not self.script:
                return fail(400, body={"error": {"message": "the model server's script is over"}})
            item = self.script.pop(0)
        return item if isinstance(item, Step) else item(request)


class _Handler(LoopbackHandler):
    def do_GET(self) -> None:  # noqa: N802  the base class calls it so
        owner = self.server.owner
        meta = {} if owner.parameters is None else {"meta": {"n_params": owner.parameters}}
        entries = [{"id": name, "object": "model", "owned_by": "library", **meta} for name in owner.listed]
        listing = {"object": "list", "data": entries}
        self._send(Step(raw=json.dumps(listing).encode()), b"")

    def do_POST(self) -> None:  # noqa: N802  the base class calls it so
        headers, body, _raw = self.posted()
        recorded = RecordedRequest(self.path, headers, body)
        step = self.server.owner.take(recorded)
        if step.ending is Ending.RESET:
            self._reset()
        elif step.raw is None and recorded.body.get("stream"):
            self._stream(step, recorded.body)
        else:
            self._send(step, json.dumps(_whole(step)).encode())

    def _reset(self) -> None:
        self.close_connection = True
        # Lingering for zero seconds makes the close a reset (RST) instead of an orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _pause(self, seconds: float) -> None:
        if seconds:
            self.server.owner.closing.wait(seconds)

    def _send(self, step: Step, made: bytes) -> None:
        payload = made if step.raw is None else step.raw
        self._pause(step.pause_seconds)
        self._head(step, {"Content-Type": "application/json", "Content-Length": str(len(payload))})
        if step.ending is Ending.CUT:
            self.close_connection = True
            payload = payload[: len(payload) // 2]
        half = len(payload) // 2
        self.wfile.write(payload[:half])
        self.wait_at(step.gate)
        self.wfile.write(payload[half:])

    def _head(self, step: Step, headers: Mapping[str, str]) -> None:
        self.send_response(step.status)
        for name, value in {**headers, **step.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, step: Step, body: Mapping[str, Any]) -> None:
        self._head(step, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        chunks = list(_chunks(step, body))
        said = [chunk for chunk in chunks if chunk["choices"] and not chunk["choices"][0]["finish_reason"]]
        half = (len(said) + 1) // 2  # never behind the finish reason
        for number, chunk in enumerate(chunks):
            self._pause(step.pause_seconds)
            if number == half:
                if step.ending is not Ending.PROPER:
                    break
                self.wait_at(step.gate)
            self._chunk(f"data: {json.dumps(chunk)}\n\n")
        if step.ending is Ending.CUT:
            self.close_connection = True
            return
        if step.ending is Ending.ERROR:
            self._chunk(f"data: {json.dumps({'error': step.error})}\n\n")
        elif step.ending is Ending.PROPER:
            self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        raw = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()


def _usage(step: Step) -> dict[str, int]:
    output = len(step.text) // 4 + 1
    return {
        "prompt_tokens": step.input_tokens,
        "completion_tokens": output,
        "total_tokens": step.input_tokens + output,
    }


def _whole(step: Step) -> dict[str, Any]:
    if step.ending is Ending.ERROR:
        return {"error": step.error}
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    if step.tool_calls:
        message["tool_calls"] = step.tool_calls
    finish = None if step.ending is Ending.UNFINISHED else step.finish
    whole = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    return {**whole, "usage": _usage(step)} if step.usage else whole


def _chunks(step: Step, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(step.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(step.text):
        yield chunk({"content": piece})
    for index, call in enumerate(step.tool_calls):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in _pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, step.finish)
    if step.usage and (body.get("stream_options") or {}).get("include_usage"):
        yield {**chunk({}), "choices": [], "usage": _usage(step)}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE_CHARACTERS):
        yield text[start : start + PIECE_CHARACTERS]
