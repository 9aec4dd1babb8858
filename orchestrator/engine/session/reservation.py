"""What is set aside for a request before it goes out, and settled when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import (
    AuthenticationError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    NotConnectedError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
)
from orchestrator.engine.models.usage import BYTES_PER_TOKEN
from orchestrator.engine.session.limits import Amount

if TYPE_CHECKING:
    from types import TracebackType

    from orchestrator.core.events import LimitReached
    from orchestrator.core.messages import Usage
    from orchestrator.engine.session.limits import Budget
    from orchestrator.engine.session.worst_case import Need

_COST_NOTHING = (
    AuthenticationError,
    ConfigurationError,
    ContextLengthError,
    InvalidRequestError,
    ModelNotFoundError,
    NotConnectedError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
)
"""With these a provider turns a request away before it works on it."""

_GAVE_UP = frozenset({HTTPStatus.GATEWAY_TIMEOUT, 524})
"""With these a gateway stopped waiting for a provider that works on the request and will bill it.

524: https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/error-524/
"""

_REDIRECTS = range(HTTPStatus.MULTIPLE_CHOICES, HTTPStatus.BAD_REQUEST)
"""They are not followed, so nobody worked on the request."""


class NoRoomError(Exception):
    """An attempt failed, and the budget has no room to ask again. It does not leave the room."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request may not go out. `passes`: it would fit if others, whose requests run, needed less."""

    limit: LimitReached
    passes: bool


@dataclass(slots=True, eq=False)
class Reservation:
    """The worst case of one request, set aside under every cap until the request is over.

    `with reservation:` settles it however the request ends. One that was sent and neither answered nor turned away
    may have been worked on and will be billed, so it costs the worst case of its input and what was heard
    of its reply. Where nothing was heard that says nothing, as much is made in silence: it costs the longest
    reply.

    Attributes:
        need: of the model that is asked.
        reply_tokens: the longest reply that it covers.
        is_sent: the request went out; before, it costs nothing.
    """

    budget: Budget
    need: Need
    reply_tokens: int
    wrap_up: bool
    is_sent: bool = False
    _held: Amount | None = None
    _heard_bytes: int = 0

    @property
    def is_lowered(self) -> bool:
        """Whether the reply must be shorter than it might have been."""
        return self.reply_tokens < self.need.reply_tokens

    @property
    def worst(self) -> Amount:
        """The most that the request may take, priced also where no cap on money holds."""
        return Amount(self.need.input_tokens + self.reply_tokens, self.need.usd(self.reply_tokens))

    def hold(self) -> None:
        """Set the worst case aside."""
        self._held, _last = _amounts(self.budget, self.need, self.reply_tokens)
        self.budget.hold(self._held)

    def heard(self, text: str) -> None:
        """A piece of the reply came in."""
        self._heard_bytes += len(text.encode("utf-8", "surrogatepass"))

    def failed(self, error: ModelError | None = None) -> Amount | None:
        """An attempt failed. What it is counted with, as it may be billed; None if it costs nothing.

        Args:
            error: why it failed; None where its stream broke in the middle.
        """
        return self._lose(error) if error is None or self._may_be_billed(error) else None

    def again(self, need: Need | None = None) -> None:
        """Set the worst case aside for the next attempt, in the place of that for the last one.

        Args:
            need: that of another model, if another one is asked.

        Raises:
            NoRoomError: it does not fit.
        """
        self._let_go()
        self.need = need or self.need
        amount, last = _amounts(self.budget, self.need, self.reply_tokens)
        if limit := self.budget.lacks(amount, last, wrap_up=self.wrap_up):
            raise NoRoomError(limit.detail)
        self.hold()

    def _may_be_billed(self, error: BaseException | None) -> bool:
        if self._heard_bytes:
            return True
        status = error.status if isinstance(error, ModelError) else None
        if status in _REDIRECTS:
            return False
        return status in _GAVE_UP or not isinstance(error, _COST_NOTHING)

    def settle(self, usage: Usage, usd: float | None, *, is_known: bool = True) -> None:
        """The reply is in, and this is what it really cost.

        Args:
            usage: its tokens.
            usd: their price.
            is_known: False where the provider's count got lost: it may have cost as much as the worst case.
        """
        self._let_go()
        self.budget.spend(usage, usd)
        if not is_known:
            worst = self.worst
            more = None if usd is None or worst.usd is None else max(worst.usd - usd, 0.0)
            self.budget.lose(Amount(max(worst.tokens - usage.total_tokens, 0), more))

    def __enter__(self) -> Self:
        """It is set aside already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle what is not settled yet."""
        if self._held is None:
            return
        self._let_go()
        if self.is_sent and self._may_be_billed(error):
            self._lose(error)

    def _let_go(self) -> None:
        if self._held is not None:
            self.budget.let_go(self._held)
            self._held = None

    def _lose(self, error: BaseException | None) -> Amount:
        unheard = 0 if isinstance(error, ContentFilterError) else self.reply_tokens  # it refused to make any
        made = min(self.reply_tokens, -(-self._heard_bytes // BYTES_PER_TOKEN) or unheard)
        self._heard_bytes = 0
        lost = Amount(self.need.input_tokens + made, self.need.usd(made))
        self.budget.lose(lost)
        return lost


def reserve(budget: Budget, need: Need, *, wrap_up: bool = False) -> Reservation | Shortage:
    """Set the worst case of a request aside. It is held from now on: use it with `with`.

    Where the longest reply does not fit, but one of `MIN_REPLY_TOKENS` would, it is the longest that fits. As
    long as something is set aside for others that is not done, because most of it will come back.
    """

    def limit(reply_tokens: int, *, alone: bool = False) -> LimitReached | None:
        amount, last = _amounts(budget, need, reply_tokens)
        return budget.lacks(amount, last, wrap_up=wrap_up, alone=alone)

    reply, least = need.reply_tokens, need.least_reply
    if shortage := limit(reply):
        if budget.is_shared:
            lasting = limit(least, alone=True)
            return Shortage(lasting or shortage, passes=lasting is None)
        if shortage := limit(least):
            return Shortage(shortage, passes=False)
        while reply - least > 1:  # what fits lies between the two, or is the lower one
            middle = (least + reply) // 2
            least, reply = (least, middle) if limit(middle) else (middle, reply)
        reply = least
    reservation = Reservation(budget, need, reply, wrap_up)
    reservation.hold()
    return reservation


def _amounts(budget: Budget, need: Need, reply_tokens: int) -> tuple[Amount, Amount]:
    """What a request with so long a reply may take, and the shortest turn after it; priced if that matters."""
    last = need.then()
    priced = budget.has_usd_cap
    return (
        Amount(need.input_tokens + reply_tokens, need.usd(reply_tokens) if priced else None),
        Amount(last.input_tokens + last.reply_tokens, last.usd(last.reply_tokens) if priced else None),
    )
