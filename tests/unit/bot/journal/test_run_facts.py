"""What happened in a run has one answer, whoever asks: the journal's reader, the index, the page, the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.app.event_lines import RunProgress
from orchestrator.app.html.story import RunStory
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import read_run
from orchestrator.bot.journal.records import JournalWriter, UnknownRecord
from orchestrator.bot.journal.run_facts import RunFacts
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    Phase,
    PhaseEntered,
    Proposed,
    Proposing,
    TaskTaken,
    TestRunEnded,
    TestRunStarted,
)
from orchestrator.core.events import (
    CallStatus,
    PlanAccepted,
    ReplyReceived,
    SubagentEvent,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
)
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.core.events import Event

START = CycleStarted("r", "owner/name", "m", "json_plan")
TASK = TaskTaken("issue-1", "Add", "", "issue", 1)
PROPOSING = Proposing("t", "b", "pullwright/issue-1", "c" * 40, "diff")
PROPOSED = Proposed(3, "t", "u", "b", "c" * 40, created=True)


def reply(usd: float | None, cached: int = 0, tokens: int = 10) -> ReplyReceived:
    usage = Usage(tokens, 2, cached_input_tokens=cached)
    return ReplyReceived(Message.assistant("x"), FinishReason.STOP, usage, usd, "m")


def called(name: str, status: CallStatus = CallStatus.OK, **arguments: Any) -> tuple[Event, Event]:
    return ToolCallStarted(name, name, arguments), ToolCallEnded(name, name, status, "")


def facts_of(events: Sequence[Event]) -> RunFacts:
    facts, clock = RunFacts(), ManualClock()
    for event in events:
        facts.take(event, clock.now())
    return facts


BETWEEN: list[Event] = [
    START,
    PhaseEntered(Phase.PLAN),
    TASK,
    TurnStarted(1, 900, 0.5),
    reply(0.25, cached=4),
    PlanAccepted("first", 1),
    *called("write_file", path="a.py"),
    # A subagent's subagent costs, too. Its plan and its files are not the run's.
    SubagentEvent("one", SubagentEvent("two", TurnStarted(1, 100, 0.1))),
    SubagentEvent("one", SubagentEvent("two", reply(0.5, cached=2))),
    SubagentEvent("one", PlanAccepted("of a subagent", 1)),
    *(SubagentEvent("one", event) for event in called("read_file", path="b.py")),
    TestRunStarted("after", "pytest"),
    TestRunEnded("after", 1, 0, 0, 0, 1.0),
    PROPOSING,
    PROPOSED,
]


def test_all_who_ask_what_happened_get_the_same_answer(tmp_path: Path) -> None:
    """A reply to a subagent's subagent was counted by the index alone."""
    clock = ManualClock()
    with JournalWriter(tmp_path, Redactor(), clock) as writer:
        for event in BETWEEN:
            writer(event)
    run, summary, story, progress = (
        read_run(tmp_path),
        summarise(tmp_path),
        RunStory.read(tmp_path),
        RunProgress(),
    )
    for record in run.records:
        assert not isinstance(record.event, UnknownRecord)
        progress.take(record.event, record.at)
    live = progress.facts
    assert run.facts == story.facts == live
    assert summary.spent == live.spent == Spent(0.75, 24, rounds=2)
    assert (summary.plan, summary.task, summary.pull, summary.touched) == ("first", TASK, PROPOSED, ("a.py",))
    assert live.summary(tmp_path.name) == summary
    assert (live.usage.cached_input_tokens, live.replies, live.calls, live.round) == (6, 1, 2, 1)
    assert (live.phase, live.begun, live.diff) == (Phase.PLAN, None, "diff")
    assert live.tests == [("pytest", TestRunEnded("after", 1, 0, 0, 0, 1.0))]


def test_a_completed_run_knows_what_requests_without_a_reply_may_cost() -> None:
    begun = facts_of([START, TurnStarted(1, 900, 0.5), reply(0.25), TurnStarted(2, 900, 0.5)])
    assert begun.spent_at_most == Spent(0.75, 912, rounds=2)
    ended = facts_of(
        [START, TurnStarted(1, 900, 0.5), CycleEnded({"uncertain_tokens": 7, "uncertain_usd": 0.125})]
    )
    assert ended.spent_at_most == Spent(0.125, 7, rounds=1)


@table(
    "events, completed",
    [
        ([PROPOSED, *called("finish")], True),
        ([*called("finish")], False),
        ([PROPOSED], False),
        ([PROPOSED, *called("finish"), *called("read_file")], False),
        ([PROPOSED, *called("finish", CallStatus.FAILED), *called("finish")], False),
        ([Proposed(3, "t", "u", "b", "", created=False), *called("finish")], False),
    ],
)
def test_a_run_is_completed_by_a_commit_and_a_finish_that_nothing_refused(
    events: list[Event], *, completed: bool
) -> None:
    assert facts_of(events).is_completed is completed
