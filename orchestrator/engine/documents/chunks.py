"""Cuts the text of a document into chunks for an index, if possible at the ends of paragraphs and sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_CHARACTERS = 1_000
"""About 250 tokens: the input limit of small models for embeddings (all-MiniLM-L6: 256)."""

OVERLAP_CHARACTERS = 150
"""Maximum number of characters repeated from the piece before, from the beginning of a sentence or a word."""

_ENDS = (re.compile(r"\n\s*\n"), re.compile(r"[.!?:;][\"')\]]*\s"), re.compile(r"\s"))
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
