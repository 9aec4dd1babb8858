"""Reports in the Common Test Report Format: they are valid, and reading gives what was written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from orchestrator.bot.verification.base import (
    WHOLE_RUN,
    CaseResult,
    CaseStatus,
    Change,
    RunKind,
    RunResult,
    Runs,
)
from orchestrator.bot.verification.ctrf import CtrfTest, ctrf_of_change, ctrf_report
from orchestrator.bot.verification.reports import _ctrf_case, read_report
from orchestrator.bot.verification.verdict import ChangeVerdict, judge_runs
from tests.tables import table

SCHEMA = Draft7Validator(
    json.loads((Path(__file__).parents[3] / "data" / "ctrf" / "ctrf.schema.json").read_text("utf-8")),
    format_checker=Draft7Validator.FORMAT_CHECKER,
)
ENDED = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
TREE = "d" * 40


def run(kind: RunKind, exit_code: int = 0, **statuses: CaseStatus) -> RunResult:
    cases = {
        f"t.py::{name}": CaseResult(f"t.py::{name}", status, "no" if status != "passed" else "", file="t.py")
        for name, status in statuses.items()
    }
    return RunResult(kind, TREE, cases, exit_code, 1.25)


def judged(before: RunResult, after: RunResult) -> ChangeVerdict:
    runs = Runs(
        "pytest -q", "", "bubblewrap", "b" * 40, TREE, before, replace(after, kind=RunKind.KEPT), after
    )
    return judge_runs(runs, Change("b" * 40, TREE, ()))


def written(before: RunResult, after: RunResult) -> dict[str, Any]:
    report = ctrf_of_change(judged(before, after), "a" * 40, ENDED)
    SCHEMA.validate(report)
    return report


def test_a_change_s_report_has_each_test_with_its_end_in_the_other_runs() -> None:
    before = run(RunKind.BEFORE, 1, a=CaseStatus.FAILED, b=CaseStatus.PASSED)
    after = replace(
        run(RunKind.AFTER, 1, a=CaseStatus.PASSED, b=CaseStatus.SKIPPED, c=CaseStatus.ERROR),
        flaky=frozenset({"t.py::a"}),
    )
    results = written(before, after)["results"]
    first, second, third = results["tests"]
    kept = {"kept": "passed"}
    assert first == {
        "name": "t.py::a",
        "status": "passed",
        "duration": 0,
        "filePath": "t.py",
        "labels": {"before": "failed", **kept},
        "flaky": True,
    }
    assert (second["status"], third["status"], third["rawStatus"]) == ("skipped", "failed", "error")
    summary = results["summary"]
    assert (summary["tests"], summary["passed"], summary["failed"], summary["flaky"]) == (3, 1, 1, 1)
    assert summary["stop"] - summary["start"] == summary["duration"] == 1250
    assert results["environment"] == {"commit": "a" * 40}


@table(
    ("after", "names", "statuses"),
    [
        (run(RunKind.AFTER), [WHOLE_RUN], ["passed"]),
        (run(RunKind.AFTER, 2), [WHOLE_RUN], ["failed"]),
        (
            replace(run(RunKind.AFTER, a=CaseStatus.PASSED), problem="it was stopped"),
            ["t.py::a", "(what the runs prove)"],
            ["passed", "failed"],
        ),
    ],
)
def test_what_proves_nothing_is_not_a_pass(after: RunResult, names: list[str], statuses: list[str]) -> None:
    tests = written(run(RunKind.BEFORE), after)["results"]["tests"]
    assert [test["name"] for test in tests] == names
    assert [test["status"] for test in tests] == statuses


def test_a_change_whose_runs_could_not_be_made_fails() -> None:
    runs = Runs("pytest -q", "", "bubblewrap", "b" * 40, TREE, problem="the set-up failed")
    report = ctrf_of_change(ChangeVerdict(runs, problem="the set-up failed"), "", ENDED)
    SCHEMA.validate(report)
    (test,) = report["results"]["tests"]
    assert (test["status"], test["message"]) == ("failed", "the set-up failed")


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)
STATUSES = st.sampled_from(["passed", "failed", "skipped", "pending", "other"])


@given(
    st.lists(
        st.builds(CtrfTest, TEXT, STATUSES, st.floats(0, 9), st.tuples(TEXT), TEXT, TEXT, TEXT), max_size=5
    )
)
@example([CtrfTest("", "passed")])
def test_every_report_is_valid(tests: list[CtrfTest]) -> None:
    SCHEMA.validate(ctrf_report(tests, tool="t", ended=ENDED, seconds=2, extra={"a": 1}))


@given(
    st.lists(st.tuples(st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.sampled_from(CaseStatus)), max_size=6)
)
def test_reading_gives_the_statuses_that_were_written(rows: list[tuple[str, CaseStatus]]) -> None:
    after = run(RunKind.AFTER, int(any(status != "passed" for _, status in rows)), **dict(rows))
    tests = written(run(RunKind.BEFORE), after)["results"]["tests"]
    read = read_report(json.dumps({"results": {"tests": tests}}).encode())
    if after.cases:
        assert {case.id: case.status for case in read} == {
            name: case.status for name, case in after.cases.items()
        }


@table(
    "status, raw, expected",
    [
        ("failed", "error", CaseStatus.ERROR),
        ("failed", "failed", CaseStatus.FAILED),
        ("failed", None, CaseStatus.FAILED),
        ("passed", "error", CaseStatus.PASSED),
        ("skipped", "error", CaseStatus.SKIPPED),
        ("passed", None, CaseStatus.PASSED),
    ],
)
def test_an_error_is_a_failed_test_of_a_runner_that_calls_it_so(
    status: str, raw: str | None, expected: CaseStatus
) -> None:
    assert _ctrf_case({"name": "a", "status": status, "rawStatus": raw}).status is expected
