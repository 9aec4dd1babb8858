"""What a session may spend, what it has spent, and what is set aside for requests that are under way."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from orchestrator.core.events import EMBEDDING_AGENT, LimitReached, ReplyReceived, SubagentEvent
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.models.usage import BYTES_PER_TOKEN

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
        tool_rounds: rounds with tool calls that one input may lead to.
        tokens: input and output together, as the provider counts them.
        usd: money, where the model's price is known.
        minutes: wall time.
        denials: calls that the gate refused.
    """

    rounds: int | None = None
    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None
    tool_rounds: int | None = None
    denials: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """Tokens and money that a request may take. `usd` is None where the price is unknown, or of no use."""

    tokens: int
    usd: float | None


@dataclass(slots=True)
class Budget:
    """Counts what a session spends against its limits.

    Attributes:
        parent: of a subagent: what it spends counts there too, and the limits there hold for it.
        wrap_up_share: the part of every cap that only the wrap-up turn may use; 0 keeps nothing back. Of
            the rounds it is the last one. Before the first round nothing is kept back: there is nothing to
            wrap up. A subagent never gets what its parents keep back.
        tool_rounds: since the last input.
        usage: as providers counted it.
        usd: what was spent, `uncertain_usd` included; None as soon as one price is unknown.
        uncertain_usd: how much of `usd` is the worst case of requests that failed or were cancelled.
        uncertain_tokens: those of such requests: beside `usage`, and counted against the cap.
        wrapping_up: the limit for which the wrap-up turn was given, once it was.
        wrapped_up: its reply came: no further request goes out.
        reserved: what is set aside for requests that are under way, here and below.
        waiting: are set when something of it is released.
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
        """Set other caps from now on. A session that was asked to wrap up may go on if they leave room."""
        if (limits, wrap_up_share) == (self.limits, self.wrap_up_share):
            return
        self.limits, self.wrap_up_share = limits, wrap_up_share
        self.wrapping_up, self.wrapped_up = None, False
        self._wake()

    def begin_anew(self) -> None:
        """Count rounds with calls, minutes and refused calls from now on: a person has the next word. What was paid stays."""
        self.tool_rounds = self.denials = 0
        self.started = self.clock.monotonic()
        self.wrapping_up, self.wrapped_up = None, False

    def take_over(self, other: Budget) -> None:
        """Count what was spent there here, too: this session goes on with that conversation."""
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
        """Count one reply. One reply of unknown price makes the whole sum unknown."""
        for budget in self._chain():
            budget.usage += usage
            budget.usd = _sum(budget.usd, usd)

    def spend_uncertain(self, amount: Amount) -> None:
        """Count what a request may have cost of which no reply came."""
        for budget in self._chain():
            budget.uncertain_tokens += amount.tokens
            budget.uncertain_usd += amount.usd or 0.0
            budget.usd = _sum(budget.usd, amount.usd)

    def reserve(self, amount: Amount) -> None:
        """Set this much aside, here and above."""
        for budget in self._chain():
            budget.reserved.add(amount)

    def release(self, amount: Amount) -> None:
        """Set it aside no longer; who waits for that looks again."""
        for budget in self._chain():
            budget.reserved.discard(amount)
        self._wake()

    def _wake(self) -> None:
        for budget in self._chain():
            for event in budget.waiting:
                event.set()

    @property
    def has_reservations(self) -> bool:
        """Whether requests are under way for which something is set aside."""
        return any(budget.reserved for budget in self._chain())

    async def wait_for_release(self) -> None:
        """Wait until something that is set aside is released."""
        event, top = asyncio.Event(), list(self._chain())[-1]  # where everything is set aside
        top.waiting.append(event)
        try:
            await event.wait()
        finally:
            top.waiting.remove(event)

    @property
    def has_usd_cap(self) -> bool:
        """Whether a cap on money holds, here or above."""
        return any(budget.limits.usd is not None for budget in self._chain())

    def limit_for(
        self, amount: Amount, last: Amount, *, wrap_up: bool = False, alone: bool = False
    ) -> LimitReached | None:
        """The cap under which this much does not fit any more; None if it fits under all.

        Args:
            amount: what the request may take.
            last: what the shortest wrap-up turn after it may take: at least this is kept back here.
            wrap_up: it is the wrap-up turn itself, which may use what is kept back here.
            alone: as if nothing was set aside for others.
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
        """The limit of denials, here or above, if it is reached: no further call runs."""
        for budget in self._chain():
            most = budget.limits.denials
            if most is not None and budget.denials >= most:
                return LimitReached(
                    "denials", f"{budget.denials} calls were refused, and {most} end the session"
                )
        return None

    @property
    def seconds_left(self) -> float | None:
        """Wall time until the first limit of minutes; None without one, never below zero.

        Above, what is kept back for the parent's wrap-up turn does not count.
        """
        lefts = (_seconds_left(one, 0.0 if one is self else one.wrap_up_share) for one in self._chain())
        return min((left for left in lefts if left is not None), default=None)

    def wrap_up_due(self) -> LimitReached | None:
        """The limit, of rounds or minutes, of which only what is kept back is left; None if there is more."""
        share, limits = self.wrap_up_share, self.limits
        if not share or not self.rounds:
            return None
        if limits.rounds is not None and self.rounds >= limits.rounds - 1:
            return LimitReached("rounds", f"{self.rounds} of {limits.rounds} rounds are used")
        if _seconds_left(self, share) == 0.0:
            return LimitReached("minutes", f"{1.0 - share:.0%} of {limits.minutes:g} minutes are over")
        return None

    def exceeded(self) -> LimitReached | None:
        """The first limit that leaves no room for another request, however small."""
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
        """The limit of minutes, as an event."""
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
    """The cap of one budget under which an amount does not fit, if this share of it is kept back, or at least so much."""
    if (cap := budget.limits.tokens) is not None:
        kept = max(cap * share, least.tokens)
        left = cap - budget.usage.total_tokens - budget.uncertain_tokens - sum(one.tokens for one in reserved)
        if amount.tokens > left - kept:
            return _no_room("tokens", f"{amount.tokens:,}", f"{left:,} of {cap:,} tokens", kept)
    if (most := budget.limits.usd) is not None:
        if amount.usd is None or budget.usd is None:
            return LimitReached("usd", f"what a request costs is not known, so ${most:.2f} cannot be kept")
        back = max(most * share, least.usd or 0.0)
        rest = most - budget.usd - sum(one.usd or 0.0 for one in reserved)
        if not amount.usd <= rest - back:
            return _no_room("usd", f"${amount.usd:.4f}", f"${rest:.4f} of ${most:.2f}", back)
    return None


def _no_room(limit: str, needed: str, left: str, kept: float) -> LimitReached:
    also = ", a part of it kept back for the last turn" if kept else ""
    return LimitReached(limit, f"the next request may take {needed}, and {left} are left{also}")


def check_price(budget: Budget, price: ReplyPrice, model: str) -> None:
    """Refuse a model whose price is unknown where a cap in USD holds, because the cap could not be kept.

    Raises:
        ConfigurationError: it is so.
    """
    if budget.has_usd_cap and price(Usage(input_tokens=1_000, output_tokens=1_000)) is None:
        raise ConfigurationError(
            f"the cap in USD cannot be kept: the price of {model} is unknown; set a limit of tokens instead"
        )


MIN_REPLY_TOKENS = 1_024
"""A request whose reply could not even be this long is not worth sending."""

DEFAULT_REPLY_TOKENS = 32_000
"""The longest reply where neither `max_output_tokens` nor the model's own limit is configured: an assumption."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a request may need: its input, and the longest reply that may come."""

    input_tokens: int
    reply_tokens: int
    price: ReplyPrice

    @property
    def least_reply(self) -> int:
        """The shortest limit of a reply with which the request is still worth sending."""
        return min(self.reply_tokens, MIN_REPLY_TOKENS)

    def usd(self, reply_tokens: int) -> float | None:
        """The price of the input, nothing of it cached, and of so long a reply; None if it is unknown.

        To write the input into the vendor's cache may cost more than to read it, so the dearer one counts.
        """
        size = self.input_tokens
        plain = self.price(Usage(size, reply_tokens))
        written = self.price(Usage(size, reply_tokens, cache_write_tokens=size))
        if plain is None or written is None:
            return plain
        return max(plain, written)

    def then(self) -> Need:
        """The shortest request that could come after this one."""
        return Need(self.input_tokens + self.least_reply, self.least_reply, self.price)


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
    """An attempt failed, and the budget has no room to ask again. This error does not leave the session."""


@dataclass(frozen=True, slots=True)
class SidePayments:
    """Pays for requests beside the conversation out of a session's budget; see `payments.Payer`."""

    budget: Budget
    emit: Emit

    @contextmanager
    def pay(self, model: str, most_tokens: int, price: ReplyPrice) -> Iterator[Callable[[Usage], None]]:
        """Set aside what a request may take; what it took is counted as a reply's is, and told."""
        room = reserve(self.budget, Need(most_tokens, 0, price))
        if isinstance(room, Shortage):
            raise ModelError(f"the budget has no room for a request to {model}: {room.limit.detail}")

        def took(usage: Usage) -> None:
            usd = price(usage)
            room.settle(usage, usd)
            told = ReplyReceived(Message.assistant(""), FinishReason.STOP, usage, usd, model)
            self.emit(SubagentEvent(EMBEDDING_AGENT, told))

        with room:
            room.is_sent = True
            yield took


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request may not go out. `passes`: it would fit if others, whose requests run, needed less."""

    limit: LimitReached
    passes: bool


@dataclass(slots=True, eq=False)
class Reservation:
    """The worst case of one request, set aside under every cap until the request is over.

    `with reservation:` settles it however the request ends. One that was sent and neither answered nor turned away
    may have been worked on and will be billed, so it costs the worst case of its input and what came in of its
    reply. Where nothing came in, it costs the longest reply: a provider may make one before it sends any of it.

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
    _reserved: Amount | None = None
    _received_bytes: int = 0

    @property
    def is_lowered(self) -> bool:
        """Whether the reply must be shorter than it might have been."""
        return self.reply_tokens < self.need.reply_tokens

    @property
    def worst(self) -> Amount:
        """The most that the request may take, priced also where no cap on money holds."""
        return Amount(self.need.input_tokens + self.reply_tokens, self.need.usd(self.reply_tokens))

    def reserve(self) -> None:
        """Set the worst case aside."""
        self._reserved, _last = _amounts(self.budget, self.need, self.reply_tokens)
        self.budget.reserve(self._reserved)

    def received(self, text: str) -> None:
        """A piece of the reply came in."""
        self._received_bytes += len(text.encode("utf-8", "surrogatepass"))

    def failed(self, error: ModelError | None = None) -> Amount | None:
        """An attempt failed. What it is counted with, as it may be billed; None if it costs nothing.

        Args:
            error: why it failed; None where its stream broke in the middle.
        """
        return self._spend_uncertain(error) if error is None or self._may_be_billed(error) else None

    def renew(self, need: Need | None = None) -> None:
        """Set the worst case aside for the next attempt, in the place of that for the last one.

        Args:
            need: that of another model, if another one is asked.

        Raises:
            NoRoomError: it does not fit.
        """
        self._release()
        self.need = need or self.need
        amount, last = _amounts(self.budget, self.need, self.reply_tokens)
        if limit := self.budget.limit_for(amount, last, wrap_up=self.wrap_up):
            raise NoRoomError(limit.detail)
        self.reserve()

    def _may_be_billed(self, error: BaseException | None) -> bool:
        if self._received_bytes:
            return True
        status = error.status if isinstance(error, ModelError) else None
        if status in _REDIRECTS:
            return False
        return status in _GAVE_UP or not isinstance(error, _COST_NOTHING)

    def settle(self, usage: Usage, usd: float | None, *, is_known: bool = True) -> None:
        """The reply is in, and this is what it really cost.

        Args:
            is_known: False where the provider's count got lost: it may have cost as much as the worst case.
        """
        self._release()
        self.budget.spend(usage, usd)
        if not is_known:
            worst = self.worst
            more = None if usd is None or worst.usd is None else max(worst.usd - usd, 0.0)
            self.budget.spend_uncertain(Amount(max(worst.tokens - usage.total_tokens, 0), more))

    def __enter__(self) -> Self:
        """The reservation, which is set aside already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle what is not settled yet."""
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
        in_silence = (
            0 if isinstance(error, ContentFilterError) else self.reply_tokens
        )  # it refused to make any
        made = min(self.reply_tokens, -(-self._received_bytes // BYTES_PER_TOKEN) or in_silence)
        self._received_bytes = 0
        lost = Amount(self.need.input_tokens + made, self.need.usd(made))
        self.budget.spend_uncertain(lost)
        return lost


def reserve(budget: Budget, need: Need, *, wrap_up: bool = False) -> Reservation | Shortage:
    """Set the worst case of a request aside. Use it with `with`, which releases it.

    Where the longest reply does not fit, but one of `MIN_REPLY_TOKENS` would, it is the longest that fits. As
    long as something is set aside for others that is not done, because most of it will come back.
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
        while reply - least > 1:  # what fits lies between the two, or is the lower one
            middle = (least + reply) // 2
            least, reply = (least, middle) if limit(middle) else (middle, reply)
        reply = least
    reservation = Reservation(budget, need, reply, wrap_up)
    reservation.reserve()
    return reservation


def _amounts(budget: Budget, need: Need, reply_tokens: int) -> tuple[Amount, Amount]:
    """What a request with so long a reply may take, and the shortest turn after it; priced if that matters."""
    last = need.then()
    priced = budget.has_usd_cap
    return (
        Amount(need.input_tokens + reply_tokens, need.usd(reply_tokens) if priced else None),
        Amount(last.input_tokens + last.reply_tokens, last.usd(last.reply_tokens) if priced else None),
    )
