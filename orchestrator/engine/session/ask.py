"""How a session asks its model, and what that may need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.models.base import next_name
from orchestrator.engine.models.usage import CHARACTERS_PER_TOKEN
from orchestrator.engine.session.worst_case import DEFAULT_REPLY_TOKENS, Need

if TYPE_CHECKING:
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Model, Request
    from orchestrator.engine.profiles.base import Price
    from orchestrator.engine.session.history import History


@dataclass(frozen=True, slots=True)
class Ask:
    """How the model is asked.

    Attributes:
        request: the fixed part of every request; its prefix's bytes never change.
        fixed_bytes: the size of that part, as `worst_case.fixed_bytes` measures it.
        context_window: how many tokens the model can read, if that is known.
        reply_tokens: the longest reply where the request sets no limit.
    """

    model: Model
    contract: Contract
    tools: tuple[ToolDefinition, ...]
    request: Request
    stream: bool
    price: Price
    fixed_bytes: int
    context_window: int | None = None
    parallel: bool = True
    reply_tokens: int = DEFAULT_REPLY_TOKENS


def need_of(ask: Ask, history: History, more_bytes: int = 0, *, asked: str | None = None) -> Need:
    """What the next request may need at most, if so many bytes are added to the conversation.

    Args:
        ask: how the model is asked.
        history: the conversation.
        more_bytes: what is added to it.
        asked: the name of the model that it goes to, where that is not the first one.
    """
    meter = history.meter
    tokens = meter.tokens(asked or next_name(ask.model), ask.fixed_bytes, more_bytes)
    return Need(
        tokens, max(ask.request.max_output_tokens or ask.reply_tokens, meter.longest_reply), ask.price
    )


def context_share(ask: Ask, history: History) -> float:
    """How full the model's context window is, at 4 characters a token; 0 where its size is not known."""
    if not ask.context_window:
        return 0.0
    return (history.tokens + len(ask.request.system) // CHARACTERS_PER_TOKEN) / ask.context_window


def request_share(ask: Ask, history: History) -> float:
    """How much of the model's context window the next request and the reply it allows take; 0 where that is unknown.

    What the provider has counted counts, and what came after is estimated from above; before its first count
    all is estimated, at 4 characters a token.
    """
    if not ask.context_window:
        return 0.0
    reply = (ask.request.max_output_tokens or 0) / ask.context_window
    if not history.meter.has_count_of(next_name(ask.model)):
        return context_share(ask, history) + reply
    return need_of(ask, history).input_tokens / ask.context_window + reply
