"""A broken plan never runs a call that it does not hold: `python -m tests.fuzz plans` and `.plan_mutations` try more."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.plan_mutations import NAMES, count
from tests.fuzz.plans import TARGET
from tests.tables import table

LEAST_MENDED = 0.8


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 2**32))
def test_no_wrong_call_runs(seed: int) -> None:
    wrong = [reply for counts in count(2 * len(NAMES), seed).values() for reply in counts.wrong]
    assert not wrong


def test_most_harmless_faults_are_mended() -> None:
    for name, counts in count(30 * len(NAMES), 1).items():
        assert counts.mended >= LEAST_MENDED * counts.harmless, (name, counts.refused)


@table("data", TARGET.seeds)
def test_what_was_found_once_stays_found(data: bytes) -> None:
    TARGET.run(data)


@settings(
    max_examples=4 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TARGET.inputs())
def test_no_promise_is_broken(data: bytes) -> None:
    TARGET.run(data)
