"""Workers that race for tasks over a server that breaks down, and are killed: every task is done once.

`PULLWRIGHT_TEST_CHAOS=full` lets fifty of them race for twenty tasks, which takes two cores three minutes.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.killed_workers import Found, KilledWorkers, Plan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub

slow = pytest.mark.slow(reason="eight workers race until all tasks are done")

pytestmark = pytest.mark.timeout(900)
FULL = os.environ.get("PULLWRIGHT_TEST_CHAOS") == "full"
WORKERS, TASKS, KILLS = (50, 20, Plan().kills) if FULL else (8, 4, 3)


def check(found: Found, plan: Plan) -> None:
    """What holds whatever happened."""
    sys.stdout.write(found.lines() + "\n")
    keys = {f"issue-{number}" for number in range(1, plan.tasks + 1)}
    assert found.most_alive >= plan.workers
    assert dict(found.pulls) == dict.fromkeys(keys, 1)
    assert dict(found.branches) == dict.fromkeys(keys, 1)
    assert found.hidden.keys() == {f"refs/pullwright/claims/{key}" for key in keys}
    assert [ref for ref, said in found.hidden.items() if '"released"' not in said] == []
    assert found.unexplained == []
    assert found.left == []


@slow
def test_of_workers_that_are_killed_each_task_is_done_once(github: GitHub, tmp_path: Path) -> None:
    plan = Plan(workers=WORKERS, tasks=TASKS, kills=KILLS)
    found = KilledWorkers(github, tmp_path, plan).run()
    check(found, plan)
    assert found.killed > 0


@slow
def test_clocks_that_differ_by_more_than_ten_minutes_do_no_harm(github: GitHub, tmp_path: Path) -> None:
    # Twenty minutes apart, a claim of twenty minutes looks expired as soon as it is made.
    plan = Plan(
        workers=WORKERS,
        tasks=TASKS // 2,
        kills=0,
        claim_minutes=20.0,
        clock_minutes=lambda number: (-10.0, 10.0)[number % 2],
    )
    found = KilledWorkers(github, tmp_path, plan).run()
    check(found, plan)
    assert {key: len(asked) for key, asked in found.asked.items()} == dict.fromkeys(found.pulls, 1)
