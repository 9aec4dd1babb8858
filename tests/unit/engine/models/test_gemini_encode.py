from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from orchestrator.core.errors import ConfigurationError, InvalidRequestError, RateLimitError
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
from orchestrator.engine.models.base import OutputSchema, Request, ToolChoice
from orchestrator.engine.models.gemini import (
    DUMMY_SIGNATURE,
    OPAQUE,
    PART,
    SIGNATURE,
    GeminiWire,
    Levels,
    generation_of,
)
from tests.tables import table

API = "https://generativelanguage.googleapis.com/v1beta"
WIRE = GeminiWire.at(API, "gemini-3-flash-preview")
OLD = GeminiWire.at(API, "gemini-2.5-flash")
ASK = Request("Be brief.", (Message.user("Hello"),))
TOOL = ToolDefinition("read_file", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}})
SCHEMA = OutputSchema("plan", {"type": "object", "properties": {"plan": {"type": "string"}}})
PNG = Image(b"png", "image/png")
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}


def body(request: Request, wire: GeminiWire = WIRE) -> dict[str, Any]:
    return wire.encode(request, stream=False).body


def contents(*messages: Message, wire: GeminiWire = WIRE) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = body(Request("", messages), wire)["contents"]
    return listed


def config(wire: GeminiWire = WIRE, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = body(Request("", (), **fields), wire).get("generationConfig", {})
    return made


def test_the_body_of_a_conversation() -> None:
    signed = Reasoning("hm", {OPAQUE: {SIGNATURE: "s1"}})
    request = Request(
        "Be brief.",
        (
            Message(Role.USER, (Text("Look: "), PNG)),
            Message(
                Role.ASSISTANT,
                (
                    Text("I read."),
                    signed,
                    ToolCall("c1", "read_file", {"path": "ä"}),
                    ToolCall("c2", "grep", {}),
                ),
            ),
            Message(
                Role.TOOL,
                (
                    ToolResult("c1", "read_file", "x = 1", images=(PNG,)),
                    ToolResult("c2", "grep", "no", is_error=True),
                    Text("Two steps left."),
                ),
            ),
            Message.assistant("Done."),
        ),
        tools=(TOOL,),
    )
    sent = WIRE.encode(request, stream=True)
    assert sent.url == f"{API}/models/gemini-3-flash-preview:streamGenerateContent?alt=sse"
    assert sent.headers == {"accept": "text/event-stream"}
    assert sent.body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read_file",
                        "description": "Read.",
                        "parametersJsonSchema": {
                            "type": "object",
                            "properties": {"path": {"type": "string"}},
                        },
                    }
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "Look: "}, PICTURE]},
            {
                "role": "model",
                "parts": [
                    {"text": "I read."},
                    {
                        "functionCall": {"id": "c1", "name": "read_file", "args": {"path": "ä"}},
                        "thoughtSignature": "s1",
                    },
                    {"functionCall": {"id": "c2", "name": "grep", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "c1",
                            "name": "read_file",
                            "response": {"output": "x = 1"},
                            "parts": [PICTURE],
                        }
                    },
                    {"functionResponse": {"id": "c2", "name": "grep", "response": {"error": "no"}}},
                ],
            },
            {"role": "user", "parts": [{"text": "Two steps left."}]},
            {"role": "model", "parts": [{"text": "Done."}]},
        ],
    }
    assert list(sent.body)[-1] == "contents"


def test_what_is_not_configured_is_not_sent() -> None:
    assert set(body(ASK)) == {"systemInstruction", "contents"}
    assert set(body(Request("", ()))) == {"contents"}


def test_what_is_configured_is_sent() -> None:
    request = Request(
        "",
        (),
        tools=(TOOL,),
        tool_choice=ToolChoice.REQUIRED,
        parallel_tool_calls=False,
        max_output_tokens=5,
        temperature=0.0,
        top_p=0.5,
    )
    sent = body(request)
    assert sent["generationConfig"] == {"maxOutputTokens": 5, "temperature": 0.0, "topP": 0.5}
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert set(sent) == {"tools", "toolConfig", "generationConfig", "contents"}


@pytest.mark.parametrize(("choice", "mode"), [(ToolChoice.AUTO, "AUTO"), (ToolChoice.NONE, "NONE")])
def test_tool_choices(choice: ToolChoice, mode: str) -> None:
    sent = body(Request("", (), tools=(TOOL,), tool_choice=choice))
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert "toolConfig" not in body(Request("", (), tool_choice=choice))


@table(
    ("address", "model", "url"),
    [
        ("http://localhost:1", "m", "http://localhost:1/v1beta/models/m:generateContent"),
        (API + "/", "models/m", f"{API}/models/m:generateContent"),
        (API, "tunedModels/mine-1", f"{API}/tunedModels/mine-1:generateContent"),
        (f"{API}/models/other:streamGenerateContent?alt=sse", "m", f"{API}/models/m:generateContent"),
        (
            "https://h/v1/publishers/google?a=1",
            "m",
            "https://h/v1/publishers/google/models/m:generateContent?a=1",
        ),
        (API, "a b?c#d", f"{API}/models/a%20b%3Fc%23d:generateContent"),
    ],
)
def test_addresses(address: str, model: str, url: str) -> None:
    assert GeminiWire.at(address, model).url == url


def test_the_query_of_an_address_is_kept_in_streams() -> None:
    wire = GeminiWire.at("https://h/v1?a=1", "m")
    assert wire.encode(ASK, stream=True).url == "https://h/v1/models/m:streamGenerateContent?alt=sse&a=1"


@table("address", ["", "localhost", "https://h/v1?key=abc", "https://h/v1?a=1&key=", "https://u:p@h/"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigurationError, match="the API address must"):
        GeminiWire.at(address, "m")


def test_the_key_goes_into_a_header() -> None:
    assert WIRE.credentials("secret") == {"x-goog-api-key": "secret"}
    assert "secret" not in WIRE.url


@table(
    ("effort", "thinking"),
    [
        ("none", {"thinkingLevel": "MINIMAL", "includeThoughts": False}),
        ("minimal", {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
        ("low", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("Medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("max", {"thinkingLevel": "XHIGH", "includeThoughts": True}),
        ("ultra", {"thinkingLevel": "ULTRA", "includeThoughts": True}),
    ],
)
def test_effort_as_a_level(effort: str, thinking: dict[str, Any]) -> None:
    assert config(reasoning_effort=effort) == {"thinkingConfig": thinking}


@table(
    ("model", "effort", "tokens"),
    [
        ("gemini-2.5-flash", "none", 0),
        ("gemini-2.5-flash", "minimal", 1_024),
        ("gemini-2.5-flash", "low", 1_024),
        ("gemini-2.5-flash", "medium", 8_192),
        ("gemini-2.5-flash", "high", 24_576),
        ("gemini-2.5-flash", "xhigh", 24_576),
        ("gemini-2.5-pro", "xhigh", 32_768),
        ("gemini-2.5-pro", "none", 128),
        ("gemini-2.5-pro", "auto", -1),
    ],
)
def test_effort_as_a_budget(model: str, effort: str, tokens: int) -> None:
    sent = config(GeminiWire.at(API, model), reasoning_effort=effort)["thinkingConfig"]
    assert sent == {"thinkingBudget": tokens, "includeThoughts": effort != "none"}


def test_models_that_do_not_think_are_not_asked_to() -> None:
    assert config(GeminiWire.at(API, "gemini-2.0-flash"), reasoning_effort="high") == {}


@table(
    ("model", "generation"),
    [
        ("gemini-2.5-pro", (2, 5)),
        ("models/gemini-2.0-flash-001", (2, 0)),
        ("gemini-3-pro-preview", (3, 0)),
        ("gemini-3.1-flash-lite", (3, 1)),
        ("gemini-4-argon", (4, 0)),
        ("gemini-flash-latest", (3, 0)),
        ("tunedModels/mine", (3, 0)),
    ],
)
def test_generations(model: str, generation: tuple[int, int]) -> None:
    assert generation_of(model) == generation


def test_the_output_schema() -> None:
    wanted = {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA.schema}
    assert config(output_schema=SCHEMA) == wanted
    assert config(output_schema=SCHEMA, tools=(TOOL,)) == wanted
    assert config(OLD, output_schema=SCHEMA) == wanted
    assert config(OLD, output_schema=SCHEMA, tools=(TOOL,)) == {}


def test_provider_options() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    options: dict[str, dict[str, Any]] = {
        "gemini": {
            "safety_settings": safety,
            "grounding": True,
            "generationConfig": {"topK": 3},
            "tools": [{"urlContext": {}}],
            "cachedContent": "cachedContents/x",
        },
        "openai": {"store": True},
    }
    sent = body(Request("", (), temperature=0.1, provider_options=options))
    assert sent == {
        "tools": [{"googleSearch": {}}, {"urlContext": {}}],
        "generationConfig": {"temperature": 0.1, "topK": 3},
        "safetySettings": safety,
        "cachedContent": "cachedContents/x",
        "contents": [],
    }
    off = {"gemini": {"grounding": False}}
    assert body(Request("", (), provider_options=off)) == {"contents": []}


def test_a_search_beside_functions_is_announced_to_models_that_allow_it() -> None:
    request = Request("", (), tools=(TOOL,), provider_options={"gemini": {"grounding": True}})
    assert body(request)["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert [list(tool) for tool in body(request)["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert "toolConfig" not in body(request, OLD)


def test_signatures_go_back_on_the_parts_they_came_with() -> None:
    search = {"toolCall": {"toolType": "GOOGLE_SEARCH"}, "thoughtSignature": "s0"}
    message = Message(
        Role.ASSISTANT,
        (
            Reasoning("I search.", {OPAQUE: {PART: search}}),
            Text("One"),
            Reasoning("", {OPAQUE: {SIGNATURE: "s1"}}),
            Text("two"),
            Reasoning("", {OPAQUE: {PART: {"text": "", "thoughtSignature": "s2"}}}),
        ),
    )
    assert contents(message)[0]["parts"] == [
        search,
        {"text": "One"},
        {"text": "two", "thoughtSignature": "s1"},
        {"text": "", "thoughtSignature": "s2"},
    ]


def test_a_call_of_another_model_has_the_dummy_signature() -> None:
    foreign = Reasoning("hm", {"signature": "of another vendor"})
    calls = (ToolCall("c1", "f", {}), ToolCall("c2", "g", {}))
    parts = contents(Message(Role.ASSISTANT, (foreign, Text("So."), *calls)))[0]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, DUMMY_SIGNATURE, None]
    old = contents(Message(Role.ASSISTANT, (foreign, *calls)), wire=OLD)[0]["parts"]
    assert "thoughtSignature" not in json.dumps(old)
    assert "hm" not in json.dumps([parts, old])


def test_a_signature_whose_part_is_gone_signs_nothing_else() -> None:
    lost = Reasoning("", {OPAQUE: {SIGNATURE: "s"}})
    parts = contents(Message(Role.ASSISTANT, (lost, Reasoning("more"), Text("x"))))[0]["parts"]
    assert parts == [{"text": "x"}]


@table(
    "message",
    [
        Message(Role.ASSISTANT, ()),
        Message(Role.ASSISTANT, (Reasoning("only a thought"),)),
        Message.assistant(""),
        Message.user(""),
        Message(Role.TOOL, ()),
    ],
)
def test_messages_that_say_nothing_are_left_out(message: Message) -> None:
    assert contents(Message.user("a"), message, Message.user("b")) == [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]


@pytest.mark.parametrize(("wire", "image"), [(OLD, PNG), (WIRE, Image(b"gif", "image/gif"))])
def test_pictures_that_a_result_cannot_hold_follow_it(wire: GeminiWire, image: Image) -> None:
    results = Message(Role.TOOL, (ToolResult("c", "view", "a picture", images=(image,)),))
    response, picture = contents(results, wire=wire)[0]["parts"]
    assert "parts" not in response["functionResponse"]
    assert picture["inlineData"]["mimeType"] == image.media_type


def long_conversation(turns: int) -> list[Message]:
    messages = [Message.user("Fix it.")]
    for number in range(turns):
        signed = Reasoning("hm", {OPAQUE: {SIGNATURE: f"s{number}" * 20}})
        messages.append(
            Message(Role.ASSISTANT, (signed, ToolCall(f"c{number}", "read_file", {"path": "a.py"})))
        )
        messages.append(Message(Role.TOOL, (ToolResult(f"c{number}", "read_file", f"line {number}\n" * 20),)))
    return messages


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter() -> None:
    messages = long_conversation(50)
    sent = [
        WIRE.encode(
            Request("s" * 3000, messages[:end], tools=(TOOL,), reasoning_effort="low"), stream=True
        ).content
        for end in range(1, len(messages) + 1, 2)
    ]
    for shorter, longer in itertools.pairwise(sent):
        assert longer.startswith(shorter.removesuffix(b"]}"))


def test_an_unchanged_message_is_encoded_once() -> None:
    wire = GeminiWire.at(API, "gemini-3-flash-preview")
    messages = long_conversation(3)
    first = wire.encode(Request("", messages), stream=False).entries
    again = wire.encode(Request("", [*messages, Message.user("more")]), stream=True).entries
    assert all(one is other for one, other in zip(first, again, strict=False))


LEVEL = InvalidRequestError("h reported an error with status 400: Thinking level MINIMAL is not supported")
JSON_MODE = InvalidRequestError(
    "h reported an error with status 400: Function calling with a response mime type: 'application/json' is unsupported"
)


def test_a_refused_level_is_replaced_then_left_out() -> None:
    request = Request("", (), reasoning_effort="minimal")
    fewer = WIRE.relax(request, LEVEL)
    assert fewer is not None
    assert fewer.levels is Levels.TWO
    assert config(fewer, reasoning_effort="minimal")["thinkingConfig"]["thinkingLevel"] == "LOW"
    assert config(fewer, reasoning_effort="medium")["thinkingConfig"]["thinkingLevel"] == "HIGH"
    none = fewer.relax(request, LEVEL)
    assert none is not None
    assert config(none, reasoning_effort="minimal") == {}
    assert none.relax(request, LEVEL) is None


def test_a_refused_budget_is_left_out() -> None:
    relaxed = OLD.relax(Request("", (), reasoning_effort="none"), LEVEL)
    assert relaxed is not None
    assert config(relaxed, reasoning_effort="none") == {}


@table(
    "said",
    [
        "Function calling with a response mime type: 'application/json' is unsupported",
        "The specified schema produces a constraint that has too many states for serving.",
        'Invalid JSON payload received. Unknown name "responseJsonSchema"',
        "Request contains an invalid argument.",
    ],
)
def test_a_refused_schema_is_left_out(said: str) -> None:
    error = InvalidRequestError(f"h reported an error with status 400: {said}")
    relaxed = WIRE.relax(Request("", (), output_schema=SCHEMA), error)
    assert relaxed is not None
    assert config(relaxed, output_schema=SCHEMA) == {}
    assert relaxed.relax(Request("", (), output_schema=SCHEMA), error) is None


def test_what_is_not_relaxed() -> None:
    everything = Request("", (), output_schema=SCHEMA, reasoning_effort="low")
    assert WIRE.relax(ASK, LEVEL) is None
    assert WIRE.relax(ASK, JSON_MODE) is None
    assert WIRE.relax(everything, RateLimitError("h reported: thinking is busy")) is None
    missing = InvalidRequestError(
        "h reported an error with status 400: Function call is missing a thought_signature"
    )
    assert WIRE.relax(everything, missing) is None
