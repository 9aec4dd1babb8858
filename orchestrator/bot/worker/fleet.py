"""Many repositories, one worker: each in its turn, none held up by another."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.journal.index import Pause
from orchestrator.bot.worker.worker import Again, Ended, Halt, Pace, Rest
from orchestrator.core.errors import PullwrightError, RateLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import Onward, Waiting
    from orchestrator.core.clock import Clock


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


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Runner(Protocol):
    """What runs the cycles of one repository."""

    stop: Stop

    async def cycle(self) -> CycleResult:
        """Run the next cycle."""

    def forget(self) -> None:
        """What was tried before may be tried again."""

    async def close(self) -> None:
        """Let go of connections."""


@dataclass(slots=True)
class Member:
    """A repository of the fleet.

    Attributes:
        name: as the file names it.
        build: makes what runs its cycles; called in a thread. May raise `PullwrightError`.
        quota: members with the same one share a model and its key, so that one's rate limit is the other's.
        schedule: when it is looked at.
        pace: what follows its cycles.
        left: the pause in which an earlier worker left it.
        due: it has something to do, or its time has come.
        not_before: no cycle before this time.
        pause: why, if that is more than a moment.
        halted: why no cycle is run any more.
        rang: its time came while a cycle ran.
        fresh: its time came while it had nothing to do: what it tried before may be tried again.
    """

    name: str
    build: Callable[[], Runner]
    quota: str
    schedule: Schedule
    pace: Pace
    left: Pause | None = None
    due: bool = False
    not_before: datetime = _LONG_AGO
    pause: Pause | None = None
    halted: str | None = None
    runner: Runner | None = None
    running: bool = False
    rang: bool = False
    fresh: bool = False
    heard_at: float = 0.0
    tally: Tally = field(default_factory=Tally)

    def state(self, now: datetime) -> State:
        """What it is doing."""
        if self.halted is not None:
            return State.DISABLED
        if self.running:
            return State.RUNNING
        if self.pause is not None and self.pause.until > now:
            return State.PAUSED
        return State.DUE if self.due else State.IDLE

    def next_at(self, now: datetime) -> datetime | None:
        """When its next cycle begins at the earliest."""
        if self.halted is not None:
            return None
        begins = now if self.due else self.schedule.next_fire(now)
        return max(begins, self.not_before)


class Fleet:
    """Runs the cycles of its members, in turns among those that are due.

    Args:
        members: in the order of the file.
        clock: the time.
        waiting: how it waits; woken by alarms, ends of cycles and people.
        stop: once requested, no further cycle begins and those that run end after their round.
        report: told of every result, and of what follows.
        parallel: the most cycles at a time.
        once: one cycle for each, then the end.
    """

    def __init__(  # noqa: PLR0913  what differs between a test and a machine
        self,
        members: Iterable[Member],
        clock: Clock,
        waiting: Waiting,
        stop: Stop,
        report: Callable[[Member, CycleResult, Onward], None],
        *,
        parallel: int = 1,
        once: bool = False,
    ) -> None:
        self.members = tuple(members)
        self._turns = deque(self.members)
        self._clock = clock
        self._waiting = waiting
        self._stop = stop
        self._report = report
        self._parallel = parallel
        self._once = once
        self._running: set[asyncio.Task[None]] = set()
        for member in self.members:
            member.due = once
            if member.left is not None and not once:
                self._pauses(member, member.left)

    def ring(self, name: str) -> None:
        """The time of a member's schedule has come."""
        for member in self.members:
            if member.name == name and not self._once:
                self._rings(member)
        self._waiting.wake()

    def _rings(self, member: Member) -> None:
        if member.running:
            member.rang = True
            return
        member.fresh = member.fresh or not member.due
        member.due = True

    def request_stop(self) -> None:
        """End after the rounds that are running."""
        self._stop.request()
        for member in self.members:
            if member.runner is not None:
                member.runner.stop.request()
        self._waiting.wake()

    def stop_at_once(self) -> None:
        """End now; cycles still keep their work."""
        self._stop.at_once()
        for member in self.members:
            if member.runner is not None:
                member.runner.stop.at_once()
        for task in self._running:
            task.cancel()
        self._waiting.wake()

    async def run(self) -> None:
        """Run cycles until somebody asks for the end, or nothing is left that could run."""
        try:
            while not self._stop():
                while len(self._running) < self._parallel and (member := self._next()):
                    self._begin(member)
                if not self._running and self._over():
                    break
                await self._waiting.until(self._wake_at())
            await self._all_ended()
        finally:
            for member in self.members:
                await self._close(member)

    async def _all_ended(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def _next(self) -> Member | None:
        """The member whose turn it is: the one that waits longest of those that may begin."""
        now = self._clock.now()
        ready = (one for one in self._turns if one.due and not one.running and not one.halted)
        member = next((one for one in ready if one.not_before <= now), None)
        if member is not None:
            self._turns.remove(member)
            self._turns.append(member)
        return member

    def _over(self) -> bool:
        return all(one.halted is not None or (self._once and not one.due) for one in self.members)

    def _wake_at(self) -> datetime | None:
        """When the next member may begin that is due. With all hands busy, an end of a cycle wakes."""
        if len(self._running) >= self._parallel:
            return None
        times = [one.not_before for one in self.members if one.due and not one.running and not one.halted]
        return min(times, default=None)

    def _begin(self, member: Member) -> None:
        member.running, member.due, member.pause = True, False, None
        member.heard_at = self._clock.monotonic()
        task = asyncio.ensure_future(self._cycle(member))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._waiting.wake()

    async def _cycle(self, member: Member) -> None:
        """One cycle and what follows."""
        try:
            result = await self._result(member)
        except asyncio.CancelledError:
            if not self._stop():
                raise
            result = CycleResult(None, Outcome.INTERRUPTED)
        finally:
            member.running = False
        member.tally.count(result, self._clock.now())
        onward = member.pace.after(result)
        self._follow(member, result, onward)
        self._report(member, result, onward)
        if member.halted is not None or (member.runner is not None and member.runner.stop()):
            await self._close(member)  # a journal that cannot be written asks for an end of its own

    async def _result(self, member: Member) -> CycleResult:
        try:
            if member.runner is None:
                member.runner = await asyncio.to_thread(member.build)
            if self._stop():  # asked for while it was built
                return CycleResult(None, Outcome.INTERRUPTED)
            if member.fresh:
                member.fresh = False
                member.runner.forget()
            return await member.runner.cycle()
        except PullwrightError as error:
            return CycleResult(None, Outcome.FAILED, error=str(error), cause=error)
        except Exception as error:  # noqa: BLE001  border: a defect in one repository is not that of others
            said = f"internal error, please report it: {type(error).__name__}: {error}"
            return CycleResult(None, Outcome.FAILED, error=said, cause=error)

    def _follow(self, member: Member, result: CycleResult, onward: Onward) -> None:
        member.due = False
        match onward:
            case Rest(asked=True):
                self._again(member, member.pace.again(result))
            case Again():
                self._again(member, onward)
            case Pause():
                for one in self.sharing(member, result):
                    self._pauses(one, onward)
                member.due = not self._once  # the work goes on that was begun
            case Halt():
                for one in self.sharing(member, result):
                    one.halted, one.due = onward.reason, False
            case Rest() | Ended():
                if member.rang:
                    self._rings(member)
        member.rang = False

    def _again(self, member: Member, again: Again) -> None:
        member.due = not self._once
        member.not_before = max(member.not_before, again.at)

    def sharing(self, member: Member, result: CycleResult) -> list[Member]:
        """Whom a cycle's end concerns: a limit of the model's key concerns all that live on it."""
        if self._once or not isinstance(result.cause, RateLimitError):
            return [member]
        return [one for one in self.members if one is member or one.quota == member.quota]

    def _pauses(self, member: Member, pause: Pause) -> None:
        """Nothing before the end of the pause."""
        if member.halted is None and pause.until > member.not_before:
            member.tally.pauses(max(self._clock.now(), member.not_before), pause.until)
            member.pause, member.not_before = pause, pause.until

    async def _close(self, member: Member) -> None:
        runner, member.runner = member.runner, None
        if runner is not None:
            with contextlib.suppress(PullwrightError, OSError):
                await runner.close()
