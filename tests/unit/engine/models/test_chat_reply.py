from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    ConnectionFailedError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from orchestrator.core.messages import (
    FinishReason,
    Message,
    Reasoning,
    Text,
    ToolCall,
    Usage,
)
from orchestrator.engine.models.base import (
    INVALID_ARGUMENTS,
    Request,
    Response,
    TextPiece,
    invalid_arguments,
)
from orchestrator.engine.models.openai_chat import ChatWire
from tests.tables import table

WIRE = ChatWire.at("http://localhost:11434", "qwen2.5-coder:7b")
ASK = Request("You are brief.", (Message.user("Hello there"),))
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> Response:
    body = {
        "id": "r1",
        "model": "m1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **more,
    }
    return WIRE.decoder(ASK).read(json.dumps(body).encode())


def streamed(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> Response:
    decoder = WIRE.decoder(ASK)
    for delta in deltas:
        decoder.feed("message", json.dumps({"choices": [{"index": 0, "delta": delta}]}))
    if finish:
        decoder.feed("message", json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    if done:
        decoder.feed("message", "[DONE]")
    return decoder.finish()[1]


def call_piece(
    index: int | None = None, call_id: str = "", name: str | None = "", arguments: Any = None
) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name} if name else {}
    if arguments is not None:
        function["arguments"] = arguments
    piece: dict[str, Any] = {"function": function}
    if index is not None:
        piece["index"] = index
    return {"tool_calls": [{**piece, "id": call_id} if call_id else piece]}


def calls_of(response: Response) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in response.tool_calls]


@table(
    ("reason", "finish"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("refusal", FinishReason.REFUSAL),
        ("pause_turn", FinishReason.PAUSE),
        ("LENGTH", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("max_output_tokens", FinishReason.LENGTH),
        ("STOP", FinishReason.STOP),
        ("SAFETY", FinishReason.CONTENT_FILTER),
        ("something new", FinishReason.OTHER),
        ("", FinishReason.STOP),
        (None, FinishReason.STOP),
    ],
)
def test_finish_reasons(reason: str | None, finish: FinishReason) -> None:
    assert whole({"content": "x"}, reason).finish is finish
    assert streamed({"content": "x"}, finish=reason).finish is finish


def test_a_stop_with_calls_is_a_finish_by_calls() -> None:
    assert streamed(call_piece(0, "c", "f", "{}")).finish is FinishReason.TOOL_CALLS


@table("delta", [{}, None, {"role": "assistant"}, {"content": ""}, {"content": None}])
def test_a_whole_reply_with_a_delta_beside_its_message(delta: object) -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    choice = {"message": {"content": "Hi", "tool_calls": [call]}, "delta": delta, "finish_reason": "stop"}
    reply = WIRE.decoder(ASK).read(b"\xef\xbb\xbf" + json.dumps({"choices": [choice]}).encode())
    assert (reply.text, [one.name for one in reply.tool_calls]) == ("Hi", ["f"])


def test_a_refusal() -> None:
    response = whole({"content": None, "refusal": "No."})
    assert (response.text, response.finish) == ("No.", FinishReason.REFUSAL)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_fields(field: str) -> None:
    response = streamed({field: "One "}, {field: "two."}, {"content": "Three"})
    assert response.message.parts == (Reasoning("One two.", {"field": field}), Text("Three"))


def test_reasoning_under_both_names_is_taken_once() -> None:
    response = streamed({"reasoning": "One", "reasoning_content": "One"})
    assert [part.text for part in response.message.parts if isinstance(part, Reasoning)] == ["One"]


def test_a_think_block_is_reasoning() -> None:
    response = whole({"content": "<think>\nHm.</think>\n\nYes."})
    assert response.message.parts == (Reasoning("\nHm."), Text("Yes."))


def test_content_as_a_list_of_parts() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Yes."},
    ]
    assert whole({"content": content}).message.parts == (Reasoning("Hm."), Text("Yes."))


@table(
    "deltas",
    [
        [
            call_piece(0, "a", "f"),
            call_piece(0, arguments='{"x":'),
            call_piece(0, arguments="1}"),
            call_piece(1, "b", "g", "{}"),
        ],
        [
            call_piece(None, "a", "f", '{"x":'),
            call_piece(None, arguments="1}"),
            call_piece(None, "b", "g", "{}"),
        ],
        [
            call_piece(None, "a", "f", '{"x":'),
            call_piece(None, "a", arguments="1}"),
            call_piece(None, "b", "g"),
        ],
        [call_piece(0, "a", "f", '{"x":1}'), call_piece(0, "b", "g", "{}")],
        [call_piece(0, "", "f", '{"x":1}'), call_piece(0, "", "g", "{}")],
        [call_piece(None, "", "f", '{"x":1}'), call_piece(None, "", "g", "{}")],
        [call_piece(0, "a", "f", '{"x":'), call_piece(0, "a", "f", "1}"), call_piece(1, "b", "g", "{}")],
        [call_piece(0, "a", "f", {"x": 1}), call_piece(1, "b", "g", {})],
        [call_piece(0, "a", "f"), call_piece(1, "b", "g", "{}"), call_piece(0, arguments='{"x":1}')],
        [
            call_piece(0, "a", "f", ""),
            call_piece(0, "b", None, '{"x":'),
            call_piece(0, "c", None, "1}"),
            call_piece(1, "d", "g"),
        ],
        [
            call_piece(0, "a", "f", "{}"),
            call_piece(0, "a", None, '{"x":'),
            call_piece(0, "", None, "1}"),
            call_piece(1, "b", "g", "{}"),
        ],
        [
            call_piece(0, "a", "f", '{"x":1}'),
            call_piece(0, "a", None, '{"x":1}'),
            call_piece(1, "b", "g", "{}"),
        ],
    ],
    ids=[
        "vendor",
        "no index",
        "no index, id repeated",
        "whole under one index",
        "no ids",
        "nothing",
        "names repeated",
        "objects",
        "interleaved",
        "another id with each piece",
        "an empty object first",
        "the whole arguments once more",
    ],
)
def test_calls_in_pieces(deltas: list[dict[str, Any]]) -> None:
    response = streamed(*deltas)
    assert calls_of(response) == [("f", {"x": 1}), ("g", {})]
    assert len({call.id for call in response.tool_calls}) == 2
    assert all(call.id for call in response.tool_calls)


CALL = {"function": {"name": "f", "arguments": '{"x":1}'}}


@table(
    ("choice", "text", "calls"),
    [
        ({"message": {"content": ["a", {"text": "b"}]}}, "ab", []),
        ({"message": {"content": {"type": "text", "text": "a"}}}, "a", []),
        ({"text": "a"}, "a", []),
        (
            {"message": {"tool_calls": [{"id": "c", "name": "f", "arguments": '{"x":1}'}]}},
            "",
            [("f", {"x": 1})],
        ),
        ({"message": {"tool_calls": CALL}}, "", [("f", {"x": 1})]),
        ({"message": {"tool_calls": json.dumps([CALL])}}, "", [("f", {"x": 1})]),
        ({"message": {"tool_calls": "none"}}, "", []),
        ({"message": {"content": None}, "tool_calls": [CALL]}, "", [("f", {"x": 1})]),
    ],
)
def test_a_choice_in_the_form_of_another_server(
    choice: dict[str, Any], text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    reply = {"choices": [{**choice, "finish_reason": "stop"}], "usage": {"cost": 0.5}}
    for body in (reply, [reply], {"success": True, "result": reply}, {"data": reply}):
        response = WIRE.decoder(ASK).read(json.dumps(body).encode())
        assert (response.text, calls_of(response)) == (text, calls)
        assert response.usage.charged_usd == 0.5


def test_a_reply_that_was_cut_by_the_details_of_its_finish() -> None:
    choice = {"message": {"content": "x"}, "finish_details": {"type": "max_tokens"}}
    assert WIRE.decoder(ASK).read(json.dumps({"choices": [choice]}).encode()).finish is FinishReason.LENGTH


def test_events_that_end_with_one_line_end_and_a_field_name_that_is_there_twice() -> None:
    decoder = WIRE.decoder(ASK)
    pieces = [json.dumps({"choices": [{"delta": {"content": text}}]}) for text in "abc"]
    decoder.feed("message", f"{pieces[0]}\n{pieces[1]}")
    decoder.feed("message", f"data: {pieces[2]}")
    decoder.feed("message", "[DONE]")
    assert decoder.finish()[1].text == "abc"


def test_two_calls_without_ids_or_arguments_in_a_whole_reply() -> None:
    pieces = [{"function": {"name": "f", "arguments": ""}}, {"function": {"name": "g"}}]
    response = whole({"tool_calls": pieces})
    assert calls_of(response) == [("f", {}), ("g", {})]
    assert response == whole({"tool_calls": pieces})


@table("text", ['{"path": "a', "[1]", '"text"', "not json", "{'a': 1}", '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_no_json_object(text: str) -> None:
    response = streamed(call_piece(0, "c", "f", text), finish="length")
    assert dict(response.tool_calls[0].arguments) == {INVALID_ARGUMENTS: text}
    assert invalid_arguments(response.tool_calls[0]) == text
    assert response.finish is FinishReason.LENGTH
    sent = WIRE.encode(Request("", (response.message,)), stream=False).body["messages"][0]
    assert isinstance(json.loads(sent["tool_calls"][0]["function"]["arguments"]), dict)


def test_good_arguments_are_not_invalid() -> None:
    assert invalid_arguments(ToolCall("c", "f", {"path": "a"})) is None


def test_usage() -> None:
    counts = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert whole({"content": "x"}, usage=counts).usage == Usage(100, 20, 64, 5, 7)


def test_reasoning_that_only_the_total_counts() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45}
    assert whole({"content": "x"}, usage=counts).usage.output_tokens == 35


@table("counts", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": None}])
def test_missing_usage_is_estimated(counts: object) -> None:
    usage = whole({"content": "x" * 400}, usage=counts).usage
    assert usage.output_tokens == 200
    assert usage.input_tokens >= len(ASK.system + "Hello there") // 4


@table(
    ("counts", "wanted"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 7}, Usage(13, 7)),
        ({"prompt_tokens": 9, "completion_tokens": 0}, Usage(9, 200)),
        ({"prompt_tokens": -9, "completion_tokens": -7}, Usage(13, 200)),
        ({"prompt_tokens": True, "completion_tokens": "7"}, Usage(1, 200)),
    ],
)
def test_half_of_a_count_is_completed_by_an_estimate(counts: object, wanted: Usage) -> None:
    response = whole({"content": "x" * 400}, usage=counts)
    assert (response.usage, response.is_counted) == (wanted, False)


def test_a_count_beyond_all_reason_is_still_a_number() -> None:
    usage = whole({"content": "x"}, usage={"prompt_tokens": 10**400, "completion_tokens": 7}).usage
    assert usage.input_tokens == 10**12
    assert usage.input_tokens * 3e-6 > 1_000_000, "it can be priced, and ends every budget"


def test_cached_tokens_are_not_more_than_all() -> None:
    counts = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 99, "cache_write_tokens": 99},
    }
    assert whole({"content": "x"}, usage=counts).usage == Usage(10, 7, 10, 0)


PROMPT, COMPLETION, CACHED, WRITTEN, THOUGHT = 720, 72, 7_104, 1_000, 5_000


@table("where", ["details", "top", "deepseek", "anthropic"])
@table("thought", ["counted", "beside", "hidden", "none"])
@table("cache", ["in", "out", "out, and so is what was written", "none"])
@table("total", [True, False])
def test_usage_in_every_form(where: str, thought: str, cache: str, *, total: bool) -> None:
    """What a server counts in one sum and leaves out of another is found by the total; output is never guessed."""
    read = 0 if cache == "none" else CACHED
    written = WRITTEN if cache.endswith("written") else 0
    made = 0 if thought == "none" else THOUGHT
    truth = Usage(
        PROMPT + read + written, COMPLETION + made, read, written, 0 if thought == "hidden" else made
    )
    counts: dict[str, Any] = {
        "prompt_tokens": truth.input_tokens if cache == "in" else PROMPT,
        "completion_tokens": truth.output_tokens if thought == "counted" else COMPLETION,
    }
    if total:
        counts["total_tokens"] = truth.total_tokens
    if thought in {"counted", "beside"}:
        counts["completion_tokens_details"] = {"reasoning_tokens": made}
    written_at_top = {"cache_creation_input_tokens": written}
    forms: dict[str, dict[str, Any]] = {
        "details": {"prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written}},
        "top": {"cached_tokens": read, **written_at_top},
        "deepseek": {"prompt_cache_hit_tokens": read, **written_at_top},
        "anthropic": {"cache_read_input_tokens": read, **written_at_top},
    }
    counts |= forms[where]
    usage = whole({"content": "x"}, usage=counts).usage
    assert usage.output_tokens <= truth.output_tokens
    if total:
        assert usage == truth
    if not total:
        assert usage.input_tokens == counts["prompt_tokens"]


@table(
    ("counts", "wanted"),
    [
        (  # the one of the report
            {
                "prompt_tokens": 720,
                "completion_tokens": 72,
                "total_tokens": 7896,
                "prompt_tokens_details": {"cached_tokens": 7104},
            },
            Usage(7_824, 72, 7_104),
        ),
        (  # xAI: reasoning beside the completion, the cache in the prompt, and both are the same number
            {
                "prompt_tokens": 500,
                "completion_tokens": 10,
                "total_tokens": 810,
                "prompt_tokens_details": {"cached_tokens": 300},
                "completion_tokens_details": {"reasoning_tokens": 300},
            },
            Usage(500, 310, 300, 0, 300),
        ),
        (  # OpenRouter counts what was written into the cache and read from it at once
            {
                "prompt_tokens": 2168,
                "completion_tokens": 100,
                "total_tokens": 2268,
                "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161},
            },
            Usage(2_168, 100, 2_161, 7),
        ),
        (  # a rest that is neither cache nor thought was read
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 9105,
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
            Usage(9_100, 5),
        ),
        ({"completion_tokens": 5, "total_tokens": 905}, Usage(900, 5)),
        ({"prompt_tokens": 900, "total_tokens": 905}, Usage(900, 5)),
        ({"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 3}, Usage(900, 5)),
        ({"input_tokens": 900, "output_tokens": 5}, Usage(900, 5)),
    ],
)
def test_usage_of_servers_that_count_otherwise(counts: object, wanted: Usage) -> None:
    assert whole({"content": "x"}, usage=counts).usage == wanted


def test_reasoning_that_is_left_out_of_all_sums_is_output() -> None:
    counts = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "completion_tokens_details": {"reasoning_tokens": 99},
    }
    assert whole({"content": "x"}, usage=counts).usage == Usage(10, 106, reasoning_tokens=99)


@pytest.mark.parametrize("key", ["choices", "x_groq"])
def test_usage_in_other_places(key: str) -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 4}
    choice = {"delta": {"content": "x"}, "finish_reason": "stop"}
    chunk = (
        {"choices": [{**choice, "usage": counts}]}
        if key == "choices"
        else {"choices": [choice], key: {"usage": counts}}
    )
    decoder = WIRE.decoder(ASK)
    decoder.feed("message", json.dumps(chunk))
    assert decoder.finish()[1].usage == Usage(3, 4)


def test_halves_of_surrogate_pairs_do_not_get_through() -> None:
    response = streamed(
        {"content": "\ud83d\ude00 \ud83d"}, call_piece(0, "c", "f", '{"a": "\\ud83d", "b": "\\ud83d\\ude00"}')
    )
    assert response.text == "😀 \ufffd"
    assert response.tool_calls[0].arguments == {"a": "\ufffd", "b": "😀"}


@table(
    ("body", "kind"),
    [
        (b"", ConnectionFailedError),
        (b'{"choices": [{"mess', ConnectionFailedError),
        (b"<html>", ProviderError),
        (b"hello", ProviderError),
        (b"[]", ProviderError),
        (b"{}", ProviderError),
        (b'{"choices": []}', ProviderError),
        (b'{"message": "Rate limit exceeded", "status": 429}', RateLimitError),
        (b'{"errors": [{"message": "busy", "code": 503}], "success": false}', OverloadedError),
        (b'{"error": {"message": "x", "type": "server_error"}}', OverloadedError),
        (b'{"error": {"message": "x", "code": 503}}', OverloadedError),
        (b'{"choices": [{"error": {"message": "x", "code": 400}}]}', InvalidRequestError),
        (b'{"choices": [{"message": {}, "finish_reason": "error"}]}', OverloadedError),
    ],
)
def test_bodies_that_are_no_reply(body: bytes, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        WIRE.decoder(ASK).read(body)


def test_a_stream_without_an_end() -> None:
    with pytest.raises(ConnectionFailedError, match="in the middle"):
        streamed({"content": "x"}, finish=None, done=False)


def test_a_stream_without_a_reply() -> None:
    with pytest.raises(ConnectionFailedError):
        streamed(finish=None)


def test_an_end_without_the_mark_or_without_a_reason() -> None:
    assert streamed({"content": "x"}, done=False).text == "x"
    assert streamed({"content": "x"}, finish=None).text == "x"


def test_an_error_event() -> None:
    decoder = WIRE.decoder(ASK)
    with pytest.raises(InvalidRequestError, match="bad tool"):
        decoder.feed("error", '{"error": {"message": "bad tool", "status_code": 400}}')


def of_choices(*choices: Any, request: Request = ASK) -> Response:
    decoder = WIRE.decoder(request)
    for listed in choices:
        decoder.feed("message", json.dumps({"choices": listed if isinstance(listed, list) else [listed]}))
    return decoder.finish()[1]


def test_a_lone_choice_is_the_reply_whatever_its_index() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"a":'}}
    more = {"index": 0, "function": {"arguments": " 1}"}}
    response = of_choices(
        {"index": 0, "delta": {"content": "Hello"}},
        {"index": 1, "delta": {"content": " you"}},
        {"index": 2, "delta": {"tool_calls": [call]}},
        {"index": 3, "delta": {"tool_calls": [more]}},
        {"index": 3, "delta": {}, "finish_reason": "tool_calls"},
    )
    assert response.text == "Hello you"
    assert [(one.name, one.arguments) for one in response.tool_calls] == [("look", {"a": 1})]
    assert WIRE.decoder(ASK).read(b'{"choices":[{"index":1,"message":{"content":"x"}}]}').text == "x"


def test_of_several_choices_only_one_is_the_reply() -> None:
    both = [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]
    assert of_choices(both, {"index": 0, "delta": {}, "finish_reason": "stop"}).text == "a"
    two = replace(ASK, provider_options={"openai": {"n": 2}})
    one_by_one = [
        {"index": index, "delta": {"content": text}} for index, text in ((0, "a"), (1, "b"), (0, "c"))
    ]
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert of_choices(*one_by_one, end, request=two).text == "ac"


def test_what_follows_a_finish_reason_needs_another_end() -> None:
    early = [{"delta": {"content": "a"}, "finish_reason": "stop"}, {"delta": {"content": "b"}}]
    with pytest.raises(ConnectionFailedError, match="in the middle"):
        of_choices(*early)
    assert of_choices(*early, {"delta": {}, "finish_reason": "stop"}).text == "ab"
    assert of_choices(early[0], {"delta": {"content": ""}}, {"delta": {"role": "assistant"}}).text == "a"


def test_a_reply_that_is_split_into_choices_without_an_index() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body = {
        "choices": [
            {"finish_reason": "tool_calls", "message": {"content": "I look."}},
            {"finish_reason": "tool_calls", "message": {"tool_calls": [call]}},
        ]
    }
    response = WIRE.decoder(ASK).read(json.dumps(body).encode())
    assert (response.text, [one.name for one in response.tool_calls]) == ("I look.", ["look"])


def test_calls_with_one_id_get_ids_of_their_own() -> None:
    calls = [{"id": "call_0", "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    ids = [one.id for one in whole({"tool_calls": calls}, "tool_calls").tool_calls]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 2


def test_the_index_of_a_call_may_count_pieces() -> None:
    def piece(index: int | None, text: str, **more: Any) -> dict[str, Any]:
        call = {"index": index, "id": "c1", "function": {"arguments": text, **more}}
        return {"index": 0, "delta": {"tool_calls": [call]}}

    for indexes in ((0, 1, 2), (-1, -1, -1), (None, None, None), (5, 6, 5)):
        pieces = [piece(indexes[0], "", name="look"), piece(indexes[1], '{"a"'), piece(indexes[2], ": 1}")]
        response = of_choices(*pieces, {"delta": {}, "finish_reason": "tool_calls"})
        assert [(one.id, one.arguments) for one in response.tool_calls] == [("c1", {"a": 1})]


@table(
    ("body", "kind"),
    [
        (
            {"base_resp": {"status_code": 1002, "status_msg": "rate limit, retry in 3 seconds"}},
            RateLimitError,
        ),
        (
            {"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}},
            ContextLengthError,
        ),
        ({"code": 500, "msg": "Internal server error", "success": False}, OverloadedError),
    ],
)
def test_an_error_in_the_form_of_a_reply(body: Any, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        WIRE.decoder(ASK).read(json.dumps(body).encode())
    with pytest.raises(kind):
        WIRE.decoder(ASK).feed("message", json.dumps(body))


def test_an_error_after_the_end_is_only_a_note() -> None:
    decoder = WIRE.decoder(ASK)
    decoder.feed("message", '{"choices": [{"delta": {"content": "x"}, "finish_reason": "length"}]}')
    assert decoder.feed("message", '{"error": {"message": "Token limit reached", "code": 400}}') == []
    assert decoder.finish()[1].finish is FinishReason.LENGTH


def test_broken_json_in_a_stream() -> None:
    with pytest.raises(ConnectionFailedError, match="broken JSON"):
        WIRE.decoder(ASK).feed("message", '{"choices": [')


def test_unknown_things_are_ignored() -> None:
    decoder = WIRE.decoder(ASK)
    for data in (
        "[]",
        "1",
        "",
        '{"type": "new"}',
    ):
        assert decoder.feed("message", data) == []
    assert decoder.feed("new_event", '{"choices": [{"delta": {"content": "x", "new": {}}}]}') == [
        TextPiece("x")
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "tool_calls",
                    "function",
                    "arguments",
                    "usage",
                    "index",
                    "id",
                    "name",
                    "finish_reason",
                    "reasoning_details",
                    "prompt_tokens",
                    "total_tokens",
                    "model",
                    "error",
                    "refusal",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_any_json_gives_a_reply_or_an_error_of_ours(value: Any) -> None:
    for shaped in (
        value,
        {"choices": [value]},
        {"choices": [{"delta": value}]},
        {"choices": [{"delta": {"tool_calls": [value]}}]},
    ):
        decoder = WIRE.decoder(ASK)
        with contextlib.suppress(ModelError):
            decoder.feed("message", json.dumps(shaped))
            decoder.feed("message", "[DONE]")
            decoder.finish()
        with contextlib.suppress(ModelError):
            WIRE.decoder(ASK).read(json.dumps(shaped).replace("delta", "message").encode())


OLLAMA = {"model": "q", "done": True, "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 3}
PIECES = (
    {"model": "q", "message": {"role": "assistant", "content": "Hel"}, "done": False},
    {"model": "q", "message": {"role": "assistant", "content": "lo"}, "done": False},
    {**OLLAMA, "message": {"role": "assistant", "content": ""}},
)


def document(body: object, encoding: str = "utf-8") -> Response:
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return WIRE.decoder(ASK).read(text.encode(encoding))


def test_a_reply_in_ollamas_own_form_is_read() -> None:
    said = document({**OLLAMA, "message": {"role": "assistant", "content": "Hello", "thinking": "Hm."}})
    assert (said.message.text, said.finish) == ("Hello", FinishReason.STOP)
    assert [part.text for part in said.message.parts if isinstance(part, Reasoning)] == ["Hm."]
    assert (said.usage.input_tokens, said.usage.output_tokens, said.model) == (10, 3, "q")
    assert document({"response": "Hello", "done": True}).message.text == "Hello"
    calls = [{"function": {"name": "f", "arguments": {"x": number}}} for number in (1, 2)]
    asked = document({**OLLAMA, "message": {"role": "assistant", "content": "", "tool_calls": calls}})
    assert calls_of(asked) == [("f", {"x": 1}), ("f", {"x": 2})]
    cut = document({**OLLAMA, "done_reason": "length", "message": {"role": "assistant", "content": "Hel"}})
    assert cut.finish is FinishReason.LENGTH


def test_a_stream_of_lines_is_a_reply_only_with_its_last_line() -> None:
    lines = [json.dumps(piece) for piece in PIECES]
    assert document("\n".join(lines)).message.text == "Hello"
    with pytest.raises(ConnectionFailedError, match="in the middle of the reply"):
        document("\n".join(lines[:2]))


@table("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_a_body_in_another_form_of_unicode_is_read(encoding: str) -> None:
    body = {"choices": [{"message": {"content": "Gr\u00fc\u00dfe"}, "finish_reason": "stop"}]}
    assert document(body, encoding).message.text == "Gr\u00fc\u00dfe"


def test_json_that_a_gateway_has_parsed_is_the_text_again() -> None:
    assert json.loads(whole({"content": {"plan": "p", "tool_calls": []}}).message.text) == {
        "plan": "p",
        "tool_calls": [],
    }
    assert calls_of(whole({"tool_calls": [{"function": {"name": " f\n", "arguments": "{}"}}]})) == [("f", {})]


SAID = "Let us see what add() does."


def grown(text: str, *ends: int) -> list[str]:
    """The text as a gateway sends it whose pieces contain all before them."""
    return [text[:end] for end in (*ends, len(text))]


@table(
    ("pieces", "text"),
    [
        (grown(SAID, 3, 6, 12, 20), SAID),
        (grown(SAID, 13), SAID),  # two pieces
        (grown(SAID, 3, 10), SAID),  # never certain, but twice so
        ([*grown(SAID, 13), SAID, SAID], SAID),  # the whole text once more
        ([*grown(SAID, 13), " More."], f"{SAID} More."),
        (["Hi", "Hi there"], "HiHi there"),  # once may be chance
        (["=", "==", "===", "===="], "=========="),
        (["a", "ab", "c", "cd"], "aabccd"),
        (["no ", "no ", "no "], "no no no "),
        (["x" * 13, "x" * 14], "x" * 27),
        ([SAID, SAID], SAID * 2),  # a model that repeats itself
        ([" ", "  ", " a", "\n"], "    a\n"),
        (["<th", "<think>hm</th", "<think>hm</think>", f"<think>hm</think>{SAID}"], SAID),
        (["", *grown(SAID, 13)], SAID),
    ],
)
def test_pieces_that_contain_all_before_them_are_not_doubled(pieces: list[str], text: str) -> None:
    decoder = WIRE.decoder(ASK)
    shown = [
        piece.text
        for content in pieces
        for piece in decoder.feed("message", json.dumps({"choices": [{"delta": {"content": content}}]}))
        if isinstance(piece, TextPiece)
    ]
    decoder.feed("message", '{"choices": [{"delta": {}, "finish_reason": "stop"}]}')
    held, response = decoder.finish()
    assert response.message.text == text
    assert "".join([*shown, *(piece.text for piece in held if isinstance(piece, TextPiece))]) == text


def test_thoughts_and_arguments_that_contain_all_before_them_are_not_doubled() -> None:
    arguments = '{"x": 1, "y": {"z": []}}'
    pieces = [
        {"reasoning_content": SAID[:14]},
        {"reasoning_content": SAID},
        *(call_piece(0, "c1", "f", piece) for piece in grown(arguments, 1, 5, 12)),
    ]
    response = streamed(*pieces)
    assert [part.text for part in response.message.parts if isinstance(part, Reasoning)] == [SAID]
    assert calls_of(response) == [("f", json.loads(arguments))]


def test_arguments_that_only_repeat_their_beginning_are_joined() -> None:
    pieces = ['{"a":', '{"a":', "1}}"]
    assert calls_of(streamed(*(call_piece(0, "c1", "f", piece) for piece in pieces))) == [
        ("f", {"a": {"a": 1}})
    ]


@table(("content", "text"), [(42, "42"), (0, "0"), (-1.5, "-1.5"), (True, ""), (False, ""), (None, "")])
def test_a_number_that_a_gateway_has_parsed_is_text_again(content: object, text: str) -> None:
    assert whole({"content": content}).message.text == text
    assert streamed({"content": content}).message.text == text
