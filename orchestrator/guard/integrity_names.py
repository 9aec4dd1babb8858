"""What the names of a Python file stand for, and which of them keep tests from running."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EXITS = frozenset({"os._exit", "sys.exit", "pytest.exit", "exit", "quit", "SystemExit"})
_SKIPS = {
    "skip": "skip marker added",
    "skipif": "skip marker added",
    "skipIf": "skip marker added",
    "skipUnless": "skip marker added",
    "skipTest": "skip added",
    "importorskip": "skip added",
    "SkipTest": "skip added",
    "xfail": "xfail marker added",
    "expectedFailure": "xfail marker added",
    "flaky": "rerun marker added",
}
_OFTEN_LEFT_OUT = frozenset({
    "slow", "integration", "e2e", "manual", "network", "online", "nightly", "quarantine", "disabled", "broken", "wip",
    "todo", "live",
})  # fmt: skip
_SKIP_ROOTS = frozenset({"pytest", "unittest", "self", "cls", "case", "nose", "mark", "twisted", "testtools"})


@dataclass(frozen=True, slots=True)
class Names:
    """What the names of a file stand for, so that another spelling hides nothing."""

    known: Mapping[str, str]

    def of(self, node: ast.AST) -> str:
        """The dotted name of an expression, of the function for a call; empty where there is none."""
        parts: list[str] = []
        while True:
            match node:
                case ast.Call(
                    func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str() as name), *_]
                ):
                    parts.append(name)
                    node = value
                case ast.Call(func=function):
                    node = function
                case ast.Attribute(value=value, attr=name):
                    parts.append(name)
                    node = value
                case ast.Name(id=name):
                    parts.append(self.known.get(name, name))
                    return ".".join(reversed(parts))
                case _:
                    return ".".join(["", *reversed(parts)]) if parts else ""

    def skip(self, node: ast.AST) -> str | None:
        """What a reference to a skip of any framework does, or None."""
        full = self.of(node)
        root, _, rest = full.partition(".")
        last = full.rpartition(".")[2]
        if last == "Exception" and full.endswith("skip.Exception"):
            return "skip added"
        if full.startswith("pytest.mark.") and last in _OFTEN_LEFT_OUT:
            return "marker added that runs often leave out"
        told = _SKIPS.get(last)
        if told is None or not (root in _SKIP_ROOTS or "mark." in rest or last in {"SkipTest", "skipTest"}):
            return None
        return "skip added" if full in {"pytest.skip", "pytest.xfail"} else told


def statements(body: Sequence[ast.stmt], *, into_definitions: bool = True) -> Iterator[ast.stmt]:
    """All statements at any depth, without a look into expressions; in their order within a block."""
    todo: list[ast.AST] = [*reversed(body)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not into_definitions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, part, None)
            if isinstance(inner, list):
                todo.extend(reversed(inner))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """All calls inside of a node. As `ast.walk`, in a third of its time."""
    todo: list[Any] = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, ast.Call):
            yield one
        for part in one._fields:
            value = getattr(one, part, None)
            if isinstance(value, ast.expr):
                todo.append(value)
            elif isinstance(value, list):
                todo.extend(inner for inner in value if isinstance(inner, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context | ast.operator):
                todo.append(value)


def names_of(tree: ast.Module) -> Names:
    """What a file imports, and what it gives another name."""
    known: dict[str, str] = {}
    names = Names(known)
    for node in statements(tree.body):
        match node:
            case ast.Import(names=aliases):
                known.update({one.asname: one.name for one in aliases if one.asname})
            case ast.ImportFrom(module=str() as module, names=aliases):
                known.update({one.asname or one.name: f"{module}.{one.name}" for one in aliases})
            case _:
                pass
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=target)], value=ast.Attribute() | ast.Call() | ast.Name() as value
            ):
                full = names.of(value)
                if full and not full.startswith("."):
                    known[target] = full
            case _:
                pass
    return names


def without_reason(node: ast.expr) -> str:
    """A marker without its reason, which people reword."""
    if not isinstance(node, ast.Call):
        return ast.dump(node)
    kept = [one for one in node.args if not (isinstance(one, ast.Constant) and isinstance(one.value, str))]
    keywords = [one for one in node.keywords if one.arg not in {"reason", "allow_module_level"}]
    return ast.dump(ast.Call(func=node.func, args=kept, keywords=keywords))
