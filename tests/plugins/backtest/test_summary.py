"""What tries come to: which arm is chosen, and what is said where the difference is within chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.plugins.backtest.cases import Judged
from orchestrator.plugins.backtest.command import summary_lines
from orchestrator.plugins.backtest.summary import OpenBacklog, sum_up
from orchestrator.plugins.backtest.trials import planned
from tests.plugins.backtest.test_trials import ARMS, case, done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.plugins.backtest.summary import BacktestSummary


def summary(
    solved: tuple[Sequence[int], Sequence[int]],
    usd: tuple[float | None, float | None] = (1.0, 1.0),
    backlog: OpenBacklog | None = None,
) -> BacktestSummary:
    """Of two arms, how many of three tries solved each case, at what price."""
    cases = [case(f"c{number}") for number in range(len(solved[0]))]
    wanted = planned(cases, ARMS, 3)
    results = {}
    for one in wanted:
        arm = ARMS.index(one.arm)
        place = int(one.case.case.id[1:])
        judged = Judged.SOLVED if one.number <= solved[arm][place] else Judged.WRONG
        results[one.key] = done(one, usd[arm], judged)
    return sum_up(ARMS, wanted, results, backlog or OpenBacklog())


def test_an_arm_that_solves_more_is_chosen_whatever_it_costs() -> None:
    told = summary(([3] * 12, [0] * 12), (9.0, 0.1))
    assert told.chosen == ARMS[0].name
    assert told.reasons[0].startswith(f"It solves more than {ARMS[1].name}: +100 points")


def test_where_the_difference_is_within_chance_the_cheaper_solution_is_chosen() -> None:
    told = summary(([3, 3, 0, 0, 3, 0, 3, 0], [3, 0, 3, 0, 3, 0, 0, 0]), (9.0, 1.0))
    assert told.chosen == ARMS[1].name
    assert "within chance" in " ".join(told.reasons)
    assert told.reasons[-1] == "With 8 cases only large differences can be seen."


def test_an_arm_that_solves_nothing_is_never_chosen() -> None:
    assert summary(([0, 0], [0, 0])).chosen == ""
    told = summary(([3, 0], [0, 0]), (9.0, 0.01))
    assert told.chosen == ARMS[0].name
    assert "within chance" in told.reasons[0]


def test_a_case_counts_once_however_often_it_was_tried() -> None:
    told = summary(([1, 2, 3], [0, 0, 0]))
    assert told.arms[0].solved is not None
    assert told.arms[0].solved.mean == pytest.approx(2 / 3)
    assert told.arms[0].solved.tasks == 3
    assert told.arms[0].judged == {"solved": 6, "wrong": 3}
    assert told.arms[0].usd_a_solution == pytest.approx(1.5)


def test_without_a_result_nothing_is_known() -> None:
    wanted = planned([case("c")], ARMS, 1)
    told = sum_up(ARMS, wanted, {}, OpenBacklog(3, 9.0))
    assert (told.chosen, told.outlook) == ("", [])
    assert told.reasons == ["No try has a result, so nothing is known."]


def test_what_a_month_would_cost() -> None:
    told = summary(([3] * 12, [0] * 12), (2.0, 1.0), OpenBacklog(10, 30.0))
    assert told.outlook[0].startswith("The tasks that are open now (10): $20.00")
    assert "about 10 would be solved" in told.outlook[0]
    assert told.outlook[1].startswith("A month of new issues, if each became a task (30): $60.00")
    unknown = summary(([3] * 12, [0] * 12), (None, None), OpenBacklog(10, 30.0))
    assert "the price of the model is not" in unknown.outlook[0]
    assert "No task is open now." in summary(([3], [0]), backlog=OpenBacklog(0)).outlook


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_the_table_stays_within_the_terminal(columns: int) -> None:
    told = summary(([3, 0, 3, 1], [0, 0, 1, 2]), (0.0123, 1.5), OpenBacklog(12, 33.0))
    lines = list(summary_lines(told, columns))
    assert max(map(len, lines)) <= columns, lines
    assert any(line.startswith(f"Choose: {told.chosen}") for line in lines)
