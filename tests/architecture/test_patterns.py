"""Regular expressions that match the same under each Python 3.11."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.architecture.modules import modules
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOLE = "\0"
"""Stands for what an f-string puts in: one character, or a group."""
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|\(|(?P<close>\)|\0)(?P<possessive>(?:[*+?]|\{[\d,]+\})\+)?|[^\\\[()\0]+|.",
    re.DOTALL,
)
_CHARACTERS = re.compile(r"\(\?:(?:\\[^\dAbBZ]|\[\^?\]?(?:[^\]\\]|\\.)*\]|[^\\\[\]()*+?{}|^$\0])+")


def risky_repeats(pattern: str) -> list[str]:
    """Possessive repeats of more than a fixed row of characters. `(?>(?:...)*)` is the same, and right.

    Before Python 3.11.5 `(?:...)*+` goes on at a wrong place after the last try of the group, if the try failed
    behind a choice, a repeat or a look-around: https://github.com/python/cpython/issues/106052. A group that
    captures raises SystemError in each 3.11: https://github.com/python/cpython/issues/101955.
    """
    found, opened = [], []
    for token in _TOKEN.finditer(pattern):
        if token[0] == "(":
            opened.append(token.start())
        start = token.start()
        if token["close"] == ")":
            start = opened.pop() if opened else 0
        if token["possessive"] and not _CHARACTERS.fullmatch(pattern, start, token.end("close") - 1):
            found.append(pattern[start : token.end()])
    return found


def written_text(nodes: Iterable[ast.AST]) -> list[tuple[int, str]]:
    """The strings of a module with their lines."""
    found: list[tuple[int, str]] = []
    pieces: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            pieces.update(map(id, node.values))
            text = "".join(str(x.value) if isinstance(x, ast.Constant) else _HOLE for x in node.values)
            found.append((node.lineno, text))
        elif (
            isinstance(node, ast.Constant) and id(node) not in pieces and isinstance(node.value, (str, bytes))
        ):
            value = node.value
            found.append((node.lineno, value if isinstance(value, str) else value.decode("latin-1")))
    return found


@table(
    "pattern",
    [
        r"(?:ab?c)*+",
        r"(?:a|b)++",
        r"(?:a(?!b))?+",
        r"(?:[)]|\))*+",
        r"x(?: [0-9]{2})++y",
        r"(a){0,9}+",
        r"(?:a\b)*+",
        r"(?:a(?:b)){2}+",
        ")*+",
        f"{_HOLE}*+",
        f"(?:{_HOLE})++",
    ],
)
def test_a_risky_repeat_is_seen(pattern: str) -> None:
    assert risky_repeats(pattern)


@table(
    "pattern",
    [r"a*+", r"[()]*+", r"[^\])]++", r"\)*+", r"(?:amp;)*+", r"(?:\\\\)*+", r"(?>(?:a|b)*)", "(a)+", ".?+"],
)
def test_a_repeat_of_characters_is_not(pattern: str) -> None:
    assert not risky_repeats(pattern)


def test_no_pattern_has_a_risky_repeat() -> None:
    found = [
        f"{module.name}:{line}: {repeat}"
        for module in modules()
        for line, text in written_text(module.nodes)
        if "+" in text  # else nothing is possessive
        for repeat in risky_repeats(text)
        if not repeat.startswith("()")  # an alphabet, not a pattern
    ]
    assert not found
