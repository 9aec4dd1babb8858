"""The figures, plots and lists of the overview, from runs that are given."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.journal.run_facts import RunSummary
from orchestrator.core.cycle_events import Proposed, TaskTaken
from orchestrator.core.messages import Spent
from orchestrator.plugins.dashboard.overview import (
    Bar,
    Look,
    Plot,
    RunFilter,
    WaitingItem,
    _costs_by_day,
    _failures,
    _is_over,
    _may_be_open,
    _outcome_plot,
    _since,
    cost_plot,
    titles_of,
)
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 11, 21, 3, 30, tzinfo=UTC)
TASK = TaskTaken("issue-7", "Add numbers", "", "issue", 7)
OPENED = Proposed(9, "Add", "https://f/9", "b", "1" * 40, created=True)


def run(name: str = "r", outcome: str = "failed", **values: Any) -> RunSummary:
    return RunSummary(name, **{"started": NOW, "repository": "octo/calc", "outcome": outcome, **values})


@table(
    ("totals", "top", "highest", "labelled"),
    [
        ([], 0.0, 1.0, set()),
        ([0.0, 0.0], 0.0, 1.0, set()),
        ([3.0, 0.0, 1.0], 0.0, 3.0, {0, 2}),
        ([1.0, 3.0, 2.0], 0.0, 3.0, {1}),  # the last one is beside it
        ([3.0, 1.0, 0.0], 0.0, 3.0, {0}),
        ([1.0, 3.0], 7.0, 7.0, {1}),
    ],
)
def test_the_scale_of_a_plot(totals: list[float], top: float, highest: float, labelled: set[int]) -> None:
    bars = [Bar("day", (("ok", total / 2, ""), ("failed", total / 2, ""))) for total in totals]
    plot = Plot("Title", "said", bars, least_top=top)
    assert (plot.highest, plot.labelled) == (highest, labelled)
    assert replace(plot, cap=(9.0, "cap")).highest == 9.0


@table(
    ("fields", "found"),
    [
        ({}, "abc"),
        ({"q": "ADD numbers"}, "a"),
        ({"q": "numbers issue-7 #7"}, "a"),
        ({"q": "numbers missing"}, ""),
        ({"q": "quota"}, "b"),
        ({"repository": "octo/sums"}, "c"),
        ({"repository": "octo/calc", "outcome": "failed"}, "a"),
        ({"outcome": "paused"}, "b"),
        ({"q": "  ", "outcome": " proposed "}, "c"),
    ],
)
def test_the_runs_that_a_person_looks_for(fields: dict[str, str], found: str) -> None:
    runs = [
        run("a", task=TASK),
        run("b", "paused", error="the quota is used up"),
        run("c", "proposed", repository="octo/sums"),
    ]
    wanted = RunFilter.of(fields)
    assert "".join(one.id for one in runs if wanted.matches(one)) == found
    assert wanted.is_any is any(text.strip() for text in fields.values())
    assert RunFilter.of({"q": "x" * 300}).q == "x" * 200
    assert RunFilter("a b", outcome="failed").query("run-1") == "q=a+b&outcome=failed&before=run-1"


@table(
    ("ended", "expected"),
    [
        (None, False),
        (NOW - timedelta(days=7), True),
        (NOW - timedelta(days=7, seconds=1), False),
        (NOW, True),
    ],
)
def test_a_run_counts_by_its_end(ended: datetime | None, *, expected: bool) -> None:
    one = run(started=NOW - timedelta(days=8), ended=ended)
    assert bool(_since([one], NOW - timedelta(days=7))) is expected
    assert _since([replace(one, started=None)], NOW - timedelta(days=7)) == []
    assert _since([run()], NOW - timedelta(days=7)) != []


@table(
    ("values", "expected"),
    [
        ({}, True),
        ({"is_running": True}, False),
        ({"outcome": "unfinished"}, False),
        ({"outcome": "damaged"}, False),
    ],
)
def test_a_run_that_is_over_is_not_read_again(values: dict[str, Any], *, expected: bool) -> None:
    assert _is_over(run(**values)) is expected


OPEN, CLOSED, MERGED = PullRequestState.OPEN, PullRequestState.CLOSED, PullRequestState.MERGED


def look(state: PullRequestState | None, error: str = "") -> Look:
    pull = None if state is None else PullRequest(9, "Add", "", "u", False, state, "b", "main", "1" * 40)
    states: Any = (
        () if pull is None else (type("State", (), {"pull": pull})(), type("State", (), {"pull": None})())
    )
    return Look("octo/calc", NOW, states, error=error)


@table(
    ("pull", "looks", "closed", "expected"),
    [
        (None, {}, set(), False),
        (OPENED, {}, set(), True),
        (OPENED, {}, {("github.com/octo/calc", 9)}, False),
        (OPENED, {}, {("github.com/octo/calc", 8)}, True),
        (OPENED, {"octo/calc": look(OPEN)}, set(), True),
        (OPENED, {"octo/calc": look(MERGED)}, set(), False),
        (OPENED, {"octo/calc": look(CLOSED)}, set(), False),
        (OPENED, {"octo/calc": look(CLOSED, "away")}, set(), True),
        (OPENED, {"octo/sums": look(CLOSED)}, set(), True),
        (OPENED, {"octo/calc": look(None)}, set(), True),
        (replace(OPENED, number=8), {"octo/calc": look(CLOSED)}, set(), True),
    ],
)
def test_a_pull_request_that_may_wait_for_a_person(
    pull: Proposed | None, looks: dict[str, Look], closed: set[tuple[str, int]], *, expected: bool
) -> None:
    assert _may_be_open(run(pull=pull), looks, closed) is expected


@pytest.mark.parametrize("what", ["question", "waits"])
def test_only_a_question_has_choices(what: str) -> None:
    item = WaitingItem(what, run(), "Which?\n\n1. One\n2. Two")
    assert item.choices == ([("1", "One"), ("2", "Two")] if what == "question" else [])


def test_failures_are_grouped_by_their_reason_and_the_most_frequent_come_first() -> None:
    runs = [
        run("a", error="12 tests fail"),
        run("b", "limit", reason="5 rounds are used"),
        run("c", "limit", reason="7 rounds are used"),
        run("d", "unfinished"),
        run("e", "proposed", error="nothing"),
        run("f", "paused", reason="5 rounds are used"),
        *(run(str(number), error=f"reason {chr(97 + number)}") for number in range(9)),
    ]
    found = _failures(runs)
    assert found[0] == ("7 rounds are used", 2, runs[2])
    assert ("the process died before the end", 1, runs[3]) in found
    assert ("12 tests fail", 1, runs[0]) in found
    assert [times for _, times, _ in found] == [2, *[1] * 7]


def test_the_first_title_of_a_task_is_its_title() -> None:
    runs = [
        run(task=TASK),
        run(task=replace(TASK, title="Later")),
        run(),
        run(task=TASK, repository="octo/sums"),
    ]
    names = ("github.com/octo/calc", "github.com/octo/sums")
    assert titles_of(runs) == {(name, "issue-7"): "Add numbers" for name in names}


def costs(*days: tuple[int, float | None]) -> Sequence[RunSummary]:
    today = NOW.date()
    return [run(costs_by_day={today - timedelta(days=back): Spent(usd=usd)}) for back, usd in days]


def test_costs_are_summed_over_fourteen_days() -> None:
    found = _costs_by_day(costs((0, 1.0), (0, 0.5), (13, 2.0), (14, 4.0)), NOW)
    assert {day: cost.usd for (_, day), cost in found.items()} == {
        date(2026, 11, 21): 1.5,
        date(2026, 11, 8): 2.0,
    }
    plot = cost_plot(found, NOW, None)
    assert (len(plot.bars), plot.cap, plot.said) == (14, None, "$3.50 in 14 days")
    assert (plot.bars[0].label, plot.bars[0].total, plot.bars[-1].label) == ("Nov 08", 2.0, "Nov 21")
    unknown = cost_plot(_costs_by_day(costs((1, None)), NOW), NOW, 2.0)
    assert unknown.cap == (2.0, "cap $2.00")
    assert unknown.said.endswith("in 14 days; the price of some replies is unknown on 1 day")
    assert not unknown.said.startswith("$0.00")


def test_outcomes_are_counted_by_the_day_on_which_a_run_began() -> None:
    runs = [
        run(outcome="proposed"),
        run(outcome="planned"),
        run(outcome="answered"),
        run(outcome="question", started=NOW - timedelta(days=1)),
        run(outcome="limit", started=NOW - timedelta(days=13)),
        run(outcome="damaged", started=NOW - timedelta(days=14)),
        run(outcome="no_task"),
        run(outcome="failed", started=None),
    ]
    plot = _outcome_plot(runs, NOW)
    assert plot.said == (
        "2 proposed, 1 done without a pull request, 1 asked, 1 stopped early, 0 failed in 14 days"
    )
    assert plot.bars[-1].parts == (
        ("ok", 2.0, "Nov 21: 2 proposed"),
        ("quiet", 1.0, "Nov 21: 1 done without a pull request"),
    )
    assert plot.bars[-2].parts == (("warning", 1.0, "Nov 20: 1 asked"),)
    assert plot.bars[1].parts == ()
    assert not plot.is_money
