"""What follows a cycle: another at once, a pause, a rest, or the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.bot.cycle.finish import says_no_task
from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.journal.pauses import Pause
from orchestrator.bot.worker.pauses import Halt, pause_after
from orchestrator.core.errors import BadReplyError, PullwrightError

if TYPE_CHECKING:
    import random
    from datetime import datetime

    from orchestrator.core.clock import Clock

NOTHING_SECONDS = 10.0
"""A cycle after one that did nothing begins so much later at the earliest."""


@dataclass(frozen=True, slots=True)
class Again:
    """Another cycle may begin, not before this time."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do until something changes.

    Attributes:
        asked: because a person was asked; other tasks may be waiting.
        wake_at: when there may be something again though nothing changes, if that is known.
    """

    asked: bool = False
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """Somebody asked for the end."""


Onward: TypeAlias = Again | Rest | Pause | Halt | Ended


class Pace:
    """Decides what follows each cycle of one repository, and counts those that failed one after another.

    Args:
        clock: the time.
        source: spreads workers that failed at the same moment.
    """

    def __init__(self, clock: Clock, source: random.Random) -> None:
        self._clock = clock
        self._source = source
        self._failures = 0

    def after(self, result: CycleResult) -> Onward:
        """What follows this cycle. Never another one at once where this one did nothing."""
        match result.outcome:
            case Outcome.PAUSED | Outcome.FAILED:
                self._failures += 1
                return self._after_failure(result)
            case Outcome.INTERRUPTED:
                return Ended()
            case _:
                self._failures = 0
        if result.outcome is Outcome.QUESTION:
            return Rest(asked=True, wake_at=result.wake_at)
        if result.outcome is Outcome.NO_TASK and (result.task is None or says_no_task(result)):
            return Rest(wake_at=result.wake_at)
        return self.again(result)

    def again(self, result: CycleResult) -> Again:
        """The next cycle, at once if this one did something."""
        did_nothing = result.rounds == 0 and result.pull_request is None
        return Again(self._clock.now() + timedelta(seconds=NOTHING_SECONDS if did_nothing else 0))

    def _after_failure(self, result: CycleResult) -> Onward:
        now = self._clock.now()
        onward = pause_after(_cause(result), now, self._failures, self._source.random())
        if onward is None:
            return self.again(result)
        if isinstance(onward, Pause) and result.wake_at is not None:
            return Pause(max(onward.until, result.wake_at), onward.reason)
        return onward


def _cause(result: CycleResult) -> BaseException:
    """Why a cycle failed; where that is no error, it is the fault of the task, if there was one."""
    if result.cause is not None:
        return result.cause
    said = result.error or result.reason or "the cycle came to nothing"
    of_the_task = result.outcome is Outcome.FAILED and result.task is not None
    return BadReplyError(said) if of_the_task else PullwrightError(said)
