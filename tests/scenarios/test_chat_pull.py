"""`/pr`: what a conversation changed becomes a pull request, by the checks of a cycle, after a person's yes."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli.arguments import DONE
from tests.doubles.model_server import MODEL, calls, reply
from tests.doubles.terminal import Terminal
from tests.scenarios.stage import CALC, FIXED, Done, Stage, add_commit, branches, content, git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Talk = Any

EDIT = calls(("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}))
WORDS = reply("Make add() add\n\nIt subtracted.")
FREELY = ("--permission", "dangerous", "--sandbox", "off")


def shell(command: str) -> Any:
    """The model runs a command."""
    return calls(("run_shell_command", {"command": command}))


@pytest.fixture
def at(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(repository)
    return repository


@pytest.fixture
def chat(stage: Stage, at: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """A conversation in which these lines are typed."""

    def run(*lines: str, flags: tuple[str, ...] = ()) -> Done:
        assert at.is_dir()
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
        return stage.command("chat", *model, *flags)

    return run


def proposed(at: Path) -> str:
    """The only branch that was pushed."""
    (branch,) = branches(at)
    return branch


def test_a_change_is_proposed_after_a_look_and_a_yes(stage: Stage, chat: Talk, at: Path) -> None:
    stage.script(EDIT, reply("It adds now."), WORDS)
    done = chat("Mend add()", "/pr", "/pr yes")
    assert done.code == DONE
    for words in ("Make add() add", f"{at}, branch main", "M calc.py", "1 file, +1 -1", "Pull request #1"):
        assert words in done.out, words
    assert content(at, proposed(at), "calc.py") == FIXED.strip()
    assert (git(at, "log", "-1", "--format=%s", proposed(at)), (at / "calc.py").read_text()) == (
        "Make add() add",
        FIXED,
    )


def test_nothing_leaves_without_the_yes(stage: Stage, chat: Talk, at: Path) -> None:
    stage.script(EDIT, reply("It adds now."), WORDS)
    done = chat("Mend add()", "/pr", "/pr yes please", "/pr --force")
    assert branches(at) == []
    assert not list((stage.home / "forge").glob("*/pulls/*.json"))
    assert "/pr knows no --force" in done.out


def test_a_second_time_updates_the_same_pull_request(stage: Stage, chat: Talk, at: Path) -> None:
    more = calls(("write_file", {"path": "new.py", "content": "x = 1\n"}))
    stage.script(EDIT, reply("It adds now."), more, reply("There is more."), reply("Again."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", "More", "/pr And more", "/pr yes", "What now?")
    assert done.out.count("Pull request #1:") == 2
    assert git(at, "log", "--format=%s", f"main..{proposed(at)}") == "And more"
    assert content(at, proposed(at), "new.py") == "x = 1"
    assert "pulls/1.json" in str(stage.asked(4))


def test_everything_that_a_shell_does_to_files_comes_through(stage: Stage, chat: Talk, at: Path) -> None:
    files: dict[str, str | bytes] = {
        "old.txt": "kept words\n" * 9,
        "gone.txt": "x\n",
        "pic.bin": bytes(range(256)),
        "run.sh": "#!/bin/sh\n",
        "sub/deep.txt": "deep\n",
    }
    add_commit(at, files, "Files")
    command = (
        "mv old.txt new.txt; rm gone.txt sub/deep.txt; printf 'a\\0b\\377' > pic.bin; chmod +x run.sh; "
        "ln -s new.txt link; mkdir -p sub/deep.txt; echo in > sub/deep.txt/in.txt"
    )
    stage.script(shell(command), reply("Done."))
    chat("Work", "/pr Work", "/pr yes", flags=FREELY)
    listed = git(at, "diff", "--raw", "--no-renames", "--abbrev=1", f"main...{proposed(at)}")
    kinds = {line.split("\t")[1]: line.split("\t")[0].split(" ") for line in listed.splitlines()}
    assert {path: (words[1], words[4]) for path, words in kinds.items()} == {
        "old.txt": ("000000", "D"),
        "new.txt": ("100644", "A"),
        "gone.txt": ("000000", "D"),
        "sub/deep.txt": ("000000", "D"),
        "sub/deep.txt/in.txt": ("100644", "A"),
        "pic.bin": ("100644", "M"),
        "run.sh": ("100755", "M"),
        "link": ("120000", "A"),
    }


def test_a_persons_own_edits_stay_out_unless_they_are_asked_for(stage: Stage, chat: Talk, at: Path) -> None:
    far = "\n" * 9
    add_commit(at, {"calc.py": f"{CALC}{far}END = 0\n"}, "Longer")
    (at / "README.md").write_text("# Mine\n")
    (at / "calc.py").write_text(f"{CALC}{far}END = 1\n")
    stage.script(EDIT, reply("It adds now."))
    done = chat("Mend add()", "/pr It adds", "/pr yes")
    assert "your own edits in README.md, calc.py" in done.out
    assert content(at, proposed(at), "README.md") == "# Calc"
    assert content(at, proposed(at), "calc.py") == f"{FIXED}{far}END = 0"


def test_on_lines_that_a_person_changed_only_all_can_be_proposed(stage: Stage, chat: Talk, at: Path) -> None:
    (at / "calc.py").write_text(CALC.replace("(a, b)", "(a, b, c=0)"))
    stage.script(EDIT, reply("It adds now."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", "/pr --all It adds", "/pr yes")
    assert "calc.py: the model changed lines that you had changed" in done.out
    assert content(at, proposed(at), "calc.py") == FIXED.replace("(a, b)", "(a, b, c=0)").strip()


def test_at_a_terminal_a_person_says_yes_or_no(stage: Stage, at: Path) -> None:
    stage.script(EDIT, reply("It adds now."), WORDS)
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
    with Terminal("chat", *model, folder=at, environ={"PULLWRIGHT_HOME": str(stage.home)}) as person:
        person.wait_for("leaves.")
        person.type("Mend add()")
        person.wait_for("It adds now.")
        person.type("/pr Mine")
        person.wait_for("Propose this?")
        person.type("n")
        person.wait_for(">")
        assert branches(at) == []
        person.type("/pr")
        person.wait_for("Propose this?")
        person.type("y")
        person.wait_for("Pull request #1")
        person.type("exit")
        assert person.end() == DONE
    assert git(at, "log", "-1", "--format=%s", proposed(at)) == "Make add() add"
    assert os.environ.get("GITHUB_TOKEN") is None
