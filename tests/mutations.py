"""Draws small mutations of modules and plays the modules' own tests on each: which mistakes would no test notice?

`python -m tests.mutations orchestrator.bot.policy --draw 100` names modules or packages with dots. A drawn mutation is
killed when one of the unit tests that reach its line fails. Those that survive are printed as diffs. A mutation that
changes nothing that anybody can see is named with its reason in `tests/data/harmless_mutations.toml`.

Nothing is written to the tree: the tests run in a copy, and a mutation is put into a forked process that has imported
and collected the tests already. Only a mutation of what runs at import (a constant, a default) imports them anew.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

HARMLESS = Path("tests/data/harmless_mutations.toml")
_COPIED = ("orchestrator", "prompts", "tests", "docs", ".github", "pyproject.toml", "requirements.lock")
_ALSO_COPIED = ("README.md", "CHANGELOG.md", "LICENSE", "AGENTS.md", "run_local_agent.py")
_PYTEST = ("-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:faulthandler")
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
Place: TypeAlias = tuple[str, int]
"""A module and the number of a line."""


@dataclass(frozen=True, slots=True)
class Site:
    """One possible mutation."""

    module: str
    number: int
    """Which of the module's nodes, in the order of `ast.walk`."""
    line: int
    at_import: bool
    """It is not in a function's body, so that the module has to be imported anew."""


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
        case ast.Name(id=name) if name in _NAMES:
            new.id = _NAMES[name]
        case ast.Attribute(attr=name) if name in _NAMES:
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
    """Return the numbers of the nodes that say nothing when the program runs: annotations, what a type checker reads."""
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
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
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


def own_tests(root: Path, module: str) -> list[Path]:
    """Return a module's own tests: the nearest folder with its package's name; without one, unit tests that import it."""
    parts = module.split(".")[1:]
    for above in (root / "tests/unit", root / "tests"):
        for length in range(len(parts), 0, -1):
            if found := sorted(above.joinpath(*parts[:length]).rglob("test_*.py")):
                return found
    package, _, last = module.rpartition(".")
    imports = (f"from {module} import", f"import {module}\n", f"from {package} import {last}\n")
    return [
        path
        for path in sorted((root / "tests/unit").rglob("test_*.py"))
        if any(each in path.read_text(encoding="utf-8") for each in imports)
    ]


@dataclass(slots=True)
class Ran:
    """What a test did without a mutation."""

    seconds: float
    passed: bool
    touched: set[Place]


@dataclass(frozen=True, slots=True)
class Played:
    """How a mutation ended."""

    site: Site
    end: str
    """`killed`, `hung`, `survived` or `named`."""
    tests: int
    """How many tests reach the line."""
    seconds: float = 0.0


@dataclass(slots=True)
class Child:
    """A forked process that plays something."""

    pid: int
    ends: float
    folder: Path
    what: Any


class Pool:
    """Forked processes, a few at once, each with a folder for its temporary files and an end."""

    def __init__(self, at_once: int, seconds: float, scratch: Path) -> None:
        self._at_once, self._seconds, self._scratch = at_once, seconds, scratch
        self._running: dict[int, Child] = {}
        self._count = 0

    def results(
        self, tasks: Iterable[Any], play: Callable[[Any], object], seconds: float | None = None
    ) -> Iterator[tuple[Any, object]]:
        """Play each task in a process of its own; yield it with what `play` returned, or None if it did not end."""
        for task in tasks:
            while len(self._running) >= self._at_once:
                yield from self._ended()
            self._fork(task, play, seconds or self._seconds)
        while self._running:
            yield from self._ended()

    def _fork(self, task: Any, play: Callable[[Any], object], seconds: float) -> None:
        self._count += 1
        folder = self._scratch / f"{os.getpid()}-{self._count}"
        folder.mkdir(parents=True)
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self._running[pid] = Child(pid, time.monotonic() + seconds, folder, task)
            return
        code = 1
        try:
            os.setsid()
            silent = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(silent, number)
            os.environ["TMPDIR"] = str(folder)
            tempfile.tempdir = None
            result = play(task)
            (folder / "result").write_bytes(pickle.dumps(result))
            code = 0
        except BaseException:  # noqa: BLE001  what the parent shows
            (folder / "result").write_bytes(pickle.dumps(traceback.format_exc()))
        finally:
            os._exit(code)

    def _ended(self) -> Iterator[tuple[Any, object]]:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        child = self._running.pop(pid, None)
        if child is None:
            late = next((each for each in self._running.values() if time.monotonic() > each.ends), None)
            if late is None:
                time.sleep(0.01)
                return
            os.killpg(late.pid, signal.SIGKILL)
            os.waitpid(late.pid, 0)
            child = self._running.pop(late.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what its tests left behind
        result = child.folder / "result"
        yield child.what, pickle.loads(result.read_bytes()) if result.exists() else None  # noqa: S301  our own
        shutil.rmtree(child.folder, ignore_errors=True)


class Tracer:
    """Which lines of some files a test reaches, in each of its threads."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files
        self.touched: set[Place] = set()

    def start(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            self.touched.add((self._files[frame.f_code.co_filename], frame.f_lineno))
        return self._line


class Session:
    """A pytest session that runs items of its collection in forked processes, in place of all."""

    def __init__(self, loop: Callable[[Session], None]) -> None:
        self._loop = loop
        self.items: list[pytest.Item] = []
        self.failed = False
        self.seconds = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        self._loop(self)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed
        self.seconds += report.duration

    def run(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Run one test; return whether it passed."""
        self.failed, self.seconds = False, 0.0
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):  # the mutated program ends the process
            return False
        return not self.failed

    def run_until_one_fails(self, items: Sequence[pytest.Item]) -> bool:
        """Return whether one failed."""
        return any(not self.run(item, following) for item, following in _with_next(items))


def _with_next(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items, None][1:], strict=True)


class Run:
    """One run of the command.

    Args:
        root: the copy of the tree.
        at_once: how many processes.
        seconds: how long the tests of one mutation may take.
    """

    def __init__(
        self, root: Path, scratch: Path, at_once: int, seconds: float, mutated: list[Source]
    ) -> None:
        self._root, self._seconds, self._at_once = root, seconds, at_once
        self._sources = {source.module: source for source in mutated}
        self._files = {str(source.path): source.module for source in mutated}
        self._scratch = scratch
        self._pool = Pool(at_once, seconds * 3 + 60, scratch)
        tests = {module: own_tests(root, module) for module in self._sources}
        self._paths = sorted({str(path) for paths in tests.values() for path in paths})
        self.ran: dict[str, Ran] = {}

    def profile_and_play(self, drawn: list[Site]) -> Iterator[Played]:
        """Yield each mutation with its end: first those in functions, in processes that hold the tests already."""
        ((_, result),) = Pool(1, 1e9, self._scratch).results([drawn], self._in_session)
        if not isinstance(result, tuple):
            raise SystemExit(f"the tests of these modules cannot be played:\n{result}")
        played, self.ran, packages = result
        yield from played
        for name in packages:  # so that each process below is forked with them
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        done = {each.site for each in played}
        rest = [site for site in drawn if site not in done]
        for site, killed in self._pool.results(rest, self._import_anew):
            yield Played(site, _end(killed), len(self._relevant(site)))

    def _in_session(self, drawn: list[Site]) -> tuple[list[Played], dict[str, Ran], list[str]]:
        answer: list[Any] = []

        def loop(session: Session) -> None:
            try:
                answer.extend(self._loop(session, drawn))
            except Exception as error:  # noqa: BLE001  pytest would only print it
                failed.append(error)

        failed: list[Exception] = []
        ended = pytest.main([*_PYTEST, *self._paths], plugins=[Session(loop)])
        if failed or not answer:
            raise failed[0] if failed else RuntimeError(f"pytest ended with {ended!r}")
        return answer[0], answer[1], answer[2]

    def _loop(self, session: Session, drawn: list[Site]) -> tuple[list[Played], dict[str, Ran], list[str]]:
        gc.unfreeze()
        functions = self._functions()
        packages = [
            name
            for name in sys.modules
            if name.partition(".")[0] not in {"orchestrator", "tests", "__main__"}
        ]
        chunks = [session.items[n :: self._at_once * 8] for n in range(self._at_once * 8)]
        for _, ran in self._pool.results(chunks, functools.partial(self._profile, session), seconds=1800):
            self.ran.update(ran if isinstance(ran, dict) else {})
        items = {item.nodeid: item for item in session.items}
        here = [site for site in drawn if not site.at_import]
        played: list[Played] = []

        def play(site: Site) -> bool | str:
            mutant = self._sources[site.module].mutant(site)[0]
            try:
                self._put(mutant, site, functions)
            except _NotInPlaceError:
                return "import"
            return session.run_until_one_fails([items[name] for name in self._relevant(site)])

        for site, killed in self._pool.results(here, play):
            if killed == "import":
                continue
            played.append(Played(site, _end(killed), len(self._relevant(site))))
        return played, self.ran, packages

    def _functions(self) -> dict[tuple[str, str, int], list[FunctionType]]:
        """Return each function of the mutated modules by its file, name and line."""
        found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in self._files:
                found[_key(each.__code__)].append(each)
        return found

    def _profile(self, session: Session, items: list[pytest.Item]) -> dict[str, Ran]:
        found = {}
        for item, following in _with_next(items):
            tracer = Tracer(self._files)
            tracer.start()
            passed = session.run(item, following)
            sys.settrace(None)
            found[item.nodeid] = Ran(session.seconds, passed, tracer.touched)
        return found

    def _relevant(self, site: Site) -> list[str]:
        """Return the tests that reach a mutation's line, the likeliest and quickest first, as many as there is time for."""
        last = site.module.rpartition(".")[2]
        first, last_line = self._statement(site)

        def reaches(ran: Ran) -> bool:
            if site.at_import:
                return any(module == site.module for module, _ in ran.touched)
            return any((site.module, line) in ran.touched for line in range(first, last_line + 1))

        def order(name: str) -> tuple[bool, float]:
            path = name.partition("::")[0]
            return (last not in path, self.ran[name].seconds)

        chosen = sorted((name for name, ran in self.ran.items() if ran.passed and reaches(ran)), key=order)
        spent = 0.0
        kept: list[str] = []
        for name in chosen:
            spent += self.ran[name].seconds
            if spent > self._seconds and kept:
                break
            kept.append(name)
        return kept

    @functools.cache  # noqa: B019  one run a process
    def _statement(self, site: Site) -> tuple[int, int]:
        """Return the lines of the mutated node itself, of which one is reached when it is."""
        for number, node in enumerate(ast.walk(ast.parse(self._sources[site.module].text))):
            if number == site.number:
                return node.lineno, node.end_lineno or 0  # type: ignore[attr-defined]
        raise AssertionError

    def _put(
        self, mutant: ast.Module, site: Site, functions: dict[tuple[str, str, int], list[FunctionType]]
    ) -> None:
        """Give the functions that are there the code of the mutated ones."""
        source = self._sources[site.module]
        old = dict(_codes(compile(source.text, str(source.path), "exec", dont_inherit=True)))
        new = dict(_codes(compile(mutant, str(source.path), "exec", dont_inherit=True)))
        changed = [key for key, code in new.items() if key in old and code != old[key]]
        there = [(each, new[key]) for key in changed for each in functions.get(key, ())]
        if not there:
            raise _NotInPlaceError
        for function, code in there:
            try:
                function.__code__ = code
            except ValueError as error:  # it uses other variables of the function around it
                raise _NotInPlaceError from error

    def _import_anew(self, site: Site) -> bool:
        chosen = self._relevant(site)
        finder = _Finder(self._sources[site.module], self._sources[site.module].mutant(site)[0])
        sys.meta_path.insert(0, finder)
        failed: list[bool] = [True]  # also when it cannot be imported

        def loop(session: Session) -> None:
            items = {item.nodeid: item for item in session.items}
            failed[0] = session.run_until_one_fails([items[name] for name in chosen])

        paths = sorted({str(self._root / name.partition("::")[0]) for name in chosen})
        if not paths:
            return False
        pytest.main(
            [*_PYTEST, "-W", "ignore::pytest.PytestAssertRewriteWarning", *paths], plugins=[Session(loop)]
        )
        return failed[0]


class _NotInPlaceError(Exception):
    pass


class _Finder(importlib.abc.MetaPathFinder):
    """Imports one module in its mutated form."""

    def __init__(self, source: Source, mutant: ast.Module) -> None:
        self._source, self._mutant = source, mutant

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != self._source.module:
            return None
        code = compile(self._mutant, str(self._source.path), "exec", dont_inherit=True)
        loader = _Loader(name, str(self._source.path))
        loader.code = code
        return importlib.util.spec_from_file_location(name, self._source.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return self.code


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, str, int], CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield _key(each), each
            yield from _codes(each)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _end(killed: object) -> str:
    if isinstance(killed, str):
        raise RuntimeError(f"a mutation could not be played:\n{killed}")  # noqa: TRY004  no wrong type
    return "hung" if killed is None else "killed" if killed else "survived"


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


def _is_named(source: Source, site: Site, named: Iterable[Harmless]) -> bool:
    line = source.text.splitlines()[site.line - 1].strip()
    text = source.mutant(site)[2]
    return any(e.module == site.module and e.line == line and e.to in {"", text} for e in named)


def _copy(root: Path, target: Path) -> None:
    """Copy what the tests use; nothing that a mutated program does reaches the tree."""
    for name in (*_COPIED, *_ALSO_COPIED):
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, symlinks=True)
        elif (root / name).exists():
            shutil.copy(root / name, target / name)
    subprocess.run(["git", "init", "-q", target], check=True)


def draw(mutated: Iterable[Source], number: int, seed: int) -> list[Site]:
    """Return some of the possible mutations, the same for the same seed."""
    sites = [site for source in mutated for site in source.sites]
    return sorted(
        random.Random(seed).sample(sites, min(number, len(sites))),  # noqa: S311  no secret
        key=lambda site: (site.module, site.line),
    )


def _is_in(module: str, names: Iterable[str]) -> bool:
    return any(not name or f"{module}.".startswith(f"{name}.") for name in names)


def _report(run: Run, sources_by: dict[str, Source], names: Sequence[str], played: list[Played]) -> float:
    """Print the survivors and the table; return which part was killed or is named."""
    for each in played:
        if each.end in {"survived", "hung"}:
            print(f"\n{each.site.module}:{each.site.line}: {each.end}, {each.tests or 'no'} tests reach it")  # noqa: T201
            print("\n".join(sources_by[each.site.module].mutant(each.site)[1]))  # noqa: T201
    failing = sorted(name for name, ran in run.ran.items() if not ran.passed)
    for name in failing:
        print(f"fails without a mutation, so it was not asked: {name}")  # noqa: T201
    ends = ("killed", "hung", "named", "survived")
    print(f"\n{'':44}{'drawn':>9}" + "".join(f"{end:>9}" for end in ends))  # noqa: T201
    total: Counter[str] = Counter()
    for name in names:
        counted = Counter(e.end for e in played if _is_in(e.site.module, [name]))
        total += counted
        print(f"{name:44}{counted.total():9}" + "".join(f"{counted[end]:9}" for end in ends))  # noqa: T201
    print(f"{'all':44}{total.total():9}" + "".join(f"{total[end]:9}" for end in ends))  # noqa: T201
    share = 1 - total["survived"] / max(1, total.total())
    print(f"{share:.1%} killed or named")  # noqa: T201
    return share


def main(arguments: list[str]) -> int:
    """Print what survived; return 1 if fewer were killed or are named than there should be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a module or package, with dots")
    parser.add_argument("--draw", type=int, default=50, help="how many mutations (50)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="MODULE", help="of those that were drawn, play these"
    )
    parser.add_argument("-n", type=int, default=os.cpu_count() or 1, help="how many processes (one a core)")
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long the tests of one mutation may take (20)"
    )
    parser.add_argument("--at-least", type=float, default=95, help="percent to be killed or named (95)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        root = Path(scratch).resolve() / "tree"
        root.mkdir()
        _copy(Path(__file__).parents[1], root)
        os.chdir(root)
        for name in [name for name in sys.modules if name.partition(".")[0] in {"tests", "orchestrator"}]:
            del sys.modules[name]
        sys.path[:] = [str(root), *(p for p in sys.path if p not in {"", str(Path(__file__).parents[1])})]
        found = sources(root, options.modules)
        by = {source.module: source for source in found}
        drawn = [
            site
            for site in draw(found, options.draw, options.seed)
            if _is_in(site.module, options.only or [""])
        ]
        named = harmless(root)
        asked = [site for site in drawn if not _is_named(by[site.module], site, named)]
        played = [Played(site, "named", 0) for site in drawn if site not in set(asked)]
        used = [by[module] for module in sorted({site.module for site in asked})]
        run = Run(root, Path(scratch) / "runs", options.n, options.seconds, used)
        played += run.profile_and_play(asked)
        played.sort(key=lambda each: (each.site.module, each.site.line))
        share = _report(run, by, options.modules, played)
    return int(share * 100 < options.at_least)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
