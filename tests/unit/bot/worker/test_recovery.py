"""Runs that were killed: their work is saved, their claims are released, and what they cost counts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.claims import Lease
from orchestrator.bot.coordination.saved_work import load_wip, save_wip
from orchestrator.bot.cycle.earlier import UnfinishedState, conversation, pages_of, read_state_pages
from orchestrator.bot.git.opening import reopen_clone
from orchestrator.bot.journal.folders import create_run_folder
from orchestrator.bot.journal.index import spent_on
from orchestrator.bot.journal.reader import is_open
from orchestrator.bot.worker.recovery import Recovery
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, Resumed
from orchestrator.core.events import InputReceived, MessageAdded, ReplyReceived, TurnStarted, WaitStarted
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.unit.bot.git.rig import US, git
from tests.unit.bot.worker.dead_runs import KEY, START, Machine, made_machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.core.events import Event


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with made_machine(tmp_path) as machine:
        yield machine


def test_the_work_of_a_killed_run_is_saved_and_its_claim_let_go(machine: Machine) -> None:
    run, folder = machine.killed(1)
    machine.taken(run)
    assert run in machine.recovery().recover()
    wip = load_wip(machine.records, KEY)
    assert wip is not None
    assert git(machine.source, "show", f"{wip.work}:calc.py") == "fixed"
    shown = machine.claims.show(KEY)
    assert shown is not None
    assert (shown.state, shown.outcome) == ("released", "crashed")
    assert not folder.exists()
    assert not is_open(machine.home.runs / run)


def test_a_run_whose_claim_a_person_took_away_before_it_was_killed_loses_nothing(machine: Machine) -> None:
    run, _ = machine.killed(1)
    machine.taken(run)
    machine.claims.release(KEY, "released by a person")
    machine.recovery().recover()
    assert "+fixed" in machine.patch(run)
    assert load_wip(machine.records, KEY) is None, (
        "the task is the person's, who may have given it to another"
    )


def test_work_of_a_later_holder_is_not_replaced_by_that_of_a_dead_run(machine: Machine) -> None:
    run, _ = machine.killed(1)
    machine.taken(run)
    machine.claims.release(KEY, "gone")
    later = machine.taken("elsewhere")
    machine.recovery().recover()
    assert "+fixed" in machine.patch(run)
    assert load_wip(machine.records, KEY) is None
    assert later.renew().run == "elsewhere"


def test_a_run_that_another_process_is_repairing_keeps_its_claim(machine: Machine) -> None:
    run, folder = machine.killed(1)
    machine.taken(run)
    other = Recovery.recover
    seen: list[bool] = []

    def meanwhile(clone_folder: Path) -> object:
        seen.append(run in other(machine.recovery(98)))
        return reopen_clone(clone_folder, str(machine.source), lambda: None, US, ManualClock(START))

    first = machine.recovery()
    object.__setattr__(first, "reopen", meanwhile)
    assert run in first.recover()
    assert seen == [False]
    assert load_wip(machine.records, KEY) is not None
    assert not folder.exists()


def test_a_claim_that_a_run_could_not_let_go_of_is_nobodys_once_the_run_is_over(machine: Machine) -> None:
    run = machine.run_id(1)
    machine.taken(run)
    machine.write(
        create_run_folder(machine.home, run), [CycleStarted(run, "octo/calc", "m", "native"), CycleEnded({})]
    )
    names = machine.recovery().recover()
    assert isinstance(machine.claims.take(KEY, "next", dead_runs=names), Lease)


def test_a_run_that_is_just_beginning_is_not_over(machine: Machine) -> None:
    run = machine.run_id(1)
    create_run_folder(machine.home, run)
    assert run not in machine.recovery().recover()


def test_what_was_said_is_not_saved_twice_by_a_run_that_was_killed_after_it_saved(machine: Machine) -> None:
    said = (InputReceived(""), MessageAdded(Message.user("Fix it")))
    run, folder = machine.killed(1, [Resumed("before", "limit", 1, 0), *said])
    lease = machine.taken(run)
    opened = reopen_clone(folder, str(machine.source), lambda: None, US, ManualClock(START))
    state = UnfinishedState(run, "limit", "m", "native", "")
    save_wip(
        opened,
        KEY,
        pages_of(state, conversation([*said, *said]), Redactor()),
        touched={"calc.py"},
        include_commands=False,
        continues=None,
        saved_at=START,
        stamp=run,
        find_secrets=lambda _diff: [],
        lease=lease,
    )
    opened.leave()
    opened.close()
    machine.recovery().recover()
    wip = load_wip(machine.records, KEY)
    pages = read_state_pages(wip.pages) if wip else None
    assert pages is not None
    assert sum(isinstance(event, MessageAdded) for event in pages[1]) == 2


STORY: tuple[Event, ...] = (
    TurnStarted(1, 1_000, 0.5),
    ReplyReceived(Message.assistant("x"), FinishReason.STOP, Usage(90, 10), 0.25, "m"),
    TurnStarted(2, 2_000, 1.0),
    WaitStarted(1.0, "cut", 1_500, 0.75),
)
SPENT = Spent(0.25 + 1.0 + 0.75, 100 + 2_000 + 1_500)


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
