from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.stage import content

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

SCRIPT = Path(__file__).parents[2] / "run_local_agent.py"


def test_the_demo_opens_a_real_pull_request_without_key_or_server(stage: Stage, own_state: Path) -> None:
    done = stage.command("run", "--demo", "--json")
    assert done.code == 0, done.err
    result = done.result
    (repository,) = (own_state / "cache" / "demo").iterdir()
    assert "return a + b" in content(repository, result["branch"], "calc.py")
    assert "- [x] Fix add()" in content(repository, result["branch"], "BACKLOG.md")
    assert result["usd"] == 0
    assert stage.model.requests == []
    assert "Make add() add" in stage.command("pulls").out


def test_the_demo_says_where_to_look(stage: Stage) -> None:
    out = stage.command("run", "--demo").out
    (look,) = [line.partition("look")[2].strip() for line in out.splitlines() if " look " in line]
    assert look.startswith("pullwright ")
    shown = stage.command(*look.split()[1:]).out
    assert "+    return a + b" in shown


def test_the_demo_starts_few_git_programs(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a third of what a cycle takes. None looks for a second time at what it has just seen, or asks half a question."""
    log, script = tmp_path / "asked", tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {shutil.which("git")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    assert stage.command("run", "--demo").code == 0
    assert len(log.read_text().splitlines()) <= 29


def test_the_demo_can_be_run_as_often_as_one_likes(stage: Stage) -> None:
    assert [stage.command("run", "--demo").code for _ in range(2)] == [0, 0]


def test_the_demo_goes_on_with_the_next_item(stage: Stage) -> None:
    done = stage.command("run", "--demo", "--continuous", "--json")
    assert [result["outcome"] for result in done.results] == ["proposed", "proposed", "no_task"], done.err
    assert [result["task"]["title"] for result in done.results[:2]] == [
        "Fix add() in calc.py: it subtracts",
        "Add multiply()",
    ]


def test_the_demo_is_the_same_whatever_contract_and_profile_are_configured(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_CONTRACT", "single-step")
    monkeypatch.setenv("PULLWRIGHT_PROFILE", "anthropic")
    assert stage.command("run", "--demo", "--json").result["outcome"] == "proposed"


def test_the_demo_can_be_dry(stage: Stage) -> None:
    assert stage.command("run", "--demo", "--dry-run", "--json").result["outcome"] == "planned"
    assert stage.command("pulls", "--json").out == ""


@pytest.mark.skipif(not SCRIPT.exists(), reason="an installed package has no source tree")
def test_the_script_and_the_command_are_the_same_program() -> None:
    script, command = (
        subprocess.run([sys.executable, *entry, "run", "--help"], capture_output=True, text=True, check=True)
        for entry in ([SCRIPT], ["-m", "orchestrator"])
    )
    assert script.stdout == command.stdout
