from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.stage import Stage, git, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub

NAME = "octo/calc"


def model(stage: Stage) -> list[str]:
    return ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]


def test_a_local_repository_is_ready_for_a_run(stage: Stage, repository: Path) -> None:
    done = stage.command("doctor", "--repo", str(repository), *model(stage), "--price", "1/2")
    assert done.code == 0, done.out
    assert "failed" not in done.out
    assert "✔ push" in done.out
    assert all(len(line) <= 80 or "/" in line for line in done.out.splitlines())
    assert "\x1b" not in done.out
    assert stage.model.requests == []
    assert git(repository, "for-each-ref", "refs/pullwright") == ""
    assert not list(stage.home.iterdir())  # a look makes nothing


def test_as_json_a_line_each(stage: Stage, repository: Path) -> None:
    done = stage.command("doctor", "--repo", str(repository), "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert {tuple(record) for record in records} == {("group", "probe", "state", "found", "fix")}
    (key,) = (record for record in records if record["probe"] == "key")
    assert (key["state"], "pass --model" in key["fix"]) == ("failed", True)


def test_a_token_that_may_not_push(stage: Stage, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = github.add_repository(NAME, private=True)
    github.add_issue(repo, "One", labels=["pullwright"])
    token = github.token(permissions={"contents": "read", "issues": "write", "pull_requests": "write"})
    monkeypatch.setenv("GITHUB_TOKEN", token)
    done = stage.command("doctor", "--github-url", github.web_url, "--repo", NAME, *model(stage))
    assert done.code == 1
    assert "✘ push" in done.out
    assert "Contents: Read and write" in " ".join(done.out.split())
    assert token not in done.out + done.err


def test_what_other_people_write_moves_no_cursor(
    stage: Stage, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    github.add_repository(NAME, private=True, default_branch="main\u202egnp")
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    done = stage.command("doctor", "--github-url", github.web_url, "--repo", NAME, *model(stage))
    assert "\u202e" not in done.out
    assert "maingnp" in done.out


def test_a_folder_of_somebody_elses(stage: Stage, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    repository = make_repository(tmp_path / "theirs")
    for path in (repository, *repository.rglob("*")):
        os.chown(path, 12345, 12345)
    done = stage.command("doctor", "--repo", str(repository), *model(stage))
    assert done.code == 1
    assert "sudo chown -R" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["doctor", "--model", "sk-" + "a1B2c3D4" * 6], "looks like a key"),
        (["doctor", "--wirte"], "did you mean --write"),
        (["claims"], "--repo"),
        (["claims", "show"], "KEY"),
    ],
)
def test_bad_usage(stage: Stage, argv: list[str], words: str) -> None:
    done = stage.command(*argv)
    assert (done.code, words in done.err) == (2, True), done.err


def test_claims_is_a_command(stage: Stage, repository: Path) -> None:
    assert stage.command("claims", "--repo", str(repository)).out == "no claims\n"
    assert stage.command("claims", "list", "--repo", str(repository), "--json").out == ""
    assert "nobody" in stage.command("claims", "--repo", str(repository), "show", "issue-1").out
    done = stage.command("claims", "--repo", str(repository), "--json", "release", "issue-1")
    assert json.loads(done.out)["released"] is False
