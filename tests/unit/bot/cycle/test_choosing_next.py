"""Which candidate is claimed, in which order, and what people see of a claim."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.coordination.budget import Caps, Refused
from orchestrator.bot.cycle.choice import Candidate, Choice, claimed_event, tell_waiting, waiting_place
from orchestrator.bot.cycle.claim import (
    claim_next,
    claim_task,
    find_next,
    show_cap,
    show_claim,
    show_on_forge,
)
from orchestrator.bot.cycle.cycle import run_cycle
from orchestrator.bot.cycle.earlier import Earlier, UnfinishedState
from orchestrator.bot.cycle.parts import Assignment, CycleResult, FoundTask, Outcome, Stop, outcome_of
from orchestrator.bot.cycle.task_state import KnownTask
from orchestrator.bot.cycle.tasks import Task, TaskKind, from_text
from orchestrator.bot.forge.base import PullRequest, PullRequestState, Traffic
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.reader import DeadRuns
from orchestrator.core.cycle_events import Claimed, CycleEnded, PhaseEntered
from orchestrator.core.errors import (
    BadReplyError,
    BaseConflictError,
    ConnectionFailedError,
    ForgeUnavailableError,
    RateLimitError,
    RemoteUnavailableError,
    SupersededError,
    WithdrawnError,
)
from orchestrator.core.events import Guarded, Warned
from orchestrator.core.messages import Spent, Usage
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.budget import Limits
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.core.events import Event

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ISSUE = Task("issue-7", "Add", "", "issue", 7)


def candidate(title: str) -> Candidate:
    task = from_text(title)
    return Candidate(KnownTask(task.key, NOW, task), f"attempt {title}", labels=(title,))


class Lease:
    """A claim that remembers whether it was given back."""

    def __init__(self, previous: Any = None) -> None:
        self.previous, self.is_given_back = previous, False
        self.record = SimpleNamespace(task="issue-7", owner="host", number=3, expires_at=NOW)

    def undo_claim(self) -> None:
        self.is_given_back = True


class Tasks:
    """Candidates, and what became of each."""

    def __init__(self, *titles: str, confirms: Any = None) -> None:
        self.found, self.done = [candidate(title) for title in titles], list[str]()
        self.confirms = confirms or (lambda one: one)

    def candidates(self, fingerprint: str) -> Iterator[Candidate]:
        assert fingerprint == "print"
        for one in self.found:
            self.done.append(f"read {one.labels[0]}")
            yield one

    def confirm(self, one: Candidate, _lease: Any) -> Any:
        answer = self.confirms(one)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def skip(self, reason: str) -> None:
        self.done.append(f"skip: {reason}")

    def begin(self, one: Candidate) -> None:
        self.done.append(f"begin {one.labels[0]}")

    def put_back(self) -> None:
        self.done.append("put back")

    def notices(self) -> list[Event]:
        return []

    def why_none(self) -> Choice:
        return Choice(None, "nothing is left")


class Claimer:
    """Claims what it is told to, and knows which tasks come last."""

    def __init__(self, *, refuses: tuple[str, ...] = (), last: tuple[str, ...] = ()) -> None:
        self.refuses, self.last, self.leases = refuses, last, list[Lease]()
        self.earlier: dict[str, Earlier] = {}

    def _title(self, known: KnownTask) -> str:
        assert known.task is not None
        return known.task.title

    def take(self, known: KnownTask) -> Any:
        if self._title(known) in self.refuses:
            return "another worker holds it"
        self.leases.append(Lease())
        return self.leases[-1]

    def why_not(self, known: KnownTask) -> tuple[str | None, int]:
        return ("another worker holds it", 0) if self._title(known) in self.refuses else (None, 4)

    def comes_last(self, known: KnownTask) -> bool:
        return self._title(known) in self.last

    def with_branch(self, task: Task) -> Task:
        return replace(task, branch_suffix="-2")


@table(
    ("claimer", "confirms", "title", "done"),
    [
        (None, None, "a", ["read a", "begin a"]),
        (Claimer(), None, "a", ["read a", "begin a"]),
        (Claimer(refuses=("a",)), None, "b", ["read a", "skip: another worker holds it", "read b", "begin b"]),
        (Claimer(last=("a",)), None, "b", ["read a", "read b", "begin b"]),
        (Claimer(last=("a",), refuses=("b",)), None, "a", ["read a", "read b", "skip: another worker holds it", "begin a"]),
        (Claimer(refuses=("a", "b")), None, "", ["read a", "skip: another worker holds it", "read b", "skip: another worker holds it"]),
        (Claimer(), lambda one: "it is closed" if one.labels == ("a",) else one, "b", ["read a", "skip: it is closed", "read b", "begin b"]),
    ],
)  # fmt: skip
def test_the_first_that_can_be_claimed_is_taken(
    claimer: Any, confirms: Any, title: str, done: list[str]
) -> None:
    tasks: Any = Tasks("a", "b", confirms=confirms)
    choice = claim_next(tasks, claimer, "print")
    assert tasks.done == done
    assert (choice.task.title if choice.task else "") == title
    assert choice.reason == ("" if title else "nothing is left")
    if claimer is not None and choice.task is not None:
        assert choice.task.branch_suffix == "-2"
        given_back = [lease.is_given_back for lease in claimer.leases]
        assert given_back == [True] * (len(given_back) - 1) + [False]
        assert choice.lease is claimer.leases[-1]


def test_a_claim_is_given_back_if_the_task_cannot_be_read_again() -> None:
    tasks: Any = Tasks("a", confirms=lambda _one: ForgeUnavailableError("away"))
    claimer: Any = Claimer()
    with pytest.raises(ForgeUnavailableError):
        claim_next(tasks, claimer, "print")
    assert [lease.is_given_back for lease in claimer.leases] == [True]


@table(
    ("claimer", "title", "claim", "is_last"),
    [
        (None, "a", 0, False),
        (Claimer(), "a", 4, False),
        (Claimer(refuses=("a",)), "b", 4, False),
        (Claimer(last=("a", "b")), "a", 4, True),
        (Claimer(refuses=("a", "b")), "", 0, False),
    ],
)
def test_a_look_finds_what_would_be_claimed(claimer: Any, title: str, claim: int, *, is_last: bool) -> None:
    tasks: Any = Tasks("a", "b")
    found = find_next(tasks, claimer, "print")
    if not title:
        assert found == Choice(None, "nothing is left")
        return
    assert isinstance(found, FoundTask)
    assert (found.title, found.attempt, found.claim, found.is_last) == (
        title,
        f"attempt {title}",
        claim,
        is_last,
    )
    assert not [one for one in tasks.done if one.startswith("begin")]


class Parts:
    """Of a cycle's parts, what a claim needs."""

    run = "run-1"
    operator: Any = None
    least = Caps()
    folder: Any = None

    def __init__(self, granted: Any = None) -> None:
        self.told: list[Event] = []
        self.shown: list[tuple[Any, ...]] = []
        self.emit, self.stop = self.told.append, Stop()
        self.tasks, self.claimer = Tasks("a"), Claimer()
        self.granted, self.asked = granted, list[tuple[Spent, float | None]]()
        self.budget = SimpleNamespace(open=self._open)
        self.forge = SimpleNamespace(
            ensure_comment=lambda *words: self.shown.append(words),
            ensure_label=lambda *words: self.shown.append(words),
        )

    async def _open(self, _folder: Any, before: Spent, _emit: Any, _least: Any, cap: float | None) -> Any:
        self.asked.append((before, cap))
        if isinstance(self.granted, Exception):
            raise self.granted
        return self.granted


async def test_a_claimed_task_has_its_budget_reserved() -> None:
    parts: Any = Parts(Caps(1.0, 2, 3.0, 4))
    choice = await claim_task(parts, "print")
    assert choice.limits == Limits(4, 2, 1.0, 3.0)
    assert choice.spent_before == Spent()
    assert parts.asked == [(Spent(), None)]
    nothing: Any = Parts()
    nothing.tasks = Tasks()
    assert await claim_task(nothing, "print") == Choice(None, "nothing is left")


@pytest.mark.parametrize("granted", [Refused("the day is spent", "day", NOW), RemoteUnavailableError("away")])
async def test_a_task_without_a_budget_is_given_back(granted: Any) -> None:
    parts: Any = Parts(granted)
    if isinstance(granted, Exception):
        with pytest.raises(RemoteUnavailableError):
            await claim_task(parts, "print")
    else:
        choice = await claim_task(parts, "print")
        assert (choice.task, choice.wake_at) == (None, NOW)
        assert choice.reason.endswith(": the day is spent")
    assert parts.tasks.done[-1] == "put back"
    assert [lease.is_given_back for lease in parts.claimer.leases] == [True]


@pytest.mark.parametrize("found", [True, False])
async def test_a_person_s_own_work_takes_the_place_of_what_was_saved(*, found: bool) -> None:
    prepared = Earlier(UnfinishedState("r", "limit", "m", "c", "p"), None, "", None)
    parts: Any = Parts()
    parts.operator = SimpleNamespace(prepared_work=prepared, spent=Spent(usd=2.0))
    if found:
        key = parts.tasks.found[0].known.key
        parts.claimer.earlier[key] = replace(prepared, commit="1" * 40, branch="b")
    choice = await claim_task(parts, "print")
    assert choice.earlier == (replace(prepared, commit="1" * 40, branch="b") if found else prepared)
    assert choice.spent_before == Spent(usd=2.0)
    assert parts.asked == [], "no model is asked"


PULL = PullRequest(9, "Add", "", "u", False, PullRequestState.OPEN, "b", "main", "1" * 40)


@table(
    ("task", "previous", "shown"),
    [
        (ISSUE, None, [(7, "pullwright:working")]),
        (ISSUE, SimpleNamespace(outcome="waits", state="released", run="r"), [(7, "waits", ""), (7, "pullwright:working")]),
        (ISSUE, SimpleNamespace(outcome="failed", state="released", run="r"), [(7, "pullwright:working")]),
        (replace(ISSUE, number=None), SimpleNamespace(outcome="waits", state="released", run="r"), []),
        (replace(ISSUE, number=None, pull=PULL, kind=TaskKind.REVIEW), SimpleNamespace(outcome="waits", state="held", run="r-0"), [(9, "waits", "")]),
    ],
)  # fmt: skip
def test_people_see_that_a_task_is_worked_on(task: Task, previous: Any, shown: list[tuple[Any, ...]]) -> None:
    parts: Any = Parts()
    lease: Any = Lease(previous)
    done: list[str] = []
    choice = Choice(
        task, lease=lease, after_claim=(lambda: done.append("after"),), spent_before=Spent(usd=1.0)
    )
    asyncio.run(show_claim(parts, choice))
    assert (parts.shown, done) == (shown, ["after"])
    (event,) = parts.told
    assert event == claimed_event(lease, Spent(usd=1.0))
    assert isinstance(event, Claimed)
    taken_over = previous is not None and previous.state == "held"
    assert "r-0" in str(event) if taken_over else "r-0" not in str(event)


async def test_without_a_claim_nothing_is_shown() -> None:
    parts: Any = Parts()
    await show_claim(parts, Choice(ISSUE))
    await show_claim(parts, Choice(None, lease=Lease()))  # type: ignore[arg-type]
    assert (parts.shown, parts.told) == ([], [])


@pytest.mark.parametrize(
    ("cap", "before", "granted", "spent", "words", "lower"),
    [
        (None, Spent(), None, Spent(), "", False),
        (5.0, Spent(), None, Spent(usd=1.5), "Up to $5.00", False),
        (5.0, Spent(), Limits(usd=5.0), Spent(usd=0.0), "$0.00 was spent before", False),
        (5.0, Spent(), Limits(usd=2.0), Spent(usd=0.0), "at most $2.00 in this run", True),
        (5.0, Spent(usd=3.0), Limits(usd=2.0), Spent(usd=3.0), "$3.00 was spent before", False),
        (5.0, Spent(usd=3.0), Limits(usd=1.996), Spent(usd=3.0), "$3.00 was spent before", False),
        (5.0, Spent(usd=None), Limits(usd=1.0), Spent(usd=None), "What was spent is not known", True),
    ],
)
async def test_a_person_s_cap_is_shown(  # noqa: PLR0913  a table
    *, cap: float | None, before: Spent, granted: Limits | None, spent: Spent, words: str, lower: bool
) -> None:
    parts: Any = Parts()
    choice = Choice(replace(ISSUE, usd_cap=cap), limits=granted, spent_before=before)
    await show_cap(parts, choice, spent)
    assert len(parts.shown) == (cap is not None)
    if parts.shown:
        ((number, key, body),) = parts.shown
        assert (number, key) == (7, "cap")
        assert words in body
        assert ("operator's own limit is lower" in body) is lower
    await show_cap(parts, replace(choice, task=replace(ISSUE, usd_cap=5.0)), Spent(usd=4.0), is_over=True)
    assert "It has cost $4.00." in parts.shown[-1][2]


async def test_what_a_forge_does_not_take_is_a_warning() -> None:
    parts: Any = Parts()

    def fail() -> None:
        raise ForgeUnavailableError("away")

    await show_on_forge(parts, fail)
    assert parts.told == [Warned("away")]


@table(
    ("task", "place"),
    [
        (ISSUE, 7),
        (from_text("Add"), None),
        (replace(ISSUE, pull=PULL), 9),
        (replace(ISSUE, number=None, pull=PULL), 9),
    ],
)
def test_where_people_read_that_a_task_waits(task: Task, place: int | None) -> None:
    assert waiting_place(task) == place
    shown: list[tuple[Any, ...]] = []
    forge: Any = SimpleNamespace(ensure_comment=lambda *words: shown.append(words))
    tell_waiting(forge, place, "its worker died", "run-1", "pullwright retry issue-7")
    assert [words[:2] for words in shown] == ([(place, "waits")] if place else [])
    assert all("its worker died" in body and "pullwright retry issue-7" in body for _, _, body in shown)


@pytest.mark.parametrize("titles", [("a",), ()])
async def test_a_look_frees_the_claims_of_dead_runs_first(tmp_path: Path, titles: tuple[str, ...]) -> None:
    parts: Any = Parts()
    parts.tasks, parts.recover = Tasks(*titles), lambda: DeadRuns(Home(tmp_path), frozenset({"run-here"}))
    parts.claimer.dead_runs, parts.claimer.waiting = set(), {"issue-8": "its worker died"}
    closed: list[tuple[str, Spent]] = []

    async def close(run: str, spent: Spent) -> None:
        closed.append((run, spent))

    parts.budget.close = close
    parts.guards = SimpleNamespace(redactor=Redactor())
    forge = SimpleNamespace(traffic=Traffic, quotas=list, fingerprint=lambda: "print")
    start: Any = SimpleNamespace(
        run="run-1",
        forge=forge,
        emit=parts.emit,
        event=Warned("begun"),
        minutes=None,
        rules_file=SimpleNamespace(text=lambda _fingerprint: None),
        parts=lambda _text: (parts, ["a rule is not known"]),
        assignment=Assignment(only_look=True, dead_runs=("run-elsewhere",)),
        stop=parts.stop,
    )
    result = await run_cycle(start)
    assert result.error is None
    assert parts.claimer.dead_runs.known == {"run-here", "run-elsewhere"}
    assert result.outcome is (Outcome.FOUND if titles else Outcome.NO_TASK)
    assert (result.found is not None, result.reason) == (bool(titles), None if titles else "nothing is left")
    assert result.waits == {"issue-8": "its worker died"}
    assert closed == [("run-1", Spent())]
    assert [type(event) for event in parts.told] == [Warned, Guarded, PhaseEntered, CycleEnded]


@table(
    ("error", "outcome"),
    [
        (WithdrawnError("it was closed"), Outcome.WITHDRAWN),
        (SupersededError("the base has it"), Outcome.SUPERSEDED),
        (BaseConflictError("it does not fit"), Outcome.CONFLICT),
        (ConnectionFailedError("away"), Outcome.PAUSED),
        (RateLimitError("later"), Outcome.PAUSED),
        (RemoteUnavailableError("away"), Outcome.PAUSED),
        (BadReplyError("no plan"), Outcome.FAILED),
    ],
)
def test_the_outcome_of_an_error(error: Any, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome
    result = CycleResult("run-1")
    result.end_by(error)
    told = (
        (str(error), None)
        if isinstance(error, (WithdrawnError, SupersededError, BaseConflictError))
        else (None, str(error))
    )
    assert (result.outcome, result.cause) == (outcome, error)
    assert (result.reason, result.error) == told


def test_a_result_in_json_has_what_others_use() -> None:
    result = CycleResult("run-1", Outcome.PROPOSED, ISSUE, usage=Usage(3, 4), minutes=1.23456, wake_at=NOW)
    shown = result.to_json()
    assert shown["task"] == {"key": "issue-7", "title": "Add", "source": "issue", "number": 7, "url": None}
    assert (shown["outcome"], shown["minutes"], shown["wake_at"]) == (
        "proposed",
        1.23,
        "2026-11-21T00:00:00+00:00",
    )
    assert shown["usage"]["total_tokens"] == 7
    assert not {"quotas", "found", "is_over", "cause", "unasked"} & shown.keys()
    assert CycleResult("run-1").to_json()["wake_at"] is None
    assert (CycleResult("r").proof, CycleResult("r", tests={"proof": "passed"}).proof) == (None, "passed")
    assert replace(result, uncertain_tokens=5, rounds=2, usd=None).spent == Spent(None, 12, 1.23456, 2)
