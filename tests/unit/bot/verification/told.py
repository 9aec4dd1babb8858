"""What a pull request tells about a change that breaks a test."""

from __future__ import annotations

from orchestrator.bot.verification.base import CaseResult, CaseStatus, Change, RunKind, RunResult, Runs
from orchestrator.bot.verification.page import report, warning_about_tests
from orchestrator.bot.verification.verdict import judge_runs

HEAD = "ab" * 20


def _report() -> tuple[str, str]:
    """The warning and the report of a change that breaks a test."""
    before, after = (
        RunResult(kind, "cd" * 20, {"test_a.py::test_a": CaseResult("test_a.py::test_a", status)}, code, 1.0)
        for kind, status, code in (
            (RunKind.BEFORE, CaseStatus.PASSED, 0),
            (RunKind.AFTER, CaseStatus.FAILED, 1),
        )
    )
    runs = Runs("pytest", "", "none", HEAD, "cd" * 20, before, after, after)
    verdict = judge_runs(runs, Change(HEAD, "cd" * 20, ()))
    return warning_about_tests(verdict), report(verdict, HEAD)


WARNING, REPORT = _report()
