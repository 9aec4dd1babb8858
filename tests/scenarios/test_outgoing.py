"""A model that wants a secret out, or wants to notify, command and hide, by every way that leads out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.github.faults import Fault
from tests.doubles.github_page import github_page
from tests.scenarios.stage import FILES, FINISH, FIX, PROPOSE, Stage, add_commit, branches, do, git
from tests.scenarios.test_guards import (
    SKIPPED,
    TASK,
    TEST,
    WORKFLOW,
    changed,
    guarded,
    pull_record,
    shell,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo

slow = pytest.mark.slow(reason="a whole cycle each; the first test of each class is in the default tier")

KEY = "made-up-key-for-this-test-1234567890"
NAME = "octo/calc"


def propose(title: str, body: str) -> tuple[str, dict[str, str]]:
    return "create_pull_request", {"title": title, "body": body}


def ask(question: str) -> tuple[str, dict[str, str]]:
    return "ask_question", {"question_text": question}


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY


@pytest.fixture
def repo(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo = github.add_repository(NAME, {**FILES, "test_calc.py": TEST}, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    stage.flags = ["--github-url", github.web_url, "--repo", NAME]
    return repo


def tagged(text: str) -> str:
    """With a character between any two that nobody sees, and that the normalisation takes out."""
    return "\U000e0020".join(text)


def commented(text: str) -> str:
    return "<!--x7x-->".join(text)


def referred(text: str) -> str:
    return "".join(f"&#x{ord(letter):05x};" for letter in text)


class TestSecretsInWords:
    @slow
    @pytest.mark.parametrize("field", ["title", "body"])
    @pytest.mark.parametrize("spelled", [tagged, commented, referred], ids=lambda spell: spell.__name__)
    def test_what_becomes_a_secret_when_it_is_made_harmless_does_not_leave(
        self, stage: Stage, repository: Path, key: str, field: str, spelled: object
    ) -> None:
        assert callable(spelled)
        words = {"title": "Make add() add", "body": "It subtracted.", field: f"Look {spelled(key)} here"}
        stage.script(do(FIX, propose(words["title"], words["body"]), FINISH), do(FINISH), do(FINISH))
        stage.run("--repo", str(repository), *TASK)
        for branch in branches(repository):
            told = git(repository, "log", "-1", "--format=%B", branch)
            assert not Redactor([key]).holds_secret(told)
        for file in stage.home.glob("**/pulls/*.json"):
            record = json.loads(file.read_text())
            assert not Redactor([key]).holds_secret(record["title"])
            assert not Redactor([key]).holds_secret(record["body"])

    @slow
    @pytest.mark.parametrize("spelled", [tagged, commented, referred], ids=lambda spell: spell.__name__)
    def test_a_question_neither(self, stage: Stage, repo: Repo, key: str, spelled: object) -> None:
        assert callable(spelled)
        stage.script(do(ask(f"Is {spelled(key)} right?")))
        assert stage.run("--issue", "1").code == 4
        assert not any(Redactor([key]).holds_secret(one.body) for one in repo.issues[1].comments)

    @slow
    def test_a_secret_in_the_task_is_not_in_the_branchs_name(
        self, stage: Stage, repository: Path, key: str
    ) -> None:
        stage.script(do(FIX, PROPOSE, FINISH))
        done = stage.run("--repo", str(repository), "--task", f"Rotate {key} in calc.py")
        assert done.code == 0
        (branch,) = branches(repository)
        assert not Redactor([key]).holds_secret(branch)

    @slow
    def test_codes_of_a_terminal_do_not_hide_one(self, stage: Stage, repository: Path, key: str) -> None:
        hidden = "\x1b[0m".join(key)
        stage.script(do(("finish", {"reason": f"no task: {hidden}"})))
        done = stage.run("--repo", str(repository), *TASK, json_output=False)
        assert "Nothing to do" in done.out
        assert not Redactor([key]).holds_secret(done.out)
        assert not Redactor([key]).holds_secret(done.err)

    @slow
    def test_a_command_that_is_cut_is_redacted_before(self, stage: Stage, repository: Path, key: str) -> None:
        del key
        token = "ghp" + "_" + "aB3dE5gH7jK9" * 3
        line = f"echo {'x' * 180} {token}"
        stage.script(do(FIX, shell(line)), do(PROPOSE, FINISH))
        done = stage.run("--repo", str(repository), *TASK, "--allow-dangerous-tools")
        assert token[:12] not in done.result["pull_request"]["body"]

    @slow
    def test_a_saved_patch_that_holds_one_is_private_and_says_so(
        self, stage: Stage, repository: Path, key: str
    ) -> None:
        stage.script(do(write("a.txt", f"{key}\n"), PROPOSE), do(FINISH), do(FINISH))
        done = stage.run("--repo", str(repository), *TASK)
        from pathlib import Path as Place

        assert Place(done.result["patch"]).stat().st_mode & 0o077 == 0
        assert any("do not publish" in str(event.get("message")) for event in stage.events())


class TestWhatAPullRequestIsMadeOf:
    def test_commands_cannot_leave_their_place(self, stage: Stage, repository: Path) -> None:
        calls = [
            *[shell(f"echo {number}") for number in range(60)],
            shell("echo `true x` @octocat\n\n/merge || true"),
            shell("echo '\u202eevil\u200b <!-- x'"),
        ]
        stage.script(do(FIX, *calls), do(PROPOSE, FINISH))
        body = stage.run("--repo", str(repository), *TASK, "--allow-dangerous-tools").result["pull_request"][
            "body"
        ]
        evidence = body.split("<sub>Opened by")[1]
        assert "\u202e" not in evidence
        assert "\u200b" not in evidence
        lines = [line for line in evidence.splitlines() if line.startswith("- `")]
        assert all(line.count("`") == 2 for line in lines)
        assert 10 < len(lines) <= 31
        assert "more command" in evidence

    @slow
    def test_a_template_neither_notifies_nor_turns_words_into_code(
        self, stage: Stage, repository: Path
    ) -> None:
        template = "Ping @octocat ![x](https://collect.example/a.png)\n\n```\n# What\n```\n\nCloses #99\n"
        add_commit(repository, {"pull_request_template.md": template}, "Template")
        stage.script(do(FIX, propose("Fix add", "See:\n\n```\nFixes @octocat\n```\n"), FINISH))
        body = stage.run("--repo", str(repository), *TASK).result["pull_request"]["body"]
        assert "@octocat" not in github_page(body).words
        assert "](https://collect.example" not in body
        assert "Closes #99" not in body

    @slow
    def test_a_long_template_fits(self, stage: Stage, repo: Repo, github: GitHub) -> None:
        github.commit(repo, {"pull_request_template.md": "# What\n" + "words and words\n" * 3_900})
        stage.script(do(FIX, propose("Fix add", "word " * 9_000), FINISH))
        done = stage.run("--issue", "1")
        assert done.result["outcome"] == "proposed"
        assert len(done.result["pull_request"]["body"]) <= 65_536
        assert done.result["pull_request"]["body"].endswith("<!-- pullwright:task:issue-1 -->")

    @slow
    @pytest.mark.parametrize(
        "words",
        ["Done.\n\n<details><summary>More</summary>\n\nAll of it.\n\n<del>", "<!-- ", "===\nx", "~~~\nx"],
    )
    def test_what_the_program_says_stands_above_and_is_not_folded_away(
        self, stage: Stage, repository: Path, words: str
    ) -> None:
        stage.script(do(FIX, propose("Fix add", words), FINISH))
        body = stage.run("--repo", str(repository), *TASK).result["pull_request"]["body"]
        ours, _, _ = body.partition("\n\n***\n\n")
        assert ours.startswith("<sub>Opened by Pullwright, run ")
        assert ours.endswith(" No command and no test was run.</sub>")
        assert body.splitlines()[-1].startswith("<!-- pullwright:task:")

    @slow
    def test_a_title_of_nothing_is_no_title(self, stage: Stage, repository: Path) -> None:
        stage.script(do(FIX, propose("\U000e0041\u200b", "It subtracted.")), do(PROPOSE, FINISH))
        assert stage.run("--repo", str(repository), *TASK).code == 0
        assert "title is empty" in stage.told(1)


class TestTheCommentOnWhatIsHeld:
    def test_names_and_reasons_notify_nobody(self, stage: Stage, repository: Path) -> None:
        (repository / ".github").mkdir()
        (repository / ".github" / "@octocat fixes #9 ![y](x)\n\n`\n> z").symlink_to("../d")
        add_commit(repository, {"d/x.yml": "on: push\n"}, "Odd names")
        stage.script(do(FIX, write("d/x.yml", "on: pull_request\n"), PROPOSE, FINISH))
        stage.run("--repo", str(repository), *TASK)
        (comment,) = pull_record(stage)["comments"]
        above = comment["body"].split("To take the change over")[0]
        assert "d/x.yml" in above
        outside = "".join("".join(line.split("`")[0::2]) for line in above.splitlines())
        assert "@octocat" not in outside
        assert "ixes #9" not in outside
        assert "](https" not in outside
        assert not any(line.startswith("/") for line in above.splitlines())

    @slow
    def test_thousands_of_them_are_counted(self, stage: Stage, repo: Repo) -> None:
        calls = [write(f".x/{'n' * 180}{number}", "x\n") for number in range(150)]
        stage.script(do(FIX, *calls), do(PROPOSE, FINISH))
        done = stage.run("--issue", "1", "--max-files", "999")
        (comment,) = repo.pulls[done.result["pull_request"]["number"]].comments
        assert comment.body.count("a folder whose name begins with a dot") <= 21
        assert "130 more" in comment.body

    @slow
    @pytest.mark.parametrize("odd", ["on: push\r\n", "x: \u202eevil\n"])
    def test_a_patch_that_a_comment_would_change_is_not_shown(
        self, stage: Stage, repository: Path, odd: str
    ) -> None:
        stage.script(do(FIX, write(WORKFLOW, odd), PROPOSE, FINISH))
        stage.run("--repo", str(repository), *TASK)
        (comment,) = pull_record(stage)["comments"]
        assert "diff --git" not in comment["body"]
        assert "changes.patch" in comment["body"]

    @slow
    def test_it_goes_when_nothing_waits_any_more(self, stage: Stage, repository: Path) -> None:
        add_commit(repository, {WORKFLOW: "on: push\n"}, "Workflow")
        stage.script(
            do(FIX, write(WORKFLOW, "on: [push, pull_request]\n"), PROPOSE),
            do(write(WORKFLOW, "on: push\n"), PROPOSE, FINISH),
        )
        stage.run("--repo", str(repository), *TASK)
        (comment,) = pull_record(stage)["comments"]
        assert "waits for a person" not in comment["body"]
        assert "Nothing of the change is held" in comment["body"]


class TestTwoProposals:
    def test_what_was_held_stays_held(self, stage: Stage, repository: Path) -> None:
        stage.script(
            do(FIX, PROPOSE),
            do(write(WORKFLOW, "on: push\n"), PROPOSE),
            do(shell(f"chmod +x {WORKFLOW} && git add -f . && git commit -qm x"), PROPOSE, FINISH),
        )
        stage.run("--repo", str(repository), *TASK, "--allow-dangerous-tools")
        assert changed(repository) == ["calc.py"]

    @slow
    def test_limits_count_all_of_it(self, stage: Stage, repository: Path) -> None:
        stage.script(
            do(FIX, write("b.py", "b = 1\n"), PROPOSE), do(write("c.py", "c = 1\n"), PROPOSE, FINISH)
        )
        stage.run("--repo", str(repository), *TASK, "--max-files", "2")
        assert changed(repository) == ["b.py", "calc.py"]
        assert guarded(stage, "change-size")

    @slow
    def test_so_does_the_check_of_tests(self, stage: Stage, repository: Path) -> None:
        add_commit(repository, {"test_calc.py": TEST}, "A test")
        moved = "def test_other():\n    assert True\n"
        stage.script(
            do(FIX, write("test_calc.py", TEST + moved), PROPOSE),
            do(write("test_calc.py", moved), PROPOSE, FINISH),
        )
        stage.run("--repo", str(repository), *TASK, "--require-tests")
        (branch,) = branches(repository)
        assert "assert add" in git(repository, "show", f"{branch}:test_calc.py")

    @slow
    def test_a_repaired_test_takes_the_notice_away_and_explains_the_label(
        self, stage: Stage, repository: Path
    ) -> None:
        add_commit(repository, {"test_calc.py": TEST}, "A test")
        stage.script(
            do(FIX, write("test_calc.py", SKIPPED), PROPOSE), do(write("test_calc.py", TEST), PROPOSE, FINISH)
        )
        done = stage.run("--repo", str(repository), *TASK)
        assert changed(repository) == ["calc.py"]
        body = done.result["pull_request"]["body"]
        assert "may be skipped now" not in body
        assert "An earlier version of this change took tests away" in body
        assert pull_record(stage)["labels"] == ["tests-need-review"]

    @slow
    @pytest.mark.parametrize("first", [KEY[:9], "x = 1"])
    def test_a_secret_over_two_of_them_is_found(
        self, stage: Stage, repository: Path, key: str, first: str
    ) -> None:
        stage.script(
            do(FIX, write("a.txt", f"{first}\n"), PROPOSE),
            do(write("a.txt", f"{first}\n{key[9:]}\n"), PROPOSE),
            do(FINISH),
            do(FINISH),
        )
        stage.run("--repo", str(repository), *TASK)
        (branch,) = branches(repository)
        assert git(repository, "show", f"{branch}:a.txt") == first


class TestWhatCannotBeAttached:
    @slow
    @pytest.mark.parametrize(
        ("path", "named"), [(r".*/labels", "tests-need-review"), (r".*/comments", WORKFLOW)]
    )
    def test_the_pull_request_is_there_all_the_same(
        self, stage: Stage, repo: Repo, github: GitHub, path: str, named: str
    ) -> None:
        body = {"message": "Resource not accessible by integration"}
        github.faults.append(Fault("*", rf".*/issues/[2-9]\d*{path[2:]}", 99, status=403, body=body))
        stage.script(do(FIX, write(WORKFLOW, "on: push\n"), write("test_calc.py", SKIPPED), PROPOSE, FINISH))
        done = stage.run("--issue", "1")
        assert (done.code, done.result["outcome"]) == (0, "proposed"), done.err
        assert done.result["pull_request"]["number"] in repo.pulls
        warned = [event["message"] for event in stage.events() if event["type"] == "Warned"]
        assert any(named in message for message in warned), warned
