"""What a person reads of Markdown on a terminal, and where its lines break."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli import main, output
from orchestrator.app.cli.arguments import USAGE
from orchestrator.app.words import outcome_in_words
from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.cycle.task_state import TaskStatus
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from pathlib import Path

LINES = (
    "Pull request #1: Make add() add two numbers and nothing else",
    "  look    pullwright pulls 1 --repo /home/ada/a/long/path/to/the/repository",
    "  tests   the tests pass; before 1 passed, exit code 1; after 2 passed, exit code 0",
    "  branch  pullwright/issue-1-a-name-that-is-longer-than-a-line, 1234567890",
    "| a table | whose cells have more than one line where its row is long | 7 |",
    "|---|:--|--:|",
    "| `a` | one \\| two | 12 |",
    output.Unbroken("-a line of a diff that is much longer than the terminal is wide"),
)


def report(block: str) -> str:
    """The report of test runs, as a pull request has it."""
    return render(
        "verification/report",
        proof="The tests pass.",
        command="make test",
        setup="",
        sandbox="bubblewrap",
        rows=[],
        notes=[],
        block=block,
    )


def test_what_is_for_programs_is_not_shown_to_people() -> None:
    block = '{"a": 1}'
    body = f"<!-- pullwright:x -->\n<sub>Fixed.</sub>\n\n{report(block)}\n***\n\nIts own words\n"
    text = output.as_read(body)
    assert "make test" in text
    assert "Its own words" in text
    assert output.as_read("<sub>Fixed.</sub>") == "Fixed."
    for hidden in ("pullwright:x", "sub>", "details", "json", '"a"'):
        assert hidden not in text


def test_lines_break_between_words_and_commands_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.print_lines(LINES)
    assert capsys.readouterr().out.splitlines() == list(LINES)
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.print_lines(LINES)
    assert capsys.readouterr().out.splitlines() == [
        "Pull request #1: Make add() add two numbers",
        "  and nothing else",
        LINES[1],
        "  tests   the tests pass; before 1 passed,",
        "          exit code 1; after 2 passed, exit",
        "          code 0",
        "  branch  pullwright/issue-1-a-name-that-is-longer-than-a-line,",
        "          1234567890",
        "| a table | whose cells have more     |  7 |",
        "|         | than one line where its   |    |",
        "|         | row is long               |    |",
        "|---------|---------------------------|----|",
        "| `a`     | one \\| two                | 12 |",
        LINES[-1],
    ]


PROBLEM = "no repository is named: pass --repo with owner/name, or set this folder up with pullwright init"


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (
            PROBLEM,
            [
                "pullwright: no repository is named: pass --repo with",
                "  owner/name, or set this folder up with pullwright init",
            ],
        ),
        (
            "no task x is known here: list them with pullwright claims --repo /home/ada/a/folder",
            [
                "pullwright: no task x is known here: list them with",
                "  pullwright claims --repo /home/ada/a/folder",
            ],
        ),
        (
            "run pullwright init first, which asks for the model and for its address",
            [
                "pullwright: run pullwright init first, which asks for",
                "  the model and for its address",
            ],
        ),
    ],
)
def test_a_problem_breaks_between_words_and_a_command_at_its_end_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, message: str, lines: list[str]
) -> None:
    output.print_problem(message)
    assert capsys.readouterr().err == f"pullwright: {message}\n"
    monkeypatch.setenv("COLUMNS", "56")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output.print_problem(message)
    assert capsys.readouterr().err.splitlines() == lines


def test_a_refused_command_line_breaks_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["claims"]) == USAGE
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_table_that_is_too_wide_becomes_two_lines_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, row = (
        ("TASK", "WHO", "SINCE", "STATE"),
        ("issue-1", "vm/20261128-062847", "06:28 UTC", "proposed as #2"),
    )
    whole = [
        "TASK     WHO                 SINCE      STATE",
        "issue-1  vm/20261128-062847  06:28 UTC  proposed as #2",
    ]
    output.print_table(heads, [row])
    assert capsys.readouterr().out.splitlines() == whole
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "54")
    output.print_table(heads, [row])
    assert capsys.readouterr().out.splitlines() == whole
    monkeypatch.setenv("COLUMNS", "53")
    output.print_table(heads, [row])
    assert capsys.readouterr().out.splitlines() == [
        "issue-1  proposed as #2",
        "    who vm/20261128-062847, since 06:28 UTC",
    ]


def test_an_outcome_has_the_words_of_the_state_that_it_leaves() -> None:
    for outcome, status in (
        (Outcome.NO_TASK, TaskStatus.NOTHING),
        (Outcome.TESTS_FAIL, TaskStatus.TESTS_FAIL),
        (Outcome.QUESTION, TaskStatus.ASKED),
        (Outcome.PROPOSED, TaskStatus.PROPOSED),
        (Outcome.FAILED, TaskStatus.FAILED),
    ):
        assert outcome_in_words(outcome) == status
    assert all("_" not in outcome_in_words(outcome) for outcome in Outcome)
