"""The state of a session as its events tell it, in the words of the teaching agent specification."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.events import (
    CallStatus,
    Compacted,
    InputReceived,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    SteeringInjected,
    SubagentEvent,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
)
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.core.todos import TodoItem, TodoPriority, TodoStatus
from orchestrator.engine.session.state_record import ContextFigures, StateRecord, state_record_of
from tests.tables import table
from tests.unit.bot.journal.strategies import any_event
from tests.unit.engine.session.stage import events_of, says, session_in, tool

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event

BEGIN = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)
ITEM = TodoItem("1", "Read it", TodoStatus.PENDING, TodoPriority.LOW, "", "")


def reply(tokens: int = 10) -> ReplyReceived:
    return ReplyReceived(Message.assistant("x"), FinishReason.STOP, Usage(tokens, 5), None, "vendor:m")


def call(name: str, status: CallStatus, **arguments: object) -> list[Event]:
    return [ToolCallStarted(name, name, arguments), ToolCallEnded(name, name, status, "")]


def after(*events: Event) -> StateRecord:
    return state_record_of((event, BEGIN + timedelta(seconds=second)) for second, event in enumerate(events))


def said(text: str) -> MessageAdded:
    return MessageAdded(Message.user(text))


def test_a_session_of_every_kind_of_event() -> None:
    events: list[Event] = [
        InputReceived("Mend it."),
        said("Mend it."),
        reply(),
        PlanAccepted("Read, then mend.", 2),
        *call("read_file", CallStatus.OK, path="a.py"),
        *call("shell", CallStatus.REFUSED, command="ls; id"),
        *call("grep", CallStatus.SKIPPED),
        said("Results."),
        SubagentEvent("other", reply(999)),
        TodosChanged((ITEM,), 1),
        reply(30),
        PlanAccepted("Done.", 0),
    ]
    state = after(*events)
    assert state.to_json() == {
        "hypothesis": "Done.",
        "actions": [
            {"at": "2026-11-23T03:00:02+00:00", "action": "reply via vendor:m"},
            {"at": "2026-11-23T03:00:13+00:00", "action": "reply via vendor:m"},
        ],
        "tool_events": [
            {"at": "2026-11-23T03:00:05+00:00", "name": "read_file", "arguments": {"path": "a.py"}, "status": "ok"},
            {"at": "2026-11-23T03:00:07+00:00", "name": "shell", "arguments": {"command": "ls; id"}, "status": "denied"},
        ],
        "denials": 1,
        "summary": "",
        "context": {"chat_turns": 2, "messages": 4, "tokens": 35, "is_summarised": False},
        "todos": [{"id": "1", "content": "Read it", "status": "pending", "priority": "low", "created_at": "", "updated_at": ""}],
    }  # fmt: skip


@table(
    ("status", "word"),
    [
        (CallStatus.OK, "ok"),
        (CallStatus.REFUSED, "denied"),
        (CallStatus.FAILED, "error"),
        (CallStatus.INTERRUPTED, "error"),
        (CallStatus.SKIPPED, None),
    ],
)
def test_the_words_of_a_calls_end(status: CallStatus, word: str | None) -> None:
    state = after(*call("x", status))
    assert [one.status for one in state.tool_events] == ([word] if word else [])
    assert state.denials == (word == "denied")


@table(
    ("plans", "hypothesis"),
    [
        ((), ""),
        (("Read\nit.",), "Read it."),
        (("One.", " ", "Two."), "Two."),
        (("Hypothesis: the sign is wrong\nI read.",), "the sign is wrong"),
        (("I read.\n- **Hypothesis:** the sign", "Now I write."), "the sign"),
        (("x <hypothesis>\nthe\nsign </hypothesis> y",), "the sign"),
        (("hypothesis: a", "HYPOTHESIS: b\nhypothesis: c"), "c"),
        (("My hypothesis is old.",), "My hypothesis is old."),
        (("x" * 900,), "x" * 499 + "…"),
        (("hypothesis: \x1b[2J\u202eevil",), "\\x1b[2J\\u202eevil"),
    ],
)
def test_what_the_model_takes_its_task_to_be(plans: tuple[str, ...], hypothesis: str) -> None:
    assert after(*(PlanAccepted(plan, 1) for plan in plans)).hypothesis == hypothesis


def test_who_speaks_counts_and_what_tools_say_does_not() -> None:
    first = [
        said("Do it."),
        reply(),
        PlanAccepted("", 1),
        *call("x", CallStatus.OK),
        said("Result."),
        reply(7),
    ]
    assert after(*first).context == ContextFigures(1, 4, 12), "as a journal has it, which leaves out inputs"
    steered = [
        *first,
        said("Stop that."),
        SteeringInjected("Stop that."),
        InputReceived("More."),
        said("More."),
    ]
    assert after(*steered).context == ContextFigures(3, 6, 12)


def test_what_a_shorter_conversation_is() -> None:
    state = after(
        said("Do it."), reply(900), said("Result."), Compacted(905, 40, 2, "it was long", "So far: all.")
    )
    assert state.summary == "So far: all."
    assert state.context == ContextFigures(1, 3, 40)
    assert state.to_json()["context"]["is_summarised"] is True


@given(st.lists(any_event, max_size=20))
def test_any_events_make_a_state_that_can_be_written(events: list[Event]) -> None:
    json.dumps(after(*events).to_json())


async def test_of_a_real_session(tmp_path: Path) -> None:
    steps = says("Hypothesis: it is small.", ("look", {})), says("All is well.")
    async with session_in(tmp_path, *steps, tools=[tool("look", lambda _: "fine")]) as (session, _):
        told = await events_of(session, "Look at it.")
    state = state_record_of((one.event, one.at) for one in told)
    assert (state.hypothesis, state.context) == ("it is small.", ContextFigures(2, 4, 15))
    assert [(one.name, one.status) for one in state.tool_events] == [("look", "ok")]
    assert [one.what for one in state.actions] == ["reply via scripted"] * 2
