"""Fuzz target: what reads a model's reply as calls: the JSON plan, calls written as text, native arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import FinishReason, Message, ToolDefinition, Usage
from orchestrator.engine.contracts.base import Actions, Malformed
from orchestrator.engine.contracts.json_plan import FoundPlan, JsonPlan, find_plan
from orchestrator.engine.contracts.native import Native
from orchestrator.engine.contracts.plan_json import flaws
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.wire import read_arguments
from orchestrator.engine.tools.registry import argument_problems
from tests.fuzz.target import Target, pieces, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.messages import ToolCall


def tool(name: str, properties: dict[str, Any], *required: str) -> ToolDefinition:
    """A tool that takes nothing but these properties."""
    rest = {"required": list(required), "additionalProperties": False}
    return ToolDefinition(name, f"What {name} does.", {"type": "object", "properties": properties, **rest})


TOOLS = (
    tool("read_file", {"path": {"type": "string"}, "limit": {"type": "integer"}}, "path"),
    tool("write_file", {"path": {"type": "string"}, "content": {"type": "string"}}, "path", "content"),
    tool("edit", {"edits": {"type": "array", "items": {"type": "object"}}}),
)
OFFERED = {tool.name: tool for tool in TOOLS}


def run(data: bytes) -> None:
    text = text_of(data)
    for finish in (FinishReason.STOP, FinishReason.LENGTH):
        response = Response(Message.assistant(text), finish, Usage(), "test")
        _plan(response)
        _native(response)
    _arguments(text)


def _plan(response: Response) -> None:
    reading = JsonPlan().read(response, TOOLS, round_number=1)
    found = find_plan(response.text, ended_early=response.finish is FinishReason.LENGTH)
    if isinstance(reading, Malformed):
        assert reading.problems
        JsonPlan().complain(reading.problems)
        return
    assert isinstance(reading, Actions)
    assert isinstance(found, FoundPlan)
    assert found.cut_off == reading.cut_off
    _checked(reading.calls)
    assert not flaws(reading.plan)
    assert len(reading.withheld) <= 1
    for call in reading.withheld:
        assert not flaws(dict(call.arguments))
    calls = [{"tool_name": call.name, "arguments": dict(call.arguments)} for call in reading.calls]
    again = Message.assistant(json.dumps({"plan": reading.plan, "tool_calls": calls}))
    second = JsonPlan().read(Response(again, FinishReason.STOP, Usage(), "test"), TOOLS, round_number=1)
    if not isinstance(second, Actions):
        assert not calls, second  # a plan without calls is for the schema to judge
        return
    assert not second.repaired
    assert (second.plan, second.calls) == (reading.plan, reading.calls), "read otherwise when written out"


def _native(response: Response) -> None:
    reading = Native().read(response, TOOLS, round_number=1)
    assert isinstance(reading, Actions)
    assert {call.name for call in reading.calls} <= {*OFFERED}
    for call in reading.calls:
        assert not flaws(dict(call.arguments)), "a written call that JSON forbids"
        argument_problems(call.arguments, OFFERED[call.name])


def _arguments(text: str) -> None:
    value = read_arguments(text)
    if text.isascii():  # what comes over the wire was decoded: halves of pairs only as escapes
        json.dumps(value, ensure_ascii=False).encode()


def _checked(calls: Iterable[ToolCall]) -> None:
    ids = [call.id for call in calls]
    assert len({*ids}) == len(ids)
    for call in calls:
        assert call.name
        arguments = dict(call.arguments)
        assert not flaws(arguments)
        json.dumps(arguments, allow_nan=False).encode()
        if offered := OFFERED.get(call.name):
            assert not argument_problems(arguments, offered)


def _reply(*calls: str) -> str:
    return f'{{"plan": "Fix it.", "tool_calls": [{", ".join(calls)}]}}'


_READ = '{"tool_name": "read_file", "arguments": {"path": "a"}}'
_WRITE = '{"tool_name": "write_file", "arguments": {"path": "a", "content": %s}}'

TARGET = Target(
    run,
    pieces(
        _reply(_READ, '{"tool_name": "write_file", "arguments": {"path": "a", "content": "x\\n\\u00e9"}}'),
        _reply(_READ)[:-9],
        _reply(_READ).replace('"', "'"),
        f"<think>{{ }}</think>\n```json\n{_reply(_READ)}\n```\n",
        f"{_reply(_READ)} and {_reply()}",
        _reply(_READ, _WRITE % '"if a == "":\\n    b()\\n"'),
        _reply(_WRITE % '"one\\n" + "two\\n"', _READ),
        _reply(_WRITE % '"x"}}]} and more"', _READ),
        _reply(_WRITE % 'None // "x"\n', _READ),
        _reply(_WRITE % "“x”, ", _READ).replace("}, {", "} {"),
        '{"plan": ["a", "b"], "tool_calls": {"name": "read_file", "args": "{\\"path\\": \\"a\\"}"}}',
        f"<tool_call>{_READ}</tool_call>\n<tool_call>{_READ}</tool_call>",
        f"```\n{_READ}\n```",
        '[{"function": {"name": "edit", "arguments": "{\\"edits\\": [{}]}"}}]',
        '<tool_call>{"name": "edit", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "edit", "arguments": {"a": 1, "a": 2}}</tool_call>',
        '<tool_call>{"name": "edit", "arguments": {"a": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "edit", "arguments": {"a": ' + "[" * 80 + "]" * 80 + "}}</tool_call>",
        '{"tool_name": "edit", "arguments": {"edits": ' + "[" * 300 + "]" * 300 + "}}",
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": ' * 400,
        "<tool>" + " " * 50,
        "\ufeff{}",
        '{"plan": "\\ud83d", "tool_calls": []}',
        '{"a": "\\ud83d\\ude00 \\uD800"}',
    ),
    pieces(
        *'{}[]:,"\\\' \n\t0', '{"', '":', '"plan"', '"tool_calls"', '"tool_name"', '"arguments"', '"name"', '"function"',
        '"args"', '"read_file"', '"path"', '"edits"', '"type"', "null", "true", "NaN", "-Infinity", "1e999", "1.0", "-0",
        "\\u00e9", "\\ud800", "\\udc00", "```", "```json\n", "\n```", "<think>", "</think>", "<tool_call>", "</tool_call>",
        "<tools>", "</tools>", "\u201c", "\udc80", "\ufeff", "//x\n", _READ, "[" * 60, "]" * 60, '{"a":' * 30,
    ),
)  # fmt: skip
