"""Extracts the text of a PDF document, in a separate process that can be stopped.

`limited_child` runs it, with nothing of this package imported.
"""

from __future__ import annotations

import io
import time
from typing import Any

_DETAIL_CHARACTERS = 150
_PAGE_CHARACTERS = 70
"""The characters shown beside the text of a page: its heading, and a note if it has no text."""


def pages(data: bytes, first: int, most_pages: int, most_characters: int, seconds: float) -> dict[str, Any]:
    """Return the text of pages: as many of the requested ones as fit under headings, at least one.

    Args:
        first: number of the first page, from 1.
        seconds: time after which no other page is begun.

    Returns:
        `total`, `texts` (None for a page that cannot be read) and `cut`, the number of characters left out of
        the only text; or `problem` and `detail`.
    """
    from pypdf import PdfReader

    end = time.monotonic() + seconds
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "encrypted", "detail": ""}
        total = len(reader.pages)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the library: "broken PDF files might cause other Exceptions"
        return {"problem": "damaged", "detail": _line(str(error) or type(error).__name__)}
    texts: list[str | None] = []
    left, cut = most_characters, 0
    for number in range(first, min(first + most_pages - 1, total) + 1):
        text = _page_text(reader, number)
        room = left - _PAGE_CHARACTERS
        if texts and (room < 0 or (len(text or "") > room and any(texts))):
            break
        if text and len(text) > room:
            room = max(room, 1)
            text, cut = text[:room], len(text) - room
        left = room - len(text or "")
        texts.append(text)
        if cut or time.monotonic() > end:
            break
    return {"total": total, "texts": texts, "cut": cut}


def _page_text(reader: Any, number: int) -> str | None:
    """Return the lines of a page without empty ones at its ends; None if it cannot be read."""
    try:
        found = reader.pages[number - 1].extract_text()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  see above
        return None
    text = found.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\0", "")
    lines = [line.rstrip() for line in text.replace("\r", "\n").replace("\f", "\n").split("\n")]
    return "\n".join(lines).strip("\n")


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_DETAIL_CHARACTERS]


WORK = {"pages": pages}
"""The functions that the parent process can request."""
