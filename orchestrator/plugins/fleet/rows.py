"""Reads rows of the fleet's database as values. A row that this program cannot read is a value, too.

Other programs, other versions of this one and damaged disks write there as well, and SQLite stores any value in any
column. Such a row is shown to people and left as it is; it never ends the reading of the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import sqlalchemy as sa

from orchestrator.core.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

MOST_WHOLE = 2**53
"""Largest whole number in a column: it leaves room to count on, and every JSON reader knows it."""
MOST_MS = 253_402_300_799_999
"""Last millisecond of the year 9999, the last that Python knows."""
MOST_USD = 100_000.0
_MOST_CHARS = 10_000
_MOST_JSON_CHARS = 1_000_000
_MOST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row that this program cannot read, and leaves as it is.

    Attributes:
        key: identifies the row in its table; empty if that cannot be read either.
        why: which column holds what.
    """

    table: str
    key: str
    why: str

    @property
    def words(self) -> str:
        """What cannot be read, and what to do."""
        name = f"the row {_shown(self.key)!r}" if self.key else "a row"
        fix = "correct or delete it; it is left as it is, and the others go on"
        return f"{name} of {self.table} in the fleet's database cannot be read ({self.why}): {fix}"


class UnreadableRowError(FleetError):
    """An action needs a row that cannot be read."""


class _Damage(Exception):  # noqa: N818  it never leaves this module
    """A column holds something else than it should."""


class Rows(Sequence[T], Generic[T]):
    """The readable rows of a query as values; `unreadable` has the others."""

    def __init__(self, values: Sequence[T], unreadable: Sequence[UnreadableRow] = ()) -> None:
        self._values = tuple(values)
        self.unreadable = tuple(unreadable)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def sorted(self, rank: Callable[[T], Any]) -> Rows[T]:
        """Return the same rows in another order."""
        return Rows(sorted(self._values, key=rank), self.unreadable)


class RowReader:
    """Reads the columns of one row, or the fields of a JSON object. What is damaged ends the reading of this row alone."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def text(self, column: str) -> str:
        """Return a text."""
        value = self._row.get(column)
        if not isinstance(value, str):
            raise _Damage(f"{column} is {_kind(value)}, not a text")
        if len(value) > _MOST_CHARS:
            raise _Damage(f"{column} has {len(value):,} characters")
        return value

    def key(self, column: str) -> str:
        """Return a text that identifies something."""
        value = self.text(column)
        if not value or not value.isprintable() or "\ufffd" in value:
            raise _Damage(f"{column} is empty, or has characters that cannot be printed")
        return value

    def whole(self, column: str) -> int:
        """Return a whole number that is not negative."""
        value = self._row.get(column)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Damage(f"{column} is {_kind(value)}, not a whole number")
        if not 0 <= value <= MOST_WHOLE:
            raise _Damage(f"{column} is {_shown(value)}, which is out of range")
        return value

    def number(self, column: str) -> float:
        """Return a finite number that is not negative."""
        value = self._row.get(column)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _Damage(f"{column} is {_kind(value)}, not a number")
        if not (math.isfinite(value) and 0 <= value <= MOST_WHOLE):
            raise _Damage(f"{column} is {_shown(value)}, which is out of range")
        return float(value)

    def moment(self, column: str, latest: int = MOST_MS) -> datetime:
        """Return a time that is stored in milliseconds since 1970."""
        value = self.whole(column)
        if value > latest:
            raise _Damage(f"{column} is {value}, which is too late")
        return datetime.fromtimestamp(value / 1000, UTC)

    def flag(self, column: str) -> bool:
        """Return a truth value, which SQLite stores as 0 or 1."""
        value = self._row.get(column)
        if not isinstance(value, int) or value not in {0, 1}:
            raise _Damage(f"{column} is {_kind(value)}, not a truth value")
        return bool(value)

    def texts(self, column: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._row.get(column)
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise _Damage(f"{column} is no list of texts")
        return tuple(value)

    def one_of(self, column: str, known: Iterable[str]) -> str:
        """Return one of the known words."""
        value = self.text(column)
        if value not in known:
            raise _Damage(f"{column} is {_shown(value)}, which this version does not know")
        return value

    def fields(self, column: str) -> RowReader:
        """Return the reader of the first argument in the stored arguments of a workflow."""
        value = self._row.get(column)
        if not isinstance(value, str):
            raise _Damage(f"{column} is {_kind(value)}, not a text")
        if len(value) > _MOST_JSON_CHARS:
            raise _Damage(f"{column} has {len(value):,} characters")
        try:
            (found,) = json.loads(value)["positionalArgs"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _Damage(f"{column} is no JSON of one argument") from None
        if not isinstance(found, dict):
            raise _Damage(f"{column} is no JSON of one argument")
        return RowReader(found)

    def has(self, column: str) -> bool:
        """Return whether a column has a value, or an object has a field."""
        return self._row.get(column) is not None


def read_rows(table: str, key: str, rows: Iterable[Any], make: Callable[[RowReader], T]) -> Rows[T]:
    """Make a value of each row.

    Args:
        key: the column that identifies a row.
        rows: rows of SQLAlchemy, read by `raw`.
    """
    values: list[T] = []
    unreadable: list[UnreadableRow] = []
    for row in rows:
        found = read_row(table, key, row._mapping, make)  # noqa: SLF001  documented
        if isinstance(found, UnreadableRow):
            unreadable.append(found)
        else:
            values.append(found)
    return Rows(values, unreadable)


def read_row(
    table: str, key: str, row: Mapping[str, Any], make: Callable[[RowReader], T]
) -> T | UnreadableRow:
    """Make a value of one row."""
    try:
        return make(RowReader(row))
    except _Damage as damage:
        name = row.get(key)
        return UnreadableRow(table, name if isinstance(name, str) else "", str(damage))


def raw(*columns: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
    """Return columns whose values come as they are stored: conversions by type would fail for a whole query."""
    return [sa.type_coerce(column, sa.types.NullType()).label(column.key) for column in columns]


def sound(column: sa.ColumnElement[Any], most: float) -> sa.ColumnElement[bool]:
    """Return the condition that a column has a number in its range. Texts and NaN are greater than every number."""
    return column.between(0, most)


def _kind(value: object) -> str:
    names = {str: "a text", bytes: "bytes", int: "a whole number", float: "a number", bool: "a truth value"}
    return "missing" if value is None else names.get(type(value), "something else")


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
