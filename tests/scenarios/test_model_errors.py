"""Errors of the model, through the whole worker: which waits, which pauses until when, and which ends it.

=================  ================================================================
error              outcome
=================  ================================================================
a burst            the call waits as the server asks, and the cycle goes on
a quota            paused until the named time, known after a restart; the same task
an overload        paused, longer each time; the same task
a wrong key        failed; the worker ends and says what to do
=================  ================================================================
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.journal.index import last_pause, note_pause
from orchestrator.bot.worker.worker import CycleTiming, NextStepChooser, Waiter, work
from orchestrator.core.clock import ManualClock
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.model_server import fail
from tests.scenarios.stage import FIX_IT, Stage, add_commit, branches

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.journal.run_facts import Pause

TRIES = 5  # of one call


class WorkerClock(ManualClock):
    """Time that passes by the waits of calls and of the worker.

    Heartbeats wait beside them, while real requests are under way: if they moved it too, a few of them would use up
    what a call may take with all its tries.
    """

    async def sleep(self, seconds: float) -> None:
        if seconds >= LeaseTimes().renew_seconds:
            await asyncio.Event().wait()
        await super().sleep(seconds)


@dataclass
class Worker:
    """A worker whose time passes as soon as it waits."""

    stage: Stage
    program: Program
    clock: WorkerClock
    pauses: list[Pause] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)
    results: list[CycleResult] = field(default_factory=list)
    ends_at_a_pause: bool = False

    def tell(self, pause: Pause, after: CycleResult | None) -> None:
        self.pauses.append(pause)
        self.minutes.append((pause.until - self.clock.now()).total_seconds() / 60)
        if after is not None and after.run is not None:
            note_pause(self.program.shared.context.home, after.run, pause, Redactor(), self.clock)
        if self.ends_at_a_pause:
            self.program.stop.request()

    async def work(self, left: Pause | None = None) -> list[str]:
        pace = NextStepChooser(self.clock, random.Random(1))  # noqa: S311  no secret
        rhythm = CycleTiming(self.clock, Waiter(self.clock), pace, self.tell, left_pause=left)
        stop = self.program.stop
        await work(self.program.cycle, self.results.append, stop, rhythm, max_cycles=9)
        await self.program.close()
        return [str(result.outcome) for result in self.results]


@pytest.fixture
def worker(stage: Stage, repository: Path, tmp_path: Path) -> Worker:
    add_commit(repository, {"BACKLOG.md": "- [ ] Fix add()\n"}, "Plan")
    return make(stage, repository, tmp_path)


def make(stage: Stage, repository: Path, folder: Path) -> Worker:
    settings = {"model": "openai-chat:scripted-1", "api_url": stage.model.url}
    clock = WorkerClock()
    program = build_program(
        RunRequest(str(repository)), settings, os.environ, folder, lambda _event: None, clock=clock
    )
    return Worker(stage, program, clock)


async def test_a_burst_is_waited_for_in_the_call(stage: Stage, worker: Worker) -> None:
    stage.script(fail(429, headers={"Retry-After": "20"}), FIX_IT)
    assert await worker.work() == ["proposed", "no_task"]
    assert worker.pauses == []
    assert len(stage.model.requests) == 2
    assert worker.clock.monotonic() >= 20


async def test_a_quota_is_paused_for_until_the_named_time_and_known_after_a_restart(
    stage: Stage, worker: Worker, repository: Path, tmp_path: Path
) -> None:
    stage.script(fail(429, headers={"Retry-After": "7200"}), FIX_IT)
    begun = worker.clock.now()
    worker.ends_at_a_pause = True
    assert await worker.work() == ["paused"]
    (pause,) = worker.pauses
    assert pause.until >= begun + timedelta(hours=2)
    again = make(stage, repository, tmp_path)
    model = again.program.shared.chosen.model.name
    left = last_pause(
        again.program.shared.context.home, again.clock.now(), repository=str(repository), model=model
    )
    assert left is not None
    assert abs(left.until - pause.until) < timedelta(seconds=1)
    assert await again.work(left) == ["proposed", "no_task"]
    assert again.clock.now() >= begun + timedelta(hours=2)
    assert len(stage.model.requests) == 2


async def test_a_quota_that_comes_back_goes_on_with_the_same_task(
    stage: Stage, worker: Worker, repository: Path
) -> None:
    stage.script(fail(429, headers={"Retry-After": "7200"}), FIX_IT)
    assert await worker.work() == ["paused", "proposed", "no_task"]
    assert {result.task.title for result in worker.results[:2] if result.task} == {"Fix add()"}
    assert len(stage.model.requests) == 2
    assert len(branches(repository)) == 1


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
async def test_an_overload_is_paused_for_longer_each_time(stage: Stage, worker: Worker) -> None:
    stage.script(*[fail(503)] * (3 * TRIES), FIX_IT)
    assert await worker.work() == ["paused", "paused", "paused", "proposed", "no_task"]
    assert len(stage.model.requests) == 3 * TRIES + 1
    assert all(length >= least for length, least in zip(worker.minutes, (1, 2, 4), strict=True))


async def test_a_wrong_key_ends_the_worker_at_once(stage: Stage, worker: Worker) -> None:
    stage.script(fail(401))
    assert await worker.work() == ["failed"]
    assert worker.pauses == []
    assert len(stage.model.requests) == 1
    assert "key" in (worker.results[0].error or "")


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
async def test_a_server_that_never_comes_back_is_asked_less_and_less(stage: Stage, worker: Worker) -> None:
    stage.script(*[fail(503)] * (9 * TRIES))
    assert await worker.work() == ["paused"] * 9
    least = (1, 2, 4, 8, 16, 30, 30, 30)
    assert all(length >= short for length, short in zip(worker.minutes, least, strict=True))
