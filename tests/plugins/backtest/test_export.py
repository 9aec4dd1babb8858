"""Cases as tasks of Harbor, and results in the Common Test Report Format."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from orchestrator.app.cli import main
from orchestrator.bot.verification.base import RunOptions
from orchestrator.plugins.backtest.command import _environment, _test_script
from tests.plugins.backtest.past import NEW_DISCOUNT, PERCENT, PYTEST, TITLE, backtest, make_past
from tests.plugins.backtest.scripted_past import ScriptedPast, copies, does_nothing

LATER = ("shipping(30)", "Heavy parcels", "discount) / 100")
"""Words of what came after the oldest case, or of its solution."""


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULLWRIGHT_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    return make_past(tmp_path / "shop")


def reward(task: Path, place: Path, *, with_solution: bool) -> str:
    """Do what Harbor does with a task, in a folder instead of a container."""
    shutil.copytree(task, place, symlinks=True)
    work = place / "environment/code"
    for name in ("tests/test.sh", "solution/solve.sh"):
        text = (place / name).read_text()
        for inside, outside in (
            ("/workspace", work),
            ("/tests/files", place / "tests/files"),
            ("/solution", place / "solution"),
            ("/logs", place / "logs"),
        ):
            text = text.replace(f" {inside}", f" {outside}")
        (place / name).write_text(text)
    names = ["solution/solve.sh", "tests/test.sh"] if with_solution else ["tests/test.sh"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name in names:
        subprocess.run(["bash", str(place / name)], check=True, env={**os.environ, "PATH": path}, cwd=work)
    return (place / "logs/verifier/reward.txt").read_text().strip()


@pytest.mark.slow(reason="it runs each case's tests many times")
def test_a_case_becomes_a_task_that_its_real_change_solves_and_nothing_else(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks"
    words = ["--repo", str(past), "--from-git", "--test-command", PYTEST, "--harbor", str(tasks), "--plain"]
    python = [word for folder in {sys.prefix, sys.base_prefix} for word in ("--sandbox-read", folder)]
    model = ["--model", "openai-chat:x", "--api-url", "http://127.0.0.1:9/v1"]
    assert main(["backtest", *words, *python, *model]) == 0
    assert f"2 tasks in {tasks}" in capsys.readouterr().out
    oldest = next(one for one in tasks.iterdir() if TITLE in (one / "instruction.md").read_text())
    described = tomllib.loads((oldest / "task.toml").read_text())
    assert described["metadata"]["must_pass"] == ["tests/test_discount.py::test_discount"]
    shown = [
        one for one in [*(oldest / "environment").rglob("*"), oldest / "instruction.md"] if one.is_file()
    ]
    assert not [(one.name, word) for one in shown for word in LATER if word in one.read_text()]
    assert (oldest / "tests/files/tests/test_discount.py").read_text() == NEW_DISCOUNT
    assert [one.name for one in (oldest / "tests/files").rglob("*.py")] == ["test_discount.py"]
    assert reward(oldest, tmp_path / "nothing", with_solution=False) == "0"
    assert reward(oldest, tmp_path / "solved", with_solution=True) == "1"
    assert (tmp_path / "solved/environment/code/shop.py").read_text() == PERCENT
    assert main(["backtest", *words, *python, *model]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.slow(reason="it runs each case's tests many times")
def test_the_results_are_a_report_that_other_tools_read(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    with ScriptedPast({"copies": copies(past), "nothing": does_nothing}) as models:
        backtest(capsys, models, past, "--from-git", "--last", "1", "--ctrf", str(file))
    report = json.loads(file.read_text())
    schema = json.loads((Path(__file__).parents[2] / "data/ctrf/ctrf.schema.json").read_text("utf-8"))
    Draft7Validator(schema).validate(report)
    results = report["results"]
    assert (report["reportFormat"], results["summary"]["tests"]) == ("CTRF", 2)
    told = {one["suite"][0]: one["status"] for one in results["tests"]}
    assert told == {"openai-chat:copies, json-plan": "passed", "openai-chat:nothing, json-plan": "skipped"}
    assert report["extra"]["pullwright.arms"][0]["solved"]["mean"] == 1.0


def test_a_file_that_the_change_removed_is_removed_before_the_tests() -> None:
    script = _test_script(RunOptions("pytest -q"), ["tests/old one.py"])
    assert "rm -rf -- 'tests/old one.py'\n" in script
    assert "if { pytest -q\n}; then echo 1" in script


def test_the_set_up_is_a_part_of_the_image() -> None:
    made = _environment(RunOptions("pytest", setup='pip install -e ".[dev]" && true'))
    assert made.splitlines()[4] == 'RUN ["/bin/bash", "-c", "pip install -e \\".[dev]\\" && true"]'
