"""What a journal says of costs: of each reply, and of requests to which it has none, which may have cost as well."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.events import ReplyReceived, SubagentEvent, TurnStarted, WaitStarted
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from orchestrator.core.events import Event


@dataclass(slots=True)
class Unanswered:
    """Follows the requests of a run, those of subagents too, and keeps what they were begun with until the reply.

    A request that another one of its session came after without a reply between them counts as a whole: it
    failed, and only the process knew whether it was billed. Where a run comes to its end it says so itself.

    Attributes:
        failed: what is certain to have had no reply, each with the time at which it was begun or had failed.
    """

    failed: list[tuple[datetime, Spent]] = field(default_factory=list)
    _open: dict[tuple[str, ...], tuple[datetime, Spent]] = field(default_factory=dict)

    def take(self, event: Event, at: datetime) -> None:
        """The next event of the journal."""
        session: tuple[str, ...] = ()
        while isinstance(event, SubagentEvent):
            session, event = (*session, event.agent), event.event
        match event:
            case TurnStarted(tokens=tokens, usd=usd):
                if before := self._open.pop(session, None):
                    self.failed.append(before)
                if tokens is not None:  # else a version wrote it that did not say
                    self._open[session] = at, _spent(tokens, usd)
            case WaitStarted(tokens=tokens, usd=usd) if tokens is not None:
                self.failed.append((at, _spent(tokens, usd)))
            case ReplyReceived():
                self._open.pop(session, None)
            case _:
                pass

    @property
    def all(self) -> list[tuple[datetime, Spent]]:
        """What failed, and what was under way when the journal stopped."""
        return [*self.failed, *self._open.values()]

    @property
    def total(self) -> Spent:
        """The sum of it all."""
        return sum((spent for _at, spent in self.all), Spent())


def cost_of(reply: ReplyReceived) -> Spent:
    """What a reply cost. Servers say how many tokens there were; none of them may win money back."""
    tokens = max(reply.usage.input_tokens, 0) + max(reply.usage.output_tokens, 0)
    return replace(_spent(tokens, reply.usd), rounds=1)


def cost_of_all(replies: Iterable[ReplyReceived]) -> Spent:
    """What replies cost together."""
    return sum(map(cost_of, replies), Spent())


def _spent(tokens: int, usd: float | None) -> Spent:
    is_known = usd is not None and math.isfinite(usd)
    return Spent(max(usd, 0.0) if usd is not None and is_known else None, max(tokens, 0))
