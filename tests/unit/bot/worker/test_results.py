"""What tasks came to and what they cost, and what the program does about an open pull request."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.bot.coordination.claim_record import ClaimRecord
from orchestrator.bot.cycle.task_state import KnownTask, TaskState, task_state
from orchestrator.bot.forge.base import Feedback, FeedbackKind, PullRequest, PullRequestState
from orchestrator.bot.worker.candidates import UpkeepState, upkeep_in_words
from orchestrator.bot.worker.task_decisions import results_of, usd_of_a_month
from orchestrator.core.messages import Spent

NOW = datetime(2026, 11, 21, tzinfo=UTC)
OLD = NOW - timedelta(days=2)
ME = "pullwright-bot"


def pull(number: int, state: PullRequestState) -> PullRequest:
    branch = f"pullwright/issue-{number}-x"
    return PullRequest(number, "Sum", "", "url", False, state, branch, "main", "a" * 40)


def state(number: int, outcome: str, usd: float | None, pulled: PullRequestState | None = None) -> TaskState:
    key = f"issue-{number}"
    spent = Spent(usd, 1, 1.0, 0 if usd == 0 else 1)
    claim = ClaimRecord(key, "released", "host", "run", 1, OLD, OLD, OLD, outcome, spent=spent)
    pulls = () if pulled is None else (pull(number, pulled),)
    return task_state(KnownTask(key, NOW, pulls=pulls, claim=claim))


STATES = [
    state(1, "proposed", 1.0, PullRequestState.MERGED),
    state(2, "proposed", 2.0, PullRequestState.MERGED),
    state(3, "proposed", 0.5, PullRequestState.CLOSED),
    state(4, "failed 1a", 0.25),
    state(5, "failed 1a", 0.0),
    state(6, "proposed", 0.25, PullRequestState.OPEN),
    state(7, "limit 1a", 1.0),
    replace(state(8, "proposed", 9.0), known=KnownTask("issue-8", NOW)),
]


def test_what_tasks_came_to_and_what_a_merged_one_cost() -> None:
    found = results_of(STATES)
    assert str(found) == "2 merged, 1 declined, 1 abandoned"
    assert found.usd_each == 2.5, "whatever did not come to a merge is paid, too"
    assert results_of([]).usd_each is None
    assert results_of([*STATES, state(9, "failed 1a", None)]).usd_each is None


def test_a_month_at_this_rate() -> None:
    assert usd_of_a_month(Spent(7.0), timedelta(days=7)) == 30.0
    assert usd_of_a_month(Spent(None), timedelta(days=7)) is None
    assert usd_of_a_month(Spent(7.0), timedelta(0)) is None


def said(after: UpkeepState) -> str:
    comment = Feedback(FeedbackKind.COMMENT, 1, ME, after.marker, NOW, NOW, "url")
    return upkeep_in_words(pull(1, PullRequestState.OPEN), [comment], ME, 3)


def test_what_is_done_about_a_pull_request_and_when_it_stops() -> None:
    head = frozenset({"a" * 40})
    assert said(UpkeepState()) == (
        "follows reviews and failed checks, 3 more times; rebases once for each commit that conflicts"
    )
    assert "2 more times; not again the checks of this commit" in said(UpkeepState(1, checked=head))
    assert said(UpkeepState(2, rebased=head)) == (
        "follows reviews and failed checks, 1 more time; was rebased as this commit"
    )
    assert said(UpkeepState(3)).startswith("revised 3 times, the limit: ")
