"""A change that makes a file unreadable is named at once, and proposed only when it is asked for again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.doubles.model_server import calls, reply
from tests.scenarios.stage import FINISH, FIX, PROPOSE, Stage, add_commit, branches, do, git

if TYPE_CHECKING:
    from pathlib import Path

TASK = ("--task", "Fix add() in calc.py")
BREAK = ("edit_file", {"path": "calc.py", "old_text": "def add(a, b):", "new_text": "def add(a, b:"})
AT = "calc.py cannot be read as Python"
REFUSED = "The pull request was not made: "


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def test_the_edit_and_the_pull_request_say_so_and_the_second_call_goes_through(
    stage: Stage, repository: Path
) -> None:
    stage.script(do(BREAK, PROPOSE, FINISH), do(FIX), do(PROPOSE, FINISH))
    result = stage.run("--repo", str(repository), *TASK).result
    told = stage.told(1)
    assert told.count(f"{AT}") == 2
    assert "at line 1, 'def add(a, b:': " in told
    assert REFUSED in told
    assert f"But {AT}" in stage.told(2), "it is named as long as it is so"
    assert result["outcome"] == "proposed"
    body = result["pull_request"]["body"]
    assert "> Not every file of this change can be read:\n> - `calc.py cannot be read as Python" in body


def test_what_the_host_proposes_goes_through_and_says_so(stage: Stage, repository: Path) -> None:
    stage.script(calls(BREAK), reply("It is fixed."), reply("It is fixed."))
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native")
    assert done.result["outcome"] == "proposed"
    assert done.result["pull_request"]["draft"]
    assert "> Not every file of this change can be read:\n" in done.result["pull_request"]["body"]


def test_a_file_that_is_mended_is_proposed_without_a_word(stage: Stage, repository: Path) -> None:
    mend = ("edit_file", {"path": "calc.py", "old_text": "(a, b:", "new_text": "(a, b):"})
    stage.script(do(BREAK, PROPOSE, FINISH), do(mend, FIX, PROPOSE, FINISH))
    result = stage.run("--repo", str(repository), *TASK).result
    assert result["outcome"] == "proposed"
    assert "can be read" not in result["pull_request"]["body"]
    (branch,) = branches(repository)
    assert git(repository, "rev-list", "--count", f"main..{branch}") == "1"


def test_each_file_is_a_reason_once_and_what_was_broken_before_is_none(
    stage: Stage, repository: Path
) -> None:
    add_commit(repository, {"old.py": "print 'two'\n", "tsconfig.json": "{} // none\n"}, "Add old things")
    change = write("tsconfig.json", "{} // some\n")
    old = ("edit_file", {"path": "old.py", "old_text": "two", "new_text": "three"})
    show = ("read_file", {"path": "tsconfig.json"})
    stage.script(
        do(FIX, old, show, change, write("a.json", "{"), PROPOSE, FINISH),
        do(write("b.toml", "a ="), PROPOSE, FINISH),
        do(PROPOSE, FINISH),
    )
    result = stage.run("--repo", str(repository), *TASK).result
    first, second = (stage.told(request)[stage.told(request).index(REFUSED) :] for request in (1, 2))
    assert first.startswith(f"{REFUSED}a.json cannot be read as JSON at line 1, '{{': ")
    assert second.startswith(f"{REFUSED}b.toml cannot be read as TOML at line 1, 'a =': ")
    assert "old.py" not in first + second
    assert result["outcome"] == "proposed"
    assert "a.json" in result["pull_request"]["body"]


def test_what_a_command_broke_is_refused_too(stage: Stage, repository: Path) -> None:
    command = ("run_shell_command", {"command": "sed -i 's/:$//' calc.py"})
    stage.script(do(command, PROPOSE, FINISH), do(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, "--allow-dangerous-tools", "--sandbox", "off")
    assert f"{REFUSED}{AT}" in stage.told(1)
    assert done.result["outcome"] == "proposed"
