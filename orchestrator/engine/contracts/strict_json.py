"""JSON as RFC 8259 has it: no key twice, no NaN, no nesting without end, no half characters."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.engine.tools.registry import path_text, shortened

DEEPEST_LEVELS = 50
"""So deep may objects and lists be nested in each other."""


class BrokenJsonError(Exception):
    """The text is no JSON.

    Attributes:
        mendable: false where its form is right, but it asks for more than Python gives.
        place: the index of the character at which it cannot be read on, where that is known.
    """

    def __init__(self, message: str, *, mendable: bool = True, place: int | None = None) -> None:
        super().__init__(message)
        self.mendable = mendable
        self.place = place


class _Twice(dict[str, Any]):
    """An object in which a key came twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    kept = dict(pairs)
    return kept if len(kept) == len(pairs) else _Twice(kept)


def decode(text: str) -> Any:
    """The value of a text that holds nothing else. It may still have `flaws`.

    Raises:
        BrokenJsonError: it is not JSON; the message says where.
    """
    value, end = decode_at(text, len(text) - len(text.lstrip(" \t\r\n")))
    if text[end:].strip(" \t\r\n"):
        place = json.JSONDecodeError("Extra data", text, end)
        raise BrokenJsonError(str(place))
    return value


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """The value that starts at a place, and where it ends.

    Raises:
        BrokenJsonError: no JSON value starts there; the message says where it breaks off.
    """
    try:
        return json.JSONDecoder(object_pairs_hook=_object).raw_decode(text, start)
    except RecursionError as error:
        raise BrokenJsonError("nested too deeply", mendable=False) from error
    except json.JSONDecodeError as error:
        raise BrokenJsonError(str(error)) from error
    except ValueError as error:
        # Python limits how many digits an integer may have.
        raise BrokenJsonError("a number has too many digits", mendable=False) from error


def flaws(value: Any) -> tuple[str, ...]:
    """What JSON's own rules forbid but Python's reader lets through, a line each with its path."""
    found: list[str] = []
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str | float | _Twice) and (flaw := _flaw(item)):
            found.append(f"{path_text(path)}: {flaw}")
        if isinstance(item, dict | list) and len(path) >= DEEPEST_LEVELS:
            return (f"{path_text(path[:2])}: nested more than {DEEPEST_LEVELS} levels deep",)
        if isinstance(item, dict):
            waiting.extend(((*path, key), part) for key, child in item.items() for part in (key, child))
        elif isinstance(item, list):
            waiting.extend(((*path, index), child) for index, child in enumerate(item))
    return shortened(tuple(reversed(found)))


def _flaw(item: str | float | _Twice) -> str | None:
    if isinstance(item, _Twice):
        return "has a key twice"
    if isinstance(item, float):
        is_number = item - item == 0
        return None if is_number else "NaN and Infinity are not JSON"
    return None if is_text(item) else "holds half of a surrogate pair"


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
