"""Undoes many kinds of escapes: each is replaced by the character that it stands for, at its place."""

from __future__ import annotations

import re
import string
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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
