"""Stores memories and vectors in one SQLite file that several processes may use at once.

An item has a text, which full-text search finds (https://www.sqlite.org/fts5.html), and may have a vector of
float16, which an exact scan finds. Every text is redacted before it is written. When a writing method
returns, the data is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from orchestrator.core.errors import MemoryFileError, MemoryMissingError, MemoryStoreError
from orchestrator.plugins.memory.items import (
    TEXT_MATCH,
    Author,
    Importance,
    Memory,
    MemoryType,
    significant_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from orchestrator.plugins.memory.embedding import Matrix
    from orchestrator.plugins.memory.items import NewItem

MEMORIES = "long_term_memory"
"""The index of the memories."""
REPOSITORY = "repository_memory"
"""The index of a repository's memories on all machines: a copy, which `LongTermMemory.mirror` writes."""
RESERVED_INDICES = frozenset({MEMORIES, REPOSITORY})
"""Reserved indices. All others are for documents."""
MOST_MEMORIES = 100_000
MOST_DOCUMENT_ITEMS = 50_000
"""Section 2.4.1 of the assistant's specification."""
SHARED_WORDS = 1 / 3
"""A text matches a query if it shares this part of its words, or of the query's if those are fewer."""
MOST_QUERY_WORDS = 200
SCHEMA = 1

_BUSY_SECONDS = 30.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_MARKED = re.compile("\x02([^\x02\x03]*)\x03")
_TABLES = """
CREATE TABLE indices (
    name TEXT PRIMARY KEY, model TEXT NOT NULL, dimension INTEGER NOT NULL, created_at TEXT NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, index_name TEXT NOT NULL REFERENCES indices ON DELETE CASCADE,
    content TEXT NOT NULL, digest BLOB NOT NULL, type TEXT NOT NULL, source TEXT NOT NULL,
    importance TEXT NOT NULL, author TEXT NOT NULL, created_at TEXT NOT NULL, expires_at TEXT,
    metadata TEXT NOT NULL
) STRICT;
CREATE INDEX items_by_digest ON items (index_name, digest);
CREATE INDEX items_by_time ON items (index_name, created_at);
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY REFERENCES items ON DELETE CASCADE, index_name TEXT NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE INDEX vectors_by_index ON vectors (index_name, id);
CREATE VIRTUAL TABLE texts USING fts5(
    content, content='items', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER item_added AFTER INSERT ON items BEGIN
    INSERT INTO texts (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER item_removed AFTER DELETE ON items BEGIN
    INSERT INTO texts (texts, rowid, content) VALUES ('delete', old.id, old.content);
END;
CREATE TRIGGER item_changed AFTER UPDATE OF content ON items BEGIN
    INSERT INTO texts (texts, rowid, content) VALUES ('delete', old.id, old.content);
    INSERT INTO texts (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER vector_removed AFTER DELETE ON vectors BEGIN
    UPDATE indices SET changes = changes + 1 WHERE name = old.index_name;
END;
CREATE TRIGGER vector_changed AFTER UPDATE ON vectors BEGIN
    UPDATE indices SET changes = changes + 1 WHERE name = old.index_name;
END;
"""
_INSERT = (
    "INSERT INTO items (index_name, created_at, content, digest, type, source, importance, author, expires_at,"
    " metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE items SET content = ?, digest = ?, type = ?, source = ?, importance = ?, author = ?, expires_at = ?,"
    " metadata = ? WHERE id = ?"
)
_SELECT = "SELECT id, index_name, content, type, source, importance, author, created_at, expires_at, metadata FROM items "


@dataclass(frozen=True, slots=True)
class Index:
    """The properties of an index.

    Attributes:
        model: the source of its vectors; all of them have `dimension` numbers.
        items: number of items, expired ones included.
        vectors: number of items with a vector.
    """

    name: str
    model: str
    dimension: int
    created_at: datetime
    items: int
    vectors: int


class MemoryStore:
    """A file of memories. Thread-safe.

    Args:
        path: the file; a missing one is created, accessible only to its owner.
        redact: removes secrets from every text before it is written.

    Raises:
        MemoryStoreError: the file cannot be used. Every method may raise it, too.
    """

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self.path = path
        self.redact = redact
        self._lock = threading.RLock()
        self._matrices: dict[str, Matrix] = {}
        with self._reported():
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._reported():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        """Set the file up: with WAL a reader never waits; with FULL a commit is on the disk when it returns."""
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {pragma}")
        with self._writing() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _statements(_TABLES):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA}")
        if version not in {0, SCHEMA}:
            raise MemoryFileError(f"{self.path} was written by a newer version of this program")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def create_index(self, name: str, model: str, dimension: int, now: datetime) -> bool:
        """Create an index for vectors of this model; return False if it exists already."""
        if not _NAME.fullmatch(name):
            raise MemoryStoreError(
                f"{name[:80]!r} is not a valid name of an index: use 1 to 64 letters, digits, '.', '_' and '-'"
            )
        with self._writing() as db:
            made = db.execute(
                "INSERT OR IGNORE INTO indices (name, model, dimension, created_at) VALUES (?, ?, ?, ?)",
                (name, model, dimension, _text_of(now)),
            ).rowcount
            self._check_model(name, model, dimension)
        return bool(made)

    def delete_index(self, name: str) -> bool:
        """Remove an index with all its items; return False if there is none of that name."""
        with self._writing() as db:
            self._matrices.pop(name, None)
            return bool(db.execute("DELETE FROM indices WHERE name = ?", (name,)).rowcount)

    def indices(self) -> tuple[Index, ...]:
        """Return all indices, sorted by name."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT name, model, dimension, created_at,"
                " (SELECT count(*) FROM items WHERE index_name = name),"
                " (SELECT count(*) FROM vectors WHERE index_name = name) FROM indices ORDER BY name"
            ).fetchall()
        return tuple(
            Index(name, model, dimension, datetime.fromisoformat(made_at), items, vectors)
            for name, model, dimension, made_at, items, vectors in rows
        )

    def index(self, name: str) -> Index | None:
        """Return the index of this name."""
        return next((index for index in self.indices() if index.name == name), None)

    def add(self, index: str, items: Sequence[NewItem], *, model: str, dimension: int) -> tuple[int, ...]:
        """Store all items or none; return their ids.

        Raises:
            MemoryStoreError: there is no such index, it is full, or its vectors belong to another model.
        """
        with self._writing() as db:
            self._check_model(index, model, dimension)
            (count,) = db.execute("SELECT count(*) FROM items WHERE index_name = ?", (index,)).fetchone()
            most = MOST_MEMORIES if index in RESERVED_INDICES else MOST_DOCUMENT_ITEMS
            if count + len(items) > most:
                raise MemoryStoreError(f"the index {index} is full: it has {count:,} of {most:,} items")
            return tuple(self._insert(index, item, dimension) for item in items)

    def _insert(self, index: str, item: NewItem, dimension: int) -> int:
        cursor = self._db.execute(_INSERT, (index, _text_of(item.created_at), *self._fields(item)))
        number = int(cursor.lastrowid or 0)
        if item.vector is not None:
            self._insert_vector(index, number, item.vector, dimension)
        return number

    def _fields(self, item: NewItem | Memory) -> tuple[str | bytes | None, ...]:
        """Return the columns of an item, redacted, in the order of `_INSERT` and `_UPDATE`."""
        content = self.redact(item.content)
        return (
            content,
            _digest(content),
            item.type.value,
            self.redact(item.source),
            item.importance.value,
            item.author.value,
            None if item.expires_at is None else _text_of(item.expires_at),
            json.dumps(_mapped(dict(item.metadata), self.redact), ensure_ascii=False),
        )

    def _insert_vector(self, index: str, number: int, vector: bytes, dimension: int) -> None:
        if len(vector) != 2 * dimension:
            raise MemoryStoreError(
                f"the index {index} takes vectors of {dimension} numbers, not of {len(vector) // 2}"
            )
        self._db.execute(
            "INSERT INTO vectors (id, index_name, data) VALUES (?, ?, ?)", (number, index, vector)
        )

    def change(self, memory: Memory, vector: bytes | None = None) -> bool:
        """Update a memory by its id; return False if it no longer exists.

        Args:
            vector: the new vector; None removes the old one if the content differs.
        """
        with self._writing() as db:
            row = db.execute("SELECT index_name, content FROM items WHERE id = ?", (memory.id,)).fetchone()
            if row is None:
                return False
            fields = self._fields(memory)
            db.execute(_UPDATE, (*fields, memory.id))
            if vector is not None or fields[0] != row[1]:
                db.execute("DELETE FROM vectors WHERE id = ?", (memory.id,))
            if vector is not None:
                (dimension,) = db.execute(
                    "SELECT dimension FROM indices WHERE name = ?", (row[0],)
                ).fetchone()
                self._insert_vector(row[0], memory.id, vector, dimension)
        return True

    def remove(self, numbers: Iterable[int]) -> int:
        """Remove items by id; return how many existed."""
        with self._writing() as db:
            return sum(db.execute("DELETE FROM items WHERE id = ?", (one,)).rowcount for one in numbers)

    def purge(self, index: str, now: datetime) -> int:
        """Remove expired items; return their number. If there are none, nothing is written."""
        with self._reading() as db:
            expired = db.execute(
                "SELECT id FROM items WHERE index_name = ? AND expires_at < ?", (index, _text_of(now))
            ).fetchall()
        return self.remove(number for (number,) in expired) if expired else 0

    def get(self, number: int) -> Memory | None:
        """Return the item with this id."""
        return next(iter(self.find([number])), None)

    def find(self, numbers: Iterable[int]) -> tuple[Memory, ...]:
        """Return the items with these ids, in their order; removed ones are omitted."""
        with self._reading() as db:
            rows = [db.execute(_SELECT + "WHERE id = ?", (number,)).fetchone() for number in numbers]
        return tuple(_memory(row) for row in rows if row is not None)

    def same(self, index: str, content: str) -> Memory | None:
        """Return the item with the same text, ignoring whitespace and case."""
        with self._reading() as db:
            row = db.execute(
                _SELECT + "WHERE index_name = ? AND digest = ?",
                (index, _digest(self.redact(content))),
            ).fetchone()
        return None if row is None else _memory(row)

    def listed(
        self,
        index: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> tuple[Memory, ...]:
        """Return the items of an index that were stored between two times, newest first."""
        with self._reading() as db:
            rows = db.execute(
                _SELECT + "WHERE index_name = ? AND created_at BETWEEN ? AND ?"
                " ORDER BY created_at DESC, id DESC LIMIT ?",
                (
                    index,
                    "" if since is None else _text_of(since),
                    "~" if until is None else _text_of(until),
                    -1 if limit is None else limit,
                ),
            ).fetchall()
        return tuple(map(_memory, rows))

    def vector(self, number: int) -> bytes | None:
        """Return the vector of an item."""
        with self._reading() as db:
            row = db.execute("SELECT data FROM vectors WHERE id = ?", (number,)).fetchone()
        return None if row is None else bytes(row[0])

    def matching(self, index: str, query: str, limit: int) -> dict[int, float]:
        """Return the items whose text matches a query, best first, each with the score of a match.

        Common words do not count. Forms of a word count as the same.
        """
        wanted = list(dict.fromkeys(significant_words(query)))[:MOST_QUERY_WORDS]
        if not wanted:
            return {}
        with self._reading() as db:
            rows = db.execute(
                "SELECT texts.rowid, items.content, highlight(texts, 0, char(2), char(3)) FROM texts"
                " JOIN items ON items.id = texts.rowid WHERE texts MATCH ? AND index_name = ?"
                " ORDER BY bm25(texts), texts.rowid DESC LIMIT ?",
                (" OR ".join(f'"{word}"' for word in wanted), index, 4 * limit),
            ).fetchall()
        found: dict[int, float] = {}
        for number, content, marked in rows:
            shared = len({word.lower() for word in _MARKED.findall(marked)})
            least = SHARED_WORDS * min(len(wanted), len(set(significant_words(content))))
            if shared >= least and len(found) < limit:
                found[number] = TEXT_MATCH
        return found

    def nearest(self, index: str, vector: bytes, limit: int) -> dict[int, float]:
        """Return the items nearest to this vector, best first, each with `1 - cosine distance`."""
        with self._lock:
            matrix = self._matrix(index)
            return {} if matrix is None else matrix.nearest(vector, limit)

    def _matrix(self, index: str) -> Matrix | None:
        """Return the vectors of an index, with others' additions appended; after a removal all are read again."""
        from orchestrator.plugins.memory.embedding import Matrix

        with self._reading() as db:
            db.execute("BEGIN")
            try:
                row = db.execute(
                    "SELECT dimension, created_at, changes FROM indices WHERE name = ?", (index,)
                ).fetchone()
                if row is None:
                    return None
                matrix = self._matrices.get(index)
                if matrix is None or matrix.state != row:
                    matrix = self._matrices[index] = Matrix(row[0], row)
                matrix.extend(
                    db.execute(
                        "SELECT id, data FROM vectors WHERE index_name = ? AND id > ? ORDER BY id",
                        (index, matrix.last_id),
                    )
                )
            finally:
                db.execute("COMMIT")
        return matrix

    def _check_model(self, index: str, model: str, dimension: int) -> None:
        row = self._db.execute("SELECT model, dimension FROM indices WHERE name = ?", (index,)).fetchone()
        if row is None:
            raise MemoryMissingError(f"there is no index {index[:80]!r}")
        if row != (model, dimension):
            raise MemoryStoreError(
                f"the index {index} has vectors of {row[0]} ({row[1]} numbers), not of {model} ({dimension}):"
                " use that model again, or recompute the vectors with 'pullwright memory embed'"
            )

    def recompute_vectors(self, index: str, model: str, dimension: int, vectors: Mapping[int, bytes]) -> int:
        """Replace all vectors of an index by another model's; return how many items have one now.

        An item that was stored in the meantime has none until the next call.
        """
        with self._writing() as db:
            db.execute("DELETE FROM vectors WHERE index_name = ?", (index,))
            db.execute(
                "UPDATE indices SET model = ?, dimension = ?, changes = changes + 1 WHERE name = ?",
                (model, dimension, index),
            )
            living = {
                number for (number,) in db.execute("SELECT id FROM items WHERE index_name = ?", (index,))
            }
            for number, vector in vectors.items():
                if number in living:
                    self._insert_vector(index, number, vector, dimension)
            return len(living & vectors.keys())

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._reported():
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, after waiting for those of other processes."""
        with self._lock, self._reported():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise MemoryFileError(f"the memory {self.path} cannot be used: {error}") from None


def plain(content: str) -> str:
    """Return a text with normalized whitespace and case."""
    return " ".join(content.split()).casefold()


def _digest(content: str) -> bytes:
    return hashlib.sha256(plain(content).encode("utf-8", "replace")).digest()


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every text changed, names of fields included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(name)): _mapped(inner, change) for name, inner in value.items()}
    return [_mapped(inner, change) for inner in value] if isinstance(value, list | tuple) else value


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _memory(row: Sequence[Any]) -> Memory:
    number, index, content, kind, source, importance, author, created_at, expires_at, metadata = row
    return Memory(
        number,
        index,
        content,
        MemoryType(kind),
        source,
        Importance(importance),
        Author(author),
        datetime.fromisoformat(created_at),
        None if expires_at is None else datetime.fromisoformat(expires_at),
        json.loads(metadata),
    )


def _text_of(time: datetime) -> str:
    """Return the time in UTC with a fixed length, so that texts sort like times."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")
