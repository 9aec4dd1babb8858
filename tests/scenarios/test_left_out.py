"""What a pull request lacks is said wherever people look, with the flag that would let it in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.propose import left_out_in
from tests.doubles.lfs_server import LfsStorage, LfsStore
from tests.scenarios.hosted import BRANCH, Hosted
from tests.scenarios.stage import FILES, FINISH, FIXED, PROPOSE, Stage, do, git, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub

IGNORING = {**FILES, ".gitignore": "generated*\n", "TODO.md": "- [ ] Make add() add\n- [ ] Other\n"}
USE = ("write_file", {"path": "calc.py", "content": "from generated import add\n"})
NEW = ("write_file", {"path": "generated.py", "content": "def add(a, b):\n    return a + b\n"})
WORKFLOW = ("write_file", {"path": ".github/workflows/ci.yml", "content": "on: push\n"})
TICK = ("edit_file", {"path": "TODO.md", "old_text": "[ ] Make", "new_text": "[x] Make"})
LINES = {
    "generated.py": "generated.py: ignored by .gitignore; --allow-path generated.py lets it in",
    ".github/workflows/ci.yml": (
        ".github/workflows/ci.yml: runs on its own; --allow-path .github/workflows/ci.yml lets it in"
    ),
}


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage, IGNORING)


@pytest.mark.parametrize(("call", "path"), [(NEW, "generated.py"), (WORKFLOW, ".github/workflows/ci.yml")])
def test_what_is_left_out_is_told_on_the_pull_request_and_closes_nothing(
    hosted: Hosted, stage: Stage, call: tuple[str, dict[str, str]], path: str
) -> None:
    stage.script(do(USE, call, PROPOSE, FINISH))
    done = stage.run("--issue", "1")
    assert done.result["outcome"] == "proposed", done.err
    (item,) = done.result["left_out"]
    assert (item["path"], item["flag"]) == (path, f"--allow-path {path}")
    line = f"{path}: {item['reason']}; --allow-path {path} lets it in"
    body = hosted.pull.body or ""
    assert left_out_in(body) == [line]
    assert body.index(line) < body.index("## In the model's own words")
    assert "Part of #1" in body
    assert "Fixes #1" not in body
    assert "Fixes" not in hosted.git("log", "-1", "--format=%B", BRANCH)
    told = done.err.splitlines()[-1]
    assert f"without {path} ({item['reason']}; --allow-path {path} lets it in)" in told
    shown = stage.command("show", "last").out
    assert f"without {path} ({item['reason']}" in shown


@pytest.mark.parametrize(("call", "path"), [(NEW, "generated.py"), (WORKFLOW, ".github/workflows/ci.yml")])
def test_the_flag_lets_it_in(
    hosted: Hosted, stage: Stage, call: tuple[str, dict[str, str]], path: str
) -> None:
    stage.script(do(USE, call, PROPOSE, FINISH))
    done = stage.run("--issue", "1", "--allow-path", path)
    assert done.result["left_out"] == []
    assert path in hosted.git("ls-tree", "-r", "--name-only", BRANCH).splitlines()
    assert "Fixes #1" in (hosted.pull.body or "")


def test_a_local_repository_says_it_in_its_list_and_in_the_last_lines(stage: Stage, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", IGNORING)
    stage.script(do(USE, NEW, WORKFLOW, PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), "--task", "Make add() add", json_output=False)
    named = [line for line in done.out.splitlines() if line.startswith("  without ")]
    assert [line.split()[1] for line in named] == [".github/workflows/ci.yml:", "generated.py:"]
    assert named[1] == f"  without {LINES['generated.py']}"
    listed = stage.command("pulls", "--repo", str(repository)).out
    assert f"      without {LINES['generated.py']}" in listed.splitlines()
    assert '"left_out":["' in stage.command("pulls", "--repo", str(repository), "--json").out.replace(" ", "")


def test_an_item_is_not_ticked_whose_work_is_left_out(stage: Stage, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", IGNORING)
    stage.script(do(USE, NEW, TICK, PROPOSE, FINISH))
    done = stage.run("--repo", str(repository))
    assert done.result["task"]["source"] == "TODO.md"
    assert [item["path"] for item in done.result["left_out"]] == ["TODO.md", "generated.py"]
    changed = git(repository, "diff", "--name-only", "main", done.result["branch"])
    assert changed == "calc.py"


def test_a_whole_change_ticks_its_item_and_says_nothing(stage: Stage, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", IGNORING)
    stage.script(do(("write_file", {"path": "calc.py", "content": "add = sum\n"}), TICK, PROPOSE, FINISH))
    done = stage.run("--repo", str(repository))
    assert done.result["left_out"] == []
    assert git(repository, "diff", "--name-only", "main", done.result["branch"]) == "TODO.md\ncalc.py"
    assert "lacks files" not in done.result["pull_request"]["body"]


def test_what_only_a_command_made_and_is_ignored_is_told_and_the_task_is_complete(
    hosted: Hosted, stage: Stage
) -> None:
    made = ("run_shell_command", {"command": "echo x > generated.txt; mkdir generated; echo y > generated/z"})
    stage.script(do(made, ("write_file", {"path": "calc.py", "content": FIXED}), PROPOSE, FINISH))
    done = stage.run("--issue", "1", "--allow-dangerous-tools", "--sandbox", "off")
    assert done.result["outcome"] == "proposed", done.err
    why = "made by a command, and ignored by .gitignore"
    named = [(item["path"], item["reason"], item["flag"]) for item in done.result["left_out"]]
    assert named == [("generated.txt", why, ""), ("generated/", why, "")]
    body = hosted.pull.body or ""
    assert left_out_in(body) == [f"generated.txt: {why}", f"generated/: {why}"]
    assert "Fixes #1" in body
    assert f"generated.txt ({why})" in done.err.splitlines()[-1]


def test_a_file_of_git_lfs_is_stored_at_the_forge_and_proposed_as_a_pointer(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    hosted = Hosted.begin(github, stage, {**FILES, ".gitattributes": "*.csv filter=lfs -text\n"})
    table = ("write_file", {"path": "table.csv", "content": "a,b\n1,2\n"})
    with LfsStorage(LfsStore()) as storage:
        github.lfs = storage.store
        stage.script(do(table, ("write_file", {"path": "calc.py", "content": FIXED}), PROPOSE, FINISH))
        done = stage.run("--issue", "1")
    assert done.result["outcome"] == "proposed", done.err
    assert done.result["left_out"] == []
    assert list(storage.store.objects.values()) == [b"a,b\n1,2\n"]
    (oid,) = storage.store.objects
    assert hosted.git("show", f"{BRANCH}:table.csv").splitlines()[1:] == [f"oid sha256:{oid}", "size 8"]
    assert "Fixes #1" in (hosted.pull.body or "")


def test_without_git_lfs_at_the_forge_the_model_reads_why(
    github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    Hosted.begin(github, stage, {**FILES, ".gitattributes": "*.csv filter=lfs -text\n"})
    table = ("write_file", {"path": "table.csv", "content": "a,b\n1,2\n"})
    stage.script(do(table, PROPOSE), do(FINISH), do(FINISH))
    stage.run("--issue", "1")
    assert "table.csv: its content belongs into Git LFS, and the server does not take it (404)" in stage.told(
        1
    )
