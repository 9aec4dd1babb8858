"""Tools and replies that the tests of contracts share."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.core.messages import FinishReason, Message, ToolDefinition, Usage
from orchestrator.engine.contracts.base import Actions, Malformed, ReadReply
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.models.base import Response


def tool(name: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> ToolDefinition:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolDefinition(name, f"What {name} does.", schema)


TEXT = {"type": "string", "description": "some text"}
WRITE = tool("write_file", {"path": TEXT, "content": TEXT}, ("path", "content"))
READ = tool(
    "read_file", {"path": TEXT, "offset": {"type": "integer"}, "limit": {"type": "integer"}}, ("path",)
)
FINISH = tool("finish", {"reason": TEXT})
TOOLS = (WRITE, READ, FINISH)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_name": name, "arguments": arguments}


def plan(*calls: dict[str, Any], words: str = "Fix it.") -> dict[str, Any]:
    return {"plan": words, "tool_calls": list(calls)}


def read(reply: object, finish: FinishReason = FinishReason.STOP, round_number: int = 1) -> ReadReply:
    text = reply if isinstance(reply, str) else json.dumps(reply)
    response = Response(Message.assistant(text), finish, Usage(), "test")
    return JsonPlan().read(response, TOOLS, round_number=round_number)


def actions(reply: object, finish: FinishReason = FinishReason.STOP) -> Actions:
    reading = read(reply, finish)
    assert isinstance(reading, Actions), reading
    return reading


def problems(reply: object, finish: FinishReason = FinishReason.STOP) -> tuple[str, ...]:
    reading = read(reply, finish)
    assert isinstance(reading, Malformed), reading
    return reading.problems


def called(reading: Actions) -> list[tuple[str, dict[str, Any]]]:
    return [(item.name, dict(item.arguments)) for item in reading.calls]
