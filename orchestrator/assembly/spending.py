"""The caps of all scopes, from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.worker.spending import Caps, ScopeCaps

if TYPE_CHECKING:
    from orchestrator.config import Settings


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
