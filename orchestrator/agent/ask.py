"""How a session asks its model, and what it tells while the reply comes in."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.agent.worst_case import DEFAULT_REPLY_TOKENS, Need, fixed_bytes
from orchestrator.core.errors import ProviderError
from orchestrator.core.events import ReasoningDelta, TextDelta, TextStarted, WaitStarted, Warned
from orchestrator.models.base import Completed, ReasoningPiece, Restarted, TextPiece, Waiting
from orchestrator.models.wire import CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    from orchestrator.agent.history import History
    from orchestrator.agent.reservation import Reservation
    from orchestrator.contracts.base import Contract
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.models.base import Model, Request, Response
    from orchestrator.profiles.base import Price


@dataclass(frozen=True, slots=True)
class Ask:
    """How the model is asked.

    Attributes:
        request: the fixed part of every request; its prefix's bytes never change.
        context_window: how many tokens the model can read, if that is known.
        reply_tokens: the longest reply where the request sets no limit.
    """

    model: Model
    contract: Contract
    tools: tuple[ToolDefinition, ...]
    request: Request
    stream: bool
    price: Price
    context_window: int | None = None
    parallel: bool = True
    reply_tokens: int = DEFAULT_REPLY_TOKENS


def need_of(ask: Ask, history: History, more_bytes: int = 0) -> Need:
    """What the next request may need at most, if so many bytes are added to the conversation."""
    tokens = history.meter.tokens(ask.model.name, fixed_bytes(ask.request), more_bytes)
    return Need(tokens, ask.request.max_output_tokens or ask.reply_tokens, ask.price)


def context_share(ask: Ask, history: History) -> float:
    """How full the model's context window is, at 4 characters a token; 0 where its size is not known."""
    if not ask.context_window:
        return 0.0
    return (history.tokens + len(ask.request.system) // CHARACTERS_PER_TOKEN) / ask.context_window


async def reply_to(ask: Ask, request: Request, emit: Emit, reservation: Reservation) -> Response:
    """Send a request and take the whole reply, in pieces if so configured.

    Args:
        ask: how the model is asked.
        request: what it is asked.
        emit: takes the events.
        reservation: is told what of the reply came in, and of each attempt that broke off in the middle.

    Raises:
        ModelError: the provider gave no answer.
        NoRoomError: the budget does not allow another attempt.
    """
    reservation.is_sent = True
    if not ask.stream:
        response = await ask.model.complete(request)
        emit(TextStarted())
        return response
    begun = counted = False
    async with aclosing(ask.model.stream(request)) as events:
        async for event in events:
            if isinstance(event, Waiting):
                emit(WaitStarted(event.seconds, str(event.error)))
                counted = reservation.failed(event.error)
                continue
            if not begun:
                emit(TextStarted())
                begun = True
            match event:
                case TextPiece(text):
                    reservation.heard(text)
                    emit(TextDelta(text))
                case ReasoningPiece(text):
                    reservation.heard(text)
                    emit(ReasoningDelta(text))
                case Restarted():
                    if not counted:
                        reservation.broke()
                    counted = False
                    emit(Warned("the stream broke; the reply is asked for again"))
                    begun = False
                case Completed(response):
                    return response
    raise ProviderError("the model's stream ended without a reply")
