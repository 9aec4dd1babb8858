"""The same bytes through the vendor's parser and through ours; our bodies through the vendor's types."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pydantic import TypeAdapter, ValidationError

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
from orchestrator.engine.models.base import INVALID_ARGUMENTS, OutputSchema, Request, Response, TextPiece
from orchestrator.engine.models.openai_chat import ChatWire
from tests.tables import table

if TYPE_CHECKING:
    import openai

DATA = Path(__file__).parents[3] / "data" / "chat"
WIRE = ChatWire.at("https://api.openai.com/v1", "gpt-4o")
REQUEST = Request("", ())


def vendor_client(content: bytes, content_type: str) -> openai.OpenAI:
    import openai

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": content_type}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="made-up", base_url="http://vendor/v1", max_retries=0, http_client=http)


def our_stream(content: bytes) -> tuple[str, Response]:
    http_reply = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=content,
        request=httpx2.Request("POST", WIRE.url),
    )
    decoder = WIRE.decoder(REQUEST)
    pieces = [
        piece for event in httpx2.EventSource(http_reply) for piece in decoder.feed(event.event, event.data)
    ]
    held, response = decoder.finish()
    return "".join(piece.text for piece in [*pieces, *held] if isinstance(piece, TextPiece)), response


def our_calls(response: Response) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, dict(call.arguments)) for call in response.tool_calls]


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {INVALID_ARGUMENTS: arguments}


@table("file", sorted(DATA.glob("*.json")), ids=lambda file: file.name)
def test_whole_replies_are_read_as_the_vendor_reads_them(file: Path) -> None:
    ours = WIRE.decoder(REQUEST).read(file.read_bytes())
    with vendor_client(file.read_bytes(), "application/json") as client:
        theirs = client.chat.completions.create(model="m", messages=[])
    message, usage = theirs.choices[0].message, theirs.usage
    assert ours.text == (message.content or message.refusal or "")
    calls = [call for call in message.tool_calls or [] if call.type == "function"]
    assert our_calls(ours) == [
        (call.id, call.function.name, parsed(call.function.arguments)) for call in calls
    ]
    assert (ours.model, ours.id) == (theirs.model, theirs.id)
    assert usage is not None
    assert (ours.usage.input_tokens, ours.usage.output_tokens) == (
        usage.prompt_tokens,
        usage.completion_tokens,
    )


@table("file", sorted(DATA.glob("*.sse")), ids=lambda file: file.name)
def test_streams_are_read_as_the_vendor_reads_them(file: Path) -> None:
    text, ours = our_stream(file.read_bytes())
    content, refusal, calls, usage = "", "", dict[str, list[str]](), None
    with vendor_client(file.read_bytes(), "text/event-stream") as client:
        last = ""
        for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                content += choice.delta.content or ""
                refusal += choice.delta.refusal or ""
                for call in choice.delta.tool_calls or []:
                    assert call.function is not None
                    last = call.id or last
                    name, arguments = calls.setdefault(last, ["", ""])
                    calls[last] = [
                        name + (call.function.name or ""),
                        arguments + (call.function.arguments or ""),
                    ]
    assert text == ours.text == content + refusal
    assert our_calls(ours) == [(key, name, parsed(arguments)) for key, (name, arguments) in calls.items()]
    assert usage is not None
    assert (ours.usage.input_tokens, ours.usage.output_tokens) == (
        usage.prompt_tokens,
        usage.completion_tokens,
    )


PNG = b"\x89PNG made up"
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
CONVERSATION = (
    Message(Role.USER, (Text("Look at this."), Image(PNG, "image/png"))),
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
        (ToolResult("c1", "read_file", "x = 1"), ToolResult("c2", "read_file", "no path", is_error=True)),
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
        reasoning_effort="low",
    ),
    "no text": Request("s", (Message(Role.ASSISTANT, (ToolCall("c1", "f", {}),)),)),
}


@table("request_", REQUESTS.values(), ids=REQUESTS)
@table("stream", [True, False])
def test_bodies_pass_the_vendors_types(request_: Request, *, stream: bool) -> None:
    body = WIRE.encode(request_, stream=stream).body
    check(body, stream=stream)
    kind = vendors_type(stream=stream)
    assert body.keys() <= kind.__annotations__.keys() | _inherited(kind)


@pytest.mark.parametrize(
    "break_", [lambda b: b["messages"][0].update(role="sytem"), lambda b: b["tools"][0].pop("function")]
)
def test_the_vendors_types_see_a_wrong_body(break_: Callable[[Any], Any]) -> None:
    body = WIRE.encode(REQUESTS["everything"], stream=False).body
    break_(body)
    with pytest.raises(ValidationError):
        check(body)


def check(body: Any, *, stream: bool = False) -> None:
    consume(vendors_reader(stream=stream).validate_python(body))


def vendors_type(*, stream: bool) -> Any:
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsNonStreaming,
        CompletionCreateParamsStreaming,
    )

    return CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming


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
