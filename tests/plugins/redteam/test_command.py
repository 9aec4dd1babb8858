from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli.arguments import parse
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.redteam.attack import read_corpus
from orchestrator.plugins.redteam.command import choose_attacks, configured, play_all, redteam, try_attack
from tests.plugins.redteam.careless import prove
from tests.plugins.redteam.proof import main

if TYPE_CHECKING:
    import argparse


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "state"))


def typed(*words: str) -> argparse.Namespace:
    return parse(["redteam", *words])


def test_a_stopped_attack_is_a_line_and_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert redteam(typed("--only", "protected-workflow")) == 0
    out = capsys.readouterr().out
    assert "stopped    protected-workflow" in out
    assert "  protected-paths  " in out
    assert "1 attack, 1 stopped" in out


def test_a_configuration_that_lets_it_through_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert redteam(typed("--only", "protected-workflow", "--allow-path", ".github/**")) == 1
    out = capsys.readouterr().out
    assert "SUCCEEDED  protected-workflow" in out
    assert "1 attack, 0 stopped" in out
    assert "protected-workflow: " in out.splitlines()[-1]


def test_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert redteam(typed("--json", "--only", "path-dots")) == 0
    assert redteam(typed("--json", "--only", "issue-by-an-app")) == 0
    records: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["attack"] for record in records] == ["path-dots", "issue-by-an-app"]
    assert [record["defence"] for record in records] == ["paths", "admission"]
    assert all(record["stopped"] and record["evidence"] for record in records)


def test_nothing_is_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    redteam(typed("--only", "path-dots"))
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("processes", [1, 2])
def test_attacks_are_played_in_several_processes_and_shown_in_order(processes: int, tmp_path: Path) -> None:
    names = ["protected-workflow", "path-dots", "issue-by-an-app"]
    make_user = partial(configured, {}, {"PULLWRIGHT_CONFIG": "", "HOME": str(tmp_path)}, tmp_path)
    played = list(play_all(choose_attacks(read_corpus(), names), make_user, try_attack, processes=processes))
    assert [verdict.attack.name for verdict in played] == names
    assert [str(verdict.defence) for verdict in played] == ["protected-paths", "paths", "admission"]
    assert all(verdict.stopped for verdict in played)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_another_process_is_the_same_error(processes: int, tmp_path: Path) -> None:
    first, second, *_ = read_corpus()
    broken = second.model_copy(update={"settings": {"max_rounds": -1}})
    make_user = partial(configured, {}, {"PULLWRIGHT_CONFIG": "", "HOME": str(tmp_path)}, tmp_path)
    with pytest.raises(ConfigurationError, match="the settings of attack"):
        list(play_all([first, broken], make_user, prove, processes=processes))


def test_the_proof_is_a_command_of_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protected-workflow"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("proved      protected-workflow: without protected-paths: ")
    assert last == "1 of 1 proved: without their defence they succeed"
    with pytest.raises(SystemExit, match="no attack 'nothing'"):
        main(["nothing"])


def test_without_the_library_of_agents_their_attacks_say_so() -> None:
    code = (
        "import sys\n"
        "import importlib.machinery as m\n"
        "real = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = classmethod(lambda c, n, p=None, t=None: None if n == 'acp' else real(n, p, t))\n"
        "from orchestrator.app.cli import main\n"
        "sys.exit(main(['redteam', '--only', 'agent-pushes', '--json']))\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert "agent-client-protocol" in json.loads(done.stdout)["evidence"], done.stderr
