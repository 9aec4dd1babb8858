"""What is looked at when a worker starts."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.core.clock import SystemClock
from orchestrator.plugins.fleet.store import FleetStore
from orchestrator.plugins.worker.engine import FleetWorker
from orchestrator.plugins.worker.members import Member

if TYPE_CHECKING:
    from tests.doubles.postgres import PostgresServer

CLOCK = SystemClock()
SOURCE = random.Random(1)  # noqa: S311  no secret


def looked_at(url: str, *working: str) -> list[str]:
    """What is looked at now after the start of a worker of "a", which waits for its time, and "b", which is new."""
    store = FleetStore(url, CLOCK)
    store.open()
    store.begin("a", "quota", CLOCK.now() + timedelta(hours=1))
    schedule = make_schedule("1d", None, "UTC", CLOCK.now())
    assert schedule is not None
    members = {one: Member(one, None, "quota", schedule, None) for one in "ab"}  # type: ignore[arg-type]
    for name in working:
        store.add_worker(name, "1.0", 1)
    FleetWorker("new", store, members, CLOCK, Stop(), SOURCE, lambda *_: None).begin()
    now = CLOCK.now()
    found = sorted(one.turn.repository for one in store.queued() if one.at is None or one.at <= now)
    store.close()
    return found


def test_the_first_worker_has_all_looked_at_and_the_next_one_only_what_is_new(
    postgres: PostgresServer,
) -> None:
    assert looked_at(postgres.new_database()) == ["a", "b"]
    assert looked_at(postgres.new_database(), "another") == ["b"]
