"""Tells which calls of a broken or cut-off reply are there from the first brace to the last.

It looks at strings and brackets only, so it works where no JSON parser would.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_COLON = re.compile(r"\s*:")
_DEEPEST_LEVELS = 500
_CALLS_KEY = '"tool_calls"'


@dataclass(frozen=True, slots=True)
class Scan:
    """What brackets say about the JSON value that starts at a place in a text.

    Attributes:
        complete: every bracket is closed; false also where they are nested beyond sense.
        end: where the value ends; the end of the text if it is not complete.
        calls: the text of every call whose last bracket is there, in order.
        list_start: where the calls begin, their bracket included; None if they have not begun,
            or begin twice.
        tail_start: where the text after the last whole call begins.
    """

    complete: bool
    end: int
    calls: tuple[str, ...]
    list_start: int | None
    tail_start: int


def scan(text: str, start: int = 0) -> Scan:
    """Follow the brackets of the object or list that starts at `start`.

    Calls are the elements of the list under the outermost key `tool_calls`, the object there if
    it is no list, or the elements of an outermost list.
    """
    scanner = _Scanner(text, start)
    for match in _TOKEN.finditer(text, start):
        scanner.take(match)
        if scanner.depth == 0:
            return scanner.result(complete=True, end=match.end())
        if scanner.depth > _DEEPEST_LEVELS:
            break
    return scanner.result(complete=False, end=len(text))


class _Scanner:
    """How many brackets are open, and at how many of them a call begins (0: outside the calls)."""

    def __init__(self, text: str, start: int) -> None:
        self.depth = 0
        self._text = text
        self._call_depth = 0
        self._call_start = start
        self._calls: list[str] = []
        self._list_start: int | None = None
        self._tail_start = start
        self._awaits_calls = text[start : start + 1] == "["
        self._only_one = False
        self._twice = False

    def take(self, match: re.Match[str]) -> None:
        mark = match[0]
        if mark in ("{", "["):
            self._open(match.start(), is_list=mark == "[")
        elif mark in ("}", "]"):
            self._close(match.end(), is_list=mark == "]")
        else:
            is_key = self.depth == 1 and mark == _CALLS_KEY
            self._awaits_calls = is_key and _COLON.match(self._text, match.end()) is not None

    def _open(self, position: int, *, is_list: bool) -> None:
        if self._awaits_calls:
            self._awaits_calls = False
            self._twice = self._list_start is not None
            self._only_one = not is_list
            self._call_depth = self.depth + 1 if is_list else self.depth
            self._list_start = position
            self._tail_start = position + 1 if is_list else position
        if self.depth == self._call_depth:
            self._call_start = position
        self.depth += 1

    def _close(self, end: int, *, is_list: bool) -> None:
        self.depth -= 1
        if self._call_depth and self.depth == self._call_depth and not is_list:
            self._calls.append(self._text[self._call_start : end])
            self._tail_start = end
            if self._only_one:
                self._call_depth = 0
        elif self.depth < self._call_depth:
            self._call_depth = 0

    def result(self, *, complete: bool, end: int) -> Scan:
        if self._twice:
            return Scan(complete, end, (), None, end)
        return Scan(complete, end, tuple(self._calls), self._list_start, self._tail_start)
