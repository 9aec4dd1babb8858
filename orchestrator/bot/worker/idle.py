"""What the backlog remembers between two looks: that nothing was to be done while nothing has changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.bot.cycle.claim import Choice

LONGEST = timedelta(hours=1)
"""Some things do not show in the forge's pulse, such as what people may do; after so long all is looked at."""


@dataclass(slots=True)
class Idle:
    """The last choice that found nothing, good for as long as the forge's pulse is the same.

    Attributes:
        told: names of what was warned of already.
    """

    told: set[str] = field(default_factory=set)
    _pulse: str = ""
    _until: datetime | None = None
    _choice: Choice | None = None

    def recall(self, pulse: str, now: datetime) -> Choice | None:
        """The choice that is still good, or None."""
        is_good = pulse == self._pulse and self._until is not None and now < self._until
        return self._choice if is_good else None

    def remember(self, pulse: str, choice: Choice, now: datetime) -> None:
        """Keep a choice that found nothing.

        Args:
            pulse: as it was before the look, so that what changed meanwhile is noticed by the next.
            choice: what the look came to.
            now: when the look began.
        """
        self._pulse, self._choice = pulse, choice
        self._until = min(now + LONGEST, choice.wake_at) if choice.wake_at else now + LONGEST

    def forget(self) -> None:
        """There is a task, which is no reason to look at less the next time."""
        self._choice = None
