"""One request to the model: it is sent, its failed attempts are counted, and it is paid when the reply is in."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ProviderError
from orchestrator.core.events import (
    ReasoningDelta,
    ReplyReceived,
    TextDelta,
    TextStarted,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.engine.models.base import (
    CallPiece,
    Completed,
    ReasoningPiece,
    Relaxed,
    Restarted,
    Switched,
    TextPiece,
    Waiting,
    next_name,
)
from orchestrator.engine.session.ask import need_of
from orchestrator.engine.session.history import Turn, TurnKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from orchestrator.core.errors import ModelError
    from orchestrator.core.events import Emit
    from orchestrator.engine.models.base import Request, Response
    from orchestrator.engine.session.ask import Ask
    from orchestrator.engine.session.history import History
    from orchestrator.engine.session.reservation import Reservation


@dataclass(slots=True)
class Sending:
    """A request on its way, and what was set aside for it.

    Attributes:
        asked: the name of the model that has it now.
        is_counted: the attempt that failed last is counted already.
    """

    ask: Ask
    history: History
    room: Reservation
    emit: Emit
    now: Callable[[], datetime]
    asked: str = field(init=False)
    is_counted: bool = False

    def __post_init__(self) -> None:
        self.asked = next_name(self.ask.model)

    async def reply(self) -> Response:
        """Send it, pay for the whole reply, and add that to the conversation.

        Raises:
            ModelError: the provider gave no answer.
            NoRoomError: the budget does not allow another attempt.
        """
        ask, room = self.ask, self.room
        longest = ask.request.max_output_tokens
        if room.is_lowered:
            longest = min(room.reply_tokens, longest or room.reply_tokens)
        said = self.history.latest() if ask.contract.forgets else self.history.conversation()
        request = replace(ask.request, messages=said, max_output_tokens=longest)
        with room:
            room.budget.rounds += 1
            self.emit(TurnStarted(room.budget.rounds, room.worst.tokens, room.worst.usd))
            room.is_sent = True
            response = await (self._in_pieces(request) if ask.stream else self._in_one(request))
            usd = ask.price(response.usage)
            lost_its_count = not response.is_counted and self.history.meter.has_count_of(self.asked)
            room.settle(response.usage, usd, is_known=not lost_its_count)
        room.budget.wrapped_up = room.budget.wrapping_up is not None
        self._keep(response)
        self.emit(ReplyReceived(response.message, response.finish, response.usage, usd, response.model))
        return response

    def _keep(self, response: Response) -> None:
        """Add the reply to the conversation, and learn from it how long that is for the model."""
        turn = Turn(TurnKind.ASSISTANT, response.message, self.now(), response.usage, response.id)
        self.history.add(turn)
        if response.is_counted:
            meter = self.history.meter
            meter.measured(response.usage, self.asked, response.model, self.ask.fixed_bytes)

    async def _in_one(self, request: Request) -> Response:
        response = await self.ask.model.complete(replace(request, on_retry=self._retried))
        self.emit(TextStarted())
        return response

    async def _in_pieces(self, request: Request) -> Response:
        begun = False
        async with aclosing(self.ask.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, Waiting | Relaxed | Switched):
                    self._retried(event)
                    continue
                if not begun:
                    self.emit(TextStarted())
                begun = True
                match event:
                    case TextPiece(text):
                        self._heard(text)
                        self.emit(TextDelta(text))
                    case ReasoningPiece(text):
                        self._heard(text)
                        self.emit(ReasoningDelta(text))
                    case CallPiece(text):
                        self._heard(text)
                    case Restarted():
                        self._restarted()
                        begun = False
                    case Completed(response):
                        return response
        raise ProviderError("the model's stream ended without a reply")

    def _heard(self, text: str) -> None:
        self.is_counted = False
        self.room.heard(text)

    def _retried(self, event: Waiting | Relaxed | Switched) -> None:
        """An attempt failed, and the next one is made after a while, in another form, or elsewhere."""
        if isinstance(event, Relaxed):
            self.emit(Warned(f"{event.error}; asked again {event.how}"))
            return
        if isinstance(event, Waiting):
            self._count(event.error, event.seconds)
            need = self.room.need
        else:
            self._count(event.error)
            self.asked = event.to
            need = need_of(self.ask, self.history, asked=event.to)
        if self.is_counted or need.input_tokens > self.room.need.input_tokens:
            self.room.again(need)

    def _restarted(self) -> None:
        """What was shown of the reply is void. The attempt is counted, if it was not when it failed."""
        if not self.is_counted:
            self._count(None)
            self.room.again()
        self.is_counted = False
        self.emit(Warned("the stream broke; the reply is asked for again"))

    def _count(self, error: ModelError | None, seconds: float | None = None) -> None:
        """Count an attempt that may be billed, and say so where a journal can tell it after a crash."""
        lost = self.room.failed(error)
        self.is_counted = lost is not None
        if lost is not None:
            reason = "the stream broke" if error is None else str(error)
            self.emit(WaitStarted(seconds or 0.0, reason, lost.tokens, lost.usd))
        elif seconds is not None:
            self.emit(WaitStarted(seconds, str(error)))
