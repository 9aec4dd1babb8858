"""`chat --run`: a person takes up what a cycle left, and a cycle goes on with what the person leaves."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli.arguments import DONE, FAILED, NOTHING, USAGE
from tests.doubles.model_server import MODEL, calls, reply
from tests.doubles.terminal import Terminal
from tests.scenarios.stage import FINISH, FIX, FIXED, PROPOSE, Done, Stage, branches, content, do, git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Talk = Any

TASK = "Fix add() in calc.py"
ASK = ("ask_question", {"question_text": "Which name?", "choices": ["plus", "sum"]})
REMEMBER = calls(("remember", {"content": "Releases are made on Mondays"}))
MORE = calls(("write_file", {"path": "more.py", "content": "x = 1\n"}))


@pytest.fixture
def at(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return repository


@pytest.fixture
def chat(stage: Stage, at: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`chat --run`, in which these lines are typed."""

    def run(*lines: str, name: str = "last", flags: tuple[str, ...] = ()) -> Done:
        assert at.is_dir()
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
        return stage.command("chat", *model, "--run", name, *flags)

    return run


def limited(stage: Stage, at: Path) -> dict[str, Any]:
    """A cycle that a limit ended after its first change."""
    stage.script(do(FIX))
    result = stage.run("--repo", str(at), "--task", TASK, "--max-rounds", "1").result
    assert result["outcome"] == "limit"
    return result


def test_a_limited_run_is_taken_up_and_proposed_as_its_own_task(stage: Stage, chat: Talk, at: Path) -> None:
    key = limited(stage, at)["task"]["key"]
    stage.script(reply("I had mended add()."), MORE, reply("There is more."))
    done = chat("What did you do?", "More", "/pr It adds", "/pr yes")
    assert done.code == DONE, done.err
    (branch,) = branches(at)
    assert branch.startswith(f"pullwright/{key}-")
    assert (content(at, branch, "calc.py"), content(at, branch, "more.py")) == (FIXED.strip(), "x = 1")
    assert git(at, "for-each-ref", "refs/pullwright/wip/") == ""


@pytest.mark.slow(reason="a run, a conversation and another run; others like it are in the default tier")
def test_what_is_remembered_is_the_repositorys(stage: Stage, chat: Talk, at: Path) -> None:
    limited(stage, at)
    memory = ("--memory", "--profile", "assistant", "--embedding-model", "letters")
    stage.script(REMEMBER, reply("Noted."))
    assert "Noted." in chat("Remember this", flags=memory).out
    listed = stage.command("memory", "list", "--repo", str(at))
    assert "Releases are made on Mondays" in listed.out
    assert "Releases are made on Mondays" not in stage.command("memory", "list").out


def test_what_a_person_leaves_is_what_a_cycle_goes_on_with(stage: Stage, chat: Talk, at: Path) -> None:
    limited(stage, at)
    stage.script(MORE, reply("There is more."))
    chat("Write more.py, and call it a day")
    stage.script(do(PROPOSE, FINISH))
    again = stage.run("--repo", str(at), "--task", TASK)
    assert again.result["outcome"] == "proposed", again.err
    (branch,) = branches(at)
    assert (content(at, branch, "calc.py"), content(at, branch, "more.py")) == (FIXED.strip(), "x = 1")
    assert "call it a day" in stage.told(3)


def asking(stage: Stage, at: Path) -> dict[str, Any]:
    """A cycle that asked a question."""
    stage.script(do(FIX, ASK))
    result = stage.run("--repo", str(at), "--task", TASK).result
    assert result["outcome"] == "question"
    return result


def test_what_the_person_says_answers_the_question(stage: Stage, chat: Talk, at: Path) -> None:
    key = asking(stage, at)["task"]["key"]
    stage.script(reply("Then it is plus."))
    done = chat("Take plus")
    assert "It had asked: Which name?" in done.out
    assert "Which name?" in str(stage.asked(1))
    stage.script(do(PROPOSE, FINISH))
    again = stage.run("--repo", str(at), "--task", key)
    assert again.result["outcome"] == "proposed", again.err
    assert "Take plus" in stage.told(2)


@pytest.mark.slow(reason="a run, a conversation and another run; others like it are in the default tier")
def test_a_question_stays_open_where_the_person_says_nothing(stage: Stage, chat: Talk, at: Path) -> None:
    key = asking(stage, at)["task"]["key"]
    assert chat().code == DONE
    left = stage.run("--repo", str(at), "--task", key)
    assert (left.code, "waits for an answer" in left.result["reason"]) == (NOTHING, True)
    stage.script(do(PROPOSE, FINISH))
    again = stage.run("--repo", str(at), "--task", key, "--answer", "2")
    assert again.result["outcome"] == "proposed", again.err
    assert "2. sum" in str(stage.asked(1))


@pytest.mark.slow(reason="a run, a conversation and another run; others like it are in the default tier")
def test_a_conversation_in_the_same_form_is_gone_on_with(stage: Stage, chat: Talk, at: Path) -> None:
    limited(stage, at)
    stage.script(MORE, reply("There is more."))
    chat("Write more.py")
    stage.script(calls(PROPOSE, FINISH))
    native = ("--contract", "native", "--profile", "chat")
    assert stage.run("--repo", str(at), "--task", TASK, *native).result["outcome"] == "proposed"
    roles = [one["role"] for one in stage.asked(3)]
    assert roles.count("tool") == 1, "the conversation's own call and its result"


def test_what_was_said_is_not_lost_where_the_process_is_killed(stage: Stage, at: Path) -> None:
    limited(stage, at)
    stage.script(MORE, reply("There is more."))
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
    environ = {"PULLWRIGHT_HOME": str(stage.home)}
    with Terminal("chat", *model, "--run", "last", folder=at, environ=environ) as person:
        person.wait_for("as long as you talk.")
        person.type("Write more.py, and call it a day")
        person.wait_for("There is more.")
    stage.script(do(PROPOSE, FINISH))
    again = stage.run("--repo", str(at), "--task", TASK)
    assert again.result["outcome"] == "proposed", again.err
    (branch,) = branches(at)
    assert content(at, branch, "more.py") == "x = 1"
    assert "call it a day" in stage.told(3)


@pytest.mark.slow(reason="a run, a conversation and another run; others like it are in the default tier")
def test_the_second_proposal_updates_the_first(stage: Stage, chat: Talk, at: Path) -> None:
    limited(stage, at)
    stage.script(MORE, reply("There is more."))
    done = chat("/pr It adds", "/pr yes", "More", "/pr It adds more", "/pr yes")
    assert done.out.count("Pull request #1:") == 2
    (branch,) = branches(at)
    assert content(at, branch, "more.py") == "x = 1"


def test_while_a_person_is_in_nobody_else_has_the_task(stage: Stage, at: Path) -> None:
    limited(stage, at)
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
    environ = {"PULLWRIGHT_HOME": str(stage.home)}
    with Terminal("chat", *model, "--run", "last", folder=at, environ=environ) as person:
        person.wait_for("as long as you talk.")
        other = stage.run("--repo", str(at), "--task", TASK)
        assert other.code == NOTHING
        assert "is being worked on by" in other.result["reason"]
        run = stage.command("claims", "list", "--repo", str(at), "--json").result["run"]
        done = chat_line(stage, run)
        assert (done.code, "is in progress" in done.err) == (USAGE, True)
        person.wait_for(">")
        person.type("exit")
        person.wait_for("continues here.")
        assert person.end() == DONE
    stage.script(do(PROPOSE, FINISH))
    assert stage.run("--repo", str(at), "--task", TASK).result["outcome"] == "proposed"


def chat_line(stage: Stage, run: str, *flags: str) -> Done:
    """`chat --run` without a terminal, of which only the first line matters."""
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
    return stage.command("chat", *model, "--run", run, *flags)


def test_what_cannot_be_taken_up_is_said_in_one_line(stage: Stage, at: Path, monkeypatch: Talk) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n"))
    stage.script(reply("Hello."))
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
    stage.command("chat", *model)
    talk = stage.command("show", "--list", "--json").results[0]["run"]
    stage.script(do(FIX, PROPOSE, FINISH))
    proposed = stage.run("--repo", str(at), "--task", TASK).result
    for run, flags, code, words in (
        ("20200101-000000-aaaaaaa", (), FAILED, "there is no run"),
        (talk, (), USAGE, f"chat --resume {talk}"),
        (proposed["run"], (), USAGE, "is over with its pull request #1: comment there"),
        (proposed["run"], ("--repo", "."), USAGE, "leave out --repo"),
        (proposed["run"], ("--dry-run",), USAGE, "leave out --dry-run"),
        (proposed["run"], ("--resume", "last"), USAGE, "leave out --resume"),
    ):
        done = chat_line(stage, run, *flags)
        assert (done.code, done.err.count("\n")) == (code, 1), done.err
        assert words in done.err


def test_a_task_that_was_taken_away_is_not_proposed_and_nothing_is_lost(stage: Stage, at: Path) -> None:
    key = limited(stage, at)["task"]["key"]
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
    environ = {"PULLWRIGHT_HOME": str(stage.home)}
    with Terminal("chat", *model, "--run", "last", folder=at, environ=environ) as person:
        person.wait_for("as long as you talk.")
        assert stage.command("claims", "release", key, "--repo", str(at)).code == DONE
        person.wait_for(">")
        person.type("/pr It adds")
        person.wait_for("Propose this?")
        person.type("y")
        person.wait_for("pullwright: ")
        person.wait_for(">")
        person.type("exit")
        person.wait_for("continues in a cycle.")
        assert person.end() == DONE
    assert branches(at) == []
    stage.script(do(PROPOSE, FINISH))
    assert stage.run("--repo", str(at), "--task", TASK).result["outcome"] == "proposed"
    (branch,) = branches(at)
    assert content(at, branch, "calc.py") == FIXED.strip()
