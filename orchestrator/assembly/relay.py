"""Carries events from objects that outlive a cycle to whoever listens to the cycle that is running."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.core.events import Emit, Event


class Relay:
    """An `Emit` whose listeners change from cycle to cycle."""

    def __init__(self, *always: Emit) -> None:
        self._always = always
        self._now: tuple[Emit, ...] = ()

    def listen(self, *listeners: Emit) -> None:
        """Send events to these from now on, beside those given at the start."""
        self._now = listeners

    def __call__(self, event: Event) -> None:
        """Pass an event on, in order."""
        for listener in (*self._now, *self._always):
            listener(event)
