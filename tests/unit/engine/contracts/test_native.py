from __future__ import annotations

import pytest

from orchestrator.core.messages import (
    FinishReason,
    Message,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)
from orchestrator.engine.contracts.base import Actions, Contract, Running
from orchestrator.engine.contracts.native import Native, SingleStep
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
    assert "`submit`" in SingleStep("submit").go_on
    assert "`hand_in`" in SingleStep("hand_in").go_on
    assert SingleStep().go_on == Native().go_on
    assert "neither text nor a tool call" in Native().go_on
