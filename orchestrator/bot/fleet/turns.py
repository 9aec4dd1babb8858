"""Turns: what a fleet's queue holds, and which turn follows which.

Each repository has one turn at a time: a look at its backlog, or the cycle on one task. The turn that ends
makes the next one, at once or for later, so that a queue of turns is the schedule, too.
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
    """Which turns come first, of all repositories; turns of one priority come in the order of their age."""

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
        repository: its key, as `repository_key` makes it.
        number: counts the turns of the repository; no two have the same.
        task: the key of the task; empty for a look.
        claim: the fencing number that the cycle's claim has if nobody else claims before.
        kind: of the task, a `TaskKind`; empty where a person named the task.
        attempt: the name under which the task counts as tried.
        attempted: what was tried since the schedule's last time.
        failures: cycles of the repository that failed one after another.
        renewed: the time of the schedule has come: what was tried may be tried again.
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
        """The id of its workflow: repository, task, the claim's number, and the turn's."""
        return f"{self.repository}:{self.task or 'look'}:{self.claim}:{self.number}"

    @property
    def priority(self) -> Priority:
        """Which turns of other repositories come before it."""
        if not self.task:
            return Priority.LOOK
        return _PRIORITIES.get(TaskKind(self.kind), Priority.NEW) if self.kind else Priority.ASKED

    def again(self, *, dead_run: str = "") -> RepositoryTurn:
        """The same once more, where it came to no end. A claim that was lost with its worker has a next number."""
        dead = (*self.dead_runs, dead_run) if dead_run else self.dead_runs
        claim = self.claim + 1 if dead_run and self.task else self.claim
        return replace(self, number=self.number + 1, claim=claim, dead_runs=dead)

    def anew(self) -> RepositoryTurn:
        """The same, for a worker that begins: what was tried may be tried again."""
        return replace(self, number=self.number + 1, attempted=(), failures=0, renewed=True)

    def look(
        self, *, attempted: Collection[str] = (), failures: int = 0, renewed: bool = False
    ) -> RepositoryTurn:
        """The look that follows."""
        return RepositoryTurn(
            self.repository,
            self.number + 1,
            attempted=tuple(sorted(attempted)),
            failures=failures,
            renewed=renewed,
            dead_runs=() if renewed else self.dead_runs,
        )

    def to_json(self) -> dict[str, Any]:
        """As the queue holds it: names and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RepositoryTurn:
        """Read what `to_json` made."""
        lists = {key: tuple(data[key]) for key in ("attempted", "dead_runs")}
        return cls(**{**data, **lists})


@dataclass(frozen=True, slots=True)
class Following:
    """What follows a turn.

    Attributes:
        turn: the repository's next turn; None where a person has to do something first.
        at: when it may begin.
        pause: until when nothing of the repository is begun, if that is more than its schedule.
        halted: what a person has to do, where there is no next turn.
    """

    turn: RepositoryTurn | None
    at: datetime
    pause: Pause | None = None
    halted: str = ""


def put_back(turn: RepositoryTurn, at: datetime) -> Following:
    """The same turn again, which was not played."""
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
    """What follows a turn that was played.

    Args:
        step: what the worker's rules say of the result.
        attempted: what counts as tried now.
        began: when the turn began. A time of the schedule that came since then is not lost.
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
