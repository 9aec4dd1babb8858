"""The fleet's database: one queue of turns on DBOS, and beside it what the engine has no place for.

DBOS keeps the turns (workflows: queued, delayed, running, ended), on an SQLite file or in PostgreSQL. Tables of
our own keep which turn a repository is at, who works, pauses, and money. A turn moves on by compare-and-swap in the
transaction that queues the next one, so that a worker that was taken for dead cannot make the row of turns fork.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from dbos._error import DBOSException
from dbos._serialization import DBOSPortableJSON, DefaultSerializer
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.bot.fleet.turns import RepositoryTurn
from orchestrator.bot.journal.index import Pause
from orchestrator.core.errors import ConfigurationError, FleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from orchestrator.bot.fleet.turns import Following
    from orchestrator.core.clock import Clock

QUEUE = "turns"
TURN = "turn"
_APPLICATION = "pullwright"
_LIVE = ("ENQUEUED", "DELAYED", "PENDING")
_MOST_LISTED = 10_000
_MOST_REMOVED = 1_000
KEPT_TURNS = timedelta(days=7)
"""So long the database keeps turns that ended. The journals on the machines keep more."""
_BUSY_MILLISECONDS = 30_000
_TRIES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_AWAY = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
_DRIVER = "postgresql+psycopg"

_T = TypeVar("_T")

_tables = sa.MetaData()
_repositories = sa.Table(
    "pullwright_repositories",
    _tables,
    sa.Column("repository", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("workflow", sa.Text, nullable=False),
    sa.Column("quota", sa.Text, nullable=False),
    sa.Column("paused", sa.Text),
    sa.Column("halted", sa.Text),
    sa.Column("not_before", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("woken", sa.BigInteger, nullable=False),
)
_quotas = sa.Table(
    "pullwright_quotas",
    _tables,
    sa.Column("quota", sa.Text, primary_key=True),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
_workers = sa.Table(
    "pullwright_workers",
    _tables,
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("parallel", sa.Integer, nullable=False),
    sa.Column("beats", sa.BigInteger, nullable=False),
    sa.Column("started", sa.BigInteger, nullable=False),
    sa.Column("seen", sa.BigInteger, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False),
)
_cycles = sa.Table(
    "pullwright_cycles",
    _tables,
    sa.Column("workflow", sa.Text, primary_key=True),
    sa.Column("repository", sa.Text, nullable=False, index=True),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("claim", sa.Integer, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("began", sa.BigInteger, nullable=False, index=True),
    sa.Column("ended", sa.BigInteger),
    sa.Column("outcome", sa.Text),
    sa.Column("reserved", sa.Float, nullable=False),
    sa.Column("usd", sa.Float),
)
_deliveries = sa.Table(
    "pullwright_deliveries",
    _tables,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
)
KEPT_DELIVERIES = timedelta(days=30)
"""So long a delivery of a webhook is known again. One that is repeated later costs a look."""


def _refuse_pickle(_self: object, _text: str) -> object:
    raise FleetError("the fleet's database holds a pickled value, which this program never reads or writes")


@dataclass(frozen=True, slots=True)
class QueuedTurn:
    """A turn that waits or runs.

    Attributes:
        state: `queued`, `delayed`, or `running`.
        at: since when it runs, or not before which time it begins; None where it only waits for its turn.
        worker: who runs it.
    """

    turn: RepositoryTurn
    workflow: str
    state: str
    at: datetime | None
    worker: str
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """What the fleet knows of a repository.

    Attributes:
        paused: why a person paused it, if one did.
        halted: what a person has to do before it goes on.
        pause: a server's pause.
        usd: what its cycles have cost since the day's beginning (UTC), as far as prices are known.
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
    """What the fleet knows of a worker. `beats` counts up for as long as it lives."""

    worker: str
    version: str
    parallel: int
    beats: int
    started_at: datetime
    seen_at: datetime
    draining: bool


def make_engine(url: str) -> sa.Engine:
    """An engine for `sqlite:///PATH` or a PostgreSQL URL.

    Raises:
        ConfigurationError: the URL is of neither.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ConfigurationError("the database's URL cannot be read: postgresql://USER@HOST/NAME") from None
    if parsed.get_backend_name() == "postgresql":
        return sa.create_engine(
            parsed.set(drivername=_DRIVER),
            pool_size=10,
            pool_timeout=30,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 10},
        )
    if parsed.get_backend_name() != "sqlite":
        raise ConfigurationError("the fleet's database is a PostgreSQL: postgresql://USER@HOST/NAME")
    engine = sa.create_engine(parsed)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA journal_mode=WAL")

    return engine


def file_url(path: Path) -> str:
    """The URL of an SQLite file."""
    return sa.URL.create("sqlite", database=str(path)).render_as_string()


class FleetStore:
    """Reads and changes the fleet's database. Its methods block: use it in threads.

    While the database cannot be reached, a worker's calls wait; those of a command raise `FleetError`.

    Args:
        patient: wait for a database that is away, until `close`.
    """

    def __init__(self, url: str, clock: Clock, *, patient: bool = False) -> None:
        self.url = url
        self.engine = make_engine(url)
        self.place = _shown(self.engine.url)
        self._clock = clock
        self._patient = patient
        self._closed = threading.Event()
        self._client: DBOSClient | None = None

    def open(self) -> None:
        """Connect, and make or migrate the tables.

        Raises:
            FleetError: the database cannot be reached or changed.
        """
        DefaultSerializer.deserialize = _refuse_pickle  # type: ignore[assignment, method-assign]
        logging.getLogger("dbos").setLevel(logging.CRITICAL)
        with self._errors():
            with self.engine.begin():
                pass
            DBOS.migrate(self.engine.url.render_as_string(hide_password=False))
            _tables.create_all(self.engine)
            self._client = DBOSClient(
                system_database_url=self.url,
                system_database_engine=self.engine,
                serializer=DBOSPortableJSON,
                application_name=_APPLICATION,
                retry_connection_errors=self._patient,
            )

    def close(self) -> None:
        """Disconnect; whoever waits for the database is let go."""
        self._closed.set()
        if self._client is not None:
            self._client.destroy()
        self.engine.dispose()

    # --- turns ---

    def begin(self, repository: str, quota: str, first: datetime | None) -> None:
        """Give a repository a turn, unless it has one or a person paused it.

        Args:
            first: when it is looked at; None is at once, also where it has a turn that waits for later.
        """

        def change(c: sa.Connection) -> bool:
            c.execute(
                self._insert(_repositories)
                .values(
                    repository=repository,
                    number=0,
                    workflow="",
                    quota=quota,
                    not_before=0,
                    reason="",
                    woken=0,
                )
                .on_conflict_do_nothing()
            )
            row = self._row(c, repository)
            c.execute(
                sa.update(_repositories)
                .where(_repositories.c.repository == repository)
                .values(quota=quota, halted=None)
            )
            if row is None or row.paused is not None or self._status(c, row.workflow) in _LIVE:
                return True
            look = RepositoryTurn(repository, row.number + 1, renewed=True)
            return self._move(c, repository, row.number, look, first or self._clock.now())

        self._tried(change)
        if first is None:
            self.wake(repository)

    def advance(self, turn: RepositoryTurn, following: Following, outcome: str, usd: float | None) -> bool:
        """End a turn, and queue what follows, if the repository is still at this turn.

        Returns:
            False: another worker has taken it over, or a person cancelled it.
        """

        def change(c: sa.Connection) -> bool:
            c.execute(
                sa.update(_cycles)
                .where(_cycles.c.workflow == turn.id)
                .values(ended=self._now(), outcome=outcome, usd=usd)
            )
            row = self._row(c, turn.repository)
            if row is None or row.number != turn.number:
                return False
            pause = following.pause
            c.execute(
                sa.update(_repositories)
                .where(_repositories.c.repository == turn.repository)
                .values(
                    halted=following.halted or None,
                    not_before=_ms(pause.until) if pause else 0,
                    reason=pause.reason if pause else "",
                )
            )
            if following.turn is None or row.paused is not None:
                return self._move(c, turn.repository, turn.number, None, following.at)
            # Somebody who knows of something new while the look went on is heard after it.
            began = c.scalar(sa.select(_cycles.c.began).where(_cycles.c.workflow == turn.id))
            is_woken = pause is None and began is not None and row.woken >= began
            at = self._clock.now() if is_woken else following.at
            c.execute(sa.delete(_cycles).where(_cycles.c.workflow == turn.id, _cycles.c.task == ""))
            return self._move(c, turn.repository, turn.number, following.turn, at)

        return self._tried(change)

    def wake(self, repository: str) -> bool:
        """Look at a repository at once, unless it is paused; whether the fleet knows it.

        A look that runs now is followed by another one.
        """

        def change(c: sa.Connection) -> tuple[str, int] | None:
            row = self._row(c, repository)
            if row is None:
                return None
            c.execute(
                sa.update(_repositories)
                .where(_repositories.c.repository == repository)
                .values(woken=self._now())
            )
            return row.workflow, row.not_before

        found = self._tried(change)
        if found is None:
            return False
        workflow, not_before = found
        if workflow:
            seconds = max(not_before - self._now(), 0) / 1000
            self._engine_call(lambda client: client.set_workflow_delay(workflow, delay_seconds=seconds))
        return True

    def receive(self, digest: str, repository: str) -> bool:
        """Look at a repository because of a webhook's delivery; False where the delivery was there before."""

        def change(c: sa.Connection) -> bool:
            now = self._clock.now()
            c.execute(sa.delete(_deliveries).where(_deliveries.c.at < _ms(now - KEPT_DELIVERIES)))
            insert = self._insert(_deliveries).values(digest=digest, at=_ms(now))
            return c.scalar(insert.on_conflict_do_nothing().returning(_deliveries.c.digest)) is not None

        return self._tried(change) and (self.wake(repository) or True)

    def ask(self, repository: str, task: str) -> bool:
        """Try a task next, in place of what the repository waits for; whether nothing of it is running."""

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            if row is None or row.paused is not None or self._status(c, row.workflow) == "PENDING":
                return None
            turn = RepositoryTurn(repository, row.number + 1, task, attempt=task)
            return row.workflow if self._move(c, repository, row.number, turn, self._clock.now()) else None

        return self._replaced(change)

    def cancel(self, repository: str) -> bool:
        """End the turn that a repository runs or waits for, and look for another task; whether it had one.

        Whoever runs it learns of it at the next heartbeat, ends the cycle at once, and keeps its work.
        """
        turn = next((one.turn for one in self.queued() if one.turn.repository == repository), None)

        def change(c: sa.Connection) -> str | None:
            row = self._row(c, repository)
            if turn is None or row is None or row.workflow != turn.id:
                return None
            look = turn.look(attempted={*turn.attempted, turn.attempt} - {""})
            return turn.id if self._move(c, repository, turn.number, look, self._clock.now()) else None

        return self._replaced(change)

    def _replaced(self, change: Callable[[sa.Connection], str | None]) -> bool:
        """Cancel the workflow of the turn from which a repository was moved on; whether it was."""
        old = self._tried(change)
        if old:
            self._engine_call(lambda client: client.cancel_workflow(old))
        return old is not None

    def numbers(self, repositories: Collection[str]) -> dict[str, int]:
        """At which turn some repositories are."""
        query = sa.select(_repositories.c.repository, _repositories.c.number).where(
            _repositories.c.repository.in_(repositories)
        )
        return {row.repository: row.number for row in self._tried(lambda c: c.execute(query).all())}

    def take_over(self, worker: str) -> list[RepositoryTurn]:
        """Queue the turns of a worker that is dead once more, under ids of their own; returns those."""
        stale = [one for one in self.queued() if one.state == "running" and one.worker == worker]
        taken = []
        for one in stale:
            run = self._run_of(one.workflow)
            again = one.turn.again(dead_run=run)
            self._engine_call(lambda client, id_=one.workflow: client.cancel_workflow(id_))  # type: ignore[misc]

            def change(c: sa.Connection, old: RepositoryTurn = one.turn, new: RepositoryTurn = again) -> bool:
                c.execute(
                    sa.update(_cycles)
                    .where(_cycles.c.workflow == old.id, _cycles.c.ended.is_(None))
                    .values(ended=self._now(), outcome="lost")
                )
                return self._move(c, old.repository, old.number, new, self._clock.now())

            if self._tried(change):
                taken.append(again)
        return taken

    def restart_lost(self) -> None:
        """Give those a look whose turn is not in the queue any more, for whatever reason."""
        schema = "dbos" if self._is_postgresql else None
        turns = sa.table("workflow_status", sa.column("workflow_uuid"), sa.column("status"), schema=schema)
        query = (
            sa.select(_repositories.c.repository, _repositories.c.quota)
            .join(turns, turns.c.workflow_uuid == _repositories.c.workflow)
            .where(turns.c.status.not_in(_LIVE))
        )
        for row in self._tried(lambda c: c.execute(query).all()):
            self.begin(row.repository, row.quota, self._clock.now())

    def queued(self) -> Sequence[QueuedTurn]:
        """The turns that run, wait or are delayed, in the order in which they come."""
        found = self._engine_call(
            lambda client: client.list_workflows(
                status=list(_LIVE), name=TURN, limit=_MOST_LISTED, load_output=False
            )
        )
        listed = [_queued(one) for one in found if one.input and one.input["args"]]
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

    # --- cycles and money ---

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
                day = _ms(self._day())
                spent = c.scalar(
                    sa.select(sa.func.sum(sa.func.coalesce(_cycles.c.usd, _cycles.c.reserved))).where(
                        _cycles.c.began >= day
                    )
                )
                if (spent or 0.0) + reserve > most_usd:
                    return False
            values = {"worker": worker, "run": run, "began": self._now(), "reserved": reserve}
            row = {"repository": turn.repository, "task": turn.task, "title": turn.title, "claim": turn.claim}
            c.execute(
                self._insert(_cycles).values(workflow=turn.id, **row, **values).on_conflict_do_nothing()
            )
            return True

        return self._tried(change)

    def spent_today(self) -> float:
        """What the fleet's cycles have cost since the day's beginning (UTC), with what is set aside."""
        spent = sa.func.sum(sa.func.coalesce(_cycles.c.usd, _cycles.c.reserved))
        query = sa.select(spent).where(_cycles.c.began >= _ms(self._day()))
        return float(self._tried(lambda c: c.scalar(query)) or 0.0)

    def next_day(self) -> datetime:
        """When the day's limits begin anew."""
        return self._day() + timedelta(days=1)

    # --- pauses ---

    def pause_quota(self, quota: str, pause: Pause) -> None:
        """Let nobody begin who lives on a quota that is spent."""
        row = {"until": _ms(pause.until), "reason": pause.reason}

        def change(c: sa.Connection) -> None:
            insert = self._insert(_quotas).values(quota=quota, **row)
            later = insert.excluded.until > _quotas.c.until
            c.execute(insert.on_conflict_do_update(index_elements=["quota"], set_=row, where=later))

        self._tried(change)

    def pause(self, repository: str, reason: str) -> bool:
        """Begin nothing more in a repository; what runs goes on. Whether the fleet knows it."""
        mine = _repositories.c.repository == repository
        change = sa.update(_repositories).where(mine).values(paused=reason)
        return bool(self._tried(lambda c: c.execute(change)).rowcount)

    def resume(self, repository: str) -> bool:
        """Go on with a repository that a person paused, or that needed one; whether the fleet knows it."""
        mine = _repositories.c.repository == repository

        def change(c: sa.Connection) -> str | None:
            c.execute(sa.update(_repositories).where(mine).values(paused=None, not_before=0, reason=""))
            quota: str | None = c.scalar(sa.select(_repositories.c.quota).where(mine))
            c.execute(sa.delete(_quotas).where(_quotas.c.quota == quota))
            return quota

        quota = self._tried(change)
        if quota is not None:
            self.begin(repository, quota, None)
        return quota is not None

    def pause_of(self, quota: str) -> Pause | None:
        """The pause of a quota that is not over."""
        query = sa.select(_quotas.c.until, _quotas.c.reason).where(
            _quotas.c.quota == quota, _quotas.c.until > self._now()
        )
        row = self._tried(lambda c: c.execute(query).first())
        return Pause(_at(row.until), row.reason) if row else None

    def is_paused(self, repository: str) -> bool:
        """Whether a person paused a repository."""
        row = self._tried(lambda c: self._row(c, repository))
        return row is not None and row.paused is not None

    def repositories(self) -> Sequence[RepositoryState]:
        """All repositories that the fleet has had, by name."""
        day = _ms(self._day())
        cost = (
            sa.select(
                _cycles.c.repository,
                sa.func.count().label("cycles"),
                sa.func.sum(_cycles.c.usd).label("usd"),
            )
            .where(_cycles.c.began >= day, _cycles.c.task != "")
            .group_by(_cycles.c.repository)
            .subquery()
        )
        query = (
            sa.select(_repositories, cost.c.cycles, cost.c.usd)
            .outerjoin(cost, cost.c.repository == _repositories.c.repository)
            .order_by(_repositories.c.repository)
        )
        rows = self._tried(lambda c: c.execute(query).all())
        now = self._now()
        return [
            RepositoryState(
                row.repository,
                row.number,
                row.quota,
                row.paused,
                row.halted,
                Pause(_at(row.not_before), row.reason) if row.not_before > now else None,
                row.cycles or 0,
                row.usd or 0.0,
            )
            for row in rows
        ]

    # --- workers ---

    def add_worker(self, worker: str, version: str, parallel: int) -> None:
        """Write down that a worker has begun."""
        now = self._now()
        row = {"version": version, "parallel": parallel, "beats": 0, "started": now, "seen": now}
        self._tried(lambda c: c.execute(sa.insert(_workers).values(worker=worker, **row, draining=False)))

    def beat(self, worker: str) -> bool | None:
        """Say that a worker lives; whether it is to drain. None: the others took it for dead."""

        def change(c: sa.Connection) -> bool | None:
            mine = _workers.c.worker == worker
            c.execute(sa.update(_workers).where(mine).values(beats=_workers.c.beats + 1, seen=self._now()))
            return c.scalar(sa.select(_workers.c.draining).where(mine))

        return self._tried(change)

    def workers(self) -> Sequence[FleetWorkerState]:
        """Those that have begun and not ended, by name."""
        rows = self._tried(lambda c: c.execute(sa.select(_workers).order_by(_workers.c.worker)).all())
        return [
            FleetWorkerState(
                row.worker,
                row.version,
                row.parallel,
                row.beats,
                _at(row.started),
                _at(row.seen),
                bool(row.draining),
            )
            for row in rows
        ]

    def drain(self, worker: str) -> bool:
        """Ask a worker to end after the rounds that it runs; whether there is one of this name."""
        change = sa.update(_workers).where(_workers.c.worker == worker).values(draining=True)
        return bool(self._tried(lambda c: c.execute(change)).rowcount)

    def prune(self) -> None:
        """Remove turns that ended long ago, and what cycles older than that have cost."""
        before = self._clock.now() - KEPT_TURNS
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

        while self._engine_call(remove) == _MOST_REMOVED:
            pass
        self._tried(lambda c: c.execute(sa.delete(_cycles).where(_cycles.c.began < _ms(before))))

    def newest_version(self) -> str:
        """The version of the program whose workers take turns: the one that was started last for the first time."""
        return str(self._engine_call(lambda client: client.get_latest_application_version())["version_name"])

    def remove_worker(self, worker: str) -> None:
        """Write down that a worker has ended."""
        self._tried(lambda c: c.execute(sa.delete(_workers).where(_workers.c.worker == worker)))

    # --- inside ---

    def _row(self, c: sa.Connection, repository: str) -> Any:
        """What is known of a repository, which nobody else changes before the transaction is over."""
        query = sa.select(_repositories).where(_repositories.c.repository == repository)
        return c.execute(query.with_for_update()).first()

    def _move(
        self, c: sa.Connection, repository: str, number: int, turn: RepositoryTurn | None, at: datetime
    ) -> bool:
        """Move a repository from its turn to the next one, and queue that; whether it was at its turn."""
        moved = c.execute(
            sa.update(_repositories)
            .where(_repositories.c.repository == repository, _repositories.c.number == number)
            .values(number=number + 1, workflow=turn.id if turn else "")
        )
        if turn is None or not moved.rowcount:
            return bool(moved.rowcount)
        delay = (at - self._clock.now()).total_seconds()
        later = {"delay_seconds": delay} if delay > 0 else {}
        self._open_client.enqueue_in_transaction(
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
        """What the engine says of a workflow: `PENDING` is that it runs."""
        schema = "dbos" if self._is_postgresql else None
        status = sa.table("workflow_status", sa.column("workflow_uuid"), sa.column("status"), schema=schema)
        found: str | None = c.scalar(sa.select(status.c.status).where(status.c.workflow_uuid == workflow))
        return found

    def _run_of(self, workflow: str) -> str:
        query = sa.select(_cycles.c.run).where(_cycles.c.workflow == workflow)
        return self._tried(lambda c: c.scalar(query)) or ""

    def _insert(self, table: sa.Table) -> Any:
        return (postgresql if self._is_postgresql else sqlite).insert(table)

    def _lock(self, c: sa.Connection) -> None:
        """Be the only one who reads and writes money. SQLite has one writer anyway."""
        if self._is_postgresql:
            c.execute(sa.text("LOCK TABLE pullwright_cycles IN SHARE ROW EXCLUSIVE MODE"))

    @property
    def _is_postgresql(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    @property
    def _open_client(self) -> DBOSClient:
        if self._client is None:
            raise AssertionError("`open` comes first")
        return self._client

    def _now(self) -> int:
        return _ms(self._clock.now())

    def _day(self) -> datetime:
        return self._clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    def _tried(self, change: Callable[[sa.Connection], _T]) -> _T:
        """Do something in a transaction of its own; wait while the database is away, if that is wanted."""

        def once() -> _T:
            with self.engine.begin() as connection:
                if not self._is_postgresql:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")  # else it begins with the first change
                return change(connection)

        return self._patiently(once)

    def _engine_call(self, call: Callable[[DBOSClient], _T]) -> _T:
        return self._patiently(lambda: call(self._open_client))

    def _patiently(self, call: Callable[[], _T]) -> _T:
        tries = 0
        while True:
            try:
                with self._errors():
                    return call()
            except FleetError as error:
                is_away = isinstance(error.__cause__, _AWAY)
                if not (self._patient and is_away) or self._closed.wait(
                    _TRIES_SECONDS[min(tries, len(_TRIES_SECONDS) - 1)]
                ):
                    raise
                tries += 1

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, DBOSException) as error:
            said = str(getattr(error, "orig", None) or error).splitlines()
            raise FleetError(
                f"the fleet's database {self.place}: {said[0] if said else type(error).__name__}"
            ) from error


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
        _at(at) if at else None,
        (found.executor_id or "") if running else "",
        _at(found.created_at),
    )


def _shown(url: sa.URL) -> str:
    """Where a database is, without who is let in."""
    return (
        url.database or ""
        if url.get_backend_name() == "sqlite"
        else f"{url.host or 'localhost'}/{url.database}"
    )


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1000)


def _at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
