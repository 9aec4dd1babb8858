from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cli.arguments import parse
from orchestrator.cli.redteam import redteam

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "state"))


def typed(*words: str) -> argparse.Namespace:
    return parse(["redteam", *words])


def test_a_stopped_attack_is_a_line_and_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert redteam(typed("--only", "protected-workflow", "--prove")) == 0
    out = capsys.readouterr().out
    assert "stopped    protected-workflow" in out
    assert "protected-paths, proved" in out
    assert "1 attack, 1 stopped" in out
    assert "1 of 1 proved" in out


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
