"""What is typed: defaults, one clear line for each mistake, a start that loads nothing, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.cli.arguments import (
    DONE,
    FAILED,
    LIMIT,
    NOTHING,
    QUESTION,
    UsageError,
    given_settings,
    parse,
)
from orchestrator.app.cli.run import RunTotals
from orchestrator.app.options import LIMITS, RENAMED, all_options, setting_keys
from orchestrator.app.plugins import absence_of
from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table

NO_TASK = ("", Outcome.NO_TASK)


@table(
    ("cycles", "code"),
    [
        ([NO_TASK], NOTHING),
        ([("a", Outcome.PROPOSED), ("b", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.PLANNED), NO_TASK], DONE),
        ([("a", Outcome.NO_TASK), NO_TASK], NOTHING),
        ([("a", Outcome.PROPOSED), ("b", Outcome.FAILED), ("c", Outcome.PROPOSED), NO_TASK], FAILED),
        ([("a", Outcome.PAUSED), ("a", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.LIMIT), ("a", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.LIMIT), ("b", Outcome.PROPOSED), NO_TASK], LIMIT),
        ([("", Outcome.PAUSED), ("a", Outcome.PROPOSED), NO_TASK], DONE),
        ([("a", Outcome.PROPOSED), ("b", Outcome.QUESTION)], QUESTION),
        ([("a", Outcome.QUESTION), ("b", Outcome.FAILED), NO_TASK], QUESTION),
        ([("a", Outcome.PROPOSED), ("b", Outcome.INTERRUPTED)], 130),
        ([("a", Outcome.FAILED), ("b", Outcome.PROPOSED)], FAILED),
        ([("a", Outcome.PROPOSED), ("", Outcome.FAILED)], FAILED),
    ],
)
def test_the_status_speaks_for_the_whole_run(cycles: list[tuple[str, Outcome]], code: int) -> None:
    whole = RunTotals()
    for text, outcome in cycles:
        whole.add(CycleResult(None, outcome, from_text(text) if text else None))
    assert whole.code == code


def test_an_error_has_its_own_status() -> None:
    whole = RunTotals()
    whole.add(CycleResult(None, Outcome.FAILED, cause=ConfigurationError("no")))
    assert whole.code == 2


ROOT = Path(__file__).resolve().parents[4]
LONG_KEY = "sk-" + "a1B2c3D4" * 6


def test_a_run_has_defaults_and_no_settings() -> None:
    options = parse(["run", "--repo", "owner/name"])
    assert (options.command, options.repo, options.issue, options.task) == ("run", "owner/name", None, None)
    assert (options.demo, options.continuous, options.dry_run, options.json, options.plain) == (False,) * 5
    assert given_settings(options) == {}


def test_only_flags_that_were_given_are_settings() -> None:
    argv = ["run", "--repo", "x", "--no-draft", "--stream", "--max-rounds", "3", "--allow-dangerous-tools"]
    argv += ["--api-url=http://localhost:1", "--temperature", "-1"]
    assert given_settings(parse(argv)) == {
        "draft": False,
        "stream": True,
        "max_rounds": "3",
        "permission": "dangerous",
        "api_url": "http://localhost:1",
        "temperature": "-1",
    }


def test_a_flag_that_was_renamed_is_understood_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert given_settings(parse(["run", "--repo", "x", "--strict-tests"])) == {"strict_tests": True}
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    shown = capsys.readouterr().out
    assert "--require-tests" in shown
    assert "--strict-tests" not in shown


def test_every_option_has_a_flag() -> None:
    assert {*all_options(), *RENAMED, LIMITS} == setting_keys()


@table(
    "argv",
    [
        ["run", "--demo"],
        ["run", "--repo", "x", "--issue", "12"],
        ["run", "--repo", "x", "--task", "Fix it"],
        ["run", "--repo", "x", "--continuous", "--max-cycles", "3"],
        ["run", "--model", "replay:last"],
        ["show"],
        ["show", "last", "--json"],
        ["show", "--list"],
        ["show", "last", "--html", "run.html"],
        ["show", "-f", "--json"],
        ["logs"],
        ["logs", "2026", "-f", "--verbose"],
        ["dashboard", "--port", "0", "--model", "x"],
        ["pulls", "--repo", "x", "--json"],
        ["close", "3", "--repo", "x"],
        ["claims", "--repo", "x", "release", "issue-3"],
        ["config", "--json"],
    ],
)
def test_what_may_be_typed(argv: list[str]) -> None:
    if argv and absence_of(argv[0]):
        return
    assert parse(argv).command == argv[0]


def test_an_action_takes_the_repository_before_and_after() -> None:
    assert parse(["claims", "--repo", "x", "release", "issue-3"]).repo == "x"
    assert parse(["claims", "release", "issue-3", "--repo", "x"]).repo == "x"


@table(
    ("argv", "message"),
    [
        (["rum"], "there is no command 'rum'; did you mean run?"),
        (["zzz"], "there is no command 'zzz'"),
        (["run", "--repo", ""], "--repo: must not be empty"),
        (["run", "--repo"], "--repo: expected one argument"),
        (["run", "--demo", "--max-round", "3"], "there is no flag --max-round; did you mean --max-rounds?"),
        (["run", "--demo", "--max-token=3"], "there is no flag --max-token; did you mean --max-tokens?"),
        (["run", "--demo", "--zzz"], "there is no flag --zzz"),
        (["run", "--demo", "now"], "'now' is an unexpected argument; put text with spaces in quotes"),
        (["run", "--repo", "x", "--issue", "x"], "--issue: 'x' is not a number from 1"),
        (["run", "--repo", "x", "--issue", "0"], "--issue: '0' is not a number from 1"),
        (["run", "--repo", "x", "--issue", "-3"], "--issue: '-3' is not a number from 1"),
        (["run", "--repo", "x", "--task", " "], "--task: must not be empty"),
        (["run", "--repo", "x", "--issue", "1", "--task", "y"], "--task: not allowed with argument --issue"),
        (["run", "--demo", "--repo", "x"], "--demo brings its own repository and task: leave out --repo"),
        (["run", "--demo", "--issue", "1"], "--demo brings its own repository and task: leave out --issue"),
        (["run", "--demo", "--task", "x"], "--demo brings its own repository and task: leave out --task"),
        (["run", "--demo", "--answer", "x"], "--demo brings its own repository and task: leave out --answer"),
        (["run", "--repo", "x", "--answer", " "], "--answer: must not be empty"),
        (
            ["run", "--repo", "x", "--answer", "2", "--continuous"],
            "--answer is for one cycle that goes on with its work: leave out --continuous",
        ),
        (
            ["run", "--repo", "x", "--answer", "2", "--dry-run"],
            "--answer is for one cycle that goes on with its work: leave out --dry-run",
        ),
        (["run", "--demo", "--api-key", "x"], "there is no flag --api-key; keys come from the environment"),
        (
            ["run", "--demo", "--github-token=x"],
            "there is no flag --github-token; keys come from the environment",
        ),
        (
            ["run", "--repo", "x", "--model", f"openai:{LONG_KEY}"],
            "--model holds what looks like a key or password",
        ),
        (
            ["run", "--repo", "https://me:secret99@example.com/x"],
            "--repo holds what looks like a key or password",
        ),
        (
            ["pulls", "--repo", "https://me:secret99@example.com/x"],
            "--repo holds what looks like a key or password",
        ),
        (["show", "--lst"], "there is no flag --lst; did you mean --list?"),
        (["show", "--list", "--html", "x"], "--list and --html are two ways to show a run: choose one"),
        (["show", "--html", "x", "--json"], "--html and --json are two ways to show a run: choose one"),
        (["dashboard", "--port", "65536"], "--port: '65536' is not a port from 0 to 65535"),
        (["dashboard", "--port", "-1"], "--port: '-1' is not a port from 0 to 65535"),
        (["close"], "name N: the pull request's number"),
        (["completion"], "name SHELL: bash, zsh, fish"),
        (["help", "shwo"], "there is no command 'shwo'; did you mean show?"),
        (["close", "x", "--repo", "y"], "N: 'x' is not a number from 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(argv: list[str], message: str) -> None:
    if argv and absence_of(argv[0]):  # the flags of a plug-in that is not there
        return
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not Redactor().holds_secret(str(caught.value))


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "run_local_agent.py"), *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
    )


def test_help_is_printed_and_names_the_exit_codes() -> None:
    done = command("--help")
    assert done.returncode == 0
    assert "exit status:" in done.stdout
    assert "  130  interrupted" in done.stdout
    for name in ("run", "show", "pulls", "config"):
        assert f"\n  {name} " in done.stdout
        assert command(name, "--help").returncode == 0


def test_a_mistake_is_one_line_and_status_two() -> None:
    done = command("run", "--issue", "x", "--demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pullwright: --issue: 'x' is not a number from 1\n"


def test_the_version() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, "pullwright 0.1.0\n")


MODULES = """
import sys
before = set(sys.modules)
from orchestrator.__main__ import start
sys.argv = ["pullwright", "--help"]
status = start()
print(*sorted(set(sys.modules) - before), file=sys.stderr)
sys.exit(status)
"""


TAKE_LONG_TO_LOAD = frozenset(
    {
        "asyncio",
        "dataclasses",
        "difflib",
        "inspect",
        "json",
        "pathlib",
        "subprocess",
        "tempfile",
        "urllib.parse",
    }
)
"""Modules of the standard library without which `--help` takes four times as long as Python alone, not six times."""


def test_help_loads_little_of_the_standard_library_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    loaded = set(done.stderr.split())
    assert loaded.isdisjoint({*TAKE_LONG_TO_LOAD, "orchestrator.app.options"})
    roots = {name.partition(".")[0] for name in loaded}
    assert "argparse" in roots
    assert roots - set(sys.stdlib_module_names) == {"orchestrator"}


def test_python_m_orchestrator_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "rum"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert done.stderr == "pullwright: there is no command 'rum'; did you mean run?\n"
