"""What limits turns, over a real database, with cycles that were written beforehand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.parts import Assignment, CycleResult, Outcome, Stop
from orchestrator.bot.forge.base import RequestQuota
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import NextStepChooser
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.plugins.fleet.store import FleetStore
from orchestrator.plugins.fleet.turns import DailyCost, Following, RepositoryTurn
from orchestrator.plugins.worker.engine import FleetWorker
from orchestrator.plugins.worker.members import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = "github.com/o/a", "github.com/o/b"
NAME = "api.github.com installation 7"


class WrittenCycles:
    """Finds nothing to do, and was told by the forge what is left of a quota."""

    def __init__(self, quotas: Sequence[RequestQuota]) -> None:
        self.stop = Stop()
        self.attempted: set[str] = set()
        self.cycles = 0
        self._quotas = quotas

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008
        self.cycles += 1
        return CycleResult(assignment.run, Outcome.NO_TASK, quotas=self._quotas)

    def forget(self) -> None:
        self.attempted.clear()

    async def close(self) -> None:
        """Nothing is open."""


def member(name: str, runner: WrittenCycles) -> Member:
    clock, source = SystemClock(), random.SystemRandom()
    schedule = make_schedule("1h", None, "UTC", datetime.now(UTC))
    assert schedule is not None
    return Member(name, lambda: runner, "quota", schedule, NextStepChooser(clock, source))


def test_what_cycles_cost_is_kept_by_repository_and_day(fleet_database: str) -> None:
    now = datetime.now(UTC).replace(hour=12)
    for back, usd in ((40, 9.0), (1, 0.5), (1, 0.25), (0, None)):
        store = FleetStore(fleet_database, ManualClock(now - timedelta(days=back)))
        store.open()
        turn = RepositoryTurn(A, 1, f"issue-{back}-{usd}", 1)
        store.limits.start_cycle(turn, "w", "run", 2.0, None)
        if usd is not None:
            store.advance(turn, Following(turn.look(), now), "proposed", usd)
        look = RepositoryTurn(A, 100 + back)
        store.limits.start_cycle(look, "w", "run", 0.0, None)
        store.close()
    store = FleetStore(fleet_database, ManualClock(now))
    store.open()
    store.prune()
    yesterday = (now - timedelta(days=1)).date()
    assert sorted(store.limits.daily_costs(now - timedelta(days=60)), key=lambda one: one.day) == [
        DailyCost(A, yesterday, 2, 0.75),
        DailyCost(A, now.date(), 1, 2.0),
    ]
    store.close()


async def test_who_has_used_up_its_requests_is_not_asked_before_they_are_there_again(
    fleet_database: str,
) -> None:
    store = FleetStore(fleet_database, SystemClock())
    store.open()
    now = datetime.now(UTC)
    reset = (now + timedelta(minutes=20)).replace(microsecond=0)
    runners = {
        A: WrittenCycles([RequestQuota(NAME, "core", 5000, 40, reset)]),
        B: WrittenCycles([RequestQuota(NAME, "core", 5000, 0, reset)]),
    }
    members = {name: member(name, runner) for name, runner in runners.items()}
    clock = SystemClock()
    worker = FleetWorker(
        "w", store, members, clock, Stop(), random.SystemRandom(), lambda *_outcome: None, most_usd=9.0
    )

    async def play(name: str) -> None:
        store.wake(name)
        numbers = store.numbers([name])
        (turn,) = [
            one.turn
            for one in store.queued()
            if (one.turn.repository, one.turn.number) == (name, numbers[name])
        ]
        await worker.run_turn(turn)

    worker.begin()
    await play(A)
    await play(A)
    assert list(store.limits.request_quotas()) == [RequestQuota(NAME, "core", 5000, 40, reset)]
    assert runners[A].cycles == 2
    await play(B)
    await play(A)  # another one of the same installation used up what was left
    await play(B)
    assert (runners[A].cycles, runners[B].cycles) == (2, 1)
    states = {one.repository: one.pause for one in store.repositories()}
    pause = states[A]
    assert pause is not None
    assert pause.until == reset + timedelta(seconds=1)
    assert pause.reason == f"the requests of {NAME} for this hour are used up"
    assert dict(store.limits.caps())["max_usd_per_day"] == 9.0
    store.close()
