"""Words of ours in the output of a script: a mark, a word, a line end. Everything else is the script's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK = b"\0pullwright-"
_MAX_WORD_BYTES = 32


class Marked:
    """Tells our own words in a stream from everything else, however the stream is cut."""

    def __init__(self, number: str, text: Callable[[bytes], None], word: Callable[[bytes], None]) -> None:
        self._mark = _MARK + number.encode() + b" "
        self._text, self._word = text, word
        self._held = b""

    def add(self, data: bytes) -> None:
        """Take the next piece; what may be the beginning of a word is held back."""
        data = self._held + data
        self._held = b""
        while (start := data.find(self._mark)) >= 0:
            end = data.find(b"\n", start)
            if end < 0 and len(data) - start > _MAX_WORD_BYTES + len(self._mark):
                end = start + len(self._mark)  # too long for a word of ours
            if end < 0:
                break
            self._hand_on(data[:start])
            self._word(data[start + len(self._mark) : end])
            data = data[end + 1 :]
        cut = start if start >= 0 else _possible_start(data, self._mark)
        self._hand_on(data[:cut])
        self._held = data[cut:]

    def end(self) -> None:
        """The stream is over: nothing is held back any more."""
        self._hand_on(self._held)
        self._held = b""

    def _hand_on(self, data: bytes) -> None:
        if data:
            self._text(data)


def _possible_start(data: bytes, mark: bytes) -> int:
    for length in range(min(len(mark) - 1, len(data)), 0, -1):
        if data.endswith(mark[:length]):
            return len(data) - length
    return len(data)
