"""Copies of Python tests: under other names, which must not matter, and with other expected values, which must.

Code that knows its tests, by their names, their files or what they expect, treats a copy otherwise. So does an
object that equals everything.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.policy.test_listing import python_tests
from orchestrator.bot.verification.base import CaseStatus
from orchestrator.engine.policy.file_syntax import without_warnings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.verification.base import CaseResult, RunResult
    from orchestrator.core.changes import FileChange

    Function = ast.FunctionDef | ast.AsyncFunctionDef

_EQUAL = re.compile(r"assert(?:List|Dict|Tuple|Set|Count|Sequence|MultiLine|Almost)?Equals?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?")
_FAR = 1_000_003
"""Added to an expected number, so that no tolerance reaches it."""


def at_stake(
    before: RunResult, kept: RunResult, changes: Iterable[FileChange], most: int
) -> dict[str, set[str]]:
    """The base's tests on whose passing with the change most depends, by file: `TestA::test_b` without parameters.

    They pass with the change's code, and failed before or are written otherwise by the change.

    Args:
        before: the base's run.
        kept: the run of the change's code with the base's tests.
        changes: everything in which the change differs from the base.
        most: how many to name.
    """
    rewritten = _rewritten(changes)
    found: defaultdict[str, set[str]] = defaultdict(set)
    left = most
    for name, case in before.cases.items():
        now = kept.cases.get(name)
        function = name.partition("::")[2].partition("[")[0]
        if not (
            left
            and case.file.endswith(".py")
            and name.startswith(f"{case.file}::")
            and now is not None
            and now.status is CaseStatus.PASSED
            and function not in found[case.file]
        ):
            continue
        if case.failed or function in rewritten.get(case.file, ()):
            found[case.file].add(function)
            left -= 1
    return {file: functions for file, functions in found.items() if functions}


def _rewritten(changes: Iterable[FileChange]) -> dict[str, set[str]]:
    """By file, its tests that the change has nowhere as they were."""
    files = [change for change in changes if change.path.endswith(".py") and change.old is not None]
    after: set[str] = set()
    for change in changes:
        if change.path.endswith(".py") and change.new is not None:
            after.update(_form(function) for _, function in _tests(change.new.content or b""))
    after.discard("")
    return {
        change.path: {
            name
            for name, function in _tests((change.old and change.old.content) or b"")
            if _form(function) not in after
        }
        for change in files
    }


def _form(function: Function) -> str:
    """A function without its layout; empty where it is too deep, or a number in it too long, to be written so."""
    try:
        return ast.dump(function)
    except (RecursionError, ValueError, MemoryError):
        return ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of some tests of one file.

    Attributes:
        original: the file's path.
        path: of the copies under other names.
        text: its content.
        spoiled_path: of the copies with other expected values.
        spoiled_text: its content; empty where no expected value is known.
        names: of the tests, by the name of their copies.
        spoiled: names of the copies that must fail.
    """

    original: str
    path: str
    text: bytes
    spoiled_path: str
    spoiled_text: bytes
    names: Mapping[str, str]
    spoiled: frozenset[str]

    @property
    def ids(self) -> list[str]:
        """What to run."""
        return [
            *(f"{self.path}::{name}" for name in self.names),
            *(f"{self.spoiled_path}::{name}" for name in sorted(self.spoiled)),
        ]

    @property
    def files(self) -> dict[str, bytes]:
        """What to write."""
        return {self.path: self.text, **({self.spoiled_path: self.spoiled_text} if self.spoiled else {})}

    def without_expectation(self, run: RunResult) -> list[str]:
        """The tests that pass whatever they expect."""
        start = f"{self.spoiled_path}::"
        passed = (
            _function(case.id, start)
            for case in run.cases.values()
            if case.id.startswith(start) and case.status is CaseStatus.PASSED
        )
        return sorted({f"{self.original}::{self.names[name]}" for name in passed if name in self.spoiled})

    def failing(self, run: RunResult, before: RunResult, kept: RunResult) -> dict[str, CaseResult]:
        """The copies under other names that fail though their originals pass, by the id of the original.

        Where the original passed on the base, its copy did too, so any failure counts. Where it failed there, it is
        not known what it finds by its own name after that place: the copy has to fail by its own assertion.
        """
        found = self._by_original(run)
        return {
            name: case
            for name, case in found.items()
            if case.status is CaseStatus.FAILED
            and (case.is_assertion or before.passed(name))
            and kept.passed(name)
        }

    def agreeing(self, run: RunResult, before: RunResult) -> set[str]:
        """The tests whose copies end on the base as they do there themselves, and for the same reason.

        Tests that did not come to an assertion there are left out: the code that they call may not be there yet.
        """
        return {
            name
            for name, copy in self._by_original(run).items()
            if (known := before.cases.get(name)) is not None
            and copy.status is known.status
            and (known.status is CaseStatus.PASSED or (known.is_assertion and copy.is_assertion))
            and self._plain(copy.message) == self._plain(known.message)
        }

    def _by_original(self, run: RunResult) -> dict[str, CaseResult]:
        start = f"{self.path}::"
        return {
            f"{self.original}::{self.names[function]}{case.id[len(start) + len(function) :]}": case
            for case in run.cases.values()
            if case.id.startswith(start) and (function := _function(case.id, start)) in self.names
        }

    def _plain(self, message: str) -> str:
        for name, original in self.names.items():
            message = message.replace(name.rpartition("::")[2], original.rpartition("::")[2])
        message = message.replace(self.path, self.original)
        for path in (self.path, self.original):
            message = message.replace(posixpath.basename(path).removesuffix(".py"), "")
        return _ADDRESS.sub("0", message)


def copy_tests(path: str, source: bytes, names: Iterable[str], tokens: tuple[str, str]) -> Copies | None:
    """Copy a file of tests twice; None where none of them is found in it.

    Args:
        path: of the file.
        source: its content.
        names: tests in it, as in `TestA::test_b`.
        tokens: words of letters and digits that nobody can guess, for the two files' names and their tests'.
    """
    functions = {name: function for name, function in _tests(source) if name in set(names)}
    folder, file = posixpath.split(path)
    named: dict[str, str] = {}
    edits: list[tuple[int, int, bytes]] = []
    spoils: list[tuple[int, int, bytes]] = []
    spoiled: set[str] = set()
    lines = _Lines(source)
    for number, (name, function) in enumerate(functions.items()):
        outer = name.rpartition("::")[0]
        place = lines.name_of(function)
        if place is None:
            continue
        copy = f"test_{tokens[0]}_{number}"
        edits.append((*place, copy.encode("ascii")))
        qualified = f"{outer}::{copy}" if outer else copy
        named[qualified] = name
        if (constant := _expected(function)) is not None:
            start, end = lines.span(constant)
            spoils.append((start, end, _other(constant, source[start:end])))
            spoiled.add(qualified)
    if not named:
        return None
    first, second = (
        posixpath.join(folder, f"test_{token}.py" if file.startswith("test") else f"{token}_test.py")
        for token in tokens
    )
    text, other = _edited(source, edits), _edited(source, [*edits, *spoils]) if spoils else b""
    return Copies(path, first, text, second, other, named, frozenset(spoiled))


def _function(name: str, start: str) -> str:
    return name[len(start) :].partition("[")[0]


def _tests(source: bytes) -> Iterator[tuple[str, Function]]:
    """The test functions of a file, also those in classes, each with its name."""
    try:
        text = source.decode("utf-8")
        tree = without_warnings(lambda: ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for test in python_tests(tree):
        yield "::".join(test.names), test.node


def _expected(function: Function) -> ast.Constant | None:
    """A constant that something is compared with on every way through the test."""
    for statement in function.body:
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
            compared = statement.test
            if len(compared.ops) == 1 and isinstance(compared.ops[0], ast.Eq):
                sides = (compared.left, compared.comparators[0])
            else:
                continue
        elif (
            isinstance(statement, ast.Expr)
            and isinstance(call := statement.value, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and _EQUAL.fullmatch(call.func.attr)
            and call.args[1:]
        ):
            sides = (call.args[0], call.args[1])
        elif any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in ast.walk(statement)):
            return None
        else:
            continue
        try:
            constants = [_constant(side) for side in sides]
        except RecursionError:
            return None
        if constants.count(None) == 1:
            return constants[0] or constants[1]
    return None


def _constant(node: ast.expr) -> ast.Constant | None:
    """The first constant of a literal or of `approx(literal)`; None where there is no literal."""
    if isinstance(node, ast.Constant):
        return node if isinstance(node.value, int | float | str | bytes) else None
    if isinstance(node, ast.UnaryOp):
        return _constant(node.operand)
    inner: Sequence[ast.expr] = ()
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        inner = node.elts
    elif isinstance(node, ast.Dict):
        inner = node.values
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        inner = node.args[:1] if name == "approx" else ()
    return next(filter(None, map(_constant, inner)), None)


def _other(constant: ast.Constant, written: bytes) -> bytes:
    """Another value in place of a constant, as Python is written."""
    value = constant.value
    if isinstance(value, bool):
        return b"(not %s)" % written
    if isinstance(value, int | float):
        return b"(%s * 3 + %d)" % (written, _FAR)
    return b"(%s + %s)" % (written, b"b'-other'" if isinstance(value, bytes) else b"'-other'")


class _Lines:
    """Places in a source, as `ast` names them, as offsets."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None  # noqa: S101  for the type checker: parsed nodes have an end
        assert node.end_col_offset is not None  # noqa: S101  the same
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def name_of(self, function: Function) -> tuple[int, int] | None:
        """Where a function's name is written."""
        start = self._at(function.lineno, function.col_offset)
        found = re.compile(rb"(?:async[ \t]+)?def[ \t]+(\w+)").match(self._source, start)
        return None if found is None or found[1] != function.name.encode() else found.span(1)

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def _edited(source: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source
