"""Lets requests out: an ordinary one while its worst case fits, then one turn to wrap up, then none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.events import Warned
from orchestrator.core.prompts import render
from orchestrator.engine.session.ask import need_of
from orchestrator.engine.session.reservation import Reservation, reserve
from orchestrator.engine.session.worst_case import message_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.events import Emit, LimitReached
    from orchestrator.core.messages import Message
    from orchestrator.engine.session.ask import Ask
    from orchestrator.engine.session.history import History
    from orchestrator.engine.session.limits import Budget


@dataclass(frozen=True, slots=True)
class Admission:
    """Decides about the next request of one session.

    Attributes:
        say: adds a message of the program to the conversation.
        emit: takes the events.
        words: what the model is told before its last turn; empty takes the usual ones.
    """

    budget: Budget
    history: History
    say: Callable[[Message], None]
    emit: Emit
    words: str = ""

    async def next(self, ask: Ask) -> Reservation | LimitReached:
        """What is set aside for the next request, or the limit that allows no further one.

        Waits as long as only the reservations of other sessions, whose requests are under way, leave no room.
        """
        budget = self.budget
        while True:
            if limit := budget.exceeded():
                return limit
            limit = budget.wrapping_up or budget.due()
            if limit is None:
                room = reserve(budget, need_of(ask, self.history))
                if isinstance(room, Reservation):
                    return room
                if room.passes:
                    await budget.freed()
                    continue
                limit = room.limit
            if not budget.wrap_up_share or not budget.rounds:
                return limit
            last = self._last(ask, limit)
            if last is not None:
                return last
            await budget.freed()

    def _last(self, ask: Ask, limit: LimitReached) -> Reservation | LimitReached | None:
        """The reservation of the wrap-up turn; None if there may be room for it later."""
        budget = self.budget
        words = self.words or _words(ask)
        message = ask.contract.answer((), words)
        told = budget.wrapping_up is not None
        more = 0 if told else message_bytes(message)
        room = reserve(budget, need_of(ask, self.history, more), wrap_up=True)
        if not isinstance(room, Reservation):
            return None if room.passes else room.limit
        if not told:
            budget.wrapping_up = limit
            self.emit(Warned(f"nearly at a limit ({limit.detail}): the model gets one last turn to wrap up"))
            self.say(message)
        return room


def _words(ask: Ask) -> str:
    names = {tool.name for tool in ask.tools}
    return render(
        "agent/wrap_up", proposes="create_pull_request" in names, finishes=names & {"finish", "submit"}
    )
