"""Runs of a real pytest: what it reports, and changes that attack it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.verification.base import RunKind
from tests.unit.bot.verification.rig import FILES, FIXED, bench, statuses, verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.unit.bot.verification.rig import Bench

NEW_TEST = "from calc import add\n\n\ndef test_more():\n    assert add(2, 2) == 4\n"
ADD, ZERO, MORE = (
    "tests/test_calc.py::test_add",
    "tests/test_calc.py::test_zero",
    "tests/test_more.py::test_more",
)
BROKEN = "def add(a, b):\n    return 7\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One base for all, which is run once."""
    tests = FILES["tests/test_calc.py"]
    assert isinstance(tests, str)
    files = {**FILES, "tests/test_calc.py": tests.partition("\n\n\ndef test_zero")[0] + "\n"}
    with bench(tmp_path_factory.mktemp("attacked"), files) as made:
        yield made


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
async def test_all_four_runs_of_a_fix_with_its_test_in_the_sandbox(tmp_path: Path) -> None:
    with bench(tmp_path, sandbox="auto") as repository:
        change = {"calc.py": FIXED, "tests/test_more.py": NEW_TEST, "conftest.py": "FLAG = 1\n"}
        runs = await verified(repository, change)
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
    assert repository.begun == [RunKind.BEFORE, RunKind.AFTER, RunKind.KEPT, RunKind.NEW]


HOOK = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
PATCHED = """
import sys
runner = sys.modules.get("_pytest.reports")
if runner:
    made = runner.TestReport.from_item_and_call.__func__
    def always(cls, item, call):
        call.excinfo = None
        return made(cls, item, call)
    runner.TestReport.from_item_and_call = classmethod(always)
"""
FORGED = """
import atexit, os, re
report = re.search(r"--junitxml=(\\S+)", os.environ["PYTEST_ADDOPTS"])[1]
def forge():
    with open(report, "w") as file:
        cases = "".join(
            f'<testcase classname="tests.test_calc" name="{name}" file="tests/test_calc.py"/>'
            for name in ("test_add", "test_zero")
        )
        file.write(f'<testsuites><testsuite tests="2" failures="0" errors="0">{cases}</testsuite></testsuites>')
    print("2 passed in 0.01s")
    os._exit(0)
atexit.register(forge)
"""

# The change, and what gives it away: *kept* fails, or its run is invalid.
ATTACKS: dict[str, tuple[Mapping[str, str], str]] = {
    "a hook that reports every test as passed": (
        {"conftest.py": HOOK, "ast.py": "raise SystemExit(0)\n"},
        "",
    ),
    "code that ends the process": ({"calc.py": "import os\nos._exit(0)\n"}, "no report was written"),
    "code that patches the runner": ({"calc.py": BROKEN + PATCHED}, "a test that must fail passed"),
    "code that forges the report": ({"calc.py": BROKEN + FORGED}, "a test that must fail was not run"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_change_that_makes_failing_tests_pass(repository: Bench, attack: str) -> None:
    change, sign = ATTACKS[attack]
    try:
        runs = await verified(repository, {"calc.py": BROKEN, **change})
    finally:
        repository.tree(dict.fromkeys(change.keys() - {"calc.py"}))
    assert runs.problem == ""
    assert runs.kept is not None
    assert sign in runs.kept.problem
    if not sign:
        assert statuses(runs.kept) == {ADD: "failed"}
    assert not runs.kept.is_green
