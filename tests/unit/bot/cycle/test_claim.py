"""A task that was claimed while somebody ended the program is given back."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.choice import Candidate
from orchestrator.bot.cycle.claim import claim_task
from orchestrator.bot.cycle.task_state import KnownTask
from orchestrator.bot.cycle.tasks import from_text
from tests.unit.bot.worker.choosing import FakeClaimer

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lease:
    """A claim that only remembers."""

    previous = None

    def __init__(self) -> None:
        self.is_given_back = False

    def undo_claim(self) -> None:
        self.is_given_back = True


class Tasks:
    """One task, found when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.began, self.may_end, self.is_put_back = asyncio.Event(), threading.Event(), False

    def candidates(self, fingerprint: str) -> Iterator[Any]:
        del fingerprint
        self._loop.call_soon_threadsafe(self.began.set)
        self.may_end.wait()
        task = from_text("Fix it")
        yield Candidate(KnownTask(task.key, datetime(2026, 11, 21, tzinfo=UTC), task), "text-1")

    def confirm(self, candidate: Any, lease: Lease) -> Any:
        del lease
        return candidate

    def begin(self, candidate: Any) -> None:
        pass

    def put_back(self) -> None:
        self.is_put_back = True

    def notices(self) -> list[Any]:
        return []


async def test_a_task_that_is_claimed_while_somebody_ends_the_program_is_given_back() -> None:
    lease, saved = Lease(), list[str]()
    tasks = Tasks(asyncio.get_running_loop())

    @contextmanager
    def saving() -> Iterator[None]:
        saved.append("begins")
        yield
        saved.append(f"given back: {lease.is_given_back}")

    parts: Any = SimpleNamespace(
        tasks=tasks, claimer=FakeClaimer(lambda _task: lease), stop=SimpleNamespace(saving=saving)
    )
    work = asyncio.create_task(claim_task(parts, "fingerprint"))
    await tasks.began.wait()
    work.cancel()
    await asyncio.sleep(0)
    tasks.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert saved == ["begins", "given back: True"]
    assert tasks.is_put_back
