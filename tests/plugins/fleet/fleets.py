"""A fleet's database as a busy day leaves it, for those who look at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from orchestrator.bot.forge.base import RequestQuota
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.plugins.fleet.store import QUEUE, FleetStore
from orchestrator.plugins.fleet.turns import DAY_CAP, Following, RepositoryTurn

if TYPE_CHECKING:
    from orchestrator.core.clock import Clock

VERSION = "1.4.0"
SPENT = "anthropic: the quota of this hour is spent"
_OUTCOMES = ("proposed", "proposed", "failed", "limit")


def busy_fleet(url: str, *, title: str = "Time zones are lost when a report is exported") -> FleetStore:
    """Seven repositories, each in another state. It stays open for who wants to change it."""
    now = datetime.now(UTC)
    _past_days(url, now)
    store = _opened(url, SystemClock())
    client = store.client
    client._sys_db.create_application_version(VERSION)
    client.register_queue(QUEUE, global_concurrency=6)
    store.add_worker("build-1-4f2a9c10", VERSION, 2)
    store.add_worker("build-2-99ab12cd", VERSION, 1)
    store.drain("build-2-99ab12cd")
    looks: dict[str, RepositoryTurn] = {}
    for name in ("ledger", "atlas", "harbour", "quarry", "beacon", "a-repository-with-a-long-name", "mill"):
        key = f"github.com/octo/{name}"
        store.begin(
            key, "anthropic:claude-sonnet-4-5", now if name != "mill" else now + timedelta(minutes=24)
        )
    for one in store.queued():
        looks[one.turn.repository.rpartition("/")[2]] = one.turn

    def cycle(name: str, number: int, kind: str, claim: int = 1) -> RepositoryTurn:
        key = f"issue-{number}"
        turn = RepositoryTurn(f"github.com/octo/{name}", looks[name].number + 1, key, claim, kind, title, key)
        store.advance(looks[name], Following(turn, now), "found", None)
        return turn

    running = cycle("ledger", 240, "new")
    store.limits.start_cycle(running, "build-1-4f2a9c10", "20261123-140000-0000001", 2.0, None)
    cycle("atlas", 17, "review", 3)
    cycle("a-repository-with-a-long-name", 5, "checks")
    until = now + timedelta(minutes=41)
    paused = Following(looks["harbour"].look(), until, Pause(until, SPENT))
    store.advance(looks["harbour"], paused, "paused", None)
    store.pause("github.com/octo/quarry", "release week")
    broken = Following(None, now, halted="the token may not write contents: grant it Contents: write")
    store.advance(looks["beacon"], broken, "failed", None)
    reset = (now + timedelta(minutes=12)).replace(microsecond=0)
    store.limits.save_request_quotas(
        "github.com/octo/ledger",
        [
            RequestQuota("api.github.com installation 4711", "core", 5_000, 3_120, reset),
            RequestQuota("api.github.com installation 4711", "graphql", 5_000, 4_988, reset),
        ],
    )
    store.limits.save_request_quotas(
        "github.com/octo/atlas", [RequestQuota("api.github.com token 1f3a9c22", "core", 5_000, 0, reset)]
    )
    store.limits.declare_cap(DAY_CAP, 20.0)
    _play(store, running)
    return store


def _past_days(url: str, now: datetime) -> None:
    """What the days before cost."""
    for back in range(9, 0, -1):
        past = _opened(url, ManualClock(now - timedelta(days=back)))
        for number, name in enumerate(("ledger", "atlas", "harbour", "quarry")[: 1 + back % 4]):
            turn = RepositoryTurn(f"github.com/octo/{name}", 9_000 + back, f"issue-{back * 10 + number}", 1)
            past.limits.start_cycle(turn, "build-1", f"run-{back}-{number}", 2.0, None)
            cost = 0.3 + 0.17 * ((back * 3 + number) % 5)
            past.advance(turn, Following(turn.look(), now), _OUTCOMES[(back + number) % 4], cost)
        past.close()


def _play(store: FleetStore, running: RepositoryTurn) -> None:
    """Do to the engine's table what it does where turns are played."""
    numbers = store.numbers([one.repository for one in store.repositories()])
    status = sa.table(
        "workflow_status",
        *map(sa.column, ("workflow_uuid", "status", "executor_id", "started_at_epoch_ms")),
        schema=store.engine_schema,
    )
    over = [one.workflow for one in store.queued() if one.turn.number != numbers[one.turn.repository]]

    def change(c: sa.Connection) -> None:
        c.execute(sa.update(status).where(status.c.workflow_uuid.in_(over)).values(status="SUCCESS"))
        mine = status.c.workflow_uuid == running.id
        now = store.now()
        values = {"status": "PENDING", "executor_id": "build-1-4f2a9c10", "started_at_epoch_ms": now}
        c.execute(sa.update(status).where(mine).values(**values))

    store.transaction(change)


def _opened(url: str, clock: Clock) -> FleetStore:
    store = FleetStore(url, clock)
    store.open()
    return store
