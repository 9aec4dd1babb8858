"""The file of memories: what is written stays, what is secret is not written, what is near is found."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import MemoryStoreError
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.memory.embedding import LexicalEmbedder, Matrix, packed, unpacked
from orchestrator.plugins.memory.items import (
    Author,
    Importance,
    MemoryType,
    NewItem,
    as_json,
    edited,
    from_json,
)
from orchestrator.plugins.memory.memory import MIRRORED, LongTermMemory
from orchestrator.plugins.memory.store import MEMORIES, REPOSITORY, MemoryStore
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECRET = "correct-horse-battery-staple-77"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[MemoryStore]:
    with open_store(path) as store:
        store.create_index(MEMORIES, "test-model", 3, NOW)
        yield store


def open_store(path: Path) -> MemoryStore:
    return MemoryStore(path, Redactor([SECRET]).redact)


def keep(store: MemoryStore, *items: NewItem, index: str = MEMORIES) -> tuple[int, ...]:
    return store.add(index, items, model="test-model", dimension=3)


def item(content: str, vector: Sequence[float] | None = None, **fields: object) -> NewItem:
    return NewItem(content, NOW, vector=None if vector is None else packed(vector), **fields)  # type: ignore[arg-type]


def test_what_was_stored_is_there_for_the_next_process(store: MemoryStore, path: Path) -> None:
    (number,) = keep(
        store,
        item(
            "we use ruff",
            [1, 2, 2],
            type=MemoryType.PREFERENCE,
            source="review",
            importance=Importance.HIGH,
            expires_at=NOW + HOUR,
            metadata={"path": "a.py"},
        ),
    )
    with open_store(path) as other:
        known = other.get(number)
        assert known == store.get(number)
        assert known is not None
        assert (known.content, known.type, known.source) == ("we use ruff", "preference", "review")
        assert (known.importance, known.created_at, known.expires_at) == ("high", NOW, NOW + HOUR)
        assert known.metadata == {"path": "a.py"}
        assert unpacked(other.vector(number) or b"") == pytest.approx((1 / 3, 2 / 3, 2 / 3), abs=1e-3)


def test_the_file_is_its_owners_only(store: MemoryStore) -> None:
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_an_id_is_never_used_again(store: MemoryStore) -> None:
    (first,) = keep(store, item("one"))
    assert store.remove([first]) == 1
    assert store.remove([first]) == 0
    assert store.get(first) is None
    assert keep(store, item("two")) > (first,)


def test_no_secret_reaches_the_file(store: MemoryStore, path: Path) -> None:
    (number,) = keep(
        store, item(f"key {SECRET}", source=f"see {SECRET}", metadata={"a": [SECRET, {SECRET: 1}]})
    )
    known = store.get(number)
    assert known is not None
    store.change(edited(known, "content", f"now {SECRET}", NOW))
    for file in path.parent.iterdir():
        assert SECRET.encode() not in file.read_bytes()
    assert store.matching(MEMORIES, "correct horse battery staple", 5) == {}


@table(
    "model, dimension, vector, message",
    [
        ("other-model", 3, [1, 0, 0], "has vectors of test-model"),
        ("test-model", 4, [1, 0, 0, 0], "has vectors of test-model"),
        ("test-model", 3, [1, 0], "takes vectors of 3 numbers, not of 2"),
    ],
)
def test_vectors_of_two_models_are_never_mixed(
    store: MemoryStore, model: str, dimension: int, vector: list[float], message: str
) -> None:
    with pytest.raises(MemoryStoreError, match=message):
        store.add(MEMORIES, [item("x", vector)], model=model, dimension=dimension)
    assert store.listed(MEMORIES) == ()


def test_an_index_is_not_made_twice_for_two_models(store: MemoryStore) -> None:
    assert not store.create_index(MEMORIES, "test-model", 3, NOW)
    with pytest.raises(MemoryStoreError, match="has vectors of test-model"):
        store.create_index(MEMORIES, "other", 3, NOW)


@table("name", ["", "a b", "../x", "x" * 65, "é", ".hidden"])
def test_a_name_of_an_index_is_plain(store: MemoryStore, name: str) -> None:
    with pytest.raises(MemoryStoreError, match="is not a valid name of an index"):
        store.create_index(name, "m", 3, NOW)


def test_an_index_goes_with_all_that_is_in_it(store: MemoryStore) -> None:
    store.create_index("docs", "test-model", 3, NOW)
    keep(store, item("about parsers", [1, 0, 0]), index="docs")
    (kept,) = keep(store, item("about parsers", [1, 0, 0]))
    assert [index.items for index in store.indices()] == [1, 1]
    assert store.delete_index("docs")
    assert not store.delete_index("docs")
    assert [index.name for index in store.indices()] == [MEMORIES]
    assert store.matching(MEMORIES, "parsers", 5) == {kept: 1.0}
    with pytest.raises(MemoryStoreError, match="there is no index 'docs'"):
        keep(store, item("more"), index="docs")


@table(
    "query, content, matches",
    [
        ("mocks", "never use mocks here", True),
        ("Add a test with a mock of the clock", "We never use mocks here", True),
        ("Fix the flaky parser", "The parser is generated by make", True),
        ("Fix the readme", "The parser is generated by make", False),
        ("what is it that you have", "What would you like", False),
        ("PARSING files", "a parsed file", True),
        ("café", "Cafe opens at nine", True),
        ('"quoted" OR (near) *', "nothing of it", False),
        ("", "anything", False),
        ("... !!", "anything", False),
        ("a b c d e f g h one", "one two three four five six seven eight nine ten eleven twelve", False),
    ],
)
def test_a_text_matches_if_it_shares_words_that_say_something(
    tmp_path: Path, query: str, content: str, matches: object
) -> None:
    with open_store(tmp_path / f"{query[:5].encode().hex()}.db") as store:
        store.create_index(MEMORIES, "test-model", 3, NOW)
        (number,) = keep(store, item(content))
        assert store.matching(MEMORIES, query, 5) == ({number: 1.0} if matches else {})


def test_what_is_expired_is_purged_and_nothing_else(store: MemoryStore) -> None:
    old, new, kept = keep(
        store, item("old", expires_at=NOW - HOUR), item("new", expires_at=NOW), item("kept")
    )
    assert store.purge(MEMORIES, NOW) == 1
    assert {one.id for one in store.listed(MEMORIES)} == {new, kept}
    assert store.get(old) is None
    assert store.purge(MEMORIES, NOW) == 0


def test_items_are_listed_by_time(store: MemoryStore) -> None:
    numbers = store.add(
        MEMORIES,
        [NewItem(f"item {hour}", NOW + hour * HOUR) for hour in range(5)],
        model="test-model",
        dimension=3,
    )
    listed = store.listed(MEMORIES, since=NOW + HOUR, until=NOW + 3 * HOUR)
    assert [one.id for one in listed] == [numbers[3], numbers[2], numbers[1]]
    assert [one.id for one in store.listed(MEMORIES, limit=2)] == [numbers[4], numbers[3]]


def test_the_nearest_are_those_that_arithmetic_says(store: MemoryStore) -> None:
    source = random.Random(7)  # noqa: S311  a table of vectors
    vectors = [[source.gauss(0, 1) for _ in range(3)] for _ in range(700)]
    numbers = keep(store, *(item(f"item {place}", vector) for place, vector in enumerate(vectors)))
    query = [source.gauss(0, 1) for _ in range(3)]

    def similarity(vector: Sequence[float]) -> float:
        products = (a * b for a, b in zip(query, vector, strict=True))
        return math.fsum(products) / math.hypot(*query) / math.hypot(*vector)

    expected = sorted(map(similarity, vectors), reverse=True)[:9]
    found = store.nearest(MEMORIES, packed(query), 9)
    assert list(found.values()) == pytest.approx(expected, abs=2e-3)
    for number, score in found.items():
        assert score == pytest.approx(similarity(vectors[numbers.index(number)]), abs=2e-3)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)).filter(any), min_size=1, max_size=900),
    st.integers(1, 40),
)
def test_the_search_in_blocks_gives_what_sorting_all_gives(
    vectors: list[tuple[int, int]], limit: int
) -> None:
    matrix = Matrix(2, 0)
    matrix.extend((number, packed(vector)) for number, vector in enumerate(vectors, 1))
    everything = matrix.nearest(packed((1, 2)), len(vectors))
    assert len(everything) == len(vectors)
    ordered = sorted(everything.items(), key=lambda pair: (-pair[1], -pair[0]))
    assert list(matrix.nearest(packed((1, 2)), limit).items()) == ordered[:limit]


@table(
    "vector",
    [[], [0.0, 0.0], [math.nan], [math.inf, 1.0], [1.0] * 8_193],
)
def test_what_has_no_direction_is_no_vector(vector: list[float]) -> None:
    with pytest.raises(MemoryStoreError, match="vector"):
        packed(vector)


@table("vector", [[1e-300, 0.0], [1e300, 1e300], [5e-324, -5e-324], [3.0]])
def test_a_vector_has_length_one(vector: list[float]) -> None:
    assert math.hypot(*unpacked(packed(vector))) == pytest.approx(1, abs=1e-3)


def test_what_another_process_changes_is_seen_at_once(store: MemoryStore, path: Path) -> None:
    (first,) = keep(store, item("first", [1, 0, 0]))
    query = packed([1, 0, 0])
    assert list(store.nearest(MEMORIES, query, 5)) == [first]
    with open_store(path) as other:
        (second,) = keep(other, item("second", [0, 1, 0]))
        assert list(store.nearest(MEMORIES, query, 5)) == [first, second]
        other.remove([first])
        assert list(store.nearest(MEMORIES, query, 5)) == [second]
        known = other.get(second)
        assert known is not None
        assert other.change(known, packed([1, 0, 0]))
        assert store.nearest(MEMORIES, query, 5)[second] == pytest.approx(1)
        other.delete_index(MEMORIES)
        assert store.nearest(MEMORIES, query, 5) == {}
        other.create_index(MEMORIES, "test-model", 3, NOW + HOUR)
        (third,) = keep(other, item("third", [0, 0, 1]))
        assert list(store.nearest(MEMORIES, query, 5)) == [third]


def test_another_text_loses_the_vector_of_the_old_one(store: MemoryStore) -> None:
    (number,) = keep(store, item("first", [1, 0, 0]))
    known = store.get(number)
    assert known is not None
    assert store.change(edited(known, "importance", "high", NOW))
    assert store.vector(number) is not None
    assert store.change(edited(known, "content", "second", NOW))
    assert store.vector(number) is None
    assert store.matching(MEMORIES, "second", 5) == {number: 1.0}
    assert store.matching(MEMORIES, "first", 5) == {}
    store.remove([number])
    assert not store.change(known)


def test_an_index_takes_another_model_as_a_whole(store: MemoryStore) -> None:
    first, second = keep(store, item("first", [1, 0, 0]), item("second", [0, 1, 0]))
    assert store.recompute_vectors(MEMORIES, "larger", 2, {first: packed([1, 0]), 99: packed([1, 1])}) == 1
    assert list(store.nearest(MEMORIES, packed([1, 0]), 5)) == [first]
    assert store.vector(second) is None
    with pytest.raises(MemoryStoreError, match="has vectors of larger"):
        keep(store, item("third", [1, 0, 0]))


def test_an_export_is_read_back_as_it_was(store: MemoryStore, tmp_path: Path) -> None:
    keep(
        store,
        item("plain"),
        item("zwölf\nlines", type=MemoryType.CORRECTION, expires_at=NOW + HOUR, metadata={"n": 1}),
    )
    lines = [json.dumps(as_json(one)) for one in store.listed(MEMORIES)]
    with open_store(tmp_path / "copy.db") as copy:
        copy.create_index(MEMORIES, "test-model", 3, NOW)
        for line in reversed(lines):
            index, one = from_json(line)
            copy.add(index, [one], model="test-model", dimension=3)
        assert [json.dumps(as_json(one)) for one in copy.listed(MEMORIES)] == lines


@table(
    "line",
    ["", "[]", "{}", "null", "[" * 100_000, '{"content": 1}', '{"content": "x", "created_at": "yesterday"}'],
)
def test_a_line_that_is_no_memory_is_refused(line: str) -> None:
    with pytest.raises(MemoryStoreError, match="not a line of an export"):
        from_json(line)


@table(
    "name, value",
    [
        ("id", "7"),
        ("content", " "),
        ("type", "order"),
        ("importance", "huge"),
        ("expires_at", "soon"),
        ("metadata", "{}"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(store: MemoryStore, name: str, value: str) -> None:
    (number,) = keep(store, item("text"))
    known = store.get(number)
    assert known is not None
    with pytest.raises(MemoryStoreError):
        edited(known, name, value, NOW)


def test_a_file_that_is_no_memory_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(b"something else\n" * 100)
    with pytest.raises(MemoryStoreError, match=r"memory\.db cannot be used"):
        open_store(path)
    assert path.read_bytes().startswith(b"something else")


def test_the_file_of_a_newer_version_is_refused(path: Path) -> None:
    open_store(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(MemoryStoreError, match="newer version"):
        open_store(path)


_WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.plugins.memory.items import NewItem
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore
from orchestrator.plugins.memory.embedding import packed
now = datetime(2026, 11, 23, tzinfo=UTC)
with MemoryStore(Path(sys.argv[1]), str) as store:
    store.create_index(MEMORIES, "test-model", 3, now)
    for place in range(int(sys.argv[2])):
        item = NewItem(f"writer {sys.argv[3]} item {place}", now, vector=packed([1, 2, place + 1]))
        print(*store.add(MEMORIES, [item], model="test-model", dimension=3), flush=True)
"""


def writer(path: Path, count: int, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _WRITER, str(path), str(count), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@pytest.mark.parametrize("lines", [1, 7, 20])
def test_nothing_that_was_acknowledged_is_lost_by_a_kill(path: Path, lines: int) -> None:
    with writer(path, 100_000, "a") as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        os.kill(process.pid, signal.SIGKILL)
        said += [line for line in process.stdout if line.endswith(b"\n")]
    with open_store(path) as store:
        acknowledged = {int(line) for line in said}
        kept = {one.id for one in store.listed(MEMORIES)}
        assert acknowledged <= kept
        assert len(kept) <= len(acknowledged) + 1
        assert set(store.nearest(MEMORIES, packed([1, 2, 3]), len(kept) + 5)) == kept
        assert set(store.matching(MEMORIES, "writer", len(kept) + 5)) == kept


def test_several_processes_write_at_once(path: Path) -> None:
    processes = [writer(path, 25, name) for name in "abc"]
    numbers = [int(line) for one in processes for line in one.communicate()[0].splitlines()]
    assert [one.returncode for one in processes] == [0, 0, 0]
    assert len(set(numbers)) == 75
    with open_store(path) as store:
        assert {one.id for one in store.listed(MEMORIES)} == set(numbers)


class OtherEmbedder(LexicalEmbedder):
    model = "others"


async def test_a_copy_follows_what_it_copies_also_under_another_embedder(tmp_path: Path) -> None:
    first = {key: NewItem(f"rule {key}", NOW, metadata={"by": "ada"}) for key in ("a", "b")}
    async with contextlib.aclosing(
        LongTermMemory(MemoryStore(tmp_path / "m.db", str), LexicalEmbedder(), ManualClock(NOW))
    ) as memory:
        await memory.mirror({})
        assert memory.store.indices() == ()
        await memory.mirror(first)
        before = {one.metadata[MIRRORED]: one.id for one in memory.store.listed(REPOSITORY)}
        changed = {"b": first["b"], "a": replace(first["a"], importance=Importance.CRITICAL)}
        await memory.mirror({**changed, "c": NewItem("rule c", NOW)})
        after = {one.metadata[MIRRORED]: one.id for one in memory.store.listed(REPOSITORY)}
        assert after.keys() == {"a", "b", "c"}
        assert (after["b"], after["a"] == before["a"]) == (before["b"], False)
        assert await memory.forget(after["b"], Author.MODEL) is None
        other = LongTermMemory(memory.store, OtherEmbedder(), ManualClock(NOW))
        await other.mirror(first)
        (index,) = other.store.indices()
        assert (index.model, index.items, index.vectors) == ("others", 2, 2)
        assert (await other.recall("rule", indices=(REPOSITORY,))).note.startswith("Only words were compared")
        await other.mirror({})
        assert other.store.listed(REPOSITORY) == ()
