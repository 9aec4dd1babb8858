"""The repositories of one worker: the present state of each, and totals since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.cycle.parts import Assignment

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from orchestrator.bot.cycle.parts import CycleResult, Stop
    from orchestrator.bot.journal.index import Pause
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStepChooser


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class MemberState(StrEnum):
    """The states of a repository."""

    IDLE = "idle"
    """Waits for the next time of its schedule."""
    DUE = "due"
    """Waits for its turn."""
    RUNNING = "running"
    PAUSED = "paused"
    DISABLED = "disabled"
    """Waits for a person."""


@dataclass(slots=True)
class MemberTotals:
    """Totals over the cycles of one repository since the worker started.

    Attributes:
        outcomes: number of cycles by outcome.
        usd: as far as prices are known.
        requests: to the forge.
        paused_seconds: full length of all pauses that began.
        last_outcome: of the last cycle, which ended at `last_at`.
        last_run: the last cycle with a journal, possibly an earlier worker's.
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
        """The number of cycles."""
        return self.outcomes.total()

    def count(self, result: CycleResult, now: datetime) -> None:
        """Add a cycle that ended now."""
        self.last_outcome, self.last_at = str(result.outcome), now
        self.last_run = result.run or self.last_run
        self.outcomes[self.last_outcome] += 1
        self.usd += result.usd or 0.0
        self.tokens += result.usage.total_tokens
        self.requests += result.requests.requests

    def add_pause(self, begin: datetime, end: datetime) -> None:
        """Add a pause."""
        self.paused_seconds += max((end - begin).total_seconds(), 0.0)


class Runner(Protocol):
    """Runs the cycles of one repository."""

    stop: Stop

    @property
    def attempted(self) -> set[str]:
        """Tasks that are not tried again before `forget`."""

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008  a frozen value
        """Run the next cycle."""

    def forget(self) -> None:
        """Allow attempted tasks to be tried again."""

    async def close(self) -> None:
        """Close connections."""


@dataclass(slots=True)
class Member:
    """A repository of the fleet.

    Attributes:
        build: creates the runner of its cycles; called in a thread. May raise `PullwrightError`.
        quota: identifies a model and its key; a rate limit of one member applies to all with the same quota.
        schedule: when it is looked at.
        next_steps: decides what follows its cycles.
        left_pause: the pause in which an earlier worker left it.
        most_usd: highest cost of a cycle, as far as its settings limit it.
        due: whether it has something to do, or its scheduled time has come.
        not_before: no cycle starts before this time.
        pause: the reason, unless the wait is short.
        halted: why no cycle is run any more.
    """

    name: str
    build: Callable[[], Runner]
    quota: str
    schedule: Schedule
    next_steps: NextStepChooser
    left_pause: Pause | None = None
    most_usd: float = 0.0
    due: bool = False
    not_before: datetime = _LONG_AGO
    pause: Pause | None = None
    halted: str | None = None
    runner: Runner | None = None
    running: bool = False
    task: asyncio.Task[object] | None = None
    active_at: float = 0.0
    totals: MemberTotals = field(default_factory=MemberTotals)

    def state(self, now: datetime) -> MemberState:
        """Return its present state."""
        if self.halted is not None:
            return MemberState.DISABLED
        if self.running:
            return MemberState.RUNNING
        if self.pause is not None and self.pause.until > now:
            return MemberState.PAUSED
        return MemberState.DUE if self.due else MemberState.IDLE

    def next_at(self, now: datetime) -> datetime | None:
        """Return the earliest start of its next cycle."""
        if self.halted is not None:
            return None
        begins = now if self.due else self.schedule.next_fire(now)
        return max(begins, self.not_before)

    def begin_pause(self, pause: Pause, now: datetime) -> None:
        """Start no cycle before the end of the pause. Of two pauses the later one counts."""
        if self.halted is None and pause.until > self.not_before:
            self.totals.add_pause(max(now, self.not_before), pause.until)
            self.pause, self.not_before = pause, pause.until
