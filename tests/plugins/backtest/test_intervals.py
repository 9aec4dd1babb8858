"""Intervals over few tasks: known values, and what has to hold of any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.plugins.backtest.summary import estimate, paired_difference

SHARE = (0.0, 1.0)
values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def test_nothing_is_known_of_no_task() -> None:
    assert estimate([], SHARE) is None
    assert paired_difference({"a": 1.0}, {"b": 1.0}, SHARE) is None


@pytest.mark.parametrize(
    ("tasks", "low"),
    # Clopper and Pearson (1934), as R's binom.test(n, n) gives them.
    [(1, 0.025), (5, 0.478176), (10, 0.691503), (20, 0.831567)],
)
def test_that_all_were_solved_is_no_certainty(tasks: int, low: float) -> None:
    found = estimate([1.0] * tasks, SHARE)
    assert found is not None
    assert (found.mean, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(low, abs=1e-6)
    nothing = estimate([0.0] * tasks, SHARE)
    assert nothing is not None
    assert nothing.high == pytest.approx(1 - low, abs=1e-6)


def test_the_interval_of_a_half_is_that_of_the_binomial() -> None:
    """Of ten tasks five: 0.2 to 0.8 are the 2.5 % and the 97.5 % quantile of Binomial(10, 0.5) / 10."""
    found = estimate([0.0, 1.0] * 5, SHARE)
    assert found is not None
    assert (found.mean, found.low, found.high) == (0.5, 0.2, 0.8)


def test_what_has_no_bounds_has_no_interval_where_all_are_alike() -> None:
    found = estimate([3.0, 3.0])
    assert found is not None
    assert (found.mean, found.low, found.high) == (3.0, None, None)
    assert not found.excludes_zero


@settings(max_examples=15)  # each draws thousands of samples
@given(values)
def test_an_interval_holds_its_mean_and_stays_within_the_values(found: list[float]) -> None:
    told = estimate(found, SHARE)
    assert told is not None
    assert told.low is not None
    assert told.high is not None
    assert 0.0 <= told.low <= told.mean + 1e-9
    assert told.mean - 1e-9 <= told.high <= 1.0 + 1e-9
    assert told == estimate(found, SHARE), "the same results have the same interval"


@settings(max_examples=15)  # each draws thousands of samples
@given(values)
def test_twice_the_values_have_twice_the_interval(found: list[float]) -> None:
    told, doubled = estimate(found), estimate([2 * one for one in found])
    assert told is not None
    assert doubled is not None
    assert doubled.mean == pytest.approx(2 * told.mean)
    if told.low is not None and told.high is not None:
        assert doubled.low == pytest.approx(2 * told.low)
        assert doubled.high == pytest.approx(2 * told.high)


@settings(max_examples=15)  # each draws thousands of samples
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_a_difference_the_other_way_round_is_its_negative(pairs: dict[str, tuple[float, float]]) -> None:
    one = {task: pair[0] for task, pair in pairs.items()}
    other = {task: pair[1] for task, pair in pairs.items()}
    forth, back = paired_difference(one, other, SHARE), paired_difference(other, one, SHARE)
    assert forth is not None
    assert back is not None
    assert forth.mean == pytest.approx(-back.mean)
    assert forth.excludes_zero == back.excludes_zero


def test_pairs_see_what_two_intervals_do_not() -> None:
    """One arm solves each hard task a little more often: the tasks differ more than the arms do."""
    one = {str(task): task / 10 + 0.05 for task in range(10)}
    other = {str(task): task / 10 for task in range(10)}
    apart = estimate(list(one.values()), SHARE), estimate(list(other.values()), SHARE)
    assert apart[0] is not None
    assert apart[1] is not None
    assert (apart[0].low or 0) < (apart[1].high or 0), "the intervals overlap"
    gap = paired_difference(one, {**other, "more": 0.0})
    assert gap is not None
    assert gap.tasks == 10
    assert gap.mean == pytest.approx(0.05)
