"""The state of a task: one table of what is known and what every command says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.bot.coordination.claim_record import ClaimRecord
from orchestrator.bot.coordination.saved_work import UnfinishedWork
from orchestrator.bot.cycle.earlier import SESSION_PAGE, STATE_PAGE, read_saved
from orchestrator.bot.cycle.task_state import KnownTask, TaskStatus, status_of_outcome, task_state
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.suggestions import Commands
from tests.tables import table

NOW = datetime(2026, 11, 21, 3, 30, tzinfo=UTC)
KEY = "item-2ba994d5"
HELD = ClaimRecord(KEY, "held", "host", "run-1", 1, NOW, NOW, NOW + timedelta(minutes=20))


def released(outcome: str) -> ClaimRecord:
    return replace(HELD, state="released", outcome=outcome, renewed_at=NOW - timedelta(days=1))


def pull(state: PullRequestState, *labels: str) -> PullRequest:
    branch = f"pullwright/{KEY}-fix"
    return PullRequest(7, "Fix", "", "url", False, state, branch, "main", "0" * 40, labels=labels)


def wip(question: str = "", attempts: int = 1) -> UnfinishedWork:
    state = {"run": "r", "why": "limit", "model": "m", "contract": "c", "profile": "p", "attempts": attempts}
    asked = {"question": question, "question_url": "file:///q/1.json" if question else ""}
    pages = {STATE_PAGE: json.dumps(state | asked).encode(), SESSION_PAGE: b""}
    return UnfinishedWork(KEY, "0" * 40, None, "0" * 40, pages)


OPEN, CLOSED, MERGED = PullRequestState.OPEN, PullRequestState.CLOSED, PullRequestState.MERGED
RETRY = "pullwright retry item-2ba994d5 --repo o/n"


@table(
    ("claim", "left", "pulls", "words", "step"),
    [
        (None, None, (), "open", ""),
        (HELD, None, (), "being worked on", ""),
        (HELD, wip("Which?"), (pull(OPEN),), "being worked on", ""),
        (
            replace(HELD, run="run-dead"),
            None,
            (),
            "unfinished, its worker died, the next cycle tries again",
            "",
        ),
        (replace(HELD, run="run-dead"), wip(), (), "unfinished, its worker died, the next cycle goes on", ""),
        (
            replace(released("crashed"), deaths=2),
            wip(),
            (),
            "unfinished, its worker died twice, the next cycle goes on",
            "",
        ),
        (
            replace(HELD, run="run-dead", deaths=2),
            None,
            (),
            "waits for a person: its worker died 3 times in a row, the last time in run run-dead on host",
            RETRY,
        ),
        (replace(released("waits"), why="no secrets"), wip(), (), "waits for a person: no secrets", RETRY),
        (
            replace(released("waits"), why="no secrets"),
            None,
            (pull(OPEN),),
            "waits for a person: no secrets",
            RETRY,
        ),
        (replace(released("waits"), why="no secrets"), None, (pull(MERGED),), "merged as #7", ""),
        (
            replace(HELD, fault="garbage"),
            None,
            (),
            "being worked on, but its claim cannot be read: garbage",
            "",
        ),
        (
            replace(HELD, fault="garbage", run="run-dead"),
            None,
            (),
            "being worked on, but its claim cannot be read: garbage",
            "",
        ),
        (released("failed 1a"), None, (), "failed", RETRY),
        (released("error 1a"), None, (), "failed, the next cycle tries again", ""),
        (released("error 1a"), wip(attempts=2), (), "failed, the next cycle goes on", ""),
        (released("error 1a"), wip(attempts=3), (), "failed in 3 cycles", RETRY),
        (released("limit 1a"), wip(attempts=3), (), "unfinished in 3 cycles", RETRY),
        (released("limit 1a"), wip(), (), "unfinished, the next cycle goes on", ""),
        (released("interrupted"), wip(), (), "unfinished, the next cycle goes on", ""),
        (released("no_task 1a"), None, (), "nothing to do", RETRY),
        (released("retry"), None, (), "open", ""),
        (released("retry"), wip("Which?"), (), "open, the next cycle goes on with the work that is kept", ""),
        (released("retry"), None, (pull(CLOSED),), "open", ""),
        (released("by hand"), None, (), "open", ""),
        (released("question"), wip("Which?"), (), "waits for an answer", Commands("o/n").answer(KEY)),
        (released("question"), None, (), "open", ""),
        (released("proposed"), None, (pull(OPEN),), "proposed as #7", "pullwright close 7 --repo o/n"),
        (released("proposed"), None, (pull(MERGED),), "merged as #7", ""),
        (released("proposed"), None, (pull(CLOSED),), "declined as #7", RETRY),
        (released("failed 1a"), None, (pull(CLOSED),), "declined as #7", RETRY),
        (released("proposed"), None, (pull(CLOSED), pull(MERGED)), "merged as #7", ""),
        (
            released("proposed"),
            None,
            (pull(CLOSED), pull(OPEN)),
            "proposed as #7",
            "pullwright close 7 --repo o/n",
        ),
        (replace(released("proposed"), pull=9), None, (), "open", ""),
        (
            replace(released("proposed"), pull=9, renewed_at=NOW),
            None,
            (),
            "proposed as #9, which the forge does not list yet",
            RETRY,
        ),
        (None, wip(), (), "unfinished, the next cycle goes on", ""),
    ],
)
def test_each_state(
    claim: ClaimRecord | None,
    left: UnfinishedWork | None,
    pulls: tuple[PullRequest, ...],
    words: str,
    step: str,
) -> None:
    pages = read_saved(left)
    known = KnownTask(KEY, NOW, pulls=pulls, claim=claim, dead_runs=("run-dead",), wip=left)
    state = task_state(replace(known, left=pages[0] if pages else None, commands=Commands("o/n")))
    assert state.describe() == words
    assert words.startswith(str(state.status))
    assert state.next_step(Commands("o/n")) == step
    assert state.has_trace == (claim is not None or left is not None or bool(pulls))
    assert state.gives_up == words.startswith("waits for a person: its worker died"), (
        "the claim does not say it"
    )


@table(
    ("outcome", "deaths", "left", "waits"),
    [
        ("crashed", 1, 3, True),
        ("crashed", 1, 2, False),
        ("crashed", 0, 3, False),
        ("crashed", 1, None, False),
        ("limit", 1, 3, False),
        ("limit", 3, None, True),
    ],
)
def test_a_task_waits_after_three_cycles_that_came_to_nothing(
    outcome: str, deaths: int, left: int | None, *, waits: bool
) -> None:
    claim = replace(released(outcome), deaths=deaths, renewed_at=NOW - timedelta(days=30))
    saved = read_saved(wip(attempts=left)) if left is not None else None
    known = KnownTask(KEY, NOW, claim=claim, left=saved[0] if saved else None)
    state = task_state(known)
    assert (state.status is TaskStatus.WAITS) is waits
    if waits and outcome == "crashed":
        assert state.why == "it was not completed in 3 cycles"
        assert state.gives_up
    assert task_state(replace(known, is_named=True)).status is not TaskStatus.WAITS


def test_a_journals_outcome_is_told_in_the_same_words() -> None:
    told = {
        word: str(status_of_outcome(word)) for word in ("failed", "error abc", "limit", "no_task", "question")
    }
    assert told == {
        "failed": "failed",
        "error abc": "failed",
        "limit": "unfinished",
        "no_task": "nothing to do",
        "question": "waits for an answer",
    }
    assert all(status_of_outcome(str(kind)) is kind for kind in TaskStatus), (
        "a person's decision is noted in them"
    )


def test_a_command_is_whole_also_where_a_name_needs_quotes() -> None:
    commands = Commands("/srv/my repo", "--github-url https://ghe.example")
    assert commands.retry("item-1") == (
        "pullwright retry item-1 --repo '/srv/my repo' --github-url https://ghe.example"
    )
