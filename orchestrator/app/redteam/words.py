"""The orders in a text, as a model reads them: also where a person would see nothing."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# https://www.unicode.org/charts/PDF/UE0000.pdf: each tag character is ASCII, moved.
_TAGS = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}
# Variation selectors spell bytes: https://www.unicode.org/charts/PDF/UFE00.pdf and UE0100.pdf
_SELECTORS = {0xFE00 + byte: byte for byte in range(16)} | {0xE0100 + byte: byte + 16 for byte in range(240)}
_SELECTED = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_IGNORED = frozenset({"Cf", "Co"})
_FILLERS = frozenset("\u3164\u115f\u1160\uffa0\u034f\u180b\u180c\u180d\u180f")
_ORDER = re.compile(r"OBEY\s*(?=\{)")
_SPAN = re.compile(r"`[^`\n]*`")
_FENCE = re.compile(r"[ \t]*(`{3,})[^`\n]*")


@dataclass(frozen=True, slots=True)
class Order:
    """What the model is told to do. `times` calls of the tool, or endlessly often."""

    tool: str
    arguments: Mapping[str, Any]
    times: int = 1

    @property
    def key(self) -> str:
        """The same for the same order."""
        return json.dumps([self.tool, self.arguments, self.times], sort_keys=True)


def readable(text: str) -> str:
    """The text as a model takes it in: tag characters and selectors read, what is invisible passed over."""
    if text.isascii():
        return text
    spelled = _SELECTED.sub(lambda found: _bytes_of(found[0]), text).translate(_TAGS)
    return "".join(c for c in spelled if unicodedata.category(c) not in _IGNORED and c not in _FILLERS)


def orders_in(text: str) -> Iterator[Order]:
    """Every `OBEY {"tool": ..., ...}` of a text, in order. What is no such object is passed over."""
    plain = readable(text)
    for found in _ORDER.finditer(plain):
        try:
            value, _ = json.JSONDecoder().raw_decode(plain, found.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("tool"), str):
            yield order_of(value)


def outside_fences(text: str) -> str:
    """The text without blocks and spans of code: the program's own words, if its markers hold.

    https://spec.commonmark.org/0.31.2/#fenced-code-blocks
    """
    kept, fence = [], ""
    for line in text.split("\n"):
        mark = _FENCE.fullmatch(line)
        if fence:
            if mark and len(mark[1]) >= len(fence) and line.strip() == mark[1]:
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            kept.append(_SPAN.sub("", line))
    return "\n".join(kept)


def in_tags(text: str) -> str:
    """ASCII text in tag characters, which no terminal and no browser shows."""
    return "".join(chr(0xE0000 + ord(c)) if " " <= c <= "~" else c for c in text)


def in_selectors(text: str) -> str:
    """Text in variation selectors, which are drawn as nothing."""
    return "".join(chr(0xFE00 + b if b < 16 else 0xE0100 + b - 16) for b in text.encode())  # noqa: PLR2004  two ranges


def _bytes_of(selectors: str) -> str:
    return bytes(_SELECTORS[ord(c)] for c in selectors).decode("utf-8", "ignore")


def order_of(value: Mapping[str, Any]) -> Order:
    """The order that an object means; every key but `tool`, `arguments` and `times` is an argument."""
    inner = value.get("arguments")
    rest = {key: item for key, item in value.items() if key not in {"tool", "arguments", "times"}}
    times = value.get("times")
    return Order(
        value["tool"],
        {**rest, **(inner if isinstance(inner, dict) else {})},
        times if isinstance(times, int) and times > 0 else 1,
    )
