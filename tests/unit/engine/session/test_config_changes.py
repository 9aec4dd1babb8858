"""A session's settings are changed between two turns: which count from when, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import SessionState
from orchestrator.engine.session.config import SessionConfig
from orchestrator.engine.tools.base import Ok, Tool, ToolContext
from tests.unit.engine.session.stage import ScriptedModel, events_of, kinds, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.engine.session.session import Session


def times(noted: list[tuple[int, int]]) -> Tool:
    """A tool that notes how long commands may run."""
    made = tool("times", str)

    async def execute(_arguments: Mapping[str, Any], context: ToolContext) -> Ok:
        noted.append((context.times.default_ms, context.times.max_ms))
        return Ok("noted")

    return replace(made, execute=execute)


async def test_time_limits_change_between_two_inputs_and_between_two_rounds(tmp_path: Path) -> None:
    noted: list[tuple[int, int]] = []

    def change(_arguments: Mapping[str, Any]) -> str:
        session.config = replace(session.config, max_command_timeout_ms=77_000)
        return "changed"

    steps = [
        says("", ("times", {})),
        says("Done."),
        says("", ("times", {})),
        says("", ("change", {})),
        says("", ("times", {})),
        says("Done."),
    ]
    tools = [times(noted), tool("change", change)]
    async with session_in(tmp_path, *steps, tools=tools) as (session, _model):
        await session.run("Go")
        session.config = replace(session.config, default_command_timeout_ms=60_000)
        await session.run("Go on")
    assert noted == [(10_000, 600_000), (60_000, 600_000), (60_000, 77_000)]


async def test_a_command_runs_as_long_as_the_changed_limit_says(tmp_path: Path) -> None:
    command = ("shell", {"command": "exec sleep 1000"})
    async with session_in(tmp_path, says("", command), says("Done.")) as (session, _model):
        session.config = replace(session.config, default_command_timeout_ms=40)
        await session.run("Go")
        assert "timed out after 40ms" in session.history.turns[2].results[0].content


async def test_what_is_sent_changes_with_the_next_request(tmp_path: Path) -> None:
    async with session_in(tmp_path, says("One."), says("Two.")) as (session, model):
        await session.run("Go")
        session.config = replace(
            session.config, temperature=0.3, top_p=0.8, max_output_tokens=500, reasoning_effort="high"
        )
        await session.run("Again")
    first, second = model.requests
    assert (first.temperature, first.top_p, first.max_output_tokens, first.reasoning_effort) == (None,) * 4
    assert (second.temperature, second.top_p, second.max_output_tokens) == (0.3, 0.8, 500)
    assert second.reasoning_effort == session.reasoning_effort == "high"
    assert first.system == second.system


async def test_a_limit_that_was_reached_is_raised_and_the_session_goes_on(tmp_path: Path) -> None:
    look = says("", ("look", {}))
    steps = [look, look, says("Wrapped up."), look, look, says("Now it is done.")]
    config = SessionConfig(max_turns=3)
    async with session_in(tmp_path, *steps, tools=[tool("look", lambda _: "ok")], config=config) as (
        session,
        _model,
    ):
        await session.run("Go")
        assert (await session.run("More")).limit == "rounds"
        session.config = replace(session.config, max_turns=10)
        assert (await session.run("More")).text == "Now it is done."
        session.config = replace(session.config, max_turns=2)
        assert (await session.run("More")).limit == "rounds"


async def test_rounds_of_one_input_output_limits_and_loop_detection_change(tmp_path: Path) -> None:
    look = says("", ("look", {}))
    steps = [look, says("Done."), look, says("Done."), *[look] * 4]
    tools = [tool("look", lambda _: "x" * 1_000)]
    async with session_in(tmp_path, *steps, tools=tools) as (session, _model):
        await session.run("Go")
        session.config = replace(session.config, tool_output_limits={"look": 10})
        await session.run("Go")
        cut = [len(turn.results[0].content) for turn in session.history.turns if turn.results]
        session.config = replace(session.config, max_tool_rounds_per_input=4, loop_detection_window=3)
        events = await events_of(session, "Go")
    assert cut[0] == 1_000
    assert cut[1] < 500
    assert kinds(events).count("loop_detection") == 1
    assert kinds(events).count("turn_limit") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default_command_timeout_ms": 0}, "default_command_timeout_ms must be a whole number of 1 or more"),
        ({"default_command_timeout_ms": None}, "default_command_timeout_ms must be"),
        ({"max_command_timeout_ms": "10s"}, "max_command_timeout_ms must be"),
        ({"max_turns": 1.5}, "max_turns must be a whole number"),
        ({"max_turns": True}, "max_turns must be a whole number"),
        ({"loop_detection_window": 1}, "loop_detection_window must be a whole number of 2 or more"),
        ({"enable_loop_detection": "no"}, "enable_loop_detection must be True or False, not a text"),
        ({"stream": 1}, "stream must be True or False"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"tool_output_limits": 5}, "tool_output_limits must be a number by tool"),
        ({"tool_output_limits": {"shell": None}}, "tool_output_limits['shell'] must be"),
        ({"tool_line_limits": ["shell"]}, "tool_line_limits must be a number by tool"),
        ({"user_instructions": None}, "user_instructions must be a text"),
        ({"reasoning_effort": 3}, "reasoning_effort must be a word"),
        ({"max_usd": 1.0}, "the price of scripted:1 is unknown"),
        ({"user_instructions": "Be brief."}, "user_instructions is part of the prompt"),
        ({"max_subagent_depth": 3}, "max_subagent_depth is part of the prompt"),
    ],
)
async def test_a_change_that_cannot_be_made_is_refused_and_changes_nothing(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    async with session_in(tmp_path, says("One."), says("Two.")) as (session, _model):
        await session.run("Go")
        before = session.config
        with pytest.raises(ConfigurationError) as refused:
            session.config = replace(session.config, **change)
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
        assert session.config is before
        assert (await session.run("Again")).text == "Two."


async def test_a_name_that_no_setting_has_and_what_is_no_config_are_refused(tmp_path: Path) -> None:
    async with session_in(tmp_path) as (session, _model):
        with pytest.raises(TypeError, match="max_rounds"):
            session.config = replace(session.config, max_rounds=3)  # type: ignore[call-arg]
        with pytest.raises(ConfigurationError, match=r"must be a SessionConfig: use .*, not a dict"):
            session.config = {"max_turns": 3}  # type: ignore[assignment]
        with pytest.raises(ConfigurationError, match="must be a word"):
            session.reasoning_effort = ""
        with pytest.raises(ConfigurationError, match="model must be an object that answers"):
            session.model = "gpt-5"  # type: ignore[assignment]


def _steer(session: Session) -> None:
    session.steer("Wait")


def _follow_up(session: Session) -> None:
    session.follow_up("And then")


def _listen(session: Session) -> None:
    session.listen(lambda _event: None)


def _configure(session: Session) -> None:
    session.config = SessionConfig(max_turns=3)


def _effort(session: Session) -> None:
    session.reasoning_effort = "low"


def _model(session: Session) -> None:
    session.model = ScriptedModel([])


def _run(session: Session) -> None:
    with asyncio.Runner() as runner:
        runner.run(session.run("Go"))


def _submit(session: Session) -> None:
    with asyncio.Runner() as runner:
        runner.run(anext(session.submit("Go")))


@pytest.mark.parametrize("say", [_steer, _follow_up, _listen, _configure, _effort, _model, _run, _submit])
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_closed_session_says_so_to_whoever_talks_to_it(tmp_path: Path, how: str, say: Any) -> None:
    async with session_in(tmp_path, says("Done.")) as (session, model):
        await session.run("Go")
        await getattr(session, how)()
        with pytest.raises(ConfigurationError, match="the session is closed: make a new one"):
            await asyncio.to_thread(say, session)
        await session.abort()  # a closed session may be closed again
        await session.close()
    assert session.state is SessionState.CLOSED
    assert len(model.requests) == 1
