"""The Gemini wire through `HttpModel`, against a real server on this machine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import AuthenticationError, ContentFilterError, RateLimitError
from orchestrator.core.messages import FinishReason, Message, Role, ToolDefinition, ToolResult
from orchestrator.engine.models.base import (
    Completed,
    OutputSchema,
    Request,
    Restarted,
    StreamEvent,
    TextPiece,
)
from orchestrator.engine.models.gemini import GeminiWire
from orchestrator.engine.models.transport import HttpModel
from tests.doubles.sse_server import Answer, SseServer, json_answer, sse_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "key-that-nobody-may-see"
START = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "gemini-3-flash-preview"
ASK = Request("Be brief.", (Message.user("Hello"),))
TOOL = ToolDefinition("read_file", "Read.", {"type": "object"})


def chunk(*parts: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    counts = {"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": MODEL, "responseId": "r1"}


HELLO = [chunk({"text": "Hel"}), chunk({"text": "lo"}), chunk(finish="STOP")]


@asynccontextmanager
async def model_at(server: SseServer, clock: ManualClock | None = None) -> AsyncIterator[HttpModel]:
    wire = GeminiWire.at(server.url, MODEL)
    clock = clock or ManualClock(START)
    model = HttpModel(f"gemini:{MODEL}", wire, api_key=KEY, clock=clock, random=lambda: 0.0)
    try:
        yield model
    finally:
        await model.aclose()


async def streamed(model: HttpModel, request: Request = ASK) -> list[StreamEvent]:
    async with aclosing(model.stream(request)) as events:
        return [event async for event in events]


async def test_a_turn_with_a_call_and_its_result() -> None:
    call: dict[str, Any] = {
        "functionCall": {"name": "read_file", "args": {"path": "a.py"}},
        "thoughtSignature": "c2ln",
    }
    with SseServer([sse_answer([chunk(call, finish="STOP")]), sse_answer(HELLO)]) as server:
        async with model_at(server) as model:
            first = Request("Be brief.", (Message.user("Read a.py"),), tools=(TOOL,))
            last = (await streamed(model, first))[-1]
            assert isinstance(last, Completed)
            assert last.response.finish is FinishReason.TOOL_CALLS
            made = last.response.tool_calls[0]
            results = Message(Role.TOOL, (ToolResult(made.id, made.name, "x = 1"),))
            second = Request("Be brief.", (*first.messages, last.response.message, results), tools=(TOOL,))
            *pieces, end = await streamed(model, second)
        one, two = server.requests
    assert pieces == [TextPiece("Hel"), TextPiece("lo")]
    assert isinstance(end, Completed)
    assert (end.response.text, end.response.finish) == ("Hello", FinishReason.STOP)
    assert end.response.usage.output_tokens == 5
    assert one.path == f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
    assert one.headers["x-goog-api-key"] == KEY
    assert "authorization" not in one.headers
    assert two.body["contents"][1]["parts"] == [
        {"functionCall": {**call["functionCall"], "id": made.id}, "thoughtSignature": "c2ln"}
    ]
    assert two.body["contents"][2]["parts"][0]["functionResponse"]["id"] == made.id
    assert two.raw.startswith(one.raw.removesuffix(b"]}"))


async def test_complete() -> None:
    with SseServer([json_answer(chunk({"text": "Hello"}, finish="STOP"))]) as server:
        async with model_at(server) as model:
            assert (await model.complete(ASK)).text == "Hello"
        assert server.requests[0].path == f"/v1beta/models/{MODEL}:generateContent"


@pytest.mark.parametrize(
    "broken",
    [
        sse_answer(HELLO, cut_after=1),
        sse_answer(HELLO[:2]),
        sse_answer([HELLO[0], {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}]),
    ],
)
async def test_a_stream_that_breaks_is_asked_again(broken: Answer) -> None:
    with SseServer([broken, sse_answer(HELLO)]) as server:
        async with model_at(server) as model:
            events = await streamed(model)
    assert events[0] == TextPiece("Hel")
    assert events.count(Restarted()) == 1
    assert events[events.index(Restarted()) + 1 : -1] == [TextPiece("Hel"), TextPiece("lo")]
    assert isinstance(events[-1], Completed)
    assert events[-1].response.text == "Hello"


async def test_a_list_in_place_of_a_stream() -> None:
    with SseServer([json_answer(HELLO)]) as server:
        async with model_at(server) as model:
            last = (await streamed(model))[-1]
    assert isinstance(last, Completed)
    assert last.response.text == "Hello"


async def test_waits_as_long_as_the_error_asks() -> None:
    details = [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaId": "RequestsPerMinute"}],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"},
    ]
    message = "You exceeded your current quota"
    body = {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}
    clock = ManualClock(START)
    with SseServer([json_answer([body], status=429), sse_answer(HELLO)]) as server:
        async with model_at(server, clock) as model:
            await streamed(model)
    assert clock.slept == [17]


async def test_a_long_wait_is_left_to_the_caller() -> None:
    details = [{"retryDelay": "3600s"}]
    body = {"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED", "details": details}}
    with SseServer([json_answer(body, status=429)]) as server:
        async with model_at(server) as model:
            with pytest.raises(RateLimitError) as caught:
                await streamed(model)
    assert caught.value.resume_at == START + timedelta(hours=1)


async def test_a_wrong_key_is_said_and_not_shown() -> None:
    body = {"error": {"code": 400, "message": f"API key not valid: {KEY}", "status": "INVALID_ARGUMENT"}}
    with SseServer([json_answer(body, status=400)]) as server:
        async with model_at(server) as model:
            with pytest.raises(AuthenticationError) as caught:
                await streamed(model)
    assert KEY not in str(caught.value)
    assert "check the API key" in str(caught.value)


async def test_a_refused_prompt_is_not_asked_again() -> None:
    with SseServer([sse_answer([{"promptFeedback": {"blockReason": "SAFETY"}}])]) as server:
        async with model_at(server) as model:
            with pytest.raises(ContentFilterError, match="SAFETY"):
                await streamed(model)
        assert len(server.requests) == 1


async def test_what_a_server_refuses_is_given_up_for_good() -> None:
    def refuse(message: str) -> Answer:
        return json_answer(
            {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}, status=400
        )

    schema = OutputSchema("plan", {"type": "object"})
    request = Request("", (Message.user("Hi"),), output_schema=schema, reasoning_effort="minimal")
    answers = [
        refuse("Thinking level MINIMAL is not supported for this model."),
        refuse("Thinking is not supported."),
        refuse("JSON mode is not enabled for this model"),
        sse_answer(HELLO),
        sse_answer(HELLO),
    ]
    with SseServer(answers) as server:
        async with model_at(server) as model:
            await streamed(model, request)
            await streamed(model, request)
        configs = [sent.body.get("generationConfig", {}) for sent in server.requests]
    assert [config.get("thinkingConfig", {}).get("thinkingLevel") for config in configs] == [
        "MINIMAL", "LOW", None, None, None,
    ]  # fmt: skip
    assert ["responseJsonSchema" in config for config in configs] == [True, True, True, False, False]


async def test_calls_at_once_do_not_mix() -> None:
    with SseServer([sse_answer(HELLO)] * 4) as server:
        async with model_at(server) as model:
            replies = await asyncio.gather(*(streamed(model) for _ in range(4)))
    assert {
        event.response.text for events in replies for event in events if isinstance(event, Completed)
    } == {"Hello"}
