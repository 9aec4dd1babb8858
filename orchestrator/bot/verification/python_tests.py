"""Support for Python tests: pytest commands, a control test that must fail, and copies of tests.

pytest's own rules: https://docs.pytest.org/en/stable/reference/reference.html, checked with 9.2. Each test is copied
twice. The copy with another name must have the same result, and the copy with another expected value must fail.
This detects code that recognizes its tests by their names, files or expected values, and objects that equal everything.
"""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from orchestrator.bot.policy.test_listing import python_tests
from orchestrator.bot.verification.base import CaseStatus
from orchestrator.core.errors import ToolError
from orchestrator.engine.policy.file_syntax import without_warnings
from orchestrator.engine.policy.shell import Unparsed, parse_line

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.verification.base import CaseResult, RunResult
    from orchestrator.core.changes import FileChange

    Function = ast.FunctionDef | ast.AsyncFunctionDef

MOST_IDS = 50
"""Most tests that one call names; for more, all tests are run."""
_MOST_ID_CHARS = 1_000

# Words that follow other options may be their values: `src` in `--cov src`, but not `tests` in `-q tests`.
_OPTIONS_WITHOUT_VALUE = re.compile(
    r"-[qvslxh]+|-r[a-zA-Z]*|-n[0-9a-z]+|-[knmpcoW].+|--[^=]+=.*|--(?:verbose|quiet|exitfirst|lf|ff|nf|last-failed|failed-first"
    r"|new-first|sw|stepwise|strict-markers|strict-config|strict|doctest-modules|doctest-continue-on-failure|showlocals"
    r"|no-header|no-summary|disable-warnings|no-cov|full-trace|runxfail|pyargs|noconftest|cache-clear|forked|benchmark-skip"
    r"|reverse|random-order|disable-socket|continue-on-collection-errors)"
)
_OPTIONS_WITH_VALUE = frozenset({"-c", "--with", "--group", "--extra", "--only-group"})
"""Options of shells and of uv whose value may have the same name as pytest."""
_STOPS_EARLY = re.compile(r"-(?>[a-z]*?x)[a-z]*|--exitfirst|--maxfail(?:=.*)?|--sw|--stepwise(?:-skip)?")
_MODULE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py", re.DOTALL)
_ID_FILE = re.compile(r"[^-@:\\~$%/][^:\\]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PytestCall:
    """A command that consists of a single call of pytest.

    Attributes:
        start: index of pytest's first argument.
        prefix: variable assignments before the command.
    """

    words: tuple[str, ...]
    start: int
    prefix: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of pytest."""
        return self.words[self.start :]

    @property
    def allows_control(self) -> bool:
        """Whether the control test, which fails, leaves the results of the other tests unchanged."""
        return not any(_STOPS_EARLY.fullmatch(word) or "fail-under" in word for word in self.arguments)

    def selecting(self, ids: Sequence[str]) -> str:
        """Return the command with these tests in place of those that it names."""
        options: list[str] = []
        for before, word in pairwise(("", *self.arguments)):
            is_value = before.startswith("-") and not _OPTIONS_WITHOUT_VALUE.fullmatch(before)
            if word.startswith("-") or is_value:
                options.append(word)
        # The ids precede the options, because the last option may take a value.
        words = shlex.join([*self.words[: self.start], *ids, *options])
        assignments = (text.partition("=") for text in self.prefix)
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, _, value in assignments), words])


def parse_pytest(command: str) -> PytestCall | None:
    """Parse a command as a call of pytest; return None if it is anything else, or more."""
    try:
        line = parse_line(command)
    except Unparsed:
        return None
    simple = line.commands[0]
    if len(line.commands) > 1 or simple.redirects or any(word.is_glob for word in simple.words):
        return None
    words = simple.argv
    for place, word in enumerate(words):
        is_value = place > 0 and words[place - 1] in _OPTIONS_WITH_VALUE
        if posixpath.basename(word) in {"pytest", "py.test"} and not is_value:
            return PytestCall(words, place + 1, tuple(word.text for word in simple.assignments))
    return None


def pytest_variables(report: str) -> dict[str, str]:
    """Return the environment variables that make pytest write a report, however it is started.

    These options override the repository's settings; those of the command override them. The report format
    `xunit1` names the file of each test. All tests run, even if a file cannot be loaded.

    Args:
        report: the report's absolute path.
    """
    options = (
        f"--junitxml={report}",
        "-o",
        "junit_family=xunit1",
        "-o",
        "junit_logging=no",
        "--maxfail=0",
        "--continue-on-collection-errors",
    )
    return {"PYTEST_ADDOPTS": shlex.join(options)}


def checked_ids(ids: Iterable[str], paths: Container[str]) -> list[str]:
    """Return test ids for a call of pytest: each names a file or folder of the tree, and is not an option.

    Args:
        ids: as a model wrote them.
        paths: the files and folders of the tree.

    Raises:
        ToolError: an id is invalid, or there are more than `MOST_IDS`.
    """
    checked = list(dict.fromkeys(one.strip() for one in ids))
    for one in checked:
        file, _, rest = one.partition("::")
        file = file.rstrip("/")
        plain = is_plain_id(one) and (not rest or file.endswith((".py", ".txt", ".md", ".rst")))
        if not plain or file not in paths:
            raise ToolError(
                f"no test is called {one[:200]!r}: name a file of the repository, or a test in it as in "
                "tests/test_a.py::test_b or tests/test_a.py::TestC::test_d"
            )
    if len(checked) > MOST_IDS:
        raise ToolError(f"name at most {MOST_IDS} tests, or none for all of them")
    return checked


def is_plain_id(text: str) -> bool:
    """Return whether a text can be an argument that names tests: not an option, an argument file or an outside path."""
    file = text.partition("::")[0]
    return (
        len(text) <= _MOST_ID_CHARS
        and text.isprintable()
        and _ID_FILE.fullmatch(file) is not None
        and ".." not in file.split("/")
    )


def is_module(path: str) -> bool:
    """Return whether pytest collects tests from a file of this name by default."""
    return _MODULE.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class ControlTest:
    """A test that always fails, added to those of the repository: it shows that failures are still reported.

    Attributes:
        folder: its folder, relative to the tree; empty for the top.
        affixes: beginning and end of the file's name, like those of the other files there.
    """

    folder: str
    affixes: tuple[str, str]

    def path(self, token: str) -> str:
        """Return the file's path. It sorts after the other files, so that it runs last."""
        return posixpath.join(self.folder, f"{self.affixes[0]}zz{token}{self.affixes[1]}")

    @staticmethod
    def text(token: str) -> str:
        """Return the file's content."""
        return f'def test_{token}():\n    raise AssertionError("{token}")\n'


def choose_control(paths: Iterable[str]) -> ControlTest | None:
    """Choose the place of the control test: the folder with the most test files; None if there is none."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for path in filter(is_module, paths):
        names[posixpath.dirname(path)].append(posixpath.basename(path))
    if not names:
        return None
    folder = max(names, key=lambda one: (len(names[one]), one))
    starts = sum(name.startswith("test_") for name in names[folder])
    return ControlTest(folder, ("test_", ".py") if 2 * starts >= len(names[folder]) else ("zz", "_test.py"))


EXIT_SETTINGS = r"fail[_-]under|pytest_sessionfinish|pytest_runtestloop|testsfailed"
"""Settings that make pytest exit as if tests had failed, which would hide the failure of the control test."""
SETTINGS_FILES = ("*.py", "*.toml", "*.cfg", "*.ini", "*.coveragerc")
"""Names of the files that may contain such settings."""


_EQUAL = re.compile(r"assert(?:List|Dict|Tuple|Set|Count|Sequence|MultiLine|Almost)?Equals?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?")
_FAR = 1_000_003
"""Added to an expected number, so that it exceeds every tolerance."""


def select_tests(
    before: RunResult, kept: RunResult, changes: Iterable[FileChange], most: int
) -> dict[str, set[str]]:
    """Select the base's tests that a dishonest change would make pass, by file: `TestA::test_b`, without parameters.

    They pass with the change's code, and failed before or are rewritten by the change.

    Args:
        kept: the run of the change's code with the base's tests.
        changes: all differences between change and base.
        most: how many to select at most.
    """
    rewritten = _rewritten(changes)
    found: dict[str, set[str]] = {}
    for name, case in before.cases.items():
        function = name.partition("::")[2].partition("[")[0]
        is_suspect = case.failed or function in rewritten.get(case.file, ())
        is_python = case.file.endswith(".py") and name.startswith(f"{case.file}::")
        if is_suspect and is_python and kept.passed(name):
            found.setdefault(case.file, set()).add(function)
            if sum(map(len, found.values())) >= most:
                break
    return found


def _rewritten(changes: Iterable[FileChange]) -> dict[str, set[str]]:
    """Return the tests, by file, that no longer exist in their original form."""
    files = [change for change in changes if change.path.endswith(".py")]
    after = {
        _syntax(function)
        for change in files
        for _, function in _tests((change.new and change.new.content) or b"")
    } - {""}
    return {
        change.path: {
            name
            for name, function in _tests((change.old and change.old.content) or b"")
            if _syntax(function) not in after
        }
        for change in files
    }


def _syntax(function: Function) -> str:
    """Return a function's syntax tree as text; empty if it is nested too deeply or contains too long a number."""
    try:
        return ast.dump(function)
    except (RecursionError, ValueError, MemoryError):
        return ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of some tests of one file.

    Attributes:
        original: the file of the tests.
        path: the file of the renamed copies.
        text: its content.
        altered_path: the file of the copies with other expected values.
        altered_text: its content; empty if no expected value is known.
        names: the names of the tests, by the names of their copies.
        altered: the names of the copies that have another expected value, and must fail.
    """

    original: str
    path: str
    text: bytes
    altered_path: str
    altered_text: bytes
    names: Mapping[str, str]
    altered: frozenset[str]

    @property
    def ids(self) -> list[str]:
        """The ids of the copies."""
        return [
            *(f"{self.path}::{name}" for name in self.names),
            *(f"{self.altered_path}::{name}" for name in sorted(self.altered)),
        ]

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of the files to write, by path."""
        return {self.path: self.text, **({self.altered_path: self.altered_text} if self.altered else {})}

    def passing_altered(self, run: RunResult) -> list[str]:
        """Return the tests that pass whatever value they expect."""
        start = f"{self.altered_path}::"
        passed = {
            case.id.removeprefix(start).partition("[")[0]
            for case in run.cases.values()
            if case.id.startswith(start) and case.status is CaseStatus.PASSED
        }
        return sorted(f"{self.original}::{self.names[name]}" for name in passed & self.altered)

    def failing_renamed(self, run: RunResult, before: RunResult, kept: RunResult) -> dict[str, CaseResult]:
        """Return the renamed copies that fail although their originals pass, by the id of the original.

        If the original passed on the base, any failure of the copy counts. If it failed there, code of the
        test after that failure may depend on its name; then only a failed assertion counts.
        """
        return {
            name: case
            for name, case in self._by_original(run).items()
            if case.status is CaseStatus.FAILED
            and (case.is_assertion or before.passed(name))
            and kept.passed(name)
        }

    def comparable(self, run: RunResult, before: RunResult) -> set[str]:
        """Return the tests whose renamed copies have the originals' results and messages on the base.

        Tests that reached no assertion there are left out: the code that they call may not exist yet.
        """
        return {
            name
            for name, copy in self._by_original(run).items()
            if (known := before.cases.get(name)) is not None
            and copy.status is known.status
            and (known.status is CaseStatus.PASSED or (known.is_assertion and copy.is_assertion))
            and self._without_names(copy.message) == self._without_names(known.message)
        }

    def _by_original(self, run: RunResult) -> dict[str, CaseResult]:
        start = f"{self.path}::"
        return {
            f"{self.original}::{self.names[function]}{case.id[len(start) + len(function) :]}": case
            for case in run.cases.values()
            if case.id.startswith(start)
            and (function := case.id.removeprefix(start).partition("[")[0]) in self.names
        }

    def _without_names(self, message: str) -> str:
        for name, original in self.names.items():
            message = message.replace(name.rpartition("::")[2], original.rpartition("::")[2])
        message = message.replace(self.path, self.original)
        for path in (self.path, self.original):
            message = message.replace(posixpath.basename(path).removesuffix(".py"), "")
        return _ADDRESS.sub("0", message)


def copy_tests(path: str, source: bytes, names: Iterable[str], tokens: tuple[str, str]) -> Copies | None:
    """Copy a test file twice; return None if it contains none of the tests.

    Args:
        names: the tests in it, such as `TestA::test_b`.
        tokens: unguessable words of letters and digits for the names of the two files and their tests.
    """
    functions = {name: function for name, function in _tests(source) if name in set(names)}
    originals: dict[str, str] = {}
    renames: list[tuple[int, int, bytes]] = []
    alterations: list[tuple[int, int, bytes]] = []
    altered: set[str] = set()
    offsets = _SourceOffsets(source)
    for number, (name, function) in enumerate(functions.items()):
        span = offsets.name_of(function)
        if span is None:
            continue
        copy = f"test_{tokens[0]}_{number}"
        renames.append((*span, copy.encode("ascii")))
        outer, colons, _ = name.rpartition("::")
        qualified = f"{outer}{colons}{copy}"
        originals[qualified] = name
        if (constant := _expected_constant(function)) is not None:
            start, end = offsets.span(constant)
            alterations.append((start, end, _altered_value(constant, source[start:end])))
            altered.add(qualified)
    if not originals:
        return None
    folder, file = posixpath.split(path)
    first, second = (
        posixpath.join(folder, f"test_{token}.py" if file.startswith("test") else f"{token}_test.py")
        for token in tokens
    )
    text = _replace_spans(source, renames)
    altered_text = _replace_spans(source, [*renames, *alterations]) if alterations else b""
    return Copies(path, first, text, second, altered_text, originals, frozenset(altered))


def _tests(source: bytes) -> Iterator[tuple[str, Function]]:
    """Yield the test functions of a file with their names, including methods."""
    try:
        text = source.decode("utf-8")
        tree = without_warnings(lambda: ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for test in python_tests(tree):
        yield "::".join(test.names), test.node


def _expected_constant(function: Function) -> ast.Constant | None:
    """Return a constant that is compared on every path through the test, or None."""
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
            constants = [_first_constant(side) for side in sides]
        except RecursionError:
            return None
        if constants.count(None) == 1:
            return constants[0] or constants[1]
    return None


def _first_constant(node: ast.expr) -> ast.Constant | None:
    """Return the first constant of a literal or of `approx(literal)`; None for other expressions."""
    if isinstance(node, ast.Constant):
        return node if isinstance(node.value, int | float | str | bytes) else None
    if isinstance(node, ast.UnaryOp):
        return _first_constant(node.operand)
    inner: Sequence[ast.expr] = ()
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        inner = node.elts
    elif isinstance(node, ast.Dict):
        inner = node.values
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        inner = node.args[:1] if name == "approx" else ()
    return next(filter(None, map(_first_constant, inner)), None)


def _altered_value(constant: ast.Constant, written: bytes) -> bytes:
    """Return a different value in place of a constant, as Python source."""
    value = constant.value
    if isinstance(value, bool):
        return b"(not %s)" % written
    if isinstance(value, int | float):
        return b"(%s * 3 + %d)" % (written, _FAR)
    return b"(%s + %s)" % (written, b"b'-other'" if isinstance(value, bytes) else b"'-other'")


class _SourceOffsets:
    """Converts the lines and columns of syntax nodes to offsets in the source."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr) -> tuple[int, int]:
        end = self._at(node.end_lineno or 0, node.end_col_offset or 0)  # parsed nodes have both
        return self._at(node.lineno, node.col_offset), end

    def name_of(self, function: Function) -> tuple[int, int] | None:
        """Return the place of a function's name in the source."""
        start = self._at(function.lineno, function.col_offset)
        found = re.compile(rb"(?:async[ \t]+)?def[ \t]+(\w+)").match(self._source, start)
        return None if found is None or found[1] != function.name.encode() else found.span(1)

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def _replace_spans(source: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source
