"""The model's list: its limits, its ids, and what of an earlier one is taken over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import ToolError
from orchestrator.core.todos import (
    MOST_CHARACTERS,
    MOST_ITEMS,
    TodoItem,
    TodoList,
    TodoPriority,
    TodoStatus,
    done_in_words,
    todo_checklist,
)
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

AT = datetime(2026, 11, 23, 3, 4, 5, 678, tzinfo=UTC)
LATER = datetime(2026, 11, 23, 4, 0, tzinfo=UTC)
FIRST = TodoItem(
    "1",
    "Read it",
    TodoStatus.PENDING,
    TodoPriority.HIGH,
    "2026-11-23T03:04:05+00:00",
    "2026-11-23T03:04:05+00:00",
)


def test_the_constants_are_the_documents() -> None:
    assert (MOST_ITEMS, MOST_CHARACTERS) == (100, 512)
    assert list(TodoStatus) == ["pending", "in_progress", "completed"]
    assert list(TodoPriority) == ["low", "medium", "high"]


def test_an_item_from_its_beginning_to_its_end() -> None:
    todos = TodoList()
    assert todos.add(" Read\nit ", TodoPriority.HIGH, AT) == FIRST
    done = replace(FIRST, status=TodoStatus.COMPLETED, updated_at="2026-11-23T04:00:00+00:00")
    assert todos.update("1", LATER, status=TodoStatus.COMPLETED) == done
    assert todos.update("1", LATER, content="Read all", priority=TodoPriority.LOW) == replace(
        done, content="Read all", priority=TodoPriority.LOW
    )
    todos.remove("1")
    assert (todos.items, todos.added) == ((), 1)
    assert todos.add("Next", TodoPriority.LOW, AT).id == "2", "no id is given twice"


def _full() -> TodoList:
    todos = TodoList()
    for _ in range(MOST_ITEMS):
        todos.add("x", TodoPriority.LOW, AT)
    return todos


@table(
    ("change", "why"),
    [
        (lambda: TodoList().add(" \n", TodoPriority.LOW, AT), "content is empty"),
        (lambda: TodoList().add("x" * 513, TodoPriority.LOW, AT), "513 characters, and 512 are allowed"),
        (lambda: _full().add("x", TodoPriority.LOW, AT), "100 items, which is the most"),
        (lambda: TodoList([FIRST]).update("1", AT, content=""), "content is empty"),
        (lambda: TodoList([FIRST]).update("2", AT), "no item '2' in the list. Its ids are: 1"),
        (lambda: TodoList().remove("1"), "Its ids are: none"),
    ],
    ids=["empty", "too long", "full", "emptied", "not there", "nothing there"],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(change: Callable[[], object], why: str) -> None:
    with pytest.raises(ToolError) as refused:
        change()
    assert why in str(refused.value)


def test_the_longest_text_and_the_last_place() -> None:
    assert len(TodoList().add("x" * 512, TodoPriority.LOW, AT).content) == 512
    todos = _full()
    todos.remove("50")
    assert todos.add("x", TodoPriority.LOW, AT).id == "101"


@table(
    ("status", "least", "ids"),
    [
        (None, TodoPriority.LOW, "123456789"),
        (None, TodoPriority.MEDIUM, "235689"),
        (None, TodoPriority.HIGH, "369"),
        (TodoStatus.PENDING, TodoPriority.LOW, "123"),
        (TodoStatus.COMPLETED, TodoPriority.HIGH, "9"),
    ],
)
def test_selection(status: TodoStatus | None, least: TodoPriority, ids: str) -> None:
    todos = TodoList()
    for state in TodoStatus:
        for priority in TodoPriority:
            todos.update(todos.add("x", priority, AT).id, AT, status=state)
    assert "".join(item.id for item in todos.select(status, least)) == ids


@given(
    st.lists(
        st.builds(
            TodoItem,
            st.text(max_size=3) | st.sampled_from(["1", "2", "3", "7" * 9, "7" * 5_000]),
            st.text(max_size=5) | st.just("x" * 513),
            st.sampled_from(TodoStatus),
            st.sampled_from(TodoPriority),
            st.just(""),
            st.just(""),
        ),
        max_size=130,
    ),
    st.integers(-5, 5),
)
def test_of_any_earlier_list_what_is_in_form_is_taken_over(items: list[TodoItem], added: int) -> None:
    todos = TodoList(items, added)
    kept = todos.items
    assert len(kept) <= MOST_ITEMS
    assert all(item in items and 0 < len(item.content) <= MOST_CHARACTERS for item in kept)
    assert all("\n" not in item.content for item in kept)
    if len(kept) < MOST_ITEMS:
        new = todos.add("new", TodoPriority.LOW, AT)
        assert new.id not in {item.id for item in kept}


def test_the_next_id_follows_from_those_that_are_there() -> None:
    later = replace(FIRST, id="7")
    assert TodoList([later], 2).add("new", TodoPriority.LOW, AT).id == "8"
    assert TodoList([later], 9).add("new", TodoPriority.LOW, AT).id == "10"
    assert TodoList([later, replace(FIRST, id="7" * 5_000), replace(FIRST, id="\u0667")]).items == (later,)


def test_words_and_boxes() -> None:
    items = [
        replace(FIRST, status=TodoStatus.COMPLETED, priority=TodoPriority.MEDIUM),
        replace(FIRST, status=TodoStatus.IN_PROGRESS),
        replace(FIRST, priority=TodoPriority.LOW),
    ]
    assert todo_checklist(items) == ["[x] Read it", "[~] Read it (high)", "[ ] Read it (low)"]
    assert done_in_words(items) == "1 of 3 done"
