from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from orchestrator.verification.base import RunKind
from tests.unit.verification.rig import FIXED, bench, statuses, verified

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.verification.rig import Bench

NEW_TEST = "from calc import add\n\n\ndef test_more():\n    assert add(2, 2) == 4\n"
ADD, ZERO, MORE = (
    "tests/test_calc.py::test_add",
    "tests/test_calc.py::test_zero",
    "tests/test_more.py::test_more",
)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_all_four_runs_of_a_fix_with_its_test(tmp_path: Path, sandbox: Literal["auto", "off"]) -> None:
    with bench(tmp_path, sandbox=sandbox) as repository:
        runs = await verified(
            repository, {"calc.py": FIXED, "tests/test_more.py": NEW_TEST, "conftest.py": "FLAG = 1\n"}
        )
    assert runs.problem == ""
    assert runs.restored == ("conftest.py", "tests/test_more.py")
    assert statuses(runs.before) == {ADD: "failed", ZERO: "passed"}
    assert statuses(runs.kept) == {ADD: "passed", ZERO: "passed"}
    assert statuses(runs.after) == {ADD: "passed", ZERO: "passed", MORE: "passed"}
    assert statuses(runs.new) == {MORE: "failed"}
    assert runs.new is not None
    assert runs.new.cases[MORE].is_assertion
    assert [run and run.exit for run in (runs.before, runs.kept, runs.after, runs.new)] == [1, 0, 0, 1]
    assert not [run for run in (runs.before, runs.kept, runs.after, runs.new) if run is None or run.problem]


async def test_the_base_is_run_once_a_commit_and_equal_trees_once(repository: Bench) -> None:
    await verified(repository, {"calc.py": FIXED})
    assert repository.begun == [RunKind.BEFORE, RunKind.AFTER]
    runs = await verified(repository, {"calc.py": FIXED})
    assert repository.begun == [RunKind.BEFORE, RunKind.AFTER, RunKind.AFTER]
    assert runs.before is not None
    assert runs.before.cached
    assert statuses(runs.before) == {ADD: "failed", ZERO: "passed"}
