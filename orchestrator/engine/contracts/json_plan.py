"""The contract of one JSON object, `{"plan", "tool_calls"}`, in place of function calling."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orchestrator.core.messages import FinishReason, JsonObject, Message, ToolCall
from orchestrator.core.prompts import one_line, render
from orchestrator.engine.contracts.base import Actions, Contract, Malformed, Running, text_with_results
from orchestrator.engine.contracts.find_plan import FoundPlan, call_of, find_plan, plan_of
from orchestrator.engine.contracts.plan_json import flaws
from orchestrator.engine.models.base import OutputSchema
from orchestrator.engine.tools.registry import argument_problems, first_problems, problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.messages import ToolDefinition, ToolResult
    from orchestrator.engine.contracts.base import ReadReply
    from orchestrator.engine.models.base import Request, Response


_EXAMPLE_TOOLS = frozenset({"edit_file", "create_pull_request", "finish"})
_PROBLEM_CHARS = 400


class JsonPlan(Contract):
    """Reads a plan strictly first, then tolerantly, and never completes a truncated call.

    A call of a tool that is not offered is passed on: the agent refuses and records it. Arguments that do not
    match an offered tool's schema invalidate the whole reply.
    """

    name = "json_plan"
    running = Running.IN_ORDER
    has_own_form = True

    @property
    def go_on(self) -> str:
        """The message that asks for a call, or for `finish`."""
        return render("agent/no_calls")

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """Return the request with the schema of a plan that calls only these tools."""
        return dataclasses.replace(request, output_schema=OutputSchema("plan", narrowed_schema(tools)))

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the form of the reply, and the tools with their parameters."""
        return render(
            "contracts/json_plan",
            tools=[_tool_words(tool) for tool in tools],
            names=[tool.name for tool in tools],
            example_tools=_EXAMPLE_TOOLS,
        )

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Return the plan in a reply, or every path with a problem. Call ids are `r<round>c<index>`."""
        found = find_plan(response.text, ended_early=response.finish is FinishReason.LENGTH)
        if isinstance(found, Malformed):
            return found
        if flawed := flaws(found.value):
            return Malformed(flawed)
        value = plan_of(found.value)
        if flawed := flaws(value) or problems(value, plan_schema()):
            return Malformed(flawed)
        calls, flawed = _checked_calls(value["tool_calls"], tools, round_number)
        if flawed:
            return Malformed(flawed)
        withheld = _withheld(found, len(calls), round_number)
        if found.cut_off and not calls and not withheld:
            return Malformed(("reply: ended in the middle of its first call; send a shorter reply",))
        repaired = found.repaired or value != found.value
        return Actions(value["plan"], calls, withheld, repaired=repaired, cut_off=found.cut_off)

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """Return the results in order, as text."""
        return text_with_results("contracts/json_plan_results", results, note)

    def complain(self, problems: tuple[str, ...]) -> Message:
        """Return the problems, a line each, and the request to send the whole reply again."""
        lines = [one_line(problem, limit=_PROBLEM_CHARS, keep="`") for problem in problems]
        return Message.user(render("contracts/json_plan_complaint", problems=lines))


def _checked_calls(
    calls: list[JsonObject], tools: tuple[ToolDefinition, ...], round_number: int
) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    offered = {tool.name: tool for tool in tools}
    checked: list[ToolCall] = []
    wrong: list[str] = []
    for index, call in enumerate(calls):
        name, arguments = call["tool_name"], call["arguments"]
        if tool := offered.get(name):
            arguments = without_nulls(arguments, tool.parameters)
            wrong.extend(argument_problems(arguments, tool, f"tool_calls[{index}].arguments"))
        checked.append(ToolCall(_call_id(round_number, index), name, arguments))
    return tuple(checked), first_problems(tuple(wrong))


def _withheld(found: FoundPlan, index: int, round_number: int) -> tuple[ToolCall, ...]:
    call = call_of(found.tail)
    if not isinstance(call, dict) or flaws(call):
        return ()
    name, arguments = call.get("tool_name"), call.get("arguments")
    if not isinstance(name, str) or not name:
        return ()
    return (ToolCall(_call_id(round_number, index), name, arguments if isinstance(arguments, dict) else {}),)


def _call_id(round_number: int, index: int) -> str:
    return f"r{round_number}c{index + 1}"


def _tool_words(tool: ToolDefinition) -> dict[str, Any]:
    required = tool.parameters.get("required", ())
    parameters = [
        {
            "name": name,
            "type": _type_words(schema),
            "required": name in required,
            "description": schema.get("description", ""),
        }
        for name, schema in tool.parameters.get("properties", {}).items()
    ]
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _type_words(schema: JsonObject) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_type_words, variants))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type_words(schema.get('items', {}))}"
    return kind if isinstance(kind, str) else " or ".join(kind)


@functools.cache
def plan_schema() -> JsonObject:
    """Return the schema of any plan, whatever its tools."""
    text = Path(__file__).with_name("plan.schema.json").read_text(encoding="utf-8")
    return cast("JsonObject", json.loads(text))


def narrowed_schema(tools: Sequence[ToolDefinition]) -> JsonObject:
    """Return the schema of a plan that calls only these tools, in the form for constrained decoding.

    It uses only what all providers' decoders accept: every object closed, no `pattern`, `$ref`, `oneOf` or
    bounds. Optional parameters stay optional, because a small model that must write each of them invents
    values. Protocols of providers that require all of them convert the schema.
    """
    base = plan_schema()["properties"]
    calls = [
        _closed(
            {
                "tool_name": {"type": "string", "enum": [tool.name]},
                "arguments": decodable({"type": "object", **tool.parameters}),
            }
        )
        for tool in tools
    ] or [decodable(base["tool_calls"]["items"])]
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return _closed({"plan": {"type": "string"}, "tool_calls": {"type": "array", "items": items}})


def _closed(properties: JsonObject, required: Iterable[str] | None = None) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def decodable(schema: Any) -> JsonObject:
    """Return a schema with every object closed, and only the keywords that all constrained decoders support.

    The reply is validated against the tool's own schema anyway. An object with arbitrary keys becomes an
    empty one.
    """
    if not isinstance(schema, dict):
        return {}
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        return {"anyOf": [decodable(variant) for variant in variants]}
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        required = [key for key in schema.get("required", ()) if key in properties]
        return _closed({key: decodable(value) for key, value in properties.items()}, required)
    kept = {key: schema[key] for key in ("type", "enum", "const") if key in schema}
    if "items" in schema:
        kept["items"] = decodable(schema["items"])
    return kept


def without_nulls(value: Any, schema: Any) -> Any:
    """Return the value without nulls that only mean "not given".

    These are nulls in optional properties whose own schema does not allow them: models write them, and have
    to if a provider requires every property.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items")) for item in value]
    if not isinstance(value, dict):
        return value
    from jsonschema import Draft202012Validator

    properties = schema.get("properties", {})
    required = schema.get("required", ())
    return {
        key: without_nulls(item, properties.get(key))
        for key, item in value.items()
        if item is not None
        or key in required
        or key not in properties
        or Draft202012Validator(properties[key]).is_valid(None)
    }
