"""What a request has of a conversation: slices of its turns, and when it has to become shorter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.checks import is_whole
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.session.history import Turn, TurnKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ASSUMED_WINDOW = 128_000
"""Tokens that a model is taken to read where nobody knows it."""

_NOT_FIRST = frozenset({TurnKind.TOOL_RESULTS, TurnKind.SUMMARY})
"""No kept part begins with results whose calls are left out."""


def recent(turns: Sequence[Turn], limit: int) -> Sequence[Turn]:
    """The newest turns, with at most `limit` of them that people said or the model answered in words alone.

    Calls, their results and messages of the program ride along and do not count.
    """
    left, first = limit, len(turns)
    for place in range(len(turns) - 1, -1, -1):
        if _is_chat(turns[place]):
            if not left:
                break
            left, first = left - 1, place
    return turns[first:]


def summary_plus_recent(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The newest summary, the turns before it that it left as they are, and all that came after it."""
    places = (place for place in range(len(turns) - 1, -1, -1) if turns[place].kind is TurnKind.SUMMARY)
    place = next(places, None)
    if place is None:
        return turns
    first = whole_from(turns, max(place - turns[place].keeps, 0))
    kept = [turn for turn in turns[first:place] if turn.kind is not TurnKind.SUMMARY]
    return [turns[place], *kept, *turns[place + 1 :]]


def whole_from(turns: Sequence[Turn], first: int) -> int:
    """The first place from `first` on at which the turns can be cut without parting a call and its result."""
    while first < len(turns) and turns[first].kind in _NOT_FIRST:
        first += 1
    return first


def newest_within(turns: Sequence[Turn], size: Callable[[Turn], int], most: int) -> int:
    """Where the longest part of the newest turns begins that is at most so long, and whole."""
    first = len(turns)
    left = most
    for place in range(len(turns) - 1, -1, -1):
        left -= size(turns[place])
        if left < 0:
            break
        if turns[place].kind not in _NOT_FIRST:
            first = place
    return first


def is_step(turn: Turn) -> bool:
    """Whether it is an input or a reply."""
    return turn.kind in {TurnKind.USER, TurnKind.STEERING, TurnKind.ASSISTANT}


def _is_chat(turn: Turn) -> bool:
    if turn.kind is TurnKind.ASSISTANT:
        return not turn.tool_calls
    return turn.kind in {TurnKind.USER, TurnKind.STEERING}


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a conversation is made shorter, and how much of it stays; None is no such trigger.

    Attributes:
        share: of the model's context window, from which on it is due.
        max_turns: inputs and replies that a request may have. A run without a person has one input and a reply a
            step, so both count.
        max_tokens: that a request may have.
        keep_turns: newest turns that stay (`recent`), if they fit; else as many as fit.

    Raises:
        ConfigurationError: a value is out of its bounds.
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
            if value is not None and (not is_whole(value) or value < 1):
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {value!r}")

    def most_tokens(self, window: int | None) -> int:
        """From how many tokens on the conversation is due.

        Args:
            window: how many the model can read; None where that is not known.
        """
        limits = [] if self.max_tokens is None else [self.max_tokens]
        if self.share is not None and (window or self.max_tokens is None):
            limits.append(int(self.share * (window or ASSUMED_WINDOW)))
        return min(limits, default=window or ASSUMED_WINDOW)

    def target_tokens(self, window: int | None) -> int:
        """How long the conversation may be right after: half of what makes it due."""
        return self.most_tokens(window) // 2

    def due(self, tokens: int, turns: int, window: int | None) -> str:
        """Why a conversation of this length is due, in words; empty if it is not."""
        most = self.most_tokens(window)
        if tokens >= most:
            if self.share is not None and window and most == int(self.share * window):
                return f"{self.share:.0%} of the context window is used"
            return f"it has {most:,} tokens"
        if self.max_turns is not None and turns >= self.max_turns:
            return f"it has {self.max_turns} turns"
        return ""


ASSISTANT = CompactionPolicy(share=0.40)
"""Section 2.6.2 of the assistant specification."""

EXPLORER = CompactionPolicy(max_turns=20, max_tokens=20_000, keep_turns=5)
"""Section "Context Constants" of the teaching agent specification."""


def compaction_of(profile: str, share: float) -> CompactionPolicy:
    """When the conversation of a profile is made shorter.

    Args:
        share: of the context window, for every profile but the explorer, whose document says otherwise.
    """
    return EXPLORER if profile == "explorer" else CompactionPolicy(share=share)
