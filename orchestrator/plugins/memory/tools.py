"""The tools that work on a memory's file: the memories, the vector indices, and the PDF documents in them.

Sections 2.3.3, 2.3.5 and 2.3.6 and appendix A of the assistant's specification. Only `remember` and
`forget_memory` write to the index of the memories. The model is offered the tools that write only if it may
change files.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.errors import MemoryMissingError, MemoryStoreError, ModelError
from orchestrator.engine.tools.base import (
    FROM_ONE,
    TEXT,
    Failed,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
)
from orchestrator.engine.tools.pdf import pdf_extract_text, read_pdf_bytes, read_whole_pdf
from orchestrator.plugins.memory.embedding import MOST_DIMENSIONS, packed, unpacked
from orchestrator.plugins.memory.items import (
    Author,
    Importance,
    Memory,
    MemoryType,
    NewItem,
    as_json,
    expiry,
    rank,
)
from orchestrator.plugins.memory.memory import needs_person
from orchestrator.plugins.memory.store import RESERVED_INDICES, Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.core.messages import JsonObject, ToolDefinition
    from orchestrator.plugins.memory.memory import LongTermMemory

LONGEST_TTL_SECONDS = 100 * 366 * 86_400
FOUND = 5
LISTED = 20
MOST_FOUND = 100
GIVEN = "given"
"""The model name of an index whose vectors are passed in."""
LEAST_CHUNK_CHARS = 100

_Action: TypeAlias = Callable[["LongTermMemory", Mapping[str, Any]], Awaitable[Any]]
_NUMBERS: JsonObject = {
    "type": "array",
    "items": {"type": "number"},
    "minItems": 1,
    "maxItems": MOST_DIMENSIONS,
}
_METADATA: JsonObject = {"type": "object"}
_ID: JsonObject = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
_COUNT: JsonObject = {"type": "integer", "minimum": 1, "maximum": MOST_FOUND}


def _define(
    name: str, properties: Mapping[str, JsonObject], required: tuple[str, ...] = ()
) -> ToolDefinition:
    return define(name, properties, required, prompt=f"plugins/memory/{name}")


def memory_tools(memory: LongTermMemory, *, attended: bool = False) -> tuple[Tool, ...]:
    """Create the three tools. The model is offered the writing ones only if it may change files.

    Args:
        attended: see `remember`.
    """
    return remember(memory, attended=attended), recall_memories(memory), forget_memory(memory)


def remember(memory: LongTermMemory, *, attended: bool = False) -> Tool:
    """Create the tool that stores a text.

    Args:
        attended: whether a person is there, whom the gate asks before an order or something that stays for long is
            stored; it is then theirs. Otherwise it is stored as a fact that expires.
    """

    def consent(arguments: Mapping[str, Any]) -> str:
        type_, importance, ttl = _attributes(arguments)
        if not needs_person(type_, importance, ttl):
            return ""
        until = expiry(importance, ttl, now := memory.clock.now())
        stays = "for ever" if until is None else f"for {(until - now) / timedelta(days=1):,.0f} days"
        return f"remember ({type_}, {importance}, {stays}):\n{arguments['content']}"

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        type_, importance, ttl = _attributes(arguments)
        try:
            stored = await memory.remember(
                arguments["content"],
                type_=type_,
                source=arguments.get("source") or "conversation",
                importance=importance,
                ttl=ttl,
                author=Author.PERSON if attended and consent(arguments) else Author.MODEL,
            )
        except (MemoryStoreError, ModelError) as error:
            return Failed(f"Not remembered: {error}.")
        return _answer({**memory_line(stored.memory), "stored": stored.is_new}, stored.note)

    properties: dict[str, JsonObject] = {
        "content": TEXT,
        "type": {"type": "string", "enum": [one.value for one in MemoryType]},
        "source": {"type": "string", "maxLength": 500},
        "importance": {"type": "string", "enum": [one.value for one in Importance]},
        "ttl": {"type": "integer", "minimum": 0, "maximum": LONGEST_TTL_SECONDS},
    }
    definition = _define("remember", properties, ("content",))
    return Tool(definition, execute, order=Order.ALONE, consent=consent if attended else None)


def _attributes(arguments: Mapping[str, Any]) -> tuple[MemoryType, Importance, int | None]:
    type_ = MemoryType(arguments.get("type", MemoryType.GENERAL))
    return type_, Importance(arguments.get("importance", Importance.NORMAL)), integer(arguments, "ttl")


def recall_memories(memory: LongTermMemory) -> Tool:
    """Create the tool that searches the memories."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        try:
            found = await memory.recall(arguments["query"])
        except MemoryStoreError as error:
            return Failed(f"The memories could not be searched: {error}.")
        memories = [{**memory_line(one.memory), "score": round(one.score, 3)} for one in found.memories]
        return _answer({"memories": memories, "count": len(memories)}, found.note)

    return Tool(_define("recall_memories", {"query": TEXT}, ("query",)), execute)


def forget_memory(memory: LongTermMemory) -> Tool:
    """Create the tool that removes a memory."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        number = int(arguments["memory_id"])
        try:
            forgotten = await memory.forget(number, Author.MODEL)
        except MemoryStoreError as error:
            return Failed(f"Not forgotten: {error}.")
        if forgotten is None:
            return Failed(f"There is no memory {number}. Find its number by recalling it.")
        return _answer({"forgotten": number, "content": forgotten.content})

    return Tool(_define("forget_memory", {"memory_id": _ID}, ("memory_id",)), execute, order=Order.ALONE)


def memory_line(memory: Memory) -> dict[str, Any]:
    """Return a memory as it is shown to the model."""
    return {name: value for name, value in as_json(memory).items() if name not in {"index", "metadata"}}


def _answer(fields: dict[str, Any], note: str = "") -> Ok:
    shown = {**fields, "note": note} if note else fields
    return Ok(json.dumps(shown, ensure_ascii=False, indent=1))


def document_tools(memory: LongTermMemory) -> tuple[Tool, ...]:
    """Create all tools for PDF documents and for the vector indices in a memory's file."""
    place = {"file_path": TEXT, "index_name": TEXT}
    with_metadata = {"index_name": TEXT, "file_path": TEXT, "metadata": _METADATA}
    return (
        pdf_extract_text(),
        _indexing(memory, "process_pdf_document", place),
        *vector_tools(memory),
        _indexing(memory, "vector_db_add_pdf_document", with_metadata),
    )


def vector_tools(memory: LongTermMemory) -> tuple[Tool, ...]:
    """Create all tools of vector indices."""
    return tuple(
        Tool(_define(f"vector_db_{name}", properties, required), _executor(memory, action), order=order)
        for name, action, properties, required, order in _vector_tool_table()
    )


def _vector_tool_table() -> tuple[tuple[str, _Action, Mapping[str, JsonObject], tuple[str, ...], Order], ...]:
    """Return each tool's name after `vector_db_`, function, parameters, required parameters, and order."""
    index = {"index_name": TEXT}
    one = {**index, "vector_id": _ID}
    chunk: JsonObject = {"type": "integer", "minimum": LEAST_CHUNK_CHARS, "maximum": 8_000}
    overlap: JsonObject = {"type": "integer", "minimum": 0, "maximum": 4_000}
    vector = {"vector": _NUMBERS, "metadata": _METADATA}
    text = {**index, "text": TEXT}
    sizes = {"max_chunk_size": chunk, "overlap_size": overlap, "metadata": _METADATA}
    near = {**index, "query_vector": _NUMBERS, "k": _COUNT}
    times = {**index, "start_time": TEXT, "end_time": TEXT, "limit": _COUNT}
    dimension: JsonObject = {**FROM_ONE, "maximum": MOST_DIMENSIONS}
    named, writes, reads = ("index_name",), Order.ALONE, Order.TOGETHER
    return (
        ("create_index", _create, {**index, "dimension": dimension}, named, writes),
        ("delete_index", _delete, index, named, writes),
        ("list_indices", _list, {}, (), reads),
        ("add_vector", _add_vector, {**index, **vector}, (*named, "vector"), writes),
        ("update_vector", _update_vector, {**one, **vector}, (*named, "vector_id", "vector"), writes),
        ("delete_vector", _delete_vector, one, (*named, "vector_id"), writes),
        ("get_vector", _get_vector, one, (*named, "vector_id"), reads),
        ("search", _search, near, (*named, "query_vector"), reads),
        ("add_text", _add_text, {**text, "metadata": _METADATA}, (*named, "text"), writes),
        ("add_chunked_text", _add_chunked, {**text, **sizes}, (*named, "text"), writes),
        ("search_text", _search_text, {**index, "query": TEXT, "k": _COUNT}, (*named, "query"), reads),
        ("search_by_time", _search_by_time, times, named, reads),
    )


def _executor(
    memory: LongTermMemory, action: _Action
) -> Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutcome]]:
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        if arguments.get("index_name") in RESERVED_INDICES:
            return Failed("This index holds the memories, which have tools of their own.")
        try:
            return _answer(await action(memory, arguments))
        except MemoryStoreError as error:
            return Failed(f"Not done: {error}. [{error.code}]")
        except ModelError as error:
            return Failed(f"Not done: {error}.")

    return execute


async def _create(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    name, dimension = arguments["index_name"], integer(arguments, "dimension")
    model = GIVEN
    if dimension is None:
        (vector,) = await memory.embedder.embed(["a text"])
        model, dimension = memory.embedder.model, len(vector) // 2
    created = await asyncio.to_thread(memory.store.create_index, name, model, dimension, memory.clock.now())
    return {"index_name": name, "created": created, "model": model, "dimension": dimension}


async def _delete(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    await _index(memory, arguments)
    await asyncio.to_thread(memory.store.delete_index, arguments["index_name"])
    return {"index_name": arguments["index_name"], "deleted": True}


async def _list(memory: LongTermMemory, _arguments: Mapping[str, Any]) -> Any:
    known = await asyncio.to_thread(memory.store.indices)
    return {
        "indices": [
            {"index_name": one.name, "model": one.model, "dimension": one.dimension, "items": one.items}
            for one in known
        ],
        "count": len(known),
    }


async def _add_vector(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    index = await _index_of_given_vectors(memory, arguments)
    item = _new_item(memory, "", "vector", arguments.get("metadata") or {}, packed(arguments["vector"]))
    add = functools.partial(memory.store.add, index.name, [item], model=GIVEN, dimension=index.dimension)
    (number,) = await asyncio.to_thread(add)
    return {"vector_id": number}


async def _update_vector(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    await _index_of_given_vectors(memory, arguments)
    known = await _item(memory, arguments)
    if "metadata" in arguments:
        known = replace(known, metadata=arguments["metadata"])
    await asyncio.to_thread(memory.store.change, known, packed(arguments["vector"]))
    return {"vector_id": known.id, "updated": True}


async def _delete_vector(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    known = await _item(memory, arguments)
    await asyncio.to_thread(memory.store.remove, [known.id])
    return {"vector_id": known.id, "deleted": True}


async def _get_vector(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    known = await _item(memory, arguments)
    vector = await asyncio.to_thread(memory.store.vector, known.id)
    numbers = None if vector is None else [round(number, 4) for number in unpacked(vector)]
    return {**_shown(known), "vector": numbers}


async def _search(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    index, k = await _index(memory, arguments), integer(arguments, "k") or FOUND
    near = await asyncio.to_thread(memory.store.nearest, index.name, packed(arguments["query_vector"]), k)
    found = await asyncio.to_thread(memory.store.find, near)
    return _results([{**_shown(one), "similarity": round(near[one.id], 4)} for one in found])


async def _add_text(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    return await _add_texts(memory, arguments, [arguments["text"]])


async def _add_chunked(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    size = integer(arguments, "max_chunk_size") or CHUNK_CHARACTERS
    overlap = integer(arguments, "overlap_size")
    overlap = min(OVERLAP_CHARACTERS, size // 5) if overlap is None else overlap
    if 2 * overlap >= size:
        raise MemoryStoreError("overlap_size must be less than half of max_chunk_size")
    return await _add_texts(memory, arguments, list(pieces_of(arguments["text"], size, overlap)))


async def _add_texts(memory: LongTermMemory, arguments: Mapping[str, Any], texts: list[str]) -> Any:
    if not any(map(str.strip, texts)):
        raise MemoryStoreError("the text is empty")
    metadata = arguments.get("metadata") or {}
    items = [
        _new_item(
            memory,
            text,
            "text",
            {**metadata, "chunk": place, "chunks": len(texts)} if len(texts) > 1 else metadata,
        )
        for place, text in enumerate(texts, 1)
    ]
    numbers = await memory.add_items(arguments["index_name"], items)
    return {"index_name": arguments["index_name"], "ids": list(numbers), "count": len(numbers)}


async def _search_text(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    index, k = await _index(memory, arguments), integer(arguments, "k") or FOUND
    texts, similarities, note = await memory.search(index.name, arguments["query"], max(k, LISTED))
    found = await asyncio.to_thread(memory.store.find, texts | similarities)
    ranked = rank(found, texts, similarities, memory.clock.now(), k)
    shown = _results([{**_shown(one.memory), "score": round(one.score, 4)} for one in ranked])
    return shown | ({"note": note} if note else {})


async def _search_by_time(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Any:
    index, limit = await _index(memory, arguments), integer(arguments, "limit") or LISTED
    since, until = (_time(arguments, name) for name in ("start_time", "end_time"))
    listed = functools.partial(memory.store.listed, index.name, since=since, until=until, limit=limit)
    return _results([_shown(one) for one in await asyncio.to_thread(listed)])


def _new_item(
    memory: LongTermMemory, text: str, source: str, metadata: JsonObject, vector: bytes | None = None
) -> NewItem:
    now = memory.clock.now()
    return NewItem(text, now, source=source, author=Author.MODEL, metadata=metadata, vector=vector)


async def _index(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Index:
    name = arguments["index_name"]
    index = await asyncio.to_thread(memory.store.index, name)
    if index is None:
        raise MemoryMissingError(f"there is no index {name[:80]!r}: see vector_db_list_indices")
    return index


async def _index_of_given_vectors(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Index:
    index = await _index(memory, arguments)
    if index.model != GIVEN:
        raise MemoryStoreError(
            f"the vectors of {index.name} are made of texts by {index.model}: use vector_db_add_text"
        )
    return index


async def _item(memory: LongTermMemory, arguments: Mapping[str, Any]) -> Memory:
    number = int(arguments["vector_id"])
    known = await asyncio.to_thread(memory.store.get, number)
    if known is None or known.index != arguments["index_name"]:
        raise MemoryMissingError(f"there is no vector {number} in {arguments['index_name'][:80]!r}")
    return known


def _time(arguments: Mapping[str, Any], name: str) -> datetime | None:
    if name not in arguments:
        return None
    try:
        time = datetime.fromisoformat(arguments[name])
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise MemoryStoreError(f"{name} must be a time such as 2026-11-23T12:00:00Z") from None


def _shown(item: Memory) -> dict[str, Any]:
    kept = ("content", "created_at", "metadata")
    return {"vector_id": item.id, **{name: value for name, value in as_json(item).items() if name in kept}}


def _results(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"results": found, "count": len(found)}


def _indexing(memory: LongTermMemory, name: str, properties: Mapping[str, JsonObject]) -> Tool:
    """Create a tool that adds the text of a PDF document to an index, in place of an earlier version."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, index = arguments["file_path"], arguments["index_name"]
        if index in RESERVED_INDICES:
            return Failed("This index holds the memories. Choose another index name for documents.")
        found = await read_whole_pdf(path, await read_pdf_bytes(context, path))
        numbered = [(number, text) for number, text in enumerate(found.texts, found.first) if text]
        chunks = await asyncio.to_thread(lambda: list(chunks_of(numbered)))
        source, known = context.environment.relative(path), arguments.get("metadata") or {}
        places = ({"page": one.page, "chunk": one.number, "chunks": len(chunks)} for one in chunks)
        items = [
            _new_item(memory, one.text, source, {**known, **place})
            for one, place in zip(chunks, places, strict=True)
        ]
        try:
            replaced = await memory.replace_document(index, source, items)
        except (MemoryStoreError, ModelError) as error:
            return Failed(f"Not indexed: {error}.")
        answer = {
            "index_name": index,
            "pages": found.total,
            "pages_without_text": found.total - len(numbered),
            "chunks": len(items),
            "replaced": replaced,
        }
        return Ok(json.dumps(answer))

    return Tool(_define(name, properties, ("file_path", "index_name")), execute, order=Order.ALONE)


CHUNK_CHARACTERS = 1_000
"""About 250 tokens: the input limit of small models for embeddings (all-MiniLM-L6: 256)."""

OVERLAP_CHARACTERS = 150
"""Maximum number of characters repeated from the piece before, from the beginning of a sentence or a word."""

_ENDS = (re.compile(r"\n(?:[^\S\n]*\n)+"), re.compile(r"[.!?:;][\"')\]]*\s"), re.compile(r"\s"))
"""Where a text is cut, the best place first: between paragraphs, sentences, words."""
_LEAST_SHARE = 0.5
"""A piece is not cut in the first part of this share, so that it does not become too short."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A piece of a document.

    Attributes:
        number: its number among all pieces, from 1.
        page: the number of the page on which it begins, from 1.
    """

    text: str
    number: int
    page: int


def chunks_of(pages: Iterable[tuple[int, str]]) -> Iterator[TextChunk]:
    """Cut numbered pages into pieces. No piece crosses the end of a page."""
    pieces = ((page, piece) for page, text in pages for piece in pieces_of(text))
    for number, (page, piece) in enumerate(pieces, 1):
        yield TextChunk(piece, number, page)


def pieces_of(text: str, most: int = CHUNK_CHARACTERS, overlap: int = OVERLAP_CHARACTERS) -> Iterator[str]:
    """Cut one text into pieces of at most `most` characters that are not blank.

    Each but the first may begin with the end of the one before, of at most `overlap` characters.
    """
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= most else _end(text, start, start + most)
        if piece := text[start:end].strip():
            yield piece
        start = end if end == len(text) else _restart(text, max(start + 1, end - overlap), end)


def _end(text: str, start: int, limit: int) -> int:
    """Return the position after the last good place to cut before the limit, or the limit itself."""
    least = start + int((limit - start) * _LEAST_SHARE)
    for ends in _ENDS:
        found = [match.end() for match in ends.finditer(text, least, limit)]
        if found:
            return found[-1]
    return limit


def _restart(text: str, first: int, end: int) -> int:
    """Return where the next piece begins: at a sentence or word after `first`, or at `end`."""
    for ends in _ENDS[1:]:
        found = ends.search(text, first, end)
        if found and found.end() < end:
            return found.end()
    return end
