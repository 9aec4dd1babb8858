"""An option of a session or a cycle reaches its user by its name: nothing on the way copies it."""

from __future__ import annotations

import ast

from orchestrator.app.config.settings import Settings
from orchestrator.app.wiring.model import ChosenModel
from orchestrator.app.wiring.session_parts import chat_config, same_named, session_config
from orchestrator.bot.coordination.budget import Caps
from orchestrator.bot.cycle.parts import CycleOptions
from orchestrator.engine.models.replay import ReplayModel
from orchestrator.engine.session.config import SessionConfig
from tests.architecture.modules import modules

SETTINGS = Settings(
    temperature=0.25,
    max_output_tokens=900,
    reasoning_effort="high",
    stream=False,
    context_window=64_000,
    max_subagents=3,
    subagent_timeout_seconds=40.0,
    max_usd=2.0,
    max_tokens=70_000,
    max_minutes=9.0,
    system_prompt="Be brief.",
    author_email="a@example.com",
    author_name="A",
    draft=False,
    require_tests=True,
    propose_failing=True,
    untested=True,
    signoff="always",
    trailer="none",
)
CHOSEN = ChosenModel(ReplayModel("m", []), lambda _: None, reply_tokens=8_000)


def test_each_option_of_a_session_or_a_cycle_has_another_value_here() -> None:
    for kind in (SessionConfig, CycleOptions):
        found = same_named(kind, SETTINGS)
        assert found
        assert {name for name, value in found.items() if value == getattr(Settings(), name)} == set()


def test_the_options_of_a_session_are_the_persons() -> None:
    config = session_config(SETTINGS, CHOSEN, "planner")
    assert {name: getattr(config, name) for name in same_named(SessionConfig, SETTINGS)} == {
        "temperature": 0.25,
        "max_output_tokens": 900,
        "reasoning_effort": "high",
        "stream": False,
        "context_window": 64_000,
        "max_subagents": 3,
        "subagent_timeout_seconds": 40.0,
        "max_usd": 2.0,
        "max_tokens": 70_000,
        "max_minutes": 9.0,
    }
    assert (config.user_instructions, config.reply_tokens) == ("Be brief.", 8_000)


def test_a_conversation_has_its_own_limits() -> None:
    config = chat_config(SETTINGS, CHOSEN, Caps(1.0, 2_000, 3.0, 4))
    limits = (config.max_usd, config.max_tokens, config.max_minutes, config.max_tool_rounds_per_input)
    assert (limits, config.max_turns, config.temperature) == ((1.0, 2_000, 3.0, 4), 0, 0.25)


def test_no_module_copies_such_an_option_by_its_name() -> None:
    """A copy is one more place to forget: eight options were copied at three places each."""
    carried = {name for kind in (SessionConfig, CycleOptions) for name in same_named(kind, SETTINGS)}
    carried.remove("author_email")  # the choice of a task asks for it, too: whose commits are ours
    copies = [
        f"{module.name}:{node.value.lineno} {node.arg}"
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.keyword)
        and node.arg in carried
        and ast.unparse(node.value).split(".")[-2:] in (["settings", node.arg], ["options", node.arg])
    ]
    assert copies == [], "`same_named` carries it"
