"""Limits of a fleet's turns: money per day, and quotas of model providers and forges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from orchestrator.bot.fleet.database import (
    caps_table,
    cycles_table,
    from_ms,
    quota_users_table,
    quotas_table,
    request_quotas_table,
    to_ms,
)
from orchestrator.bot.forge.base import RequestQuota
from orchestrator.bot.journal.index import Pause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from orchestrator.bot.fleet.database import FleetDatabase
    from orchestrator.bot.fleet.turns import RepositoryTurn


DAY_CAP = "max_usd_per_day"
"""Name of the cap on money for all cycles of a UTC day."""


def daily_cap_reached(most_usd: float) -> str:
    """Return the reason why no further cycle starts today."""
    return f"the fleet has reached its limit of {most_usd:g} US dollars a day ({DAY_CAP})"


@dataclass(frozen=True, slots=True)
class DailyCost:
    """A repository's number of cycles and their cost on one day."""

    repository: str
    day: date
    cycles: int
    usd: float


class FleetLimits:
    """Reads and changes the limits of all workers' turns."""

    def __init__(self, database: FleetDatabase) -> None:
        self._db = database

    # --- money ---

    def start_cycle(
        self, turn: RepositoryTurn, worker: str, run: str, reserve: float, most_usd: float | None
    ) -> bool:
        """Record that a turn begins, and reserve the most that it can cost.

        Args:
            most_usd: limit for all cycles of the fleet in a UTC day; None is no limit.

        Returns:
            False if the reservation exceeds the limit.
        """

        def change(c: sa.Connection) -> bool:
            if most_usd is not None:
                self._lock_costs(c)
                if self._spent(c) + reserve > most_usd:
                    return False
            values = {"worker": worker, "run": run, "began": self._db.now(), "reserved": reserve}
            row = {"repository": turn.repository, "task": turn.task, "title": turn.title, "claim": turn.claim}
            c.execute(
                self._db.insert(cycles_table)
                .values(workflow=turn.id, **row, **values)
                .on_conflict_do_nothing()
            )
            return True

        return self._db.transaction(change)

    def spent_today(self) -> float:
        """Return the cost of the fleet's cycles today (UTC), including reservations."""
        return self._db.transaction(self._spent)

    def _spent(self, c: sa.Connection) -> float:
        spent = sa.func.sum(sa.func.coalesce(cycles_table.c.usd, cycles_table.c.reserved))
        return c.scalar(sa.select(spent).where(cycles_table.c.began >= to_ms(self._db.day()))) or 0.0

    def next_day(self) -> datetime:
        """Return when the next day's limits begin."""
        return self._db.day() + timedelta(days=1)

    # --- quotas ---

    def pause_quota(self, quota: str, pause: Pause) -> None:
        """Pause all repositories that share a used-up quota."""
        row = {"until": to_ms(pause.until), "reason": pause.reason}

        def change(c: sa.Connection) -> None:
            insert = self._db.insert(quotas_table).values(quota=quota, **row)
            later = insert.excluded.until > quotas_table.c.until
            c.execute(insert.on_conflict_do_update(index_elements=["quota"], set_=row, where=later))

        self._db.transaction(change)

    def pause_of(self, quota: str) -> Pause | None:
        """Return the pause of a quota, if it is not over."""
        query = sa.select(quotas_table.c.until, quotas_table.c.reason).where(
            quotas_table.c.quota == quota, quotas_table.c.until > self._db.now()
        )
        row = self._db.transaction(lambda c: c.execute(query).first())
        return Pause(from_ms(row.until), row.reason) if row else None

    def forget_quota(self, c: sa.Connection, quota: str) -> None:
        """End the pause of a quota, in a transaction."""
        c.execute(sa.delete(quotas_table).where(quotas_table.c.quota == quota))

    def model_pauses(self) -> dict[str, Pause]:
        """Return the pauses that are not over, by quota."""
        query = sa.select(quotas_table).where(quotas_table.c.until > self._db.now())
        rows = self._db.transaction(lambda c: c.execute(query).all())
        return {row.quota: Pause(from_ms(row.until), row.reason) for row in rows}

    # --- requests to a forge ---

    def save_request_quotas(self, repository: str, quotas: Sequence[RequestQuota]) -> None:
        """Store a forge's remaining request quotas, for all machines."""
        if not quotas:
            return
        seen = self._db.now()

        def change(c: sa.Connection) -> None:
            for one in quotas:
                row = {"most": one.limit, "remaining": one.remaining, "reset": to_ms(one.reset), "seen": seen}
                insert = self._db.insert(request_quotas_table).values(
                    name=one.name, resource=one.resource, **row
                )
                c.execute(insert.on_conflict_do_update(index_elements=["name", "resource"], set_=row))
            name = {"name": quotas[0].name}
            used = self._db.insert(quota_users_table).values(repository=repository, **name)
            c.execute(used.on_conflict_do_update(index_elements=["repository"], set_=name))

        self._db.transaction(change)

    def request_quotas(self) -> list[RequestQuota]:
        """Return the last known request quotas, by name, without those that were reset since."""
        t = request_quotas_table
        query = sa.select(t).where(t.c.reset > self._db.now()).order_by(t.c.name, t.c.resource)
        rows = self._db.transaction(lambda c: c.execute(query).all())
        return [
            RequestQuota(row.name, row.resource, row.most, row.remaining, from_ms(row.reset)) for row in rows
        ]

    def request_pause(self, repository: str) -> Pause | None:
        """Return the pause of a repository whose request quota is used up; None if it is not."""
        quotas, users = request_quotas_table, quota_users_table
        query = (
            sa.select(quotas.c.name, sa.func.max(quotas.c.reset).label("reset"))
            .join(users, users.c.name == quotas.c.name)
            .where(users.c.repository == repository, quotas.c.remaining == 0, quotas.c.reset > self._db.now())
            .group_by(quotas.c.name)
        )
        row = self._db.transaction(lambda c: c.execute(query).first())
        if row is None:
            return None
        # The time of the reset is rounded to a second, and at most an hour away.
        until = min(from_ms(row.reset) + timedelta(seconds=1), self._db.clock.now() + timedelta(hours=1))
        return Pause(until, f"the requests of {row.name} for this hour are used up")

    def forget_quotas(self, before: datetime) -> None:
        """Delete request quotas that were reset before a time."""
        old = request_quotas_table.c.reset < to_ms(before)
        self._db.transaction(lambda c: c.execute(sa.delete(request_quotas_table).where(old)))

    # --- caps ---

    def declare_cap(self, name: str, value: float | None) -> None:
        """Store a cap that a worker was started with, for display; None is no cap."""
        change: sa.Executable = sa.delete(caps_table).where(caps_table.c.name == name)
        if value is not None:
            insert = self._db.insert(caps_table).values(name=name, value=value)
            change = insert.on_conflict_do_update(index_elements=["name"], set_={"value": value})
        self._db.transaction(lambda c: c.execute(change))

    def cap(self, name: str) -> float | None:
        """Return a cap of the worker that was started last; None is no cap."""
        query = sa.select(caps_table.c.value).where(caps_table.c.name == name)
        return self._db.transaction(lambda c: c.scalar(query))

    def daily_costs(self, since: datetime) -> list[DailyCost]:
        """Return the cost of each repository and day (UTC) as the cap counts it, including reservations."""
        t = cycles_table
        # A literal: with two parameters, PostgreSQL does not recognize the two expressions as the same.
        began = (t.c.began - t.c.began % sa.literal_column("86400000")).label("day")
        query = (
            sa.select(
                t.c.repository,
                began,
                sa.func.count().label("cycles"),
                sa.func.sum(sa.func.coalesce(t.c.usd, t.c.reserved)).label("usd"),
            )
            .where(t.c.began >= to_ms(since), t.c.task != "")
            .group_by(t.c.repository, began)
        )
        rows = self._db.transaction(lambda c: c.execute(query).all())
        return [DailyCost(row.repository, from_ms(row.day).date(), row.cycles, row.usd) for row in rows]

    def _lock_costs(self, c: sa.Connection) -> None:
        """Lock the table of costs for this transaction. SQLite has only one writer anyway."""
        if self._db.is_shared:
            c.execute(sa.text("LOCK TABLE pullwright_cycles IN SHARE ROW EXCLUSIVE MODE"))
