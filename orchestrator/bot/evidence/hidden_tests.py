"""Judges a proposed change by the tests of the real change, which its author has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.verification.base import CaseStatus, Change, IndexedRun
from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from orchestrator.bot.evidence.past_changes import Case
    from orchestrator.bot.verification.base import RunResult
    from orchestrator.bot.verification.runs import HostRuns

OpenRuns: TypeAlias = "Callable[[Trees, str], AbstractAsyncContextManager[HostRuns]]"
"""A context manager that creates test runs with one tree of a store as the base."""
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """The tests of a real change and their results. An equivalent change has the same results.

    Attributes:
        must_pass: tests that fail on the code before the change, and pass with it.
        must_still_pass: tests that pass on both.
        unstable: number of tests that ended differently in repeated runs; they are ignored.
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
    """A test of the change does not pass."""
    BROKEN = "broken"
    """The tests of the change pass, and a test that passed before no longer does."""
    INVALID = "invalid"
    """The test run proves nothing: the code influences the report, or ends the run."""
    NOTHING = "nothing"
    """Nothing was proposed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of the hidden tests for a change.

    Attributes:
        failed: number of `must_pass` tests that do not pass; `broken` likewise for `must_still_pass`.
        detail: one line: the first of them, or why the run proves nothing. From the report; only ever shown
            as text.
    """

    judged: Judged
    failed: int = 0
    broken: int = 0
    detail: str = ""


class UnfitTestsError(Exception):
    """The tests of a real change cannot judge other changes. The message says why."""


async def learn_tests(case: Case, open_runs: OpenRuns) -> HiddenTests:
    """Run the tests of the real change on the code before it and with it, three times each.

    Raises:
        UnfitTestsError: they cannot judge other changes.
    """
    trees = Trees(HostGit(case.store, case.store))
    async with open_runs(trees, case.tests) as runs:
        change = Change(case.tests, case.head, trees.changes(case.tests, case.head))
        try:
            made = await runs.kept(change, repeat=True)
        except ToolError as error:
            raise UnfitTestsError(str(error)) from error
    before, kept = made.before, made.kept
    if before is None or kept is None:
        raise AssertionError("both are run, or an error says why not")
    if before.problem:
        raise UnfitTestsError(f"its tests cannot be run on the code before it: {before.problem}")
    if kept.problem:
        raise UnfitTestsError(f"the real change does not pass: {kept.problem}")
    if not kept.cases:
        said = next((line for line in reversed(kept.output.splitlines()) if line.strip()), "no output")
        raise UnfitTestsError(
            f"no report names its tests (see --test-report); the command ended with {kept.exit}: {_line(said)}"
        )
    found = _compare(before, kept)
    if not found.must_pass:
        why = "each of them is unstable" if found.unstable else "none fails without it and passes with it"
        raise UnfitTestsError(f"its tests do not tell: {why}")
    return found


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

    Tests, settings and scripts are those of the real change: what the proposal changes there is restored, and
    what it adds there is removed.

    Raises:
        ToolError: nothing can be run, so nothing is known about the proposal.
        WorkspaceError: git failed, or the disk is full: likewise.
    """
    trees = Trees(HostGit(case.store, case.store))
    async with open_runs(trees, case.tests) as runs:
        made = await runs.kept(Change(case.tests, tree, trees.changes(case.tests, tree)))
    if made.before is None or made.kept is None:
        raise AssertionError("both are run, or an error says why not")
    return _judged(hidden, made.before, made.kept)


def _judged(hidden: HiddenTests, before: RunResult, kept: RunResult) -> Judgement:
    if kept.problem or not kept.cases:
        words = kept.problem or f"it left no report of its tests and ended with {kept.exit}"
        return Judgement(Judged.INVALID, len(hidden.must_pass), 0, _line(words))
    if hidden.exit == 0 and kept.exit != 0 and not kept.failures:
        words = f"no test failed, but the command ended with {kept.exit}"
        return Judgement(Judged.INVALID, len(hidden.must_pass), 0, words)
    failed = [name for name in hidden.must_pass if not _passes(kept, name)]
    aside = before.flaky
    broken = [name for name in hidden.must_still_pass if not _passes(kept, name) and name not in aside]
    judged = Judged.WRONG if failed else Judged.BROKEN if broken else Judged.SOLVED
    return Judgement(judged, len(failed), len(broken), _detail(kept, failed or broken))


def _passes(run: RunResult, name: str) -> bool:
    """Return whether a test passed in each run. A missing or skipped test did not."""
    case = run.cases.get(name)
    return case is not None and case.status is CaseStatus.PASSED and name not in run.flaky


def _detail(run: RunResult, names: list[str]) -> str:
    if not names:
        return ""
    case = run.cases.get(names[0])
    said = [line.strip() for line in case.message.splitlines() if line.strip()] if case else []
    # pytest marks the lines that say what went wrong.
    errors = [line.removeprefix("E ").strip() for line in said if line.startswith("E  ")]
    how = "is missing" if case is None else next(iter(errors or said), str(case.status))
    return _line(f"{names[0]}: {how}")


def _line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARS]
