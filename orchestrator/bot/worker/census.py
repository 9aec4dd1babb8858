"""What has become of a repository of a fleet, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.bot.cycle.parts import CycleResult


class State(StrEnum):
    """What a repository of a fleet is doing."""

    IDLE = "idle"
    """Until the next time of its schedule."""
    DUE = "due"
    """Until it is its turn."""
    RUNNING = "running"
    PAUSED = "paused"
    DISABLED = "disabled"
    """A person has to do something first."""


@dataclass(slots=True)
class Tally:
    """Sums over the cycles of one repository since the worker started.

    Attributes:
        outcomes: how many cycles ended how.
        usd: as far as prices are known.
        requests: to the forge.
        paused_seconds: of pauses that were begun, in full.
        last_outcome: of the last cycle, which ended at `last_at`.
        last_run: the last cycle that has a journal, also an earlier worker's.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    paused_seconds: float = 0.0
    last_outcome: str | None = None
    last_run: str | None = None
    last_at: datetime | None = None

    @property
    def cycles(self) -> int:
        """How many there were."""
        return self.outcomes.total()

    def count(self, result: CycleResult, now: datetime) -> None:
        """Add a cycle that ended now."""
        self.last_outcome, self.last_at = str(result.outcome), now
        self.last_run = result.run or self.last_run
        self.outcomes[self.last_outcome] += 1
        self.usd += result.usd or 0.0
        self.tokens += result.usage.total_tokens
        self.requests += result.requests.requests

    def pauses(self, begin: datetime, end: datetime) -> None:
        """Add a pause."""
        self.paused_seconds += max((end - begin).total_seconds(), 0.0)
