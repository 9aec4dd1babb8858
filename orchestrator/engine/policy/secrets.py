"""Takes secrets out of text: known values in the spellings that hide them, and what looks like a credential."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from orchestrator.core.redaction import MIN_SECRET_CHARS, REPLACEMENT
from orchestrator.engine.policy.secret_patterns import PatternIndex
from orchestrator.engine.policy.secret_values import ValueIndex

__all__ = ["REPLACEMENT", "RedactedStream", "Redactor", "map_strings"]

_WORD = re.compile(rb"[A-Za-z]{3,24}")
_MAX_DEPTH = 200
_TOO_DEEP = "[nested too deeply]"
_Span = tuple[int, int]


class Redactor:
    """Finds secrets by value and by pattern, in time that grows linearly with the text.

    Of a value of twelve characters or more, any twelve are found that are not just its words
    (`https://host/` of a URL, `sk-ant-` of a key); a shorter one is found as a whole. Found is
    what has the same letters and digits in the same order, whatever stands between them, in small
    letters or capitals, as it is, reversed, or in the encodings of `secret_values`; and all that
    once more where `secret_decoding` undoes escapes, dumps and other forms of letters. Of base85
    and of words of several bytes in a dump, what is found is all of a value but its edges. What
    overlaps is replaced as one.

    Not found is what needs more than reading to be undone: rotated letters other than rot13,
    look-alike letters of other alphabets, compression, encryption, base58, one encoding inside
    another, fewer than twelve characters at a time. Against those stands that the model's
    commands never see a secret in the first place.

    Args:
        values: the known secrets. Those shorter than `MIN_SECRET_CHARS` are ignored.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known = tuple(values)

    @cached_property
    def _values(self) -> ValueIndex:  # made when it is needed first: that takes a while
        return ValueIndex(self._known, harmless=REPLACEMENT)

    @cached_property
    def _patterns(self) -> PatternIndex:
        return PatternIndex()

    def redact(self, text: str) -> str:
        """The text with every secret replaced by `REPLACEMENT`."""
        data = text.encode("utf-8", "surrogatepass")
        spans = self.spans(data)
        if not spans:
            return text
        pieces: list[bytes] = []
        position = 0
        for start, end in spans:
            pieces += data[position:start], REPLACEMENT.encode()
            position = end
        return b"".join([*pieces, data[position:]]).decode("utf-8", "surrogatepass")

    def holds_secret(self, text: str) -> bool:
        """Whether `redact` would change the text."""
        data = text.encode("utf-8", "surrogatepass")
        return next(self._found(data), None) is not None

    def redact_value(self, value: Any) -> Any:
        """A copy of a JSON-like value with every string redacted, keys too. Tuples become lists."""
        return map_strings(value, self.redact)

    def spans(self, data: bytes) -> list[_Span]:
        """Where a text's UTF-8 has secrets: in order, apart, at the borders of characters."""
        return list(_merge(_whole_characters(data, span) for span in self._found(data)))

    def _found(self, data: bytes) -> Iterator[_Span]:
        if len(data) < MIN_SECRET_CHARS:  # most words of a journal
            return
        yield from self._values.spans(data)
        yield from self._patterns.spans(data)


def _whole_characters(data: bytes, span: _Span) -> _Span:
    """The span without a cut through a character of several bytes (those after the first are 10xxxxxx)."""
    start, end = span
    while start > 0 and data[start] & 0xC0 == 0x80:  # noqa: PLR2004  named in the docstring
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:  # noqa: PLR2004  the same
        end += 1
    return start, end


def _merge(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Join spans that overlap or touch; the result is in order."""
    merged: _Span | None = None
    for start, end in sorted(spans):
        if merged is None:
            merged = start, end
        elif start <= merged[1]:
            merged = merged[0], max(merged[1], end)
        else:
            yield merged
            merged = start, end
    if merged is not None:
        yield merged


class RedactedStream:
    """Redacts a text that comes in pieces, where a secret may be cut in two.

    Held back are the last words, and a secret that may go on; a word or a secret of more than
    `MOST_HELD_CHARS` is let go in parts. The time for a piece does not grow with what came before.

    Args:
        redactor: finds the secrets.
    """

    MOST_HELD_CHARS = 16_384
    _CONTEXT_CHARS = 1_024
    _LEAST_HELD_BYTES = 32
    _MOST_SPELLED_BYTES = 512

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._shown = ""
        self._held: list[str] = []
        self._held_chars = 0

    def add(self, piece: str) -> str:
        """What may be shown now that this piece has come."""
        self._held.append(piece)
        self._held_chars += len(piece)
        if self._held_chars <= self.MOST_HELD_CHARS and not any(map(str.isspace, piece)):
            return ""
        return self._let_go(everything=False)

    def end(self) -> str:
        """What is left."""
        return self._let_go(everything=True)

    def _let_go(self, *, everything: bool) -> str:
        held = "".join(self._held)
        text = self._shown + held
        data = text.encode("utf-8", "surrogatepass")
        spans = self._redactor.spans(data)
        begin = len(self._shown.encode("utf-8", "surrogatepass"))
        cut = len(data) if everything else self._cut(data, begin, spans)
        pieces: list[bytes] = []
        position = begin
        for start, end in spans:
            if end <= begin or start >= cut:
                continue
            pieces += data[position : max(start, position)], REPLACEMENT.encode()
            position = end
        pieces.append(data[position:cut])
        kept = data[max(cut, position) :].decode("utf-8", "surrogatepass")
        self._shown = data[: max(cut, position)].decode("utf-8", "surrogatepass")[-self._CONTEXT_CHARS :]
        self._held, self._held_chars = [kept], len(kept)
        return b"".join(pieces).decode("utf-8", "surrogatepass")

    def _cut(self, data: bytes, begin: int, spans: list[_Span]) -> int:
        """Up to where everything is known: before the last word, and before a secret that may go on."""
        tail = data[-self._MOST_SPELLED_BYTES :]
        # Twelve characters that are spelled in another way take more room, and are no words.
        is_prose = 2 * sum(map(len, _WORD.findall(tail))) > len(tail)
        last = max(len(data) - (self._LEAST_HELD_BYTES if is_prose else self._MOST_SPELLED_BYTES), begin)
        cut = max(begin, *(data.rfind(space, begin, last) + 1 for space in (b" ", b"\n", b"\t")))
        if len(data) - cut > self.MOST_HELD_CHARS:
            cut, _ = _whole_characters(data, (last, last))
        for start, end in spans:
            if start < cut <= end and start >= begin and len(data) - start <= self.MOST_HELD_CHARS:
                return start
        return cut


def map_strings(value: Any, change: Callable[[str], str], _depth: int = 0) -> Any:
    """A copy of a JSON-like value in which every string, keys too, went through `change`."""
    if _depth > _MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        result: dict[str, Any] = {}
        for key, item in value.items():
            name = change(str(key))
            while name in result:  # two keys that differed in the secret only
                name += "'"
            result[name] = map_strings(item, change, _depth + 1)
        return result
    if isinstance(value, list | tuple):
        items = []
        for item in value:
            items.append(map_strings(item, change, _depth + 1))  # noqa: PERF401  a comprehension costs a frame a level
        return items
    return value
