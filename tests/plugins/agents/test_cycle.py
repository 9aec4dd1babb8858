"""An agent program through the whole cycle: claim, clone, box, relay, tools, verification, proposal."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import acp

from tests.doubles.model_server import calls, reply
from tests.scenarios.stage import CALC, FIXED, branches, content, git

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

TASK = ("--task", "Fix add() in calc.py")
AGENT = Path(__file__).with_name("scripted_agent.py")
PROPOSE = ("create_pull_request", {"title": "Make add() add", "body": "It subtracted."})
FINISH = ("finish", {"reason": "The pull request is open."})
WRITE = ("write", {"path": "calc.py", "text": FIXED})


def agent(*words: str) -> list[str]:
    """The flags for the scripted agent, whose Python is shown to it besides."""
    prefix = os.path.realpath(sys.prefix)
    needed = sorted(
        {prefix, os.path.realpath(sys.base_prefix), os.path.realpath(Path(acp.__file__).parents[1])}
    )
    command = shlex.join([f"{prefix}/bin/{Path(sys.executable).name}", str(AGENT), *words])
    return ["--agent", command, *(word for path in needed for word in ("--sandbox-read", path))]


def test_an_agent_changes_a_file_and_its_change_is_proposed(stage: Stage, repository: Path) -> None:
    stage.script(calls(WRITE, text="I fix it."), calls(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.code == 0, done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    assert git(repository, "diff", "--name-only", "main", branch) == "calc.py"
    result = done.result
    assert result["outcome"] == "proposed"
    assert result["pull_request"]["title"] == "Make add() add"
    assert result["rounds"] == 2
    assert result["usage"]["total_tokens"] > 0
    assert (repository / "calc.py").read_text() == CALC


def test_a_failing_test_is_told_as_the_result_and_mended(stage: Stage, repository: Path) -> None:
    wrong = ("write", {"path": "calc.py", "text": "def add(a, b):\n    return a * b\n"})
    stage.script(calls(wrong), calls(PROPOSE), calls(WRITE), calls(PROPOSE), calls(FINISH))
    tests = "! grep -n 'return a [*] b' calc.py"
    done = stage.run("--repo", str(repository), *TASK, *agent(), "--test-command", tests)
    assert done.code == 0, done.err
    assert done.result["outcome"] == "proposed"
    told = stage.told(2)
    assert '"isError": true' in told
    assert "return a * b" in told


def test_a_question_ends_the_session_and_its_answer_is_in_the_next_one(
    stage: Stage, repository: Path
) -> None:
    stage.script(calls(("ask_question", {"question_text": "Shall add() take floats?"})))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "question"
    assert done.result["question"] == "Shall add() take floats?"
    stage.script(calls(WRITE), calls(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK, "--answer", "Yes, floats too.", *agent())
    assert done.result["outcome"] == "proposed", done.err
    assert "Yes, floats too." in stage.told(1)


def test_an_agent_that_ends_its_turn_is_asked_once_and_then_its_changes_are_a_draft(
    stage: Stage, repository: Path
) -> None:
    stage.script(calls(WRITE), reply("It adds now."), reply("I am done."))
    done = stage.run("--repo", str(repository), *TASK, *agent())
    assert done.result["outcome"] == "proposed", done.err
    assert done.result["pull_request"]["draft"] is True
    assert "create_pull_request" in stage.told(2)
    assert "It adds now." in done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
