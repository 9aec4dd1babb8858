"""The tools for PDF documents and their indices (sections 2.3.5 and 2.3.6 of the assistant's specification)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileUnreadableError, MemoryStoreError, ModelError
from orchestrator.engine.memory.items import Author, NewItem
from orchestrator.engine.memory.store import RESERVED_INDICES
from orchestrator.engine.tools.base import (
    FROM_ONE,
    OTHER_MAX_CHARS,
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
from orchestrator.engine.tools.textfile import as_written, is_pdf
from orchestrator.engine.tools.vectors import vector_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.memory.memory import LongTermMemory

MAX_PDF_BYTES = 50_000_000
MAX_SHOWN_CHARACTERS = OTHER_MAX_CHARS - 2_000
"""The limit of one answer, low enough that its last line, which says how to continue, is not truncated."""


def document_tools(memory: LongTermMemory) -> tuple[Tool, ...]:
    """Create all tools for PDF documents and for the vector indices in a memory's file.

    Those that write need the permission to change files.
    """
    reading = pdf_extract_text(), process_pdf_document(memory)
    return (*reading, *vector_tools(memory), vector_db_add_pdf_document(memory))


def pdf_extract_text() -> Tool:
    """Create the tool `pdf_extract_text(file_path, start_page?, end_page?)`, which returns the text of pages."""
    from orchestrator.engine.documents.pdf import MAX_PAGES, PageRange, read_pdf, shown_pages

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments["file_path"]
        first, last = integer(arguments, "start_page") or 1, integer(arguments, "end_page") or 0
        if last and last < first:
            return Failed("end_page is before start_page: pages count from 1, and both are shown")
        wanted = PageRange(first, last - first + 1 if last else MAX_PAGES, MAX_SHOWN_CHARACTERS)
        found = await read_pdf(path, await _read_pdf_bytes(context, path), wanted)
        if first > found.total:
            return Ok(f"{path} has {found.total:,} pages, so there is nothing from page {first} on.")
        return Ok(shown_pages(found, "start_page"))

    properties: dict[str, JsonObject] = {"file_path": TEXT, "start_page": FROM_ONE, "end_page": FROM_ONE}
    return Tool(define("pdf_extract_text", properties, ("file_path",)), execute)


def process_pdf_document(memory: LongTermMemory) -> Tool:
    """Create the tool `process_pdf_document(file_path, index_name)`.

    It adds the text of a document to an index, chunk by chunk.
    """
    properties: dict[str, JsonObject] = {"file_path": TEXT, "index_name": TEXT}
    return _indexing(memory, "process_pdf_document", properties)


def vector_db_add_pdf_document(memory: LongTermMemory) -> Tool:
    """Create the tool `vector_db_add_pdf_document(index_name, file_path, metadata?)`.

    It does the same as `process_pdf_document`, and stores metadata.
    """
    properties: dict[str, JsonObject] = {
        "index_name": TEXT,
        "file_path": TEXT,
        "metadata": {"type": "object"},
    }
    return _indexing(memory, "vector_db_add_pdf_document", properties)


def _indexing(memory: LongTermMemory, name: str, properties: Mapping[str, JsonObject]) -> Tool:
    from orchestrator.engine.documents.chunks import chunks_of
    from orchestrator.engine.documents.pdf import read_whole_pdf

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, index = arguments["file_path"], arguments["index_name"]
        if index in RESERVED_INDICES:
            return Failed("This index holds the memories. Choose another index name for documents.")
        found = await read_whole_pdf(path, await _read_pdf_bytes(context, path))
        numbered = [(number, text) for number, text in enumerate(found.texts, found.first) if text]
        chunks = await asyncio.to_thread(lambda: list(chunks_of(numbered)))
        source, known = context.environment.relative(path), arguments.get("metadata") or {}
        items = [
            NewItem(
                chunk.text,
                memory.clock.now(),
                source=source,
                author=Author.MODEL,
                metadata={**known, "page": chunk.page, "chunk": chunk.number, "chunks": len(chunks)},
            )
            for chunk in chunks
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

    return Tool(define(name, properties, ("file_path", "index_name")), execute, order=Order.ALONE)


async def _read_pdf_bytes(context: ToolContext, path: str) -> bytes:
    with as_written(context, path):
        data = await context.environment.read_file(path, max_bytes=MAX_PDF_BYTES)
    if not is_pdf(data):
        raise FileUnreadableError(f"{path} is no PDF document")
    return data
