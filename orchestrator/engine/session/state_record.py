"""The state of a session, derived from its events: a record for people who inspect it.

Its fields are those of section "StateManager" of the teaching agent specification.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

from orchestrator.core.events import (
    CallStatus,
    Compacted,
    InputReceived,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    SteeringInjected,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
)
from orchestrator.core.prompts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject
    from orchestrator.core.todos import TodoItem

_MOST_HYPOTHESIS_CHARS = 500
_TAG = re.compile(r"<hypothesis>(.{1,2000}?)</hypothesis>", re.IGNORECASE | re.DOTALL)
_LINE = re.compile(
    r"^[\s*_#>-]{0,20}hypothesis[*_ ]{0,4}:[*_ ]{0,4}(.{1,2000})$", re.IGNORECASE | re.MULTILINE
)
_STATUS: Mapping[CallStatus, str] = {
    CallStatus.OK: "ok",
    CallStatus.REFUSED: "denied",
    CallStatus.FAILED: "error",
    CallStatus.INTERRUPTED: "error",
}
"""The specification's words. Calls that did not run are not recorded."""


@dataclass(frozen=True, slots=True)
class RecordedAction:
    """An action of the model in a turn. `at` is in UTC."""

    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """A call that ran or was refused. `status` is `ok`, `denied` or `error`; `at` is its end, in UTC."""

    at: datetime
    name: str
    arguments: JsonObject
    status: str


@dataclass(slots=True)
class ContextFigures:
    """The size of the conversation.

    Attributes:
        chat_turns: user messages, and replies without calls.
        messages: all messages sent to the model, those with calls and results included.
        tokens: of the last request and its reply, as the provider counted them; estimated after a compaction.
    """

    chat_turns: int = 0
    messages: int = 0
    tokens: int = 0


@dataclass(slots=True)
class StateRecord:
    """The state of one session, updated with its events in their order. Subagents have separate states.

    Attributes:
        hypothesis: how the model understands its task: its last named hypothesis, or its last plan if it
            names none.
        summary: the message that replaces the beginning of the conversation; empty while nothing was
            replaced.
    """

    hypothesis: str = ""
    actions: list[RecordedAction] = field(default_factory=list)
    tool_events: list[ToolEvent] = field(default_factory=list)
    denials: int = 0
    summary: str = ""
    context: ContextFigures = field(default_factory=ContextFigures)
    todos: tuple[TodoItem, ...] = ()
    _has_named_hypothesis: bool = False
    _expects_input: bool = True
    _running: dict[str, JsonObject] = field(default_factory=dict)

    def take(self, event: Event, at: datetime) -> None:
        """Update the state with an event that happened at this time, in UTC."""
        context = self.context
        match event:
            case InputReceived():
                self._expects_input = True
            case MessageAdded():
                context.messages += 1
                context.chat_turns += self._expects_input
                self._expects_input = False
            case SteeringInjected():
                context.chat_turns += 1
            case ReplyReceived():
                self.actions.append(RecordedAction(at, f"reply via {event.model}"))
                context.messages += 1
                context.tokens = event.usage.total_tokens
            case PlanAccepted():
                self._take_plan(event.plan)
                context.chat_turns += not event.calls
            case Compacted():
                self.summary = event.summary
                # One message replaces all removed ones.
                context.messages, context.tokens = event.turns + 1, event.tokens_after
            case TodosChanged():
                self.todos = event.items
            case ToolCallStarted() | ToolCallEnded():
                self._take_call(event, at)
            case _:
                pass

    def _take_plan(self, plan: str) -> None:
        named = [*_TAG.findall(plan), *_LINE.findall(plan)]
        if named or (plan.strip() and not self._has_named_hypothesis):
            self.hypothesis = one_line(
                " ".join((named or [plan])[-1].split()), limit=_MOST_HYPOTHESIS_CHARS, keep="`"
            )
        self._has_named_hypothesis |= bool(named)

    def _take_call(self, event: ToolCallStarted | ToolCallEnded, at: datetime) -> None:
        if isinstance(event, ToolCallStarted):
            self._running[event.call_id] = event.arguments
            return
        arguments = self._running.pop(event.call_id, {})
        if status := _STATUS.get(event.status):
            self.tool_events.append(ToolEvent(at, event.name, arguments, status))
            self.denials += status == "denied"

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object; times are in ISO 8601."""
        return {
            "hypothesis": self.hypothesis,
            "actions": [{"at": _written(one.at), "action": one.what} for one in self.actions],
            "tool_events": [
                {"at": _written(one.at), "name": one.name, "arguments": one.arguments, "status": one.status}
                for one in self.tool_events
            ],
            "denials": self.denials,
            "summary": self.summary,
            "context": {**asdict(self.context), "is_summarised": bool(self.summary)},
            "todos": [asdict(item) for item in self.todos],
        }


def state_record_of(events: Iterable[tuple[Event, datetime]]) -> StateRecord:
    """Return the state after these events, each with its time."""
    state = StateRecord()
    for event, at in events:
        state.take(event, at)
    return state


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
