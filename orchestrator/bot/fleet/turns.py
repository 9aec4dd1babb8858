"""Turns: the items of a fleet's queue, their priorities, and which turn follows another.

Each repository has one turn at a time: a look at its backlog, or the cycle on one task. A turn that ends
queues the next one, at once or with a delay, so the queue is also the schedule.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, assert_never

from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.cycle.tasks import TaskKind
from orchestrator.bot.journal.index import Pause
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson, NothingToDo, StartAgain

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStep


class Priority(IntEnum):
    """The order of turns of all repositories. Turns with the same priority are ordered by age."""

    LOOK = 10
    """A look takes seconds, and finds tasks with a higher priority."""
    ASKED = 15
    """A task that a person wants to be tried next."""
    FEEDBACK = 20
    """Reviews and failed checks."""
    UPKEEP = 30
    """Unfinished work, and pull requests on an old base."""
    NEW = 40


_PRIORITIES = {
    TaskKind.REVIEW: Priority.FEEDBACK,
    TaskKind.CHECKS: Priority.FEEDBACK,
    TaskKind.REBASE: Priority.UPKEEP,
    TaskKind.UNFINISHED: Priority.UPKEEP,
}
_MOST_TITLE_CHARS = 120


@dataclass(frozen=True, slots=True)
class RepositoryTurn:
    """One repository's turn: a look at its backlog, or the cycle on one task.

    Attributes:
        repository: the repository's key, as `repository_key` returns it.
        number: counts the turns of the repository, so it is unique there.
        task: the task's key; empty for a look.
        claim: the fencing number that the cycle's claim will have if no other worker claims the task before.
        kind: the task's `TaskKind`; empty if a person named the task.
        attempt: the key under which the task is recorded as attempted.
        attempted: tasks attempted since the last scheduled time.
        failures: number of failed cycles of the repository in a row.
        renewed: whether the scheduled time has come, so that attempted tasks may be tried again.
        dead_runs: runs of dead workers, whose claims may be taken over.
    """

    repository: str
    number: int
    task: str = ""
    claim: int = 0
    kind: str = ""
    title: str = ""
    attempt: str = ""
    attempted: tuple[str, ...] = ()
    failures: int = 0
    renewed: bool = False
    dead_runs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the turn's workflow: repository, task, fencing number and number of the turn."""
        return f"{self.repository}:{self.task or 'look'}:{self.claim}:{self.number}"

    @property
    def priority(self) -> Priority:
        """The turn's priority among those of all repositories."""
        if not self.task:
            return Priority.LOOK
        return _PRIORITIES.get(TaskKind(self.kind), Priority.NEW) if self.kind else Priority.ASKED

    def again(self, *, dead_run: str = "") -> RepositoryTurn:
        """Return a repetition of a turn that did not complete.

        Args:
            dead_run: the run of a dead worker that had the turn; its claim is replaced by one with the next number.
        """
        dead = (*self.dead_runs, dead_run) if dead_run else self.dead_runs
        claim = self.claim + 1 if dead_run and self.task else self.claim
        return replace(self, number=self.number + 1, claim=claim, dead_runs=dead)

    def for_new_worker(self) -> RepositoryTurn:
        """Return the turn for a newly started worker, in which attempted tasks may be tried again."""
        return replace(self, number=self.number + 1, attempted=(), failures=0, renewed=True)

    def look(
        self, *, attempted: Collection[str] = (), failures: int = 0, renewed: bool = False
    ) -> RepositoryTurn:
        """Return a look at the backlog that follows this turn."""
        return RepositoryTurn(
            self.repository,
            self.number + 1,
            attempted=tuple(sorted(attempted)),
            failures=failures,
            renewed=renewed,
            dead_runs=() if renewed else self.dead_runs,
        )

    def to_json(self) -> dict[str, Any]:
        """Encode the turn for the queue."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RepositoryTurn:
        """Decode a turn that `to_json` encoded."""
        lists = {key: tuple(data[key]) for key in ("attempted", "dead_runs")}
        return cls(**{**data, **lists})


@dataclass(frozen=True, slots=True)
class QueuedTurn:
    """A waiting or running turn.

    Attributes:
        state: `queued`, `delayed`, or `running`.
        at: start of a running turn, or earliest start of a delayed one; None for a queued one.
        worker: the worker that runs it; empty if none does.
    """

    turn: RepositoryTurn
    workflow: str
    state: str
    at: datetime | None
    worker: str
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class Following:
    """The turn that follows another, and when.

    Attributes:
        turn: the repository's next turn; None if there is none until a person has done something.
        at: its earliest start.
        pause: a pause of the repository that is longer than its schedule.
        halted: what the person has to do.
    """

    turn: RepositoryTurn | None
    at: datetime
    pause: Pause | None = None
    halted: str = ""


def following(  # noqa: PLR0913, PLR0917  a turn, its result, and the times of the repository
    turn: RepositoryTurn,
    result: CycleResult,
    step: NextStep,
    attempted: Collection[str],
    schedule: Schedule,
    began: datetime,
    now: datetime,
    jitter: float,
) -> Following:
    """Return which turn follows one that was run.

    Args:
        step: the worker's decision about the result.
        attempted: the tasks that have been attempted since the last scheduled time.
        began: when the turn began. The next look is at the first scheduled time after that.
        jitter: a random number from 0 to below 1, which spreads repositories that are scheduled for the same time.
    """
    if result.found is not None:
        found = result.found
        cycle = replace(
            turn.look(attempted=attempted, failures=turn.failures),
            task=found.key,
            claim=found.claim,
            kind=str(found.kind),
            title=" ".join(found.title.split())[:_MOST_TITLE_CHARS],
            attempt=found.attempt,
        )
        return Following(cycle, now)
    failed = result.outcome in {Outcome.PAUSED, Outcome.FAILED}
    look = turn.look(attempted=attempted, failures=turn.failures + 1 if failed else 0)
    is_gone = bool(turn.task) and result.task is None
    match step:
        case Pause():
            follows = Following(look, step.until, step)
        case NeedsPerson():
            follows = Following(None, now, halted=step.reason)
        case EndAsked():
            follows = Following(turn.look(attempted=turn.attempted, failures=turn.failures), now)
        case StartAgain():
            follows = Following(look, step.at)
        case NothingToDo(asked=True):
            follows = Following(look, now)
        case NothingToDo() if (
            is_gone
        ):  # the task was done or claimed elsewhere after the look; there may be others
            follows = Following(turn.look(attempted={*attempted, turn.attempt}), now)
        case NothingToDo():
            spread = timedelta(seconds=schedule.spread_seconds * jitter)
            follows = Following(turn.look(renewed=True), schedule.next_fire(began) + spread)
        case _:
            assert_never(step)
    return follows
