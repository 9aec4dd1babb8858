"""`pullwright init`: files in a folder, a label and one pull request on GitHub, and nothing before that is merged."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.doubles.model_server import NO_OTHERS, ModelServer
from tests.doubles.terminal import Terminal
from tests.scenarios.stage import FILES, FIX_IT, git, make_repository
from tests.scenarios.test_action import ROOT

if TYPE_CHECKING:
    from tests.doubles.github.server import GitHub
    from tests.doubles.github.state import Repo
    from tests.scenarios.stage import Stage

NAME = "octo/calc"
TESTED = {
    **FILES,
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "tests/test_calc.py": "",
}
VENDOR = "anthropic:claude-sonnet-4-5"
KEY = "key-of-team-4f9a1c77d0e24b5f"
BRANCH = "pullwright/onboarding"
several_starts = pytest.mark.slow(
    reason="several starts of the program; the like of it is in the default tier"
)


def linted(folder: Path) -> None:
    """What is written passes the linters of workflows."""
    workflow = folder / ".github/workflows/pullwright.yml"
    for words in (
        ["actionlint", "-no-color", str(workflow)],
        ["zizmor", "--offline", "--quiet", str(folder / ".github")],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(workflow)],
    ):
        program = Path(sys.executable).with_name(words[0])
        if program.exists():
            done = subprocess.run(
                [program, *words[1:]], capture_output=True, text=True, check=False, cwd=folder
            )
            assert done.returncode == 0, done.stdout + done.stderr


def rules(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pullwright.toml").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "calc", TESTED)


def test_without_a_terminal_the_proposed_test_command_is_written(stage: Stage, folder: Path) -> None:
    done = stage.command("init", "--repo", str(folder))
    assert done.code == 0, done.err
    assert ".venv/bin/python -m pytest" in str(rules(folder)["test_command"])
    assert rules(folder)["max_minutes"] == 60
    assert not (folder / ".github").exists()
    assert stage.command("config").code == 0


CASE = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tests/__init__.py": "", "tests/test_a.py": CASE}, "python3 -m unittest discover -s tests -t .: 1 test ran, exit code 0"),
        ({"mix.exs": "", "test/a_test.exs": ""}, "not tried: not installed on this machine: mix"),
        (TESTED, "not tried, as its set-up needs the network"),
    ],
)  # fmt: skip
def test_a_proposal_is_tried_in_the_sandbox_and_what_it_ran_is_said(
    stage: Stage, tmp_path: Path, files: dict[str, str], said: str
) -> None:
    folder = make_repository(tmp_path / "tried", {**FILES, **files})
    done = stage.command("init", "--repo", str(folder))
    assert done.code == 0, done.err
    assert said in f"{done.out}{done.err}"


def test_a_vendors_model_gets_a_cap_in_dollars_and_a_second_call_changes_nothing(
    stage: Stage, folder: Path
) -> None:
    argv = ("init", "--repo", str(folder), "--model", VENDOR, "--max-usd", "2", "--test-command", "make test")
    assert stage.command(*argv).code == 0
    assert rules(folder) == {"model": VENDOR, "max_usd": 2.0, "test_command": "make test"}
    assert "Everything exists already." in stage.command(*argv).out


def test_a_file_that_is_there_is_not_changed_before_its_change_was_shown(stage: Stage, folder: Path) -> None:
    file = folder / "pullwright.toml"
    file.write_text("# ours\nmax_usd = 1\n\n[mine]\nx = 1\n".replace("\n[mine]\nx = 1\n", ""))
    before = file.read_text()
    argv = ("init", "--repo", str(folder), "--model", VENDOR, "--max-usd", "3", "--test-command", "none")
    done = stage.command(*argv)
    assert (done.code, file.read_text()) == (2, before)
    assert "-max_usd = 1\n" in done.out
    assert "+max_usd = 3.0\n" in done.out
    assert "pass --yes" in done.err
    assert stage.command(*argv, "--yes").code == 0
    assert file.read_text() == f'# ours\nmax_usd = 3.0\nmodel = "{VENDOR}"\n'


def test_what_was_decided_is_asked_once_saved_and_needs_no_flag_later(
    folder: Path, own_state: Path, tmp_path: Path
) -> None:
    git(folder, "remote", "add", "origin", f"https://github.com/{NAME}.git")
    own = tmp_path / "config.toml"
    own.write_text("# mine\nmax_rounds = 7\n")
    with ModelServer() as server:
        server.listed = ("qwen3:8b",)
        environ = {
            "OLLAMA_HOST": server.url.removesuffix("/v1"),
            "PULLWRIGHT_HOME": str(own_state),
            "PULLWRIGHT_CONFIG": str(own),
        }
        terminal = Terminal("init", folder=folder, environ=environ)
        said = terminal.wait_for("none [")
        assert f"qwen3:8b at {server.url}" in said
        number = next(line.split()[0] for line in said.splitlines() if "qwen3:8b" in line)
        terminal.type(number)
        terminal.wait_for("How are the tests run? A command, or none")
        terminal.type("make test")
        terminal.wait_for("Another command, none, or the same one [make test]")  # there is no such target
        terminal.type("")
        terminal.wait_for(f"Pull requests on {NAME}, or in this folder? github or folder [folder]")
        terminal.type("")
        shown = terminal.wait_for("Do this? y, n, or r to save your own options for this repository only [y]")
        terminal.type("")
        assert terminal.end() == 0
    assert f"change {own} (your own options)" in " ".join(shown.split())
    assert '+model = "qwen3:8b"' in shown
    assert "  pullwright doctor\n  pullwright run --task 'What is to be done'" in terminal.text.replace(
        "\r", ""
    )
    assert rules(folder) == {"test_command": "make test", "max_minutes": 60}
    assert own.read_text().startswith("# mine\nmax_rounds = 7\n")
    assert tomllib.loads(own.read_text()) == {
        "max_rounds": 7,
        "model": "qwen3:8b",
        "api_url": server.url,
        "max_minutes": 60,
        "repository": {str(folder): {"test_command": "auto"}},
    }


@several_starts
def test_the_model_of_ones_own_options_stands_first_and_what_is_on_github_is_pushed(
    folder: Path, own_state: Path, tmp_path: Path
) -> None:
    git(folder, "remote", "add", "origin", f"https://github.com/{NAME}.git")
    own = tmp_path / "config.toml"
    own.write_text('model = "mine:7b"\napi_url = "http://127.0.0.1:9/v1"\n')
    environ = {**NO_OTHERS, "PULLWRIGHT_HOME": str(own_state), "PULLWRIGHT_CONFIG": str(own)}
    terminal = Terminal("init", "--test-command", "none", "--no-local", folder=folder, environ=environ)
    said = terminal.wait_for("none [1]")
    assert "  1  mine:7b at http://127.0.0.1:9/v1" in said
    terminal.type("")
    terminal.wait_for("Work on GitHub Actions too")
    terminal.type("")
    terminal.wait_for("Do this?")
    terminal.type("")
    assert terminal.end() == 0
    assert "git add pullwright.toml && git commit -m 'Set up Pullwright' && git push" in terminal.text


def own_file(folder: Path) -> Path:
    return folder.parent / "pullwright/config.toml"


def set_up(stage: Stage, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> Path:
    """`init` in this folder with the scripted model, and no tests; the person's own file."""
    own = own_file(folder)
    monkeypatch.delenv("PULLWRIGHT_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    monkeypatch.chdir(folder)
    model = ("--model", "openai-chat:scripted-1", "--api-url", stage.model.url)
    done = stage.command("init", *model, "--test-command", "none", *words)
    assert done.code == 0, done.err
    return own


def test_after_init_a_run_needs_neither_a_repository_nor_a_model(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = set_up(stage, monkeypatch, folder)
    assert tomllib.loads(own.read_text())["repository"] == {str(folder): {}}
    stage.script(FIX_IT)
    run = stage.command("run", "--task", "Fix add()")
    assert run.code == 0, run.err
    # The commands that it prints are those of somebody in this folder.
    assert (
        "  look    pullwright pulls 1\n  merge   pullwright accept 1\n  tests   no test was run\n" in run.out
    )
    listed = stage.command("pulls")
    assert "      pullwright accept 1\n" in listed.out
    assert "  close   pullwright close 1\n" in stage.command("pulls", "1").out
    assert "pullwright retry text-" in (said := stage.command("close", "1").out)
    assert "--repo" not in said
    assert str(folder) in stage.command("doctor").out
    assert stage.command("claims").code == 0
    monkeypatch.chdir(folder.parent)
    assert f"pullwright pulls 1 --repo {folder}\n" in stage.command("pulls").out
    elsewhere = stage.command("run", "--task", "Fix add()")
    assert (elsewhere.code, len(stage.model.requests)) == (2, 1)
    assert "no repository is named: pass --repo" in elsewhere.err
    assert "pullwright init" in elsewhere.err


@pytest.mark.parametrize(
    ("environ", "saved"),
    [
        ({}, None),
        ({"PULLWRIGHT_API_KEY": "key-of-others"}, "PULLWRIGHT_API_KEY"),
        ({"OPENAI_API_KEY": "key-of-openai"}, None),  # it does not go to this server
        ({"TEAM_API_KEY": "key-of-team"}, "TEAM_API_KEY"),  # typed
    ],
)
def test_the_variable_with_the_models_key_is_saved_and_never_the_key(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], saved: str | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    flags = ("--api-key-variable", saved) if saved == "TEAM_API_KEY" else ()
    own = set_up(stage, monkeypatch, folder, *flags).read_text()
    assert tomllib.loads(own).get("api_key_variable") == saved
    assert "key-of" not in own


def test_a_saved_variable_has_the_key_that_the_server_gets(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_API_KEY", KEY)
    set_up(stage, monkeypatch, folder, "--api-key-variable", "TEAM_API_KEY")
    stage.script(FIX_IT)
    run = stage.command("run", "--task", "Fix add()")
    assert run.code == 0, run.err
    assert stage.model.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in run.out + run.err
    monkeypatch.delenv("TEAM_API_KEY")
    refused = stage.command("run", "--task", "Fix it again")
    assert (refused.code, len(stage.model.requests)) == (2, 1)
    assert "no key for openai-chat:scripted-1: set TEAM_API_KEY" in refused.err
    shown = stage.command("config")
    assert "TEAM_API_KEY" in shown.out


def test_an_own_file_that_is_there_is_changed_by_a_person_only_and_keeps_what_it_says_for_all(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_file(folder)
    own.parent.mkdir()
    own.write_text('model = "gemini:other"\n')
    left = set_up(stage, monkeypatch, folder).read_text()
    assert left == 'model = "gemini:other"\n'
    set_up(stage, monkeypatch, folder, "--yes")
    assert tomllib.loads(own.read_text()) == {
        "model": "gemini:other",
        "repository": {
            str(folder): {
                "model": "openai-chat:scripted-1",
                "api_url": stage.model.url,
                "max_minutes": 60,
            }
        },
    }
    before = own.read_text()
    set_up(stage, monkeypatch, folder, "--yes")
    assert own.read_text() == before


@several_starts
def test_no_at_the_end_writes_nothing(folder: Path, own_state: Path) -> None:
    terminal = Terminal(
        *("init", "--model", VENDOR, "--max-usd", "1", "--test-command", "none", "--no-actions"),
        folder=folder,
        environ={"PULLWRIGHT_HOME": str(own_state)},
    )
    terminal.wait_for("Do this? y, n, or r")
    terminal.type("n")
    assert terminal.end() == 0
    assert "Nothing was written." in terminal.text
    assert not (folder / "pullwright.toml").exists()


@pytest.mark.slow(reason="the linters of workflows, some seconds each")
def test_the_workflow_in_another_repository_brings_the_program_along(stage: Stage, folder: Path) -> None:
    git(folder, "remote", "add", "origin", f"git@github.com:{NAME}.git")
    done = stage.command("init", "--repo", str(folder), "--actions", "--model", VENDOR)
    assert done.code == 0, done.err
    content = yaml.safe_load((folder / ".github/workflows/pullwright.yml").read_text())
    job = content["jobs"]["work"]
    assert job["if"].startswith(f"github.repository == '{NAME}' && (")
    given = next(step["with"] for step in job["steps"] if "pullwright" in step.get("uses", ""))
    assert (given["model"], given["test-command"], given["max-usd"]) == (VENDOR, "auto", "5")
    assert given["allow-host"].split() == ["pypi.org", "*.pythonhosted.org"]
    action = folder / ".github/actions/pullwright"
    assert (action / "install.sh").stat().st_mode & 0o111
    linted(folder)
    program = folder / "program"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", action / "program.zip", program], check=True)
    done_there = subprocess.run(
        [sys.executable, "-I", program / "run_local_agent.py", "run", "--demo", "--plain"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done_there.returncode == 0, done_there.stderr
    assert (program / "requirements.lock").read_text() == (ROOT / "requirements.lock").read_text()


# The onboarding pull request.


@pytest.fixture
def repo(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Repo:
    repo = github.add_repository(NAME, TESTED, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    stage.flags = ["--github-url", github.web_url, "--repo", NAME]
    return repo


def test_a_clone_of_a_repository_on_github_means_that_repository_unless_its_owner_says_otherwise(
    stage: Stage, repo: Repo, github: GitHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(folder, "remote", "add", "origin", f"{github.web_url}/{NAME}.git")
    monkeypatch.setenv("GITHUB_SERVER_URL", github.web_url)
    stage.flags = []
    said = f"pull requests stay in {folder}, which was cloned from {github.web_url}/{NAME}"
    stage.script(FIX_IT)
    assert said in stage.run("--repo", str(folder), "--task", "Make add() add").err
    own = set_up(stage, monkeypatch, folder)
    assert list(tomllib.loads(own.read_text())["repository"]) == [f"{github.web_url}/{NAME}"]
    stage.script(FIX_IT)
    assert stage.command("run", "--json", "--issue", "1").result["outcome"] == "proposed"
    assert len(repo.pulls) == 1

    set_up(stage, monkeypatch, folder, "--local", "--yes")
    stage.script(FIX_IT)
    run = stage.command("run", "--json", "--task", "Fix add()")
    assert (run.result["outcome"], said in run.err) == ("proposed", False)
    assert len(repo.pulls) == 1
    assert "Make add() add" in stage.command("pulls").out

    set_up(stage, monkeypatch, folder, "--no-local", "--yes")
    assert list(tomllib.loads(own.read_text())["repository"]) == [f"{github.web_url}/{NAME}"]


def propose(stage: Stage, *words: str) -> str:
    done = stage.command(
        *("init", "--pull-request", *stage.flags, "--model", VENDOR, "--max-usd", "2", "--actions", *words)
    )
    assert done.code == 0, done.err
    return done.out


def test_one_pull_request_and_nothing_is_done_before_it_is_merged(
    stage: Stage, repo: Repo, github: GitHub
) -> None:
    assert "Nothing is done before it is merged." in propose(stage)
    (pull,) = repo.pulls.values()
    assert (pull.head, pull.title, pull.draft) == (BRANCH, "Set up Pullwright", False)
    body = pull.body or ""
    for words in (
        f"Model: `{VENDOR}`",
        "Limits: 2 US dollars a cycle; 20 requests a cycle.",
        "At most 48.00 US dollars a day: 24 times a day, at most 2 each time.",
        "An estimate: a small task (100,000 tokens read and 5,000 written) costs about 0.38 US dollars",
        "ANTHROPIC_API_KEY",
    ):
        assert words in body
    assert body.endswith("<!-- pullwright:onboarding -->")
    assert tomllib.loads((repo.show(BRANCH, "pullwright.toml") or b"").decode())["max_usd"] == 2

    waits = stage.run("--issue", "1")
    assert (waits.result["outcome"], stage.model.requests) == ("no_task", [])
    assert f"/pull/{pull.number} sets Pullwright up and is open: merge it first" in waits.result["reason"]

    github.merge(repo, pull.number)
    stage.script(FIX_IT)
    assert stage.run("--issue", "1", "--price", "1/2").result["outcome"] == "proposed"


@several_starts
def test_its_text_follows_the_files_on_its_branch(stage: Stage, repo: Repo, github: GitHub) -> None:
    propose(stage)
    (pull,) = repo.pulls.values()
    github.commit(repo, {"pullwright.toml": "max_usd = 0.5\nmax_open_prs = 1\n"}, branch=BRANCH)
    head = repo.branches()[BRANCH]
    assert "updated: its text describes the files on its branch" in propose(stage, "--max-usd", "9")
    assert "At most 12.00 US dollars a day: 24 times a day, at most 0.5 each time." in (pull.body or "")
    assert "at most 1 open" in (pull.body or "")
    before = pull.body
    propose(stage)
    assert (pull.body, repo.branches()[BRANCH], len(repo.pulls)) == (before, head, 1)

    github.commit(repo, {"pullwright.toml": "max_usd = `@all`\n"}, branch=BRANCH)
    propose(stage)
    assert "> `pullwright.toml is not valid TOML" in (pull.body or "")
    assert "`@all`" not in (pull.body or "")


@several_starts
def test_one_that_a_person_closed_stays_closed(stage: Stage, repo: Repo, github: GitHub) -> None:
    propose(stage)
    (pull,) = repo.pulls.values()
    github.close(repo, pull.number)
    done = stage.command("init", "--pull-request", *stage.flags, "--model", VENDOR, "--max-usd", "2")
    assert done.code == 2
    assert "a person closed" in done.err
    assert len(repo.pulls) == 1


@several_starts
def test_the_label_of_the_backlog_is_made_where_the_person_says_so(stage: Stage, repo: Repo) -> None:
    repo.threads.clear()
    propose(stage)
    assert repo.labels == []
    assert "label 'pullwright' created" in propose(stage, "--labels")
    assert "label 'pullwright' exists already" in propose(stage, "--labels")
    assert repo.labels == ["pullwright"]


@several_starts
def test_a_local_repository_has_such_a_pull_request_too(stage: Stage, folder: Path) -> None:
    argv = ("init", "--pull-request", "--repo", str(folder), "--test-command", "make test")
    done = stage.command(*argv)
    assert done.code == 0, done.err
    assert git(folder, "show", f"{BRANCH}:pullwright.toml").endswith('test_command = "make test"')
    assert stage.run("--repo", str(folder), "--task", "Fix add()").result["outcome"] == "no_task"
    git(folder, "merge", "-q", BRANCH)
    stage.script(FIX_IT)
    assert stage.run("--repo", str(folder), "--task", "Fix add()").result["outcome"] == "proposed"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--repo", "octo/none-here"), "is not on this disk: pass --pull-request"),
        (("--model", "nobody:x"), "unknown model provider"),
        (("--max-usd", "lots"), "must be"),
        (("--labels",), "needs a token"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], words: str
) -> None:
    git(folder, "remote", "add", "origin", f"https://github.com/{NAME}")
    monkeypatch.chdir(folder)
    done = stage.command("init", *argv)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not (folder / "pullwright.toml").exists()
