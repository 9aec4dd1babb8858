"""Turns: the items of a fleet's queue, and the order in which they follow.

Each repository has one turn at a time: a look at its backlog, or the cycle on one task. A turn that ends
queues the next one, now or for later, so the queue is also the schedule.
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
    """It takes seconds, and only it finds what comes before other things."""
    ASKED = 15
    """A person wants this task tried next."""
    FEEDBACK = 20
    """Reviews, and checks that failed."""
    UPKEEP = 30
    """Work that was begun, and pull requests on an old base."""
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
        repository: its key from `repository_key`.
        number: counts the turns of the repository, so it is unique there.
        task: the task's key; empty for a look.
        claim: the fencing number of the cycle's claim if nobody else claims before.
        kind: the task's `TaskKind`; empty if a person named the task.
        attempt: the key that marks the task as already attempted.
        attempted: tasks attempted since the last scheduled time.
        failures: number of failed cycles of the repository in a row.
        renewed: whether the scheduled time has come, so that attempted tasks may be tried again.
        dead_runs: runs that were lost with their workers, whose claims are free.
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
        """The id of its workflow: repository, task, and the numbers of claim and turn."""
        return f"{self.repository}:{self.task or 'look'}:{self.claim}:{self.number}"

    @property
    def priority(self) -> Priority:
        """Its priority among the turns of other repositories."""
        if not self.task:
            return Priority.LOOK
        return _PRIORITIES.get(TaskKind(self.kind), Priority.NEW) if self.kind else Priority.ASKED

    def again(self, *, dead_run: str = "") -> RepositoryTurn:
        """Return a repetition of a turn that did not complete. A lost claim is replaced by one with the next number."""
        dead = (*self.dead_runs, dead_run) if dead_run else self.dead_runs
        claim = self.claim + 1 if dead_run and self.task else self.claim
        return replace(self, number=self.number + 1, claim=claim, dead_runs=dead)

    def anew(self) -> RepositoryTurn:
        """Return the turn for a newly started worker, in which attempted tasks may be tried again."""
        return replace(self, number=self.number + 1, attempted=(), failures=0, renewed=True)

    def look(
        self, *, attempted: Collection[str] = (), failures: int = 0, renewed: bool = False
    ) -> RepositoryTurn:
        """Return the look that follows."""
        return RepositoryTurn(
            self.repository,
            self.number + 1,
            attempted=tuple(sorted(attempted)),
            failures=failures,
            renewed=renewed,
            dead_runs=() if renewed else self.dead_runs,
        )

    def to_json(self) -> dict[str, Any]:
        """Encode the turn for the queue, as names and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RepositoryTurn:
        """Decode what `to_json` made."""
        lists = {key: tuple(data[key]) for key in ("attempted", "dead_runs")}
        return cls(**{**data, **lists})


@dataclass(frozen=True, slots=True)
class Following:
    """What follows a turn.

    Attributes:
        turn: the repository's next turn; None if a person has to do something first.
        at: its earliest start.
        pause: a pause of the repository that is longer than its schedule.
        halted: what a person has to do if there is no next turn.
    """

    turn: RepositoryTurn | None
    at: datetime
    pause: Pause | None = None
    halted: str = ""


def put_back(turn: RepositoryTurn, at: datetime) -> Following:
    """Return the same turn again, because it was not played."""
    return Following(turn.again(), at)


def following(  # noqa: PLR0913, PLR0917  a turn, what came of it, and what a repository knows of time
    turn: RepositoryTurn,
    result: CycleResult,
    step: NextStep,
    attempted: Collection[str],
    schedule: Schedule,
    began: datetime,
    now: datetime,
    jitter: float,
) -> Following:
    """Return what follows a turn that was played.

    Args:
        step: the decision of the worker's rules about the result.
        attempted: the tasks that now count as attempted.
        began: when the turn began. A scheduled time since then is not lost.
        jitter: from 0 up to 1; spreads repositories whose schedules have the same time.
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
        case NothingToDo() if is_gone:  # done, or claimed by another, after the look; there may be others
            follows = Following(turn.look(attempted={*attempted, turn.attempt}), now)
        case NothingToDo():
            spread = timedelta(seconds=schedule.spread_seconds * jitter)
            follows = Following(turn.look(renewed=True), schedule.next_fire(began) + spread)
        case _:
            assert_never(step)
    return follows
