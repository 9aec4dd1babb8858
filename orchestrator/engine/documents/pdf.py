"""The text of PDF documents, page by page. A child process with limits reads them: strangers wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import FileUnreadableError
from orchestrator.engine.environments.limited_child import in_child

READ_SECONDS = 30.0
"""For all that is asked of a document at once."""

LAST_PAGE_SECONDS = 20.0
"""After so many no other page is begun: what was read by then is given."""

MAX_PAGES = 1_000
"""That are read at once. The text of so many is a book, and more than any index of a session should hold."""

MAX_CHARACTERS = 5_000_000

MOST_PARTS = 10
"""In which the whole of a document is read: five minutes at most."""


@dataclass(frozen=True, slots=True)
class PageRange:
    """What is asked of a document: pages from `first` on, at most so many, with at most so many characters together."""

    first: int = 1
    pages: int = MAX_PAGES
    characters: int = MAX_CHARACTERS


ALL_PAGES = PageRange()

_CHILD = Path(__file__).with_name("pdf_child.py")


@dataclass(frozen=True, slots=True)
class PdfPages:
    """Pages of a document, in a row.

    Attributes:
        total: how many pages the document has.
        first: the number of the first one here, from 1.
        texts: None for a page that cannot be read; empty for one without text.
        cut: how many characters of the only text are left out.
    """

    total: int
    first: int
    texts: tuple[str | None, ...]
    cut: int = 0

    @property
    def last(self) -> int:
        """The number of the last one here; `first` - 1 where there is none."""
        return self.first + len(self.texts) - 1


async def read_pdf(
    name: str, data: bytes, wanted: PageRange = ALL_PAGES, *, seconds: float = READ_SECONDS
) -> PdfPages:
    """Take the text out of pages: as many of those asked for as fit, at least one.

    Args:
        name: the document's, for errors.

    Raises:
        FileUnreadableError: it is encrypted or damaged, is too large to be read, or none of the pages has text.
    """
    found = await _part(name, data, wanted, seconds)
    if found.texts and not any(found.texts):
        raise FileUnreadableError(_without_text(name, found))
    return found


async def _part(name: str, data: bytes, wanted: PageRange, seconds: float) -> PdfPages:
    asked = {
        "do": "pages",
        "first": wanted.first,
        "most_pages": min(wanted.pages, MAX_PAGES),
        "most_characters": wanted.characters,
        "seconds": min(LAST_PAGE_SECONDS, seconds),
    }
    answer = await in_child(_CHILD, asked, seconds, data=data)
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
    """Take the text out of all pages, in several processes one after the other where one has no time for all.

    Raises:
        FileUnreadableError: see `read_pdf`; or it has more than `MAX_PAGES`, or takes too long.
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
    are_read = (
        "cannot be read" if None in found.texts else f"{'has' if alone else 'have'} no text, only pictures"
    )
    if alone:
        pages = "its only page"
    elif len(found.texts) == found.total:
        pages = f"its {found.total:,} pages"
    else:
        pages = f"pages {found.first:,} to {found.last:,} of {found.total:,}"
    return f"{name} is a PDF document without text to be read: {pages} {are_read}"


def shown_pages(found: PdfPages, parameter: str = "offset") -> str:
    """Pages under headings with their numbers, and by which parameter to go on with the next."""
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
