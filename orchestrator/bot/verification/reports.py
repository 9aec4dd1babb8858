"""Parses the results of a test run: exit code and reports (JUnit XML, CTRF, `go test -json`, JSON of jest, vitest, RSpec)."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.bot.verification.base import NO_TEST_RAN, WHOLE_RUN, CaseResult, CaseStatus, RunResult
from orchestrator.bot.verification.printed import printed_count, printed_failure
from orchestrator.core.changes import is_test_path
from orchestrator.core.prompts import one_line

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
# The beginning of an assertion's message in reports without types. pytest omits the type of a plain `assert`.
_ASSERTION_TEXT = re.compile(
    r"\s*(?:assert |AssertionError\b|Failed: |Failed$|\[XPASS\(strict\)\]|JestAssertionError|assert[.(]|(?:Error: )?expect\()"
)
# What a panic prints after its place: https://doc.rust-lang.org/std/macro.assert.html.
_RUST_PANIC = "panicked at "
_RUST_ASSERTIONS = ("assertion failed", "assertion `")
_PLACES = re.compile(r"^([^\s:][^:\n]*):[0-9]+: (?:in )?\S+$", re.MULTILINE)


_OUTPUT_CHARS = 20_000
_TESTS_FAILED, _NOTHING_COLLECTED = 1, 5
"""pytest's exit codes: https://docs.pytest.org/en/stable/reference/exit-codes.html."""


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """A test command that has ended, and its reports.

    Attributes:
        folder: the tree's path as the command saw it.
        reports: bytes of the reports.
        unread: why the command could not be run or a report could not be read; empty if neither happened.
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
    """Return the result of a run, and whether the report shows that the control test failed.

    Args:
        expects: the base's run, which shows whether this runner writes a report; None for the base itself.
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
    control_failed = any(case.failed for case in control)
    failed = any(case.failed for case in cases.values())
    only_control_failed = control_failed and not failed and ran.exit_code == _TESTS_FAILED
    exit_code = 0 if only_control_failed else ran.exit_code
    counted = None if ended.reports else printed_count(ran.output)
    told = "" if ended.reports or exit_code else printed_failure(ran.output)
    problem = (
        why_stopped(ran, minutes)
        or problem
        or (f"a test file was changed while the tests ran: {ended.rewritten}" if ended.rewritten else "")
        or _contradiction(exit_code, cases.values(), has_report=bool(ended.reports), expects=expects)
        or (NO_TEST_RAN if counted == 0 else "")
        or (told and f"the exit code is 0, though the output tells of a failed test: {told}")
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
        counted=counted,
        was_stopped=bool(why_stopped(ran, minutes)),
    )
    return result, control_failed


def why_stopped(ran: ExecResult, minutes: float) -> str:
    """Return why a command did not complete, without a subject; empty if it did."""
    if ran.killed_for:
        return f"was stopped: {ran.killed_for}"
    return f"did not end within {minutes:g} minutes; raise test_minutes" if ran.timed_out else ""


def _contradiction(
    exit_code: int, cases: Collection[CaseResult], *, has_report: bool, expects: RunResult | None
) -> str:
    """Return why a run proves nothing although it ended: it contradicts its report, or ran no test; else empty."""
    if exit_code != 0:
        return NO_TEST_RAN if exit_code == _NOTHING_COLLECTED and has_report and not cases else ""
    if failed := sum(case.failed for case in cases):
        return f"the exit code is 0, though the report has failed tests: {failed}"
    if has_report and not any(case.status is CaseStatus.PASSED for case in cases):
        return NO_TEST_RAN if not cases else "every test was skipped"
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
        ValueError: the report has no supported format, is too large, or lists fewer tests or failures than it
            counts; in one line.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"the report is larger than {MAX_BYTES // 1_000_000} MB")
    start = data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    is_xml = start.startswith(b"<") or data.startswith((b"\xff\xfe", b"\xfe\xff"))
    found = _junit(data) if is_xml else _json(data)
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
    """Return the test with a one-line id, paths relative to `root`, and a shortened message."""
    name, file, message = case.id, case.file, case.message.strip()
    if root:
        name = name.removeprefix(f"{root}/")
        file = file.removeprefix(f"{root}/")
    file = file.removeprefix("./").replace("\\", "/")
    if file.startswith("/") or ".." in file.split("/"):
        file = ""
    if len(name) > _MAX_ID_CHARS:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
        name = f"{name[: _MAX_ID_CHARS - 20]}… {digest[:12]}"
    if not name.isprintable():
        name = one_line(name, limit=10 * _MAX_ID_CHARS, keep="`")
    if len(message) > _MAX_HEAD_CHARS + _MAX_TAIL_CHARS:
        message = f"{message[:_MAX_HEAD_CHARS]}\n[…]\n{message[-_MAX_TAIL_CHARS:]}"
    return CaseResult(name, case.status, message, case.is_assertion, file)


def _first_line(text: str) -> str:
    return text.lstrip().partition("\n")[0]


# JUnit XML: https://github.com/testmoapp/junitxml, and the schemas of the runners named in `_Junit`.


def _junit(data: bytes) -> list[CaseResult]:
    from xml.parsers import expat

    parser = expat.ParserCreate()
    parser.buffer_text = True
    reader = _Junit(parser)
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

    def __init__(self, parser: XMLParserType) -> None:
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
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

    def finish(self) -> list[CaseResult]:
        """Return the tests."""
        _check_count(self._claimed["failures"], self._listed["failures"], "failures")
        if not self._listed["tests"]:  # pytest counts a test once for each of its subtests
            _check_count(self._claimed["tests"], 0, "tests")
        return self._cases

    def _refuse(self, *_: object) -> None:
        raise ValueError("the report has a document type declaration, which no test runner writes")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name not in {"testsuites", "testsuite"}:
            raise ValueError("the report is XML, but not JUnit XML")
        if len(self._path) >= _MAX_DEPTH:
            raise ValueError("the report's XML is nested too deeply")
        if name == "testsuite":
            if "testsuite" not in self._path:
                failures = _number(attributes.get("failures")) + _number(attributes.get("errors"))
                self._claimed.update(tests=_number(attributes.get("tests")), failures=failures)
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
            self._listed["failures"] += element != "skipped"  # Surefire counts repeated runs too
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
    """Return the test as passed, with pytest's own id for a Python file, else with one of its class and name.

    If a class, a module or a data provider fails as a whole, its name is the id.
    """
    if file.endswith(".py"):
        module = file.removesuffix(".py").replace("\\", "/").replace("/", ".")
        if not classname:
            return CaseResult(file if name == module else f"{file}::{name}", CaseStatus.PASSED, file=file)
        if classname == module or classname.startswith(f"{module}."):
            classes = classname[len(module) + 1 :].split(".")
        else:  # an inherited test: `file` is that of the base class, `classname` has the test's own module
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
    """Return the test as failed, or as an error if it did not fail by itself.

    An `error` element with a type was raised by the test itself; pytest's error elements have no type.
    """
    message, kind = attributes.get("message", ""), attributes.get("type", "")
    shown = (text if _first_line(message).strip() in text else f"{message}\n{text}") or kind
    if kind.endswith("RiskyTestError"):  # PHPUnit's for a test that asserts nothing; it does not fail the run
        return replace(case, status=CaseStatus.SKIPPED, message=shown)
    if is_whole or not (element == "failure" or (element == "error" and kind)):
        return replace(case, status=CaseStatus.ERROR, message=shown)
    is_assertion = _is_assertion(kind, message or text, text, case.file)
    return replace(case, status=CaseStatus.FAILED, message=shown, is_assertion=is_assertion)


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
    return any(
        assertion in f"{line.partition(_RUST_PANIC)[2]}\n{following}"
        for line, following in itertools.pairwise([*text.split("\n"), ""])
        if _RUST_PANIC in line
        for assertion in _RUST_ASSERTIONS
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004


# JSON.


def _json(data: bytes) -> list[CaseResult]:
    text = data.decode("utf-8-sig", "replace")
    report = _parse_json(text)
    if isinstance(report, dict) and isinstance(report.get("testResults"), list):
        return _jest(report)
    if isinstance(report, dict) and isinstance(report.get("examples"), list):
        return _rspec(report)
    if isinstance(report, dict) and isinstance(report.get("results"), dict) and "tests" in report["results"]:
        return _ctrf(report["results"])
    lines = text.split("\n")
    if any(line.startswith("{") and '"Action"' in line and _parse_json(line) for line in lines):
        return _Go().read(lines)
    raise ValueError("the report's format is not supported")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _as_texts(value: object) -> list[str]:
    return [_as_text(item) for item in value] if isinstance(value, list) else []


def _as_objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _check_count(counted: object, listed: int, what: str) -> None:
    if isinstance(counted, int) and counted > listed:
        raise ValueError(f"the report counts {counted} {what} and lists {listed}")


def _jest(report: dict[str, Any]) -> list[CaseResult]:
    """Parse the JSON of Jest and vitest: https://jestjs.io/docs/configuration#testresultsprocessor-string."""
    cases: list[CaseResult] = []
    listed = 0
    for suite in _as_objects(report["testResults"]):
        file = _as_text(suite.get("name"))
        tests = list(_as_objects(suite.get("assertionResults")))
        listed += len(tests)
        cases.extend(_jest_case(test, file) for test in tests)
        if suite.get("status") == "failed" and not any(test.get("status") == "failed" for test in tests):
            cases.append(CaseResult(file, CaseStatus.ERROR, _as_text(suite.get("message")), file=file))
    _check_count(report.get("numTotalTests"), listed, "tests")
    failures = sum(case.status is CaseStatus.FAILED for case in cases)
    _check_count(report.get("numFailedTests"), failures, "failures")
    errors = sum(case.status is CaseStatus.ERROR for case in cases)
    _check_count(report.get("numRuntimeErrorTestSuites"), errors, "files that could not be loaded")
    if report.get("success") is False and not failures and not errors:
        cases.append(CaseResult(WHOLE_RUN, CaseStatus.ERROR, "the report says that the run did not succeed"))
    return cases


_STATUSES = {"passed": CaseStatus.PASSED} | dict.fromkeys(
    ("pending", "skipped", "todo", "disabled"), CaseStatus.SKIPPED
)


def _jest_case(test: dict[str, Any], file: str) -> CaseResult:
    name = " > ".join([*_as_texts(test.get("ancestorTitles")), _as_text(test.get("title"))])
    status = _STATUSES.get(_as_text(test.get("status")), CaseStatus.FAILED)
    message = "\n".join(_as_texts(test.get("failureMessages")))
    is_assertion = status is CaseStatus.FAILED and (
        _ASSERTION_TEXT.match(message) is not None
        or any("matcherResult" in detail for detail in _as_objects(test.get("failureDetails")))
    )
    return CaseResult(f"{file}::{name}", status, message, is_assertion, file)


def _rspec(report: dict[str, Any]) -> list[CaseResult]:
    """Parse the JSON of RSpec: `lib/rspec/core/formatters/json_formatter.rb`."""
    cases = []
    for example in _as_objects(report["examples"]):
        file = _as_text(example.get("file_path")).removeprefix("./")
        status = _STATUSES.get(_as_text(example.get("status")), CaseStatus.FAILED)
        exception = example.get("exception")
        exception = exception if isinstance(exception, dict) else {}
        kind, message = _as_text(exception.get("class")), _as_text(exception.get("message"))
        is_assertion = status is CaseStatus.FAILED and _ASSERTION_TYPE.search(kind) is not None
        name = f"{file}::{_as_text(example.get('full_description'))}"
        words = f"{kind}: {message.strip()}" if kind else _as_text(example.get("pending_message"))
        cases.append(CaseResult(name, status, words, is_assertion, file))
    summary = report.get("summary")
    summary = summary if isinstance(summary, dict) else {}
    _check_count(summary.get("example_count"), len(cases), "tests")
    failures = sum(case.status is CaseStatus.FAILED for case in cases)
    _check_count(summary.get("failure_count"), failures, "failures")
    outside = summary.get("errors_outside_of_examples_count")
    if isinstance(outside, int) and outside > 0:
        cases.append(CaseResult(WHOLE_RUN, CaseStatus.ERROR, "\n".join(_as_texts(report.get("messages")))))
    return cases


def _ctrf(results: dict[str, Any]) -> list[CaseResult]:
    """Parse a report of the Common Test Report Format: https://github.com/ctrf-io/ctrf/blob/main/spec/ctrf.md."""
    cases = [_ctrf_case(test) for test in _as_objects(results["tests"])]
    summary = results.get("summary")
    summary = summary if isinstance(summary, dict) else {}
    _check_count(summary.get("tests"), len(cases), "tests")
    failures = sum(case.failed for case in cases)
    _check_count(summary.get("failed"), failures, "failures")
    return cases


_CTRF_ERRORS = frozenset({CaseStatus.ERROR.value, "setup_failed", "teardown_failed"})
"""What this program and pytest-json-ctrf write as `rawStatus` of a test whose file or fixture failed."""


def _ctrf_case(test: dict[str, Any]) -> CaseResult:
    """Return a test, named by its file, suite and name as far as the name does not have them already.

    The status `other` says of a test neither that it passed nor that it was left out, so it counts as failed.
    """
    file, name = _as_text(test.get("filePath")), _as_text(test.get("name"))
    if not (file and name.startswith(f"{file}::")):
        suite = test.get("suite")
        titles = suite.split(" > ") if isinstance(suite, str) else _as_texts(suite)
        titles = titles[1:] if titles[:1] == [file] else titles
        name = "::".join(filter(None, (file, " > ".join(filter(None, (*titles, name))))))
    status = _STATUSES.get(_as_text(test.get("status")), CaseStatus.FAILED)
    message, trace = _as_text(test.get("message")), _as_text(test.get("trace"))
    shown = "\n".join(filter(None, (message if message not in trace else "", trace)))
    if status is CaseStatus.FAILED and test.get("rawStatus") in _CTRF_ERRORS:
        status = CaseStatus.ERROR
    is_assertion = status is CaseStatus.FAILED and _is_assertion("", message or trace, trace, file)
    if test.get("flaky") is True and status is CaseStatus.PASSED:
        shown = f"passed when it was run again; before: {shown or 'it failed'}"
    return CaseResult(name or _UNNAMED, status, shown, is_assertion, file)


_GO_UNBUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]")
_GO_STOPPED = re.compile(r"^(?:panic|fatal error): ", re.MULTILINE)
# What t.Error and t.Fatal print, and an example whose output is not the expected one.
_GO_ASSERTION = re.compile(r"^ *\w+_test\.go:[0-9]+: |^got:$", re.MULTILINE)


class _Go:
    """Parses the events of `go test -json`: https://pkg.go.dev/cmd/test2json, and `go help buildjson` for builds.

    Before Go 1.20, a test's output may imitate the runner's lines and become an event, so the worst result of a
    test counts.
    """

    def __init__(self) -> None:
        self._actions: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._output: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._builds: defaultdict[str, list[str]] = defaultdict(list)
        self._failed_builds: dict[str, str] = {}

    def read(self, lines: Iterable[str]) -> list[CaseResult]:
        """Return the tests, and an error for each package in which not every test ran."""
        for line in lines:
            if line.startswith("{") and isinstance(event := _parse_json(line), dict):
                self._add(event)
            elif unbuilt := _GO_UNBUILT.match(line):  # the only trace of it before Go 1.20
                self._actions[unbuilt[1], ""].add("fail")
        cases = [
            self._case(package, test, actions) for (package, test), actions in self._actions.items() if test
        ]
        parents = {parent for case in cases if case.is_assertion for parent in _go_parents(case.id)}
        cases = [replace(case, is_assertion=True) if case.id in parents else case for case in cases]
        failed = {case.id.partition("::")[0] for case in cases if case.failed}
        stopped = {package for (package, _), out in self._output.items() if any(map(_GO_STOPPED.match, out))}
        for (package, test), actions in self._actions.items():
            if not test and "fail" in actions and (package not in failed or package in stopped):
                build = self._builds.get(self._failed_builds.get(package, ""), ())
                shown = (
                    "".join(build) or "".join(self._output[package, ""]) or "the package could not be built"
                )
                cases.append(CaseResult(package, CaseStatus.ERROR, shown))
        return cases

    def _add(self, event: dict[str, Any]) -> None:
        package, test, action = (_as_text(event.get(key)) for key in ("Package", "Test", "Action"))
        if action == "build-output":
            self._builds[_as_text(event.get("ImportPath"))].append(_as_text(event.get("Output")))
        elif not package:
            return
        elif action == "output":
            self._output[package, test].append(_as_text(event.get("Output")))
        elif action in {"run", "pass", "fail", "skip"}:
            self._actions[package, test].add(action)
            if build := _as_text(event.get("FailedBuild")):
                self._failed_builds[package] = build

    def _case(self, package: str, test: str, actions: set[str]) -> CaseResult:
        name, output = f"{package}::{test}", "".join(self._output[package, test])
        if "fail" in actions:
            is_assertion = _GO_ASSERTION.search(output) is not None and not _GO_STOPPED.search(output)
            return CaseResult(name, CaseStatus.FAILED, output, is_assertion)
        if not actions & {"pass", "skip"}:
            return CaseResult(name, CaseStatus.ERROR, output or "the test began and did not end")
        return CaseResult(name, CaseStatus.SKIPPED if "skip" in actions else CaseStatus.PASSED)


def _go_parents(name: str) -> Iterator[str]:
    """Yield the tests that contain a test."""
    while "/" in name.rpartition("::")[2]:
        name = name.rpartition("/")[0]
        yield name
