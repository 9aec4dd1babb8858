"""The todo list that a model keeps during a session.

Limits, states and priorities are those of section 2.3.4 of the assistant specification.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

MOST_ITEMS = 100
"""Most items in the list at the same time."""

MOST_CHARACTERS = 512
"""Longest text of an item."""

_ID = re.compile(r"[1-9][0-9]{0,8}")


class TodoStatus(StrEnum):
    """The progress of an item."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class TodoPriority(StrEnum):
    """The urgency of an item, the least urgent first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def rank(self) -> int:
        """The position in the order of priorities."""
        return tuple(TodoPriority).index(self)


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One item of the todo list.

    Attributes:
        content: text of one line.
        created_at, updated_at: in ISO 8601, UTC.
    """

    id: str
    content: str
    status: TodoStatus
    priority: TodoPriority
    created_at: str
    updated_at: str


class TodoList:
    """The items of one session, oldest first. Ids are never reused.

    A change raises a `ToolError` if there is no such item, the text is empty or too long, or the list is full.

    Args:
        items: items of an earlier session that this one continues. Invalid and surplus items are dropped.
        added: number of items ever added before; the next id follows from it.
    """

    def __init__(self, items: Iterable[TodoItem] = (), added: int = 0) -> None:
        self._items: dict[str, TodoItem] = {}
        for item in items:
            if len(self._items) < MOST_ITEMS and _is_in_form(item):
                self._items[item.id] = item
        self.added = max(0, added, *map(int, self._items))

    @property
    def items(self) -> tuple[TodoItem, ...]:
        """All items."""
        return tuple(self._items.values())

    def add(self, content: str, priority: TodoPriority, at: datetime) -> TodoItem:
        """Add a pending item."""
        text = _checked(content)
        if len(self._items) >= MOST_ITEMS:
            raise ToolError(
                f"The list has {MOST_ITEMS} items, which is the most: remove some, or join several."
            )
        self.added += 1
        when = _written(at)
        item = TodoItem(str(self.added), text, TodoStatus.PENDING, priority, when, when)
        self._items[item.id] = item
        return item

    def update(
        self,
        name: str,
        at: datetime,
        *,
        status: TodoStatus | None = None,
        priority: TodoPriority | None = None,
        content: str | None = None,
    ) -> TodoItem:
        """Change the fields of an item that are not None."""
        old = self._find(name)
        self._items[name] = new = replace(
            old,
            status=status or old.status,
            priority=priority or old.priority,
            content=old.content if content is None else _checked(content),
            updated_at=_written(at),
        )
        return new

    def remove(self, name: str) -> None:
        """Remove an item from the list."""
        del self._items[self._find(name).id]

    def select(
        self, status: TodoStatus | None = None, least: TodoPriority = TodoPriority.LOW
    ) -> tuple[TodoItem, ...]:
        """Return the items with this status (None for any) and at least this priority."""
        return tuple(
            item
            for item in self._items.values()
            if status in {None, item.status} and item.priority.rank >= least.rank
        )

    def _find(self, name: str) -> TodoItem:
        if name in self._items:
            return self._items[name]
        known = ", ".join(self._items) or "none"
        raise ToolError(f"There is no item {name[:100]!r} in the list. Its ids are: {known}.")


def done_in_words(items: Sequence[TodoItem]) -> str:
    """Return the progress of a list in words: `2 of 5 done`."""
    return f"{sum(item.status is TodoStatus.COMPLETED for item in items)} of {len(items)} done"


def todo_checklist(items: Iterable[TodoItem]) -> list[str]:
    """Return the items as lines of plain text with a box: empty if pending, `~` if in progress, `x` if done."""
    boxes = {TodoStatus.PENDING: " ", TodoStatus.IN_PROGRESS: "~", TodoStatus.COMPLETED: "x"}
    urgent = {TodoPriority.LOW: " (low)", TodoPriority.MEDIUM: "", TodoPriority.HIGH: " (high)"}
    return [f"[{boxes[item.status]}] {item.content}{urgent[item.priority]}" for item in items]


def _is_in_form(item: TodoItem) -> bool:
    text = item.content
    is_line = text and text == " ".join(text.split())
    return bool(is_line) and len(text) <= MOST_CHARACTERS and _ID.fullmatch(item.id) is not None


def _checked(content: str) -> str:
    text = " ".join(content.split())
    if not text:
        raise ToolError("The content is empty: say in a few words what is to be done.")
    if len(text) > MOST_CHARACTERS:
        raise ToolError(
            f"The content has {len(text)} characters, and {MOST_CHARACTERS} are allowed: say it shorter, or make "
            "several items of it."
        )
    return text


def _written(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
