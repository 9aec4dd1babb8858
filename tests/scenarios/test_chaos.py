"""Fifty workers, twenty tasks, a server that breaks down, and kill -9: every task is done once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.siege import Found, Plan, Siege

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub

pytestmark = pytest.mark.timeout(900)


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


def test_of_fifty_workers_that_are_killed_each_task_is_done_once(github: GitHub, tmp_path: Path) -> None:
    plan = Plan()
    found = Siege(github, tmp_path, plan).run()
    check(found, plan)
    assert found.killed > 0


def test_clocks_that_differ_by_more_than_ten_minutes_do_no_harm(github: GitHub, tmp_path: Path) -> None:
    # Twenty minutes apart, a claim of twenty minutes looks expired as soon as it is made.
    plan = Plan(tasks=10, kills=0, claim_minutes=20.0, clock_minutes=lambda number: (-10.0, 10.0)[number % 2])
    found = Siege(github, tmp_path, plan).run()
    check(found, plan)
    assert {key: len(asked) for key, asked in found.asked.items()} == dict.fromkeys(found.pulls, 1)
