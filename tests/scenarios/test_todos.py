"""The model's list of what is to be done: where people see it, and how it outlives the cycle that began it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.doubles.github_page import github_page
from tests.scenarios.dying import hidden
from tests.scenarios.stage import FINISH, FIX, PROPOSE, Stage, do, git, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.stage import Call

slow = pytest.mark.slow(reason="whole cycles; one test of this file is in the default tier")

TASK = ("--task", "Fix add() in calc.py")
KEY = "made-up-key-for-this-test-1234567890"


def add(content: str, **more: str) -> Call:
    return "todo_add", {"content": content, **more}


def update(name: str, **fields: str) -> Call:
    return "todo_update", {"id": name, **fields}


BEGUN = do(add("Read `calc.py`"), add("Mend add()", priority="high"), update("1", status="completed"))
LISTED = """\
## The model's list of what to do

1 of 2 done, as the model says:

- [x] Read calc.py
- [ ] Mend add() (in progress)
"""


def body_of(stage: Stage, *argv: str) -> str:
    done = stage.run(*argv)
    assert done.result["outcome"] in {"proposed", "planned"}, done.err
    return str(done.result["pull_request"]["body"])


def test_people_see_the_list_in_the_pull_request_and_in_the_run(stage: Stage, repository: Path) -> None:
    stage.script(BEGUN, do(update("2", status="in_progress"), FIX), do(PROPOSE, FINISH))
    body = body_of(stage, "--repo", str(repository), *TASK)
    ours, rule, words = body.partition("\n\n***\n\n")
    assert rule
    assert "list" not in ours, "what the model says is told apart from what the program says"
    assert LISTED in words
    shown = stage.command("show", "last").out
    assert "the model's list, 1 of 2 done:\n    [x] Read `calc.py`\n    [~] Mend add() (high)\n" in shown
    assert "todo_add" in str(stage.asked()[0]), "the model is shown the tools"


@slow
def test_the_state_is_told_after_each_turn(stage: Stage, repository: Path) -> None:
    stage.script(BEGUN, do(update("2", status="in_progress"), FIX), do(PROPOSE, FINISH))
    told = stage.run("--repo", str(repository), *TASK, "--debug").err
    states = told.split("hypothesis: ")[1:]
    assert len(states) == 3
    for state, lines in zip(
        states,
        (
            ("actions: 1", "tool events: 3", "[x] Read `calc.py`", "[ ] Mend add() (high)"),
            ("actions: 2", "tool events: 5", "[~] Mend add() (high)"),
            ("actions: 3", "tool events: 7, the last 5:", "ok finish"),
        ),
        strict=True,
    ):
        assert all(line in state for line in lines), state
    assert "denials" not in stage.command("show", "last").out


@slow
def test_an_item_may_say_no_more_than_a_title(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    hostile = (
        f"Use {KEY} there",
        "Fixes #99 and closes octo/calc#7",
        "Ping @octocat [skip ci] ***NO_CI***",
        "![x](https://collect.example/a.png) <img src=x onerror=y>",
        "</details> <!-- pullwright:task:issue-2 --> x",
        "- [x] /merge",
        "x" * 512,
    )
    items = [add(content) for content in hostile] + [add(f"Item {number}") for number in range(30)]
    stage.script(do(*items), do(FIX, PROPOSE, FINISH))
    body = body_of(stage, "--repo", str(repository), *TASK)
    listed = body.partition("what to do\n\n")[2].partition("\n\n<!--")[0].splitlines()[2:]
    assert len(listed) == 21
    assert listed[-1] == "- 17 more"
    assert all(re.match(r"- \[ \] \S", line) and len(line) < 320 for line in listed[:-1])
    assert KEY not in body
    page = github_page("\n".join(listed))
    assert page.tags <= {"ul", "li", "p", "code", "input"}
    assert (page.links, page.odd) == ([], [])
    for live in ("@octocat", "#99", "octo/calc#7"):
        assert live not in page.words
    for never in ("[skip ci]", "***NO_CI***", "](https://collect.example", "<img src", "<!--"):
        assert never not in "\n".join(listed), never
    assert body.count("<!-- pullwright:") == 1


@slow
def test_the_next_machine_goes_on_with_the_list(
    stage: Stage, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path / "work")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "work"), "bare.git")
    bare = tmp_path / "bare.git"
    stage.script(BEGUN)
    assert stage.run("--repo", str(bare), *TASK, "--max-rounds", "1").result["outcome"] == "limit"
    (ref,) = hidden(bare, "wip")
    assert '"type": "TodosChanged"' in git(bare, "show", f"{ref}:session.jsonl")
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path_factory.mktemp("other")))
    stage.script(do(update("2", status="in_progress"), add("Say so"), FIX), do(PROPOSE, FINISH))
    body = body_of(stage, "--repo", str(bare), *TASK)
    assert LISTED.replace("of 2", "of 3").rstrip() + "\n- [ ] Say so" in body
    first = next(event for event in stage.events() if event["type"] == "TodosChanged")
    assert [item["status"] for item in first["items"]] == ["completed", "pending"], "as it was found"


@slow
def test_a_replay_makes_the_same_list(stage: Stage, repository: Path) -> None:
    stage.script(BEGUN, do(update("2", status="in_progress"), FIX), do(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, "--dry-run")
    again = stage.command(
        *(
            "run",
            "--model",
            f"replay:{done.result['run']}",
            "--repo",
            str(repository),
            *TASK,
            "--dry-run",
            "--json",
        )
    )
    assert LISTED in done.result["pull_request"]["body"] + "\n"
    assert LISTED in again.result["pull_request"]["body"] + "\n"
