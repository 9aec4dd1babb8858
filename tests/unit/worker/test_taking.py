"""Taking a task that another worker lets go of at the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.spent import Spent
from orchestrator.cycle.tasks import Task, from_text
from orchestrator.forge.memory import MemoryForge
from orchestrator.worker.taking import Taker
from orchestrator.workspace.lease import Lease
from orchestrator.workspace.wip import wip_ref
from tests.unit.workspace.records_rig import Worker, bare, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


TASK: Task = from_text("Fix it")


def taker(worker: Worker, path: Path, meanwhile: Callable[[], object] = lambda: None) -> Taker:
    def spent_up(_spent: Spent) -> None:
        meanwhile()  # asked between the first look and the claim

    return Taker(
        worker.records,
        worker.claims,
        MemoryForge("octo/calc", str(path), lambda _branch: None),
        f"run-{worker.name}",
        (),
        named=False,
        may=lambda _who: True,
        clean=lambda text, _who: text,
        spent_up=spent_up,
    )


def test_work_that_the_holder_before_left_just_now_is_not_passed_over(tmp_path: Path) -> None:
    path = bare(tmp_path)
    first, second = (Worker(path, tmp_path, name) for name in "ab")
    lease = first.take(task=TASK.key)
    lease.release("limit", 7)
    ref = wip_ref(TASK.key)
    one = taker(second, path, lambda: put(path, ref, "saved while the other one looked"))
    said = one.take(TASK)
    assert isinstance(said, str)
    assert "just now" in said
    shown = second.claims.show(TASK.key)
    assert shown is not None
    assert (shown.state, shown.outcome, shown.pull) == ("released", "limit", 7), "given back as it was"
    assert isinstance(taker(second, path).take(TASK), Lease), "at the next look it is taken"


def test_a_task_that_nobody_had_before_needs_no_second_look(tmp_path: Path) -> None:
    path = bare(tmp_path)
    assert isinstance(taker(Worker(path, tmp_path, "a"), path).take(TASK), Lease)


def test_a_task_that_has_cost_its_share_is_not_claimed(tmp_path: Path) -> None:
    path = bare(tmp_path)
    first, second = (Worker(path, tmp_path, name) for name in "ab")
    lease = first.take(task=TASK.key)
    lease.release("limit", spent=Spent(3.0))
    choosing = taker(second, path)
    choosing.spent_up = lambda spent: f"${spent.usd:.2f} are spent"
    assert choosing.take(TASK) == f"{TASK.key}: $3.00 are spent"
    (claim,) = second.claims.list()
    assert (claim.state, claim.outcome, claim.number) == ("released", "limit", 1)
