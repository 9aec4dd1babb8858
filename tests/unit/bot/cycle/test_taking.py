"""Taking a task that another worker lets go of at the same moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.claim_record import ClaimRecord, claim_message, claim_ref
from orchestrator.bot.coordination.claims import Lease
from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.claimer import Claimer
from orchestrator.bot.cycle.task_state import KnownTask, asked_digest
from orchestrator.bot.cycle.tasks import Task, from_text
from orchestrator.bot.journal.folders import KeptWork
from orchestrator.core.messages import Spent
from tests.doubles.memory_forge import MemoryForge
from tests.unit.bot.coordination.records_rig import Worker, bare, logged_git, put
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TASK: Task = from_text("Fix it")
START = datetime(2026, 11, 21, tzinfo=UTC)


def known(task: Task) -> KnownTask:
    return KnownTask(task.key, START, task)


def claimer(worker: Worker, path: Path, meanwhile: Callable[[], object] = lambda: None) -> Claimer:
    def why_over_budget(_spent: Spent) -> None:
        meanwhile()  # asked between the first look and the claim

    return Claimer(
        worker.records,
        worker.claims,
        MemoryForge("octo/calc", str(path), lambda _branch: None),
        f"run-{worker.name}",
        (),
        named=False,
        may=lambda _who: True,
        clean=lambda text, _who: text,
        why_over_budget=why_over_budget,
        kept=KeptWork(path.with_name("unfinished")),
        warn=lambda _text: None,
    )


def test_work_that_the_holder_before_left_just_now_is_not_passed_over(tmp_path: Path) -> None:
    path = bare(tmp_path)
    first, second = (Worker(path, tmp_path, name) for name in "ab")
    lease = first.take(task=TASK.key)
    lease.release("limit")
    ref = wip_ref(TASK.key)
    one = claimer(second, path, lambda: put(path, ref, "saved while the other one looked"))
    said = one.take(known(TASK))
    assert isinstance(said, str)
    assert "just now" in said
    shown = second.claims.show(TASK.key)
    assert shown is not None
    assert (shown.state, shown.outcome, shown.pull) == ("released", "limit", None), "given back as it was"
    assert isinstance(claimer(second, path).take(known(TASK)), Lease), "at the next look it is taken"


def test_a_task_that_nobody_had_before_needs_no_second_look(tmp_path: Path) -> None:
    path = bare(tmp_path)
    assert isinstance(claimer(Worker(path, tmp_path, "a"), path).take(known(TASK)), Lease)


def test_a_task_that_has_cost_its_share_is_not_claimed(tmp_path: Path) -> None:
    path = bare(tmp_path)
    first, second = (Worker(path, tmp_path, name) for name in "ab")
    lease = first.take(task=TASK.key)
    lease.release("limit", spent=Spent(3.0))
    choosing = claimer(second, path)
    choosing.why_over_budget = lambda spent: f"${spent.usd:.2f} are spent"
    assert choosing.take(known(TASK)) == (
        f"{TASK.key}: $3.00 are spent: raise the cap (--max-usd-per-task and its like)"
    )
    (claim,) = second.claims.list()
    assert (claim.state, claim.outcome, claim.number) == ("released", "limit", 1)


@pytest.mark.parametrize("only_looks", [False, True])
def test_a_task_whose_workers_died_three_times_is_given_up(tmp_path: Path, *, only_looks: bool) -> None:
    path = bare(tmp_path)
    worker = Worker(path, tmp_path, "b")
    now = worker.claims.clock.now()
    dead = ClaimRecord(
        *(TASK.key, "held", "host-a", "run-a", 3, now, now, now + timedelta(minutes=20)),
        nonce="n",
        deaths=2,
        asked=asked_digest(TASK),
    )
    put(path, claim_ref(TASK.key), claim_message(dead))
    one = claimer(worker, path)
    one.dead_runs = {"run-a"}
    said, number = one.why_not(known(TASK)) if only_looks else (one.take(known(TASK)), 4)
    why = "its worker died 3 times in a row, the last time in run run-a on host-a"
    assert f"{TASK.key} waits for a person: {why}" in str(said)
    shown = worker.claims.show(TASK.key)
    assert shown is not None
    assert (shown.state, shown.outcome, shown.deaths, shown.why) == ("released", "waits", 3, why)
    assert (one.waiting, number) == ({TASK.key: why}, 4)
    assert why in str(claimer(worker, path).take(known(TASK)))
    (again,) = worker.claims.list()
    assert again == shown, "it is not claimed again to say so"


def test_one_look_is_enough_for_a_task_that_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bare(tmp_path)
    commands = logged_git(tmp_path, monkeypatch)
    one = claimer(Worker(path, tmp_path, "a"), path)
    assert isinstance(one.take(known(TASK)), Lease)
    assert commands() == ["ls-remote", "push"]
    assert one.held_by_others() == set()
    assert commands() == ["ls-remote"]
    assert isinstance(one.take(known(from_text("Another"))), Lease)
    assert commands() == ["push"]


def test_work_that_came_after_the_look_is_not_passed_over(tmp_path: Path) -> None:
    path = bare(tmp_path)
    first, second = (Worker(path, tmp_path, name) for name in "ab")
    one = claimer(second, path)
    assert one.held_by_others() == set()
    lease = first.take(task=TASK.key)
    put(path, wip_ref(TASK.key), "saved after the look")
    lease.release("limit")
    said = one.take(known(TASK))
    assert isinstance(said, str)
    assert "just now" in said
    shown = second.claims.show(TASK.key)
    assert shown is not None
    assert (shown.state, shown.outcome, shown.pull) == ("released", "limit", None)


def test_work_that_was_dropped_after_the_look_is_not_there(tmp_path: Path) -> None:
    path = bare(tmp_path)
    ref = wip_ref(TASK.key)
    put(path, ref, "to be dropped")
    one = claimer(Worker(path, tmp_path, "b"), path)
    one.held_by_others()
    git(path, "update-ref", "-d", ref)
    git(path, "gc", "-q", "--prune=now")
    assert isinstance(one.take(known(TASK)), Lease)
    assert one.earlier == {}


def test_a_task_that_was_held_at_the_look_is_left_alone(tmp_path: Path) -> None:
    path = bare(tmp_path)
    first, second = (Worker(path, tmp_path, name) for name in "ab")
    lease = first.take(task=TASK.key)
    one = claimer(second, path)
    assert one.held_by_others() == {TASK.key}
    lease.release("limit")
    said = f"{TASK.key} is being worked on by host-a, run run-a, until 00:20 UTC"
    assert one.take(known(TASK)) == f"{said}; if it is not: pullwright claims release {TASK.key} --repo REPO"
    assert one.held_by_others() == set()
    assert isinstance(one.take(known(TASK)), Lease)
