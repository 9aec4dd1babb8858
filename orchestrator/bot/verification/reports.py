"""Parses the results of a test run: exit code and reports (JUnit XML, `go test -json`, JSON of jest, vitest and RSpec)."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.bot.verification.base import WHOLE_RUN, CaseResult, CaseStatus, RunResult
from orchestrator.bot.verification.python_tests import exit_without
from orchestrator.core.changes import is_test_path
from orchestrator.core.fence import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from xml.parsers.expat import XMLParserType

    from orchestrator.bot.verification.base import RunKind
    from orchestrator.engine.environments.base import ExecResult

MAX_BYTES = 64_000_000
"""Largest report; 100,000 tests take about 20 million bytes."""
MAX_CASES = 200_000
_MAX_DEPTH = 50
_MAX_ID_CHARS = 500
_MAX_HEAD_CHARS = 1_000
_MAX_TAIL_CHARS = 3_000

_RANK = {CaseStatus.PASSED: 0, CaseStatus.SKIPPED: 1, CaseStatus.ERROR: 2, CaseStatus.FAILED: 3}

_ASSERTION_TYPE = re.compile(
    r"(?:Assert(?:ion)?(?:Failed)?(?:Error|Exception)?|Expectation(?:NotMetError|FailedException)|ComparisonFailure"
    r"|MultipleFailuresError|MultipleExpectationsNotMetError|PendingExampleFixedError)$"
)
# How a failure's first line begins where no type is told. pytest leaves the type out before a bare `assert`.
_ASSERTION_TEXT = re.compile(
    r"\s*(?:assert |AssertionError\b|Failed: |Failed$|\[XPASS\(strict\)\]|JestAssertionError|assert[.(]|(?:Error: )?expect\()"
)
# https://doc.rust-lang.org/std/macro.assert.html: what a panic says after its place.
_RUST_PANIC = "panicked at "
_RUST_ASSERTIONS = ("assertion failed", "assertion `")
_PLACES = re.compile(r"^([^\s:][^:\n]*):[0-9]+: (?:in )?\S+$", re.MULTILINE)


_OUTPUT_CHARS = 20_000
_NOTHING_COLLECTED = 5
"""pytest's exit code if no test was collected."""


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """What a test command left behind.

    Attributes:
        folder: the tree's path as the command saw it.
        reports: bytes of the reports.
        unread: why a report could not be read; empty if all were.
        rewritten: a test file that changed while the command ran; empty if none did.
        token: part of the control test's name; empty if there was none.
    """

    ran: ExecResult
    folder: str
    reports: tuple[bytes, ...] = ()
    unread: str = ""
    rewritten: str = ""
    token: str = ""


def run_result(
    kind: RunKind, tree: str, ended: EndedCommand, *, minutes: float, expects: RunResult | None = None
) -> tuple[RunResult, bool]:
    """Return the result of a run, and whether the control test was seen to fail.

    Args:
        expects: the base's run, which showed what this runner reports; None before that.
    """
    ran = ended.ran
    problem, cases = ended.unread, dict[str, CaseResult]()
    try:
        cases = by_id(case for data in ended.reports for case in read_report(data, root=ended.folder))
    except ValueError as error:
        problem = str(error)
    if len(cases) > MAX_CASES:
        problem, cases = f"the reports list more than {MAX_CASES:,} tests", {}
    control = [cases.pop(name) for name in list(cases) if ended.token and ended.token in name]
    shown = any(case.failed for case in control)
    failed = any(case.failed for case in cases.values())
    exit_code = exit_without(ran.exit_code, others_failed=failed) if shown else ran.exit_code
    problem = (
        why_stopped(ran, minutes)
        or problem
        or (f"a file of tests was changed while they ran: {ended.rewritten}" if ended.rewritten else "")
        or _disagreement(exit_code, cases.values(), has_report=bool(ended.reports), expects=expects)
    )
    digest = hashlib.sha256(b"".join(ended.reports)).hexdigest() if ended.reports else ""
    result = RunResult(
        kind=kind,
        tree=tree,
        cases=cases,
        exit=exit_code,
        seconds=ran.duration_ms / 1_000,
        problem=problem,
        digest=f"sha256:{digest}" if digest else "",
        output=ran.output[-_OUTPUT_CHARS:],
    )
    return result, shown


def why_stopped(ran: ExecResult, minutes: float) -> str:
    """Return why a command did not complete; empty if it did."""
    if ran.killed_for:
        return f"was stopped: {ran.killed_for}"
    return f"did not end within {minutes:g} minutes; raise test_minutes" if ran.timed_out else ""


def _disagreement(
    exit_code: int, cases: Collection[CaseResult], *, has_report: bool, expects: RunResult | None
) -> str:
    """Return why the success of a run is not credible; empty if it is, or if the run reports failure."""
    if exit_code != 0:
        return "no test ran" if exit_code == _NOTHING_COLLECTED and has_report and not cases else ""
    failed = sum(case.failed for case in cases)
    if failed:
        return f"the exit code is 0, though the report has failed tests: {failed}"
    if has_report and not any(case.status is CaseStatus.PASSED for case in cases):
        return "no test ran" if not cases else "every test was skipped"
    if not has_report and expects is not None and expects.cases:
        return "the exit code is 0, but no report was written"
    return ""


def read_report(data: bytes, *, root: str = "") -> tuple[CaseResult, ...]:
    """Parse a report. Its format is detected from its content.

    Args:
        root: the folder of the run; paths of files below it become relative to it.

    Returns:
        The tests in the report's order. A test with several results has the worst of them.

    Raises:
        ValueError: the report has no supported format, is too large, or its counts differ from its lists; in
            one line.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"the report is larger than {MAX_BYTES // 1_000_000} MB")
    begun = data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if begun.startswith(b"<") or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        found = _junit(data)
    else:
        found = _json(data)
    cases = by_id(_cleaned(case, root.rstrip("/")) for case in found)
    if len(cases) > MAX_CASES:
        raise ValueError(f"the report lists more than {MAX_CASES:,} tests")
    return tuple(cases.values())


def by_id(cases: Iterable[CaseResult]) -> dict[str, CaseResult]:
    """Return the tests by id. Of several results of one test the worst counts."""
    found: dict[str, CaseResult] = {}
    for case in cases:
        other = found.get(case.id)
        if other is None or _RANK[case.status] > _RANK[other.status]:
            found[case.id] = case
    return found


def _cleaned(case: CaseResult, root: str) -> CaseResult:
    """Return the test with a one-line id, paths relative to `root`, and a cut message."""
    name, file = case.id, case.file
    if root:
        name = name.removeprefix(f"{root}/")
        file = file.removeprefix(f"{root}/")
    file = file.removeprefix("./").replace("\\", "/")
    if file.startswith("/") or ".." in file.split("/"):
        file = ""
    return CaseResult(_plain_id(name), case.status, _cut(case.message), case.is_assertion, file)


def _plain_id(name: str) -> str:
    if len(name) > _MAX_ID_CHARS:
        name = f"{name[: _MAX_ID_CHARS - 20]}… {hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]}"
    return name if name.isprintable() else one_line(name, limit=10 * _MAX_ID_CHARS, keep="`")


def _cut(text: str) -> str:
    """Return the start and the end of a long text: the first and last lines of a failure matter most."""
    text = text.strip()
    if len(text) <= _MAX_HEAD_CHARS + _MAX_TAIL_CHARS:
        return text
    return f"{text[:_MAX_HEAD_CHARS]}\n[…]\n{text[-_MAX_TAIL_CHARS:]}"


def _first_line(text: str) -> str:
    return text.lstrip().partition("\n")[0]


# JUnit XML: https://github.com/testmoapp/junitxml, and the schemas of the runners named in `_Junit`.


def _junit(data: bytes) -> list[CaseResult]:
    from xml.parsers import expat

    reader = _Junit()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    reader.attach(parser)
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, UnicodeError) as error:
        raise ValueError(f"the report is not XML: {_first_line(str(error))}") from error
    return reader.finish()


_BAD = frozenset({"failure", "error", "warning"})
_RERUN = frozenset({"rerunFailure", "rerunError"})
_FLAKY = frozenset({"flakyFailure", "flakyError"})
_OUTCOMES = _BAD | _RERUN | _FLAKY | {"skipped"}


class _Junit:
    """Collects the tests of one file while it is parsed.

    pytest writes one suite, Surefire one per file, PHPUnit nested suites, nextest one per binary. Only the
    counts of the outermost suites are compared, because they include the inner ones.
    """

    def __init__(self) -> None:
        self._cases: list[CaseResult] = []
        self._path: list[str] = []
        self._case: Mapping[str, str] = {}
        self._outcomes: list[tuple[str, Mapping[str, str], str]] = []
        self._outcome: tuple[str, Mapping[str, str]] | None = None
        self._text: list[str] = []
        self._claimed: Counter[str] = Counter()
        self._listed: Counter[str] = Counter()
        self._suites: list[str] = []
        self._suite_files: list[str] = []

    def attach(self, parser: XMLParserType) -> None:
        """Register the callbacks of the parser, and refuse declarations."""
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def finish(self) -> list[CaseResult]:
        """Return the tests.

        Raises:
            ValueError: the suites count more failures than are listed, or count tests while none is listed.
        """
        _agree(self._claimed["failures"], self._listed["failures"], "failures")
        if not self._listed["tests"]:  # pytest counts a test once for each of its subtests
            _agree(self._claimed["tests"], 0, "tests")
        return self._cases

    def _refuse(self, *_: object) -> None:
        raise ValueError("the report has a document type declaration, which no test runner writes")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name not in {"testsuites", "testsuite"}:
            raise ValueError("the report is XML, but not JUnit's")
        if len(self._path) >= _MAX_DEPTH:
            raise ValueError("the report's XML is nested too deeply")
        if name == "testsuite":
            if "testsuite" not in self._path:
                self._claim(attributes)
            self._suite_files.append(attributes.get("file", ""))
            self._suites.append(attributes.get("name", ""))
        elif name == "testcase":
            if "testcase" in self._path:
                raise ValueError("the report has a test inside a test")
            self._case, self._outcomes = attributes, []
        elif name in _OUTCOMES and self._path[-1] == "testcase":
            self._outcome, self._text = (name, attributes), []
        self._path.append(name)

    def _characters(self, text: str) -> None:
        if self._outcome is not None:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._path.pop()
        if name == "testsuite":
            self._suite_files.pop()
            self._suites.pop()
        elif name == "testcase":
            self._add()
        elif self._outcome is not None and self._path[-1] == "testcase":
            self._outcomes.append((*self._outcome, "".join(self._text)))
            self._outcome = None

    def _claim(self, attributes: Mapping[str, str]) -> None:
        self._claimed["tests"] += _number(attributes.get("tests"))
        self._claimed["failures"] += _number(attributes.get("failures")) + _number(attributes.get("errors"))

    def _add(self) -> None:
        self._listed["tests"] += 1
        if len(self._cases) > MAX_CASES:
            raise ValueError(f"the report lists more than {MAX_CASES:,} tests")
        name, classname = self._case.get("name", ""), self._case.get("classname", "")
        file = self._case.get("file", "") or next(filter(None, reversed(self._suite_files)), "")
        suite = self._suites[-1] if self._suites else ""
        found = _junit_case(name, classname, file, suite)
        is_whole = found.id in {found.file, classname, suite}
        for element, attributes, text in self._outcomes:
            message = attributes.get("message", "")
            self._listed["failures"] += element != "skipped"  # Surefire counts each rerun
            if element in _BAD:
                other = _junit_failure(found, element, attributes, text, is_whole=is_whole)
            elif element in _FLAKY:
                other = replace(found, message=f"passed when it was run again; before: {message or text}")
            elif element == "skipped":
                other = replace(found, status=CaseStatus.SKIPPED, message=message)
            else:
                continue
            if _RANK[other.status] > _RANK[found.status] or not found.message:
                found = other
        self._cases.append(found)


_UNNAMED = "(a test without a name)"
_SCRIPT = re.compile(r"\.[cm]?[jt]sx?$")


def _junit_case(name: str, classname: str, file: str, suite: str) -> CaseResult:
    """Return the test with its id: pytest's own for a Python file, else beginning with its file or class.

    If a class, a module or a data provider fails as a whole, its name stands for it.
    """
    if file.endswith(".py"):
        module = file.removesuffix(".py").replace("\\", "/").replace("/", ".")
        if not classname:
            return CaseResult(file if name == module else f"{file}::{name}", CaseStatus.PASSED, file=file)
        if classname == module or classname.startswith(f"{module}."):
            classes = classname[len(module) + 1 :].split(".")
        else:  # inherited: the file is that of the base, and the module stands before the class
            parts = classname.split(".")
            modules = list(itertools.takewhile(lambda part: not part[:1].isupper(), parts))
            file, classes = f"{'/'.join(modules)}.py", parts[len(modules) :]
        return CaseResult("::".join([file, *filter(None, classes), name]), CaseStatus.PASSED, file=file)
    if not classname and "::" in suite:
        return CaseResult(suite, CaseStatus.PASSED, file=file)
    if not file and _SCRIPT.search(classname):
        file = classname
    name = "" if name == classname else name
    return CaseResult("::".join(filter(None, (classname, name))) or _UNNAMED, CaseStatus.PASSED, file=file)


def _junit_failure(
    case: CaseResult, element: str, attributes: Mapping[str, str], text: str, *, is_whole: bool
) -> CaseResult:
    """Record a failure or an error. An error with a type was raised by the test; pytest's have none."""
    message, kind = attributes.get("message", ""), attributes.get("type", "")
    words = (text if _first_line(message).strip() in text else f"{message}\n{text}") or kind
    if kind.endswith("RiskyTestError"):  # PHPUnit's for a test that asserts nothing; it does not fail the run
        return replace(case, status=CaseStatus.SKIPPED, message=words)
    if is_whole or not (element == "failure" or (element == "error" and kind)):
        return replace(case, status=CaseStatus.ERROR, message=words)
    is_assertion = _is_assertion(kind, message or text, text, case.file)
    return replace(case, status=CaseStatus.FAILED, message=words, is_assertion=is_assertion)


def _is_assertion(kind: str, message: str, text: str, file: str) -> bool:
    """Return whether the test's own assertion failed, not an exception or an assertion of other code."""
    is_rust = _is_rust_assertion(text)
    if kind and not is_rust:
        return _ASSERTION_TYPE.search(kind) is not None
    if not (_ASSERTION_TEXT.match(message) or is_rust):
        return False
    places = _PLACES.findall(text)
    if not places:
        return True
    last = places[-1].replace("\\", "/")
    return last == file or is_test_path(last) or last.startswith(("/", "..")) or "site-packages" in last


def _is_rust_assertion(text: str) -> bool:
    """Return whether a panic reports a failed assertion, on its line or, since Rust 1.73, on the next."""
    if _RUST_PANIC not in text:
        return False
    lines = text.split("\n")
    said = (
        f"{line.partition(_RUST_PANIC)[2]}\n{following}"
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if _RUST_PANIC in line
    )
    return any(assertion in words for words in said for assertion in _RUST_ASSERTIONS)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004


# JSON.


def _json(data: bytes) -> list[CaseResult]:
    text = data.decode("utf-8-sig", "replace")
    whole = _loaded(text)
    if isinstance(whole, dict) and isinstance(whole.get("testResults"), list):
        return _jest(whole)
    if isinstance(whole, dict) and isinstance(whole.get("examples"), list):
        return _rspec(whole)
    lines = text.split("\n")
    if any(line.startswith("{") and '"Action"' in line and _loaded(line) for line in lines):
        return _Go().read(lines)
    raise ValueError("the report is of no test runner that is understood")


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [_text(item) for item in value] if isinstance(value, list) else []


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _agree(counted: object, listed: int, what: str) -> None:
    if isinstance(counted, int) and counted > listed:
        raise ValueError(f"the report counts {counted} {what} and lists {listed}")


def _jest(report: dict[str, Any]) -> list[CaseResult]:
    """Parse the JSON of Jest and vitest: https://jestjs.io/docs/configuration#testresultsprocessor-string."""
    cases: list[CaseResult] = []
    listed = 0
    for suite in _dicts(report["testResults"]):
        file = _text(suite.get("name"))
        tests = list(_dicts(suite.get("assertionResults")))
        listed += len(tests)
        cases.extend(_jest_case(test, file) for test in tests)
        if suite.get("status") == "failed" and not any(test.get("status") == "failed" for test in tests):
            cases.append(CaseResult(file, CaseStatus.ERROR, _text(suite.get("message")), file=file))
    _agree(report.get("numTotalTests"), listed, "tests")
    failures = sum(case.status is CaseStatus.FAILED for case in cases)
    _agree(report.get("numFailedTests"), failures, "failures")
    errors = sum(case.status is CaseStatus.ERROR for case in cases)
    _agree(report.get("numRuntimeErrorTestSuites"), errors, "files that could not be loaded")
    if report.get("success") is False and not failures and not errors:
        cases.append(CaseResult(WHOLE_RUN, CaseStatus.ERROR, "the runner says that it did not succeed"))
    return cases


def _jest_case(test: dict[str, Any], file: str) -> CaseResult:
    name = " > ".join([*_texts(test.get("ancestorTitles")), _text(test.get("title"))])
    said = test.get("status")
    status = (
        CaseStatus.PASSED
        if said == "passed"
        else CaseStatus.SKIPPED
        if said in {"pending", "skipped", "todo", "disabled"}
        else CaseStatus.FAILED
    )
    message = "\n".join(_texts(test.get("failureMessages")))
    is_assertion = status is CaseStatus.FAILED and (
        _ASSERTION_TEXT.match(message) is not None
        or any("matcherResult" in detail for detail in _dicts(test.get("failureDetails")))
    )
    return CaseResult(f"{file}::{name}", status, message, is_assertion, file)


def _rspec(report: dict[str, Any]) -> list[CaseResult]:
    """Parse the JSON of RSpec: `lib/rspec/core/formatters/json_formatter.rb`."""
    cases = []
    for example in _dicts(report["examples"]):
        file = _text(example.get("file_path")).removeprefix("./")
        said = example.get("status")
        status = {"passed": CaseStatus.PASSED, "pending": CaseStatus.SKIPPED}.get(
            _text(said), CaseStatus.FAILED
        )
        exception = example.get("exception")
        exception = exception if isinstance(exception, dict) else {}
        kind, message = _text(exception.get("class")), _text(exception.get("message"))
        is_assertion = status is CaseStatus.FAILED and _ASSERTION_TYPE.search(kind) is not None
        name = f"{file}::{_text(example.get('full_description'))}"
        words = f"{kind}: {message.strip()}" if kind else _text(example.get("pending_message"))
        cases.append(CaseResult(name, status, words, is_assertion, file))
    summary = report.get("summary")
    summary = summary if isinstance(summary, dict) else {}
    _agree(summary.get("example_count"), len(cases), "tests")
    failures = sum(case.status is CaseStatus.FAILED for case in cases)
    _agree(summary.get("failure_count"), failures, "failures")
    outside = summary.get("errors_outside_of_examples_count")
    if isinstance(outside, int) and outside > 0:
        said = "\n".join(_texts(report.get("messages")))
        cases.append(CaseResult(WHOLE_RUN, CaseStatus.ERROR, said))
    return cases


_GO_UNBUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]")
_GO_STOPPED = re.compile(r"^(?:panic|fatal error): ", re.MULTILINE)
# What t.Error and t.Fatal print, and an example whose output is another one.
_GO_ASSERTION = re.compile(r"^ *\w+_test\.go:[0-9]+: |^got:$", re.MULTILINE)


class _Go:
    """Parses the events of `go test -json`: https://pkg.go.dev/cmd/test2json, and `go help buildjson` for builds.

    A test's output may imitate the runner's own lines (before Go 1.20 it then becomes an event), so the worst
    result of a test counts.
    """

    def __init__(self) -> None:
        self._ends: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._output: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._builds: defaultdict[str, list[str]] = defaultdict(list)
        self._failed_builds: dict[str, str] = {}

    def read(self, lines: Iterable[str]) -> list[CaseResult]:
        """Return the tests, and an error for each package in which not every test ran."""
        for line in lines:
            if line.startswith("{") and isinstance(event := _loaded(line), dict):
                self._add(event)
            elif unbuilt := _GO_UNBUILT.match(line):  # before Go 1.20 the only word of it
                self._ends[unbuilt[1], ""].add("fail")
        cases = [self._case(package, test, ends) for (package, test), ends in self._ends.items() if test]
        parents = {parent for case in cases if case.is_assertion for parent in _go_parents(case.id)}
        cases = [replace(case, is_assertion=True) if case.id in parents else case for case in cases]
        failed = {case.id.partition("::")[0] for case in cases if case.failed}
        stopped = {
            package for (package, _), said in self._output.items() if any(map(_GO_STOPPED.match, said))
        }
        for (package, test), ends in self._ends.items():
            if not test and "fail" in ends and (package not in failed or package in stopped):
                cases.append(CaseResult(package, CaseStatus.ERROR, self._words_of_package(package)))
        return cases

    def _add(self, event: dict[str, Any]) -> None:
        package, test, action = (_text(event.get(key)) for key in ("Package", "Test", "Action"))
        if action == "build-output":
            self._builds[_text(event.get("ImportPath"))].append(_text(event.get("Output")))
        elif not package:
            return
        elif action == "output":
            self._output[package, test].append(_text(event.get("Output")))
        elif action in {"run", "pass", "fail", "skip"}:
            self._ends[package, test].add(action)
            if build := _text(event.get("FailedBuild")):
                self._failed_builds[package] = build

    def _words_of_package(self, package: str) -> str:
        build = self._builds.get(self._failed_builds.get(package, ""), ())
        return "".join(build) or "".join(self._output[package, ""]) or "the package could not be built"

    def _case(self, package: str, test: str, ends: set[str]) -> CaseResult:
        name, words = f"{package}::{test}", "".join(self._output[package, test])
        if "fail" in ends:
            is_assertion = _GO_ASSERTION.search(words) is not None and not _GO_STOPPED.search(words)
            return CaseResult(name, CaseStatus.FAILED, words, is_assertion)
        if not ends & {"pass", "skip"}:
            return CaseResult(name, CaseStatus.ERROR, words or "the test began and did not end")
        return CaseResult(name, CaseStatus.SKIPPED if "skip" in ends else CaseStatus.PASSED)


def _go_parents(name: str) -> Iterator[str]:
    """Yield the tests that contain a test."""
    while "/" in name.rpartition("::")[2]:
        name = name.rpartition("/")[0]
        yield name
