"""Models without a server: one returns recorded replies, the other echoes its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.errors import JournalError
from orchestrator.core.messages import FinishReason, Message, Role, Usage
from orchestrator.engine.models.base import Completed, Response, TextPiece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from orchestrator.engine.models.base import Request, StreamEvent

PIECE_CHARACTERS = 200
MAX_ECHO_CHARACTERS = 2_000
"""Largest part of a message that is echoed."""


class ReplayModel:
    """Answers each request with the next recorded reply, whatever the request is.

    Attributes:
        name: as the user writes it: `replay:RUN`.
    """

    def __init__(self, name: str, responses: Sequence[Response]) -> None:
        self.name = name
        self._responses = tuple(responses)
        self._given = 0

    async def complete(self, request: Request) -> Response:
        """Return the next reply."""
        del request
        if self._given == len(self._responses):
            raise JournalError(
                f"{self.name} has {self._given} recorded replies and was asked for one more: "
                "the repository or the settings differ from the recorded run"
            )
        self._given += 1
        return self._responses[self._given - 1]

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Yield the next reply, with its text in pieces."""
        response = await self.complete(request)
        text = response.text
        for start in range(0, len(text), PIECE_CHARACTERS):
            yield TextPiece(text[start : start + PIECE_CHARACTERS])
        yield Completed(response)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class EchoModel(ReplayModel):
    """Answers each request with a hypothesis line and the newest user message. It calls no tool.

    A session can be tried with it without a key or a network.
    """

    def __init__(self) -> None:
        super().__init__("echo:offline", ())

    async def complete(self, request: Request) -> Response:
        """Return the newest user message, at most `MAX_ECHO_CHARACTERS` of it."""
        users = (one.text for one in reversed(request.messages) if one.role is Role.USER)
        said = next((text for text in users if text.strip()), "")
        more = len(said) - MAX_ECHO_CHARACTERS
        cut = f" [{more:,} more characters]" if more > 0 else ""
        text = (
            "Hypothesis: the user tries the program out without a model.\n\n"
            f"No model is asked here. You said: {said[:MAX_ECHO_CHARACTERS]}{cut}"
        )
        return Response(Message.assistant(text), FinishReason.STOP, Usage(), self.name)
