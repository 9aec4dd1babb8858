"""What the backlog remembers between two looks: that nothing was to be done while nothing has changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.cycle.parts import Choice
    from orchestrator.forge.base import Issue


_SETTLED = timedelta(minutes=1)
"""The forge tells times to the second."""


@dataclass(slots=True)
class Idle:
    """The last choice that found nothing, good for as long as the forge's pulse is the same.

    And which issues were not admitted, so that an issue that nobody has touched is not judged again.
    """

    _pulse: str = ""
    _choice: Choice | None = None
    _refusals: dict[int, tuple[Issue, str]] = field(default_factory=dict)

    def recall(self, pulse: str, now: datetime) -> Choice | None:
        """The choice that is still good, or None."""
        choice = self._choice
        if choice is None or pulse != self._pulse or (choice.wake_at is not None and now >= choice.wake_at):
            return None
        return choice

    def remember(self, pulse: str, choice: Choice) -> None:
        """Keep a choice; only one that found nothing is ever recalled.

        Args:
            pulse: as it was before the look, so that what changed meanwhile is noticed by the next.
            choice: what the look came to.
        """
        self._pulse, self._choice = pulse, None if choice.task else choice

    def refusal(self, issue: Issue) -> str | None:
        """Why an issue was not admitted, if it is as it was then. What was admitted is judged every time."""
        known = self._refusals.get(issue.number)
        return known[1] if known and known[0] == issue else None

    def keep_refusal(self, issue: Issue, refusal: str | None, now: datetime) -> None:
        """Remember the last judgement of an issue, unless it may be changing in this very second."""
        self._refusals.pop(issue.number, None)
        if refusal is not None and issue.updated_at is not None and now - issue.updated_at > _SETTLED:
            self._refusals[issue.number] = issue, refusal
