"""What is kept of a command's output."""

from __future__ import annotations

import codecs
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_KEPT_CHARS = 10_000_000
"""Of each stream; half from its beginning, half from its end."""


class KeptText:
    """The beginning and the end of a long text, in bounded memory."""

    def __init__(self, max_chars: int = MAX_KEPT_CHARS) -> None:
        self._half = max_chars // 2
        self._head: list[str] = []
        self._head_room = self._half
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        """Append a piece."""
        if self._head_room and text:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room -= len(self._head[-1])
        if not text:
            return
        self._tail.append(text)
        self._tail_chars += len(text)
        while self._tail_chars - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_chars -= gone
            self._dropped += gone

    def text(self) -> str:
        """What was kept, with a marker where something is missing."""
        tail = "".join(self._tail)
        surplus = max(0, len(tail) - self._half)
        dropped = self._dropped + surplus
        marker = f"\n[... {dropped} characters of output were not kept ...]\n" if dropped else ""
        return "".join(self._head) + marker + tail[surplus:]


class Decoded:
    """Takes one pipe's bytes, decodes them, and hands the text on."""

    def __init__(self, takers: tuple[Callable[[str], None], ...]) -> None:
        self._takers = takers
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def take(self, data: bytes) -> None:
        """Append a piece."""
        self._hand_on(self._decode(data))

    def finish(self) -> None:
        """Hand on what an incomplete character left, as U+FFFD."""
        self._hand_on(self._decode(b"", final=True))

    def _hand_on(self, text: str) -> None:
        if text:
            for take in self._takers:
                take(text)
