"""Sessions without a model server."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import JournalError
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.models.base import Completed, Request, Response, TextPiece
from orchestrator.engine.models.catalog import ModelRef, Provider, model_at, parse_model
from orchestrator.engine.models.replay import MAX_ECHO_CHARACTERS, EchoModel, ReplayModel
from tests.tables import table

ASK = Request("", ())
REPLIES = [
    Response(Message.assistant(text), FinishReason.STOP, Usage(1, 2), "m")
    for text in ("one", "two" * 300, "")
]


async def test_replies_come_in_order_by_both_ways() -> None:
    model = ReplayModel("replay:run-1", REPLIES)
    assert model.name == "replay:run-1"
    assert await model.complete(ASK) == REPLIES[0]
    *pieces, last = [event async for event in model.stream(ASK)]
    assert last == Completed(REPLIES[1])
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == "two" * 300
    assert len(pieces) > 2
    assert [event async for event in model.stream(ASK)] == [Completed(REPLIES[2])]
    await model.aclose()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_record_that_is_too_short(*, stream: bool) -> None:
    model = ReplayModel("replay:run-1", REPLIES[:1])
    await model.complete(ASK)
    with pytest.raises(JournalError, match="replay:run-1 has 1 recorded replies and was asked for one more"):
        _ = [event async for event in model.stream(ASK)] if stream else await model.complete(ASK)


@table("text", ["echo", "echo:", "ECHO", "echo:offline"])
def test_the_echo_has_one_name(text: str) -> None:
    assert parse_model(text) == ModelRef(Provider.ECHO, "offline")
    assert model_at(Provider.OPENAI, text, official=False).provider is Provider.ECHO


async def test_the_echo_says_what_it_was_told_and_no_more_of_it_than_a_page() -> None:
    messages = [
        Message.user("Hello"),
        Message.assistant("Yes?"),
        Message.user("x" * (MAX_ECHO_CHARACTERS + 7)),
    ]
    pieces = [piece async for piece in EchoModel().stream(Request("", messages))]
    last = pieces.pop()
    assert isinstance(last, Completed)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == last.response.text
    assert last.response.text.startswith("Hypothesis: ")
    assert last.response.text.endswith(f"You said: {'x' * MAX_ECHO_CHARACTERS} [7 more characters]")
