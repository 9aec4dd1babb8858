"""Finds the thoughts that some servers leave in a reply's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.models.base import ReasoningPiece, TextPiece

if TYPE_CHECKING:
    from orchestrator.engine.models.base import Piece

_OPEN, _CLOSE = "<think>", "</think>"
_MOST_BLANK_CHARACTERS = (
    10_000  # before or behind the thoughts; held back they are read again with each piece
)


class ThinkSplitter:
    """Takes a leading `<think>` block, which servers without a field for it leave in the text, out of it."""

    def __init__(self) -> None:
        self._state = "start"  # start -> thinking -> after -> text, or start -> text
        self._held = ""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain; what may be the beginning of a tag is held back."""
        if self._state == "text":
            return [TextPiece(text)]
        self._held += text
        pieces: list[Piece] = []
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._state, self._held = "thinking", begun[len(_OPEN) :]
            elif not _OPEN.startswith(begun) or len(self._held) > _MOST_BLANK_CHARACTERS:
                return self._release()
        if self._state == "thinking":
            pieces += self._think()
        if self._state == "after" and (self._held.strip() or len(self._held) > _MOST_BLANK_CHARACTERS):
            self._held = self._held.lstrip()
            pieces += self._release()
        return pieces

    def _think(self) -> list[Piece]:
        thought, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._state, self._held = "after", rest
        else:
            keep = next(n for n in range(len(_CLOSE), -1, -1) if thought.endswith(_CLOSE[:n]))
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        return [ReasoningPiece(thought)] if thought else []

    def _release(self) -> list[Piece]:
        text, self._held, self._state = self._held, "", "text"
        return [TextPiece(text)] if text else []

    def finish(self) -> list[Piece]:
        """What was held back."""
        if self._state == "thinking":
            return [ReasoningPiece(self._held)] if self._held else []
        return [] if self._state == "after" else self._release()
