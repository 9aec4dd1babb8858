"""The fleet's turns in its database: the present turn of each repository, the queue, and the workers.

A turn is ended by compare-and-swap in the transaction that queues the next one, so a worker that was wrongly
declared dead cannot queue a second next turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from orchestrator.bot.fleet.database import (
    FleetDatabase,
    cycles_table,
    deliveries_table,
    ms,
    repositories_table,
    to_time,
    workers_table,
)
from orchestrator.bot.fleet.limits import FleetLimits
from orchestrator.bot.fleet.turns import RepositoryTurn
from orchestrator.bot.journal.index import Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dbos import DBOSClient

    from orchestrator.bot.fleet.turns import Following
    from orchestrator.core.clock import Clock

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
"""How long a webhook delivery is recognized as repeated. A later repetition costs a look."""


@dataclass(frozen=True, slots=True)
class QueuedTurn:
    """A waiting or running turn.

    Attributes:
        state: `queued`, `delayed`, or `running`.
        at: start of a running turn, or earliest start of a delayed one; None if it only waits for its turn.
        worker: the worker that runs it.
    """

    turn: RepositoryTurn
    workflow: str
    state: str
    at: datetime | None
    worker: str
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The fleet's state of a repository.

    Attributes:
        paused: why a person paused it, if one did.
        halted: what a person has to do before it continues.
        pause: a pause requested by a server.
        usd: cost of its cycles today (UTC), as far as prices are known.
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
    """The fleet's state of a worker. `beats` increases as long as it lives."""

    worker: str
    version: str
    parallel: int
    beats: int
    started_at: datetime
    seen_at: datetime
    draining: bool


class FleetStore:
    """Reads and changes the present turns of repositories, and the workers. Its methods block: use it in threads.

    While the database cannot be reached, a worker's calls wait; those of a command raise `FleetError`.

    Attributes:
        limits: the limits of turns.

    Args:
        patient: for a worker: wait for an unreachable database, until `close`.
        wait: waits so many seconds, and returns whether the database was closed meanwhile; None is real time.
    """

    def __init__(
        self, url: str, clock: Clock, *, patient: bool = False, wait: Callable[[float], bool] | None = None
    ) -> None:
        self.database = self._db = FleetDatabase(url, clock, patient=patient, wait=wait)
        self.limits = FleetLimits(self._db)

    def open(self) -> None:
        """Connect, and create or migrate the tables.

        Raises:
            FleetError: the database cannot be reached or changed, or it is a file with another worker.
        """
        self._db.open()

    def close(self) -> None:
        """Disconnect, and release callers that wait for the database."""
        self._db.close()

    # --- turns ---

    def begin(self, repository: str, quota: str, first: datetime | None, pause: Pause | None = None) -> None:
        """Queue a turn for a repository, unless it has one or a person paused it.

        Args:
            first: when it is looked at; None is now, even if it has a delayed turn.
            pause: a pause that is not stored yet; nothing starts before its end.
        """

        def change(c: sa.Connection) -> bool:
            row = self._known(c, repository, quota, pause)
            if row.paused is not None or self._status(c, row.workflow) in _LIVE:
                return True
            look = RepositoryTurn(repository, row.number + 1, renewed=True)
            at = max(first or self._db.clock.now(), to_time(row.not_before))
            return self._move(c, repository, row.number, look, at)

        self._db.transaction(change)
        if first is None:
            self.wake(repository)

    def ready(self) -> dict[str, str]:
        """Return the quotas of repositories with a turn that wait for no person, for which `begin` is not needed."""
        turns = self._engine_turns()
        query = (
            sa.select(repositories_table.c.repository, repositories_table.c.quota)
            .join(turns, turns.c.workflow_uuid == repositories_table.c.workflow)
            .where(turns.c.status.in_(_LIVE), repositories_table.c.halted.is_(None))
        )
        rows = self._db.transaction(lambda c: c.execute(query).all())
        return {row.repository: row.quota for row in rows}

    def restart(self, repository: str, quota: str, at: datetime, pause: Pause | None = None) -> None:
        """Replace a repository's waiting turn, as the only worker of this database.

        Attempted tasks may be tried again. A task that a person asked for stays the next one.

        Args:
            at: when the turn starts, whatever pauses it.
            pause: a pause that is not stored yet.
        """
        waiting = self._current(repository)

        def change(c: sa.Connection) -> str | None:
            row = self._known(c, repository, quota, pause)
            if row.paused is not None:
                return None
            is_next = waiting is not None and waiting.id == row.workflow
            turn = (
                waiting.anew()
                if waiting and is_next
                else RepositoryTurn(repository, row.number + 1, renewed=True)
            )
            return row.workflow if self._move(c, repository, row.number, turn, at) and is_next else None

        self._replaced(change)

    def end(self, repository: str) -> None:
        """Remove a repository's waiting turn, until `begin` or `restart`."""

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            moved = row is not None and self._move(c, repository, row.number, None, self._db.clock.now())
            return row.workflow if moved else None

        self._replaced(change)

    def _known(self, c: sa.Connection, repository: str, quota: str, pause: Pause | None) -> Any:
        """Return the row of a repository that a worker starts to serve; create it if missing."""
        new = {"number": 0, "workflow": "", "not_before": 0, "reason": "", "woken": 0}
        insert = self._db.insert(repositories_table).values(repository=repository, quota=quota, **new)
        c.execute(insert.on_conflict_do_nothing())
        mine = repositories_table.c.repository == repository
        c.execute(sa.update(repositories_table).where(mine).values(quota=quota, halted=None))
        if pause is not None:
            later = repositories_table.c.not_before < ms(pause.until)
            values = {"not_before": ms(pause.until), "reason": pause.reason}
            c.execute(sa.update(repositories_table).where(mine, later).values(values))
        return self._row(c, repository)

    def advance(self, turn: RepositoryTurn, following: Following, outcome: str, usd: float | None) -> bool:
        """End a turn and queue the next one, if the repository is still at this turn.

        Returns:
            False: another worker has taken it over, or a person cancelled it.
        """

        def change(c: sa.Connection) -> bool:
            c.execute(
                sa.update(cycles_table)
                .where(cycles_table.c.workflow == turn.id)
                .values(ended=self._db.now(), outcome=outcome, usd=usd)
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
                    not_before=ms(pause.until) if pause else 0,
                    reason=pause.reason if pause else "",
                )
            )
            if following.turn is None or row.paused is not None:
                return self._move(c, turn.repository, turn.number, None, following.at)
            # Somebody who knows of something new while the look went on is heard after it.
            began = c.scalar(sa.select(cycles_table.c.began).where(cycles_table.c.workflow == turn.id))
            is_woken = pause is None and began is not None and row.woken >= began
            at = self._db.clock.now() if is_woken else following.at
            c.execute(
                sa.delete(cycles_table).where(cycles_table.c.workflow == turn.id, cycles_table.c.task == "")
            )
            return self._move(c, turn.repository, turn.number, following.turn, at)

        return self._db.transaction(change)

    def wake(self, repository: str) -> bool:
        """Look at a repository now, unless it is paused. Return whether the fleet knows it.

        A running look is followed by another one.
        """

        def change(c: sa.Connection) -> tuple[str, int] | None:
            row = self._row(c, repository)
            if row is None:
                return None
            c.execute(
                sa.update(repositories_table)
                .where(repositories_table.c.repository == repository)
                .values(woken=self._db.now())
            )
            return row.workflow, row.not_before

        found = self._db.transaction(change)
        if found is None:
            return False
        workflow, not_before = found
        if workflow:
            seconds = max(not_before - self._db.now(), 0) / 1000
            self._db.call(lambda client: client.set_workflow_delay(workflow, delay_seconds=seconds))
        return True

    def receive(self, digest: str, repository: str) -> bool:
        """Look at a repository because of a webhook delivery. Return False for a repeated delivery."""

        def change(c: sa.Connection) -> bool:
            now = self._db.clock.now()
            c.execute(sa.delete(deliveries_table).where(deliveries_table.c.at < ms(now - KEPT_DELIVERIES)))
            insert = self._db.insert(deliveries_table).values(digest=digest, at=ms(now))
            return c.scalar(insert.on_conflict_do_nothing().returning(deliveries_table.c.digest)) is not None

        return self._db.transaction(change) and (self.wake(repository) or True)

    def ask(self, repository: str, task: str) -> bool:
        """Try a task next, in place of the waiting turn. Return False if a turn is running."""

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            if row is None or row.paused is not None or self._status(c, row.workflow) == "PENDING":
                return None
            turn = RepositoryTurn(repository, row.number + 1, task, attempt=task)
            return row.workflow if self._move(c, repository, row.number, turn, self._db.clock.now()) else None

        return self._replaced(change)

    def cancel(self, repository: str) -> bool:
        """Cancel a repository's turn and look for another task. Return whether it had one.

        The worker that runs it notices at the next heartbeat, stops the cycle at once, and saves its work.
        """
        turn = self._current(repository)

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            if turn is None or row is None or row.workflow != turn.id:
                return None
            look = turn.look(attempted={*turn.attempted, turn.attempt} - {""})
            return turn.id if self._move(c, repository, turn.number, look, self._db.clock.now()) else None

        return self._replaced(change)

    def _current(self, repository: str) -> RepositoryTurn | None:
        """Return the running or waiting turn of a repository."""
        row = self._db.transaction(lambda c: self._row(c, repository))
        if row is None or not row.workflow:
            return None
        found = self._listed(status=list(_LIVE), workflow_ids=[row.workflow])
        return found[0].turn if found else None

    def _replaced(self, change: Callable[[sa.Connection], str | None]) -> bool:
        """Cancel the workflow of a turn that was replaced. Return whether one was."""
        old = self._db.transaction(change)
        if old:
            self._db.call(lambda client: client.cancel_workflow(old))
        return old is not None

    def numbers(self, repositories: Collection[str]) -> dict[str, int]:
        """Return the numbers of the present turns of repositories."""
        query = sa.select(repositories_table.c.repository, repositories_table.c.number).where(
            repositories_table.c.repository.in_(repositories)
        )
        return {row.repository: row.number for row in self._db.transaction(lambda c: c.execute(query).all())}

    def take_over(self, worker: str) -> list[RepositoryTurn]:
        """Queue the turns of a dead worker again, under new ids, and return them."""
        taken = []
        for one in self._listed(status=["PENDING"], executor_id=[worker]):
            run = self._run_of(one.workflow)
            again = one.turn.again(dead_run=run)

            def change(c: sa.Connection, old: RepositoryTurn = one.turn, new: RepositoryTurn = again) -> bool:
                c.execute(
                    sa.update(cycles_table)
                    .where(cycles_table.c.workflow == old.id, cycles_table.c.ended.is_(None))
                    .values(ended=self._db.now(), outcome="lost")
                )
                return self._move(c, old.repository, old.number, new, self._db.clock.now())

            if self._db.transaction(change):
                taken.append(again)
            # Last: whoever dies before it leaves a turn of a dead worker, which the next one finds.
            self._db.call(lambda client, id_=one.workflow: client.cancel_workflow(id_))  # type: ignore[misc]
        return taken

    def restart_lost(self) -> None:
        """Queue a look for each repository whose turn is missing from the queue. It reads all repositories."""
        turns = self._engine_turns()
        query = (
            sa.select(repositories_table.c.repository, repositories_table.c.quota)
            .outerjoin(turns, turns.c.workflow_uuid == repositories_table.c.workflow)
            .where(
                repositories_table.c.workflow != "",
                sa.or_(turns.c.status.is_(None), turns.c.status.not_in(_LIVE)),
            )
        )
        for row in self._db.transaction(lambda c: c.execute(query).all()):
            self.begin(row.repository, row.quota, self._db.clock.now())

    def queued(self) -> Sequence[QueuedTurn]:
        """Return the running, waiting and delayed turns, in order."""
        listed = self._listed(status=list(_LIVE))
        order = {"running": 0, "queued": 1, "delayed": 2}
        return sorted(
            listed,
            key=lambda one: (
                order[one.state],
                one.at if one.state == "delayed" else _LONG_AGO,
                one.turn.priority,
                one.queued_at,
            ),
        )

    def _listed(self, **which: Any) -> list[QueuedTurn]:
        """Return the turns that the engine lists for these arguments."""
        found = self._db.call(
            lambda client: client.list_workflows(name=TURN, limit=_MOST_LISTED, load_output=False, **which)
        )
        return [_queued(one) for one in found if one.input and one.input["args"]]

    # --- repositories ---

    def pause(self, repository: str, reason: str) -> bool:
        """Start nothing more in a repository; running turns continue. Return whether the fleet knows it."""
        mine = repositories_table.c.repository == repository
        change = sa.update(repositories_table).where(mine).values(paused=reason)
        return bool(self._db.transaction(lambda c: c.execute(change)).rowcount)

    def resume(self, repository: str) -> bool:
        """Continue a repository that a person paused, or that waited for one. Return whether the fleet knows it."""
        mine = repositories_table.c.repository == repository

        def change(c: sa.Connection) -> str | None:
            c.execute(sa.update(repositories_table).where(mine).values(paused=None, not_before=0, reason=""))
            quota: str | None = c.scalar(sa.select(repositories_table.c.quota).where(mine))
            if quota is not None:
                self.limits.forget_quota(c, quota)
            return quota

        quota = self._db.transaction(change)
        if quota is not None:
            self.begin(repository, quota, None)
        return quota is not None

    def is_paused(self, repository: str) -> bool:
        """Return whether a person paused a repository."""
        row = self._db.transaction(lambda c: self._row(c, repository))
        return row is not None and row.paused is not None

    def repositories(self) -> Sequence[RepositoryState]:
        """Return all repositories that the fleet ever had, by name."""
        day = ms(self._db.day())
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
        rows = self._db.transaction(lambda c: c.execute(query).all())
        now = self._db.now()
        return [
            RepositoryState(
                row.repository,
                row.number,
                row.quota,
                row.paused,
                row.halted,
                Pause(to_time(row.not_before), row.reason) if row.not_before > now else None,
                row.cycles or 0,
                row.usd or 0.0,
            )
            for row in rows
        ]

    # --- workers ---

    def add_worker(self, worker: str, version: str, parallel: int) -> None:
        """Record that a worker has started."""
        now = self._db.now()
        row = {"version": version, "parallel": parallel, "beats": 0, "started": now, "seen": now}
        self._db.transaction(
            lambda c: c.execute(sa.insert(workers_table).values(worker=worker, **row, draining=False))
        )

    def beat(self, worker: str) -> bool | None:
        """Record a heartbeat. Return whether the worker has to drain; None if it was declared dead."""

        def change(c: sa.Connection) -> bool | None:
            mine = workers_table.c.worker == worker
            c.execute(
                sa.update(workers_table)
                .where(mine)
                .values(beats=workers_table.c.beats + 1, seen=self._db.now())
            )
            return c.scalar(sa.select(workers_table.c.draining).where(mine))

        return self._db.transaction(change)

    def heartbeats(self) -> dict[str, int]:
        """Return each worker's number of heartbeats; -1 for an unrecorded worker with running turns.

        A worker that was declared dead, and then dies before its next heartbeat, leaves such turns.
        """
        turns = self._engine_turns()
        running = sa.select(turns.c.executor_id).where(turns.c.status == "PENDING", turns.c.name == TURN)
        beats = sa.select(workers_table.c.worker, workers_table.c.beats)

        def read(c: sa.Connection) -> dict[str, int]:
            found = {worker: -1 for worker in c.scalars(running.distinct()) if worker}
            return found | {row.worker: row.beats for row in c.execute(beats)}

        return self._db.transaction(read)

    def workers(self) -> Sequence[FleetWorkerState]:
        """Return the workers that have started and not ended, by name."""
        rows = self._db.transaction(
            lambda c: c.execute(sa.select(workers_table).order_by(workers_table.c.worker)).all()
        )
        return [
            FleetWorkerState(
                row.worker,
                row.version,
                row.parallel,
                row.beats,
                to_time(row.started),
                to_time(row.seen),
                bool(row.draining),
            )
            for row in rows
        ]

    def drain(self, worker: str) -> bool:
        """Ask a worker to end after its running turns. Return whether it exists."""
        change = sa.update(workers_table).where(workers_table.c.worker == worker).values(draining=True)
        return bool(self._db.transaction(lambda c: c.execute(change)).rowcount)

    def prune(self) -> None:
        """Delete turns that ended long ago, old costs, and request quotas of past hours."""
        before = self._db.clock.now() - KEPT_TURNS
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

        while self._db.call(remove) == _MOST_REMOVED:
            pass
        old = cycles_table.c.began < ms(self._db.clock.now() - KEPT_COSTS)
        self._db.transaction(lambda c: c.execute(sa.delete(cycles_table).where(old)))
        self.limits.forget_quotas(before)

    def newest_version(self) -> str:
        """Return the version of the program whose workers take turns: the one that was first started last."""
        return str(self._db.call(lambda client: client.get_latest_application_version())["version_name"])

    def remove_worker(self, worker: str) -> None:
        """Record that a worker has ended."""
        self._db.transaction(
            lambda c: c.execute(sa.delete(workers_table).where(workers_table.c.worker == worker))
        )

    # --- inside ---

    def _row(self, c: sa.Connection, repository: str) -> Any:
        """Return the row of a repository, locked until the end of the transaction."""
        query = sa.select(repositories_table).where(repositories_table.c.repository == repository)
        return c.execute(query.with_for_update()).first()

    def _move(
        self, c: sa.Connection, repository: str, number: int, turn: RepositoryTurn | None, at: datetime
    ) -> bool:
        """Move a repository from its turn to the next one, and queue that. Return whether it was at its turn."""
        moved = c.execute(
            sa.update(repositories_table)
            .where(repositories_table.c.repository == repository, repositories_table.c.number == number)
            .values(number=number + 1, workflow=turn.id if turn else "")
        )
        if turn is None or not moved.rowcount:
            return bool(moved.rowcount)
        delay = (at - self._db.clock.now()).total_seconds()
        later = {"delay_seconds": delay} if delay > 0 else {}
        self._db.client.enqueue_in_transaction(
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
        """Return the engine's status of a workflow: `PENDING` means that it runs."""
        turns = self._engine_turns()
        found: str | None = c.scalar(sa.select(turns.c.status).where(turns.c.workflow_uuid == workflow))
        return found

    def _engine_turns(self) -> sa.TableClause:
        """Return the engine's table of workflows, with the columns that are read here."""
        names = ("workflow_uuid", "name", "status", "executor_id")
        return sa.table("workflow_status", *map(sa.column, names), schema=self._db.engine_schema)

    def _run_of(self, workflow: str) -> str:
        query = sa.select(cycles_table.c.run).where(cycles_table.c.workflow == workflow)
        return self._db.transaction(lambda c: c.scalar(query)) or ""


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def _queued(found: Any) -> QueuedTurn:
    turn = RepositoryTurn.from_json(found.input["args"][0])
    running = found.status == "PENDING"
    state = "running" if running else "delayed" if found.status == "DELAYED" else "queued"
    at = found.dequeued_at if running else found.delay_until_epoch_ms if state == "delayed" else None
    return QueuedTurn(
        turn,
        found.workflow_id,
        state,
        to_time(at) if at else None,
        (found.executor_id or "") if running else "",
        to_time(found.created_at),
    )
