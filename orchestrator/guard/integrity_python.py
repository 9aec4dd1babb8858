"""Reads the tests of a Python file from its syntax tree. Nothing of the file is run."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.guard.integrity_assertions import never_holds
from orchestrator.guard.integrity_names import EXITS, calls_in, names_of, statements, without_reason
from orchestrator.guard.integrity_tests import Checks
from orchestrator.guard.integrity_walk import Found, Walk
from orchestrator.guard.syntax import without_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises for a file that it cannot read, and a walk through one that is nested too deeply."""

# Hooks that decide which tests run and what a result is:
# https://docs.pytest.org/en/stable/reference/reference.html#hooks
_HOOKS = frozenset({
    "pytest_collection_modifyitems", "pytest_collect_file", "pytest_collection", "pytest_deselected",
    "pytest_ignore_collect", "pytest_itemcollected", "pytest_make_collect_report", "pytest_pycollect_makeitem",
    "pytest_pyfunc_call", "pytest_report_teststatus", "pytest_runtest_call", "pytest_runtest_makereport",
    "pytest_runtest_protocol", "pytest_runtestloop", "pytest_sessionfinish", "pytest_cmdline_main",
    "pytest_runtest_logreport", "load_tests",
})  # fmt: skip
_SKIPPING_NAME = re.compile(r"skip|xfail|(?:^|_)disabled?(?:_|$)", re.IGNORECASE)
_CHECKING_NAME = re.compile(r"_*(?:assert|check|verify|expect|ensure)", re.IGNORECASE)


def python_pair(
    before: bytes, after: bytes, *, collected_file: bool
) -> tuple[dict[str, Checks], dict[str, Checks]]:
    """The functions of a test file by qualified name, before and after; what stands outside has the empty name.

    Functions that are the same on both sides are not looked into.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: one of the two is no Python, or nested too deeply.
    """
    old = _Reader(parsed(before), before, collected_file=collected_file)
    new = _Reader(parsed(after), after, collected_file=collected_file)
    if old.context == new.context:
        after_texts = new.texts()
        same = frozenset(name for name, texts in old.texts().items() if after_texts.get(name) == texts)
        return old.read(same), new.read(same)
    return old.read(), new.read()


def parsed(source: bytes) -> ast.Module:
    """The syntax tree."""
    return without_warnings(lambda: ast.parse(source))


class _Reader:
    """Reads one file."""

    def __init__(self, tree: ast.Module, source: bytes, *, collected_file: bool) -> None:
        self._tree = tree
        self._lines = source.splitlines()
        self._collected_file = collected_file
        self._names = names_of(tree)
        self._tables = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        self._empty = frozenset(_without_demands(tree))
        self._checks: dict[str, Checks] = {}
        self._order: list[str] = []
        self._judged: dict[str, tuple[list[tuple[str, str]], list[str] | None]] = {}
        self._same: frozenset[str] = frozenset()
        self._outer = Found()

    @property
    def context(self) -> object:
        """What a function's meaning depends on outside of its own text."""
        skips = {
            name: full for name, full in self._names.known.items() if self._names.skip(ast.Name(id=name))
        }
        return skips, self._empty

    def texts(self) -> dict[str, list[str]]:
        """The texts of all functions of a name, which may be defined more than once: the last one counts."""
        found: dict[str, list[str]] = {}
        todo: list[tuple[str, Sequence[ast.stmt]]] = [("", self._tree.body)]
        while todo:
            prefix, body = todo.pop()
            for node in statements(body, into_definitions=False):
                if isinstance(node, ast.ClassDef):
                    todo.append((f"{prefix}{node.name}.", node.body))
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.setdefault(f"{prefix}{node.name}", []).append(self._text(node))
        return found

    def _text(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        lines = self._lines[first - 1 : node.end_lineno or node.lineno]
        return b"\n".join(lines).decode("utf-8", "replace")

    def read(self, same: frozenset[str] = frozenset()) -> dict[str, Checks]:
        """The functions; those in `same`, by name, without their assertions."""
        self._same = same
        outside, whole = Found(), Found()
        self._outer = outside
        self._block(self._tree.body, "", whole, collected=self._collected_file)
        self._inherit(0, whole)
        words = frozenset[str]()
        # Its text is what was found there, so that other code outside of tests does not count as a change.
        text = repr((outside.skips, [one.key for one in outside.assertions]))
        assertions = tuple(outside.assertions)
        self._checks[""] = Checks("", 1, False, assertions, tuple(outside.skips), None, words, text)
        return self._checks

    def _block(self, body: Sequence[ast.stmt], prefix: str, outside: Found, *, collected: bool) -> None:
        """Statements of a module or a class."""
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._function(node, prefix, collected=collected)
                case ast.ClassDef():
                    self._class(node, prefix, collected=collected)
                case ast.If(
                    test=ast.Compare(
                        left=ast.Name(id="__name__"),
                        ops=[ast.Eq()],
                        comparators=[ast.Constant(value="__main__")],
                    )
                ):
                    pass  # runs only where the file is a program
                case ast.If(test=test, body=then, orelse=otherwise):
                    self._block(then, prefix, outside, collected=collected and not never_holds(test))
                    self._block(otherwise, prefix, outside, collected=collected)
                case ast.With(body=inner) | ast.For(body=inner) | ast.While(body=inner):
                    self._block(inner, prefix, outside, collected=collected)
                case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=final):
                    parts = [inner, *(one.body for one in handlers), otherwise, final]
                    for part in parts:
                        self._block(part, prefix, outside, collected=collected)
                case _:
                    self._outside(node, prefix, outside)

    def _class(self, node: ast.ClassDef, prefix: str, *, collected: bool) -> None:
        # A class with a base may be a TestCase; one without is found by its name.
        runs = collected and (node.name.startswith("Test") or bool(node.bases))
        mine = Found()
        name = f"{prefix}{node.name}"
        start = len(self._order)
        for decorator in node.decorator_list:
            mine.skips.extend(self._markers(decorator, name))
        self._block(node.body, f"{name}.", mine, collected=runs)
        self._inherit(start, mine)

    def _inherit(self, start: int, mine: Found) -> None:
        """What keeps a class or a file from running keeps each of its functions from running."""
        if not mine.skips:
            return
        for name in dict.fromkeys(self._order[start:]):
            if (checks := self._checks.get(name)) is not None:
                text = checks.text + repr([what for what, _ in mine.skips])
                self._checks[name] = replace(checks, skips=(*checks.skips, *mine.skips), text=text)

    def _outside(self, node: ast.stmt, prefix: str, outside: Found) -> None:
        """A statement of a module or class that may keep tests from running."""
        where = prefix.rstrip(".")
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assigned(target, value, where, outside)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assigned(target, value, where, outside)
            case ast.AugAssign(
                target=ast.Name(id="collect_ignore" | "collect_ignore_glob" | "pytestmark"), value=value
            ):
                what = f"files or marks added to those that are not run\0{ast.dump(value)}"
                self._outer.skips.append((what, node.lineno))
            case ast.Delete(targets=targets):
                for target in targets:
                    gone = f"{prefix}{self._names.of(target)}"
                    if self._checks.pop(gone, None):
                        self._outer.skips.append((f"a test deleted by `del`\0{gone}", node.lineno))
            case ast.Expr(value=ast.Call() as left) | ast.Raise(exc=ast.expr() as left):
                self._left(left, where, outside)
            case _:
                pass

    def _left(self, call: ast.expr, where: str, outside: Found) -> None:
        """A call or an error at the level of a file that ends the file or the run."""
        if (told := self._names.skip(call)) is not None:
            outside.skips.append((f"{told} for the whole file\0{without_reason(call)}", call.lineno))
        elif self._names.of(call) in EXITS:
            self._outer.skips.append((f"the test run is left early\0{where}", call.lineno))

    def _assigned(self, target: ast.expr, value: ast.expr, where: str, outside: Found) -> None:
        match target:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                last = name
            case _:
                return
        line = target.lineno
        if last == "pytestmark":
            outside.skips.extend(self._markers(value, where or "pytestmark"))
        elif last in {"collect_ignore", "collect_ignore_glob"}:
            for entry in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
                self._outer.skips.append((f"a file is no longer collected\0{ast.dump(entry)}", line))
        elif last == "__test__" and never_holds(value):
            outside.skips.append((f"`__test__ = False`\0{name}", line))
        elif last.startswith("test") and (f"{where}.{name}".lstrip(".") in self._checks):
            self._checks.pop(f"{where}.{name}".lstrip("."))
            self._outer.skips.append((f"a test replaced by a value\0{name}", line))

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, *, collected: bool
    ) -> None:
        name = f"{prefix}{node.name}"
        if node.name in _HOOKS and not prefix:
            self._outer.skips.append(
                (f"hook `{node.name}` that can change what runs or counts\0", node.lineno)
            )
        found = Found()
        for decorator in node.decorator_list:
            found.skips.extend(self._markers(decorator, ""))
        text = self._text(node)
        if name not in self._same:
            walk = Walk(self._names, self._demands, found)
            walk.block(node.body, conditional=False)
            found.skips.extend(walk.early_exits())
        text += repr([what for what, _ in found.skips])
        self._order.append(name)
        cases = self._cases(node)
        runs = collected and node.name.startswith("test")
        words = frozenset(_WORD.findall(text)) - _COMMON - {node.name}
        assertions = tuple(found.assertions)
        self._checks[name] = Checks(
            name, node.lineno, runs, assertions, tuple(found.skips), cases, words, text
        )

    def _demands(self, name: str) -> bool:
        return name not in self._empty and _CHECKING_NAME.match(name) is not None

    def _markers(self, node: ast.expr, where: str) -> Iterator[tuple[str, int]]:
        """Skips anywhere inside a decorator, the marks of single cases included."""
        table = self._table(node)
        line = node.lineno
        yield from ((f"{told}\0{where}{key}", line) for told, key in self._marked(node))
        if isinstance(table, ast.Name):
            marks, _ = self._of_table(table.id)
            yield from ((f"{told}\0{where}{key}", line) for told, key in marks)

    def _marked(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        seen: set[int] = set()
        for one in ast.walk(node):
            if id(one) in seen or not isinstance(one, ast.Call | ast.Attribute | ast.Name):
                continue
            told = self._names.skip(one)
            if told is None and one is node and _SKIPPING_NAME.search(self._names.of(one).rpartition(".")[2]):
                told = "skip marker added"
            if told is not None:
                seen.update(map(id, ast.walk(one)))
                yield told, without_reason(one)

    def _of_table(self, name: str) -> tuple[list[tuple[str, str]], list[str] | None]:
        """The marks and cases of a table that has a name, looked at once however many tests use it."""
        if name not in self._judged:
            value = self._tables.get(name)
            self._judged[name] = ([], None) if value is None else (list(self._marked(value)), _listed(value))
        return self._judged[name]

    def _table(self, decorator: ast.expr) -> ast.expr | None:
        match decorator:
            case ast.Call(args=[_, value, *_]) if self._names.of(decorator).endswith("parametrize"):
                return value
            case _:
                return None

    def _cases(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...] | None:
        cases: list[str] | None = None
        for decorator in node.decorator_list:
            table = self._table(decorator)
            listed = self._of_table(table.id)[1] if isinstance(table, ast.Name) else _listed(table)
            if listed is not None:
                cases = [*(cases or ()), *listed]
        return None if cases is None else tuple(cases)


_MAX_CASES = 500
"""Longer tables are made by programs, and are not compared."""


def _listed(table: ast.expr | None) -> list[str] | None:
    match table:
        case ast.List(elts=every) | ast.Tuple(elts=every) | ast.Set(elts=every):
            known = len(every) <= _MAX_CASES and not any(isinstance(one, ast.Starred) for one in every)
            return [ast.dump(one) for one in every] if known else None
        case _:
            return None


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_COMMON = frozenset({
    "def", "self", "assert", "return", "None", "True", "False", "with", "as", "for", "in", "if", "is", "not",
    "async", "await", "pytest", "import", "from", "and", "or", "a", "the", "of", "str", "int", "len", "list", "to",
})  # fmt: skip


def _without_demands(tree: ast.Module) -> Iterator[str]:
    """The functions whose names say that they check something, and that do nothing of the kind."""
    for node in statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _CHECKING_NAME.match(node.name):
            inside = [one for part in node.body for one in statements([part])]
            asserts = any(isinstance(one, ast.Assert | ast.Raise) for one in inside)
            if not asserts and not any(True for part in node.body for _ in calls_in(part)):
                yield node.name
