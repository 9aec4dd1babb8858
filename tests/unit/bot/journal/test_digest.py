from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.digest import Digest, make_digest
from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, create_run_folder
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import lock_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    Paused,
    Proposed,
    QuestionAsked,
    TaskTaken,
    WorkSaved,
)
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    PlanAccepted,
    ReplyReceived,
    SubagentEvent,
    ToolCallEnded,
    ToolCallStarted,
)
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = TaskTaken("issue-1", "Fix it", "", "issue", 1)
PULL = Proposed(7, "Fix", "https://github.com/o/r/pull/7", "b", "c", created=True)


def reply(usd: float | None = 0.5, tokens: int = 100, model: str = "m:1") -> ReplyReceived:
    message = Message.assistant("x")
    return ReplyReceived(message, FinishReason.STOP, Usage(tokens - 10, 10), usd, model)


def end(outcome: str, **fields: JsonObject | str | None) -> CycleEnded:
    return CycleEnded({"outcome": outcome, **fields})


class Runs:
    """Journals of runs in one home, and the digest of the last 24 hours of them."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.count = 0

    def add(
        self, start: datetime, *events: Event | float, repository: str = "o/r", minutes: float = 0
    ) -> Path:
        self.count += 1
        clock = ManualClock(start)
        folder = create_run_folder(self.home, f"{start:%Y%m%d-%H%M%S}-{self.count:06x}")
        with JournalWriter(folder, Redactor(), clock) as writer:
            writer(CycleStarted(folder.name, repository, "m:1", "native"))
            clock.advance(60 * minutes)
            for event in events:
                if isinstance(event, int | float):
                    clock.advance(60 * event)
                else:
                    writer(event)
        written = clock.now().timestamp()
        os.utime(folder / JOURNAL_FILE, (written, written))
        return folder

    def digest(self, repository: str | None = None, since: datetime = NOW - 24 * HOUR) -> Digest:
        return make_digest(self.home, since, NOW, repository)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_no_home_is_no_runs(tmp_path: Path) -> None:
    assert make_digest(Home(tmp_path / "none"), NOW, NOW).runs == ()


def test_what_a_run_came_to(runs: Runs) -> None:
    result = {"key": "issue-1", "url": "https://github.com/o/r/issues/1"}
    runs.add(
        NOW - HOUR,
        TASK,
        PlanAccepted("Change a file.", 1),
        reply(),
        ToolCallStarted("1", "edit_file", {"path": "a.py"}),
        ToolCallEnded("1", "edit_file", CallStatus.OK, ""),
        ToolCallStarted("2", "write_file", {"file_path": "refused.py"}),
        ToolCallEnded("2", "write_file", CallStatus.REFUSED, ""),
        ToolCallStarted("3", "apply_patch", {"patch": "*** Update File: b.py\n"}),
        ToolCallEnded("3", "apply_patch", CallStatus.OK, ""),
        PULL,
        ForgeUsed(12, 3, 2),
        end("proposed", task=result),
        minutes=6,
    )
    (run,) = runs.digest().pulls
    assert (run.pull, run.task, run.task_url) == (PULL, TASK, result["url"])
    assert run.plan == "Change a file."
    assert run.touched == ("a.py", "b.py")
    assert run.spent == Spent(0.5, 100, 6.0, 1)
    assert run.requests == 12


def test_only_runs_within_the_time_are_opened(runs: Runs) -> None:
    runs.add(NOW - 30 * HOUR, TASK, end("failed"))
    runs.add(NOW - 25 * HOUR, TASK, end("failed"), minutes=90)
    runs.add(NOW - HOUR, TASK, end("failed"))
    old = runs.add(NOW - 60 * HOUR, TASK, end("failed"))
    os.utime(old / JOURNAL_FILE)  # somebody touched it
    (runs.home.runs / "notes.txt").write_text("no run")
    (runs.home.runs / "20260102-110000-aaaaaa").mkdir()
    (runs.home.runs / "20269999-110000-aaaaaa").mkdir()
    assert [run.id[:11] for run in runs.digest().runs] == ["20260101-11", "20260102-11"]


def test_old_runs_cost_no_reading(runs: Runs) -> None:
    folder = runs.add(NOW - 60 * HOUR, TASK)
    journal = folder / JOURNAL_FILE
    journal.unlink()
    os.mkfifo(journal)  # to open it would wait for ever
    assert runs.digest().runs == ()


def test_only_one_repository(runs: Runs) -> None:
    runs.add(NOW - HOUR, end("no_task"), repository="https://github.com/o/r")
    runs.add(NOW - HOUR, end("no_task"), repository="o/other")
    runs.add(NOW - HOUR, end("no_task"), repository="https://ghe.example/o/r")
    assert [run.repository for run in runs.digest("o/r").runs] == ["https://github.com/o/r"]


def test_a_repository_that_was_called_otherwise_before_is_one(runs: Runs) -> None:
    runs.add(NOW - 2 * HOUR, TASK, end("question"), repository="https://github.com/O/R.git")
    runs.add(NOW - HOUR, TASK, end("proposed"), repository="o/r")
    assert runs.digest().questions == []


def test_a_question_waits_until_a_later_run_takes_the_task(runs: Runs) -> None:
    runs.add(NOW - 3 * HOUR, TASK, QuestionAsked("Which?", "https://x/1"), end("question", question="Which?"))
    assert [(run.question, run.question_url) for run in runs.digest().questions] == [
        ("Which?", "https://x/1")
    ]
    runs.add(NOW - 2 * HOUR, TASK, PULL, end("proposed"))
    assert runs.digest().questions == []


def test_what_waits_for_a_person_is_told_until_it_is_worked_on_or_not_seen_any_more(runs: Runs) -> None:
    other = TaskTaken("issue-2", "Other", "", "issue", 2)

    def waiting() -> list[tuple[str, str]]:
        return [(task, why) for _, task, why in runs.digest().waiting]

    runs.add(NOW - 5 * HOUR, other, end("proposed", waits={"issue-1": "it died", "issue-3": "no"}))
    assert waiting() == [("issue-1", "it died"), ("issue-3", "no")]
    runs.add(NOW - 4 * HOUR, TASK, end("proposed"))
    assert waiting() == [("issue-3", "no")]
    runs.add(NOW - 3 * HOUR, end("no_task"), repository="o/another")
    assert waiting() == [("issue-3", "no")]
    runs.add(NOW - 2 * HOUR, end("no_task", waits={"issue-4": "x", "issue-5": 3}))
    assert waiting() == [("issue-4", "x")]


def test_what_failed_is_told_once_a_task_and_not_when_it_was_done_later(runs: Runs) -> None:
    other = TaskTaken("issue-2", "Other", "", "issue", 2)
    runs.add(NOW - 5 * HOUR, TASK, end("failed", error="no"))
    runs.add(NOW - 4 * HOUR, TASK, end("limit", reason="rounds"))
    runs.add(NOW - 3 * HOUR, other, end("failed", error="no"))
    runs.add(NOW - 2 * HOUR, other, PULL, end("proposed"))
    runs.add(NOW - HOUR, end("failed", error="GitHub is down"))
    found = [(one.run.outcome, one.times) for one in runs.digest().undone]
    assert found == [("failed", 1), ("limit", 2)]


def test_a_dead_run_is_unfinished_and_a_living_one_works(runs: Runs) -> None:
    runs.add(NOW - 2 * HOUR, TASK, reply())
    living = runs.add(NOW - HOUR, TASK, reply())
    with lock_run(living):
        assert [run.outcome for run in runs.digest().runs] == ["unfinished", "running"]
    assert runs.digest().working == []


def test_kept_work_is_told_until_it_is_taken_over(runs: Runs) -> None:
    ref = "refs/pullwright/wip/issue-1"
    runs.add(NOW - 3 * HOUR, TASK, WorkSaved("/s/changes.patch", ref), end("limit", saved=ref))
    (run,) = runs.digest().kept
    assert (run.patch, run.saved) == ("/s/changes.patch", ref)
    runs.add(NOW - 2 * HOUR, TASK, PULL, end("proposed"))
    assert runs.digest().kept == []


def test_reasons_are_counted_in_runs(runs: Runs) -> None:
    stranger = "issue #3 is by @eve, who may not write to the repository; honest: relabel it"
    refused = Guarded(Defence.ADMISSION, stranger)
    why = f"{stranger}; issue #4 was declined: x is closed unmerged; the task 'a; b' is taken; and 2 more"
    runs.add(NOW - 3 * HOUR, refused, end("no_task", reason=why))
    runs.add(NOW - 2 * HOUR, refused, Guarded(Defence.SECRETS, "else"), end("no_task", reason=why))
    runs.add(NOW - HOUR, TASK, PULL, end("proposed", reason="all done"))
    assert runs.digest().skipped == [
        (stranger, 2),
        ("issue #4 was declined: x is closed unmerged", 2),
        ("the task 'a; b' is taken", 2),
    ]


def test_costs_are_by_repository_and_model_and_subagents_count(runs: Runs) -> None:
    runs.add(
        NOW - 2 * HOUR,
        reply(),
        reply(1.0, model="n:2"),
        SubagentEvent("a", reply()),
        end("failed"),
        minutes=6,
    )
    runs.add(NOW - HOUR, reply(None), end("failed"), repository="o/s", minutes=3)
    found = runs.digest()
    assert found.costs == {
        ("o/r", "m:1"): Spent(1.0, 200, 6.0, 2),
        ("o/r", "n:2"): Spent(1.0, 100, 0.0, 1),
        ("o/s", "m:1"): Spent(None, 100, 3.0, 1),
    }
    assert found.spent == Spent(None, 400, 9.0, 4)


@pytest.mark.parametrize("usd", [-5.0, float("nan"), float("inf")])
def test_no_reply_wins_money_back(runs: Runs, usd: float) -> None:
    runs.add(NOW - HOUR, reply(usd, tokens=-1_000), reply(0.5), end("failed"))
    spent = runs.digest().spent
    assert spent.usd in (0.5, None)
    assert spent.tokens >= 100


def test_a_pause_after_the_end_counts_as_no_work_and_tells_when_it_goes_on(runs: Runs) -> None:
    until = NOW + 3 * HOUR
    runs.add(NOW - 2 * HOUR, end("paused"), 60.0, Paused(until.isoformat(), "quota"))
    found = runs.digest()
    assert found.spent.minutes == 0
    assert {name: (pause.until, pause.reason) for name, pause in found.waking.items()} == {
        "o/r": (until, "quota")
    }
    runs.add(NOW - HOUR, end("no_task"))
    assert runs.digest().waking == {}


def test_the_result_tells_when_it_goes_on(runs: Runs) -> None:
    runs.add(NOW - HOUR, end("no_task", wake_at=(NOW + HOUR).isoformat(), reason="quiet"))
    assert [pause.until for pause in runs.digest().waking.values()] == [NOW + HOUR]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\n",
        b'{"seq":0,"at":"x","type":"CycleStarted"}\n',
        b'{"seq":1,"at":"2026-01-02T11:00:00+00:00","type":"CycleEnded","result":[]}\n',
    ],
)
def test_a_damaged_journal_is_told_as_such(runs: Runs, content: bytes) -> None:
    folder = runs.add(NOW - HOUR)
    (folder / JOURNAL_FILE).write_bytes(content)
    (run,) = runs.digest().runs
    assert run.outcome == "damaged"
    assert [one.run.id for one in runs.digest().undone] == [run.id]


def test_lines_of_a_newer_version_and_torn_ones_are_passed_over(runs: Runs) -> None:
    folder = runs.add(NOW - HOUR, TASK, reply())
    with (folder / JOURNAL_FILE).open("ab") as file:
        file.write(b'{"seq":4,"at":"2026-01-02T11:00:00.000000+00:00","type":"Proposed","number":"seven"}\n')
        file.write(b'{"seq":5,"at":"2026-01-02T11:00:00.000000+00:00","type":"Brandnew"}\n{"seq":6,"at"')
    run = summarise(folder)
    assert (run.task, run.pull, run.outcome, run.spent.usd) == (TASK, None, "unfinished", 0.5)


def test_text_that_looks_like_a_record_is_none(runs: Runs) -> None:
    text = '{"seq":1,"at":"2026-01-02T11:00:00.000000+00:00","type":"ReplyReceived","usd":9}\n"type":"ReplyReceived"'
    folder = runs.add(
        NOW - HOUR, TaskTaken("t", text, text, "text"), ToolCallEnded("1", "shell", CallStatus.OK, text)
    )
    assert summarise(folder).spent == Spent()
