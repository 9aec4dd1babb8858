from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.policy.blocked import LONGEST_COMMAND
from orchestrator.engine.tools.changes import unwrapped
from orchestrator.engine.tools.hunks import apply_chunks
from orchestrator.engine.tools.v4a import parse_v4a
from tests.fuzz import commands
from tests.fuzz.growth import TARGET, grows, repeated, taken_apart

if TYPE_CHECKING:
    from tests.fuzz.growth import Reader

LARGE_CHARS = 190_000
"""Reading it in quadratic time takes minutes; a longer one is refused by some readers."""
LESS_CHARS = {"{},": 40_000}
"""A piece of which so many are read in a second; cubic time would be hours."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("data", TARGET.seeds)
def test_what_once_took_long_is_read(data: bytes) -> None:
    reader, _noise_s, parts = taken_apart(data)
    most_chars = LONGEST_COMMAND if reader == commands.RULES.refusal else LARGE_CHARS
    reader(repeated(parts, min(most_chars, LESS_CHARS.get(parts[1], most_chars)) - len(parts[0] + parts[2])))


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


@pytest.mark.timeout(120)
def test_blank_lines_at_the_end_of_a_hunk() -> None:
    lines = 100_000
    patch = "*** Begin Patch\n*** Update File: f\n@@\n a\n" + " \n" * lines + "*** End Patch"
    (change,) = parse_v4a(patch)
    with pytest.raises(ToolError, match="does not match"):
        apply_chunks("f", "a\n" * lines + "b\n", change.chunks)


@pytest.mark.timeout(120)
def test_a_fence_in_a_fence() -> None:
    fences = "```\n" * 200_000
    assert unwrapped(f"{fences}x\n{fences}")
