from __future__ import annotations

from orchestrator.core.clock import ManualClock
from orchestrator.core.messages import Usage
from orchestrator.engine.session.budget import Budget, Limits
from tests.tables import table


@table(
    ("limits", "expected"),
    [
        (Limits(), None),
        (Limits(rounds=3), None),
        (Limits(rounds=2), "rounds"),
        (Limits(tokens=151), None),
        (Limits(tokens=150), "tokens"),
        (Limits(usd=0.51), None),
        (Limits(usd=0.5), "usd"),
        (Limits(minutes=1.1), None),
        (Limits(minutes=1), "minutes"),
    ],
)
def test_a_budget_ends_at_its_limit_and_not_before(limits: Limits, expected: str | None) -> None:
    clock = ManualClock()
    budget = Budget(limits, clock)
    budget.rounds = 2
    budget.spend(Usage(input_tokens=100, output_tokens=50), 0.5)
    clock.advance(60)
    reached = budget.exceeded()
    assert (reached.limit if reached else None) == expected


def test_one_unknown_price_makes_the_sum_unknown_for_good() -> None:
    budget = Budget(Limits(usd=1), ManualClock())
    budget.spend(Usage(1, 1), 0.2)
    budget.spend(Usage(1, 1), None)
    budget.spend(Usage(1, 1), 5.0)
    assert budget.usd is None


def test_a_subagent_stops_where_the_time_begins_that_its_parent_keeps_back() -> None:
    clock = ManualClock()
    above = Budget(Limits(minutes=10), clock, wrap_up_share=0.1)
    below = Budget(Limits(), clock, above, wrap_up_share=0.1)
    above.rounds = below.rounds = 1
    assert (above.seconds_left, below.seconds_left) == (600, 540)
    clock.advance(540)
    reached = below.exceeded()
    assert reached is not None
    assert reached.limit == "minutes"
    assert above.exceeded() is None
    assert above.wrap_up_due() is not None
