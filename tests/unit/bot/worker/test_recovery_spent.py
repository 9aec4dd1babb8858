"""What a killed run has spent, and may have spent: it counts for the task and for the day, once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.index import spent_on
from orchestrator.core.clock import ManualClock
from orchestrator.core.events import ReplyReceived, TurnStarted, WaitStarted
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.core.spent import Spent
from tests.unit.bot.worker.dead_runs import KEY, START, Machine, made_machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.core.events import Event

STORY: tuple[Event, ...] = (
    TurnStarted(1, 1_000, 0.5),
    ReplyReceived(Message.assistant("x"), FinishReason.STOP, Usage(90, 10), 0.25, "m"),
    TurnStarted(2, 2_000, 1.0),
    WaitStarted(1.0, "cut", 1_500, 0.75),
)
SPENT = Spent(0.25 + 1.0 + 0.75, 100 + 2_000 + 1_500)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with made_machine(tmp_path) as made:
        yield made


def test_a_request_under_way_counts_for_the_task(machine: Machine) -> None:
    run, _ = machine.killed(1, STORY)
    machine.taken(run)
    machine.recovery().recover()
    shown = machine.claims.show(KEY)
    assert shown is not None
    assert (shown.spent.usd, shown.spent.tokens, shown.spent.rounds) == (SPENT.usd, SPENT.tokens, 2)


@pytest.mark.parametrize("is_ours", [True, False])
def test_and_for_the_day_before_and_after_the_repair(machine: Machine, *, is_ours: bool) -> None:
    run, _ = machine.killed(1, STORY)
    if is_ours:
        machine.taken(run)
    before = spent_on(machine.home, START)
    assert (before.usd, before.tokens) == (SPENT.usd, SPENT.tokens)
    machine.recovery().recover()
    assert spent_on(machine.home, START) == before


def test_a_repair_on_the_next_day_costs_that_day_nothing(machine: Machine) -> None:
    run, _ = machine.killed(1, STORY)
    machine.taken(run)
    recovery = machine.recovery()
    assert isinstance(recovery.clock, ManualClock)
    recovery.clock.advance(86_400)
    recovery.recover()
    tomorrow = spent_on(machine.home, START + timedelta(days=1))
    assert (tomorrow.usd, tomorrow.tokens) == (0.0, 0)
    today = spent_on(machine.home, START)
    assert (today.usd, today.tokens) == (SPENT.usd, SPENT.tokens)


def test_a_price_that_nobody_knows_stays_unknown(machine: Machine) -> None:
    machine.killed(1, [TurnStarted(1, 1_000)])
    machine.recovery().recover()
    assert spent_on(machine.home, START) == Spent(None, 1_000)
