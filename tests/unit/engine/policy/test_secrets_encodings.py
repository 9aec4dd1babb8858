"""A known value that is written in another way is found: what stays of it in a row is less than twelve characters."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import json
import quopri
import random
import shutil
import string
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.policy.secrets import RedactedStream, Redactor
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
DRAW = random.Random(7)  # noqa: S311  the same values each time
VALUES = [
    "ghp_" + "".join(DRAW.choices(ALNUM, k=36)),
    "".join(DRAW.choices(ALNUM + "+/", k=40)),
    "".join(DRAW.choices("0123456789abcdef", k=40)),
    "AKIA" + "".join(DRAW.choices(string.ascii_uppercase + "234567", k=16)),
    "".join(DRAW.choices(ALNUM, k=28)),
]
MOST_LEFT = 12
"""Fewer characters in a row may stay: the limit that the README names."""


def each(form: str, between: str = "") -> Callable[[str], str]:
    return lambda value: between.join(form.format(ord(char), char=char) for char in value)


def of_bytes(encode: Callable[[bytes], bytes], charset: str = "utf-8") -> Callable[[str], str]:
    return lambda value: encode(value.encode(charset)).decode("latin-1")


def backwards(encode: Callable[[str], str]) -> Callable[[str], str]:
    return lambda value: encode(value[::-1])


def moved(first_capital: int, first_small: int, first_digit: int) -> Callable[[str], str]:
    """The letters of another block of Unicode, where it has them."""

    def move(char: str) -> str:
        for letters, first in (
            (string.ascii_uppercase, first_capital),
            (string.ascii_lowercase, first_small),
            (string.digits, first_digit),
        ):
            if char in letters and first:
                return chr(first + letters.index(char))
        return char

    return lambda value: "".join(map(move, value))


def in_words(size: int, form: str) -> Callable[[str], str]:
    """As od writes numbers of several bytes, with its offsets, four words a line."""

    def dump(value: str) -> str:
        data = value.encode().ljust(-(-len(value) // size) * size, b"\n")
        words = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
        lines = [words[at : at + 4] for at in range(0, len(words), 4)]
        return "\n".join(
            f"{number * 4 * size:07o} " + " ".join(form.format(word) for word in line)
            for number, line in enumerate(lines)
        )

    return dump


def xxd(columns: int, group: int = 2, first: int = 0) -> Callable[[str], str]:
    def dump(value: str) -> str:
        data = value.encode()
        parts = [data[at : at + columns] for at in range(0, len(data), columns)]
        return "\n".join(
            f"{first + number * columns:08x}: {part.hex(' ', -group):{columns * 3}}  {part.decode()}"
            for number, part in enumerate(parts)
        )

    return dump


ZEROMQ = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
PYTHONS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
base64_of, base85_of = of_bytes(base64.b64encode), of_bytes(base64.b85encode)

ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "\\u0041": each("\\u{0:04x}"),
    "\\\\u0041, escaped twice": each("\\\\u{0:04X}"),
    "\\u{41}": each("\\u{{{0:x}}}"),
    "\\U00000041": each("\\U{0:08x}"),
    "\\x41": each("\\x{0:02x}"),
    "\\x{41}": each("\\x{{{0:x}}}"),
    "some escaped": lambda value: "".join(
        f"\\x{ord(char):02x}" if at % 3 else char for at, char in enumerate(value)
    ),
    "octal escapes": each("\\{0:o}"),
    "octal escapes of printf": each("\\0{0:o}"),
    "octal numbers": each("{0:03o}", " "),
    "octal numbers of C": each("0{0:o}", ", "),
    "octal numbers of Python": each("0o{0:o}", ", "),
    "octal numbers without zeros": each("{0:o}", " "),
    "binary numbers of Python": each("0b{0:b}", ", "),
    "numbers": each("{0}", " "),
    "calls": each("chr({0})", "+"),
    "calls with hexadecimal numbers": each("String.fromCharCode(0x{0:x})", " + "),
    "code points": each("U+{0:04X}", " "),
    "bits": each("{0:08b}", " "),
    "bits in one run": each("{0:08b}"),
    "entities": each("&#{0};"),
    "hexadecimal entities": each("&#x{0:X};"),
    "long entities": each("&#0000{0};"),
    "entities escaped": lambda value: html.escape(each("&#{0};")(value)),
    "percent": each("%{0:02X}"),
    "percent twice": each("%25{0:02x}"),
    "some percent": lambda value: "".join(
        f"%{ord(char):02x}" if at % 2 else char for at, char in enumerate(value)
    ),
    "quoted-printable": lambda value: quopri.encodestring(value.encode(), quotetabs=True).decode(),
    "quoted-printable throughout": each("={0:02X}"),
    "hexadecimal": lambda value: value.encode().hex(),
    "hexadecimal numbers": each("0x{0:02x}", ", "),
    "base64": base64_of,
    "base64 for URLs": of_bytes(base64.urlsafe_b64encode),
    "base64 in lines": lambda value: "\n".join(base64_of(value)[at : at + 8] for at in range(0, 60, 8)),
    "base64 of the reverse": backwards(base64_of),
    "base64 reversed": lambda value: base64_of(value)[::-1],
    "base64 of UTF-16": of_bytes(base64.b64encode, "utf-16-le"),
    "base64 of UTF-16, big end first": of_bytes(base64.b64encode, "utf-16-be"),
    "base32": of_bytes(base64.b32encode),
    "base32 of the reverse": backwards(of_bytes(base64.b32encode)),
    "ascii85": of_bytes(base64.a85encode),
    "base85": base85_of,
    "base85 of the reverse": backwards(base85_of),
    "base85 of ZeroMQ": lambda value: base85_of(value).translate(str.maketrans(PYTHONS, ZEROMQ)),
    "uuencode": lambda value: "\n".join(
        binascii.b2a_uu(value.encode()[at : at + 45]).decode() for at in range(0, len(value), 45)
    ),
    "hexadecimal of the reverse": backwards(lambda value: value.encode().hex()),
    "hexadecimal of UTF-16": of_bytes(binascii.hexlify, "utf-16-le"),
    "UTF-16": of_bytes(bytes, "utf-16-le"),
    "UTF-32": of_bytes(bytes, "utf-32-be"),
    "rot13": lambda value: codecs.encode(value, "rot13"),
    "full width": moved(0xFF21, 0xFF41, 0xFF10),
    "mathematical": moved(0x1D400, 0x1D41A, 0x1D7CE),
    "circled": moved(0x24B6, 0x24D0, 0),
    "squared": lambda value: moved(0x1F130, 0, 0)(value.upper()),
    "squared, negative": lambda value: moved(0x1F170, 0, 0)(value.upper()),
    "regional indicators": lambda value: moved(0x1F1E6, 0, 0)(value.upper()),
    "tags": lambda value: "".join(chr(0xE0000 + ord(char)) for char in value),
    "selectors": lambda value: "".join(chr(0xE0100 + ord(char) - 16) for char in value),
    "arabic digits": moved(0, 0, 0x660),
    "marks": "\u0301".join,
    "escaped full width": lambda value: json.dumps(moved(0xFF21, 0xFF41, 0xFF10)(value))[1:-1],
    "escaped mathematical": lambda value: json.dumps(moved(0x1D400, 0x1D41A, 0x1D7CE)(value))[1:-1],
    "a character a line": "\n".join,
    "three characters a line": lambda value: "\n".join(value[at : at + 3] for at in range(0, len(value), 3)),
    "numbered lines": lambda value: "\n".join(f"{at:6}\t{char}" for at, char in enumerate(value)),
    "numbered pieces": lambda value: "\n".join(
        f"{at}: {value[at : at + 4]}" for at in range(0, len(value), 4)
    ),
    "list": lambda value: json.dumps(list(value)),
    "list in lines": lambda value: json.dumps(list(value), indent=2),
    "numbered list": lambda value: json.dumps(dict(enumerate(value)), indent=1),
    "escaped lines": lambda value: json.dumps("\n".join(value))[1:-1],
    "zero width": "\u200b".join,
    "upper case": str.upper,
    "small letters": str.lower,
    "dump of octal words": in_words(2, "{:06o}"),
    "dump of hexadecimal words": in_words(2, "{:04x}"),
    "dump of decimal words": in_words(2, "{:5}"),
    "dump of four bytes": in_words(4, "{:08x}"),
    "dump of eight bytes": in_words(8, "{:016x}"),
    "xxd": xxd(16),
    "xxd, four a line": xxd(4),
    "xxd, two a line": xxd(2),
    "xxd of the end of a file": xxd(4, first=0xABCDEF00),
    "xxd, bytes": xxd(6, 1),
}


def _uuencoded(data: bytes) -> bytes:
    return binascii.b2a_uu(data, backtick=True)[1:-1]  # without the length of the line


@table("encode", [base64.b64encode, base64.b32encode, _uuencoded])
def test_all_that_depends_on_a_value_alone_is_found(encode: Callable[[bytes], bytes]) -> None:
    """The encoding itself says what that is: what stays the same whatever stands before and after the value."""
    value = b"Kp0vP1rT0p5kP2mW9p3zQ0"  # with zeros among its groups of six bits
    for offset in range(6):
        before, after = b"\0" * offset, b"\0" * 5
        texts = [
            encode(first * offset + value + last * 5)
            for first in (b"\0", b"\xff")
            for last in (b"\0", b"\xff")
        ]
        same = [place for place, signs in enumerate(zip(*texts, strict=True)) if len(set(signs)) == 1]
        own = [place for place in same if chr(texts[0][place]).isalnum()]
        spans = redactor_of(value.decode()).spans(encode(before + value + after))
        assert spans == [(own[0], own[-1] + 1)], offset


SURROUNDINGS = st.text(st.characters(codec="utf-8", exclude_characters="\\&%=\x00"), max_size=60)


@table("encoding", ENCODINGS)
def test_each_value_in_each_encoding_is_found(encoding: str) -> None:
    for value in VALUES:
        assert longest_left(value, ENCODINGS[encoding](value), "", "") < MOST_LEFT, value


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=6)
@given(value=st.sampled_from(VALUES), before=SURROUNDINGS, after=SURROUNDINGS)
def test_no_twelve_characters_in_a_row_stay(encoding: str, value: str, before: str, after: str) -> None:
    assert longest_left(value, ENCODINGS[encoding](value), f"{before}\n", f"\n{after}") < MOST_LEFT


@pytest.mark.parametrize(
    "command",
    [
        "od",
        "od -c",
        "od -b",
        "od -x",
        "od -An -tx1",
        "od -An -c -w4",
        "od -tx1z",
        "od -tu1 -w4",
        "od -a",
        "od -tx4 -w4",
        "od -Ax -tx2",
        "hexdump",
        "hexdump -C",
        "hexdump -b",
        "hexdump -c",
        "xxd",
        "xxd -p",
        "xxd -e",
        "xxd -b",
        "xxd -i",
        "base64 -w 11",
        "base32 -w 9",
        "nl",
        "cat -n",
        "fold -w 1",
        "fold -w 5",
        "rev",
        "basenc --z85",
    ],
)
@pytest.mark.parametrize("value", VALUES[:2])
def test_dumps_that_programs_print_of_a_value_are_found(command: str, value: str) -> None:
    name, *options = command.split()
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} here")
    printed = subprocess.run([name, *options], input=value.encode(), capture_output=True, check=True).stdout
    assert longest_left(value, printed.decode(), "", "") < MOST_LEFT


@table("encoding", [name for name in ENCODINGS if name != "calls with hexadecimal numbers"])
def test_a_stream_shows_no_more_than_the_whole_text_at_once(encoding: str) -> None:
    value = VALUES[0]
    text = f"some words before\n{ENCODINGS[encoding](value)}\nand some after it, as there are in every text"
    for size in (1, 7, 40):
        stream = RedactedStream(redactor_of(value))
        shown = [stream.add(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join([*shown, stream.end()]) == redactor_of(value).redact(text)


@pytest.mark.slow(reason="growth: a text in two sizes for each spelling")
@table(
    "piece",
    [
        "\\",
        "\\u0041",
        "\\x41",
        "%",
        "%25",
        "%41",
        "&",
        "&amp;",
        "&#65;",
        "=",
        "=41",
        "0x",
        "0",
        "01",
        "\n",
        "\n0",
        "\n ",
        "(",
        "f(1)",
        "\n00000000 ",
        "\n00000000 41 ",
        "\n 1 a",
        "U+0041 ",
        "\uff21",
        "\u0301",
        "\U000e0041",
        "A\\n",
        " ab",
        "a(0x",
        "{",
    ],
)
def test_time_is_linear_in_a_text_made_of_spellings(piece: str) -> None:
    redactor = redactor_of(*VALUES)
    grows(redactor.redact, ("", piece, ""), small_chars=15_000)
    grows(lambda text: redactor.redact(f"{text}\n{text}\n"), ("", piece, ""), small_chars=7_500)


@cache
def redactor_of(*values: str) -> Redactor:
    return Redactor(values)


def longest_left(value: str, hidden: str, before: str, after: str) -> float:
    """How many characters of a value its longest part holds that redaction leaves, as the encoding has them on average."""
    spans = redactor_of(value).spans(f"{before}{hidden}{after}".encode())
    first = len(before.encode())
    last = first + len(hidden.encode())
    borders = [first, *(min(max(place, first), last) for span in spans for place in span), last]
    gaps = [end - start for start, end in zip(borders[::2], borders[1::2], strict=True)]
    return max(gaps) * len(value) / (last - first)
