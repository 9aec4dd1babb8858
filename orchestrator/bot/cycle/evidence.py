"""What really ran in a cycle, taken from its events and never from what the model says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted
from orchestrator.engine.contracts.fence import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.events import Event

_COMMAND_CHARACTERS = 200
# Secrets are taken out before the text is cut, which is not to take long.
_MOST_READ_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a tool ran, on one line, and how it ended."""

    text: str
    passed: bool

    @property
    def status(self) -> str:
        """How it ended, in a word."""
        return "passed" if self.passed else "failed"


@dataclass(slots=True)
class Evidence:
    """Collects from the events of a session what a pull request may claim.

    Attributes:
        redact: takes secrets out of a command before it is cut.
        commands: what ran, in order.
    """

    redact: Callable[[str], str] = str
    commands: list[Command] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, ToolCallStarted) and "command" in event.arguments:
            line = " ".join(str(event.arguments["command"])[:_MOST_READ_CHARACTERS].split())
            self._running[event.call_id] = (
                one_line(self.redact(line), limit=_COMMAND_CHARACTERS) or "(nothing)"
            )
        elif isinstance(event, ToolCallEnded) and event.call_id in self._running:
            text = self._running.pop(event.call_id)
            if event.status in {CallStatus.OK, CallStatus.FAILED}:
                self.commands.append(Command(text, event.status is CallStatus.OK))
