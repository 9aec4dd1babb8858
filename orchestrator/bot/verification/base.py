"""What a run of a repository's tests is, what several runs prove together, and who makes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
