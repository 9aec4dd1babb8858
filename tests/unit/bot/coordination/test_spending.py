from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import ExitStack
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config.settings import load_settings
from orchestrator.app.wiring.repository import scope_caps
from orchestrator.bot.coordination.budget import (
    Caps,
    CycleBudget,
    Refused,
    RepositoryLedger,
    ScopeCaps,
    least,
    left,
    midnight,
    nothing_left,
    spend_lock,
)
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.reader import lock_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, Reserved
from orchestrator.core.errors import JournalError
from orchestrator.core.events import ReplyReceived
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table
from tests.unit.bot.coordination.records_rig import bare, opened

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 3, tzinfo=UTC)
_COUNT = itertools.count()


def test_what_is_left() -> None:
    assert left(Caps(5.0, 100, 10.0, 3), Spent(2.0, 130, 4.0, 3)) == Caps(3.0, 0, 6.0, 0)
    assert left(Caps(), Spent(2.0, 130, 4.0, 3)) == Caps()
    assert left(Caps(usd=5.0), Spent(usd=None)) == Caps(usd=0.0)
    assert left(Caps(tokens=5), Spent(usd=None)) == Caps(tokens=5)


def test_the_least_of_several() -> None:
    assert least(Caps(5.0, None, 3.0), Caps(2.0, 7), Caps(rounds=1)) == Caps(2.0, 7, 3.0, 1)
    assert least() == Caps()
    assert least(Caps(usd=0.0), Caps(usd=1.0)) == Caps(usd=0.0)


def test_spent_adds_up() -> None:
    assert Spent(1.0, 2, 3.0, 4) + Spent(0.5, 1, 1.0, 1) == Spent(1.5, 3, 4.0, 5)
    assert (Spent(1.0) + Spent(None)).usd is None


@table(
    ("caps", "spent", "needs", "words"),
    [
        (Caps(5.0), Spent(5.0), Caps(), "$5.00 of $5.00 a day are spent or set aside"),
        (Caps(5.0), Spent(5.3), Caps(), "$5.30 of $5.00 a day are spent or set aside"),
        (
            Caps(5.0),
            Spent(4.99),
            Caps(usd=0.05),
            "$4.99 of $5.00 a day are spent or set aside, and the rest is less",
        ),
        (Caps(5.0), Spent(None), Caps(), "it is not known how much of $5.00 a day is spent"),
        (Caps(tokens=1_000), Spent(tokens=1_200), Caps(), "1,200 of 1,000 tokens a day are used"),
        (Caps(minutes=60), Spent(minutes=60), Caps(), "60.0 of 60 minutes a day are used"),
        (Caps(rounds=20), Spent(rounds=20), Caps(), "20 of 20 rounds a day are used"),
        (Caps(9.0, rounds=20), Spent(1.0, rounds=20), Caps(), "20 of 20 rounds a day are used"),
    ],
)
def test_why_nothing_is_left(caps: Caps, spent: Spent, needs: Caps, words: str) -> None:
    assert (nothing_left(caps, spent, needs, "a day") or "").startswith(words)


@table(
    ("caps", "spent", "needs"),
    [
        (Caps(), Spent(None, 9, 9.0, 9), Caps(1.0, 1, 1.0, 1)),
        (Caps(5.0), Spent(4.99), Caps()),
        (Caps(5.0), Spent(4.0), Caps(usd=1.0)),
        (Caps(tokens=10), Spent(None, 9), Caps(usd=1.0)),
    ],
)
def test_where_something_is_left(caps: Caps, spent: Spent, needs: Caps) -> None:
    assert nothing_left(caps, spent, needs, "a day") is None


def test_the_day_ends_in_utc() -> None:
    assert midnight(NOON) == MIDNIGHT
    assert midnight(MIDNIGHT) == MIDNIGHT.replace(day=4)


def test_every_cap_of_the_configuration_arrives_in_its_scope(tmp_path: Path) -> None:
    names = [field.name for field in fields(Caps)]
    scopes = {"": "cycle", "_per_task": "task", "_per_day": "day", "_per_repo": "repository"}
    flags = {
        f"max_{name}{ending}": str(number * 10 + place)
        for number, ending in enumerate(scopes, start=1)
        for place, name in enumerate(names)
    }
    caps = scope_caps(load_settings(flags, {"PULLWRIGHT_HOME": str(tmp_path)}, tmp_path).settings)
    for number, scope in enumerate(scopes.values(), start=1):
        assert getattr(caps, scope) == Caps(*(number * 10 + place for place in range(len(names))))


class Machine:
    """Cycles on one machine; the budget is made anew for each, as by another process."""

    def __init__(self, folder: Path, caps: ScopeCaps, remote: Path | None = None) -> None:
        self.folder, self.caps, self.remote = folder, caps, remote
        self.home, self.clock = Home(folder / "home"), ManualClock(NOON)

    def cycle(self) -> Cycle:
        run = f"{self.clock.now():%Y%m%d-%H%M%S}-{next(_COUNT):06x}"
        return Cycle(self, run, self.budget())

    def budget(self) -> CycleBudget:
        ledger = None
        if self.remote:
            records = opened(self.remote, self.folder)
            ledger = RepositoryLedger(records, self.clock, lambda: f"n{next(_COUNT)}")
        return CycleBudget(self.home, self.clock, self.caps, ledger)


def test_a_task_that_cost_its_cap_is_not_started(tmp_path: Path) -> None:
    budget = CycleBudget(Home(tmp_path), ManualClock(NOON), ScopeCaps(task=Caps(usd=5.0)))
    assert budget.why_not(Spent(usd=4.0), Caps(usd=0.5)) is None
    assert budget.why_not(Spent(usd=5.0), Caps(usd=0.5)) == nothing_left(
        Caps(usd=5.0), Spent(usd=5.0), Caps(usd=0.5), "a task"
    )
    assert budget.why_not(Spent(usd=5.0), Caps(usd=0.5))


class Cycle:
    def __init__(self, machine: Machine, run: str, budget: CycleBudget) -> None:
        self.run, self.budget = run, budget
        self.folder = create_run_folder(machine.home, run)
        self.held = ExitStack()
        self.held.enter_context(lock_run(self.folder))
        self.journal = JournalWriter(self.folder, Redactor(), machine.clock)
        self.journal(CycleStarted(run, "o/r", "m", "native"))
        self.told: list[object] = []

    async def open(self, task: Spent | None = None, needs: Caps | None = None) -> Caps | Refused:
        def emit(event: object) -> None:
            self.told.append(event)
            if isinstance(event, Reserved):
                self.journal(event)

        return await self.budget.open(self.folder, task or Spent(), emit, needs)

    async def end(self, usd: float, tokens: int = 10) -> None:
        usage = Usage(tokens, 0)
        self.journal(ReplyReceived(Message.assistant("x"), FinishReason.STOP, usage, usd, "m"))
        self.journal(CycleEnded({}))
        await self.budget.close(self.run, Spent(usd, tokens, 1.0, 1))
        self.journal.close()
        self.held.close()


def day(usd: float, cycle: float | None = None) -> ScopeCaps:
    return ScopeCaps(cycle=Caps(usd=cycle), day=Caps(usd=usd))


async def test_a_day_is_spent_by_cycles_one_after_another(tmp_path: Path) -> None:
    machine = Machine(tmp_path, day(5.0, cycle=2.0))
    granted = []
    for _ in range(3):
        cycle = machine.cycle()
        answer = await cycle.open()
        assert isinstance(answer, Caps)
        granted.append(answer.usd)
        await cycle.end(2.0 if len(granted) < 3 else 1.0)
    assert granted == [2.0, 2.0, 1.0]
    refused = await machine.cycle().open()
    assert refused == Refused(
        "$5.00 of $5.00 a day are spent or set aside; free again at 00:00 UTC", "day", MIDNIGHT
    )
    machine.clock.advance((MIDNIGHT - machine.clock.now()).total_seconds())
    assert await machine.cycle().open() == Caps(usd=2.0)


async def test_one_at_a_time_reads_and_reserves(tmp_path: Path) -> None:
    home, order = Home(tmp_path), []

    async def reserve(name: str) -> None:
        async with spend_lock(home):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(*(reserve(name) for name in "abc"))
    assert [order[number][0] for number in (0, 2, 4)] == [order[number][0] for number in (1, 3, 5)]


async def test_a_lock_that_is_never_let_go_is_said(tmp_path: Path) -> None:
    home = Home(tmp_path)
    not_a_folder = Home(tmp_path / "file")
    not_a_folder.root.touch()
    with pytest.raises(JournalError, match=r"spend\.lock to read today's costs: Not a directory"):
        async with spend_lock(not_a_folder):
            pass
    async with spend_lock(home):
        with pytest.raises(JournalError, match=rf"process {os.getpid()} keeps .*spend\.lock locked"):
            async with spend_lock(home, seconds=0.01):
                pass
    async with spend_lock(home):
        pass


async def test_who_reads_what_is_spent_is_waited_for_as_long_as_the_cycle_may_last(tmp_path: Path) -> None:
    """In real time: the machine's own clock of a test stands still, or jumps."""
    cycle = Machine(tmp_path, ScopeCaps(cycle=Caps(minutes=0.001))).cycle()
    patient = Machine(tmp_path, day(5.0)).cycle()
    async with spend_lock(Home(tmp_path / "home")):
        with pytest.raises(JournalError, match=r"keeps .*spend\.lock locked"):
            await cycle.open()
        opening = asyncio.create_task(patient.open())
        for _ in range(1000):
            await asyncio.sleep(0)
    assert await opening == Caps(usd=5.0)


async def test_cycles_at_the_same_time_never_get_more_than_the_day(tmp_path: Path) -> None:
    machine = Machine(tmp_path, day(5.0, cycle=2.0))
    cycles = [machine.cycle() for _ in range(6)]
    answers = await asyncio.gather(*(cycle.open() for cycle in cycles))
    given = [answer.usd or 0 for answer in answers if isinstance(answer, Caps)]
    assert sum(given) == 5.0
    assert sum(isinstance(answer, Refused) for answer in answers) == 3


async def test_what_was_not_spent_is_free_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, day(5.0))
    first = machine.cycle()
    assert await first.open() == Caps(usd=5.0)
    assert isinstance(await machine.cycle().open(), Refused)
    await first.end(1.0)
    assert await machine.cycle().open() == Caps(usd=4.0)


async def test_a_cycle_that_died_gives_back_what_its_journal_does_not_show(tmp_path: Path) -> None:
    machine = Machine(tmp_path, day(5.0))
    dead = machine.cycle()
    await dead.open()
    dead.held.close()  # as the system does for a process that was killed
    assert await machine.cycle().open() == Caps(usd=5.0)


async def test_a_task_that_cost_its_share_is_not_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ScopeCaps(cycle=Caps(usd=4.0), task=Caps(usd=3.0, rounds=9)))
    assert await machine.cycle().open(Spent(1.0, rounds=2)) == Caps(usd=2.0, rounds=7)
    refused = await machine.cycle().open(Spent(3.0, rounds=2))
    assert refused == Refused("$3.00 of $3.00 a task are spent or set aside", "task", None)


async def test_a_rest_that_pays_for_no_request_begins_no_cycle(tmp_path: Path) -> None:
    machine = Machine(tmp_path, day(5.0))
    cycle = machine.cycle()
    await cycle.open()
    await cycle.end(4.98)
    refused = await machine.cycle().open(needs=Caps(usd=0.05))
    assert isinstance(refused, Refused)
    assert refused.until == MIDNIGHT


async def test_without_caps_no_journal_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ScopeCaps())
    (machine.home.runs / "20260102-1" / "journal.jsonl").mkdir(parents=True)
    cycle = machine.cycle()
    assert await cycle.open() == Caps()
    assert cycle.told == [Reserved(None, None, None, None)]


async def test_a_repository_is_shared_by_machines(tmp_path: Path) -> None:
    remote = bare(tmp_path)
    caps = ScopeCaps(cycle=Caps(usd=2.0), day=Caps(usd=100.0), repository=Caps(usd=3.0))
    one, other = Machine(tmp_path / "one", caps, remote), Machine(tmp_path / "other", caps, remote)
    first, second, third = one.cycle(), other.cycle(), other.cycle()
    assert await first.open() == Caps(usd=2.0)
    assert await second.open() == Caps(usd=1.0)
    assert [event.usd for event in second.told if isinstance(event, Reserved)] == [2.0, 1.0]
    refused = await third.open()
    words = "$3.00 of $3.00 a day for this repository are spent or set aside; free again at 00:00 UTC"
    assert refused == Refused(words, "repository", MIDNIGHT)
    assert third.told[-1] == Reserved(0.0, 0, 0.0, 0, words)
    await first.end(0.5)
    assert await other.cycle().open() == Caps(usd=1.5)


async def test_a_dry_run_takes_no_more_than_the_repository_has_for_a_day(tmp_path: Path) -> None:
    """It asks no remote, so nobody knows what others have spent."""
    machine = Machine(tmp_path, ScopeCaps(cycle=Caps(usd=2.0), repository=Caps(usd=1.0, rounds=3)))
    assert await machine.cycle().open() == Caps(usd=1.0, rounds=3)
