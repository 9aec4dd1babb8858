"""The caps of all scopes, from the configuration, and the least that a cycle needs of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.worker.spending import Caps, ScopeCaps
from orchestrator.engine.session.worst_case import MIN_REPLY_TOKENS, Need

if TYPE_CHECKING:
    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.model import ChosenModel

LEAST_INPUT_TOKENS = 1_000
"""The shortest first request is longer: its system prompt, the tools and the task."""


def scope_caps(settings: Settings) -> ScopeCaps:
    """What `--max-usd`, `--max-tokens-per-day` and their kin say."""
    return ScopeCaps(
        cycle=Caps(settings.max_usd, settings.max_tokens, settings.max_minutes, settings.max_rounds),
        task=Caps(
            settings.max_usd_per_task,
            settings.max_tokens_per_task,
            settings.max_minutes_per_task,
            settings.max_rounds_per_task,
        ),
        day=Caps(
            settings.max_usd_per_day,
            settings.max_tokens_per_day,
            settings.max_minutes_per_day,
            settings.max_rounds_per_day,
        ),
        repository=Caps(
            settings.max_usd_per_repo,
            settings.max_tokens_per_repo,
            settings.max_minutes_per_repo,
            settings.max_rounds_per_repo,
        ),
    )


def smallest_request(settings: Settings, chosen: ChosenModel) -> Caps:
    """What a first request may cost at most, if it is as small as can be: with less left, none is worth a clone."""
    reply = min(settings.max_output_tokens or chosen.reply_tokens, MIN_REPLY_TOKENS)
    need = Need(LEAST_INPUT_TOKENS, reply, chosen.price)
    return Caps(need.usd(reply), LEAST_INPUT_TOKENS + reply, rounds=1)
