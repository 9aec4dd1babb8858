from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    SpentQuotaError,
)
from orchestrator.core.messages import (
    FinishReason,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import (
    Completed,
    Request,
    Response,
    Restarted,
    StreamEvent,
    Switched,
    TextPiece,
)
from orchestrator.engine.models.fallback import FallbackModel, PricedModel
from orchestrator.engine.models.gemini import GeminiWire
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.models.transport import HttpModel
from tests.doubles.model_server import ModelServer, cut, fail, reply
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from orchestrator.engine.models.wire import Wire

START = datetime(2026, 1, 1, tzinfo=UTC)
ASK = Request("Be brief.", (Message.user("Hello"),))


class Played:
    """A model that fails and answers as the test says; the last entry is played again and again."""

    def __init__(self, name: str, *script: ModelError | None) -> None:
        self.name = name
        self.script = list(script) or [None]
        self.asked = 0

    async def complete(self, request: Request) -> Response:
        del request
        self.asked += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if step:
            raise step
        return Response(
            Message.assistant(self.name), FinishReason.STOP, Usage(1_000_000, 1_000_000), self.name
        )

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        yield TextPiece(f"{self.name} says")
        yield Completed(await self.complete(request))

    async def aclose(self) -> None:
        self.asked = -1


def at(dollars: float | None) -> Callable[[Usage], float | None]:
    return lambda usage: None if dollars is None else dollars * usage.total_tokens / 1_000_000


class Stage:
    def __init__(self, *models: Played, prices: tuple[float | None, ...] = (1.0, 2.0, 3.0)) -> None:
        self.clock = ManualClock(START)
        self.switches: list[Switched] = []
        priced = [PricedModel(model, at(price)) for model, price in zip(models, prices, strict=False)]
        self.model = FallbackModel(priced, clock=self.clock, on_switch=self.switches.append)

    async def ask(self) -> str:
        return (await self.model.complete(ASK)).text

    async def fails(self) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.model.complete(ASK)
        return caught.value


def quota(hours: float | None = None) -> SpentQuotaError:
    return SpentQuotaError("quota", resume_at=None if hours is None else START + timedelta(hours=hours))


@pytest.mark.parametrize(
    "error", [quota(5), RateLimitError("x"), OverloadedError("x"), ConnectionFailedError("x"), quota()]
)
async def test_the_next_model_is_asked_where_the_first_cannot_answer(error: ModelError) -> None:
    first, second = Played("a", error), Played("b")
    stage = Stage(first, second)
    assert await stage.ask() == "b"
    assert await stage.ask() == "b"
    assert (first.asked, second.asked) == (1, 2)  # the dead one is not asked for each request
    assert [(switch.left, switch.to, switch.error) for switch in stage.switches] == [("a", "b", error)]


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (quota(5), 5 * 3_600),
        (quota(), 600),
        (ConnectionFailedError("x"), 600),
        (RateLimitError("x", resume_at=START + timedelta(seconds=1)), 60),
        (OverloadedError("x", resume_at=START - timedelta(seconds=9)), 60),
    ],
)
async def test_then_the_first_is_asked_again(error: ModelError, seconds: float) -> None:
    stage = Stage(Played("a", error, None), Played("b"))
    assert await stage.ask() == "b"
    assert stage.switches[0].until == START + timedelta(seconds=seconds)
    stage.clock.advance(seconds - 1)
    assert await stage.ask() == "b"
    stage.clock.advance(1)
    assert await stage.ask() == "a"


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("x"),
        PermissionDeniedError("x"),
        ModelNotFoundError("x"),
        ContextLengthError("x"),
        InvalidRequestError("x"),
        ContentFilterError("x"),
        ProviderError("x"),
    ],
)
async def test_what_is_wrong_with_the_first_is_not_hidden(error: ModelError) -> None:
    second = Played("b")
    assert await Stage(Played("a", error), second).fails() is error
    assert second.asked == 0


@pytest.mark.parametrize(
    "error", [AuthenticationError("x"), PermissionDeniedError("x"), ModelNotFoundError("x")]
)
async def test_a_fallback_with_a_wrong_key_is_left_out_for_good(error: ModelError) -> None:
    second = Played("b", error)
    stage = Stage(Played("a", quota(48)), second, Played("c"))
    assert await stage.ask() == "c"
    stage.clock.advance(86_400)
    assert await stage.ask() == "c"
    assert second.asked == 1
    assert stage.switches[-1].is_for_good
    assert stage.switches[-1].error is error


async def test_a_fallback_that_cannot_take_a_request_is_asked_the_next_one() -> None:
    second = Played("b", ContextLengthError("too long"), None)
    stage = Stage(Played("a", quota(48)), second, Played("c"))
    assert [await stage.ask(), await stage.ask()] == ["c", "b"]
    assert stage.switches[-1].until is None


async def test_refused_content_is_not_carried_to_the_next() -> None:
    third = Played("c")
    error = ContentFilterError("x")
    assert await Stage(Played("a", quota(1)), Played("b", error), third).fails() is error
    assert third.asked == 0


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ((quota(5), quota(2), quota(9)), 1),
        ((quota(), quota(2), quota(9)), 1),
        ((quota(5), AuthenticationError("x"), quota()), 0),
        ((quota(), AuthenticationError("x"), InvalidRequestError("x")), 0),
        ((quota(5), OverloadedError("x"), quota(2)), 1),
        ((quota(5), quota(9), RateLimitError("x")), 2),
        ((ConnectionFailedError("x"), ConnectionFailedError("x"), quota(2)), 0),
    ],
)
async def test_where_all_fail_the_error_that_is_over_first_is_raised(
    errors: tuple[ModelError, ...], raised: int
) -> None:
    stage = Stage(*(Played(name, error) for name, error in zip("abc", errors, strict=True)))
    assert await stage.fails() is errors[raised]
    # The errors of those that are passed over count as well.
    assert type(await stage.fails()) is type(errors[raised])


async def test_a_failed_fallback_does_not_hide_the_quota_of_the_first() -> None:
    error = quota(5)
    stage = Stage(Played("a", error), Played("b", None, InvalidRequestError("x")))
    assert await stage.ask() == "b"
    assert await stage.fails() is error


async def test_all_are_asked_again_where_all_are_passed_over() -> None:
    stage = Stage(Played("a", ConnectionFailedError("x"), None), Played("b", quota(5)))
    await stage.fails()
    assert await stage.ask() == "a"


async def test_a_reply_costs_what_its_model_costs_and_a_plan_the_most() -> None:
    stage = Stage(Played("a", None, quota(5)), Played("b"), prices=(5.0, 1.0))
    first = await stage.model.complete(ASK)
    second = await stage.model.complete(ASK)
    price = stage.model.price
    assert (price(first.usage), price(second.usage)) == (10.0, 2.0)
    assert price(replace(second.usage)) == 10.0  # a reply that is not known: what it may cost
    assert price(first.usage + second.usage) == 20.0
    assert stage.model.worst_price(second.usage) == 10.0


async def test_the_price_is_unknown_where_that_of_one_is() -> None:
    stage = Stage(Played("a", quota(5)), Played("b"), prices=(5.0, None))
    assert stage.model.price(Usage(1, 1)) is None
    assert stage.model.price((await stage.model.complete(ASK)).usage) is None


async def events_of(model: FallbackModel) -> list[StreamEvent]:
    async with aclosing(model.stream(ASK)) as events:
        return [event async for event in events]


async def test_pieces_of_a_broken_stream_are_taken_back() -> None:
    stage = Stage(Played("a", ConnectionFailedError("x")), Played("b"), prices=(5.0, 1.0))
    events = await events_of(stage.model)
    assert events[0] == TextPiece("a says")
    assert isinstance(events[1], Switched)
    assert events[2:4] == [Restarted(), TextPiece("b says")]
    assert isinstance(events[4], Completed)
    assert stage.model.price(events[4].response.usage) == 2.0
    assert not [event for event in await events_of(stage.model) if isinstance(event, Restarted)]


class Silent(Played):
    """Its streams say nothing before they fail or are whole."""

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        yield Completed(await self.complete(request))


async def test_before_the_next_model_is_asked_it_is_said_that_the_first_failed() -> None:
    error = ConnectionFailedError("x")
    stage = Stage(Silent("a", error), Silent("b", error), Silent("c"))
    events = await events_of(stage.model)
    assert events[:-1] == [Switched(error, "b"), Switched(error, "c")]
    stage = Stage(Silent("a", error), Silent("b", error), Silent("c"))
    told: list[object] = []
    await stage.model.complete(replace(ASK, on_retry=told.append))
    assert told == events[:-1]
    assert stage.model.next_name == "c"


async def test_the_last_model_of_all_leads_nowhere() -> None:
    stage = Stage(Silent("a", ConnectionFailedError("x")))
    with pytest.raises(ConnectionFailedError):
        await events_of(stage.model)
    assert stage.model.next_name == "a"


async def test_who_is_told_may_forbid_the_next_model() -> None:
    second = Played("b")
    stage = Stage(Played("a", ConnectionFailedError("x")), second)

    def no(_event: object) -> None:
        raise KeyError("no money")

    with pytest.raises(KeyError):
        await stage.model.complete(replace(ASK, on_retry=no))
    assert second.asked == 0


async def test_over_http_the_second_server_answers_after_the_first_ones_retries() -> None:
    clock = ManualClock(START)
    with (
        ModelServer([fail(503), *[cut("the half of it that came before the end")] * 4]) as broken,
        ModelServer([reply("whole")]) as good,
    ):
        models = [
            HttpModel("openai-chat:x", ChatWire.at(url, "x"), api_key="k", clock=clock, random=lambda: 0.0)
            for url in (broken.url, good.url)
        ]
        both = FallbackModel([PricedModel(model, at(1)) for model in models], clock=clock)
        events = await events_of(both)
        await both.aclose()
    assert isinstance(events[-1], Completed)
    assert events[-1].response.text == "whole"
    last = max(number for number, event in enumerate(events) if isinstance(event, Restarted))
    shown = [event.text for event in events[last:] if isinstance(event, TextPiece)]
    assert "".join(shown) == "whole"
    assert len(broken.requests) == 5


async def test_all_connections_are_closed() -> None:
    models = Played("a"), Played("b")
    await Stage(*models).model.aclose()
    assert [model.asked for model in models] == [-1, -1]


OPAQUE: dict[str, dict[str, Any]] = {
    "anthropic": {"anthropic_signature": "MARK"},
    "chat": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "MARK"}]},
    "gemini": {"gemini": {"signature": "MARK"}},
    "responses": {"openai_responses_item": {"type": "reasoning", "id": "rs_1", "encrypted_content": "MARK"}},
}
WIRES: dict[str, Wire] = {
    "anthropic": AnthropicWire.at("https://api.test/v1", "claude-sonnet-4-5"),
    "chat": ChatWire.at("https://api.test/v1", "x"),
    "gemini": GeminiWire.at("https://api.test/v1beta", "gemini-3-pro"),
    "responses": ResponsesWire.at("https://api.test/v1", "gpt-5.2"),
}


@table("wire", WIRES)
@table("source", OPAQUE)
def test_no_protocol_sends_what_another_vendor_wants_back(wire: str, source: str) -> None:
    """A conversation goes on with another vendor's model in the middle of it."""
    call = ToolCall("call.1:x", "read_file", {"path": "a"})
    said = Message(Role.ASSISTANT, (Reasoning("secret thought", OPAQUE[source]), Text("I look."), call))
    result = Message(Role.TOOL, (ToolResult(call.id, call.name, "text of a"),))
    request = Request("Be brief.", (Message.user("Hello"), said, result))
    sent = WIRES[wire].encode(request, stream=True).content
    assert b"text of a" in sent
    assert (b"MARK" in sent) == (wire == source)
