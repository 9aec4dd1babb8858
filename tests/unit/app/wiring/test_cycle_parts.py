"""The least that a cycle needs of its caps, and the most that its first prompt has of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.config.settings import Settings
from orchestrator.app.wiring.cycle_parts import LEAST_INPUT_TOKENS, smallest_request
from orchestrator.app.wiring.model import ChosenModel
from orchestrator.app.wiring.session_parts import first_text
from orchestrator.bot.coordination.budget import Caps
from orchestrator.engine.models.replay import ReplayModel
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.core.messages import Usage


def chosen(usd_per_token: float | None) -> ChosenModel:
    def price(usage: Usage) -> float | None:
        return None if usd_per_token is None else usage.total_tokens * usd_per_token

    return ChosenModel(ReplayModel("m", []), price, reply_tokens=8_000)


def test_the_smallest_request_is_priced_with_a_short_reply() -> None:
    tokens = LEAST_INPUT_TOKENS + 1_024
    assert smallest_request(Settings(), chosen(0.5)) == Caps(tokens * 0.5, tokens, rounds=1)


def test_a_reply_that_must_be_shorter_costs_less_and_an_unknown_price_is_none() -> None:
    tokens = LEAST_INPUT_TOKENS + 100
    found = smallest_request(Settings(max_output_tokens=100), chosen(None))
    assert found == Caps(None, tokens, rounds=1)


@table(
    "window, most, characters",
    [
        (None, 60_000, 60_000),
        (200_000, 60_000, 60_000),
        (128_000, 60_000, 60_000),
        (32_768, 60_000, 17_355),
        (16_000, 60_000, 6_875),
        (16_000, 1_000, 1_000),
        (8_192, 60_000, 1_995),
        (4_096, 60_000, 500),
        (1, 1_000, 500),
    ],
)
def test_the_first_prompt_has_less_of_the_files_where_the_window_is_small(
    window: int | None, most: int, characters: int
) -> None:
    assert first_text(window, most) == characters
