from __future__ import annotations

import pytest

from orchestrator.core.errors import JournalError
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.models.base import Completed, Request, Response, TextPiece
from orchestrator.engine.models.replay import ReplayModel

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
