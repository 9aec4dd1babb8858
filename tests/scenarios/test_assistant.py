"""Cycles under the profiles `assistant` and `explorer`, and with an echo in the place of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scenarios.stage import FINISH, PROPOSE, Stage, content, do, git, program

if TYPE_CHECKING:
    from pathlib import Path

TASK = ("--task", "Fix add() in calc.py")


def test_an_assistant_proposes_a_change_by_its_own_tools(stage: Stage, repository: Path) -> None:
    lines = git(repository, "show", "HEAD:calc.py").splitlines()
    wrong = next(number for number, line in enumerate(lines, 1) if "a - b" in line)
    operation = {"type": "replace", "start_line": wrong, "content": "    return a + b"}
    stage.script(
        do(("todo_add", {"content": "Fix add()"}), ("file_read", {"file_path": "calc.py"})),
        do(("file_delta", {"file_path": "calc.py", "operations": [operation], "create_backup": True})),
        do(PROPOSE, FINISH),
    )
    done = stage.run("--repo", str(repository), *TASK, "--profile", "assistant")
    assert done.code == 0, done.err
    system = stage.asked()[0]["content"]
    assert "file_delta" in system
    assert "shell_execute" not in system
    assert "# Your job here" in system
    branch = done.result["branch"]
    assert "return a + b" in content(repository, branch, "calc.py")
    changed = git(repository, "diff", "--name-only", "main", branch)
    assert changed == "calc.py"  # the backup is no part of the change


def test_an_explorer_looks_and_ends_with_what_it_found(stage: Stage, repository: Path) -> None:
    stage.script(
        do(("list_files", {"path": "."}), text="Hypothesis: add() subtracts."),
        do(("finish", {"reason": "add() in calc.py subtracts."})),
    )
    done = stage.run(
        "--repo", str(repository), *TASK, "--profile", "explorer", "--permission", "read-only", "--dry-run"
    )
    assert done.result["reason"] == "add() in calc.py subtracts."
    assert "calc.py (" in stage.told(1)
    assert "run_command" not in stage.asked()[0]["content"]
    assert '"hypothesis": "add() subtracts."' in stage.command("show", "last", "--state", "--json").out


def test_an_echo_proposes_nothing_and_asks_no_server(repository: Path) -> None:
    done = program(
        "run", "--repo", str(repository), *TASK, "--model", "echo", "--dry-run", "--max-rounds", "3"
    )
    assert done.returncode in {1, 5}
    assert "echo:offline" in done.stderr
    assert "Traceback" not in done.stderr
