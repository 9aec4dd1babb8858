"""Selects the turns that a request includes, and decides when a conversation is compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.checks import check_number
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.session.history import FROM_USER, Turn, TurnKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ASSUMED_WINDOW = 128_000
"""Assumed context window in tokens if the model's own is unknown."""

_NOT_FIRST = frozenset({TurnKind.TOOL_RESULTS, TurnKind.SUMMARY})
"""Kinds that no selection begins with, so that no result is left without its call."""


def recent(turns: Sequence[Turn], limit: int) -> Sequence[Turn]:
    """Return the newest turns, including at most `limit` user messages and replies without calls.

    Calls, their results and messages of the program are included and do not count.
    """
    left, first = limit, len(turns)
    for index in range(len(turns) - 1, -1, -1):
        turn = turns[index]
        if turn.kind in FROM_USER or (turn.kind is TurnKind.ASSISTANT and not turn.tool_calls):
            if not left:
                break
            left, first = left - 1, index
    return turns[first:]


def summary_plus_recent(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Return the newest summary, the turns before it that it keeps, and all turns after it."""
    newest = next((i for i in range(len(turns) - 1, -1, -1) if turns[i].kind is TurnKind.SUMMARY), None)
    if newest is None:
        return turns
    first = whole_from(turns, max(newest - turns[newest].keeps, 0))
    kept = [turn for turn in turns[first:newest] if turn.kind is not TurnKind.SUMMARY]
    return [turns[newest], *kept, *turns[newest + 1 :]]


def whole_from(turns: Sequence[Turn], first: int) -> int:
    """Return the first position from `first` on at which a cut does not separate a call from its result."""
    while first < len(turns) and turns[first].kind in _NOT_FIRST:
        first += 1
    return first


def newest_within(turns: Sequence[Turn], size: Callable[[Turn], int], most: int) -> int:
    """Return the start of the longest run of newest turns whose total size is at most `most`.

    A run does not begin with results whose calls are left out.
    """
    first = len(turns)
    left = most
    for index in range(len(turns) - 1, -1, -1):
        left -= size(turns[index])
        if left < 0:
            break
        if turns[index].kind not in _NOT_FIRST:
            first = index
    return first


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a conversation is compacted, and how much of it stays. None switches a trigger off.

    Attributes:
        share: share of the model's context window at which compaction is due.
        max_turns: inputs and replies that a request may have. A run without a person has one input and a
            reply in each step, so both count.
        max_tokens: tokens that a request may have.
        keep_turns: newest turns that stay (`recent`), if they fit; else as many as fit.

    Raises:
        ConfigurationError: a value is out of bounds.
    """

    share: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    keep_turns: int | None = None

    def __post_init__(self) -> None:
        share: object = self.share
        if share is not None and (not isinstance(share, float) or not 0.0 < share < 1.0):
            raise ConfigurationError(f"share must be a number between 0 and 1, not {share!r}")
        for name in ("max_turns", "max_tokens", "keep_turns"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, 1)

    def most_tokens(self, window: int | None) -> int:
        """Return the number of tokens at which compaction is due.

        Args:
            window: tokens that the model can read; None if that is unknown.
        """
        limits = [] if self.max_tokens is None else [self.max_tokens]
        if self.share is not None and (window or self.max_tokens is None):
            limits.append(int(self.share * (window or ASSUMED_WINDOW)))
        return min(limits, default=window or ASSUMED_WINDOW)

    def target_tokens(self, window: int | None) -> int:
        """Return the largest length of a compacted conversation: half of the length at which it is due."""
        return self.most_tokens(window) // 2

    def due(self, tokens: int, turns: int, window: int | None) -> str:
        """Return the reason why a conversation of this length is due for compaction; empty if it is not."""
        most = self.most_tokens(window)
        if tokens >= most:
            if self.share is not None and window and most == int(self.share * window):
                return f"{self.share:.0%} of the context window is used"
            return f"it has {most:,} tokens"
        if self.max_turns is not None and turns >= self.max_turns:
            return f"it has {self.max_turns} turns"
        return ""


EXPLORER = CompactionPolicy(max_turns=20, max_tokens=20_000, keep_turns=5)
"""Section "Context Constants" of the teaching agent specification."""


def compaction_of(profile: str, share: float) -> CompactionPolicy:
    """Return the compaction policy of a profile.

    Args:
        share: of the context window, for every profile except the explorer, whose specification sets its own.
    """
    return EXPLORER if profile == "explorer" else CompactionPolicy(share=share)
