from __future__ import annotations

import json
from typing import Any

from orchestrator.core.messages import (
    Image,
    Message,
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


def call_piece(
    index: int | None = None, call_id: str = "", name: str = "", arguments: Any = None
) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name} if name else {}
    if arguments is not None:
        function["arguments"] = arguments
    piece: dict[str, Any] = {"function": function}
    if index is not None:
        piece["index"] = index
    return {"tool_calls": [{**piece, "id": call_id} if call_id else piece]}


def test_the_body_of_a_conversation() -> None:
    request = Request(
        "Be brief.",
        (
            Message(Role.USER, (Text("Look: "), Image(b"png", "image/png"))),
            Message(Role.ASSISTANT, (Text("I read."), ToolCall("c1", "read_file", {"path": "ä"}))),
            Message(
                Role.TOOL,
                (ToolResult("c1", "read_file", "x = 1"), ToolResult("c2", "grep", "no", is_error=True)),
            ),
            Message.assistant("Done."),
        ),
        tools=(ToolDefinition("read_file", "Read.", {"type": "object"}),),
    )
    assert WIRE.encode(request, stream=True).body == {
        "model": "qwen2.5-coder:7b",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read_file",
                    "description": "Read.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look: "},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I read.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "read_file", "arguments": '{"path": "ä"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "x = 1"},
            {"role": "tool", "tool_call_id": "c2", "content": "no"},
            {"role": "assistant", "content": "Done."},
        ],
    }


def test_what_is_not_configured_is_not_sent() -> None:
    assert set(WIRE.encode(ASK, stream=False).body) == {"model", "messages"}


def test_what_is_configured_is_sent() -> None:
    request = Request("", (), max_output_tokens=5, temperature=0.0, reasoning_effort="low")
    assert WIRE.encode(request, stream=False).body == {
        "model": "qwen2.5-coder:7b",
        "max_tokens": 5,
        "temperature": 0.0,
        "reasoning_effort": "low",
        "messages": [],
    }


@table(
    ("url", "model", "field"),
    [
        ("https://api.openai.com/v1", "gpt-4o", "max_completion_tokens"),
        ("https://api.openai.com.example.org/v1", "gpt-4o", "max_tokens"),
        ("https://openrouter.ai/api/v1", "openai/o3-mini", "max_completion_tokens"),
        ("http://localhost:1234/v1", "gpt-5-nano", "max_completion_tokens"),
        ("http://localhost:1234/v1", "gpt-oss-20b", "max_tokens"),
    ],
)
def test_the_name_of_the_output_limit(url: str, model: str, field: str) -> None:
    body = ChatWire.at(url, model).encode(Request("", (), max_output_tokens=9), stream=False).body
    assert body[field] == 9


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter() -> None:
    def sent(count: int) -> bytes:
        messages = tuple(Message.user(f"message {number}") for number in range(count))
        return json.dumps(WIRE.encode(Request("s", messages), stream=True).body).encode()

    assert sent(51).startswith(sent(50).removesuffix(b"]}"))


def test_the_output_schema() -> None:
    request = Request("", (), output_schema=OutputSchema("my plan!", CLOSED))
    assert WIRE.encode(request, stream=False).body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "my_plan_", "schema": CLOSED, "strict": True},
    }


def test_reasoning_goes_back_beside_tool_calls_only() -> None:
    thought = whole({"reasoning_content": "Hm.", "content": "Yes."}).message
    calling = whole(
        {"reasoning_content": "Hm.", "tool_calls": [call_piece(name="f")["tool_calls"][0]]}
    ).message
    entries = WIRE.encode(Request("", (thought, calling)), stream=False).body["messages"]
    assert entries[0] == {"role": "assistant", "content": "Yes."}
    assert entries[1]["reasoning_content"] == "Hm."


def test_signatures_go_back_with_their_calls() -> None:
    piece = {
        "id": "c1",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"sig": "x"}},
    }
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "s", "index": 0}]
    message = whole({"tool_calls": [piece], "reasoning": "Hm.", "reasoning_details": details}).message
    entry = WIRE.encode(Request("", (message,)), stream=False).body["messages"][0]
    assert entry["tool_calls"][0]["extra_content"] == {"google": {"sig": "x"}}
    assert entry["reasoning_details"] == details
