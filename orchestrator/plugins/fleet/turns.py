"""Turns: the items of a fleet's queue, their priorities, which turn follows another, and the limits of all turns.

Each repository has one turn at a time: a look at its backlog, or the cycle on one task. A turn that ends
queues the next one, at once or with a delay, so the queue is also the schedule.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import sqlalchemy as sa

from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.cycle.tasks import TaskKind
from orchestrator.bot.forge.base import RequestQuota
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson, NothingToDo, StartAgain
from orchestrator.plugins.fleet.database import (
    caps_table,
    cycles_table,
    quota_users_table,
    quotas_table,
    request_quotas_table,
    to_ms,
)
from orchestrator.plugins.fleet.rows import (
    MOST_MS,
    MOST_USD,
    RowReader,
    Rows,
    UnreadableRow,
    UnreadableRowError,
    raw,
    read_row,
    read_rows,
    sound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import date, datetime

    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStep
    from orchestrator.plugins.fleet.database import FleetDatabase


T = TypeVar("T")


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
        deaths: how many workers in a row died during turns of the repository, or of the task, until one was completed.
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
    deaths: int = 0

    @property
    def id(self) -> str:
        """The id of the turn's workflow: repository, task, fencing number and number of the turn."""
        return f"{self.repository}:{self.task or 'look'}:{self.claim}:{self.number}"

    @property
    def priority(self) -> Priority:
        """The turn's priority among those of all repositories."""
        if self.deaths:  # behind the others
            return Priority.NEW
        if not self.task:
            return Priority.LOOK
        return _PRIORITIES.get(TaskKind(self.kind), Priority.NEW) if self.kind else Priority.ASKED

    def again(self) -> RepositoryTurn:
        """Return a repetition of a turn that did not begin."""
        return replace(self, number=self.number + 1)

    def after_death(self, dead_run: str) -> RepositoryTurn:
        """Return the look that follows a turn whose worker died. It finds other tasks before the same one.

        Args:
            dead_run: the run of the dead worker; empty if none began.
        """
        dead = (*self.dead_runs, dead_run) if dead_run else self.dead_runs
        look = self.look(attempted=self.attempted, failures=self.failures)
        return replace(look, renewed=self.renewed, dead_runs=dead, deaths=self.deaths + 1)

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
    def from_fields(cls, fields: RowReader) -> RepositoryTurn:
        """Decode a turn that `to_json` encoded. Fields that only another version knows are left out."""

        def given(name: str, read: Callable[[str], T], otherwise: T) -> T:
            return read(name) if fields.has(name) else otherwise

        return cls(
            fields.key("repository"),
            fields.whole("number"),
            task=given("task", fields.text, ""),
            claim=given("claim", fields.whole, 0),
            kind=given("kind", lambda name: fields.one_of(name, ("", *TaskKind)), ""),
            title=given("title", fields.text, ""),
            attempt=given("attempt", fields.text, ""),
            attempted=given("attempted", fields.texts, ()),
            failures=given("failures", fields.whole, 0),
            renewed=given("renewed", fields.flag, False),
            dead_runs=given("dead_runs", fields.texts, ()),
            deaths=given("deaths", fields.whole, 0),
        )

    @classmethod
    def from_json(cls, data: object) -> RepositoryTurn:
        """Decode a turn that the queue gives back.

        Raises:
            UnreadableRowError: it is no turn.
        """
        fields = data if isinstance(data, dict) else {}
        found = read_row("workflow_status", "repository", fields, cls.from_fields)
        if isinstance(found, UnreadableRow):
            raise UnreadableRowError(found.words)
        return found


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
            deaths=max(turn.deaths, int(found.is_last)),
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


MOST_DEATHS = 3
"""After so many workers in a row died, the last while it looked at a repository, a person has to look at it."""

DEATH_DELAY = timedelta(minutes=5)
"""How long a repository rests after the second worker in a row died while it looked at it."""

DAY_CAP = "max_usd_per_day"
"""Name of the cap on money for all cycles of a UTC day."""


def daily_cap_reached(most_usd: float) -> str:
    """Return the reason why no further cycle starts today."""
    return f"the fleet has reached its limit of {most_usd:g} US dollars a day ({DAY_CAP})"


@dataclass(frozen=True, slots=True)
class DailyCost:
    """A repository's number of cycles and their cost on one day."""

    repository: str
    day: date
    cycles: int
    usd: float


class FleetLimits:
    """Reads and changes the limits of all workers' turns."""

    def __init__(self, database: FleetDatabase) -> None:
        self._db = database

    # --- money ---

    def start_cycle(
        self, turn: RepositoryTurn, worker: str, run: str, reserve: float, most_usd: float | None
    ) -> bool:
        """Record that a turn begins, and reserve the most that it can cost.

        Args:
            most_usd: limit for all cycles of the fleet in a UTC day; None is no limit.

        Returns:
            False if the reservation exceeds the limit.
        """

        def change(c: sa.Connection) -> bool:
            if most_usd is not None:
                self._lock_costs(c)
                if self._spent(c) + reserve > most_usd:
                    return False
            values = {"worker": worker, "run": run, "began": self._db.now(), "reserved": reserve}
            row = {"repository": turn.repository, "task": turn.task, "title": turn.title, "claim": turn.claim}
            c.execute(
                self._db.insert(cycles_table)
                .values(workflow=turn.id, **row, **values)
                .on_conflict_do_nothing()
            )
            return True

        return self._db.transaction(change)

    def spent_today(self) -> float:
        """Return the cost of the fleet's cycles today (UTC), including reservations."""
        return self._db.transaction(self._spent)

    def _spent(self, c: sa.Connection) -> float:
        return c.scalar(sa.select(sa.func.sum(_cost())).where(self.began_since(self._db.day()))) or 0.0

    def began_since(self, since: datetime) -> sa.ColumnElement[bool]:
        """Return the condition that a cycle began at a time or later. Clocks of machines differ by less than a day."""
        return cycles_table.c.began.between(to_ms(since), self._latest_ms())

    def _latest_ms(self) -> int:
        return to_ms(self._db.clock.now() + timedelta(days=1))

    def unreadable_cycles(self) -> Rows[str]:
        """Return the recorded cycles that cannot be read, and so count for nothing."""
        t, latest = cycles_table.c, self._latest_ms()
        is_sound = sa.and_(
            sound(t.began, latest),
            sa.or_(t.ended.is_(None), sound(t.ended, MOST_MS)),
            sound(t.reserved, MOST_USD),
            sa.or_(t.usd.is_(None), sound(t.usd, MOST_USD)),
        )
        query = sa.select(*raw(*cycles_table.c)).where(sa.or_(is_sound.is_(None), sa.not_(is_sound)))
        found = self._db.rows(query.limit(_MOST_UNREADABLE))
        return read_rows("pullwright_cycles", "workflow", found, lambda row: _cycle(row, latest))

    # --- quotas ---

    def pause_quota(self, quota: str, pause: Pause) -> None:
        """Pause all repositories that share a used-up quota."""
        row = {"until": to_ms(pause.until), "reason": pause.reason}

        def change(c: sa.Connection) -> None:
            insert = self._db.insert(quotas_table).values(quota=quota, **row)
            later = insert.excluded.until > quotas_table.c.until
            c.execute(insert.on_conflict_do_update(index_elements=["quota"], set_=row, where=later))

        self._db.transaction(change)

    def pause_of(self, quota: str) -> Pause | None:
        """Return the pause of a quota, if it is not over."""
        query = sa.select(*raw(*quotas_table.c)).where(
            quotas_table.c.quota == quota, quotas_table.c.until > self._db.now()
        )
        found = read_rows("pullwright_quotas", "quota", self._db.rows(query), _pause)
        return found[0][1] if found else None

    def forget_quota(self, c: sa.Connection, quota: str) -> None:
        """End the pause of a quota, in a transaction."""
        c.execute(sa.delete(quotas_table).where(quotas_table.c.quota == quota))

    def model_pauses(self) -> Rows[tuple[str, Pause]]:
        """Return the pauses that are not over, each with its quota."""
        is_damaged = sa.not_(sound(quotas_table.c.until, MOST_MS))
        query = sa.select(*raw(*quotas_table.c)).where(
            sa.or_(quotas_table.c.until.is_(None), quotas_table.c.until > self._db.now(), is_damaged)
        )
        return read_rows("pullwright_quotas", "quota", self._db.rows(query), _pause)

    # --- requests to a forge ---

    def save_request_quotas(self, repository: str, quotas: Sequence[RequestQuota]) -> None:
        """Store a forge's remaining request quotas, for all machines."""
        if not quotas:
            return
        seen = self._db.now()

        def change(c: sa.Connection) -> None:
            for one in quotas:
                row = {"most": one.limit, "remaining": one.remaining, "reset": to_ms(one.reset), "seen": seen}
                insert = self._db.insert(request_quotas_table).values(
                    name=one.name, resource=one.resource, **row
                )
                c.execute(insert.on_conflict_do_update(index_elements=["name", "resource"], set_=row))
            name = {"name": quotas[0].name}
            used = self._db.insert(quota_users_table).values(repository=repository, **name)
            c.execute(used.on_conflict_do_update(index_elements=["repository"], set_=name))

        self._db.transaction(change)

    def request_quotas(self) -> Rows[RequestQuota]:
        """Return the last known request quotas, by name, without those that were reset since."""
        t = request_quotas_table
        is_damaged = sa.not_(sound(t.c.reset, MOST_MS))
        query = (
            sa.select(*raw(*t.c))
            .where(sa.or_(t.c.reset.is_(None), t.c.reset > self._db.now(), is_damaged))
            .order_by(t.c.name, t.c.resource)
        )
        return read_rows("pullwright_request_quotas", "name", self._db.rows(query), _request_quota)

    def request_pause(self, repository: str) -> Pause | None:
        """Return the pause of a repository whose request quota is used up; None if it is not."""
        quotas, users = request_quotas_table, quota_users_table
        query = (
            sa.select(*raw(*quotas.c))
            .join(users, users.c.name == quotas.c.name)
            .where(users.c.repository == repository, quotas.c.remaining == 0, quotas.c.reset > self._db.now())
        )
        found = read_rows("pullwright_request_quotas", "name", self._db.rows(query), _request_quota)
        if not found:
            return None
        last = max(found, key=lambda one: one.reset)
        # The time of the reset is rounded to a second, and at most an hour away.
        until = min(last.reset + timedelta(seconds=1), self._db.clock.now() + timedelta(hours=1))
        return Pause(until, f"the requests of {last.name} for this hour are used up")

    def forget_quotas(self, before: datetime) -> None:
        """Delete request quotas that were reset before a time."""
        old = request_quotas_table.c.reset < to_ms(before)
        self._db.change(sa.delete(request_quotas_table).where(old))

    # --- caps ---

    def declare_cap(self, name: str, value: float | None) -> None:
        """Store a cap that a worker was started with, for display; None is no cap."""
        change: sa.UpdateBase = sa.delete(caps_table).where(caps_table.c.name == name)
        if value is not None:
            insert = self._db.insert(caps_table).values(name=name, value=value)
            change = insert.on_conflict_do_update(index_elements=["name"], set_={"value": value})
        self._db.change(change)

    def caps(self) -> Rows[tuple[str, float]]:
        """Return the caps of the worker that was started last, each with its name."""
        rows = self._db.rows(sa.select(*raw(*caps_table.c)))
        return read_rows("pullwright_caps", "name", rows, lambda row: (row.text("name"), row.number("value")))

    def daily_costs(self, since: datetime) -> Rows[DailyCost]:
        """Return the cost of each repository and day (UTC) as the cap counts it, including reservations."""
        t = cycles_table
        # A literal: with two parameters, PostgreSQL does not recognize the two expressions as the same.
        began = (t.c.began - t.c.began % sa.literal_column("86400000")).label("day")
        query = (
            sa.select(
                *raw(t.c.repository),
                began,
                sa.func.count().label("cycles"),
                sa.func.sum(_cost()).label("usd"),
            )
            .where(self.began_since(since), t.c.task != "")
            .group_by(t.c.repository, began)
        )
        return read_rows("pullwright_cycles", "repository", self._db.rows(query), _daily_cost)

    def _lock_costs(self, c: sa.Connection) -> None:
        """Lock the table of costs for this transaction. SQLite has only one writer anyway."""
        if self._db.is_shared:
            c.execute(sa.text("LOCK TABLE pullwright_cycles IN SHARE ROW EXCLUSIVE MODE"))


_MOST_UNREADABLE = 100


def _cost() -> sa.ColumnElement[Any]:
    """Return what a cycle cost, or the most that it can cost while it runs. What cannot be read counts as nothing."""
    t = cycles_table.c
    return sa.case((sound(t.usd, MOST_USD), t.usd), (sound(t.reserved, MOST_USD), t.reserved), else_=0.0)


def _cycle(row: RowReader, latest: int) -> str:
    row.moment("began", latest)
    if row.has("ended"):
        row.moment("ended")
    if row.has("usd"):
        row.number("usd")
    row.number("reserved")
    return row.key("workflow")


def _daily_cost(row: RowReader) -> DailyCost:
    return DailyCost(row.key("repository"), row.moment("day").date(), row.whole("cycles"), row.number("usd"))


def _pause(row: RowReader) -> tuple[str, Pause]:
    return row.key("quota"), Pause(row.moment("until"), row.text("reason"))


def _request_quota(row: RowReader) -> RequestQuota:
    return RequestQuota(
        row.key("name"),
        row.key("resource"),
        row.whole("most"),
        row.whole("remaining"),
        row.moment("reset"),
    )
