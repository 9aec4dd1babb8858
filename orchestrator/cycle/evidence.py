"""What really ran in a cycle, taken from its events and never from what the model says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted

if TYPE_CHECKING:
    from orchestrator.core.events import Event

_COMMAND_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a tool ran, on one line, and how it ended."""

    text: str
    status: str


@dataclass(slots=True)
class Evidence:
    """Collects from the events of a session what a pull request may claim."""

    commands: list[Command] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, ToolCallStarted) and "command" in event.arguments:
            line = " ".join(str(event.arguments["command"]).split()).replace("`", "'")
            self._running[event.call_id] = line[:_COMMAND_CHARACTERS]
        elif isinstance(event, ToolCallEnded) and event.call_id in self._running:
            text = self._running.pop(event.call_id)
            if event.status in {CallStatus.OK, CallStatus.FAILED}:
                self.commands.append(Command(text, "passed" if event.status is CallStatus.OK else "failed"))
