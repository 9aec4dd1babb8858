"""Damaged rows in the fleet's database, on SQLite and PostgreSQL: each column with each kind of damage.

Whatever one row holds, it is shown, the others are read and changed as always, and it stays as it is.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from orchestrator.bot.forge.base import RequestQuota
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import FleetError
from orchestrator.plugins.dashboard.actions import FleetView
from orchestrator.plugins.dashboard.pages import Pages
from orchestrator.plugins.fleet import control, database
from orchestrator.plugins.fleet.command import _list, _status
from orchestrator.plugins.fleet.rows import raw
from orchestrator.plugins.fleet.store import QUEUE, FleetStore
from orchestrator.plugins.fleet.turns import DAY_CAP, Following, RepositoryTurn
from orchestrator.plugins.worker.engine import EngineOptions, FleetEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

A, B = "github.com/o/a", "github.com/o/b"
ME, OTHER, DEAD = "me-1", "other-1", "dead-1"
TABLES = {table.name: table for table in database._tables.tables.values()}
TEXTS = {"empty": "", "words": "abc", "broken JSON": '{"positionalArgs": [{"', "long": "x" * 2_000_000}
NUMBERS = {"negative": -1, "zero": 0, "largest": 2**63 - 1, "smallest": -(2**63)}
OF_SQLITE = {
    "nothing": None,
    **TEXTS,
    **NUMBERS,
    "a fraction": 1.5,
    "endless": float("inf"),
    "bytes": b"\xff\x00\xfe",
    "a NUL": "x\x00y",
    "not UTF-8": sa.text("CAST(x'ff61fe' AS TEXT)"),
}

LIKE_WORDS = ("empty", "broken JSON", "a NUL")
"""In a column of numbers: each text is as much of a number as any other, and greater than all of them."""
OF_POSTGRESQL = ("nothing", "words", "negative", "largest", "smallest", "endless")


@dataclass
class Damaged:
    """A fleet with two repositories, of which `A` has the damaged rows, and a worker beside this one."""

    store: FleetStore

    def fill(self) -> None:
        store, now = self.store, datetime.now(UTC)
        store.client._sys_db.create_application_version("1.0")
        store.client.register_queue(QUEUE, global_concurrency=6)
        for worker in (ME, OTHER):
            store.add_worker(worker, "1.0", 1)
        for name in (A, B):
            store.begin(name, f"quota of {name}", now)
            look = next(one.turn for one in store.queued() if one.turn.repository == name)
            cycle = RepositoryTurn(name, look.number + 1, "issue-1", 1, "new", "Title", "issue-1")
            store.advance(look, Following(cycle, now), "found", None)
            store.limits.start_cycle(cycle, DEAD, "run", 2.0, None)
            pause = Pause(now + timedelta(hours=1), "spent")
            store.limits.pause_quota(f"quota of {name}", pause)
            quota = RequestQuota(f"installation of {name}", "core", 5_000, 40, pause.until)
            store.limits.save_request_quotas(name, [quota])
            store.note_waiting(name, {"issue-7": "its worker died three times"}, gone=())
        store.limits.declare_cap(DAY_CAP, 50.0)
        store.receive("digest", B)

    def damage(self, table: str, column: str, value: Any) -> bool:
        """Write a value into the rows of `A`. Return whether the database took it."""
        key, which = KEYS[table]
        schema = self.store.engine_schema if table in OF_ENGINE else None
        t = sa.table(table, *map(sa.column, {column, key}), schema=schema)
        change = sa.update(t).where(t.c[key].like(which)).values({column: value})
        try:
            return self.store.change(change)
        except (FleetError, OverflowError):
            return False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put every row back at the end of the block."""
        store, tables = self.store, [*TABLES.values(), *self._engine_tables]
        rows = {
            table.name: [dict(row._mapping) for row in store.rows(sa.select(*raw(*table.c)))]
            for table in tables
        }
        yield

        def put_back(c: sa.Connection) -> None:
            for table in reversed(tables):
                c.execute(sa.delete(table))
            for table in tables:
                if rows[table.name]:
                    c.execute(sa.insert(table), rows[table.name])

        store.transaction(put_back)

    @cached_property
    def _engine_tables(self) -> list[sa.Table]:
        engine, schema = self.store.engine, self.store.engine_schema
        return [sa.Table(name, sa.MetaData(), schema=schema, autoload_with=engine) for name in OF_ENGINE]

    def stored(self, table: str, column: str) -> list[Any]:
        """What is in the damaged rows."""
        key, which = KEYS[table]
        t = sa.table(table, *map(sa.column, {column, key}))
        return [row[0] for row in self.store.rows(sa.select(t.c[column]).where(t.c[key].like(which)))]

    def reads(self) -> list[str]:
        """Read everything as the commands, the page and a worker do. Return what could not be read."""
        store = self.store
        snapshot = control.read_snapshot(store)
        for show in (_list, _status):
            for as_json in (True, False):
                show(snapshot, as_json=as_json)
        assert "github.com/o/b" in Pages("form", "home", str).fleet(FleetView(datetime.now(UTC), snapshot))
        assert B in {one.repository for one in snapshot.repositories}
        assert B in {one.turn.repository for one in snapshot.turns}
        assert f"quota of {B}" in snapshot.model_pauses
        assert snapshot.spent_today >= 2.0
        assert ME in store.heartbeats()
        assert B in store.ready()
        assert store.numbers([A, B])[B] is not None
        store.restart_lost()
        store.prune()
        return [one.words for one in snapshot.unreadable]

    def acts(self) -> None:
        """Do what people and workers do with the other repository, and with the damaged one."""
        store, now = self.store, datetime.now(UTC)
        for name in (A, B):
            steered = [
                control.pause(store, name, "by hand"),
                control.resume(store, name),
                control.add(store, name),
                control.cancel(store, name),
                control.add(store, name, "issue-7"),
            ]
            assert all(one.is_done for one in steered) or name == A
        assert store.beat(ME) is False
        assert store.beat(ME) is False
        store.take_over(DEAD)
        store.note_waiting(B, {"issue-8": "a person has to act"}, gone=("issue-7",))
        for name in (A, B):
            turn = RepositoryTurn(name, store.numbers([name]).get(name) or 0, "issue-7")
            try:
                store.begin(name, "quota", now)
                assert store.limits.start_cycle(turn, ME, "run-2", 1.0, 50.0)
                moved = store.advance(turn, Following(turn.look(), now), "proposed", 0.5)
                assert moved or name == A
            except FleetError:
                assert name == A
        assert store.receive("another", B)


KEYS = {
    "pullwright_repositories": ("repository", A),
    "pullwright_quotas": ("quota", f"%{A}"),
    "pullwright_workers": ("worker", OTHER),
    "pullwright_cycles": ("workflow", f"{A}%"),
    "pullwright_caps": ("name", DAY_CAP),
    "pullwright_request_quotas": ("name", f"%{A}"),
    "pullwright_quota_users": ("repository", A),
    "pullwright_waiting": ("repository", A),
    "pullwright_deliveries": ("digest", "digest"),
    "workflow_status": ("workflow_uuid", f"{A}%"),
    "workflow_input": ("workflow_uuid", f"{A}%"),
    "queues": ("name", QUEUE),
    "application_versions": ("version_id", "%"),
}
"""The column that identifies a row of each table, and the rows that are damaged."""
OF_ENGINE = {
    "workflow_status": ("name", "status", "executor_id", "inputs", "created_at", "delay_until_epoch_ms"),
    "workflow_input": ("inputs",),
    "queues": ("concurrency",),
    "application_versions": ("version_name", "version_timestamp"),
}
COLUMNS = [(name, column.name) for name, table in TABLES.items() for column in table.columns]
COLUMNS += [(name, column) for name, columns in OF_ENGINE.items() for column in columns]
_TEXTS_OF_ENGINE = ("name", "status", "executor_id", "inputs", "version_name")
TEXT_COLUMNS = {
    *((n, c.name) for n, table in TABLES.items() for c in table.columns if isinstance(c.type, sa.Text)),
    *((name, column) for name, column in COLUMNS if name in OF_ENGINE and column in _TEXTS_OF_ENGINE),
}
FEW = [
    ("pullwright_repositories", "not_before"),
    ("pullwright_workers", "beats"),
    ("pullwright_cycles", "usd"),
    ("workflow_input", "inputs"),
]


@pytest.fixture
def damaged(fleet_database: str) -> Iterator[Damaged]:
    """A fleet in a database that takes every value that its engine can store."""
    store = FleetStore(fleet_database, SystemClock())
    store.open()
    Damaged(store).fill()
    if store.is_shared:
        optional = [(n, c.name) for n, table in TABLES.items() for c in table.columns if not c.primary_key]
        for name, column in optional:
            change = sa.text(f"ALTER TABLE {name} ALTER COLUMN {column} DROP NOT NULL")
            store.transaction(lambda c, change=change: c.execute(change))  # type: ignore[misc]
    else:
        store.close()
        with closing(sqlite3.connect(fleet_database.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("PRAGMA writable_schema=ON")
            loose = "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'"
            connection.execute(loose)
        store = FleetStore(fleet_database, SystemClock())
        store.open()
    yield Damaged(store)
    store.close()


def play(damaged: Damaged, columns: list[tuple[str, str]], value: Any) -> list[str]:
    """Damage one column after another, and do everything with each. Return what failed."""
    failed = []
    for table, column in columns:
        with damaged.kept():
            if damaged.damage(table, column, value):
                try:
                    damaged.reads()
                    damaged.acts()
                except Exception as error:  # noqa: BLE001  it is what is collected
                    failed.append(f"{table}.{column}: {type(error).__name__}: {error}"[:300])
    return failed


@pytest.mark.parametrize("kind", ["words", "largest", "not UTF-8"])
def test_damaged_rows_are_shown_and_the_others_go_on(damaged: Damaged, kind: str) -> None:
    assert play(damaged, FEW, OF_SQLITE[kind]) == []


def differs(kind: str, place: tuple[str, str]) -> bool:
    """Return whether SQLite keeps something in this column with this damage that no other damage leaves there.

    A number in a column of texts becomes its digits, which are words, but JSON is not: https://www.sqlite.org/datatype3.html
    """
    if place in TEXT_COLUMNS:
        return kind == "zero" or place[1] == "inputs" or not isinstance(OF_SQLITE[kind], int | float)
    return kind not in LIKE_WORDS


@pytest.mark.slow(reason="each column with each damage, and then everything that can be done")
@pytest.mark.parametrize("kind", OF_SQLITE)
def test_each_column_with_each_damage(damaged: Damaged, kind: str) -> None:
    if damaged.store.is_shared and kind not in OF_POSTGRESQL:
        pytest.skip("PostgreSQL stores no such value in any of these columns, or it is a text like another")
    columns = [place for place in COLUMNS if damaged.store.is_shared or differs(kind, place)]
    assert play(damaged, columns, OF_SQLITE[kind]) == []


@pytest.mark.parametrize("fleet_database", ["sqlite"], indirect=True)
def test_sqlite_keeps_texts_in_the_columns_of_texts_alone(damaged: Damaged) -> None:
    for table, column in COLUMNS:
        declared = {
            one["name"]: str(one["type"]) for one in sa.inspect(damaged.store.engine).get_columns(table)
        }
        is_text = declared[column].startswith(("TEXT", "VARCHAR"))
        assert is_text is ((table, column) in TEXT_COLUMNS), (table, column, declared[column])


SHOWN = {
    ("pullwright_repositories", "number"): "number is a text, not a whole number",
    ("pullwright_repositories", "not_before"): "not_before is a text, not a whole number",
    ("pullwright_quotas", "until"): "until is a text, not a whole number",
    ("pullwright_workers", "seen"): "seen is a text, not a whole number",
    ("pullwright_workers", "draining"): "draining is a text, not a truth value",
    ("pullwright_cycles", "began"): "began is a text, not a whole number",
    ("pullwright_cycles", "usd"): "usd is a text, not a number",
    ("pullwright_caps", "value"): "value is a text, not a number",
    ("pullwright_request_quotas", "remaining"): "remaining is a text, not a whole number",
    ("workflow_input", "inputs"): "inputs is no JSON of one argument",
    ("workflow_status", "created_at"): "created_at is a text, not a whole number",
    ("queues", "concurrency"): "concurrency is a text, not a whole number",
    ("application_versions", "version_timestamp"): "version_timestamp is a text, not a whole number",
}


@pytest.mark.parametrize("fleet_database", ["sqlite"], indirect=True)
def test_a_row_that_cannot_be_read_is_said_everywhere_and_stays(
    damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    for (table, column), why in SHOWN.items():
        with damaged.kept():
            damaged.damage(table, column, "abc")
            before = damaged.stored(table, column)
            capsys.readouterr()
            told = [one for one in damaged.reads() if why in one]
            assert told, (table, column)
            out, err = capsys.readouterr()
            assert why in err
            assert why in out  # the JSON of both commands
            of_repository = table == "pullwright_repositories"
            assert ("the row of its repository cannot be read" in out) is of_repository
            assert damaged.stored(table, column) == before


def _with(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            for one in statements:
                connection.execute(one)

    return change


def _garbage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(3 * 4_096, len(data), 4_096):
        data[page : page + 200] = b"\xff" * 200
    path.write_bytes(data)


FILES: dict[str, Callable[[Path], object]] = {
    "another column": _with("ALTER TABLE pullwright_repositories RENAME COLUMN not_before TO later"),
    "no table": _with("DROP TABLE workflow_input"),
    "no versions": _with("DROP TABLE application_versions"),
    "no migrations": _with("DELETE FROM dbos_migrations"),
    "garbage in pages": _garbage,
    "a half": lambda path: path.write_bytes(path.read_bytes()[:20_000]),
    "no database": lambda path: path.write_bytes(b"hello " * 1_000),
}


@pytest.mark.parametrize("damage", FILES)
def test_a_damaged_file_is_one_line_and_nobody_waits_for_it(fleet_file: str, damage: str) -> None:
    path = Path(fleet_file.removeprefix("sqlite:///"))
    store = FleetStore(fleet_file, SystemClock())
    store.open()
    Damaged(store).fill()
    store.close()
    _with("PRAGMA wal_checkpoint(TRUNCATE)")(path)
    FILES[damage](path)
    for patient in (False, True):

        def waits(_seconds: float) -> bool:
            raise AssertionError("it waits for what does not mend itself")

        store = FleetStore(fleet_file, SystemClock(), patient=patient, wait=waits)
        try:
            with pytest.raises(FleetError) as caught:
                _read(store)
        finally:
            store.close()
        assert "\n" not in str(caught.value)


def _read(store: FleetStore) -> None:
    store.open()
    control.read_snapshot(store)


class Counting(FleetStore):
    """A fleet's database that tells of each heartbeat, and whose other duties can fail.

    Attributes:
        beaten: set after the second heartbeat.
        fails: raised by everything else.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, SystemClock(), patient=True)
        self.beaten = threading.Event()
        self.beats = 0
        self.fails: Exception | None = None

    def beat(self, worker: str) -> bool | None:
        said = super().beat(worker)
        self.beats += 1
        if self.beats > 1:
            self.beaten.set()
        return said

    def _fail(self, *_arguments: object) -> Any:
        if self.fails is not None:
            raise self.fails

    def rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        self._fail()
        return super().rows(query)

    def heartbeats(self) -> dict[str, int]:
        self._fail()
        return super().heartbeats()


class Idle:
    """Runs no turn."""

    async def run_turn(self, turn: RepositoryTurn) -> None:
        raise AssertionError(turn)

    def lose(self, turn: RepositoryTurn) -> None:
        raise AssertionError(turn)


@pytest.mark.parametrize(
    "fails", [None, ValueError("a defect"), FleetError("no such column: x"), KeyError("x")]
)
async def test_a_heartbeat_depends_on_nothing_but_its_own_row(
    fleet_file: str, fails: Exception | None
) -> None:
    filled = FleetStore(fleet_file, SystemClock())
    filled.open()
    Damaged(filled).fill()
    Damaged(filled).damage("pullwright_repositories", "not_before", "abc")
    Damaged(filled).damage("workflow_input", "inputs", "abc")
    filled.close()
    store = Counting(fleet_file)
    wanted = "not_before is a text" if fails is None else str(fails)
    heard = asyncio.Event()
    drains: list[str] = []
    store.open()

    def hear(words: str) -> None:
        if wanted in words:
            heard.set()

    options = EngineOptions("me-2", "1.0", lease_seconds=0.6)
    engine = FleetEngine(store, options, SystemClock(), Idle(), drains.append, hear)
    try:
        store.fails = fails
        await engine.launch()
        await asyncio.wait_for(heard.wait(), 60)
        assert await asyncio.to_thread(store.beaten.wait, 60)
        store.fails = None
    finally:
        await engine.close()
        store.close()
    assert drains == []
