"""What a host recalls goes with the user's message, and nothing else changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ConfigurationError, MemoryStoreError
from orchestrator.core.events import MessageAdded, Warned
from orchestrator.core.messages import Image, Message, Role, Text
from orchestrator.engine.session.config import Host
from tests.unit.engine.session.stage import says, session_in

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.engine.session.event_bus import SessionEvent


async def test_a_memory_that_fails_costs_the_memories_only(tmp_path: Path) -> None:
    async def fails(_message: str) -> str:
        raise MemoryStoreError("the memory cannot be used")

    async with session_in(tmp_path, says("Done."), host=Host(recall=fails)) as (session, model):
        warned: list[str] = []
        session.listen(
            lambda event: warned.append(event.event.message) if isinstance(event.event, Warned) else None
        )
        await session.run("Go")
    assert model.requests[0].messages[-1] == Message.user("Go")
    assert warned == ["nothing was recalled: the memory cannot be used"]


async def test_a_message_is_said_also_where_its_recall_is_stopped(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def waits(_message: str) -> str:
        reached.set()
        await asyncio.Event().wait()
        return ""

    async with session_in(tmp_path, says("Done."), host=Host(recall=waits)) as (session, _):
        events: list[SessionEvent] = []
        session.listen(events.append)
        work = asyncio.create_task(session.run("Go"))
        await reached.wait()
        work.cancel()
        await asyncio.wait([work])
        assert [turn.content for turn in session.history.turns] == ["Go"]
        assert [event.event.message.text for event in events if isinstance(event.event, MessageAdded)] == [
            "Go"
        ]


async def test_what_is_recalled_is_cleaned_as_what_a_tool_says(tmp_path: Path) -> None:
    async def recalls(_message: str) -> str:
        return "# Relevant Memories\n\nhidden"

    cleaned = Host(recall=recalls, clean=lambda what, text: f"{text.replace('hidden', 'seen')} ({what})")
    image = Message(Role.USER, (Text("Look"), Image(b"GIF89a", "image/gif")))
    async with session_in(tmp_path, says("Done."), host=cleaned) as (session, model):
        await session.run(image)
    parts = model.requests[0].messages[-1].parts
    assert parts == (*image.parts, Text("# Relevant Memories\n\nseen (what was remembered)"))


def test_what_recalls_can_be_called() -> None:
    with pytest.raises(ConfigurationError, match="recall"):
        Host(recall="memories")  # type: ignore[arg-type]
