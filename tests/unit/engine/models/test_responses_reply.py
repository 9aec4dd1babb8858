from __future__ import annotations

import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from orchestrator.core.messages import FinishReason, Message, Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.base import (
    INVALID_ARGUMENTS,
    CallPiece,
    ReasoningPiece,
    Request,
    Response,
    TextPiece,
)
from orchestrator.engine.models.failures import is_transient
from orchestrator.engine.models.openai_responses import FOLLOWING, ITEM, ResponsesWire
from tests.doubles import responses_stream as vendor
from tests.doubles.sse_server import sse_event
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.engine.models.base import Piece

WIRE = ResponsesWire.at("http://localhost:8080", "m")
ASK = Request("You are brief.", (Message.user("Hello there"),))
MIXED = (
    vendor.reasoning("I look at it.", "Then I decide."),
    vendor.message("Reading two files.", phase="commentary"),
    vendor.call("read_file", '{"path": "ä.py"}', number=1),
    vendor.call("read_file", "{}", number=2),
)


def whole(*output: Mapping[str, Any], **more: Any) -> Response:
    return WIRE.decoder(ASK).read(json.dumps(vendor.whole(output, **more)).encode())


def played(events: Iterable[Mapping[str, Any]]) -> tuple[list[Piece], Response]:
    decoder = WIRE.decoder(ASK)
    pieces = [piece for event in events for piece in decoder.feed(event["type"], json.dumps(event))]
    held, response = decoder.finish()
    return [*pieces, *held], response


def streamed(*output: Mapping[str, Any], **more: Any) -> Response:
    pieces, response = played(vendor.events(output, **more))
    check_pieces(pieces, response)
    return response


def check_pieces(pieces: Sequence[Piece], response: Response) -> None:
    """What was shown is what is kept."""
    thoughts = "".join(part.text for part in response.message.parts if isinstance(part, Reasoning))
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == response.text
    assert "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece)) == thoughts


@pytest.mark.parametrize("read", [whole, streamed])
def test_everything_in_one_reply(read: Any) -> None:
    response = read(*MIXED)
    following = [
        {"type": "message", "id": "msg_1", "phase": "commentary"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1"},
        {"type": "function_call", "id": "fc_2", "call_id": "call_2"},
    ]
    assert response == Response(
        Message(
            role=response.message.role,
            parts=(
                Reasoning("I look at it.\n\nThen I decide.", {ITEM: MIXED[0], FOLLOWING: following}),
                Text("Reading two files."),
                ToolCall("call_1", "read_file", {"path": "ä.py"}),
                ToolCall("call_2", "read_file", {}),
            ),
        ),
        FinishReason.TOOL_CALLS,
        Usage(100, 20, 64, 5, 7),
        vendor.MODEL,
        "resp_1",
    )


def incomplete(reason: str | None) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": reason and {"reason": reason}}


@table("read", [whole, streamed])
@table(
    ("more", "finish"),
    [
        ({}, FinishReason.STOP),
        (incomplete("max_output_tokens"), FinishReason.LENGTH),
        (incomplete("content_filter"), FinishReason.CONTENT_FILTER),
        (incomplete("something new"), FinishReason.OTHER),
        (incomplete(None), FinishReason.OTHER),
    ],
)
def test_finish_reasons(read: Any, more: dict[str, Any], finish: FinishReason) -> None:
    assert read(vendor.message("x"), **more).finish is finish


@pytest.mark.parametrize("read", [whole, streamed])
def test_a_refusal(read: Any) -> None:
    response = read(vendor.message("I will not.", refusal=True))
    assert (response.text, response.finish) == ("I will not.", FinishReason.REFUSAL)


@pytest.mark.parametrize("read", [whole, streamed])
def test_a_call_cut_by_the_length_limit(read: Any) -> None:
    cut = {**vendor.call("write_file", '{"path": "a", "content": "x'), "status": "incomplete"}
    response = read(cut, **incomplete("max_output_tokens"))
    assert response.tool_calls == (
        ToolCall("call_1", "write_file", {INVALID_ARGUMENTS: '{"path": "a", "content": "x'}),
    )
    assert response.finish is FinishReason.LENGTH


def test_text_of_reasoning_is_taken_before_its_summary() -> None:
    assert whole(vendor.reasoning("Short.", content=["Long."])).message.parts == (Reasoning("Long."),)


def test_the_same_thoughts_under_two_names_are_shown_once() -> None:
    events = vendor.events([vendor.reasoning("Hm.", content=["Hm."]), vendor.message("x")])
    pieces, _ = played(events)
    assert [piece for piece in pieces if isinstance(piece, ReasoningPiece)] == [ReasoningPiece("Hm.")]


def test_missing_usage_is_estimated() -> None:
    usage = whole(vendor.message("x" * 400), usage=None).usage
    assert usage.output_tokens == 200
    assert usage.input_tokens >= len(ASK.system + "Hello there") // 4


def test_items_that_mean_nothing_here_are_left_out() -> None:
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    custom = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c", "name": "n", "input": "x"}
    assert whole(searched, custom, vendor.message("x")).message.parts == (Text("x"),)
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": searched},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "x"},
        {"type": "response.something.new", "delta": "x"},
        {"type": "response.output_item.done", "output_index": 0, "item": searched},
        {"type": "response.output_item.done", "output_index": 1, "item": None},
    ]
    assert played([*events, *vendor.events([vendor.message("x")])])[1].message.parts == (Text("x"),)


def without(events: Iterable[dict[str, Any]], *names: str) -> Iterator[dict[str, Any]]:
    """Events as a server sends them that leaves fields out."""
    for event in events:
        yield {name: value for name, value in event.items() if name not in names}


def renamed(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Events as a proxy sends them that makes up an id in each."""
    for number, event in enumerate(events):
        changed = {**event, "item_id": f"made_up_{number}"} if "item_id" in event else dict(event)
        if "item" in event:
            changed["item"] = {**event["item"], "id": f"other_{number}"}
        yield changed


def only(events: Iterable[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"].startswith(kinds)]


ALL = vendor.events(MIXED)
LAST = ALL[-1]
SPARSE = [
    {**item, "content": [], "arguments": "", "encrypted_content": "other"}
    for item in LAST["response"]["output"]
]
ENDS = ("response.created", "response.completed")


@table(
    "events",
    [
        list(without(ALL, "output_index", "sequence_number")),
        list(without(ALL, "item_id")),
        list(renamed(ALL)),
        [*ALL[:-1], {**LAST, "response": {**LAST["response"], "output": []}}],
        [*without(ALL[:-1], "response"), {**LAST, "response": {"status": "completed"}}],
        list(without(ALL, "output_index", "item_id")),
        [*ALL[:-1], {**LAST, "response": {**LAST["response"], "output": SPARSE}}],
        [
            {**event, "item": {**event["item"], "status": "in_progress"}}
            if event["type"] == "response.output_item.added"
            else event
            for event in ALL
        ],
        only(ALL, *ENDS),
        only(ALL, *ENDS, "response.output_item.done"),
        only(ALL, *ENDS, "response.output_item.added", "response.function_call_arguments.delta"),
        [event for event in ALL if not event["type"].endswith(".delta")],
        [event for event in ALL if event["type"] != "response.output_item.done"],
        [event for event in ALL for _ in range(2) if not event["type"].endswith(".delta")],
        [*ALL, *ALL],
    ],
    ids=[
        "no indexes",
        "no ids",
        "new ids in each event",
        "no output at the end",
        "no names",
        "no ids, no indexes",
        "an end that leaves out what was said",
        "a status at the beginning only",
        "only the end",
        "only finished items",
        "no text before the end",
        "no deltas",
        "items never finished",
        "everything twice",
        "a second reply behind the first",
    ],
)
def test_what_servers_leave_out_or_repeat(events: list[dict[str, Any]]) -> None:
    pieces, response = played(events)
    check_pieces(pieces, response)
    expected = whole(*MIXED)
    assert response.text == expected.text
    assert response.finish is FinishReason.TOOL_CALLS
    assert [type(part) for part in response.message.parts] == [Reasoning, Text, ToolCall, ToolCall]
    assert response.tool_calls == expected.tool_calls
    reasoning = response.message.parts[0]
    assert isinstance(reasoning, Reasoning)
    assert {**reasoning.opaque[ITEM], "id": ""} == {**MIXED[0], "id": ""}


def test_arguments_that_come_only_when_they_are_done() -> None:
    call = vendor.call("f", '{"x": 1}')
    events = vendor.events([call])
    kept = only(events, "response.output_item.added", "response.function_call_arguments.done")
    end = {"type": "response.completed", "response": {"status": "completed"}}
    assert played([*kept, end])[1].tool_calls == (ToolCall("call_1", "f", {"x": 1}),)


def test_what_a_finished_item_adds_is_shown_at_once() -> None:
    decoder = WIRE.decoder(ASK)
    begun = {"item_id": "msg_1", "output_index": 0, "delta": "Hel"}
    done = {"output_index": 0, "item": vendor.message("Hello")}
    assert decoder.feed("response.output_text.delta", json.dumps(begun)) == [TextPiece("Hel")]
    assert decoder.feed("response.output_item.done", json.dumps(done)) == [TextPiece("lo")]


def test_a_stream_as_llama_cpp_sends_it() -> None:
    """Without indexes, calls named by their `call_id`, and all items finished at the end."""
    calls = [
        {"type": "function_call", "call_id": f"fc_{n}", "name": "f", "arguments": f'{{"n": {n}}}'}
        for n in "12"
    ]
    added = "response.output_item.added"
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_1"}}]
    for item in calls:
        events.append({"type": added, "item": {**item, "arguments": "", "status": "in_progress"}})
        delta = {"item_id": item["call_id"], "delta": item["arguments"]}
        events.append({"type": "response.function_call_arguments.delta", **delta})
    events += [{"type": "response.output_item.done", "item": item} for item in calls]
    counts = {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}
    reply = {"id": "resp_1", "model": "m1", "status": "completed", "output": calls, "usage": counts}
    events.append({"type": "response.completed", "response": reply})
    response = played(events)[1]
    assert response.tool_calls == (ToolCall("fc_1", "f", {"n": 1}), ToolCall("fc_2", "f", {"n": 2}))
    assert (response.usage, response.finish) == (Usage(3, 9), FinishReason.TOOL_CALLS)
    short = Request("", (), max_output_tokens=9)
    assert WIRE.decoder(short).read(json.dumps(reply).encode()).finish is FinishReason.LENGTH


def test_a_reply_as_long_as_its_limit_may_be_complete() -> None:
    body = json.dumps(vendor.whole([vendor.message("x")])).encode()
    assert WIRE.decoder(Request("", (), max_output_tokens=20)).read(body).finish is FinishReason.STOP


def test_an_end_mark_alone_is_no_reply() -> None:
    decoder = WIRE.decoder(ASK)
    decoder.feed("message", "[DONE]")
    with pytest.raises(ConnectionFailedError):
        decoder.finish()


def test_only_text_deltas_and_the_end_mark() -> None:
    decoder = WIRE.decoder(ASK)
    assert decoder.feed("response.output_text.delta", '{"delta": "Hel"}') == [TextPiece("Hel")]
    assert decoder.feed("response.output_text.delta", '{"delta": "lo"}') == [TextPiece("lo")]
    assert decoder.feed("message", "[DONE]") == []
    assert decoder.done
    response = decoder.finish()[1]
    assert (response.text, response.finish, response.model) == ("Hello", FinishReason.STOP, "m")


def test_nothing_is_read_behind_the_end() -> None:
    decoder = WIRE.decoder(ASK)
    decoder.feed("response.completed", json.dumps(LAST))
    assert decoder.done
    assert decoder.feed("error", '{"message": "a note"}') == []


def test_two_calls_without_ids() -> None:
    call = {"type": "function_call", "name": "f", "arguments": ""}
    response = whole(call, call)
    assert [call.name for call in response.tool_calls] == ["f", "f"]
    assert len({call.id for call in response.tool_calls}) == 2
    assert all(call.id for call in response.tool_calls)
    assert response == whole(call, call)


def test_arguments_as_an_object() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"x": 1}}
    assert whole(call).tool_calls == (ToolCall("c", "f", {"x": 1}),)


def test_a_stream_that_is_cut_anywhere() -> None:
    for length in range(len(ALL)):
        with pytest.raises(ConnectionFailedError, match="in the middle"):
            played(ALL[:length])


@table("data", ['{"type": "respon', '{"delta": NaN}', "<html>"])
def test_broken_json_in_a_stream(data: str) -> None:
    with pytest.raises(ConnectionFailedError, match="broken JSON"):
        WIRE.decoder(ASK).feed("message", data)


ERRORS = [
    ("rate_limit_exceeded", "Rate limit reached.", RateLimitError),
    ("insufficient_quota", "You exceeded your current quota.", RateLimitError),
    ("context_length_exceeded", "Your input exceeds the context window.", ContextLengthError),
    ("server_error", "Sorry.", OverloadedError),
    ("server_is_overloaded", "Later.", OverloadedError),
    ("slow_down", "Later.", OverloadedError),
    ("invalid_request_error", "No.", InvalidRequestError),
    ("invalid_image", "No picture.", InvalidRequestError),
    ("image_too_large", "Large.", InvalidRequestError),
    ("invalid_prompt", "Your prompt was flagged.", ContentFilterError),
    ("bio_policy", "No.", ContentFilterError),
    ("misalignment_policy_violation", "No.", ContentFilterError),
    ("image_content_policy_violation", "No.", ContentFilterError),
    ("invalid_api_key", "No.", AuthenticationError),
    ("something_new", "What?", ProviderError),
]


TRANSIENT = {RateLimitError, OverloadedError}


@table(("code", "message", "kind"), ERRORS)
def test_errors_inside_a_stream(code: str, message: str, kind: type[ModelError]) -> None:
    error = {"code": code, "message": message, "param": None}
    for event in (
        {"type": "error", "sequence_number": 2, **error},
        {"type": "error", "error": error},
        {"type": "response.failed", "response": vendor.whole([], "failed", error=error)},
    ):
        with pytest.raises(ModelError, match=r"localhost:8080 reported an error in its reply") as caught:
            played([*ALL[:8], event])
        assert type(caught.value) is kind or code == "insufficient_quota"
        assert isinstance(caught.value, kind)
        assert message in str(caught.value)
        assert is_transient(caught.value) == (kind in TRANSIENT and code != "insufficient_quota")


def test_a_reply_that_failed_for_no_reason() -> None:
    with pytest.raises(ModelError, match="no reason given"):
        whole(status="failed")


@table(
    ("body", "kind"),
    [
        (b"", ConnectionFailedError),
        (b'{"output": [{"ty', ConnectionFailedError),
        (b"<html>", ProviderError),
        (b"hello", ProviderError),
        (b"[]", ProviderError),
        (b"{}", ProviderError),
        (b'{"choices": [{"message": {}}]}', ProviderError),
        (b'{"status": "queued", "output": []}', ProviderError),
        (b'{"status": "in_progress", "output": []}', ProviderError),
        (b'{"status": "cancelled", "output": []}', ConnectionFailedError),
        (b'{"error": {"message": "x", "type": "server_error"}}', OverloadedError),
        (b'{"object": "error", "message": "x", "code": 400}', InvalidRequestError),
        (b'{"status": "failed", "error": {"code": "server_error", "message": "x"}}', OverloadedError),
    ],
)
def test_bodies_that_are_no_reply(body: bytes, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        WIRE.decoder(ASK).read(body)


def test_an_empty_reply_is_a_reply() -> None:
    assert whole().message.parts == ()
    assert streamed().finish is FinishReason.STOP


def test_halves_of_surrogate_pairs_do_not_get_through() -> None:
    response = streamed(vendor.message("😀 \ud83d"), vendor.call("f", '{"a": "\\ud83d"}'))
    assert response.text == "😀 \ufffd"
    assert response.tool_calls[0].arguments == {"a": "\ufffd"}


STREAM = b"".join(sse_event(event) for event in ALL)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_cutting_of_the_bytes_gives_the_same(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(ends)]
    reply = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=iter(chunks),
        request=httpx2.Request("POST", WIRE.url),
    )
    decoder = WIRE.decoder(ASK)
    for event in httpx2.EventSource(reply):
        decoder.feed(event.event, event.data)
    assert decoder.finish()[1] == whole(*MIXED)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_streamed_as_it_is(thought: str, text: str, arguments: str) -> None:
    output = (vendor.reasoning(thought), vendor.message(text), vendor.call("f", arguments))
    assert streamed(*output) == whole(*output)


NAMES = [
    "type",
    "item",
    "output",
    "response",
    "content",
    "summary",
    "text",
    "delta",
    "arguments",
    "output_index",
    "item_id",
    "id",
    "call_id",
    "name",
    "phase",
    "status",
    "usage",
    "input_tokens",
    "incomplete_details",
    "reason",
    "error",
    "encrypted_content",
]
WORDS = st.sampled_from(
    ["message", "reasoning", "function_call", "output_text", "completed", "incomplete", "failed", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=25,
)
KINDS = sorted({event["type"] for event in ALL} | {"response.failed", "response.incomplete", "error"})


@given(st.lists(st.tuples(st.sampled_from(KINDS), JSON), max_size=5), JSON)
def test_any_json_gives_a_reply_or_an_error_of_ours(events: list[tuple[str, Any]], value: Any) -> None:
    decoder = WIRE.decoder(ASK)
    with contextlib.suppress(ModelError):
        for kind, data in events:
            decoder.feed(kind, json.dumps(data))
            decoder.feed(kind, json.dumps({"type": kind, "item": data, "response": data, "delta": "x"}))
        decoder.feed("message", "[DONE]")
        message = decoder.finish()[1].message
        WIRE.encode(Request("", (message,)), stream=True)
    for shaped in (value, {"output": value}, {"output": [value]}):
        with contextlib.suppress(ModelError):
            message = WIRE.decoder(ASK).read(json.dumps(shaped).encode()).message
            assert WIRE.encode(Request("", (message,)), stream=True).body["model"] == "m"


def test_the_arguments_of_a_call_are_heard() -> None:
    pieces, _ = played(vendor.events([vendor.call("f", '{"x": 1}')]))
    assert "".join(piece.text for piece in pieces if isinstance(piece, CallPiece)) == '{"x": 1}'
