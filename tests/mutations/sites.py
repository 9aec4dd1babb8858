"""What can be mutated, and a module that has all its mutations woven in: each asks whether it is the one that is played."""

from __future__ import annotations

import ast
import copy
import difflib
import random
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

HARMLESS = Path("tests/data/harmless_mutations.toml")
ASKS = "__mutant__"
"""The function, among the builtins, that is told each place that is reached, and says whether its mutation is played."""
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
}
_NAMES = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "startswith": "endswith",
    "endswith": "startswith",
}


@dataclass(frozen=True, slots=True)
class Site:
    """One possible mutation."""

    module: str
    number: int
    """Which of the module's nodes, in the order of `ast.walk`."""
    line: int
    at_import: bool
    """It is not in a function's body, so that the module has to be imported with it."""


@dataclass(slots=True)
class Source:
    """A module's text and tree."""

    module: str
    path: Path
    text: str = ""
    sites: list[Site] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = self.path.read_text(encoding="utf-8")
        tree = ast.parse(self.text)
        inside, left_out = _inside_functions(tree), _left_out(tree)
        for number, node in enumerate(ast.walk(tree)):
            if number not in left_out and _mutated(node) is not None:
                line: int = getattr(node, "lineno", 0)
                self.sites.append(Site(self.module, number, line, number not in inside))

    def mutant(self, site: Site) -> tuple[ast.Module, list[str], str]:
        """Return the mutated tree, its lines of the diff, and the text that stands in the place."""
        tree = ast.parse(self.text)
        node = next(node for number, node in enumerate(ast.walk(tree)) if number == site.number)
        new = _mutated(node)
        assert new is not None
        ast.copy_location(new, node)
        lines = self.text.splitlines(keepends=True)
        first, last = _lines_of(node)
        old_bytes = "".join(lines[first:last]).encode()
        start = len("".join(lines[first:first])) + node.col_offset  # type: ignore[attr-defined]
        end = len(old_bytes) - len(lines[last - 1].encode()) + node.end_col_offset  # type: ignore[attr-defined]
        text = ast.unparse(ast.fix_missing_locations(new))
        is_operation = isinstance(node, (ast.BoolOp, ast.BinOp, ast.Compare, ast.UnaryOp))
        put = f"({text})" if is_operation else text
        changed = (old_bytes[:start] + put.encode() + old_bytes[end:]).decode().splitlines(keepends=True)
        diff = [line.rstrip("\n") for line in difflib.ndiff(lines[first:last], changed) if line[0] in "+-"]
        return _Replace(node, new).visit(tree), diff, text

    def woven(self, first: int) -> ast.Module:
        """Return the tree that holds all mutations, each under its number: the first's, and one more for each."""
        tree = ast.parse(self.text)
        wanted = {site.number: first + index for index, site in enumerate(self.sites)}
        numbers = {id(node): wanted[number] for number, node in enumerate(ast.walk(tree)) if number in wanted}
        woven: ast.Module = _Weave(numbers).visit(tree)
        return ast.fix_missing_locations(woven)


class _Weave(ast.NodeTransformer):
    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        number = self._numbers.get(id(node))
        if number is None:
            return self.generic_visit(node)
        mutant: Any = _mutated(copy.deepcopy(node))
        ast.copy_location(mutant, node)
        whole: Any = self.generic_visit(node)
        asks = ast.Call(ast.Name(ASKS, ast.Load()), [ast.Constant(number)], [])
        new = (
            ast.If(asks, [mutant], [whole]) if isinstance(node, ast.stmt) else ast.IfExp(asks, mutant, whole)
        )
        return ast.copy_location(new, node)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _lines_of(node: ast.AST) -> tuple[int, int]:
    return node.lineno - 1, node.end_lineno  # type: ignore[attr-defined]


def _mutated(node: ast.AST) -> ast.AST | None:  # noqa: C901, PLR0912  one rule a branch
    """Return a changed copy of a node, or None if no rule is for its kind."""
    new: Any = copy.copy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            new.ops = [_COMPARISONS[type(op)]()]
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.IfExp(test=test) if not _has_rule(test):
            new.test = ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value)):
            new.value = value + 1
        case ast.BinOp(op=op, left=left) if (
            type(op) in _OPERATORS and not _is_text(left) and not _is_text(node.right)
        ):
            new.op = _OPERATORS[type(op)]()
        case ast.AugAssign(op=op) if type(op) in _OPERATORS:
            new.op = _OPERATORS[type(op)]()
        case ast.Name(id=name, ctx=ast.Load()) if name in _NAMES:
            new.id = _NAMES[name]
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in _NAMES:
            new.attr = _NAMES[name]
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            new.value = ast.Constant(None)
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise():
            return ast.Pass()
        case ast.Continue():
            return ast.Break()
        case ast.Break():
            return ast.Continue()
        case _:
            return None
    return new  # type: ignore[no-any-return]


def _has_rule(test: ast.expr) -> bool:
    return _mutated(test) is not None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _inside_functions(tree: ast.Module) -> set[int]:
    """Return the numbers of the nodes in functions' bodies."""
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    return {
        numbers[id(inner)]
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for part in (node.body if isinstance(node.body, list) else [node.body])
        for inner in ast.walk(part)
    }


def _left_out(tree: ast.Module) -> set[int]:
    """Return the numbers of the nodes that are not mutated.

    Annotations and what a type checker reads say nothing when the program runs, and a pattern cannot ask.
    """
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.AnnAssign():
                parts = [node.annotation]
            case ast.arg():
                parts = [node.annotation]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                parts = [node.returns]
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.pattern():
                parts = [node]
            case ast.JoinedStr():
                parts = [each.format_spec for each in node.values if isinstance(each, ast.FormattedValue)]
            case ast.Call(func=ast.Name(id="dataclass" | "field" | "TypeVar")):
                parts = [node]
            case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError" | "NotImplementedError"))):
                parts = [node]
            case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
                parts = [node]
            case _:
                continue
        found.update(numbers[id(inner)] for part in parts if part is not None for inner in ast.walk(part))
    return found


def sources(root: Path, names: Iterable[str]) -> list[Source]:
    """Return the modules that the names stand for."""
    found = []
    for name in names:
        path = root.joinpath(*name.split("."))
        paths = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        if not paths or not paths[0].is_file():
            raise SystemExit(f"no module or package {name}: name it with dots, as in an import")
        found += [Source(_dotted(root, each), each) for each in paths]
    return list({source.module: source for source in found}.values())


def _dotted(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


@dataclass(frozen=True, slots=True)
class Harmless:
    """A mutation that changes nothing that anybody can see."""

    module: str
    line: str
    """The text of the line that it changes."""
    to: str
    """What the mutation writes; any, if it is empty."""
    reason: str


def harmless(root: Path) -> list[Harmless]:
    """Return the mutations that are named as harmless."""
    return [
        Harmless(to=each.pop("to", ""), **each)
        for each in tomllib.loads((root / HARMLESS).read_text("utf-8"))["harmless"]
    ]


def is_named(source: Source, site: Site, named: Iterable[Harmless]) -> bool:
    line = source.text.splitlines()[site.line - 1].strip()
    text = source.mutant(site)[2]
    return any(e.module == site.module and e.line == line and e.to in {"", text} for e in named)


def draw(mutated: Iterable[Source], number: int, seed: int) -> list[Site]:
    """Return some of the possible mutations, the same for the same seed."""
    sites = [site for source in mutated for site in source.sites]
    return sorted(
        random.Random(seed).sample(sites, min(number, len(sites))),  # noqa: S311  no secret
        key=lambda site: (site.module, site.line),
    )
