"""run_tests, create_pull_request, ask_question and finish; and the words of every tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.base import Ends, Failed, Ok, Order, Tool, ToolContext
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import read_file, write_file
from orchestrator.engine.tools.search import glob, grep, list_dir
from orchestrator.engine.tools.shell import run_shell_command
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence


async def propose(title: str, body: str) -> str:
    if body == "refuse":
        raise ToolError("Nothing has changed.")
    return f"proposed {title}: {body}"


async def run(ids: Sequence[str]) -> str:
    if "refuse" in ids:
        raise ToolError("1 failed")
    return f"ran {ids}"


async def may_finish(reason: str) -> str | None:
    return "Changes are not proposed yet." if reason == "too early" else None


async def test_the_host_proposes(context: ToolContext) -> None:
    tool = create_pull_request(propose)
    assert await tool.execute({"title": " Fix\n it ", "body": "Why."}, context) == Ok("proposed Fix it: Why.")
    with pytest.raises(ToolError, match="Nothing has changed"):
        await tool.execute({"title": "Fix", "body": "refuse"}, context)


@pytest.mark.parametrize(
    ("title", "reason"), [("", "empty"), (" \n", "empty"), ("x" * 257, "257 characters")]
)
async def test_a_bad_title(title: str, reason: str, context: ToolContext) -> None:
    outcome = await create_pull_request(propose).execute({"title": title, "body": ""}, context)
    assert isinstance(outcome, Failed)
    assert reason in outcome.message


async def test_a_title_of_256_characters_is_good(context: ToolContext) -> None:
    assert isinstance(
        await create_pull_request(propose).execute({"title": "x" * 256, "body": ""}, context), Ok
    )


async def test_the_host_runs_the_tests(context: ToolContext) -> None:
    tool = run_tests(run)
    assert await tool.execute({}, context) == Ok("ran ()")
    assert await tool.execute({"tests": ["test_a.py::test_b[1]"]}, context) == Ok(
        "ran ('test_a.py::test_b[1]',)"
    )
    with pytest.raises(ToolError, match="1 failed"):
        await tool.execute({"tests": ["refuse"]}, context)
    assert not tool.dangerous
    # Its host ends it. Subagents, which have no such tools, run none beside it.
    assert (tool.order, tool.is_timed) == (Order.LAST, False)
    assert not create_pull_request(propose).is_timed


async def test_a_question_ends_the_session(context: ToolContext) -> None:
    assert await ask_question().execute({"question_text": " A or B? "}, context) == Ends(
        "question", "A or B?"
    )
    assert isinstance(await ask_question().execute({"question_text": " "}, context), Failed)


async def test_choices_are_numbered_below_the_question(context: ToolContext) -> None:
    arguments = {"question_text": "Which?", "choices": ["Keep\nit", " ", "Drop it"]}
    assert await ask_question().execute(arguments, context) == Ends(
        "question", "Which?\n\n1. Keep it\n2. Drop it"
    )


async def test_finish_ends_if_the_host_lets_it(context: ToolContext) -> None:
    tool = finish(may_finish)
    assert await tool.execute({}, context) == Ends("finish", "")
    assert await tool.execute({"reason": "done"}, context) == Ends("finish", "done")
    assert await tool.execute({"reason": "too early"}, context) == Failed("Changes are not proposed yet.")


TOOLS = [
    read_file(),
    write_file(),
    edit_file(),
    list_dir(),
    grep(),
    glob(),
    run_shell_command(),
    run_tests(run),
    create_pull_request(propose),
    ask_question(),
    finish(may_finish),
]


@table("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_has_its_words_and_a_closed_schema(tool: Tool) -> None:
    Draft202012Validator.check_schema(tool.definition.parameters)
    assert len(tool.definition.description) > 20
    assert all(schema["description"] for schema in tool.definition.parameters["properties"].values())
    assert tool.definition.parameters["additionalProperties"] is False


def test_only_the_shell_is_dangerous() -> None:
    assert [tool.name for tool in TOOLS if tool.dangerous] == ["run_shell_command"]
