"""Judges the runs of a change, test by test. It runs and reads nothing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.bot.policy.wording import in_markdown
from orchestrator.bot.verification.base import (
    WHOLE_RUN,
    CaseResult,
    CaseStatus,
    IndexedRun,
    NamedTests,
    may_hold,
    without_parameters,
)
from orchestrator.core.changes import is_test_path
from orchestrator.core.fence import fenced, one_line
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.verification.base import Change, RunResult, Runs
    from orchestrator.core.changes import FileChange, FileVersion

_ID_CHARS = 200
_WORDS_CHARS = 300
_SHOWN_TESTS = 5
_SHOWN_FILES = 5

_MODEL_CHARS = 6_000
_BRIEF_CHARS = 1_500
_MODEL_TESTS = 15
_BRIEF_TESTS = 3
_BRIEF_LINES, _BRIEF_OUTPUT_CHARS = 5, 400
_PYTEST_ERROR, _PYTEST_LINE = "E  ", ">  "
"""How pytest begins the lines that say what went wrong, and those that are the code that did."""
_ARGUMENTS = re.compile(r"\w+ = ")
_OUTPUT_CHARS = 1_500
_LEAST_OUTPUT_CHARS = 200


class FindingKind(StrEnum):
    """Kinds of findings about tests or a run; the worst first."""

    UNPROVEN = "unproven"
    """The run with the change is invalid, and the base's is valid."""
    BROKEN = "broken"
    """Passed before, fails now."""
    UNSTEADY = "unsteady"
    """Passed before in each run, and fails now in some."""
    NEW_FAILS = "new_fails"
    """Did not exist before, or was skipped, and fails."""
    NAMED = "named"
    """The task names it, and it fails as it did before."""
    KEPT_UNPROVEN = "kept_unproven"
    """The run with the base's tests and settings is invalid, so the change's effect on them is unknown."""
    ONLY_AS_CHANGED = "only_as_changed"
    """Failed before, does not pass with the base's tests and settings, and does not fail with the change's."""
    HIDDEN = "hidden"
    """Passed before, fails with the change in the base's version, and is skipped or removed without a replacement."""
    LOOSENED = "loosened"
    """Passed before, fails with the change in the base's version, and passes as changed, even without the change."""
    ELSEWHERE = "elsewhere"
    """Passed before, fails with the base's settings; its own file is unchanged."""
    CHANGED = "changed"
    """Passed before, fails with the change in the base's version, and passes as changed."""
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
    {FindingKind.UNPROVEN, FindingKind.BROKEN, FindingKind.UNSTEADY, FindingKind.NEW_FAILS, FindingKind.NAMED}
)
_DOUBTFUL = frozenset(
    {
        FindingKind.KEPT_UNPROVEN,
        FindingKind.ONLY_AS_CHANGED,
        FindingKind.HIDDEN,
        FindingKind.LOOSENED,
        FindingKind.ELSEWHERE,
    }
)
_WARNING = _RED | _DOUBTFUL
_ASKED_IF_ASSERTED = frozenset({FindingKind.CHANGED, FindingKind.GONE})
"""Findings that are normal if behaviour changes on purpose. The model is asked once whether that was the task."""


@dataclass(frozen=True, slots=True)
class RunFinding:
    """A finding about some tests.

    Attributes:
        outputs: the runner's message for each failed test, in their order.
        files: the changed files that matter, each with its lines: `tests/a.py` (+3 -1); Markdown.
        by_assertion: number of the tests that failed by their own assertion.
        words: for a run as a whole, why it is invalid.
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
    """

    runs: Runs
    findings: tuple[RunFinding, ...] = ()
    problem: str = ""

    @property
    def is_red(self) -> bool:
        """Whether the change breaks something, does not fix what its task names, or cannot be run any more."""
        return any(finding.kind in _RED for finding in self.findings)

    @property
    def is_doubtful(self) -> bool:
        """Whether tests pass or disappear only because they were changed. The model is asked about it once."""
        return bool(self.doubts)

    @property
    def doubts(self) -> tuple[str, ...]:
        """The tests that make the change doubtful."""
        return tuple(test for finding in self.findings if _is_doubtful(finding) for test in finding.tests)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The warnings at the top of the pull request: lines of inert Markdown."""
        return tuple(_words(finding) for finding in self.findings if finding.kind in _WARNING)

    @property
    def notes(self) -> tuple[str, ...]:
        """Further findings: lines of inert Markdown."""
        problem = (f"Nothing is known: {in_markdown(self.problem, _WORDS_CHARS)}.",) if self.problem else ()
        return (*problem, *(_words(finding) for finding in self.findings if finding.kind not in _WARNING))

    def of(self, *kinds: FindingKind) -> tuple[str, ...]:
        """Return the tests with findings of these kinds."""
        return tuple(test for finding in self.findings if finding.kind in kinds for test in finding.tests)

    def for_model(self, *, brief: bool = False) -> str:
        """Return the text of a failed call: which tests failed, how, and what to do.

        It has about 6,000 characters at most; 1,500 for a small model, which is easily distracted.
        """
        return _for_model(self, brief=brief)


def judge_runs(runs: Runs, change: Change) -> ChangeVerdict:
    """Compare the runs of a change, test by test."""
    before, after = runs.before, runs.after or runs.kept
    if runs.problem or before is None or after is None:
        return ChangeVerdict(runs, problem=runs.problem or "the tests were not run")
    if before.problem:
        return ChangeVerdict(runs, problem=f"the base's own run counts for nothing: {before.problem}")
    if after.problem:
        return ChangeVerdict(
            runs, (RunFinding(FindingKind.UNPROVEN, outputs=(after.output,), words=after.problem),)
        )
    if before.cases and not after.cases:
        words = "it left no report of its tests, as the base's run did"
        return ChangeVerdict(runs, (RunFinding(FindingKind.UNPROVEN, outputs=(after.output,), words=words),))
    findings = (*_of_kept(before, runs.kept), *_Judge(runs, before, after, change).findings())
    if before.cases and _fails_without_a_test(after) and not _fails_without_a_test(before):
        words = f"no test failed, but the command ended with {after.exit}"
        findings = (RunFinding(FindingKind.UNPROVEN, outputs=(after.output,), words=words), *findings)
    return ChangeVerdict(
        runs, tuple(sorted(findings, key=lambda finding: list(FindingKind).index(finding.kind)))
    )


def _of_kept(before: RunResult, kept: RunResult | None) -> tuple[RunFinding, ...]:
    """Return the finding that the run with the base's tests and settings is invalid, if it is.

    There may be an honest reason: the base's settings name something that was renamed. If its tests claim to
    pass by themselves, the change's code influences their results.
    """
    if kept is None or not (kept.problem or (before.cases and not kept.cases)):
        return ()
    words = kept.problem or f"it left no report of its tests and ended with {kept.exit}"
    if kept.count(CaseStatus.PASSED) and replace(kept, problem="").is_green:
        words = f"with the base's tests and settings, {words}"
        return (RunFinding(FindingKind.UNPROVEN, outputs=(kept.output,), words=words),)
    return (RunFinding(FindingKind.KEPT_UNPROVEN, (WHOLE_RUN,), (kept.output,), words=words),)


def _fails_without_a_test(run: RunResult) -> bool:
    """Return whether a command fails although no test does: by a coverage limit, or a crash at its end."""
    return run.exit != 0 and not run.failures


def describe_run(run: RunResult) -> str:
    """Describe a run for the model: the counts by status, and the messages of failed tests."""
    failed = run.failures
    failed.sort(key=lambda case: case.status is not CaseStatus.FAILED)
    named = [(case.id, case.message) for case in failed]
    if not run.cases or run.problem or (run.exit and not failed):
        named.append(("", run.output))
    return _within_limit("verification/run", [("failed", "", named)], _MODEL_CHARS, run=run)


class _Judge:
    """Compares the runs of one change."""

    def __init__(self, runs: Runs, before: RunResult, after: RunResult, change: Change) -> None:
        exit_only = not before.cases
        self._before = IndexedRun(before, exit_only=exit_only)
        self._after = IndexedRun(after, exit_only=exit_only)
        self._kept = IndexedRun(runs.kept, exit_only=exit_only) if runs.kept else self._after
        self._new = IndexedRun(runs.new, exit_only=False) if runs.new and not exit_only else None
        self._after.pair(self._before)
        if self._kept is not self._after:
            self._kept.pair(self._before)
        if self._new is not None:
            self._new.pair(self._after)
        self._changed = _test_files(runs, change)
        self._removed = [item.path for item in change.files if item.new is None]
        self._own: dict[str, tuple[str, ...]] = {}
        self._named = NamedTests(change.task)
        self._found: defaultdict[FindingKind, list[CaseResult]] = defaultdict(list)

    def findings(self) -> tuple[RunFinding, ...]:
        """Return all findings, the worst first."""
        for name, case in self._before.cases.items():
            self._compare(name, case)
        self._look_at_new()
        self._look_at_command()
        self._replaced()
        return tuple(self._finding(kind) for kind in FindingKind if self._found[kind])

    def _say(
        self, kind: FindingKind, name: str, shown: CaseResult | None, case: CaseResult | None = None
    ) -> None:
        """Add a finding about a test; `shown` is its failure, `case` its result on the base or with the change."""
        file = (case or shown or _NOTHING).file
        shown = shown if shown is not None and shown.failed else _NOTHING
        self._found[kind].append(replace(shown, id=name, file=file))

    def _finding(self, kind: FindingKind) -> RunFinding:
        cases = self._found[kind]
        files: dict[str, None] = {}
        if kind in _WITH_FILES:
            for case in cases:
                files.update(dict.fromkeys(self._own_files(case) or self._changed.values()))
        return RunFinding(
            kind,
            tuple(case.id for case in cases),
            tuple(case.message for case in cases),
            tuple(files),
            sum(case.is_assertion for case in cases),
        )

    def _compare(self, name: str, case: CaseResult) -> None:
        after, kept = self._after.find(name), self._kept.find(name)
        if name in self._before.run.unsteady:
            if after is None or after.status is not CaseStatus.PASSED:
                self._say(FindingKind.FLAKY, name, after, case)
        elif case.status is CaseStatus.PASSED:
            self._passed_before(name, case, kept, after)
        elif case.failed:
            if after is None and name in self._after.groups:
                return  # a file that is loaded now: its tests are looked at one by one
            if kept is None and name in self._kept.groups:
                kept = replace(case, status=CaseStatus.PASSED)
            self._failed_before(name, case, kept, after)
        elif after is not None and after.failed:
            self._say(FindingKind.NEW_FAILS, name, after, case)

    def _passed_before(
        self, name: str, case: CaseResult, kept: CaseResult | None, after: CaseResult | None
    ) -> None:
        fails = kept is not None and kept.failed and name not in self._kept.run.unsteady
        own = self._own_files(case)
        if after is not None and name in self._after.run.unsteady:
            self._say(FindingKind.UNSTEADY, name, after, case)
        elif after is not None and after.failed:
            self._say(FindingKind.BROKEN, name, after, case)
        elif after is None:
            hidden = fails and kept is not None and kept.is_assertion and not own
            self._say(FindingKind.HIDDEN if hidden else FindingKind.GONE, name, kept, case)
        elif after.status is CaseStatus.SKIPPED:
            hidden = fails and kept is not None and kept.status is CaseStatus.FAILED
            self._say(FindingKind.HIDDEN if hidden else FindingKind.SKIPPED, name, kept, case)
        elif not fails:
            self._fails_without(name, case)
        elif kept is not None and kept.is_assertion and not own and not self._has_test_data():
            self._say(FindingKind.ELSEWHERE, name, kept, case)
        else:
            without = self._without(self._after.name_of(name))
            loosened = without is not None and without.status is CaseStatus.PASSED and bool(own)
            asserted = kept is not None and kept.is_assertion
            self._say(
                FindingKind.LOOSENED if loosened and asserted else FindingKind.CHANGED, name, kept, case
            )
            self._fails_without(name, case)

    def _failed_before(
        self, name: str, case: CaseResult, kept: CaseResult | None, after: CaseResult | None
    ) -> None:
        if after is not None and after.failed:
            self._say(
                FindingKind.NAMED if self._named.names(case) else FindingKind.AS_BEFORE, name, after, case
            )
        elif kept is not None and kept.status is CaseStatus.PASSED:
            is_skipped = after is not None and after.status is CaseStatus.SKIPPED
            kind = (
                FindingKind.GONE
                if after is None
                else FindingKind.SKIPPED
                if is_skipped
                else FindingKind.FIXED
            )
            self._say(kind, name, kept, case)
        else:
            self._say(FindingKind.ONLY_AS_CHANGED, name, kept, case)

    def _look_at_new(self) -> None:
        """Examine the tests that only the change has."""
        known = self._after.paired | self._before.cases.keys()
        failed_before = {without_parameters(case) for case in self._before.cases.values() if case.failed}
        for name, case in self._after.cases.items():
            if name in known:
                continue
            unloaded, kept = self._before.find(name), self._kept.find(name)
            if unloaded is not None and kept is not None:  # its file could not be loaded before
                self._failed_before(name, case, kept, case)
            elif case.failed and without_parameters(case) in failed_before:
                self._say(FindingKind.AS_BEFORE, name, case)
            elif case.failed and name not in self._before.groups:
                # A file that cannot be loaded any more is told of by the tests in it.
                self._say(FindingKind.NEW_FAILS, name, case)
            elif case.status is CaseStatus.PASSED and self._new is not None:
                without = self._without(name)
                self._say(_without_change(without), name, without, case)

    def _fails_without(self, name: str, case: CaseResult) -> None:
        """Record a test of the base that the change may have rewritten, if it does not pass without the change."""
        without = self._without(self._after.name_of(name))
        kind = _without_change(without)
        if without is not None and kind in {FindingKind.PROVES, FindingKind.PROVES_BY_ERROR}:
            self._say(kind, name, without, case)

    def _without(self, name: str) -> CaseResult | None:
        """Return the result of a test of the change on the base's code; None if unknown."""
        return self._new.find(name) if self._new is not None else None

    def _look_at_command(self) -> None:
        """Examine a command that fails in *kept* although no test does."""
        kept, after = self._kept.run, self._after.run
        are_green = self._before.run.is_green and after.is_green
        if are_green and kept.cases and not kept.problem and _fails_without_a_test(kept):
            self._found[FindingKind.CHANGED].append(CaseResult(WHOLE_RUN, CaseStatus.FAILED, kept.output))

    def _replaced(self) -> None:
        """Require a replacement for each removed test that fails by its own assertion.

        If behaviour changes on purpose, another test of the file shows the new behaviour: it fails without
        the change.
        """
        proving = {
            case.file
            for kind in (FindingKind.PROVES, FindingKind.PROVES_BY_ERROR)
            for case in self._found[kind]
        }
        for case in self._found.pop(FindingKind.GONE, []):
            has_file = case.file and not any(may_hold(path, case) for path in self._removed)
            is_replaced = case.file in proving if has_file else bool(proving)
            hidden = case.is_assertion and not is_replaced
            self._found[FindingKind.HIDDEN if hidden else FindingKind.GONE].append(case)

    def _own_files(self, case: CaseResult) -> tuple[str, ...]:
        """Return the changed files that may contain the test, with their lines; empty if its file is unchanged."""
        place = case.file or case.id.partition("::")[0]
        found = self._own.get(place)
        if found is None:
            found = tuple(lines for path, lines in self._changed.items() if may_hold(path, case))
            self._own[place] = found
        return found

    def _has_test_data(self) -> bool:
        """Return whether test files changed that no runner executes itself, such as helpers and expected outputs."""
        names = (path.rpartition("/")[2] for path in self._changed if is_test_path(path))
        return any(name not in _RUN_BY_ITSELF for name in names)


_NOTHING = CaseResult("", CaseStatus.PASSED)
_RUN_BY_ITSELF = frozenset({"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "__init__.py"})
_WITH_FILES = frozenset(
    {
        FindingKind.ONLY_AS_CHANGED,
        FindingKind.HIDDEN,
        FindingKind.LOOSENED,
        FindingKind.ELSEWHERE,
        FindingKind.CHANGED,
        FindingKind.GONE,
        FindingKind.SKIPPED,
    }
)


def _is_doubtful(finding: RunFinding) -> bool:
    asked = finding.kind in _ASKED_IF_ASSERTED and finding.by_assertion > 0
    return finding.kind in _DOUBTFUL or asked


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


def _test_files(runs: Runs, change: Change) -> dict[str, str]:
    """Return the changed files that test runs read, each with its number of changed lines."""
    restored = set(runs.restored)
    files = (file for file in change.files if file.path in restored or is_test_path(file.path))
    return {file.path: _with_lines(file) for file in files}


def _with_lines(file: FileChange) -> str:
    path = f"`{one_line(file.path, limit=_ID_CHARS)}`"
    if file.old is None or file.new is None:
        return f"{path} ({'new' if file.old is None else 'removed'})"
    old, new = _lines(file.old), _lines(file.new)
    if old is None or new is None:
        return path
    return f"{path} (+{(new - old).total()} -{(old - new).total()})"


def _lines(version: FileVersion) -> Counter[bytes] | None:
    if version.content is None or b"\0" in version.content:
        return None
    return Counter(version.content.splitlines())


_TRUE_OF_ONE = {
    FindingKind.BROKEN: "passed before and fails now",
    FindingKind.UNSTEADY: "passed before in each run and fails now in some",
    FindingKind.NEW_FAILS: "is new and fails",
    FindingKind.NAMED: "is named by the task and still fails",
    FindingKind.ONLY_AS_CHANGED: "failed before, does not pass with the base's tests and settings, and does not fail with those of this change",
    FindingKind.HIDDEN: "passed before, fails with the base's tests, and is not run any more",
    FindingKind.LOOSENED: "passed before, fails with the base's tests, and passes as it is changed, without the rest of this change too",
    FindingKind.ELSEWHERE: "passed before, fails with the base's settings, and passes with those of this change",
    FindingKind.CHANGED: "passed before and passes now only as changed",
    FindingKind.GONE: "is not there any more",
    FindingKind.SKIPPED: "is skipped now",
    FindingKind.FLAKY: "ends now so, now otherwise, on the base too",
    FindingKind.AS_BEFORE: "fails as before",
    FindingKind.FIXED: "failed before and passes now, with the tests as they were",
    FindingKind.PROVES: "fails without this change, by its own assertion",
    FindingKind.PROVES_BY_ERROR: "fails without this change, by an exception",
    FindingKind.NOT_LOADED: "could not be run without this change, which tells nothing",
    FindingKind.PASSES_WITHOUT: "is new and passes without this change too",
}


def _words(finding: RunFinding) -> str:
    """Return a finding in one line for people."""
    if finding.kind is FindingKind.UNPROVEN:
        return f"The run with this change counts for nothing: {in_markdown(finding.words, _WORDS_CHARS)}."
    if finding.kind is FindingKind.KEPT_UNPROVEN:
        words = in_markdown(finding.words, _WORDS_CHARS)
        return f"The run with the base's tests and settings counts for nothing: {words}."
    number = len(finding.tests)
    true = _TRUE_OF_ONE[finding.kind] if number == 1 else _of_several(_TRUE_OF_ONE[finding.kind])
    shown = ", ".join(f"`{one_line(name, limit=_ID_CHARS)}`" for name in finding.tests[:_SHOWN_TESTS])
    more = f" and {number - _SHOWN_TESTS} more" if number > _SHOWN_TESTS else ""
    how = _how(finding) if finding.kind in {FindingKind.CHANGED, FindingKind.GONE} else ""
    files = ", ".join(finding.files[:_SHOWN_FILES])
    if len(finding.files) > _SHOWN_FILES:
        files += f" and {len(finding.files) - _SHOWN_FILES} more"
    changed = f" Changed: {files}." if files else ""
    return f"{number} {'test' if number == 1 else 'tests'} {true}: {shown}{more}.{how}{changed}"


def _how(finding: RunFinding) -> str:
    """Return how tests fail in the base's version."""
    errors = sum(map(bool, finding.outputs)) - finding.by_assertion
    numbers = ((finding.by_assertion, "by their own assertion"), (errors, "by an error"))
    ends = " and ".join(f"{number} {words}" for number, words in numbers if number > 0)
    return f" As the base has them they fail: {ends}." if ends else ""


_SEVERAL = {
    "is": "are",
    "was": "were",
    "fails": "fail",
    "passes": "pass",
    "ends": "end",
    "does": "do",
    "it": "they",
    "its": "their",
}


def _of_several(words: str) -> str:
    return re.sub(r"\w+", lambda word: _SEVERAL.get(word[0], word[0]), words)


def _for_model(verdict: ChangeVerdict, *, brief: bool) -> str:
    most_chars = _BRIEF_CHARS if brief else _MODEL_CHARS

    def outputs(finding: RunFinding) -> list[str]:
        return [what_went_wrong(output) if brief else output for output in finding.outputs]

    sections = [
        (finding.kind.value, finding, list(zip(finding.tests or ("",), outputs(finding), strict=True)))
        for finding in verdict.findings
        if finding.kind in _RED or _is_doubtful(finding)
    ]
    most_tests = _BRIEF_TESTS if brief else _MODEL_TESTS
    return _within_limit(
        "verification/verdict", sections, most_chars, most_tests, verdict=verdict, brief=brief
    )


def what_went_wrong(output: str) -> str:
    """Return the essential lines of a failed test's output, for a small model.

    For pytest these are the test's arguments, the failing line, and the error; for others the last lines.
    """
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith(_PYTEST_ERROR)]
    if not errors:
        return "\n".join(lines[-_BRIEF_LINES:])[-_BRIEF_OUTPUT_CHARS:]
    failed = [place for place, line in enumerate(lines) if line.startswith(_PYTEST_LINE)][:1]
    arguments = [line for line in lines[: failed[0]] if _ARGUMENTS.match(line)] if failed else []
    return "\n".join([*arguments, *(lines[place] for place in failed), *errors[:_BRIEF_LINES]])[
        :_BRIEF_OUTPUT_CHARS
    ]


def _within_limit(
    template: str,
    sections: Sequence[tuple[str, Any, Sequence[tuple[str, str]]]],
    most_chars: int,
    most_tests: int = _MODEL_TESTS,
    **values: Any,
) -> str:
    """Render the template with as much test output as fits; the first tests take precedence."""
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
    room = most_chars - len(render(template, sections=shown, **values))
    seen: set[str] = set()
    for section, (_, _, tests) in zip(shown, sections, strict=True):
        for entry, (_, output) in zip(section["tests"], tests, strict=False):
            if output and output not in seen and room >= _LEAST_OUTPUT_CHARS:
                seen.add(output)
                entry["output"] = fenced(_excerpt(output, min(room - 20, _OUTPUT_CHARS)))
                room -= len(entry["output"]) + 1
    return render(template, sections=shown, **values)


def _excerpt(text: str, limit: int) -> str:
    """Return the first lines of a text and, with more room, its last ones."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit // 3
    return f"{text[:head].rpartition(chr(10))[0] or text[:head]}\n[…]\n{text[-(limit - head - 5) :]}"
