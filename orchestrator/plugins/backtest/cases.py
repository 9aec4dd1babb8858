"""Cases for a backtest: past changes whose tests, hidden from the author of another change, can judge it.

Results are in files to which lines are only appended, so that a process that dies loses at most the last line.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.verification.base import CaseStatus, Change, IndexedRun
from orchestrator.core.errors import ConfigurationError, DiskFullError, JournalError, ToolError
from orchestrator.core.event_loop import in_thread
from orchestrator.core.files import is_full, lock_file
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.backtest.past_changes import Case, UnfitChange, take_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from orchestrator.bot.git.local import RepositoryHistory
    from orchestrator.bot.verification.base import RunOptions, RunResult
    from orchestrator.bot.verification.runs import HostRuns
    from orchestrator.bot.verification.trees import TestFiles
    from orchestrator.plugins.backtest.past_changes import PastChange

_DIGITS = 16
_VERSION = 1
"""Version of a line; lines of other versions are ignored."""


def digest_of(*facts: object) -> str:
    """Return a short digest that is equal for equal values."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


class JsonLines:
    """A file with one JSON object per line, without secrets.

    Args:
        redactor: removes secrets from what is written; None for one that knows only their forms.

    Raises:
        JournalError: it cannot be read or written.
        DiskFullError: the disk is full.
    """

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self._path, self._redactor = path, redactor or Redactor()

    def lines(self) -> list[dict[str, Any]]:
        """Return all complete lines in order. An incomplete line, which a process left when it died, is ignored."""
        try:
            raw = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"cannot read {self._path}: {error.strerror}") from error
        return [found for line in raw if (found := _object(line)) is not None]

    def add(self, values: Mapping[str, Any]) -> None:
        """Append a line, and wait until it is on the disk."""
        clean = self._redactor.redact_value(dict(values))
        line = json.dumps({"form": _VERSION, **clean}).encode("ascii")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                # End an incomplete line first, so that this one is separate.
                file.seek(max(size - 1, 0))
                is_incomplete = size > 0 and file.read(1) != b"\n"
                file.write(b"\n" * is_incomplete + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if is_full(error):
                raise DiskFullError(f"cannot write {self._path}: no space is left on the disk") from error
            raise JournalError(f"cannot write {self._path}: {error.strerror}") from error


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.pop("form", None) == _VERSION else None


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Lock a folder, so that no other process works in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = lock_file(folder / "lock")
    except BlockingIOError as error:
        raise ConfigurationError(f"another process works in {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(handle)


OpenRuns: TypeAlias = "Callable[[Trees, str], AbstractAsyncContextManager[HostRuns]]"
"""A context manager that creates test runs with one tree of a store as the base."""
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """The tests of a real change and their results. An equivalent change has the same results.

    Attributes:
        must_pass: tests that fail on the code before the change, and pass with it.
        must_still_pass: tests that pass on both.
        unstable: number of flaky tests, which are ignored.
        exit: the command's exit code with the real change.
        seconds: duration of one run of all tests.
    """

    must_pass: tuple[str, ...]
    must_still_pass: tuple[str, ...]
    unstable: int
    exit: int
    seconds: float


class Judged(StrEnum):
    """The result of a try."""

    SOLVED = "solved"
    """Every test ended as with the real change."""
    WRONG = "wrong"
    """A test that the real change makes pass does not pass."""
    BROKEN = "broken"
    """Those tests pass, but a test that passed before no longer does."""
    INVALID = "invalid"
    """The test run proves nothing: the code influences the report, or ends the run."""
    NOTHING = "nothing"
    """Nothing was proposed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of the hidden tests for a change.

    `detail` is one line of untrusted text: the first test that does not pass, with its message, or why the run is
    invalid.
    """

    judged: Judged
    detail: str = ""


class UnfitTestsError(Exception):
    """The tests of a real change cannot judge other changes. The message says why."""


class _MachineFailedError(UnfitTestsError):
    """This machine could not run the tests this time: a set-up or a limit of time or memory ended them."""


_MOST_TRIES = 2
"""How often the tests of a change are tried if this machine fails."""
_MACHINE_FAILED = ("the set-up command ", "its tests cannot be run on the code before it: did not end within ",
                   "its tests cannot be run on the code before it: was stopped: ")  # fmt: skip
"""How records of older versions begin that kept a failure of the machine."""


async def learn_tests(case: Case, open_runs: OpenRuns) -> HiddenTests:
    """Run the tests of the real change on the code before it and with it, three times each.

    Raises:
        UnfitTestsError: they cannot judge other changes.
    """
    trees = Trees(HostGit(case.store, case.store))
    async with open_runs(trees, case.tests) as runs:
        change = Change(case.tests, case.head, await in_thread(trees.changes, case.tests, case.head))
        try:
            made = await runs.kept(change, repeat=True)
        except ToolError as error:
            raise _MachineFailedError(str(error)) from error
    before, kept = made.before, made.kept
    if before is None or kept is None:
        raise AssertionError("`kept` makes both runs or raises an error")
    if before.problem:
        kind = _MachineFailedError if before.was_stopped else UnfitTestsError
        raise kind(f"its tests cannot be run on the code before it: {before.problem}")
    if kept.problem:
        kind = _MachineFailedError if kept.was_stopped else UnfitTestsError
        raise kind(f"the real change does not pass: {kept.problem}")
    if not kept.cases:
        last_line = (kept.output.strip().splitlines() or ["no output"])[-1]
        raise UnfitTestsError(
            f"no report names its tests (see --test-report); the command ended with {kept.exit}: {_one_line(last_line)}"
        )
    found = _compare(before, kept)
    if not found.must_pass:
        why = "all of them are flaky" if found.unstable else "none fails without it and passes with it"
        raise UnfitTestsError(f"its tests cannot judge other changes: {why}")
    return found


async def _learn(case: Case, open_runs: OpenRuns) -> HiddenTests | UnfitTestsError:
    """Return the tests of a real change or why they are unfit. What may be a failure of this machine is tried again."""
    unfit = UnfitTestsError("nothing was tried")
    for _ in range(_MOST_TRIES):
        try:
            return await learn_tests(case, open_runs)
        except _MachineFailedError as error:
            unfit = error
        except UnfitTestsError as error:
            return error
    return unfit


def _compare(before: RunResult, kept: RunResult) -> HiddenTests:
    earlier = IndexedRun(before, exit_only=False)
    unstable = before.flaky | kept.flaky
    must_pass, must_still_pass = [], []
    for name, case in kept.cases.items():
        if name in unstable or case.status is not CaseStatus.PASSED:
            continue
        known = earlier.find(name)
        if known is None or known.failed:
            must_pass.append(name)
        elif known.status is CaseStatus.PASSED:
            must_still_pass.append(name)
    return HiddenTests(tuple(must_pass), tuple(must_still_pass), len(unstable), kept.exit, kept.seconds)


async def judge(case: Case, hidden: HiddenTests, tree: str, open_runs: OpenRuns) -> Judgement:
    """Run the hidden tests on a proposed tree.

    Tests, settings and scripts are those of the real change: the proposal's changes to such files are undone.

    Raises:
        ToolError: nothing can be run, so nothing is known about the proposal.
        WorkspaceError: git failed, or the disk is full.
    """
    trees = Trees(HostGit(case.store, case.store))
    async with open_runs(trees, case.tests) as runs:
        made = await runs.kept(Change(case.tests, tree, await in_thread(trees.changes, case.tests, tree)))
    if made.before is None or made.kept is None:
        raise AssertionError("`kept` makes both runs or raises an error")
    return _judged(hidden, made.before, made.kept)


def _judged(hidden: HiddenTests, before: RunResult, kept: RunResult) -> Judgement:
    if kept.problem or not kept.cases:
        problem = kept.problem or f"it wrote no test report and ended with {kept.exit}"
        return Judgement(Judged.INVALID, _one_line(problem))
    if hidden.exit == 0 and kept.exit != 0 and not kept.failures:
        return Judgement(Judged.INVALID, f"no test failed, but the command ended with {kept.exit}")
    failed = [name for name in hidden.must_pass if not _passes(kept, name)]
    steady = [name for name in hidden.must_still_pass if name not in before.flaky]
    broken = [name for name in steady if not _passes(kept, name)]
    judged = Judged.WRONG if failed else Judged.BROKEN if broken else Judged.SOLVED
    return Judgement(judged, _detail(kept, failed or broken))


def _passes(run: RunResult, name: str) -> bool:
    """Return whether a test passed in each run. A missing or skipped test did not."""
    case = run.cases.get(name)
    return case is not None and case.status is CaseStatus.PASSED and name not in run.flaky


def _detail(run: RunResult, names: list[str]) -> str:
    if not names:
        return ""
    case = run.cases.get(names[0])
    lines = [line.strip() for line in case.message.splitlines() if line.strip()] if case else []
    # pytest marks the lines of an error.
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E  ")]
    message = "is missing" if case is None else next(iter(errors or lines), str(case.status))
    return _one_line(f"{names[0]}: {message}")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARS]


@dataclass(frozen=True, slots=True)
class ReadyCase:
    """A case whose tests can judge a change."""

    case: Case
    hidden: HiddenTests

    @property
    def digest(self) -> str:
        """The digest of everything that a try depends on: the code, the task's text and the tests that judge it."""
        return digest_of(self.case.base, self.case.tests, self.case.text.whole, self.hidden.must_pass)


@dataclass(slots=True)
class FoundCases:
    """The result of a search for cases.

    Attributes:
        ready: the usable cases, newest first.
        unfit: the rejected changes among those that were examined.
    """

    ready: list[ReadyCase] = field(default_factory=list)
    unfit: list[UnfitChange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TestsOfChange:
    """How the tests of one change are run.

    Attributes:
        files: recognizes files that belong to the tests.
        open_runs: creates the test runs.
    """

    __test__ = False  # pytest would collect a class of this name

    options: RunOptions
    files: TestFiles
    open_runs: OpenRuns


class CaseSearch:
    """Examines past changes until enough of them are usable cases. Results are kept for the next search.

    Args:
        folder: receives a store for each case, and the record.
        tests_of: returns how the tests of a change are run, or why they cannot be.
        watch: called for each change when its examination starts, with None, and when it ends, with the result.
    """

    def __init__(
        self,
        history: RepositoryHistory,
        folder: Path,
        tests_of: Callable[[PastChange], TestsOfChange | str],
        watch: Callable[[PastChange, ReadyCase | UnfitChange | None], None],
    ) -> None:
        self._history, self._folder, self._tests_of, self._watch = history, folder, tests_of, watch
        self._record = JsonLines(folder / "cases.jsonl")
        self._known: dict[str, Any] = {line["key"]: line for line in self._record.lines() if "key" in line}

    async def find(
        self, changes: Iterator[PastChange | UnfitChange], wanted: int, jobs: int, stopped: Callable[[], bool]
    ) -> FoundCases:
        """Examine changes in order, several in parallel, until the wanted number of cases is found."""
        found = FoundCases()
        running: deque[asyncio.Task[ReadyCase | UnfitChange]] = deque()
        try:
            while len(found.ready) < wanted and not stopped():
                while (
                    len(running) < jobs
                    and (change := await asyncio.to_thread(next, changes, None)) is not None
                ):
                    running.append(asyncio.ensure_future(self._examine(change)))
                if not running:
                    break
                one = await running.popleft()
                if isinstance(one, UnfitChange):
                    found.unfit.append(one)
                else:
                    found.ready.append(one)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return found

    async def _examine(self, change: PastChange | UnfitChange) -> ReadyCase | UnfitChange:
        if isinstance(change, UnfitChange):
            return change
        self._watch(change, None)
        found = await self._ready(change)
        self._watch(change, found)
        return found

    async def _ready(self, change: PastChange) -> ReadyCase | UnfitChange:
        tests = await asyncio.to_thread(self._tests_of, change)
        if isinstance(tests, str):
            return UnfitChange(change.id, change.title, tests)
        key = digest_of(asdict(change), asdict(tests.options))
        known = self._known.get(key)
        if known is not None and str(known.get("unfit") or "").startswith(_MACHINE_FAILED):
            known = None
        if known is not None and known.get("unfit"):
            return UnfitChange(change.id, change.title, str(known["unfit"]))
        store = self._folder / "cases" / f"{change.id}-{key}"
        case = await asyncio.to_thread(take_out, change, self._history, store, tests.files)
        if isinstance(case, UnfitChange):
            self._save(key, change, unfit=case.reason)
            return case
        if known is not None:
            lists = {name: tuple(known["hidden"][name]) for name in ("must_pass", "must_still_pass")}
            return ReadyCase(case, HiddenTests(**{**known["hidden"], **lists}))
        learned = await _learn(case, tests.open_runs)
        if isinstance(learned, UnfitTestsError):
            if not isinstance(learned, _MachineFailedError):  # else the next start tries again
                self._save(key, change, unfit=str(learned))
            return UnfitChange(change.id, change.title, str(learned))
        self._save(key, change, hidden=asdict(learned))
        return ReadyCase(case, learned)

    def _save(self, key: str, change: PastChange, **facts: Any) -> None:
        line = {"key": key, "case": change.id, **facts}
        self._record.add(line)
        self._known[key] = json.loads(json.dumps(line))
