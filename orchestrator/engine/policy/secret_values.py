"""Finds known values, or twelve characters of one, in any spelling and behind many kinds of escapes.

Only letters and digits are compared, in lower case. So separators, line breaks, zero-width characters and
capitals make no difference.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
import string
import unicodedata
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, compress
from struct import Struct
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.core.redaction import MIN_SECRET_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Literal

    Match = re.Match[bytes]
    Rule = tuple[re.Pattern[bytes], Callable[[Match], bytes]]

Span = tuple[int, int]


# These expressions take linear time: an unbounded repeat is possessive or atomic (`++`, `(?>...)`), and no match starts
# inside of it. An expression that begins with a fixed character is searched quickly.
_BACKSLASH = re.compile(
    rb"\\(?<!\\\\)\\*+(?:u([Dd][89ABab][0-9A-Fa-f]{2})\\++u([Dd][C-Fc-f][0-9A-Fa-f]{2})"
    rb"|(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[ux]\{([0-9A-Fa-f]{1,8})\})"
    rb"|x([0-9A-Fa-f]{2})|(?:o\{)?0?([0-3][0-7]{2})\}?|[nrt](?=[^\\\n]{1,11}\\))"
)
_ENTITY = re.compile(
    rb"&(?:amp;)*+(?:#(?:0{0,6}([0-9]{2,7})|[xX]0{0,6}([0-9A-Fa-f]{2,6}));?|[A-Za-z]{2,31};)"
)
_PERCENT = re.compile(rb"%(?:25)*+([0-9A-Fa-f]{2})")
_QUOTED_PRINTABLE = re.compile(rb"=(?:([0-9A-Fa-f]{2})|\r?\n)")
_CODE_POINT = re.compile(rb"\+([0-9A-Fa-f]{4,6})")
_NUMBER = re.compile(rb"0[xXoO](?=[0-9A-Fa-f])")
_BINARY_NUMBER = re.compile(rb"0[bB]([01]{6,8})(?![01])")
_CALL = re.compile(rb"\((?=[ \t]{0,4}(?:0[xX])?[0-9A-Fa-f]{2,4}[ \t]{0,4}\))")
_BINARY = re.compile(rb"(?<![0-9A-Za-z])(?>(?:[01]{8})+)(?![0-9A-Za-z])")
_BITS = bytes(49 if byte in b"01" else 50 for byte in range(256))
_NO_LETTERS = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_MANY_BITS = b"1" * 64
# od, xxd, hexdump: the offset, numbers, and what they are as text (https://www.gnu.org/software/coreutils/od).
_DUMP = re.compile(
    rb"\n[ \t]{0,8}(?:0x)?[0-9A-Fa-f]{6,16}:?(?=[ \t])"
    rb"(?:(?:((?>(?: (?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{4}|[0-9A-Fa-f]{2})(?= ))+))[ ]{2,64}[^\n]{1,140}"
    rb"|((?>(?:[ ]{1,2}[0-9A-Fa-f]{2,16})+))[ ]{1,64}[|>][^\n]{1,140})(?=\n))?"
)
_LINE_NUMBER = re.compile(
    rb"\n[ \t]{0,8}[\[(\"']{0,2}[0-9]{1,6}[\])\"']{0,2}(?:[ \t]{1,8}|[ \t]{0,4}[:.)|=,>-]{1,3}[ \t]{0,8})"
    rb"(?=[^\s][^\n]{0,23}\n)"
)
_WIDE = re.compile(rb"(?>(?:[\x80-\xff]++[\x00-\x7f]{0,2})+)")

_ASCII_OR_NOT = bytes(byte & 0x80 for byte in range(256))
_LINES = bytes(
    byte if byte == ord("\n") else 49 if byte in b"0123456789" else 50 if byte in b"abcdefABCDEF" else 51
    for byte in range(256)
)
"""A table that maps digits to 1 and the letters of hexadecimal numbers to 2."""

_LAST_CODE_POINT = 0x10FFFF
_TAG_OFFSET = 0xE0000
"""Tag characters are ASCII characters with this offset: https://www.unicode.org/charts/PDF/UE0000.pdf."""
_SELECTOR_OFFSET = 0xE0100 - 16
"""Variation selectors stand for bytes if text is hidden in them.

https://www.unicode.org/charts/PDF/UE0100.pdf
"""
_NAMED_LETTER = re.compile(r"\b(?:LATIN|REGIONAL INDICATOR)\b.* ([A-Z])(?: WITH .*)?$")


def decoded(data: bytes) -> tuple[bytes, list[Span]]:
    """Undo the escapes. Return the text with each letter where its escape began, and the escapes' spans.

    The length stays the same: the rest of an escape is filled up with NUL. Undone are escapes with
    backslashes, percent signs and equals signs, HTML entities, numbers written as in source code, binary
    numbers, the offsets and columns of dumps, the numbers of short lines, and letters that are variants of
    Latin ones.
    """
    text = data
    places: list[Span] = []
    if not data.isascii():
        text = _with_plain_letters(text, places)
    lines = b"\n" + text.translate(_LINES, b" \t[(\"'")
    of_lines: list[Rule] = [(_DUMP, _numbers)] if b"\n222222" in lines.replace(b"1", b"2") else []
    if lines.count(b"\n1") > 1:
        of_lines.append((_LINE_NUMBER, lambda _: b"\n"))
    if of_lines:
        # Each line gets a line break before and after it, because line breaks are found quickly.
        inside: list[Span] = []
        text = b"\n" + text + b"\n"
        for rule, letters in of_lines:
            text = _rewritten(rule, letters, text, inside)
        text = text[1:-1]
        places += [(max(start - 1, 0), end - 1) for start, end in inside]
    for rule, letters in _RULES:
        text = _rewritten(rule, letters, text, places)
    if _MANY_BITS in text.translate(_BITS, _NO_LETTERS):
        text = _rewritten(_BINARY, _bits, text, places)
    return text, places


def plain_letters(text: str) -> str:
    """Replace every letter or digit that is a variant of an ASCII one by that one."""
    return text if text.isascii() else text.translate(_LETTERS).replace("\0", "")


def _rewritten(
    rule: re.Pattern[bytes], letters: Callable[[Match], bytes], text: bytes, places: list[Span]
) -> bytes:
    """Return the text with letters in place of each match of a rule, filled up with NUL."""
    out: bytearray | None = None
    known: dict[bytes, bytes] = {}
    for match in rule.finditer(text):
        start, end = match.span()
        found = match[0]
        new = known.get(found)
        if new is None:
            new = known[found] = letters(match).ljust(end - start, b"\0")
        if new == found:
            continue
        if out is None:
            out = bytearray(text)
        if before := _BEFORE.get(rule):
            word, most = before
            head = text[max(start - most, 0) : start]
            size = len(head) - len(head.rstrip(word))
            out[start - size : start] = bytes(size)
        out[start:end] = new
        places.append((start, end))
    return text if out is None else bytes(out)


def _with_plain_letters(text: bytes, places: list[Span]) -> bytes:
    """Replace characters that are variants of ASCII letters."""
    out = bytearray(text)
    wide = text.translate(_ASCII_OR_NOT)
    start = wide.find(b"\x80")
    while start >= 0:
        run = _WIDE.match(text, start)
        end = run.end() if run else start + 1
        new = (
            text[start:end]
            .decode("utf-8", "surrogatepass")
            .translate(_LETTERS)
            .encode("utf-8", "surrogatepass")
        )
        if new != text[start:end]:
            out[start:end] = new
            places.append((start, end))
        start = wide.find(b"\x80", end)
    return bytes(out)


def _backslash(match: Match) -> bytes:
    high, low, *points, byte, octal = match.groups()
    if high and low:
        return _character(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF), match)
    if point := next(filter(None, points), None):
        return _character(int(point, 16), match)
    if byte or octal:
        return bytes((int(byte, 16) if byte else int(octal, 8) & 0xFF,))
    return b""


def _entity(match: Match) -> bytes:
    decimal, hexadecimal = match.groups()
    if decimal or hexadecimal:
        return _character(int(decimal) if decimal else int(hexadecimal, 16), match)
    return b""


def _character(number: int, match: Match) -> bytes:
    """Return the character with a number, or the matched text if there is none."""
    if number > _LAST_CODE_POINT:
        return match[0]
    return plain_letters(chr(number)).encode("utf-8", "surrogatepass")


def _byte(match: Match) -> bytes:
    return bytes((int(match[1], 16),)) if match[1] else b""


def _bits(match: Match) -> bytes:
    bits = match[0]
    return b"".join(bytes((int(bits[at : at + 8], 2),)).ljust(8, b"\0") for at in range(0, len(bits), 8))


def _numbers(match: Match) -> bytes:
    """Return a line of a dump with only its numbers, each at its old place."""
    kind = match.lastindex
    return b"\n".ljust(match.start(kind) - match.start(), b"\0") + match[kind] if kind else b"\n"


class _Letters(dict[int, str]):
    """Maps a character to the ASCII letters or digits that it stands for.

    The value is padded with NUL to the length of the character in UTF-8.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        letters = char if char.isascii() else _ascii_of(char)
        size = len(char.encode("utf-8", "surrogatepass"))
        self[code] = letters if letters == char else letters[:size].ljust(size, "\0")
        return self[code]


def _ascii_of(char: str) -> str:
    """Return the ASCII text of a character: empty if it is invisible, the character itself if there is none."""
    for offset in (_TAG_OFFSET, _SELECTOR_OFFSET):
        letter = chr(max(ord(char) - offset, 0))
        if letter.isascii() and letter.isalnum():
            return letter
    if unicodedata.category(char)[0] in "CM":
        return ""
    digit = unicodedata.digit(char, None)
    if digit is not None:
        return str(digit)
    plain = "".join(
        part for part in unicodedata.normalize("NFKD", char) if unicodedata.category(part)[0] != "M"
    )
    if plain.isascii() and any(map(str.isalnum, plain)):
        return plain
    named = _NAMED_LETTER.search(unicodedata.name(char, ""))
    return named[1] if named else char


_LETTERS = _Letters()

_BEFORE = {_CODE_POINT: (b"Uu", 1), _CALL: (string.ascii_letters.encode() + b"_.", 40)}
"""Characters that may precede a match and belong to it, with their greatest number.

They are the U of a code point, and the name of a function.
"""
_RULES: tuple[Rule, ...] = (
    (_BACKSLASH, _backslash),
    (_ENTITY, _entity),
    (_PERCENT, _byte),
    (_QUOTED_PRINTABLE, _byte),
    (_CODE_POINT, lambda match: _character(int(match[1], 16), match)),
    (_CALL, lambda _: b""),
    (_NUMBER, lambda _: b""),
    (_BINARY_NUMBER, lambda match: bytes((int(match[1], 2),))),
)


MIN_PARTED_CHARS = 12
"""The length from which each part of a value is searched; a shorter value is searched as a whole."""

_WINDOW = 10
"""The number of consecutive letters and digits that identify a value.

Twelve characters of a token may contain two others.
"""
_NUMBERS_WINDOW = 16
"""The same number for encodings with two or three digits for each character."""
_GRAM, _NUMBERS_GRAM = 5, 8
"""The lengths of a sample. Each window contains a sample."""
_SAMPLES = 512
_ESCAPE_DISTANCE_BYTES = 256
"""The distance from an escape within which a part of the same value is searched."""
_BLOCK_BYTES = 4096
_MOST_KNOWN = 20_000
_MIN_DISTINCT = 4
_MARGIN_CHARS = 3
_MIN_RANDOM_CHARS = 6
_DIGITS = b"01234567890123456789"
_COUNTING = b" ".join(
    (_DIGITS, _DIGITS[::-1], _DIGITS.hex().encode(), b"".join(b"%d" % byte for byte in _DIGITS))
)
"""Consecutive digits and their codes, which occur in many texts."""
_RARE_ENCODINGS_CHARS = 400
"""The length up to which a value is searched in rare encodings too."""

# Characters without width. Their bytes are removed on both sides of the comparison.
_INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufe0f\ufeff".encode()
_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") | (
    frozenset(range(128, 256)) - frozenset(_INVISIBLE)
)
_DROPPED = bytes(byte for byte in range(256) if byte not in _KEPT)
_FOLD = bytes(range(256)).lower()
_HEX_OR_NOT = bytes(49 if byte in b"0123456789abcdef" else 48 for byte in range(256))
_SEPARATOR_BYTE = b"\xff"
"""A byte that is in no UTF-8 text, so that nothing is found across it."""
_MASK = bytes(byte in _KEPT for byte in range(256))


# Words, names, numbers and abbreviations. The other parts of a value make it secret.
_ORDINARY = re.compile(r"[A-Za-z0-9]{1,2}|[0-9]{1,5}|(?:(?:[A-Z]?[a-z]{2,}+|[A-Z]{2,}+){1,3}[0-9]{0,3})")
_MOST_WORD_CHARS = 16
_WITHOUT_VOWELS = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}", re.IGNORECASE)
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
        and _WITHOUT_VOWELS.search(part) is None
    )


def _identifying_parts(value: str) -> Iterator[str]:
    """Yield the parts of a value that identify it.

    Usually that is the whole value without the prefix that its issuer puts before every key. In an address, a
    path, or a text of several words, such as a key file, it is the parts that do not occur in ordinary text.
    """
    if _IN_WORDS.search(value) is None and _JWT_HEADER.search(value) is None:
        yield _ISSUER.sub("", value)
        return
    headers = [match.span() for match in _JWT_HEADER.finditer(value)]
    # In a single word that is no path and no address, everything after a random part is random too.
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


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # Python decodes other bytes in `os.environ` so
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _own_characters(data: bytes, group: int, digits: int, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """Yield the characters that depend on `data` alone, for each offset in a group of bytes.

    Where digits hold whole bits (base64, base32), these are all characters that depend on no other byte; else
    only whole groups.
    """
    bits = 8 * group // digits if 8 * group % digits == 0 else 0
    for offset in range(group):
        text = encode(bytes(offset) + data + bytes(-(offset + len(data)) % group)).decode()
        end = offset + len(data)
        if bits:
            yield text[-(-8 * offset // bits) : 8 * end // bits]
        else:
            yield text[digits * -(-offset // group) : digits * (end // group)]


def _as_words(data: bytes, size: int, form: str) -> Iterator[str]:
    """Yield `data` as little-endian numbers, for each offset at which they may begin."""
    for offset in range(size):
        first = -offset % size
        yield "".join(
            form.format(int.from_bytes(data[at : at + size], "little"))
            for at in range(first, len(data) - size + 1, size)
        )


def _in_letters(data: bytes, *, rare: bool) -> Iterator[str]:
    """Yield encodings in which ten letters hold four characters or more."""
    yield from _own_characters(data, 3, 4, base64.b64encode)
    if rare:
        yield from _own_characters(data, 5, 8, base64.b32encode)
        yield from _own_characters(data, 4, 5, base64.b85encode)
        yield from _own_characters(data, 4, 5, lambda part: base64.b85encode(part).translate(_TO_Z85))
        yield from _own_characters(data, 4, 5, base64.a85encode)
        yield from _own_characters(data, 3, 4, lambda part: base64.b64encode(part).translate(_TO_UU))
        for wide in (_utf_16(data, "little"), _utf_16(data, "big")):
            yield from _own_characters(wide, 3, 4, base64.b64encode)


def _in_numbers(data: bytes, *, rare: bool) -> Iterator[str]:
    """Yield encodings in decimal, octal or hexadecimal digits, of which sixteen hold four characters or more."""
    yield data.hex()
    if rare:
        for form in ("{}", "{:o}", "{:03o}", "{:04o}"):
            yield "".join(map(form.format, data))
        for wide in (_utf_16(data, "little"), _utf_16(data, "big")):
            yield wide.hex()


def _in_words(data: bytes) -> Iterator[str]:
    """Yield dumps of words of two, four and eight bytes, as `od` and `hexdump` write them."""
    for size, forms in ((2, ("{:04x}", "{:06o}", "{}", "{:05}")), (4, ("{:08x}", "{}")), (8, ("{:016x}",))):
        for form in forms:
            yield from _as_words(data, size, form)


def _utf_16(data: bytes, order: Literal["little", "big"]) -> bytes:
    return b"".join(byte.to_bytes(2, order) for byte in data)


# https://rfc.zeromq.org/spec/32/ and https://pubs.opengroup.org/onlinepubs/9699919799/utilities/uuencode.html
_TO_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
_TO_UU = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", bytes((96, *range(33, 96)))
)


def _plain_spellings(value: str) -> Iterator[str]:
    """Yield a value without an encoding: as it is and with plain letters, each also reversed."""
    for text in (value, plain_letters(value)):
        yield text
        yield text[::-1]


def _spellings(value: str) -> Iterator[tuple[int, str]]:
    """Yield the spellings of a value that can be decoded again.

    Each comes with the number of its consecutive letters that identify the value.
    """
    rare = len(value) <= _RARE_ENCODINGS_CHARS
    for text in _plain_spellings(value):
        yield _WINDOW, text
    yield _WINDOW, json.dumps(value)[1:-1]
    yield _WINDOW, quote(_bytes_of(value), safe="")
    if rare:
        yield _WINDOW, codecs.encode(value, "rot13")
    data = _bytes_of(value)
    for ordered in (data, data[::-1]):
        for text in _in_letters(ordered, rare=rare):
            yield _WINDOW, text
            yield _WINDOW, text[::-1]
        for text in _in_numbers(ordered, rare=rare):
            yield _NUMBERS_WINDOW, text
    if rare:
        for text in _in_words(data):
            yield _NUMBERS_WINDOW, text


class ValueIndex:
    """Finds known values, in time that grows linearly with the text.

    Args:
        values: the known secrets. Those shorter than `MIN_SECRET_CHARS` are ignored.
        harmless: a text that is never reported.
    """

    def __init__(self, values: Iterable[str], harmless: str) -> None:
        self._windows = {
            _WINDOW: _Windows(_WINDOW, _GRAM, numbers_only=False),
            _NUMBERS_WINDOW: _Windows(_NUMBERS_WINDOW, _NUMBERS_GRAM, numbers_only=True),
        }
        self._exact: dict[bytes, re.Pattern[bytes]] = {}
        self._harmless = harmless
        for value in {value.strip() for value in values}:
            if len(value) >= MIN_SECRET_CHARS:
                self._learn(value)

    def _learn(self, value: str) -> None:
        for window, spelling in set(_spellings(value)):
            folded = _fold(spelling.encode("utf-8", "surrogatepass"))
            if spelling in self._harmless:
                continue
            if len(folded) >= window:
                self._windows[window].learn_whole(folded)
            elif window == _WINDOW and len(spelling) >= MIN_SECRET_CHARS:
                needle = spelling.encode("utf-8", "surrogatepass")
                self._exact[needle] = re.compile(
                    rb"\x00*+".join(re.escape(bytes((byte,))) for byte in needle)
                )
        if len(value) >= MIN_PARTED_CHARS:
            self._learn_parts(value)

    def _learn_parts(self, value: str) -> None:
        words = [_fold(part.encode()) for part in _PART.findall(value) if _is_ordinary(part)]
        words = [word for word in words if len(word) >= _WINDOW]
        words += [word[::-1] for word in words]
        for part in _identifying_parts(value):
            plain = set(_plain_spellings(part))
            for window, spelling in set(_spellings(part)):
                folded = _fold(spelling.encode("utf-8", "surrogatepass"))
                # Ten letters of one ordinary word identify nothing.
                self._windows[window].learn_parts(folded, words if spelling in plain else ())

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield where the UTF-8 text has a value or a part of one; spans may overlap and cut a character."""
        if not self._exact and not any(windows.grams for windows in self._windows.values()):
            return
        yield from self._spans_in(data)
        text, places = decoded(data)
        if not places:
            return
        near = (
            (max(first - _ESCAPE_DISTANCE_BYTES, 0), min(last + _ESCAPE_DISTANCE_BYTES, len(data)))
            for first, last in sorted(places)
        )
        for start, end in spans_in_parts(text, merged_spans(near), _SEPARATOR_BYTE, self._spans_in):
            last = end
            while last < len(text) and not text[last]:
                last += 1  # NUL bytes that fill up the last letter's escape
            yield start, last

    def _spans_in(self, data: bytes) -> Iterator[Span]:
        packed = data.replace(b"\0", b"") if self._exact else data
        for needle, pattern in self._exact.items():
            if needle in packed:
                yield from (match.span() for match in pattern.finditer(data))
        folded = _Folded(data)
        for windows in self._windows.values():
            for first, last in windows.spans(folded.text):
                place = folded.place(first)
                if data[place - 1 : place] == b"%":
                    place -= 1  # the sign of a URL-encoded byte
                yield place, folded.place(last - 1) + 1


def merged_spans(spans: Iterable[Span], gap: int = 0) -> list[Span]:
    """Join spans, given in order, that overlap, touch, or have at most `gap` bytes between them."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def spans_in_parts(
    data: bytes, parts: Sequence[Span], separator: bytes, find: Callable[[bytes], Iterator[Span]]
) -> Iterator[Span]:
    """Search parts of a text together, with one byte between them. The spans are those of the whole text."""
    starts = list(accumulate((end - start + 1 for start, end in parts), initial=0))
    for first, last in find(separator.join(data[start:end] for start, end in parts)):
        number = bisect_right(starts, first) - 1
        shift = parts[number][0] - starts[number]
        yield first + shift, last + shift


def _number_runs(text: bytes, size: int) -> Iterator[Span]:
    """Yield where at least `size` hexadecimal digits follow each other."""
    digits = text.translate(_HEX_OR_NOT)
    start = digits.find(b"1" * size)
    while start >= 0:
        end = digits.find(b"0", start)
        end = len(text) if end < 0 else end
        yield start, end
        start = digits.find(b"1" * size, end)


class _Windows:
    """An index of windows (a fixed number of consecutive letters) and of whole values, for folded texts.

    A text has samples at fixed distances, so that each window contains one. It is examined only where a
    sample is known.
    """

    def __init__(self, window: int, gram: int, *, numbers_only: bool) -> None:
        self.grams: set[bytes] = set()
        self._size, self._gram = window, gram
        self._numbers_only = numbers_only
        self._step = window - gram + 1
        self._own: set[bytes] = set()
        self._texts: list[bytes] = []
        self._known: dict[bytes, bool] = {}
        self._wholes: dict[bytes, list[tuple[bytes, int]]] = {}
        self._sample = Struct(f"{gram}s{self._step - gram}x" * _SAMPLES)

    def learn_whole(self, folded: bytes) -> None:
        """Add a whole text that has at least as many letters as a window."""
        first = (len(folded) - self._size) // 2
        for offset in range(first, first + self._step):
            gram = folded[offset : offset + self._gram]
            self._wholes.setdefault(gram, []).append((folded, offset))
            self.grams.add(gram)

    def learn_parts(self, folded: bytes, ordinary_words: Sequence[bytes]) -> None:
        """Add each window of a text that is not part of an ordinary word."""
        places = range(len(folded) - self._size + 1)
        if not places:
            return
        if ordinary_words:
            windows = {folded[at : at + self._size] for at in places}
            self._own |= {window for window in windows if not any(window in text for text in ordinary_words)}
        else:
            self._texts.append(folded)
        self.grams |= {folded[at : at + self._gram] for at in range(len(folded) - self._gram + 1)}

    @cached_property
    def _joined(self) -> bytes:
        return b"\n".join(self._texts)

    def _identifies(self, window: bytes) -> bool:
        known = self._known.get(window)
        if known is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            known = len(set(window)) >= _MIN_DISTINCT and window not in _COUNTING
            known = known and len(window) == self._size and (window in self._own or window in self._joined)
            self._known[window] = known
        return known

    def spans(self, text: bytes) -> Iterator[Span]:
        """Yield where the folded text has a known window or value."""
        if self.grams:
            for start, end in _number_runs(text, self._size) if self._numbers_only else ((0, len(text)),):
                for at in self._hits(text, start, end):
                    yield from self._spans_around(text, at)

    def _hits(self, text: bytes, start: int, end: int) -> Iterator[int]:
        """Yield the places of known samples."""
        size = self._sample.size
        while end - start > size:
            grams = self._sample.unpack_from(text, start)
            if not self.grams.isdisjoint(grams):
                yield from compress(
                    range(start, start + size, self._step), map(self.grams.__contains__, grams)
                )
            start += size
        gram = self._gram
        yield from (at for at in range(start, end, self._step) if text[at : at + gram] in self.grams)

    def _spans_around(self, text: bytes, at: int) -> Iterator[Span]:
        """Yield the spans around a known sample: windows, joined if they follow each other, and whole values."""
        hits = [
            first
            for first in range(max(at - self._step + 1, 0), at + 1)
            if self._identifies(text[first : first + self._size])
        ]
        if hits:
            yield hits[0], hits[-1] + self._size  # all of them contain the sample, so they overlap
        for whole, offset in self._wholes.get(text[at : at + self._gram], ()):
            if at >= offset and text.startswith(whole, at - offset):
                yield at - offset, at - offset + len(whole)


class _Folded:
    """A text's letters and digits, with the position of each in the text."""

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
        """Return the position in the text of the letter with this number."""
        number = bisect_right(self._starts, at) - 1
        if number != self._number:
            start = number * _BLOCK_BYTES
            block = self._data[start : start + _BLOCK_BYTES]
            self._kept = list(compress(range(start, start + len(block)), block.translate(_MASK)))
            self._number = number
        return self._kept[at - self._starts[number]]
