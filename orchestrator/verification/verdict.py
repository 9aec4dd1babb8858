"""Says what the runs of a change prove, test by test. Nothing here runs or reads anything."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.contracts.fence import one_line
from orchestrator.core.prompts import render
from orchestrator.core.test_paths import is_test_path
from orchestrator.guard.lines import in_markdown
from orchestrator.verification.base import WHOLE_RUN, CaseResult, CaseStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.core.changes import FileChange, FileVersion
    from orchestrator.verification.base import Change, RunResult, Runs

_ID_CHARS = 200
_SHOWN_TESTS = 5
_SHOWN_FILES = 5
_MODEL_CHARS = 6_000
_MODEL_TESTS = 15
_OUTPUT_CHARS = 1_500
_SHORTEST_OUTPUT = 200


class Kind(StrEnum):
    """What is said of a set of tests; the worst first."""

    UNPROVEN = "unproven"
    """The run with the change proves nothing."""
    BROKEN = "broken"
    """Passed before, fails now."""
    NEW_FAILS = "new_fails"
    """Was not there before, and fails."""
    NAMED = "named"
    """The task names it, and it fails as it did before."""
    ONLY_AS_CHANGED = "only_as_changed"
    """Failed before and fails with the base's tests; passes, is skipped or gone only with the change's."""
    ELSEWHERE = "elsewhere"
    """Passed before; its own file is as it was, and it passes only with another file of the change."""
    HIDDEN = "hidden"
    """Passed before, fails with the change as the base has it, and is skipped now, or gone though its file is not."""
    CHANGED = "changed"
    """Passed before, fails with the change as the base has it, and passes as it is written now."""
    GONE = "gone"
    """Passed before, is not there any more."""
    SKIPPED = "skipped"
    """Passed before, is skipped now."""
    FLAKY = "flaky"
    """Ended differently on the base's same files, so nothing is said of it."""
    AS_BEFORE = "as_before"
    """Failed before and fails now."""
    FIXED = "fixed"
    """Failed before, and passes with the tests as they were."""
    PROVES = "proves"
    """New or changed, and fails without the change by its own assertion."""
    PROVES_BY_ERROR = "proves_by_error"
    """New or changed, and without the change an exception ends it."""
    NOT_LOADED = "not_loaded"
    """New, and could not be loaded without the change: that tells nothing."""
    PASSES_WITHOUT = "passes_without"
    """New, and passes without the change too."""


_RED = frozenset({Kind.UNPROVEN, Kind.BROKEN, Kind.NEW_FAILS, Kind.NAMED})
_WARNING = _RED | {Kind.ONLY_AS_CHANGED, Kind.ELSEWHERE, Kind.HIDDEN}
_DOUBTFUL = frozenset({Kind.ONLY_AS_CHANGED, Kind.ELSEWHERE, Kind.HIDDEN})


@dataclass(frozen=True, slots=True)
class Finding:
    """What is true of some tests.

    Attributes:
        tests: their ids, in the order of the base's report or of the change's; empty for a whole run.
        files: the changed files on which it depends, each with its lines: `tests/a.py (+3 -1)`.
        by_assertion: how many of the tests fail by their own assertion where the finding speaks of a failure.
        words: of a run as a whole: why it proves nothing.
    """

    kind: Kind
    tests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    by_assertion: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the runs of a change prove.

    Attributes:
        findings: the worst first.
        problem: why nothing is proven, neither for the change nor against it; in one line, else empty.
    """

    runs: Runs
    findings: tuple[Finding, ...] = ()
    problem: str = ""

    @property
    def is_red(self) -> bool:
        """Whether the change breaks something, or leaves failing what its task names."""
        return any(finding.kind in _RED for finding in self.findings)

    @property
    def is_doubtful(self) -> bool:
        """Whether something passes only by what was done to the tests, which the model is asked about once."""
        return any(
            finding.kind in _DOUBTFUL or (finding.kind is Kind.CHANGED and finding.by_assertion)
            for finding in self.findings
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """What stands at the top of the pull request: lines of Markdown in which nothing is live."""
        return tuple(_words(finding) for finding in self.findings if finding.kind in _WARNING)

    @property
    def notes(self) -> tuple[str, ...]:
        """What else is true: lines of Markdown in which nothing is live."""
        problem = (f"Nothing is proven: {in_markdown(self.problem, 300)}",) if self.problem else ()
        return (*problem, *(_words(finding) for finding in self.findings if finding.kind not in _WARNING))

    def of(self, kind: Kind) -> tuple[str, ...]:
        """The tests of which `kind` is true."""
        return tuple(test for finding in self.findings if finding.kind is kind for test in finding.tests)

    def for_model(self) -> str:
        """The text of a failed call: which tests, how they end, what to do; about 6,000 characters at most."""
        return _for_model(self)


def judge(runs: Runs, change: Change) -> Verdict:
    """Compare the runs of a change, test by test."""
    if runs.problem:
        return Verdict(runs, problem=runs.problem)
    before, after = runs.before, runs.after or runs.kept
    if before is None or after is None:
        return Verdict(runs, problem="the tests were not run")
    if before.problem:
        return Verdict(runs, problem=f"the base's own run counts for nothing: {before.problem}")
    if after.problem:
        return Verdict(runs, (Finding(Kind.UNPROVEN, words=after.problem),))
    if before.cases and not after.cases:
        words = "it wrote no report of its tests, as the base's run did"
        return Verdict(runs, (Finding(Kind.UNPROVEN, words=words),))
    findings = _Judge(runs, before, after, change).findings()
    if before.is_green and not after.is_green and not any(finding.kind in _RED for finding in findings):
        words = f"no test failed that passed before, but the command ended with {after.exit}"
        findings = (Finding(Kind.UNPROVEN, words=words), *findings)
    return Verdict(runs, findings)


class _Tests:
    """The tests of one run, found by the ids of another.

    A test that the run does not list may have failed to load with its file or package. Where the runner stopped
    because of such a failure, nothing is known of the others: they count as not loaded too.
    """

    def __init__(self, run: RunResult, *, exit_only: bool) -> None:
        self.run = run
        self.cases: Mapping[str, CaseResult] = run.cases
        if exit_only:
            status = CaseStatus.PASSED if run.exit == 0 else CaseStatus.FAILED
            self.cases = {WHOLE_RUN: CaseResult(WHOLE_RUN, status, run.output)}
        self._errors = {name for name, case in self.cases.items() if case.status is CaseStatus.ERROR}
        self._is_cut_short = bool(run.problem) or (
            bool(self._errors) and len(self._errors) == len(self.cases)
        )
        self._pairs: dict[str, str] = {}

    def pair(self, others: _Tests) -> None:
        """Find tests of `others` that have another id here: of other parameters, or in a file that was moved."""
        self._pairs = {**_moved(others, self), **_parameters(others, self)}

    def paired(self) -> set[str]:
        """The ids here that are another's there."""
        return set(self._pairs.values())

    def find(self, name: str) -> CaseResult | None:
        """The test, or why it could not be loaded; None if it is not there."""
        found = self.cases.get(self._pairs.get(name, name))
        if found is not None:
            return found
        for part in _enclosing(name):
            if part in self._errors:
                return self.cases[part]
        if self._is_cut_short:
            return CaseResult(name, CaseStatus.ERROR, self.run.problem)
        return None


class _Judge:
    """One comparison."""

    def __init__(self, runs: Runs, before: RunResult, after: RunResult, change: Change) -> None:
        exit_only = not before.cases
        self._before = _Tests(before, exit_only=exit_only)
        self._after = _Tests(after, exit_only=exit_only)
        self._kept = _Tests(runs.kept, exit_only=exit_only) if runs.kept else self._after
        self._new = _Tests(runs.new, exit_only=exit_only) if runs.new and not exit_only else None
        self._after.pair(self._before)
        if self._kept is not self._after:
            self._kept.pair(self._before)
        if self._new is not None:
            self._new.pair(self._after)
        self._changed = _test_files(runs, change)
        self._named = _Named(change.task)
        self._found: defaultdict[tuple[Kind, tuple[str, ...]], list[tuple[str, bool]]] = defaultdict(list)

    def findings(self) -> tuple[Finding, ...]:
        """Everything that is true of some tests, the worst first."""
        for name, case in self._before.cases.items():
            self._compare(name, case)
        known = self._after.paired() | self._before.cases.keys()
        failed_before = {_function(case) for case in self._before.cases.values() if _failed(case)}
        for name, case in self._after.cases.items():
            if name not in known:
                self._look_at_new(name, case, failed_before)
        order = list(Kind)
        return tuple(
            Finding(kind, tuple(name for name, _ in tests), files, sum(own for _, own in tests))
            for (kind, files), tests in sorted(self._found.items(), key=lambda item: order.index(item[0][0]))
        )

    def _say(self, kind: Kind, name: str, *, by_assertion: bool = False, files: Sequence[str] = ()) -> None:
        self._found[kind, tuple(files)].append((name, by_assertion))

    def _compare(self, name: str, case: CaseResult) -> None:
        after, kept = self._after.find(name), self._kept.find(name)
        if name in self._before.run.unsteady:
            if after is None or after.status is not CaseStatus.PASSED:
                self._say(Kind.FLAKY, name)
        elif case.status is CaseStatus.PASSED:
            self._passed_before(name, case, kept, after)
        elif _failed(case):
            self._failed_before(name, case, kept, after)
        elif after is not None and _failed(after):
            self._say(Kind.NEW_FAILS, name, by_assertion=after.is_assertion)

    def _passed_before(
        self, name: str, case: CaseResult, kept: CaseResult | None, after: CaseResult | None
    ) -> None:
        fails_in_kept = kept is not None and _failed(kept)
        by_assertion = kept is not None and _failed(kept) and kept.is_assertion
        own = self._own_files(case)
        if after is not None and (_failed(after) or name in self._after.run.unsteady):
            self._say(Kind.BROKEN, name, by_assertion=after.is_assertion)
        elif after is None:
            is_hidden = fails_in_kept and by_assertion and not own
            files = own or self._all_files() if is_hidden or kept is not None else ()
            self._say(Kind.HIDDEN if is_hidden else Kind.GONE, name, by_assertion=by_assertion, files=files)
        elif after.status is CaseStatus.SKIPPED:
            self._say(
                Kind.HIDDEN if fails_in_kept else Kind.SKIPPED,
                name,
                by_assertion=by_assertion,
                files=own or self._all_files()
                if kept is None or kept.status is not CaseStatus.SKIPPED
                else (),
            )
        elif fails_in_kept:
            kind = Kind.CHANGED if own or not by_assertion or self._has_test_data() else Kind.ELSEWHERE
            self._say(kind, name, by_assertion=by_assertion, files=own or self._all_files())
        else:
            self._look_at_changed(name)

    def _failed_before(
        self, name: str, case: CaseResult, kept: CaseResult | None, after: CaseResult | None
    ) -> None:
        if after is not None and _failed(after):
            self._say(
                Kind.NAMED if self._named.names(case) else Kind.AS_BEFORE,
                name,
                by_assertion=after.is_assertion,
            )
        elif kept is not None and kept.status is CaseStatus.PASSED:
            self._say(Kind.FIXED if after is not None else Kind.GONE, name)
        else:
            by_assertion = kept is not None and kept.is_assertion
            files = self._own_files(case) or self._all_files()
            self._say(Kind.ONLY_AS_CHANGED, name, by_assertion=by_assertion, files=files)

    def _look_at_new(self, name: str, case: CaseResult, failed_before: set[str]) -> None:
        if _failed(case):
            if _function(case) in failed_before:
                self._say(Kind.AS_BEFORE, name)
            elif not any(_covers(name, known) for known in self._before.cases) or not _is_load_error(case):
                self._say(Kind.NEW_FAILS, name, by_assertion=case.is_assertion)
        elif case.status is CaseStatus.PASSED and self._new is not None:
            self._say(_without_change(self._new.find(name)), name)

    def _look_at_changed(self, name: str) -> None:
        """A test that the change may have changed: it passes everywhere, but not without the change."""
        if self._new is None:
            return
        without = self._new.find(name)
        if (
            without is not None
            and _failed(without)
            and (kind := _without_change(without)) is not Kind.NOT_LOADED
        ):
            self._say(kind, name)

    def _own_files(self, case: CaseResult) -> tuple[str, ...]:
        """The changed files that may hold the test; with their lines. Empty if its file is known to be as it was."""
        return tuple(lines for path, lines in self._changed.items() if _may_hold(path, case))

    def _all_files(self) -> tuple[str, ...]:
        return tuple(self._changed.values())

    def _has_test_data(self) -> bool:
        """Whether the change has files of tests that no runner executes by itself: helpers, snapshots, data."""
        return any(
            is_test_path(path) and path.rpartition("/")[2] not in _RUN_BY_ITSELF for path in self._changed
        )


_RUN_BY_ITSELF = frozenset({"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "__init__.py"})


def _failed(case: CaseResult) -> bool:
    return case.status in {CaseStatus.FAILED, CaseStatus.ERROR}


def _enclosing(name: str) -> Iterable[str]:
    """The ids under which a runner tells that a test's class, file or package could not be loaded."""
    parts = name.split("::")
    for end in range(1, len(parts)):
        yield "::".join(parts[:end])
    yield WHOLE_RUN


def _covers(name: str, other: str) -> bool:
    return other.startswith(f"{name}::")


def _is_load_error(case: CaseResult) -> bool:
    return case.status is CaseStatus.ERROR and case.id in {case.file, case.id.partition("::")[0]}


def _function(case: CaseResult) -> str:
    """The test's id without its parameters: `test_a[1]`, `testA with data set #1`."""
    start = len(case.file) if case.file and case.id.startswith(case.file) else case.id.rfind("::") + 1
    if case.id.endswith("]") and (at := case.id.find("[", start)) > 0:
        return case.id[:at]
    return case.id.partition(" with data set ")[0]


def _parameters(old: _Tests, new: _Tests) -> dict[str, str]:
    """Tests of one function whose parameters have other names now, in their order."""
    left: defaultdict[str, list[str]] = defaultdict(list)
    for name, case in new.cases.items():
        if name not in old.cases:
            left[_function(case)].append(name)
    pairs: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for name, case in old.cases.items():
        function = _function(case)
        if name not in new.cases and taken[function] < len(left.get(function, ())):
            pairs[name] = left[function][taken[function]]
            taken[function] += 1
    return pairs


def _moved(old: _Tests, new: _Tests) -> dict[str, str]:
    """Tests that have their class and name in one other file now."""

    def by_tail(ones: _Tests, others: _Tests) -> dict[str, list[str]]:
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


_IMPORT = re.compile(
    r"\b(?:ImportError|ModuleNotFoundError|SyntaxError|NameError|cannot import name|Cannot find module"
    r"|is not a function|NoSuchMethodError|NoClassDefFoundError)\b"
)


def _without_change(case: CaseResult | None) -> Kind:
    """What a new test that passes with the change proves, by how it ends without."""
    if case is None or case.status in {CaseStatus.ERROR, CaseStatus.SKIPPED}:
        return Kind.NOT_LOADED
    if case.status is CaseStatus.PASSED:
        return Kind.PASSES_WITHOUT
    if case.is_assertion:
        return Kind.PROVES
    return Kind.NOT_LOADED if _IMPORT.search(case.message) else Kind.PROVES_BY_ERROR


class _Named:
    """The tests that a task names: by their file, or by their function where its name is no common word."""

    def __init__(self, task: str) -> None:
        self._words = {word.strip(".,;:!?()'\"`") for word in re.split(r"[\s`'\"()<>,]+|::", task)} - {""}
        self._words |= {word.removeprefix("./") for word in self._words}
        self._files = {word for word in self._words if is_test_path(word) and "." in word.rpartition("/")[2]}

    def names(self, case: CaseResult) -> bool:
        file = case.file or case.id.partition("::")[0]
        if any(file == word or file.endswith(f"/{word}") for word in self._files):
            return True
        function = _function(case).rpartition("::")[2]
        return function in self._words and ("_" in function or not function.islower())


def _may_hold(path: str, case: CaseResult) -> bool:
    """Whether a changed file may be the one in which a test is written."""
    if case.file:
        return path == case.file or path.endswith(f"/{case.file}")
    if not is_test_path(path):
        return False
    place = case.id.partition("::")[0]
    stem = path.rpartition(".")[0].replace("/", ".")
    module = place.replace("/", ".").replace("\\", ".").partition("$")[0]
    if path.endswith("_test.go"):
        folder = path.rpartition("/")[0]
        return place == folder or place.endswith(f"/{folder}") or not folder
    if "." not in module:
        return True
    return (
        stem.endswith(f".{module}")
        or f".{module}".endswith(f".{stem.rpartition('.')[2]}")
        or f"{module}.".startswith(f"{stem}.")
    )


def _test_files(runs: Runs, change: Change) -> dict[str, str]:
    """The changed files that test runs read, each with how many of its lines are other ones."""
    restored = set(runs.restored)
    return {
        file.path: _with_lines(file)
        for file in change.files
        if file.path in restored or is_test_path(file.path)
    }


def _with_lines(file: FileChange) -> str:
    path = f"`{one_line(file.path, limit=_ID_CHARS)}`"
    if file.old is None:
        return f"{path} (new)"
    if file.new is None:
        return f"{path} (removed)"
    old, new = _lines(file.old), _lines(file.new)
    if old is None or new is None:
        return path
    return f"{path} (+{(new - old).total()} -{(old - new).total()})"


def _lines(version: FileVersion) -> Counter[bytes] | None:
    if version.content is None or b"\0" in version.content[:8000]:
        return None
    return Counter(version.content.splitlines())


_ONE = {
    Kind.BROKEN: "passed before and fails now",
    Kind.NEW_FAILS: "is new and fails",
    Kind.NAMED: "is named by the task and still fails",
    Kind.ONLY_AS_CHANGED: "failed before, does not pass with the base's tests, and does not fail with the change's",
    Kind.ELSEWHERE: "passed before, fails by its own assertion with the base's settings, and passes with the change's",
    Kind.HIDDEN: "passed before, fails with the base's tests, and is not run any more",
    Kind.CHANGED: "passes only as changed",
    Kind.GONE: "passed before and is not there any more",
    Kind.SKIPPED: "passed before and is skipped now",
    Kind.FLAKY: "ends differently on the base itself",
    Kind.AS_BEFORE: "fails as before",
    Kind.FIXED: "failed before and passes now, with the tests as they were",
    Kind.PROVES: "fails without the change by its own assertion",
    Kind.PROVES_BY_ERROR: "fails without the change by an exception",
    Kind.NOT_LOADED: "could not be loaded without the change, which tells nothing",
    Kind.PASSES_WITHOUT: "is new and passes without the change too",
}


def _words(finding: Finding) -> str:
    """A finding in one line for people."""
    if finding.kind is Kind.UNPROVEN:
        return f"The run with this change proves nothing: {in_markdown(finding.words, 300)}"
    number = len(finding.tests)
    shown = ", ".join(f"`{one_line(name, limit=_ID_CHARS)}`" for name in finding.tests[:_SHOWN_TESTS])
    more = f" and {number - _SHOWN_TESTS} more" if number > _SHOWN_TESTS else ""
    files = ", ".join(finding.files[:_SHOWN_FILES])
    if len(finding.files) > _SHOWN_FILES:
        files += f" and {len(finding.files) - _SHOWN_FILES} more"
    changed = f"; changed: {files}" if files else ""
    return f"{number} {'test' if number == 1 else 'tests'}: {_ONE[finding.kind]}: {shown}{more}{changed}"


def _for_model(verdict: Verdict) -> str:
    sections = [
        {"kind": finding.kind.value, "words": _words(finding), "tests": finding.tests[:_MODEL_TESTS]}
        for finding in verdict.findings
        if finding.kind in _WARNING or finding.kind is Kind.CHANGED
    ]
    return render("verification/verdict", sections=sections, command=verdict.runs.command)[:_MODEL_CHARS]


def describe_run(run: RunResult) -> str:
    """A run for the model: how many tests ended how, and of those that failed the output, cut."""
    return render("verification/run", run=run, failed=[case for case in run.cases.values() if _failed(case)])
