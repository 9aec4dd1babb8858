"""A model that returns recorded replies in order, so that a run can be repeated without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.errors import JournalError
from orchestrator.engine.models.base import Completed, TextPiece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from orchestrator.engine.models.base import Request, Response, StreamEvent

PIECE_CHARACTERS = 200


class ReplayModel:
    """Answers each request with the next recorded reply, whatever the request is."""

    def __init__(self, name: str, responses: Sequence[Response]) -> None:
        self._name = name
        self._responses = tuple(responses)
        self._given = 0

    @property
    def name(self) -> str:
        """The name as the user writes it: `replay:RUN`."""
        return self._name

    async def complete(self, request: Request) -> Response:
        """Return the next reply."""
        del request
        if self._given == len(self._responses):
            raise JournalError(
                f"{self._name} has {self._given} recorded replies and was asked for one more: "
                "the repository or the settings differ from the recorded run"
            )
        self._given += 1
        return self._responses[self._given - 1]

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Yield the next reply, with its text in pieces."""
        response = await self.complete(request)
        for start in range(0, len(response.text), PIECE_CHARACTERS):
            yield TextPiece(response.text[start : start + PIECE_CHARACTERS])
        yield Completed(response)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""
