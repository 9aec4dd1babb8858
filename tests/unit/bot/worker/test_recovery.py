"""What becomes of runs that were killed, where others have moved their claims meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.claims import Lease
from orchestrator.bot.coordination.saved_work import load_wip, save_wip
from orchestrator.bot.cycle.earlier import UnfinishedState, conversation, pages_of, read_state_pages
from orchestrator.bot.git.opening import reopen_clone
from orchestrator.bot.journal.folders import create_run_folder
from orchestrator.bot.journal.open_runs import is_open
from orchestrator.bot.worker.recovery import Recovery
from orchestrator.core.clock import ManualClock
from orchestrator.core.events import CycleEnded, CycleStarted, InputReceived, MessageAdded, Resumed
from orchestrator.core.messages import Message
from tests.unit.bot.git.rig import US, git
from tests.unit.bot.worker.dead_runs import KEY, START, Machine, made_machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    seen: list[list[str]] = []

    def meanwhile(clone_folder: Path) -> object:
        seen.append(other(machine.recovery(98)))
        return reopen_clone(clone_folder, str(machine.source), lambda: None, US, ManualClock(START))

    first = machine.recovery()
    object.__setattr__(first.remains, "reopen", meanwhile)
    assert run in first.recover()
    assert [run in names for names in seen] == [False]
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
        pages_of(state, conversation([*said, *said]), str),
        touched={"calc.py"},
        include_commands=False,
        expected=None,
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
