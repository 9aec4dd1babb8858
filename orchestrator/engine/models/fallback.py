"""A model that tries several models in order when one has no quota left or is down."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING

from orchestrator.core.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ContentFilterError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    SpentQuotaError,
)
from orchestrator.engine.models.base import (
    NEVER,
    CallPiece,
    Completed,
    ReasoningPiece,
    Restarted,
    Switched,
    TextPiece,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from datetime import datetime

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Usage
    from orchestrator.engine.models.base import Model, Request, Response, StreamEvent

UNNAMED_SECONDS = 600.0
"""Time that a failed model is skipped if its server names no time."""
LEAST_SECONDS = 60.0
"""Minimum time that a failed model is skipped, because its own retries did not help."""
_ANSWERS_REMEMBERED = 64  # more than the sessions that share a model

_TEMPORARY_ERRORS = (RateLimitError, OverloadedError, ConnectionFailedError)
_PERMANENT_ERRORS = (AuthenticationError, PermissionDeniedError, ModelNotFoundError)


@dataclass(frozen=True, slots=True, eq=False)
class PricedModel:
    """A model and the price function of its replies: USD, or None if unknown."""

    model: Model
    price: Callable[[Usage], float | None]


class FallbackModel:
    """Sends a request to the first model, and to the next ones in order while the earlier ones cannot answer.

    A quota, a rate limit, an overload and a failed connection lead to the next model, after the model's own
    retries. The failed model is skipped until the time that its server names. If all models would be skipped,
    all are tried again, because a failure may end early.

    An error in the first model's key, name or request is raised, because another model would hide it. A
    fallback with a wrong key or name is skipped from then on and reported to `on_switch`; one that cannot
    process a request (too long, no images) is skipped for this request. Content that a provider refuses is
    not sent to the next one.

    Args:
        models: in order, at least one.
        clock: for the times until which a model is skipped.
        on_switch: called before the next model is tried.
    """

    def __init__(
        self,
        models: Sequence[PricedModel],
        *,
        clock: Clock,
        on_switch: Callable[[Switched], None] | None = None,
    ) -> None:
        self._models = tuple(models)
        self._clock = clock
        self._on_switch = on_switch
        self._skipped: dict[PricedModel, tuple[datetime, ModelError]] = {}
        self._answers: deque[tuple[Usage, PricedModel]] = deque(maxlen=_ANSWERS_REMEMBERED)

    @property
    def name(self) -> str:
        """The name of the first model; a reply's own `model` names the one that answered."""
        return self._models[0].model.name

    @property
    def next_name(self) -> str:
        """The name of the model that gets the next request first."""
        return next(iter(self._candidates()), self._models[0]).model.name

    def price(self, usage: Usage) -> float | None:
        """Return the price of these tokens in USD.

        The identical `Usage` object of a reply gets the price of the model that gave that reply. Any other
        object is a question about the future or about a sum, and gets `worst_price`.
        """
        for known, one in reversed(self._answers):
            if known is usage:
                return one.price(usage)
        return self.worst_price(usage)

    def worst_price(self, usage: Usage) -> float | None:
        """Return the highest price of these tokens among all models; None if one model's price is unknown."""
        prices = [one.price(usage) for one in self._models]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    async def complete(self, request: Request) -> Response:
        """Try the models until one answers."""
        errors: dict[PricedModel, ModelError] = {}
        models = self._candidates()
        for one, following in zip_longest(models, models[1:]):
            try:
                response = await one.model.complete(request)
            except ModelError as error:
                switched = self._switch(one, error, following)
                errors[one] = error
                if switched and request.on_retry:
                    request.on_retry(switched)
            else:
                self._answers.append((response.usage, one))
                return response
        raise self._first_ready(errors)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Try the models until one answers, and yield `Switched` before each further one.

        Pieces of a broken stream are revoked by `Restarted`.
        """
        errors: dict[PricedModel, ModelError] = {}
        models = self._candidates()
        for one, following in zip_longest(models, models[1:]):
            shown = False
            try:
                async with aclosing(one.model.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Completed):
                            self._answers.append((event.response.usage, one))
                            yield event
                            return
                        yield event
                        shown = isinstance(event, TextPiece | ReasoningPiece | CallPiece) or (
                            shown and not isinstance(event, Restarted)
                        )
            except ModelError as error:
                switched = self._switch(one, error, following)
                errors[one] = error
            else:
                raise ProviderError("the model's stream ended without a reply")
            if switched:
                yield switched
                if shown:
                    yield Restarted()
        raise self._first_ready(errors)

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for one in self._models:
            await one.model.aclose()

    def _candidates(self) -> list[PricedModel]:
        """Return the models to try now, in order."""
        now = self._clock.now()
        until = {one: self._skipped[one][0] if one in self._skipped else now for one in self._models}
        ready = [one for one in self._models if until[one] <= now]
        return ready or [one for one in self._models if until[one] != NEVER]

    def _switch(self, one: PricedModel, error: ModelError, following: PricedModel | None) -> Switched | None:
        """Skip a failed model and return the event for the next one, if any; raise an error that no other may hide."""
        is_first = one is self._models[0]
        if isinstance(error, ContentFilterError) or (is_first and not isinstance(error, _TEMPORARY_ERRORS)):
            raise error
        now, until = self._clock.now(), None
        if isinstance(error, _PERMANENT_ERRORS):
            until = NEVER
        elif isinstance(error, _TEMPORARY_ERRORS):
            named = error.resume_at
            least = now + timedelta(seconds=LEAST_SECONDS)
            until = max(named, least) if named else now + timedelta(seconds=UNNAMED_SECONDS)
        if until is not None:
            self._skipped[one] = until, error
        if following is None:
            return None
        switched = Switched(error, following.model.name, one.model.name, until)
        if self._on_switch:
            self._on_switch(switched)
        return switched

    def _first_ready(self, errors: dict[PricedModel, ModelError]) -> ModelError:
        """Return the error that ends first, among these and those of the skipped models."""
        known = {one: error for one, (_, error) in self._skipped.items()} | errors
        return min((known[one] for one in self._models if one in known), key=self._ready)

    def _ready(self, error: ModelError) -> datetime:
        """Return when a model with this error may be tried again."""
        if not isinstance(error, _TEMPORARY_ERRORS):
            return NEVER
        if error.resume_at:
            return error.resume_at
        if isinstance(error, SpentQuotaError):
            return NEVER
        soon = UNNAMED_SECONDS if isinstance(error, RateLimitError) else 0.0
        return self._clock.now() + timedelta(seconds=soon)
