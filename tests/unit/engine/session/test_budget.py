"""What fits under the caps, and what is set aside for it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    OverloadedError,
    ProviderError,
    PullwrightError,
    RateLimitError,
)
from orchestrator.core.events import LimitReached
from orchestrator.core.messages import Message, Role, ToolCall, ToolResult, Usage
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import price_usd
from orchestrator.engine.session.budget import (
    MIN_REPLY_TOKENS,
    Amount,
    Budget,
    Limits,
    Need,
    NoRoomError,
    Reservation,
    Shortage,
    reserve,
)
from orchestrator.engine.session.history import (
    History,
    InputMeter,
    Turn,
    TurnKind,
    fixed_bytes,
    message_bytes,
)
from orchestrator.engine.session.request import NextRequest
from tests.tables import table

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


@table(
    ("limits", "expected"),
    [
        (Limits(), None),
        (Limits(rounds=3), None),
        (Limits(rounds=2), "rounds"),
        (Limits(tokens=151), None),
        (Limits(tokens=150), "tokens"),
        (Limits(usd=0.51), None),
        (Limits(usd=0.5), "usd"),
        (Limits(minutes=1.1), None),
        (Limits(minutes=1), "minutes"),
    ],
)
def test_a_budget_ends_at_its_limit_and_not_before(limits: Limits, expected: str | None) -> None:
    clock = ManualClock()
    budget = Budget(limits, clock)
    budget.rounds = 2
    budget.spend(Usage(input_tokens=100, output_tokens=50), 0.5)
    clock.advance(60)
    reached = budget.exceeded()
    assert (reached.limit if reached else None) == expected


def test_a_session_that_was_asked_to_wrap_up_ends_with_the_answer_and_not_before() -> None:
    budget = Budget(Limits(), ManualClock())
    budget.wrapping_up = LimitReached("tokens", "900 of 1,000 tokens are used")
    assert budget.exceeded() is None
    budget.wrapped_up = True
    assert budget.exceeded() == budget.wrapping_up


def test_one_unknown_price_makes_the_sum_unknown_for_good() -> None:
    budget = Budget(Limits(usd=1), ManualClock())
    budget.spend(Usage(1, 1), 0.2)
    budget.spend(Usage(1, 1), None)
    budget.spend(Usage(1, 1), 5.0)
    assert budget.usd is None


def test_a_subagent_stops_where_the_time_begins_that_its_parent_keeps_back() -> None:
    clock = ManualClock()
    above = Budget(Limits(minutes=10), clock, wrap_up_share=0.1)
    below = Budget(Limits(), clock, above, wrap_up_share=0.1)
    above.rounds = below.rounds = 1
    assert (above.seconds_left, below.seconds_left) == (600, 540)
    clock.advance(540)
    reached = below.exceeded()
    assert reached is not None
    assert reached.limit == "minutes"
    assert above.exceeded() is None
    assert above.wrap_up_due() is not None


@pytest.mark.parametrize(("minutes", "expected"), [(5, 300.0), (20, 600.0)])
def test_the_shortest_time_of_all_above_counts(minutes: int, expected: float) -> None:
    above = Budget(Limits(minutes=10), ManualClock())
    assert Budget(Limits(minutes=minutes), ManualClock(), above).seconds_left == expected


def test_the_last_refused_call_that_is_allowed_ends_it_and_not_one_before() -> None:
    above = Budget(Limits(denials=2), ManualClock())
    below = Budget(Limits(), ManualClock(), above)
    for expected in (None, "denials"):
        below.count_denial()
        denied = below.denied
        assert (denied.limit if denied else None) == expected
    below.restart_for_input()
    assert below.denied is not None, "what a parent counted stays"
    above.restart_for_input()
    assert below.denied is None


@table(("rounds", "expected"), [(1, None), (2, "tool_rounds")])
def test_rounds_of_tools_are_counted_from_none(rounds: int, expected: str | None) -> None:
    budget = Budget(Limits(tool_rounds=2), ManualClock())
    budget.rounds, budget.tool_rounds = 7, budget.tool_rounds + rounds
    reached = budget.exceeded()
    assert (reached.limit if reached else None) == expected


def test_a_price_that_lacks_the_caches_part_is_the_plain_one() -> None:
    def without_cache(usage: Usage) -> float | None:
        return None if usage.cache_write_tokens else price(usage)

    assert Need(1_000, REPLY, without_cache).usd(2_000) == price(Usage(1_000, 2_000))
    assert Need(1_000, REPLY, lambda _usage: None).usd(2_000) is None
    assert need(1_000).usd(2_000) == price(Usage(1_000, 2_000, cache_write_tokens=1_000))


REPLY = 4_000


def price(usage: Usage) -> float:
    """USD 1 a million read, 1.25 a million written into the cache, 5 a million of reply."""
    read = usage.input_tokens - usage.cache_write_tokens - 0.9 * usage.cached_input_tokens
    return (read + 1.25 * usage.cache_write_tokens + 5 * usage.output_tokens) / 1e6


def need(size: int, reply: int = REPLY) -> Need:
    return Need(size, reply, price)


def budget(
    parent: Budget | None = None, share: float = 0.0, *, tokens: int | None = None, usd: float | None = None
) -> Budget:
    made = Budget(Limits(tokens=tokens, usd=usd), ManualClock(), parent, share)
    made.rounds = 1
    return made


class Same:
    """Equal to an amount of as many tokens and as much money."""

    def __init__(self, tokens: int, usd: float | None) -> None:
        self.tokens, self.usd = tokens, usd

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and (other.tokens, other.usd) == (self.tokens, self.usd)

    __hash__ = object.__hash__


def held(room: Reservation | Shortage) -> Reservation:
    assert isinstance(room, Reservation)
    return room


def test_what_is_set_aside_is_there_for_nobody_else_until_it_is_settled() -> None:
    above = budget(tokens=20_000)
    first = held(reserve(budget(above), need(10_000)))
    second = reserve(budget(above), need(10_000))
    assert isinstance(second, Shortage)
    assert second.passes
    first.settle(Usage(5_000, 10), None)
    assert held(reserve(budget(above), need(10_000))).reply_tokens == REPLY


def test_what_does_not_fit_even_alone_does_not_pass() -> None:
    above = budget(tokens=20_000)
    held(reserve(budget(above), need(10_000)))
    late = reserve(budget(above), need(19_500))
    assert isinstance(late, Shortage)
    assert (late.passes, late.limit.limit) == (False, "tokens")


@table(
    ("limits", "reply"),
    [
        ({"tokens": 14_000}, REPLY),
        ({"tokens": 13_999}, REPLY - 1),
        ({"tokens": 11_024}, MIN_REPLY_TOKENS),
        ({"tokens": 11_023}, None),
        ({"usd": 0.0325}, REPLY),
        ({"usd": 0.0225}, 2_000),
        ({"usd": 0.01762}, MIN_REPLY_TOKENS),
        ({"usd": 0.0176}, None),
    ],
)
def test_the_reply_is_as_long_as_the_caps_allow(limits: dict[str, Any], reply: int | None) -> None:
    """10,000 tokens written into the cache cost USD 0.0125; 1,000 of a reply 0.005."""
    room = reserve(budget(**limits), need(10_000))
    assert (room.reply_tokens if isinstance(room, Reservation) else None) == reply


def test_a_short_reply_that_the_host_wants_is_no_reason_to_refuse() -> None:
    assert held(reserve(budget(tokens=10_100), need(10_000, 100))).reply_tokens == 100


@table(("used", "fits"), [(70_000, True), (76_000, False), (90_000, False)])
def test_a_share_is_kept_back_for_the_wrap_up_turn(used: int, *, fits: bool) -> None:
    one = budget(tokens=100_000, share=0.2)
    one.spend(Usage(used), 0.0)
    assert isinstance(reserve(one, need(3_000, 1_500)), Reservation) is fits
    one = budget(tokens=100_000, share=0.2)
    one.spend(Usage(used), 0.0)
    held(reserve(one, need(3_000, 1_500), wrap_up=True))


def test_more_than_the_share_is_kept_back_where_the_wrap_up_turn_needs_more() -> None:
    one = budget(tokens=100_000, share=0.1)
    one.spend(Usage(30_000), 0.0)
    assert isinstance(reserve(one, need(40_000)), Shortage), "two such requests have no room"
    held(reserve(one, need(40_000), wrap_up=True))


def test_room_is_left_for_the_shortest_turn_that_may_follow() -> None:
    """A request of 3,000 tokens, a reply of 1,500; then 4,024 tokens are read, and a reply of 1,024 is kept back."""
    for tokens, fits in ((9_548, True), (9_547, False)):
        room = reserve(budget(tokens=tokens, share=0.000_1), Need(3_000, 1_500, price))
        assert (isinstance(room, Reservation) and room.reply_tokens == 1_500) is fits


def test_the_spending_of_a_conversation_that_is_continued_counts() -> None:
    one, other = budget(usd=1.0), budget(usd=1.0)
    other.rounds, other.uncertain_usd, other.uncertain_tokens = 4, 0.25, 70
    other.spend(Usage(100, 20), 0.5)
    one.spend(Usage(10, 2), 0.125)
    one.add_spending(other)
    assert (one.rounds, one.usage, one.usd) == (5, Usage(110, 22), 0.625)
    assert (one.uncertain_usd, one.uncertain_tokens) == (0.25, 70)
    one.add_spending(Budget(Limits(), ManualClock(), usd=None))
    assert one.usd is None


def test_before_the_first_round_nothing_is_kept_back() -> None:
    one = budget(tokens=10_000, share=0.5)
    one.rounds = 0
    held(reserve(one, need(8_000)))


def test_a_subagents_wrap_up_turn_does_not_take_what_its_parent_keeps_back() -> None:
    above = budget(tokens=10_000, share=0.5)
    assert isinstance(reserve(budget(above, 0.5), need(6_000), wrap_up=True), Shortage)


def test_a_price_that_is_not_known_fits_under_no_cap() -> None:
    room = reserve(budget(usd=1_000.0), Need(1, 1, lambda _usage: None))
    assert isinstance(room, Shortage)
    assert room.limit.limit == "usd"
    one = budget(usd=1_000.0)
    one.spend(Usage(1, 1), None)
    assert isinstance(reserve(one, need(1)), Shortage)


@table(
    ("error", "sent", "heard", "lost"),
    [
        (ConnectionFailedError("cut, and what was made in silence nobody knows"), True, "", 10_000 + REPLY),
        (ConnectionFailedError("cut"), True, "x" * 200, 10_100),
        (ConnectionFailedError("cut"), True, "x" * 100_000, 10_000 + REPLY),
        (asyncio.CancelledError(), True, "", 10_000 + REPLY),
        (asyncio.CancelledError(), True, "x" * 200, 10_100),
        (asyncio.CancelledError(), False, "", 0),
        (RateLimitError("slow down"), True, "", 0),
        (ContextLengthError("long"), True, "", 0),
        (ContentFilterError("refused before a reply was made"), True, "", 10_000),
        (ContentFilterError("refused in the middle of it"), True, "x" * 200, 10_100),
        (ProviderError("a redirect", status=307), True, "", 0),
        (ProviderError("whatever it is", status=418), True, "", 10_000 + REPLY),
        (ConnectionFailedError("gave up", status=408), True, "", 10_000 + REPLY),
        (OverloadedError("busy"), True, "", 0),
        (OverloadedError("busy", status=503), True, "", 0),
        (OverloadedError("the gateway gave up, the model works on", status=504), True, "", 10_000 + REPLY),
        (OverloadedError("another gateway", status=524), True, "", 10_000 + REPLY),
        (OverloadedError("busy, in mid-stream"), True, "x" * 200, 10_100),
    ],
)
def test_a_request_without_a_reply_costs_its_worst_case_unless_it_was_turned_away(
    error: BaseException,
    sent: bool,  # noqa: FBT001  parametrised
    heard: str,
    lost: int,
) -> None:
    above = budget(usd=1.0)
    one = budget(above)
    room = held(reserve(one, need(10_000)))
    room.is_sent = sent
    room.received(heard)
    with pytest.raises(type(error)), room:
        raise error
    expected = need(10_000).usd(lost - 10_000) if lost else 0.0
    for each in (one, above):
        assert each.uncertain_tokens == lost
        assert each.uncertain_usd == each.usd == expected
        assert each.usage == Usage()
        assert not each.has_reservations


def test_a_stream_that_breaks_is_paid_twice_and_not_asked_again_without_room() -> None:
    one = budget(tokens=30_000)
    room = held(reserve(one, need(10_000)))
    room.is_sent = True
    room.received("x" * 200)
    assert room.failed() == Same(10_100, need(10_000).usd(100))
    room.renew()
    assert one.uncertain_tokens == 10_100
    room.received("x" * 200)
    with room:
        room.failed()
        with pytest.raises(NoRoomError):
            room.renew()
    assert one.uncertain_tokens == 20_200, "what was not sent again is not counted again"
    assert not one.has_reservations


def test_an_attempt_that_was_turned_away_costs_nothing() -> None:
    one = budget(tokens=30_000)
    with held(reserve(one, need(10_000))) as room:
        room.is_sent = True
        assert room.failed(RateLimitError("slow down")) is None
        room.settle(Usage(10_000, 5), None)
    assert one.uncertain_tokens == 0


def test_another_model_is_not_asked_with_what_the_first_one_may_read() -> None:
    one = budget(tokens=30_000)
    with held(reserve(one, need(10_000))) as room:
        room.renew(need(20_000))
        assert room.worst.tokens == 20_000 + REPLY
        with pytest.raises(NoRoomError):
            room.renew(need(30_000))
    assert not one.has_reservations
    assert one.uncertain_tokens == 0, "the request did not go out"


def test_a_reply_whose_count_got_lost_may_have_cost_the_worst_case() -> None:
    one = budget(usd=1.0)
    with held(reserve(one, need(10_000))) as room:
        room.settle(Usage(9_000, 10), price(Usage(9_000, 10)), is_known=False)
    assert one.usage.total_tokens + one.uncertain_tokens == 10_000 + REPLY
    assert one.usd == pytest.approx(need(10_000).usd(REPLY))
    assert one.uncertain_usd == pytest.approx((one.usd or 0) - price(Usage(9_000, 10)))


def test_the_count_of_the_provider_stands_for_all_that_it_has_counted() -> None:
    meter = InputMeter()
    meter.add(Message.user("x" * 1_000_000))
    assert 500_000 <= meter.tokens("m", 1_000) <= 501_000
    meter.record_count(Usage(250_000, 50), "m", "m-2026", 1_000)
    assert meter.tokens("m", 1_000) == 250_050
    meter.add(Message.user("x" * 2_000))
    assert 251_050 <= meter.tokens("m", 1_000) <= 251_150
    assert meter.tokens("another", 1_000) > 500_000
    meter.record_count(Usage(0, 0), "m", "m-2026", 1_000)
    assert meter.tokens("m", 1_000) > 250_050


def test_a_name_that_the_vendor_gives_back_is_not_the_one_that_is_asked() -> None:
    """A count under an alias holds for what is asked; the alias itself, asked by name, is another model."""
    meter = InputMeter()
    meter.add(Message.user("x" * 100_000))
    meter.record_count(Usage(25_000, 0), "openai:gpt", "gpt-2026-01-01", 0)
    assert meter.tokens("openai:gpt", 0) == 25_000
    assert meter.tokens("gpt-2026-01-01", 0) >= 50_000


def test_of_several_that_answer_under_one_name_the_one_that_counts_most_decides() -> None:
    meter = InputMeter()
    meter.add(Message.user("x" * 100_000))
    meter.record_count(Usage(40_000, 0), "router", "counts much", 0)
    meter.add(Message.user("x" * 1_000))
    meter.record_count(Usage(20_000, 0), "router", "counts little", 0)
    assert meter.tokens("router", 0) >= 40_500, "the next reply may be by the first one again"
    meter.record_count(Usage(41_000, 0), "router", "counts much", 0)
    assert meter.tokens("router", 0) == 41_000


def test_names_without_end_do_not_fill_the_memory() -> None:
    meter = InputMeter()
    for number in range(1_000):
        meter.record_count(Usage(10, 0), "router", f"model {number}", 0)
    assert len(meter._counts) < 20


def test_a_count_that_no_text_has_is_not_believed() -> None:
    """Some servers count only what was new to their cache; without the cache they count all again."""
    meter = InputMeter()
    meter.add(Message.user("x" * 100_000))
    meter.record_count(Usage(40, 5), "m", "m", 0)
    assert meter.tokens("m", 0) >= 50_000
    assert not meter.has_count_of("m")


def test_dense_text_is_estimated_by_what_the_provider_counted() -> None:
    meter = InputMeter()
    meter.add(Message.user("x" * 10_000))
    meter.record_count(Usage(10_000, 0), "m", "m", 0)
    meter.add(Message.user("x" * 10_000))
    assert meter.tokens("m", 0) >= 19_900


def test_characters_beyond_ascii_count_by_their_bytes_and_half_characters_do_no_harm() -> None:
    plain, wide, half = InputMeter(), InputMeter(), InputMeter()
    plain.add(Message.user("a" * 100))
    wide.add(Message.user("\u6f22" * 100))
    half.add(Message(Role.TOOL, (ToolResult("c", "t", "\udc80" * 100),)))
    assert wide.tokens("m", 0) - plain.tokens("m", 0) == 100
    assert half.tokens("m", 0) > plain.tokens("m", 0)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.sampled_from('ab\n"\u6f22'))),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
            max_leaves=8,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_arguments_count_at_least_as_their_json(arguments: dict[str, object]) -> None:
    size = message_bytes(Message(Role.ASSISTANT, (ToolCall("c", "t", arguments),)))
    assert size >= len(json.dumps(arguments, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def test_arguments_may_be_nested_deeper_than_python_can_recurse() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"a": deep}
    assert message_bytes(Message(Role.ASSISTANT, (ToolCall("c", "t", deep),))) > 100_000
    while deep:  # Python itself recurses to let go of it
        deep = deep.pop("a")


def test_what_was_counted_before_the_conversation_was_cut_does_not_count_after_it() -> None:
    history = History()
    at = ManualClock().now()
    history.add(Turn(TurnKind.USER, Message.user("go"), at))
    for _ in range(6):
        history.add(Turn(TurnKind.ASSISTANT, Message.assistant("x" * 1_000), at))
    history.meter.record_count(Usage(100_000, 1), "m", "m", 0)
    assert history.prune()
    assert history.meter.tokens("m", 0) < 10_000
    assert fixed_bytes(Request("s" * 500, ())) >= 500


_ENDS: tuple[Callable[[], PullwrightError] | None, ...] = (
    None,
    None,
    lambda: ConnectionFailedError("cut"),
    lambda: RateLimitError("slow down"),
)


async def _session(one: Budget, dice: random.Random, totals: list[Budget], unpriced: list[float]) -> None:
    """Ask until nothing fits; every reply and every failure costs at most what was set aside."""
    for _ in range(40):
        wish = need(dice.randrange(1, 6_000), dice.choice([200, 2_000, 20_000]))
        room = reserve(one, wish, wrap_up=dice.random() < 0.2)
        if isinstance(room, Shortage):
            if not room.passes:
                return
            await one.wait_for_release()
            continue
        one.rounds += 1
        end = dice.choice(_ENDS)
        try:
            with room:
                room.is_sent = True
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                if end:
                    # What the provider bills, although no reply came: any length of it may have been made.
                    made = dice.randrange(room.reply_tokens + 1)
                    unpriced.append(price(Usage(wish.input_tokens, made)) if end is _ENDS[2] else 0.0)
                    raise end()
                size = dice.randrange(wish.input_tokens + 1)
                usage = Usage(
                    size, dice.randrange(room.reply_tokens + 1), cache_write_tokens=dice.choice([0, size])
                )
                room.settle(usage, price(usage))
                unpriced.append(price(usage))
        except PullwrightError:
            pass
        for each in totals:
            _within(each)


def _within(one: Budget) -> None:
    assert one.usd is not None
    if one.limits.usd is not None:
        assert one.usd <= one.limits.usd + 1e-9
    if one.limits.tokens is not None:
        assert one.usage.total_tokens + one.uncertain_tokens <= one.limits.tokens


@given(
    dice=st.randoms(),
    usd=st.one_of(st.none(), st.floats(0, 0.2)),
    tokens=st.one_of(st.none(), st.integers(0, 90_000)),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    sessions=st.sampled_from([1, 5]),
)
def test_what_was_spent_never_exceeds_a_cap(
    dice: random.Random, usd: float | None, tokens: int | None, share: float, sessions: int
) -> None:
    above = Budget(Limits(usd=usd, tokens=tokens), ManualClock(), None, share)
    below = [Budget(Limits(), ManualClock(), above, share) for _ in range(sessions)]
    billed: list[float] = []

    async def all_at_once() -> None:
        async with asyncio.timeout(30):  # nobody waits for ever
            await asyncio.gather(*(_session(one, dice, [above, *below], billed) for one in [above, *below]))

    asyncio.run(all_at_once())
    assert not above.has_reservations
    assert above.usd is not None
    assert sum(billed) <= above.usd + 1e-9, "what was billed is counted"


@pytest.mark.parametrize(
    ("options", "is_asked"),
    [
        ({}, False),
        ({"anthropic": {"cache_control": {"type": "ephemeral"}}}, False),
        ({"anthropic": {"cache_control": {"type": "ephemeral", "ttl": "5m"}}}, False),
        ({"anthropic": {"cache_control": {"type": "ephemeral", "ttl": "1h"}}}, True),
        ({"openai": {"extra": [{"cache_control": {"ttl": "1h"}}]}}, True),
    ],
)
def test_a_cache_write_for_an_hour_is_reserved_at_its_price(options: Any, is_asked: bool) -> None:  # noqa: FBT001
    def listed(usage: Usage) -> float | None:
        return price_usd("https://api.anthropic.com", "claude-sonnet-4-5", usage)

    request = NextRequest(
        cast("Any", Named()),
        cast("Any", None),
        (),
        Request("", [], provider_options=options),
        False,
        listed,
        4_000,
    )
    needed = request.need(History())
    size = needed.input_tokens
    most = listed(Usage(size, 0, cache_write_tokens=size, hour_write_tokens=size if is_asked else 0))
    assert most is not None
    assert needed.usd(0) == pytest.approx(most)
    assert needed.usd(0) == pytest.approx(size * (6.0 if is_asked else 3.75) / 1e6)
    assert needed.shortest_next().keeps_an_hour == is_asked


class Named:
    """A model of which only the name counts."""

    name = "anthropic:claude-sonnet-4-5"
