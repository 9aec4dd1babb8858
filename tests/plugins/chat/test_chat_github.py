"""`/pr` and `chat --run` on GitHub: a folder that was cloned from it, and an issue that a cycle left."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli.arguments import DONE
from tests.doubles.model_server import MODEL, calls, reply
from tests.scenarios.hosted import BRANCH, NAME, Hosted
from tests.scenarios.stage import CALC, FINISH, FIX, FIXED, PROPOSE, Done, Stage, add_commit, do, git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.doubles.github.server import GitHub

Talk = Any

EDIT = calls(("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}))
MORE = calls(("write_file", {"path": "more.py", "content": "x = 1\n"}))


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage)


@pytest.fixture
def at(hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's clone."""
    folder = tmp_path / "mine"
    git(tmp_path, "clone", "--quiet", str(hosted.repo.path), str(folder))
    git(folder, "remote", "set-url", "origin", f"{hosted.github.web_url}/{NAME}.git")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def chat(hosted: Hosted, at: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """A conversation in which these lines are typed."""

    def run(*lines: str, flags: tuple[str, ...] = ()) -> Done:
        assert at.is_dir()
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        model = ["--model", f"openai-chat:{MODEL}", "--api-url", hosted.stage.model.url, "--profile", "chat"]
        return hosted.stage.command("chat", *model, "--github-url", hosted.github.web_url, *flags)

    return run


def content(hosted: Hosted, branch: str, path: str) -> str:
    return hosted.git("show", f"{branch}:{path}")


def test_a_folder_is_proposed_to_the_repository_that_it_was_cloned_from(
    hosted: Hosted, chat: Talk, at: Path
) -> None:
    hosted.stage.script(EDIT, reply("It adds now."), MORE, reply("There is more."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", "More", "/pr It adds more", "/pr yes")
    assert done.code == DONE, done.err
    assert "octo/calc, branch main" in done.out
    pull = hosted.pull
    assert (pull.title, pull.draft) == ("It adds more", True)
    assert content(hosted, pull.head, "more.py") == "x = 1"
    assert content(hosted, pull.head, "calc.py") == FIXED.strip()
    assert (
        git(at, "for-each-ref", "--format=%(refname)", "refs/heads/", "refs/pullwright") == "refs/heads/main"
    )


@pytest.mark.slow(reason="conversations and cycles over HTTP; three like it are in the default tier")
def test_a_conversation_that_is_taken_up_updates_its_pull_request(hosted: Hosted, chat: Talk) -> None:
    hosted.stage.script(EDIT, reply("It adds now."), MORE, reply("There is more."))
    chat("Mend add()", "/pr It adds", "/pr yes")
    first = hosted.pull.number
    chat("More", "/pr It adds more", "/pr yes", flags=("--resume", "last"))
    assert hosted.pull.number == first
    assert content(hosted, hosted.pull.head, "more.py") == "x = 1"
    assert content(hosted, hosted.pull.head, "calc.py") == FIXED.strip(), "of the first conversation"


@pytest.mark.slow(reason="conversations and cycles over HTTP; three like it are in the default tier")
def test_a_pull_request_loses_nothing_where_the_checkpoints_are_gone(hosted: Hosted, chat: Talk) -> None:
    hosted.stage.script(EDIT, reply("It adds now."), MORE, reply("There is more."))
    chat("Mend add()", "/pr It adds", "/pr yes")
    shutil.rmtree(hosted.stage.home / "cache" / "checkpoints")
    lines = ("More", "/pr It adds more", "/pr yes", "/pr --all It adds more", "/pr yes")
    done = chat(*lines, flags=("--resume", "last"))
    assert "not recorded here any more: /pr --all" in done.out
    assert content(hosted, hosted.pull.head, "more.py") == "x = 1"
    assert content(hosted, hosted.pull.head, "calc.py") == FIXED.strip()


@pytest.mark.slow(reason="conversations and cycles over HTTP; three like it are in the default tier")
def test_what_people_committed_to_the_pull_request_is_not_replaced(hosted: Hosted, chat: Talk) -> None:
    hosted.stage.script(EDIT, reply("It adds now."), MORE, reply("There is more."))
    chat("Mend add()", "/pr It adds", "/pr yes")
    theirs = hosted.people_commit({"their.py": "y = 1\n"}, branch=hosted.pull.head)
    done = chat("More", "/pr It adds more", "/pr yes", flags=("--resume", "last"))
    assert "has commits of people" in done.out
    assert hosted.repo.branches()[hosted.pull.head] == theirs


@pytest.mark.slow(reason="conversations and cycles over HTTP; three like it are in the default tier")
def test_a_moved_base_and_commits_of_ones_own_are_told_and_merged(
    hosted: Hosted, chat: Talk, at: Path
) -> None:
    add_commit(at, {"own.py": "own = 1\n"}, "Mine, and not pushed")
    hosted.people_commit({"new.py": "new = 1\n"}, branch="main")
    hosted.stage.script(EDIT, reply("It adds now."))
    done = chat("Mend add()", "/pr It adds", "/pr yes")
    assert "your commits after that are not on main" in done.out
    assert "left out" in done.out
    head = hosted.pull.head
    assert hosted.git("ls-tree", "--name-only", head).split() == ["README.md", "calc.py", "new.py"]
    assert content(hosted, head, "calc.py") == FIXED.strip()


def test_a_base_with_other_changes_on_the_same_lines_is_an_error(hosted: Hosted, chat: Talk) -> None:
    hosted.people_commit({"calc.py": CALC.replace("a - b", "a * b")}, branch="main")
    hosted.stage.script(EDIT, reply("It adds now."))
    done = chat("Mend add()", "/pr It adds", "/pr yes")
    assert "main has other changes on the same lines of calc.py" in done.out
    assert hosted.repo.branches().keys() == {"main"}


def test_a_dry_run_writes_nothing(hosted: Hosted, chat: Talk) -> None:
    hosted.stage.script(EDIT, reply("It adds now."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", flags=("--dry-run",))
    assert "Would open a pull request: It adds" in done.out
    assert "+    return a + b" in done.out
    assert (list(hosted.repo.branches()), hosted.refs("refs/pullwright/")) == (["main"], [])


@pytest.mark.slow(reason="conversations and cycles over HTTP; three like it are in the default tier")
def test_an_issue_that_a_cycle_left_is_taken_up_and_closed_by_its_own_pull_request(
    hosted: Hosted, chat: Talk
) -> None:
    hosted.stage.script(do(FIX))
    assert hosted.stage.run("--max-rounds", "1").result["outcome"] == "limit"
    hosted.stage.script(MORE, reply("There is more."))
    done = chat("More", "/pr It adds", "/pr yes", flags=("--run", "last"))
    assert done.code == DONE, done.err
    assert hosted.pull.head == BRANCH
    assert "Fixes #1" in (hosted.pull.body or "")
    assert content(hosted, BRANCH, "more.py") == "x = 1"
    assert hosted.refs("refs/pullwright/wip/") == []
    assert hosted.left_alone()


@pytest.mark.slow(reason="conversations and cycles over HTTP; three like it are in the default tier")
def test_an_answer_given_in_a_conversation_reaches_the_next_cycle(hosted: Hosted, chat: Talk) -> None:
    hosted.stage.script(do(FIX, ("ask_question", {"question_text": "Floats too?"})))
    assert hosted.stage.run().result["outcome"] == "question"
    hosted.stage.script(reply("Then ints alone."))
    chat("Only ints", flags=("--run", "last"))
    hosted.stage.script(do(PROPOSE, FINISH))
    assert hosted.stage.run().result["outcome"] == "proposed"
    assert "Only ints" in hosted.stage.told(2)
