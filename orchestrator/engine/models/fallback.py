"""Several models in order, as one: the next is asked where the one before has no quota left or is down."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

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
    CallPiece,
    Completed,
    ReasoningPiece,
    Restarted,
    Switched,
    TextPiece,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Usage
    from orchestrator.engine.models.base import Model, Request, Response, StreamEvent

UNNAMED_SECONDS = 600.0
"""How long a model is passed over whose server names no time."""
LEAST_SECONDS = 60.0
"""It is passed over at least so long: its own waits did not help."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_ANSWERS_REMEMBERED = 64  # more than there are sessions that share a model

_PASSES = (RateLimitError, OverloadedError, ConnectionFailedError)
_LASTS = (AuthenticationError, PermissionDeniedError, ModelNotFoundError)


@dataclass(frozen=True, slots=True, eq=False)
class PricedModel:
    """A model, and what its replies cost: USD, or None where that is not known."""

    model: Model
    price: Callable[[Usage], float | None]


@dataclass(frozen=True, slots=True)
class Switch:
    """One model could not answer, and the next is asked.

    Attributes:
        until: when the first is asked again; None is with the next request, and the last moment that
            there is means not before the program starts again.
    """

    left: str
    to: str
    error: ModelError
    until: datetime | None

    @property
    def is_for_good(self) -> bool:
        """Whether the one that was left is not asked again."""
        return self.until == _NEVER


OnSwitch: TypeAlias = "Callable[[Switch], None]"


class FallbackModel:
    """Asks the first model, and the next ones in order while those before them cannot answer.

    A quota, a rate limit, an overload and a failed connection, after the model's own retries,
    lead to the next model; the one that failed is passed over until the time that its server
    names. Where all are passed over, all are asked again: it may be over early.

    What is wrong with the first model's key, name or request is raised: another model would hide
    it. A fallback with a wrong key or name is left out from then on, with a word to `on_switch`;
    one that cannot take a request (too long, no images) is left out for this request. Content
    that a provider refuses is not carried to the next one.

    Args:
        models: in order, at least one.
        clock: for the times until which a model is passed over.
        on_switch: told before the next model is asked.
    """

    def __init__(
        self, models: Sequence[PricedModel], *, clock: Clock, on_switch: OnSwitch | None = None
    ) -> None:
        self._models = tuple(models)
        self._clock = clock
        self._on_switch = on_switch
        self._out: dict[PricedModel, tuple[datetime, ModelError]] = {}
        self._answers: deque[tuple[Usage, PricedModel]] = deque(maxlen=_ANSWERS_REMEMBERED)

    @property
    def name(self) -> str:
        """The first model's; a reply's own `model` says who answered."""
        return self._models[0].model.name

    @property
    def next_name(self) -> str:
        """That of the model which the next request goes to first."""
        return next(iter(self.candidates()), self._models[0]).model.name

    def price(self, usage: Usage) -> float | None:
        """What these tokens cost, in USD.

        The very `Usage` object of a reply is priced as by the model that gave that reply. Any
        other is a question about the future or about a sum, and gets `worst_price`.
        """
        for known, one in reversed(self._answers):
            if known is usage:
                return one.price(usage)
        return self.worst_price(usage)

    def worst_price(self, usage: Usage) -> float | None:
        """What these tokens cost at most, whoever answers; None where the price of one is unknown."""
        prices = [one.price(usage) for one in self._models]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None

    async def complete(self, request: Request) -> Response:
        """Ask until one model answers."""
        attempt = _Attempt(self)
        for one in attempt:
            try:
                response = await one.model.complete(request)
            except ModelError as error:
                switched = attempt.failed(one, error)
                if switched and request.on_retry:
                    request.on_retry(switched)
            else:
                self._answers.append((response.usage, one))
                return response
        raise attempt.soonest()

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask until one model answers, with `Switched` before the next is asked.

        Pieces of one that broke off are taken back by `Restarted`.
        """
        attempt = _Attempt(self)
        for one in attempt:
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
                switched = attempt.failed(one, error)
            else:
                raise ProviderError("the model's stream ended without a reply")
            if switched:
                yield switched
                if shown:
                    yield Restarted()
        raise attempt.soonest()

    async def aclose(self) -> None:
        """Close the connections of all."""
        for one in self._models:
            await one.model.aclose()

    def candidates(self) -> list[PricedModel]:
        """The models to ask now, in order."""
        now = self._clock.now()
        until = {one: self._out[one][0] if one in self._out else now for one in self._models}
        ready = [one for one in self._models if until[one] <= now]
        return ready or [one for one in self._models if until[one] != _NEVER]

    def leave(self, one: PricedModel, error: ModelError) -> datetime | None:
        """Pass a model over, if its error says so, and say until when.

        Raises:
            ModelError: the error itself, where no other model should be asked.
        """
        is_first = one is self._models[0]
        if isinstance(error, ContentFilterError) or (is_first and not isinstance(error, _PASSES)):
            raise error
        now = self._clock.now()
        if isinstance(error, _LASTS):
            until = _NEVER
        elif isinstance(error, _PASSES):
            named = error.resume_at
            least = now + timedelta(seconds=LEAST_SECONDS)
            until = max(named, least) if named else now + timedelta(seconds=UNNAMED_SECONDS)
        else:
            return None
        self._out[one] = until, error
        return until

    def soonest(self, errors: dict[PricedModel, ModelError]) -> ModelError:
        """Of these errors and those of the models that were passed over, the one that is over first."""
        known = [
            errors.get(one) or self._out[one][1] for one in self._models if one in errors or one in self._out
        ]
        return min(known, key=self._ready)

    def tell(self, switch: Switch) -> None:
        """Report that the next model is asked."""
        if self._on_switch:
            self._on_switch(switch)

    def _ready(self, error: ModelError) -> datetime:
        """When a model that failed like this may be asked again."""
        if not isinstance(error, _PASSES):
            return _NEVER
        if error.resume_at:
            return error.resume_at
        if isinstance(error, SpentQuotaError):
            return _NEVER
        soon = UNNAMED_SECONDS if isinstance(error, RateLimitError) else 0.0
        return self._clock.now() + timedelta(seconds=soon)


class _Attempt:
    """One request on its way through the models."""

    def __init__(self, models: FallbackModel) -> None:
        self._models = models
        self._left = models.candidates()
        self._errors: dict[PricedModel, ModelError] = {}

    def __iter__(self) -> Iterator[PricedModel]:
        while self._left:
            yield self._left.pop(0)

    def failed(self, one: PricedModel, error: ModelError) -> Switched | None:
        """What is told before the next one is asked; None if there is none."""
        until = self._models.leave(one, error)
        self._errors[one] = error
        if not self._left:
            return None
        to = self._left[0].model.name
        self._models.tell(Switch(one.model.name, to, error, until))
        return Switched(error, to)

    def soonest(self) -> ModelError:
        return self._models.soonest(self._errors)
