"""Who is taken for dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dbos import DBOS

from orchestrator.bot.fleet.engine import EngineOptions, FleetEngine, HeartbeatWatch, new_worker_name
from orchestrator.bot.fleet.store import FleetStore
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.core.errors import FleetError

if TYPE_CHECKING:
    from orchestrator.bot.fleet.turns import RepositoryTurn
    from tests.doubles.postgres import PostgresServer


async def play(*looks: tuple[float, dict[str, int]]) -> list[list[str]]:
    """Look after so many seconds each, and see these heartbeats."""
    clock = ManualClock()
    watch = HeartbeatWatch(clock, 30.0)
    dead = []
    for seconds, beats in looks:
        await clock.sleep(seconds)
        dead.append(watch.dead(beats))
    return dead


async def test_who_stands_still_for_a_lease_is_dead_and_who_beats_is_not() -> None:
    looks = [(5.0, {"gone": 3, "here": number}) for number in range(8)]
    assert await play(*looks) == [[], [], [], [], [], [], ["gone"], ["gone"]]


async def test_after_a_database_that_was_away_nobody_is_dead_before_a_whole_lease() -> None:
    away = [(5.0, {"a": 1}), (3600.0, {"a": 1}), *[(5.0, {"a": 1})] * 5]
    assert await play(*away) == [[]] * 7
    assert (await play(*away, (5.0, {"a": 1})))[-1] == ["a"]


async def test_who_beats_again_at_the_last_moment_lives() -> None:
    looks = [(5.0, {"slow": 1})] * 6 + [(4.0, {"slow": 2}), (5.0, {"slow": 2})]
    assert await play(*looks) == [[]] * 8


class Idle:
    """Plays no turn: none comes so far."""

    async def run_turn(self, turn: RepositoryTurn) -> None:
        raise AssertionError(turn)

    def lose(self, turn: RepositoryTurn) -> None:
        raise AssertionError(turn)


async def test_a_database_that_goes_away_while_a_worker_starts_is_one_line(postgres: PostgresServer) -> None:
    class Dropped(FleetStore):
        def add_worker(self, worker: str, version: str, parallel: int) -> None:
            super().add_worker(worker, version, parallel)
            postgres.drop(self.url)

    clock = SystemClock()
    store = Dropped(postgres.new_database(), clock)
    store.open()
    try:
        with pytest.raises(FleetError, match="does not exist"):
            await FleetEngine(store, EngineOptions("m-1", "1.0"), clock, Idle(), print).launch()
    finally:
        DBOS.destroy()
        store.close()


def test_no_two_workers_have_one_name() -> None:
    assert new_worker_name("host") != new_worker_name("host")
