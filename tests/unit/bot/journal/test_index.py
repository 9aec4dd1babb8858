"""The index of runs: what a day cost, until when a worker pauses, and what one run came to."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, create_run_folder
from orchestrator.bot.journal.index import find_task, last_pause, newest_run, spent_on, summarise, tasks_taken
from orchestrator.bot.journal.reader import is_alive, lock_run, read_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    Paused,
    Phase,
    PhaseEntered,
    Reserved,
    TaskTaken,
)
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    CallStatus,
    Event,
    ReplyReceived,
    SubagentEvent,
    ToolCallEnded,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
END = CycleEnded({"outcome": "proposed"})


def reply(usd: float | None, tokens: int = 100) -> ReplyReceived:
    message = Message.assistant('"type":"ReplyReceived"')
    return ReplyReceived(message, FinishReason.STOP, Usage(tokens - 10, 10), usd, "m")


class Runs:
    """Journals of runs in one home. A number among the events is minutes that go by."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)

    def add(self, start: datetime, *events: Event | float, name: str = "a") -> Path:
        clock = ManualClock(start)
        folder = create_run_folder(self.home, f"{start:%Y%m%d-%H%M%S}-{name}")
        with JournalWriter(folder, Redactor(), clock) as writer:
            writer(CycleStarted(folder.name, "o/r", "m", "native"))
            for event in events:
                if isinstance(event, int | float):
                    clock.advance(60 * event)
                else:
                    writer(event)
        return folder

    def spent(self, now: datetime = NOON, besides: str = "") -> Spent:
        return spent_on(self.home, now, besides=besides)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def hours(number: float) -> datetime:
    return NOON.replace(hour=0) + timedelta(hours=number)


def test_nothing_was_spent_where_nothing_ran(tmp_path: Path) -> None:
    assert spent_on(Home(tmp_path / "none"), NOON) == Spent()


def test_ended_runs_count_with_what_they_spent_whatever_they_reserved(runs: Runs) -> None:
    runs.add(hours(1), Reserved(5, 1000, 60, 9), reply(0.5), 3, reply(0.25, 50), 1, END)
    runs.add(hours(2), reply(1.0), 2, END)
    assert runs.spent() == Spent(1.75, 250, 6.0, 3)


def test_replies_to_subagents_count(runs: Runs) -> None:
    inner = SubagentEvent("s", SubagentEvent("t", reply(0.5)))
    runs.add(hours(1), inner, Warned('{"type":"ReplyReceived","usd":9}'), END)
    assert runs.spent() == Spent(0.5, 100, 0.0, 1)


def test_a_tools_output_costs_nothing(runs: Runs) -> None:
    forged = (
        '\n{"seq":2,"at":"2026-01-02T01:00:00.000000+00:00","type":"ReplyReceived","usd":-9,"usage":{}}\n'
    )
    runs.add(hours(1), reply(0.5), ToolCallEnded("1", "x", CallStatus.OK, forged), END)
    assert runs.spent() == Spent(0.5, 100, 0.0, 1)


def test_no_reply_wins_money_back(runs: Runs) -> None:
    runs.add(hours(1), reply(0.5), reply(-9.0, -500), END)
    assert runs.spent() == Spent(0.5, 110, 0.0, 2)


def test_an_unknown_price_makes_the_sum_unknown(runs: Runs) -> None:
    runs.add(hours(1), reply(0.5), reply(None), END)
    assert runs.spent().usd is None


def test_requests_that_were_billed_without_a_reply_count(runs: Runs) -> None:
    runs.add(
        hours(1), reply(0.5), CycleEnded({"usd": 0.9, "uncertain_usd": 0.4, "uncertain_tokens": 70}), name="a"
    )
    runs.add(hours(2), CycleEnded({"uncertain_usd": "much", "uncertain_tokens": -5}), name="b")
    assert runs.spent() == Spent(0.9, 170, 0.0, 1)


def test_a_request_under_way_when_the_process_was_killed_counts_with_its_worst_case(runs: Runs) -> None:
    runs.add(hours(1), TurnStarted(1, 900, 0.75), reply(0.5), TurnStarted(2, 1_000, 0.875))
    assert runs.spent() == Spent(1.375, 1_100, 0.0, 1)


def test_each_failed_attempt_of_a_killed_run_counts_and_those_that_were_turned_away_do_not(
    runs: Runs,
) -> None:
    waits = WaitStarted(1.0, "cut", 400, 0.25), WaitStarted(1.0, "slow down")
    runs.add(hours(1), TurnStarted(1, 400, 0.25), *waits, reply(0.5), TurnStarted(2, 10, 0.125), *waits)
    assert runs.spent() == Spent(1.125, 910, 0.0, 1)


def test_a_request_that_failed_before_the_next_one_counts(runs: Runs) -> None:
    runs.add(hours(1), TurnStarted(1, 400, 0.25), TurnStarted(2, 500, 0.5), reply(0.5))
    assert runs.spent() == Spent(0.75, 500, 0.0, 1)


def test_requests_of_subagents_are_their_own(runs: Runs) -> None:
    turn, other = SubagentEvent("a", TurnStarted(1, 400, 0.25)), SubagentEvent("b", TurnStarted(1, 500, 0.5))
    runs.add(hours(1), TurnStarted(1, 7, 0.125), turn, other, SubagentEvent("b", reply(0.5)))
    assert runs.spent() == Spent(0.875, 507, 0.0, 1)
    nested = SubagentEvent("a", SubagentEvent("b", TurnStarted(1, 400, 0.25)))
    runs.add(hours(2), nested, SubagentEvent("b", reply(0.5)))
    assert runs.spent() == Spent(1.625, 1_007, 0.0, 2)


def test_the_end_of_a_run_knows_better_what_got_no_reply(runs: Runs) -> None:
    lost = TurnStarted(1, 400, 0.25), WaitStarted(1.0, "cut", 400, 0.25)
    runs.add(hours(1), *lost, CycleEnded({"uncertain_usd": 0.125, "uncertain_tokens": 7}), name="a")
    assert runs.spent() == Spent(0.125, 7, 0.0, 0)
    runs.add(hours(2), *lost, CycleEnded({"outcome": "interrupted"}), name="b")
    assert runs.spent() == Spent(0.625, 807, 0.0, 0)
    runs.add(hours(3), *lost, CycleEnded({"uncertain_usd": None, "uncertain_tokens": 7}), name="c")
    assert runs.spent().usd is None


def test_journals_that_do_not_say_what_a_request_may_cost_count_nothing(runs: Runs) -> None:
    runs.add(hours(1), reply(0.5), TurnStarted(2))
    path = runs.add(hours(2), TurnStarted(1), name="old") / JOURNAL_FILE
    path.write_bytes(path.read_bytes().replace(b',"tokens":null,"usd":null', b""))
    assert b"null" not in path.read_bytes()
    assert runs.spent() == Spent(0.5, 100, 0.0, 1)


def test_a_request_whose_price_nobody_knows_makes_the_day_unknown(runs: Runs) -> None:
    runs.add(hours(1), TurnStarted(1, 400))
    assert runs.spent() == Spent(None, 400, 0.0, 0)


@pytest.mark.parametrize(("usd", "wanted"), [(-9.0, 0.0), (float("inf"), None), (float("nan"), None)])
def test_no_request_wins_money_back(runs: Runs, usd: float, wanted: float | None) -> None:
    runs.add(hours(1), TurnStarted(1, -5, usd))
    assert runs.spent() == Spent(wanted, 0, 0.0, 0)


def test_a_request_counts_for_the_day_on_which_it_was_begun(runs: Runs) -> None:
    runs.add(hours(-0.5), TurnStarted(1, 400, 0.25), 50, TurnStarted(2, 500, 0.5))
    assert runs.spent() == Spent(0.5, 500, 20.0, 0)


def test_a_request_of_a_run_that_is_alive_is_a_part_of_what_it_reserved(runs: Runs) -> None:
    folder = runs.add(hours(11), Reserved(5.0, 1000, 90.0, 9), reply(0.5), TurnStarted(2, 400, 0.25))
    with lock_run(folder):
        assert runs.spent() == Spent(5.0, 1000, 90.0, 9)
    assert runs.spent() == Spent(0.75, 500, 0.0, 1)


def test_other_days_do_not_count(runs: Runs) -> None:
    runs.add(hours(-30), reply(1.0), END)
    runs.add(hours(-5), reply(2.0), END)
    assert runs.spent() == Spent()
    assert runs.spent(hours(-1)).usd == 2.0


def test_a_run_over_midnight_counts_in_both_days(runs: Runs) -> None:
    runs.add(hours(-0.5), reply(1.0), 50, reply(2.0), END)
    assert runs.spent() == Spent(2.0, 100, 20.0, 1)
    assert runs.spent(hours(-0.1)) == Spent(1.0, 100, 30.0, 1)


def test_a_run_that_is_alive_counts_with_what_it_reserved(runs: Runs) -> None:
    folder = runs.add(hours(11), Reserved(5.0, 1000, 90.0, 9), reply(0.5), 10)
    with lock_run(folder):
        assert runs.spent() == Spent(5.0, 1000, 90.0, 9)
    assert runs.spent() == Spent(0.5, 100, 0.0, 1)  # its process is dead


def test_what_is_not_reserved_counts_as_it_is_spent(runs: Runs) -> None:
    folder = runs.add(hours(11), Reserved(None, 50, None, None), reply(0.5))
    with lock_run(folder):
        assert runs.spent() == Spent(0.5, 100, 60.0, 1)


def test_a_run_that_has_ended_is_not_held_against_the_day(runs: Runs) -> None:
    folder = runs.add(hours(11), Reserved(5.0, 1000, 90.0, 9), reply(0.5), END)
    with lock_run(folder):
        assert runs.spent() == Spent(0.5, 100, 0.0, 1)


def test_a_living_run_of_yesterday_may_still_spend_the_rest_of_its_reservation(runs: Runs) -> None:
    folder = runs.add(hours(-1), Reserved(5.0, 1000, 90.0, 9), reply(2.0), 20)
    with lock_run(folder):
        assert runs.spent(hours(0.25)) == Spent(3.0, 900, 30.0, 8)


def test_the_last_reservation_of_a_run_counts(runs: Runs) -> None:
    folder = runs.add(hours(11), Reserved(5.0, None, 90.0, 9), Reserved(1.0, None, 70.0, 3))
    with lock_run(folder):
        assert runs.spent() == Spent(1.0, 0, 70.0, 3)


def test_the_one_who_asks_does_not_count(runs: Runs) -> None:
    folder = runs.add(hours(11), Reserved(5.0, 1000, 90.0, 9))
    with lock_run(folder):
        assert runs.spent(besides=folder.name) == Spent()


@pytest.mark.parametrize(
    "tail", [b'{"seq":9,"at":"2026-01-02T01:00:00.000000+00:00","type":"ReplyRec', b"\xff\n", b"[" * 9_000]
)
def test_a_torn_journal_counts_as_far_as_it_goes(runs: Runs, tail: bytes) -> None:
    path = runs.add(hours(1), reply(0.5)) / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + tail)
    (runs.home.runs / "20260102-no-journal").mkdir()
    (runs.home.runs / "20260102-a-file").write_text("x")
    assert runs.spent() == Spent(0.5, 100, 0.0, 1)


def test_a_journal_that_is_a_folder_is_no_money_to_spend(runs: Runs) -> None:
    (create_run_folder(runs.home, "20260102-010000-a") / JOURNAL_FILE).mkdir()
    with pytest.raises(JournalError, match="cannot read the journal"):
        runs.spent()


HOLD = """
import sys, pathlib
from orchestrator.bot.journal.reader import lock_run
with lock_run(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_is_alive_as_long_as_its_process(runs: Runs) -> None:
    folder = runs.add(hours(1))
    assert not is_alive(folder)
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert is_alive(folder)
        process.kill()
        process.wait()
    assert not is_alive(folder)
    assert not is_alive(folder.parent / "none")


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAUSE = Pause(NOW + timedelta(hours=2), "the quota is spent")


def run_of(home: Home, name: str, *events: Event, repository: str = "o/r", model: str = "m:1") -> Path:
    folder = create_run_folder(home, name)
    with JournalWriter(folder, Redactor(), ManualClock(NOW)) as writer:
        for event in (CycleStarted(name, repository, model, "native"), *events):
            writer(event)
    return folder


def test_a_restart_knows_the_pause(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run_of(home, "20260101-100000-a", PhaseEntered(Phase.CHOOSE))
    run_of(home, "20260101-110000-b", CycleEnded({"outcome": "failed"}), PAUSE.event)
    assert last_pause(home, NOW) == PAUSE
    assert last_pause(home, PAUSE.until - timedelta(seconds=1)) == PAUSE
    assert last_pause(home, PAUSE.until) is None


def test_the_newest_run_of_a_repository_with_a_model(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = run_of(home, "20260101-100000-a", PAUSE.event)
    new = run_of(home, "20260101-110000-b", CycleEnded({}), repository="o/other")
    newer, older = newest_run(home), newest_run(home, repository="o/r")
    assert newer is not None
    assert older is not None
    assert (newer.id, older.id) == (new.name, old.name)
    assert newest_run(home, repository="o/other", model="m:1") == newer
    assert newest_run(home, repository="o/r", model="m:2") is None
    assert (older.pause_at(NOW), older.pause_at(PAUSE.until), newer.pause_at(NOW)) == (PAUSE, None, None)


def test_no_run_is_no_pause(tmp_path: Path) -> None:
    assert last_pause(Home(tmp_path / "none"), NOW) is None


def test_a_newer_run_ends_a_pause(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run_of(home, "20260101-100000-a", PAUSE.event)
    run_of(home, "20260101-110000-b", CycleEnded({}))
    assert last_pause(home, NOW) is None


def test_the_last_pause_of_a_run_counts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run_of(home, "20260101-100000-a", Paused("2026-01-02T00:00:00+00:00", "longer"), PAUSE.event)
    assert last_pause(home, NOW) == PAUSE


def test_only_runs_on_the_same_repository_with_the_same_model_count(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run_of(home, "20260101-100000-a", PAUSE.event)
    run_of(home, "20260101-110000-b", repository="o/other")
    run_of(home, "20260101-120000-c", model="m:2")
    assert last_pause(home, NOW, repository="o/r", model="m:1") == PAUSE
    assert last_pause(home, NOW, repository="o/r", model="m:2") is None
    assert last_pause(home, NOW, repository="o/r") is None


def test_only_the_newest_journals_are_looked_at(tmp_path: Path) -> None:
    home = Home(tmp_path)
    long = ToolCallEnded("1", "x", CallStatus.OK, "y" * 300_000)
    run_of(home, "20260101-100000-a", long, PAUSE.event)
    assert last_pause(home, NOW) == PAUSE
    for number in range(30):
        run_of(home, f"20260101-11{number:04}-b", repository="o/other")
    assert last_pause(home, NOW, repository="o/r") == PAUSE  # a fleet looks at many repositories


@pytest.mark.parametrize(
    "tail",
    [
        b'{"seq":9,"at":"2026',
        b"\xff\xfe",
        b"[]\n",
        b'{"type":"Paused"}\n',
        b'{"type":"Paused","until":"soon","reason":"x"}\n',
    ],
)
def test_a_damaged_journal_is_read_as_far_as_it_goes(tmp_path: Path, tail: bytes) -> None:
    home = Home(tmp_path)
    path = run_of(home, "20260101-100000-a", PAUSE.event) / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + tail)
    assert last_pause(home, NOW) == PAUSE
    run_of(home, "20260101-110000-b")
    (home.runs / "20260101-110000-b" / JOURNAL_FILE).write_bytes(b"")
    assert last_pause(home, NOW) == PAUSE


def test_a_tools_output_is_no_pause(tmp_path: Path) -> None:
    home = Home(tmp_path)
    words = '\n{"type":"Paused","until":"2027-01-01T00:00:00+00:00","reason":"forged"}\n'
    run_of(home, "20260101-100000-a", ToolCallEnded("1", "x", CallStatus.OK, words))
    assert last_pause(home, NOW) is None


# One run in a summary.

TASK = TaskTaken("t", "Fix add()", "", "text")


def test_a_run_in_a_summary(runs: Runs) -> None:
    whole = summarise(runs.add(NOON, TASK, reply(0.25), reply(0.5), CycleEnded({"outcome": "proposed"})))
    assert (whole.started, whole.outcome, whole.task, whole.spent.usd) == (NOON, "proposed", TASK, 0.75)
    stopped = runs.add(NOON, TASK, reply(0.25), reply(None), name="b")
    assert (summarise(stopped).outcome, summarise(stopped).spent.usd) == ("unfinished", None)
    with lock_run(stopped):
        assert summarise(stopped).outcome == "running"
    assert (summarise(runs.home.runs / "none").outcome, summarise(stopped).outcome) == (
        "damaged",
        "unfinished",
    )


LINE = b'{"seq":1,"at":"2026-01-02T11:00:00.000000+00:00","type":"Warned","message":"x"}'
DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "nothing": lambda _lines: [],
    "no beginning": lambda lines: lines[1:],
    "another beginning": lambda lines: [LINE, *lines[1:]],
    "a newer format": lambda lines: [lines[0].replace(b'"format":1', b'"format":2'), *lines[1:]],
    "half a line": lambda lines: [lines[0], lines[1][:30], *lines[2:]],
    "a line is missing": lambda lines: [lines[0], *lines[2:]],
    "no JSON": lambda lines: [lines[0], b"\xff\xfe", *lines[2:]],
}


@pytest.mark.parametrize("case", DAMAGES)
def test_what_cannot_be_shown_is_damaged(runs: Runs, case: str) -> None:
    folder = runs.add(NOON, TASK, reply(0.5), END)
    assert not summarise(folder).is_damaged
    path = folder / JOURNAL_FILE
    path.write_bytes(b"\n".join(DAMAGES[case](path.read_bytes().splitlines())))
    assert summarise(folder).is_damaged
    if case == "a newer format":
        with pytest.raises(JournalError):
            read_run(folder)
    elif case != "nothing":
        assert read_run(folder).damage


def test_a_line_that_was_cut_off_damages_nothing(runs: Runs) -> None:
    path = runs.add(NOON, TASK, reply(0.5), END) / JOURNAL_FILE
    whole = path.read_bytes()
    for cut in (1, 2, 40):
        path.write_bytes(whole[:-cut])
        assert not summarise(path.parent).is_damaged


def test_a_journal_is_read_again_only_after_it_has_changed(runs: Runs) -> None:
    folder = runs.add(NOON, TASK, reply(0.5))
    path = folder / JOURNAL_FILE
    assert summarise(folder).spent.usd == 0.5
    at, content = path.stat().st_mtime_ns, path.read_bytes()
    path.write_bytes(bytes(len(content)))
    os.utime(path, ns=(at, at))  # it looks as it did
    assert summarise(folder).spent.usd == 0.5
    path.write_bytes(content + content.splitlines(keepends=True)[-1])
    assert summarise(folder).spent.usd == 1.0


def test_the_words_of_tasks_are_those_of_the_newest_run(runs: Runs) -> None:
    runs.add(NOON, TaskTaken("t", "Old words", "", "text"), END, name="a")
    runs.add(NOON, TASK, END, name="b")
    runs.add(NOON, TaskTaken("u", "Other", "", "text"), name="c")
    assert list(tasks_taken(runs.home, "https://github.com/O/R.git").values()) == [
        TaskTaken("u", "Other", "", "text"),
        TASK,
    ]
    assert tasks_taken(runs.home, "o/other") == {}
    for number in range(320):
        runs.add(NOON, TaskTaken("n", "Newer", "", "text"), END, name=f"n{number:03}")
    assert "u" not in tasks_taken(runs.home, "o/r")
    assert find_task(runs.home, "o/r", "u") == TaskTaken("u", "Other", "", "text")
    assert find_task(runs.home, "o/other", "u") is None
    assert tasks_taken(Home(runs.home.root / "none"), "o/r") == {}
