"""Cuts the text of a document into pieces that an index can hold: one subject each, as far as its form shows that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_CHARACTERS = 1_000
"""About 250 tokens: as much as small models for embeddings read (all-MiniLM-L6: 256)."""

OVERLAP_CHARACTERS = 150
"""Of the piece before that are repeated at most, from the beginning of a sentence or a word."""

_ENDS = (re.compile(r"\n\s*\n"), re.compile(r"[.!?:;][\"')\]]*\s"), re.compile(r"\s"))
"""Where a text is cut, the best place first: between paragraphs, sentences, words."""
_LEAST_SHARE = 0.5
"""A cut in the first part of a piece would make it too short to be worth it."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A piece of a document.

    Attributes:
        number: its place among all pieces, from 1.
        page: the number of the page that it begins on, from 1.
    """

    text: str
    number: int
    page: int


def chunks_of(
    pages: Iterable[tuple[int, str]], most: int = CHUNK_CHARACTERS, overlap: int = OVERLAP_CHARACTERS
) -> Iterator[TextChunk]:
    """Cut pages, each with its number, into pieces of at most `most` characters. No piece goes over a page's end."""
    number = 0
    for page, text in pages:
        for piece in pieces_of(text, most, overlap):
            number += 1
            yield TextChunk(piece, number, page)


def pieces_of(text: str, most: int = CHUNK_CHARACTERS, overlap: int = OVERLAP_CHARACTERS) -> Iterator[str]:
    """Cut one text into pieces, none of them blank; each but the first may begin with the end of the one before."""
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= most else _end(text, start, start + most)
        if piece := text[start:end].strip():
            yield piece
        start = end if end == len(text) else _restart(text, max(start + 1, end - overlap), end)


def _end(text: str, start: int, limit: int) -> int:
    """Behind the last good place before the limit; the limit itself where there is none."""
    least = start + int((limit - start) * _LEAST_SHARE)
    for ends in _ENDS:
        found = [match.end() for match in ends.finditer(text, least, limit)]
        if found:
            return found[-1]
    return limit


def _restart(text: str, first: int, end: int) -> int:
    """Where the next piece begins: at a sentence or a word behind `first`, or at the end of the piece before."""
    for ends in _ENDS[1:]:
        found = ends.search(text, first, end)
        if found and found.end() < end:
            return found.end()
    return end
