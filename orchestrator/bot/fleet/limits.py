"""What limits a fleet's turns: money that may be spent in a day, and quotas that a provider counts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from orchestrator.bot.fleet.database import cycles_table, ms, quotas_table, to_time
from orchestrator.bot.journal.index import Pause

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.bot.fleet.database import FleetDatabase
    from orchestrator.bot.fleet.turns import RepositoryTurn


class FleetLimits:
    """Reads and changes what limits the turns of all workers."""

    def __init__(self, database: FleetDatabase) -> None:
        self._db = database

    # --- money ---

    def start_cycle(
        self, turn: RepositoryTurn, worker: str, run: str, reserve: float, most_usd: float | None
    ) -> bool:
        """Write down that a turn begins, and set aside the most that it can cost.

        Args:
            most_usd: of all cycles of the fleet in a UTC day; None is no limit.

        Returns:
            False: it does not fit below the limit.
        """

        def change(c: sa.Connection) -> bool:
            if most_usd is not None:
                self._lock(c)
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
        """What the fleet's cycles have cost since the day's beginning (UTC), with what is set aside."""
        return self._db.transaction(self._spent)

    def _spent(self, c: sa.Connection) -> float:
        spent = sa.func.sum(sa.func.coalesce(cycles_table.c.usd, cycles_table.c.reserved))
        return c.scalar(sa.select(spent).where(cycles_table.c.began >= ms(self._db.day()))) or 0.0

    def next_day(self) -> datetime:
        """When the day's limits begin anew."""
        return self._db.day() + timedelta(days=1)

    # --- quotas ---

    def pause_quota(self, quota: str, pause: Pause) -> None:
        """Let nobody begin who lives on a quota that is spent."""
        row = {"until": ms(pause.until), "reason": pause.reason}

        def change(c: sa.Connection) -> None:
            insert = self._db.insert(quotas_table).values(quota=quota, **row)
            later = insert.excluded.until > quotas_table.c.until
            c.execute(insert.on_conflict_do_update(index_elements=["quota"], set_=row, where=later))

        self._db.transaction(change)

    def pause_of(self, quota: str) -> Pause | None:
        """The pause of a quota that is not over."""
        query = sa.select(quotas_table.c.until, quotas_table.c.reason).where(
            quotas_table.c.quota == quota, quotas_table.c.until > self._db.now()
        )
        row = self._db.transaction(lambda c: c.execute(query).first())
        return Pause(to_time(row.until), row.reason) if row else None

    def forget_quota(self, c: sa.Connection, quota: str) -> None:
        """End the pause of a quota, in a transaction."""
        c.execute(sa.delete(quotas_table).where(quotas_table.c.quota == quota))

    def _lock(self, c: sa.Connection) -> None:
        """Be the only one who reads and writes money. SQLite has one writer anyway."""
        if self._db.is_shared:
            c.execute(sa.text("LOCK TABLE pullwright_cycles IN SHARE ROW EXCLUSIVE MODE"))
