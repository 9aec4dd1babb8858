"""Who is taken for dead."""

from __future__ import annotations

from orchestrator.bot.fleet.engine import HeartbeatWatch, new_worker_name
from orchestrator.core.clock import ManualClock


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


def test_no_two_workers_have_one_name() -> None:
    assert new_worker_name("host") != new_worker_name("host")
