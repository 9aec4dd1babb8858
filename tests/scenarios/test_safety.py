from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.model_server import reply
from tests.scenarios.stage import (
    FINISH,
    FIX,
    FIX_IT,
    FIXED,
    PROPOSE,
    Stage,
    add_commit,
    branches,
    content,
    do,
    git,
    tools_on_offer,
)

if TYPE_CHECKING:
    from pathlib import Path

TASK = ("--task", "Fix add() in calc.py")
DANGEROUS = "--allow-dangerous-tools"


def shell(command: str) -> tuple[str, dict[str, str]]:
    return "run_shell_command", {"command": command}


def test_safe_mode_does_not_tell_the_model_of_the_shell(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    request = stage.model.requests[0].body
    assert "shell" not in tools_on_offer(request).lower()
    for tool in ("write_file", "create_pull_request", "ask_question", "finish", "read_file", "grep"):
        assert tool in tools_on_offer(request)


def test_only_the_flag_offers_the_shell(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK, DANGEROUS)
    assert "run_shell_command" in tools_on_offer(stage.model.requests[0].body)


def test_safe_mode_refuses_the_shell_and_records_it(stage: Stage, repository: Path, tmp_path: Path) -> None:
    stage.script(do(shell(f"touch {tmp_path}/bad"), FIX), FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0
    assert not (tmp_path / "bad").exists()
    ended = [event for event in stage.events() if event.get("status") == "refused"]
    assert [event["name"] for event in ended] == ["run_shell_command"]


def test_single_mode_with_one_round_executes_one_plan_and_exits(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX, PROPOSE), FIX_IT)
    done = stage.run("--repo", str(repository), *TASK, "--max-rounds", "1")
    assert done.code == 0
    assert done.result["rounds"] == 1
    assert len(stage.model.requests) == 1
    assert "This is the last round." in stage.told(0)
    assert len(branches(repository)) == 1


def test_one_round_that_proposes_nothing_keeps_the_work(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX))
    done = stage.run("--repo", str(repository), *TASK, "--max-rounds", "1")
    assert done.code == 5
    assert done.result["outcome"] == "limit"
    git(repository, "apply", done.result["patch"])
    assert (repository / "calc.py").read_text() == FIXED


@pytest.mark.parametrize(
    "path",
    [
        "../out.txt",
        "/etc/pullwright-test",
        ".git/config",
        ".GIT/hooks/pre-push",
        "link/out.txt",
        "a/../../out.txt",
    ],
)
def test_no_write_leaves_the_clone(stage: Stage, repository: Path, tmp_path: Path, path: str) -> None:
    (repository / "link").symlink_to(tmp_path)
    add_commit(repository, {}, "A link that leads out")
    before = {found for found in tmp_path.rglob("*") if ".git" not in found.parts}
    stage.script(do(("write_file", {"path": path, "content": "x\n"})), FIX_IT)
    assert stage.run("--repo", str(repository), *TASK).code == 0
    assert "FAILED" in stage.told(1)
    assert {found for found in tmp_path.rglob("*") if ".git" not in found.parts} == before


def test_a_file_that_was_not_shown_is_not_overwritten(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"big.py": "x = 1\n" * 400, "other.py": "first = 1\n" + "y = 2\n" * 400}, "More")
    write = ("write_file", {"path": "other.py", "content": "y = 3\n" * 400})
    stage.script(do(write), do(write, PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), "--task", "Fix big.py", "--context-chars", "3000")
    assert done.code == 0
    assert "first = 1" in stage.told(1)
    assert stage.told(1).count("y = 2") >= 400


def test_dropping_half_of_a_file_needs_the_same_call_twice(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"long.py": "x = 1\n" * 30}, "Long")
    write = ("write_file", {"path": "long.py", "content": "x = 1\n"})
    stage.script(do(write), do(write, PROPOSE, FINISH))
    assert stage.run("--repo", str(repository), *TASK).code == 0
    assert "FAILED" in stage.told(1)
    (branch,) = branches(repository)
    assert content(repository, branch, "long.py") == "x = 1"


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_the_models_commits_become_one_of_ours(stage: Stage, repository: Path, sandbox: str) -> None:
    commit = shell("git add -A && git -c user.name=M -c user.email=m@x.y commit -qm 'A commit of the model'")
    stage.script(
        do(shell("git log --format=%s"), FIX, shell("git diff --stat")),
        do(commit, ("write_file", {"path": "new.txt", "content": "n\n"}), PROPOSE, FINISH),
    )
    assert stage.run("--repo", str(repository), *TASK, DANGEROUS, "--sandbox", sandbox).code == 0
    assert "First commit" in stage.told(1)
    assert "calc.py | 2 +-" in stage.told(1)
    (branch,) = branches(repository)
    assert git(repository, "log", "--format=%s|%cn", f"main..{branch}") == "Make add() add|Pullwright"
    assert "* A commit of the model" in git(repository, "log", "-1", "--format=%B", branch)
    assert git(repository, "diff", "--name-only", f"main..{branch}").splitlines() == ["calc.py", "new.txt"]


def test_what_commands_changed_is_committed_unless_ignored(stage: Stage, repository: Path) -> None:
    add_commit(repository, {".gitignore": "build/\n"}, "Ignore")
    make = shell("mkdir build && echo x > build/out && echo y > made.txt && sed -i 's/a - b/a + b/' calc.py")
    big = shell("head -c 3000000 /dev/zero > big.bin")
    stage.script(do(make, big, PROPOSE, FINISH))
    assert stage.run("--repo", str(repository), *TASK, DANGEROUS).code == 0
    (branch,) = branches(repository)
    names = git(repository, "diff", "--name-only", f"main..{branch}").splitlines()
    assert names == ["calc.py", "made.txt"]
    ended = [event for event in stage.events() if event.get("name") == "create_pull_request"]
    assert "big.bin" in str(ended[-1])


def test_the_body_says_which_commands_ran_and_how_they_ended(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX, shell("python3 -c 'import calc'")), do(shell("false")), do(PROPOSE, FINISH))
    body = stage.run("--repo", str(repository), *TASK, DANGEROUS).result["pull_request"]["body"]
    assert "`python3 -c 'import calc'` passed" in body
    assert "`false` failed" in body


def test_without_commands_the_body_says_so(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    body = stage.run("--repo", str(repository), *TASK).result["pull_request"]["body"]
    assert "No command and no test was run." in body


def test_a_secret_in_the_change_is_held_back(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-key-for-this-test-1234567890")
    leak = ("write_file", {"path": "key.txt", "content": "sk-made-up-key-for-this-test-1234567890\n"})
    stage.script(do(leak, PROPOSE, FINISH), do(("finish", {})), do(("finish", {})))
    done = stage.run("--repo", str(repository), *TASK)
    assert "looks like a secret, at key.txt:1" in stage.told(1)
    assert branches(repository) == []
    assert done.result["outcome"] == "failed"


def test_a_secret_that_was_taken_out_again_is_in_no_commit(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-key-for-this-test-1234567890")
    leak = ("write_file", {"path": "key.txt", "content": "sk-made-up-key-for-this-test-1234567890\n"})
    clean = ("write_file", {"path": "key.txt", "content": "from the environment\n"})
    stage.script(do(leak, PROPOSE), do(clean, PROPOSE, FINISH))
    assert stage.run("--repo", str(repository), *TASK).code == 0
    (branch,) = branches(repository)
    assert git(repository, "rev-list", "--count", f"main..{branch}") == "1"
    assert "sk-made-up" not in git(repository, "log", "-p", f"main..{branch}")


@pytest.mark.parametrize("field", ["title", "body"])
def test_a_secret_in_the_words_of_the_pull_request_is_held_back(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-key-for-this-test-1234567890")
    words = {"title": "Fix", "body": "It adds.", field: "With sk-made-up-key-for-this-test-1234567890"}
    stage.script(do(FIX, ("create_pull_request", words)), do(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK)
    assert f"The {field} holds something that looks like a secret" in stage.told(1)
    assert done.result["pull_request"]["title"] == "Make add() add"
    (branch,) = branches(repository)
    assert "sk-made-up" not in git(repository, "log", "--format=%B", f"main..{branch}")


def test_three_replies_that_are_no_plan_end_the_cycle(stage: Stage, repository: Path) -> None:
    stage.script(reply("Sure!"), reply("I will fix it."), reply("Done."))
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 1
    assert "3 replies in a row" in done.result["error"]
