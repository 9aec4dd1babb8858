"""The four tools of the model's list: parameters and answers of section 2.3.4 of the assistant specification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ToolError
from orchestrator.engine.profiles.base import make_profile
from orchestrator.engine.tools.base import Ok, Order, ToolContext, truncate
from orchestrator.engine.tools.registry import argument_problems
from orchestrator.engine.tools.todo import todo
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool

TOOLS: dict[str, Tool] = {tool.name: tool for tool in todo()}
STATES, PRIORITIES = ["pending", "in_progress", "completed"], ["low", "medium", "high"]


@pytest.fixture
def timed(context: ToolContext) -> ToolContext:
    return replace(context, clock=ManualClock())


async def call(context: ToolContext, name: str, **arguments: Any) -> Any:
    assert argument_problems(arguments, TOOLS[name].definition) == ()
    outcome = await TOOLS[name].execute(arguments, context)
    assert isinstance(outcome, Ok)
    return json.loads(outcome.output)


def test_parameters() -> None:
    text = {"type": "string"}
    expected = {
        "todo_add": ({"content": text, "priority": {**text, "enum": PRIORITIES}}, ["content"]),
        "todo_update": (
            {
                "id": text,
                "status": {**text, "enum": STATES},
                "priority": {**text, "enum": PRIORITIES},
                "content": text,
            },
            ["id"],
        ),
        "todo_remove": ({"id": text}, ["id"]),
        "todo_list": (
            {"status": {**text, "enum": [*STATES, "all"]}, "priority": {**text, "enum": PRIORITIES}},
            [],
        ),
    }
    assert list(TOOLS) == list(expected)
    for name, (properties, required) in expected.items():
        schema = TOOLS[name].definition.parameters
        told = {
            key: {k: v for k, v in value.items() if k != "description"}
            for key, value in schema["properties"].items()
        }
        assert (told, schema["required"]) == (properties, required), name
        assert all(value["description"] for value in schema["properties"].values())
        assert not TOOLS[name].dangerous
        assert TOOLS[name].order is Order.TOGETHER, "so that a level that only reads has it too"


async def test_answers_are_exactly_those_of_the_document(timed: ToolContext) -> None:
    assert await call(timed, "todo_add", content="Read it") == {
        "id": "1",
        "content": "Read it",
        "priority": "medium",
        "status": "pending",
    }
    assert (await call(timed, "todo_add", content="Größe ändern", priority="high"))["id"] == "2"
    assert await call(timed, "todo_update", id="1", status="completed", content="Read all") == {
        "id": "1",
        "updated_fields": ["status", "content"],
    }
    assert await call(timed, "todo_update", id="1") == {"id": "1", "updated_fields": []}
    at = "2026-01-01T00:00:00+00:00"
    second = {
        "id": "2",
        "content": "Größe ändern",
        "status": "pending",
        "priority": "high",
        "created_at": at,
        "updated_at": at,
    }
    assert await call(timed, "todo_list", priority="high") == {"todos": [second], "count": 1}
    assert (await call(timed, "todo_list", status="all"))["count"] == 2
    assert (await call(timed, "todo_list"))["todos"][0]["status"] == "completed"
    assert await call(timed, "todo_list", status="in_progress") == {"todos": [], "count": 0}
    assert await call(timed, "todo_remove", id="1") == {"deleted_id": "1"}
    assert [item.id for item in timed.todos.items] == ["2"]


async def test_an_item_that_is_not_there(timed: ToolContext) -> None:
    for name in ("todo_update", "todo_remove"):
        with pytest.raises(ToolError, match="no item '7'"):
            await TOOLS[name].execute({"id": "7"}, timed)


@table(
    "arguments", [{}, {"content": 1}, {"content": "x", "priority": "urgent"}, {"content": "x", "due": "now"}]
)
def test_wrong_arguments_are_told(arguments: dict[str, object]) -> None:
    assert argument_problems(arguments, TOOLS["todo_add"].definition)


async def test_the_longest_list_is_shown_whole(timed: ToolContext) -> None:
    for _ in range(100):
        await TOOLS["todo_add"].execute({"content": "\u00e4" * 512}, timed)
    outcome = await TOOLS["todo_list"].execute({}, timed)
    assert isinstance(outcome, Ok)
    assert json.loads(truncate(outcome.output, "todo_list"))["count"] == 100


@table(
    ("profile", "has_them"),
    [
        ("planner", True),
        ("openai", True),
        ("anthropic", True),
        ("gemini", True),
        ("minimal", False),
        ("small", False),
    ],
)
def test_which_profiles_have_them(profile: str, has_them: bool) -> None:  # noqa: FBT001  a table's column
    names = make_profile(profile, dangerous=False).tools.names()
    assert (set(TOOLS) <= set(names)) is has_them
    assert has_them or not set(TOOLS) & set(names)
