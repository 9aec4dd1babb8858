"""A run as a file, and a run that is printed while it goes on."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from lxml import html

from orchestrator.app.cli import main
from orchestrator.bot.journal.folders import Home
from orchestrator.core.cycle_events import CycleEnded, TaskTaken
from orchestrator.core.events import Warned
from tests.doubles import forked
from tests.doubles.journals import Journals, proposed, runs_of_tests, started, worked_round

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.core.events import Event

NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)
TASK = TaskTaken("issue-12", "Mend the sum", "It subtracts.", "issue", 12)
WHOLE: list[Event] = [
    *started("r", TASK, "o/r"),
    *worked_round(1),
    *runs_of_tests(),
    *proposed(7, "Mend the sum", "o/r"),
]


@pytest.fixture
def made(own_state: Path) -> Iterator[Journals]:
    journals = Journals(Home(own_state))
    yield journals
    journals.end()


def test_a_run_becomes_one_file_without_anything_to_load(
    made: Journals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made.add(NOW, WHOLE).name
    file = tmp_path / "run.html"
    assert main(["show", run, "--html", str(file)]) == 0
    assert capsys.readouterr().out == f"run {run} is written to {file}\n"
    page = html.document_fromstring(file.read_text(encoding="utf-8"))
    assert page.xpath("//h1")[0].text_content().startswith("Mend the sum")
    assert not page.xpath("//script | //@src | //link[@rel='stylesheet']")
    assert page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0].startswith(
        "default-src 'none';"
    )
    assert main(["show", "--html", "-"]) == 0
    assert capsys.readouterr().out == file.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_said_in_one_line(
    made: Journals, capsys: pytest.CaptureFixture[str]
) -> None:
    made.add(NOW, WHOLE)
    assert main(["show", "--html", "/nowhere/run.html"]) == 2
    assert (
        capsys.readouterr().err
        == "pullwright: --html /nowhere/run.html cannot be written: No such file or directory\n"
    )


def test_a_secret_of_the_environment_is_not_in_the_file(
    made: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-test-" + "4f9a1c77d0e24b5f8a6e3d2c"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    made.add(NOW, [*WHOLE[:-1], Warned(f"the key is {key[:12]}\x1b[0m{key[12:]}"), WHOLE[-1]])
    file = tmp_path / "run.html"
    assert main(["show", "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "the key is [redacted]" in text
    assert key not in text


def test_logs_is_the_story_of_the_newest_run(made: Journals, capsys: pytest.CaptureFixture[str]) -> None:
    made.add(NOW.replace(hour=1), WHOLE)
    newest = made.add(
        NOW, [*started("r", TASK, "o/r"), Warned("look here"), CycleEnded({"outcome": "failed"})]
    )
    assert main(["logs"]) == 0
    said = capsys.readouterr().out
    assert "! look here" in said
    assert said.endswith(f"{newest}\n")
    assert main(["show", newest.name]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("command", [["logs", "-f"], ["show", "--follow", "--json"]])
def test_a_run_is_followed_to_its_end(made: Journals, own_state: Path, command: list[str]) -> None:
    writer = made.begin(NOW, [*started("r", TASK, "o/r"), Warned("before")])
    environ = {**os.environ, "PULLWRIGHT_HOME": str(own_state)}
    with forked.piped(*command, environ=environ) as (process, out, _):
        lines = []
        for line in out:
            lines.append(line)
            if "before" in line:
                writer(Warned("after"))
            if "after" in line:
                writer(CycleEnded({"outcome": "failed", "error": "it broke"}))
        assert process.wait() == 0
    assert "it broke" in "".join(lines[-4:])
    if "--json" in command:
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))


def test_a_run_whose_process_died_is_followed_no_further(
    made: Journals, capsys: pytest.CaptureFixture[str]
) -> None:
    made.add(NOW, [*started("r", TASK, "o/r"), Warned("last words")])
    assert main(["logs", "-f"]) == 0
    said = capsys.readouterr().out
    assert "last words" in said
    assert "the run's process is gone, and its journal has no end" in said


def test_the_page_of_a_run_is_bounded(made: Journals, tmp_path: Path) -> None:
    many = [Warned(f"number {count}") for count in range(5_000)]
    made.add(NOW, [*started("r", TASK, "o/r"), *many, CycleEnded({"outcome": "failed"})])
    file = tmp_path / "run.html"
    assert main(["show", "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert 2_900 < text.count(">number ") < 3_000
    assert "steps left out here" in text
    assert "number 4999<" in text
