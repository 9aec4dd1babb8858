"""A backlog with whoever claims what it finds, as `bot.cycle.claim` has them: for tests of both together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.claim import claim_next
from orchestrator.bot.worker import backlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.cycle.choice import Choice
    from orchestrator.bot.cycle.task_state import KnownTask
    from orchestrator.bot.cycle.tasks import Task


@dataclass
class FakeClaimer:
    """Claims by a function, and knows of no earlier cycle."""

    claim: Callable[[Task], Any]

    def __post_init__(self) -> None:
        self.earlier: dict[str, Any] = {}

    def take(self, known: KnownTask) -> Any:
        assert known.task is not None
        return self.claim(known.task)

    def comes_last(self, _known: KnownTask) -> bool:
        return False

    def with_branch(self, task: Task) -> Task:
        return task


@dataclass(slots=True)
class Backlog(backlog.Backlog):
    """A backlog whose tasks are claimed at once."""

    claim: Callable[[Task], Any] | None = None
    emit: Callable[[Any], None] = lambda _event: None
    fingerprint: Callable[[], str] | None = None

    async def choose(self) -> Choice:
        claimer: Any = FakeClaimer(self.claim) if self.claim else None
        fingerprint = self.fingerprint or self.forge.fingerprint
        try:
            return await asyncio.to_thread(lambda: claim_next(self, claimer, fingerprint()))
        finally:
            for event in self.notices():
                self.emit(event)
