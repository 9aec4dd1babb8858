"""The fleet's database: an SQLite file or PostgreSQL, with the program's tables and those of DBOS.

DBOS stores the turns as workflows: queued, delayed, running, ended. The program's own tables store the present
turn of each repository, workers, pauses, and costs.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from dbos._error import DBOSException
from dbos._serialization import DBOSPortableJSON, DefaultSerializer
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.core.errors import ConfigurationError, FleetError
from orchestrator.core.files import lock_file
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.core.clock import Clock

_APPLICATION = "pullwright"
_TABLES_LOCK = 0x50756C6C
"""Arbitrary number of the advisory lock under which tables are created."""
_BUSY_MILLISECONDS = 30_000
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_UNREACHABLE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
_BROKEN_FILE = ("file is not a database", "database disk image is malformed")  # SQLite's words
_LASTING = ("no such table", "no such column", "no such index", "has no column named", "could not decode")
"""The beginnings or words of SQLite's operational errors that waiting does not mend."""
_DRIVER = "postgresql+psycopg"

_T = TypeVar("_T")

_tables = sa.MetaData()
repositories_table = sa.Table(
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
quotas_table = sa.Table(
    "pullwright_quotas",
    _tables,
    sa.Column("quota", sa.Text, primary_key=True),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
workers_table = sa.Table(
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
cycles_table = sa.Table(
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
caps_table = sa.Table(
    "pullwright_caps",
    _tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
)
request_quotas_table = sa.Table(
    "pullwright_request_quotas",
    _tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("most", sa.BigInteger, nullable=False),
    sa.Column("remaining", sa.BigInteger, nullable=False),
    sa.Column("reset", sa.BigInteger, nullable=False),
    sa.Column("seen", sa.BigInteger, nullable=False),
)
quota_users_table = sa.Table(
    "pullwright_quota_users",
    _tables,
    sa.Column("repository", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
)
waiting_table = sa.Table(
    "pullwright_waiting",
    _tables,
    sa.Column("repository", sa.Text, primary_key=True),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("why", sa.Text, nullable=False),
)
deliveries_table = sa.Table(
    "pullwright_deliveries",
    _tables,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
)


def _refuse_pickle(_self: object, _text: str) -> object:
    raise FleetError(
        "the fleet's database contains a pickled value, which this program never reads or writes"
    )


def _without_secrets(values: Any, redactor: Redactor) -> Any:
    """Return a statement's values with every text redacted. Values of the driver's own types stay."""
    if isinstance(values, dict):
        return {name: _without_secrets(value, redactor) for name, value in values.items()}
    if isinstance(values, list) or type(values) is tuple:
        return type(values)(_without_secrets(value, redactor) for value in values)
    return redactor.redact(values) if type(values) is str else values


def make_engine(url: str) -> sa.Engine:
    """Create an engine for `sqlite:///PATH` or a PostgreSQL URL."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ConfigurationError(
            "the URL of the fleet's database is invalid; write postgresql://USER@HOST/NAME"
        ) from None
    if parsed.get_backend_name() == "postgresql":
        return sa.create_engine(
            parsed.set(drivername=_DRIVER),
            pool_size=10,
            pool_timeout=30,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 10},
        )
    if parsed.get_backend_name() != "sqlite":
        raise ConfigurationError("the fleet's database must be PostgreSQL; write postgresql://USER@HOST/NAME")
    engine = sa.create_engine(parsed)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        # The default fails for the whole query if one text is not UTF-8.
        connection.text_factory = lambda stored: stored.decode("utf-8", "replace")
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")  # some builds have another default

    return engine


class FleetDatabase:
    """A connection to the fleet's database. Its methods block: use it in threads.

    Args:
        patient: whether to wait for an unreachable database until `close`, as a worker does, instead of raising
            `FleetError`.
        wait: waits a number of seconds, and returns whether the database was closed meanwhile; None is real time.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        patient: bool = False,
        wait: Callable[[float], bool] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.url = url
        self.clock = clock
        self.engine = make_engine(url)
        known = redactor or Redactor()

        def clean(_c: Any, _cursor: Any, statement: str, values: Any, _context: Any, _many: Any) -> Any:
            return statement, _without_secrets(values, known)

        # Every value of every statement, of queries too: so a name is looked for as it was written.
        sa.event.listen(self.engine, "before_cursor_execute", clean, retval=True)
        self.place = _place_without_credentials(self.engine.url)
        self._patient = patient
        self._closed = threading.Event()
        self._wait = wait or self._closed.wait
        self._client: DBOSClient | None = None
        self._file_lock: int | None = None

    def open(self) -> None:
        """Connect, and create or migrate the tables.

        Raises:
            FleetError: the database cannot be reached or changed, or it is a file with another worker.
        """
        if self._patient and not self.is_shared:
            self._lock_file()
        DefaultSerializer.deserialize = _refuse_pickle  # type: ignore[assignment, method-assign]
        log = logging.getLogger("dbos")
        log.setLevel(logging.CRITICAL)
        log.propagate, log.handlers = False, [logging.NullHandler()]  # its own handler holds a stream open
        with self._errors():
            with self.engine.begin():
                pass
            DBOS.migrate(self.engine.url.render_as_string(hide_password=False))
            self.transaction(self._make_tables)
            self._client = DBOSClient(
                system_database_url=self.url,
                system_database_engine=self.engine,
                serializer=DBOSPortableJSON,
                application_name=_APPLICATION,
                retry_connection_errors=self._patient,
            )

    def _make_tables(self, c: sa.Connection) -> None:
        """Create missing tables, one worker at a time if several start on a new database."""
        if self.is_shared:
            c.execute(sa.select(sa.func.pg_advisory_xact_lock(_TABLES_LOCK)))
        _tables.create_all(c)

    def close(self) -> None:
        """Disconnect, and release callers that wait for the database."""
        self._closed.set()
        if self._client is not None:
            self._client.destroy()
        self.engine.dispose()
        if self._file_lock is not None:
            os.close(self._file_lock)
            self._file_lock = None

    def _lock_file(self) -> None:
        """Lock the database file, so that this process is its only worker."""
        path = Path(f"{self.engine.url.database}.lock")
        try:
            self._file_lock = lock_file(path)
        except BlockingIOError as error:
            raise FleetError(f"another worker uses this queue: {error.strerror}") from None
        except OSError as error:
            raise FleetError(
                f"the fleet's database {self.place}: cannot lock {path}: {error.strerror}"
            ) from None

    @property
    def client(self) -> DBOSClient:
        """The client of DBOS, for calls inside a transaction."""
        if self._client is None:
            raise AssertionError("call `open` first")
        return self._client

    @property
    def is_shared(self) -> bool:
        """Whether several workers can use it, as with PostgreSQL. An SQLite file has one worker at a time."""
        return self.engine.dialect.name == "postgresql"

    @property
    def engine_schema(self) -> str | None:
        """The schema of the tables of DBOS."""
        return "dbos" if self.is_shared else None

    def now(self) -> int:
        """Return the present time as stored in the tables, in milliseconds."""
        return to_ms(self.clock.now())

    def day(self) -> datetime:
        """Return the start of the present day (UTC)."""
        return self.clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    def insert(self, table: sa.Table) -> Any:
        """Return an insert statement that supports a clause for conflicts."""
        return (postgresql if self.is_shared else sqlite).insert(table)

    def transaction(self, change: Callable[[sa.Connection], _T]) -> _T:
        """Run a function in a new transaction. If the connection is patient, wait while the database is unreachable."""

        def once() -> _T:
            with self.engine.begin() as connection:
                if not self.is_shared:
                    connection.exec_driver_sql(
                        "BEGIN IMMEDIATE"
                    )  # otherwise the transaction begins with the first change
                return change(connection)

        return self._retry(once)

    def rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        """Return the rows of a query, in a transaction of its own."""
        return self.transaction(lambda c: c.execute(query).all())

    def change(self, statement: sa.UpdateBase) -> bool:
        """Make one change in a transaction of its own. Return whether a row was changed."""
        return bool(self.transaction(lambda c: c.execute(statement)).rowcount)

    def call(self, call: Callable[[DBOSClient], _T]) -> _T:
        """Call the client of DBOS. If the connection is patient, wait while the database is unreachable."""
        return self._retry(lambda: call(self.client))

    def _retry(self, call: Callable[[], _T]) -> _T:
        tries = 0
        while True:
            try:
                with self._errors():
                    return call()
            except FleetError as error:
                if not (self._patient and _is_away(error.__cause__)) or self._wait(
                    _RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)]
                ):
                    raise
                tries += 1

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, DBOSException) as error:
            reason = (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
            fix = ""
            if reason in _BROKEN_FILE:
                fix = "; remove it; the next worker builds a new queue from the repositories"
            elif any(words in reason for words in _LASTING) or isinstance(error, sa.exc.ProgrammingError):
                fix = "; its tables are not those of this version: use the version that made them, or a new database"
            raise FleetError(f"the fleet's database {self.place}: {reason}{fix}") from error


def _is_away(error: BaseException | None) -> bool:
    """Return whether a database may answer later."""
    return isinstance(error, _UNREACHABLE) and not any(words in str(error) for words in _LASTING)


def _place_without_credentials(url: sa.URL) -> str:
    """Return the address of a database without its credentials."""
    return (
        url.database or ""
        if url.get_backend_name() == "sqlite"
        else f"{url.host or 'localhost'}/{url.database}"
    )


def to_ms(when: datetime) -> int:
    """Convert a time to milliseconds since 1970, as stored in the tables."""
    return int(when.timestamp() * 1000)


def from_ms(milliseconds: int) -> datetime:
    """Convert milliseconds since 1970, as stored in the tables, to a time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
