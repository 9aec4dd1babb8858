"""Stages and commits in one step, as tests of a clone do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.bot.git.base import CommitOutcome, CommitScreen
    from orchestrator.bot.git.clone import Clone


def commit_touched(
    clone: Clone,
    touched: set[str],
    message: str,
    *,
    include_commands: bool,
    screen: CommitScreen | None = None,
) -> CommitOutcome:
    """Commit what `Clone.stage` stages with these arguments."""
    return clone.commit_staged(
        clone.stage(touched, include_commands=include_commands, screen=screen), message
    )
