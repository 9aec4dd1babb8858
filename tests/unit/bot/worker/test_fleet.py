"""Whose turn it is: fair order, pauses and ends that hold up nobody else, and a graceful end."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.parts import Assignment, CycleResult, Outcome, Stop
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.bot.journal.index import Pause
from orchestrator.bot.worker.fleet import Fleet, Member, MemberState
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import NextStepChooser, Waiter
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    AuthenticationError,
    ConfigurationError,
    OverloadedError,
    RateLimitError,
    SpentQuotaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.worker.worker import NextStep

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = random.Random(1)  # noqa: S311  no secret


def ended(outcome: Outcome, cause: Exception | None = None) -> CycleResult:
    task = None if outcome is Outcome.NO_TASK else from_text("a task")
    return CycleResult("run", outcome, task=task, rounds=1, cause=cause, error=str(cause) if cause else None)


DONE = ended(Outcome.PROPOSED)
NOTHING = ended(Outcome.NO_TASK)
NO_KEY = ended(Outcome.FAILED, AuthenticationError("no key"))
BUSY = ended(Outcome.PAUSED, OverloadedError("busy", resume_at=START + timedelta(hours=1)))
SPENT = ended(Outcome.PAUSED, SpentQuotaError("spent", resume_at=START + timedelta(hours=2)))
LIMITED = ended(Outcome.PAUSED, RateLimitError("slow down", resume_at=START + timedelta(hours=2)))
BROKE = ended(Outcome.FAILED, SpentQuotaError("no credit"))
DEFECT = ZeroDivisionError("a defect")


class IdleClock(ManualClock):
    """Time that passes only while no cycle runs."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        super().__init__(START)
        self._busy = busy

    async def sleep(self, seconds: float) -> None:
        if self._busy():
            await asyncio.Event().wait()
        await super().sleep(seconds)


class Runner:
    """Plays a member's results; the world tells it when it may go on."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.stop = Stop()
        self.closed = False
        self.attempted: set[str] = set()

    def forget(self) -> None:
        self.world.forgotten.append(len(self.world.order))

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008  a frozen value
        del assignment
        world = self.world
        world.order.append(self.name)
        world.began[self.name].append(world.clock.monotonic())
        world.most = max(world.most, sum(one.running for one in world.fleet.members))
        gate = world.gates.get(self.name)
        if gate is not None:
            world.entered.set()
            await gate.wait()
            if self.stop.requested:
                return ended(Outcome.INTERRUPTED)
        else:
            await asyncio.sleep(0)
        step = world.scripts[self.name].pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def close(self) -> None:
        self.closed = True


class World:
    """A fleet whose members play scripts; it ends when there is nothing left to wait for but alarms."""

    def __init__(self, scripts: dict[str, list[CycleResult | Exception]], **options: bool | int) -> None:
        self.scripts = scripts
        self.clock = IdleClock(lambda: any(one.running for one in self.fleet.members))
        self.stop = Stop()
        self.waiting = Waiter(self.clock)
        self.order: list[str] = []
        self.forgotten: list[int] = []
        self.began: defaultdict[str, list[float]] = defaultdict(list)
        self.seen: list[tuple[str, str]] = []
        self.most = 0
        self.runners: list[Runner] = []
        self.refusals: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.entered = asyncio.Event()
        self.left: dict[str, Pause] = {}
        self.quotas: dict[str, str] = {}
        self.options = options
        self.after: Callable[[], None] = lambda: None
        self.asks_for_the_end = not options.get("once")
        self.builder: Callable[[str], Runner] = self.build
        self.fleet: Fleet

    def build(self, name: str) -> Runner:
        if name in self.refusals:
            raise self.refusals[name]
        self.runners.append(Runner(name, self))
        return self.runners[-1]

    def report(self, member: Member, result: CycleResult, onward: NextStep) -> None:
        del onward
        self.seen.append((member.name, str(result.outcome)))
        self.after()
        if self.asks_for_the_end and not any(one.due or one.running for one in self.fleet.members):
            self.fleet.request_stop()

    def member(self, name: str) -> Member:
        schedule = make_schedule("1h", None, "UTC", START)
        assert schedule is not None
        quota = self.quotas.get(name, name)
        return Member(
            name,
            lambda: self.builder(name),
            quota,
            schedule,
            NextStepChooser(self.clock, SOURCE),
            self.left.get(name),
        )

    def make(self) -> Fleet:
        members = [self.member(name) for name in self.scripts]
        parallel, once = int(self.options.get("parallel", 1)), bool(self.options.get("once"))
        self.fleet = Fleet(
            members, self.clock, self.waiting, self.stop, self.report, parallel=parallel, once=once
        )
        return self.fleet

    async def play(self) -> None:
        fleet = self.make()
        for member in fleet.members:
            fleet.notify(member.name)
        await fleet.run()

    def named(self, name: str) -> Member:
        return next(one for one in self.fleet.members if one.name == name)


async def test_members_take_turns_until_each_has_nothing_to_do() -> None:
    world = World({"a": [DONE, DONE, NOTHING], "b": [DONE, NOTHING], "c": [NOTHING]})
    await world.play()
    assert world.order == ["a", "b", "c", "a", "b", "a"]
    assert world.most == 1
    assert all(runner.closed for runner in world.runners)


async def test_several_cycles_at_a_time_never_two_of_one_member() -> None:
    world = World({"a": [DONE, DONE, NOTHING], "b": [DONE, NOTHING], "c": [NOTHING]}, parallel=2)
    await world.play()
    assert world.most == 2
    assert sorted(world.order) == ["a", "a", "a", "b", "b", "c"]


async def test_a_pause_of_one_holds_up_nobody_else() -> None:
    world = World({"a": [BUSY, NOTHING], "b": [DONE, DONE, NOTHING]})
    await world.play()
    assert world.order == ["a", "b", "b", "b", "a"]
    assert world.began["b"] == [0, 0, 0]
    assert world.began["a"][1] >= 3600
    assert world.named("a").totals.paused_seconds >= 3600


async def test_who_needs_a_person_is_disabled_with_the_reason_and_the_others_go_on() -> None:
    world = World({"a": [NO_KEY], "b": [DONE, NOTHING]})
    await world.play()
    assert world.order == ["a", "b", "b"]
    assert world.named("a").halted == "no key"
    assert world.named("a").state(world.clock.now()) is MemberState.DISABLED
    assert world.named("a").next_at(world.clock.now()) is None


async def test_a_worker_of_whom_every_member_is_disabled_ends() -> None:
    world = World({"a": [NO_KEY], "b": [NO_KEY]})
    world.asks_for_the_end = False
    await world.play()
    assert world.order == ["a", "b"]


async def test_a_member_that_cannot_be_built_holds_up_nobody_else() -> None:
    world = World({"a": [], "b": [NOTHING]})
    world.refusals["a"] = ConfigurationError("no such folder")
    await world.play()
    assert world.seen == [("a", "failed"), ("b", "no_task")]
    assert world.named("a").halted == "no such folder"


async def test_a_defect_in_one_is_a_failure_of_it_alone() -> None:
    world = World({"a": [DEFECT, NOTHING], "b": [NOTHING]})
    await world.play()
    assert world.seen[:2] == [("a", "failed"), ("b", "no_task")]
    assert world.began["a"][1] > 0


@pytest.mark.parametrize(("quota", "waits"), [("same", True), ("other", False)])
async def test_a_spent_quota_pauses_all_that_live_on_it(quota: str, *, waits: bool) -> None:
    world = World({"a": [SPENT, NOTHING], "b": [NOTHING]})
    world.quotas = {"a": "same", "b": quota}
    await world.play()
    assert (world.began["b"][0] >= 7200) is waits


async def test_a_rate_limit_of_the_key_pauses_all_that_share_it() -> None:
    world = World({"a": [LIMITED, NOTHING], "b": [NOTHING], "c": [NOTHING]})
    world.quotas = {"a": "same", "b": "same"}
    shared: list[list[str]] = []
    world.after = lambda: shared.append([one.name for one in world.fleet.members if one.pause is not None])
    await world.play()
    assert shared[0] == ["a", "b"]
    assert world.order[:2] == ["a", "c"]
    assert world.began["b"][0] >= 7200
    assert world.named("b").totals.paused_seconds >= 7200


async def test_a_cycle_that_runs_while_the_quota_is_spent_is_the_last_before_the_pause() -> None:
    world = World({"a": [SPENT, NOTHING], "b": [DONE, NOTHING]}, parallel=2)
    world.quotas = {"a": "same", "b": "same"}
    gate = world.gates["b"] = asyncio.Event()
    world.after = gate.set
    await world.play()
    assert world.seen[:2] == [("a", "paused"), ("b", "proposed")]
    assert world.began["b"][0] == 0
    assert world.began["b"][1] >= 7200


async def test_a_quota_that_only_money_brings_back_disables_all_that_live_on_it() -> None:
    world = World({"a": [BROKE], "b": [NOTHING], "c": [NOTHING]})
    world.quotas = {"a": "same", "b": "same"}
    await world.play()
    assert world.order == ["a", "c"]
    assert "no credit" in (world.named("b").halted or "")


async def test_an_overload_pauses_only_the_one_that_met_it() -> None:
    world = World({"a": [BUSY, NOTHING], "b": [NOTHING]})
    world.quotas = {"a": "same", "b": "same"}
    await world.play()
    assert world.began["b"] == [0]


async def test_once_is_one_cycle_each_whatever_comes_of_it() -> None:
    world = World({"a": [SPENT], "b": [DONE], "c": [NO_KEY], "d": [DEFECT]}, once=True)
    world.quotas = dict.fromkeys(world.scripts, "same")
    await world.make().run()
    assert world.order == ["a", "b", "c", "d"]
    assert world.clock.monotonic() == 0


async def test_a_pause_that_an_earlier_worker_left_is_waited_for() -> None:
    world = World({"a": [NOTHING], "b": [NOTHING]})
    world.left["a"] = Pause(START + timedelta(minutes=5), "spent")
    await world.play()
    assert world.order == ["b", "a"]
    assert world.began["a"] == [300]


async def test_a_time_that_comes_during_a_cycle_is_one_more_turn() -> None:
    world = World({"a": [NOTHING, NOTHING, NOTHING]})

    def again() -> None:
        if len(world.order) == 1:
            world.fleet.notify("a")
            world.fleet.notify("a")

    world.after = again
    await world.play()
    assert world.order == ["a", "a"]


async def test_a_time_that_comes_in_the_middle_of_a_cycle_is_not_lost() -> None:
    world = World({"a": [NOTHING, NOTHING]})
    world.gates["a"] = asyncio.Event()
    playing = asyncio.create_task(world.play())
    await world.entered.wait()
    world.fleet.notify("a")
    world.gates.pop("a").set()
    await playing
    assert world.order == ["a", "a"]


async def test_what_was_tried_may_be_tried_again_at_a_new_time_and_not_before() -> None:
    world = World({"a": [DONE, DONE, NOTHING, NOTHING]})

    def again() -> None:
        if len(world.order) in {1, 3}:
            world.fleet.notify("a")

    world.after = again
    await world.play()
    assert world.forgotten == [0, 3]


async def test_who_asks_for_the_end_gets_it_after_the_round() -> None:
    world = World({"a": [DONE], "b": [DONE]})
    world.gates["a"] = asyncio.Event()
    playing = asyncio.ensure_future(world.play())
    await world.entered.wait()
    world.fleet.request_stop()
    world.gates["a"].set()
    await playing
    assert world.seen == [("a", "interrupted")]
    assert world.runners[0].stop.requested
    assert world.runners[0].closed


async def test_who_asks_for_the_end_while_a_member_is_built_gets_it() -> None:
    world = World({"a": [DONE]})
    build = world.build

    def and_stop(name: str) -> Runner:
        world.stop.request()
        return build(name)

    world.builder = and_stop
    await world.play()
    assert world.order == []
    assert world.seen == [("a", "interrupted")]


async def test_the_end_at_once_cancels_what_runs() -> None:
    world = World({"a": [DONE], "b": [DONE]})
    world.gates["a"] = asyncio.Event()
    playing = asyncio.ensure_future(world.play())
    await world.entered.wait()
    world.fleet.stop_at_once()
    await playing
    assert world.seen == [("a", "interrupted")]
    assert world.runners[0].stop.now()
    assert world.runners[0].closed


async def test_who_asks_for_the_end_while_nothing_runs_is_heard() -> None:
    world = World({"a": [NOTHING]})
    fleet = world.make()
    running = asyncio.ensure_future(fleet.run())
    await asyncio.sleep(0)
    fleet.request_stop()
    await running
    assert world.order == []


async def test_a_runner_whose_journal_cannot_be_written_is_built_anew() -> None:
    world = World({"a": [DONE, NOTHING]})

    def full() -> None:
        if len(world.order) == 1:
            world.runners[0].stop.request()

    world.after = full
    await world.play()
    assert len(world.runners) == 2
    assert world.runners[0].closed


async def test_numbers_are_kept() -> None:
    world = World({"a": [DONE, NOTHING]})
    await world.play()
    tally = world.named("a").totals
    assert tally.outcomes == {"proposed": 1, "no_task": 1}
    assert tally.cycles == 2
    assert (tally.last_outcome, tally.last_run) == ("no_task", "run")
    assert world.named("a").state(world.clock.now()) is MemberState.IDLE
    assert world.named("a").next_at(START) == START + timedelta(hours=1)
