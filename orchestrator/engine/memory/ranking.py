"""Memories: their types and expiry, and the ranking of those that match a query.

Types, numbers and order are those of sections 2.3.3, 2.4.4 and 6.3 of the assistant's specification. This
module reads neither a clock nor a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.core.messages import JsonObject


class MemoryType(StrEnum):
    """The subject of a memory."""

    CORRECTION = "correction"
    INSTRUCTION = "instruction"
    PREFERENCE = "preference"
    FACT = "fact"
    WEB_CONTENT = "web_content"
    GENERAL = "general"


class Importance(StrEnum):
    """The importance of a memory."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Author(StrEnum):
    """The author of a memory."""

    PERSON = "person"
    MODEL = "model"


RESULTS = 5
"""Maximum number of memories for a query, not counting the types that are always included."""
FOUND_TWICE_BOOST = 0.1
TEXT_MATCH = 1.0

MULTIPLIERS: Mapping[Importance, float] = {
    Importance.CRITICAL: 2.0,
    Importance.HIGH: 1.5,
    Importance.NORMAL: 1.0,
    Importance.LOW: 0.75,
}
BOOSTS: Mapping[MemoryType, float] = {MemoryType.PREFERENCE: 0.2}
ALWAYS_INCLUDED = frozenset({MemoryType.CORRECTION, MemoryType.INSTRUCTION})
LIFETIMES: Mapping[Importance, timedelta | None] = {
    Importance.CRITICAL: None,
    Importance.HIGH: None,
    Importance.NORMAL: timedelta(days=90),
    Importance.LOW: timedelta(days=7),
}
"""Default lifetime of a memory; None is unlimited."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored memory.

    Attributes:
        id: unique in its file, and never reused.
        index: the name of its index.
        source: its origin: `conversation`, or a document's path.
        expires_at: None is never.
        metadata: further data.
    """

    id: int
    index: str
    content: str
    type: MemoryType
    source: str
    importance: Importance
    author: Author
    created_at: datetime
    expires_at: datetime | None = None
    metadata: JsonObject = field(default_factory=dict)

    def is_expired(self, now: datetime) -> bool:
        """Return whether the memory has expired."""
        return self.expires_at is not None and now > self.expires_at


@dataclass(frozen=True, slots=True)
class Ranked:
    """A memory with its final score."""

    memory: Memory
    score: float


def expiry(importance: Importance, ttl: int | None, now: datetime) -> datetime | None:
    """Return when a memory that is stored now expires; None is never.

    Args:
        ttl: seconds; 0 is unlimited, None depends on the importance.
    """
    if ttl is not None:
        return now + timedelta(seconds=ttl) if ttl else None
    lifetime = LIFETIMES[importance]
    return None if lifetime is None else now + lifetime


def base_score(text: float | None, similarity: float | None) -> float:
    """Return the score of a memory found by its text, by its meaning, or by both."""
    scores = [score for score in (text, similarity) if score is not None]
    score = sum(scores) / len(scores)
    return score + FOUND_TWICE_BOOST if len(scores) > 1 else score


def rank(
    found: Iterable[Memory],
    texts: Mapping[int, float],
    similarities: Mapping[int, float],
    now: datetime,
    limit: int = RESULTS,
) -> tuple[Ranked, ...]:
    """Sort what both searches found, best first; of equals the newer one comes first.

    Args:
        found: each memory that one of the searches found, once.
        texts: the scores of the text search by memory.
        similarities: the scores of the search by meaning by memory, `1 - distance`.
        now: memories that are expired at this time are omitted.
        limit: see `RESULTS`.
    """
    living = [
        Ranked(memory, final_score(memory, base_score(texts.get(memory.id), similarities.get(memory.id))))
        for memory in found
        if not memory.is_expired(now)
    ]
    living.sort(key=lambda one: (-one.score, -one.memory.id))
    forced = [one for one in living if one.memory.type in ALWAYS_INCLUDED]
    others = [one for one in living if one.memory.type not in ALWAYS_INCLUDED]
    return (*forced, *others[:limit])


def final_score(memory: Memory, base: float) -> float:
    """Return the base score, multiplied by the importance, plus the boost of the type."""
    return base * MULTIPLIERS[memory.importance] + BOOSTS.get(memory.type, 0.0)
