"""A task that was claimed while somebody ended the program is given back."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.wiring.choosing import Choosing
from orchestrator.bot.cycle.parts import Choice
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.bot.worker.spending import Caps

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lease:
    """A claim that only remembers."""

    previous = None

    def __init__(self) -> None:
        self.is_given_back = False

    def give_back(self) -> None:
        self.is_given_back = True


class Backlog:
    """One that has claimed a task when its thread ends."""

    def __init__(self, lease: Lease) -> None:
        held: Any = lease
        self.choice = Choice(from_text("Fix it"), lease=held)
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def choose(self) -> Choice:
        self.began.set()
        await self.may_end.wait()
        return self.choice

    def put_back(self) -> None:
        pass


async def test_a_choice_that_is_cancelled_gives_its_claim_back() -> None:
    lease = Lease()
    backlog: Any = Backlog(lease)
    saved: list[str] = []

    @contextmanager
    def saving() -> Iterator[None]:
        saved.append("begins")
        yield
        saved.append(f"given back: {lease.is_given_back}")

    nothing: Any = None
    choosing = Choosing(backlog, None, nothing, Caps(), Path(), nothing, saving)
    work = asyncio.create_task(choosing.choose())
    await backlog.began.wait()
    work.cancel()
    await asyncio.sleep(0)
    backlog.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert saved == ["begins", "given back: True"]
