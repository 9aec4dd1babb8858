"""A session's events with their names and times, and the bus that passes them on to queues and callables."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.core.events import (
    CallStatus,
    ErrorOccurred,
    InputReceived,
    LimitReached,
    LoopDetected,
    ProcessingEnded,
    ReplyReceived,
    SessionEnded,
    SessionStarted,
    SteeringInjected,
    SubagentEvent,
    TextDelta,
    TextStarted,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    Warned,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event


class EventKind(StrEnum):
    """The event names of section 2.9 of the coding agent loop specification, and `other`."""

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
    SessionStarted: EventKind.SESSION_START,
    SessionEnded: EventKind.SESSION_END,
    InputReceived: EventKind.USER_INPUT,
    ProcessingEnded: EventKind.PROCESSING_END,
    TextStarted: EventKind.ASSISTANT_TEXT_START,
    TextDelta: EventKind.ASSISTANT_TEXT_DELTA,
    ReplyReceived: EventKind.ASSISTANT_TEXT_END,
    ToolCallStarted: EventKind.TOOL_CALL_START,
    ToolOutputDelta: EventKind.TOOL_CALL_OUTPUT_DELTA,
    ToolCallEnded: EventKind.TOOL_CALL_END,
    SteeringInjected: EventKind.STEERING_INJECTED,
    LimitReached: EventKind.TURN_LIMIT,
    LoopDetected: EventKind.LOOP_DETECTION,
    Warned: EventKind.WARNING,
    ErrorOccurred: EventKind.ERROR,
}


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """An event with its session and time.

    Attributes:
        session: the id of the session; a subagent's events carry its own.
        at: the time of the event, in UTC.
    """

    session: str
    at: datetime
    event: Event

    @property
    def kind(self) -> EventKind:
        """The event's name in the specification; `other` if the specification has none."""
        return _KINDS.get(type(self.event), EventKind.OTHER)


STOP_SECONDS = 2.9
"""Time that running work may take to stop: 2 s between SIGTERM and SIGKILL, and a margin."""


class SessionEventBus:
    """The events of one session and its subagents, in the order in which they happened."""

    def __init__(self, session: str, clock: Clock, emit: Emit | None) -> None:
        self._session, self._clock, self._emit = session, clock, emit
        self._queues: set[asyncio.Queue[SessionEvent | None]] = set()
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._open_calls: list[ToolCallStarted] = []
        self._is_over = False

    def __call__(self, event: Event) -> None:
        """Pass on an event of this session.

        After the end nothing is passed on, such as events of a tool that did not stop in time.
        """
        if self._is_over:
            return
        match event:
            case ToolCallStarted():
                self._open_calls.append(event)
            case ToolCallEnded(call_id):
                call = next((call for call in self._open_calls if call.call_id == call_id), None)
                if call is None:
                    return  # `end_calls` has emitted its end
                self._open_calls.remove(call)
            case _:
                pass
        if self._emit:
            self._emit(event)
        if self._listeners or self._queues:
            self._pass_on(SessionEvent(self._session, self._clock.now(), event))

    def end_calls(self, why: str) -> None:
        """Emit the end of calls that did not stop when they were cancelled."""
        for call in tuple(self._open_calls):
            self(ToolCallEnded(call.call_id, call.name, CallStatus.INTERRUPTED, why))

    def forward(self, event: SessionEvent) -> None:
        """Pass on an event of a subagent."""
        if self._is_over:
            return
        if self._emit:
            self._emit(SubagentEvent(event.session, event.event))
        self._pass_on(event)

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Call `listener` with every later event. It must not block or raise."""
        self._listeners.append(listener)

    def open(self) -> asyncio.Queue[SessionEvent | None]:
        """Return a queue of the later events, with None after the last one. Pass it to `close` when done."""
        queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        self._queues.add(queue)
        return queue

    def close(self, queue: asyncio.Queue[SessionEvent | None]) -> None:
        """Put no more events into a queue."""
        self._queues.discard(queue)

    def end(self) -> None:
        """End all queues after the events that they still hold, and pass nothing on any more."""
        self._is_over = True
        for queue in self._queues:
            queue.put_nowait(None)

    def _pass_on(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            listener(event)
        for queue in self._queues:
            queue.put_nowait(event)


async def stop(work: asyncio.Task[Any] | None) -> None:
    """Cancel a task, and wait for its end as long as a command may take to stop."""
    if work and not work.done():
        work.cancel()
        await asyncio.wait([work], timeout=STOP_SECONDS)
