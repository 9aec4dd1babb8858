"""A dead run's journal is damaged: what can be read of it counts, and so does the clone beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.saved_work import load_wip
from orchestrator.bot.cycle.earlier import read_saved
from orchestrator.bot.journal.folders import JOURNAL_FILE, Home
from orchestrator.bot.journal.reader import is_open, open_runs
from orchestrator.core.events import MessageAdded, ReplyReceived, SessionStarted, TurnStarted, Warned
from orchestrator.core.messages import FinishReason, Message, Usage
from tests.doubles.journals import DAMAGE, with_lines
from tests.unit.bot.git.rig import git
from tests.unit.bot.worker.dead_runs import KEY, Machine, made_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.core.events import Event


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with made_machine(tmp_path) as machine:
        yield machine


def reply(text: str) -> ReplyReceived:
    return ReplyReceived(Message.assistant(text), FinishReason.STOP, Usage(10, 2), 0.25, "m")


SESSION: list[Event] = [
    SessionStarted("s", "You repair."),
    MessageAdded(Message.user("do it")),
    TurnStarted(1),
    reply("first"),
    Warned("again 9"),
    TurnStarted(2),
    reply("second"),
]
_BEFORE = 4  # records
_WARNED = _BEFORE + 5
_LINES = _BEFORE + len(SESSION) + 1


def recovered(machine: Machine, damage: Callable[[bytes, int], bytes], number: int) -> tuple[list[str], bool]:
    """The saved replies after the recovery of a run whose journal was damaged, and whether it was said."""
    run, folder = machine.killed(1, SESSION)
    machine.taken(run)
    path = machine.home.runs / run / JOURNAL_FILE
    content = path.read_bytes()
    path.write_bytes(damage(content, number))
    assert run in machine.recovery().recover()
    wip = load_wip(machine.records, KEY)
    assert wip is not None
    assert git(machine.source, "show", f"{wip.work}:calc.py") == "fixed"
    saved = read_saved(wip)
    assert saved is not None
    assert not saved[0].files_lost
    shown = machine.claims.show(KEY)
    assert shown is not None
    assert (shown.state, shown.outcome) == ("released", "crashed")
    assert not folder.exists()
    assert not is_open(machine.home.runs / run)
    assert open_runs(machine.home) == []
    said = [event.message for event in machine.told if isinstance(event, Warned)]
    replies = [event.message.text for event in saved[1] if isinstance(event, ReplyReceived)]
    return replies, any(f"the journal of run {run}, which was killed, is damaged: " in one for one in said)


@pytest.mark.parametrize("number", range(_LINES))
def test_a_lost_line_costs_what_was_said_after_it_at_most(machine: Machine, number: int) -> None:
    """The line may say which repository, task, or clone it is about."""
    replies, is_said = recovered(machine, lambda text, at: with_lines(text, at, bytes(30) + b"\n"), number)
    last = number == _LINES - 1
    assert is_said != last  # as if it was cut off
    if number <= _BEFORE:
        assert replies == ["first", "second"]
    elif number <= _BEFORE + 4:
        assert replies == []
    else:
        assert replies == ["first"]


@pytest.mark.parametrize("kind", DAMAGE)
def test_each_kind_of_damage_leaves_the_files_and_the_replies_before_it(machine: Machine, kind: str) -> None:
    replies, is_said = recovered(machine, DAMAGE[kind][0], _WARNED)
    assert is_said
    assert replies[:1] == ["first"]
    assert replies == ["first", "second"] or DAMAGE[kind][1]


def test_of_a_journal_without_a_single_line_the_clone_counts(machine: Machine) -> None:
    run, _ = machine.killed(1, SESSION)
    machine.taken(run)
    path = machine.home.runs / run / JOURNAL_FILE
    path.write_bytes(bytes(4096) + b"\n" + bytes(4096) + b"\n")
    machine.recovery().recover()
    wip = load_wip(machine.records, KEY)
    assert wip is not None
    assert git(machine.source, "show", f"{wip.work}:calc.py") == "fixed"


def test_a_damaged_run_that_no_claim_names_is_left_for_its_own_repository(machine: Machine) -> None:
    run, folder = machine.killed(1, SESSION)
    path = machine.home.runs / run / JOURNAL_FILE
    path.write_bytes(bytes(4096) + b"\n" + bytes(4096) + b"\n")
    before = path.read_bytes()
    machine.recovery().recover()
    assert path.read_bytes() == before
    assert folder.exists()
    assert [one.id for one in open_runs(Home(machine.home.root))] == [run]
