"""Judges the runs of a change, test by test. It runs and reads nothing."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.bot.policy.test_listing import changed_lines
from orchestrator.bot.policy.wording import in_markdown
from orchestrator.bot.verification.base import (
    NO_TEST_RAN,
    WHOLE_RUN,
    CaseResult,
    CaseStatus,
    IndexedRun,
    NamedTests,
    may_contain,
    without_parameters,
)
from orchestrator.core.changes import is_test_path
from orchestrator.core.cycle_events import Proof
from orchestrator.core.prompts import fenced, one_line, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.verification.base import Change, RunResult, Runs
    from orchestrator.core.changes import FileChange

_ID_CHARS = 200
_WORDS_CHARS = 300
_MOST_SHOWN = 5
"""Most tests, and most files, of a finding in a pull request."""

_MODEL_CHARS = 6_000
_BRIEF_CHARS = 1_500
_MODEL_TESTS = 15
_BRIEF_TESTS = 3
_BRIEF_LINES, _BRIEF_OUTPUT_CHARS = 5, 400
_PYTEST_ERROR, _PYTEST_LINE = "E  ", ">  "
"""How pytest begins the lines of an error, and the line of code that failed."""
_ARGUMENTS = re.compile(r"\w+ = ")
_OUTPUT_CHARS = 1_500
_LEAST_OUTPUT_CHARS = 200


class FindingKind(StrEnum):
    """Kinds of findings about tests or a run; the worst first."""

    INVALID = "invalid"
    """The run with the change is invalid, and the base's is valid."""
    BROKEN = "broken"
    """Passed before, fails now."""
    NEWLY_FLAKY = "newly_flaky"
    """Passed before in each run, and fails now in some."""
    NEW_FAILS = "new_fails"
    """Did not exist before, or was skipped, and fails now."""
    NAMED = "named"
    """The task names it, and it fails as it did before."""
    UNREPAIRED = "unrepaired"
    """It is of a file of code that the task names, fails as it did before, and so do all others of such files."""
    KEPT_INVALID = "kept_invalid"
    """The run with the base's tests and settings is invalid, so the change's effect on them is unknown."""
    FEWER = "fewer"
    """The command ran fewer tests than on the base, as its output counts them; no report names them."""
    ONLY_AS_CHANGED = "only_as_changed"
    """Failed before, does not pass with the base's tests and settings, and does not fail with the change's."""
    HIDDEN = "hidden"
    """Passed before, fails in the base's version on the change's code, and is skipped or removed without a replacement."""
    LOOSENED = "loosened"
    """Passed before, fails in the base's version on the change's code; the changed version passes even on the base's code."""
    BY_SETTINGS = "by_settings"
    """Passed before, fails with the base's settings, and passes with the change's; its own file is unchanged."""
    CHANGED = "changed"
    """Passed before, fails in the base's version on the change's code, and passes in the changed version."""
    GONE = "gone"
    """Passed before or with the change's code, and no longer exists."""
    SKIPPED = "skipped"
    """Passed before or with the change's code, and is skipped now."""
    FLAKY = "flaky"
    """Ended differently in repeated runs of the base, so its result proves nothing."""
    AS_BEFORE = "as_before"
    """Failed before, and fails now."""
    FIXED = "fixed"
    """Failed before, and passes with the original tests."""
    PROVES = "proves"
    """New or changed, and fails without the change by its own assertion."""
    PROVES_BY_ERROR = "proves_by_error"
    """New or changed, and an exception ends it without the change."""
    NOT_LOADED = "not_loaded"
    """New, and could not be run without the change, which proves nothing."""
    PASSES_WITHOUT = "passes_without"
    """New, and passes without the change too."""


_RED = frozenset(
    {
        FindingKind.INVALID,
        FindingKind.BROKEN,
        FindingKind.NEWLY_FLAKY,
        FindingKind.NEW_FAILS,
        FindingKind.NAMED,
        FindingKind.UNREPAIRED,
    }
)
_DOUBTFUL = frozenset(
    {
        FindingKind.KEPT_INVALID,
        FindingKind.FEWER,
        FindingKind.ONLY_AS_CHANGED,
        FindingKind.HIDDEN,
        FindingKind.LOOSENED,
        FindingKind.BY_SETTINGS,
    }
)
_DOUBTFUL_IF_ASSERTED = frozenset({FindingKind.CHANGED, FindingKind.GONE})
"""Findings that are normal if behaviour changes on purpose. The model is asked once whether that was the task."""
CHANGED_TESTS = (
    FindingKind.ONLY_AS_CHANGED,
    FindingKind.HIDDEN,
    FindingKind.LOOSENED,
    FindingKind.BY_SETTINGS,
    FindingKind.CHANGED,
    FindingKind.GONE,
    FindingKind.SKIPPED,
)
"""Findings about tests that the change rewrites, removes or skips, or whose settings it changes."""


@dataclass(frozen=True, slots=True)
class RunFinding:
    """A finding about some tests.

    Attributes:
        outputs: the runner's message for each failed test, in their order.
        files: the changed files that matter, each with its lines: `tests/a.py` (+3 -1); Markdown.
        by_assertion: number of the tests that failed by their own assertion.
        words: for a run as a whole, why it is invalid, or how many tests it ran.
    """

    kind: FindingKind
    tests: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    by_assertion: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class ChangeVerdict:
    """The judgement of a change by its test runs.

    Attributes:
        findings: the worst first.
        problem: why nothing is known for or against the change; in one line, else empty.
        repairs_named: whether one of the tests that the task names failed before and passes now.
    """

    runs: Runs
    findings: tuple[RunFinding, ...] = ()
    problem: str = ""
    repairs_named: bool = False

    @property
    def proof(self) -> Proof:
        """What the runs prove."""
        after = self.runs.after or self.runs.kept
        if self.is_red:
            return Proof.FAILED
        if self.problem or after is None:
            return Proof.UNKNOWN
        if self.reasons:
            return Proof.WARNED
        if not after.is_green:
            return Proof.AS_BEFORE
        return Proof.PASSED if after.ran else Proof.ONLY_EXIT_CODE

    @property
    def base_fails(self) -> str:
        """What failed without the change already, in one line; empty if nothing did, or if the problem says it."""
        before = self.runs.before
        if self.problem or before is None or before.is_green:
            return ""
        if before.problem:
            return f"on the base {before.problem}"
        if number := len(before.failures):
            return f"{number} {'test fails' if number == 1 else 'tests fail'} on the base"
        return f"on the base the test command ends with exit code {before.exit}"

    @property
    def is_red(self) -> bool:
        """Whether a test fails because of the change, one that the task names still fails, or the run is invalid."""
        return any(finding.kind in _RED for finding in self.findings)

    @property
    def breaks(self) -> bool:
        """Whether the change is not proposed unless a person asks for it.

        A test fails because of it, its run is invalid, or the task names failing tests and it repairs none of them.
        """
        red = {finding.kind for finding in self.findings} & _RED
        return bool(red - {FindingKind.NAMED}) or (FindingKind.NAMED in red and not self.repairs_named)

    @property
    def is_doubtful(self) -> bool:
        """Whether tests pass or are missing only because the change altered them. The model is asked about it once."""
        return bool(self.doubts)

    @property
    def doubts(self) -> tuple[str, ...]:
        """The tests that make the change doubtful."""
        return tuple(test for finding in self.findings if _is_doubtful(finding) for test in finding.tests)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The warnings at the top of the pull request: lines of inert Markdown."""
        return tuple(_words(finding) for finding in self.findings if finding.kind in _RED | _DOUBTFUL)

    @property
    def notes(self) -> tuple[str, ...]:
        """Further findings: lines of inert Markdown."""
        problem = (f"Nothing is known: {in_markdown(self.problem, _WORDS_CHARS)}.",) if self.problem else ()
        others = (finding for finding in self.findings if finding.kind not in _RED | _DOUBTFUL)
        return (*problem, *map(_words, others))

    def of(self, *kinds: FindingKind) -> tuple[str, ...]:
        """Return the tests with findings of these kinds."""
        return tuple(test for finding in self.findings if finding.kind in kinds for test in finding.tests)

    def for_model(self, *, brief: bool = False) -> str:
        """Return the text of a failed call: which tests failed, how, and what to do.

        It has about 6,000 characters at most; 1,500 for a small model, which is easily distracted.
        """
        sections = [
            (
                finding.kind.value,
                finding,
                [
                    (name, what_went_wrong(output) if brief else output)
                    for name, output in zip(finding.tests or ("",), finding.outputs, strict=True)
                ],
            )
            for finding in self.findings
            if finding.kind in _RED or _is_doubtful(finding)
        ]
        most_chars, most_tests = (_BRIEF_CHARS, _BRIEF_TESTS) if brief else (_MODEL_CHARS, _MODEL_TESTS)
        template = "verification/verdict"
        return _within_limit(template, sections, most_chars, most_tests, verdict=self, brief=brief)


def judge_runs(runs: Runs, change: Change) -> ChangeVerdict:
    """Compare the runs of a change, test by test.

    A base without any test is no basis: then all tests of the change are new.
    """
    before, after = runs.before, runs.after or runs.kept
    if runs.problem or before is None or after is None:
        return ChangeVerdict(runs, problem=runs.problem or "the tests were not run")
    is_first = before.problem == NO_TEST_RAN and not after.problem and bool(after.ran)
    if before.problem and not is_first:
        return ChangeVerdict(runs, problem=f"the base's own run is invalid: {before.problem}")
    if after.problem:
        return ChangeVerdict(runs, (_invalid(after, after.problem),))
    if before.cases and not after.cases:
        words = "it wrote no test report, although the base's run did"
        return ChangeVerdict(runs, (_invalid(after, words),))
    kept = None if is_first else runs.kept
    judge = _Judge(replace(runs, kept=kept), before, after, change, is_first=is_first)
    findings = [*_judge_kept_run(before, kept), *_judge_counts(before, after), *judge.findings()]
    if before.cases and _fails_without_a_test(after) and not _fails_without_a_test(before):
        findings.append(_invalid(after, f"no test failed, but the command ended with {after.exit}"))
    order = list(FindingKind)
    findings.sort(key=lambda finding: order.index(finding.kind))
    verdict = ChangeVerdict(runs, tuple(findings), repairs_named=judge.repairs_named)
    return verdict if verdict.is_red else replace(verdict, problem=_why_unproven(after))


def _why_unproven(after: RunResult) -> str:
    """Return why a run in which nothing new fails proves nothing; empty if it does."""
    if after.cases:
        return "" if after.count(CaseStatus.PASSED) else "no test passes with this change, as on the base"
    if after.exit != 0:
        return f"the test command ends with exit code {after.exit}, as on the base, and no report names the tests"
    return ""


def _invalid(run: RunResult, words: str) -> RunFinding:
    return RunFinding(FindingKind.INVALID, outputs=(run.output,), words=words)


def _judge_kept_run(before: RunResult, kept: RunResult | None) -> tuple[RunFinding, ...]:
    """Return the finding that the run with the base's tests and settings is invalid, if it is.

    There may be an honest reason: the base's settings name something that was renamed. But if all its tests
    are reported as passed, the change's code influences their results.
    """
    if kept is None or not (kept.problem or (before.cases and not kept.cases)):
        return ()
    words = kept.problem or f"it wrote no test report and ended with {kept.exit}"
    if kept.count(CaseStatus.PASSED) and replace(kept, problem="").is_green:
        return (_invalid(kept, f"with the base's tests and settings, {words}"),)
    return (RunFinding(FindingKind.KEPT_INVALID, (WHOLE_RUN,), (kept.output,), words=words),)


def _judge_counts(before: RunResult, after: RunResult) -> tuple[RunFinding, ...]:
    """Return the finding that fewer tests ran than on the base, where only the output counts them."""
    if before.counted is None or after.counted is None or after.counted >= before.counted:
        return ()
    words = f"{after.counted} ran with this change, {before.counted} on the base"
    return (RunFinding(FindingKind.FEWER, (WHOLE_RUN,), (after.output,), words=words),)


def _fails_without_a_test(run: RunResult) -> bool:
    """Return whether a command fails although no test does: by a coverage limit, or a crash at its end."""
    return run.exit != 0 and not run.failures


def describe_run(run: RunResult) -> str:
    """Describe a run for the model: the counts by status, and the messages of failed tests."""
    failed = sorted(run.failures, key=lambda case: case.status is not CaseStatus.FAILED)
    outputs = [(case.id, case.message) for case in failed]
    if not run.cases or run.problem or (run.exit and not failed):
        outputs.append(("", run.output))
    return _within_limit("verification/run", [("failed", "", outputs)], _MODEL_CHARS, _MODEL_TESTS, run=run)


class _Judge:
    """Compares the runs of one change."""

    def __init__(
        self, runs: Runs, before: RunResult, after: RunResult, change: Change, *, is_first: bool
    ) -> None:
        exit_only = not after.cases if is_first else not before.cases
        self._before = IndexedRun(replace(before, problem=""), exit_only=exit_only and not is_first)
        self._after = IndexedRun(after, exit_only=exit_only)
        self._kept = IndexedRun(runs.kept, exit_only=exit_only) if runs.kept else self._after
        self._new = IndexedRun(runs.new, exit_only=False) if runs.new and not exit_only else None
        self._after.match(self._before)
        if self._kept is not self._after:
            self._kept.match(self._before)
        if self._new is not None:
            self._new.match(self._after)
        self._changed = {
            file.path: _with_line_counts(file)
            for file in change.files
            if file.path in runs.restored or is_test_path(file.path)
        }
        """The changed files that test runs read, each with its number of changed lines."""
        self._removed = [item.path for item in change.files if item.new is None]
        self._changed_by_place: dict[str, tuple[str, ...]] = {}
        self._named = NamedTests(change.task)
        self._repairs_code = False
        self.repairs_named = False
        """Whether a test that the task names failed before and passes now."""
        self._cases: defaultdict[FindingKind, list[CaseResult]] = defaultdict(list)

    def findings(self) -> tuple[RunFinding, ...]:
        """Return all findings, the worst first."""
        for name, case in self._before.cases.items():
            self._compare(name, case)
        self._judge_new_tests()
        kept = self._kept.run
        are_green = self._before.run.is_green and self._after.run.is_green
        if are_green and kept.cases and not kept.problem and _fails_without_a_test(kept):
            self._cases[FindingKind.CHANGED].append(CaseResult(WHOLE_RUN, CaseStatus.FAILED, kept.output))
        self._judge_removed_tests()
        if not self._repairs_code:
            unrepaired = [
                case for case in self._cases[FindingKind.AS_BEFORE] if self._named.names_code_of(case)
            ]
            kept_as = [case for case in self._cases[FindingKind.AS_BEFORE] if case not in unrepaired]
            self._cases[FindingKind.UNREPAIRED], self._cases[FindingKind.AS_BEFORE] = unrepaired, kept_as
        return tuple(self._finding(kind) for kind in FindingKind if self._cases[kind])

    def _add(
        self, kind: FindingKind, name: str, shown: CaseResult | None, case: CaseResult | None = None
    ) -> None:
        """Add a test to the findings of a kind.

        Args:
            shown: the result whose message is shown if it is a failure.
            case: the test's result on the base or with the change; it names the test's file.
        """
        file = (case or shown or _NOTHING).file
        shown = shown if shown is not None and shown.failed else _NOTHING
        self._cases[kind].append(replace(shown, id=name, file=file))

    def _finding(self, kind: FindingKind) -> RunFinding:
        cases = self._cases[kind]
        files: dict[str, None] = {}
        if kind in CHANGED_TESTS:
            for case in cases:
                files |= dict.fromkeys(self._changed_files(case) or self._changed.values())
        return RunFinding(
            kind,
            tuple(case.id for case in cases),
            tuple(case.message for case in cases),
            tuple(files),
            sum(case.is_assertion for case in cases),
        )

    def _compare(self, name: str, case: CaseResult) -> None:
        after, kept = self._after.find(name), self._kept.find(name)
        if name in self._before.run.flaky:
            if after is None or after.status is not CaseStatus.PASSED:
                self._add(FindingKind.FLAKY, name, after, case)
        elif case.status is CaseStatus.PASSED:
            self._passed_before(name, case, kept, after)
        elif case.failed:
            if after is None and name in self._after.groups:
                return  # a file that is loaded now: its tests are judged one by one
            if kept is None and name in self._kept.groups:
                kept = replace(case, status=CaseStatus.PASSED)
            self._failed_before(name, case, kept, after)
        elif after is not None and after.failed:
            self._add(FindingKind.NEW_FAILS, name, after, case)

    def _passed_before(
        self, name: str, case: CaseResult, kept: CaseResult | None, after: CaseResult | None
    ) -> None:
        fails = kept is not None and kept.failed and name not in self._kept.run.flaky
        own = self._changed_files(case)
        if after is not None and name in self._after.run.flaky:
            self._add(FindingKind.NEWLY_FLAKY, name, after, case)
        elif after is not None and after.failed:
            self._add(FindingKind.BROKEN, name, after, case)
        elif after is None:
            hidden = fails and kept is not None and kept.is_assertion and not own
            self._add(FindingKind.HIDDEN if hidden else FindingKind.GONE, name, kept, case)
        elif after.status is CaseStatus.SKIPPED:
            hidden = fails and kept is not None and kept.status is CaseStatus.FAILED
            self._add(FindingKind.HIDDEN if hidden else FindingKind.SKIPPED, name, kept, case)
        elif kept is None or not fails:
            self._judge_without_change(name, case)
        elif kept.is_assertion and not own and not self._has_test_data():
            self._add(FindingKind.BY_SETTINGS, name, kept, case)
        else:
            without = self._without(self._after.name_of(name))
            loosened = (
                without is not None and without.status is CaseStatus.PASSED and own and kept.is_assertion
            )
            self._add(FindingKind.LOOSENED if loosened else FindingKind.CHANGED, name, kept, case)
            self._judge_without_change(name, case)

    def _failed_before(
        self, name: str, case: CaseResult, kept: CaseResult | None, after: CaseResult | None
    ) -> None:
        shown = kept
        if after is not None and after.failed:
            kind, shown = FindingKind.NAMED if self._named.names(case) else FindingKind.AS_BEFORE, after
        elif kept is None or kept.status is not CaseStatus.PASSED:
            kind = FindingKind.ONLY_AS_CHANGED
        elif after is None:
            kind = FindingKind.GONE
        else:
            kind = FindingKind.SKIPPED if after.status is CaseStatus.SKIPPED else FindingKind.FIXED
        self.repairs_named |= kind is FindingKind.FIXED and self._named.names(case)
        self._repairs_code |= kind is FindingKind.FIXED and self._named.names_code_of(case)
        self._add(kind, name, shown, case)

    def _judge_new_tests(self) -> None:
        """Judge the tests that only the change has."""
        known = self._after.renamed | self._before.cases.keys()
        failed_before = {without_parameters(case) for case in self._before.cases.values() if case.failed}
        for name, case in self._after.cases.items():
            if name in known:
                continue
            unloaded, kept = self._before.find(name), self._kept.find(name)
            if unloaded is not None and kept is not None:  # its file could not be loaded before
                self._failed_before(name, case, kept, case)
            elif case.failed and without_parameters(case) in failed_before:
                self._add(FindingKind.AS_BEFORE, name, case)
            elif case.failed and name not in self._before.groups:
                # If this is a file of the base that no longer loads, its tests are findings already.
                self._add(FindingKind.NEW_FAILS, name, case)
            elif case.status is CaseStatus.PASSED and self._new is not None:
                without = self._without(name)
                self._add(_without_change(without), name, without, case)

    def _judge_without_change(self, name: str, case: CaseResult) -> None:
        """Record that a test of the base, which the change may have rewritten, fails on the base's code."""
        without = self._without(self._after.name_of(name))
        kind = _without_change(without)
        if without is not None and kind in {FindingKind.PROVES, FindingKind.PROVES_BY_ERROR}:
            self._add(kind, name, without, case)

    def _without(self, name: str) -> CaseResult | None:
        """Return the result of a test of the change on the base's code; None if unknown."""
        return self._new.find(name) if self._new is not None else None

    def _judge_removed_tests(self) -> None:
        """Turn `GONE` into `HIDDEN` for removed tests whose own assertion fails, unless they were replaced.

        If behaviour changes on purpose, another test of the file shows the new behaviour: it fails without
        the change.
        """
        proving = {
            case.file
            for kind in (FindingKind.PROVES, FindingKind.PROVES_BY_ERROR)
            for case in self._cases[kind]
        }
        for case in self._cases.pop(FindingKind.GONE, []):
            has_file = case.file and not any(may_contain(path, case) for path in self._removed)
            is_replaced = case.file in proving if has_file else bool(proving)
            hidden = case.is_assertion and not is_replaced
            self._cases[FindingKind.HIDDEN if hidden else FindingKind.GONE].append(case)

    def _changed_files(self, case: CaseResult) -> tuple[str, ...]:
        """Return the changed files that may contain the test, with line counts; empty if its file is unchanged."""
        place = case.file or case.id.partition("::")[0]
        if place not in self._changed_by_place:
            found = (file for path, file in self._changed.items() if may_contain(path, case))
            self._changed_by_place[place] = tuple(found)
        return self._changed_by_place[place]

    def _has_test_data(self) -> bool:
        """Return whether test files changed that are not settings of the runner, such as expected outputs."""
        names = (path.rpartition("/")[2] for path in self._changed if is_test_path(path))
        return any(name not in _RUNNER_SETTINGS for name in names)


_NOTHING = CaseResult("", CaseStatus.PASSED)
_RUNNER_SETTINGS = frozenset({"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "__init__.py"})


def _is_doubtful(finding: RunFinding) -> bool:
    return finding.kind in _DOUBTFUL or (finding.kind in _DOUBTFUL_IF_ASSERTED and finding.by_assertion > 0)


_IMPORT = re.compile(
    r"^(?:E\s+)?(?:[\w.]+\.)?(?:ImportError|ModuleNotFoundError|SyntaxError|LoadError|NoClassDefFoundError)\b"
    r"|\bCannot find module\b",
    re.MULTILINE,
)


def _without_change(case: CaseResult | None) -> FindingKind:
    """Return what a new test that passes with the change proves, judged by its result without it."""
    if case is None or case.status in {CaseStatus.ERROR, CaseStatus.SKIPPED}:
        return FindingKind.NOT_LOADED
    if case.status is CaseStatus.PASSED:
        return FindingKind.PASSES_WITHOUT
    if case.is_assertion:
        return FindingKind.PROVES
    return FindingKind.NOT_LOADED if _IMPORT.search(case.message) else FindingKind.PROVES_BY_ERROR


def _with_line_counts(file: FileChange) -> str:
    """Return a file's path as Markdown, with the numbers of added and removed lines if it is text."""
    path = f"`{one_line(file.path, limit=_ID_CHARS)}`"
    if file.old is None or file.new is None:
        return f"{path} ({'new' if file.old is None else 'removed'})"
    old, new = file.old.content, file.new.content
    if old is None or new is None or b"\0" in old or b"\0" in new:
        return path
    added, removed = changed_lines(old, new)
    return f"{path} (+{added} -{removed})"


_PHRASES = {
    FindingKind.BROKEN: "passed before and fails now",
    FindingKind.NEWLY_FLAKY: "passed before in each run and fails now in some",
    FindingKind.NEW_FAILS: "is new and fails",
    FindingKind.NAMED: "is named by the task and still fails",
    FindingKind.UNREPAIRED: "belongs to code that the task names and still fails, as all of them do",
    FindingKind.ONLY_AS_CHANGED: "failed before, does not pass with the base's tests and settings, and does not fail with those of this change",
    FindingKind.HIDDEN: "passed before, fails in the base's version, and is no longer run",
    FindingKind.LOOSENED: "passed before, fails in the base's version, and passes in its changed version even on the base's code",
    FindingKind.BY_SETTINGS: "passed before, fails with the base's settings, and passes with those of this change",
    FindingKind.CHANGED: "passed before and passes now only because it was changed",
    FindingKind.GONE: "no longer exists",
    FindingKind.SKIPPED: "is skipped now",
    FindingKind.FLAKY: "gave different results in repeated runs of the base",
    FindingKind.AS_BEFORE: "fails as before",
    FindingKind.FIXED: "failed before and passes now, with the tests as they were",
    FindingKind.PROVES: "fails without this change, by its own assertion",
    FindingKind.PROVES_BY_ERROR: "fails without this change, by an exception",
    FindingKind.NOT_LOADED: "could not be run without this change, which proves nothing",
    FindingKind.PASSES_WITHOUT: "is new and passes without this change too",
}


def _words(finding: RunFinding) -> str:
    """Return a finding in one line for people."""
    if finding.kind in {FindingKind.INVALID, FindingKind.KEPT_INVALID}:
        run = "this change" if finding.kind is FindingKind.INVALID else "the base's tests and settings"
        return f"The run with {run} is invalid: {in_markdown(finding.words, _WORDS_CHARS)}."
    if finding.kind is FindingKind.FEWER:
        return f"Fewer tests ran, and no report names them: {finding.words}."
    number = len(finding.tests)
    phrase = _PHRASES[finding.kind]
    if number != 1:
        phrase = re.sub(r"\w+", lambda word: _PLURALS.get(word[0], word[0]), phrase)
    tests = _shown([f"`{one_line(name, limit=_ID_CHARS)}`" for name in finding.tests])
    causes = _failures_in_words(finding) if finding.kind in _DOUBTFUL_IF_ASSERTED else ""
    changed = f" Changed: {_shown(finding.files)}." if finding.files else ""
    return f"{number} {'test' if number == 1 else 'tests'} {phrase}: {tests}.{causes}{changed}"


def _shown(items: Sequence[str]) -> str:
    more = f" and {len(items) - _MOST_SHOWN} more" if len(items) > _MOST_SHOWN else ""
    return ", ".join(items[:_MOST_SHOWN]) + more


def _failures_in_words(finding: RunFinding) -> str:
    """Return how tests fail in the base's version."""
    errors = sum(map(bool, finding.outputs)) - finding.by_assertion
    numbers = ((finding.by_assertion, "by their own assertion"), (errors, "by an error"))
    causes = " and ".join(f"{number} {words}" for number, words in numbers if number > 0)
    return f" In the base's version they fail: {causes}." if causes else ""


_PLURALS = {
    "is": "are",
    "was": "were",
    "fails": "fail",
    "passes": "pass",
    "belongs": "belong",
    "exists": "exist",
    "does": "do",
    "it": "they",
    "its": "their",
}


def what_went_wrong(output: str) -> str:
    """Return the essential lines of a failed test's output, for a small model.

    For pytest these are the test's arguments, the failing line, and the error; for others the last lines.
    """
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith(_PYTEST_ERROR)]
    if not errors:
        return "\n".join(lines[-_BRIEF_LINES:])[-_BRIEF_OUTPUT_CHARS:]
    failing = next((line for line in lines if line.startswith(_PYTEST_LINE)), "")
    arguments = list(filter(_ARGUMENTS.match, lines[: lines.index(failing)])) if failing else []
    shown = [*arguments, *filter(None, [failing]), *errors[:_BRIEF_LINES]]
    return "\n".join(shown)[:_BRIEF_OUTPUT_CHARS]


def _within_limit(
    template: str,
    sections: Sequence[tuple[str, Any, Sequence[tuple[str, str]]]],
    most_chars: int,
    most_tests: int,
    **values: Any,
) -> str:
    """Render the template with as much test output as fits; the first tests take precedence.

    Args:
        sections: the kind, the finding, and the tests with their outputs.
    """
    shown = [
        {
            "kind": kind,
            "finding": finding,
            "tests": [
                {"id": one_line(name, limit=_ID_CHARS), "output": ""} for name, _ in tests[:most_tests]
            ],
            "more": max(len(tests) - most_tests, 0),
        }
        for kind, finding, tests in sections
    ]
    chars_left = most_chars - len(render(template, sections=shown, **values))
    seen: set[str] = set()
    for section, (_, _, tests) in zip(shown, sections, strict=True):
        for entry, (_, output) in zip(section["tests"], tests, strict=False):
            if output and output not in seen and chars_left >= _LEAST_OUTPUT_CHARS:
                seen.add(output)
                entry["output"] = fenced(_excerpt(output, min(chars_left - 20, _OUTPUT_CHARS)))
                chars_left -= len(entry["output"]) + 1
    return render(template, sections=shown, **values)


def _excerpt(text: str, limit: int) -> str:
    """Return a text, shortened to its first and last parts if it is longer than the limit."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit // 3
    return f"{text[:head].rpartition(chr(10))[0] or text[:head]}\n[…]\n{text[-(limit - head - 5) :]}"
