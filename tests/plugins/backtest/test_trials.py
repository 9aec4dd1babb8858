"""Tries: what is left, caps of all of them, and what a process that dies leaves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import pytest

from orchestrator.bot.coordination.budget import Caps
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.messages import Spent
from orchestrator.plugins.backtest.cases import Judged
from orchestrator.plugins.backtest.trials import (
    Arm,
    Attempted,
    Progress,
    Totals,
    Try,
    TryRecord,
    TryResult,
    known_before,
    make_tries,
    planned,
)

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.plugins.backtest.cases import ReadyCase

ARMS = (Arm("a, json-plan", "1", "a", "json-plan"), Arm("b, json-plan", "2", "b", "json-plan"))


@dataclass(frozen=True)
class _Case:
    id: str


@dataclass(frozen=True)
class _Ready:
    case: _Case
    digest: str


def case(name: str) -> ReadyCase:
    """A case of which only the name is asked."""
    return cast("ReadyCase", _Ready(_Case(name), name))


def done(wanted: Try, usd: float | None = 1.0, judged: Judged = Judged.SOLVED) -> TryResult:
    """A result."""
    return TryResult(
        key=wanted.key,
        case=wanted.case.case.id,
        arm=wanted.arm.name,
        number=wanted.number,
        outcome="proposed",
        judged=str(judged),
        detail="",
        patch="",
        run="run",
        usd=usd,
        tokens=100,
        minutes=2.0,
        rounds=3,
    )


@dataclass
class Played:
    """Attempts that cost a dollar, except as they are told."""

    cost: float | None = 1.0
    least: float = 0.1
    made: list[tuple[str, float | None]] = field(default_factory=list)
    failing: frozenset[str] = frozenset()
    begun: dict[str, Spent] = field(default_factory=dict)
    running: int = 0
    most: int = 0

    def spent(self, wanted: Try) -> Spent:
        return self.begun.get(wanted.key, Spent())

    def least_usd(self, arm: Arm) -> float:
        del arm
        return self.least

    async def make(self, wanted: Try, granted: Caps) -> Attempted:
        self.made.append((wanted.key, granted.usd))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.begun[wanted.key] = self.spent(wanted) + Spent(self.cost, 100, 2.0, 3)
        if wanted.arm.name in self.failing:
            return Attempted(None, self.begun[wanted.key], "the server is down")
        return Attempted(done(wanted, self.cost), self.begun[wanted.key])


async def play(
    attempts: Played, record: TryRecord, wanted: list[Try], totals: Totals | None = None
) -> list[str]:
    """Make the tries; why they ended."""
    ended: list[str] = []
    progress = Progress(stopped=ended.append)
    made = totals or Totals(Caps(), ManualClock(), 1)
    await make_tries(wanted, attempts, record, made, progress=progress, stopped=lambda: False)
    return ended


def some(cases: int = 3, tries: int = 1) -> list[Try]:
    return planned([case(f"c{number}") for number in range(cases)], ARMS, tries)


async def test_each_try_is_made_once_whatever_process_made_it(tmp_path: Path) -> None:
    path, wanted = tmp_path / "tries.jsonl", some(2, 2)
    assert len({one.key for one in wanted}) == 8
    first, second = Played(), Played()
    await play(first, TryRecord(path), wanted[:3])
    assert await play(second, TryRecord(path), wanted) == []
    assert [key for key, _ in first.made + second.made] == [one.key for one in wanted]
    third = Played()
    await play(third, TryRecord(path), wanted)
    assert third.made == []


async def test_another_configuration_is_another_try(tmp_path: Path) -> None:
    wanted = some(1)
    record = TryRecord(tmp_path / "tries.jsonl")
    await play(Played(), record, wanted)
    changed = [replace(one, arm=replace(one.arm, digest="3")) for one in wanted]
    played = Played()
    await play(played, record, changed)
    assert len(played.made) == 2


async def test_no_try_is_begun_that_could_pass_the_cap(tmp_path: Path) -> None:
    attempts, totals = Played(least=0.6), Totals(Caps(usd=2.5), ManualClock(), 1)
    (ended,) = await play(attempts, TryRecord(tmp_path / "t"), some(), totals)
    assert [usd for _, usd in attempts.made] == [2.5, 1.5]
    assert ended == "$2.00 of $2.50 (--max-usd-total) are spent, and the rest is less than a try needs"


async def test_tries_at_once_share_what_is_left(tmp_path: Path) -> None:
    attempts, totals = Played(cost=0.5), Totals(Caps(usd=4.0), ManualClock(), 3)
    await play(attempts, TryRecord(tmp_path / "t"), some(), totals)
    assert attempts.most == 3
    granted = [usd or 0 for _, usd in attempts.made[:3]]
    assert granted == pytest.approx([4 / 3] * 3)
    assert totals.spent.usd == pytest.approx(3.0)


async def test_money_of_earlier_processes_counts(tmp_path: Path) -> None:
    wanted, record = some(), TryRecord(tmp_path / "t")
    record.add(done(wanted[0], 1.0))
    attempts = Played(begun={wanted[1].key: Spent(0.75, 1, 0.1, 1)})
    totals = Totals(Caps(usd=3.0), ManualClock(), 1)
    totals.spent = known_before(wanted, attempts, record)
    assert totals.spent.usd == 1.75
    await play(attempts, record, wanted, totals)
    assert [usd for _, usd in attempts.made] == [1.25, 0.25]


async def test_a_cost_that_nobody_knows_ends_a_capped_run(tmp_path: Path) -> None:
    totals = Totals(Caps(usd=3.0), ManualClock(), 1)
    attempts = Played(cost=None)
    (ended,) = await play(attempts, TryRecord(tmp_path / "t"), some(), totals)
    assert len(attempts.made) == 1
    assert "the price of a reply is unknown" in ended


async def test_minutes_are_those_since_the_start(tmp_path: Path) -> None:
    clock = ManualClock()
    totals = Totals(Caps(minutes=10.0), clock, 1)
    clock.advance(9 * 60.0)
    caps = totals.grant("a", 0.0)
    assert not isinstance(caps, str)
    assert caps.minutes == pytest.approx(1.0)
    clock.advance(61.0)
    (ended,) = await play(Played(), TryRecord(tmp_path / "t"), some(), totals)
    assert ended == "the limit of 10 minutes (--max-minutes-total) is reached"


async def test_an_arm_whose_server_is_down_is_given_up_and_the_other_goes_on(tmp_path: Path) -> None:
    attempts, record = Played(failing=frozenset({ARMS[0].name})), TryRecord(tmp_path / "t")
    wanted = some(4)
    await play(attempts, record, wanted)
    failed = [key for key, _ in attempts.made if key not in record.done]
    assert len(failed) == 2
    assert len(record.done) == 4
    again = Played()
    await play(again, TryRecord(tmp_path / "t"), wanted)
    assert len(again.made) == 4


async def test_an_error_of_this_machine_ends_it_and_nothing_that_was_done_is_lost(tmp_path: Path) -> None:
    class Full(Played):
        async def make(self, wanted: Try, granted: Caps) -> Attempted:
            if len(self.made) == 2:
                raise WorkspaceError("no space")
            return await super().make(wanted, granted)

    record = TryRecord(tmp_path / "t")
    with pytest.raises(WorkspaceError, match="no space"):
        await play(Full(), record, some())
    assert len(TryRecord(tmp_path / "t").done) == 2
