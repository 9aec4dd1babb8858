"""The tools of the long-term memory (section 2.3.3 of the assistant's specification)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import MemoryStoreError, ModelError
from orchestrator.engine.memory.items import Author, Importance, MemoryType, as_json
from orchestrator.engine.tools.base import (
    TEXT,
    Failed,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.memory.items import Memory
    from orchestrator.engine.memory.memory import LongTermMemory

LONGEST_TTL_SECONDS = 100 * 366 * 86_400


def memory_tools(memory: LongTermMemory) -> tuple[Tool, ...]:
    """Create the three tools. The model is offered the writing ones only if it may change files."""
    return remember(memory), recall_memories(memory), forget_memory(memory)


def remember(memory: LongTermMemory) -> Tool:
    """Create the tool that stores a text."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        try:
            stored = await memory.remember(
                arguments["content"],
                type_=MemoryType(arguments.get("type", MemoryType.GENERAL)),
                source=arguments.get("source") or "conversation",
                importance=Importance(arguments.get("importance", Importance.NORMAL)),
                ttl=integer(arguments, "ttl"),
                author=Author.MODEL,
            )
        except (MemoryStoreError, ModelError) as error:
            return Failed(f"Not remembered: {error}.")
        return Ok(_json({**memory_line(stored.memory), "stored": stored.is_new, **_note_field(stored.note)}))

    properties: dict[str, JsonObject] = {
        "content": TEXT,
        "type": {"type": "string", "enum": [one.value for one in MemoryType]},
        "source": {"type": "string", "maxLength": 500},
        "importance": {"type": "string", "enum": [one.value for one in Importance]},
        "ttl": {"type": "integer", "minimum": 0, "maximum": LONGEST_TTL_SECONDS},
    }
    return Tool(define("remember", properties, ("content",)), execute, order=Order.ALONE)


def new_memory(output: str) -> list[str]:
    """Return the text that an answer of `remember` reports as newly stored, in a list; else an empty list."""
    try:
        said = json.loads(output)
        return [str(said["content"])] if said["stored"] is True else []
    except (ValueError, TypeError, KeyError):
        return []


def recall_memories(memory: LongTermMemory) -> Tool:
    """Create the tool that searches the memories."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        try:
            found = await memory.recall(arguments["query"])
        except MemoryStoreError as error:
            return Failed(f"The memories could not be searched: {error}.")
        memories = [{**memory_line(one.memory), "score": round(one.score, 3)} for one in found.memories]
        return Ok(_json({"memories": memories, "count": len(memories), **_note_field(found.note)}))

    return Tool(define("recall_memories", {"query": TEXT}, ("query",)), execute)


def forget_memory(memory: LongTermMemory) -> Tool:
    """Create the tool that removes a memory."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        number = int(arguments["memory_id"])
        try:
            forgotten = await memory.forget(number, Author.MODEL)
        except MemoryStoreError as error:
            return Failed(f"Not forgotten: {error}.")
        if forgotten is None:
            return Failed(f"There is no memory {number}. Find its number with recall_memories.")
        return Ok(_json({"forgotten": number, "content": forgotten.content}))

    number: JsonObject = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
    return Tool(define("forget_memory", {"memory_id": number}, ("memory_id",)), execute, order=Order.ALONE)


def memory_line(memory: Memory) -> dict[str, Any]:
    """Return a memory as it is shown to the model."""
    return {name: value for name, value in as_json(memory).items() if name not in {"index", "metadata"}}


def _note_field(note: str) -> dict[str, str]:
    return {"note": note} if note else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
