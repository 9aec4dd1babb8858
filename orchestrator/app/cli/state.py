"""Displays the state of a run's session: as lines, and after each turn of a run in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.event_lines import telling_argument
from orchestrator.app.words import counted, local_time, short_line
from orchestrator.core.cycle_events import CycleStarted
from orchestrator.core.events import ProcessingEnded, TurnStarted
from orchestrator.core.todos import todo_checklist
from orchestrator.engine.session.state_record import StateRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event

_LATEST = 5
"""Maximum actions and tool events shown after a turn."""
_ITEM_CHARS = 600


def state_lines(state: StateRecord, latest: int | None = None) -> Iterator[str]:
    """Yield a state as lines.

    Args:
        latest: maximum number of actions and of tool events, the newest ones; None for all.
    """
    yield f"hypothesis: {short_line(state.hypothesis, _ITEM_CHARS) or 'none yet'}"
    actions = [(one.at, one.what) for one in state.actions]
    yield from _timed("actions", actions, latest)
    tools = [
        (one.at, f"{one.status} {one.name} {telling_argument(one.arguments)}") for one in state.tool_events
    ]
    yield from _timed("tool events", tools, latest)
    yield f"denials: {state.denials}"
    yield f"summary: {short_line(state.summary, _ITEM_CHARS) or 'none'}"
    context = state.context
    turns = f"{counted(context.chat_turns, 'chat turn')} of {counted(context.messages, 'message')}"
    whole = "summarised" if state.summary else "not summarised"
    yield f"context: {turns}, {context.tokens:,} tokens, {whole}"
    yield f"list: {counted(len(state.todos), 'item')}"
    for item in todo_checklist(state.todos):
        yield f"  {short_line(item, _ITEM_CHARS)}"


def _timed(name: str, lines: Sequence[tuple[datetime, str]], latest: int | None) -> Iterator[str]:
    shown = lines if latest is None else lines[-latest:]
    yield f"{name}: {len(lines)}{f', the last {len(shown)}:' if len(shown) < len(lines) else ''}"
    for at, text in shown:
        yield f"  {local_time(at, seconds=True)}  {short_line(text)}"


class StateView:
    """An `Emit` that passes events on to a view, and shows the session's state after each turn."""

    def __init__(self, view: Emit, clock: Clock, tell: Callable[[Iterable[str]], None]) -> None:
        self._view, self._clock, self._tell = view, clock, tell
        self._state = StateRecord()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, CycleStarted):
            self._state = StateRecord()
        if isinstance(event, TurnStarted | ProcessingEnded) and self._state.actions:
            self._tell(state_lines(self._state, _LATEST))
        self._view(event)
        self._state.take(event, self._clock.now())
