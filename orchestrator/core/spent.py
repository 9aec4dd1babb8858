"""What was spent: money, tokens, time and rounds, as values that add up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """What a cycle, a task or a day has cost so far.

    Attributes:
        usd: US dollars. None where the price is not known, and in every sum with such a part.
        tokens: input and output together.
        minutes: of wall time.
        rounds: replies of the model.
    """

    usd: float | None = 0.0
    tokens: int = 0
    minutes: float = 0.0
    rounds: int = 0

    def __add__(self, other: Spent) -> Spent:
        """Both together; dollars are unknown as soon as those of one are."""
        return Spent(
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            minutes=self.minutes + other.minutes,
            rounds=self.rounds + other.rounds,
        )

    def at_least(self, other: Spent) -> Spent:
        """The larger of each; dollars are unknown as soon as those of one are."""
        return Spent(
            usd=None if self.usd is None or other.usd is None else max(self.usd, other.usd),
            tokens=max(self.tokens, other.tokens),
            minutes=max(self.minutes, other.minutes),
            rounds=max(self.rounds, other.rounds),
        )
