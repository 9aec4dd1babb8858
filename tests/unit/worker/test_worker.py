from __future__ import annotations

import pytest

from orchestrator.core.errors import BadReplyError, ForgeError
from orchestrator.cycle.parts import Stop
from orchestrator.cycle.result import CycleResult, Outcome
from orchestrator.cycle.tasks import from_text
from orchestrator.worker.worker import goes_on, work

TASK = from_text("a task")


def result(outcome: Outcome, **fields: object) -> CycleResult:
    made = CycleResult("run", outcome, task=TASK)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (result(Outcome.PROPOSED), True),
        (result(Outcome.PLANNED), True),
        (result(Outcome.LIMIT), True),
        (result(Outcome.QUESTION), False),
        (result(Outcome.INTERRUPTED), False),
        (result(Outcome.NO_TASK, task=None), False),
        (result(Outcome.NO_TASK, reason="Nothing needs to change."), True),
        (result(Outcome.NO_TASK, reason="No tasks were found."), False),
        (result(Outcome.NO_TASK, reason="no eligible task"), False),
        (result(Outcome.FAILED, cause=BadReplyError("x")), True),
        (result(Outcome.FAILED, cause=ForgeError("x")), False),
        (result(Outcome.FAILED, cause=ZeroDivisionError("x")), False),
    ],
)
def test_what_ends_continuous_mode(ended: CycleResult, *, expected: bool) -> None:
    assert goes_on(ended) is expected


class Script:
    """Plays results in order and remembers how many were asked for."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.left = list(outcomes)

    async def __call__(self) -> CycleResult:
        return result(self.left.pop(0))


async def test_single_mode_runs_one_cycle() -> None:
    cycles = Script(Outcome.PROPOSED, Outcome.PROPOSED)
    await work(cycles, lambda _: None, Stop(), continuous=False, max_cycles=None)
    assert len(cycles.left) == 1


async def test_continuous_mode_reports_each_cycle_until_a_question() -> None:
    cycles = Script(Outcome.PROPOSED, Outcome.LIMIT, Outcome.QUESTION, Outcome.PROPOSED)
    seen: list[Outcome] = []
    last = await work(
        cycles, lambda ended: seen.append(ended.outcome), Stop(), continuous=True, max_cycles=None
    )
    assert seen == [Outcome.PROPOSED, Outcome.LIMIT, Outcome.QUESTION]
    assert last.outcome is Outcome.QUESTION


async def test_continuous_mode_ends_at_the_most_cycles_or_when_stopped() -> None:
    cycles = Script(*[Outcome.PROPOSED] * 5)
    await work(cycles, lambda _: None, Stop(), continuous=True, max_cycles=2)
    assert len(cycles.left) == 3
    stop = Stop()
    await work(cycles, lambda _: stop.request(), stop, continuous=True, max_cycles=None)
    assert len(cycles.left) == 2
