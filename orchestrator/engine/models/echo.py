"""A fake model that echoes its input, so that a session can be tried without a key or a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.messages import FinishReason, Message, Role, Usage
from orchestrator.engine.models.base import Completed, Response, TextPiece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from orchestrator.engine.models.base import Request, StreamEvent

MOST_CHARS = 2_000
"""Largest part of a message that is echoed."""


class EchoModel:
    """Answers each request with a hypothesis line and the newest user message. It calls no tool."""

    def __init__(self, name: str = "echo:offline") -> None:
        self._name = name

    @property
    def name(self) -> str:
        """The name as the user writes it."""
        return self._name

    async def complete(self, request: Request) -> Response:
        """Return the newest user message, at most 2,000 characters of it."""
        said = next(
            (one.text for one in reversed(request.messages) if one.role is Role.USER and one.text.strip()), ""
        )
        cut = f" [{len(said) - MOST_CHARS:,} more characters]" if len(said) > MOST_CHARS else ""
        text = (
            "Hypothesis: the user tries the program out without a model.\n\n"
            f"No model is asked here. You said: {said[:MOST_CHARS]}{cut}"
        )
        return Response(Message.assistant(text), FinishReason.STOP, Usage(), self._name)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Yield the same reply line by line."""
        response = await self.complete(request)
        for piece in response.text.splitlines(keepends=True):
            yield TextPiece(piece)
        yield Completed(response)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""
