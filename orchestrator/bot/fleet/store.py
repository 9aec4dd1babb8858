"""The fleet's state in its database: the present turn of each repository, the queue, and the workers.

The transaction that ends a turn by compare-and-swap also queues the next one. So a worker that was wrongly
declared dead cannot queue another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from orchestrator.bot.fleet.database import (
    FleetDatabase,
    cycles_table,
    deliveries_table,
    from_ms,
    repositories_table,
    to_ms,
    workers_table,
)
from orchestrator.bot.fleet.turns import FleetLimits, QueuedTurn, RepositoryTurn
from orchestrator.bot.journal.index import Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dbos import DBOSClient

    from orchestrator.bot.fleet.turns import Following

QUEUE = "turns"
TURN = "turn"
_LIVE = ("ENQUEUED", "DELAYED", "PENDING")
_MOST_LISTED = 10_000
_MOST_REMOVED = 1_000
KEPT_TURNS = timedelta(days=7)
"""How long ended turns stay in the database. The journals on the machines keep more."""
KEPT_COSTS = timedelta(days=31)
"""How long costs of cycles stay in the database."""
KEPT_DELIVERIES = timedelta(days=30)
"""How long a repeated webhook delivery is recognized. A later repetition only causes a needless look."""


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The fleet's state of a repository.

    Attributes:
        paused: why a person paused it, may be empty; None if no person did.
        halted: what a person has to do before it continues; None if nothing.
        pause: a pause that a server requested.
        cycles: number of its cycles today (UTC).
        usd: their cost, as far as prices are known.
    """

    repository: str
    number: int
    quota: str
    paused: str | None
    halted: str | None
    pause: Pause | None
    cycles: int
    usd: float


@dataclass(frozen=True, slots=True)
class FleetWorkerState:
    """The fleet's state of a worker. `beats` counts its heartbeats."""

    worker: str
    version: str
    parallel: int
    beats: int
    started_at: datetime
    seen_at: datetime
    draining: bool


class FleetStore(FleetDatabase):
    """Reads and changes the present turns of repositories, and the workers."""

    @cached_property
    def limits(self) -> FleetLimits:
        """The limits of turns."""
        return FleetLimits(self)

    # --- turns ---

    def begin(self, repository: str, quota: str, first: datetime | None, pause: Pause | None = None) -> None:
        """Queue a turn for a repository, unless it has one or a person paused it.

        Args:
            first: when the turn starts; None is now, even if there is a delayed turn already.
            pause: a pause that is not stored yet; no turn starts before its end.
        """

        def change(c: sa.Connection) -> None:
            row = self._add_repository(c, repository, quota, pause)
            if row.paused is None and self._status(c, row.workflow) not in _LIVE:
                look = RepositoryTurn(repository, row.number + 1, renewed=True)
                at = max(first or self.clock.now(), from_ms(row.not_before))
                self._replace_turn(c, repository, row.number, look, at)

        self.transaction(change)
        if first is None:
            self.wake(repository)

    def ready(self) -> dict[str, str]:
        """Return the repositories that do not need `begin`, because they have a turn and wait for no person.

        The values are their quotas.
        """
        turns = self._engine_turns()
        query = (
            sa.select(repositories_table.c.repository, repositories_table.c.quota)
            .join(turns, turns.c.workflow_uuid == repositories_table.c.workflow)
            .where(turns.c.status.in_(_LIVE), repositories_table.c.halted.is_(None))
        )
        return {row.repository: row.quota for row in self.rows(query)}

    def restart(self, repository: str, quota: str, at: datetime, pause: Pause | None = None) -> None:
        """Replace a repository's waiting turn at the start of the only worker of this database.

        Attempted tasks may be tried again. A waiting turn keeps its task.

        Args:
            at: when the turn starts, even if the repository is paused by a server.
            pause: a pause that is not stored yet.
        """
        waiting = self._current_turn(repository)

        def change(c: sa.Connection) -> str | None:
            row = self._add_repository(c, repository, quota, pause)
            if row.paused is not None:
                return None
            is_next = waiting is not None and waiting.id == row.workflow
            look = RepositoryTurn(repository, row.number + 1, renewed=True)
            turn = waiting.for_new_worker() if waiting and is_next else look
            return (
                row.workflow if self._replace_turn(c, repository, row.number, turn, at) and is_next else None
            )

        self._cancel_replaced(change)

    def end(self, repository: str) -> None:
        """Remove a repository's waiting turn. `begin` or `restart` queue another one."""

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            moved = row is not None and self._replace_turn(c, repository, row.number, None, self.clock.now())
            return row.workflow if moved else None

        self._cancel_replaced(change)

    def _add_repository(self, c: sa.Connection, repository: str, quota: str, pause: Pause | None) -> Any:
        """Return the row of a repository that a worker starts to serve, and create it if it is missing."""
        new = {"number": 0, "workflow": "", "not_before": 0, "reason": "", "woken": 0}
        insert = self.insert(repositories_table).values(repository=repository, quota=quota, **new)
        c.execute(insert.on_conflict_do_nothing())
        mine = repositories_table.c.repository == repository
        c.execute(sa.update(repositories_table).where(mine).values(quota=quota, halted=None))
        if pause is not None:
            later = repositories_table.c.not_before < to_ms(pause.until)
            values = {"not_before": to_ms(pause.until), "reason": pause.reason}
            c.execute(sa.update(repositories_table).where(mine, later).values(values))
        return self._row(c, repository)

    def advance(self, turn: RepositoryTurn, following: Following, outcome: str, usd: float | None) -> bool:
        """End a turn and queue the next one, if the repository is still at this turn.

        Returns:
            False if it is not, because another worker took the turn over or a person cancelled it.
        """

        def change(c: sa.Connection) -> bool:
            c.execute(
                sa.update(cycles_table)
                .where(cycles_table.c.workflow == turn.id)
                .values(ended=self.now(), outcome=outcome, usd=usd)
            )
            row = self._row(c, turn.repository)
            if row is None or row.number != turn.number:
                return False
            pause = following.pause
            c.execute(
                sa.update(repositories_table)
                .where(repositories_table.c.repository == turn.repository)
                .values(
                    halted=following.halted or None,
                    not_before=to_ms(pause.until) if pause else 0,
                    reason=pause.reason if pause else "",
                )
            )
            if following.turn is None or row.paused is not None:
                return self._replace_turn(c, turn.repository, turn.number, None, following.at)
            # If something new was announced while the turn ran, look again at once.
            began = c.scalar(sa.select(cycles_table.c.began).where(cycles_table.c.workflow == turn.id))
            is_woken = pause is None and began is not None and row.woken >= began
            at = self.clock.now() if is_woken else following.at
            c.execute(
                sa.delete(cycles_table).where(cycles_table.c.workflow == turn.id, cycles_table.c.task == "")
            )
            return self._replace_turn(c, turn.repository, turn.number, following.turn, at)

        return self.transaction(change)

    def wake(self, repository: str) -> bool:
        """Start a repository's waiting turn now, or when its pause ends. Return whether the fleet knows it.

        If a turn is running, the next one starts at once.
        """

        def change(c: sa.Connection) -> tuple[str, int] | None:
            row = self._row(c, repository)
            if row is None:
                return None
            c.execute(
                sa.update(repositories_table)
                .where(repositories_table.c.repository == repository)
                .values(woken=self.now())
            )
            return row.workflow, row.not_before

        found = self.transaction(change)
        if found is None:
            return False
        workflow, not_before = found
        if workflow:
            seconds = max(not_before - self.now(), 0) / 1000
            self.call(lambda client: client.set_workflow_delay(workflow, delay_seconds=seconds))
        return True

    def receive(self, digest: str, repository: str) -> bool:
        """Wake a repository because of a webhook delivery. Return False for a repeated delivery."""

        def change(c: sa.Connection) -> bool:
            now = self.clock.now()
            c.execute(sa.delete(deliveries_table).where(deliveries_table.c.at < to_ms(now - KEPT_DELIVERIES)))
            insert = self.insert(deliveries_table).values(digest=digest, at=to_ms(now))
            return c.scalar(insert.on_conflict_do_nothing().returning(deliveries_table.c.digest)) is not None

        return self.transaction(change) and (self.wake(repository) or True)

    def ask(self, repository: str, task: str) -> bool:
        """Try a task next, in place of the waiting turn.

        Returns:
            False if a turn is running, the repository is paused by a person, or the fleet does not know it.
        """

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            if row is None or row.paused is not None or self._status(c, row.workflow) == "PENDING":
                return None
            turn = RepositoryTurn(repository, row.number + 1, task, attempt=task)
            return (
                row.workflow
                if self._replace_turn(c, repository, row.number, turn, self.clock.now())
                else None
            )

        return self._cancel_replaced(change)

    def cancel(self, repository: str) -> bool:
        """Cancel a repository's turn and look for another task. Return whether there was a turn.

        The worker that runs it notices this at its next heartbeat. It then stops the cycle and saves its work.
        """
        turn = self._current_turn(repository)

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            if turn is None or row is None or row.workflow != turn.id:
                return None
            look = turn.look(attempted={*turn.attempted, turn.attempt} - {""})
            return turn.id if self._replace_turn(c, repository, turn.number, look, self.clock.now()) else None

        return self._cancel_replaced(change)

    def _current_turn(self, repository: str) -> RepositoryTurn | None:
        """Return the running or waiting turn of a repository."""
        row = self.transaction(lambda c: self._row(c, repository))
        if row is None or not row.workflow:
            return None
        found = self._list_turns(status=list(_LIVE), workflow_ids=[row.workflow])
        return found[0].turn if found else None

    def _cancel_replaced(self, change: Callable[[sa.Connection], str | None]) -> bool:
        """Replace a turn by `change`, which returns its workflow, and cancel that. Return whether one was replaced."""
        old = self.transaction(change)
        if old:
            self.call(lambda client: client.cancel_workflow(old))
        return old is not None

    def numbers(self, repositories: Collection[str]) -> dict[str, int]:
        """Return the numbers of the present turns of repositories."""
        t = repositories_table.c
        query = sa.select(t.repository, t.number).where(t.repository.in_(repositories))
        return {row.repository: row.number for row in self.rows(query)}

    def take_over(self, worker: str) -> list[RepositoryTurn]:
        """Queue the turns of a dead worker again, under new ids, and return them."""
        taken = []
        for one in self._list_turns(status=["PENDING"], executor_id=[worker]):

            def change(c: sa.Connection, old: RepositoryTurn = one.turn) -> RepositoryTurn | None:
                mine = cycles_table.c.workflow == old.id
                run = c.scalar(sa.select(cycles_table.c.run).where(mine))
                values = {"ended": self.now(), "outcome": "lost"}
                c.execute(sa.update(cycles_table).where(mine, cycles_table.c.ended.is_(None)).values(values))
                new = old.again(dead_run=run or "")
                is_moved = self._replace_turn(c, old.repository, old.number, new, self.clock.now())
                return new if is_moved else None

            if (again := self.transaction(change)) is not None:
                taken.append(again)
            # Last: if this worker dies before, the next one finds the turn of the dead worker again.
            self.call(lambda client, id_=one.workflow: client.cancel_workflow(id_))  # type: ignore[misc]
        return taken

    def restart_lost(self) -> None:
        """Queue a look for each repository whose turn is missing from the queue. This reads all repositories."""
        turns = self._engine_turns()
        query = (
            sa.select(repositories_table.c.repository, repositories_table.c.quota)
            .outerjoin(turns, turns.c.workflow_uuid == repositories_table.c.workflow)
            .where(
                repositories_table.c.workflow != "",
                sa.or_(turns.c.status.is_(None), turns.c.status.not_in(_LIVE)),
            )
        )
        for row in self.rows(query):
            self.begin(row.repository, row.quota, self.clock.now())

    def queued(self) -> Sequence[QueuedTurn]:
        """Return the running, waiting and delayed turns, in order."""
        order = {"running": 0, "queued": 1, "delayed": 2}

        def rank(queued: QueuedTurn) -> tuple[int, datetime, int, datetime]:
            start = queued.at if queued.at and queued.state == "delayed" else _LONG_AGO
            return order[queued.state], start, queued.turn.priority, queued.queued_at

        return sorted(self._list_turns(status=list(_LIVE)), key=rank)

    def _list_turns(self, **which: Any) -> list[QueuedTurn]:
        """Return the turns that DBOS lists for these arguments."""
        found = self.call(
            lambda client: client.list_workflows(name=TURN, limit=_MOST_LISTED, load_output=False, **which)
        )
        return [_queued_turn(one) for one in found if one.input and one.input["args"]]

    # --- repositories ---

    def pause(self, repository: str, reason: str) -> bool:
        """Start no further turn in a repository; a running one continues. Return whether the fleet knows it."""
        mine = repositories_table.c.repository == repository
        change = sa.update(repositories_table).where(mine).values(paused=reason)
        return self.change(change)

    def resume(self, repository: str) -> bool:
        """Continue a repository that a person paused, or that waited for one. Return whether the fleet knows it."""
        mine = repositories_table.c.repository == repository

        def change(c: sa.Connection) -> str | None:
            c.execute(sa.update(repositories_table).where(mine).values(paused=None, not_before=0, reason=""))
            quota: str | None = c.scalar(sa.select(repositories_table.c.quota).where(mine))
            if quota is not None:
                self.limits.forget_quota(c, quota)
            return quota

        quota = self.transaction(change)
        if quota is not None:
            self.begin(repository, quota, None)
        return quota is not None

    def is_paused(self, repository: str) -> bool:
        """Return whether a person paused a repository."""
        row = self.transaction(lambda c: self._row(c, repository))
        return row is not None and row.paused is not None

    def repositories(self) -> Sequence[RepositoryState]:
        """Return all repositories that the fleet ever served, by name."""
        day = to_ms(self.day())
        cost = (
            sa.select(
                cycles_table.c.repository,
                sa.func.count().label("cycles"),
                sa.func.sum(cycles_table.c.usd).label("usd"),
            )
            .where(cycles_table.c.began >= day, cycles_table.c.task != "")
            .group_by(cycles_table.c.repository)
            .subquery()
        )
        query = (
            sa.select(repositories_table, cost.c.cycles, cost.c.usd)
            .outerjoin(cost, cost.c.repository == repositories_table.c.repository)
            .order_by(repositories_table.c.repository)
        )
        now = self.now()
        return [
            RepositoryState(
                row.repository,
                row.number,
                row.quota,
                row.paused,
                row.halted,
                Pause(from_ms(row.not_before), row.reason) if row.not_before > now else None,
                row.cycles or 0,
                row.usd or 0.0,
            )
            for row in self.rows(query)
        ]

    # --- workers ---

    def add_worker(self, worker: str, version: str, parallel: int) -> None:
        """Record that a worker has started."""
        now = self.now()
        row = {"version": version, "parallel": parallel, "beats": 0, "started": now, "seen": now}
        insert = sa.insert(workers_table).values(worker=worker, **row, draining=False)
        self.change(insert)

    def beat(self, worker: str) -> bool | None:
        """Record a heartbeat. Return whether the worker was asked to drain; None if it was declared dead."""

        def change(c: sa.Connection) -> bool | None:
            mine = workers_table.c.worker == worker
            values = {"beats": workers_table.c.beats + 1, "seen": self.now()}
            c.execute(sa.update(workers_table).where(mine).values(values))
            return c.scalar(sa.select(workers_table.c.draining).where(mine))

        return self.transaction(change)

    def heartbeats(self) -> dict[str, int]:
        """Return each worker's number of heartbeats; -1 for an unrecorded worker with running turns.

        There is such a worker if it was declared dead, took a turn, and died before its next heartbeat.
        """
        turns = self._engine_turns()
        running = sa.select(turns.c.executor_id).where(turns.c.status == "PENDING", turns.c.name == TURN)
        beats = sa.select(workers_table.c.worker, workers_table.c.beats)

        def read(c: sa.Connection) -> dict[str, int]:
            found = {worker: -1 for worker in c.scalars(running.distinct()) if worker}
            return found | {row.worker: row.beats for row in c.execute(beats)}

        return self.transaction(read)

    def workers(self) -> Sequence[FleetWorkerState]:
        """Return the workers that have not ended, by name."""
        query = sa.select(workers_table).order_by(workers_table.c.worker)
        return [
            FleetWorkerState(
                row.worker,
                row.version,
                row.parallel,
                row.beats,
                from_ms(row.started),
                from_ms(row.seen),
                bool(row.draining),
            )
            for row in self.rows(query)
        ]

    def drain(self, worker: str) -> bool:
        """Ask a worker to end after the current rounds of its cycles. Return whether it exists."""
        change = sa.update(workers_table).where(workers_table.c.worker == worker).values(draining=True)
        return self.change(change)

    def prune(self) -> None:
        """Delete old turns, costs and request quotas."""
        before = self.clock.now() - KEPT_TURNS
        ended = ["SUCCESS", "ERROR", "CANCELLED"]

        def remove(client: DBOSClient) -> int:
            old = client.list_workflows(
                status=ended,
                name=TURN,
                completed_before=before.isoformat(),
                limit=_MOST_REMOVED,
                load_input=False,
                load_output=False,
            )
            client.delete_workflows([one.workflow_id for one in old])
            return len(old)

        while self.call(remove) == _MOST_REMOVED:
            pass
        old = cycles_table.c.began < to_ms(self.clock.now() - KEPT_COSTS)
        self.change(sa.delete(cycles_table).where(old))
        self.limits.forget_quotas(before)

    def newest_version(self) -> str:
        """Return the version of the program whose workers take turns: the one that was started for the first time last."""
        return str(self.call(lambda client: client.get_latest_application_version())["version_name"])

    def remove_worker(self, worker: str) -> None:
        """Record that a worker has ended."""
        change = sa.delete(workers_table).where(workers_table.c.worker == worker)
        self.change(change)

    # --- private ---

    def _row(self, c: sa.Connection, repository: str) -> Any:
        """Return the row of a repository, locked until the end of the transaction."""
        query = sa.select(repositories_table).where(repositories_table.c.repository == repository)
        return c.execute(query.with_for_update()).first()

    def _replace_turn(
        self, c: sa.Connection, repository: str, number: int, turn: RepositoryTurn | None, at: datetime
    ) -> bool:
        """Queue the next turn of a repository if it is still at the turn `number`. Return whether it was."""
        moved = c.execute(
            sa.update(repositories_table)
            .where(repositories_table.c.repository == repository, repositories_table.c.number == number)
            .values(number=number + 1, workflow=turn.id if turn else "")
        )
        if turn is None or not moved.rowcount:
            return bool(moved.rowcount)
        delay = (at - self.clock.now()).total_seconds()
        later = {"delay_seconds": delay} if delay > 0 else {}
        self.client.enqueue_in_transaction(
            c,
            {
                "workflow_name": TURN,
                "queue_name": QUEUE,
                "workflow_id": turn.id,
                "priority": int(turn.priority),
                **later,  # type: ignore[typeddict-item]
            },
            turn.to_json(),
        )
        return True

    def _status(self, c: sa.Connection, workflow: str) -> str | None:
        """Return the status of a workflow in DBOS: `PENDING` means that it is running."""
        turns = self._engine_turns()
        found: str | None = c.scalar(sa.select(turns.c.status).where(turns.c.workflow_uuid == workflow))
        return found

    def _engine_turns(self) -> sa.TableClause:
        """Return the table of workflows of DBOS, with the columns that are read here."""
        names = ("workflow_uuid", "name", "status", "executor_id")
        return sa.table("workflow_status", *map(sa.column, names), schema=self.engine_schema)


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def _queued_turn(found: Any) -> QueuedTurn:
    turn = RepositoryTurn.from_json(found.input["args"][0])
    running = found.status == "PENDING"
    state = "running" if running else "delayed" if found.status == "DELAYED" else "queued"
    at = found.dequeued_at if running else found.delay_until_epoch_ms if state == "delayed" else None
    return QueuedTurn(
        turn,
        found.workflow_id,
        state,
        from_ms(at) if at else None,
        (found.executor_id or "") if running else "",
        from_ms(found.created_at),
    )
