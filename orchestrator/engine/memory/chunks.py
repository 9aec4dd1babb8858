"""Cuts a text into chunks that overlap, at the ends of paragraphs, lines, sentences or words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_CHARS = 1_000
OVERLAP_CHARS = 200
_ENDS = ("\n\n", "\n", ". ", "? ", "! ", " ")
"""Where a chunk ends, best first."""


def chunks(text: str, size: int = CHUNK_CHARS, overlap: int = OVERLAP_CHARS) -> Iterator[str]:
    """Give the chunks in order, each of at most `size` characters and not blank.

    Args:
        overlap: how much of a chunk's end the next one repeats at most; less than half of `size`.
    """
    start = 0
    while start < len(text):
        end = _end(text, start, size)
        if chunk := text[start:end].strip():
            yield chunk
        if end == len(text):
            return
        start = max(_word_start(text, end - overlap, end), start + 1)


def _end(text: str, start: int, size: int) -> int:
    """The end of the chunk that begins here: in its second half, else where it is full."""
    full = start + size
    if full >= len(text):
        return len(text)
    for mark in _ENDS:
        found = text.rfind(mark, start + size // 2, full)
        if found >= 0:
            return found + len(mark)
    return full


def _word_start(text: str, least: int, most: int) -> int:
    """The first beginning of a word from `least` on."""
    blank = text.find(" ", max(least - 1, 0), most)
    return blank + 1 if blank >= 0 else least
