"""Texts that once took quadratic or cubic time to read; `python -m tests.fuzz growth` looks for more."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.tools.changes import unwrapped
from orchestrator.tools.hunks import apply_chunks
from orchestrator.tools.v4a import parse_v4a
from tests.fuzz.growth import TARGET, grows


@pytest.mark.parametrize("data", TARGET.seeds)
def test_time_grows_as_the_text_does(data: bytes) -> None:
    TARGET.run(data)


def test_quadratic_time_is_seen() -> None:
    def quadratic(text: str) -> None:
        for place in range(0, len(text), 2):
            text[place:].count("ab")

    with pytest.raises(AssertionError, match="times as long"):
        grows(quadratic, ("", "x", ""), noise_s=0.0)


def test_blank_lines_at_the_end_of_a_hunk() -> None:
    def applied(blanks: str) -> None:
        lines = len(blanks) // 4
        patch = "*** Begin Patch\n*** Update File: f\n@@\n a\n" + " \n" * lines + "*** End Patch"
        (change,) = parse_v4a(patch)
        with pytest.raises(ToolError, match="does not match"):
            apply_chunks("f", "a\n" * lines + "b\n", change.chunks)

    grows(applied, ("", " \n", ""), noise_s=0.5)


def test_a_fence_in_a_fence() -> None:
    def opened(fences: str) -> None:
        assert unwrapped(f"{fences * 10}x\n{fences * 10}")

    grows(opened, ("", "```\n", ""), noise_s=0.1)
