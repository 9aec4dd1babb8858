"""Some hundred inputs for the fuzz target `patches`; `python -m tests.fuzz patches` tries more."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.fuzz.patches import TARGET
from tests.tables import table


@table("data", TARGET.seeds)
def test_what_was_found_once_stays_found(data: bytes) -> None:
    TARGET.run(data)


@settings(
    max_examples=4 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TARGET.inputs())
def test_no_promise_is_broken(data: bytes) -> None:
    TARGET.run(data)
