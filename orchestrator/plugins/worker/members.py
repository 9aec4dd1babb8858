"""The repositories of one worker: the present state of each, totals since the start, and the worker's health."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.bot.cycle.parts import Assignment

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from orchestrator.bot.cycle.parts import CycleResult, Stop
    from orchestrator.bot.journal.run_facts import Pause
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStepChooser
    from orchestrator.core.clock import Clock


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
LOOP_SECONDS = 300.0
"""The worker's loop runs every minute; without a pass for this long it is stuck."""
SILENT_SECONDS = 3600.0
"""A cycle without an event for this long is stuck: requests and commands have shorter limits of their own."""
_MOST_REASON_CHARS = 300


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
        usd: cost, as far as prices are known.
        requests: number of requests to the forge.
        paused_seconds: full length of all pauses that began.
        last_outcome: outcome of the last cycle, which ended at `last_at`.
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
        schedule: when the worker looks for its tasks.
        next_steps: decides what follows its cycles.
        left_pause: the pause that an earlier worker recorded, if it is not over.
        most_usd: highest cost of a cycle, as far as its settings limit it.
        due: whether it has something to do, or its scheduled time has come.
        not_before: no cycle starts before this time.
        pause: its current pause, unless the wait is short.
        halted: why no further cycle is run; None if one may be.
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
        """Start no cycle before the end of the pause. Of two pauses, the one with the later end counts."""
        if self.halted is None and pause.until > self.not_before:
            begins = max(now, self.not_before)
            self.totals.paused_seconds += max((pause.until - begins).total_seconds(), 0.0)
            self.pause, self.not_before = pause, pause.until


class Health:
    """The health of a worker: its state as JSON for `/healthz`, and totals for Prometheus at `/metrics`."""

    def __init__(self, members: Sequence[Member], clock: Clock, redact: Callable[[str], str]) -> None:
        self._members = members
        self._clock = clock
        self._redact = redact
        self._started = clock.now()
        self._turned_at = clock.monotonic()

    def note_turn(self) -> None:
        """Record a pass of the worker's loop."""
        self._turned_at = self._clock.monotonic()

    def stuck(self) -> list[str]:
        """Return the names of the repositories, and of the worker's loop, that should make progress but do not."""
        now = self._clock.monotonic()
        silent = [one.name for one in self._members if one.running and now - one.active_at > SILENT_SECONDS]
        return ["the worker's loop", *silent] if now - self._turned_at > LOOP_SECONDS else silent

    def state(self) -> dict[str, Any]:
        """Return the JSON of `/healthz`."""
        ended = [one.totals.last_at for one in self._members if one.totals.last_at]
        return {
            "status": "stuck" if self.stuck() else "ok",
            "started_at": _iso(self._started),
            "last_cycle_at": _iso(max(ended, default=None)),
            "repositories": [self._member(one) for one in self._members],
        }

    def _member(self, member: Member) -> dict[str, Any]:
        now = self._clock.now()
        state = member.state(now)
        paused = member.pause if state is MemberState.PAUSED else None
        reason = member.halted or (paused.reason if paused else None)
        return {
            "name": self._redact(member.name),
            "state": str(state),
            "last_outcome": member.totals.last_outcome,
            "paused_until": _iso(paused.until) if paused else None,
            "reason": self._redact(reason)[:_MOST_REASON_CHARS] if reason else None,
            "cycles": member.totals.cycles,
        }

    def metrics(self) -> str:
        """Return the text of `/metrics`."""
        totals = [(_label(self._redact(one.name)), one.totals) for one in self._members]
        lines = [
            "# HELP pullwright_cycles_total Cycles by outcome.",
            "# TYPE pullwright_cycles_total counter",
        ]
        for name, total in totals:
            lines += [
                f'pullwright_cycles_total{{repository="{name}",outcome="{outcome}"}} {number}'
                for outcome, number in sorted(total.outcomes.items())
            ]
        for metric, text, read in (
            ("usd_total", "US dollars spent, as far as prices are known.", "usd"),
            ("tokens_total", "Tokens, in and out.", "tokens"),
            ("forge_requests_total", "Requests to the forge.", "requests"),
            ("paused_seconds_total", "Seconds of pauses that began.", "paused_seconds"),
        ):
            lines += [f"# HELP pullwright_{metric} {text}", f"# TYPE pullwright_{metric} counter"]
            lines += [
                f'pullwright_{metric}{{repository="{name}"}} {getattr(total, read)}' for name, total in totals
            ]
        lines += ["# HELP pullwright_up Whether the worker makes progress.", "# TYPE pullwright_up gauge"]
        return "\n".join([*lines, f"pullwright_up {0 if self.stuck() else 1}", ""])


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _iso(when: datetime | None) -> str | None:
    return when.isoformat(timespec="seconds") if when else None
