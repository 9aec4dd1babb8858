"""`pdf_extract_text` and `process_pdf_document` (section 2.3.6 of the assistant's specification)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.errors import FileUnreadableError
from orchestrator.engine.documents.chunks import Chunk, chunks_of
from orchestrator.engine.documents.pdf import (
    MAX_PAGES,
    PageRange,
    is_pdf,
    read_pdf,
    read_whole_pdf,
    shown_pages,
)
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
from orchestrator.engine.tools.textfile import as_written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

MAX_PDF_BYTES = 50_000_000
MAX_SHOWN_CHARACTERS = OTHER_MAX_CHARS - 2_000
"""Of one answer, so that its end, which says how to go on, is not cut off."""

AddChunks: TypeAlias = Callable[[str, str, Sequence[Chunk]], Awaitable[int]]
"""Puts the pieces of a document, named second, into an index, named first; how many there are. May raise `ToolError`."""


def pdf_extract_text() -> Tool:
    """`pdf_extract_text(file_path, start_page?, end_page?)`: the text of pages."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments["file_path"]
        first, last = integer(arguments, "start_page") or 1, integer(arguments, "end_page") or 0
        if last and last < first:
            return Failed("end_page is before start_page: pages count from 1, and both are shown")
        wanted = PageRange(first, last - first + 1 if last else MAX_PAGES, MAX_SHOWN_CHARACTERS)
        found = await read_pdf(path, await _data(context, path), wanted)
        if first > found.total:
            return Ok(f"{path} has {found.total:,} pages, so there is nothing from page {first} on.")
        return Ok(shown_pages(found, "start_page"))

    properties: dict[str, JsonObject] = {"file_path": TEXT, "start_page": FROM_ONE, "end_page": FROM_ONE}
    return Tool(define("pdf_extract_text", properties, ("file_path",)), execute)


def process_pdf_document(add: AddChunks) -> Tool:
    """`process_pdf_document(file_path, index_name)`: puts the text of a document into an index, piece by piece."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, index = arguments["file_path"], arguments["index_name"]
        found = await read_whole_pdf(path, await _data(context, path))
        numbered = [(number, text) for number, text in enumerate(found.texts, found.first) if text]
        chunks = await asyncio.to_thread(lambda: list(chunks_of(numbered)))
        stored = await add(index, context.environment.relative(path), chunks)
        told = {
            "index_name": index,
            "pages": found.total,
            "pages_without_text": found.total - len(numbered),
            "chunks": stored,
        }
        return Ok(json.dumps(told))

    properties: dict[str, JsonObject] = {"file_path": TEXT, "index_name": TEXT}
    definition = define("process_pdf_document", properties, ("file_path", "index_name"))
    return Tool(definition, execute, order=Order.ALONE)


async def _data(context: ToolContext, path: str) -> bytes:
    with as_written(context, path):
        data = await context.environment.read_file(path, max_bytes=MAX_PDF_BYTES)
    if not is_pdf(data):
        raise FileUnreadableError(f"{path} is no PDF document")
    return data
