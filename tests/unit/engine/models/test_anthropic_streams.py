"""Streams in any pieces, and over real connections."""

from __future__ import annotations

import contextlib
import json
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConnectionFailedError, ModelError
from orchestrator.core.messages import Message, Usage
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import Completed, Request, Response, StreamEvent, Waiting
from orchestrator.engine.models.transport import HttpModel, HttpOptions
from tests.doubles.sse_server import SseServer, json_answer, sse_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parents[3] / "data" / "messages"
WIRE = AnthropicWire.at("http://localhost:8080", "some-model")
ASK = Request("You are brief.", (Message.user("Hello there"),))


def read(content: bytes | Iterator[bytes]) -> tuple[list[object], Response]:
    reply = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=content,
        request=httpx2.Request("POST", WIRE.url),
    )
    decoder = WIRE.decoder(ASK)
    pieces: list[object] = []
    for event in httpx2.EventSource(reply):
        pieces += decoder.feed(event.event, event.data)
    held, response = decoder.finish()
    return [*pieces, *held], response


def model_at(server: SseServer) -> HttpModel:
    wire = AnthropicWire.at(server.url, "claude-opus-4-8")
    options = HttpOptions(connect_seconds=5, read_seconds=5, total_seconds=20, first_backoff_seconds=0.0)
    return HttpModel(
        "anthropic:m", wire, api_key="made-up-key", clock=SystemClock(), random=lambda: 0.0, options=options
    )


async def events_of(model: HttpModel, request: Request) -> list[StreamEvent]:
    async with aclosing(model.stream(request)) as events:
        return [event async for event in events]


async def test_over_a_real_connection() -> None:
    stream = (DATA / "thinking_tools.sse").read_bytes()
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with SseServer([json_answer(overloaded, status=529), sse_answer(stream)]) as server:
        model = model_at(server)
        events = await events_of(model, ASK)
        await model.aclose()
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.response == read(stream)[1]
    assert isinstance(events[0], Waiting)
    assert len(events) == 10
    assert [request.path for request in server.requests] == ["/v1/messages"] * 2
    assert server.requests[1].headers["x-api-key"] == "made-up-key"
    assert server.requests[1].headers["anthropic-version"] == "2023-06-01"
    assert server.requests[1].body["stream"] is True


async def test_a_connection_that_breaks_and_a_feature_that_is_refused() -> None:
    stream = (DATA / "text.sse").read_bytes()
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": "cache_control: no"}}
    answers = [json_answer(refusal, status=400), sse_answer(stream, cut_after=4), sse_answer(stream)]
    with SseServer(answers) as server:
        model = model_at(server)
        events = await events_of(model, ASK)
        await model.aclose()
    assert isinstance(events[-1], Completed)
    assert events[-1].response.text == "Good morning, Zoë."
    assert ["cache_control" in request.body for request in server.requests] == [True, False, False]


async def test_a_whole_reply_over_a_real_connection() -> None:
    with SseServer([json_answer((DATA / "tools.json").read_bytes())]) as server:
        model = model_at(server)
        response = await model.complete(ASK)
        await model.aclose()
    assert [call.name for call in response.tool_calls] == ["grep", "list_dir"]
    assert response.usage == Usage(100, 33, 95)


@given(st.sampled_from(sorted(DATA.glob("*.sse"))), st.lists(st.integers(0, 4_000), max_size=12))
def test_any_cutting_of_a_stream_gives_the_same(file: Path, cuts: list[int]) -> None:
    raw = file.read_bytes()
    places = sorted({0, len(raw), *(min(cut, len(raw)) for cut in cuts)})

    def chunks() -> Iterator[bytes]:
        for begin, end in pairwise(places):
            yield raw[begin:end]

    assert read(chunks()) == read(raw)


@given(st.sampled_from(sorted(DATA.glob("*.sse"))), st.integers(1, 40))
def test_a_stream_cut_before_its_end_is_an_error(file: Path, kept: int) -> None:
    events = file.read_text().split("\n\n")[:-3]  # without message_delta and message_stop
    with pytest.raises(ConnectionFailedError):
        read("".join(f"{event}\n\n" for event in events[:kept]).encode())


@given(st.text(max_size=30), st.lists(st.integers(0, 60), max_size=6))
def test_arguments_in_any_pieces(text: str, cuts: list[int]) -> None:
    raw = json.dumps({"text": text}, ensure_ascii=False)
    places = sorted({0, len(raw), *(min(cut, len(raw)) for cut in cuts)})
    pieces = [raw[begin:end] for begin, end in pairwise(places)]
    events = [
        {
            "type": "content_block_start",
            "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        },
        *(
            {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in pieces
        ),
        {"type": "message_stop"},
    ]
    response = read(b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events))[1]
    assert response.tool_calls[0].arguments == {"text": text}


KEYS = [
    "type",
    "content",
    "content_block",
    "delta",
    "index",
    "message",
    "usage",
    "stop_reason",
    "stop_details",
    "explanation",
    "text",
    "thinking",
    "signature",
    "partial_json",
    "input",
    "id",
    "name",
    "model",
    "error",
    "input_tokens",
    "output_tokens",
    "iterations",
]
WORDS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "text",
    "thinking",
    "tool_use",
    "server_tool_use",
    "text_delta",
    "thinking_delta",
    "signature_delta",
    "input_json_delta",
    "max_tokens",
    "refusal",
    "error",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.sampled_from(WORDS), JSON), max_size=4))
def test_any_json_gives_a_reply_or_an_error_of_ours(events: list[tuple[str, Any]]) -> None:
    decoder = WIRE.decoder(ASK)
    with contextlib.suppress(ModelError):
        for event, value in events:
            decoder.feed(event, json.dumps(value))
            decoder.feed(
                event, json.dumps({"type": event, "content_block": value, "delta": value, "message": value})
            )
        decoder.feed("message_stop", '{"type": "message_stop"}')
        decoder.finish()
    for _, value in events:
        with contextlib.suppress(ModelError):
            WIRE.decoder(ASK).read(json.dumps({"content": [value], "usage": value}).encode())
