"""Lists what a change does to tests, judged by its text alone. It runs nothing."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, is_test_path
from orchestrator.engine.policy.file_syntax import MAX_BYTES, without_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.changes import FileChange, FileVersion

_MOST_BYTES = 4_000_000
"""Most bytes of Python in one change. Reading more takes seconds."""
_MOST_LINES = 50
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _Function | ast.ClassDef
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Exceptions of Python's parser for a file that it cannot parse."""

_COLLECTED_FILE = re.compile(r"(?:test.*|.*_test)\.py", re.DOTALL)
"""Names of test files:
https://docs.pytest.org/en/stable/explanation/goodpractices.html#test-discovery, and unittest's `test*.py`.
"""
_RUNNERS = frozenset({"pytest", "_pytest", "unittest", "nose", "nose2", "doctest"})
_SHADOWS = _RUNNERS | {"sitecustomize", "usercustomize", "pluggy"}
"""Modules that a test run imports by name; https://docs.python.org/3/library/site.html documents two of them."""
_SKIP = re.compile(r"skip|xfail|expected_?failure", re.IGNORECASE)
_SET_UP = re.compile(r"set_?up", re.IGNORECASE)
_MOST_STEPS = 8
_MOST_CHARACTERS = 100
"""Longest dotted name. Longer ones match nothing here."""
_MOST_REASONS = 20
"""Most reasons of a file or class that are kept apart: each of its tests has all of them."""
_REACHING = frozenset({
    "os._exit", "os.abort", "atexit.register", "sys.modules", "sys._getframe", "sys.settrace",
    "sys.setprofile", "inspect.stack", "inspect.currentframe", "inspect.getouterframes", "traceback.extract_stack",
    "traceback.walk_stack", "gc.get_objects", "gc.get_referrers",
})  # fmt: skip
"""Calls that end a process under its runner, run after its tests, or find out who called."""

_SCRIPT = re.compile(r"(?m)^[ \t]*(?:it|test|specify)(?:\.(?!skip\b|todo\b|fixme\b)\w+)*[ \t]*\(")
_MARKED = re.compile(
    r"@(?:Test|ParameterizedTest|RepeatedTest|Property)\b|\[(?:Test|TestMethod|Fact|Theory|TestCase)\b"
)
_DECLARATIONS: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts"), _SCRIPT),
    **dict.fromkeys(("java", "kt", "kts", "groovy", "scala", "cs"), _MARKED),
    "go": re.compile(r"(?m)^func (?:\([^)\n]*\) )?(?:Test|Fuzz|Example)\w*\("),
    "rs": re.compile(r"(?m)^[ \t]*#\[(?:\w+::)*(?:test|rstest|test_case)\b"),
    "rb": re.compile(r"(?m)^[ \t]*(?:(?:it|specify|scenario|test|example)[ \t(]*[\"']|def test_\w)"),
    "php": re.compile(r"(?mi)\bfunction test\w*\(|[@\[]test\b|^[ \t]*(?:it|test)\("),
    "bats": re.compile(r"(?m)^[ \t]*@test\b"),
}
"""Patterns of test declarations, by file extension."""


@dataclass(frozen=True, slots=True)
class PlaceNote:
    """A note about one place of a change. `line` counts from 1; it is 0 if the file has no such line any more."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        """Return `path:line: what`."""
        return f"{self.path}:{self.line}: {self.what}" if self.line else f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class ChangedTests:
    """A test file that changed.

    Attributes:
        added: number of lines that the file contains more often than before; moved lines do not count.
        removed: number of lines that it contained more often before.
        before: number of tests that it declared before; None for a language that is not supported.
        after: number of tests that it declares now.
    """

    path: str
    added: int
    removed: int
    before: int | None = None
    after: int | None = None

    def __str__(self) -> str:
        """Return a line of text."""
        counted = "" if self.before is None else f"; tests declared: {self.before} before, {self.after} now"
        return f"{self.path}: changed by +{self.added} -{self.removed} lines{counted}"


@dataclass(frozen=True, slots=True)
class TestListing:
    """The effect of a change on tests.

    Attributes:
        vanished: Python test functions that no longer exist under any name.
        skipped: Python test functions with a new reason to be skipped.
        reaching: places where code outside of tests names a test runner, can end it, can find its caller, or
            compares equal to everything. Results of a test run are then not reliable.
        unreadable: files that cannot be parsed, so that nothing is known about them.
        files: test files that changed.
    """

    __test__: ClassVar[bool] = False
    vanished: tuple[PlaceNote, ...] = ()
    skipped: tuple[PlaceNote, ...] = ()
    reaching: tuple[PlaceNote, ...] = ()
    unreadable: tuple[PlaceNote, ...] = ()
    files: tuple[ChangedTests, ...] = ()

    @property
    def lost(self) -> tuple[str, ...]:
        """The tests that no longer run, as far as the text shows.

        For languages other than Python these are the files with fewer tests, if there are fewer in all.
        """
        counted = [one for one in self.files if not one.path.lower().endswith(".py")]
        fell = sum(one.after or 0 for one in counted) < sum(one.before or 0 for one in counted)
        fewer = [one for one in counted if fell and (one.after or 0) < (one.before or 0)]
        return tuple(map(str, (*self.vanished, *self.skipped, *fewer)))

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for a person: lost tests, code that reaches for the test runner, unparsable files."""
        return (*self.lost, *map(str, (*self.reaching, *self.unreadable)))

    def lines(self, *, beside_runs: bool = False) -> list[str]:
        """Return the listing as at most 50 lines; the last one counts the rest.

        Args:
            beside_runs: whether test results are shown as well, which say more about lost tests. Then only
                reaching code and unparsable files are listed.
        """
        code = map(str, (*self.reaching, *self.unreadable))
        said = list(code if beside_runs else dict.fromkeys((*self.notes, *map(str, self.files))))
        if len(said) > _MOST_LINES:
            said[_MOST_LINES - 1 :] = [f"and {len(said) - _MOST_LINES + 1} more"]
        return said


def list_tests(changes: Sequence[FileChange]) -> TestListing:
    """List the effect of a change on tests: Python by its syntax tree, other languages by their test declarations.

    Time is linear in the size of the files. A test file that is too large, or invalid Python, is unreadable.

    Args:
        changes: all files that a pull request changes.
    """
    found = _Found()
    left = _MOST_BYTES
    for change in changes:
        old, new = _content(change.old), _content(change.new)
        if old is not None and old == new:
            continue
        suffix = change.path.rpartition(".")[2].lower()
        is_python = suffix == "py"
        if not (is_python or is_test_path(change.path) or suffix == "rs"):
            continue
        left -= len(old or b"") + len(new or b"") if is_python else 0
        if old is None or new is None or (is_python and (left < 0 or max(len(old), len(new)) > MAX_BYTES)):
            found.unreadable.append(PlaceNote(change.path, 0, "too large: cannot be read"))
        elif is_python:
            found.python(change.path, old, new)
        else:
            found.declared(change.path, suffix, old, new)
    return found.listing()


def _content(version: FileVersion | None) -> bytes | None:
    """Return the content of a file: empty for a link or a submodule, None for a file that is too large."""
    if version is None or version.mode in {LINK_MODE, SUBMODULE_MODE}:
        return b""
    return version.content


_Key: TypeAlias = tuple[str, tuple[str, ...]]
"""The file of a test function, and the names of its classes and its own."""


@dataclass(frozen=True, slots=True)
class _Test:
    """A test function: its place, its text without name and decorators, and reasons why it may be skipped."""

    path: str
    names: tuple[str, ...]
    line: int
    body: bytes
    skips: frozenset[str]

    def place(self, line: int, what: str) -> PlaceNote:
        """Create a note about this test."""
        name = ".".join(part[:_MOST_CHARACTERS] for part in self.names)
        return PlaceNote(self.path, line, f"{name} {what}")


@dataclass(slots=True)
class _Found:
    """Findings about the files of one change."""

    before: dict[_Key, _Test] = field(default_factory=dict)
    after: dict[_Key, _Test] = field(default_factory=dict)
    reaching: list[PlaceNote] = field(default_factory=list)
    unreadable: list[PlaceNote] = field(default_factory=list)
    files: list[ChangedTests] = field(default_factory=list)

    def python(self, path: str, old: bytes, new: bytes) -> None:
        """Add a Python file."""
        try:
            if is_test_path(path):
                was, now = _functions(path, old), _functions(path, new)
                self.before.update({(path, one.names): one for one in was})
                self.after.update({(path, one.names): one for one in now})
                self.files.append(ChangedTests(path, *_lines(old, new), len(was), len(now)))
            else:
                self.reaching += _newly_reaching(path, old, new)
        except _UNREADABLE as error:
            self.unreadable.append(PlaceNote(path, 0, f"cannot be read: {type(error).__name__}"))
            if is_test_path(path):
                self.files.append(ChangedTests(path, *_lines(old, new)))

    def declared(self, path: str, suffix: str, old: bytes, new: bytes) -> None:
        """Add a file of another language. In Rust the tests are next to the code."""
        pattern = _DECLARATIONS.get(suffix)
        before = after = None
        if pattern is not None:
            before, after = (len(pattern.findall(text.decode("utf-8", "replace"))) for text in (old, new))
        if is_test_path(path) or before or after:
            self.files.append(ChangedTests(path, *_lines(old, new), before, after))

    def listing(self) -> TestListing:
        """Compare the tests before and after. A function with the same text elsewhere has moved."""
        moved: dict[bytes, list[_Test]] = defaultdict(list)
        for key, one in self.after.items():
            if key not in self.before:
                moved[one.body].append(one)
        for candidates in moved.values():
            candidates.sort(key=lambda one: len(one.skips), reverse=True)
        vanished, skipped = [], []
        for key, was in sorted(self.before.items()):
            now = self.after.get(key) or (moved[was.body].pop() if moved.get(was.body) else None)
            if now is None:
                vanished.append(was.place(0, "is gone"))
            elif now.skips - was.skips:
                skipped.append(now.place(now.line, "may be skipped now"))
        rest = (tuple(self.reaching), tuple(self.unreadable), tuple(self.files))
        return TestListing(tuple(vanished), tuple(skipped), *rest)


def _lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Count the lines that occur more often now, and those that occur less often."""
    before, after = (Counter(text.splitlines()) for text in (old, new))
    return (after - before).total(), (before - after).total()


@dataclass(frozen=True, slots=True)
class PythonTest:
    """A test function in a Python file.

    Attributes:
        classes: the classes that contain it, the outermost first.
    """

    node: _Function
    classes: tuple[ast.ClassDef, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its classes, and its own."""
        return (*(one.name for one in self.classes), self.node.name)


def python_tests(tree: ast.Module) -> Iterator[PythonTest]:
    """Yield the test functions that pytest or unittest would collect from a file by their own rules.

    The last binding of a name counts. Code only for type checkers or scripts is left out.
    """
    todo: list[tuple[tuple[ast.ClassDef, ...], Sequence[ast.stmt]]] = [((), tree.body)]
    while todo:
        classes, body = todo.pop()
        for name, node in _last_bound(body).items():
            if isinstance(node, ast.ClassDef):
                # A class with a base may be a TestCase; one without is found by its name.
                if name.startswith("Test") or node.bases:
                    todo.append(((*classes, node), node.body))
            elif name.startswith("test"):
                yield PythonTest(node, classes)


def _functions(path: str, source: bytes) -> list[_Test]:
    """Return the test functions of a file, with the reasons why each may be skipped.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the file is not Python, or nested too deeply.
    """
    tree = without_warnings(lambda: ast.parse(source))
    if not _COLLECTED_FILE.fullmatch(path.rpartition("/")[2]):
        return []
    names, rows = _Names(tree), source.splitlines()
    by_scope: dict[ast.ClassDef | None, frozenset[str]] = {None: _reasons(tree.body, names)}

    def skips(classes: tuple[ast.ClassDef, ...]) -> frozenset[str]:
        if not classes:
            return by_scope[None]
        if classes[-1] not in by_scope:
            above, own = skips(classes[:-1]), _reasons(classes[-1].body, names)
            by_scope[classes[-1]] = above.union(own, names.marks_of(classes[-1]))
        return by_scope[classes[-1]]

    return [
        _Test(
            path,
            one.names,
            one.node.lineno,
            _body(one.node, rows),
            skips(one.classes) | names.marks_of(one.node) | names.skipping_calls(one.node),
        )
        for one in python_tests(tree)
    ]


def _last_bound(body: Sequence[ast.stmt]) -> dict[str, _Definition]:
    """Return the function or class that each name refers to at the end of a file or class."""
    last: dict[str, _Definition] = {}
    for node in _statements(body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                last[name] = node
            case _:
                for name in _bound(node):
                    last.pop(name, None)
    return last


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that an assignment or a deletion rebinds."""
    if not isinstance(node, ast.Delete | ast.Assign | ast.AnnAssign | ast.AugAssign):
        return []
    targets = node.targets if isinstance(node, ast.Delete | ast.Assign) else [node.target]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _reasons(body: Sequence[ast.stmt], names: _Names) -> frozenset[str]:
    """Return the reasons why all tests of a file or class may be skipped."""
    reasons: set[str] = set()
    for node in _statements(body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if _SET_UP.match(name) or any("autouse" in _shape(one) for one in node.decorator_list):
                    reasons |= names.skipping_calls(node)
            case ast.Expr() | ast.Raise():
                reasons |= names.skipping_calls(node)
            case ast.Delete() | ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                reasons |= _reasons_of(node, _bound(node), names)
            case _:
                pass
    return frozenset(reasons if len(reasons) <= _MOST_REASONS else {" ".join(sorted(reasons))})


def _reasons_of(node: ast.stmt, bound: Sequence[str], names: _Names) -> frozenset[str]:
    """Return the reasons to skip a file or class that an assignment adds. Naming a mark adds none."""
    value = getattr(node, "value", None)
    if "pytestmark" in bound:
        return names.marks(node)
    if "__test__" in bound and isinstance(value, ast.Constant) and not value.value:
        return frozenset({"__test__"})
    if isinstance(value, ast.Call) and names.of(value).endswith("importorskip"):
        return frozenset({_shape(value)})
    return frozenset()


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements in order, including those in blocks, but not those in functions and classes."""
    todo = list(reversed(body))
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        parts = ["body", "orelse", "finalbody"]
        if isinstance(node, ast.If) and _is_not_run(node.test):
            parts.remove("body")
        inner = [one for part in parts for one in getattr(node, part, ())]
        for block in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            inner += block.body
        todo += reversed(inner)


def _is_not_run(test: ast.expr) -> bool:
    """Return whether an `if` at file level is only for type checkers or scripts, or is never true."""
    match test:
        case ast.Constant(value=value):
            return not value
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "TYPE_CHECKING"
        case ast.Compare(left=ast.Name(id="__name__")):
            return True
        case _:
            return False


def _body(node: _Function, rows: Sequence[bytes]) -> bytes:
    """Return the text of a function below its head, without indentation and empty lines."""
    first = node.body[0]
    start = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))])
    head = rows[start - 1 : start]
    below = rows[start : node.end_lineno]
    text = (*(row[first.col_offset :] for row in head if start == first.lineno), *below)
    return b"\n".join(filter(None, map(bytes.strip, text)))


def _shape(node: ast.AST) -> str:
    """Return an expression for comparison: names, operators and values, without reason texts that people reword."""
    parts: list[str] = []
    todo: list[ast.AST] = [node]
    while todo:
        one = todo.pop()
        match one:
            case ast.keyword(arg="reason"):
                continue
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.keyword(arg=str() as text):
                parts.append(text)
            case ast.Constant(value=value):
                parts.append(hex(value) if type(value) is int else repr(value))
            case _:
                parts.append(type(one).__name__)
        inner = ast.iter_child_nodes(one)
        if isinstance(one, ast.Call):
            inner = (
                part for part in inner if not (isinstance(part, ast.Constant) and isinstance(part.value, str))
            )
        todo += inner
    return " ".join(parts)


class _Names:
    """Resolves the names in a file: imports, and other names assigned to what they import."""

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[str, str] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=aliases):
                    self._known.update({one.asname: one.name for one in aliases if one.asname})
                case ast.ImportFrom(module=str() as module, names=aliases) if len(module) < _MOST_CHARACTERS:
                    self._known.update({one.asname or one.name: f"{module}.{one.name}" for one in aliases})
                case _:
                    pass
        for node in _statements(tree.body):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._known[node.targets[0].id] = self.of(node.value)

    def of(self, node: ast.AST) -> str:
        """Return the full dotted name that an expression calls or refers to; empty for a long one."""
        parts: list[str] = []
        for _ in range(_MOST_STEPS):
            match node:
                case ast.Call(func=inner):
                    node = inner
                case ast.Attribute(value=inner, attr=attr):
                    parts.append(attr)
                    node = inner
                case ast.Name(id=name):
                    parts.append(self._known.get(name, name))
                    break
                case _:
                    break
        name = ".".join(reversed(parts))
        return name if len(name) <= _MOST_CHARACTERS else ""

    def marks(self, node: ast.AST) -> frozenset[str]:
        """Return the shape of a mark if a name in it says that tests are skipped."""
        skips = any(
            _SKIP.search(self.of(one).rpartition(".")[2])
            for one in ast.walk(node)
            if isinstance(one, ast.Name | ast.Attribute)
        )
        return frozenset({_shape(node)}) if skips else frozenset()

    def marks_of(self, node: _Definition) -> frozenset[str]:
        """Return the decorators of a function or class that skip tests."""
        return frozenset[str]().union(*map(self.marks, node.decorator_list))

    def skipping_calls(self, node: ast.AST) -> frozenset[str]:
        """Return the shapes of calls and exceptions by which a function skips a test."""
        found = set()
        for one in ast.walk(node):
            called = one.exc if isinstance(one, ast.Raise) else one if isinstance(one, ast.Call) else None
            name = "" if called is None else self.of(called)
            is_skip = name.rpartition(".")[2] in {"skipTest", "SkipTest"}
            if called is not None and (is_skip or (_is_runner(name) and _SKIP.search(name))):
                found.add(_shape(called))
        return frozenset(found)


def _newly_reaching(path: str, old: bytes, new: bytes) -> Iterator[PlaceNote]:
    """Yield the places that now reach for a test runner and did not before. Raises like `_functions`."""
    known = Counter(what for _, what in _reaching(old))
    for line, what in _reaching(new):
        if known[what]:
            known[what] -= 1
        else:
            yield PlaceNote(path, line, what)
    shadow = next((part for part in path.removesuffix(".py").split("/") if part in _SHADOWS), "")
    if shadow and not old:
        yield PlaceNote(path, 1, f"has the name of the module {shadow}, which a test run imports")


def _reaching(source: bytes) -> list[tuple[int, str]]:
    tree = without_warnings(lambda: ast.parse(source))
    names = _Names(tree)
    found: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                found |= {(node.lineno, f"imports {one.name}") for one in aliases if _is_runner(one.name)}
            case ast.ImportFrom(module=str() as module, level=0) if _is_runner(module):
                found.add((node.lineno, f"imports {module}"))
            case ast.Name() | ast.Attribute() if (name := names.of(node)) in _REACHING:
                found.add((node.lineno, f"uses {name}"))
            case ast.Constant(value=str() as text) if text.startswith("PYTEST_"):
                found.add((node.lineno, f"names {text[:40]!r}"))
            case ast.ClassDef() if _is_equal_to_all(node):
                found.add((node.lineno, f"{node.name} is equal to everything"))
            case _:
                pass
    return sorted(found)


def _is_runner(name: str) -> bool:
    return name.partition(".")[0] in _RUNNERS


def _is_equal_to_all(node: ast.ClassDef) -> bool:
    """Return whether `__eq__` of a class is always true, or `__ne__` always false."""
    for one in node.body:
        match one:
            case ast.FunctionDef(
                name="__eq__" | "__ne__" as name,
                body=[ast.Return(value=value)] | [ast.Expr(value=ast.Constant()), ast.Return(value=value)],
            ):
                pass
            case ast.Assign(targets=[ast.Name(id="__eq__" | "__ne__" as name)], value=ast.Lambda(body=value)):
                pass
            case _:
                continue
        if isinstance(value, ast.Constant) and bool(value.value) is (name == "__eq__"):
            return True
    return False
