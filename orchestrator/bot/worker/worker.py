"""Runs cycles on one repository: one, one after another, or whenever a schedule says so."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias

from orchestrator.bot.cycle.finish import says_no_task
from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.journal.index import Pause
from orchestrator.core.errors import (
    AuthenticationError,
    BadReplyError,
    ClaimLostError,
    ConfigurationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    EmptyRepositoryError,
    ForgeAuthenticationError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    GitMissingError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    PullwrightError,
    PushRejectedError,
    RemoteRateLimitError,
    RemoteRefusedError,
    RemoteUnavailableError,
    ResumableError,
    SpentQuotaError,
    ToolError,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.core.clock import Clock


LONGEST_SECONDS = 60.0
"""The time of day is read so often: a clock that was set, or a machine that slept, is noticed."""


def _do_nothing() -> None:
    pass


class Waiter:
    """Waits by the clock: the one place where a run does nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self._is_waiting = False

    @property
    def is_waiting(self) -> bool:
        """Whether somebody waits now."""
        return self._is_waiting

    def wake(self) -> None:
        """End the wait that is going on, or the next one."""
        self._woken.set()

    async def wait_until(self, when: datetime | None) -> None:
        """Wait until the time, or until `wake`; without a time until `wake` only.

        A clock that is set back meanwhile makes the wait no longer.
        """
        self._is_waiting = True
        try:
            begun, longest = self._clock.monotonic(), self._left(when)
            while not self._woken.is_set():
                left = min(self._left(when), longest - (self._clock.monotonic() - begun))
                if left <= 0:
                    return
                await self._pass(min(left, LONGEST_SECONDS))
            self._woken.clear()
        finally:
            self._is_waiting = False

    def _left(self, when: datetime | None) -> float:
        return math.inf if when is None else (when - self._clock.now()).total_seconds()

    async def _pass(self, seconds: float) -> None:
        both = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._woken.wait())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)


SHORT_MINUTES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""After something that passes by itself: an overload, no connection, GitHub away."""
LONG_MINUTES = (15.0, 30.0, 60.0, 120.0, 240.0, 360.0)
"""After a quota without a time, and after what nobody foresaw."""
TASKS_IN_A_ROW = 3
"""So many tasks may fail one after another, each for a reason of its own, until that is a reason to wait."""
_LONGEST_DAYS = 32  # quotas are of a month at most
_SPREAD = 0.25  # of a wait without a named end: machines that failed together come back one by one
_SPREAD_SECONDS = 30.0  # after the end that a server named

_NEEDS_PERSON = (
    AuthenticationError,
    PermissionDeniedError,
    ModelNotFoundError,
    ConfigurationError,
    ForgeAuthenticationError,
    ForgePermissionError,
    GitMissingError,
    EmptyRepositoryError,
    RemoteRefusedError,
)
_PASSING = (
    OverloadedError,
    ConnectionFailedError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    RemoteUnavailableError,
)
_OF_THE_TASK = (
    BadReplyError,
    ContextLengthError,
    ContentFilterError,
    InvalidRequestError,
    PushRejectedError,
    ClaimLostError,
    ForgeNotFoundError,
    ToolError,
)


@dataclass(frozen=True, slots=True)
class NeedsPerson:
    """The worker ends: only a person can help. The reason is one line and says what to do."""

    reason: str


def pause_after(
    error: BaseException | None, now: datetime, failures_in_a_row: int, jitter: float
) -> Pause | NeedsPerson | None:
    """What follows a cycle's error; None is that the next cycle may begin at once.

    =======================================  =====================================================
    error                                    what follows
    =======================================  =====================================================
    quota or rate limit                      a pause until the time that the server names, else
                                             15 minutes, 30, 60 ... 6 hours
    quota that only money brings back        `NeedsPerson`
    overload, connection, GitHub or remote   a pause until the named time, else 1 minute, 2, 4
    away, GitHub's rate limit                ... 30
    key, token, permission, configuration    `NeedsPerson`
    one task's own fault                     None; from the third in a row 15 minutes, 30 ...
    anything else (a full disk, git)         15 minutes, 30, 60 ... 6 hours
    =======================================  =====================================================

    A named time never makes a pause shorter than the short waits: a server whose times are of no
    use is not asked more and more often.

    Args:
        failures_in_a_row: cycles that failed one after another, this one included.
        jitter: from 0 up to 1; spreads workers that failed at the same moment.
    """
    if error is None:
        return None
    said = _line(error)
    if isinstance(error, SpentQuotaError) and error.resume_at is None:
        return NeedsPerson(f"the model's quota is spent and no time is named when it is free again: {said}")
    if isinstance(error, _NEEDS_PERSON):
        return NeedsPerson(said)
    if isinstance(error, _OF_THE_TASK):
        return _after_tasks(said, now, failures_in_a_row, jitter)
    return Pause(_until(error, now, failures_in_a_row, jitter), said)


def _after_tasks(said: str, now: datetime, failures_in_a_row: int, jitter: float) -> Pause | None:
    rest = failures_in_a_row - TASKS_IN_A_ROW + 1
    if rest < 1:
        return None
    several = f"{failures_in_a_row} cycles failed in a row, the last one so: {said}"
    return Pause(_later(now, LONG_MINUTES, rest, jitter), several)


def _until(error: BaseException, now: datetime, failures_in_a_row: int, jitter: float) -> datetime:
    named = error.resume_at if isinstance(error, ResumableError | ForgeRateLimitError) else None
    if named is None:
        steps = SHORT_MINUTES if isinstance(error, _PASSING) else LONG_MINUTES
        later = _later(now, steps, failures_in_a_row, jitter)
        asked = error.seconds if isinstance(error, RemoteRateLimitError) else 0.0
        return max(later, now + timedelta(seconds=asked))
    latest = now + timedelta(days=_LONGEST_DAYS)
    until = min(named + timedelta(seconds=_SPREAD_SECONDS * jitter), latest)
    return max(until, _later(now, SHORT_MINUTES, failures_in_a_row, jitter))


def _later(now: datetime, minutes: tuple[float, ...], number: int, jitter: float) -> datetime:
    step = minutes[min(max(number, 1), len(minutes)) - 1]
    return now + timedelta(minutes=step * (1 + _SPREAD * jitter))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


NOTHING_SECONDS = 10.0
"""A cycle after one that did nothing begins so much later at the earliest."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Another cycle may begin, not before this time."""

    at: datetime


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """There is nothing to do until something changes.

    Attributes:
        asked: because a person was asked; other tasks may be waiting.
        wake_at: when there may be something again though nothing changes, if that is known.
    """

    asked: bool = False
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EndAsked:
    """Somebody asked for the end."""


NextStep: TypeAlias = StartAgain | NothingToDo | Pause | NeedsPerson | EndAsked


class NextStepChooser:
    """Decides what follows each cycle of one repository, and counts those that failed one after another.

    Args:
        source: spreads workers that failed at the same moment.
    """

    def __init__(self, clock: Clock, source: random.Random) -> None:
        self._clock = clock
        self._source = source
        self._failures = 0

    def resume(self, failures: int) -> None:
        """Count on from here: the cycles before ran on another machine."""
        self._failures = failures

    def after(self, result: CycleResult) -> NextStep:
        """What follows this cycle. Never another one at once where this one did nothing."""
        match result.outcome:
            case Outcome.PAUSED | Outcome.FAILED:
                self._failures += 1
                return self._after_failure(result)
            case Outcome.INTERRUPTED:
                return EndAsked()
            case _:
                self._failures = 0
        if result.outcome is Outcome.QUESTION:
            return NothingToDo(asked=True, wake_at=result.wake_at)
        if result.outcome is Outcome.NO_TASK and (result.task is None or says_no_task(result)):
            return NothingToDo(wake_at=result.wake_at)
        return self.start_again(result)

    def start_again(self, result: CycleResult) -> StartAgain:
        """The next cycle, at once if this one did something."""
        did_nothing = result.rounds == 0 and result.pull_request is None
        return StartAgain(self._clock.now() + timedelta(seconds=NOTHING_SECONDS if did_nothing else 0))

    def _after_failure(self, result: CycleResult) -> NextStep:
        now = self._clock.now()
        step = pause_after(_cause(result), now, self._failures, self._source.random())
        if step is None:
            return self.start_again(result)
        if isinstance(step, Pause) and result.wake_at is not None:
            return Pause(max(step.until, result.wake_at), step.reason)
        return step


def _cause(result: CycleResult) -> BaseException:
    """Why a cycle failed; where that is no error, it is the fault of the task, if there was one."""
    if result.cause is not None:
        return result.cause
    said = result.error or result.reason or "the cycle came to nothing"
    of_the_task = result.outcome is Outcome.FAILED and result.task is not None
    return BadReplyError(said) if of_the_task else PullwrightError(said)


class OnPause(Protocol):
    """Told of every pause before it begins."""

    def __call__(self, pause: Pause, after: CycleResult | None) -> None:
        """Take a pause, and the cycle that it follows; None if an earlier run left it."""


class ScheduleSignal:
    """Remembers that a time of the schedule has come, once however often it came, and wakes who waits.

    Args:
        on_wait: called when somebody begins to wait for it.
    """

    def __init__(self, waiter: Waiter, on_wait: Callable[[], None]) -> None:
        self._waiter = waiter
        self._on_wait = on_wait
        self._has_come = False

    def notify(self) -> None:
        """Say that a time has come."""
        self._has_come = True
        self._waiter.wake()

    async def wait(self, stop: Stop) -> None:
        """Wait until a time comes, unless one came already, or until somebody asks for the end."""
        if not self._has_come and not stop():
            self._on_wait()
        while not self._has_come and not stop():
            await self._waiter.wait_until(None)
        self._has_come = False


@dataclass(slots=True)
class CycleTiming:
    """When cycles begin.

    Attributes:
        signal: set at the times of a schedule; None where there is none.
        left_pause: the pause in which an earlier run ended, if it is not over.
        renew: called at each time of the schedule before work begins: what was tried may be tried again.
    """

    clock: Clock
    waiter: Waiter
    next_steps: NextStepChooser
    on_pause: OnPause
    signal: ScheduleSignal | None = None
    left_pause: Pause | None = None
    renew: Callable[[], None] = _do_nothing

    async def pause(self, pause: Pause, stop: Stop, after: CycleResult | None = None) -> None:
        """Say until when, and wait; somebody who asks for the end ends it."""
        self.on_pause(pause, after)
        await self.wait_until(pause.until, stop)

    async def wait_for_schedule(self, stop: Stop) -> bool:
        """Wait for the next time of the schedule; False where there is none."""
        if self.signal is None:
            return False
        await self.signal.wait(stop)
        self.renew()
        return True

    async def wait_until(self, when: datetime, stop: Stop) -> None:
        """Wait until the next cycle may begin; a clock that is set back meanwhile makes it no longer."""
        end = self.clock.monotonic() + (when - self.clock.now()).total_seconds()
        while not stop() and self.clock.now() < when and self.clock.monotonic() < end:
            await self.waiter.wait_until(when)


async def work(
    cycle: Callable[[], Awaitable[CycleResult]],
    report: Callable[[CycleResult], None],
    stop: Stop,
    timing: CycleTiming | None = None,
    *,
    max_cycles: int | None = None,
) -> CycleResult | None:
    """Run cycles and report each as it ends.

    Without a schedule, a question ends it, and so does a backlog without tasks or a model that says
    there is none. With one, each time of the schedule begins work that goes on until there is
    nothing to do. Times that come meanwhile count as one. A pause is waited for in both cases.

    Args:
        cycle: runs the next cycle, on a clone of its own.
        stop: once requested, no further cycle begins. Whoever requests it also wakes the wait.
        timing: when the next one begins; None runs a single cycle.

    Returns:
        The last cycle's result; None if the end was asked for before the first.

    Raises:
        PullwrightError: a single cycle could not even begin. Where there are more, that is a failed one.
    """
    if timing is not None and timing.left_pause is not None:
        await timing.pause(timing.left_pause, stop)
    if timing is not None:
        await timing.wait_for_schedule(stop)
    result: CycleResult | None = None
    done = 0
    while not stop():
        try:
            result = await cycle()
        except PullwrightError as error:
            if timing is None:
                raise
            result = CycleResult(None, Outcome.FAILED, error=str(error), cause=error)  # before it could begin
        done += 1
        report(result)
        if timing is None or stop() or done == max_cycles or not await _goes_on(result, timing, stop):
            break
    return result


async def _goes_on(result: CycleResult, timing: CycleTiming, stop: Stop) -> bool:
    """Wait until it is time for the cycle after this one; whether there is one."""
    step = timing.next_steps.after(result)
    if isinstance(step, NothingToDo) and step.asked and timing.signal is not None:
        step = timing.next_steps.start_again(result)
    match step:
        case StartAgain():
            await timing.wait_until(step.at, stop)
        case Pause():
            await timing.pause(step, stop, result)
        case NothingToDo():
            return await timing.wait_for_schedule(stop)
        case _:
            return False
    return True
