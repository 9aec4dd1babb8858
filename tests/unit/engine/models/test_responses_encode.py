from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from orchestrator.core.errors import InvalidRequestError, ModelError, ModelNotFoundError, OverloadedError
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
from orchestrator.engine.models.openai_responses import Extra, ResponsesWire
from orchestrator.engine.models.wire import EncodedMessages
from tests.doubles import responses_stream as vendor
from tests.tables import table

WIRE = ResponsesWire.at("http://localhost:8080", "qwen3")
AT_VENDOR = ResponsesWire.at("https://api.openai.com/v1", "gpt-5.2")
OPEN = {"type": "object", "properties": {"path": {"type": "string"}}}
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
READ = ToolDefinition("read_file", "Read.", OPEN)
PICTURE = Image(b"png", "image/png")
PICTURE_ITEM = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"}


def sent(request: Request, wire: ResponsesWire = WIRE) -> dict[str, Any]:
    fresh = replace(wire, numbers=count(1), encoded=EncodedMessages())
    return fresh.encode(request, stream=False).body


def items(*messages: Message, wire: ResponsesWire = WIRE) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = sent(Request("", messages), wire)["input"]
    return listed


def replied(*output: dict[str, Any]) -> Message:
    return WIRE.decoder(Request("", ())).read(json.dumps(vendor.whole(output)).encode()).message


def test_the_body_of_a_conversation() -> None:
    request = Request(
        "Be brief.",
        (
            Message(Role.USER, (Text("Look: "), PICTURE)),
            Message(Role.ASSISTANT, (Text("I read."), ToolCall("c1", "read_file", {"path": "ä"}))),
            Message(
                Role.TOOL,
                (ToolResult("c1", "read_file", "x = 1"), ToolResult("c2", "grep", "no", is_error=True)),
            ),
            Message.assistant("Done."),
            Message.user("Thanks."),
        ),
        tools=(READ,),
    )
    assert WIRE.encode(request, stream=True).body == {
        "model": "qwen3",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "read_file",
                "description": "Read.",
                "parameters": OPEN,
                "strict": False,
            }
        ],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look: "}, PICTURE_ITEM]},
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "I read.", "annotations": []}],
                "id": "msg_00000000000000000000000000000001",
            },
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "read_file",
                "arguments": '{"path": "ä"}',
            },
            {"type": "function_call_output", "call_id": "c1", "output": "x = 1"},
            {"type": "function_call_output", "call_id": "c2", "output": "no"},
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
                "id": "msg_00000000000000000000000000000002",
            },
            {"role": "user", "content": "Thanks."},
        ],
    }


def test_the_input_is_the_last_field_and_the_key_is_nowhere() -> None:
    encoded = WIRE.encode(Request("s", (Message.user("x"),), tools=(READ,)), stream=True)
    assert list(encoded.body)[-1] == "input"
    assert encoded.url == "http://localhost:8080/v1/responses"
    assert encoded.headers == {"accept": "text/event-stream"}
    assert WIRE.credentials("k") == {"authorization": "Bearer k"}


def test_what_is_not_configured_is_not_sent() -> None:
    assert set(sent(Request("", ()))) == {"model", "store", "include", "input"}


def test_what_is_configured_is_sent() -> None:
    request = Request(
        "",
        (),
        tools=(READ,),
        max_output_tokens=5,
        temperature=0.0,
        top_p=0.5,
        reasoning_effort="low",
        tool_choice=ToolChoice.REQUIRED,
        parallel_tool_calls=False,
    )
    body = sent(request)
    assert body.pop("tools")
    assert body == {
        "model": "qwen3",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 5,
        "temperature": 0.0,
        "top_p": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "input": [],
    }


def test_no_summary_of_no_reasoning() -> None:
    assert sent(Request("", (), reasoning_effort="none"))["reasoning"] == {"effort": "none"}


def test_choices_between_tools_need_tools() -> None:
    body = sent(Request("", (), tool_choice=ToolChoice.NONE, parallel_tool_calls=False))
    assert not body.keys() & {"tool_choice", "parallel_tool_calls"}


@table(
    ("model", "asked"),
    [
        ("gpt-5.2", True),
        ("o3", True),
        ("some-new-one", True),
        ("openai/gpt-5.6", True),
        ("gpt-4o-mini", False),
        ("ft:gpt-4.1:us", False),
        ("openai/gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("chatgpt-4o-latest", False),
    ],
)
def test_who_is_asked_for_encrypted_reasoning(model: str, *, asked: bool) -> None:
    wire = ResponsesWire.at("https://api.openai.com/v1", model)
    assert ("include" in sent(Request("", ()), wire)) is asked


@pytest.mark.parametrize(("wire", "strict"), [(AT_VENDOR, True), (WIRE, False)])
def test_strict_tools_are_the_vendors_only(wire: ResponsesWire, *, strict: bool) -> None:
    request = Request("", (), tools=(ToolDefinition("f", "", CLOSED), READ))
    assert [tool["strict"] for tool in sent(request, wire)["tools"]] == [strict, False]


def test_the_output_schema() -> None:
    request = Request("", (), output_schema=OutputSchema("my plan!", CLOSED))
    assert sent(request)["text"] == {
        "format": {"type": "json_schema", "name": "my_plan_", "schema": CLOSED, "strict": True}
    }


def test_the_vendor_demands_every_property() -> None:
    schema = OutputSchema("plan", {**CLOSED, "required": []})
    request = Request("", (), output_schema=schema)
    assert sent(request, AT_VENDOR)["text"]["format"]["schema"]["required"] == ["a"]
    assert sent(request)["text"]["format"]["schema"]["required"] == []


def test_provider_options_go_into_the_body_and_objects_are_merged() -> None:
    options: dict[str, dict[str, Any]] = {
        "openai": {
            "prompt_cache_key": "run-1",
            "store": True,
            "reasoning": {"summary": "detailed"},
            "text": {"verbosity": "low"},
        },
        "anthropic": {"thinking": 1},
    }
    request = Request(
        "",
        (),
        reasoning_effort="low",
        output_schema=OutputSchema("p", CLOSED),
        provider_options=options,
    )
    body = sent(request)
    assert body["prompt_cache_key"] == "run-1"
    assert body["store"] is True
    assert body["reasoning"] == {"effort": "low", "summary": "detailed"}
    assert body["text"].keys() == {"format", "verbosity"}
    assert "thinking" not in body


def test_reasoning_goes_back_unchanged_and_in_its_place() -> None:
    output = [
        vendor.reasoning("First.", number=1),
        vendor.message("I look.", number=1, phase="commentary"),
        vendor.call("f", '{"a": 1}', number=1),
        vendor.reasoning("Then.", content=["long"], number=2),
        vendor.call("g", "{}", number=2),
    ]
    back = items(replied(*output))
    assert [item["type"] for item in back] == [item["type"] for item in output]
    assert [back[0], back[3]] == [output[0], output[3]]
    assert [item["id"] for item in back] == [item["id"] for item in output]
    assert back[1]["phase"] == "commentary"
    assert back[2]["call_id"] == "call_1"


def test_reasoning_that_the_vendor_would_look_for_in_vain_does_not_go_back() -> None:
    back = items(replied(vendor.reasoning("Hm.", encrypted=None), vendor.message("Yes.")))
    assert [item["type"] for item in back] == ["message"]
    assert back[0]["id"] == "msg_00000000000000000000000000000001", "not that which refers to the reasoning"


def test_reasoning_that_nothing_follows_does_not_go_back() -> None:
    message = replied(vendor.reasoning("Hm."))
    assert message.parts == (Reasoning("Hm."),)
    assert items(message) == []


@pytest.mark.parametrize("first", [(), (vendor.reasoning("Hm.", encrypted=None),)])
def test_a_phase_goes_back_without_reasoning_too(first: tuple[dict[str, Any], ...]) -> None:
    (back,) = items(replied(*first, vendor.message("Yes.", phase="final_answer")))
    assert back["phase"] == "final_answer"
    assert back["id"] == "msg_00000000000000000000000000000001"


def test_a_text_has_an_id_of_its_own_where_nothing_is_stored() -> None:
    """Two equal texts have two ids: the vendor refuses an id that comes twice."""
    wire = ResponsesWire.at("https://api.openai.com/v1", "gpt-5.2")
    said = Message(Role.ASSISTANT, (Text("Yes."),))
    again = Message(Role.ASSISTANT, (Text("Yes."),))
    for one, numbers in (
        (wire, ["1", "2"]),
        (replace(wire, extras=wire.extras - {Extra.STORE}, encoded=EncodedMessages()), []),
    ):
        body = one.encode(Request("", (said, Message.user("?"), again)), stream=False).body
        ids = [item["id"].lstrip("msg_0") for item in body["input"] if "id" in item]
        assert ids == numbers


def test_two_messages_keep_their_own_phases() -> None:
    said = replied(
        vendor.message("One.", number=1, phase="commentary"),
        vendor.message("Two.", number=2, phase="final_answer"),
    )
    assert [(item["phase"], item["content"][0]["text"]) for item in items(said)] == [
        ("commentary", "One."),
        ("final_answer", "Two."),
    ]


def test_two_messages_behind_one_piece_of_reasoning_keep_their_ids() -> None:
    said = replied(
        vendor.reasoning("Hm."), vendor.message("One.", number=1), vendor.message("Two.", number=2)
    )
    assert [item["id"] for item in items(said)] == ["rs_1", "msg_1", "msg_2"]


def test_reasoning_of_other_protocols_is_left_out() -> None:
    parts = (Reasoning("Hm.", {"anthropic_signature": "s", "field": "reasoning"}), Text("Yes."))
    assert [item["type"] for item in items(Message(Role.ASSISTANT, parts))] == ["message"]


def test_nothing_said_is_nothing_sent() -> None:
    assert items(Message(Role.ASSISTANT, ()), Message(Role.ASSISTANT, (Text(""),))) == []


def test_images_in_results() -> None:
    result = Message(Role.TOOL, (ToolResult("c1", "read", "A picture:", images=(PICTURE,)),))
    text = {"type": "input_text", "text": "A picture:"}
    assert items(result) == [
        {"type": "function_call_output", "call_id": "c1", "output": [text, PICTURE_ITEM]}
    ]


REFUSALS = [
    (Extra.SCHEMA, InvalidRequestError, "Invalid schema for response_format 'plan' (in text.format.schema)"),
    (Extra.SCHEMA, OverloadedError, "failed to parse grammar"),
    (Extra.ENCRYPTED_REASONING, InvalidRequestError, "Encrypted content is not supported with this model."),
    (Extra.ENCRYPTED_REASONING, InvalidRequestError, "Unknown parameter: 'include'."),
    (Extra.STORE, InvalidRequestError, "Unsupported parameter: store"),
    (
        Extra.SUMMARY,
        InvalidRequestError,
        "Your organization must be verified to generate reasoning summaries. (in reasoning.summary)",
    ),
    (
        Extra.PAST_REASONING,
        InvalidRequestError,
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    (
        Extra.PAST_REASONING,
        InvalidRequestError,
        "The encrypted content gAAA could not be verified. (in include)",
    ),
    (
        Extra.PAST_REASONING,
        ModelNotFoundError,
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ),
    (Extra.RESULT_IMAGES, InvalidRequestError, "Output of tool call should be 'Input text'"),
    (Extra.STRICT_TOOLS, InvalidRequestError, "Invalid schema for function 'f': 'x' is not permitted."),
]
EVERYTHING = Request(
    "",
    (
        replied(vendor.reasoning("Hm."), vendor.call("f", "{}")),
        Message(Role.TOOL, (ToolResult("call_1", "f", "seen", images=(PICTURE,)),)),
    ),
    tools=(ToolDefinition("f", "", CLOSED),),
    output_schema=OutputSchema("p", CLOSED),
    reasoning_effort="low",
)


@table(("extra", "kind", "said"), REFUSALS)
def test_what_a_server_refuses_is_given_up(extra: Extra, kind: type[ModelError], said: str) -> None:
    error = kind(f"api.openai.com reported an error with status 400: {said}", status=400)
    before = sent(EVERYTHING, AT_VENDOR)
    relaxed = AT_VENDOR.relax(EVERYTHING, error)
    assert relaxed is not None
    assert AT_VENDOR.extras - relaxed.extras == {extra}
    assert sent(EVERYTHING, relaxed) != before


def test_what_is_left_of_a_request_without_extras() -> None:
    bare = ResponsesWire(AT_VENDOR.url, "m", extras=frozenset())
    assert sent(EVERYTHING, bare) == {
        "model": "m",
        "reasoning": {"effort": "low"},
        "tools": [
            {"type": "function", "name": "f", "description": "", "parameters": CLOSED, "strict": False}
        ],
        "input": [
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
            {"role": "user", "content": [PICTURE_ITEM]},
        ],
    }


def test_encrypted_reasoning_of_another_model_is_given_up_last() -> None:
    error = InvalidRequestError("h reported an error: Encrypted content is not supported with this model.")
    chat = ResponsesWire.at("https://api.openai.com/v1", "gpt-4o")
    relaxed = chat.relax(EVERYTHING, error)
    assert relaxed is not None
    assert all(item["type"] != "reasoning" for item in sent(EVERYTHING, relaxed)["input"])


@pytest.mark.parametrize(
    "said",
    [
        "The server had an error. Please include the request ID req_1 in your message, and store it.",
        "Unsupported parameter: 'temperature' is not supported with this model.",
    ],
)
def test_other_errors_change_nothing(said: str) -> None:
    assert AT_VENDOR.relax(EVERYTHING, OverloadedError(f"h reported an error: {said}")) is None
    assert AT_VENDOR.relax(EVERYTHING, InvalidRequestError(f"h reported an error: {said}")) is None


@table(("extra", "kind", "said"), REFUSALS)
def test_what_was_not_sent_is_not_given_up(extra: Extra, kind: type[ModelError], said: str) -> None:
    if extra not in {Extra.STORE, Extra.ENCRYPTED_REASONING}:
        relaxed = AT_VENDOR.relax(Request("", ()), kind(f"h reported an error: {said}"))
        assert relaxed is None or extra in relaxed.extras


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter() -> None:
    messages = [Message.user("Begin.")]
    previous = b""
    for number in range(50):
        body = WIRE.encode(Request("Be brief.", tuple(messages), tools=(READ,)), stream=True).content
        assert body.startswith(previous.removesuffix(b"]}"))
        previous = body
        messages.append(replied(vendor.reasoning(f"{number}"), vendor.call("f", "{}", number=number)))
        messages.append(Message(Role.TOOL, (ToolResult(f"call_{number}", "f", "x" * 50),)))


def test_a_message_is_encoded_once() -> None:
    wire = ResponsesWire.at("http://localhost:8080", "m")
    message = Message.user("Hello")
    first = wire.encode(Request("", (message,)), stream=True).entries[0]
    assert wire.encode(Request("", (message, Message.user("More"))), stream=True).entries[0] is first
