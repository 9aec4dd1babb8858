"""Runs cycles: one, or one after another until there is a reason to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.errors import BadReplyError
from orchestrator.cycle.cycle import says_no_task
from orchestrator.cycle.result import CycleResult, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.cycle.parts import Stop


async def work(
    cycle: Callable[[], Awaitable[CycleResult]],
    report: Callable[[CycleResult], None],
    stop: Stop,
    *,
    continuous: bool,
    max_cycles: int | None,
) -> CycleResult:
    """Run cycles and report each as it ends.

    Args:
        cycle: runs the next cycle, on a clone of its own.
        report: told of every result.
        stop: once requested, no further cycle begins.
        continuous: go on after a cycle that leaves something to do.
        max_cycles: the most cycles that are run, or None.

    Returns:
        The last cycle's result.
    """
    done = 0
    while True:
        result = await cycle()
        done += 1
        report(result)
        if not continuous or stop.requested or done == max_cycles or not goes_on(result):
            return result


def goes_on(result: CycleResult) -> bool:
    """Whether continuous mode begins another cycle after this one.

    A question ends it, and so does a backlog without tasks or a model that says there is none.
    What fails outside the task (provider, GitHub, git) would fail again; a model that cannot
    do one task may do the next.
    """
    match result.outcome:
        case Outcome.PROPOSED | Outcome.LIMIT:
            return True
        case Outcome.NO_TASK:
            return result.task is not None and not says_no_task(result)
        case Outcome.FAILED:
            return isinstance(result.cause, BadReplyError) or (
                result.cause is None and result.task is not None
            )
        case Outcome.PLANNED:
            return True
        case Outcome.QUESTION | Outcome.INTERRUPTED:
            return False
