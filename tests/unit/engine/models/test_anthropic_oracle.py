"""The same bytes through the vendor's parser and through ours; our bodies through the vendor's types."""

from __future__ import annotations

import functools
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
from orchestrator.engine.models.anthropic import BLOCK, SIGNATURE, AnthropicWire
from orchestrator.engine.models.base import (
    OutputSchema,
    Request,
    Response,
    TextPiece,
    ToolChoice,
    invalid_arguments,
)
from tests.tables import table

if TYPE_CHECKING:
    import anthropic

DATA = Path(__file__).parents[3] / "data" / "messages"
WIRE = AnthropicWire.at("https://api.anthropic.com/v1", "claude-opus-5")
REQUEST = Request("", ())


def vendor_client(content: bytes, content_type: str) -> anthropic.Anthropic:
    import anthropic

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": content_type}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="made-up", base_url="http://vendor", max_retries=0, http_client=http)


def our_stream(content: bytes) -> tuple[str, Response]:
    reply = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=content,
        request=httpx2.Request("POST", WIRE.url),
    )
    decoder = WIRE.decoder(REQUEST)
    pieces = [piece for event in httpx2.EventSource(reply) for piece in decoder.feed(event.event, event.data)]
    assert decoder.done
    held, response = decoder.finish()
    return "".join(piece.text for piece in [*pieces, *held] if isinstance(piece, TextPiece)), response


def check_same(ours: Response, theirs: anthropic.types.Message) -> None:
    """Every block: text joined, the others in order."""
    expected = [block.model_dump(exclude_unset=True) for block in theirs.content if block.type != "text"]
    found: list[dict[str, Any]] = []
    for number, part in enumerate(ours.message.parts):
        if isinstance(part, Reasoning) and BLOCK in part.opaque:
            found.append(dict(part.opaque[BLOCK]))
        elif isinstance(part, Reasoning):
            found.append({"type": "thinking", "thinking": part.text, "signature": part.opaque[SIGNATURE]})
        elif isinstance(part, ToolCall):
            # The vendor's parser completes what was cut off; we do not run half a call.
            cut = invalid_arguments(part) is not None and theirs.stop_reason == "max_tokens"
            given = expected[number]["input"] if cut else dict(part.arguments)
            found.append({"type": "tool_use", "id": part.id, "name": part.name, "input": given})
    assert found == expected
    said = "".join(block.text for block in theirs.content if block.type == "text")
    refused = theirs.stop_details.explanation if theirs.stop_details else None
    assert ours.text == (said or refused or "")
    assert (ours.model, ours.id) == (theirs.model, theirs.id)
    usage = theirs.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert (ours.usage.cached_input_tokens, ours.usage.cache_write_tokens) == (read, written)
    assert ours.usage.input_tokens == usage.input_tokens + read + written
    assert ours.usage.output_tokens == usage.output_tokens


@pytest.mark.parametrize("file", sorted(DATA.glob("*.json")), ids=lambda file: file.name)
def test_whole_replies_are_read_as_the_vendor_reads_them(file: Path) -> None:
    with vendor_client(file.read_bytes(), "application/json") as client:
        theirs = client.messages.create(model="m", max_tokens=1, messages=[])
    check_same(WIRE.decoder(REQUEST).read(file.read_bytes()), theirs)


@table("file", sorted(DATA.glob("*.sse")), ids=lambda file: file.name)
def test_streams_are_read_as_the_vendor_reads_them(file: Path) -> None:
    text, ours = our_stream(file.read_bytes())
    with (
        vendor_client(file.read_bytes(), "text/event-stream") as client,
        client.messages.stream(model="m", max_tokens=1, messages=[]) as stream,
    ):
        theirs = stream.get_final_message()
    check_same(ours, theirs)
    assert text == ours.text


@table("file", sorted(DATA.glob("*.*s*")), ids=lambda file: file.name)
def test_what_was_read_goes_back_in_the_vendors_types(file: Path) -> None:
    raw = file.read_bytes()
    reply = WIRE.decoder(REQUEST).read(raw) if file.suffix == ".json" else our_stream(raw)[1]
    messages = (Message.user("Go on."), reply.message)
    check(WIRE.encode(Request("", messages), stream=False).body)


PNG = b"\x89PNG made up"
TOOL = ToolDefinition("read_file", "Read.", {"properties": {"path": {"type": "string"}}})
SCHEMA = OutputSchema("plan", {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}})
CONVERSATION = (
    Message(Role.USER, (Text("Look."), Image(PNG, "image/png"))),
    Message(
        Role.ASSISTANT,
        (
            Reasoning("Hm.", {SIGNATURE: "c2ln"}),
            Reasoning("", {BLOCK: {"type": "redacted_thinking", "data": "b3A="}}),
            Text("I read."),
            ToolCall("c1", "read_file", {"path": "ä"}),
            ToolCall("functions.read_file:1", "read.file", {}),
        ),
    ),
    Message(
        Role.TOOL,
        (
            ToolResult("c1", "read_file", "x = 1", images=(Image(PNG, "image/png"),)),
            ToolResult("functions.read_file:1", "read.file", "no path", is_error=True),
            Text("Mind the time."),
        ),
    ),
    Message.assistant("Done."),
    Message.user("Thanks."),
)
EVERYTHING = Request(
    "Be brief.",
    CONVERSATION,
    tools=(TOOL,),
    output_schema=SCHEMA,
    max_output_tokens=4_000,
    reasoning_effort="high",
    tool_choice=ToolChoice.AUTO,
    parallel_tool_calls=False,
)
REQUESTS = {
    "smallest": Request("", (Message.user("Hi"),)),
    "conversation": Request("Be brief.", CONVERSATION, tools=(TOOL,)),
    "everything": EVERYTHING,
    "no tools": Request("", (Message.user("Hi"),), tools=(TOOL,), tool_choice=ToolChoice.NONE),
    "forced": Request("", (Message.user("Hi"),), tools=(TOOL,), tool_choice=ToolChoice.REQUIRED),
}
MODELS = ("claude-opus-5", "claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-4-5", "some-other")


@table("request_", REQUESTS.values(), ids=REQUESTS)
@table("model", MODELS)
@table("stream", [True, False])
def test_bodies_pass_the_vendors_types(request_: Request, model: str, *, stream: bool) -> None:
    body = AnthropicWire.at("https://api.anthropic.com", model).encode(request_, stream=stream).body
    check(body, stream=stream)
    kind = vendors_type(stream=stream)
    assert body.keys() <= kind.__annotations__.keys() | _inherited(kind)


@table("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
@table("model", MODELS)
def test_every_effort_passes_the_vendors_types(model: str, effort: str) -> None:
    request = Request("", (Message.user("Hi"),), reasoning_effort=effort)
    check(
        AnthropicWire.at("http://localhost", model).encode(request, stream=False).body,
    )


@table(
    "break_",
    [
        lambda b: b["messages"][0].update(role="sytem"),
        lambda b: b["tools"][0].pop("input_schema"),
        lambda b: b.pop("max_tokens"),
        lambda b: b["output_config"].update(effort="much"),
        lambda b: b["thinking"].update(type="deep"),
    ],
)
def test_the_vendors_types_see_a_wrong_body(break_: Callable[[Any], Any]) -> None:
    body = WIRE.encode(EVERYTHING, stream=False).body
    break_(body)
    with pytest.raises(ValidationError):
        check(body)


def check(body: Any, *, stream: bool = False) -> None:
    consume(vendors_reader(stream=stream).validate_python(body))


def vendors_type(*, stream: bool) -> Any:
    from anthropic.types.message_create_params import (
        MessageCreateParamsNonStreaming,
        MessageCreateParamsStreaming,
    )

    return MessageCreateParamsStreaming if stream else MessageCreateParamsNonStreaming


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
