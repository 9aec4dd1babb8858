"""What is built for a run depends on this: configuration, keys, state, time, and who listens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import Warned

if TYPE_CHECKING:
    from orchestrator.app.config import ApiKeys, Loaded, Settings
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The surroundings of a run. `in_workflow`: it is a job of GitHub Actions."""

    loaded: Loaded
    keys: ApiKeys
    home: Home
    clock: Clock
    emit: Emit
    stop: Stop
    in_workflow: bool = False

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.loaded.settings


class EventBus:
    """An `Emit` whose listeners change from cycle to cycle."""

    def __init__(self, *always: Emit) -> None:
        self._always = always
        self._now: tuple[Emit, ...] = ()

    def always(self, event: Event) -> None:
        """Pass an event to those given at the start only."""
        for listener in self._always:
            listener(event)

    def listen(self, *listeners: Emit) -> None:
        """Send events to these from now on, beside those given at the start."""
        self._now = listeners

    def __call__(self, event: Event) -> None:
        """Pass an event on, in order."""
        for listener in (*self._now, *self._always):
            listener(event)


class Recorder:
    """Writes events to a journal. Where that fails, the round that is paid for is still carried out.

    Attributes:
        error: why the journal could not be written any further, if it could not.
    """

    def __init__(self, journal: Emit, view: Emit, stop: Stop) -> None:
        self._journal, self._view, self._stop = journal, view, stop
        self.error: DiskFullError | JournalError | None = None

    def __call__(self, event: Event) -> None:
        """Record an event; the first failure asks for an end after the round that is running."""
        try:
            self._journal(event)
        except (DiskFullError, JournalError) as error:
            self.error = error
            self._stop.request()
            self._view(Warned(str(error)))
