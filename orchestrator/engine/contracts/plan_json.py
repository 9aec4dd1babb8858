"""Reads a model's JSON strictly, as RFC 8259 defines it, or tolerantly, without guessing a string's end.

The tolerant reader accepts text whose strings are complete, but which has faults between them.

====================================================  ==============================================
repaired                                              where
====================================================  ==============================================
comments (`//`, `#`, `/* */`) without JSON in them    between values
commas: too many, or none                             none: after a bracket, or before `"name":`
`None`, `True`, `FALSE`, `undefined`                  as a value
keys without quotes                                   before a colon
the brace of the last call                            before `]}`
single or typographic quotes around a string          if no other of their kind is inside
raw line ends and tabs                                in strings without a code fence
====================================================  ==============================================

Each string must be delimited as in JSON: a colon follows a key, a comma or a closing bracket follows a value.
Anything else is a fault with a place and a cause, because an unescaped quotation mark may have ended the string too
early. What is not JSON raises a `BrokenJsonError` that says where.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.tools.registry import first_problems, path_text

DEEPEST_LEVELS = 50
"""Maximum nesting of objects and lists."""


class BrokenJsonError(Exception):
    """The text is not JSON.

    Attributes:
        repairable: False if the form is correct, but exceeds a limit of Python.
        place: the index of the character at which reading fails, if known.
    """

    def __init__(self, message: str, *, repairable: bool = True, place: int | None = None) -> None:
        super().__init__(message)
        self.repairable = repairable
        self.place = place


class _DuplicateKey(dict[str, Any]):
    """An object with a duplicate key."""


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    kept = dict(pairs)
    return kept if len(kept) == len(pairs) else _DuplicateKey(kept)


def parse_json(text: str) -> Any:
    """Return the value of a text that holds nothing else. It may still have `flaws`."""
    value, end = parse_json_at(text, len(text) - len(text.lstrip(" \t\r\n")))
    if text[end:].strip(" \t\r\n"):
        place = json.JSONDecodeError("Extra data", text, end)
        raise BrokenJsonError(str(place))
    return value


def parse_json_at(text: str, start: int) -> tuple[Any, int]:
    """Return the value that starts at a position, and its end."""
    try:
        return json.JSONDecoder(object_pairs_hook=_object_of).raw_decode(text, start)
    except RecursionError as error:
        raise BrokenJsonError("nested too deeply", repairable=False) from error
    except json.JSONDecodeError as error:
        raise BrokenJsonError(str(error)) from error
    except ValueError as error:
        # Python limits how many digits an integer may have.
        raise BrokenJsonError("a number has too many digits", repairable=False) from error


def flaws(value: Any) -> tuple[str, ...]:
    """Return what JSON's own rules forbid but Python's reader accepts, a line each with its path."""
    found: list[str] = []
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str | float | _DuplicateKey) and (flaw := _flaw(item)):
            found.append(f"{path_text(path)}: {flaw}")
        if isinstance(item, dict | list) and len(path) >= DEEPEST_LEVELS:
            return (f"{path_text(path[:2])}: nested more than {DEEPEST_LEVELS} levels deep",)
        if isinstance(item, dict):
            waiting.extend(((*path, key), part) for key, child in item.items() for part in (key, child))
        elif isinstance(item, list):
            waiting.extend(((*path, index), child) for index, child in enumerate(item))
    return first_problems(tuple(reversed(found)))


def _flaw(item: str | float | _DuplicateKey) -> str | None:
    if isinstance(item, _DuplicateKey):
        return "has a key twice"
    if isinstance(item, float):
        return None if math.isfinite(item) else "NaN and Infinity are not JSON"
    try:
        item.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return None


_BLANKS = re.compile(r"[\s\ufeff\u200b\u2060]*+")
_WORD = re.compile(r"[^\W\d]\w*+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?![\w.+-])", re.ASCII)
_CUT_NUMBER = re.compile(r"(-?\d*+(?:\.\d++)?(?:[eE][+-]?\d++)?)\.?(?:[eE][+-]?)?\Z", re.ASCII)
_CONSTANTS = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "undefined": None,
    "nan": float("nan"),
    "infinity": float("inf"),
}
# The closing marks of each opening mark, and the marks that its body cannot hold. If a mark could be
# either, the string is doubtful. Models also close a typographic mark with a straight one.
_ENDS = {'"': '"', "'": "'", "“": '”"', "”": '”"', "„": '“”"', "\u2018": "\u2019'", "\u2019": "\u2019'"}
_DOUBLE = '"“”„'
_SINGLE = "'\u2018\u2019"
_KINDS = ('"', "'", _DOUBLE, _SINGLE)
_BODIES = {
    mark: re.compile(rf"[^{kind}\\]*+(?>(?:\\.[^{kind}\\]*+)*)", re.DOTALL)
    for kind in _KINDS
    for mark in kind
    if len(kind) == 1 or mark not in "\"'"
}
_IN_SINGLE_QUOTES = re.compile(r'\\(.)|"', re.DOTALL)
_CUT_ESCAPE = re.compile(
    r"(?<!\\)((?:\\\\)*+)(?:\\(?:u[0-9a-fA-F]{0,3})?|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)\Z"
)
_JSON_IN_COMMENT = re.compile(r"[\"“”„{}\[\]]")
_MEMBER_IN_COMMENT = re.compile(r"[\"“”„{}\[\]':]")
_END_OF_OBJECT = re.compile(r"\]\s*+\}")
_FENCE_IN_STRING = re.compile(r"[\r\n][ \t]*+```")
_FENCE_CAUSE = "a line of ``` inside a string, which may have been cut off above it: send the whole string, with \\n for each line end"
_ESCAPE_IT = 'write \\" for each quotation mark inside a string'


@dataclass(frozen=True, slots=True)
class TolerantValue:
    """The result of tolerant reading.

    Attributes:
        value: of a text that ended early: everything up to its end.
        end: where the value ends.
        unfinished: the objects and lists without a closing bracket because the text ended, outermost first.
        awaits_comma: whether the text ended after a value of the innermost one of them.
    """

    value: Any
    end: int
    unfinished: tuple[Any, ...] = ()
    awaits_comma: bool = False


def read_tolerantly(text: str, start: int) -> TolerantValue:
    """Read the object or list that begins at `start`.

    Raises:
        BrokenJsonError: it has a fault that could be read in more than one way.
    """
    return _Reader(text, start).read()


class _EndOfTextError(Exception):
    """The text ends where more must follow."""


@dataclass(slots=True)
class _Frame:
    """An open object or list.

    Attributes:
        key: the key whose value is awaited.
        plain: whether the last key, or that of the list, has straight double quotes as in JSON. Then a value
            in single quotes is doubtful, because it may be a text that lost its quotation marks. Otherwise a
            comment that could contain a name is doubtful.
        last: the kind of the last value, if no comma has followed it yet: `string`, `word` or `bracket`.
    """

    holds: Any
    plain: bool = True
    key: str | None = None
    last: str | None = None

    def put(self, value: Any, kind: str) -> None:
        if self.key is None:
            self.holds.append(value)
        else:
            self.holds[self.key] = value
        self.key, self.last = None, kind


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._place = start
        self._frames: list[_Frame] = []

    def read(self) -> TolerantValue:
        root = self._open()
        try:
            while self._frames:
                self._step(self._frames[-1])
        except _EndOfTextError:
            unfinished = tuple(frame.holds for frame in self._frames)
            return TolerantValue(root, len(self._text), unfinished, self._frames[-1].last is not None)
        return TolerantValue(root, self._place)

    def _step(self, frame: _Frame) -> None:
        """Read a key with its colon, a value, a comma or a closing bracket."""
        before = self._place
        mark = self._next()
        is_list = isinstance(frame.holds, list)
        if frame.key is None and mark in "}]":
            self._close(mark, is_list=is_list)
        elif frame.key is None and mark == ",":
            frame.last = None
            self._place += 1
        elif frame.key is None and not is_list:
            if frame.last:
                self._key_without_comma(frame, mark, apart=self._place > before)
            else:
                self._key(frame, mark)
        elif frame.last and not (frame.last == "bracket" and mark in "{["):
            raise self._no_comma(frame, self._place)
        else:
            self._value(frame, mark)

    def _next(self) -> str:
        """Return the next character that is neither blank nor in a comment."""
        while True:
            if match := _BLANKS.match(self._text, self._place):
                self._place = match.end()
            if self._place >= len(self._text):
                raise _EndOfTextError
            if not self._skip_comment():
                return self._text[self._place]

    def _skip_comment(self) -> bool:
        start = self._place
        if self._text[start] == "#" or self._text.startswith("//", start):
            end = self._text.find("\n", start)
            end = len(self._text) if end < 0 else end
        elif self._text.startswith("/*", start):
            close = self._text.find("*/", start + 2)
            if close < 0:
                raise self._fault("a comment that does not end; write no comments")
            end = close + 2
        else:
            return False
        # A comment without its line end, or around calls, would hide them.
        hidden = _JSON_IN_COMMENT if self._frames[-1].plain else _MEMBER_IN_COMMENT
        if match := hidden.search(self._text, start, end):
            raise self._fault("a comment that may hide a part of the JSON; write no comments", match.start())
        self._place = end
        return True

    def _open(self) -> Any:
        if len(self._frames) >= DEEPEST_LEVELS:
            raise BrokenJsonError(f"nested more than {DEEPEST_LEVELS} levels deep", repairable=False)
        holds: Any = [] if self._text[self._place] == "[" else {}
        self._frames.append(_Frame(holds, plain=not self._frames or self._frames[-1].plain))
        self._place += 1
        return holds

    def _close(self, mark: str, *, is_list: bool) -> None:
        if mark == "]" and self._lacks_brace():
            self._frames.pop()
        elif is_list != (mark == "]"):
            is_open, wanted = ("list", "]") if is_list else ("object", "}")
            raise self._fault(
                f"{mark} in an open {is_open}: write {wanted} before it, or leave it out, or {_ESCAPE_IT}"
            )
        self._place += 1
        self._frames.pop()

    def _lacks_brace(self) -> bool:
        """Return whether only the last call's own brace is missing at the end of the reply."""
        if len(self._frames) != len(("plan", "calls", "call")):
            return False
        plan, calls, call = (frame.holds for frame in self._frames)
        listed = isinstance(plan, dict) and plan.get("tool_calls") is calls and isinstance(call, dict)
        forgot = listed and {"tool_name", "arguments"} == call.keys()
        return forgot and _END_OF_OBJECT.match(self._text, self._place) is not None

    def _key(self, frame: _Frame, mark: str) -> None:
        start = self._place
        if mark in _BODIES:
            key = self._string(mark, ":")
        elif match := _WORD.match(self._text, start):
            key, self._place = match[0], match.end()
        else:
            raise self._fault(f'expected "name": here; if this is text of a string, {_ESCAPE_IT}')
        if self._next() != ":":
            raise self._fault(f"no colon after this name; if this is text of a string, {_ESCAPE_IT}", start)
        if key in frame.holds:
            raise self._fault("the same name a second time in one object", start)
        self._place += 1
        frame.key, frame.plain = key, mark == '"'

    def _key_without_comma(self, frame: _Frame, mark: str, *, apart: bool) -> None:
        """Read a key after a missing comma. Only a complete name with its colon shows that it is missing."""
        start = self._place
        if mark not in _BODIES or not (apart or frame.last == "bracket"):
            raise self._no_comma(frame, start)
        try:
            self._key(frame, mark)
        except (_EndOfTextError, BrokenJsonError):
            raise self._no_comma(frame, start) from None
        if frame.key is None or not frame.key.isidentifier():
            raise self._no_comma(frame, start)
        frame.last = None

    def _no_comma(self, frame: _Frame, place: int) -> BrokenJsonError:
        if frame.last == "string":
            return self._fault(
                f"no comma after a string, or a string that ended too early: {_ESCAPE_IT}", place
            )
        return self._fault("expected a comma or a closing bracket here", place)

    def _value(self, frame: _Frame, mark: str) -> None:
        if mark in "{[":
            frame.put(self._open(), "bracket")
        elif mark in _BODIES and (mark in _DOUBLE or not frame.plain):
            followers = ",}]" if isinstance(frame.holds, list) else ",}]\"'“"
            frame.put(self._string(mark, followers, frame), "string")
        elif match := _WORD.match(self._text, self._place):
            self._constant(frame, match[0])
        elif mark in "-0123456789":
            self._number(frame)
        else:
            raise self._fault('expected a value here; write " around each string')

    def _string(self, mark: str, followers: str, frame: _Frame | None = None) -> str:
        """Read a string, after which one of the characters `followers` must follow.

        If the end of the text cuts the string off, its beginning becomes a value of `frame`.
        """
        start = self._place
        body = _BODIES[mark].match(self._text, start + 1)
        end = body.end() if body else start + 1
        if (
            self._text[end : end + 1] in _ENDS[mark]
            and end < len(self._text)
            and self._is_followed_by(followers, end + 1)
        ):
            return self._decoded(mark, start, end)
        # A typographic mark ends the string only if nothing else can, and no opening one precedes it.
        typographic = self._text.find("”", start, end) if mark == '"' else -1
        if (
            typographic >= 0
            and self._text.find("“", start, typographic) < 0
            and self._is_followed_by(followers, typographic + 1)
        ):
            return self._decoded(mark, start, typographic)
        if end >= len(self._text) - 1 and self._text[end:] in ("", "\\"):
            if frame:
                frame.put(self._decoded(mark, start, len(self._text), cut_off=True), "string")
            raise _EndOfTextError
        raise self._doubtful_end(start, end)

    def _is_followed_by(self, followers: str, place: int) -> bool:
        """Return whether one of `followers` comes next, or the end of the text. The reader is at `place` afterwards."""
        self._place = place
        try:
            mark = self._next()
        except _EndOfTextError:
            mark = followers[0]
        except BrokenJsonError:
            mark = ""  # a comment that cannot be skipped
        # Two adjacent strings are really one with quotation marks in it.
        found = mark in [*followers] and (mark not in _BODIES or self._place > place)
        self._place = place
        return found

    def _doubtful_end(self, start: int, end: int) -> BrokenJsonError:
        following = self._text[end + 1 : end + 100].lstrip()[:1]
        if self._text.startswith(('"""', "'''"), start):
            cause = "three quotation marks; write one, and \\n for each line end"
        elif following == "+":
            cause = "strings joined with +; write one string"
        elif self._text[end] in _DOUBLE[1:] + _SINGLE[1:]:
            cause = 'a string between typographic quotation marks that holds others; begin and end it with "'
        elif self._text[end] == "'":
            cause = 'a string between single quotes that holds another one; begin and end it with "'
        else:
            cause = f"an unescaped quotation mark inside a string, or text after its end: {_ESCAPE_IT}"
        return self._fault(cause, end)

    def _decoded(self, mark: str, start: int, end: int, *, cut_off: bool = False) -> str:
        if fence := _FENCE_IN_STRING.search(self._text, start + 1, end):
            raise self._fault(_FENCE_CAUSE, fence.start())
        raw = self._text[start + 1 : end]
        if cut_off:
            raw = _CUT_ESCAPE.sub(r"\1", raw)
        if mark in _SINGLE:
            raw = _IN_SINGLE_QUOTES.sub(_in_double_quotes, raw)
        try:
            value = json.loads(f'"{raw}"', strict=False)
        except json.JSONDecodeError as error:
            cause = "an escape that JSON does not have; write \\\\ for each backslash inside a string"
            raise self._fault(cause, start + error.pos) from error
        self._place = min(end + 1, len(self._text))
        return str(value)

    def _constant(self, frame: _Frame, word: str) -> None:
        self._place += len(word)
        name = word.lower()
        if self._place >= len(self._text):
            name = next((whole for whole in _CONSTANTS if whole.startswith(name)), name)
        if name not in _CONSTANTS:
            raise self._fault(
                "a text without quotation marks, or after the end of one", self._place - len(word)
            )
        frame.put(_CONSTANTS[name], "word")

    def _number(self, frame: _Frame) -> None:
        match = _NUMBER.match(self._text, self._place)
        if match is None and (cut := _CUT_NUMBER.match(self._text, self._place)):
            self._place = len(self._text)
            match = _NUMBER.fullmatch(cut[1])
            if match is None:
                raise _EndOfTextError
        elif match is None:
            raise self._fault("not a number as JSON has them")
        else:
            self._place = match.end()
        try:
            frame.put(json.loads(match[0]), "word")
        except ValueError as error:
            raise BrokenJsonError("a number has too many digits", repairable=False) from error

    def _fault(self, cause: str, place: int | None = None) -> BrokenJsonError:
        return BrokenJsonError(cause, place=self._place if place is None else place)


def _in_double_quotes(match: re.Match[str]) -> str:
    """Return the replacement for a part of a single-quoted string when it gets double quotes."""
    if match[0] == '"':
        return '\\"'
    # Python reads \/ as two characters, JSON as one: an invalid escape makes it a fault.
    return {"'": "'", "/": "\\-"}.get(match[1], match[0])
