"""Tools that break, and calls that fail alike again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import LimitReached, SessionState
from orchestrator.core.messages import Image, ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.session.calls import FailedCalls
from orchestrator.engine.session.config import SessionConfig
from orchestrator.engine.tools.base import Ends, Failed, Ok, Order, Tool, ToolContext
from orchestrator.engine.tools.edit import edit_string
from tests.tables import table
from tests.unit.engine.session.stage import ScriptedModel, events_of, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Response


NOTHING: Any = None
NO_IMAGES: Any = ("no image",)


def broken(outcome: Any, schema: Any = None) -> Tool:
    """A tool that gives this back, or raises it."""

    async def execute(_arguments: Mapping[str, Any], _context: ToolContext) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return Tool(ToolDefinition("mine", "Of the host.", schema or {"type": "object"}), execute)


async def told_last(folder: Path, tool: Tool, *, sees: bool = True) -> ToolResult:
    """What the model is told about a call of it."""
    steps = [says("", ("mine", {"a": "x"})), says("I see.")]
    async with session_in(folder, *steps, tools=[tool], supports_images=sees) as (session, _model):
        assert (await session.run("Go")).text == "I see."
        assert session.state is SessionState.IDLE
        (result,) = session.history.turns[2].results
    return result


@pytest.mark.parametrize(
    "outcome",
    [
        NOTHING,
        "a text",
        Ok(NOTHING),
        Ok("x", images=NO_IMAGES),
        Failed(NOTHING),
        Ends("finish", NOTHING),
        Ends("a third ending", "x"),
    ],
)
async def test_what_is_no_outcome_is_told(tmp_path: Path, outcome: Any) -> None:
    result = await told_last(tmp_path, broken(outcome))
    assert result.is_error
    assert "mine broke: TypeError: it returned" in result.content


async def test_a_model_that_reads_no_images_is_told_that_there_is_one(tmp_path: Path) -> None:
    picture = Image(b"png", "image/png")
    shows = broken(Ok("a.png is an image.", images=(picture,)))
    assert (await told_last(tmp_path, shows)).images == (picture,)
    result = await told_last(tmp_path, shows, sees=False)
    assert result.images == ()
    assert result.content.startswith("a.png is an image.\n\n[The image is not shown to you")


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("of another task"), MemoryError()])
async def test_what_is_raised_is_told_even_if_it_is_no_usual_error(
    tmp_path: Path, error: BaseException
) -> None:
    result = await told_last(tmp_path, broken(error))
    assert result.is_error
    assert f"mine broke: {type(error).__name__}" in result.content


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"type": "object", "properties": ["a"]},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"$ref": "#/nowhere"},
    ],
)
async def test_a_schema_that_is_none_is_refused_before_a_model_is_asked(tmp_path: Path, schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="the parameters of the tool mine are no JSON Schema"):
        await told_last(tmp_path, broken(Ok("ran"), schema))


@table(
    ("setting", "words"),
    [
        ({"max_turns": -1}, "0 or more"),
        ({"max_tool_rounds_per_input": -1}, "0 or more"),
        ({"max_subagent_depth": -1}, "0 or more"),
        ({"default_command_timeout_ms": 0}, "1 or more"),
        ({"max_command_timeout_ms": -5}, "1 or more"),
        ({"loop_detection_window": 1}, "2 or more"),
        ({"max_tokens": -1}, "0 or more"),
        ({"max_usd": float("nan")}, "0 or more"),
        ({"max_minutes": -0.5}, "0 or more"),
        ({"max_output_tokens": 0}, "1 or more"),
        ({"max_turns": "3"}, "0 or more"),
        ({"tool_output_limits": {"shell": -1}}, "0 or more"),
        ({"tool_line_limits": {"shell": -1}}, "0 or more"),
        ({"reasoning_effort": " "}, "a word"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(setting: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SessionConfig(**setting)
    assert next(iter(setting)) in str(refused.value)
    assert words in str(refused.value)


def test_limits_that_switch_something_off_are_taken() -> None:
    config = SessionConfig(
        max_turns=0, max_subagent_depth=0, tool_line_limits={"shell": None}, tool_output_limits={"shell": 0}
    )
    assert config.limits.rounds is None


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
    steps = [calls(contract, "edit_file", {**WRONG, "new_string": f"{n}\n2"}) for n in range(4)]
    config = SessionConfig(enable_loop_detection=detection, max_turns=4)
    async with session_in(tmp_path, *steps, tools=[edit_string()], contract=contract, config=config) as (
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


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: type(contract).__name__)
async def test_the_same_reply_of_which_no_call_succeeds_is_paid_three_times(
    contract: Contract, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    steps = [calls(contract, "edit_file", WRONG) for _ in range(20)]
    config = SessionConfig(max_same_replies=3)
    async with session_in(tmp_path, *steps, tools=[edit_string()], contract=contract, config=config) as (
        session,
        model,
    ):
        events = await events_of(session, "Go")
    assert len(model.requests) == 3
    [limit] = [one.event for one in events if isinstance(one.event, LimitReached)]
    assert (limit.limit, limit.detail) == (
        "replies",
        "3 replies in a row were the same, and none of their calls succeeded",
    )


async def test_the_same_reply_that_succeeds_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    steps = [says("", ("read_file", {"file_path": "a.txt"})) for _ in range(5)]
    config = SessionConfig(max_same_replies=3)
    async with session_in(tmp_path, *steps, says("Done."), config=config) as (session, model):
        await session.run("Go")
    assert len(model.requests) == 6
