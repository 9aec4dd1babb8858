"""What `doctor` says of a repository's tests: the command to copy, what it reaches, and where it would run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli.arguments import given_settings, parse
from orchestrator.app.config.settings import load_settings
from orchestrator.app.doctor.findings import ProbeState
from tests.scenarios.stage import git, make_repository
from tests.unit.app.doctor.test_doctor import probe

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.doctor.findings import ProbeFinding


PROJECT = {
    "pyproject.toml": '[project]\nname = "a"\n[project.optional-dependencies]\ntest = ["pytest"]\n',
    "tests/test_a.py": "def test_a():\n    assert True\n",
}


UNITTEST = "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        pass\n"


def found(folder: Path, files: dict[str, str], **flags: Any) -> dict[str, ProbeFinding]:
    repository = make_repository(folder / "calc", files=files)
    return probe(folder, str(repository), **flags)


def test_a_proposal_is_a_line_that_can_be_typed_and_leaves_nothing_to_mend(tmp_path: Path) -> None:
    first = found(tmp_path, PROJECT)["command"]
    assert (first.state, first.found) == (
        ProbeState.WARNING,
        "none is set, so no test is run before a pull request",
    )
    options = parse(["doctor", *shlex.split(first.typed)])
    settings = load_settings(given_settings(options), {}, tmp_path).settings
    assert settings.test_command == ".venv/bin/python -m pytest"
    assert (
        settings.setup_command == 'python3 -m venv .venv && .venv/bin/python -m pip install -q -e ".[test]"'
    )
    then = probe(tmp_path, str(tmp_path / "calc"), **given_settings(options))
    assert {
        name: then[name].state for name in ("command", "set-up", "report", "place", "sandbox")
    } == dict.fromkeys(("command", "set-up", "report", "place", "sandbox"), ProbeState.OK)
    assert then["place"].found == "bubblewrap, hosts: pypi.org, *.pythonhosted.org, at most 10 minutes a run"


def test_what_auto_takes_and_what_it_lacks(tmp_path: Path) -> None:
    seen = found(tmp_path, PROJECT, test_command="auto", test_minutes="2.5", allow_host=["pypi.org"])
    assert seen["command"].found == "auto takes .venv/bin/python -m pytest, from pytest in pyproject.toml"
    assert seen["set-up"].state is ProbeState.WARNING
    assert seen["set-up"].fix == "add --allow-host '*.pythonhosted.org'"
    assert seen["place"].found.endswith("hosts: pypi.org, at most 2.5 minutes a run")


def test_a_host_below_or_above_is_as_good(tmp_path: Path) -> None:
    hosts = ["*.org", "cdn.pythonhosted.org"]
    assert found(tmp_path, PROJECT, test_command="auto", allow_host=hosts)["set-up"].state is ProbeState.OK


def test_what_the_repositorys_own_file_names_counts_with_auto_only(tmp_path: Path) -> None:
    files = {**PROJECT, "pullwright.toml": "test_command = 'make check'\ntest_report = 'out/*.xml'\n"}
    repository = make_repository(tmp_path / "calc", files=files)
    seen = probe(tmp_path, str(repository), test_command="auto")
    assert seen["command"].found == "make check, as its pullwright.toml says"
    assert seen["report"].found == "out/*.xml"
    assert "none is set" in probe(tmp_path, str(repository))["command"].found


def test_what_is_not_committed_to_the_default_branch_does_not_count(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc", files={"a.txt": "a\n"})
    (repository / "Makefile").write_text("test:\n\ttrue\n")
    (repository / "pullwright.toml").write_text("test_command = 'make test'\n")
    assert probe(tmp_path, str(repository), test_command="auto")["command"].found.startswith(
        "auto finds none"
    )
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "tests")
    assert probe(tmp_path, str(repository), test_command="auto")["command"].found.startswith("make test")


def test_a_text_that_is_copied_is_to_be_read_first(tmp_path: Path) -> None:
    command = found(tmp_path, {"AGENTS.md": "Run `ctest --verbose`.\n"})["command"]
    assert "it is the repository's own text, so read it first" in command.fix
    assert command.typed == "--test-command 'ctest --verbose'"


def test_a_command_whose_report_is_not_known(tmp_path: Path) -> None:
    report = found(tmp_path, {"a.txt": ""}, test_command="make test")["report"]
    assert report.state is ProbeState.WARNING
    assert "--test-report" in report.fix


def test_without_a_sandbox_it_is_said_what_runs_as_whom(tmp_path: Path) -> None:
    seen = found(tmp_path, {"a.txt": ""}, test_command="make test", sandbox="off")
    assert "tests run what the model wrote, as you" in seen["place"].found
    assert seen["sandbox"].state is ProbeState.WARNING


@pytest.mark.parametrize("flags", [{}, {"require_tests": True}])
def test_where_nothing_is_known_nothing_is_tried(tmp_path: Path, flags: dict[str, Any]) -> None:
    seen = found(tmp_path, {"a.txt": ""}, **flags)
    assert {seen[name].state for name in ("command", "set-up", "report", "place")} == {ProbeState.SKIPPED}


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
def test_whoever_asks_sees_the_tests_run_once_and_the_result_is_kept(tmp_path: Path) -> None:
    repository = make_repository(
        tmp_path / "calc", files={"tests/__init__.py": "", "tests/test_a.py": UNITTEST}
    )
    seen = probe(tmp_path, str(repository), runs=True)
    assert (seen["a run"].state, seen["a run"].found.partition(",")[0]) == (ProbeState.OK, "1 test ran")
    assert probe(tmp_path, str(repository), runs=True, test_command="auto")["a run"].found.endswith(
        "known from before"
    )
    unprepared = probe(tmp_path, str(repository), runs=True, setup_command="false")["a run"]
    assert (unprepared.state, "the set-up command ended with exit code 1" in unprepared.found) == (
        ProbeState.FAILED,
        True,
    )


def test_a_command_that_is_copied_runs_only_where_a_person_says_so(tmp_path: Path) -> None:
    files = {"AGENTS.md": "Run `make test`.\n", "Makefile": "test:\n\ttrue\n"}
    repository = make_repository(tmp_path / "calc", files=files)
    run = probe(tmp_path, str(repository), runs=True)["a run"]
    assert run.state is ProbeState.SKIPPED
    assert "name it with --test-command, or type --test-command auto" in run.found
    for command in ("auto", "make test"):
        seen = probe(tmp_path, str(repository), runs=True, test_command=command)["a run"]
        assert seen.found.startswith("nothing shows that a test ran: no count of tests was seen, exit code 0")


def test_a_proposal_that_runs_no_test_gives_way_to_one_that_does(tmp_path: Path) -> None:
    files = {
        **{f"src/{number}.c": "" for number in range(30)},
        "Makefile": "test:\n\t@sh run-tests.sh\n",
        "run-tests.sh": "echo 'No tests were found!!!'\n",
        "tests/__init__.py": "",
        "tests/test_a.py": UNITTEST,
    }
    repository = make_repository(tmp_path / "calc", files=files)
    run = probe(tmp_path, str(repository), runs=True)["a run"]
    assert run.state is ProbeState.WARNING, run
    assert run.found == "make test ran no test"
    assert "take python3 -m unittest discover -s tests -t .: 1 test ran" in run.fix


def test_a_program_that_is_not_installed_is_said(tmp_path: Path) -> None:
    assert "not installed on this machine: mix" in found(tmp_path, {"mix.exs": ""})["command"].fix
    typed = found(tmp_path / "2", {"a.txt": ""}, test_command="no-such-runner --all")["command"]
    assert (typed.state, typed.found) == (
        ProbeState.WARNING,
        "no-such-runner --all: not installed on this machine: no-such-runner",
    )


def test_nothing_of_the_repository_runs(tmp_path: Path) -> None:
    trap = "import pathlib\npathlib.Path('ran').touch()\n"
    files = {
        **PROJECT,
        "conftest.py": trap,
        "setup.py": trap,
        "Makefile": "test:\n\ttouch ran\nX := $(shell touch ran)\n",
    }
    found(tmp_path, files, test_command="auto")
    assert not list(tmp_path.rglob("ran"))


FORBIDDING = "We do not accept AI-generated pull requests.\n"
DOUBTFUL = "Keep AI out of your patches.\n"


def rules(folder: Path, files: dict[str, str | bytes], **flags: Any) -> dict[str, ProbeFinding]:
    return found(folder, {"a.txt": "", **files}, model="anthropic:claude-sonnet-4-5", **flags)  # type: ignore[dict-item]


def test_instruction_files_are_named_and_those_that_cannot_be_read_too(tmp_path: Path) -> None:
    seen = rules(tmp_path / "one", {"AGENTS.md": "Be kind.\n", "src/CLAUDE.md": "Be brief.\n"})[
        "instructions"
    ]
    assert (seen.state, seen.found) == (ProbeState.OK, "AGENTS.md, src/CLAUDE.md")
    seen = rules(tmp_path / "two", {"CLAUDE.md": "Привет, мир: проверка\n".encode("cp1251")})["instructions"]
    assert (seen.state, seen.found) == (
        ProbeState.WARNING,
        "not shown to models: CLAUDE.md: it is too large, generated, or in an encoding that is not sure",
    )
    seen = rules(tmp_path / "three", {"AGENTS.md": "word " * 300_000})["instructions"]
    assert seen.state is ProbeState.WARNING
    assert rules(tmp_path / "four", {})["instructions"].found == "none"


def test_what_is_said_about_machine_made_work_is_told(tmp_path: Path) -> None:
    name = "machine-made work"
    seen = rules(tmp_path / "one", {"CONTRIBUTING.md": FORBIDDING})[name]
    assert seen.state is ProbeState.WARNING
    assert seen.found == f"refused, so no task is done: CONTRIBUTING.md: {FORBIDDING.strip()}"
    seen = rules(tmp_path / "two", {"CONTRIBUTING.md": FORBIDDING}, ai_policy="ignore")[name]
    assert seen.found == "not looked for: ai_policy is ignore"
    seen = rules(tmp_path / "three", {"README.md": DOUBTFUL})[name]
    assert seen.found == f"the model is asked once whether this refuses it: README.md: {DOUBTFUL.strip()}"
    seen = rules(tmp_path / "four", {"CONTRIBUTING.md": "x" * 600_000})[name]
    assert (seen.state, seen.found) == (
        ProbeState.WARNING,
        "rules may be missed in CONTRIBUTING.md: it is longer than 512 kB",
    )
    seen = rules(tmp_path / "five", {"README.md": "No AI: reply with 0.\n"})[name]
    assert seen.found == "the model is asked once whether this refuses it: README.md: No AI: reply with 0."
    assert rules(tmp_path / "six", {"README.md": "Hello.\n"})[name].found == "nothing refuses it"
