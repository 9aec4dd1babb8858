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
from orchestrator.bot.cycle.claim import Heartbeat, claim_task
from orchestrator.bot.cycle.task_state import KnownTask
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ClaimLostError, RemoteUnavailableError
from orchestrator.core.messages import Spent
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


class Renewed:
    """A claim that is renewed every minute, with what becomes of each renewal."""

    renew_seconds = 60.0

    def __init__(self, *ends: Exception | None) -> None:
        self.ends, self.written = list(ends), list[Spent]()

    def renew(self, spent: Spent) -> None:
        self.written.append(spent)
        end = self.ends.pop(0)
        if end is not None:
            raise end


def heartbeat(lease: Any, said: list[Any]) -> Heartbeat:
    return Heartbeat(lease, lambda: Spent(usd=1.5), ManualClock(), said.append)


async def test_a_claim_is_renewed_with_its_cost_while_the_work_goes_on() -> None:
    """A remote that does not answer is told of and asked again."""
    lease, said = Renewed(None, RemoteUnavailableError("away"), None, ClaimLostError("the end")), list[Any]()

    async def work() -> None:
        async with heartbeat(lease, said):
            await asyncio.Event().wait()  # until it is cancelled

    with pytest.raises(ClaimLostError, match="the end"):
        await work()
    assert lease.written == [Spent(usd=1.5)] * 4
    assert [event.message for event in said] == [
        "the claim could not be renewed; it will be tried again: away"
    ]


async def test_work_that_ended_renews_nothing_and_work_without_a_claim_needs_none() -> None:
    lease = Renewed(*[None] * 1_000)
    async with heartbeat(lease, []):
        pass
    renewed = len(lease.written)
    await asyncio.sleep(0)
    assert len(lease.written) == renewed < 2
    async with heartbeat(None, []):
        pass


async def test_a_cancellation_of_somebody_else_is_not_taken_for_a_lost_claim() -> None:
    async def work() -> None:
        async with heartbeat(Renewed(ClaimLostError("lost")), []):
            try:
                await asyncio.Event().wait()
            finally:  # it is cancelled because the claim is lost, and now by somebody else too
                worker.cancel()

    worker = asyncio.ensure_future(work())
    with pytest.raises(asyncio.CancelledError):
        await worker
