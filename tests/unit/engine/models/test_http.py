from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import Clock, ManualClock
from orchestrator.core.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from orchestrator.core.messages import FinishReason, Message
from orchestrator.engine.models.base import (
    Completed,
    OutputSchema,
    Relaxed,
    Request,
    Restarted,
    StreamEvent,
    Switched,
    TextPiece,
    Waiting,
)
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.transport import HttpModel, HttpOptions
from tests.doubles.model_server import (
    Ending,
    ModelServer,
    RecordedRequest,
    ScriptItem,
    Step,
    cut,
    fail,
    fail_inside,
    gated,
    malformed,
    reply,
    reset,
)
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TEXT = "The quick brown fox jumps over the lazy dog, twice a day."
ASK = Request("Be brief.", (Message.user("Hello"),))
KEY = "sk-made-up-0123456789"
START = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def model_at(
    url: str,
    *,
    clock: Clock | None = None,
    options: HttpOptions | None = None,
    waits: list[float] | None = None,
    random: float = 0.5,
) -> AsyncIterator[HttpModel]:
    model = HttpModel(
        "openai-chat:scripted",
        ChatWire.at(url, "scripted"),
        api_key=KEY,
        clock=clock or ManualClock(START),
        random=lambda: random,
        on_wait=None if waits is None else lambda seconds, _: waits.append(seconds),
        options=options,
    )
    try:
        yield model
    finally:
        await model.aclose()


async def streamed(model: HttpModel, request: Request = ASK) -> list[StreamEvent]:
    return [event async for event in model.stream(request)]


async def failure_of(script: list[ScriptItem], *, stream: bool = True, **model: Any) -> ModelError:
    with ModelServer(script) as server:
        async with model_at(server.url, **model) as asked:
            with pytest.raises(ModelError) as caught:
                await (streamed(asked) if stream else asked.complete(ASK))
            assert not server.script
            return caught.value


async def test_a_stream_gives_pieces_and_then_the_whole_reply() -> None:
    with ModelServer([reply(TEXT)]) as server:
        async with model_at(server.url) as model:
            *pieces, last = await streamed(model)
    assert isinstance(last, Completed)
    assert last.response.text == TEXT
    assert last.response.finish is FinishReason.STOP
    assert last.response.usage.input_tokens == 100
    assert [type(piece) for piece in pieces] == [TextPiece] * len(pieces)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == TEXT
    assert len(pieces) > 2


async def test_complete_asks_without_stream() -> None:
    with ModelServer([reply(TEXT)]) as server:
        async with model_at(server.url) as model:
            response = await model.complete(ASK)
        sent = server.requests[0]
    assert response.text == TEXT
    assert "stream" not in sent.body
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.path == "/v1/chat/completions"


async def test_no_key_sends_no_authorization() -> None:
    with ModelServer([reply("ok")]) as server:
        wire = ChatWire.at(server.url, "scripted")
        model = HttpModel("m", wire, api_key=None, clock=ManualClock(), random=lambda: 0.0)
        await model.complete(ASK)
        await model.aclose()
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_passing_failures_are_tried_again(status: int) -> None:
    waits: list[float] = []
    with ModelServer([fail(status), fail(status), reply(TEXT)]) as server:
        async with model_at(server.url, waits=waits) as model:
            assert (await model.complete(ASK)).text == TEXT
    assert waits == [0.25, 0.5]  # half of 0.5 s, then half of 1 s


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (fail(400), InvalidRequestError),
        (fail(401), AuthenticationError),
        (fail(404), ModelNotFoundError),
        (fail(429, body={"error": {"message": "no money", "code": "insufficient_quota"}}), RateLimitError),
        (fail(429, {"x-should-retry": "false"}), RateLimitError),
        (fail(302, {"Location": "http://127.0.0.1:1/elsewhere"}), ProviderError),
        (Step(raw=b"<html>hello</html>", headers={"Content-Type": "text/html"}), ProviderError),
        (
            fail_inside(TEXT, {"message": "tool call is wrong", "type": "invalid_request_error"}),
            InvalidRequestError,
        ),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_lasting_failures_are_raised_at_once(
    step: Step, kind: type[ModelError], *, stream: bool
) -> None:
    error = await failure_of([step], stream=stream)
    assert type(error).__mro__.index(kind) <= 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("step", [reset(), cut(TEXT), malformed()])
async def test_broken_replies_are_asked_again(step: Step, *, stream: bool) -> None:
    with ModelServer([step, reply(TEXT)]) as server:
        async with model_at(server.url) as model:
            response = (await streamed(model))[-1] if stream else Completed(await model.complete(ASK))
        assert len(server.requests) == 2
    assert isinstance(response, Completed)
    assert response.response.text == TEXT


@pytest.mark.parametrize(
    "step", [cut(TEXT), cut(TEXT, clean=True), fail_inside(TEXT, {"message": "busy", "type": "server_error"})]
)
async def test_pieces_of_a_broken_stream_are_taken_back(step: Step) -> None:
    with ModelServer([step, reply(TEXT)]) as server:
        async with model_at(server.url) as model:
            events = await streamed(model)
    restart = events.index(Restarted())
    assert restart > 0
    after = [event.text for event in events[restart:] if isinstance(event, TextPiece)]
    assert "".join(after) == TEXT
    assert events.count(Restarted()) == 1


async def test_a_stream_says_that_it_waits_before_it_does() -> None:
    clock = ManualClock(START)
    with ModelServer([fail(503), reply(TEXT)]) as server:
        async with model_at(server.url, clock=clock) as model, aclosing(model.stream(ASK)) as events:
            first = await anext(events)
            assert isinstance(first, Waiting)
            assert (first.seconds, type(first.error)) == (0.25, OverloadedError)
            assert clock.slept == []
            assert isinstance([event async for event in events][-1], Completed)
    assert clock.slept == [0.25]


async def test_closing_waits_for_a_reply_that_is_under_way() -> None:
    gate = threading.Event()
    with ModelServer([gated(TEXT, gate), reply(TEXT)]) as server:
        async with model_at(server.url) as model:
            async with aclosing(model.stream(ASK)) as events:
                await anext(events)
                await model.aclose()
                gate.set()
                assert isinstance([event async for event in events][-1], Completed)
            assert model._connection.client is None
            assert (await model.complete(ASK)).text == TEXT
            assert server.connections == 2


async def test_nothing_is_taken_back_where_nothing_was_shown() -> None:
    with ModelServer([fail(503), reply(TEXT)]) as server:
        async with model_at(server.url) as model:
            assert Restarted() not in await streamed(model)


async def test_tries_end() -> None:
    waits: list[float] = []
    error = await failure_of([fail(503)] * 5, waits=waits, stream=False)
    assert isinstance(error, OverloadedError)
    assert error.status == 503
    assert len(waits) == 4


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:20 GMT"}, 20),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m0.5s"}, 60.5),
    ],
)
async def test_waits_as_long_as_the_server_asks(headers: dict[str, str], seconds: float) -> None:
    clock = ManualClock(START)
    with ModelServer([fail(429, headers), reply(TEXT)]) as server:
        async with model_at(server.url, clock=clock, random=0.0) as model:
            await streamed(model)
    assert clock.slept == [seconds]


async def test_a_long_wait_is_left_to_the_caller() -> None:
    clock = ManualClock(START)
    error = await failure_of([fail(429, {"Retry-After": "121"})], clock=clock)
    assert isinstance(error, RateLimitError)
    assert error.resume_at == START + timedelta(seconds=121)
    assert clock.slept == []


async def test_waits_are_capped_together() -> None:
    clock = ManualClock(START)
    await failure_of([fail(429, {"Retry-After": "70"})] * 2, clock=clock, random=0.0)
    assert clock.slept == [70]


async def test_waits_stay_within_the_total_time() -> None:
    clock = ManualClock(START)
    options = HttpOptions(total_seconds=60)
    await failure_of([fail(503, {"Retry-After": "61"})], clock=clock, options=options)
    assert clock.slept == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_silent_server_is_given_up(*, stream: bool) -> None:
    options = HttpOptions(read_seconds=0.05, tries=1)
    error = await failure_of([gated(TEXT, threading.Event())], stream=stream, options=options)
    assert isinstance(error, ConnectionFailedError)
    assert "sent nothing for 0.05 s" in str(error)


async def test_the_total_time_ends_a_dripping_stream() -> None:
    """Each piece takes half a minute by the call's clock, less than what a silence may take."""
    clock, options = ManualClock(START), HttpOptions(total_seconds=100)
    with ModelServer([gated("x" * 1_200, threading.Event())]) as server:
        async with model_at(server.url, clock=clock, options=options) as model:

            async def listen() -> None:
                async for _ in model.stream(ASK):
                    clock.advance(30)

            with pytest.raises(ConnectionFailedError, match=r"no whole reply from .* within 100 s"):
                await listen()


async def test_the_total_time_ends_a_reply_in_one_piece() -> None:
    clock, options = ManualClock(START), HttpOptions(total_seconds=100)

    def late(_request: RecordedRequest) -> Step:
        clock.advance(99.95)
        return gated(TEXT, threading.Event())

    error = await failure_of([late], stream=False, options=options, clock=clock)
    assert "no whole reply" in str(error)


async def test_nobody_listens() -> None:
    with ModelServer() as server:
        url = server.url
    async with model_at(url) as model:
        with pytest.raises(
            ConnectionFailedError, match=r"cannot connect to 127\.0\.0\.1:\d+.*is the address right"
        ):
            await model.complete(ASK)


async def test_cancelling_closes_the_stream() -> None:
    gate = threading.Event()
    with ModelServer([gated(TEXT, gate), reply("next")]) as server:
        async with model_at(server.url) as model:
            first = asyncio.Event()

            async def consume() -> None:
                async for _ in model.stream(ASK):
                    first.set()

            task = asyncio.create_task(consume())
            await first.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            client = model._connection.client
            assert client is not None
            assert not _connections(client)
            assert (await model.complete(ASK)).text == "next"


async def test_leaving_a_stream_closes_it() -> None:
    with ModelServer([gated(TEXT, threading.Event())]) as server:
        async with model_at(server.url) as model:
            async with aclosing(model.stream(ASK)) as events:
                await anext(events)
            assert model._connection.client is not None
            assert not _connections(model._connection.client)


def _connections(client: Any) -> list[Any]:
    return list(
        client._transport_for_url(client.build_request("GET", "http://127.0.0.1").url)._pool.connections
    )


async def test_one_connection_serves_one_request_after_the_other() -> None:
    with ModelServer([reply("one"), reply("two"), reply("three")]) as server:
        async with model_at(server.url) as model:
            await streamed(model)
            await model.complete(ASK)
            await streamed(model)
        assert server.connections == 1


async def test_a_kept_connection_that_is_dead_costs_no_wait() -> None:
    waits: list[float] = []
    with ModelServer([reply("one"), reset(), reply("two")]) as server:
        async with model_at(server.url, waits=waits) as model:
            await streamed(model)
            assert (await model.complete(ASK)).text == "two"
    assert waits == []


async def test_a_kept_connection_that_dies_over_the_work_is_a_failure() -> None:
    """A proxy that lets go of a silent connection after a minute: the vendor had the request, and bills it."""
    clock, waits = ManualClock(START), list[float]()

    def late(request: Any) -> Step:
        del request
        clock.advance(60)
        return reset()

    with ModelServer([reply("one"), late, reply("two")]) as server:
        async with model_at(server.url, waits=waits, clock=clock) as model:
            await streamed(model)
            assert (await model.complete(ASK)).text == "two"
    assert len(waits) == 1


async def test_who_is_named_in_the_request_is_told_of_retries_and_may_end_them() -> None:
    told: list[Waiting | Relaxed | Switched] = []

    def tell(event: Waiting | Relaxed | Switched) -> None:
        told.append(event)
        if len(told) == 2:
            raise KeyError("enough")

    waits: list[float] = []
    with ModelServer([reset(), fail(429), reply("never")]) as server:
        async with model_at(server.url, waits=waits) as model:
            with pytest.raises(KeyError):
                await model.complete(replace(ASK, on_retry=tell))
        assert len(server.requests) == 2
    assert [type(event.error) for event in told] == [ConnectionFailedError, RateLimitError]
    assert waits == [], "nobody is told twice"


async def test_a_feature_that_is_refused_late_may_have_been_billed() -> None:
    request = Request("s", (Message.user("u"),), output_schema=SCHEMA)
    refusal = fail_inside("", {"message": "json_schema is not supported by this model"})
    with ModelServer([refusal, reply("one")]) as server:
        async with model_at(server.url) as model:
            events = await streamed(model, request)
    assert [event.seconds for event in events if isinstance(event, Waiting)] == [0.0]


async def test_a_new_connection_that_dies_is_a_failure() -> None:
    waits: list[float] = []
    with ModelServer([reset(), reply("one")]) as server:
        async with model_at(server.url, waits=waits) as model:
            await model.complete(ASK)
    assert len(waits) == 1


async def test_a_stream_answered_with_plain_json() -> None:
    def plain(request: Any) -> Step:
        del request
        body = b'{"choices":[{"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}'
        return Step(raw=body)

    with ModelServer([plain]) as server:
        async with model_at(server.url) as model:
            events = await streamed(model)
    assert [type(event) for event in events] == [Completed]
    assert isinstance(events[0], Completed)
    assert events[0].response.text == "whole"


@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/event-stream; charset=utf-8",
        "text/event-stream; charset=iso-8859-1",
        "text/event-stream; charset=utf-16",
        "text/event-stream; charset=none",
        "application/octet-stream",
    ],
)
async def test_streams_of_other_content_types(content_type: str, begin: bytes) -> None:
    lines = [
        ": keep-alive",
        'data: {"choices":[{"delta":{"content":"häl"}}]}',
        'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}',
    ]
    raw = begin + "".join(f"{line}\n\n" for line in lines[1 if begin else 0 :]).encode()
    with ModelServer([Step(raw=raw, headers={"Content-Type": content_type})]) as server:
        async with model_at(server.url) as model:
            last = (await streamed(model))[-1]
    assert isinstance(last, Completed)
    assert last.response.text == "hällo"


async def test_a_stream_that_nobody_asked_for_is_read() -> None:
    raw = b'data: {"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    with ModelServer([Step(raw=raw, headers={"Content-Type": "text/event-stream"})]) as server:
        async with model_at(server.url) as model:
            assert (await model.complete(ASK)).text == "done"


async def test_a_complete_reply_survives_a_bad_goodbye() -> None:
    step = Step(
        raw=b'data: {"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}\n\n' + b" " * 200,
        headers={"Content-Type": "text/event-stream"},
        ending=Ending.CUT,
    )
    with ModelServer([step]) as server:
        async with model_at(server.url) as model:
            last = (await streamed(model))[-1]
    assert isinstance(last, Completed)
    assert last.response.text == "done"


SCHEMA = OutputSchema("plan", {"type": "object", "properties": {}, "additionalProperties": False})


@pytest.mark.parametrize(
    "message",
    [
        "This response_format type is unavailable now",
        "Failed to parse grammar",
        "json_schema is not supported by this model",
        "Structured output not supported",
        "not supported",
    ],
)
async def test_a_refused_schema_is_left_out_and_remembered(message: str) -> None:
    request = Request("s", (Message.user("u"),), output_schema=SCHEMA)
    script = [fail(400, body={"error": {"message": message}}), reply("one"), reply("two")]
    with ModelServer(script) as server:
        async with model_at(server.url) as model:
            assert (await streamed(model, request))[-1] is not None
            assert (await model.complete(request)).text == "two"
        asked = ["response_format" in sent.body for sent in server.requests]
    assert asked == [True, False, False]


async def test_another_refusal_keeps_the_schema() -> None:
    request = Request("s", (Message.user("u"),), output_schema=SCHEMA, temperature=0.1)
    error = {"message": "Unsupported value: 'temperature' does not support 0.1 with this model."}
    with ModelServer([fail(400, body={"error": error}), reply("one"), reply("two")]) as server:
        async with model_at(server.url) as model:
            events = await streamed(model, request)
            await model.complete(request)
    assert [event.how for event in events if isinstance(event, Relaxed)] == ["without temperature"]
    first, second, third = (sent.body for sent in server.requests)
    assert "temperature" in first
    assert "temperature" not in {**second, **third}
    assert second["response_format"] == first["response_format"]


async def test_a_field_of_the_users_own_is_not_left_out() -> None:
    request = Request("s", (Message.user("u"),), provider_options={"openai": {"temperature": 0.1}})
    error = {"message": "Unsupported value: 'temperature' does not support 0.1 with this model."}
    with ModelServer([fail(400, body={"error": error})]) as server:
        async with model_at(server.url) as model:
            with pytest.raises(InvalidRequestError, match="temperature"):
                await model.complete(request)


async def test_the_key_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}. Headers: Bearer {KEY}"}}
    inside = {"message": f"bad key {KEY}", "type": "invalid_request_error"}
    errors = [
        await failure_of([fail(401, body=echo)]),
        await failure_of([fail_inside(TEXT, inside)]),
        await failure_of([reset()], options=HttpOptions(tries=1)),
    ]
    for error in errors:
        assert error.__context__ is None
        assert KEY not in "".join(traceback.format_exception(error))
    assert "[redacted]" in str(errors[0])
    assert "[redacted]" in str(errors[1])
    assert KEY not in caplog.text
    for place in range(470, 500, 3):  # where a long message is cut
        long = {"message": "x" * place + KEY, "type": "invalid_request_error"}
        for script in ([fail(401, body={"error": long})], [fail_inside("", long)]):
            assert KEY[:9] not in str(await failure_of(list(script)))
    async with model_at("http://127.0.0.1:1") as model:
        assert KEY not in repr(model)


@table("key", ["sk-with-\nnewline", "sk-with space", "schlüssel", "sk-\x00"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        HttpModel("m", ChatWire.at("http://h", "m"), api_key=key, clock=ManualClock(), random=lambda: 0.0)
    assert key not in str(caught.value)


async def test_file_names_that_are_no_text_can_be_sent() -> None:
    with ModelServer([reply("ok")]) as server:
        async with model_at(server.url) as model:
            await model.complete(Request("", (Message.user("bad name: \udcff"),)))
        assert server.requests[0].body["messages"] == [{"role": "user", "content": "bad name: ?"}]


async def test_many_calls_at_once() -> None:
    with ModelServer([reply(TEXT)] * 30) as server:
        async with model_at(server.url) as model:
            replies = await asyncio.gather(*(model.complete(ASK) for _ in range(30)))
    assert {response.text for response in replies} == {TEXT}


async def test_a_closed_model_opens_again() -> None:
    with ModelServer([reply("one"), reply("two")]) as server:
        async with model_at(server.url) as model:
            await model.complete(ASK)
            await model.aclose()
            assert (await model.complete(ASK)).text == "two"
