"""Test runs and their results, and the matching of tests between two runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.changes import is_test_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.changes import FileChange


class CaseStatus(StrEnum):
    """How one test ended. An error is not the test's own: its file, fixture or module failed."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


WHOLE_RUN = "(the test command)"
"""Stands for all tests if no report names them."""


class RunKind(StrEnum):
    """Which code and which tests a run uses."""

    BEFORE = "before"
    """The unchanged base commit."""
    KEPT = "kept"
    """The change's code with the base's tests, settings, scripts and builds."""
    AFTER = "after"
    """The complete change."""
    NEW = "new"
    """The base's code with the change's new and changed tests."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one test in one run.

    Attributes:
        id: the runner's own name of the test, such as `tests/test_a.py::TestB::test_c[1]`.
        message: the runner's message about a failure, cut; untrusted, and only ever shown as text.
        is_assertion: whether it failed by its own assertion, not by an exception or an import error.
        file: the test's file, relative to the repository, if the report names it; else empty.
    """

    id: str
    status: CaseStatus
    message: str = ""
    is_assertion: bool = False
    file: str = ""

    @property
    def failed(self) -> bool:
        """Whether the test failed, or its class, file or package."""
        return self.status in {CaseStatus.FAILED, CaseStatus.ERROR}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run of the test command in a fresh tree.

    Attributes:
        tree: git's tree id of the files.
        cases: results by id; empty if the runner wrote no supported report, so that only `exit` counts.
        exit: the command's exit code; negative if a signal ended it.
        seconds: duration of the command, without preparing the tree.
        problem: why the run proves nothing, in one line: it timed out, no test ran, report and exit code
            contradict each other; empty if it is valid.
        digest: `sha256:` and the hex digest of the report's bytes; empty without a report.
        output: the end of the command's output. It is no evidence; only the model sees it.
        unsteady: ids of tests that ended differently when the same tree was run again; `WHOLE_RUN` if only
            the exit code is known.
        cached: whether the run was made for an earlier cycle on the same commit.
    """

    kind: RunKind
    tree: str
    cases: Mapping[str, CaseResult]
    exit: int
    seconds: float
    problem: str = ""
    digest: str = ""
    output: str = ""
    unsteady: frozenset[str] = frozenset()
    cached: bool = False

    def count(self, *statuses: CaseStatus) -> int:
        """Return the number of tests with one of these statuses."""
        return sum(case.status in statuses for case in self.cases.values())

    @property
    def failures(self) -> list[CaseResult]:
        """The tests that failed, by themselves or with their class, file or package."""
        return [case for case in self.cases.values() if case.failed]

    def passed(self, name: str) -> bool | None:
        """Return whether a test passed (`WHOLE_RUN`: all tests); None if unknown."""
        if name == WHOLE_RUN:
            return None if self.problem else self.exit == 0
        case = self.cases.get(name)
        return None if case is None else case.status is CaseStatus.PASSED

    @property
    def is_green(self) -> bool:
        """Whether the run is valid and nothing failed."""
        return not self.problem and self.exit == 0 and not self.failures


@dataclass(frozen=True, slots=True)
class Change:
    """A change to verify.

    Attributes:
        base: the base commit's id.
        tree: git's id of the tree that would be proposed.
        files: all paths that differ between the two.
        task: the task's title and text; tests that it names must pass.
    """

    base: str
    tree: str
    files: Sequence[FileChange]
    task: str = ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one change; None for a run that was not needed.

    Attributes:
        command: the test command, in one line; `setup` likewise, empty if there is none.
        sandbox: the sandbox's name, or `none`.
        restored: changed paths that had the base's content in *kept*.
        problem: why nothing could be run, such as a failed set-up; in one line.
    """

    command: str
    setup: str
    sandbox: str
    base: str
    tree: str
    before: RunResult | None = None
    kept: RunResult | None = None
    after: RunResult | None = None
    new: RunResult | None = None
    restored: tuple[str, ...] = ()
    problem: str = ""


class Verifier(Protocol):
    """Runs the tests of one clone, each time in a fresh tree. Results are cached by tree."""

    async def before(self) -> RunResult:
        """Run the base's tests; once per commit on this machine.

        Raises:
            ToolError: the set-up failed or the sandbox is missing; the message says what to do.
        """

    async def verify(self, change: Change) -> Runs:
        """Make all runs that the change needs. Problems are reported in `Runs.problem`, not raised."""

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        """Run the tests on the present change, for the model; all of them, or those with these ids if possible.

        Raises:
            ToolError: an id is invalid, or nothing could be run.
        """

    async def close(self) -> None:
        """Stop running commands and remove the trees. Caches stay."""


class IndexedRun:
    """The tests of one run, found by the ids of another."""

    def __init__(self, run: RunResult, *, exit_only: bool) -> None:
        self.run = run
        self.cases: Mapping[str, CaseResult] = run.cases
        if exit_only:
            status = CaseStatus.PASSED if run.exit == 0 else CaseStatus.FAILED
            self.cases = {WHOLE_RUN: CaseResult(WHOLE_RUN, status, run.output)}
        self._errors = {name for name, case in self.cases.items() if case.status is CaseStatus.ERROR}
        # pytest stops where a file cannot be loaded. Then nothing is known of the tests of other files either.
        self._is_cut_short = bool(run.problem) or 0 < len(self._errors) == len(self.cases)
        self.groups = {part for name in self.cases for part in _enclosing(name)}
        """The functions, classes, files and packages of which tests were run."""
        self._pairs: dict[str, str] = {}

    def pair(self, others: IndexedRun) -> None:
        """Match tests of `others` that have another id here: with other parameters, or in a moved file."""
        self._pairs = {**_moved(others, self), **_parameters(others, self)}

    def name_of(self, name: str) -> str:
        """Return the id in this run of a test that another run calls `name`."""
        return self._pairs.get(name, name)

    @property
    def paired(self) -> set[str]:
        """The ids in this run that have another id in the other run."""
        return set(self._pairs.values())

    def find(self, name: str) -> CaseResult | None:
        """Return the test's result, or that of its class, file or package if loading it failed; None if missing."""
        found = self.cases.get(self.name_of(name))
        if found is None or found.status is CaseStatus.SKIPPED:
            for part in _enclosing(name):
                if part in self._errors:
                    return self.cases[part]
        if found is None and self._is_cut_short:
            return CaseResult(name, CaseStatus.ERROR, self.run.problem)
        return found


class NamedTests:
    """The tests that a task names: by id, by file, or by a function or class with an uncommon name."""

    def __init__(self, task: str) -> None:
        words = {word.rstrip(".;:!?").removeprefix("./") for word in re.split(r"[\s`'\"()<>,]+", task)} - {""}
        self._ids = {word.replace("#", "::") for word in words if "::" in word or "#" in word}
        self._words = {word for word in words if "::" not in word and "#" not in word}
        self._files = {word for word in self._words if "." in word.rpartition("/")[2] and is_test_path(word)}

    def names(self, case: CaseResult) -> bool:
        """Return whether the task names the test, or its class, file or package."""
        place, _, inside = without_parameters(case).partition("::")
        file = case.file or place
        if any(file == word or file.endswith(f"/{word}") for word in self._files):
            return True
        names = [place.rpartition(".")[2], *inside.split("::")]
        if any(name in self._words and ("_" in name or not name.islower()) for name in names):
            return True
        whole = {case.id, without_parameters(case), *(part for part in _enclosing(case.id) if "::" in part)}
        return any(short in self._ids for name in whole for short in _shortened(name))


def _shortened(name: str) -> Iterator[str]:
    """Yield the forms in which people write an id: with fewer folders, and a class without its package."""
    place, colons, inside = name.partition("::")
    parts = place.split("/")
    for start in range(len(parts)):
        yield f"{'/'.join(parts[start:])}{colons}{inside}"
    yield f"{place.rpartition('.')[2]}{colons}{inside}"


def may_hold(path: str, case: CaseResult) -> bool:
    """Return whether a changed file may contain a test."""
    if case.file:
        return path == case.file or path.endswith(f"/{case.file}")
    place = case.id.partition("::")[0].partition("$")[0]
    if not is_test_path(path) or case.id == WHOLE_RUN:
        return is_test_path(path)
    folder, _, name = path.rpartition("/")
    if name.endswith("_test.go"):  # the place is a package: a module's path and the folder in it
        return not folder or place == folder or place.endswith(f"/{folder}")
    if "." not in place and "\\" not in place:  # a class without a package, a binary: it may be anywhere
        return True
    stem = f"/{path.rpartition('.')[0]}".replace("/", ".")
    return stem.endswith("." + re.sub(r"[/\\]", ".", place))


_MOST_PARTS = 20
"""Most parts of an id that are considered, from its start. A crafted report could otherwise cost quadratic time."""


def _enclosing(name: str) -> Iterator[str]:
    """Yield the ids under which a runner reports that a test's function, class, file or package failed to load."""
    parts = name.split("::", _MOST_PARTS)
    for end in range(1, len(parts)):
        yield "::".join(parts[:end])
    yield name.partition(" with data set ")[0]
    yield WHOLE_RUN


def without_parameters(case: CaseResult) -> str:
    """Return the test's id without its parameters: `test_a` for `test_a[1]`, `testA` for `testA with data set #1`."""
    start = len(case.file) if case.file and case.id.startswith(case.file) else case.id.rfind("::") + 1
    if case.id.endswith("]") and (at := case.id.find("[", start)) > 0:
        return case.id[:at]
    return case.id.partition(" with data set ")[0]


def _parameters(old: IndexedRun, new: IndexedRun) -> dict[str, str]:
    """Match tests of one function whose parameters have new names, in their order."""
    left: defaultdict[str, list[str]] = defaultdict(list)
    for name, case in new.cases.items():
        if name not in old.cases and without_parameters(case) != name:
            left[without_parameters(case)].append(name)
    pairs: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for name, case in old.cases.items():
        function = without_parameters(case)
        if name not in new.cases and taken[function] < len(left.get(function, ())):
            pairs[name] = left[function][taken[function]]
            taken[function] += 1
    return pairs


def _moved(old: IndexedRun, new: IndexedRun) -> dict[str, str]:
    """Match tests with the same class and name in exactly one other file."""

    def by_tail(ones: IndexedRun, others: IndexedRun) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in ones.cases:
            if name not in others.cases and "::" in name:
                found[name.partition("::")[2]].append(name)
        return found

    here = by_tail(new, old)
    return {
        names[0]: here[tail][0]
        for tail, names in by_tail(old, new).items()
        if len(names) == 1 and len(here.get(tail, ())) == 1
    }
