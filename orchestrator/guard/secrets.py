"""Takes secrets out of text: known values in the spellings that hide them, and what looks like a credential."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

REPLACEMENT = "[redacted]"
MIN_VALUE_CHARS = 8
"""Shorter values are not looked for: they would be found in ordinary words."""

_MIN_LINE_CHARS = 16
_MAX_DEPTH = 200
_TOO_DEEP = "[nested too deeply]"


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What a kind of credential looks like.

    Attributes:
        needles: in small letters; each text that matches has one of them. Looking for them is cheap.
        regex: matches in linear time. Where it has a group, only the group is secret.
        random: what matches also has to look as if a machine had drawn it.
    """

    needles: tuple[str, ...]
    regex: str
    random: bool = False


_ASSIGNED = r"[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?"
_GITHUB = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")

# Every expression keeps to two rules, so that time is linear: a repeat either cannot give back
# what it took, or has an upper bound; and no start is tried twice over the same long run.
_PATTERNS = (
    # GitHub: https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
    # `ghs_` tokens may carry a JWT of some hundred characters: no length is assumed.
    _Pattern(_GITHUB, r"gh[pousr]_(?<![A-Za-z]gh[pousr]_)[A-Za-z0-9._-]{20,}+"),
    _Pattern(_GITHUB, r"gh[pousr]_[A-Za-z0-9._-]{20,}+", random=True),  # glued to a word
    _Pattern(("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}+"),
    # OpenAI, Anthropic and their kin; programs and packages have names that begin so, too.
    _Pattern(("sk-",), r"sk-(?<![A-Za-z0-9]sk-)[A-Za-z0-9_-]{20,}+", random=True),
    _Pattern(("aiza",), r"AIza[A-Za-z0-9_-]{30,}+"),
    _Pattern(("akia", "asia"), r"A[KS]IA(?<![A-Z0-9]A[KS]IA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _Pattern(("secret",), rf"(?i:aws_?secret_?access_?key){_ASSIGNED}([A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+])"),
    _Pattern(("xox", "xapp-"), r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}+"),
    _Pattern(("glpat-",), r"glpat-[A-Za-z0-9_-]{20,}+"),
    _Pattern(("npm_",), r"npm_(?<![A-Za-z0-9]npm_)[A-Za-z0-9]{36,}+"),
    _Pattern(("pypi-agei",), r"pypi-AgEI[A-Za-z0-9_-]{30,}+"),
    _Pattern(("hf_",), r"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{30,}+"),
    _Pattern(("k_live_", "k_test_"), r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    # JWT, RFC 7519: two base64url objects (`{"` is `eyJ`) and a signature.
    _Pattern(
        (".eyj",),
        r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*eyJ)[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{8,}+",
    ),
    # Private keys, RFC 7468, whole or cut off, also quoted, numbered or escaped.
    _Pattern(
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
        r"(?:[A-Za-z0-9+/=\s:;,.\\\"'>|()]|-(?!----))*+(?:-----END [A-Z0-9 ]{0,60}-----)?",
    ),
    # Headers, as a server, curl or a program's source writes them. `{token}` and `<token>` are no values.
    _Pattern(
        ("authorization",),
        rf"(?i:authorization){_ASSIGNED}(?i:bearer|basic|token|digest)[ \t]{{1,8}}([A-Za-z0-9._~+/=-]{{8,}}+)",
    ),
    _Pattern(("bearer",), r"(?i:bearer)[ \t]{1,8}([A-Za-z0-9._~+/=-]{20,}+)"),
    _Pattern(
        ("api-key", "private-token"),
        rf"(?i:x-goog-api-key|api-key|private-token){_ASSIGNED}([A-Za-z0-9._~+/=-]{{16,}}+)",
    ),
    # Credentials in a URL: the password, or a long user name without one.
    _Pattern(("://",), r"://[^\s/?#@:\"'<>]{0,256}:(?![$\[{<*])([^\s/?#@\"'<>]{1,1024})@"),
    _Pattern(("://",), r"://([A-Za-z0-9._~%+-]{20,1024})@"),
)
_LONGEST_WORD_CHARS = 24

_Span = tuple[int, int]


def _base64_cores(data: bytes) -> Iterator[str]:
    """The characters that depend on `data` alone, wherever it begins within a base64 text."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data).decode()
        first = (0, 2, 3)[offset]
        last = len(encoded) - (0, 3, 2)[(offset + len(data)) % 3]
        core = encoded[first:last]
        yield core
        yield core.translate(str.maketrans("+/", "-_"))


def _spellings(value: str) -> Iterator[str]:
    """The ways in which a value may be written so that it can still be read back."""
    data = value.encode("utf-8", "surrogateescape")
    yield value
    yield value[::-1]
    yield json.dumps(value)[1:-1]
    yield from _base64_cores(data)
    for digits in (data.hex(), data.hex(" "), data.hex(":")):
        yield digits
        yield digits.upper()
    for escaped in (
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        "".join(f"%{byte:02X}" for byte in data),
    ):
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), escaped)


def _needles(values: Iterable[str]) -> tuple[str, ...]:
    """Everything to look for, longest first, without what would find our own replacement."""
    wanted: set[str] = set()
    for value in values:
        wanted.update(_spellings(value.strip()))
        # Of a key in several lines, each line alone is worth hiding.
        lines = [line.strip() for line in value.splitlines()] if "\n" in value.strip() else []
        wanted.update(line for line in lines if len(line) >= _MIN_LINE_CHARS and not line.startswith("-----"))
    found = {text for text in wanted if len(text) >= MIN_VALUE_CHARS and text not in REPLACEMENT}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _occurrences(needle: str, text: str) -> Iterator[_Span]:
    start = text.find(needle)
    while start >= 0:
        yield start, start + len(needle)
        start = text.find(needle, start + len(needle))


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


def _looks_random(text: str) -> bool:
    """Whether this is not just words: it has a digit or a capital, or runs on for too long."""
    if not text.islower() or any(char.isdigit() for char in text):
        return True
    return any(len(part) > _LONGEST_WORD_CHARS for part in re.split("[._-]", text))


class Redactor:
    """Finds secrets by value and by pattern, in time that grows linearly with the text.

    A value is found as it is, reversed, escaped as JSON, in base64 at any alignment (both
    alphabets), in hexadecimal and URL-encoded. What overlaps is replaced as one.

    Args:
        values: the known secrets. Those shorter than `MIN_VALUE_CHARS` are ignored.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._needles = _needles(value for value in values if len(value.strip()) >= MIN_VALUE_CHARS)
        self._patterns = tuple((pattern, re.compile(pattern.regex)) for pattern in _PATTERNS)

    def redact(self, text: str) -> str:
        """The text with every secret replaced by `REPLACEMENT`."""
        pieces: list[str] = []
        position = 0
        for start, end in _merge(self._spans(text)):
            pieces += text[position:start], REPLACEMENT
            position = end
        return "".join([*pieces, text[position:]])

    def holds_secret(self, text: str) -> bool:
        """Whether `redact` would change the text."""
        return next(self._spans(text), None) is not None

    def redact_value(self, value: Any) -> Any:
        """A copy of a JSON-like value with every string redacted, keys too. Tuples become lists."""
        return map_strings(value, self.redact)

    def _spans(self, text: str) -> Iterator[_Span]:
        for needle in self._needles:
            yield from _occurrences(needle, text)
        lowered = text.lower()
        for pattern, regex in self._patterns:
            if not any(needle in lowered for needle in pattern.needles):
                continue
            for match in regex.finditer(text):
                if not pattern.random or _looks_random(match[0]):
                    yield match.span(regex.groups)


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
