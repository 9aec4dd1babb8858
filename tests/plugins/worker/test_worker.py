"""What a worker does with its turns: pauses and ends that hold up nobody else, restarts, and a graceful end.

Turns are taken from a real queue in a file, in the order in which the engine hands them out, and time is the test's.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from dbos import DBOS

from orchestrator.bot.cycle.parts import Assignment, CycleResult, FoundTask, Outcome, Stop
from orchestrator.bot.cycle.tasks import TaskKind, from_text
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import NextStepChooser
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.core.errors import (
    AuthenticationError,
    ConfigurationError,
    FleetError,
    OverloadedError,
    RateLimitError,
    SpentQuotaError,
)
from orchestrator.plugins.fleet.store import FleetStore
from orchestrator.plugins.worker.engine import (
    EngineOptions,
    FleetEngine,
    FleetWorker,
    HeartbeatWatch,
    new_worker_name,
)
from orchestrator.plugins.worker.members import Member, MemberState, MemberTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.bot.worker.worker import NextStep
    from orchestrator.plugins.fleet.turns import RepositoryTurn
    from tests.doubles.postgres import PostgresServer


START = datetime.now(UTC)
HOUR = 3600.0
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


class Runner:
    """Plays a repository's results, each after the look that finds its task; the world tells it when to go on."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.stop = Stop()
        self.closed = False
        self.attempted: set[str] = set()

    def forget(self) -> None:
        self.world.forgotten.append(self.name)

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008  a frozen value
        world, script = self.world, self.world.scripts[self.name]
        world.played.append((self.name, assignment.task))
        if assignment.only_look:
            world.looked[self.name].append(world.clock.monotonic())
            if isinstance(script[0], CycleResult) and script[0].task is not None:
                key = f"issue-{len(world.looked[self.name])}"
                found = FoundTask(key, "A task", TaskKind.NEW, key, 1)
                return CycleResult("look", Outcome.FOUND, found=found)
        gate = world.gates.get(self.name)
        if gate is not None:
            world.entered.set()
            await gate.wait()
            if self.stop.requested:
                return ended(Outcome.INTERRUPTED)
        self.attempted.add(assignment.task)
        if world.full_disks:
            world.full_disks -= 1
            self.stop.request()
        step = script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def close(self) -> None:
        self.closed = True


class World:
    """A worker whose repositories play scripts, and what takes turns for it until only the schedule is waited for."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(START)
        self.store = FleetStore(url, self.clock, patient=True)
        self.store.open()
        self.stop = Stop()
        self.scripts: dict[str, list[CycleResult | Exception]] = {}
        self.quotas: dict[str, str] = {}
        self.left: dict[str, Pause] = {}
        self.refusals: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.entered = asyncio.Event()
        self.full_disks = 0
        self.after: Callable[[], None] = lambda: None
        self._forget_what_was()

    def _forget_what_was(self) -> None:
        self.played: list[tuple[str, str]] = []
        self.looked: defaultdict[str, list[float]] = defaultdict(list)
        self.forgotten: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.runners: list[Runner] = []
        self.overs: list[str] = []
        self._due: dict[str, datetime] = {}

    def start(self, scripts: dict[str, list[CycleResult | Exception]], *, once: bool = False) -> FleetWorker:
        """A worker that has begun, as after a restart if there was one before."""
        self.scripts = scripts
        self._forget_what_was()
        members = {name: self._member(name) for name in scripts}
        self.worker = FleetWorker(
            "w",
            self.store,
            members,
            self.clock,
            self.stop,
            SOURCE,
            self._report,
            once=once,
            on_over=lambda: self.overs.append("over"),
        )
        self.worker.begin()
        return self.worker

    def _member(self, name: str) -> Member:
        schedule = make_schedule("1d", None, "UTC", START)
        assert schedule is not None
        return Member(
            name,
            lambda: self._build(name),
            self.quotas.get(name, name),
            schedule,
            NextStepChooser(self.clock, SOURCE),
            self.left.get(name),
            totals=MemberTotals(last_run="run"),
        )

    def _build(self, name: str) -> Runner:
        if name in self.refusals:
            raise self.refusals[name]
        self.runners.append(Runner(name, self))
        return self.runners[-1]

    def _report(self, member: Member, result: CycleResult, onward: NextStep) -> None:
        del onward
        self.seen.append((member.name, str(result.outcome)))
        self.after()

    def __getitem__(self, name: str) -> Member:
        return self.worker.by_key[name]

    def next(self) -> RepositoryTurn | None:
        """The turn that comes next, at its time; None where all wait for their schedules."""
        numbers = self.store.numbers(list(self.scripts))
        waiting = [one for one in self.store.queued() if numbers.get(one.turn.repository) == one.turn.number]
        now, is_now = self.clock.now(), datetime.now(UTC)
        for one in waiting:
            # The engine counts delays by the machine's clock: a second more, and none comes too early.
            later = max(one.at - is_now, timedelta()) + timedelta(seconds=1) if one.at else timedelta()
            self._due.setdefault(one.workflow, now + later)
        coming = sorted(waiting, key=lambda one: (max(self._due[one.workflow], now), one.turn.priority))
        if not coming:
            return None
        first, due = coming[0].turn, self._due[coming[0].workflow]
        if first.renewed and due > now + timedelta(hours=12):  # a day is the schedule; all pauses are shorter
            return None
        self.clock.advance(max((due - now).total_seconds(), 0.0))
        return first

    async def play(self, scripts: dict[str, list[CycleResult | Exception]], *, once: bool = False) -> None:
        """Start, and play all turns until there is nothing to do before a time of a schedule."""
        self.start(scripts, once=once)
        await self.go_on()

    async def go_on(self) -> None:
        while not self.overs and not self.stop() and (turn := self.next()) is not None:
            await self.worker.run_turn(turn)
        await self.worker.close()


@pytest.fixture
def world(fleet_file: str) -> Iterator[World]:
    made = World(fleet_file)
    yield made
    made.store.close()


async def test_looks_come_first_and_each_goes_on_until_it_has_nothing_to_do(world: World) -> None:
    await world.play({"a": [DONE, DONE, NOTHING], "b": [DONE, NOTHING], "c": [NOTHING]})
    assert world.played[:3] == [("a", ""), ("b", ""), ("c", "")]
    assert sorted(world.seen) == [
        *[("a", "no_task"), ("a", "proposed"), ("a", "proposed")],
        *[("b", "no_task"), ("b", "proposed"), ("c", "no_task")],
    ]
    assert all(runner.closed for runner in world.runners)
    assert sorted(world.forgotten) == [
        "a",
        "b",
        "c",
    ]  # what was tried is not forgotten before the schedule's time
    totals = world["a"].totals
    assert (totals.outcomes, totals.cycles) == ({"proposed": 2, "no_task": 1}, 3)
    assert (totals.last_outcome, totals.last_run) == ("no_task", "run")
    now = world.clock.now()
    assert world["a"].state(now) is MemberState.IDLE
    next_at = world["a"].next_at(now)
    assert next_at is not None
    assert next_at - START == timedelta(days=1)


async def test_a_pause_of_one_holds_up_nobody_else(world: World) -> None:
    world.quotas = {"a": "same", "b": "same"}
    await world.play({"a": [BUSY, NOTHING], "b": [DONE, DONE, NOTHING]})
    assert max(world.looked["b"]) < HOUR
    assert world.looked["a"][1] >= HOUR - 1
    assert world["a"].totals.paused_seconds >= HOUR - 1


async def test_who_needs_a_person_is_disabled_and_without_any_other_the_worker_is_over(world: World) -> None:
    world.refusals["b"] = ConfigurationError("no such folder")
    await world.play({"a": [NO_KEY], "b": [], "c": [DONE, NOTHING]})
    assert sorted(world.seen) == [("a", "failed"), ("b", "failed"), ("c", "no_task"), ("c", "proposed")]
    assert (world["a"].halted, world["b"].halted) == ("no key", "no such folder")
    assert world["a"].state(world.clock.now()) is MemberState.DISABLED
    assert world["a"].next_at(world.clock.now()) is None
    assert [one.halted for one in world.store.repositories()] == ["no key", "no such folder", None]
    assert world.overs == []
    await world.play({"a": [NO_KEY], "b": []})
    assert sorted(world.seen) == [("a", "failed"), ("b", "failed")]  # a restart is one more try
    assert world.overs == ["over"]


async def test_a_defect_in_one_is_a_failure_of_it_alone(world: World) -> None:
    await world.play({"a": [DEFECT, NOTHING], "b": [NOTHING]})
    assert world.seen[:2] == [("a", "failed"), ("b", "no_task")]
    assert world.looked["a"][1] > 0


@pytest.mark.parametrize("limit", [SPENT, LIMITED])
async def test_a_limit_of_the_key_pauses_all_that_share_it_also_after_a_restart(
    world: World, limit: CycleResult
) -> None:
    world.quotas = {"a": "same", "b": "same", "d": "same"}
    shared: list[list[str]] = []
    world.after = lambda: shared.append([one.name for one in world.worker.members if one.pause is not None])
    await world.play({"a": [limit, NOTHING], "b": [DONE, NOTHING], "c": [NOTHING], "d": [NOTHING]})
    paused = next(names for names in shared if names)
    assert paused == ["a", "b", "d"]
    assert world.looked["b"][1] >= 2 * HOUR - 1  # what it had found before is not begun either
    assert world["d"].totals.paused_seconds >= 2 * HOUR - 1
    assert world.seen.index(("c", "no_task")) < world.seen.index(("b", "proposed"))
    world.clock = world.worker._clock = ManualClock(START)
    world.store.clock = world.clock
    world.start({"a": [NOTHING], "b": [NOTHING], "c": [NOTHING]})
    assert [one.state(START) for one in world.worker.members] == [
        *[MemberState.PAUSED, MemberState.PAUSED],
        MemberState.DUE,
    ]
    await world.go_on()
    assert world.looked["c"] == [0]
    assert min(*world.looked["a"], *world.looked["b"]) >= 2 * HOUR - 1


async def test_a_cycle_that_runs_while_the_quota_is_spent_is_the_last_before_the_pause(world: World) -> None:
    world.quotas = {"a": "same", "b": "same"}
    gate = world.gates["b"] = asyncio.Event()
    world.start({"a": [SPENT, NOTHING], "b": [DONE, NOTHING]})
    for _ in "ab":  # the looks
        turn = world.next()
        assert turn is not None
        await world.worker.run_turn(turn)
    first, second = (one.turn for one in world.store.queued() if one.turn.task)
    running = asyncio.create_task(world.worker.run_turn(second))
    await world.entered.wait()
    await world.worker.run_turn(first)
    gate.set()
    await running
    assert world.seen == [("a", "paused"), ("b", "proposed")]
    assert world["b"].state(world.clock.now()) is MemberState.PAUSED
    await world.go_on()
    assert world.looked["b"][1] >= 2 * HOUR - 1


async def test_a_quota_that_only_money_brings_back_disables_all_that_live_on_it(world: World) -> None:
    world.quotas = {"a": "same", "b": "same"}
    await world.play({"a": [BROKE], "b": [DONE, NOTHING], "c": [NOTHING]})
    assert world.seen == [("c", "no_task"), ("a", "failed")]
    assert "no credit" in (world["b"].halted or "")
    assert [bool(one.halted) for one in world.store.repositories()] == [True, True, False]
    world.store.resume("b")
    world.clock.advance(1)
    await world.go_on()
    assert world.seen[2:] == [("b", "proposed"), ("b", "no_task")]
    assert world["b"].halted is None


async def test_once_is_one_cycle_each_whatever_comes_of_it_and_whatever_pauses_it(world: World) -> None:
    names = ["a", "b", "c", "d", "e"]
    world.quotas = dict.fromkeys(names, "same")
    world.left["b"] = Pause(START + timedelta(hours=3), "spent")
    world.store.begin("e", "same", None)
    world.store.pause("e", "by hand")
    scripts: dict[str, list[CycleResult | Exception]] = {
        "a": [SPENT],
        "b": [DONE],
        "c": [NO_KEY],
        "d": [DEFECT],
    }
    await world.play({**scripts, "e": []}, once=True)
    assert sorted(world.seen) == [("a", "paused"), ("b", "proposed"), ("c", "failed"), ("d", "failed")]
    assert world.clock.monotonic() == 0
    assert world.overs == ["over"]
    await world.play({"e": []}, once=True)
    assert world.worker.is_over


async def test_a_pause_that_an_earlier_worker_left_is_waited_for_and_never_gets_shorter(world: World) -> None:
    world.left["a"] = Pause(START + timedelta(minutes=5), "spent")
    await world.play({"a": [NOTHING], "b": [NOTHING]})
    assert world.seen == [("b", "no_task"), ("a", "no_task")]
    assert world.looked["a"][0] >= 299
    world.left["a"] = Pause(START + timedelta(hours=3), "busy")
    world.start({"a": [NOTHING], "b": [NOTHING]})
    world.left["a"] = Pause(START + timedelta(hours=2), "spent")
    world.start({"a": [NOTHING], "b": [NOTHING]})
    pause = world["a"].pause
    assert pause is not None
    assert pause.reason == "busy"


async def test_a_restart_tries_again_what_was_tried_and_keeps_what_a_person_wants_next(world: World) -> None:
    await world.play({"a": [DONE, NOTHING], "b": [NOTHING]})
    assert world.store.ask("a", "issue-7")
    world.store.begin("gone", "quota", None)  # the file does not name it any more
    before = {one.workflow for one in world.store.queued()}
    world.store.add_worker("killed", "1.0", 1)
    world.start({"a": [DONE], "b": [DONE]})
    assert not world.store.workers()
    turns = {name: world.store._current_turn(name) for name in "ab"}
    assert [(one.task, one.attempted, one.renewed) for one in turns.values() if one] == [
        ("issue-7", (), True),
        ("", (), True),
    ]
    after = {one.workflow for one in world.store.queued()}
    assert after - before == {"a:issue-7:0:6", "b:look:0:3"}
    assert before - after == {"a:issue-7:0:5", "b:look:0:2", "gone:look:0:1"}


async def test_a_second_worker_is_told_who_has_the_queue(world: World, fleet_file: str) -> None:
    second = FleetStore(fleet_file, world.clock, patient=True)
    with pytest.raises(FleetError, match=r"another worker uses this queue: process .* keeps .*lock locked"):
        second.open()
    second.close()
    looking = FleetStore(fleet_file, world.clock)
    looking.open()
    looking.close()


@pytest.mark.parametrize("at_once", [False, True])
async def test_who_asks_for_the_end_gets_it_after_the_round_or_at_once(
    world: World, *, at_once: bool
) -> None:
    gate = world.gates["a"] = asyncio.Event()
    world.start({"a": [DEFECT], "b": [DONE]})
    turn = world.next()
    assert turn is not None
    playing = asyncio.create_task(world.worker.run_turn(turn))
    await world.entered.wait()
    if at_once:
        world.worker.stop_at_once()
    else:
        world.worker.request_stop()
        gate.set()
    await playing
    assert world.seen == [("a", "interrupted")]
    assert world.runners[0].stop.now() is at_once
    assert world.runners[0].closed
    rest = world.next()
    assert rest is not None
    await world.worker.run_turn(rest)
    assert world.seen == [("a", "interrupted")]


async def test_who_asks_for_the_end_while_a_repository_is_opened_gets_it(world: World) -> None:
    world.start({"a": [DONE]})
    build = world["a"].build

    def and_stop() -> Runner:
        world.stop.request()
        return build()  # type: ignore[return-value]

    world["a"].build = and_stop
    turn = world.next()
    assert turn is not None
    await world.worker.run_turn(turn)
    assert world.played == []
    assert world.seen == [("a", "interrupted")]


async def test_a_runner_whose_journal_cannot_be_written_is_built_anew(world: World) -> None:
    world.full_disks = 1
    await world.play({"a": [DONE, NOTHING]})
    assert len(world.runners) == 2
    assert world.runners[0].closed


async def play(*looks: tuple[float, dict[str, int]]) -> list[list[str]]:
    """Look after so many seconds each, and see these heartbeats."""
    clock = ManualClock()
    watch = HeartbeatWatch(clock, 30.0)
    dead = []
    for seconds, beats in looks:
        await clock.sleep(seconds)
        dead.append(watch.dead(beats))
    return dead


async def test_who_stands_still_for_a_lease_is_dead_and_who_beats_is_not() -> None:
    looks = [(5.0, {"gone": 3, "here": number}) for number in range(8)]
    assert await play(*looks) == [[], [], [], [], [], [], ["gone"], ["gone"]]


async def test_after_a_database_that_was_away_nobody_is_dead_before_a_whole_lease() -> None:
    away = [(5.0, {"a": 1}), (3600.0, {"a": 1}), *[(5.0, {"a": 1})] * 5]
    assert await play(*away) == [[]] * 7
    assert (await play(*away, (5.0, {"a": 1})))[-1] == ["a"]


async def test_who_beats_again_at_the_last_moment_lives() -> None:
    looks = [(5.0, {"slow": 1})] * 6 + [(4.0, {"slow": 2}), (5.0, {"slow": 2})]
    assert await play(*looks) == [[]] * 8


class Idle:
    """Plays no turn: none comes so far."""

    async def run_turn(self, turn: RepositoryTurn) -> None:
        raise AssertionError(turn)

    def lose(self, turn: RepositoryTurn) -> None:
        raise AssertionError(turn)


async def test_a_database_that_goes_away_while_a_worker_starts_is_one_line(postgres: PostgresServer) -> None:
    class Dropped(FleetStore):
        def add_worker(self, worker: str, version: str, parallel: int) -> None:
            super().add_worker(worker, version, parallel)
            postgres.drop(self.url)

    clock = SystemClock()
    store = Dropped(postgres.new_database(), clock)
    store.open()
    try:
        with pytest.raises(FleetError, match="does not exist"):
            await FleetEngine(store, EngineOptions("m-1", "1.0"), clock, Idle(), print).launch()
    finally:
        DBOS.destroy()
        store.close()


def test_no_two_workers_have_one_name() -> None:
    assert new_worker_name("host") != new_worker_name("host")
