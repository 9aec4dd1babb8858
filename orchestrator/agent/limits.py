"""What a session may spend, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.events import LimitReached
from orchestrator.core.messages import Usage

if TYPE_CHECKING:
    from orchestrator.core.clock import Clock

_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one session; None is no cap.

    Attributes:
        rounds: requests to the model, rejected replies included.
        tokens: input and output together, as the provider counts them.
        usd: money, where the model's price is known.
        minutes: wall time.
    """

    rounds: int | None = None
    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None


@dataclass(slots=True)
class Budget:
    """Counts what a session spends against its limits."""

    limits: Limits
    clock: Clock
    rounds: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock.monotonic()

    def spend(self, usage: Usage, usd: float | None) -> None:
        """Count one reply. One reply of unknown price makes the whole sum unknown."""
        self.usage += usage
        self.usd = None if usd is None or self.usd is None else self.usd + usd

    @property
    def seconds_left(self) -> float | None:
        """Wall time until the limit of minutes; None without one, never below zero."""
        if self.limits.minutes is None:
            return None
        spent = self.clock.monotonic() - self._started
        return max(0.0, self.limits.minutes * _SECONDS_A_MINUTE - spent)

    def exceeded(self) -> LimitReached | None:
        """The first limit that leaves no room for another request."""
        limits = self.limits
        if limits.rounds is not None and self.rounds >= limits.rounds:
            return LimitReached("rounds", f"{self.rounds} of {limits.rounds} rounds are used")
        if limits.tokens is not None and self.usage.total_tokens >= limits.tokens:
            return LimitReached("tokens", f"{self.usage.total_tokens:,} of {limits.tokens:,} tokens are used")
        if limits.usd is not None and self.usd is not None and self.usd >= limits.usd:
            return LimitReached("usd", f"${self.usd:.4f} of ${limits.usd:.2f} are spent")
        if self.seconds_left == 0.0:
            return self.out_of_time()
        return None

    def out_of_time(self) -> LimitReached:
        """The limit of minutes, as an event."""
        return LimitReached("minutes", f"{self.limits.minutes:g} minutes are over")
