"""What a run of a repository's tests is, who makes them, and which test of one run is which of another."""

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
    """How one test ended. An error is not the test's own: its file, its fixture or its module failed."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


WHOLE_RUN = "(the test command)"
"""Stands for all tests where no report names them."""


class RunKind(StrEnum):
    """Which code a run is of, and which tests."""

    BEFORE = "before"
    """The base commit as it is."""
    KEPT = "kept"
    """The change's code with the base's tests, settings, scripts and builds."""
    AFTER = "after"
    """The change as it is."""
    NEW = "new"
    """The base's code with the change's new and changed tests."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One test in one run.

    Attributes:
        id: the runner's own name of it, such as `tests/test_a.py::TestB::test_c[1]`.
        message: what the runner says of a failure, cut; never trusted, and only ever shown as text.
        is_assertion: it failed by its own assertion, and not by an error of the code or an import.
        file: the test's file, relative to the repository, where the report tells it; else empty.
    """

    id: str
    status: CaseStatus
    message: str = ""
    is_assertion: bool = False
    file: str = ""

    @property
    def failed(self) -> bool:
        """Whether it failed, by itself or with what it is a part of."""
        return self.status in {CaseStatus.FAILED, CaseStatus.ERROR}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run of the test command in a fresh tree.

    Attributes:
        tree: git's id of the files that were run.
        cases: by id; empty where the runner wrote no report that is understood, so that only `exit` counts.
        exit: the command's exit code; negative where a signal ended it.
        seconds: the command's own time, without the tree's.
        problem: why the run proves nothing, in one line: it timed out, no test ran, report and exit code
            disagree; empty if it counts.
        digest: `sha256:` and the hex digest of the report's bytes; empty without a report.
        output: the end of what the command printed. It counts for nothing and is shown to the model alone.
        unsteady: ids of tests that ended differently when the same tree was run again; `WHOLE_RUN` where only
            the exit code is known.
        cached: it was not run now, but for an earlier cycle on the same commit.
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
        """How many tests ended so."""
        return sum(case.status in statuses for case in self.cases.values())

    @property
    def failures(self) -> list[CaseResult]:
        """The tests that failed, by themselves or with what they are a part of."""
        return [case for case in self.cases.values() if case.failed]

    def passed(self, name: str) -> bool | None:
        """Whether a test passed, or all with `WHOLE_RUN`; None where nothing is known of it."""
        if name == WHOLE_RUN:
            return None if self.problem else self.exit == 0
        case = self.cases.get(name)
        return None if case is None else case.status is CaseStatus.PASSED

    @property
    def is_green(self) -> bool:
        """Whether the run counts and nothing in it failed."""
        return not self.problem and self.exit == 0 and not self.failures


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be verified.

    Attributes:
        base: the base commit's id.
        tree: git's id of the tree that would be proposed.
        files: every path that differs between the two.
        task: the task's title and words; tests that it names must pass.
    """

    base: str
    tree: str
    files: Sequence[FileChange]
    task: str = ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one change; None where one was not needed.

    Attributes:
        command: what was run, in one line; `setup` likewise, empty if there is none.
        sandbox: its name, or `none`.
        restored: paths that were as the base has them in *kept*, though the change has them otherwise.
        problem: why nothing could be run at all, such as a set-up that failed; in one line.
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
    """Runs the tests of one clone, each time in a fresh tree. Results are remembered by tree."""

    async def before(self) -> RunResult:
        """The base's own run; made once a commit on this machine.

        Raises:
            ToolError: the set-up failed or the sandbox is missing; the message says what to do.
        """

    async def verify(self, change: Change) -> Runs:
        """Every run that the change needs. What goes wrong is in `Runs.problem`, not raised."""

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        """The change as it is now, for the model to look at; all tests, or those named where the runner can.

        Raises:
            ToolError: an id is none, or nothing could be run.
        """

    async def close(self) -> None:
        """Stop what runs and remove the trees. What is cached stays."""


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
        """Find tests of `others` that have another id here: of other parameters, or in a file that was moved."""
        self._pairs = {**_moved(others, self), **_parameters(others, self)}

    def name_of(self, name: str) -> str:
        """The id here of a test that another run calls `name`."""
        return self._pairs.get(name, name)

    @property
    def paired(self) -> set[str]:
        """The ids here that another run has under another id."""
        return set(self._pairs.values())

    def find(self, name: str) -> CaseResult | None:
        """The test; or why its class, file or package could not be loaded; None if it is not there."""
        found = self.cases.get(self.name_of(name))
        if found is None or found.status is CaseStatus.SKIPPED:
            for part in _enclosing(name):
                if part in self._errors:
                    return self.cases[part]
        if found is None and self._is_cut_short:
            return CaseResult(name, CaseStatus.ERROR, self.run.problem)
        return found


class NamedTests:
    """The tests that a task names: by id, by file, or by a function or class unless its name is a common word."""

    def __init__(self, task: str) -> None:
        words = {word.rstrip(".;:!?").removeprefix("./") for word in re.split(r"[\s`'\"()<>,]+", task)} - {""}
        self._ids = {word.replace("#", "::") for word in words if "::" in word or "#" in word}
        self._words = {word for word in words if "::" not in word and "#" not in word}
        self._files = {word for word in self._words if "." in word.rpartition("/")[2] and is_test_path(word)}

    def names(self, case: CaseResult) -> bool:
        """Whether the task names the test, or what the test is a part of."""
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
    """An id as people write it: with fewer folders, and a class without its package."""
    place, colons, inside = name.partition("::")
    parts = place.split("/")
    for start in range(len(parts)):
        yield f"{'/'.join(parts[start:])}{colons}{inside}"
    yield f"{place.rpartition('.')[2]}{colons}{inside}"


def may_hold(path: str, case: CaseResult) -> bool:
    """Whether a changed file may be the one in which a test is written."""
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
"""Of an id, from its start. Whoever writes a report could make the ids below take the square of its size."""


def _enclosing(name: str) -> Iterator[str]:
    """The ids under which a runner tells that a test's function, class, file or package could not be loaded."""
    parts = name.split("::", _MOST_PARTS)
    for end in range(1, len(parts)):
        yield "::".join(parts[:end])
    yield name.partition(" with data set ")[0]
    yield WHOLE_RUN


def without_parameters(case: CaseResult) -> str:
    """The test's id without its parameters: of `test_a[1]`, and of PHPUnit's `testA with data set #1`."""
    start = len(case.file) if case.file and case.id.startswith(case.file) else case.id.rfind("::") + 1
    if case.id.endswith("]") and (at := case.id.find("[", start)) > 0:
        return case.id[:at]
    return case.id.partition(" with data set ")[0]


def _parameters(old: IndexedRun, new: IndexedRun) -> dict[str, str]:
    """Tests of one function whose parameters are called otherwise now, in their order."""
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
    """Tests that have their class and name in one other file now."""

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
