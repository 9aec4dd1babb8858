"""The fleet's state in its database: the present turn of each repository, the queue, and the workers.

The transaction that ends a turn by compare-and-swap also queues the next one. So a worker that was wrongly
declared dead cannot queue another one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from orchestrator.bot.journal.run_facts import Pause
from orchestrator.plugins.fleet.database import (
    FleetDatabase,
    cycles_table,
    deliveries_table,
    repositories_table,
    to_ms,
    waiting_table,
    workers_table,
)
from orchestrator.plugins.fleet.rows import (
    MOST_USD,
    MOST_WHOLE,
    RowReader,
    Rows,
    UnreadableRowError,
    raw,
    read_rows,
    sound,
)
from orchestrator.plugins.fleet.turns import (
    DEATH_DELAY,
    MOST_DEATHS,
    FleetLimits,
    QueuedTurn,
    RepositoryTurn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from orchestrator.plugins.fleet.turns import Following

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
class WaitingTask:
    """A task that waits for a person, and the reason."""

    repository: str
    task: str
    why: str


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
    """Reads and changes the present turns of repositories, and the workers.

    A row that cannot be read raises an `UnreadableRowError`.
    """

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
                self._replace_turn(
                    c, repository, row.number, look, max(first or self.clock.now(), row.not_before)
                )

        self.transaction(change)
        if first is None:
            self.wake(repository)

    def ready(self) -> dict[str, str]:
        """Return the repositories that do not need `begin`, because they have a turn and wait for no person.

        The values are their quotas.
        """
        turns = self._engine_turns()
        query = (
            sa.select(*raw(*repositories_table.c))
            .join(turns, turns.c.workflow_uuid == repositories_table.c.workflow)
            .where(turns.c.status.in_(_LIVE), repositories_table.c.halted.is_(None))
        )
        return {row.repository: row.quota for row in self._repository_rows(query)}

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
            if row is None or not self._replace_turn(c, repository, row.number, None, self.clock.now()):
                return None
            return row.workflow

        self._cancel_replaced(change)

    def _add_repository(
        self, c: sa.Connection, repository: str, quota: str, pause: Pause | None
    ) -> _RepositoryRow:
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
        row = self._row(c, repository)
        if row is None:
            raise AssertionError("the row was inserted above")
        return row

    def advance(self, turn: RepositoryTurn, following: Following, outcome: str, usd: float | None) -> bool:
        """End a turn and queue the next one, if the repository is still at this turn.

        Returns:
            False if it is not, because another worker took the turn over or a person cancelled it.

        Raises:
            UnreadableRowError: the row of the repository cannot be read. What the turn cost is recorded all the same.
        """
        ended = sa.update(cycles_table).where(cycles_table.c.workflow == turn.id)
        self.change(ended.values(ended=self.now(), outcome=outcome, usd=usd))

        def change(c: sa.Connection) -> bool:
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
            began = sa.select(cycles_table.c.began <= row.woken).where(cycles_table.c.workflow == turn.id)
            is_woken = pause is None and bool(c.scalar(began))
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

        def change(c: sa.Connection) -> _RepositoryRow | None:
            row = self._row(c, repository)
            if row is None:
                return None
            c.execute(
                sa.update(repositories_table)
                .where(repositories_table.c.repository == repository)
                .values(woken=self.now())
            )
            return row

        found = self.transaction(change)
        if found is None:
            return False
        if found.workflow:
            seconds = max((found.not_before - self.clock.now()).total_seconds(), 0.0)
            self.call(lambda client: client.set_workflow_delay(found.workflow, delay_seconds=seconds))
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
        found = self._turns(lambda turns: turns.c.workflow_uuid == row.workflow)
        return found[0].turn if found else None

    def _cancel_replaced(self, change: Callable[[sa.Connection], str | None]) -> bool:
        """Replace a turn by `change`, which returns its workflow, and cancel that. Return whether one was replaced."""
        old = self.transaction(change)
        if old:
            self.call(lambda client: client.cancel_workflow(old))
        return old is not None

    def numbers(self, repositories: Collection[str]) -> dict[str, int | None]:
        """Return the numbers of the present turns of repositories; None for one whose row cannot be read."""
        query = sa.select(*raw(*repositories_table.c)).where(
            repositories_table.c.repository.in_(repositories)
        )
        rows = self._repository_rows(query)
        return {row.repository: row.number for row in rows} | {row.key: None for row in rows.unreadable}

    def take_over(self, worker: str) -> list[RepositoryTurn]:
        """Queue a look in place of each turn of a dead worker, behind all others, and return the looks.

        A repository whose looks end one worker after another is paused, until a person resumes it.

        A repository whose turn cannot be read gets a look, as if its turn was missing.
        """
        taken = []
        running = self._running_turns(worker)
        self.cancel_unreadable(worker)
        for one in running:

            def change(c: sa.Connection, old: RepositoryTurn = one.turn) -> RepositoryTurn | None:
                mine = cycles_table.c.workflow == old.id
                run = c.scalar(sa.select(cycles_table.c.run).where(mine))
                values = {"ended": self.now(), "outcome": "lost"}
                c.execute(sa.update(cycles_table).where(mine, cycles_table.c.ended.is_(None)).values(values))
                new = old.after_death(run or "")
                # The deaths of a task's workers are counted in its claim.
                is_look = not old.task
                at = self.clock.now() + (DEATH_DELAY if is_look and new.deaths > 1 else timedelta())
                goes_on = not is_look or new.deaths < MOST_DEATHS
                is_moved = self._replace_turn(c, old.repository, old.number, new if goes_on else None, at)
                if is_moved and not goes_on:
                    mine = repositories_table.c.repository == old.repository
                    c.execute(sa.update(repositories_table).where(mine).values(paused=_died(new)))
                return new if is_moved and goes_on else None  # it needs no other column of the row

            if (again := self.transaction(change)) is not None:
                taken.append(again)
            # Last: if this worker dies before, the next one finds the turn of the dead worker again.
            self.call(lambda client, id_=one.workflow: client.cancel_workflow(id_))  # type: ignore[misc]
        return taken

    def restart_lost(self) -> None:
        """Queue a look for each repository whose turn is missing from the queue. This reads all repositories."""
        turns = self._engine_turns()
        query = (
            sa.select(*raw(*repositories_table.c))
            .outerjoin(turns, turns.c.workflow_uuid == repositories_table.c.workflow)
            .where(
                repositories_table.c.workflow != "",
                sa.or_(turns.c.status.is_(None), turns.c.status.not_in(_LIVE)),
            )
        )
        for row in self._repository_rows(query):
            with suppress(UnreadableRowError):  # damaged since it was read
                self.begin(row.repository, row.quota, self.clock.now())

    def queued(self) -> Rows[QueuedTurn]:
        """Return the running, waiting and delayed turns, in order."""
        order = {"running": 0, "queued": 1, "delayed": 2}

        def rank(queued: QueuedTurn) -> tuple[int, datetime, int, datetime]:
            start = queued.at if queued.at and queued.state == "delayed" else _LONG_AGO
            return order[queued.state], start, queued.turn.priority, queued.queued_at

        return self._turns(lambda _turns: sa.true()).sorted(rank)

    def _running_turns(self, worker: str) -> Rows[QueuedTurn]:
        """Return the turns that a worker runs, or ran when it died."""
        return self._turns(lambda turns: sa.and_(turns.c.status == "PENDING", turns.c.executor_id == worker))

    def cancel_unreadable(self, worker: str) -> None:
        """Cancel the turns of a worker that cannot be read, so that `restart_lost` queues a look in place of each."""
        for row in self._running_turns(worker).unreadable:
            self.call(lambda client, id_=row.key: client.cancel_workflow(id_))  # type: ignore[misc]

    def _turns(self, which: Callable[[sa.TableClause], sa.ColumnElement[bool]]) -> Rows[QueuedTurn]:
        """Return the turns in the queue of DBOS that fulfil a condition."""
        turns, inputs = self._engine_turns(), self._engine_inputs()
        columns = [one for one in turns.c if one.key != "inputs"]
        query = (
            sa.select(*raw(*columns), *raw(sa.func.coalesce(inputs.c.inputs, turns.c.inputs).label("inputs")))
            .outerjoin(inputs, inputs.c.workflow_uuid == turns.c.workflow_uuid)
            .where(turns.c.name == TURN, turns.c.status.in_(_LIVE), which(turns))
            .order_by(turns.c.created_at)
            .limit(_MOST_LISTED)
        )
        return read_rows("workflow_status", "workflow_uuid", self.rows(query), _queued_turn)

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

    def repositories(self) -> Rows[RepositoryState]:
        """Return all repositories that the fleet ever served, by name."""
        cost = (
            sa.select(
                cycles_table.c.repository,
                sa.func.count().label("cycles"),
                sa.func.sum(sa.case((sound(cycles_table.c.usd, MOST_USD), cycles_table.c.usd))).label("usd"),
            )
            .where(self.limits.began_since(self.day()), cycles_table.c.task != "")
            .group_by(cycles_table.c.repository)
            .subquery()
        )
        query = (
            sa.select(*raw(*repositories_table.c), *raw(cost.c.cycles, cost.c.usd))
            .outerjoin(cost, cost.c.repository == repositories_table.c.repository)
            .order_by(repositories_table.c.repository)
        )
        now = self.clock.now()

        def state(row: RowReader) -> RepositoryState:
            known = _repository_row(row)
            return RepositoryState(
                known.repository,
                known.number,
                known.quota,
                known.paused,
                known.halted,
                Pause(known.not_before, known.reason) if known.not_before > now else None,
                row.whole("cycles") if row.has("cycles") else 0,
                row.number("usd") if row.has("usd") else 0.0,
            )

        return read_rows("pullwright_repositories", "repository", self.rows(query), state)

    def note_waiting(
        self, repository: str, tasks: Mapping[str, str], *, gone: Collection[str] | None
    ) -> None:
        """Store which tasks wait for a person, each with the reason, for display.

        Args:
            gone: tasks that do not wait any more; None for all that are not among `tasks`.
        """

        def change(c: sa.Connection) -> None:
            t = waiting_table.c
            old = (
                [t.repository == repository]
                if gone is None
                else [t.repository == repository, t.task.in_(gone)]
            )
            c.execute(sa.delete(waiting_table).where(*old))
            for task, why in tasks.items():
                insert = self.insert(waiting_table).values(repository=repository, task=task, why=why)
                c.execute(
                    insert.on_conflict_do_update(index_elements=["repository", "task"], set_={"why": why})
                )

        self.transaction(change)

    def waiting(self) -> Rows[WaitingTask]:
        """Return the tasks that wait for a person, by repository."""
        t = waiting_table.c
        query = sa.select(*raw(*t)).order_by(t.repository, t.task).limit(_MOST_LISTED)
        return read_rows(
            "pullwright_waiting",
            "repository",
            self.rows(query),
            lambda row: WaitingTask(row.key("repository"), row.key("task"), row.text("why")),
        )

    # --- workers ---

    def add_worker(self, worker: str, version: str, parallel: int) -> None:
        """Record that a worker has started."""
        now = self.now()
        row = {"version": version, "parallel": parallel, "beats": 0, "started": now, "seen": now}
        insert = self.insert(workers_table).values(worker=worker, **row, draining=False)
        self.change(insert.on_conflict_do_update(index_elements=["worker"], set_={**row, "draining": False}))

    def beat(self, worker: str) -> bool | None:
        """Record a heartbeat. Return whether the worker was asked to drain; None if it was declared dead.

        It reads and writes the worker's own row alone, and counts on from whatever is there.
        """

        def change(c: sa.Connection) -> bool | None:
            mine, beats = workers_table.c.worker == worker, workers_table.c.beats
            counted = sa.case((sound(beats, MOST_WHOLE), beats + 1), else_=1)
            beaten = c.execute(sa.update(workers_table).where(mine).values(beats=counted, seen=self.now()))
            if not beaten.rowcount:
                return None
            return c.scalar(sa.select(*raw(workers_table.c.draining)).where(mine)) == 1

        return self.transaction(change)

    def heartbeats(self) -> dict[str, int]:
        """Return each worker's number of heartbeats; -1 for an unrecorded worker with running turns.

        There is such a worker if it was declared dead, took a turn, and died before its next heartbeat. A number that
        cannot be read is -2, until the next heartbeat of its worker replaces it.
        """
        turns = self._engine_turns()
        running = sa.select(turns.c.executor_id).where(turns.c.status == "PENDING", turns.c.name == TURN)
        beats = sa.select(*raw(workers_table.c.worker, workers_table.c.beats))

        def read(c: sa.Connection) -> dict[str, int]:
            found = {
                worker: -1 for worker in c.scalars(running.distinct()) if isinstance(worker, str) and worker
            }
            counted = read_rows(
                "pullwright_workers",
                "worker",
                c.execute(beats),
                lambda row: (row.key("worker"), row.whole("beats")),
            )
            return found | {row.key: -2 for row in counted.unreadable if row.key} | dict(counted)

        return self.transaction(read)

    def workers(self) -> Rows[FleetWorkerState]:
        """Return the workers that have not ended, by name."""
        query = sa.select(*raw(*workers_table.c)).order_by(workers_table.c.worker)
        return read_rows("pullwright_workers", "worker", self.rows(query), _worker)

    def drain(self, worker: str) -> bool:
        """Ask a worker to end after the current rounds of its cycles. Return whether it exists."""
        change = sa.update(workers_table).where(workers_table.c.worker == worker).values(draining=True)
        return self.change(change)

    def prune(self) -> None:
        """Delete old turns, costs and request quotas."""
        before = self.clock.now() - KEPT_TURNS
        turns = self._engine_turns()
        ended = turns.c.status.in_(("SUCCESS", "ERROR", "CANCELLED"))
        query = sa.select(turns.c.workflow_uuid).where(
            turns.c.name == TURN, ended, turns.c.completed_at.between(1, to_ms(before))
        )
        while old := [row.workflow_uuid for row in self.rows(query.limit(_MOST_REMOVED))]:
            self.call(lambda client, ids=old: client.delete_workflows(ids))  # type: ignore[misc]
        old_costs = cycles_table.c.began < to_ms(self.clock.now() - KEPT_COSTS)
        self.change(sa.delete(cycles_table).where(old_costs))
        self.limits.forget_quotas(before)

    def versions(self) -> Rows[tuple[int, str]]:
        """Return the versions of the program that were started, each with the time of its first start."""
        versions = sa.table(
            "application_versions",
            *map(sa.column, ("version_name", "version_timestamp")),
            schema=self.engine_schema,
        )
        rows = self.rows(sa.select(*raw(*versions.c)).limit(_MOST_LISTED))
        return read_rows(
            "application_versions",
            "version_name",
            rows,
            lambda row: (row.whole("version_timestamp"), row.key("version_name")),
        )

    def newest_version(self) -> str:
        """Return the version of the program whose workers take turns: the one that was started for the first time last."""
        return max(self.versions(), default=(0, ""))[1]

    def running_limits(self) -> Rows[int]:
        """Return the limit of running turns of all workers, if there is one."""
        queues = sa.table("queues", *map(sa.column, ("name", "concurrency")), schema=self.engine_schema)
        query = sa.select(*raw(*queues.c)).where(queues.c.name == QUEUE, queues.c.concurrency.is_not(None))
        return read_rows("queues", "name", self.rows(query), lambda row: row.whole("concurrency"))

    def remove_worker(self, worker: str) -> None:
        """Record that a worker has ended."""
        change = sa.delete(workers_table).where(workers_table.c.worker == worker)
        self.change(change)

    # --- private ---

    def _row(self, c: sa.Connection, repository: str) -> _RepositoryRow | None:
        """Return the row of a repository, locked until the end of the transaction."""
        query = sa.select(*raw(*repositories_table.c)).where(repositories_table.c.repository == repository)
        rows = read_rows(
            "pullwright_repositories", "repository", c.execute(query.with_for_update()), _repository_row
        )
        if rows.unreadable:
            raise UnreadableRowError(rows.unreadable[0].words)
        return next(iter(rows), None)

    def _repository_rows(self, query: sa.Select[Any]) -> Rows[_RepositoryRow]:
        return read_rows("pullwright_repositories", "repository", self.rows(query), _repository_row)

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
        times = ("created_at", "delay_until_epoch_ms", "started_at_epoch_ms", "completed_at")
        names = ("workflow_uuid", "name", "status", "executor_id", "inputs", *times)
        return sa.table("workflow_status", *map(sa.column, names), schema=self.engine_schema)

    def _engine_inputs(self) -> sa.TableClause:
        """Return the table of inputs of DBOS, which older versions kept in the table of workflows."""
        return sa.table(
            "workflow_input", *map(sa.column, ("workflow_uuid", "inputs")), schema=self.engine_schema
        )


def _died(turn: RepositoryTurn) -> str:
    """Return why a repository is paused whose turns end their workers."""
    runs = f", the last in run {turn.dead_runs[-1]}" if turn.dead_runs else ""
    return f"{turn.deaths} workers in a row died while they looked at it{runs}: find out why, then resume it"


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _RepositoryRow:
    """A row of the repositories, whole. Those who need one column read all: a half-read row would be half-changed."""

    repository: str
    number: int
    workflow: str
    quota: str
    paused: str | None
    halted: str | None
    not_before: datetime
    reason: str
    woken: int


def _repository_row(row: RowReader) -> _RepositoryRow:
    return _RepositoryRow(
        row.key("repository"),
        row.whole("number"),
        row.text("workflow"),
        row.text("quota"),
        row.text("paused") if row.has("paused") else None,
        row.text("halted") if row.has("halted") else None,
        row.moment("not_before"),
        row.text("reason"),
        row.whole("woken"),
    )


def _worker(row: RowReader) -> FleetWorkerState:
    return FleetWorkerState(
        row.key("worker"),
        row.text("version"),
        row.whole("parallel"),
        row.whole("beats"),
        row.moment("started"),
        row.moment("seen"),
        row.flag("draining"),
    )


def _queued_turn(row: RowReader) -> QueuedTurn:
    turn = RepositoryTurn.from_fields(row.fields("inputs"))
    state = {"PENDING": "running", "DELAYED": "delayed"}.get(row.text("status"), "queued")
    at = {"running": "started_at_epoch_ms", "delayed": "delay_until_epoch_ms"}.get(state, "")
    return QueuedTurn(
        turn,
        row.key("workflow_uuid"),
        state,
        row.moment(at) if at and row.has(at) else None,
        row.text("executor_id") if state == "running" and row.has("executor_id") else "",
        row.moment("created_at"),
    )
