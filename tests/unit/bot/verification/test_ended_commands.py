"""What a test command that has ended proves: by its exit code, its report, what it printed, and what stopped it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from orchestrator.bot.verification.base import NO_TEST_RAN, CaseResult, CaseStatus, RunKind, RunResult
from orchestrator.bot.verification.printed import first_error, printed_failure
from orchestrator.bot.verification.reports import (
    EndedCommand,
    by_id,
    read_report,
    run_result,
    why_stopped,
)
from orchestrator.engine.environments.base import ExecResult
from tests.tables import table


def ran(exit_code: int = 0, output: str = "", **values: Any) -> ExecResult:
    return ExecResult(output, "", output, exit_code, **{"timed_out": False, "duration_ms": 1_500, **values})


def report(**tests: str) -> bytes:
    """Return a report in the form of CTRF."""
    return json.dumps(
        {
            "reportFormat": "CTRF",
            "results": {"tests": [{"name": name, "status": end} for name, end in tests.items()]},
        }
    ).encode()


def result(ended: EndedCommand, expects: RunResult | None = None) -> RunResult:
    return run_result(RunKind.AFTER, "tree", ended, minutes=5, expects=expects)[0]


WITH_REPORT = RunResult(RunKind.BEFORE, "tree", {"a": CaseResult("a", CaseStatus.PASSED)}, 0, 1.0)
WITHOUT = RunResult(RunKind.BEFORE, "tree", {}, 0, 1.0)


@table(
    ("ended", "expects", "problem"),
    [
        (EndedCommand(ran(), ""), None, ""),
        (EndedCommand(ran(), ""), WITHOUT, ""),
        (EndedCommand(ran(), ""), WITH_REPORT, "the exit code is 0, but no report was written"),
        (EndedCommand(ran(1), ""), WITH_REPORT, ""),
        (EndedCommand(ran(5), ""), None, ""),
        (EndedCommand(ran(5), "", (report(),)), None, NO_TEST_RAN),
        (EndedCommand(ran(5), "", (report(a="passed"),)), None, ""),
        (EndedCommand(ran(), "", (report(),)), None, NO_TEST_RAN),
        (EndedCommand(ran(), "", (report(a="skipped"),)), None, "every test was skipped"),
        (EndedCommand(ran(), "", (report(a="passed", b="skipped"),)), None, ""),
        (EndedCommand(ran(), "", (report(a="passed", b="failed", c="failed"),)), None, "the exit code is 0, though the report has failed tests: 2"),
        (EndedCommand(ran(1), "", (report(a="failed"),)), None, ""),
        (EndedCommand(ran(0, "Ran 0 tests in 0.1s\n"), ""), None, NO_TEST_RAN),
        (EndedCommand(ran(0, "Ran 0 tests in 0.1s\n"), "", (report(a="passed"),)), None, ""),
        (EndedCommand(ran(0, "3 failed, 1 passed in 0.1s\n"), ""), None, "the exit code is 0, though the output tells of a failed test: 3 failed, 1 passed in 0.1s"),
        (EndedCommand(ran(1, "3 failed, 1 passed in 0.1s\n"), ""), None, ""),
        (EndedCommand(ran(0, "3 failed, 1 passed in 0.1s\n"), "", (report(a="passed"),)), None, ""),
        (EndedCommand(ran(), "", rewritten="a.py"), None, "a test file was changed while the tests ran: a.py"),
        (EndedCommand(ran(), "", unread="no disk", rewritten="a.py"), None, "no disk"),
        (EndedCommand(ran(timed_out=True), "", unread="no disk"), None, "did not end within 5 minutes; raise test_minutes"),
        (EndedCommand(ran(killed_for="memory", timed_out=True), ""), None, "was stopped: memory"),
        (EndedCommand(ran(), "", (b"{", )), None, "is no JSON"),
    ],
)  # fmt: skip
def test_why_a_run_proves_nothing(ended: EndedCommand, expects: RunResult | None, problem: str) -> None:
    found = result(ended, expects)
    if problem == "is no JSON":
        assert found.problem
        assert found.cases == {}
    else:
        assert found.problem == problem
    assert found.was_stopped is ("minutes" in problem or "stopped" in problem)


def test_what_a_run_is_made_of() -> None:
    reports = (report(a="passed"), report(b="passed", a="failed"))
    found = result(EndedCommand(ran(1, "x" * 100_000 + "end"), "", reports))
    assert {name: str(case.status) for name, case in found.cases.items()} == {"a": "failed", "b": "passed"}
    assert (found.exit, found.seconds, found.counted) == (1, 1.5, None)
    assert found.digest == f"sha256:{hashlib.sha256(b''.join(reports)).hexdigest()}"
    assert found.output.endswith("xend")
    assert len(found.output) < 100_000
    alone = result(EndedCommand(ran(0, "Ran 7 tests in 0.1s\n"), ""))
    assert (alone.digest, alone.counted, alone.cases) == ("", 7, {})


@pytest.mark.parametrize(
    ("tests", "exit_code", "token", "failed", "expected", "names"),
    [
        ({"t_control": "failed", "a": "passed"}, 1, "control", True, 0, {"a"}),
        ({"t_control": "failed", "a": "failed"}, 1, "control", True, 1, {"a"}),
        ({"t_control": "failed", "a": "passed"}, 2, "control", True, 2, {"a"}),  # for another reason besides
        ({"t_control": "passed", "a": "passed"}, 1, "control", False, 1, {"a"}),
        ({"a": "passed"}, 0, "control", False, 0, {"a"}),
        ({"t_control": "failed", "a": "passed"}, 1, "", False, 1, {"a", "t_control"}),
    ],
)
def test_the_control_test_is_taken_out(  # noqa: PLR0913  a table
    tests: dict[str, str], exit_code: int, *, token: str, failed: bool, expected: int, names: set[str]
) -> None:
    ended = EndedCommand(ran(exit_code), "", (report(**tests),), token=token)
    found, control_failed = run_result(RunKind.AFTER, "tree", ended, minutes=5)
    assert (control_failed, found.exit, set(found.cases)) == (failed, expected, names)


@table(
    ("values", "why"),
    [
        ({}, ""),
        ({"timed_out": True}, "did not end within 2.5 minutes; raise test_minutes"),
        ({"killed_for": "memory"}, "was stopped: memory"),
    ],
)
def test_why_a_command_was_stopped(values: dict[str, Any], why: str) -> None:
    assert why_stopped(ran(**values), 2.5) == why


@table(
    ("output", "line"),
    [
        ("", ""),
        ("one\n\n", "one"),
        ("one\nerror: two\nthree", "error: two"),
        ("one\nerror: subprocess-exited-with-error\nModuleNotFoundError: x\n", "ModuleNotFoundError: x"),
        (
            "error: subprocess-exited-with-error\nnote: This error is of it\n",
            "error: subprocess-exited-with-error",
        ),
        ("make: *** [all] Error 2", "make: *** [all] Error 2"),
        ("\x1b[31mnpm ERR! missing\x1b[0m\n", "npm ERR! missing"),
        ("sh: pytest: command not found\nlast", "sh: pytest: command not found"),
    ],
)
def test_the_first_error_of_a_command(output: str, line: str) -> None:
    assert first_error(output) == line


@table(
    ("output", "line"),
    [
        ("all is well\n", ""),
        ("x\n=== 1 failed, 2 passed ===\n2 failed\n", "=== 1 failed, 2 passed ==="),
        ("0 failed, 3 passed\n", ""),
        ("not ok 3 - adds\n", "not ok 3 - adds"),
        ("not ok 3 - adds # TODO later\n", ""),
        ("Tests run: 3, Failures: 0, Errors: 0\n", ""),
        ("Tests run: 3, Failures: 0, Errors: 2\n", "Tests run: 3, Failures: 0, Errors: 2"),
        ("\x1b[31mFAILED (failures=1)\x1b[0m\n", "FAILED (failures=1)"),
    ],
)
def test_what_a_runner_prints_of_a_failure(output: str, line: str) -> None:
    assert printed_failure(output) == line


@table(
    ("order", "status"),
    [
        (("passed", "failed"), "failed"),
        (("failed", "passed"), "failed"),
        (("skipped", "passed"), "skipped"),
        (("error", "failed"), "failed"),
    ],
)
def test_of_several_results_the_worst_counts(order: tuple[str, str], status: str) -> None:
    cases = [CaseResult("a", CaseStatus(one)) for one in order]
    assert by_id(cases)["a"].status is CaseStatus(status)
    assert len(by_id(cases)) == 1


def test_paths_are_relative_to_the_run() -> None:
    data = json.dumps(
        {
            "results": {
                "tests": [{"name": "a", "status": "passed", "filePath": one} for one in ("/run/tests/a.py",)]
            }
        }
    ).encode()
    (case,) = read_report(data, root="/run/")
    assert case.file == "tests/a.py"
    (elsewhere,) = read_report(data, root="/other")
    assert elsewhere.file == ""
