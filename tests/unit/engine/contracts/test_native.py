from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.messages import (
    FinishReason,
    Image,
    Message,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)
from orchestrator.engine.contracts.base import Actions, Contract, Running
from orchestrator.engine.contracts.native import Native, SingleStep, written_calls
from orchestrator.engine.models.base import Request, Response, ToolChoice
from tests.tables import table

TOOLS = (
    ToolDefinition("look", "Looks at a file.\nWith more words.", {"type": "object"}),
    ToolDefinition("submit", "Ends.", {"type": "object"}),
)
REQUEST = Request("You are tested.", ())
CALLS = tuple(ToolCall(f"c{number}", "look", {"n": number}) for number in range(3))
BOTH = pytest.mark.parametrize("contract", [Native(), SingleStep(), SingleStep("submit")])


def reply(text: str, *calls: ToolCall, finish: FinishReason = FinishReason.STOP) -> Response:
    parts = [Text(text)] if text else []
    return Response(Message(Role.ASSISTANT, (*parts, *calls)), finish, Usage(), "m")


@table(
    ("contract", "facts"),
    [
        (Native(), ("native", Running.TOGETHER, True, False)),
        (SingleStep(), ("single_step", Running.FIRST_ONLY, True, True)),
        (SingleStep("submit"), ("single_step", Running.FIRST_ONLY, False, True)),
    ],
)
def test_what_the_contracts_stand_for(contract: Contract, facts: tuple[str, Running, bool, bool]) -> None:
    assert (contract.name, contract.running, contract.text_ends, contract.prunes) == facts


def test_the_request_has_the_tools_and_asks_for_one_call_only_under_one_call_a_step() -> None:
    native, single = Native().shape(REQUEST, TOOLS), SingleStep().shape(REQUEST, TOOLS)
    for shaped in (native, single):
        assert (shaped.tools, shaped.tool_choice) == (TOOLS, ToolChoice.AUTO)
        assert (shaped.system, shaped.temperature, shaped.top_p) == ("You are tested.", None, None)
    assert (native.parallel_tool_calls, single.parallel_tool_calls) == (None, False)


@BOTH
def test_without_tools_nothing_is_said_about_them(contract: Contract) -> None:
    assert contract.shape(REQUEST, ()).tool_choice is None
    assert contract.describe(()) == ""


@BOTH
def test_the_prompt_lists_each_tool_with_its_first_sentence(contract: Contract) -> None:
    words = contract.describe(TOOLS)
    assert "- `look`: Looks at a file.\n" in words
    assert "With more words" not in words


@BOTH
def test_calls_are_read_as_they_came(contract: Contract) -> None:
    read = contract.read(reply("I look.", *CALLS), TOOLS, round_number=7)
    assert read == Actions("I look.", CALLS)


@BOTH
def test_a_property_that_means_nothing_is_dropped_and_named(contract: Contract) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    call = ToolCall("c1", "look", {"n": 1, "reason": "to see"})
    read = contract.read(reply("", call), (ToolDefinition("look", "", schema),), round_number=1)
    assert isinstance(read, Actions)
    assert read.calls == (ToolCall("c1", "look", {"n": 1}),)
    assert "`reason`" in read.note


@BOTH
@pytest.mark.parametrize("count", [0, 1, 3])
def test_of_a_reply_that_was_cut_off_the_last_call_is_withheld(contract: Contract, count: int) -> None:
    cut = reply("I lo", *CALLS[:count], finish=FinishReason.LENGTH)
    read = contract.read(cut, TOOLS, round_number=1)
    assert isinstance(read, Actions)
    assert read.cut_off
    assert read.calls + read.withheld == CALLS[:count]
    assert len(read.withheld) == min(count, 1)


@BOTH
def test_results_go_back_in_order_with_the_note_behind_them(contract: Contract) -> None:
    results = tuple(ToolResult(call.id, call.name, "seen") for call in CALLS)
    assert contract.answer(results) == Message(Role.TOOL, results)
    assert contract.answer(results, "Hurry.") == Message(Role.TOOL, (*results, Text("Hurry.")))
    assert contract.answer((), "Hurry.") == Message.user("Hurry.")


@BOTH
def test_a_complaint_names_all_problems(contract: Contract) -> None:
    assert contract.complain(("one", "two")).text == "one\ntwo"


def test_a_model_is_asked_to_go_on_in_fixed_words_that_name_the_tool_that_ends() -> None:
    tools = ToolDefinition("submit", "", {}), ToolDefinition("hand_in", "", {})
    assert "`submit`" in SingleStep("submit").go_on(tools)
    assert "`hand_in`" in SingleStep("hand_in").go_on(tools)
    assert SingleStep().go_on(tools) == Native().go_on(tools) == SingleStep("hand_in").go_on(())
    assert "neither text nor a tool call" in Native().go_on(())


WRITTEN_TOOLS = (ToolDefinition("read_file", "Reads.", {}), ToolDefinition("grep", "Searches.", {}))
READ = '{"name": "read_file", "arguments": {"file_path": "a"}}'
GREP = '{"name": "grep", "arguments": {"pattern": "x"}}'


def names(text: str) -> list[str]:
    return [call.name for call in written_calls(text, WRITTEN_TOOLS, 1)]


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
    reading = contract.read(response(READ), WRITTEN_TOOLS, round_number=3)
    assert isinstance(reading, Actions)
    assert reading.calls[0].id == "written_r3c1"
    answer = contract.answer((ToolResult("written_r3c1", "read_file", "``` x"),), "A note.")
    assert answer.role is Role.USER
    assert "`read_file`: ok" in answer.text
    assert "A note." in answer.text
    assert json.dumps(answer.text).count("```") >= 3


def test_images_of_written_calls_come_behind_the_results() -> None:
    picture = Image(b"png", "image/png")
    answer = Native().answer((ToolResult("written_r3c1", "read_file", "a.png", images=(picture,)),))
    assert answer.parts == (Text(answer.text), picture)


def test_a_reply_that_was_cut_off_has_no_written_call() -> None:
    reading = Native().read(response(READ, FinishReason.LENGTH), WRITTEN_TOOLS, round_number=1)
    assert isinstance(reading, Actions)
    assert reading.calls == ()
