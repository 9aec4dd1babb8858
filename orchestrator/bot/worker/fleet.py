"""Many repositories, one worker: each in its turn, none held up by another."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.cycle.parts import Assignment, CycleResult, Outcome
from orchestrator.bot.journal.index import Pause
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson, NextStepChooser, NothingToDo, StartAgain
from orchestrator.core.errors import PullwrightError, RateLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStep, Waiter
    from orchestrator.core.clock import Clock


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class MemberState(StrEnum):
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
class MemberTotals:
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

    def add_pause(self, begin: datetime, end: datetime) -> None:
        """Add a pause."""
        self.paused_seconds += max((end - begin).total_seconds(), 0.0)


class Runner(Protocol):
    """What runs the cycles of one repository."""

    stop: Stop

    @property
    def attempted(self) -> set[str]:
        """What is not tried again before `forget`."""

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008  a frozen value
        """Run the next cycle."""

    def forget(self) -> None:
        """What was tried before may be tried again."""

    async def close(self) -> None:
        """Close connections."""


@dataclass(slots=True)
class Member:
    """A repository of the fleet.

    Attributes:
        build: makes what runs its cycles; called in a thread. May raise `PullwrightError`.
        quota: names a model and its key; a rate limit of one member holds for all with the same quota.
        schedule: when it is looked at.
        next_steps: what follows its cycles.
        left_pause: the pause in which an earlier worker left it.
        most_usd: what a cycle can cost at most, as far as its settings say.
        due: it has something to do, or its time has come.
        not_before: no cycle before this time.
        pause: why, if that is more than a moment.
        halted: why no cycle is run any more.
        is_due_again: its time came while a cycle ran.
        is_renewed: its time came while it had nothing to do: what it tried before may be tried again.
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
    is_due_again: bool = False
    is_renewed: bool = False
    active_at: float = 0.0
    totals: MemberTotals = field(default_factory=MemberTotals)

    def state(self, now: datetime) -> MemberState:
        """What it is doing."""
        if self.halted is not None:
            return MemberState.DISABLED
        if self.running:
            return MemberState.RUNNING
        if self.pause is not None and self.pause.until > now:
            return MemberState.PAUSED
        return MemberState.DUE if self.due else MemberState.IDLE

    def next_at(self, now: datetime) -> datetime | None:
        """When its next cycle begins at the earliest."""
        if self.halted is not None:
            return None
        begins = now if self.due else self.schedule.next_fire(now)
        return max(begins, self.not_before)


class Fleet:
    """Runs the cycles of its members, in turns among those that are due.

    Args:
        waiting: woken by alarms, ends of cycles and people.
        stop: once requested, no further cycle begins and those that run end after their round.
        report: told of every result, and of what follows.
        once: one cycle for each, then the end.
    """

    def __init__(  # noqa: PLR0913  what differs between a test and a machine
        self,
        members: Iterable[Member],
        clock: Clock,
        waiting: Waiter,
        stop: Stop,
        report: Callable[[Member, CycleResult, NextStep], None],
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
            if member.left_pause is not None and not once:
                self._begin_pause(member, member.left_pause)

    def notify(self, name: str) -> None:
        """The time of a member's schedule has come."""
        for member in self.members:
            if member.name == name and not self._once:
                self._make_due(member)
        self._waiting.wake()

    def _make_due(self, member: Member) -> None:
        if member.running:
            member.is_due_again = True
            return
        member.is_renewed = member.is_renewed or not member.due
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
                await self._waiting.wait_until(self._wake_at())
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
        member.active_at = self._clock.monotonic()
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
        member.totals.count(result, self._clock.now())
        step = member.next_steps.after(result)
        self._follow(member, result, step)
        self._report(member, result, step)
        if member.halted is not None or (member.runner is not None and member.runner.stop()):
            await self._close(member)  # a journal that cannot be written asks for an end of its own

    async def _result(self, member: Member) -> CycleResult:
        try:
            if member.runner is None:
                member.runner = await asyncio.to_thread(member.build)
            if self._stop():  # asked for while it was built
                return CycleResult(None, Outcome.INTERRUPTED)
            if member.is_renewed:
                member.is_renewed = False
                member.runner.forget()
            return await member.runner.cycle()
        except PullwrightError as error:
            return CycleResult(None, Outcome.FAILED, error=str(error), cause=error)
        except Exception as error:  # noqa: BLE001  border: a defect in one repository is not that of others
            said = f"internal error, please report it: {type(error).__name__}: {error}"
            return CycleResult(None, Outcome.FAILED, error=said, cause=error)

    def _follow(self, member: Member, result: CycleResult, step: NextStep) -> None:
        member.due = False
        match step:
            case NothingToDo(asked=True):
                self._again(member, member.next_steps.start_again(result))
            case StartAgain():
                self._again(member, step)
            case Pause():
                for one in self.sharing(member, result):
                    self._begin_pause(one, step)
                member.due = not self._once  # the work goes on that was begun
            case NeedsPerson():
                for one in self.sharing(member, result):
                    one.halted, one.due = step.reason, False
            case NothingToDo() | EndAsked():
                if member.is_due_again:
                    self._make_due(member)
        member.is_due_again = False

    def _again(self, member: Member, again: StartAgain) -> None:
        member.due = not self._once
        member.not_before = max(member.not_before, again.at)

    def sharing(self, member: Member, result: CycleResult) -> list[Member]:
        """Whom a cycle's end concerns: a limit of the model's key concerns all that live on it."""
        if self._once or not isinstance(result.cause, RateLimitError):
            return [member]
        return [one for one in self.members if one is member or one.quota == member.quota]

    def _begin_pause(self, member: Member, pause: Pause) -> None:
        """Nothing before the end of the pause."""
        if member.halted is None and pause.until > member.not_before:
            member.totals.add_pause(max(self._clock.now(), member.not_before), pause.until)
            member.pause, member.not_before = pause, pause.until

    async def _close(self, member: Member) -> None:
        runner, member.runner = member.runner, None
        if runner is not None:
            with contextlib.suppress(PullwrightError, OSError):
                await runner.close()
