"""What the loop asks its surroundings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.engine.session.repetition import Repetition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime


async def _ends(_text: str) -> str | None:
    return None


async def _not_done() -> bool:
    return False


@dataclass(slots=True)
class Hooks:
    """What the loop asks its surroundings between rounds.

    Attributes:
        stopped: whether somebody asked for an end after the round that is running.
        steering: takes the words that came in since the last round out of their queue.
        may_end: asked when a reply in words would end the work; gives what to tell the model
            instead, or None where it may end.
        is_done: whether all of the work has left the session, so that a reply which calls nothing ends it.
        now: the time of day, for the turns.
        wrap_up: what the model is told before the last turn that the limits allow; empty takes the usual words.
        repetition: notices circles; None does not look.
    """

    now: Callable[[], datetime]
    stopped: Callable[[], bool] = lambda: False
    steering: Callable[[], list[str]] = list
    may_end: Callable[[str], Awaitable[str | None]] = _ends
    is_done: Callable[[], Awaitable[bool]] = _not_done
    wrap_up: str = ""
    repetition: Repetition | None = field(default_factory=Repetition)
