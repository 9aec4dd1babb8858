"""The four tools of the model's to-do list, which people see too.

Parameters and answers are those of section 2.3.4 of the assistant specification.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator.core.todos import TodoPriority, TodoStatus
from orchestrator.engine.tools.base import TEXT, Ok, Tool, ToolContext, ToolOutcome, define

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

PROFILES = ("planner", "openai", "anthropic", "gemini", "assistant")

_ALL = "all"
_STATUS: JsonObject = {"type": "string", "enum": [str(status) for status in TodoStatus]}
_PRIORITY: JsonObject = {"type": "string", "enum": [str(priority) for priority in TodoPriority]}


def todo() -> tuple[Tool, ...]:
    """Create the four tools."""
    return todo_add(), todo_update(), todo_remove(), todo_list()


def todo_add() -> Tool:
    """Create the tool `todo_add(content, priority)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        priority = TodoPriority(arguments.get("priority") or TodoPriority.MEDIUM)
        item = context.todos.add(arguments["content"], priority, context.clock.now())
        return _answer(id=item.id, content=item.content, priority=item.priority, status=item.status)

    return Tool(define("todo_add", {"content": TEXT, "priority": _PRIORITY}, ("content",)), execute)


def todo_update() -> Tool:
    """Create the tool `todo_update(id, status, priority, content)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        status, priority = arguments.get("status"), arguments.get("priority")
        context.todos.update(
            arguments["id"],
            context.clock.now(),
            status=TodoStatus(status) if status else None,
            priority=TodoPriority(priority) if priority else None,
            content=arguments.get("content"),
        )
        updated = [name for name in ("status", "priority", "content") if arguments.get(name) is not None]
        return _answer(id=arguments["id"], updated_fields=updated)

    properties = {"id": TEXT, "status": _STATUS, "priority": _PRIORITY, "content": TEXT}
    return Tool(define("todo_update", properties, ("id",)), execute)


def todo_remove() -> Tool:
    """Create the tool `todo_remove(id)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        context.todos.remove(arguments["id"])
        return _answer(deleted_id=arguments["id"])

    return Tool(define("todo_remove", {"id": TEXT}, ("id",)), execute)


def todo_list() -> Tool:
    """Create the tool `todo_list(status, priority)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        status = arguments.get("status") or _ALL
        items = context.todos.select(
            None if status == _ALL else TodoStatus(status),
            TodoPriority(arguments.get("priority") or TodoPriority.LOW),
        )
        return _answer(todos=[asdict(item) for item in items], count=len(items))

    wanted: JsonObject = {"type": "string", "enum": [*_STATUS["enum"], _ALL]}
    return Tool(define("todo_list", {"status": wanted, "priority": _PRIORITY}), execute)


def _answer(**fields: object) -> Ok:
    return Ok(json.dumps(fields, ensure_ascii=False))
