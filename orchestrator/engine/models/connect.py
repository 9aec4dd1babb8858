"""Connects a model: its protocol, its address and key, its price and what is known about it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.engine.models.catalog import (
    DEFAULT_OUTPUT_TOKENS,
    ModelRef,
    Provider,
    facts,
    price_usd,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Usage
    from orchestrator.engine.models.base import Model, OnWait
    from orchestrator.engine.models.wire import Wire
    from orchestrator.engine.policy.secrets import Redactor


KEY_OF = {
    Provider.OPENAI: "openai",
    Provider.OPENAI_CHAT: "openai",
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gemini",
}


@dataclass(frozen=True, slots=True)
class AddressedModel:
    """A configured model with its server's address, and the key for that address.

    Attributes:
        refusal: what to do if the server refuses a request without a key.
    """

    ref: ModelRef
    api_url: str
    key: str | None = field(repr=False)
    refusal: str = ""

    @property
    def wire(self) -> Wire:
        """The protocol of the model at its address."""
        match self.ref.provider:
            case Provider.ANTHROPIC:
                from orchestrator.engine.models.anthropic import AnthropicWire

                return AnthropicWire.at(self.api_url, self.ref.name)
            case Provider.GEMINI:
                from orchestrator.engine.models.gemini import GeminiWire

                return GeminiWire.at(self.api_url, self.ref.name)
            case Provider.OPENAI_RESPONSES:
                from orchestrator.engine.models.openai_responses import ResponsesWire

                return ResponsesWire.at(self.api_url, self.ref.name)
            case _:
                from orchestrator.engine.models.openai_chat import ChatWire

                return ChatWire.at(self.api_url, self.ref.name)


@dataclass(frozen=True, slots=True)
class ConnectedModel:
    """A model with the price function and the known properties of its replies.

    `price` returns US dollars, or None if the price is unknown. With fallback models, the price of a reply's
    own `Usage` object is that of the model which gave the reply. For any other `Usage`, such as a worst case
    before a request, it is the highest of all models.

    Attributes:
        ref: provider and name of the first model; None for prepared replies.
        api_url: address of the server.
        other: creates another model of the same provider, by name.
        reply_tokens: maximum reply in tokens, if the catalog has it; the highest of all models.
        reasoning: whether a reasoning effort is accepted, if known; with fallbacks, by any model.
        streaming: whether replies can be streamed; with fallbacks, by all models.
        images: whether the model is known to read pictures; with fallbacks, all models.
        window: context window in tokens, if known; the smallest of all models.
        is_small: whether the model is known to have few parameters; with fallbacks, all models.
    """

    model: Model
    price: Callable[[Usage], float | None]
    ref: ModelRef | None = None
    api_url: str = ""
    other: Callable[[str], ConnectedModel] | None = None
    reply_tokens: int = DEFAULT_OUTPUT_TOKENS
    reasoning: bool | None = None
    streaming: bool = True
    images: bool = True
    window: int | None = None
    is_small: bool = False


def connected(
    named: AddressedModel, read_seconds: float, clock: Clock, on_wait: OnWait | None, redactor: Redactor
) -> ConnectedModel:
    """Create a model that speaks its provider's protocol. No connection is opened before the first request.

    Args:
        read_seconds: maximum silence of the server.
    """
    from orchestrator.engine.models.transport import HttpModel, HttpOptions

    model = HttpModel(
        str(named.ref),
        named.wire,
        api_key=named.key,
        clock=clock,
        random=random.random,
        on_wait=on_wait,
        options=HttpOptions(read_seconds=read_seconds, without_key=named.refusal),
        redactor=redactor,
    )
    ref = named.ref
    known = facts(named.api_url, ref.name)
    return ConnectedModel(
        model,
        partial(price_usd, named.api_url, ref.name),
        ref,
        named.api_url,
        lambda name: connected(
            replace(named, ref=ModelRef(ref.provider, name)), read_seconds, clock, on_wait, redactor
        ),
        known.output_tokens,
        known.reasoning,
        known.streaming,
        known.images,
        known.known_window,
    )


def echo_model() -> ConnectedModel:
    """Create a model that repeats its input, at no cost."""
    from orchestrator.engine.models.replay import EchoModel

    return ConnectedModel(EchoModel(), lambda _usage: 0.0)
