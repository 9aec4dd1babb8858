"""Reports of test runners; `tests/data/reports/README.md` says who printed each file."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.bot.verification.base import WHOLE_RUN, CaseResult, CaseStatus, RunKind
from orchestrator.bot.verification.reports import MAX_BYTES, EndedCommand, by_id, read_report, run_result
from orchestrator.engine.environments.base import ExecResult
from tests.tables import table

REPORTS = Path(__file__).parents[3] / "data" / "reports"

# The numbers that the runner itself printed at its end: passed, failed with errors, skipped.
COUNTS = {
    # "21 failed, 8 passed, 3 skipped, 1 xfailed, 1 xpassed, 5 errors": it counts a failed subtest and an error
    # after a test's own end besides, here two, one and one.
    "pytest-9.2-xunit1.xml": (7, 24, 4),
    "pytest-9.2-xunit2.xml": (0, 2, 0),
    "pytest-9.2-short.xml": (0, 6, 0),
    "pytest-9.2-xdist.xml": (0, 6, 0),
    "go-1.19.jsonl": (4, 7, 1),
    "go-1.24-written.jsonl": (1, 1, 0),
    "rspec-3.12.json": (1, 5, 2),
    "rspec-3.12-load.json": (0, 1, 0),
    "rspec-junit-formatter-0.4.1.xml": (1, 5, 2),
    "rspec-junit-formatter-0.4.1-load.xml": (0, 0, 0),
    "phpunit-9.6.7.xml": (3, 6, 3),
    "surefire-2.22.3-CartTest.xml": (2, 2, 2),
    "surefire-2.22.3-LoadTest.xml": (0, 1, 0),
    "jest-30.5.2.json": (3, 8, 2),
    "vitest-4.1.12.json": (3, 8, 3),
    "vitest-4.1.12.xml": (3, 8, 3),
    "nextest-written.xml": (3, 2, 0),
    "pytest-json-ctrf-0.6.1.json": (2, 4, 2),
}

# file, id, status, its own assertion
CASES = """
pytest-9.2-xunit1.xml | tests/test_bad.py | error |
pytest-9.2-xunit1.xml | test_root.py::test_x | passed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_assert | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_assert_msg | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_helper | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_raises | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_raises_match | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_wrong_raise | failed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_error | failed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_import | failed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_fail | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_warns | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_xfail | skipped |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_xpass | passed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_xpass_strict | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_fixture | error |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_teardown_error | error |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_both | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_param[<&>] | passed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_param[a::b] | passed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_empty[NOTSET] | skipped |
pytest-9.2-xunit1.xml | tests/test_kinds.py::TestC::TestN::test_n | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::TestU::test_eq | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::TestU::test_err | failed |
pytest-9.2-xunit1.xml | tests/test_kinds.py::TestU::test_sub | failed | own
pytest-9.2-xunit1.xml | tests/test_kinds.py::test_system_exit | failed |
pytest-9.2-short.xml | tests/test_tb.py::test_assert | failed | own
pytest-9.2-short.xml | tests/test_tb.py::test_product | failed |
pytest-9.2-xdist.xml | tests/test_tb.py::test_product | failed |
pytest-9.2-xdist.xml | tests/test_heir.py::TestHeir::test_inherited | failed | own
go-1.19.jsonl | example.com/shop/calc::TestWrong | failed | own
go-1.19.jsonl | example.com/shop/calc::TestTable | failed | own
go-1.19.jsonl | example.com/shop/calc::TestTable/bad | failed | own
go-1.19.jsonl | example.com/shop/calc::ExampleAdd | failed | own
go-1.19.jsonl | example.com/shop/panics::TestPanics | failed |
go-1.19.jsonl | example.com/shop/panics | error |
go-1.19.jsonl | example.com/shop/broken | error |
go-1.24-written.jsonl | example.com/shop/broken | error |
rspec-3.12.json | spec/cart_spec.rb::Cart is wrong | failed | own
rspec-3.12.json | spec/cart_spec.rb::Cart raises | failed |
rspec-3.12.json | spec/cart_spec.rb::Cart is fixed though pending | failed | own
rspec-3.12.json | spec/cart_spec.rb::Cart is said twice | failed | own
rspec-3.12.json | spec/cart_spec.rb::Cart several has two | failed | own
rspec-3.12-load.json | (the test command) | error |
rspec-junit-formatter-0.4.1.xml | spec.cart_spec::Cart raises | failed |
rspec-junit-formatter-0.4.1.xml | spec.cart_spec::Cart is said twice | failed | own
phpunit-9.6.7.xml | CartTest::testWrong | failed | own
phpunit-9.6.7.xml | CartTest::testThrows | failed |
phpunit-9.6.7.xml | CartTest::testRisky | skipped |
phpunit-9.6.7.xml | CartTest::testData with data set "two" | failed | own
phpunit-9.6.7.xml | CartTest::testNoProvider | error |
surefire-2.22.3-CartTest.xml | shop.CartTest::wrong | failed | own
surefire-2.22.3-CartTest.xml | shop.CartTest::throwsOut | failed |
surefire-2.22.3-CartTest.xml | shop.CartTest::unsteady | passed |
surefire-2.22.3-LoadTest.xml | shop.LoadTest | error |
jest-30.5.2.json | a/sum.test.js::sum > is wrong | failed | own
jest-30.5.2.json | a/sum.test.js::sum > asserts | failed | own
jest-30.5.2.json | a/sum.test.js::sum > throws | failed |
jest-30.5.2.json | a/hook.test.js::never | failed |
jest-30.5.2.json | a/load.test.js | error |
vitest-4.1.12.json | v/sum.test.mjs::sum > is wrong | failed | own
vitest-4.1.12.json | v/hook.test.mjs | error |
vitest-4.1.12.xml | v/sum.test.mjs::sum > inner > adds | passed |
vitest-4.1.12.xml | v/load.test.mjs | error |
nextest-written.xml | shop::cart::is_wrong | failed | own
nextest-written.xml | shop::cart::unwraps | failed |
nextest-written.xml | shop::cart::flaky | passed |
pytest-json-ctrf-0.6.1.json | tests/test_kinds.py::test_passes | passed |
pytest-json-ctrf-0.6.1.json | tests/test_kinds.py::test_assert | failed | own
pytest-json-ctrf-0.6.1.json | tests/test_kinds.py::test_error | failed |
pytest-json-ctrf-0.6.1.json | tests/test_kinds.py::test_fixture | error |
pytest-json-ctrf-0.6.1.json | tests/test_kinds.py::test_xfail | skipped |
pytest-json-ctrf-0.6.1.json | tests/test_kinds.py::TestC::test_p[2] | failed | own
"""


def read(name: str) -> tuple[CaseResult, ...]:
    return read_report((REPORTS / name).read_bytes(), root="/srv/project")


def attempt(data: bytes) -> tuple[tuple[CaseResult, ...], str]:
    """The tests, and why there are none."""
    try:
        return read_report(data), ""
    except ValueError as error:
        return (), str(error)


def junit(*cases: str, **attributes: str) -> bytes:
    suite = " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())
    return f"<testsuites><testsuite {suite}>{''.join(cases)}</testsuite></testsuites>".encode()


def go(*events: dict[str, str]) -> bytes:
    return "\n".join(json.dumps({"Package": "m/p", **event}) for event in events).encode()


@table("name", sorted(COUNTS))
def test_counts_are_those_of_the_runner(name: str) -> None:
    statuses = Counter(case.status for case in read(name))
    failed = statuses[CaseStatus.FAILED] + statuses[CaseStatus.ERROR]
    assert (statuses[CaseStatus.PASSED], failed, statuses[CaseStatus.SKIPPED]) == COUNTS[name]


def test_every_stored_report_is_read() -> None:
    assert {path.name for path in REPORTS.iterdir()} - {"README.md"} == set(COUNTS)


@table("line", [line for line in CASES.splitlines() if line])
def test_a_test_has_its_id_and_its_end(line: str) -> None:
    name, test, status, *own = (part.strip() for part in line.split("|"))
    case = by_id(read(name))[test]
    assert (case.status, case.is_assertion) == (status, own == ["own"])


@table(
    ("name", "test", "file"),
    [
        ("pytest-9.2-xunit1.xml", "tests/test_kinds.py::TestU::test_eq", "tests/test_kinds.py"),
        ("pytest-9.2-xdist.xml", "tests/test_heir.py::TestHeir::test_inherited", "tests/test_heir.py"),
        ("phpunit-9.6.7.xml", "CartTest::testAdds", "tests/CartTest.php"),
        ("jest-30.5.2.json", "a/sum.test.js::sum > adds", "a/sum.test.js"),
        ("vitest-4.1.12.xml", "v/sum.test.mjs::sum > adds", "v/sum.test.mjs"),
        ("rspec-junit-formatter-0.4.1.xml", "spec.cart_spec::Cart adds", "spec/cart_spec.rb"),
    ],
)
def test_the_file_of_a_test_is_relative(name: str, test: str, file: str) -> None:
    assert by_id(read(name))[test].file == file


def test_a_failure_keeps_what_the_runner_said() -> None:
    assert "assert 1 == 2" in by_id(read("pytest-9.2-xunit1.xml"))["tests/test_kinds.py::test_assert"].message
    assert "undefined: y" in by_id(read("go-1.24-written.jsonl"))["example.com/shop/broken"].message
    assert "Cannot find module" in by_id(read("jest-30.5.2.json"))["a/load.test.js"].message
    for message, text, shown in (
        ("expected 3", "at line 5", "expected 3\nat line 5"),
        ("expected 3&#10;more", "expected 3: at line 5", "expected 3: at line 5"),
    ):
        data = f'<testsuite><testcase name="a"><failure message="{message}">{text}</failure></testcase></testsuite>'
        (case,) = read_report(data.encode())
        assert case.message == shown


@table(
    ("data", "complaint"),
    [
        (b"", "format is not supported"),
        (b"5 passed", "format is not supported"),
        (b"{}", "format is not supported"),
        (b'{"Action": "pass"', "format is not supported"),
        (b"[" * 100_000, "format is not supported"),
        (b'{"testResults": [' + b"[" * 100_000, "format is not supported"),
        (b"<html/>", "not JUnit XML"),
        (b"<testsuite>", "not XML"),
        (b"<testsuite></testsuites>", "not XML"),
        (b'<?xml version="1.0" encoding="nowhere"?><testsuite/>', "not XML"),
        (b"<testsuite>\x00</testsuite>", "not XML"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>', "document type"),
        (b'<!DOCTYPE testsuite SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        (b"<testsuite>&b;</testsuite>", "not XML"),
        (b"<testsuite>" * 60, "nested too deeply"),
        (b'<testsuite tests="2"/>', "counts 2 tests and lists 0"),
        (
            b'<testsuite failures="1" errors="1"><testcase name="a"/></testsuite>',
            "counts 2 failures and lists 0",
        ),
        (
            b'<testsuite><testcase name="a"><failure/><testcase name="b"/></testcase></testsuite>',
            "inside a test",
        ),
        (b'{"results": {"tests": [], "summary": {"tests": 1}}}', "counts 1 tests and lists 0"),
        (b'{"results": {"tests": [], "summary": {"failed": 1}}}', "counts 1 failures and lists 0"),
        (b'{"testResults": [], "numTotalTests": 1}', "counts 1 tests and lists 0"),
        (b'{"testResults": [], "numRuntimeErrorTestSuites": 1}', "counts 1 files"),
        (b'{"examples": [], "summary": {"example_count": 1}}', "counts 1 tests"),
        (b" " * (MAX_BYTES + 1), "larger than"),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else "",
)
def test_what_cannot_be_read_is_refused_in_one_line(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        read_report(data)
    assert "\n" not in str(caught.value)


def ctrf(**test: object) -> CaseResult:
    (case,) = read_report(json.dumps({"results": {"tests": [test]}}).encode())
    return case


@table(
    ("test", "name"),
    [
        ({"name": "adds"}, "adds"),
        ({"name": "adds", "suite": ["Cart", "total"]}, "Cart > total > adds"),
        ({"name": "adds", "suite": "Cart > total"}, "Cart > total > adds"),
        ({"name": "adds", "suite": ["a.js", "Cart"], "filePath": "a.js"}, "a.js::Cart > adds"),
        ({"name": "t.py::adds", "suite": ["t.py"], "filePath": "t.py"}, "t.py::adds"),
        ({}, "(a test without a name)"),
    ],
)
def test_a_test_of_ctrf_is_named_by_file_suite_and_name(test: dict[str, object], name: str) -> None:
    assert ctrf(**test, status="passed").id == name


@table(
    ("status", "expected"),
    [
        *(("passed", "passed"), ("failed", "failed"), ("skipped", "skipped"), ("pending", "skipped")),
        *(("other", "failed"), ("new", "failed"), (None, "failed")),
    ],
)
def test_a_status_of_ctrf_that_is_no_good_one_counts_as_failed(status: object, expected: str) -> None:
    assert ctrf(name="a", status=status).status == expected


def test_a_test_of_ctrf_that_passed_in_a_later_attempt_says_so() -> None:
    case = ctrf(name="a", status="passed", flaky=True, message="no")
    assert (case.status, case.message) == (CaseStatus.PASSED, "passed when it was run again; before: no")


FAILED = '<testcase classname="a" name="b"><failure type="AssertionError">no</failure></testcase>'
PASSED = '<testcase classname="a" name="b"/>'
SKIPPED = '<testcase classname="a" name="b"><skipped/></testcase>'


@table("cases", [(FAILED, PASSED), (PASSED, FAILED), (SKIPPED, FAILED, PASSED)])
def test_no_second_result_hides_a_failure(cases: tuple[str, ...]) -> None:
    (case,) = read_report(junit(*cases))
    assert (case.status, case.is_assertion) == (CaseStatus.FAILED, True)


@table(
    ("exit_code", "others", "expected"),
    [(1, False, 0), (1, True, 1), (2, False, 2), (0, False, 0), (139, False, 139)],
)
def test_the_exit_code_without_the_test_that_must_fail(
    exit_code: int, expected: int, *, others: bool
) -> None:
    control = (
        '<testcase classname="a" name="test_zz01"><failure type="AssertionError">no</failure></testcase>'
    )
    ran = ExecResult("", "", "", exit_code, timed_out=False, duration_ms=1)
    ended = EndedCommand(ran, "/srv", (junit(control, FAILED if others else PASSED),), token="zz01")
    result, control_failed = run_result(RunKind.AFTER, "d" * 40, ended, minutes=1)
    assert (result.exit, control_failed) == (expected, True)
    assert list(result.cases) == ["a::b"]


@table("first", ["pass", "skip", "fail"])
@table("second", ["pass", "skip", "fail"])
def test_an_event_that_a_test_printed_hides_no_failure(first: str, second: str) -> None:
    (case,) = read_report(go({"Action": first, "Test": "TestA"}, {"Action": second, "Test": "TestA"}))
    assert (case.status is CaseStatus.FAILED) == ("fail" in {first, second})


def test_a_go_test_that_did_not_end_is_an_error() -> None:
    (case, package) = read_report(go({"Action": "run", "Test": "TestA"}, {"Action": "fail"}))[:1] * 2
    assert case.status is package.status is CaseStatus.ERROR


def test_a_run_that_says_it_failed_is_an_error_though_no_test_failed() -> None:
    (case,) = read_report(b'{"testResults": [], "success": false}')
    assert (case.id, case.status) == (WHOLE_RUN, CaseStatus.ERROR)


@table("name", ["a\nb", "a\x1bb", "a\u202eb", "a\u2028b", "\ud800", "a" * 10_000])
def test_an_id_is_one_printable_line(name: str) -> None:
    report = {"testResults": [{"name": "f.js", "assertionResults": [{"title": name, "status": "passed"}]}]}
    (case,) = read_report(json.dumps(report).encode())
    assert case.id.isprintable()
    assert len(case.id) < 1000


def test_long_ids_with_one_beginning_stay_apart() -> None:
    cases = (f'<testcase classname="a" name="{"b" * 2000}{number}"/>' for number in range(3))
    assert len(read_report(junit(*cases))) == 3


@table("file", ["/etc/passwd", "../a.rb", "a/../../b.rb"])
def test_a_file_outside_of_the_tree_is_not_told(file: str) -> None:
    (case,) = read_report(junit(f'<testcase classname="a" name="b" file="{file}"/>'))
    assert not case.file


def test_a_huge_message_is_cut_to_its_beginning_and_its_end() -> None:
    text = f"first{'x' * 5_000_000}last"
    (case,) = read_report(junit(f'<testcase classname="a" name="b"><failure>{text}</failure></testcase>'))
    assert case.message.startswith("first")
    assert case.message.endswith("last")
    assert len(case.message) < 5_000


def test_many_tests_are_read_with_work_in_proportion() -> None:
    def lines(number: int) -> int:
        cases = "".join(f'<testcase classname="a" name="b{at}"><failure/></testcase>' for at in range(number))
        events = 0

        def count(*_: object) -> None:
            nonlocal events
            events += 1

        sys.setprofile(count)
        try:
            assert len(read_report(junit(cases))) == number
        finally:
            sys.setprofile(None)
        return events

    lines(10)
    assert lines(2_000) < 11 * lines(200)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
STATUS = st.sampled_from(["passed", "failed", "error", "skipped"])


@given(st.lists(st.tuples(TEXT, TEXT, STATUS, TEXT), max_size=8))
@example([("", "", "failed", "")])
def test_junit_never_shows_a_failed_test_as_passed(rows: list[tuple[str, str, str, str]]) -> None:
    def safe(text: str) -> str:
        return "".join(char if char.isprintable() else "?" for char in text)

    element = {"failed": "failure", "error": "error", "skipped": "skipped"}
    cases = [
        f"<testcase classname={quoteattr(safe(group))} name={quoteattr(safe(name))}>"
        + (f"<{element[status]} message={quoteattr(safe(said))}/>" if status in element else "")
        + "</testcase>"
        for group, name, status, said in rows
    ]
    found = read_report(junit(*cases))
    assert len(found) == len({case.id for case in found})
    bad = {(group, name) for group, name, status, _ in rows if status in {"failed", "error"}}
    shown = [case for case in found if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}]
    assert bool(shown) == bool(bad)
    assert len(shown) <= len(bad)


KEYS = st.sampled_from(
    re.findall(
        r"\w+",
        "testResults assertionResults status name title ancestorTitles failureMessages message failureDetails "
        "examples summary exception class messages full_description file_path Action Package Test Output "
        "results tests suite filePath trace rawStatus flaky",
    )
)
SHAPED = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, SHAPED, min_size=1, max_size=6))
@example({"testResults": [{"assertionResults": [{"ancestorTitles": 5, "failureMessages": 5}]}]})
@example({"examples": [{"exception": 5}], "summary": [], "messages": 5})
@example({"Action": ["pass"], "Package": 5})
@example({"results": {"tests": [{"suite": 5, "name": [], "trace": {}}], "summary": 5}})
def test_json_of_any_shape_is_read_or_refused(report: dict[str, object]) -> None:
    cases, complaint = attempt(json.dumps(report).encode())
    assert "\n" not in complaint
    assert all(case.id.isprintable() for case in cases)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(data: bytes) -> None:
    for given_data in (data, b"<testsuite>" + data, b'{"Action":' + data):
        assert "\n" not in attempt(given_data)[1]


@table(
    ("text", "is_own"),
    [
        ("thread 'a' panicked at src/lib.rs:4:5:\nassertion `left == right` failed", True),
        ("thread 'a' panicked at 'assertion failed: f()', src/lib.rs:4:5", True),
        (
            "panicked at src/main.rs:1:1:\nno\nthread 'b' panicked at src/lib.rs:4:5:\nassertion failed: f()",
            True,
        ),
        ("assertion failed: f()\nthread 'a' panicked at src/lib.rs:4:5:\ncalled `unwrap`", False),
        ("panicked at src/lib.rs:4:5:\n\nassertion failed: f()", False),
        ("panicked at " * 200_000, False),
        ("panicked at \n" * 200_000, False),
    ],
)
def test_a_panic_is_an_assertion_where_it_says_so(text: str, *, is_own: bool) -> None:
    """Untrusted text of any length: what is read of it must take a time in proportion to that."""
    written = f'<testcase classname="a" name="b"><failure type="test failure">{text}</failure></testcase>'
    (case,) = read_report(junit(written))
    assert case.is_assertion == is_own


@table(
    ("classname", "file", "expected"),
    [
        ("tests.test_a", "tests/test_a.py", "tests/test_a.py::test_one"),
        ("tests.test_a.TestB", "tests/test_a.py", "tests/test_a.py::TestB::test_one"),
        ("tests.test_a.when_empty", "tests/test_a.py", "tests/test_a.py::when_empty::test_one"),
        ("tests.test_a.TestB.TestC", "tests/test_a.py", "tests/test_a.py::TestB::TestC::test_one"),
        ("tests.test_ab.TestB", "tests/test_a.py", "tests/test_ab.py::TestB::test_one"),
        ("tests.test_other.TestB", "tests/base.py", "tests/test_other.py::TestB::test_one"),
    ],
)
def test_a_python_test_has_the_id_that_pytest_gives_it(classname: str, file: str, expected: str) -> None:
    (case,) = read_report(junit(f'<testcase classname="{classname}" name="test_one" file="{file}"/>'))
    assert case.id == expected
