"""Write what the documentation tells of the program by itself: tables made from the code, and the pictures.

python -m tests.pages
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import for_outcome
from orchestrator.app.options import all_options, flag_of, kind
from orchestrator.bot.cycle import parts
from orchestrator.core import events
from tests.pictures import PICTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum
    from types import ModuleType

DOCS = Path(__file__).parents[1] / "docs"
OPTIONS_PAGE = DOCS / "options.md"
REFERENCE_PAGE = DOCS / "reference.md"
_RULE = re.compile(r"[^|]+")
_ROWS = re.compile(r"\A\n(?:\|.*\n)*")


def option_rows() -> list[tuple[str, ...]]:
    """All options."""
    return [_option(key) for key in all_options()]


def outcome_rows() -> list[tuple[str, ...]]:
    """How a cycle may end."""
    meanings = _meanings(parts, parts.Outcome)
    return [(f"`{one}`", meanings[one], str(for_outcome(one))) for one in parts.Outcome]


def event_rows() -> list[tuple[str, ...]]:
    """The events of a run, in the order in which the code has them."""
    found: list[tuple[str, ...]] = []
    for event in typing.get_args(events.Event):
        fields = ", ".join(f"`{one.name}`" for one in dataclasses.fields(event))
        words = (inspect.getdoc(event) or "").partition("\n\n")[0].replace("\n", " ")
        found.append((f"`{event.__name__}`", fields, words))
    return found


def defence_rows() -> list[tuple[str, ...]]:
    """What stands between others' words, a model, and the outside."""
    meanings = _meanings(events, events.Defence)
    return [(f"`{one}`", meanings[one]) for one in events.Defence]


TABLES: dict[str, tuple[Path, Callable[[], list[tuple[str, ...]]]]] = {
    "| key | flag | default | what it is |": (OPTIONS_PAGE, option_rows),
    "| outcome | what it means | exit status |": (REFERENCE_PAGE, outcome_rows),
    "| event | fields | what it says |": (REFERENCE_PAGE, event_rows),
    "| defence | what it does |": (REFERENCE_PAGE, defence_rows),
}
"""Each table that is written, by its first line."""


def table_text(head: str) -> str:
    """A table, as Markdown."""
    rows = "".join(f"| {' | '.join(row)} |\n" for row in TABLES[head][1]())
    return f"{head}\n{_RULE.sub('---', head)}\n{rows}"


def _option(key: str) -> tuple[str, ...]:
    option = all_options()[key]
    default = str(option.default).lower() if kind(key) is bool else option.default
    shown = "" if default in {None, ()} else f"`{default}`"
    return f"`{key}`", f"`{flag_of(key)}`", shown, option.description


def _meanings(module: ModuleType, enum: type[StrEnum]) -> dict[StrEnum, str]:
    """What stands below each member in the source."""
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == enum.__name__
    )
    found = {}
    for node, after in itertools.pairwise(body):
        if (
            isinstance(node, ast.Assign)
            and isinstance(after, ast.Expr)
            and isinstance(node.targets[0], ast.Name)
        ):
            words = ast.literal_eval(after.value)
            found[enum[node.targets[0].id]] = " ".join(str(words).split())
    return found


if __name__ == "__main__":
    for first, (path, _) in TABLES.items():
        before, _found, rest = path.read_text(encoding="utf-8").partition(first)
        path.write_text(before + table_text(first) + _ROWS.sub("", rest, count=1), encoding="utf-8")
    for picture, draw in PICTURES.items():
        picture.write_text(draw(), encoding="utf-8")
