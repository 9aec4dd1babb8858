from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.messages import FinishReason, Message, Role, ToolDefinition, ToolResult, Usage
from orchestrator.engine.contracts.base import Actions
from orchestrator.engine.contracts.native import Native, written_calls
from orchestrator.engine.models.base import Response
from tests.tables import table

TOOLS = (ToolDefinition("read_file", "Reads.", {}), ToolDefinition("grep", "Searches.", {}))
READ = '{"name": "read_file", "arguments": {"file_path": "a"}}'
GREP = '{"name": "grep", "arguments": {"pattern": "x"}}'


def names(text: str) -> list[str]:
    return [call.name for call in written_calls(text, TOOLS, 1)]


@table(
    ("text", "expected"),
    [
        (READ, ["read_file"]),
        (f"  {READ}\n", ["read_file"]),
        (f"```json\n{READ}\n```", ["read_file"]),
        (f"I read it first.\n\n```\n{READ}\n```\nThen I go on.", ["read_file"]),
        (f"```json\n[{READ}, {GREP}]\n```", ["read_file", "grep"]),
        (f"<tool_call>\n{READ}\n</tool_call>\n<tool_call>{GREP}</tool_call>", ["read_file", "grep"]),
        (f"<tools>\n{READ}\n</tools>", ["read_file"]),
        (f"<tools>\n{READ}\n</tool_call>", []),
        ('{"tool": "grep", "args": {"pattern": "x"}}', ["grep"]),
        ('{"function": "grep", "arguments": {"pattern": "x"}}', ["grep"]),
        ('{"type": "function", "function": {"name": "grep", "arguments": {"pattern": "x"}}}', ["grep"]),
        (f"The call would be {READ}", []),
        (f"```json\n{READ}\n```\n```json\n{GREP}\n```", []),
        (READ.replace("read_file", "rm"), []),
        (f"[{READ}, {READ.replace('read_file', 'rm')}]", []),
        (READ[:-2], []),
        ('{"name": "read_file"}', []),
        ('{"name": "read_file", "arguments": "a"}', []),
        ('```json\n{"version": 1}\n```', []),
        ("Done.", []),
        ("", []),
    ],
)
def test_what_counts_as_a_call(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@given(st.text())
def test_other_text_is_no_call(text: str) -> None:
    assert names(text) == []


@given(st.text(), st.text())
def test_a_block_among_any_words_is_found_or_left_alone(before: str, after: str) -> None:
    assert names(f"{before}\n```json\n{READ}\n```\n{after}") in ([], ["read_file"])


def response(text: str, finish: FinishReason = FinishReason.STOP) -> Response:
    return Response(Message.assistant(text), finish, Usage(), "m")


def test_the_contract_runs_them_and_answers_in_text() -> None:
    contract = Native()
    reading = contract.read(response(READ), TOOLS, round_number=3)
    assert isinstance(reading, Actions)
    assert reading.calls[0].id == "written_r3c1"
    answer = contract.answer((ToolResult("written_r3c1", "read_file", "``` x"),), "A note.")
    assert answer.role is Role.USER
    assert "`read_file`: ok" in answer.text
    assert "A note." in answer.text
    assert json.dumps(answer.text).count("```") >= 3


def test_a_reply_that_was_cut_off_has_no_written_call() -> None:
    reading = Native().read(response(READ, FinishReason.LENGTH), TOOLS, round_number=1)
    assert isinstance(reading, Actions)
    assert reading.calls == ()
