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
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from orchestrator.core.messages import FinishReason, Message, Part, Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.base import CallPiece, ReasoningPiece, Request, Response, TextPiece
from orchestrator.engine.models.gemini import OPAQUE, PART, SIGNATURE, GeminiWire
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.engine.models.base import Piece

WIRE = GeminiWire.at("http://gemini.test/v1beta", "gemini-3-flash-preview")
ASK = Request("Be brief.", (Message.user("Hello"),))


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {
        "candidates": [{**candidate, "finishReason": finish} if finish else candidate],
        "responseId": "r1",
        **more,
    }


def whole(*parts: Any, finish: str | None = "STOP", **more: Any) -> Response:
    return WIRE.decoder(ASK).read(json.dumps(chunk(*parts, finish=finish, **more)).encode())


def streamed(*chunks: object) -> tuple[list[Piece], Response]:
    decoder = WIRE.decoder(ASK)
    pieces = [piece for value in chunks for piece in decoder.feed("message", json.dumps(value))]
    held, response = decoder.finish()
    assert held == []
    return pieces, response


def call(name: str = "f", signature: str = "", **more: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {"a": 1}, **more}}
    return {**part, "thoughtSignature": signature} if signature else part


def signed(signature: str, text: str = "") -> Reasoning:
    return Reasoning(text, {OPAQUE: {SIGNATURE: signature}})


@table(
    ("reason", "finish"),
    [
        ("STOP", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("CONTINUATION", FinishReason.LENGTH),
        ("max_tokens", FinishReason.LENGTH),
        ("length", FinishReason.LENGTH),
        ("SAFETY", FinishReason.CONTENT_FILTER),
        ("RECITATION", FinishReason.CONTENT_FILTER),
        ("LANGUAGE", FinishReason.CONTENT_FILTER),
        ("BLOCKLIST", FinishReason.CONTENT_FILTER),
        ("PROHIBITED_CONTENT", FinishReason.CONTENT_FILTER),
        ("SPII", FinishReason.CONTENT_FILTER),
        ("IMAGE_SAFETY", FinishReason.CONTENT_FILTER),
        ("MODEL_ARMOR", FinishReason.CONTENT_FILTER),
        ("MALFORMED_FUNCTION_CALL", FinishReason.OTHER),
        ("UNEXPECTED_TOOL_CALL", FinishReason.OTHER),
        ("TOO_MANY_TOOL_CALLS", FinishReason.OTHER),
        ("OTHER", FinishReason.OTHER),
        ("SOMETHING_NEW", FinishReason.OTHER),
    ],
)
def test_finish_reasons(reason: str, finish: FinishReason) -> None:
    assert whole({"text": "x"}, finish=reason).finish is finish
    assert streamed(chunk({"text": "x"}), chunk(finish=reason))[1].finish is finish


@table(
    ("reason", "finish"),
    [
        ("STOP", FinishReason.TOOL_CALLS),
        ("UNEXPECTED_TOOL_CALL", FinishReason.TOOL_CALLS),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("SAFETY", FinishReason.CONTENT_FILTER),
    ],
)
def test_calls_are_a_reason_of_their_own(reason: str, finish: FinishReason) -> None:
    assert whole(call(), finish=reason).finish is finish


def test_a_conversation_without_its_signatures_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequestError, match="MISSING_THOUGHT_SIGNATURE"):
        whole(finish="MISSING_THOUGHT_SIGNATURE")


def test_several_calls_with_and_without_ids() -> None:
    response = whole(call("f", id="given"), call("f"), call("f"), call("g", id="given"))
    ids = [made.id for made in response.tool_calls]
    assert ids[0] == "given"
    assert len(set(ids)) == 4
    assert ids == [
        made.id
        for made in streamed(
            chunk(call("f", id="given"), call("f")), chunk(call("f"), call("g", id="given"), finish="STOP")
        )[1].tool_calls
    ]
    assert [dict(made.arguments) for made in response.tool_calls] == [{"a": 1}] * 4
    assert whole(call(), responseId="r2").tool_calls[0].id != whole(call(), responseId="r3").tool_calls[0].id


def test_a_call_without_arguments() -> None:
    assert whole({"functionCall": {"name": "f"}}).tool_calls[0].arguments == {}


def test_thoughts_are_readable() -> None:
    pieces, response = streamed(
        chunk({"text": "One ", "thought": True}),
        chunk({"text": "two.", "thought": True}),
        chunk({"text": "Three"}, finish="STOP"),
    )
    assert pieces == [ReasoningPiece("One "), ReasoningPiece("two."), TextPiece("Three")]
    assert response.message.parts == (Reasoning("One two."), Text("Three"))


THOUGHT_SIGNED = {"text": "Hm.", "thought": True, "thoughtSignature": "s"}
SEARCH = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "1"}, "thoughtSignature": "s"}


@table(
    ("parts", "kept"),
    [
        ([call(signature="s")], [signed("s"), ToolCall]),
        (
            [{"text": "Hm.", "thought": True}, call(signature="s"), call("g")],
            [signed("s", "Hm."), ToolCall, ToolCall],
        ),
        (
            [{"text": "a"}, {"text": "b", "thoughtSignature": "s"}, {"text": "c"}],
            [Text("a"), signed("s"), Text("b"), Text("c")],
        ),
        (
            [{"text": "a"}, {"text": "", "thoughtSignature": "s"}],
            [Text("a"), Reasoning("", {OPAQUE: {PART: {"text": "", "thoughtSignature": "s"}}})],
        ),
        ([THOUGHT_SIGNED, {"text": "a"}], [Reasoning("Hm.", {OPAQUE: {PART: THOUGHT_SIGNED}}), Text("a")]),
        (
            [{"text": "Hm.", "thought": True}, SEARCH, {"text": "a"}],
            [Reasoning("Hm.", {OPAQUE: {PART: SEARCH}}), Text("a")],
        ),
        ([{"text": "a"}, {"text": "Hm.", "thought": True}], [Text("a"), Reasoning("Hm.")]),
    ],
)
def test_signatures_stay_with_their_parts(parts: list[dict[str, Any]], kept: list[Part | type]) -> None:
    response = whole(*parts)
    assert [type(part) if isinstance(part, ToolCall) else part for part in response.message.parts] == kept
    again = streamed(*[chunk(part) for part in parts], chunk(finish="STOP"))[1]
    assert again.message == response.message
    # and they go back as they came, without the thoughts that are not signed
    sent = WIRE.encode(Request("", (response.message,)), stream=False).body["contents"][0]["parts"]
    signatures = [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    assert [part["thoughtSignature"] for part in sent if "thoughtSignature" in part] == signatures
    for part in parts:
        if "thoughtSignature" in part and "functionCall" not in part:
            assert part in sent


def test_unknown_parts_fields_and_candidates_are_ignored() -> None:
    response = whole(
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
        {"somethingNew": {"x": 1}},
        "no part",
        {"text": "Hello", "videoMetadata": {}},
        {"text": ""},
        somethingElse=[1],
        usageMetadata="?",
    )
    assert response.message.parts == (Text("Hello"),)
    second = {"index": 1, "content": {"parts": [{"text": "other"}]}, "finishReason": "STOP"}
    value = chunk({"text": "Hello"}, finish="STOP")
    value["candidates"].append(second)
    assert WIRE.decoder(ASK).read(json.dumps(value).encode()).text == "Hello"


@table(
    "candidate",
    [{"finishReason": "STOP"}, {"content": {}, "finishReason": "STOP"}, {"content": {"role": "model"}}],
)
def test_a_reply_that_says_nothing(candidate: dict[str, Any]) -> None:
    response = WIRE.decoder(ASK).read(json.dumps({"candidates": [candidate]}).encode())
    assert (response.message.parts, response.finish) == ((), FinishReason.STOP)


def test_usage() -> None:
    counts = {
        "promptTokenCount": 100,
        "toolUsePromptTokenCount": 10,
        "cachedContentTokenCount": 64,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 135,
    }
    wanted = Usage(110, 25, cached_input_tokens=64, reasoning_tokens=5)
    assert whole({"text": "x"}, usageMetadata=counts).usage == wanted
    early = {"promptTokenCount": 100, "candidatesTokenCount": 1, "totalTokenCount": 101}
    chunks = [chunk({"text": "x"}, usageMetadata=early), chunk(finish="STOP", usageMetadata=counts)]
    assert streamed(*chunks)[1].usage == wanted


def test_uncounted_tokens_are_estimated() -> None:
    assert whole({"text": "x" * 40}).usage == Usage(input_tokens=8, output_tokens=20)
    assert whole({"text": "x" * 40}, usageMetadata={"promptTokenCount": None}).usage.output_tokens == 20


def test_the_model_and_the_id() -> None:
    response = whole({"text": "x"}, modelVersion="gemini-3-flash-preview-11")
    assert (response.model, response.id) == ("gemini-3-flash-preview-11", "r1")
    bare = WIRE.decoder(ASK).read(b'{"candidates":[{"finishReason":"STOP"}]}')
    assert (bare.model, bare.id) == ("gemini-3-flash-preview", None)


@pytest.mark.parametrize("message", ["", "too bad"])
def test_a_refused_prompt(message: str) -> None:
    value = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": message}}
    wanted = "gemini.test refused the prompt: PROHIBITED_CONTENT" + (f": {message}" if message else "")
    for ask in (lambda: WIRE.decoder(ASK).read(json.dumps(value).encode()), lambda: streamed(value)):
        with pytest.raises(ContentFilterError) as caught:
            ask()
        assert str(caught.value) == wanted


def test_feedback_on_an_accepted_prompt_is_ignored() -> None:
    assert whole({"text": "x"}, promptFeedback={"safetyRatings": []}).text == "x"
    assert streamed({"promptFeedback": {}}, chunk({"text": "x"}, finish="STOP"))[1].text == "x"


@table(
    ("error", "kind"),
    [
        ({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}, OverloadedError),
        ({"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED"}, RateLimitError),
        ({"code": 500, "message": "An internal error", "status": "INTERNAL"}, OverloadedError),
        ({"message": "high demand", "status": "UNAVAILABLE"}, OverloadedError),
        (
            {
                "code": 400,
                "message": "The input token count (9) exceeds the maximum",
                "status": "INVALID_ARGUMENT",
            },
            ContextLengthError,
        ),
    ],
)
def test_an_error_inside(error: dict[str, Any], kind: type[ModelError]) -> None:
    value = {"error": error}
    for body in (value, [value]):
        with pytest.raises(ModelError) as caught:
            WIRE.decoder(ASK).read(json.dumps(body).encode())
        assert type(caught.value) is kind
        with pytest.raises(kind):
            streamed(chunk({"text": "x"}), body)


def test_an_error_after_the_end_is_not_one() -> None:
    assert (
        streamed(chunk({"text": "x"}, finish="STOP"), {"error": {"code": 500, "message": "late"}})[1].text
        == "x"
    )


def test_what_follows_a_finish_reason_counts() -> None:
    # Older models give a finish reason with every chunk.
    chunks = [chunk({"text": "a"}, finish="STOP"), chunk({"text": "b"}, finish="STOP")]
    assert streamed(*chunks)[1].text == "ab"


@table("part", [{"text": "b"}, {"text": "b", "thought": True}, call()])
def test_a_stream_that_goes_on_after_an_early_end_needs_another(part: dict[str, Any]) -> None:
    early, late = (
        {"promptTokenCount": 100, "thoughtsTokenCount": 50, "totalTokenCount": 150},
        {
            "promptTokenCount": 100,
            "candidatesTokenCount": 7,
            "totalTokenCount": 107,
        },
    )
    begun = [chunk({"text": "a"}, finish="STOP", usageMetadata=early), chunk(part, usageMetadata=late)]
    with pytest.raises(ConnectionFailedError, match="in the middle"):
        streamed(*begun)
    with pytest.raises(OverloadedError):
        streamed(*begun, {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})
    assert streamed(*begun, chunk(finish="STOP"))[1].usage == Usage(100, 7), "each has all counts so far"


@table("last", [chunk(usageMetadata={}), chunk({"text": ""}), {"usageMetadata": {}}])
def test_what_adds_nothing_does_not_take_an_end_back(last: dict[str, Any]) -> None:
    counted = chunk(
        {"text": "a"}, finish="STOP", usageMetadata={"promptTokenCount": 9, "totalTokenCount": 11}
    )
    assert streamed(counted, last)[1].usage == Usage(9, 2)


@table("chunks", [[], [chunk({"text": "x"})], [{"usageMetadata": {}}]])
def test_a_cut_stream(chunks: list[dict[str, Any]]) -> None:
    with pytest.raises(ConnectionFailedError, match="in the middle"):
        streamed(*chunks)


def test_broken_json_in_a_stream() -> None:
    with pytest.raises(ConnectionFailedError, match="broken JSON"):
        WIRE.decoder(ASK).feed("message", '{"candidates": [')


@table("data", ["", "  ", "[DONE", "[DONE]"])
def test_events_without_a_reply(data: str) -> None:
    decoder = WIRE.decoder(ASK)
    if data.startswith("["):
        with pytest.raises(ConnectionFailedError):
            decoder.feed("message", data)
    else:
        assert decoder.feed("message", data) == []


@table(
    ("body", "kind"),
    [
        (b'{"candidates": [{"content"', ConnectionFailedError),
        (b'[{"candidates": [{"content"', ConnectionFailedError),
        (b"", ConnectionFailedError),
        (b"<html>", ProviderError),
        (b"hello", ProviderError),
        (b"[]", ProviderError),
        (b"{}", ProviderError),
        (b'{"candidates": []}', ProviderError),
        (b'{"choices": []}', ProviderError),
    ],
)
def test_bodies_that_are_no_reply(body: bytes, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        WIRE.decoder(ASK).read(body)


def test_a_stream_that_came_as_a_list() -> None:
    body = json.dumps([chunk({"text": "a"}), chunk({"text": "b"}), chunk(call(), finish="STOP")]).encode()
    response = WIRE.decoder(ASK).read(body)
    assert (response.text, response.finish) == ("ab", FinishReason.TOOL_CALLS)


CHUNKS = [
    chunk({"text": "Ich ünde\u2028r", "thought": True}),
    chunk({"text": "lege\u0085.", "thought": True}),
    chunk({"text": "Hallo 🦊"}),
    chunk({"text": " und\r\n"}),
    chunk(call("f", "sig1"), call("g")),
    chunk(
        {"text": "", "thoughtSignature": "sig2"},
        finish="STOP",
        usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 4},
    ),
]
STREAM = b": hello\r\n\r\n" + b"".join(
    b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\r\n\r\n" for value in CHUNKS
)


def read_in(pieces: list[bytes]) -> tuple[list[Piece], Response]:
    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Any:
            return iter(pieces)

    kind = {"content-type": "text/event-stream"}
    reply = httpx2.Response(200, headers=kind, stream=Body(), request=httpx2.Request("POST", WIRE.url))
    decoder = WIRE.decoder(ASK)
    read = [piece for event in httpx2.EventSource(reply) for piece in decoder.feed(event.event, event.data)]
    return read, decoder.finish()[1]


EXPECTED = streamed(*CHUNKS)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_cutting_of_a_stream_reads_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read_in([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == EXPECTED


TEXTS = st.text(max_size=5)
PARTS = st.one_of(
    st.builds(lambda text: {"text": text}, TEXTS),
    st.builds(lambda text: {"text": text, "thought": True}, TEXTS),
    st.builds(lambda text, sig: {"text": text, "thoughtSignature": sig}, TEXTS, st.sampled_from(["a", "b"])),
    st.just(THOUGHT_SIGNED),
    st.just(SEARCH),
    st.builds(call, st.sampled_from("fg")),
    st.just(call("f", "s")),
)


@given(st.lists(PARTS, min_size=1, max_size=8), st.data())
def test_a_stream_says_what_the_whole_reply_says(parts: list[dict[str, Any]], data: st.DataObject) -> None:
    """However parts are spread over chunks; and every signature goes back, in order."""
    chunks, rest = [], parts
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        chunks.append(chunk(*rest[:size]))
        rest = rest[size:]
    pieces, response = streamed(*chunks, chunk(finish="STOP"))
    assert response == whole(*parts)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == response.text
    sent = WIRE.encode(Request("", (response.message,)), stream=False).body["contents"]
    back = [part.get("thoughtSignature") for content in sent for part in content["parts"]]
    signatures = [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    assert [one for one in back if one and "validator" not in one] == signatures


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "name", "args",
             "finishReason", "usageMetadata", "promptTokenCount", "promptFeedback", "blockReason", "error", "index"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@given(JSON, JSON)
def test_whatever_a_server_sends_is_a_reply_or_an_error_of_ours(first: Any, second: Any) -> None:
    decoder = WIRE.decoder(ASK)
    try:
        decoder.feed("message", json.dumps(first))
        decoder.feed("message", json.dumps(second))
        decoder.finish()
    except ModelError:
        pass
    with contextlib.suppress(ModelError):
        WIRE.decoder(ASK).read(json.dumps(first).encode())


def test_counts_that_are_no_numbers_of_tokens_end_no_session() -> None:
    """`1e999` is valid JSON; to take it for a number of tokens would raise."""
    for number in ("1e999", "-5", '"7"'):
        raw = b'{"candidates": [{"content": {"parts": [{"text": "xx"}]}, "finishReason": "STOP"}],'
        raw += b'"usageMetadata": {"promptTokenCount": %b, "candidatesTokenCount": 3}}' % number.encode()
        usage = WIRE.decoder(ASK).read(raw).usage
        assert (usage.input_tokens, usage.output_tokens) == (8, 3)


def test_a_call_is_heard_also_one_nested_too_deeply_to_be_written_again() -> None:
    decoder = WIRE.decoder(ASK)
    nested = '{"a":' * 800 + "1" + "}" * 800
    data = json.dumps(chunk(call())).replace('{"a": 1}', nested)
    [piece] = decoder.feed("message", data)
    assert isinstance(piece, CallPiece)
    assert len(piece.text) > 4_000
    decoder.feed("message", json.dumps(chunk(finish="STOP")))
    assert decoder.finish()[1].usage.output_tokens > 2_000, "it is counted, too, where the server does not"
