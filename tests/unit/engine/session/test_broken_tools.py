"""Tools of a host that are written wrong: each gives an error result, and the session goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import SessionState
from orchestrator.core.messages import ToolDefinition
from orchestrator.engine.session.config import SessionConfig
from orchestrator.engine.tools.base import Ends, Failed, Ok, Tool, ToolContext
from tests.tables import table
from tests.unit.engine.session.stage import says, session_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.core.messages import ToolResult

NOTHING: Any = None
NO_IMAGES: Any = ("no image",)


def broken(outcome: Any, schema: Any = None) -> Tool:
    """A tool that gives this back, or raises it."""

    async def execute(_arguments: Mapping[str, Any], _context: ToolContext) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return Tool(ToolDefinition("mine", "Of the host.", schema or {"type": "object"}), execute)


async def told(folder: Path, tool: Tool) -> ToolResult:
    """What the model is told about a call of it."""
    steps = [says("", ("mine", {"a": "x"})), says("I see.")]
    async with session_in(folder, *steps, tools=[tool]) as (session, _model):
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
    result = await told(tmp_path, broken(outcome))
    assert result.is_error
    assert "mine broke: TypeError: it gave back" in result.content


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("of another task"), MemoryError()])
async def test_what_is_raised_is_told_even_if_it_is_no_usual_error(
    tmp_path: Path, error: BaseException
) -> None:
    result = await told(tmp_path, broken(error))
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
        await told(tmp_path, broken(Ok("ran"), schema))


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
