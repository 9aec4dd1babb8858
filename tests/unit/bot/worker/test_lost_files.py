"""What is saved of a run that was killed and whose clone is gone."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.saved_work import load_wip, save_wip
from orchestrator.bot.cycle.earlier import (
    UnfinishedState,
    conversation,
    files_to_keep,
    pages_of,
    read_state_pages,
)
from orchestrator.bot.journal.folders import KeptWork
from orchestrator.bot.journal.reader import is_open
from orchestrator.core.cycle_events import Phase, PhaseEntered, Proposed, QuestionAsked, Resumed
from orchestrator.core.errors import RemoteUnavailableError, WorkspaceError
from orchestrator.core.events import InputReceived, MessageAdded, ReplyReceived, Warned
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.unit.bot.coordination.records_rig import NoClaim, broken_git
from tests.unit.bot.git.rig import clone, git
from tests.unit.bot.worker.dead_runs import KEY, START, Machine, made_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone
    from orchestrator.core.events import Event


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with made_machine(tmp_path) as machine:
        yield machine


SAID = (
    InputReceived(""),
    MessageAdded(Message.user("Fix it")),
    ReplyReceived(Message.assistant("I write it."), FinishReason.STOP, Usage(10, 5), 0.01, "m"),
)


def lost(machine: Machine, events: Sequence[Event]) -> str:
    """A run that holds its claim, and whose files are gone."""
    run, folder = machine.killed(1, events)
    shutil.rmtree(folder)
    machine.taken(run)
    return run


def left(machine: Machine) -> tuple[UnfinishedState, list[str], str | None]:
    """What the next cycle goes on with: the state, what was said, and the commit of the work."""
    wip = load_wip(machine.records, KEY)
    pages = read_state_pages(wip.pages) if wip else None
    assert wip is not None
    assert pages is not None
    messages = [event.message for event in pages[1] if isinstance(event, MessageAdded | ReplyReceived)]
    return pages[0], [message.text for message in messages], wip.work


def save(machine: Machine, run: str, files: dict[str, str], *, tip: str | None = None) -> None:
    """Save unfinished work on the remote, as the cycle `run` does it."""
    state = UnfinishedState(run, "limit", "m", "native", "", tip=tip)
    with clone(machine.source, machine.temporary) as opened:
        for name, text in files.items():
            (opened.tree / name).write_text(text)
        save_wip(
            opened,
            KEY,
            pages_of(state, conversation(SAID), Redactor()),
            touched=set(files),
            include_commands=False,
            continues=None,
            saved_at=START,
            stamp=run,
            lease=NoClaim(opened.remote),
        )


def test_where_the_files_are_gone_what_was_said_is_saved(machine: Machine) -> None:
    run = lost(machine, SAID)
    assert run in machine.recovery().recover()
    state, said, work = left(machine)
    assert (state.run, state.why, state.model, state.files_lost) == (run, "crashed", "m", True)
    assert said == ["Fix it", "I write it."]
    assert work is None
    shown = machine.claims.show(KEY)
    assert shown is not None
    assert (shown.state, shown.outcome) == ("released", "crashed")
    assert not is_open(machine.home.runs / run)
    assert list(machine.temporary.iterdir()) == []


def test_where_the_files_are_there_they_are_not_called_lost(machine: Machine) -> None:
    machine.taken(machine.killed(1, SAID)[0])
    machine.recovery().recover()
    assert not left(machine)[0].files_lost


def test_a_question_without_its_files_still_waits_for_its_answer(machine: Machine) -> None:
    lost(machine, [*SAID, QuestionAsked("Floats too?", "https://github.com/octo/calc/issues/12#1")])
    machine.recovery().recover()
    state, _, _ = left(machine)
    assert state.waits_for_answer
    assert (state.why, state.files_lost) == ("question", True)


def test_a_run_that_paid_for_nothing_leaves_nothing(machine: Machine) -> None:
    lost(machine, SAID[:2])
    machine.recovery().recover()
    assert load_wip(machine.records, KEY) is None
    shown = machine.claims.show(KEY)
    assert shown is not None
    assert shown.outcome == "interrupted"


def test_a_run_that_had_come_to_its_end_with_a_pull_request_leaves_nothing(machine: Machine) -> None:
    proposed = Proposed(3, "Fix", "https://github.com/octo/calc/pull/3", "b", "c" * 40, created=True)
    lost(machine, [*SAID, proposed, PhaseEntered(Phase.FINISH)])
    machine.recovery().recover()
    assert load_wip(machine.records, KEY) is None


def test_a_run_that_had_proposed_and_worked_on_is_gone_on_with(machine: Machine) -> None:
    proposed = Proposed(3, "Fix", "https://github.com/octo/calc/pull/3", "b", "c" * 40, created=True)
    lost(machine, [*SAID, proposed, *SAID[2:]])
    machine.recovery().recover()
    assert left(machine)[0].files_lost


def test_work_that_the_run_had_gone_on_with_stays_and_both_conversations_are_one(machine: Machine) -> None:
    save(machine, "before", {"calc.py": "half\n"})
    lost(machine, [Resumed("before", "limit", 2, 1), *SAID[:1], *SAID[2:]])
    machine.recovery().recover()
    state, said, work = left(machine)
    assert state.files_lost
    assert state.attempts == 2
    assert said == ["Fix it", "I write it.", "I write it."]
    assert git(machine.source, "show", f"{work}:calc.py") == "half"


def test_work_that_conflicts_with_the_base_by_now_is_left_as_it_is(machine: Machine) -> None:
    save(machine, "before", {"calc.py": "half\n"})
    before = load_wip(machine.records, KEY)
    run = lost(machine, [Resumed("before", "limit", 2, 1), *SAID])
    (machine.source / "calc.py").write_text("theirs\n")
    git(machine.source, "commit", "-qam", "Theirs")
    assert run in machine.recovery().recover()
    assert load_wip(machine.records, KEY) == before
    assert any("only in its journal" in event.message for event in machine.told if isinstance(event, Warned))


def test_a_run_that_had_saved_everything_itself_is_not_saved_again(machine: Machine) -> None:
    run = lost(machine, SAID)
    save(machine, run, {"calc.py": "whole\n"})
    before = load_wip(machine.records, KEY)
    machine.recovery().recover()
    assert load_wip(machine.records, KEY) == before
    shown = machine.claims.show(KEY)
    assert shown is not None
    assert shown.outcome == "crashed"


def test_while_nothing_can_be_cloned_the_run_stays_as_it_is(machine: Machine) -> None:
    run = lost(machine, SAID)
    recovery = machine.recovery()

    def away() -> Clone:
        raise RemoteUnavailableError("no answer")

    with pytest.raises(RemoteUnavailableError):
        replace(recovery, open_clone=away).recover()
    assert is_open(machine.home.runs / run)
    machine.recovery().recover()
    assert left(machine)[1] == ["Fix it", "I write it."]


@pytest.mark.parametrize("are_lost", [True, False])
def test_whoever_wants_the_end_meanwhile_leaves_the_run_to_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, *, are_lost: bool
) -> None:
    run = lost(machine, SAID) if are_lost else machine.killed(1, SAID)[0]
    if not are_lost:
        machine.taken(run)
    recovery, pipe = machine.recovery(), machine.temporary / "pipe"
    os.mkfifo(pipe)

    def stopped(opened: Clone) -> Clone:
        machine.stopping.set()
        return opened

    interrupted = replace(
        recovery,
        open_clone=lambda: stopped(recovery.open_clone()),
        reopen=lambda folder: stopped(recovery.reopen(folder)),
    )
    with monkeypatch.context() as patch:
        broken_git(machine.temporary, patch, f'case " $* " in *" push "*/wip/*) cat {pipe};; esac')
        with pytest.raises(WorkspaceError, match="interrupted"):
            interrupted.recover()
    assert is_open(machine.home.runs / run)
    machine.stopping.clear()
    machine.recovery().recover()
    state, said, work = left(machine)
    assert said == ["Fix it", "I write it."]
    assert state.files_lost is are_lost
    assert bool(work) is not are_lost


def taken_up(machine: Machine) -> Resumed:
    """The record that a run took up what `before` had saved."""
    wip = load_wip(machine.records, KEY)
    assert wip is not None
    return Resumed("before", "limit", 2, 1, saved=wip.commit)


def test_a_run_that_died_before_it_took_saved_work_up_replaces_nothing(machine: Machine) -> None:
    save(machine, "before", {"calc.py": "saved\n"})
    before = load_wip(machine.records, KEY)
    run, _ = machine.killed(1)
    machine.taken(run)
    assert run in machine.recovery().recover()
    assert load_wip(machine.records, KEY) == before
    assert machine.claims.show(KEY).outcome == "crashed"  # type: ignore[union-attr]


def test_work_that_does_not_contain_what_is_saved_does_not_replace_it(machine: Machine) -> None:
    save(machine, "before", {"calc.py": "saved\n"})
    before = load_wip(machine.records, KEY)
    run, _ = machine.killed(1, SAID)
    machine.taken(run)
    machine.recovery().recover()
    assert load_wip(machine.records, KEY) == before
    assert "+fixed" in machine.patch(run), "it is kept here for a person"


def test_work_that_contains_what_is_saved_goes_on_with_it(machine: Machine) -> None:
    save(machine, "before", {"calc.py": "saved\n"})
    run, _ = machine.killed(1, [taken_up(machine), *SAID])
    machine.taken(run)
    machine.recovery().recover()
    state, said, work = left(machine)
    assert (state.run, state.why, state.attempts, state.tip) == (run, "crashed", 2, "")
    assert said == ["Fix it", "I write it.", "Fix it", "I write it."]
    assert work is not None


def test_a_recovered_state_knows_the_commit_of_the_branch(machine: Machine) -> None:
    branch = f"pullwright/{KEY}-fix-it"
    git(machine.source, "branch", branch)
    run, _ = machine.killed(1, SAID)
    machine.taken(run)
    machine.recovery().recover()
    state, _, _ = left(machine)
    assert state.tip == git(machine.source, "rev-parse", branch).strip()
    assert not state.knows("0" * 40)


def test_where_the_lost_run_pushed_its_work_older_files_are_not_restored(machine: Machine) -> None:
    save(machine, "before", {"calc.py": "saved\n"}, tip="")
    branch = f"pullwright/{KEY}-fix-it"
    lost(machine, [taken_up(machine), *SAID])
    git(machine.source, "branch", branch)
    machine.recovery().recover()
    state, said, work = left(machine)
    assert work is None, "the branch has them, and more"
    assert (state.files_lost, len(said)) == (True, 4)
    assert state.tip == git(machine.source, "rev-parse", branch).strip()


def keep(machine: Machine, run: str, files: dict[str, str]) -> KeptWork:
    """Keep unfinished work on the machine, as the cycle `run` does where the remote refuses it."""
    kept = KeptWork(machine.home.unfinished)
    state = UnfinishedState(run, "limit", "m", "native", "", tip="")
    with clone(machine.source, machine.temporary) as opened:
        for name, text in files.items():
            (opened.tree / name).write_text(text)
        made = opened.snapshot(set(files), "Unfinished", include_commands=False)
        pages = pages_of(state, conversation(SAID), Redactor())
        kept.write(KEY, files_to_keep(opened.pack(made), pages, None))
    return kept


def test_a_run_goes_on_with_what_only_its_machine_had(machine: Machine) -> None:
    kept = keep(machine, "before", {"calc.py": "kept\n"})
    run, _ = machine.killed(1, [Resumed("before", "limit", 2, 1), *SAID])
    machine.taken(run)
    machine.recovery().recover()
    state, said, work = left(machine)
    assert (state.run, state.attempts, len(said)) == (run, 2, 4)
    assert work is not None
    assert kept.read(KEY) is None, "the remote has all of it"


def test_where_its_files_are_lost_those_that_the_machine_had_are_restored(machine: Machine) -> None:
    keep(machine, "before", {"calc.py": "kept\n"})
    lost(machine, [Resumed("before", "limit", 2, 1), *SAID])
    machine.recovery().recover()
    state, said, work = left(machine)
    assert (state.files_lost, len(said)) == (True, 4)
    with clone(machine.source, machine.temporary) as opened:
        opened.apply_work(work or "", reference=f"refs/pullwright/wip/{KEY}")
        assert (opened.tree / "calc.py").read_text() == "kept\n"


def test_a_run_that_died_before_it_took_kept_work_up_leaves_it_there(machine: Machine) -> None:
    kept = keep(machine, "before", {"calc.py": "kept\n"})
    run, _ = machine.killed(1)
    machine.taken(run)
    assert run in machine.recovery().recover()
    assert load_wip(machine.records, KEY) is None
    assert kept.read(KEY) is not None
