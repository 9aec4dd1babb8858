"""The modules of the program, each read and parsed once for all tests that look at the code."""

from __future__ import annotations

import ast
import functools
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "orchestrator"
_WITHOUT_PLACE = ast.expr_context | ast.operator | ast.unaryop | ast.cmpop | ast.boolop


@dataclass(frozen=True, slots=True)
class Module:
    """A module's code. Nobody changes its nodes: other tests read them, too.

    Attributes:
        name: its file below the package, as `core/events.py`.
        nodes: every node of its tree that has a place in the text, those of the same depth together.
    """

    name: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]


def parsed(source: bytes, name: str = "module.py") -> Module:
    """Parse a module's text."""
    tree = ast.parse(source)
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # it grows
        nodes.extend(children(node))
    return Module(name, tree, tuple(nodes))


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a node that have a place in the text."""
    for value in vars(node).values():
        if isinstance(value, list):
            yield from (one for one in value if isinstance(one, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, _WITHOUT_PLACE):
            yield value


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return every module of the program, by name."""
    gc.disable()  # none of the new nodes is garbage, and to look whether one is takes twice as long as to parse
    try:
        return tuple(
            parsed(path.read_bytes(), path.relative_to(PACKAGE).as_posix())
            for path in sorted(PACKAGE.rglob("*.py"))
        )
    finally:
        gc.enable()


def dotted(node: ast.AST) -> str:
    """Return an expression as it is written: quickly if it is a name with its attributes."""
    names: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    return ".".join((inner.id, *reversed(names))) if isinstance(inner, ast.Name) else ast.unparse(node)
