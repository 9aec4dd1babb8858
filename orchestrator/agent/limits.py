"""What a session may spend, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import LimitReached
from orchestrator.core.messages import Usage

if TYPE_CHECKING:
    from orchestrator.core.clock import Clock
    from orchestrator.profiles.base import Price

_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one session; None is no cap.

    Attributes:
        rounds: requests to the model in the whole session, rejected replies included.
        tool_rounds: rounds with tool calls that one input may lead to.
        tokens: input and output together, as the provider counts them.
        usd: money, where the model's price is known.
        minutes: wall time.
        denials: calls that the gate refused.
    """

    rounds: int | None = None
    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None
    tool_rounds: int | None = None
    denials: int | None = None


@dataclass(slots=True)
class Budget:
    """Counts what a session spends against its limits.

    Attributes:
        parent: of a subagent: what it spends counts there too, and the limits there hold for it.
        tool_rounds: since the last input.
    """

    limits: Limits
    clock: Clock
    parent: Budget | None = None
    rounds: int = 0
    tool_rounds: int = 0
    denials: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock.monotonic()

    def spend(self, usage: Usage, usd: float | None) -> None:
        """Count one reply. One reply of unknown price makes the whole sum unknown."""
        self.usage += usage
        self.usd = None if usd is None or self.usd is None else self.usd + usd
        if self.parent:
            self.parent.spend(usage, usd)

    def deny(self) -> None:
        """Count one call that the gate refused."""
        self.denials += 1
        if self.parent:
            self.parent.deny()

    @property
    def denied(self) -> LimitReached | None:
        """The limit of denials, here or above, if it is reached: no further call runs."""
        most = self.limits.denials
        if most is not None and self.denials >= most:
            return LimitReached("denials", f"{self.denials} calls were refused, and {most} end the session")
        return self.parent.denied if self.parent else None

    @property
    def seconds_left(self) -> float | None:
        """Wall time until the first limit of minutes; None without one, never below zero."""
        above = self.parent.seconds_left if self.parent else None
        if self.limits.minutes is None:
            return above
        spent = self.clock.monotonic() - self._started
        left = max(0.0, self.limits.minutes * _SECONDS_A_MINUTE - spent)
        return left if above is None else min(left, above)

    def exceeded(self) -> LimitReached | None:
        """The first limit that leaves no room for another request."""
        limits = self.limits
        if limits.rounds is not None and self.rounds >= limits.rounds:
            return LimitReached("rounds", f"{self.rounds} of {limits.rounds} rounds are used")
        if limits.tool_rounds is not None and self.tool_rounds >= limits.tool_rounds:
            return LimitReached(
                "tool_rounds", f"{self.tool_rounds} of {limits.tool_rounds} tool rounds are used"
            )
        return (
            self.denied or self._spent() or (self.parent._spent() if self.parent else None)  # noqa: SLF001  its own class
        )

    def _spent(self) -> LimitReached | None:
        limits = self.limits
        if limits.tokens is not None and self.usage.total_tokens >= limits.tokens:
            return LimitReached("tokens", f"{self.usage.total_tokens:,} of {limits.tokens:,} tokens are used")
        if limits.usd is not None and self.usd is not None and self.usd >= limits.usd:
            return LimitReached("usd", f"${self.usd:.4f} of ${limits.usd:.2f} are spent")
        if self.seconds_left == 0.0:
            return self.out_of_time()
        return None

    def out_of_time(self) -> LimitReached:
        """The limit of minutes, as an event."""
        minutes = self.limits.minutes
        if minutes is None and self.parent:
            return self.parent.out_of_time()
        return LimitReached("minutes", f"{minutes:g} minutes are over")


def check_price(budget: Budget, price: Price, model: str) -> None:
    """Refuse a model whose price is unknown where a cap in USD holds, because the cap could not be kept.

    Raises:
        ConfigurationError: it is so.
    """
    capped = budget.limits.usd is not None or (budget.parent and budget.parent.limits.usd is not None)
    if capped and price(Usage(input_tokens=1_000, output_tokens=1_000)) is None:
        raise ConfigurationError(
            f"the cap in USD cannot be kept: the price of {model} is unknown; set a limit of tokens instead"
        )
