"""Some hundred inputs for the fuzz target `commands`; `python -m tests.fuzz commands` tries more."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.fuzz.commands import TARGET
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
