"""The tables of sections 2.3.3, 2.4.4 and 6.3 of the assistant's specification, line by line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plugins.memory.items import (
    ALWAYS_INCLUDED,
    RESULTS,
    Author,
    Importance,
    Memory,
    MemoryType,
    base_score,
    expiry,
    rank,
)
from tests.tables import table

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def memory(
    number: int, kind: str = "general", importance: str = "normal", expires_at: datetime | None = None
) -> Memory:
    return Memory(
        number,
        "long_term_memory",
        f"memory {number}",
        MemoryType(kind),
        "conversation",
        Importance(importance),
        Author.PERSON,
        NOW,
        expires_at,
    )


@table(
    "importance, ttl, lives",
    [
        ("critical", None, None),
        ("high", None, None),
        ("normal", None, timedelta(days=90)),
        ("low", None, timedelta(days=7)),
        ("critical", 60, timedelta(minutes=1)),
        ("low", 0, None),
        ("normal", 0, None),
        ("normal", 1, SECOND),
    ],
)
def test_a_memory_lives_as_long_as_its_ttl_or_its_importance_says(
    importance: str, ttl: int | None, lives: timedelta | None
) -> None:
    assert expiry(Importance(importance), ttl, NOW) == (None if lives is None else NOW + lives)


@table(
    "text, similarity, score",
    [
        (1.0, None, 1.0),
        (None, 0.4, 0.4),
        (1.0, 0.4, 0.8),
        (1.0, 1.0, 1.1),
        (1.0, 0.0, 0.6),
    ],
)
def test_what_is_found_twice_gets_the_mean_and_a_tenth_more(
    text: float | None, similarity: float | None, score: float
) -> None:
    assert abs(base_score(text, similarity) - score) < 1e-9


@table(
    "kind, importance, base, final",
    [
        ("general", "critical", 0.5, 1.0),
        ("general", "high", 0.5, 0.75),
        ("general", "normal", 0.5, 0.5),
        ("general", "low", 0.5, 0.375),
        ("fact", "normal", 0.5, 0.5),
        ("web_content", "normal", 0.5, 0.5),
        ("preference", "normal", 0.5, 0.7),
        ("preference", "critical", 0.5, 1.2),
        ("preference", "low", 1.0, 0.95),
        ("correction", "normal", 0.5, 0.5),
        ("instruction", "high", 0.5, 0.75),
    ],
)
def test_the_final_score_is_the_base_times_the_importance_plus_the_boost(
    kind: str, importance: str, base: float, final: float
) -> None:
    (only,) = rank([memory(1, kind, importance)], {}, {1: base}, NOW)
    assert abs(only.score - final) < 1e-9


@table(
    "expires_at, is_there",
    [(None, True), (NOW + SECOND, True), (NOW, True), (NOW - SECOND, False)],
)
def test_a_memory_is_gone_once_its_time_is_over(expires_at: datetime | None, is_there: object) -> None:
    assert bool(rank([memory(1, expires_at=expires_at)], {1: 1.0}, {}, NOW)) is is_there


def test_five_are_given_and_corrections_and_instructions_beside_them() -> None:
    found = [memory(number) for number in range(1, 8)]
    found += [memory(8, "correction", "low"), memory(9, "instruction"), memory(10, "correction", "high")]
    scores = {one.id: 0.9 if one.id < 8 else 0.4 for one in found}
    ranked = rank(found, {}, scores, NOW)
    assert [one.memory.id for one in ranked] == [10, 9, 8, 7, 6, 5, 4, 3]


def test_an_expired_instruction_is_not_included() -> None:
    assert rank([memory(1, "instruction", expires_at=NOW - SECOND)], {1: 1.0}, {}, NOW) == ()


memories = st.builds(
    lambda number, kind, importance, seconds: memory(
        number, kind, importance, None if seconds is None else NOW + timedelta(seconds=seconds)
    ),
    st.integers(1, 40),
    st.sampled_from(list(MemoryType)),
    st.sampled_from(list(Importance)),
    st.none() | st.integers(-5, 5),
)


@given(st.lists(memories, unique_by=lambda one: one.id), st.data())
def test_order_of_arrival_changes_nothing(found: list[Memory], data: st.DataObject) -> None:
    scores = {one.id: data.draw(st.floats(0, 1)) for one in found}
    ranked = rank(found, {}, scores, NOW)
    assert ranked == rank(data.draw(st.permutations(found)), {}, scores, NOW)
    assert not any(one.memory.is_expired(NOW) for one in ranked)
    forced = {one.id for one in found if one.type in ALWAYS_INCLUDED and not one.is_expired(NOW)}
    given_back = {one.memory.id for one in ranked}
    assert forced <= given_back
    assert len(given_back - forced) <= RESULTS
