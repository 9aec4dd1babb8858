"""The same bytes through the vendor's parser and through ours; our bodies through the vendor's types and builder."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pydantic import ValidationError

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
    OutputSchema,
    Request,
    Response,
    TextPiece,
    ToolChoice,
)
from orchestrator.engine.models.gemini import OPAQUE, SIGNATURE, GeminiWire
from tests.tables import table

if TYPE_CHECKING:
    from google import genai
    from google.genai import types

API = "https://generativelanguage.googleapis.com/v1beta"
MODEL = "gemini-3-flash-preview"
WIRE = GeminiWire.at(API, MODEL)
ASK = Request("Be brief.", (Message.user("Hello"),))
SIG1, SIG2 = (base64.b64encode(text).decode() for text in (b"first signature", b"second"))


def reply(*parts: dict[str, Any], finish: str | None = "STOP", **counts: int) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    counted = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10, **counts}
    return {"candidates": [candidate], "usageMetadata": counted, "modelVersion": MODEL, "responseId": "r1"}


CALL = {"functionCall": {"name": "read_file", "args": {"path": "ä.py", "lines": [1, 2.5, None]}}}
THOUGHT = {"text": "**Hm**\n", "thought": True}
REPLIES = {
    "text": reply({"text": "Hello"}),
    "calls": reply(
        THOUGHT,
        {"text": "I read."},
        {**CALL, "thoughtSignature": SIG1},
        {"functionCall": {"name": "f", "id": "x"}},
    ),
    "signed text": reply(
        {"text": "a"},
        {"text": "b", "thoughtSignature": SIG2},
        thoughtsTokenCount=4,
        cachedContentTokenCount=5,
    ),
    "cut off": reply({"text": "a"}, finish="MAX_TOKENS"),
    "nothing": reply(finish="MALFORMED_FUNCTION_CALL"),
    "new finish": reply({"text": "a"}, toolUsePromptTokenCount=2),
}
STREAMS = {
    "text": [reply({"text": "Hel"}, finish=None), reply({"text": "lo\u2028 there"}, candidatesTokenCount=9)],
    "thoughts and calls": [
        reply(THOUGHT, finish=None),
        reply({**CALL, "thoughtSignature": SIG1}, finish=None),
        reply(CALL, {"text": "", "thoughtSignature": SIG2}, thoughtsTokenCount=4),
    ],
}


def vendor_client(content: bytes, kind: str, seen: list[httpx2.Request] | None = None) -> genai.Client:
    from google import genai
    from google.genai import types

    def answer(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(request)
        return httpx2.Response(200, headers={"content-type": kind}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return genai.Client(
        api_key="made-up", http_options=types.HttpOptions(httpx_client=http, api_version="v1beta")
    )


def sse(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(
        b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\r\n\r\n" for chunk in chunks
    )


def compare(ours: Response, theirs: list[types.GenerateContentResponse]) -> None:
    parts = [
        part
        for chunk in theirs
        for candidate in chunk.candidates or []
        if candidate.content
        for part in candidate.content.parts or []
    ]
    assert ours.text == "".join(part.text or "" for part in parts if not part.thought)
    thoughts = "".join(part.text for part in ours.message.parts if isinstance(part, Reasoning))
    assert thoughts == "".join(part.text or "" for part in parts if part.thought)
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.name, call.arguments) for call in ours.tool_calls] == [
        (call.name, call.args or {}) for call in calls
    ]
    assert all(call.id in {None, made.id} for call, made in zip(calls, ours.tool_calls, strict=True))
    back = WIRE.encode(Request("", (ours.message,)), stream=False).body["contents"]
    signatures = [
        part["thoughtSignature"]
        for content in back
        for part in content["parts"]
        if "thoughtSignature" in part
    ]
    assert [base64.b64decode(one) for one in signatures] == [
        part.thought_signature for part in parts if part.thought_signature
    ]
    usage = theirs[-1].usage_metadata
    assert usage is not None
    assert ours.usage.input_tokens == (usage.prompt_token_count or 0) + (
        usage.tool_use_prompt_token_count or 0
    )
    assert ours.usage.output_tokens == (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    assert ours.usage.cached_input_tokens == (usage.cached_content_token_count or 0)
    assert (ours.model, ours.id) == (theirs[-1].model_version, theirs[-1].response_id)


@table("value", REPLIES.values(), ids=REPLIES)
def test_whole_replies_are_read_as_the_vendor_reads_them(value: dict[str, Any]) -> None:
    raw = json.dumps(value).encode()
    with vendor_client(raw, "application/json") as client:
        theirs = client.models.generate_content(model=MODEL, contents="x")
    compare(WIRE.decoder(ASK).read(raw), [theirs])


@pytest.mark.parametrize("chunks", STREAMS.values(), ids=STREAMS)
def test_streams_are_read_as_the_vendor_reads_them(chunks: list[dict[str, Any]]) -> None:
    raw = sse(chunks)
    http_reply = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=raw,
        request=httpx2.Request("POST", WIRE.url),
    )
    decoder = WIRE.decoder(ASK)
    pieces = [
        piece for event in httpx2.EventSource(http_reply) for piece in decoder.feed(event.event, event.data)
    ]
    ours = decoder.finish()[1]
    assert ours.text == "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    with vendor_client(raw, "text/event-stream") as client:
        theirs = list(client.models.generate_content_stream(model=MODEL, contents="x"))
    compare(ours, theirs)


PNG = b"\x89PNG made up"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
TOOL = ToolDefinition("read_file", "Read a file.", SCHEMA)
SAFETY = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
CONVERSATION = (
    Message(Role.USER, (Text("Look at this."), Image(PNG, "image/png"))),
    Message(
        Role.ASSISTANT,
        (
            Text("Reading."),
            Reasoning("hm", {OPAQUE: {SIGNATURE: SIG1}}),
            ToolCall("c1", "read_file", {"path": "ä.py"}),
            ToolCall("c2", "read_file", {}),
        ),
    ),
    Message(
        Role.TOOL,
        (
            ToolResult("c1", "read_file", "x = 1", images=(Image(PNG, "image/png"),)),
            ToolResult("c2", "read_file", "no path", is_error=True),
        ),
    ),
    Message.assistant("Done."),
    Message.user("Thanks."),
)
EVERYTHING = Request(
    "Be brief.",
    CONVERSATION,
    tools=(TOOL,),
    output_schema=OutputSchema("plan", SCHEMA),
    max_output_tokens=100,
    temperature=0.5,
    top_p=0.9,
    reasoning_effort="low",
    tool_choice=ToolChoice.REQUIRED,
    provider_options={"gemini": {"safety_settings": SAFETY, "grounding": True}},
)
REQUESTS = {"smallest": Request("", (Message.user("Hi"),)), "everything": EVERYTHING}


def check(body: dict[str, Any]) -> None:
    """Each field by the vendor's type, which takes no unknown fields."""
    from google.genai import types

    rest = dict(body)
    for content in [*rest.pop("contents"), rest.pop("systemInstruction", {})]:
        types.Content.model_validate(content)
    for tool in rest.pop("tools", []):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(rest.pop("toolConfig", {}))
    types.GenerationConfig.model_validate(rest.pop("generationConfig", {}))
    for setting in rest.pop("safetySettings", []):
        types.SafetySetting.model_validate(setting)
    assert rest == {}


@table("request_", REQUESTS.values(), ids=REQUESTS)
@table("wire", [WIRE, GeminiWire.at(API, "gemini-2.5-pro")], ids=["3", "2.5"])
def test_bodies_pass_the_vendors_types(request_: Request, wire: GeminiWire) -> None:
    check(wire.encode(request_, stream=True).body)


def test_the_vendors_types_see_a_wrong_body() -> None:
    body = WIRE.encode(EVERYTHING, stream=False).body
    body["contents"][1]["parts"][1]["functionCal"] = body["contents"][1]["parts"][1].pop("functionCall")
    with pytest.raises(ValidationError):
        check(body)


def vendors_conversation() -> list[types.ContentUnionDict]:
    from google.genai import types

    picture = types.FunctionResponsePart(
        inline_data=types.FunctionResponseBlob(mime_type="image/png", data=PNG)
    )
    ran = types.FunctionResponse(id="c1", name="read_file", response={"output": "x = 1"}, parts=[picture])
    failed = types.FunctionResponse(id="c2", name="read_file", response={"error": "no path"})
    first = types.FunctionCall(id="c1", name="read_file", args={"path": "ä.py"})
    second = types.FunctionCall(id="c2", name="read_file", args={})
    return [
        types.UserContent(["Look at this.", types.Part.from_bytes(data=PNG, mime_type="image/png")]),
        types.ModelContent(
            [
                "Reading.",
                types.Part(function_call=first, thought_signature=base64.b64decode(SIG1)),
                types.Part(function_call=second),
            ]
        ),
        types.UserContent([types.Part(function_response=ran), types.Part(function_response=failed)]),
        types.ModelContent(["Done."]),
        types.UserContent(["Thanks."]),
    ]


def test_the_vendor_builds_the_same_body() -> None:
    from google.genai import types

    function = types.FunctionDeclaration(
        name="read_file", description="Read a file.", parameters_json_schema=SCHEMA
    )
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[types.Tool(function_declarations=[function]), types.Tool(google_search=types.GoogleSearch())],
        tool_config=types.ToolConfig(
            function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY),
            include_server_side_tool_invocations=True,
        ),
        response_mime_type="application/json",
        response_json_schema=SCHEMA,
        max_output_tokens=100,
        temperature=0.5,
        top_p=0.9,
        thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW, include_thoughts=True),
        safety_settings=[types.SafetySetting.model_validate(SAFETY[0])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    seen: list[httpx2.Request] = []
    with vendor_client(json.dumps(REPLIES["text"]).encode(), "application/json", seen) as client:
        client.models.generate_content(model=MODEL, contents=vendors_conversation(), config=config)
    ours = WIRE.encode(EVERYTHING, stream=False)
    assert str(seen[0].url) == ours.url
    assert seen[0].headers["x-goog-api-key"] == "made-up"
    theirs = json.loads(seen[0].content)
    theirs["systemInstruction"].pop("role")  # which has no meaning there
    theirs["tools"].reverse()
    assert in_one_spelling(theirs) == in_one_spelling(ours.body)


def in_one_spelling(value: Any) -> Any:
    """The vendor's builder writes some names with underscores, and base64 with the letters of addresses."""
    if isinstance(value, dict):
        return {_camel(key): in_one_spelling(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_one_spelling(item) for item in value]
    return value.replace("-", "+").replace("_", "/").rstrip("=") if isinstance(value, str) else value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
