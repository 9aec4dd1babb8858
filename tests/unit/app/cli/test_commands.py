"""`show`, `pulls`, `config` and the exit statuses, on real files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.app.cli import arguments
from orchestrator.app.cli.config import key_states
from orchestrator.app.cli.show import print_run
from orchestrator.app.cli.tasks import write_pulls, write_pulls_json
from orchestrator.bot.forge.base import Proposal
from orchestrator.bot.forge.local import LocalForge, root_of
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.reader import read_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, TaskTaken
from orchestrator.core.errors import ConfigurationError, JournalError, ProviderError
from orchestrator.core.events import ReplyReceived, ReplyRejected, Warned
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles import forked
from tests.doubles.folder_git import FolderGit
from tests.tables import table
from tests.unit.app.cli.examples import EVENTS

RUN = "20261121-033112-ab12cd"
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    clock = ManualClock(datetime(2026, 11, 21, 3, 31, 12, tzinfo=UTC))
    with JournalWriter(create_run_folder(home, RUN), Redactor(), clock) as writer:
        for event in EVENTS:
            writer(event)
            clock.advance(2)
    return home


def command(
    home: Home, *argv: str, cwd: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PULLWRIGHT_")}
    return forked.run(
        *argv,
        environ={**kept, "PULLWRIGHT_HOME": str(home.root), **environ},
        folder=cwd or home.root.parent,
    )


def told(home: Home) -> str:
    file = io.StringIO()
    print_run(
        read_run(home.runs / RUN), Console(file=file, width=80, highlight=False, markup=False, emoji=False)
    )
    return file.getvalue()


def test_a_run_is_told_in_full(home: Home) -> None:
    text = told(home)
    for part in (
        "▸ task (#12): Fix add()\n    It is [bold]wrong[/bold].\n    \n    Very.\n",
        "▸ plan (the reply was repaired):\n    Look, then write.\n",
        "✓ read_file calc.py\n    line\n",
        "    … 28 more lines\n",
        "✗ run_shell_command make test: exit code 2 boom [red]\n    exit code 2\n    boom [red]\n",
        "! work saved as a patch: /somewhere/work.patch\n",
        "✓ pull request #3 opened: Fix add()  https://example.com/3\n",
        "the model's list, 1 of 3 done:\n    [x] Read calc.py\n    [~] Mend add()\n    [ ] Write a test\n",
        f"1 reply, 1,234 tokens, $0.0100, 2:14\n{home.runs / RUN}\n",
    ):
        assert part in text
    assert "\x1b" not in text


STATE = """\
hypothesis: Look, then write.
actions: 1
  2026-11-21 03:31:46 UTC  reply via model
tool events: 3
  2026-11-21 03:31:58 UTC  ok read_file calc.py
  2026-11-21 03:32:04 UTC  error run_shell_command make test
  2026-11-21 03:32:08 UTC  denied rm
denials: 1
summary: # Task Count the x
context: 2 chat turns of 7 messages, 12,300 tokens, summarised
list: 3 items
  [x] Read calc.py
  [~] Mend add()
  [ ] Write a test
"""


def test_the_state_of_a_run(home: Home) -> None:
    shown = command(home, "show", "--state")
    assert (shown.returncode, shown.stdout) == (0, STATE)
    state = json.loads(command(home, "show", RUN, "--state", "--json").stdout)
    assert state["denials"] == 1
    assert state["tool_events"][0]["arguments"] == {"path": "calc\x1b[2J.py"}
    assert [item["status"] for item in state["todos"]] == ["completed", "in_progress", "pending"]


def test_a_reply_that_could_not_be_used_is_told_in_a_line_and_whole_on_request(home: Home) -> None:
    secret = "ghp_" + "a1B2" * 9
    said = f"I would rather\n\x1b]0;title\x07 {secret} {'talk ' * 60}\nthan plan."
    folder = create_run_folder(home, "20261121-033113-ab12cd")
    with JournalWriter(folder, Redactor(), ManualClock()) as writer:
        writer(CycleStarted(folder.name, "o/r", "m:1", "json-plan"))
        writer(ReplyReceived(Message.assistant(said), FinishReason.STOP, Usage(1, 1), 0.0, "m:1"))
        writer(ReplyRejected(("it is no JSON",), 1))
        writer(CycleEnded({"outcome": "failed"}))
    short, whole = (command(home, "show", *words).stdout for words in ((), ("--verbose",)))
    (line,) = [line for line in short.splitlines() if "cannot be used" in line]
    assert line.startswith(
        "! reply 1 cannot be used: it is no JSON; it was: I would rather [redacted] talk talk"
    )
    assert line.endswith("…")
    assert "than plan." not in short
    assert "\n    than plan.\n" in whole
    assert whole.count("talk ") >= 60
    for text in (short, whole):
        assert "\x1b" not in text
        assert secret not in text


def test_a_torn_journal_and_newer_records_are_mentioned(home: Home) -> None:
    path = home.runs / RUN / "journal.jsonl"
    seq = len(path.read_bytes().splitlines())
    with path.open("a") as file:
        file.write(f'{{"seq":{seq},"at":"2026-11-21T03:31:12+00:00","type":"Invented"}}\n{{"seq":')
    text = told(home)
    assert "1 record of a newer version not shown" in text
    assert "the journal ends in the middle of a record" in text


def test_show_prints_the_newest_run(home: Home) -> None:
    done = command(home, "show")
    assert (done.returncode, done.stderr) == (0, "")
    assert "pull request #3" in done.stdout
    assert "\x1b" not in done.stdout


def test_show_as_json_prints_each_record(home: Home) -> None:
    done = command(home, "show", RUN[:10], "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records[0]["type"] == "CycleStarted"
    assert records[-1]["type"] == "CycleEnded"
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))


def test_show_lists_runs(home: Home) -> None:
    done = command(home, "show", "--list")
    assert done.stdout == f"{RUN}  2026-11-21 03:31 UTC  proposed, $0.0100\n    owner/name\n    Fix add()\n"
    there = command(home, "show", "--list", TZ="Asia/Kolkata").stdout
    assert there.startswith(f"{RUN}  2026-11-21 09:01 IST  proposed")
    (record,) = [json.loads(line) for line in command(home, "show", "--list", "--json").stdout.splitlines()]
    assert (record["run"], record["outcome"], record["usd"]) == (RUN, "proposed", 0.01)


def test_a_run_that_is_not_there_is_answered(home: Home) -> None:
    done = command(home, "show", "2025")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"pullwright: there is no run '2025'; the nearest is {RUN}\n"


def test_a_reader_that_goes_away_is_no_error(home: Home) -> None:
    with JournalWriter(
        create_run_folder(home, "20261122-000000-000000"), Redactor(), ManualClock()
    ) as writer:
        for _ in range(3000):
            writer(Warned("x" * 100))
    line = f'"{sys.executable}" -m orchestrator show --json | head -1'
    environ = {**os.environ, "PULLWRIGHT_HOME": str(home.root), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60, env=environ
    )
    assert json.loads(done.stdout)["type"] == "Warned"
    assert done.stderr == ""


def test_an_output_that_knows_ascii_only_is_served(home: Home) -> None:
    with JournalWriter(
        create_run_folder(home, "20261122-000000-000000"), Redactor(), ManualClock()
    ) as writer:
        writer(TaskTaken("k", "größer \udcff", "", "text"))
    environ = {**os.environ, "PULLWRIGHT_HOME": str(home.root), "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "orchestrator", "show"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT, env=environ)
    assert "gr\\xf6\\xdfer" in done.stdout


def test_config_names_values_origins_and_keys(home: Home) -> None:
    folder = home.root.parent
    (folder / "pullwright.toml").write_text("deny_command = ['rm *', 'git push *']\n")
    key = "k" * 30 + "wxyz"
    environ = {
        "OPENAI_API_KEY": key,
        "GH_TOKEN": "short",
        "PULLWRIGHT_LABEL": "bot",
        "PULLWRIGHT_STRICT_TESTS": "1",
    }
    done = command(home, "config", cwd=folder, **environ)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["label", "bot", "environment:", "PULLWRIGHT_LABEL"] in rows
    assert ["max_rounds", "20", "default"] in rows
    assert ["OPENAI_API_KEY", "set,", "ends", "in", "…wxyz"] in rows
    assert ["GH_TOKEN", "set"] in rows
    place = ["folder's", "file:", str(folder / "pullwright.toml")]
    assert ["deny_command", "rm", "*,", "git", "push", "*", *place] in rows
    assert "kkkk" not in done.stdout
    assert ["require_tests", "true", "environment:", "PULLWRIGHT_STRICT_TESTS"] in rows
    notice = "PULLWRIGHT_STRICT_TESTS is called PULLWRIGHT_REQUIRE_TESTS now"
    assert f"! {notice}" in done.stdout.splitlines()
    data = json.loads(command(home, "config", "--json", cwd=folder, **environ).stdout)
    assert data["settings"]["label"] == {"value": "bot", "origin": "environment", "place": "PULLWRIGHT_LABEL"}
    assert data["keys"]["ANTHROPIC_API_KEY"] == "not set"
    assert data["home"] == str(home.root)
    assert data["notices"] == [notice]


def test_a_key_file_is_named_not_shown() -> None:
    assert (
        key_states({"PULLWRIGHT_GITHUB_APP_KEY_FILE": "/x.pem"})["PULLWRIGHT_GITHUB_APP_KEY_FILE"] == "/x.pem"
    )


def test_a_wrong_configuration_is_status_two(home: Home) -> None:
    done = command(home, "config", PULLWRIGHT_MAX_ROUNDS="0")
    assert done.returncode == 2
    assert done.stderr == "pullwright: PULLWRIGHT_MAX_ROUNDS = 0: must be a whole number from 1 to 10,000\n"


def forge(folder: Path) -> LocalForge:
    folder.mkdir(exist_ok=True)
    git = FolderGit({"pullwright/x": "0123456789abcdef0123456789abcdef01234567"})
    return LocalForge(root_of(folder.parent / "home", folder), folder, git, clock=ManualClock())


def test_pull_requests_and_questions_are_listed(tmp_path: Path) -> None:
    full, empty = forge(tmp_path / "full"), forge(tmp_path / "empty")
    full.ensure_pull_request(Proposal("pullwright/x", "main", "Fix \x1b[31madd()", "body", draft=True))
    full.ensure_question(None, "key", "Which\none?")
    with redirect_stdout(io.StringIO()) as out:
        write_pulls([empty, full])
    lines = out.getvalue().splitlines()
    assert lines[0] == str(tmp_path / "full")
    assert lines[1] == "  #1  Fix add()  (open, draft)"
    assert lines[2] == "      pullwright/x -> main, 0123456789"
    assert lines[3] == f"      pullwright pulls 1 --repo {tmp_path / 'full'}"
    assert lines[4] == f"      pullwright accept 1 --repo {tmp_path / 'full'}"
    assert lines[5] == "  ?1  Which one?"
    with redirect_stdout(io.StringIO()) as out:
        write_pulls_json([empty, full])
    pull, question = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (pull["kind"], pull["number"], pull["state"]) == ("pull_request", 1, "open")
    assert (question["kind"], question["body"]) == ("question", "Which\none?")


def test_a_repository_that_is_gone_does_not_hide_the_others(tmp_path: Path) -> None:
    gone, there = forge(tmp_path / "gone"), forge(tmp_path / "there")
    there.ensure_pull_request(Proposal("pullwright/x", "main", "Fix", "body", draft=False))
    (tmp_path / "gone").rmdir()
    with redirect_stdout(io.StringIO()) as out:
        write_pulls([gone, there])
    assert f"no such repository: {tmp_path / 'gone'}\n\n{tmp_path / 'there'}\n  #1  Fix" in out.getvalue()
    with redirect_stdout(io.StringIO()) as out:
        write_pulls_json([gone, there])
    assert [json.loads(line)["kind"] for line in out.getvalue().splitlines()] == ["error", "pull_request"]


def test_nothing_to_list(tmp_path: Path) -> None:
    with redirect_stdout(io.StringIO()) as out:
        write_pulls([forge(tmp_path / "empty")])
    assert (
        out.getvalue()
        == "no local pull requests and no questions; those on a forge are there, and in pullwright digest\n"
    )


@table(
    ("outcome", "status"),
    [
        ("proposed", 0),
        ("planned", 0),
        ("finished", 0),
        ("failed", 1),
        ("no_task", 3),
        ("question", 4),
        ("limit", 5),
        ("interrupted", 130),
        ("of another kind", 1),
    ],
)
def test_the_status_of_an_outcome(outcome: str, status: int) -> None:
    assert arguments.for_outcome(outcome) == status
    assert status in arguments.MEANINGS


@table(
    ("error", "status"),
    [
        (ConfigurationError("x"), 2),
        (ProviderError("x"), 1),
        (JournalError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_status_of_an_error(error: BaseException, status: int) -> None:
    assert arguments.for_error(error) == status


def test_every_outcome_of_a_cycle_has_a_status() -> None:
    from orchestrator.bot.cycle.parts import Outcome

    assert {outcome for outcome in Outcome if arguments.for_outcome(outcome) == arguments.FAILED} == {
        Outcome.CONFLICT,
        Outcome.FAILED,
        Outcome.PAUSED,
    }
