"""The four tools of the model's list: parameters and answers of section 2.3.4 of the assistant specification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ToolError
from orchestrator.core.events import TodosChanged, ToolCallEnded
from orchestrator.core.messages import ToolDefinition
from orchestrator.core.todos import TodoList
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.config import Host
from orchestrator.engine.session.history import todos_of
from orchestrator.engine.tools.base import Ends, Ok, Order, Tool, ToolContext, truncate
from orchestrator.engine.tools.registry import argument_problems
from orchestrator.engine.tools.todo import todo
from tests.tables import table
from tests.unit.engine.session.stage import events_of, says, session_in

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Response

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
    names = make_profile(profile).tools.names()
    assert (set(TOOLS) <= set(names)) is has_them
    assert has_them or not set(TOOLS) & set(names)


@pytest.mark.parametrize(
    "contract", [Native(), SingleStep(), JsonPlan()], ids=["native", "single_step", "json_plan"]
)
async def test_a_session_tells_each_change_and_a_later_one_goes_on(
    tmp_path: Path, contract: Contract
) -> None:
    def asks(name: str, **arguments: str) -> Response:
        if not isinstance(contract, JsonPlan):
            return says("", (name, arguments))
        return says(
            json.dumps({"plan": "Keep a list.", "tool_calls": [{"name": name, "arguments": arguments}]})
        )

    end = says("", ("end", {})) if not isinstance(contract, JsonPlan) else asks("end")
    steps = (
        asks("todo_add", content="Read"),
        asks("todo_list"),
        asks("todo_update", id="1", status="completed"),
        end,
    )
    told = await _told(tmp_path, contract, TodoList(), *steps)
    ends = [place for place, event in enumerate(told) if isinstance(event, ToolCallEnded)]
    lists = {place: event for place, event in enumerate(told) if isinstance(event, TodosChanged)}
    assert list(lists) == [ends[0] + 1, ends[2] + 1], "only where something changed"
    assert [str(event.items[0].status) for event in lists.values()] == ["pending", "completed"]
    earlier = todos_of(told)
    again = await _told(
        tmp_path, contract, earlier, asks("todo_remove", id="1"), asks("todo_add", content="Write"), end
    )
    begun, *_, last = [event for event in again if isinstance(event, TodosChanged)]
    assert begun == list(lists.values())[-1], "the record of a session has all of its list"
    assert [(item.id, item.content) for item in last.items] == [("2", "Write")]


async def _told(folder: Path, contract: Contract, todos: TodoList, *steps: Response) -> list[Event]:
    host = Host(system=lambda _shown: "You are tested.", todos=todos)
    end = Tool(ToolDefinition("end", "Ends.", {"type": "object"}), _end, order=Order.LAST)
    async with session_in(folder, *steps, tools=[*todo(), end], host=host, contract=contract) as (session, _):
        return [one.event for one in await events_of(session, "Go")]


async def _end(_arguments: object, _context: ToolContext) -> Ends:
    return Ends("finish", "done")
