"""Texts that once took quadratic or cubic time to read; `python -m tests.fuzz growth` looks for more."""

from __future__ import annotations

import pytest

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
