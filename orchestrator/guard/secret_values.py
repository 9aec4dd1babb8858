"""Finds known values, or twelve characters of one, however they are spelled.

Texts are compared by their letters and digits alone, in small letters: separators, line breaks,
zero-width characters and capitals change nothing.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from itertools import compress
from struct import Struct
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from orchestrator.core.secret_names import MIN_SECRET_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_PARTED_CHARS = 12
"""Of values as long as this each part counts; shorter ones are looked for as a whole."""

_WINDOW = 10
"""Letters and digits in a row that give a value away: twelve characters of a token may hold two others."""
_GRAM = 5
_STEP = _WINDOW - _GRAM + 1  # each window holds a sampled gram
_SAMPLES = 512
_BLOCK_BYTES = 4096
_MIN_DISTINCT = 4
_MARGIN_CHARS = 3
_MIN_RANDOM_CHARS = 6
_COUNTING = b"01234567890123456789 98765432109876543210"
"""Digits in order are in many texts."""
_RARELY_CHARS = 400

# Characters without width, whose bytes are left out on both sides of the comparison.
_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufe0f\ufeff".encode()
_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") | (
    frozenset(range(128, 256)) - frozenset(_UNSEEN)
)
_DROPPED = bytes(byte for byte in range(256) if byte not in _KEPT)
_FOLD = bytes(range(256)).lower()
_MASK = bytes(byte in _KEPT for byte in range(256))

Span = tuple[int, int]

# What words, names, numbers and abbreviations look like; a value's other parts are what makes it secret.
_ORDINARY = re.compile(r"[A-Za-z0-9]{1,2}|[0-9]{1,5}|(?:(?:[A-Z]?[a-z]{2,}|[A-Z]{2,}){1,3}[0-9]{0,3})")
_MOST_WORD_CHARS = 16
_UNSPEAKABLE = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}", re.IGNORECASE)
_PART = re.compile(r"[A-Za-z0-9\u0080-\U0010ffff]+")
_PATH_MARK = re.compile(r"[\s/:@]")
_IN_WORDS = re.compile(r"://|^[/~.]|\s")
_ISSUER = re.compile(r"^(?:sk-ant-[a-z]+\d\d-|github_pat_|pypi-AgEIcHlwaS5vcmc)")
_JWT_HEADER = re.compile(r"eyJ[A-Za-z0-9_-]+(?=\.eyJ)")


def _fold(data: bytes) -> bytes:
    return data.translate(_FOLD, _DROPPED)


def _is_ordinary(part: str) -> bool:
    return (
        len(part) <= _MOST_WORD_CHARS
        and _ORDINARY.fullmatch(part) is not None
        and _UNSPEAKABLE.search(part) is None
    )


def _stretches(value: str) -> Iterator[str]:
    """The parts of a value that give it away.

    That is all of it but what its issuer puts before every key. Of an address, a path, or a text in
    several words, such as a key file, it is what is not found in ordinary text.
    """
    if _IN_WORDS.search(value) is None and _JWT_HEADER.search(value) is None:
        yield _ISSUER.sub("", value)
        return
    headers = [match.span() for match in _JWT_HEADER.finditer(value)]
    # In one word without the marks of a path or an address, what follows something random is random.
    is_token = _PATH_MARK.search(value) is None
    spans: list[list[int]] = []
    for match in _PART.finditer(value):
        start, end = match.span()
        if _is_ordinary(match[0]) or any(first <= start and end <= last for first, last in headers):
            continue
        if spans and (is_token or start - _MARGIN_CHARS <= spans[-1][1] + _MARGIN_CHARS):
            spans[-1][1] = end
            spans[-1][2] += end - start
        else:
            spans.append([start, end, end - start])
    if spans and is_token:
        spans[-1][1] = len(value)
    for start, end, random in spans:
        if random >= _MIN_RANDOM_CHARS:
            yield value[max(start - _MARGIN_CHARS, 0) : end + _MARGIN_CHARS]


def _cores(data: bytes, group: int, digits: int, encoded: Iterable[str]) -> Iterator[str]:
    """The characters that depend on `data` alone, for each place in a group of bytes where it may begin."""
    bits = 8 * group // digits
    for offset, text in enumerate(encoded):
        yield text[-(-8 * offset // bits) : 8 * (offset + len(data)) // bits]


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # how the environment holds bytes that are no UTF-8
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _spellings(value: str) -> Iterator[str]:
    """The ways in which a value may be written so that it can still be read back, but for separators."""
    data = _bytes_of(value)
    yield value
    yield value[::-1]
    yield json.dumps(value)[1:-1]
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    yield data.hex()
    yield from _cores(data, 3, 4, (base64.b64encode(bytes(offset) + data).decode() for offset in range(3)))
    if len(value) <= _RARELY_CHARS:
        yield from _cores(
            data, 5, 8, (base64.b32encode(bytes(offset) + data).decode() for offset in range(5))
        )
        yield "".join(f"x{byte:02x}" for byte in data)
        yield "".join(f"0x{byte:02x}" for byte in data)
        yield "".join(f"{byte}" for byte in data)


class ValueIndex:
    """Where known values are, in time that grows linearly with the text.

    Args:
        values: the known secrets. Those shorter than `MIN_SECRET_CHARS` are ignored.
        harmless: a text that is never a find.
    """

    def __init__(self, values: Iterable[str], harmless: str) -> None:
        self._windows: set[bytes] = set()
        self._grams: set[bytes] = set()
        self._wholes: dict[bytes, list[tuple[bytes, int]]] = {}
        self._exact: set[bytes] = set()
        self._harmless = harmless
        for value in {value.strip() for value in values}:
            if len(value) >= MIN_SECRET_CHARS:
                self._learn(value)
        self._grams |= set(self._wholes)
        self._sample = Struct(f"{_GRAM}s{_STEP - _GRAM}x" * _SAMPLES)

    def _learn(self, value: str) -> None:
        for spelling in set(_spellings(value)):
            folded = _fold(spelling.encode("utf-8", "surrogatepass"))
            if spelling in self._harmless:
                continue
            if len(folded) < _WINDOW:
                if len(spelling) >= MIN_SECRET_CHARS:
                    self._exact.add(spelling.encode("utf-8", "surrogatepass"))
                continue
            # One of any six neighbouring grams is sampled.
            first = (len(folded) - _WINDOW) // 2
            for offset in range(first, first + _STEP):
                entries = self._wholes.setdefault(folded[offset : offset + _GRAM], [])
                entries.append((folded, offset))
        if len(value) >= MIN_PARTED_CHARS:
            self._learn_parts(value)

    def _learn_parts(self, value: str) -> None:
        words = [_fold(part.encode()) for part in _PART.findall(value) if _is_ordinary(part)]
        words = [word for word in words if len(word) >= _WINDOW]
        words += [word[::-1] for word in words]
        for stretch in _stretches(value):
            for spelling in set(_spellings(stretch)):
                folded = _fold(spelling.encode("utf-8", "surrogatepass"))
                is_plain = spelling in (stretch, stretch[::-1])
                for at in range(len(folded) - _WINDOW + 1):
                    window = folded[at : at + _WINDOW]
                    # Ten letters of one word are anybody's word.
                    if is_plain and (window in _COUNTING or any(window in word for word in words)):
                        continue
                    if len(set(window)) >= _MIN_DISTINCT:
                        self._windows.add(window)
                self._grams.update(folded[at : at + _GRAM] for at in range(len(folded) - _GRAM + 1))

    def spans(self, data: bytes) -> Iterator[Span]:
        """Where the UTF-8 text holds a value or a part of one; spans may overlap and cut a character."""
        for needle in self._exact:
            at = data.find(needle)
            while at >= 0:
                yield at, at + len(needle)
                at = data.find(needle, at + len(needle))
        if self._grams:
            yield from self._folded_spans(data)

    def _folded_spans(self, data: bytes) -> Iterator[Span]:
        folded = _Folded(data)
        text = folded.text
        size = self._sample.size
        padded = text + bytes(size)
        for block in range(0, len(text), size):
            grams = self._sample.unpack_from(padded, block)
            if self._grams.isdisjoint(grams):
                continue
            for at in compress(range(block, block + size, _STEP), map(self._grams.__contains__, grams)):
                for first, last in self._around(text, at):
                    place = folded.place(first)
                    if data[place - 1 : place] == b"%":
                        place -= 1  # of a URL-encoded byte
                    yield place, folded.place(last - 1) + 1

    def _around(self, text: bytes, at: int) -> Iterator[Span]:
        """What holds the gram at a place: windows, joined where they follow each other, and whole values."""
        hits = [
            first
            for first in range(max(at - _STEP + 1, 0), at + 1)
            if text[first : first + _WINDOW] in self._windows
        ]
        if hits:
            yield hits[0], hits[-1] + _WINDOW  # all of them hold the gram, so they overlap
        for whole, offset in self._wholes.get(text[at : at + _GRAM], ()):
            if at >= offset and text.startswith(whole, at - offset):
                yield at - offset, at - offset + len(whole)


class _Folded:
    """A text's letters and digits, and where each of them stood."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        blocks = [_fold(data[start : start + _BLOCK_BYTES]) for start in range(0, len(data), _BLOCK_BYTES)]
        self.text = b"".join(blocks)
        self._starts: list[int] = []
        at = 0
        for block in blocks:
            self._starts.append(at)
            at += len(block)
        self._number = -1
        self._kept: list[int] = []

    def place(self, at: int) -> int:
        """Where the letter with this number stands in the text itself."""
        number = bisect_right(self._starts, at) - 1
        if number != self._number:
            start = number * _BLOCK_BYTES
            block = self._data[start : start + _BLOCK_BYTES]
            self._kept = list(compress(range(start, start + len(block)), block.translate(_MASK)))
            self._number = number
        return self._kept[at - self._starts[number]]
