"""Plays tests in forked processes: which places each reaches, and whether one fails with a mutation."""

from __future__ import annotations

import builtins
import contextlib
import functools
import hashlib
import importlib
import marshal
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutations.sites import ASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.mutations.sites import Site, Source

_COPIED = ("orchestrator", "prompts", "tests", "docs", ".github", "pyproject.toml", "requirements.lock")
_ALSO_COPIED = ("README.md", "CHANGELOG.md", "LICENSE", "AGENTS.md", "run_local_agent.py")
_PYTEST = ("-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:faulthandler")
_WORD = re.compile("[a-z]{6,}")
"""What a test is named after, if it is a word of the line that is mutated."""
_SHARES = 48
"""So many processes play the tests without a mutation that those of the processors end at about the same time."""
_MOST_SECONDS_OF_SHARE = 1800


@dataclass(frozen=True, slots=True)
class Ran:
    """What a test did without a mutation."""

    seconds: float
    passed: bool
    of: str
    """A digest of its file."""
    reached: dict[str, int]
    """The places that it reached by module: a bit for each, in the order of the module's sites."""


@dataclass(slots=True)
class Map:
    """What each test does without a mutation, kept from one run of the command to the next."""

    digests: dict[str, str] = field(default_factory=dict)
    """A digest of the text of each module."""
    ran: dict[str, Ran] = field(default_factory=dict)

    def drop_changed(self, sources: Iterable[Source], digest: Callable[[str], str]) -> None:
        """Forget the tests whose file changed, and those that reached a module that changed."""
        now = {source.module: _digest(source.text.encode()) for source in sources}
        if not now.keys() <= self.digests.keys():
            self.ran = {}
        changed = {module for module, of in now.items() if self.digests.get(module) != of}
        self.ran = {
            name: ran
            for name, ran in self.ran.items()
            if not changed & ran.reached.keys() and digest(name) == ran.of
        }
        self.digests = now


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Played:
    """How a mutation ended."""

    site: Site
    end: str
    """`killed`, `hung`, `survived` or `named`."""
    tests: int
    """How many tests reach the place."""
    by: str = ""
    """The test that failed."""


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
        folder = self._scratch / "runs" / f"{os.getpid()}-{self._count}"
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
            playing = self._scratch / "playing" / str(os.getpid())
            playing.mkdir(parents=True, exist_ok=True)
            (playing / "active").write_text("-1")
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

    def first_that_fails(self, items: Sequence[pytest.Item]) -> str:
        """Return the name of the first that fails, or nothing."""
        return next((item.nodeid for item, after in _with_next(items) if not self.run(item, after)), "")


def _with_next(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items, None][1:], strict=True)


class Run:
    """One run of the command.

    Args:
        scratch: a folder, with the copy of the tree in `tree`.
        at_once: how many processes.
        seconds: how long the tests of one mutation may take.
        sources: the modules whose places are noted.
        paths: the tests.
        kept: what is known of the tests.
        keep: the file where it is kept.
    """

    def __init__(  # noqa: PLR0913  values of the command line
        self,
        scratch: Path,
        *,
        at_once: int,
        seconds: float,
        sources: Sequence[Source],
        paths: Sequence[str],
        kept: Map,
        keep: Path | None,
    ) -> None:
        self._scratch, self._root, self._at_once, self._seconds = scratch, scratch / "tree", at_once, seconds
        self._paths, self.map, self._keep = list(paths), kept, keep
        self._sources = {source.module: source for source in sources}
        self._first: dict[str, int] = {}
        self._module_of: list[tuple[str, int]] = []
        for source in sources:
            self._first[source.module] = len(self._module_of)
            self._module_of += [(source.module, bit) for bit in range(len(source.sites))]
        self._pool = Pool(at_once, seconds * 3 + 60, scratch)
        self._weave()

    def _weave(self) -> None:
        """Have the copy of the tree import the woven modules."""
        (self._scratch / "woven").mkdir()
        (self._scratch / "playing").mkdir()
        for module, source in self._sources.items():
            tree = source.woven(self._first[module])
            code = compile(tree, str(source.path), "exec", dont_inherit=True)
            (self._scratch / "woven" / module).write_bytes(marshal.dumps(code))
        inside = self._scratch / "inside.py"
        shutil.copy(Path(__file__).with_name("inside.py"), inside)
        with (self._root / "orchestrator/__init__.py").open("a", encoding="utf-8") as file:
            file.write(
                f"\n\ntry:\n    _text = __import__('pathlib').Path({str(inside)!r}).read_text()\n"
                f"except OSError:  # a sandbox\n    pass\nelse:\n    exec(_text, {{'FOLDER': {str(self._scratch)!r}}})\n"
            )

    def play(self, drawn: list[Site], note: Callable[[str], None]) -> Iterator[Played]:
        """Yield each mutation with its end: first those in functions, in processes that hold the tests already."""
        yield from self._in_one_session([site for site in drawn if not site.at_import], note)
        for name in self._packages:  # so that each process below is forked with them
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        rest = [site for site in drawn if site.at_import or not self._is_reached(site)]
        for site, failed in self._pool.results(rest, self._import_with):
            yield self._played(site, failed)

    def _in_one_session(self, drawn: list[Site], note: Callable[[str], None]) -> Iterator[Played]:
        ((_, result),) = Pool(1, 1e9, self._scratch).results([drawn], functools.partial(self._collect, note))
        if not isinstance(result, tuple):
            raise SystemExit(f"the tests cannot be played:\n{result}")
        played, self.map, self._packages = result
        yield from played

    def _collect(self, note: Callable[[str], None], drawn: list[Site]) -> tuple[list[Played], Map, list[str]]:
        answer: list[Any] = []
        failed: list[Exception] = []

        def loop(session: Session) -> None:
            try:
                self._profile(session, note)
                reached = [site for site in drawn if self._is_reached(site)]
                answer.append([self._played(*each) for each in self._play_all(session, reached, note)])
            except Exception as error:  # noqa: BLE001  pytest would only print it
                failed.append(error)

        ended = pytest.main([*_PYTEST, *self._paths], plugins=[Session(loop)])
        if failed or not answer:
            raise failed[0] if failed else RuntimeError(f"pytest ended with {ended!r}")
        ours = {"orchestrator", "tests", "__main__"}
        return answer[0], self.map, [name for name in sys.modules if name.partition(".")[0] not in ours]

    def _profile(self, session: Session, note: Callable[[str], None]) -> None:
        """Play the tests of which nothing is known."""
        digest = functools.cache(lambda path: _digest((self._root / path).read_bytes()))
        self.map.drop_changed(self._sources.values(), lambda name: digest(name.partition("::")[0]))
        there = {item.nodeid for item in session.items}
        self.map.ran = {name: ran for name, ran in self.map.ran.items() if name in there}
        new = [item for item in session.items if item.nodeid not in self.map.ran]
        size = -(-len(new) // _SHARES) or 1
        shares = [new[start : start + size] for start in range(0, len(new), size)]
        note(f"{len(session.items)} tests, of which {len(new)} are played without a mutation first")

        def play(items: Sequence[pytest.Item]) -> dict[str, Ran]:
            found = {}
            for item, following in _with_next(items):
                mutant = getattr(builtins, ASKS)
                mutant.reached.clear()
                passed = session.run(item, following)
                reached = self._bits(mutant.reached | self._reached_below())
                found[item.nodeid] = Ran(
                    session.seconds, passed, digest(item.nodeid.partition("::")[0]), reached
                )
            return found

        for number, (_, ran) in enumerate(
            self._pool.results(shares, play, seconds=_MOST_SECONDS_OF_SHARE), 1
        ):
            self.map.ran.update(ran if isinstance(ran, dict) else {})
            note(f"share {number} of {len(shares)}" + ("" if isinstance(ran, dict) else f" failed: {ran}"))

        if self._keep:
            self._keep.write_bytes(pickle.dumps(self.map))

    def _reached_below(self) -> set[int]:
        """Return the places that the processes of the last test reached, and forget them."""
        file = self._scratch / "playing" / str(os.getpid()) / "reached"
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return set()
        file.unlink()
        return {number for (number,) in struct.iter_unpack("<i", data[: len(data) // 4 * 4])}

    def _bits(self, reached: Iterable[int]) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for number in reached:
            module, bit = self._module_of[number]
            found[module] |= 1 << bit
        return dict(found)

    def _play_all(
        self, session: Session, drawn: list[Site], note: Callable[[str], None]
    ) -> Iterator[tuple[Site, object]]:
        items = {item.nodeid: item for item in session.items}

        def play(site: Site) -> str:
            self._activate(site)
            return session.first_that_fails([items[name] for name in self.tests_of(site)])

        for number, (site, failed) in enumerate(self._pool.results(drawn, play), 1):
            note(f"{number} of {len(drawn)}: {site.module}:{site.line} {failed or 'survived'}")
            yield site, failed

    def _number(self, site: Site) -> int:
        return self._first[site.module] + self._sources[site.module].sites.index(site)

    def _activate(self, site: Site) -> None:
        (self._scratch / "playing" / str(os.getpid()) / "active").write_text(str(self._number(site)))

    def _bit(self, site: Site) -> int:
        return 1 << self._sources[site.module].sites.index(site)

    def _is_reached(self, site: Site) -> bool:
        """Return whether a test reaches a place in a function. What only the import calls is played like a constant."""
        return any(ran.reached.get(site.module, 0) & self._bit(site) for ran in self.map.ran.values())

    def tests_of(self, site: Site) -> list[str]:
        """Return the tests that reach a mutation's place, the likeliest and quickest first, as many as there is time for."""
        line = self._sources[site.module].text.splitlines()[site.line - 1]
        words = {site.module.rpartition(".")[2], *_WORD.findall(line)}
        # What runs at import was reached before the tests: those that reach anything in the module.
        runs_at_import = site.at_import or not self._is_reached(site)
        reaches = -1 if runs_at_import else self._bit(site)
        chosen = [
            n for n, ran in self.map.ran.items() if ran.passed and ran.reached.get(site.module, 0) & reaches
        ]
        if not chosen and runs_at_import:
            own = {str(path.relative_to(self._root)) for path in own_tests(self._root, site.module)}
            chosen = [n for n, ran in self.map.ran.items() if ran.passed and n.partition("::")[0] in own]
        # Each test function with one of its values before the next value of one: others find other mistakes.
        chosen.sort(key=lambda name: self.map.ran[name].seconds)
        turns: Counter[str] = Counter()
        turn = {}
        for name in chosen:
            turns[name.partition("[")[0]] += 1
            turn[name] = turns[name.partition("[")[0]]
        chosen.sort(key=lambda name: (turn[name], not any(word in name for word in words)))
        spent = 0.0
        kept: list[str] = []
        for name in chosen:
            spent += self.map.ran[name].seconds
            if spent > self._seconds and kept:
                break
            kept.append(name)
        return kept

    def _import_with(self, site: Site) -> str:
        self._activate(site)
        chosen = self.tests_of(site)
        failed = ["import"]  # when it cannot be imported

        def loop(session: Session) -> None:
            items = {item.nodeid: item for item in session.items}
            failed[0] = session.first_that_fails([items[name] for name in chosen])

        paths = sorted({str(self._root / name.partition("::")[0]) for name in chosen})
        if not paths:
            return ""
        quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
        pytest.main([*_PYTEST, *quiet, *paths], plugins=[Session(loop)])
        return failed[0]

    def _played(self, site: Site, failed: object) -> Played:
        if isinstance(failed, str) and failed.startswith("Traceback"):
            raise RuntimeError(f"a mutation could not be played:\n{failed}")
        end = "hung" if failed is None else "killed" if failed else "survived"
        return Played(site, end, len(self.tests_of(site)), str(failed or ""))


def copy_tree(root: Path, target: Path) -> None:
    """Copy what the tests use; nothing that a mutated program does reaches the tree."""
    for name in (*_COPIED, *_ALSO_COPIED):
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, symlinks=True)
        elif (root / name).exists():
            shutil.copy(root / name, target / name)
    subprocess.run(["git", "init", "-q", target], check=True)
    subprocess.run(["git", "-C", target, "add", "."], check=True)


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
