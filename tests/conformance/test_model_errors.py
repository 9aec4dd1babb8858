"""Every failure in every protocol, over HTTP: the right class, the right number of tries, and no key in it."""

from __future__ import annotations

import json
import traceback
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ContextLengthError, ModelError, OverloadedError, RateLimitError
from orchestrator.core.messages import Message, Text, ToolCall
from orchestrator.engine.models.base import Completed, Request, Restarted, StreamEvent, TextPiece
from orchestrator.engine.models.transport import HttpOptions
from tests.conformance.error_cases import FAILURES, TRIES
from tests.conformance.model_cases import KEY, model_at
from tests.doubles.sse_server import Answer, SseServer, json_answer, sse_answer
from tests.doubles.vendor_replies import Protocol, Thought, VendorReply, render, render_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.engine.models.base import Response

ASK = Request("Be brief.", (Message.user("Hello"),))
REPLY = VendorReply(
    (
        Thought("Hm, hm.", "c2ln"),
        Text("I read the file, and more."),
        ToolCall("c1", "read_file", {"path": "a"}),
    )
)
OPTIONS = HttpOptions(tries=TRIES)

every_protocol = pytest.mark.parametrize("protocol", list(Protocol))
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module")
def running() -> Iterator[SseServer]:
    with SseServer() as started:
        yield started


@pytest.fixture
def server(running: SseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SseServer:
    # Nothing is encrypted here, and each client would read all of the machine's certificates.
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    running.answers.clear()
    running.requests.clear()
    return running


def good(protocol: Protocol, *, stream: bool) -> Answer:
    return sse_answer(render(protocol, REPLY)) if stream else json_answer(render_whole(protocol, REPLY))


async def ask(
    protocol: Protocol, server: SseServer, clock: ManualClock, *, stream: bool
) -> tuple[list[StreamEvent], Response]:
    async with aclosing(model_at(protocol, server.url, clock=clock, options=OPTIONS)) as model:
        if not stream:
            return [], await model.complete(ASK)
        *events, last = [event async for event in model.stream(ASK)]
    assert isinstance(last, Completed)
    return events, last.response


@every_protocol
@both_ways
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure(protocol: Protocol, name: str, server: SseServer, *, stream: bool) -> None:
    failure = FAILURES[name]
    server.answers += [failure.answers[protocol]] * TRIES
    clock = ManualClock()
    start = clock.now()
    with pytest.raises(ModelError) as caught:
        await ask(protocol, server, clock, stream=stream)
    error = caught.value
    assert isinstance(error, failure.kind)
    assert len(server.requests) == (TRIES if failure.again else 1)
    if isinstance(error, RateLimitError) and failure.resume_seconds:
        waited = sum(clock.slept)
        assert waited == (failure.resume_seconds * (TRIES - 1) if failure.again else 0)
        assert error.resume_at == start + timedelta(seconds=waited + failure.resume_seconds)
    text = str(error)
    assert "127.0.0.1" in text
    assert "\n" not in text
    assert failure.words.get(protocol, "") in text
    assert KEY not in "".join(traceback.format_exception(error)) + repr(error)


@every_protocol
@both_ways
@pytest.mark.parametrize("name", [name for name, failure in FAILURES.items() if failure.again])
async def test_what_passes_is_asked_again(
    protocol: Protocol, name: str, server: SseServer, *, stream: bool
) -> None:
    server.answers += [FAILURES[name].answers[protocol], good(protocol, stream=stream)]
    events, response = await ask(protocol, server, ManualClock(), stream=stream)
    assert response.text == "I read the file, and more."
    first, second = server.requests
    assert first.raw == second.raw
    assert not any(isinstance(event, Restarted) for event in events)  # nothing had been shown


@every_protocol
async def test_a_stream_cut_anywhere_is_asked_for_again_whole(protocol: Protocol, server: SseServer) -> None:
    whole = sse_answer(render(protocol, REPLY))
    server.answers.append(whole)
    _, wanted = await ask(protocol, server, ManualClock(), stream=True)
    restarts = 0
    for cut_after in range(len(whole.pieces)):
        server.requests.clear()
        server.answers[:] = [sse_answer(render(protocol, REPLY), cut_after=cut_after), whole]
        events, response = await ask(protocol, server, ManualClock(), stream=True)
        assert response.message == wanted.message
        assert said_since_restart(events) == wanted.text
        assert len(server.requests) == (2 if server.answers == [] else 1)
        restarts += sum(isinstance(event, Restarted) for event in events)
    assert restarts >= 3


def said_since_restart(events: list[StreamEvent]) -> str:
    text = ""
    for event in events:
        if isinstance(event, Restarted):
            text = ""
        elif isinstance(event, TextPiece):
            text += event.text
    return text


def _line(value: Any, name: str = "") -> bytes:
    event = f"event: {name}\n" if name else ""
    return f"{event}data: {json.dumps(value)}\n\n".encode()


def _responses_failed(code: str, message: str) -> bytes:
    failed = {"id": "r", "status": "failed", "error": {"code": code, "message": message}, "output": []}
    return _line({"type": "response.failed", "response": failed}, "response.failed")


def _anthropic(kind: str, message: str) -> bytes:
    return _line({"type": "error", "error": {"type": kind, "message": message}}, "error")


BUSY: dict[str, tuple[Protocol, bytes]] = {
    "chat": (Protocol.CHAT, _line({"error": {"message": "The server had an error", "type": "server_error"}})),
    "responses": (
        Protocol.RESPONSES,
        _line({"type": "error", "code": "server_error", "message": "busy", "param": None}, "error"),
    ),
    "responses failed": (Protocol.RESPONSES, _responses_failed("server_error", "The model failed")),
    "messages": (Protocol.MESSAGES, _anthropic("overloaded_error", "Overloaded")),
    "gemini": (
        Protocol.GEMINI,
        _line({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}),
    ),
}
_RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "11.054s"}
WAITS: dict[str, tuple[Protocol, bytes]] = {
    "chat": (
        Protocol.CHAT,
        _line({"error": {"message": "Please try again in 11.054s.", "code": "rate_limit_exceeded"}}),
    ),
    "chat, by a gateway": (
        Protocol.CHAT,
        _line({"error": {"code": 429, "message": "x", "metadata": {"headers": {"Retry-After": "11.054"}}}}),
    ),
    "responses": (
        Protocol.RESPONSES,
        _line({"type": "error", "code": "rate_limit_exceeded", "message": "try again in 11.054s"}, "error"),
    ),
    "responses failed": (
        Protocol.RESPONSES,
        _responses_failed("rate_limit_exceeded", "Rate limit reached. Please try again in 11.054s. Visit"),
    ),
    "messages": (Protocol.MESSAGES, _anthropic("rate_limit_error", "Try again in 11.054 seconds")),
    "gemini": (
        Protocol.GEMINI,
        _line(
            {
                "error": {
                    "code": 429,
                    "message": "You exceeded your current quota.",
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [_RETRY_INFO],
                }
            }
        ),
    ),
}
TOO_LONG: dict[str, tuple[Protocol, bytes]] = {
    "chat": (
        Protocol.CHAT,
        _line({"error": {"message": f"too long, {KEY}", "code": "context_length_exceeded"}}),
    ),
    "responses": (
        Protocol.RESPONSES,
        _line({"type": "error", "code": "context_length_exceeded", "message": f"too long, {KEY}"}, "error"),
    ),
    "responses failed": (
        Protocol.RESPONSES,
        _responses_failed("context_length_exceeded", f"Your input exceeds the context window. {KEY}"),
    ),
    "messages": (
        Protocol.MESSAGES,
        _anthropic("invalid_request_error", f"prompt is too long: 9 tokens > 8 maximum {KEY}"),
    ),
    "gemini": (
        Protocol.GEMINI,
        _line(
            {
                "error": {
                    "code": 400,
                    "message": f"The input token count (9) exceeds the maximum number of tokens. {KEY}",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ),
    ),
}


def broken(protocol: Protocol, error: bytes, *, after: bool) -> Answer:
    """A stream with an error in it: first of all, or after part of the text."""
    events = render(protocol, REPLY)
    position = events.index(b"the fil") if after else 0  # in the text, after something was shown
    begun = events[: events.rindex(b"\n\n", 0, position) + 2] if after else b""
    return sse_answer(begun + error)


@pytest.mark.parametrize(("protocol", "error"), BUSY.values(), ids=BUSY)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_passing_error_inside_a_stream(
    protocol: Protocol, error: bytes, server: SseServer, *, after: bool
) -> None:
    server.answers += [broken(protocol, error, after=after), good(protocol, stream=True)]
    events, response = await ask(protocol, server, ManualClock(), stream=True)
    assert said_since_restart(events) == response.text == "I read the file, and more."
    assert [isinstance(event, Restarted) for event in events].count(True) == after
    assert len(server.requests) == 2

    server.answers += [broken(protocol, error, after=after)] * TRIES
    with pytest.raises(OverloadedError):
        await ask(protocol, server, ManualClock(), stream=True)
    assert len(server.requests) == 2 + TRIES


@pytest.mark.parametrize(("protocol", "error"), WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("form", ["before", "after", "a reply"])
async def test_a_wait_inside_a_reply_is_honoured(
    protocol: Protocol, error: bytes, form: str, server: SseServer
) -> None:
    body = error[error.index(b"{") :].strip()
    answer = json_answer(body) if form == "a reply" else broken(protocol, error, after=form == "after")
    clock = ManualClock()
    server.answers += [answer, good(protocol, stream=True)]
    _, response = await ask(protocol, server, clock, stream=True)
    assert response.text == "I read the file, and more."
    assert clock.slept == [pytest.approx(11.054, abs=1e-3)]


@pytest.mark.parametrize(("protocol", "error"), TOO_LONG.values(), ids=TOO_LONG)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_lasting_error_inside_a_stream(
    protocol: Protocol, error: bytes, server: SseServer, *, after: bool
) -> None:
    server.answers.append(broken(protocol, error, after=after))
    with pytest.raises(ContextLengthError) as caught:
        await ask(protocol, server, ManualClock(), stream=True)
    assert len(server.requests) == 1
    assert KEY not in "".join(traceback.format_exception(caught.value))
