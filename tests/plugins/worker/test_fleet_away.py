"""The database of a fleet is away for an hour: on the worker's clock, with a PostgreSQL that is really stopped."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request

from orchestrator.bot.cycle.parts import Assignment, CycleResult, FoundTask, Outcome, Stop
from orchestrator.bot.cycle.tasks import TaskKind, from_text
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import NextStepChooser
from orchestrator.core.clock import ManualClock
from orchestrator.plugins.fleet.store import FleetStore
from orchestrator.plugins.worker.engine import EngineOptions, FleetEngine, FleetWorker
from orchestrator.plugins.worker.members import Member
from orchestrator.plugins.worker.serving import Receiver

if TYPE_CHECKING:
    from orchestrator.bot.worker.worker import NextStep
    from tests.doubles.postgres import PostgresServer

pytestmark = pytest.mark.slow(reason="a PostgreSQL is stopped and started, under a real engine")

KEY = "github.com/octo/calc"
SECRET = "a-long-random-text"
START = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
HOUR = 3600.0
LEASE = 30.0
TASK = FoundTask("issue-1", "A task", TaskKind.NEW, "issue-1", 1)


class SharedClock(ManualClock):
    """Time that passes where somebody waits for the database, and where the test says so."""

    def __init__(self) -> None:
        super().__init__(START)
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self.sleeping = asyncio.Event()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._loop.call_soon_threadsafe(self._moved.set)

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while self.monotonic() < end:
            self._moved.clear()
            self.sleeping.set()
            await self._moved.wait()


class Outage:
    """Lets an hour pass for those who wait for the database, and then brings it back."""

    def __init__(self, clock: SharedClock, server: PostgresServer) -> None:
        self.clock, self.server = clock, server
        self.may_end = threading.Event()
        self.waited: list[float] = []
        self._lock = threading.Lock()

    def wait(self, seconds: float) -> bool:
        with self._lock:
            self.clock.advance(seconds)
            self.waited.append(seconds)
            if sum(self.waited) >= HOUR and self.server._process is None:
                assert self.may_end.wait(60)
                self.server.start()
        return False


class Runner:
    """Finds one task, and works on it until the test lets it go on."""

    def __init__(self) -> None:
        self.stop = Stop()
        self.attempted: set[str] = set()
        self.played: list[str] = []
        self.working, self.gate = asyncio.Event(), asyncio.Event()

    def forget(self) -> None:
        pass

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008  a frozen value
        self.played.append(assignment.task or "look")
        if not assignment.task:
            return CycleResult(
                "look",
                Outcome.NO_TASK if self.gate.is_set() else Outcome.FOUND,
                found=None if self.gate.is_set() else TASK,
            )
        self.working.set()
        await self.gate.wait()
        return CycleResult("run", Outcome.PROPOSED, from_text("A task"), rounds=1, usd=0.5)

    async def close(self) -> None:
        pass


def delivery() -> Request:
    """What GitHub sends after somebody wrote an issue."""
    body = json.dumps({"repository": {"html_url": "https://github.com/octo/calc"}}).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    headers = [(b"x-hub-signature-256", signature.encode()), (b"x-github-event", b"issues")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def test_an_hour_without_the_database_costs_waiting_only(postgres: PostgresServer) -> None:
    clock = SharedClock()
    outage = Outage(clock, postgres)
    store = FleetStore(postgres.new_database(), clock, patient=True, wait=outage.wait)
    store.open()
    schedule = make_schedule("1d", None, "UTC", START)
    assert schedule is not None
    runner, source = Runner(), random.Random(1)  # noqa: S311  no secret
    ended: asyncio.Queue[str] = asyncio.Queue()

    def report(member: Member, result: CycleResult, onward: NextStep) -> None:
        del member, onward
        ended.put_nowait(str(result.outcome))

    member = Member(KEY, lambda: runner, "quota", schedule, NextStepChooser(clock, source), most_usd=2.0)
    worker = FleetWorker("here", store, {KEY: member}, clock, Stop(), source, report, most_usd=3.0)
    engine = FleetEngine(store, EngineOptions("here", "1.0", 2, 1, LEASE, 0.05), clock, worker, pytest.fail)
    worker.begin()
    store.add_worker("another", "1.0", 1)
    await engine.launch()
    await runner.working.wait()
    assert store.limits.spent_today() == 2.0  # what the cycle may cost at most

    postgres.stop()
    runner.gate.set()  # it ends while nobody can write that down
    receiver = Receiver(SECRET, [KEY], store.receive, seconds=0.05)
    answer = await receiver.receive(delivery())
    assert answer.status_code == 503
    outage.may_end.set()

    assert await ended.get() == "proposed"
    assert await ended.get() == "no_task"
    assert sum(outage.waited) >= HOUR
    assert runner.played[:3] == ["look", "issue-1", "look"]
    assert runner.played.count("issue-1") == 1
    assert {one.worker for one in store.workers()} == {"here", "another"}  # nobody was taken for dead
    assert store.limits.spent_today() == 0.0  # the day is over, and its cost was of the day on which it began

    beats = 0
    while "another" in {
        one.worker for one in store.workers()
    }:  # who does not beat for a lease after it, is dead
        await clock.sleeping.wait()
        clock.sleeping.clear()
        clock.advance(LEASE / 6)
        beats += 1
    assert beats >= LEASE / 6
    await engine.close()
    await worker.close()
    store.close()
