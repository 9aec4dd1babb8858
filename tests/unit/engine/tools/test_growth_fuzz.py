from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.policy.destructive import LONGEST_COMMAND
from orchestrator.engine.tools.patches.formats import parse_v4a, unwrapped
from orchestrator.engine.tools.patches.hunks import apply_chunks
from tests.fuzz import commands
from tests.fuzz.growth import TARGET, TIMES, grows, taken_apart
from tests.tables import table

if TYPE_CHECKING:
    from tests.fuzz.growth import Reader

SMALL_CHARS = 10_000


@pytest.mark.slow(reason="growth: each example in several sizes")
@table("data", TARGET.seeds)
def test_what_once_took_long_grows_with_the_text(data: bytes) -> None:
    reader, noise_s, parts = taken_apart(data)
    is_short = reader == commands.RULES.refusal
    small_chars = (LONGEST_COMMAND - len(parts[0] + parts[2])) // TIMES if is_short else SMALL_CHARS
    grows(reader, parts, noise_s, small_chars=small_chars)


def squared(text: str) -> int:
    return len(text) ** 2


def linear(text: str) -> int:
    return len(text)


def counted(reader: Reader, text: str) -> float:
    """A stopwatch for readers that say what they cost."""
    cost = reader(text)
    assert isinstance(cost, int)
    return float(cost)


def test_quadratic_time_is_seen() -> None:
    with pytest.raises(AssertionError, match="4 times the text takes 16 times as long"):
        grows(squared, ("", "x", ""), noise_s=0.0, stopwatch=counted)
    grows(linear, ("", "x", ""), noise_s=0.0, stopwatch=counted)


def test_a_cost_below_the_noise_is_not_looked_at() -> None:
    grows(squared, ("", "x", ""), noise_s=1e9, stopwatch=counted)


def test_what_seemed_slow_once_is_measured_again() -> None:
    costs = iter([90.0, 10.0, 10.0, 40.0])
    grows(linear, ("", "x", ""), noise_s=0.0, stopwatch=lambda _reader, _text: next(costs))
    assert next(costs, None) is None


def test_blank_lines_at_the_end_of_a_hunk() -> None:
    def read(blank: str) -> None:
        lines = len(blank)
        patch = "*** Begin Patch\n*** Update File: f\n@@\n a\n" + " \n" * lines + "*** End Patch"
        (change,) = parse_v4a(patch)
        with pytest.raises(ToolError, match="does not match"):
            apply_chunks("f", "a\n" * lines + "b\n", change.chunks)

    grows(read, ("", "\n", ""), small_chars=3_000)


def test_a_fence_in_a_fence() -> None:
    fences = "```\n" * 200_000
    assert unwrapped(f"{fences}x\n{fences}")
