"""Caps on a whole session: what a request needs is set aside, and a part is kept back for one last turn."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ContextLengthError,
    NotConnectedError,
    OverloadedError,
    RateLimitError,
)
from orchestrator.core.events import LimitReached, ReplyReceived, TurnStarted, WaitStarted, Warned
from orchestrator.core.messages import ToolDefinition, ToolResult, Usage
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.models.base import Completed, Response, Restarted, TextPiece, Waiting
from orchestrator.engine.models.fallback import FallbackModel, PricedModel
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.transport import HttpModel
from orchestrator.engine.session.budget import MIN_REPLY_TOKENS
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.tools.base import Ends, Order, Tool, ToolContext, ToolOutcome
from tests.doubles.model_server import Ending, ModelServer, Step, fail, reply, reset
from tests.tables import table
from tests.unit.engine.session.stage import ScriptedModel, events_of, says, session_in, session_with, tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping
    from pathlib import Path

    from orchestrator.engine.models.base import Request, StreamEvent
    from orchestrator.engine.session.event_bus import SessionEvent
    from tests.doubles.model_server import ScriptItem
    from tests.unit.engine.session.stage import Step as Played

LOOK = ("glob", {"pattern": "*"})
LAST = "This is your last turn"


def price(usage: Usage) -> float:
    return (usage.input_tokens + 5 * usage.output_tokens) / 1e6


def host(**fields: Any) -> Host:
    return Host(price=price, system=lambda _shown: "You are tested.", **fields)


def dear(*calls: tuple[str, Mapping[str, Any]], used: Usage | None = None) -> Response:
    """A reply that cost as much, by default 4,000 tokens of input and 1,000 of its own."""
    return replace(says("", *calls), usage=used or Usage(4_000, 1_000))


def of(events: Iterable[SessionEvent], kind: type) -> list[Any]:
    return [event.event for event in events if isinstance(event.event, kind)]


def told(request: Request) -> str:
    return request.messages[-1].text


async def _finish(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
    return Ends("finish", str(arguments["reason"]))


FINISH = Tool(
    ToolDefinition("finish", "Ends.", {"type": "object", "properties": {"reason": {"type": "string"}}}),
    _finish,
    order=Order.LAST,
)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_tokens": 30_000}, "tokens"),
        ({"max_usd": 0.05}, "usd"),
        ({"max_turns": 4}, "rounds"),
    ],
)
async def test_near_the_end_of_a_budget_the_model_gets_one_turn_to_wrap_up(
    tmp_path: Path, config: dict[str, Any], limit: str
) -> None:
    steps = [dear(LOOK) for _ in range(9)]
    settings = SessionConfig(**config, reply_tokens=2_000, stream=False)
    async with session_in(tmp_path, *steps, config=settings, host=host()) as (session, model):
        events = await events_of(session, "Go")
        end = await session.run("Go on")
    assert (end.kind, end.limit) == ("limit", limit)
    words = [told(request).startswith(LAST) for request in model.requests]
    assert words == [False] * (len(words) - 1) + [True]
    assert len(words) == {"tokens": 5, "usd": 5, "rounds": 4}[limit]
    assert [event.limit for event in of(events, LimitReached)] == [limit]
    assert [event.message.startswith("nearly at a limit") for event in of(events, Warned)] == [True]
    assert session.budget.usage.total_tokens <= (settings.max_tokens or 10**9)
    assert session.budget.wrapping_up is not None


async def test_its_calls_run_and_may_end_the_session(tmp_path: Path) -> None:
    steps = [dear(LOOK), dear(LOOK), dear(("finish", {"reason": "half of it is done"}))]
    config = SessionConfig(max_turns=3)
    async with session_in(tmp_path, *steps, config=config, tools=[FINISH]) as (session, model):
        events = await events_of(session, "Go")
        assert (await session.run("And now?")).kind == "limit"
    assert "End with `finish`" in told(model.requests[2])
    assert "create_pull_request" not in told(model.requests[2])
    assert of(events, LimitReached) == []


async def test_it_is_told_to_propose_what_can_be_proposed(tmp_path: Path) -> None:
    steps = [says("", LOOK), says("Done.")]
    tools = [tool("create_pull_request", lambda _: "")]
    async with session_in(tmp_path, *steps, config=SessionConfig(max_turns=2), tools=tools) as (
        session,
        model,
    ):
        assert (await session.run("Go")).text == "Done.", "words end the work as ever"
    assert "call `create_pull_request` now" in told(model.requests[1])


async def test_the_words_are_the_hosts_if_it_has_some(tmp_path: Path) -> None:
    steps = [says("", LOOK), says("Done.")]
    config = SessionConfig(max_turns=2)
    async with session_in(tmp_path, *steps, config=config, host=host(wrap_up="Tidy up!")) as (session, model):
        await session.run("Go")
    assert told(model.requests[1]) == "Tidy up!"


async def test_a_share_of_zero_asks_for_nothing(tmp_path: Path) -> None:
    steps = [dear(LOOK) for _ in range(9)]
    config = SessionConfig(max_tokens=30_000, reply_tokens=2_000, wrap_up_share=0)
    async with session_in(tmp_path, *steps, config=config) as (session, model):
        assert (await session.run("Go")).limit == "tokens"
    assert len(model.requests) == 5
    assert not any(told(request).startswith(LAST) for request in model.requests)


async def test_a_single_round_is_no_wrap_up_turn(tmp_path: Path) -> None:
    config = SessionConfig(max_turns=1)
    async with session_in(tmp_path, says("", LOOK), config=config) as (session, model):
        end = await session.run("Go")
    assert (end.limit, end.text) == ("rounds", "1 of 1 rounds are used")
    assert told(model.requests[0]) == "Go"


@pytest.mark.parametrize("share", [0.0, 0.1])
async def test_a_cap_that_the_first_request_does_not_fit_under_ends_without_a_request(
    tmp_path: Path, share: float
) -> None:
    config = SessionConfig(max_tokens=MIN_REPLY_TOKENS, wrap_up_share=share)
    async with session_in(tmp_path, says("x"), config=config) as (session, model):
        end = await session.run("Go")
    assert end.limit == "tokens"
    assert "1,024 of 1,024 tokens are left" in end.text
    assert model.requests == []


async def test_a_follow_up_is_not_taken_where_nothing_fits_any_more(tmp_path: Path) -> None:
    config = SessionConfig(max_tokens=MIN_REPLY_TOKENS)
    async with session_in(tmp_path, says("x"), config=config) as (session, _model):
        session.follow_up("More")
        events = await events_of(session, "Go")
    assert len(of(events, LimitReached)) == 1


async def test_a_reply_is_shortened_to_what_fits_and_nothing_else_of_the_request_changes(
    tmp_path: Path,
) -> None:
    steps = [dear(LOOK), dear(LOOK), says("Done.")]
    config = SessionConfig(max_tokens=30_000, wrap_up_share=0)
    async with session_in(tmp_path, *steps, config=config) as (session, model):
        await session.run("Go")
    longest = [request.max_output_tokens for request in model.requests]
    assert longest == sorted((each for each in longest if each), reverse=True)
    assert all(MIN_REPLY_TOKENS <= each < 30_000 for each in longest if each)
    first, second, third = model.requests
    for later in (second, third):
        assert replace(later, messages=(), max_output_tokens=None) == replace(
            first, messages=(), max_output_tokens=None
        )
    assert list(third.messages)[: len(second.messages)] == list(second.messages)


async def test_a_server_that_knows_of_no_limit_is_expected_to_do_it_again(tmp_path: Path) -> None:
    steps = [dear(LOOK, used=Usage(4_000, 9_000)), says("Done.")]
    config = SessionConfig(max_output_tokens=2_000, max_tokens=100_000)
    async with session_in(tmp_path, *steps, config=config, host=host()) as (session, model):
        turns = of(await events_of(session, "Go"), TurnStarted)
    assert turns[0].tokens < 4_000 + 9_000, "it was not expected to"
    assert turns[1].tokens > 4_000 + 9_000 + 9_000
    assert [request.max_output_tokens for request in model.requests] == [2_000, 2_000]


@pytest.mark.parametrize(("left", "asked"), [(40_000, 2_000), (30_000, 2_000), (16_000, None)])
async def test_it_is_never_asked_for_more_than_the_host_wants(
    tmp_path: Path, left: int, asked: int | None
) -> None:
    steps = [dear(LOOK, used=Usage(4_000, 9_000)), says("Done.")]
    config = SessionConfig(max_output_tokens=2_000, max_tokens=left, wrap_up_share=0)
    async with session_in(tmp_path, *steps, config=config, host=host()) as (session, model):
        await session.run("Go")
    assert [request.max_output_tokens for request in model.requests[1:]] == ([asked] if asked else [])


async def test_without_a_cap_the_request_is_as_the_host_wants_it(tmp_path: Path) -> None:
    async with session_in(tmp_path, says("Done."), config=SessionConfig(reply_tokens=7)) as (session, model):
        await session.run("Go")
    assert model.requests[0].max_output_tokens is None


async def test_the_wrap_up_begins_with_the_last_tenth_of_the_time_and_cuts_no_reply(tmp_path: Path) -> None:
    clock = ManualClock()

    def slow(_request: Request) -> Response:
        clock.advance(95 * 6)  # the reply was on its way when the last tenth began
        return says("", LOOK)

    steps: list[Played] = [says("", LOOK), slow, says("", LOOK), says("never")]
    config = SessionConfig(max_minutes=10)
    async with session_in(tmp_path, *steps, config=config, clock=clock) as (session, model):
        end = await session.run("Go")
    assert end.limit == "minutes"
    assert [told(request).startswith(LAST) for request in model.requests] == [False, False, True]


async def test_a_wrap_up_reply_in_bad_form_was_the_turn(tmp_path: Path) -> None:
    plan = '{"plan": "p", "tool_calls": [{"tool_name": "glob", "arguments": {"pattern": "*"}}]}'
    steps = [says(plan), says("no plan"), says(plan)]
    config = SessionConfig(max_turns=2)
    async with session_in(tmp_path, *steps, config=config, contract=JsonPlan()) as (session, model):
        assert (await session.run("Go")).limit == "rounds"
    assert len(model.requests) == 2


async def test_a_request_that_fails_counts_with_its_worst_case_and_says_so(tmp_path: Path) -> None:
    steps: list[Played] = [ConnectionFailedError("cut"), RateLimitError("slow down"), says("Done.")]
    async with session_in(tmp_path, *steps, host=host()) as (session, _model):
        for error in (ConnectionFailedError, RateLimitError):
            with pytest.raises(error):
                await session.run("Go")
        lost = session.budget.uncertain_usd
        assert session.budget.usd == lost > 0
        assert (await session.run("Go")).text == "Done."
        assert session.budget.usd == pytest.approx(lost + price(Usage(10, 5)))
        assert session.budget.uncertain_usd == lost


async def test_a_request_that_is_cancelled_counts_with_its_worst_case(tmp_path: Path) -> None:
    async with session_in(tmp_path, model=ScriptedModel([], hangs=True), host=host()) as (session, _model):
        async for event in session.submit("Go"):
            if event.kind == "assistant_text_delta":
                break
        await session.abort()
        assert session.budget.uncertain_usd == session.budget.usd
        assert session.budget.uncertain_usd > price(Usage(0, 4))


class Breaking(ScriptedModel):
    """Its streams break once, then twice, and so on, before they are whole."""

    breaks = 0

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        self.breaks += 1
        for _ in range(self.breaks):
            yield TextPiece("I begin")
            yield Restarted()
        yield Completed(await self.complete(request))


async def test_each_attempt_of_a_stream_counts_and_ends_where_the_cap_is(tmp_path: Path) -> None:
    model = Breaking([dear(LOOK) for _ in range(9)])
    config = SessionConfig(max_usd=0.06, reply_tokens=1_500)
    async with session_in(tmp_path, model=model, config=config, host=host()) as (session, _):
        end = await session.run("Go")
    assert end.limit == "usd"
    assert model.breaks > 2
    assert 0 < session.budget.uncertain_usd < (session.budget.usd or 0) <= 0.06


@asynccontextmanager
async def over_http(*script: ScriptItem) -> AsyncGenerator[tuple[HttpModel, ModelServer]]:
    """A model at a server that plays this; its waits take no time."""
    with ModelServer(list(script)) as server:
        wire = ChatWire.at(server.url, "scripted")
        yield (
            HttpModel("chat:x", wire, api_key="k", clock=ManualClock(), random=lambda: 0.0),
            server,
        )


def raw(*chunks: Mapping[str, Any], ending: Ending = Ending.PROPER) -> Step:
    """A stream of these chunks, whose connection may break after them."""
    lines = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    rest = b" " * 40_000 if ending is Ending.CUT else b"data: [DONE]\n\n"  # a cut comes half-way
    return Step(raw=b"".join([*lines, rest]), headers={"Content-Type": "text/event-stream"}, ending=ending)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def call_of(name: str, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "c", "function": {"name": name, "arguments": arguments}}]}


@pytest.mark.parametrize("stream", [True, False])
async def test_each_attempt_that_may_have_reached_the_vendor_counts(tmp_path: Path, *, stream: bool) -> None:
    """The connection breaks twice before a word is heard; what was made until then nobody knows."""
    config = SessionConfig(reply_tokens=1_500, stream=stream)
    async with (
        over_http(reset(), reset(), fail(429), reply("Done.")) as (model, server),
        session_with(tmp_path, model, config=config, host=host()) as session,
    ):
        events = await events_of(session, "Go")
        assert len(server.requests) == 4
        budget = session.budget
    [turn], waits = of(events, TurnStarted), of(events, WaitStarted)
    assert budget.uncertain_tokens == 2 * turn.tokens > 2 * 1_500
    assert budget.uncertain_usd == pytest.approx(2 * turn.usd)
    assert [wait.tokens for wait in waits] == [turn.tokens, turn.tokens, None]
    assert [wait.usd for wait in waits] == [turn.usd, turn.usd, None]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_attempt_that_does_not_fit_is_not_made(tmp_path: Path, *, stream: bool) -> None:
    config = SessionConfig(reply_tokens=8_000, stream=stream, max_tokens=20_000, wrap_up_share=0)
    async with (
        over_http(*[reset()] * 9) as (model, server),
        session_with(tmp_path, model, config=config, host=host()) as session,
    ):
        events = await events_of(session, "Go")
        assert [event.limit for event in of(events, LimitReached)] == ["tokens"]
        assert len(server.requests) == 2, "the second with a shorter reply, and no third"
        assert 8_000 < session.budget.uncertain_tokens <= 20_000
        assert not session.budget.has_reservations
    turns, waits = of(events, TurnStarted), of(events, WaitStarted)
    assert [turn.tokens for turn in turns] == [wait.tokens for wait in waits]
    assert sum(wait.tokens for wait in waits) == session.budget.uncertain_tokens


async def test_the_arguments_of_a_call_are_heard(tmp_path: Path) -> None:
    """The stream breaks in the middle of a file that is being written: so much of the reply was made."""
    config = SessionConfig(reply_tokens=60_000)
    begun = chunk(content="I write it.", **call_of("write_file", '{"content": "' + "x" * 8_000))
    half = raw(begun, ending=Ending.CUT)
    async with (
        over_http(half, reply("Done.")) as (model, _server),
        session_with(tmp_path, model, config=config, host=host()) as session,
    ):
        [turn] = of(await events_of(session, "Go"), TurnStarted)
        said = session.budget.uncertain_tokens - (turn.tokens - 60_000)
    assert 4_000 < said < 4_100


def played(name: str, *steps: Played) -> PricedModel:
    return PricedModel(ScriptedModel(list(steps), name), price)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_broke_off_in_silence_before_the_next_was_asked_counts(
    tmp_path: Path, *, stream: bool
) -> None:
    first, second = played("a", ConnectionFailedError("cut")), played("b", says("Done."), says("Done."))
    model = FallbackModel([first, second], clock=ManualClock())
    config = SessionConfig(reply_tokens=1_500, stream=stream)
    async with session_with(tmp_path, model, config=config, host=host()) as session:
        events = await events_of(session, "Go")
        [turn], [lost] = of(events, TurnStarted), of(events, WaitStarted)
        assert session.budget.uncertain_tokens == lost.tokens == turn.tokens
        await session.run("Go on")
        assert session.budget.uncertain_tokens == lost.tokens, "it is not asked again, and not counted again"


async def test_a_model_that_turned_the_request_away_costs_nothing(tmp_path: Path) -> None:
    model = FallbackModel(
        [played("a", RateLimitError("slow down")), played("b", says("Done."))], clock=ManualClock()
    )
    async with session_with(tmp_path, model, host=host()) as session:
        events = await events_of(session, "Go")
        assert session.budget.uncertain_tokens == 0
    assert of(events, WaitStarted) == []


@pytest.mark.parametrize("stream", [True, False])
async def test_the_next_model_is_not_asked_where_it_does_not_fit_any_more(
    tmp_path: Path, *, stream: bool
) -> None:
    first, second = played("a", ConnectionFailedError("cut")), played("b", says("Done."))
    model = FallbackModel([first, second], clock=ManualClock())
    config = SessionConfig(reply_tokens=3_000, max_tokens=6_200, wrap_up_share=0, stream=stream)
    async with session_with(tmp_path, model, config=config, host=host()) as session:
        assert (await session.run("Go")).limit == "tokens"
    assert isinstance(second.model, ScriptedModel)
    assert second.model.requests == []
    assert session.budget.uncertain_tokens <= 6_200


async def test_what_the_first_model_counted_says_nothing_of_the_next(tmp_path: Path) -> None:
    """After the first has counted the conversation, the second answers: it may count the same words higher."""
    few = Usage(1_000, 10)
    first = played("a", replace(says("", LOOK), usage=few), RateLimitError("x"))
    second = played("b", replace(says("", LOOK), usage=few), says("Done."))
    model = FallbackModel([first, second], clock=ManualClock())
    tools = [tool("big", lambda _: "")]
    long = "x" * 20_000
    config = SessionConfig(reply_tokens=1_500, stream=True)
    async with session_with(tmp_path, model, config=config, host=host(), tools=tools) as session:
        held: list[int] = []
        session.listen(lambda _event: held.append(max([0, *(one.tokens for one in session.budget.reserved)])))
        events = await events_of(session, long)
    turns = of(events, TurnStarted)
    assert turns[0].tokens > 10_000 + 1_500, "nobody has counted"
    assert turns[1].tokens < 3_000, "the first one has"
    assert max(held[held.index(turns[1].tokens) :]) > 10_000 + 1_500, "the second one has not"
    assert turns[2].tokens < 3_000, "it has now, and is asked first"


async def test_the_one_that_is_asked_first_now_is_the_one_whose_count_holds(tmp_path: Path) -> None:
    """The first has no quota; the second has counted, and cannot take the request; the third never counted."""
    few = Usage(1_000, 10)
    models = [
        played("a", RateLimitError("x")),
        played("b", replace(says("", LOOK), usage=few), ContextLengthError("too long")),
        played("c", says("Done.")),
    ]
    model = FallbackModel(models, clock=ManualClock())
    config = SessionConfig(reply_tokens=1_500)
    async with session_with(tmp_path, model, config=config, host=host()) as session:
        held: list[int] = []
        session.listen(lambda _event: held.append(max([0, *(one.tokens for one in session.budget.reserved)])))
        turns = of(await events_of(session, "x" * 20_000), TurnStarted)
    assert turns[0].tokens > 10_000 + 1_500 > 3_000 > turns[1].tokens
    assert max(held[held.index(turns[1].tokens) :]) > 10_000 + 1_500


async def test_a_count_that_got_lost_is_the_worst_case(tmp_path: Path) -> None:
    """The stream breaks after the reply and before its count. The server is one that counts."""
    usage = {"prompt_tokens": 3_000, "completion_tokens": 20}
    counted = raw(chunk("tool_calls", **call_of("glob", '{"pattern": "*"}')), {"usage": usage, "choices": []})
    bare = raw(chunk("stop", content="Done."), ending=Ending.CUT)
    config = SessionConfig(reply_tokens=1_500)
    async with (
        over_http(counted, bare) as (model, _server),
        session_with(tmp_path, model, config=config, host=host()) as session,
    ):
        turns = of(await events_of(session, "Go"), TurnStarted)
        first, second = (turn.usage for turn in session.history.turns if turn.usage)
        assert first == Usage(3_000, 20)
        assert session.budget.usage == first + second
        assert session.budget.uncertain_tokens == turns[1].tokens - second.total_tokens > 1_000


class Failing(ScriptedModel):
    """Its first attempts fail before a word is shown."""

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        for error in (NotConnectedError("refused"), OverloadedError("busy"), ConnectionFailedError("cut")):
            yield Waiting(1.0, error)
        yield Completed(await self.complete(request))


async def test_an_attempt_that_broke_off_in_silence_counts_and_one_that_was_turned_away_does_not(
    tmp_path: Path,
) -> None:
    steps: list[Played] = [ConnectionFailedError("cut"), says("Done.")]
    async with session_in(tmp_path, *steps, host=host()) as (session, _):
        with pytest.raises(ConnectionFailedError):
            await session.run("Go")
        once = session.budget.uncertain_tokens
    (tmp_path / "other").mkdir()
    model = Failing([says("Done.")])
    async with session_in(tmp_path / "other", model=model, host=host()) as (session, _):
        await session.run("Go")
        assert 0 < session.budget.uncertain_tokens <= once
        assert session.budget.uncertain_usd > 0


@dataclass
class Family(ScriptedModel):
    """A parent that starts five children at once, whose requests overlap and use all they may."""

    most: int = 0
    running: int = 0
    steps: list[Any] = field(default_factory=list)
    together: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        if request.messages[0].text == "Go":
            if len(request.messages) == 1:
                return says("", *(("spawn_agent", {"task": f"Task {n}"}) for n in range(5)))
            agents = [
                part.content.splitlines()[0].removeprefix("agent_id: ")
                for message in request.messages
                for part in message.parts
                if isinstance(part, ToolResult) and part.content.startswith("agent_id: ")
            ]
            if "turns used" not in str(list(request.messages)):
                return says("", *(("wait", {"agent_id": agent}) for agent in agents))
            return says("Done.")
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running > 1:
            self.together.set()
        await self.together.wait()
        await asyncio.sleep(0)
        self.running -= 1
        return replace(says("", LOOK), usage=Usage(2_000, request.max_output_tokens or 1_500))


async def test_subagents_at_the_same_time_do_not_exceed_the_cap_together(tmp_path: Path) -> None:
    model = Family([])
    config = SessionConfig(max_usd=0.1, reply_tokens=1_500)
    settings: dict[str, Any] = {"subagents": True, "config": config, "host": host()}
    async with session_in(tmp_path, model=model, **settings) as (session, _):
        heard: list[SessionEvent] = []
        session.listen(heard.append)
        assert (await session.run("Go")).text == "Done."
    assert model.most > 1, "they ran at the same time"
    spent = sum(event.usd for event in of(heard, ReplyReceived))
    assert session.budget.usd == pytest.approx(spent)
    assert 0.05 < spent <= 0.1
    assert {event.limit for event in of(heard, LimitReached)} == {"usd"}


@table(
    "fields",
    [{"wrap_up_share": -0.1}, {"wrap_up_share": 0.6}, {"wrap_up_share": float("nan")}, {"reply_tokens": 0}],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SessionConfig(**fields)


def test_what_is_known_of_one_models_replies_is_not_taken_for_anothers() -> None:
    config = SessionConfig(reply_tokens=8_000)
    assert config.for_subagent(0, None).reply_tokens == 8_000
    assert config.for_subagent(0, None, same_model=False).reply_tokens is None
