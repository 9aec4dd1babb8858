"""How a session asks its model, and what it tells while the reply comes in."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ProviderError
from orchestrator.core.events import ReasoningDelta, TextDelta, TextStarted, WaitStarted, Warned
from orchestrator.models.base import Completed, ReasoningPiece, Restarted, TextPiece, Waiting

if TYPE_CHECKING:
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
    """

    model: Model
    contract: Contract
    tools: tuple[ToolDefinition, ...]
    request: Request
    stream: bool
    price: Price
    context_window: int | None = None
    parallel: bool = True


async def reply_to(ask: Ask, request: Request, emit: Emit) -> Response:
    """Send a request and take the whole reply, in pieces if so configured.

    Raises:
        ModelError: the provider gave no answer.
    """
    if not ask.stream:
        response = await ask.model.complete(request)
        emit(TextStarted())
        return response
    begun = False
    async with aclosing(ask.model.stream(request)) as events:
        async for event in events:
            if isinstance(event, Waiting):
                emit(WaitStarted(event.seconds, str(event.error)))
                continue
            if not begun:
                emit(TextStarted())
                begun = True
            match event:
                case TextPiece(text):
                    emit(TextDelta(text))
                case ReasoningPiece(text):
                    emit(ReasoningDelta(text))
                case Restarted():
                    emit(Warned("the stream broke; the reply is asked for again"))
                    begun = False
                case Completed(response):
                    return response
    raise ProviderError("the model's stream ended without a reply")
