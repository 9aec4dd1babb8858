"""The tools of each profile by name, and what its prompt says of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.messages import FinishReason, Message, ToolDefinition, Usage
from orchestrator.engine.contracts.base import Actions
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.catalog import ModelFacts
from orchestrator.engine.models.replay import ReplayModel
from orchestrator.engine.profiles.catalog import (
    anthropic,
    assistant,
    gemini,
    make_profile,
    minimal,
    openai,
    planner_over,
)
from orchestrator.engine.tools.base import Ok, Order, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.registry import ToolRegistry
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.profiles.base import Profile


def prompt_of(profile: Profile, *, dangerous: bool = True) -> str:
    """The first part of the system prompt, for a model that is shown these tools."""
    return profile.words(profile.tools.definitions(dangerous=dangerous))


TOOLS = {
    "openai": ["read_file", "apply_patch", "write_file", "shell", "grep", "glob"],
    "anthropic": ["read_file", "write_file", "edit_file", "shell", "grep", "glob"],
    "gemini": [
        *("read_file", "read_many_files", "write_file", "edit_file"),
        *("shell", "grep", "glob", "list_dir"),
    ],
    "minimal": ["shell_command", "read_file", "list_dir", "grep_files", "apply_patch"],
    "assistant": [
        *("file_read", "file_write", "file_append", "file_list", "file_search", "file_info", "file_delta"),
        *("shell_execute", "pdf_extract_text"),
    ],
}
DOCUMENTS = {
    "openai": ("AGENTS.md", ".codex/instructions.md"),
    "anthropic": ("AGENTS.md", "CLAUDE.md"),
    "gemini": ("AGENTS.md", "GEMINI.md"),
    "minimal": ("AGENTS.md",),
    "assistant": ("AGENTS.md", "PROMPT.md"),
}
MAKERS: dict[str, Callable[..., Profile]] = {
    "openai": openai,
    "anthropic": anthropic,
    "gemini": gemini,
    "minimal": minimal,
    "assistant": assistant,
}
SHELLS = {"shell", "shell_command", "shell_execute"}
UNNAMED = {"file_append", "file_info", "pdf_extract_text"}
"""What their own descriptions say is enough."""
WEB = ("web_search", "web_open", "web_find", "web_fetch")
HOST = ("create_pull_request", "ask_question", "finish")
every_profile = pytest.mark.parametrize("name", TOOLS)


async def _run(_arguments: object, _context: ToolContext) -> ToolOutcome:
    return Ok("")


def _tool(name: str, *, dangerous: bool = False) -> Tool:
    return Tool(ToolDefinition(name, f"About {name}.", {"type": "object"}), _run, dangerous=dangerous)


def _named(prompt: str) -> set[str]:
    known = {tool for tools in TOOLS.values() for tool in tools} | {*WEB, *HOST, "submit"}
    return set(re.findall(r"`(\w+)`", prompt)) & known


@every_profile
def test_tools_by_name_and_defaults(name: str) -> None:
    profile = MAKERS[name]()
    assert profile.name == name
    assert list(profile.tools.names()) == TOOLS[name]
    assert profile.documents == DOCUMENTS[name]
    assert profile.documents_from_root is (name == "minimal")
    assert profile.supports_parallel_tool_calls is (name != "minimal")
    assert profile.subagents is (name != "minimal")
    assert profile.subagents_in_background is (name == "assistant")
    assert profile.command_timeout_ms == (120_000 if name == "anthropic" else None)
    assert profile.provider_options == {}


@every_profile
def test_only_the_shell_is_dangerous(name: str) -> None:
    shown = {tool.name for tool in MAKERS[name]().tools.definitions(dangerous=False)}
    assert shown == set(TOOLS[name]) - SHELLS


@every_profile
def test_the_prompt_names_what_is_shown_and_nothing_else(name: str) -> None:
    assert _named(prompt_of(MAKERS[name]())) == set(TOOLS[name]) - UNNAMED
    fetches = name in {"gemini", "assistant"}
    web = tuple(_tool(tool) for tool in (("web_search", "web_fetch") if fetches else WEB[:3]))
    with_web = MAKERS[name](custom=web)
    assert list(with_web.tools.names()) == [*TOOLS[name], *(tool.name for tool in web)]
    assert "web" in prompt_of(with_web)
    assert "web" not in prompt_of(MAKERS[name]())


@every_profile
def test_safe_mode_knows_no_shell(name: str) -> None:
    prompt = prompt_of(MAKERS[name](), dangerous=False)
    assert not re.search(r"shell|command|terminal|dangerous|\bbash\b|timeout|unsafe", prompt)
    assert "cannot run anything" in prompt
    assert _named(prompt) == set(TOOLS[name]) - SHELLS - UNNAMED
    assert "cannot run anything" not in prompt_of(MAKERS[name]())


@every_profile
def test_a_tool_of_the_host_is_added_or_wins(name: str) -> None:
    mine, new = _tool(TOOLS[name][0]), _tool("run_tests")
    profile = MAKERS[name](custom=(mine, new))
    assert list(profile.tools.names()) == [*TOOLS[name], "run_tests"]
    assert profile.tools.get(mine.name) is mine
    later = _tool("run_tests")
    profile.tools.register(later)
    assert profile.tools.get("run_tests") is later


@every_profile
def test_a_host_that_makes_pull_requests_is_told_of(name: str) -> None:
    prompt = prompt_of(MAKERS[name](custom=tuple(map(_tool, HOST))))
    assert {"create_pull_request", "finish"} <= _named(prompt)
    assert "without a tool call" not in prompt


@every_profile
def test_the_prompt_is_short_whole_and_the_same_each_time(name: str) -> None:
    prompt = prompt_of(MAKERS[name]())
    assert prompt == prompt_of(MAKERS[name]())
    assert len(prompt) < 6_500
    assert "{" not in prompt.replace("{name}", "")
    assert "\n\n\n\n" not in prompt


TOPICS = {
    "openai": ["*** Begin Patch", "*** Move to", "@@", "three lines above and below", "AGENTS.md", ".codex/"],
    "anthropic": [
        "Read before you edit",
        "Edit rather than write",
        "must be unique",
        "replace_all",
        "CLAUDE.md",
    ],
    "gemini": ["read_many_files", "GEMINI.md", "AGENTS.md", "Paths are relative"],
    "minimal": ["at most one tool call per step", "unified diff", "`grep_files`: "],
}


@table(("name", "words"), [(name, words) for name, all_ in TOPICS.items() for words in all_])
def test_topics(name: str, words: str) -> None:
    assert words in prompt_of(MAKERS[name]())


@every_profile
@pytest.mark.parametrize(
    "words", ["coding agent", "smallest complete change", "fail", "Files", "only if a result"]
)
def test_topics_of_every_prompt(name: str, words: str) -> None:
    assert words in prompt_of(MAKERS[name]())


def test_an_explorer_looks_and_names_a_hypothesis() -> None:
    profile = make_profile("explorer")
    assert profile.tools.names() == ("read_file", "list_files", "grep", "run_command")
    assert {tool.order for tool in profile.tools} == {Order.TOGETHER}
    assert [tool.name for tool in profile.tools if tool.dangerous] == ["run_command"]
    assert not profile.subagents
    assert "\nHypothesis: " in prompt_of(profile)
    safe = prompt_of(profile, dangerous=False)
    assert "run_command" not in safe
    assert "cannot run anything" in safe


def test_an_explorer_that_works_on_a_task_ends_by_finish() -> None:
    prompt = prompt_of(make_profile("explorer", custom=tuple(map(_tool, HOST))), dangerous=False)
    assert "call `finish` with what you found" in prompt
    assert "create_pull_request" not in prompt


def test_the_minimal_profile_lists_its_tools() -> None:
    prompt = prompt_of(minimal(custom=(_tool("web_open"),), submit=True))
    for tool in (*TOOLS["minimal"], "web_open", "submit"):
        assert f"\n- `{tool}`: " in prompt


def test_submit_only_where_it_is_enabled() -> None:
    assert minimal(submit=True).tools.names()[-1] == "submit"
    assert "call `submit` with the answer" in prompt_of(minimal(submit=True))
    assert "That ends the task." in prompt_of(minimal())
    assert "submit" not in prompt_of(minimal())


def test_only_anthropic_searches_in_modes() -> None:
    for name in ("openai", "anthropic", "gemini"):
        grep = MAKERS[name]().tools.get("grep")
        assert grep is not None
        assert ("output_mode" in grep.definition.parameters["properties"]) is (name == "anthropic")


def test_options_of_the_vendors() -> None:
    assert anthropic(beta_headers=("a", "b")).provider_options == {"anthropic": {"beta_headers": ["a", "b"]}}
    assert anthropic(beta_headers="one").provider_options == {"anthropic": {"beta_headers": ["one"]}}
    assert anthropic().provider_options == {}
    rules = [{"category": "X", "threshold": "NONE"}]
    assert gemini(safety_settings=rules).provider_options == {"gemini": {"safety_settings": rules}}
    assert gemini(grounding=True).provider_options == {"gemini": {"grounding": True}}


@every_profile
def test_the_model_and_what_is_known_of_it(name: str) -> None:
    made = MAKERS[name]()
    assert (made.model, made.context_window_size, made.knowledge_cutoff) == (None, None, "")
    assert (made.supports_reasoning, made.supports_streaming) == (True, True)
    model = ReplayModel("mine", [])
    known = ModelFacts(9, 3, reasoning=False, knowledge_cutoff="May 2025", streaming=False)
    profile = made.for_model(model, known)
    assert (profile.model, profile.context_window_size, profile.knowledge_cutoff) == (model, 9, "May 2025")
    assert (profile.supports_reasoning, profile.supports_streaming) == (False, False)
    unknown = made.for_model(model, ModelFacts())
    assert (unknown.supports_reasoning, unknown.supports_streaming) == (True, True)
    assert unknown.context_window_size is None


async def _run_planner(_arguments: object, _context: ToolContext) -> ToolOutcome:
    return Ok("")


def _planner_tool(name: str, *parameters: str, dangerous: bool = False) -> Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in parameters},
        "required": list(parameters),
        "additionalProperties": False,
    }
    return Tool(ToolDefinition(name, f"About {name}.", schema), _run_planner, dangerous=dangerous)


SHELL = _planner_tool("run_shell_command", "command", dangerous=True)
PLANNER_TOOLS = (
    _planner_tool("read_file", "path"),
    _planner_tool("edit_file", "path", "old_text", "new_text"),
    _planner_tool("write_file", "path", "content"),
    SHELL,
    _planner_tool("create_pull_request", "title", "body"),
    _planner_tool("finish", "reason"),
)


def _system(*tools: Tool, dangerous: bool = False) -> str:
    profile = planner_over(ToolRegistry(tools))
    shown = profile.tools.definitions(dangerous=dangerous)
    return f"{profile.words(shown)}\n\n{JsonPlan().describe(shown)}"


def test_the_profile_keeps_all_tools() -> None:
    profile = planner_over(ToolRegistry(PLANNER_TOOLS))
    assert profile.name == "planner"
    assert profile.tools.get("run_shell_command") is SHELL


def test_the_planner_knows_no_shell_in_safe_mode() -> None:
    text = _system(*PLANNER_TOOLS)
    assert not re.search(r"shell|command|terminal|dangerous|\bbash\b|unsafe", text, re.IGNORECASE)
    assert "run_shell_command" in _system(*PLANNER_TOOLS, dangerous=True)


def test_the_prompt_is_the_same_bytes_each_time() -> None:
    assert _system(*PLANNER_TOOLS) == _system(*PLANNER_TOOLS)


def test_the_base_prompt_names_no_tool_that_is_missing() -> None:
    text = prompt_of(planner_over(ToolRegistry([_planner_tool("write_file", "path", "content")])))
    assert "edit_file" not in text
    assert "read_file" not in text or "read it first" not in text
    assert "whole text of the file" in text


def test_the_example_is_a_plan_that_would_run() -> None:
    example = next(
        line for line in _system(*PLANNER_TOOLS).splitlines() if line.startswith('{"plan": "greet')
    )
    response = Response(Message.assistant(example), FinishReason.STOP, Usage(), "test")
    tools = planner_over(ToolRegistry(PLANNER_TOOLS)).tools.definitions(dangerous=False)
    reading = JsonPlan().read(response, tools, round_number=1)
    assert isinstance(reading, Actions)
    assert not reading.repaired
    assert [call.name for call in reading.calls] == ["edit_file", "create_pull_request", "finish"]
    assert json.loads(example)["plan"] == reading.plan


@table("words", ["AGENTS.md", "create_pull_request", "finish", "ask_question", "- [x]", "tests ran"])
def test_the_rules_are_in_it(words: str) -> None:
    assert words in prompt_of(planner_over(ToolRegistry((*PLANNER_TOOLS, _planner_tool("ask_question")))))
