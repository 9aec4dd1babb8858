"""A session without a model."""

from __future__ import annotations

from orchestrator.core.messages import Message
from orchestrator.engine.models.base import Completed, Request, TextPiece
from orchestrator.engine.models.catalog import ModelRef, Provider, model_at, parse_model
from orchestrator.engine.models.echo import MOST_CHARS, EchoModel
from tests.tables import table


@table("text", ["echo", "echo:", "ECHO", "echo:offline"])
def test_it_has_one_name(text: str) -> None:
    assert parse_model(text) == ModelRef(Provider.ECHO, "offline")
    assert model_at(Provider.OPENAI, text, official=False).provider is Provider.ECHO


async def test_it_says_what_it_was_told_and_no_more_of_it_than_a_page() -> None:
    messages = [Message.user("Hello"), Message.assistant("Yes?"), Message.user("x" * (MOST_CHARS + 7))]
    pieces = [piece async for piece in EchoModel().stream(Request("", messages))]
    last = pieces.pop()
    assert isinstance(last, Completed)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == last.response.text
    assert last.response.text.startswith("Hypothesis: ")
    assert last.response.text.endswith(f"You said: {'x' * MOST_CHARS} [7 more characters]")
