"""What a host of a session receives: an event with its session and its time, and the name of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.core import events

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.core.events import Event


class EventKind(StrEnum):
    """The names of section 2.9 of the coding agent loop specification, and `other`."""

    SESSION_START = "session_start"
    SESSION_END = "session_end"
    USER_INPUT = "user_input"
    PROCESSING_END = "processing_end"
    ASSISTANT_TEXT_START = "assistant_text_start"
    ASSISTANT_TEXT_DELTA = "assistant_text_delta"
    ASSISTANT_TEXT_END = "assistant_text_end"
    TOOL_CALL_START = "tool_call_start"
    TOOL_CALL_OUTPUT_DELTA = "tool_call_output_delta"
    TOOL_CALL_END = "tool_call_end"
    STEERING_INJECTED = "steering_injected"
    TURN_LIMIT = "turn_limit"
    LOOP_DETECTION = "loop_detection"
    WARNING = "warning"
    ERROR = "error"
    OTHER = "other"


_KINDS: dict[type[Event], EventKind] = {
    events.SessionStarted: EventKind.SESSION_START,
    events.SessionEnded: EventKind.SESSION_END,
    events.InputReceived: EventKind.USER_INPUT,
    events.ProcessingEnded: EventKind.PROCESSING_END,
    events.TextStarted: EventKind.ASSISTANT_TEXT_START,
    events.TextDelta: EventKind.ASSISTANT_TEXT_DELTA,
    events.ReplyReceived: EventKind.ASSISTANT_TEXT_END,
    events.ToolCallStarted: EventKind.TOOL_CALL_START,
    events.ToolOutputDelta: EventKind.TOOL_CALL_OUTPUT_DELTA,
    events.ToolCallEnded: EventKind.TOOL_CALL_END,
    events.SteeringInjected: EventKind.STEERING_INJECTED,
    events.LimitReached: EventKind.TURN_LIMIT,
    events.LoopDetected: EventKind.LOOP_DETECTION,
    events.Warned: EventKind.WARNING,
    events.ErrorOccurred: EventKind.ERROR,
}


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that happened in a session.

    Attributes:
        session: the id of the session; a subagent's events carry its own.
        at: when, in UTC.
        event: what. Match on its class.
    """

    session: str
    at: datetime
    event: Event

    @property
    def kind(self) -> EventKind:
        """The specification's name for it; `other` for what only this program knows."""
        return _KINDS.get(type(self.event), EventKind.OTHER)
