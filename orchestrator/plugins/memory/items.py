"""Memories: their types, expiry and JSON form, the words that count in a search, and the ranking of what matches.

Types, numbers and order are those of sections 2.3.3, 2.4.4 and 6.3 of the assistant's specification. This module
reads neither a clock nor a file. What is no item or no valid value raises a `MemoryStoreError`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import MemoryStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
        source: its origin: `conversation`, or a document's path.
        expires_at: None is never.
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
class NewItem:
    """An item to store; see `Memory`.

    Attributes:
        vector: float16 numbers, as from `embedding.packed`; an item with None is found only by its text.
    """

    content: str
    created_at: datetime
    type: MemoryType = MemoryType.GENERAL
    source: str = "conversation"
    importance: Importance = Importance.NORMAL
    author: Author = Author.PERSON
    expires_at: datetime | None = None
    metadata: JsonObject = field(default_factory=dict)
    vector: bytes | None = None


def as_json(memory: Memory) -> dict[str, Any]:
    """Return a memory in the form of section 2.3.3 of the specification, with some more fields."""
    return {
        "memory_id": memory.id,
        "content": memory.content,
        "type": memory.type.value,
        "source": memory.source,
        "importance": memory.importance.value,
        "ttl": None
        if memory.expires_at is None
        else round((memory.expires_at - memory.created_at).total_seconds()),
        "created_at": _iso_time(memory.created_at),
        "expires_at": None if memory.expires_at is None else _iso_time(memory.expires_at),
        "index": memory.index,
        "author": memory.author.value,
        "metadata": dict(memory.metadata),
    }


def from_json(line: str | bytes) -> tuple[str, NewItem]:
    """Parse a line of `as_json`; return the index, and the item without its vector."""
    try:
        value = json.loads(line)
        expires_at = value["expires_at"]
        item = NewItem(
            _checked(value["content"], str),
            _utc(value["created_at"]),
            MemoryType(value["type"]),
            _checked(value["source"], str),
            Importance(value["importance"]),
            Author(value["author"]),
            None if expires_at is None else _utc(expires_at),
            _checked(value["metadata"], dict),
        )
        return _checked(value["index"], str), item
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MemoryStoreError(
            f"this is not a line of an export of memories: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def edited(memory: Memory, field_name: str, value: str, now: datetime) -> Memory:
    """Return a copy of the memory with another value in one field.

    Another importance gives it that importance's lifetime, from now on.
    """
    parse = _EDITABLE.get(field_name)
    if parse is None:
        fields = ", ".join(_EDITABLE)
        raise MemoryStoreError(f"{field_name[:80]!r} is not a field of a memory; use one of: {fields}")
    try:
        changed = replace(memory, **{field_name: parse(value)})
    except ValueError as error:
        raise MemoryStoreError(f"{field_name}: {str(error)[:200]}") from None
    if field_name == "importance":
        return replace(changed, expires_at=expiry(changed.importance, None, now))
    return changed


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _iso_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


_EDITABLE: Mapping[str, Callable[[str], Any]] = {
    "content": _not_blank,
    "type": MemoryType,
    "source": _not_blank,
    "importance": Importance,
    "expires_at": lambda value: None if value == "never" else _utc(value),
}


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:80]!r} is not of the type {kind.__name__}")
    return value


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

    The score of a search is multiplied by the importance, and the boost of the type is added.

    Args:
        found: each memory that one of the searches found, once.
        texts: the scores of the text search by memory.
        similarities: the scores of the search by meaning by memory, `1 - distance`.
        now: memories that are expired at this time are omitted.
        limit: see `RESULTS`.
    """
    living = [
        Ranked(
            memory,
            base_score(texts.get(memory.id), similarities.get(memory.id)) * MULTIPLIERS[memory.importance]
            + BOOSTS.get(memory.type, 0.0),
        )
        for memory in found
        if not memory.is_expired(now)
    ]
    living.sort(key=lambda one: (-one.score, -one.memory.id))
    forced = [one for one in living if one.memory.type in ALWAYS_INCLUDED]
    others = [one for one in living if one.memory.type not in ALWAYS_INCLUDED]
    return (*forced, *others[:limit])


_WORD = re.compile(r"\w+")
_COMMON = """
a about after all also an and any are as at be been but by can could did do does for from had has have he
her here him his how i if in into is it its just like me more my no not of on one or our out over she should
so some than that the their them then there these they this those to up us was we were what when where which
who why will with would you your
"""
_COMMON_WORDS = frozenset(_COMMON.split())


def significant_words(text: str) -> list[str]:
    """Return the words in lower case, in order, without common ones."""
    return [word for word in _WORD.findall(text.lower()) if word not in _COMMON_WORDS]
