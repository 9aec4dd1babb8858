"""Long-term memory: remembers, recalls and forgets texts, using the store and an embedder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.core.errors import MemoryMissingError, MemoryStoreError, ModelError
from orchestrator.core.prompts import fenced, one_line, render
from orchestrator.plugins.memory.items import (
    LIFETIMES,
    RESULTS,
    TEXT_MATCH,
    Author,
    Importance,
    Memory,
    MemoryType,
    NewItem,
    Ranked,
    as_json,
    expiry,
    from_json,
    rank,
)
from orchestrator.plugins.memory.store import MEMORIES, REPOSITORY, RESERVED_INDICES, plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import JsonObject
    from orchestrator.plugins.memory.embedding import Embedder
    from orchestrator.plugins.memory.store import MemoryStore

CANDIDATES = 20
"""Maximum number of memories that each of both searches finds."""
MOST_CHARS = 4_000
"""Characters of a memory."""
QUERY_CHARS = 2_000
"""Characters of a message that are used as a query: a long message states its subject first."""
SHOWN_CHARS = 600
"""Characters of a memory that are added to a message."""
MIRRORED = "fact"
"""The metadata field with the key of a mirrored item."""
DOCUMENT_CHARS = 1_000
"""Characters of a document's piece that are added to a message: one chunk."""
SOURCE_CHARS = 200
REPEATED_SHARE = 0.5
"""A text says nothing new if a recalled memory makes up this share of it."""

UNATTENDED_TYPES = frozenset({MemoryType.GENERAL, MemoryType.FACT, MemoryType.WEB_CONTENT})
UNATTENDED_IMPORTANCE = frozenset({Importance.NORMAL, Importance.LOW})
"""Types and importance that an unattended model may write: no instructions, and nothing permanent."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The result of remembering a text.

    Attributes:
        memory: the new memory, or an existing one with the same content.
        note: the differences to what was requested; empty if there are none.
    """

    memory: Memory
    is_new: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The memories for a query, best first.

    Attributes:
        note: why only words were compared; empty if meanings were compared, too.
    """

    memories: tuple[Ranked, ...]
    note: str = ""


LEXICAL = "Only words were compared, not their meaning: no model for embeddings is set up."


class LongTermMemory:
    """The memories of a file, and its indices of documents, for one session or one command.

    A model must not write instructions or corrections, its memories always expire, and it may only forget what a
    model wrote: a cycle that nobody watches reads them later. What cannot be stored or found raises a
    `MemoryStoreError`. A `ModelError` means that the embedder failed; the index is then unchanged.

    Args:
        embedder: computes the vectors.

    Every method may raise a `MemoryStoreError` if the file cannot be used.
    """

    def __init__(self, store: MemoryStore, embedder: Embedder, clock: Clock) -> None:
        self.store = store
        self.embedder = embedder
        self.clock = clock
        self._recalled: dict[int, Memory] = {}
        self._last_query: tuple[str, bytes] | None = None

    async def remember(  # noqa: PLR0913  the fields of section 2.3.3 of the specification
        self,
        content: str,
        *,
        type_: MemoryType = MemoryType.GENERAL,
        source: str = "conversation",
        importance: Importance = Importance.NORMAL,
        ttl: int | None = None,
        author: Author = Author.PERSON,
    ) -> Remembered:
        """Store a text. A text that is stored or was recalled already is not stored again.

        Args:
            ttl: see `items.expiry`.

        Raises:
            MemoryStoreError: the text is empty or too long, or the file cannot store it.
            ModelError: there is no vector for it, and no existing index in which it could be stored without
                one.
        """
        content = self.store.redact(content.strip())
        if not content:
            raise MemoryStoreError("there is nothing to remember: the text is empty")
        if len(content) > MOST_CHARS:
            raise MemoryStoreError(
                f"the text has {len(content):,} characters; a memory has {MOST_CHARS:,} at most: shorten it"
            )
        known = self._recalled_duplicate(content) or await asyncio.to_thread(
            self.store.same, MEMORIES, content
        )
        if known:
            return Remembered(known, is_new=False, note=f"Memory {known.id} says this already.")
        note = ""
        if author is Author.MODEL:
            type_, importance, ttl, note = _restricted(type_, importance, ttl)
        now = self.clock.now()
        item = NewItem(content, now, type_, source, importance, author, expiry(importance, ttl, now))
        number, missing = await self._add(item)
        memory = await asyncio.to_thread(self.store.get, number)
        if memory is None:
            raise MemoryStoreError("the memory was removed while it was stored")
        return Remembered(memory, is_new=True, note=" ".join(filter(None, (note, missing))))

    def _recalled_duplicate(self, content: str) -> Memory | None:
        """Return the recalled memory that this text repeats."""
        said = plain(content)
        for memory in self._recalled.values():
            known = plain(memory.content)
            if said in known or (known in said and len(known) >= REPEATED_SHARE * len(said)):
                return memory
        return None

    async def _add(self, item: NewItem) -> tuple[int, str]:
        """Store an item; return its id, and why it has no vector."""
        index = await asyncio.to_thread(self.store.index, MEMORIES)
        missing = ""
        try:
            (vector,) = await self.embedder.embed([item.content])
        except ModelError as error:
            if index is None or index.model != self.embedder.model:
                raise
            missing = f"It is found by its words only, because no vector could be made ({error})."
            dimension = index.dimension
        else:
            item, dimension = replace(item, vector=vector), len(vector) // 2
        (number,) = await self._write(MEMORIES, [item], dimension)
        return number, missing

    async def recall(
        self,
        query: str,
        limit: int = RESULTS,
        indices: Sequence[str] = (MEMORIES,),
        matching: Collection[int] = (),
    ) -> Recalled:
        """Find memories by words and by meaning, and remove expired ones.

        Args:
            indices: the indices of memories to search.
            matching: ids that count as found by their text, whatever their words are.
        """
        texts, similarities, note = dict.fromkeys(matching, TEXT_MATCH), dict[int, float](), ""
        for index in indices:
            more, nearer, said = await self.search(index, query, CANDIDATES)
            texts, similarities, note = more | texts, similarities | nearer, note or said
        found = await asyncio.to_thread(self.store.find, texts | similarities)
        now = self.clock.now()
        ranked = rank(found, texts, similarities, now, limit)
        for index in indices:
            await asyncio.to_thread(self.store.purge, index, now)
        self.mark_as_known(one.memory for one in ranked)
        return Recalled(ranked, note)

    def mark_as_known(self, memories: Iterable[Memory]) -> None:
        """Do not store the content of these memories again in this session."""
        self._recalled |= {memory.id: memory for memory in memories}

    async def search(
        self, index: str, query: str, limit: int
    ) -> tuple[dict[int, float], dict[int, float], str]:
        """Return the scores by words and by meaning, and why only words were compared."""
        texts = await asyncio.to_thread(self.store.matching, index, query, limit)
        known = await asyncio.to_thread(self.store.index, index)
        if known is None or not query.strip():
            return texts, {}, ""
        if known.model != self.embedder.model:
            note = f"Only words were compared: the index has vectors of {known.model}, not of {self.embedder.model}."
            return texts, {}, note
        try:
            vector = await self._vector(query)
        except ModelError as error:
            return texts, {}, f"Only words were compared: {error}."
        near = await asyncio.to_thread(self.store.nearest, index, vector, limit)
        least = self.embedder.least_similarity
        similarities = {number: score for number, score in near.items() if score >= least}
        return texts, similarities, LEXICAL if self.embedder.is_lexical else ""

    async def recall_block(self, message: str) -> str:
        """Return the memories for a message, under their heading; empty if there are none."""
        found = await self.recall(message[:QUERY_CHARS])
        return shown_block(one.memory for one in found.memories)

    async def mirror(self, items: Mapping[str, NewItem]) -> None:
        """Make the repository's index contain exactly these items.

        Args:
            items: by a stable key of each item, which is stored in its metadata.
        """
        index = await asyncio.to_thread(self.store.index, REPOSITORY)
        if index is None and not items:
            return
        if index is not None and index.model != self.embedder.model:
            await asyncio.to_thread(self.store.delete_index, REPOSITORY)
        wanted = {
            key: replace(item, metadata={**item.metadata, MIRRORED: key}) for key, item in items.items()
        }
        stale, kept = [], set[str]()
        for memory in await asyncio.to_thread(self.store.listed, REPOSITORY):
            key = str(memory.metadata.get(MIRRORED, ""))
            if key in wanted and key not in kept and self._is_identical(memory, wanted[key]):
                kept.add(key)
            else:
                stale.append(memory.id)
        if stale:
            await asyncio.to_thread(self.store.remove, stale)
        await self.add_items(REPOSITORY, [item for key, item in wanted.items() if key not in kept])

    def _is_identical(self, memory: Memory, item: NewItem) -> bool:
        return (
            memory.content == self.store.redact(item.content)
            and (memory.type, memory.importance, memory.author, memory.source, memory.expires_at)
            == (item.type, item.importance, item.author, item.source, item.expires_at)
            and dict(memory.metadata) == dict(item.metadata)
        )

    async def recall_with_documents(self, message: str) -> str:
        """Return the memories, and the pieces of documents nearest to the message, each under a heading."""
        blocks = await self.recall_block(message), await self.document_block(message)
        return "\n\n".join(filter(None, blocks))

    async def document_block(self, message: str) -> str:
        """Return the pieces of documents nearest to a message, under their heading; empty if there are none."""
        documents = [
            {
                "index": item.index,
                "source": one_line(item.source, limit=SOURCE_CHARS),
                "page": item.metadata.get("page") if isinstance(item.metadata.get("page"), int) else None,
                "block": fenced(item.content[:DOCUMENT_CHARS]),
            }
            for item in await self._nearest_documents(message[:QUERY_CHARS])
        ]
        return render("plugins/memory/relevant_documents", documents=documents) if documents else ""

    async def _nearest_documents(self, query: str) -> list[Memory]:
        """Return the nearest pieces of documents in all indices of this embedder, best first."""
        known = await asyncio.to_thread(self.store.indices)
        ours = [one for one in known if one.name not in RESERVED_INDICES and one.model == self.embedder.model]
        names = [one.name for one in ours if one.vectors]
        if not names or not query.strip():
            return []
        try:
            vector = await self._vector(query)
        except ModelError:
            return []
        near: dict[int, float] = {}
        for name in names:
            near |= await asyncio.to_thread(self.store.nearest, name, vector, RESULTS)
        best = sorted(near, key=lambda number: (-near[number], -number))[:RESULTS]
        found = await asyncio.to_thread(self.store.find, best)
        return [item for item in found if near[item.id] >= self.embedder.least_similarity]

    async def _vector(self, query: str) -> bytes:
        """Return the vector of a query. The last one is kept: memories and documents are searched with the same query."""
        if self._last_query is None or self._last_query[0] != query:
            (vector,) = await self.embedder.embed([query])
            self._last_query = query, vector
        return self._last_query[1]

    async def forget(self, number: int, author: Author = Author.PERSON) -> Memory | None:
        """Remove a memory and return it; None if there is none with this id."""
        memory = await asyncio.to_thread(self.store.get, number)
        if memory is None or (author is Author.MODEL and memory.index != MEMORIES):
            return None
        if author is Author.MODEL and memory.author is Author.PERSON:
            raise MemoryStoreError(f"a person wrote memory {number}; only a person may remove it")
        return memory if await asyncio.to_thread(self.store.remove, [number]) else None

    async def rewrite(self, memory: Memory) -> bool:
        """Update a memory, and its vector if the content differs; return False if it no longer exists."""
        before = await asyncio.to_thread(self.store.get, memory.id)
        vector = None
        if before is not None and before.content != memory.content:
            index = await asyncio.to_thread(self.store.index, before.index)
            if index is not None and index.model == self.embedder.model:
                (vector,) = await self.embedder.embed([self.store.redact(memory.content)])
        return await asyncio.to_thread(self.store.change, memory, vector)

    async def recompute_vectors(self, index: str) -> int:
        """Recompute the vectors of an index with this embedder; return how many there are."""
        items = await asyncio.to_thread(self.store.listed, index)
        vectors = await self.embedder.embed([one.content for one in items] or ["nothing"])
        numbered = dict(zip((one.id for one in items), vectors, strict=False))
        if await asyncio.to_thread(self.store.index, index) is None:
            raise MemoryMissingError(f"there is no index {index[:80]!r}")
        return await asyncio.to_thread(
            self.store.recompute_vectors, index, self.embedder.model, len(vectors[0]) // 2, numbered
        )

    async def import_items(self, lines: Iterable[str | bytes]) -> int:
        """Import the lines of an `export`, with new ids and vectors; return the number of items.

        Items that are known or expired are skipped, and so are the repository's. All lines are parsed before
        one is stored.
        """
        read = [from_json(line) for line in lines if line.strip()]
        now, stored = self.clock.now(), 0
        living = [one for one in read if one[1].expires_at is None or one[1].expires_at >= now]
        for name in dict.fromkeys(index for index, _ in living if index != REPOSITORY):
            items = [item for index, item in living if index == name]
            stored += len(await self.add_items(name, await asyncio.to_thread(self._new_items, name, items)))
        return stored

    def _new_items(self, index: str, items: Sequence[NewItem]) -> list[NewItem]:
        once = {plain(self.store.redact(item.content)): item for item in items}
        return [item for item in once.values() if self.store.same(index, item.content) is None]

    async def add_items(self, index: str, items: Sequence[NewItem]) -> tuple[int, ...]:
        """Store items with vectors of this embedder, and create a missing index; return the ids."""
        if not items:
            return ()
        vectors = await self.embedder.embed([self.store.redact(item.content) for item in items])
        whole = [replace(item, vector=vector) for item, vector in zip(items, vectors, strict=True)]
        return await self._write(index, whole, len(vectors[0]) // 2)

    async def _write(self, index: str, items: Sequence[NewItem], dimension: int) -> tuple[int, ...]:
        model, now = self.embedder.model, self.clock.now()

        def write() -> tuple[int, ...]:
            self.store.create_index(index, model, dimension, now)
            return self.store.add(index, items, model=model, dimension=dimension)

        return await asyncio.to_thread(write)

    async def replace_document(self, index: str, source: str, items: Sequence[NewItem]) -> int:
        """Replace a document's pieces in an index; return the number of removed ones."""
        known = await asyncio.to_thread(self.store.listed, index)
        await self.add_items(index, items)
        return await asyncio.to_thread(self.store.remove, [one.id for one in known if one.source == source])

    def export(self, index: str | None = None) -> list[JsonObject]:
        """Return all items of an index, or of all, oldest first, in the form that `import_items` reads."""
        names = [known.name for known in self.store.indices()] if index is None else [index]
        return [as_json(item) for name in names for item in reversed(self.store.listed(name))]

    async def aclose(self) -> None:
        """Close the embedder and the file."""
        await self.embedder.aclose()
        self.store.close()


def shown_block(memories: Iterable[Memory]) -> str:
    """Return memories under their heading, as they are added to a message; empty if there are none."""
    shown = [
        {
            "memory": memory,
            "origin": memory.source if memory.index == REPOSITORY else "",
            "text": one_line(" ".join(memory.content.split()), limit=SHOWN_CHARS),
        }
        for memory in memories
    ]
    return render("plugins/memory/relevant_memories", memories=shown) if shown else ""


def needs_person(type_: MemoryType, importance: Importance, ttl: int | None) -> bool:
    """Return whether only a person may store a memory with these attributes."""
    return bool(_restricted(type_, importance, ttl)[-1])


def _restricted(
    type_: MemoryType, importance: Importance, ttl: int | None
) -> tuple[MemoryType, Importance, int | None, str]:
    """Restrict the attributes of a model's own memory; return them and a note on what was changed."""
    kept = type_ if type_ in UNATTENDED_TYPES else MemoryType.FACT
    weight = importance if importance in UNATTENDED_IMPORTANCE else Importance.NORMAL
    longest = LIFETIMES[weight] or timedelta(0)
    seconds = None if not ttl else min(ttl, int(longest.total_seconds()))
    if (kept, weight, seconds) == (type_, importance, ttl):
        return kept, weight, seconds, ""
    return kept, weight, seconds, f"It was stored as {kept}, {weight}: only a person may request more."
