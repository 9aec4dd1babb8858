"""What the runs of a change prove: each end before, each after, for each kind of runner; and what runners print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.verification.base import CaseResult, CaseStatus, Change, RunKind, RunResult, Runs
from orchestrator.bot.verification.printed import first_error, printed_count, printed_failure
from orchestrator.bot.verification.reports import EndedCommand, run_result
from orchestrator.bot.verification.verdict import judge_runs
from orchestrator.core.cycle_events import Proof
from orchestrator.engine.environments.base import ExecResult
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.bot.verification.verdict import ChangeVerdict

PASS, FAIL = (
    '<testcase name="{0}"/>',
    '<testcase name="{0}"><failure message="assert {0}">no</failure></testcase>',
)
ENDS: dict[str, dict[str, tuple[str | None, str, int]]] = {
    # How a runner ends that writes a report: the tests `a` and `b`, and the exit code.
    "report": {
        "pass": (PASS.format("a") + PASS.format("b"), "", 0),
        "fail": (PASS.format("a") + FAIL.format("b"), "", 1),
        "all fail": (FAIL.format("a") + FAIL.format("b"), "", 1),
        "skip": ('<testcase name="a"><skipped/></testcase>', "", 0),
        "none": ("", "", 0),
        "none, 5": ("", "", 5),
        "stopped": (None, "", -9),
    },
    # One that prints how many tests ran.
    "count": {
        "pass": (None, "Ran 2 tests in 0.001s\n\nOK", 0),
        "fail": (None, "Ran 2 tests in 0.001s\n\nFAILED (failures=1)", 1),
        "none": (None, "Ran 0 tests in 0.000s\n\nOK", 0),
        "none, 5": (None, "Ran 0 tests in 0.000s\n\nNO TESTS RAN", 5),
        "stopped": (None, "Ran 2 tests in 0.001s\n\nOK", -9),
    },
    # One of which only the exit code is known.
    "silent": {"pass": (None, "all good", 0), "fail": (None, "", 1), "stopped": (None, "", -9)},
}
TABLE = """
report | pass     | pass: passed, fail: failed, all fail: failed, skip: failed, none: failed, none, 5: failed, stopped: failed
report | fail     | pass: passed, fail: as_before, all fail: failed, skip: failed, none: failed, stopped: failed
report | all fail | pass: passed, fail: as_before, all fail: unknown, none: failed, stopped: failed
report | skip     | pass: unknown, fail: unknown, none: unknown
report | none     | pass: passed, fail: failed, all fail: failed, skip: unknown, none: unknown, none, 5: unknown, stopped: unknown
report | none, 5  | pass: passed, fail: failed, all fail: failed, none: unknown, none, 5: unknown, stopped: unknown
report | stopped  | pass: unknown, fail: unknown, none: unknown, stopped: unknown
count  | pass     | pass: passed, fail: failed, none: failed, none, 5: failed, stopped: failed
count  | fail     | pass: passed, fail: unknown, none: failed, none, 5: failed, stopped: failed
count  | none     | pass: passed, fail: failed, none: unknown, none, 5: unknown, stopped: unknown
count  | none, 5  | pass: passed, fail: failed, none: unknown, none, 5: unknown, stopped: unknown
count  | stopped  | pass: unknown, fail: unknown, none: unknown, stopped: unknown
silent | pass     | pass: only_exit_code, fail: failed, stopped: failed
silent | fail     | pass: only_exit_code, fail: unknown, stopped: failed
silent | stopped  | pass: unknown, fail: unknown, stopped: unknown
"""
ROWS = [
    (runner.strip(), before.strip(), after, value)
    for line in TABLE.strip().splitlines()
    for runner, before, ends in [line.split("|")]
    for after, _, value in (
        one.rpartition(": ") for one in ends.strip().replace("none, 5", "none; 5").split(", ")
    )
]


def ended(kind: RunKind, runner: str, end: str, expects: RunResult | None = None) -> RunResult:
    cases, output, code = ENDS[runner][end.replace(";", ",")]
    killed = "it used too much memory" if end == "stopped" else ""
    ran = ExecResult(output, "", output, code, timed_out=False, duration_ms=5, killed_for=killed)
    reports = () if cases is None else (f"<testsuite>{cases}</testsuite>".encode(),)
    return run_result(kind, kind.value, EndedCommand(ran, "/x", reports), minutes=1, expects=expects)[0]


def judged(runner: str, before: str, after: str) -> ChangeVerdict:
    base = ended(RunKind.BEFORE, runner, before)
    kept, done = (ended(kind, runner, after, base) for kind in (RunKind.KEPT, RunKind.AFTER))
    return judge_runs(Runs("make test", "", "none", "b", "t", base, kept, done), Change("b", "t", ()))


@table("runner, before, after, value", ROWS)
def test_each_end_before_and_after_proves_what_stands_here(
    runner: str, before: str, after: str, value: str
) -> None:
    assert judged(runner, before, after).proof == Proof(value)


def test_how_many_tests_fail_on_the_base_is_told() -> None:
    told = [judged("report", before, "pass").base_fails for before in ("pass", "fail", "all fail")]
    assert told == ["", "1 test fails on the base", "2 tests fail on the base"]


@table("runner, before, after, value", ROWS)
def test_a_failing_base_is_told_wherever_something_is_proven(
    runner: str, before: str, after: str, value: str
) -> None:
    verdict = judged(runner, before, after)
    is_told = bool(verdict.base_fails or verdict.problem)
    assert is_told is (before != "pass" or value == "unknown")


def test_skipped_tests_did_not_run() -> None:
    cases = {
        name: CaseResult(name, CaseStatus(status)) for name, status in (("a", "passed"), ("b", "skipped"))
    }
    assert RunResult(RunKind.AFTER, "tree", cases, 0, 1.0).ran == 1


@given(st.sampled_from(sorted(ENDS)), st.data())
def test_nothing_passes_where_no_test_ran_or_one_fails(runner: str, data: st.DataObject) -> None:
    ends = st.sampled_from(sorted(ENDS[runner]))
    before, after = data.draw(ends), data.draw(ends)
    if judged(runner, before, after).proof is Proof.PASSED:
        assert after == "pass"
        assert runner != "silent"


@table(
    "before, after, value",
    [
        ("Ran 20 tests in 0.1s", "Ran 20 tests in 0.1s", Proof.PASSED),
        ("Ran 20 tests in 0.1s", "Ran 21 tests in 0.1s", Proof.PASSED),
        ("Ran 20 tests in 0.1s", "Ran 3 tests in 0.1s", Proof.WARNED),
        ("Ran 20 tests in 0.1s", "Ran 20 tests in 0.1s\n\nOK (skipped=17)", Proof.WARNED),
        ("Ran 20 tests in 0.1s", "nothing", Proof.ONLY_EXIT_CODE),
    ],
)
def test_fewer_tests_than_on_the_base_are_told_where_only_the_output_counts_them(
    before: str, after: str, value: Proof
) -> None:
    def done(kind: RunKind, output: str) -> RunResult:
        ran = ExecResult(output, "", output, 0, timed_out=False, duration_ms=5)
        return run_result(kind, kind.value, EndedCommand(ran, "/x"), minutes=1)[0]

    runs = (done(RunKind.BEFORE, before), done(RunKind.KEPT, after), done(RunKind.AFTER, after))
    verdict = judge_runs(Runs("make test", "", "none", "b", "t", *runs), Change("b", "t", ()))
    assert verdict.proof is value
    if value is Proof.WARNED:
        words = "3 ran with this change, 20 on the base"
        assert verdict.reasons == (f"Fewer tests ran, and no report names them: {words}.",)
        assert words in verdict.for_model()


ERRORS = [
    ("Collecting a\nERROR: No matching distribution found for nosuch\nERROR: later", "ERROR: No matching distribution found for nosuch"),
    ("added 2\nnpm ERR! code E404\nnpm ERR! 404 Not Found\nnpm ERR! A complete log", "npm ERR! code E404"),
    ("   Compiling a\nerror[E0425]: cannot find value `x`\nwarning: unused", "error[E0425]: cannot find value `x`"),
    ("a.c:3:1: error: expected ';'\nmake: *** [Makefile:2: a.o] Error 1", "a.c:3:1: error: expected ';'"),
    ("sh: 1: cmake: not found\n", "sh: 1: cmake: not found"),
    ("Traceback\n  File x\nModuleNotFoundError: No module named 'setuptools'\n\n[end of output]", "ModuleNotFoundError: No module named 'setuptools'"),
    ("E: Unable to locate package nosuch\ndone", "E: Unable to locate package nosuch"),
    ("\x1b[31mfatal: not a git repository\x1b[0m\nbye", "fatal: not a git repository"),
    ("  error: subprocess-exited-with-error\n  | pip failed\n  ERROR: No setuptools\nnote: This error originates", "ERROR: No setuptools"),
    ("error: subprocess-exited-with-error", "error: subprocess-exited-with-error"),
    ("one\ntwo\n\n", "two"),
    ("", ""),
]  # fmt: skip


@table("output, error", ERRORS)
def test_the_first_error_of_a_set_up_is_shown(output: str, error: str) -> None:
    assert first_error(output) == error


COUNTS = [
    ("unittest", "Ran 12 tests in 0.4s\n\nOK", 12),
    ("unittest, none", "\n----\nRan 0 tests in 0.000s\n\nNO TESTS RAN", 0),
    ("pytest", "==== 3 passed, 1 skipped in 0.12s ====", 3),
    ("pytest, one fails", "=== 1 failed, 3 passed in 0.12s ===", 3),
    ("pytest, none", "==== no tests ran in 0.01s ====", 0),
    ("go", "ok  \texample.com/calc\t0.003s\n?   \texample.com/cmd\t[no test files]", 1),
    ("go, from its cache", "ok  \texample.com/calc\t(cached)", 1),
    ("go, none", "?   \texample.com/cmd\t[no test files]", 0),
    ("go, a package without a matching test", "ok  \texample.com/calc\t0.003s [no tests to run]", 0),
    ("cargo", "running 3 tests\ntest a ... ok\n\nrunning 0 tests\n", 3),
    ("cargo, none", "running 0 tests\n\ntest result: ok. 0 passed; 0 failed", 0),
    ("nextest", "     Summary [   0.012s] 4 tests run: 4 passed, 0 skipped", 4),
    ("mocha", "  2 passing (8ms)\n  1 failing", 3),
    ("mocha, none", "  0 passing (1ms)", 0),
    ("jest", "Tests:       1 failed, 4 passed, 5 total", 5),
    ("jest, none", "No tests found, exiting with code 0", 0),
    ("vitest", " Test Files  1 passed (1)\n      Tests  1 failed | 2 passed (3)", 3),
    ("vitest, none", "No test files found, exiting with code 0", 0),
    ("node", "# tests 4\n# suites 0\n# pass 4", 4),
    ("node, none", "# tests 0\n# suites 0\n# pass 0", 0),
    ("bats", "1..2\nok 1 adds\nok 2 subtracts", 2),
    ("bats, none", "1..0", 0),
    ("bats, for people", "2 tests, 0 failures", 2),
    ("mix", "Finished in 0.02 seconds\n1 doctest, 3 tests, 0 failures", 3),
    ("mix, none", "There are no tests to run", 0),
    ("minitest", "3 runs, 5 assertions, 0 failures, 0 errors, 0 skips", 3),
    ("minitest, none", "0 runs, 0 assertions, 0 failures, 0 errors, 0 skips", 0),
    ("test-unit", "3 tests, 5 assertions, 0 failures", 3),
    ("RSpec", "4 examples, 1 failure", 4),
    ("RSpec, none", "0 examples, 0 failures", 0),
    ("PHPUnit", "OK (3 tests, 7 assertions)", 3),
    ("PHPUnit, one fails", "Tests: 3, Assertions: 7, Failures: 1.", 3),
    ("PHPUnit, none", "No tests executed!", 0),
    ("Pest", "  Tests:    1 failed, 2 passed (3 assertions)", 2),
    ("CTest", "100% tests passed, 0 tests failed out of 5", 5),
    ("CTest, none", "No tests were found!!!", 0),
    ("Meson", "Ok:                 3   \nFail:               1   ", 4),
    ("Meson, none", "No tests defined.", 0),
    ("Maven", "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", 3),
    ("Maven, none", "[INFO] No tests to run.", 0),
    ("Gradle, none", "> Task :test NO-SOURCE", 0),
    (".NET", "Passed!  - Failed:     0, Passed:     3, Skipped:     0, Total:     3, Duration: 5 ms", 3),
    (".NET, none", "No test is available in /x/a.dll.", 0),
    ("Swift", "\t Executed 2 tests, with 0 failures (0 unexpected) in 0.01 (0.01) seconds", 2),
    ("Swift Testing, none", "Test run with 0 tests passed after 0.001 seconds.", 0),
    ("Zig", "All 3 tests passed.", 3),
    ("Deno", "ok | 2 passed | 0 failed (11ms)", 2),
    ("Deno, none", "error: No test modules found", 0),
    ("testthat", "[ FAIL 0 | WARN 0 | SKIP 0 | PASS 4 ]", 4),
    ("testthat, none", "[ FAIL 0 | WARN 0 | SKIP 0 | PASS 0 ]", 0),
    ("hspec", "2 examples, 0 failures", 2),
    ("cabal", "1 of 1 test suites (1 of 1 test cases) passed.", 1),
    ("prove", "Files=1, Tests=3,  0 wallclock secs", 3),
    ("prove, none", "Files=0, Tests=0,  0 wallclock secs\nResult: NOTESTS", 0),
    ("sbt", "[info] Tests: succeeded 3, failed 0, canceled 0", 3),
    ("Dart", "00:01 +3: All tests passed!", 3),
    ("Clojure", "Ran 3 tests containing 5 assertions.\n0 failures, 0 errors.", 3),
    ("busted", "3 successes / 1 failure / 0 errors / 0 pending : 0.1 seconds", 4),
    ("Automake", "# TOTAL: 3\n# PASS:  2\n# SKIP:  1\n# XFAIL: 0", 2),
    ("elm-test", "TEST RUN PASSED\n\nDuration: 90 ms\nPassed:   3\nFailed:   0", 3),
    ("Playwright", "  1 failed\n    a.spec.ts:3:1 > adds\n  3 passed (2.1s)", 4),
    ("Gleam", "3 tests, no failures", 3),
    ("Crystal", "3 examples, 0 failures, 0 errors, 1 pending", 2),
    # Tests that are only counted did not run.
    ("unittest, all skipped", "Ran 2 tests in 0.0s\n\nOK (skipped=2)", 0),
    ("unittest, one skipped", "Ran 3 tests in 0.0s\n\nFAILED (failures=1, skipped=1)", 2),
    ("pytest, all skipped", "==== 2 skipped, 1 warning in 0.01s ====", 0),
    (
        "cargo, all ignored",
        "running 2 tests\ntest a ... ignored\n\ntest result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out",
        0,
    ),
    ("jest, all skipped", "Tests:       2 skipped, 2 total", 0),
    ("jest, one skipped", "Tests:       1 failed, 1 skipped, 3 passed, 5 total", 4),
    ("vitest, all skipped", "      Tests  2 skipped (2)", 0),
    ("vitest, one skipped", "      Tests  1 failed | 2 passed | 1 skipped (4)", 3),
    (
        "node, all skipped",
        "# tests 2\n# suites 0\n# pass 0\n# fail 0\n# cancelled 0\n# skipped 2\n# todo 0",
        0,
    ),
    ("bats, all skipped", "1..2\nok 1 adds # skip no bc\nok 2 subtracts # SKIP", 0),
    ("mix, all skipped", "2 tests, 0 failures, 2 skipped", 0),
    ("minitest, all skipped", "2 runs, 0 assertions, 0 failures, 0 errors, 2 skips", 0),
    ("RSpec, all pending", "2 examples, 0 failures, 2 pending", 0),
    ("PHPUnit, all skipped", "Tests: 2, Assertions: 0, Skipped: 2.", 0),
    ("Maven, all skipped", "[WARNING] Tests run: 2, Failures: 0, Errors: 0, Skipped: 2", 0),
    (
        ".NET, all skipped",
        "Skipped!  - Failed:     0, Passed:     0, Skipped:     2, Total:     2, Duration: 5 ms",
        0,
    ),
    (
        "Swift, all skipped",
        "\t Executed 2 tests, with 2 tests skipped and 0 failures (0 unexpected) in 0.01 seconds",
        0,
    ),
    ("colours", "\x1b[32m  2 passing\x1b[0m (8ms)", 2),
    ("make, which says nothing", "make: Nothing to be done for 'test'.", None),
    ("words about tests", "I ran all of the tests, and they passed", None),
    ("nothing", "", None),
]


FAILURES = (
    "==== 1 failed, 3 passed in 0.12s ====",
    "Ran 12 tests in 0.4s\n\nFAILED (failures=1)",
    "Ran 12 tests in 0.4s\n\nFAILED (errors=2, skipped=1)",
    "--- FAIL: TestAdd (0.00s)\nFAIL\texample.com/calc\t0.003s",
    "running 3 tests\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
    "  2 passing (8ms)\n  1 failing",
    "Tests:       1 failed, 4 passed, 5 total",
    "      Tests  1 failed | 2 passed (3)",
    "# tests 4\n# pass 3\n# fail 1",
    "1..2\nok 1 adds\nnot ok 2 subtracts",
    "3 tests, 1 failure",
    "3 runs, 5 assertions, 0 failures, 1 errors, 0 skips",
    "4 examples, 1 failure",
    "FAILURES!\nTests: 3, Assertions: 7, Failures: 1.",
    "80% tests passed, 1 tests failed out of 5",
    "[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0",
    "[ERROR] Tests run: 3, Failures: 0, Errors: 2, Skipped: 0",
    "Failed!  - Failed:     1, Passed:     2, Skipped:     0, Total:     3, Duration: 5 ms",
    "Files=1, Tests=3,  0 wallclock secs\nResult: FAIL",
    "Ok:                 3   \nFail:               1   ",
    "00:01 +3 -1: Some tests failed.",
    "\x1b[31m  1 failing\x1b[0m",
)


@table("output", FAILURES)
def test_an_exit_code_that_a_shell_hides_makes_no_failed_test_pass(output: str) -> None:
    def done(kind: RunKind, said: str) -> RunResult:
        ran = ExecResult(said, "", said, 0, timed_out=False, duration_ms=5)
        return run_result(kind, kind.value, EndedCommand(ran, "/x"), minutes=1)[0]

    base, kept, after = (
        done(RunKind.BEFORE, "5 passed"),
        done(RunKind.KEPT, output),
        done(RunKind.AFTER, output),
    )
    verdict = judge_runs(
        Runs("pytest | tee log", "", "none", "b", "t", base, kept, after), Change("b", "t", ())
    )
    assert verdict.proof is Proof.FAILED
    assert "the exit code is 0, though the output tells of a failed test" in after.problem


@table(
    "output",
    [
        "==== 3 passed, 1 xfailed in 0.1s ====",
        "Ran 12 tests in 0.4s\n\nOK",
        "ok  \texample.com/calc\t0.003s",
        "test result: ok. 2 passed; 0 failed; 0 ignored",
        "  2 passing (8ms)",
        "Tests:       5 passed, 5 total",
        "# tests 4\n# pass 4\n# fail 0",
        "1..2\nok 1 not ok 2\nnot ok 2 later # TODO not yet",
        "3 tests, 0 failures",
        "3 runs, 5 assertions, 0 failures, 0 errors, 0 skips",
        "100% tests passed, 0 tests failed out of 5",
        "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0",
        "Passed!  - Failed:     0, Passed:     3, Skipped:     0, Total:     3, Duration: 5 ms",
        "Ok:                 3\nFail:               0",
        "Passed:   3\nFailed:   0",
        "failed to open the cache, so it is made anew\nAn error: 1 failed attempt",
    ],
)
def test_the_output_of_tests_that_pass_tells_of_no_failure(output: str) -> None:
    assert printed_failure(output) == ""


@table("runner, output, count", COUNTS, ids=[runner for runner, _, _ in COUNTS])
def test_what_a_runner_prints_of_its_tests_is_read(runner: str, output: str, count: int | None) -> None:
    assert printed_count(f"some words\n{output}\n") == count, runner
