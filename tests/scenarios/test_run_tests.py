"""The host runs the tests in a whole cycle, because a person chose it, and only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenarios.stage import CALC, FINISH, FIX, FIX_IT, PROPOSE, Stage, do, make_repository

if TYPE_CHECKING:
    from pathlib import Path

TESTS = "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
COMMAND = "python3 -m unittest discover -s tests -t ."
FILES = {"calc.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": TESTS}
TASK = ("--task", "Fix add() in calc.py")


@pytest.fixture
def tested(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "calc", files=FILES)


def test_in_safe_mode_the_host_runs_what_the_person_named(stage: Stage, tested: Path) -> None:
    stage.model.script = [FIX_IT]
    done = stage.run("--repo", str(tested), *TASK, "--test-command", COMMAND)
    tests = done.result["tests"]
    assert (tests["before"]["exit"], tests["after"]["exit"], tests["kept"]["exit"]) == (1, 0, 0), done.err
    assert f"(safe: no commands for the model; the host runs {COMMAND}; in bubblewrap)" in done.err
    assert [path.name for path in (stage.home / "cache" / "tests").iterdir()]


def test_auto_takes_what_the_repositorys_own_file_names(stage: Stage, tmp_path: Path) -> None:
    own = 'test_command = "python3 -m unittest tests.test_calc"\n'
    repository = make_repository(tmp_path / "calc", files={**FILES, "pullwright.toml": own})
    stage.model.script = [FIX_IT]
    done = stage.run("--repo", str(repository), *TASK, "--test-command", "auto")
    assert (
        "run by python3 -m unittest tests.test_calc (from pullwright.toml on the default branch)" in done.err
    )
    assert done.result["tests"]["after"]["exit"] == 0


def test_the_repositorys_own_file_alone_makes_nothing_run(stage: Stage, tmp_path: Path) -> None:
    own = 'test_command = "touch ran"\nsetup_command = "touch ran"\n'
    repository = make_repository(tmp_path / "calc", files={**FILES, "pullwright.toml": own})
    stage.model.script = [FIX_IT]
    done = stage.run("--repo", str(repository), *TASK, "--strict-tests")
    assert "--strict-tests is called --require-tests now" in done.err
    assert "test_command, setup_command in pullwright.toml of" in done.err
    assert ": used only with --test-command auto" in done.err
    assert done.result["tests"] is None
    assert not (stage.home / "cache" / "tests").exists()


def test_where_nothing_says_how_a_run_goes_on_and_says_so(stage: Stage, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", files={"calc.py": CALC})
    stage.model.script = [FIX_IT]
    done = stage.run("--repo", str(repository), *TASK, "--test-command", "auto")
    assert "no tests are run: nothing in the files says how; name it with --test-command" in done.err
    assert done.result["outcome"] == "proposed"


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_auto_takes_what_the_base_says_and_not_what_the_model_writes(stage: Stage, tested: Path) -> None:
    write = ("write_file", {"path": "pullwright.toml", "content": 'test_command = "true"\n'})
    stage.model.script = [do(FIX, write, PROPOSE, FINISH)]
    done = stage.run("--repo", str(tested), *TASK, "--test-command", "auto")
    assert f"the tests are run by {COMMAND} (from test files without pytest)" in done.err
    assert done.result["tests"]["after"]["exit"] == 0
