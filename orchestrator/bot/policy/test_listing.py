"""Lists the effects of a change on tests, judged by its text alone. It runs nothing."""

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
"""Names of test files in pytest and in unittest:
https://docs.pytest.org/en/stable/explanation/goodpractices.html#test-discovery
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
"""Most reasons of a file or class that are separate values; each of its tests has all of them."""
_RUNNER_CALLS = frozenset({
    "os._exit", "os.abort", "atexit.register", "sys.modules", "sys._getframe", "sys.settrace",
    "sys.setprofile", "inspect.stack", "inspect.currentframe", "inspect.getouterframes", "traceback.extract_stack",
    "traceback.walk_stack", "gc.get_objects", "gc.get_referrers",
})  # fmt: skip
"""Names that can end the test runner's process, run code after the tests, or find the caller."""

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
    """A note about one line of a change. `line` counts from 1; it is 0 if no line of the new file is meant."""

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
    """The effects of a change on tests.

    Attributes:
        vanished: Python test functions that no longer exist under any name.
        skipped: Python test functions with a new reason to be skipped.
        runner_uses: places where code outside of tests can influence a test run: it names the runner, can end it,
            can find its caller, or defines a class whose objects equal everything.
        unreadable: files that cannot be parsed, so that nothing is known about them.
        files: test files that changed.
    """

    __test__: ClassVar[bool] = False
    vanished: tuple[PlaceNote, ...] = ()
    skipped: tuple[PlaceNote, ...] = ()
    runner_uses: tuple[PlaceNote, ...] = ()
    unreadable: tuple[PlaceNote, ...] = ()
    files: tuple[ChangedTests, ...] = ()

    @property
    def lost(self) -> tuple[str, ...]:
        """The tests that no longer run, as far as the text shows.

        For languages other than Python these are the files with fewer tests, if there are fewer in all.
        """
        counted = [item for item in self.files if not item.path.lower().endswith(".py")]
        has_fewer = sum(item.after or 0 for item in counted) < sum(item.before or 0 for item in counted)
        fewer = [item for item in counted if has_fewer and (item.after or 0) < (item.before or 0)]
        return tuple(map(str, (*self.vanished, *self.skipped, *fewer)))

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for a person: lost tests, code that may influence a test run, unreadable files."""
        return (*self.lost, *map(str, (*self.runner_uses, *self.unreadable)))

    def lines(self, *, beside_runs: bool = False) -> list[str]:
        """Return the listing as at most 50 lines; the last one counts the rest.

        Args:
            beside_runs: whether test results are shown as well, which show lost tests better. Then only code that
                may influence a test run and unreadable files are listed.
        """
        code = map(str, (*self.runner_uses, *self.unreadable))
        listed = list(code if beside_runs else dict.fromkeys((*self.notes, *map(str, self.files))))
        if len(listed) > _MOST_LINES:
            listed[_MOST_LINES - 1 :] = [f"and {len(listed) - _MOST_LINES + 1} more"]
        return listed


def list_tests(changes: Sequence[FileChange]) -> TestListing:
    """List the effects of a change on tests: Python by its syntax tree, other languages by their test declarations.

    Time is linear in the size of the files. A test file that is too large, or invalid Python, is unreadable.
    """
    found = _Findings()
    bytes_left = _MOST_BYTES
    for change in changes:
        old, new = _content(change.old), _content(change.new)
        if old is not None and old == new:
            continue
        suffix = change.path.rpartition(".")[2].lower()
        is_python = suffix == "py"
        if not (is_python or is_test_path(change.path) or suffix == "rs"):
            continue
        if is_python:
            bytes_left -= len(old or b"") + len(new or b"")
        if (
            old is None
            or new is None
            or (is_python and (bytes_left < 0 or max(len(old), len(new)) > MAX_BYTES))
        ):
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
    """A test function: its place, the text of its body, and the reasons why it may be skipped."""

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
class _Findings:
    """The findings about a change, file by file."""

    before: dict[_Key, _Test] = field(default_factory=dict)
    after: dict[_Key, _Test] = field(default_factory=dict)
    runner_uses: list[PlaceNote] = field(default_factory=list)
    unreadable: list[PlaceNote] = field(default_factory=list)
    files: list[ChangedTests] = field(default_factory=list)

    def python(self, path: str, old: bytes, new: bytes) -> None:
        """Add a Python file."""
        try:
            if is_test_path(path):
                was, now = _functions(path, old), _functions(path, new)
                self.before.update({(path, item.names): item for item in was})
                self.after.update({(path, item.names): item for item in now})
                self.files.append(ChangedTests(path, *changed_lines(old, new), len(was), len(now)))
            else:
                self.runner_uses += _new_runner_uses(path, old, new)
        except _UNREADABLE as error:
            self.unreadable.append(PlaceNote(path, 0, f"cannot be read: {type(error).__name__}"))
            if is_test_path(path):
                self.files.append(ChangedTests(path, *changed_lines(old, new)))

    def declared(self, path: str, suffix: str, old: bytes, new: bytes) -> None:
        """Add a file of another language. In Rust the tests are next to the code."""
        pattern = _DECLARATIONS.get(suffix)
        before = after = None
        if pattern is not None:
            before, after = (len(pattern.findall(text.decode("utf-8", "replace"))) for text in (old, new))
        if is_test_path(path) or before or after:
            self.files.append(ChangedTests(path, *changed_lines(old, new), before, after))

    def listing(self) -> TestListing:
        """Compare the tests before and after. A function with the same text elsewhere has moved."""
        moved: dict[bytes, list[_Test]] = defaultdict(list)
        for key, item in self.after.items():
            if key not in self.before:
                moved[item.body].append(item)
        for candidates in moved.values():
            candidates.sort(key=lambda item: len(item.skips), reverse=True)
        vanished, skipped = [], []
        for key, was in sorted(self.before.items()):
            now = self.after.get(key) or (moved[was.body].pop() if moved.get(was.body) else None)
            if now is None:
                vanished.append(was.place(0, "is gone"))
            elif now.skips - was.skips:
                skipped.append(now.place(now.line, "may be skipped now"))
        rest = (tuple(self.runner_uses), tuple(self.unreadable), tuple(self.files))
        return TestListing(tuple(vanished), tuple(skipped), *rest)


def changed_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Count the lines that occur more often in the new text, and those that occur less often."""
    before, after = (Counter(text.splitlines()) for text in (old, new))
    return (after - before).total(), (before - after).total()


@dataclass(frozen=True, slots=True)
class PythonTest:
    """A test function in a Python file. `classes` are those that contain it, the outermost first."""

    node: _Function
    classes: tuple[ast.ClassDef, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its classes, and its own."""
        return (*(item.name for item in self.classes), self.node.name)


def python_tests(tree: ast.Module) -> Iterator[PythonTest]:
    """Yield the test functions that pytest or unittest collect from a file by default.

    The last binding of a name counts. Code that runs only in type checkers or scripts is left out.
    """
    pending: list[tuple[tuple[ast.ClassDef, ...], Sequence[ast.stmt]]] = [((), tree.body)]
    while pending:
        classes, body = pending.pop()
        for name, node in _last_bound(body).items():
            if isinstance(node, ast.ClassDef):
                # A class with a base may be a TestCase; one without is found by its name.
                if name.startswith("Test") or node.bases:
                    pending.append(((*classes, node), node.body))
            elif name.startswith("test"):
                yield PythonTest(node, classes)


def _functions(path: str, source: bytes) -> list[_Test]:
    """Return the test functions of a file, with the reasons why each may be skipped."""
    tree = without_warnings(lambda: ast.parse(source))
    if not _COLLECTED_FILE.fullmatch(path.rpartition("/")[2]):
        return []
    names, lines = _ImportedNames(tree), source.splitlines()
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
            item.names,
            item.node.lineno,
            _text_below_head(item.node, lines),
            skips(item.classes) | names.marks_of(item.node) | names.skipping_calls(item.node),
        )
        for item in python_tests(tree)
    ]


def _last_bound(body: Sequence[ast.stmt]) -> dict[str, _Definition]:
    """Return the functions and classes to which names refer at the end of a file or class."""
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
    return [item.id for item in targets if isinstance(item, ast.Name)]


def _reasons(body: Sequence[ast.stmt], names: _ImportedNames) -> frozenset[str]:
    """Return the reasons why all tests of a file or class may be skipped."""
    reasons: set[str] = set()
    for node in _statements(body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if _SET_UP.match(name) or any(
                    "autouse" in _without_reason_texts(item) for item in node.decorator_list
                ):
                    reasons |= names.skipping_calls(node)
            case ast.Expr() | ast.Raise():
                reasons |= names.skipping_calls(node)
            case ast.Delete() | ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                reasons |= _reasons_of(node, _bound(node), names)
            case _:
                pass
    return frozenset(reasons if len(reasons) <= _MOST_REASONS else {" ".join(sorted(reasons))})


def _reasons_of(node: ast.stmt, bound: Sequence[str], names: _ImportedNames) -> frozenset[str]:
    """Return the reasons to skip a file or class that an assignment adds; none if it only defines a mark."""
    value = getattr(node, "value", None)
    if "pytestmark" in bound:
        return names.marks(node)
    if "__test__" in bound and isinstance(value, ast.Constant) and not value.value:
        return frozenset({"__test__"})
    if isinstance(value, ast.Call) and names.of(value).endswith("importorskip"):
        return frozenset({_without_reason_texts(value)})
    return frozenset()


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements in order, including those in blocks, but not those in functions and classes."""
    pending = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        parts = ["body", "orelse", "finalbody"]
        if isinstance(node, ast.If) and _is_never_run(node.test):
            parts.remove("body")
        inner = [item for part in parts for item in getattr(node, part, ())]
        for block in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            inner += block.body
        pending += reversed(inner)


def _is_never_run(test: ast.expr) -> bool:
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


def _text_below_head(node: _Function, lines: Sequence[bytes]) -> bytes:
    """Return the text of a function's body, without indentation and empty lines."""
    first = node.body[0]
    start = min([first.lineno, *(item.lineno for item in getattr(first, "decorator_list", ()))])
    head = lines[start - 1 : start]
    below = lines[start : node.end_lineno]
    text = (*(row[first.col_offset :] for row in head), *below)
    return b"\n".join(filter(None, map(bytes.strip, text)))


def _without_reason_texts(node: ast.AST) -> str:
    """Return the names, operators and values of an expression, without the texts of reasons, which people reword."""
    parts: list[str] = []
    pending: list[ast.AST] = [node]
    while pending:
        item = pending.pop()
        match item:
            case ast.keyword(arg="reason"):
                continue
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.keyword(arg=str() as text):
                parts.append(text)
            case ast.Constant(value=value):
                parts.append(hex(value) if type(value) is int else repr(value))
            case _:
                parts.append(type(item).__name__)
        inner = ast.iter_child_nodes(item)
        if isinstance(item, ast.Call):
            inner = (
                part for part in inner if not (isinstance(part, ast.Constant) and isinstance(part.value, str))
            )
        pending += inner
    return " ".join(parts)


class _ImportedNames:
    """Resolves the names in a file that refer to imported objects, also over assignments."""

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[str, str] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=aliases):
                    self._known.update({item.asname: item.name for item in aliases if item.asname})
                case ast.ImportFrom(module=str() as module, names=aliases) if len(module) < _MOST_CHARACTERS:
                    self._known.update(
                        {item.asname or item.name: f"{module}.{item.name}" for item in aliases}
                    )
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
        """Return the reason to skip tests that a mark is, if a name in it says so."""
        skips = any(
            _SKIP.search(self.of(item).rpartition(".")[2])
            for item in ast.walk(node)
            if isinstance(item, ast.Name | ast.Attribute)
        )
        return frozenset({_without_reason_texts(node)}) if skips else frozenset()

    def marks_of(self, node: _Definition) -> frozenset[str]:
        """Return the decorators of a function or class that skip tests."""
        return frozenset[str]().union(*map(self.marks, node.decorator_list))

    def skipping_calls(self, node: ast.AST) -> frozenset[str]:
        """Return the calls and exceptions by which a function skips a test."""
        found = set()
        for item in ast.walk(node):
            called = item.exc if isinstance(item, ast.Raise) else item if isinstance(item, ast.Call) else None
            name = "" if called is None else self.of(called)
            is_skip = name.rpartition(".")[2] in {"skipTest", "SkipTest"}
            if called is not None and (is_skip or (_is_runner(name) and _SKIP.search(name))):
                found.add(_without_reason_texts(called))
        return frozenset(found)


def _new_runner_uses(path: str, old: bytes, new: bytes) -> Iterator[PlaceNote]:
    """Yield the places that may influence a test run and did not before."""
    known = Counter(what for _, what in _runner_uses(old))
    for line, what in _runner_uses(new):
        if known[what]:
            known[what] -= 1
        else:
            yield PlaceNote(path, line, what)
    shadow = next((part for part in path.removesuffix(".py").split("/") if part in _SHADOWS), "")
    if shadow and not old:
        yield PlaceNote(path, 1, f"has the name of the module {shadow}, which a test run imports")


def _runner_uses(source: bytes) -> list[tuple[int, str]]:
    tree = without_warnings(lambda: ast.parse(source))
    names = _ImportedNames(tree)
    found: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                found |= {(node.lineno, f"imports {item.name}") for item in aliases if _is_runner(item.name)}
            case ast.ImportFrom(module=str() as module, level=0) if _is_runner(module):
                found.add((node.lineno, f"imports {module}"))
            case ast.Name() | ast.Attribute() if (name := names.of(node)) in _RUNNER_CALLS:
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
    for item in node.body:
        match item:
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
