"""Which turn follows which: the queue as a function of values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.bot.cycle.parts import CycleResult, FoundTask, Outcome
from orchestrator.bot.cycle.tasks import TaskKind, from_text
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson, NothingToDo, StartAgain
from orchestrator.plugins.fleet.turns import Following, Priority, RepositoryTurn, following
from tests.tables import table

NOW = datetime(2026, 1, 1, 10, 3, tzinfo=UTC)
LOOK = RepositoryTurn("github.com/a/b", 7, attempted=("issue-1",), failures=2)
CYCLE = RepositoryTurn("github.com/a/b", 8, "issue-2", 4, "new", "Fix it", "issue-2", ("issue-1",))
TRIED = {"issue-1", "issue-2"}


def after(
    turn: RepositoryTurn,
    result: CycleResult,
    step: object,
    tried: set[str] = TRIED,
    began: datetime = NOW,
) -> Following:
    schedule = make_schedule("1h", None, "UTC", datetime(2026, 1, 1, tzinfo=UTC))
    assert schedule is not None
    return following(turn, result, step, tried, schedule, began, NOW, 0.5)  # type: ignore[arg-type]


def ended(outcome: Outcome, *, task: bool = True) -> CycleResult:
    return CycleResult("run", outcome, task=from_text("a task") if task else None)


def test_a_look_that_found_a_task_is_followed_by_its_cycle_under_an_id_that_tells_which() -> None:
    found = FoundTask("issue-2", "Fix\nit ", TaskKind.NEW, "issue-2", 4)
    follows = after(LOOK, CycleResult("run", Outcome.FOUND, found=found), StartAgain(NOW), {"issue-1"})
    assert follows.turn == RepositoryTurn(
        "github.com/a/b", 8, "issue-2", 4, "new", "Fix it", "issue-2", ("issue-1",), 2
    )
    assert follows.turn.id == "github.com/a/b:issue-2:4:8"
    assert follows.at == NOW


def test_a_look_that_found_nothing_waits_for_the_schedule_and_then_all_may_be_tried_again() -> None:
    follows = after(LOOK, ended(Outcome.NO_TASK, task=False), NothingToDo())
    assert follows.turn == RepositoryTurn("github.com/a/b", 8, renewed=True)
    assert follows.at == datetime(2026, 1, 1, 11, 2, 30, tzinfo=UTC)  # the hour, and half of the spread


def test_a_time_of_the_schedule_that_comes_while_a_turn_goes_on_is_not_lost() -> None:
    follows = after(
        LOOK, ended(Outcome.NO_TASK, task=False), NothingToDo(), began=NOW - timedelta(minutes=10)
    )
    assert follows.at == datetime(
        2026, 1, 1, 10, 2, 30, tzinfo=UTC
    )  # the hour at which it ran, which is over


def test_a_worker_that_begins_may_try_again_what_was_tried() -> None:
    assert CYCLE.for_new_worker() == RepositoryTurn(
        "github.com/a/b", 9, "issue-2", 4, "new", "Fix it", "issue-2", renewed=True
    )


def test_a_task_that_is_gone_meanwhile_is_not_chosen_again_and_others_are_looked_for_at_once() -> None:
    follows = after(CYCLE, ended(Outcome.NO_TASK, task=False), NothingToDo(), {"issue-1"})
    assert follows == Following(RepositoryTurn("github.com/a/b", 9, attempted=("issue-1", "issue-2")), NOW)


@table(
    "step, at, failed",
    [
        (StartAgain(NOW + timedelta(seconds=10)), NOW + timedelta(seconds=10), Outcome.PROPOSED),
        (Pause(NOW + timedelta(hours=2), "spent"), NOW + timedelta(hours=2), Outcome.PAUSED),
        (StartAgain(NOW), NOW, Outcome.QUESTION),
    ],
)
def test_after_a_cycle_comes_a_look(step: object, at: datetime, failed: Outcome) -> None:
    follows = after(CYCLE, ended(failed), step)
    failures = 1 if failed is Outcome.PAUSED else 0
    assert follows.turn == RepositoryTurn(
        "github.com/a/b", 9, attempted=("issue-1", "issue-2"), failures=failures
    )
    assert follows.at == at
    assert (follows.pause is not None) is isinstance(step, Pause)


def test_who_needs_a_person_has_no_next_turn() -> None:
    assert after(CYCLE, ended(Outcome.FAILED), NeedsPerson("no key")) == Following(None, NOW, halted="no key")


def test_what_was_interrupted_is_looked_for_again_by_whoever_comes_next() -> None:
    follows = after(CYCLE, ended(Outcome.INTERRUPTED), EndAsked())
    assert follows == Following(RepositoryTurn("github.com/a/b", 9, attempted=("issue-1",)), NOW)


def test_a_task_that_another_has_claimed_until_some_time_holds_up_no_other_task_of_its_repository() -> None:
    until = NOW + timedelta(hours=1)
    claimed = CycleResult("run", Outcome.NO_TASK, wake_at=until)
    follows = after(CYCLE, claimed, NothingToDo(wake_at=until), {"issue-1"})
    assert follows == Following(RepositoryTurn("github.com/a/b", 9, attempted=("issue-1", "issue-2")), NOW)


def test_a_turn_whose_worker_died_is_followed_by_a_look_behind_the_others() -> None:
    after = CYCLE.after_death("20260101-100000-abcdef")
    assert (after.number, after.task, after.dead_runs) == (9, "", ("20260101-100000-abcdef",))
    assert (after.deaths, after.priority) == (1, Priority.NEW)
    assert after.after_death("").deaths == 2
    assert LOOK.again().id == "github.com/a/b:look:0:8"
    assert after.again().deaths == 1


def test_deaths_count_until_a_turn_is_completed() -> None:
    look = LOOK.after_death("x")
    found = FoundTask("issue-2", "Two", TaskKind.REVIEW, "issue-2", 1)
    cycle = after(look, CycleResult("run", Outcome.FOUND, found=found), StartAgain(NOW), set()).turn
    assert cycle is not None
    assert (cycle.deaths, cycle.priority) == (1, Priority.NEW)
    done = after(cycle, CycleResult("run", Outcome.PROPOSED), StartAgain(NOW), set()).turn
    assert done is not None
    assert (done.deaths, done.priority) == (0, Priority.LOOK)
    suspect = CycleResult("run", Outcome.FOUND, found=replace(found, is_last=True))
    again = after(LOOK, suspect, StartAgain(NOW), set()).turn
    assert again is not None
    assert again.deaths == 1


def test_reviews_and_checks_come_before_new_issues() -> None:
    kinds = [kind for kind in TaskKind if kind is not TaskKind.NEW]
    first = [RepositoryTurn("r", 1, "issue-1", kind=str(kind)).priority for kind in kinds]
    assert max(first) < RepositoryTurn("r", 1, "issue-1", kind="new").priority == Priority.NEW
    assert (
        RepositoryTurn("r", 1).priority
        == Priority.LOOK
        < RepositoryTurn("r", 1, "issue-1", kind="review").priority
    )


def test_what_the_queue_holds_reads_back() -> None:
    for turn in (LOOK, CYCLE, CYCLE.after_death("x")):
        assert RepositoryTurn.from_json(turn.to_json()) == turn
