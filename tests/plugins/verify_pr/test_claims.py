"""Each field of a report is compared, and one that lies is told with both values."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.git.base import ProposedCommits
from orchestrator.bot.verification.base import CaseResult, CaseStatus, Change, RunKind, RunResult, Runs
from orchestrator.bot.verification.page import find_block, report
from orchestrator.bot.verification.verdict import ChangeVerdict, judge_runs
from orchestrator.plugins.verify_pr.claims import (
    EvidenceLine,
    ReportClaims,
    Standing,
    confirm_refuted,
    lines_of_block,
    lines_of_commits,
    lines_of_digests,
    lines_of_runs,
    read_claims,
)
from tests.evaluation.claims import fields, with_lie
from tests.tables import table

HEAD, BASE = "a" * 40, "b" * 40
TREES = {RunKind.BEFORE: "1" * 40, RunKind.KEPT: "2" * 40, RunKind.AFTER: "3" * 40, RunKind.NEW: "4" * 40}
COMMITS = ProposedCommits(HEAD, "c" * 40, BASE)
REST = {"t.py::test_old": "passed", "t.py::test_off": "skipped"}


def run(kind: RunKind, **ends: str) -> RunResult:
    named = {**REST, **{f"t.py::test_{name}": end for name, end in ends.items()}}
    cases = {name: CaseResult(name, CaseStatus(end), is_assertion=True) for name, end in named.items()}
    failed = any(case.failed for case in cases.values())
    return RunResult(kind, TREES[kind], cases, int(failed), 1.25, digest="sha256:" + "e" * 64)


def verdict(task: str = "test_named", **changes: Any) -> ChangeVerdict:
    """Of a change with something of everything: fixed, broken, named, new, and flaky tests."""
    runs = Runs(
        "pytest -q",
        "pip install -e .",
        "bubblewrap",
        BASE,
        TREES[RunKind.AFTER],
        run(RunKind.BEFORE, named="failed", bad="passed", loose="passed"),
        run(RunKind.KEPT, named="failed", bad="failed", loose="failed"),
        run(RunKind.AFTER, named="failed", bad="failed", new="passed"),
        run(RunKind.NEW, new="failed"),
    )
    return judge_runs(replace(runs, **changes), Change(BASE, TREES[RunKind.AFTER], (), task))


FOUND = verdict()


def statement(of: ChangeVerdict = FOUND) -> dict[str, Any]:
    found = find_block(report(of, HEAD)).statement
    assert found is not None
    return found


def claims(of: dict[str, Any]) -> ReportClaims:
    read = read_claims(of)
    assert isinstance(read, ReportClaims), read
    return read


def looked_at(of: dict[str, Any], found: ChangeVerdict = FOUND) -> list[EvidenceLine]:
    read = read_claims(of)
    if isinstance(read, str):
        return list(lines_of_block(None, read))
    return [
        *lines_of_block(read, ""),
        *lines_of_commits(read, COMMITS),
        *lines_of_digests(read, TREES[RunKind.AFTER], TREES[RunKind.BEFORE]),
        *lines_of_runs(read, found),
    ]


def refuted(lines: list[EvidenceLine]) -> list[str]:
    return [line.subject for line in lines if line.standing is Standing.REFUTED]


LEAVES = list(fields(statement()))
DIFFERS = {"seconds", "cached", "report", "sandbox", "problem"}
"""What is said not to be compared, because it differs from run to run."""


def test_an_honest_report_holds() -> None:
    lines = looked_at(statement())
    assert refuted(lines) == []
    assert {line.standing for line in lines} == {Standing.HOLDS, Standing.NOTED}


@table("path", LEAVES, ids=str)
def test_a_lie_in_any_field_is_refuted(path: tuple[Any, ...]) -> None:
    if path[0] in {"_type", "predicateType"}:
        assert find_block(f"```json\n{json.dumps(with_lie(statement(), path))}\n```").problem
    elif not DIFFERS.intersection(path):
        assert refuted(looked_at(with_lie(statement(), path))), path


def test_what_differs_from_run_to_run_is_named_and_nothing_else_is_left_out() -> None:
    (noted,) = (line for line in looked_at(statement()) if line.standing is Standing.NOTED)
    assert noted.found.startswith("seconds, the sandbox, whether a run was cached, the text of a problem")
    left_out = {
        path
        for path in LEAVES
        if DIFFERS.intersection(path) and not refuted(looked_at(with_lie(statement(), path)))
    }
    assert {next(key for key in path if key in DIFFERS) for path in left_out} == DIFFERS - {"problem"}


@table("path", LEAVES, ids=str)
def test_a_field_that_is_gone_is_refuted_or_was_not_needed(path: tuple[Any, ...]) -> None:
    changed = copy.deepcopy(statement())
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    if path[0] in {"_type", "predicateType"} or DIFFERS.intersection(path):
        return
    is_old = path[-1] == "format"
    assert bool(refuted(looked_at(changed))) is not is_old, path


def test_both_values_of_a_lie_are_told() -> None:
    changed = statement()
    changed["predicate"]["runs"]["after"]["passed"] += 5
    (line,) = (line for line in looked_at(changed) if line.standing is Standing.REFUTED)
    assert (line.subject, line.claimed, line.found) == (
        "after: counts",
        "7 passed, 2 failed, 1 skipped, exit code 1",
        "2 passed, 2 failed, 1 skipped, exit code 1",
    )


def test_another_command_is_a_finding() -> None:
    changed = copy.deepcopy(FOUND)
    lines = looked_at(statement(), replace(changed, runs=replace(FOUND.runs, command="make test")))
    assert "test command" in refuted(lines)


def test_a_long_command_is_compared_whole() -> None:
    long = verdict(command=f"pytest {'x' * 400}a")
    other = verdict(command=f"pytest {'x' * 400}b")
    assert refuted(looked_at(statement(long), long)) == []
    assert refuted(looked_at(statement(long), other)) == ["commands, whole"]


def test_a_list_that_was_cut_is_compared_as_far_as_it_goes() -> None:
    many = {f"case_{at:04}_{'x' * 150}": "failed" for at in range(60)}
    before = run(RunKind.BEFORE, **dict.fromkeys(many, "passed"))
    after = run(RunKind.AFTER, **many)
    found = verdict(before=before, kept=replace(after, kind=RunKind.KEPT), after=after, new=None)
    said = statement(found)
    assert said["predicate"]["failedTestsNotListed"]
    assert refuted(looked_at(said, found)) == []
    said["predicate"]["failedTests"][0] += "x"
    assert "failed tests" in refuted(looked_at(said, found))


def test_an_older_report_is_read_and_says_that_it_has_less() -> None:
    old = statement()
    predicate = old["predicate"]
    del predicate["format"], predicate["configuration"][0]["digest"]["gitTree"]
    del predicate["configuration"][1]["digest"]
    for made in predicate["runs"].values():
        del made["cases"]
    lines = looked_at(old)
    assert refuted(lines) == []
    assert "older version" in lines[0].note


@pytest.mark.parametrize("number", [4, 1_000])
def test_a_newer_report_is_not_guessed_at(number: int) -> None:
    changed = statement()
    changed["predicate"]["format"] = number
    assert (
        read_claims(changed) == f"its format is {number}, and this version reads up to 3: use a newer version"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(LEAVES), JSON)
def test_any_value_anywhere_is_read_or_gets_one_line(path: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(statement())
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    lines = looked_at(changed)
    assert all("\n" not in f"{line.claimed}{line.found}{line.note}" for line in lines)


def test_what_ends_otherwise_the_second_time_is_not_refuted() -> None:
    changed = statement()
    changed["predicate"]["runs"]["after"]["passed"] += 5
    first = looked_at(changed)
    same = {line.subject: line for line in first}
    assert refuted(confirm_refuted(first, same.get)) == ["after: counts"]
    other = {**same, "after: counts": replace(same["after: counts"], found="3 passed")}
    (line,) = (line for line in confirm_refuted(first, other.get) if line.standing is Standing.UNKNOWN)
    assert line.note == "a second run gave another result: 3 passed"
