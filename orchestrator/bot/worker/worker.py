"""Runs cycles on one repository: one, one after another, or whenever a schedule says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.journal.pauses import Pause
from orchestrator.bot.worker.pace import Again, Rest
from orchestrator.core.errors import PullwrightError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.worker.pace import Pace
    from orchestrator.bot.worker.waiting import Waiting
    from orchestrator.core.clock import Clock


class Tell(Protocol):
    """Told of every pause before it begins."""

    def __call__(self, pause: Pause, after: CycleResult | None) -> None:
        """Take a pause, and the cycle that it follows; None if an earlier run left it."""


def _nothing() -> None:
    pass


class Bell:
    """Remembers that a time of the schedule has come, once however often it came, and wakes who waits.

    Args:
        waiting: the wait that it ends.
        tell: called when somebody begins to wait for it.
    """

    def __init__(self, waiting: Waiting, tell: Callable[[], None]) -> None:
        self._waiting = waiting
        self._tell = tell
        self._rang = False

    def ring(self, name: str = "") -> None:
        """A time has come."""
        del name
        self._rang = True
        self._waiting.wake()

    async def heard(self, stop: Stop) -> None:
        """Wait until it rings or rang, or somebody asks for the end."""
        if not self._rang and not stop():
            self._tell()
        while not self._rang and not stop():
            await self._waiting.until(None)
        self._rang = False


@dataclass(slots=True)
class Rhythm:
    """When cycles begin.

    Attributes:
        bell: rings at the times of a schedule; None where there is none.
        left: the pause in which an earlier run ended, if it is not over.
        renew: called at each time of the schedule before work begins: what was tried may be tried again.
    """

    clock: Clock
    waiting: Waiting
    pace: Pace
    tell: Tell
    bell: Bell | None = None
    left: Pause | None = None
    renew: Callable[[], None] = _nothing

    async def pause(self, pause: Pause, stop: Stop, after: CycleResult | None = None) -> None:
        """Say until when, and wait; somebody who asks for the end ends it."""
        self.tell(pause, after)
        await self.rest(Again(pause.until), stop)

    async def heard(self, stop: Stop) -> bool:
        """Wait for the next time of the schedule; False where there is none."""
        if self.bell is None:
            return False
        await self.bell.heard(stop)
        self.renew()
        return True

    async def rest(self, again: Again, stop: Stop) -> None:
        """Wait until the next cycle may begin; a clock that is set back meanwhile makes it no longer."""
        end = self.clock.monotonic() + (again.at - self.clock.now()).total_seconds()
        while not stop() and self.clock.now() < again.at and self.clock.monotonic() < end:
            await self.waiting.until(again.at)


async def work(
    cycle: Callable[[], Awaitable[CycleResult]],
    report: Callable[[CycleResult], None],
    stop: Stop,
    rhythm: Rhythm | None = None,
    *,
    max_cycles: int | None = None,
) -> CycleResult | None:
    """Run cycles and report each as it ends.

    Without a schedule, a question ends it, and so does a backlog without tasks or a model that says
    there is none. With one, each time of the schedule begins work that goes on until there is
    nothing to do. Times that come meanwhile count as one. A pause is waited for in both cases.

    Args:
        cycle: runs the next cycle, on a clone of its own.
        report: told of every result.
        stop: once requested, no further cycle begins. Whoever requests it also wakes the wait.
        rhythm: when the next one begins; None runs a single cycle.
        max_cycles: the most cycles that are run, or None.

    Returns:
        The last cycle's result; None if the end was asked for before the first.

    Raises:
        PullwrightError: a single cycle could not even begin. Where there are more, that is a failed one.
    """
    if rhythm is not None and rhythm.left is not None:
        await rhythm.pause(rhythm.left, stop)
    if rhythm is not None:
        await rhythm.heard(stop)
    result: CycleResult | None = None
    done = 0
    while not stop():
        try:
            result = await cycle()
        except PullwrightError as error:
            if rhythm is None:
                raise
            result = CycleResult(None, Outcome.FAILED, error=str(error), cause=error)  # before it could begin
        done += 1
        report(result)
        if rhythm is None or stop() or done == max_cycles or not await _goes_on(result, rhythm, stop):
            break
    return result


async def _goes_on(result: CycleResult, rhythm: Rhythm, stop: Stop) -> bool:
    """Wait until it is time for the cycle after this one; whether there is one."""
    onward = rhythm.pace.after(result)
    if isinstance(onward, Rest) and onward.asked and rhythm.bell is not None:
        onward = rhythm.pace.again(result)
    match onward:
        case Again():
            await rhythm.rest(onward, stop)
        case Pause():
            await rhythm.pause(onward, stop, result)
        case Rest():
            return await rhythm.heard(stop)
        case _:
            return False
    return True
