"""The same bytes through the vendor's parser and through ours; our bodies through the vendor's types."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import InvalidRequestError, OverloadedError
from orchestrator.core.messages import (
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
)
from orchestrator.engine.models.base import (
    INVALID_ARGUMENTS,
    Completed,
    OutputSchema,
    ReasoningPiece,
    Request,
    Response,
    Restarted,
    StreamEvent,
    TextPiece,
    ToolChoice,
)
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.models.transport import HttpModel
from tests.doubles import responses_stream as vendor
from tests.doubles.sse_server import AnswerItem, SseServer, json_answer, sse_answer, sse_event
from tests.tables import table

if TYPE_CHECKING:
    import openai

WIRE = ResponsesWire.at("https://api.openai.com/v1", "gpt-5.2")
REQUEST = Request("", ())
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
REPLIES: dict[str, tuple[Sequence[Mapping[str, Any]], dict[str, Any]]] = {
    "text": ([vendor.message("Hello — 你好, 😀.")], {}),
    "nothing": ([], {}),
    "refusal": ([vendor.message("I will not.", refusal=True)], {}),
    "calls": ([vendor.call("f", '{"a": "ä"}', number=1), vendor.call("g", "{}", number=2)], {}),
    "reasoning, text, calls": (
        [
            vendor.reasoning("One.", "Two.", number=1),
            vendor.message("I look.", number=1, phase="commentary"),
            vendor.call("f", '{"a": 1}', number=1),
            vendor.reasoning(content=["Long."], encrypted=None, number=2),
            vendor.message("And then.", number=2),
            vendor.call("g", '{"b": [1, {}]}', number=2),
        ],
        {},
    ),
    "a search of the vendor's": ([SEARCHED, vendor.message("Found.")], {}),
    "cut": (
        [vendor.message("I wri"), {**vendor.call("f", '{"a": "x'), "status": "incomplete"}],
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ),
}


def vendor_client(content: bytes, content_type: str) -> openai.OpenAI:
    import openai

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": content_type}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="made-up", base_url="http://vendor/v1", max_retries=0, http_client=http)


def our_stream(content: bytes) -> tuple[str, str, Response]:
    reply = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=content,
        request=httpx2.Request("POST", WIRE.url),
    )
    decoder = WIRE.decoder(REQUEST)
    pieces = [piece for event in httpx2.EventSource(reply) for piece in decoder.feed(event.event, event.data)]
    held, response = decoder.finish()
    pieces += held
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    return text, "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece)), response


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {INVALID_ARGUMENTS: arguments}


def check_same(ours: Response, theirs: Any) -> None:
    refusals = [
        part.refusal
        for item in theirs.output
        if item.type == "message"
        for part in item.content
        if part.type == "refusal"
    ]
    assert ours.text == theirs.output_text + "".join(refusals)
    assert [(call.id, call.name, dict(call.arguments)) for call in ours.tool_calls] == [
        (item.call_id, item.name, parsed(item.arguments))
        for item in theirs.output
        if item.type == "function_call"
    ]
    assert (ours.id, ours.model) == (theirs.id, theirs.model)
    usage = ours.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.reasoning_tokens) == (
        theirs.usage.input_tokens,
        theirs.usage.output_tokens,
        theirs.usage.input_tokens_details.cached_tokens,
        theirs.usage.output_tokens_details.reasoning_tokens,
    )
    assert "".join(part.text for part in ours.message.parts if isinstance(part, Reasoning)) == "".join(
        "\n\n".join(part.text for part in item.content or item.summary)
        for item in theirs.output
        if item.type == "reasoning"
    )


@table(("output", "more"), REPLIES.values(), ids=REPLIES)
def test_whole_replies_are_read_as_the_vendor_reads_them(
    output: Sequence[Mapping[str, Any]], more: dict[str, Any]
) -> None:
    content = json.dumps(vendor.whole(output, **more)).encode()
    with vendor_client(content, "application/json") as client:
        theirs = client.responses.create(model="m", input="")
    check_same(WIRE.decoder(REQUEST).read(content), theirs)


@table(("output", "more"), REPLIES.values(), ids=REPLIES)
def test_streams_are_read_as_the_vendor_reads_them(
    output: Sequence[Mapping[str, Any]], more: dict[str, Any]
) -> None:
    content = b"".join(sse_event(event) for event in vendor.events(output, **more))
    text, thoughts, ours = our_stream(content)
    said = ""
    last: Any = None
    with vendor_client(content, "text/event-stream") as client:
        event: Any  # its kinds are too many to be told apart by type
        for event in client.responses.create(model="m", input="", stream=True):
            if event.type in {"response.output_text.delta", "response.refusal.delta"}:
                said += event.delta
            last = event
    assert text == ours.text == said
    assert thoughts == "".join(part.text for part in ours.message.parts if isinstance(part, Reasoning))
    check_same(ours, last.response)


@table(("output", "more"), REPLIES.values(), ids=REPLIES)
def test_a_reply_goes_back_in_the_vendors_types(
    output: Sequence[Mapping[str, Any]], more: dict[str, Any]
) -> None:
    message = WIRE.decoder(REQUEST).read(json.dumps(vendor.whole(output, **more)).encode()).message
    check(WIRE.encode(Request("", (message,)), stream=False).body)


TOOL = ToolDefinition(
    "read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
SCHEMA = OutputSchema(
    "plan",
    {
        "type": "object",
        "properties": {"plan": {"type": "string"}},
        "required": ["plan"],
        "additionalProperties": False,
    },
)
PICTURE = Image(b"\x89PNG made up", "image/png")
CONVERSATION = (
    Message(Role.USER, (Text("Look at this."), PICTURE)),
    Message(
        Role.ASSISTANT,
        (
            Reasoning("hm"),
            Text("Reading."),
            ToolCall("c1", "read_file", {"path": "ä.py"}),
            ToolCall("c2", "read_file", {}),
        ),
    ),
    Message(
        Role.TOOL,
        (
            ToolResult("c1", "read_file", "x = 1", images=(PICTURE,)),
            ToolResult("c2", "read_file", "no path", is_error=True),
        ),
    ),
    Message.assistant("Done."),
    Message.user("Thanks."),
)
REQUESTS = {
    "smallest": Request("", (Message.user("Hi"),)),
    "conversation": Request("Be brief.", CONVERSATION, tools=(TOOL,)),
    "everything": Request(
        "Be brief.",
        CONVERSATION,
        tools=(TOOL,),
        output_schema=SCHEMA,
        max_output_tokens=100,
        temperature=0.5,
        top_p=0.5,
        reasoning_effort="low",
        tool_choice=ToolChoice.AUTO,
        parallel_tool_calls=True,
        provider_options={"openai": {"prompt_cache_key": "k", "text": {"verbosity": "low"}}},
    ),
}


@table("request_", REQUESTS.values(), ids=REQUESTS)
@table("stream", [True, False])
def test_bodies_pass_the_vendors_types(request_: Request, *, stream: bool) -> None:
    body = WIRE.encode(request_, stream=stream).body
    check(body, stream=stream)
    kind = vendors_type(stream=stream)
    assert body.keys() <= kind.__annotations__.keys() | _inherited(kind)


@table(
    "break_",
    [
        lambda body: body["input"][0].update(role="sytem"),
        lambda body: body["tools"][0].pop("parameters"),
        lambda body: body["input"][-1].pop("content"),
        lambda body: body["input"][2].update(arguments={}),
    ],
)
def test_the_vendors_types_see_a_wrong_body(break_: Callable[[Any], Any]) -> None:
    body = WIRE.encode(REQUESTS["everything"], stream=False).body
    break_(body)
    with pytest.raises(ValidationError):
        check(body)


def check(body: Any, *, stream: bool = False) -> None:
    for item in body["input"]:
        if item.get("role") == "assistant":
            # The type wants an id, the API does not, and what other models said has none.
            item.setdefault("id", "msg_made_up")
    consume(vendors_reader(stream=stream).validate_python(body))


def vendors_type(*, stream: bool) -> Any:
    from openai.types.responses.response_create_params import (
        ResponseCreateParamsNonStreaming,
        ResponseCreateParamsStreaming,
    )

    return ResponseCreateParamsStreaming if stream else ResponseCreateParamsNonStreaming


@functools.cache  # slow to build, and it must live as long as the lazy parts of what it validated
def vendors_reader(*, stream: bool) -> TypeAdapter[Any]:
    return TypeAdapter(vendors_type(stream=stream))


def consume(value: Any) -> None:
    """Pydantic checks an `Iterable` only while it is iterated."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str):
        return
    if isinstance(value, Iterable):
        for item in value:
            consume(item)


def _inherited(kind: Any) -> set[str]:
    return {name for base in kind.__orig_bases__ for name in getattr(base, "__annotations__", {})}


# Over real HTTP.

CALLING = (vendor.reasoning("Hm."), vendor.call("f", '{"a": 1}'))
HELLO = (vendor.message("Hello."),)


@asynccontextmanager
async def model_over(answers: Iterable[AnswerItem]) -> AsyncIterator[tuple[HttpModel, SseServer]]:
    with SseServer(answers) as server:
        model = HttpModel(
            "openai:m",
            ResponsesWire.at(server.url, "m"),
            api_key="sk-made-up-0123456789",
            clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)),
            random=lambda: 0.5,
        )
        try:
            yield model, server
        finally:
            await model.aclose()


async def asked(model: HttpModel, *messages: Message, **more: Any) -> tuple[list[StreamEvent], Response]:
    events = [event async for event in model.stream(Request("Be brief.", messages, **more))]
    assert isinstance(events[-1], Completed)
    return events, events[-1].response


async def test_two_turns_over_http() -> None:
    answers = [sse_answer(vendor.events(CALLING)), sse_answer(vendor.events(HELLO))]
    async with model_over(answers) as (model, server):
        begin = Message.user("Go.")
        _, calling = await asked(model, begin)
        result = Message(Role.TOOL, (ToolResult("call_1", "f", "done"),))
        events, said = await asked(model, begin, calling.message, result)
    assert said.text == "".join(event.text for event in events if isinstance(event, TextPiece)) == "Hello."
    first, second = server.requests
    assert first.path == "/v1/responses"
    assert first.headers["authorization"] == "Bearer sk-made-up-0123456789"
    assert second.raw.startswith(first.raw.removesuffix(b"]}"))
    assert [item.get("type") for item in second.body["input"]] == [
        None,
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert second.body["input"][1] == CALLING[0]


async def test_a_whole_reply_over_http() -> None:
    async with model_over([json_answer(vendor.whole(HELLO))]) as (model, server):
        response = await model.complete(Request("", (Message.user("Hi"),)))
    assert response.text == "Hello."
    assert "stream" not in server.requests[0].body


async def test_a_cut_stream_is_asked_for_again() -> None:
    events = vendor.events(HELLO)
    async with model_over([sse_answer(events, cut_after=6), sse_answer(events)]) as (model, server):
        seen, response = await asked(model, Message.user("Hi"))
    assert Restarted() in seen
    assert response.text == "Hello."
    assert len(server.requests) == 2


async def test_what_a_server_refuses_is_left_out_of_all_later_requests() -> None:
    said = "Your organization must be verified to generate reasoning summaries."
    error = {"message": said, "param": "reasoning.summary", "type": "invalid_request_error"}
    refusal = json_answer({"error": error}, status=400)
    answers = [refusal, sse_answer(vendor.events(HELLO)), sse_answer(vendor.events(HELLO))]
    async with model_over(answers) as (model, server):
        await asked(model, Message.user("Hi"), reasoning_effort="high")
        await asked(model, Message.user("Hi"), reasoning_effort="high")
    assert [request.body["reasoning"] for request in server.requests] == [
        {"effort": "high", "summary": "auto"},
        {"effort": "high"},
        {"effort": "high"},
    ]


@pytest.mark.parametrize(
    ("code", "kind", "tries"),
    [("server_error", OverloadedError, 5), ("invalid_image", InvalidRequestError, 1)],
)
async def test_a_reply_that_fails_in_its_stream(code: str, kind: type[Exception], tries: int) -> None:
    error = {"code": code, "message": "Sorry."}
    failed = {"type": "response.failed", "response": vendor.whole([], "failed", error=error)}
    async with model_over([sse_answer([*vendor.events(HELLO)[:3], failed])] * 5) as (model, server):
        with pytest.raises(kind, match=r"Sorry\."):
            await asked(model, Message.user("Hi"))
    assert len(server.requests) == tries
