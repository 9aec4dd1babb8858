"""The names of tests: which ones a task means, which file holds them, and which results of two runs are of one test."""

from __future__ import annotations

from orchestrator.bot.verification.base import (
    WHOLE_RUN,
    CaseResult,
    CaseStatus,
    IndexedRun,
    NamedTests,
    RunKind,
    RunResult,
    hosts_of,
    may_contain,
    names_each_test,
    without_parameters,
)
from tests.tables import table


def case(name: str, file: str = "", status: CaseStatus = CaseStatus.PASSED) -> CaseResult:
    return CaseResult(name, status, file=file)


@table(
    ("task", "test", "file", "expected"),
    [
        ("tests/test_a.py::test_one fails", "tests/test_a.py::test_one", "", True),
        ("test_a.py::test_one fails", "tests/test_a.py::test_one", "", True),
        ("tests/test_a.py::test_one fails", "tests/test_a.py::test_two", "", False),
        ("`tests/test_a.py::TestB`.", "tests/test_a.py::TestB::test_one[1]", "", True),
        ("com.x.CartTest#adds", "com.x.CartTest::adds", "", True),
        ("CartTest#adds", "com.x.CartTest::adds", "", True),
        ("see ./tests/test_a.py", "tests/test_a.py::test_one", "", True),
        ("see test_a.py!", "tests/test_a.py::test_one", "", True),
        ("see a.py", "tests/test_a.py::test_one", "", False),
        ("see test_a.py", "tests/test_aa.py::test_one", "", False),
        ("see spec/a_spec.rb", "adds numbers", "spec/a_spec.rb", True),
        ("test_one fails", "tests/test_a.py::test_one[2]", "", True),
        ("TestB fails", "tests/test_a.py::TestB::test_one", "", True),
        ("it adds nothing", "tests/test_a.py::TestB::adds", "", False),  # a common word
        ("(addsUp)", "com.x.CartTest::addsUp", "", True),
        ("CartTest fails", "com.x.CartTest::adds", "", True),
        ("", "tests/test_a.py::test_one", "", False),
    ],
)
def test_the_tests_that_a_task_names(task: str, test: str, file: str, *, expected: bool) -> None:
    assert NamedTests(task).names(case(test, file)) is expected


@table(
    ("task", "test", "file", "expected"),
    [
        ("gcd.py loops", "tests/test_gcd.py::test_a", "", True),
        ("src/gcd.py loops", "tests/gcd_test.py::test_a", "", True),
        ("GCD.java loops", "com.x.GcdTest::a", "", True),
        ("gcd.js loops", "it loops", "spec/gcdSpec.js", True),
        ("gcd.py loops", "tests/test_lcm.py::test_a", "", False),
        ("test_gcd.py loops", "tests/test_gcd.py::test_a", "", False),  # the test itself is named
        ("gcd loops", "tests/test_gcd.py::test_a", "", False),
    ],
)
def test_the_code_that_a_task_names(task: str, test: str, file: str, *, expected: bool) -> None:
    assert NamedTests(task).names_code_of(case(test, file)) is expected


@table(
    ("path", "test", "file", "expected"),
    [
        ("tests/test_a.py", "x", "tests/test_a.py", True),
        ("app/tests/test_a.py", "x", "tests/test_a.py", True),
        ("mytests/test_a.py", "x", "tests/test_a.py", False),
        ("tests/test_a.py", WHOLE_RUN, "", True),
        ("src/a.py", WHOLE_RUN, "", False),
        ("src/a.py", "tests.test_a::b", "", False),
        ("tests/test_a.py", "tests.test_a::b", "", True),
        ("tests/test_a.py", "tests/test_a::b", "", True),
        ("tests/test_b.py", "tests.test_a::b", "", False),
        ("src/test/java/com/x/CartTest.java", "com.x.CartTest$Inner::adds", "", True),
        ("src/test/java/com/y/CartTest.java", "com.x.CartTest::adds", "", False),
        ("tests/a.test.js", "Cart::adds", "", True),  # a class without a package
        ("shop/cart_test.go", "example.com/x/shop::TestAdd", "", True),
        ("cart_test.go", "example.com/x::TestAdd", "", True),
        ("shop/cart_test.go", "shop::TestAdd", "", True),
        ("shop/cart_test.go", "example.com/x/workshop::TestAdd", "", False),
    ],
)
def test_the_file_that_may_hold_a_test(path: str, test: str, file: str, *, expected: bool) -> None:
    assert may_contain(path, case(test, file)) is expected


@table(
    ("name", "file", "plain"),
    [
        ("tests/test_a.py::test_b[1-[2]]", "", "tests/test_a.py::test_b"),
        ("tests/[a].py::test_b", "tests/[a].py", "tests/[a].py::test_b"),
        ("tests/[a].py::test_b[1]", "tests/[a].py", "tests/[a].py::test_b"),
        ("CartTest::testA with data set #1", "", "CartTest::testA"),
        ("test_b[1", "", "test_b[1"),
        ("test_b", "", "test_b"),
    ],
)
def test_a_test_without_its_parameters(name: str, file: str, plain: str) -> None:
    assert without_parameters(case(name, file)) == plain


@table(
    ("command", "report", "expected"),
    [
        ("pytest", "", True),
        ("python -m pytest -q", "", True),
        ("bin/pytest", "", True),
        ("make test", "", False),
        ("make test", "report.xml", True),
        ("pytest-watch", "", False),
        ("mypytest", "", False),
    ],
)
def test_which_commands_report_each_test(command: str, report: str, *, expected: bool) -> None:
    assert names_each_test(command, report) is expected


@table(
    ("setup", "hosts"),
    [
        ("", ()),
        ("make", ()),
        ("pip install -e . && npm ci", ("pypi.org", "*.pythonhosted.org", "registry.npmjs.org")),
        ("yarn install && npm ci", ("registry.npmjs.org", "registry.yarnpkg.com")),
        ("pipx install x", ()),
        ("go build ./...", ()),
        ("go mod download", ("proxy.golang.org", "sum.golang.org")),
    ],
)
def test_the_hosts_of_installers(setup: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(setup) == hosts


def indexed(*names: str, errors: tuple[str, ...] = (), problem: str = "", exit_code: int = 0) -> IndexedRun:
    cases = {name: case(name) for name in names} | {
        name: case(name, status=CaseStatus.ERROR) for name in errors
    }
    run = RunResult(RunKind.AFTER, "tree", cases, exit_code, 1.0, problem, output="words")
    return IndexedRun(run, exit_only=not cases and not problem)


def test_a_result_is_found_by_what_encloses_the_test() -> None:
    run = indexed("a::b", errors=("c", "d::E"))
    found = {name: run.find(name) for name in ("a::b", "a::x", "c::y", "d::E::f", "d::G::f")}
    ends = {name: None if one is None else str(one.status) for name, one in found.items()}
    assert ends == {"a::b": "passed", "a::x": None, "c::y": "error", "d::E::f": "error", "d::G::f": None}


@table(
    ("run", "status"),
    [
        (indexed(errors=("c",)), "error"),  # the runner stopped there
        (indexed("a", errors=("c",)), None),
        (indexed("a", problem="no report"), "error"),
        (indexed("a"), None),
    ],
)
def test_of_a_run_that_stopped_nothing_is_known(run: IndexedRun, status: str | None) -> None:
    found = run.find("x::y")
    assert (None if found is None else str(found.status)) == status


@table(("exit_code", "status"), [(0, CaseStatus.PASSED), (1, CaseStatus.FAILED)])
def test_a_run_without_names_has_one_result(exit_code: int, status: CaseStatus) -> None:
    (only,) = indexed(exit_code=exit_code).cases.values()
    assert (only.id, only.status, only.message) == (WHOLE_RUN, status, "words")


def test_tests_that_moved_or_have_other_parameters_are_the_same() -> None:
    old = indexed(
        "a.py::test_m",
        "a.py::test_p[1]",
        "a.py::test_p[2]",
        "a.py::test_same",
        "a.py::test_two",
        "b.py::test_two",
    )
    new = indexed(
        "c.py::test_m",
        "a.py::test_p[x]",
        "a.py::test_p[y]",
        "a.py::test_same",
        "c.py::test_two",
        "a.py::test_q[1]",
    )
    new.match(old)
    assert [new.name_of(name) for name in ("a.py::test_m", "a.py::test_p[1]", "a.py::test_p[2]")] == [
        "c.py::test_m",
        "a.py::test_p[x]",
        "a.py::test_p[y]",
    ]
    for name in ("a.py::test_same", "a.py::test_two", "b.py::test_two"):
        assert new.name_of(name) == name
    assert new.renamed == {"c.py::test_m", "a.py::test_p[x]", "a.py::test_p[y]"}
    assert new.find("a.py::test_m") == new.cases["c.py::test_m"]
