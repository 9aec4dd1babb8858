from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.core.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    SpentQuotaError,
)
from orchestrator.core.messages import FinishReason, Message, Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.anthropic import BLOCK, SIGNATURE, AnthropicWire
from orchestrator.engine.models.base import (
    INVALID_ARGUMENTS,
    CallPiece,
    ReasoningPiece,
    Request,
    Response,
    TextPiece,
)
from orchestrator.engine.models.failures import error_from_body
from tests.tables import table

DATA = Path(__file__).parents[3] / "data" / "messages"
WIRE = AnthropicWire.at("http://localhost:8080", "some-model")
ASK = Request("You are brief.", (Message.user("Hello there"),))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def whole(*content: dict[str, Any], stop: str | None = "end_turn", **more: Any) -> Response:
    body = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": content, **more}
    return WIRE.decoder(ASK).read(json.dumps({**body, "stop_reason": stop}).encode())


def streamed(*events: dict[str, Any], stop: str | None = "end_turn", done: bool = True) -> Response:
    decoder = WIRE.decoder(ASK)
    end = [{"type": "message_delta", "delta": {"stop_reason": stop}}] if stop else []
    for event in (*events, *end, *([{"type": "message_stop"}] if done else [])):
        decoder.feed(event["type"], json.dumps(event))
    return decoder.finish()[1]


def begins(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grows(index: int, kind: str, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def read(content: bytes) -> tuple[list[object], Response]:
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


@table(
    ("reason", "finish"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("pause_turn", FinishReason.PAUSE),
        ("compaction", FinishReason.PAUSE),
        ("refusal", FinishReason.REFUSAL),
        ("length", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("stop", FinishReason.STOP),
        ("something_new", FinishReason.OTHER),
        (None, FinishReason.STOP),
    ],
)
def test_finish_reasons(reason: str | None, finish: FinishReason) -> None:
    assert whole({"type": "text", "text": "x"}, stop=reason).finish is finish
    assert streamed(grows(0, "text_delta", text="x"), stop=reason).finish is finish


def test_a_stop_with_calls_is_a_finish_by_calls() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    assert whole(call).finish is FinishReason.TOOL_CALLS
    assert whole(call, stop=None).finish is FinishReason.TOOL_CALLS
    assert whole(call, stop="refusal").finish is FinishReason.REFUSAL


def test_parts_in_order() -> None:
    pieces, response = read((DATA / "thinking_tools.sse").read_bytes())
    assert response.message.parts == (
        Reasoning("Two files to read.", {SIGNATURE: "c2lnbmVk"}),
        Text("I read both."),
        ToolCall("toolu_1", "read_file", {"path": "a.py"}),
        ToolCall("toolu_2", "read_file", {"path": "b.py", "line": 3}),
    )
    assert pieces == [
        ReasoningPiece("Two files "),
        ReasoningPiece("to read."),
        TextPiece("I read "),
        TextPiece("both."),
        *pieces[4:],
    ]
    said = [piece.text for piece in pieces if isinstance(piece, CallPiece)]
    assert len(said) == len(pieces) - 4
    assert "".join(said) == '{"path": "a.py"}{"path": "b.py", "line": 3}'
    assert response.usage == Usage(80, 61, reasoning_tokens=20)


def test_thinking_without_text_or_in_secret_is_kept() -> None:
    parts = read((DATA / "redacted.sse").read_bytes())[1].message.parts
    assert parts == (
        Reasoning("", {BLOCK: {"type": "redacted_thinking", "data": "b3BhcXVl"}}),
        Reasoning("", {SIGNATURE: "b21pdHRlZA=="}),
        Text("Yes."),
    )


def test_what_the_server_did_goes_back_when_the_turn_goes_on() -> None:
    response = read((DATA / "pause.sse").read_bytes())[1]
    assert response.finish is FinishReason.PAUSE
    assert response.tool_calls == ()
    entry = WIRE.encode(Request("", (response.message,)), stream=False).body["messages"][0]
    assert [block["type"] for block in entry["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    assert entry["content"][0]["input"] == {"query": "weather"}
    assert entry["content"][1]["content"][0]["encrypted_content"] == "ZW5j"
    assert entry["content"][2]["text"] == "It will rain."


def test_a_refusal_without_text_says_why() -> None:
    pieces, response = read((DATA / "refusal.sse").read_bytes())
    assert pieces == [TextPiece("This is not allowed.")]
    assert (response.text, response.finish) == ("This is not allowed.", FinishReason.REFUSAL)


def test_unknown_events_and_deltas_are_ignored() -> None:
    response = streamed(
        {"type": "message_start", "message": {"id": "m1", "new": 1}},
        {"type": "new_event", "x": 1},
        begins(1, type="text", text=""),
        grows(1, "text_delta", text="yes", new=1),
        grows(1, "citations_delta", citation={}),
    )
    assert response.message.parts == (Text("yes"),)


# Of the vendor's types, as anthropic 2.11.0 has them: BetaCompactionContentBlockDelta and BetaFallbackBlock.
FALLBACK = {
    "type": "fallback",
    "from": {"model": "claude-opus-5"},
    "to": {"model": "claude-sonnet-5"},
    "trigger": {"type": "refusal", "category": None},
}


@table(
    ("events", "block"),
    [
        (
            [
                begins(0, type="compaction", content=None, encrypted_content=None),
                grows(0, "compaction_delta", content="Short.", encrypted_content="b3BhcXVl"),
            ],
            {"type": "compaction", "content": "Short.", "encrypted_content": "b3BhcXVl"},
        ),
        ([begins(0, **FALLBACK)], FALLBACK),
        (
            [begins(0, type="new_block", words="a", n=1), grows(0, "new_delta", words="b", n=2, more=[3])],
            {"type": "new_block", "words": "ab", "n": 2, "more": [3]},
        ),
        ([begins(0, type="advisor_tool_result", content=[])], {"type": "advisor_tool_result", "content": []}),
    ],
)
def test_blocks_that_we_do_not_read_go_back_as_they_came(
    events: list[dict[str, Any]], block: dict[str, Any]
) -> None:
    said = [begins(1, type="text", text="Hello")]
    response = streamed(*events, *said)
    assert response.message.parts == (Reasoning("", {BLOCK: block}), Text("Hello"))
    assert whole(block, {"type": "text", "text": "Hello"}).message == response.message
    request = Request("", (Message.user("Hi"), response.message, Message.user("More")))
    assert WIRE.encode(request, stream=False).body["messages"][1]["content"][0] == block
    # A server that does not take them back is asked without them.
    refused = InvalidRequestError(
        "h: messages.1.content.0: Input tag 'x' found using 'type' does not match any of the expected tags"
    )
    relaxed = WIRE.relax(request, refused)
    assert relaxed is not None
    sent = relaxed.encode(request, stream=False).body["messages"][1]["content"]
    assert [one["type"] for one in sent] == ["text"]


def test_a_second_reply_in_one_stream_is_an_error() -> None:
    first = {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 9}}}
    with pytest.raises(ConnectionFailedError, match="another reply"):
        streamed(first, begins(0, type="text", text="a"), {"type": "message_start", "message": {"id": "m2"}})
    for again in ({"id": "m1"}, {}, {"id": None, "content": [{"type": "text", "text": "b"}]}):
        repeated = {"type": "message_start", "message": again}
        assert streamed(first, begins(0, type="text", text="a"), repeated).text == "a"


def test_a_block_that_is_announced_twice_is_one() -> None:
    call = begins(1, type="tool_use", id="c1", name="look", input={})
    text = begins(0, type="text", text="a")
    events = [
        text,
        text,
        grows(0, "text_delta", text="b"),
        call,
        call,
        grows(1, "input_json_delta", partial_json="{}"),
    ]
    response = streamed(*events, stop="tool_use")
    assert (response.text, [one.id for one in response.tool_calls]) == ("ab", ["c1"])


def test_calls_with_one_id_get_ids_of_their_own() -> None:
    calls = [{"type": "tool_use", "id": "c1", "name": name, "input": {}} for name in "ab"]
    ids = [one.id for one in whole(*calls, stop="tool_use").tool_calls]
    assert ids[0] == "c1"
    assert len(set(ids)) == 2


def test_what_follows_a_stop_reason_needs_another_end() -> None:
    early = {"type": "message_start", "message": {"id": "m1", "stop_reason": "end_turn"}}
    events = [early, begins(0, type="text", text="a"), grows(0, "text_delta", text="b")]
    with pytest.raises(ConnectionFailedError, match="in the middle"):
        streamed(*events, stop=None, done=False)
    assert streamed(*events).text == "ab"
    assert streamed(*events, stop=None).text == "ab"


def test_a_call_that_was_cut_off() -> None:
    response = read((DATA / "cut_tool.sse").read_bytes())[1]
    assert dict(response.tool_calls[0].arguments) == {INVALID_ARGUMENTS: '{"path": "a.py", "content": "x = '}
    assert response.finish is FinishReason.LENGTH
    sent = WIRE.encode(Request("", (response.message,)), stream=False).body["messages"][0]
    assert isinstance(sent["content"][0]["input"], dict)


@pytest.mark.parametrize("given", [{}, {"path": "a"}])
def test_the_last_call_of_a_reply_that_was_cut_off_is_not_whole(given: dict[str, Any]) -> None:
    first = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    last = {"type": "tool_use", "id": "b", "name": "g", "input": given}
    calls = whole(first, last, stop="max_tokens").tool_calls
    assert dict(calls[0].arguments) == {"x": 1}
    assert calls[1].arguments.keys() == {INVALID_ARGUMENTS}


def test_a_call_whose_arguments_come_at_once() -> None:
    start = begins(0, type="tool_use", id="c", name="f", input={"x": 1})
    assert streamed(start, grows(0, "input_json_delta", partial_json="")).tool_calls == (
        ToolCall("c", "f", {"x": 1}),
    )


def test_calls_without_ids() -> None:
    calls = whole({"type": "tool_use", "name": "f"}, {"type": "tool_use", "name": "f"}).tool_calls
    assert [(call.name, dict(call.arguments)) for call in calls] == [("f", {}), ("f", {})]
    assert len({call.id for call in calls} - {""}) == 2


def test_usage_counts_the_cache() -> None:
    response = read((DATA / "text.sse").read_bytes())[1]
    assert response.usage == Usage(442, 9, 400, 30)


def test_usage_of_a_server_that_ends_with_zeros() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 50, "output_tokens": 0}}}
    end = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 7}}
    assert streamed(start, end).usage == Usage(50, 7)


def test_a_compaction_is_counted() -> None:
    counts = {"input_tokens": 800, "output_tokens": 9}
    usage = {
        "input_tokens": 2,
        "output_tokens": 3,
        "iterations": [{"type": "compaction", **counts}, {"type": "message", "input_tokens": 2}],
    }
    assert whole({"type": "text", "text": "x"}, usage=usage).usage == Usage(802, 12)


@table("counts", [None, {}, {"input_tokens": 0}, {"input_tokens": "9"}, []])
def test_missing_usage_is_estimated(counts: object) -> None:
    usage = whole({"type": "text", "text": "x" * 400}, usage=counts).usage
    assert usage.output_tokens == 200
    assert usage.input_tokens >= len(ASK.system + "Hello there") // 4


def test_a_count_beyond_all_numbers_is_no_count() -> None:
    usage = WIRE.decoder(ASK).read(b'{"content": "xxxx", "usage": {"input_tokens": 1e999}}').usage
    assert usage.output_tokens == 2


def test_a_server_that_says_little() -> None:
    """No message_start, no block starts, no indexes, types in the event's name only."""
    decoder = WIRE.decoder(ASK)
    for event, data in (
        ("content_block_delta", '{"delta": {"type": "thinking_delta", "thinking": "Hm."}}'),
        ("content_block_delta", '{"delta": {"type": "text_delta", "text": "Yes"}}'),
        ("content_block_delta", '{"delta": {"type": "text_delta", "text": "."}}'),
        ("message_stop", "{}"),
    ):
        decoder.feed(event, data)
    assert decoder.finish()[1].message.parts == (Reasoning("Hm.", {SIGNATURE: ""}), Text("Yes."))
    assert whole(model=None, id=None).model == "some-model"


def test_text_as_a_string() -> None:
    assert WIRE.decoder(ASK).read(b'{"content": "hello"}').text == "hello"


@table(
    ("body", "kind"),
    [
        (b"", ConnectionFailedError),
        (b'{"content": [{"ty', ConnectionFailedError),
        (b"<html>", ProviderError),
        (b"[]", ProviderError),
        (b"{}", ProviderError),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}', OverloadedError),
    ],
)
def test_bodies_that_are_no_reply(body: bytes, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        WIRE.decoder(ASK).read(body)


@table(
    ("kind", "error"),
    [
        ("overloaded_error", OverloadedError),
        ("api_error", OverloadedError),
        ("timeout_error", OverloadedError),
        ("rate_limit_error", RateLimitError),
        ("billing_error", SpentQuotaError),
        ("invalid_request_error", InvalidRequestError),
        ("authentication_error", AuthenticationError),
        ("something_new", ProviderError),
    ],
)
def test_an_error_inside_a_stream(kind: str, error: type[ModelError]) -> None:
    decoder = WIRE.decoder(ASK)
    decoder.feed("content_block_delta", json.dumps(grows(0, "text_delta", text="x")))
    with pytest.raises(error):
        decoder.feed("error", json.dumps({"type": "error", "error": {"type": kind, "message": "said"}}))


def test_an_error_after_the_end_is_only_a_note() -> None:
    decoder = WIRE.decoder(ASK)
    decoder.feed("", json.dumps(grows(0, "text_delta", text="x")))
    decoder.feed("", '{"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}')
    assert decoder.feed("error", '{"type": "error", "error": {"message": "late"}}') == []
    assert decoder.finish()[1].finish is FinishReason.LENGTH


@pytest.mark.parametrize("events", [(), (begins(0, type="text", text="x"),)])
def test_a_stream_without_an_end(events: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ConnectionFailedError, match="in the middle"):
        streamed(*events, stop=None, done=False)


def test_an_end_without_the_mark_or_without_a_reason() -> None:
    said = grows(0, "text_delta", text="x")
    assert streamed(said, done=False).text == "x"
    assert streamed(said, stop=None).text == "x"


def test_broken_json_in_a_stream() -> None:
    with pytest.raises(ConnectionFailedError, match="broken JSON"):
        WIRE.decoder(ASK).feed("message_start", '{"type": ')


@table(
    ("status", "kind", "said", "error"),
    [
        (401, "authentication_error", "invalid x-api-key", AuthenticationError),
        (403, "permission_error", "Your API key may not use this", PermissionDeniedError),
        (404, "not_found_error", "model: claude-sonet", ModelNotFoundError),
        (413, "request_too_large", "Request exceeds the maximum size", ContextLengthError),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 208310 tokens > 200000 maximum",
            ContextLengthError,
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit",
            ContextLengthError,
        ),
        (400, "invalid_request_error", "Output blocked by content filtering policy", ContentFilterError),
        (400, "invalid_request_error", "Your credit balance is too low", SpentQuotaError),
        (400, "invalid_request_error", "You have reached your specified API usage limits.", SpentQuotaError),
        (400, "invalid_request_error", "max_tokens: 9 > 8", InvalidRequestError),
        (402, "billing_error", "pay", SpentQuotaError),
        (500, "api_error", "Internal server error", OverloadedError),
        (529, "overloaded_error", "Overloaded", OverloadedError),
    ],
)
def test_errors(status: int, kind: str, said: str, error: type[ModelError]) -> None:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": said}}).encode()
    assert type(error_from_body(status, {}, body, NOW, "host")) is error


def test_a_rate_limit_says_when_it_ends() -> None:
    body = b'{"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}'
    headers = {
        "anthropic-ratelimit-requests-remaining": "5",
        "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:01Z",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-01-01T00:00:20Z",
    }
    error = error_from_body(429, headers, body, NOW, "host")
    assert isinstance(error, RateLimitError)
    assert error.resume_at == NOW + timedelta(seconds=20)
    waits = error_from_body(429, {**headers, "retry-after": "12"}, body, NOW, "host")
    assert isinstance(waits, RateLimitError)
    assert waits.resume_at == NOW + timedelta(seconds=12)


def test_a_spent_limit_by_its_code() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    error = {"type": "rate_limit_error", "message": "no more", "details": details}
    found = error_from_body(429, {}, json.dumps({"type": "error", "error": error}).encode(), NOW, "host")
    assert isinstance(found, SpentQuotaError)
