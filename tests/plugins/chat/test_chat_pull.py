"""`/pr`: what a conversation changed becomes a pull request, by the checks of a cycle, after a person's yes."""

from __future__ import annotations

import io
import os
import re
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
BREAKS = "grep -q 'a - b' calc.py"
"""A command that passes on the base alone."""
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


def proposed_first(at: Path) -> str:
    """The branch that is merged into `main`."""
    (merged,) = git(
        at, "branch", "--format=%(refname:short)", "--merged", "main", "--list", "pullwright/*"
    ).split()
    return merged


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
    assert "/pr has no flag --force" in done.out


@pytest.mark.slow(reason="several proposals in one test; the first of them is in the default tier")
def test_a_second_time_updates_the_same_pull_request(stage: Stage, chat: Talk, at: Path) -> None:
    more = calls(("write_file", {"path": "new.py", "content": "x = 1\n"}))
    stage.script(EDIT, reply("It adds now."), more, reply("There is more."), reply("Again."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", "More", "/pr And more", "/pr yes", "What now?")
    assert done.out.count("Pull request #1:") == 2
    assert git(at, "log", "--format=%s", f"main..{proposed(at)}") == "And more"
    assert content(at, proposed(at), "new.py") == "x = 1"
    assert "pulls/1.json" in str(stage.asked(4))


@pytest.mark.slow(reason="several proposals in one test; the first of them is in the default tier")
def test_after_a_merge_comes_another_and_after_a_refusal_none(stage: Stage, chat: Talk, at: Path) -> None:
    more = calls(("write_file", {"path": "new.py", "content": "x = 1\n"}))
    stage.script(EDIT, reply("It adds now."), more, reply("There is more."))
    chat("Mend add()", "/pr It adds", "/pr yes")
    git(at, "stash", "--quiet")
    git(at, "merge", "--quiet", proposed(at))
    chat("More", "/pr And more", "/pr yes", flags=("--resume", "last"))
    (second,) = set(branches(at)) - {proposed_first(at)}
    assert git(at, "diff", "--name-only", f"main...{second}") == "new.py"
    stage.command("close", "2", "--repo", str(at))
    done = chat("/pr And more", "/pr yes", flags=("--resume", "last"))
    key = re.search(r"is closed unmerged; for another try: pullwright retry (text-\w+)", done.out)
    assert key is not None
    assert stage.command("retry", key[1], "--repo", str(at)).code == DONE
    done = chat("/pr And more", "/pr yes", flags=("--resume", "last"))
    assert "Pull request #3" in done.out


def test_a_clone_is_proposed_to_where_it_was_cloned_from(
    stage: Stage, chat: Talk, at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage.script(shell("sed -i 's/a - b/a + b/' calc.py; git commit -qam mine"), reply("It adds now."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", flags=("--repo", str(at), *FREELY))
    assert "Pull request #1" in done.out, done.out + done.err
    assert content(at, proposed(at), "calc.py") == FIXED.strip()


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


def test_a_change_whose_tests_fail_is_told_first_and_proposed_only_if_it_is_wanted(
    stage: Stage, chat: Talk
) -> None:
    stage.script(EDIT, reply("It adds now."), reply("I see."))
    flags = ("--test-command", BREAKS, "--sandbox", "off")
    done = chat("Mend add()", "/pr It adds", "/pr yes", "/pr It adds", "/pr yes", "Why?", flags=flags)
    assert done.out.count("Failed: ") == 1
    assert "it was refused before" in done.out
    assert "Pull request #1" in done.out
    assert "tests-fail" in next((stage.home / "forge").glob("*/pulls/1.json")).read_text()
    assert "it was refused" in str(stage.asked(2))


@pytest.mark.slow(reason="several proposals in one test; the first of them is in the default tier")
def test_with_required_tests_nothing_is_proposed_that_fails(stage: Stage, chat: Talk, at: Path) -> None:
    stage.script(EDIT, reply("It adds now."))
    flags = ("--test-command", BREAKS, "--sandbox", "off", "--require-tests")
    chat("Mend add()", "/pr It adds", "/pr yes", "/pr It adds", "/pr yes", flags=flags)
    assert branches(at) == []
    assert git(at, "for-each-ref", "refs/pullwright/wip/") == "", "the folder has it"


def test_what_a_cycle_holds_back_a_conversation_holds_back(stage: Stage, chat: Talk, at: Path) -> None:
    workflow = calls(("write_file", {"path": ".github/workflows/ci.yml", "content": "on: push\n"}))
    secret = calls(("write_file", {"path": "key.txt", "content": "ghp_" + "a1B2" * 9 + "\n"}))
    stage.script(EDIT, workflow, reply("It adds now."), secret, reply("And a key."))
    done = chat("Mend add()", "/pr It adds, cc @ada", "/pr yes", "More", "/pr It adds", "/pr yes")
    assert git(at, "diff", "--name-only", f"main...{proposed(at)}") == "calc.py"
    pull = next((stage.home / "forge").glob("*/pulls/1.json")).read_text()
    assert ".github/workflows/ci.yml" in pull, "it waits for a person, as a patch"
    assert "cc @ada" not in pull
    assert "looks like a secret" in done.out


def test_what_is_proposed_is_what_was_shown(stage: Stage, at: Path) -> None:
    stage.script(EDIT, reply("It adds now."))
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat", "--plain"]
    with Terminal("chat", *model, folder=at, environ={"PULLWRIGHT_HOME": str(stage.home)}) as person:
        person.type("Mend add()")
        person.wait_for("It adds now.")
        person.type("/pr --all It adds")
        person.wait_for("followed by yes")
        (at / "later.txt").write_text("after the look")
        person.type("/pr yes")
        person.wait_for("have changed since you saw")
        person.type("/pr yes")
        person.wait_for("type /pr first")
    assert branches(at) == []


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        ("rm -rf .git", "is in no git repository"),
        ("git checkout -q --detach", "pass --base BRANCH"),
        ("git checkout -q calc.py", "there is nothing to propose"),
        ("git remote add origin https://git.example.com/o/n", "which is not configured as a GitHub server"),
        ("git remote add origin https://gitlab.com/o/n", "opens pull requests on GitHub"),
        ("git remote add origin git@github.com:o/n", "no token for GitHub"),
    ],
)
def test_a_folder_that_cannot_be_proposed_is_one_line(
    stage: Stage, chat: Talk, prepare: str, words: str
) -> None:
    stage.script(shell(f"sed -i 's/a - b/a + b/' calc.py; {prepare}"), reply("Done."))
    done = chat("Mend add()", "/pr It adds", "/pr yes", flags=FREELY)
    said = [line for line in done.out.splitlines() if line.startswith("pullwright: ")]
    assert words in said[0]
    assert said[1:] == ["pullwright: type /pr first: it shows what would be proposed"]


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
