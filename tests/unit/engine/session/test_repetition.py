"""A failing call that comes again gets another answer, under every contract."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.messages import ToolCall, ToolResult
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.session.calls import FailedCalls
from orchestrator.engine.session.config import SessionConfig
from orchestrator.engine.tools.base import Order
from orchestrator.engine.tools.core_set import edit_file
from tests.unit.engine.session.stage import ScriptedModel, events_of, says, session_in, tool

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Response

WRONG = {"file_path": "a.txt", "old_string": "ome\ntwo", "new_string": "1\n2"}
CONTRACTS = (JsonPlan(), Native(), SingleStep())


def calls(contract: Contract, name: str, arguments: dict[str, Any]) -> Response:
    """A reply with one call, as the contract has it."""
    if not isinstance(contract, JsonPlan):
        return says("", (name, arguments))
    return says(json.dumps({"plan": "p", "tool_calls": [{"tool_name": name, "arguments": arguments}]}))


def told(model: ScriptedModel, request: int) -> str:
    """The results that came with a request; a word about the last turn may be behind them."""
    parts = [part for message in model.requests[request].messages[-2:] for part in message.parts]
    return "\n".join(
        part.content if isinstance(part, ToolResult) else getattr(part, "text", "") for part in parts
    )


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: type(contract).__name__)
@pytest.mark.parametrize("detection", [True, False])
async def test_an_edit_that_fails_again_is_told_the_lines_and_then_that_it_goes_in_circles(
    contract: Contract, tmp_path: Path, *, detection: bool
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    steps = [calls(contract, "edit_file", WRONG) for _ in range(4)]
    config = SessionConfig(enable_loop_detection=detection, max_turns=4)
    async with session_in(tmp_path, *steps, tools=[edit_file()], contract=contract, config=config) as (
        session,
        model,
    ):
        await events_of(session, "Go")
    answers = [told(model, request) for request in (1, 2, 3)]
    assert "copy the text without the numbers" in answers[0]
    assert "```\none\ntwo\n```" in answers[1]
    assert "in old_string, line 1: 'ome'" in answers[1]
    assert [answer.count("exactly this answer 2 times now") for answer in answers] == [0, 0, 1]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: type(contract).__name__)
async def test_any_call_that_fails_alike_again_is_told_so(contract: Contract, tmp_path: Path) -> None:
    steps = [
        calls(contract, "read_file", {"file_path": "none"}),
        calls(contract, "read_file", {"file_path": "none", "limit": 5}),
        calls(contract, "write_file", {"file_path": "other", "content": "x"}),
        calls(contract, "read_file", {"file_path": "none"}),
        calls(contract, "no_such_tool", {}),
        calls(contract, "no_such_tool", {}),
    ]
    async with session_in(tmp_path, *steps, contract=contract, config=SessionConfig(max_turns=6)) as (
        session,
        model,
    ):
        await events_of(session, "Go")
    answers = [told(model, request) for request in range(1, 6)]
    assert ["exactly this answer" in answer for answer in answers] == [False, True, False, False, False]


def test_what_failed_is_forgotten_when_something_changed() -> None:
    failures, call = FailedCalls(), ToolCall("c", "edit_file", {})
    assert failures.answer(call, "no") == "no"
    assert "2 times" in failures.answer(call, "no")
    assert "3 times" in failures.answer(call, "no")
    assert failures.answer(call, "other") == "other"
    failures.forget()
    assert failures.answer(call, "no") == "no"


@pytest.mark.parametrize("order", [Order.TOGETHER, Order.LAST])
async def test_a_call_that_changes_no_file_changes_nothing(tmp_path: Path, order: Order) -> None:
    steps = [
        says("", ("read_file", {"file_path": "none"})),
        says("", ("look", {})),
        says("", ("read_file", {"file_path": "none"})),
        says("I give up."),
    ]
    async with session_in(tmp_path, *steps, tools=[tool("look", lambda _: "seen", order=order)]) as (
        session,
        model,
    ):
        await events_of(session, "Go")
    assert "exactly this answer 2 times" in told(model, 3)
