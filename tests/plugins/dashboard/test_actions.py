"""The actions of the page: the command that each one is, and what is counted on the fleet's page."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from contextlib import nullcontext
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.reader import LOCK_FILE
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError, ForgeError, JournalError
from orchestrator.plugins.dashboard.actions import (
    FLEET_VERBS,
    Answering,
    FleetView,
    TaskActions,
    _as_flags,
    _fleet_action,
    _fleet_subject,
    _last_line,
    _noted,
)
from orchestrator.plugins.dashboard.server import Dashboard
from orchestrator.plugins.fleet.turns import DailyCost
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def actions(tmp_path: Path) -> TaskActions:
    return TaskActions(Home(tmp_path), {"max_usd": 2.5, "draft": True, "memory": False, "allow": ["a *", "b"]}, {}, tmp_path, ManualClock())  # fmt: skip


FLAGS = ["--max-usd=2.5", "--draft", "--no-memory", "--allow=a *", "--allow=b"]


def test_an_answer_is_the_command_that_a_person_types(actions: TaskActions) -> None:
    assert _as_flags(actions.flags) == FLAGS
    typed = ["pullwright", "run", "--repo=octo/calc", "--task=issue-7"]
    assert actions.answer_command("octo/calc", "issue-7", "Two.") == [*typed, "--answer=Two.", *FLAGS]
    assert actions.answer_command("octo/calc", "issue-7") == [*typed, *FLAGS]


FIELDS = {"repository": "octo/calc", "task": "issue-7", "number": "9", "worker": "w-1", "reason": "the night"}


@table(
    ("verb", "what", "command"),
    [
        ("retry", "The next cycle may take issue-7 again.", "pullwright retry issue-7 --repo octo/calc"),
        ("close", "This closes pull request #9 without merging it.", "pullwright close 9 --repo octo/calc"),
        ("release", "This takes issue-7 away", "pullwright claims release issue-7 --repo octo/calc"),
        ("answer", "begins a run that continues issue-7", "--task=issue-7 --answer=ANSWER"),
    ],
)
def test_each_action_says_what_it_does_and_its_command(
    actions: TaskActions, verb: str, what: str, command: str
) -> None:
    said, typed = actions.what(verb, FIELDS)
    assert what in said
    assert command in typed


@table("verb", ["", "delete", "fleet-add"])
def test_an_action_that_is_none(actions: TaskActions, verb: str) -> None:
    for ask in (actions.what, actions.do):
        with pytest.raises(ConfigurationError, match=f"there is no action '{verb}'"):
            ask(verb, FIELDS)


@table("number", ["", "1x", "-1", "\u0661", "1.0"])
def test_a_pull_request_has_a_number(actions: TaskActions, number: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a pull request's number"):
        actions.do("close", {**FIELDS, "number": number})


@table("answer", ["", " \n"])
def test_an_empty_answer_is_none(actions: TaskActions, answer: str) -> None:
    with pytest.raises(ConfigurationError, match="the answer is empty"):
        actions.do("answer", {**FIELDS, "answer": answer})
    assert actions.begun == []


@table("content", [None, b"", b"x", b"0", b"1", b"-5", str(os.getpid()).encode()])
def test_a_run_without_a_process_cannot_be_told_to_end(actions: TaskActions, content: bytes | None) -> None:
    """Not even where it names one: the lock shows whose number it is."""
    folder = actions.home.runs / "run-1"
    folder.mkdir(parents=True, exist_ok=True)
    if content is not None:
        (folder / LOCK_FILE).write_bytes(content)
    with pytest.raises(JournalError, match="no process works on the run run-1"):
        actions.worker_of("run-1")


def test_a_local_repository_needs_no_server(actions: TaskActions, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "calc"], check=True)
    (tmp_path / "plain").mkdir()
    found = [
        actions.is_local(one) for one in (str(tmp_path / "calc"), str(tmp_path / "plain"), "octo/calc", "://")
    ]
    assert found == [True, False, False, False]


@pytest.mark.parametrize(("status", "failed"), [(0, False), (3, False), (130, False), (1, True), (2, True)])
def test_a_run_with_an_answer_that_failed_is_told(
    actions: TaskActions, tmp_path: Path, status: int, *, failed: bool
) -> None:
    log = tmp_path / "log"
    log.write_text("one\npullwright: the key is wrong\n")
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
    process.wait()
    running: Any = SimpleNamespace(poll=lambda: None)
    actions.begun = [
        Answering("octo/calc", "issue-7", process, log),
        Answering("o/n", "issue-8", running, log),
    ]
    told = (
        f"The run with your answer to issue-7 ended with status {status}. Your answer is kept: "
        "the next run goes on with it. the key is wrong"
    )
    assert actions.failed_answers() == ([told] if failed else [])


def test_a_log_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(" \n")
    assert _last_line(tmp_path / "log") == _last_line(tmp_path / "gone") == "it said nothing"


@table(
    ("verb", "subject"),
    [
        ("add", ["octo/calc", "issue-7"]),
        ("pause", ["octo/calc"]),
        ("resume", ["octo/calc"]),
        ("cancel", ["octo/calc"]),
        ("drain", ["w-1"]),
    ],
)
def test_what_an_action_on_the_fleet_is_about(verb: str, subject: list[str]) -> None:
    assert f"fleet-{verb}" in FLEET_VERBS
    assert _fleet_action(f"fleet-{verb}") == verb
    assert _fleet_subject(verb, FIELDS) == subject
    assert _fleet_subject("add", {"repository": "octo/calc"}) == ["octo/calc"]
    with pytest.raises(ConfigurationError, match="there is no action"):
        _fleet_action(verb)


@pytest.mark.parametrize("changed", [True, False])
def test_what_was_decided_is_noted_if_it_changed_anything(*, changed: bool) -> None:
    noted: list[Any] = []
    tasks: Any = SimpleNamespace(note=noted.append)
    decided: Any = SimpleNamespace(changed=changed, words="closed #9")
    assert _noted(tasks, decided) == "closed #9"
    assert noted == ([decided] if changed else [])


NOW = datetime(2026, 11, 28, 23, 30, tzinfo=UTC)
COSTS = (
    DailyCost("octo/calc", date(2026, 11, 28), 2, 0.5),
    DailyCost("octo/calc", date(2026, 11, 27), 3, 1.0),
    DailyCost("octo/sums", date(2026, 11, 28), 1, 0.25),
)


def test_the_fleet_s_cycles_are_counted_today_and_in_all() -> None:
    snapshot: Any = SimpleNamespace(costs=COSTS, day_cap=9.0)
    view = FleetView(NOW, snapshot)
    assert [view.today(one) for one in ("octo/calc", "octo/sums", "octo/none")] == [
        (2, 0.5),
        (1, 0.25),
        (0, 0.0),
    ]
    assert [view.total(one) for one in ("octo/calc", "octo/sums", "octo/none")] == [
        (5, 1.5),
        (1, 0.25),
        (0, 0.0),
    ]
    empty = FleetView(NOW, error="away")
    assert (empty.today("octo/calc"), empty.total("octo/calc")) == ((0, 0.0), (0, 0.0))
    assert empty.plots == []


@table("is_known", [True, False])
def test_where_pull_requests_cannot_be_read_the_tasks_are(*, is_known: bool) -> None:
    asked: list[bool] = []

    def states(*, with_pulls: bool = True) -> list[Any]:
        asked.append(with_pulls)
        if with_pulls and not is_known:
            raise ForgeError("the forge does not answer")
        return []

    decisions = SimpleNamespace(states=states)
    here: Any = SimpleNamespace(
        clock=ManualClock(),
        is_local=lambda _repository: False,
        _open=lambda _repository, *, writes: nullcontext(SimpleNamespace(decisions=decisions, writes=writes)),
    )
    look = TaskActions.look(here, "octo/calc")
    assert (look.states, look.error) == ((), "")
    assert asked == ([True] if is_known else [True, False])


def test_the_repository_that_was_looked_at_longest_ago_is_forgotten() -> None:
    read: list[str] = []

    def look(repository: str) -> str:
        read.append(repository)
        return repository

    page: Any = SimpleNamespace(looks=OrderedDict(), actions=SimpleNamespace(look=look))
    for number in range(100):
        Dashboard.look(page, f"octo/{number}")
    assert len(page.looks) == 100
    Dashboard.look(page, "octo/0")
    assert len(page.looks) == 100
    Dashboard.look(page, "octo/new")
    assert len(page.looks) == 100
    assert "octo/1" not in page.looks
    assert list(page.looks)[-2:] == ["octo/0", "octo/new"]
