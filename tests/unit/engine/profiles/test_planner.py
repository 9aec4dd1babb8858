"""The planner's words, in safe mode and out of it."""

from __future__ import annotations

import json
import re

from orchestrator.core.messages import FinishReason, Message, ToolDefinition, Usage
from orchestrator.engine.contracts.base import Actions
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.models.base import Response
from orchestrator.engine.profiles.planner import planner_over
from orchestrator.engine.tools.base import Ok, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.registry import ToolRegistry
from tests.tables import table


async def _run(_arguments: object, _context: ToolContext) -> ToolOutcome:
    return Ok("")


def _tool(name: str, *parameters: str, dangerous: bool = False) -> Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in parameters},
        "required": list(parameters),
        "additionalProperties": False,
    }
    return Tool(ToolDefinition(name, f"About {name}.", schema), _run, dangerous=dangerous)


SHELL = _tool("run_shell_command", "command", dangerous=True)
TOOLS = (
    _tool("read_file", "path"),
    _tool("edit_file", "path", "old_text", "new_text"),
    _tool("write_file", "path", "content"),
    SHELL,
    _tool("create_pull_request", "title", "body"),
    _tool("finish", "reason"),
)


def _system(*tools: Tool, dangerous: bool = False) -> str:
    profile = planner_over(ToolRegistry(tools))
    return f"{profile.base_prompt}\n\n{JsonPlan().describe(profile.tools.definitions(dangerous=dangerous))}"


def test_the_profile_keeps_all_tools() -> None:
    profile = planner_over(ToolRegistry(TOOLS))
    assert profile.name == "planner"
    assert profile.tools.get("run_shell_command") is SHELL


def test_safe_mode_knows_no_shell() -> None:
    text = _system(*TOOLS)
    assert not re.search(r"shell|command|terminal|dangerous|\bbash\b|unsafe", text, re.IGNORECASE)
    assert "run_shell_command" in _system(*TOOLS, dangerous=True)


def test_the_prompt_is_the_same_bytes_each_time() -> None:
    assert _system(*TOOLS) == _system(*TOOLS)


def test_the_base_prompt_names_no_tool_that_is_missing() -> None:
    text = planner_over(ToolRegistry([_tool("write_file", "path", "content")])).base_prompt
    assert "edit_file" not in text
    assert "read_file" not in text or "read it first" not in text
    assert "whole text of the file" in text


def test_the_example_is_a_plan_that_would_run() -> None:
    example = next(line for line in _system(*TOOLS).splitlines() if line.startswith('{"plan": "greet'))
    response = Response(Message.assistant(example), FinishReason.STOP, Usage(), "test")
    tools = planner_over(ToolRegistry(TOOLS)).tools.definitions(dangerous=False)
    reading = JsonPlan().read(response, tools, round_number=1)
    assert isinstance(reading, Actions)
    assert not reading.repaired
    assert [call.name for call in reading.calls] == ["edit_file", "create_pull_request", "finish"]
    assert json.loads(example)["plan"] == reading.plan


@table("words", ["AGENTS.md", "create_pull_request", "finish", "ask_question", "- [x]", "tests ran"])
def test_the_rules_are_in_it(words: str) -> None:
    assert words in planner_over(ToolRegistry(TOOLS)).base_prompt
