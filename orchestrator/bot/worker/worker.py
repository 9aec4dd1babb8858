"""Runs cycles on one repository: a single one, one after another, or at the times of a schedule."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.bot.cycle.finish import says_no_task
from orchestrator.bot.cycle.parts import TASK_ERRORS, TEMPORARY_ERRORS, CycleResult, Outcome
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.core.errors import (
    AuthenticationError,
    BadReplyError,
    ClaimLostError,
    ConfigurationError,
    EmptyRepositoryError,
    ForgeAuthenticationError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeRejectedError,
    ForgeUnreadError,
    GitMissingError,
    ModelNotFoundError,
    PermissionDeniedError,
    PullwrightError,
    PushRejectedError,
    RemoteRateLimitError,
    RemoteRefusedError,
    ResumableError,
    SpentQuotaError,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.core.clock import Clock


LONGEST_SECONDS = 60.0
"""The longest time between two readings of the clock, so that a set clock or a machine's sleep is noticed."""


class Waiter:
    """Waits by the clock. This is the only place where a run is idle.

    Attributes:
        is_waiting: whether a wait is in progress.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self.is_waiting = False

    def wake(self) -> None:
        """End the wait in progress, or else the next one."""
        self._woken.set()

    async def wait(self, seconds: float = LONGEST_SECONDS) -> None:
        """Wait for some seconds, but at most `LONGEST_SECONDS`, or until `wake` is called."""
        sleep = self._clock.sleep(min(seconds, LONGEST_SECONDS))
        both = [asyncio.ensure_future(sleep), asyncio.ensure_future(self._woken.wait())]
        self.is_waiting = True
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_waiting = False
            self._woken.clear()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)


SHORT_MINUTES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits after errors that pass by themselves: an overload, no connection, GitHub unavailable."""
LONG_MINUTES = (15.0, 30.0, 60.0, 120.0, 240.0, 360.0)
"""Waits after a quota error that names no time, and after unexpected errors."""
TASKS_IN_A_ROW = 3
"""The worker pauses when this many tasks fail in a row, each through its own fault."""
_MOST_UNREAD = 3
"""Looks in a row after which what cannot be read is left to a person, as if there were nothing to do."""
_LONGEST_DAYS = 32  # quotas renew at least once a month
_SPREAD = 0.25  # most that is added to a wait without a named end, so that machines do not return all at once
_SPREAD_SECONDS = 30.0  # added to the time that a server named

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
_OWN_FAULTS = (*TASK_ERRORS, PushRejectedError, ClaimLostError, ForgeNotFoundError, ForgeRejectedError)
"""Errors that concern one task, so that another task may succeed."""


@dataclass(frozen=True, slots=True)
class NeedsPerson:
    """The worker ends because only a person can help. The reason is one line and says what to do."""

    reason: str


def pause_after(
    error: BaseException | None, now: datetime, failures_in_a_row: int, jitter: float
) -> Pause | NeedsPerson | None:
    """Return what follows a cycle's error; None means that the next cycle may begin at once.

    - A quota or rate limit: a pause until the time that the server names, else 15 minutes, 30, 60 ... 6 hours.
    - A quota that only money renews: `NeedsPerson`.
    - An overload, no connection, GitHub or the remote unavailable, GitHub's rate limit, something on the forge
      that could not be read: a pause until the named time, else 1 minute, 2, 4 ... 30.
    - Key, token, permission, configuration: `NeedsPerson`.
    - One task's own fault: None; from the third in a row a pause of 15 minutes, 30 ... 6 hours.
    - Anything else, such as a full disk: a pause of 15 minutes, 30, 60 ... 6 hours.

    A named time never makes a pause shorter than the short waits. Otherwise a server that names useless times
    would be asked more and more often.

    Args:
        failures_in_a_row: cycles that failed one after another, including this one.
        jitter: from 0 up to 1; spreads workers that failed at the same moment.
    """
    if error is None:
        return None
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, SpentQuotaError) and error.resume_at is None:
        return NeedsPerson(
            f"the model's quota is used up, and the server does not say when it renews: {message}"
        )
    if isinstance(error, _NEEDS_PERSON):
        return NeedsPerson(message)
    if isinstance(error, _OWN_FAULTS):
        rest = failures_in_a_row - TASKS_IN_A_ROW + 1
        if rest < 1:
            return None
        several = f"{failures_in_a_row} cycles failed in a row, the last one with: {message}"
        return Pause(_later(now, LONG_MINUTES, rest, jitter), several)
    return Pause(_until(error, now, failures_in_a_row, jitter), message)


def _until(error: BaseException, now: datetime, failures_in_a_row: int, jitter: float) -> datetime:
    named = error.resume_at if isinstance(error, ResumableError | ForgeRateLimitError) else None
    if named is None:
        is_short = isinstance(error, (*TEMPORARY_ERRORS, ForgeUnreadError))
        steps = SHORT_MINUTES if is_short else LONG_MINUTES
        later = _later(now, steps, failures_in_a_row, jitter)
        asked = error.seconds if isinstance(error, RemoteRateLimitError) else 0.0
        return max(later, now + timedelta(seconds=asked))
    latest = now + timedelta(days=_LONGEST_DAYS)
    until = min(named + timedelta(seconds=_SPREAD_SECONDS * jitter), latest)
    return max(until, _later(now, SHORT_MINUTES, failures_in_a_row, jitter))


def _later(now: datetime, minutes: tuple[float, ...], number: int, jitter: float) -> datetime:
    step = minutes[min(max(number, 1), len(minutes)) - 1]
    return now + timedelta(minutes=step * (1 + _SPREAD * jitter))


NOTHING_SECONDS = 10.0
"""The shortest delay between a cycle that did nothing and the next one."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Another cycle may begin, not before this time."""

    at: datetime


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """There is nothing to do until something changes.

    Attributes:
        wake_at: when there may be work again without any change, if known.
    """

    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EndAsked:
    """A person or the system asked the worker to end."""


NextStep: TypeAlias = StartAgain | NothingToDo | Pause | NeedsPerson | EndAsked


class NextStepChooser:
    """Decides what follows each cycle of one repository, and counts consecutive failures.

    Args:
        source: randomness that spreads workers that failed at the same moment.
    """

    def __init__(self, clock: Clock, source: random.Random) -> None:
        self._clock = clock
        self._source = source
        self._failures = 0

    def resume(self, failures: int) -> None:
        """Continue counting from this number of failures, which happened on another machine."""
        self._failures = failures

    def after(self, result: CycleResult) -> NextStep:
        """Return what follows this cycle. A cycle that did nothing is never followed by another one at once."""
        match result.outcome:
            case Outcome.PAUSED | Outcome.FAILED:
                self._failures += 1
                return self._after_failure(result)
            case Outcome.INTERRUPTED:
                return EndAsked()
            case _:
                self._failures = 0
        if result.outcome is Outcome.NO_TASK and (result.task is None or says_no_task(result)):
            return NothingToDo(wake_at=result.wake_at)
        return self.start_again(result)

    def start_again(self, result: CycleResult) -> StartAgain:
        """Return when the next cycle begins: at once if this one did something, else after `NOTHING_SECONDS`."""
        did_nothing = result.rounds == 0 and result.pull_request is None
        return StartAgain(self._clock.now() + timedelta(seconds=NOTHING_SECONDS if did_nothing else 0))

    def _after_failure(self, result: CycleResult) -> NextStep:
        now = self._clock.now()
        if isinstance(result.cause, ForgeUnreadError) and self._failures >= _MOST_UNREAD:
            return NothingToDo(wake_at=now + timedelta(minutes=LONG_MINUTES[0]))
        step = pause_after(_cause(result), now, self._failures, self._source.random())
        if step is None:
            return self.start_again(result)
        if isinstance(step, Pause) and result.wake_at is not None:
            return Pause(max(step.until, result.wake_at), step.reason)
        return step


def _cause(result: CycleResult) -> BaseException:
    """Return the error that made a cycle fail. A failed task without an error counts as the task's own fault."""
    if result.cause is not None:
        return result.cause
    message = result.error or result.reason or "the cycle ended without a result"
    is_own_fault = result.outcome is Outcome.FAILED and result.task is not None
    return BadReplyError(message) if is_own_fault else PullwrightError(message)


OnPause: TypeAlias = "Callable[[Pause, CycleResult | None], None]"
"""Receives each pause before it begins, and the cycle before it; None if an earlier run left the pause."""


class ScheduleSignal:
    """Remembers that a time of the schedule has come, and wakes the waiter. Several times count as one.

    Args:
        on_wait: called when a wait for the signal begins.
    """

    def __init__(self, waiter: Waiter, on_wait: Callable[[], None]) -> None:
        self._waiter = waiter
        self._on_wait = on_wait
        self._has_come = False

    def notify(self) -> None:
        """Record that a time has come, and wake the waiter."""
        self._has_come = True
        self._waiter.wake()

    async def wait(self, stop: Stop) -> None:
        """Wait until a time comes or `stop` is requested. Return at once if a time has come already."""
        if not self._has_come and not stop():
            self._on_wait()
        while not self._has_come and not stop():
            await self._waiter.wait()
        self._has_come = False


@dataclass(slots=True)
class CycleTiming:
    """When cycles begin.

    Attributes:
        signal: set at the times of a schedule; None without a schedule.
        left_pause: the pause that an earlier run was in when it ended, if it is not over.
        renew: called at each time of the schedule before work begins; makes attempted tasks available again.
    """

    clock: Clock
    waiter: Waiter
    next_steps: NextStepChooser
    on_pause: OnPause
    signal: ScheduleSignal | None = None
    left_pause: Pause | None = None
    renew: Callable[[], object] = lambda: None

    async def pause(self, pause: Pause, stop: Stop, after: CycleResult | None = None) -> None:
        """Report the pause, and wait until it is over or `stop` is requested."""
        self.on_pause(pause, after)
        await self.wait_until(pause.until, stop)

    async def wait_for_schedule(self, stop: Stop) -> bool:
        """Wait for the next time of the schedule. Return False at once if there is no schedule."""
        if self.signal is None:
            return False
        await self.signal.wait(stop)
        self.renew()
        return True

    async def wait_until(self, when: datetime, stop: Stop) -> None:
        """Wait until the next cycle may begin, or until `stop` is requested.

        Setting the clock back meanwhile does not make the wait longer.
        """
        end = self.clock.monotonic() + (when - self.clock.now()).total_seconds()
        while not stop():
            left = min((when - self.clock.now()).total_seconds(), end - self.clock.monotonic())
            if left <= 0:
                return
            await self.waiter.wait(left)


async def work(
    cycle: Callable[[], Awaitable[CycleResult]],
    report: Callable[[CycleResult], None],
    stop: Stop,
    timing: CycleTiming | None = None,
    *,
    max_cycles: int | None = None,
) -> CycleResult | None:
    """Run cycles and report each as it ends.

    Without a schedule, the work ends with a backlog without tasks, or when the model says that there is none. A
    task with a question waits for its answer, and the next one begins. With a schedule, each of its times begins work that continues until there is nothing
    to do; times that come during the work count as one. In both cases pauses are waited for.

    Args:
        cycle: runs the next cycle, on its own clone.
        stop: once requested, no further cycle begins. The requester also wakes the waiter.
        timing: when the next cycle begins; None runs a single cycle.

    Returns:
        The last cycle's result; None if `stop` was requested before the first cycle.

    Raises:
        PullwrightError: the only cycle could not begin. With `timing`, such a cycle counts as failed instead.
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
            result = CycleResult(None, Outcome.FAILED, error=str(error), cause=error)
        done += 1
        report(result)
        if timing is None or stop() or done == max_cycles or not await _wait_for_next(result, timing, stop):
            break
    return result


async def _wait_for_next(result: CycleResult, timing: CycleTiming, stop: Stop) -> bool:
    """Wait until the next cycle may begin, and return whether there is one."""
    step = timing.next_steps.after(result)
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
