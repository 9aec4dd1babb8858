"""The budget of a session: its limits, its spending, and its reservations for running requests."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from orchestrator.core.events import EMBEDDING_AGENT, LimitReached, ReplyReceived, SubagentEvent, WaitStarted
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.models.base import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.engine.profiles.base import ReplyPrice


_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one session; None is no cap.

    Attributes:
        rounds: requests to the model in the whole session, rejected replies included.
        tool_rounds: rounds with tool calls for one input.
        tokens: input and output together, as the provider counts them.
        usd: cost in US dollars, if the model's price is known.
        minutes: wall time.
        denials: calls that the gate refused.
        same_replies: equal replies in a row of which no call succeeded.
    """

    rounds: int | None = None
    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None
    tool_rounds: int | None = None
    denials: int | None = None
    same_replies: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """Tokens and cost that a request may take. `usd` is None if the price is unknown or not needed."""

    tokens: int
    usd: float | None


@dataclass(slots=True)
class Budget:
    """Counts the spending of a session against its limits.

    Attributes:
        parent: the budget of a subagent's parent: it counts the same spending, and its limits apply, too.
        wrap_up_share: the part of every cap that is reserved for the wrap-up turn; 0 reserves nothing. Of the
            rounds it is the last one. Before the first round nothing is reserved, because there is nothing to
            wrap up. A subagent never gets what its parents reserve.
        tool_rounds: since the last input.
        usage: as providers counted it.
        usd: the cost so far, `uncertain_usd` included; None as soon as one price is unknown.
        uncertain_usd: the part of `usd` that is the worst case of requests that failed or were cancelled.
        uncertain_tokens: tokens of such requests: not in `usage`, but counted against the cap.
        wrapping_up: the limit because of which the wrap-up turn was started, if it was.
        wrapped_up: whether the wrap-up turn was answered: no further request is sent.
        reserved: amounts reserved for running requests of this session and its subagents.
        waiting: events to set when an amount is released.
        started: in seconds of the clock.
    """

    limits: Limits
    clock: Clock
    parent: Budget | None = None
    wrap_up_share: float = 0.0
    rounds: int = 0
    tool_rounds: int = 0
    denials: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    uncertain_usd: float = 0.0
    uncertain_tokens: int = 0
    wrapping_up: LimitReached | None = None
    wrapped_up: bool = False
    reserved: set[Amount] = field(default_factory=set, init=False)
    waiting: list[asyncio.Event] = field(default_factory=list, init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()

    def change(self, limits: Limits, wrap_up_share: float) -> None:
        """Set new caps. A session that was asked to wrap up may go on if they leave room."""
        if (limits, wrap_up_share) == (self.limits, self.wrap_up_share):
            return
        self.limits, self.wrap_up_share = limits, wrap_up_share
        self.wrapping_up, self.wrapped_up = None, False
        self._wake()

    def restart_for_input(self) -> None:
        """Restart the counts of tool rounds, minutes and refused calls for a person's next input.

        The spending stays.
        """
        self.tool_rounds = self.denials = 0
        self.started = self.clock.monotonic()
        self.wrapping_up, self.wrapped_up = None, False

    def add_spending(self, other: Budget) -> None:
        """Add the spending of another session whose conversation this session continues."""
        self.rounds += other.rounds
        self.usage += other.usage
        self.usd = _sum(self.usd, other.usd)
        self.uncertain_usd += other.uncertain_usd
        self.uncertain_tokens += other.uncertain_tokens

    def _chain(self) -> Iterator[Budget]:
        budget: Budget | None = self
        while budget:
            yield budget
            budget = budget.parent

    def spend(self, usage: Usage, usd: float | None) -> None:
        """Count one reply. One reply of unknown price makes the whole cost unknown."""
        for budget in self._chain():
            budget.usage += usage
            budget.usd = _sum(budget.usd, usd)

    def spend_uncertain(self, amount: Amount) -> None:
        """Count the possible cost of a request that was not answered."""
        for budget in self._chain():
            budget.uncertain_tokens += amount.tokens
            budget.uncertain_usd += amount.usd or 0.0
            budget.usd = _sum(budget.usd, amount.usd)

    def reserve(self, amount: Amount) -> None:
        """Reserve an amount here and in the parents."""
        for budget in self._chain():
            budget.reserved.add(amount)

    def release(self, amount: Amount) -> None:
        """Release a reserved amount, and wake those that wait for room."""
        for budget in self._chain():
            budget.reserved.discard(amount)
        self._wake()

    def _wake(self) -> None:
        for budget in self._chain():
            for event in budget.waiting:
                event.set()

    @property
    def has_reservations(self) -> bool:
        """Whether amounts are reserved for running requests."""
        return any(budget.reserved for budget in self._chain())

    async def wait_for_release(self) -> None:
        """Wait until a reserved amount is released."""
        event, top = asyncio.Event(), list(self._chain())[-1]  # the top budget has all reservations
        top.waiting.append(event)
        try:
            await event.wait()
        finally:
            top.waiting.remove(event)

    @property
    def has_usd_cap(self) -> bool:
        """Whether this budget or a parent caps the cost."""
        return any(budget.limits.usd is not None for budget in self._chain())

    def limit_for(
        self, amount: Amount, last: Amount, *, wrap_up: bool = False, alone: bool = False
    ) -> LimitReached | None:
        """Return the cap that leaves no room for an amount; None if it fits under all caps.

        Args:
            amount: what the request may take.
            last: what the shortest wrap-up turn after it may take: at least this stays reserved.
            wrap_up: the request is the wrap-up turn itself, which may use what is reserved for it.
            alone: ignore the amounts that are reserved for others.
        """
        for budget in self._chain():
            share, least = budget.wrap_up_share, Amount(0, 0.0)
            if budget is self:
                share = 0.0 if wrap_up or not self.rounds else share
                least = last if share else least
            if limit := _limit_of(budget, amount, share, least, () if alone else tuple(budget.reserved)):
                return limit
        return None

    def count_denial(self) -> None:
        """Count one call that the gate refused."""
        for budget in self._chain():
            budget.denials += 1

    @property
    def denied(self) -> LimitReached | None:
        """The limit of refused calls, here or in a parent, if it is reached: no further call runs."""
        for budget in self._chain():
            most = budget.limits.denials
            if most is not None and budget.denials >= most:
                return LimitReached(
                    "denials", f"{budget.denials} calls were refused, and {most} end the session"
                )
        return None

    @property
    def seconds_left(self) -> float | None:
        """Seconds of wall time until the first limit of minutes, never below zero; None without such a limit.

        The time that a parent reserves for its wrap-up turn is not available.
        """
        lefts = (_seconds_left(one, 0.0 if one is self else one.wrap_up_share) for one in self._chain())
        return min((left for left in lefts if left is not None), default=None)

    def wrap_up_due(self) -> LimitReached | None:
        """Return the limit of rounds or minutes of which only the wrap-up share is left, or None."""
        share, limits = self.wrap_up_share, self.limits
        if not share or not self.rounds:
            return None
        if limits.rounds is not None and self.rounds >= limits.rounds - 1:
            return LimitReached("rounds", f"{self.rounds} of {limits.rounds} rounds are used")
        if _seconds_left(self, share) == 0.0:
            return LimitReached("minutes", f"{1.0 - share:.0%} of {limits.minutes:g} minutes are over")
        return None

    def exceeded(self) -> LimitReached | None:
        """Return the first limit that leaves no room for any further request."""
        limits = self.limits
        if limits.rounds is not None and self.rounds >= limits.rounds:
            return LimitReached("rounds", f"{self.rounds} of {limits.rounds} rounds are used")
        if limits.tool_rounds is not None and self.tool_rounds >= limits.tool_rounds:
            return LimitReached(
                "tool_rounds", f"{self.tool_rounds} of {limits.tool_rounds} tool rounds are used"
            )
        if self.wrapped_up and self.wrapping_up:
            return self.wrapping_up
        spent = next(filter(None, map(_spent, self._chain())), None)
        return self.denied or spent or (self.out_of_time() if self.seconds_left == 0.0 else None)

    def out_of_time(self) -> LimitReached:
        """Return the limit of minutes as an event."""
        minutes = next((one.limits.minutes for one in self._chain() if one.limits.minutes is not None), 0.0)
        return LimitReached("minutes", f"{minutes:g} minutes are over")


def _sum(usd: float | None, more: float | None) -> float | None:
    return None if usd is None or more is None else usd + more


def _seconds_left(budget: Budget, share: float) -> float | None:
    if budget.limits.minutes is None:
        return None
    spent = budget.clock.monotonic() - budget.started
    return max(0.0, budget.limits.minutes * (1.0 - share) * _SECONDS_A_MINUTE - spent)


def _spent(budget: Budget) -> LimitReached | None:
    limits, tokens, usd = budget.limits, budget.usage.total_tokens + budget.uncertain_tokens, budget.usd
    if limits.tokens is not None and tokens >= limits.tokens:
        return LimitReached("tokens", f"{tokens:,} of {limits.tokens:,} tokens are used")
    if limits.usd is not None and usd is not None and usd >= limits.usd:
        return LimitReached("usd", f"${usd:.4f} of ${limits.usd:.2f} are spent")
    return None


def _limit_of(
    budget: Budget, amount: Amount, share: float, least: Amount, reserved: tuple[Amount, ...]
) -> LimitReached | None:
    """Return the cap of one budget under which an amount does not fit; None if it fits.

    `share` of the cap, or at least `least`, stays reserved for the wrap-up turn.
    """
    if (cap := budget.limits.tokens) is not None:
        kept = max(cap * share, least.tokens)
        left = cap - budget.usage.total_tokens - budget.uncertain_tokens - sum(one.tokens for one in reserved)
        if amount.tokens > left - kept:
            return _no_room("tokens", f"{amount.tokens:,}", f"{left:,} of {cap:,} tokens", kept)
    if (usd_cap := budget.limits.usd) is not None:
        if amount.usd is None or budget.usd is None:
            return LimitReached(
                "usd", f"the cost of a request is unknown, so the cap of ${usd_cap:.2f} cannot be kept"
            )
        kept_usd = max(usd_cap * share, least.usd or 0.0)
        left_usd = usd_cap - budget.usd - sum(one.usd or 0.0 for one in reserved)
        if not amount.usd <= left_usd - kept_usd:
            return _no_room("usd", f"${amount.usd:.4f}", f"${left_usd:.4f} of ${usd_cap:.2f}", kept_usd)
    return None


def _no_room(limit: str, needed: str, left: str, kept: float) -> LimitReached:
    also = ", a part of it reserved for the last turn" if kept else ""
    return LimitReached(limit, f"the next request may take {needed}, and {left} are left{also}")


def check_price(budget: Budget, price: ReplyPrice, model: str) -> None:
    """Refuse a model of unknown price if a cap in USD applies, because the cap could not be enforced.

    Raises:
        ConfigurationError: the price is unknown and a cap in USD applies.
    """
    if budget.has_usd_cap and price(Usage(input_tokens=1_000, output_tokens=1_000)) is None:
        raise ConfigurationError(
            f"the cap in USD cannot be kept: the price of {model} is unknown; set a limit of tokens instead"
        )


MIN_REPLY_TOKENS = 1_024
"""The shortest useful reply: a request that leaves no room for it is not sent."""

DEFAULT_REPLY_TOKENS = 32_000
"""The assumed longest reply if neither `max_output_tokens` nor the model's own limit is configured."""


@dataclass(frozen=True, slots=True)
class Need:
    """The most that a request may need: its input, and the longest possible reply.

    Attributes:
        keeps_an_hour: whether it asks the vendor's cache to keep the input for an hour, which costs more.
    """

    input_tokens: int
    reply_tokens: int
    price: ReplyPrice
    keeps_an_hour: bool = False

    @property
    def least_reply(self) -> int:
        """The shortest reply for which the request is still useful, in tokens."""
        return min(self.reply_tokens, MIN_REPLY_TOKENS)

    def usd(self, reply_tokens: int) -> float | None:
        """Return the cost of the uncached input and of a reply of this length; None if it is unknown.

        Writing the input into the vendor's cache may cost more than reading it, so the higher cost counts.
        """
        size = self.input_tokens
        plain = self.price(Usage(size, reply_tokens))
        hour = size if self.keeps_an_hour else 0
        written = self.price(Usage(size, reply_tokens, cache_write_tokens=size, hour_write_tokens=hour))
        if plain is None or written is None:
            return plain
        return max(plain, written)

    def shortest_next(self) -> Need:
        """Return the need of the shortest request that could follow this one."""
        return replace(self, input_tokens=self.input_tokens + self.least_reply, reply_tokens=self.least_reply)


_UNBILLED_ERRORS = (
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
"""Errors with which a provider refuses a request before it works on it."""

_GATEWAY_TIMEOUTS = frozenset({HTTPStatus.GATEWAY_TIMEOUT, 524})
"""Statuses of a gateway that stopped waiting for a provider, which goes on working and will bill it.

524:
https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/error-524/
"""

_REDIRECTS = range(HTTPStatus.MULTIPLE_CHOICES, HTTPStatus.BAD_REQUEST)
"""Redirects are not followed, so no provider worked on the request."""


class NoRoomError(Exception):
    """An attempt failed, and the budget has no room for another. This error does not leave the session."""

    def __init__(self, limit: LimitReached) -> None:
        super().__init__(limit.detail)
        self.limit = limit


def cost_of(usage: Usage, price: ReplyPrice) -> tuple[float | None, float | None]:
    """Return the cost of a reply, and the higher amount that counts against caps, in USD; None if unknown.

    The cost is what the server says that it charges, else the price of the list. A gateway's charge may be less
    than the bill of a vendor behind it, so the higher of both counts against caps.
    """
    listed, charged = price(usage), usage.charged_usd
    if charged is None:
        return listed, listed
    return charged, max(charged, listed or 0.0)


@dataclass(frozen=True, slots=True)
class SidePayments:
    """Pays for requests outside of the conversation from a session's budget; see `models.base.Payer`."""

    budget: Budget
    emit: Emit

    @contextmanager
    def pay(self, model: str, most_tokens: int, price: ReplyPrice) -> Iterator[Callable[[Usage], None]]:
        """Reserve the most that a request may cost; count and emit its real usage when it is reported."""
        room = reserve(self.budget, Need(most_tokens, 0, price))
        if isinstance(room, Shortage):
            raise ModelError(f"the budget has no room for a request to {model}: {room.limit.detail}")

        def count(usage: Usage) -> None:
            usd, most = cost_of(usage, price)
            room.settle(usage, most)
            event = ReplyReceived(Message.assistant(""), FinishReason.STOP, usage, usd, model)
            self.emit(SubagentEvent(EMBEDDING_AGENT, event))

        with room:
            room.is_sent = True
            yield count


@dataclass(frozen=True, slots=True)
class Shortage:
    """The reason why a request must not be sent.

    Attributes:
        passes: whether it would fit if other running requests needed less.
    """

    limit: LimitReached
    passes: bool


@dataclass(slots=True, eq=False)
class Reservation:
    """The worst-case cost of one request, reserved under every cap until the request is over.

    `with reservation:` settles it however the request ends. A request that was sent, but neither answered nor
    refused, may have been processed and billed. It counts as its input in the worst case and the received
    part of its reply. If nothing was received, it counts as the longest reply, because a provider may produce
    one before it sends any of it.

    Attributes:
        need: of the requested model.
        reply_tokens: the longest reply that it covers.
        is_sent: whether the request was sent; before that it costs nothing.
    """

    budget: Budget
    need: Need
    reply_tokens: int
    wrap_up: bool
    _reserved: Amount | None
    is_sent: bool = False
    _received_bytes: int = 0

    @property
    def is_lowered(self) -> bool:
        """Whether the limit of the reply is lower than it would be without the budget."""
        return self.reply_tokens < self.need.reply_tokens

    @property
    def worst(self) -> Amount:
        """The most that the request may take, with its cost even if no cap in USD applies."""
        return Amount(self.need.input_tokens + self.reply_tokens, self.need.usd(self.reply_tokens))

    def received(self, text: str) -> None:
        """Count a received piece of the reply."""
        self._received_bytes += len(text.encode("utf-8", "surrogatepass"))

    def failed(self, error: ModelError | None = None) -> Amount | None:
        """Count a failed attempt; return the amount that may be billed, or None if it costs nothing.

        Args:
            error: why it failed; None if its stream broke.
        """
        return self._spend_uncertain(error) if error is None or self._may_be_billed(error) else None

    def renew(self, need: Need | None = None) -> None:
        """Replace the reservation of the last attempt with one for the next attempt.

        Args:
            need: of another model, if the next attempt goes to one.

        Raises:
            NoRoomError: the worst case does not fit.
        """
        self._release()
        self.need = need or self.need
        amount, last = _amounts(self.budget, self.need, self.reply_tokens)
        if limit := self.budget.limit_for(amount, last, wrap_up=self.wrap_up):
            raise NoRoomError(limit)
        self._reserved = amount
        self.budget.reserve(amount)

    def _may_be_billed(self, error: BaseException | None) -> bool:
        if self._received_bytes:
            return True
        status = error.status if isinstance(error, ModelError) else None
        if status in _REDIRECTS:
            return False
        return status in _GATEWAY_TIMEOUTS or not isinstance(error, _UNBILLED_ERRORS)

    def settle(self, usage: Usage, usd: float | None, *, is_known: bool = True) -> None:
        """Replace the reservation with the real cost of the reply.

        Args:
            is_known: False if the provider's count was lost: the difference to the worst case counts as
                uncertain.
        """
        self._release()
        self.budget.spend(usage, usd)
        if not is_known:
            worst = self.worst
            more = None if usd is None or worst.usd is None else max(worst.usd - usd, 0.0)
            self.budget.spend_uncertain(Amount(max(worst.tokens - usage.total_tokens, 0), more))

    def __enter__(self) -> Self:
        """Return the reservation itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle the reservation if that is still to be done."""
        if self._reserved is None:
            return
        self._release()
        if self.is_sent and self._may_be_billed(error):
            self._spend_uncertain(error)

    def _release(self) -> None:
        if self._reserved is not None:
            self.budget.release(self._reserved)
            self._reserved = None

    def _spend_uncertain(self, error: BaseException | None) -> Amount:
        # After a content filter's refusal there is no unsent reply.
        unsent = 0 if isinstance(error, ContentFilterError) else self.reply_tokens
        made = min(self.reply_tokens, -(-self._received_bytes // BYTES_PER_TOKEN) or unsent)
        self._received_bytes = 0
        lost = Amount(self.need.input_tokens + made, self.need.usd(made))
        self.budget.spend_uncertain(lost)
        return lost


def tell_failed(
    reservation: Reservation, emit: Emit, error: ModelError | None, seconds: float | None = None
) -> bool:
    """Count a failed attempt, and emit it so that the journal shows it after a crash.

    Args:
        error: why it failed; None if its stream broke.
        seconds: the wait before the next attempt; None if there is none.

    Returns:
        Whether it may be billed.
    """
    lost = reservation.failed(error)
    reason = "the stream broke" if error is None else str(error)
    if lost is not None:
        emit(WaitStarted(seconds or 0.0, reason, lost.tokens, lost.usd))
    elif seconds is not None:
        emit(WaitStarted(seconds, reason))
    return lost is not None


def reserve(budget: Budget, need: Need, *, wrap_up: bool = False) -> Reservation | Shortage:
    """Reserve the worst case of a request. Use the result in a `with` statement, which releases it.

    If the longest reply does not fit, but one of `MIN_REPLY_TOKENS` would, the longest that fits is reserved.
    This is not done while other requests have reservations, because most of theirs will be released.
    """

    def limit(reply_tokens: int, *, alone: bool = False) -> LimitReached | None:
        amount, last = _amounts(budget, need, reply_tokens)
        return budget.limit_for(amount, last, wrap_up=wrap_up, alone=alone)

    reply, least = need.reply_tokens, need.least_reply
    if shortage := limit(reply):
        if budget.has_reservations:
            lasting = limit(least, alone=True)
            return Shortage(lasting or shortage, passes=lasting is None)
        if shortage := limit(least):
            return Shortage(shortage, passes=False)
        while reply - least > 1:  # bisect: `least` fits, `reply` does not
            middle = (least + reply) // 2
            least, reply = (least, middle) if limit(middle) else (middle, reply)
        reply = least
    amount, _last = _amounts(budget, need, reply)
    budget.reserve(amount)
    return Reservation(budget, need, reply, wrap_up, amount)


def _amounts(budget: Budget, need: Need, reply_tokens: int) -> tuple[Amount, Amount]:
    """Return what a request with a reply of this length may take, and the shortest turn after it.

    The cost is computed only if a cap in USD applies.
    """
    last = need.shortest_next()
    priced = budget.has_usd_cap
    return (
        Amount(need.input_tokens + reply_tokens, need.usd(reply_tokens) if priced else None),
        Amount(last.input_tokens + last.reply_tokens, last.usd(last.reply_tokens) if priced else None),
    )
