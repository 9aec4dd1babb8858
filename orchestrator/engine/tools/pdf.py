"""Extracts the text of PDF documents, page by page, also for the tool of the assistant specification (2.3.6).

A child process with limits reads them, because they are untrusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileUnreadableError
from orchestrator.engine.environments.limited_child import in_child
from orchestrator.engine.tools.base import (
    FROM_ONE,
    OTHER_MAX_CHARS,
    TEXT,
    Failed,
    Ok,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
)
from orchestrator.engine.tools.textfile import is_pdf, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_SECONDS = 30.0
"""The time limit of one request to the child process."""

LAST_PAGE_SECONDS = 20.0
"""The time after which no other page is begun; the text read so far is returned."""

MAX_PAGES = 1_000
"""The limit of pages read at once. So many pages are a book, and more than an index of a session should hold."""

MAX_PDF_BYTES = 50_000_000
MAX_CHARACTERS = 5_000_000
MAX_SHOWN_CHARACTERS = OTHER_MAX_CHARS - 2_000
"""The limit of one answer, low enough that its last line, which says how to continue, is not truncated."""

MOST_PARTS = 10
"""Maximum number of requests for a whole document, which then takes five minutes at most."""


@dataclass(frozen=True, slots=True)
class PageRange:
    """A range of pages: from `first` on, at most `pages` pages and `characters` characters together."""

    first: int = 1
    pages: int = MAX_PAGES
    characters: int = MAX_CHARACTERS


@dataclass(frozen=True, slots=True)
class PdfPages:
    """Consecutive pages of a document.

    Attributes:
        total: number of pages in the document.
        first: the number of the first page here, from 1.
        texts: text of each page; None if it cannot be read, empty if the page has no text.
        cut: number of characters that are left out of the only text.
    """

    total: int
    first: int
    texts: tuple[str | None, ...]
    cut: int = 0

    @property
    def last(self) -> int:
        """The number of the last page here; `first` - 1 if there is none."""
        return self.first + len(self.texts) - 1


async def read_pdf(
    name: str, data: bytes, wanted: PageRange = PageRange(), *, seconds: float = READ_SECONDS
) -> PdfPages:
    """Extract the text of pages: as many of the requested ones as fit, at least one.

    Args:
        name: the document's name, for errors.

    Raises:
        FileUnreadableError: the document is encrypted, damaged or too large to read, or no page has text.
    """
    found = await _part(name, data, wanted, seconds)
    if found.texts and not any(found.texts):
        raise FileUnreadableError(_without_text(name, found))
    return found


async def _part(name: str, data: bytes, wanted: PageRange, seconds: float) -> PdfPages:
    request = {
        "do": "pages",
        "first": wanted.first,
        "most_pages": min(wanted.pages, MAX_PAGES),
        "most_characters": wanted.characters,
        "seconds": min(LAST_PAGE_SECONDS, seconds),
    }
    answer = await in_child(request, seconds, data=data)
    if answer is None:
        raise FileUnreadableError(
            f"{name} is a PDF document that cannot be read within {seconds:g} seconds and the memory allowed"
        )
    if answer.get("problem") == "encrypted":
        raise FileUnreadableError(
            f"{name} is an encrypted PDF document: it cannot be read without its password"
        )
    if detail := answer.get("detail"):
        raise FileUnreadableError(f"{name} is a damaged PDF document: {detail}")
    found = PdfPages(answer["total"], wanted.first, tuple(answer["texts"]), answer["cut"])
    if not found.total:
        raise FileUnreadableError(f"{name} is a damaged PDF document: it has no pages")
    return found


async def read_whole_pdf(name: str, data: bytes) -> PdfPages:
    """Extract the text of all pages, with several child processes in a row if one has not enough time.

    It raises what `read_pdf` raises, also if the document has more than `MAX_PAGES` or takes too long.
    """
    found = await _part(name, data, PageRange(pages=1), READ_SECONDS)
    if found.total > MAX_PAGES:
        raise FileUnreadableError(
            f"{name} is a PDF document of {found.total:,} pages, and no more than {MAX_PAGES:,} are read at once: "
            "read a part of it, or split it"
        )
    for _ in range(MOST_PARTS):
        if found.last == found.total:
            break
        rest = await _part(name, data, PageRange(found.last + 1), READ_SECONDS)
        found = PdfPages(found.total, 1, found.texts + rest.texts, found.cut + rest.cut)
    if found.last < found.total:
        raise FileUnreadableError(
            f"{name} is a PDF document of {found.total:,} pages, of which {found.last:,} could be read in the time "
            "allowed: read a part of it, or split it"
        )
    if not any(found.texts):
        raise FileUnreadableError(_without_text(name, found))
    return found


def _without_text(name: str, found: PdfPages) -> str:
    alone = found.total == 1
    problem = (
        "cannot be read" if None in found.texts else f"{'has' if alone else 'have'} no text, only pictures"
    )
    if alone:
        pages = "its only page"
    elif len(found.texts) == found.total:
        pages = f"its {found.total:,} pages"
    else:
        pages = f"pages {found.first:,} to {found.last:,} of {found.total:,}"
    return f"{name} is a PDF document without text to be read: {pages} {problem}"


def shown_pages(found: PdfPages, parameter: str = "offset") -> str:
    """Format pages under numbered headings, with a hint which parameter shows the next ones."""
    parts = []
    for number, text in enumerate(found.texts, found.first):
        body = (
            "[this page cannot be read]" if text is None else text or "[no text on this page, only pictures]"
        )
        parts.append(f"=== page {number} of {found.total} ===\n{body}")
    if found.cut:
        parts.append(f"[page {found.last} has {found.cut:,} more characters, which are not shown]")
    if found.last < found.total:
        parts.append(
            f"[pages {found.first} to {found.last} of {found.total}; go on with {parameter} {found.last + 1}]"
        )
    return "\n\n".join(parts)


def pdf_extract_text() -> Tool:
    """Create the tool `pdf_extract_text(file_path, start_page?, end_page?)`, which returns the text of pages."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments["file_path"]
        first, last = integer(arguments, "start_page") or 1, integer(arguments, "end_page") or 0
        if last and last < first:
            return Failed("end_page is before start_page: pages count from 1, and both are shown")
        wanted = PageRange(first, last - first + 1 if last else MAX_PAGES, MAX_SHOWN_CHARACTERS)
        found = await read_pdf(path, await read_pdf_bytes(context, path), wanted)
        if first > found.total:
            return Ok(f"{path} has {found.total:,} pages, so there is nothing from page {first} on.")
        return Ok(shown_pages(found, "start_page"))

    properties = {"file_path": TEXT, "start_page": FROM_ONE, "end_page": FROM_ONE}
    return Tool(define("pdf_extract_text", properties, ("file_path",)), execute)


async def read_pdf_bytes(context: ToolContext, path: str) -> bytes:
    """Return the content of a PDF document of at most 50 MB."""
    data = await read_bytes(context, path, MAX_PDF_BYTES)
    if not is_pdf(data):
        raise FileUnreadableError(f"{path} is not a PDF document")
    return data
