"""What a person sees of a fleet, and asks of it: a snapshot of its database, and commands with results in words.

Every function raises `FleetError` if the database cannot be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.claim_record import claim_ref
from orchestrator.plugins.fleet.rows import UnreadableRowError
from orchestrator.plugins.fleet.turns import DAY_CAP, daily_cap_reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.forge.base import RequestQuota
    from orchestrator.bot.journal.run_facts import Pause
    from orchestrator.plugins.fleet.rows import Rows, UnreadableRow
    from orchestrator.plugins.fleet.store import FleetStore, FleetWorkerState, RepositoryState, WaitingTask
    from orchestrator.plugins.fleet.turns import DailyCost, QueuedTurn


SILENT = timedelta(minutes=5)
COST_DAYS = 14
"""Number of days whose costs are read."""


@dataclass(frozen=True)
class FleetSnapshot:
    """The content of a fleet's database at one time.

    Attributes:
        place: address of the database without credentials.
        version: version of the program whose workers take turns; empty before the first worker.
        turns: running, waiting and delayed turns, in order.
        model_pauses: pauses of used-up model quotas, by quota.
        unreadable: rows of all tables that cannot be read, and so are missing from the rest.
        request_quotas: remaining request quotas of forges.
        most_running: limit of running turns of all workers; None is no limit.
        day_cap: limit in US dollars for all cycles of a UTC day; None is no limit.
        spent_today: the part of it that is spent or reserved.
        waiting_tasks: tasks that wait for a person.
    """

    at: datetime
    place: str
    version: str
    workers: Sequence[FleetWorkerState]
    repositories: Sequence[RepositoryState]
    turns: Sequence[QueuedTurn]
    model_pauses: Mapping[str, Pause]
    request_quotas: Sequence[RequestQuota]
    most_running: int | None
    day_cap: float | None
    spent_today: float
    costs: Sequence[DailyCost]
    waiting_tasks: Sequence[WaitingTask] = ()
    unreadable: Sequence[UnreadableRow] = ()

    @cached_property
    def running(self) -> int:
        """The number of running turns."""
        return sum(one.state == "running" for one in self.turns)

    @property
    def waiting(self) -> int:
        """The number of turns that could start now if nothing prevented them."""
        return sum(one.state == "queued" for one in self.turns)

    def state(self, repository: str) -> RepositoryState | None:
        """Return the state of a repository."""
        return self._states.get(repository)

    def turn(self, repository: str) -> QueuedTurn | None:
        """Return the present turn of a repository."""
        state = self.state(repository)
        return self._turns.get((repository, state.number)) if state else None

    @cached_property
    def _states(self) -> dict[str, RepositoryState]:
        return {one.repository: one for one in self.repositories}

    @cached_property
    def _turns(self) -> dict[tuple[str, int], QueuedTurn]:
        return {(one.turn.repository, one.turn.number): one for one in self.turns}

    def is_silent(self, worker: FleetWorkerState) -> bool:
        """Return whether a worker's heartbeat is older than five minutes, more than the clocks can differ."""
        return self.at - worker.seen_at > SILENT

    def why(self, one: QueuedTurn) -> str:
        """Return why a turn runs or waits."""
        state = self.state(one.turn.repository)
        if one.state == "running":
            replaced = state is not None and state.number != one.turn.number
            ends = f"ends on {one.worker}, because another turn replaced it"
            return ends if replaced else f"runs on {one.worker}"
        if state is None and any(row.key == one.turn.repository for row in self.unreadable):
            return "the row of its repository cannot be read"
        if state is not None and state.paused is not None:
            return f"paused by a person: {state.paused}" if state.paused else "paused by a person"
        if state is not None and state.pause is not None:
            return state.pause.reason
        if one.state == "delayed":
            return "waits for the next time of its schedule" if one.turn.renewed else "starts again soon"
        return next(self._obstacles(one, state), "starts within seconds")

    def _obstacles(self, one: QueuedTurn, state: RepositoryState | None) -> Iterator[str]:
        """Yield the reasons why a turn that could start does not."""
        alive = [worker for worker in self.workers if not self.is_silent(worker)]
        able = [worker for worker in alive if not worker.draining and worker.version == self.version]
        if not alive:
            yield "no worker runs: start one with pullwright fleet run"
        if not able:
            yield "all workers are ending, and take no further turns"
        if state is not None and (pause := self.model_pauses.get(state.quota)) is not None:
            yield pause.reason
        if one.turn.task and self.day_cap is not None and self.spent_today >= self.day_cap:
            yield daily_cap_reached(self.day_cap)
        if self.most_running is not None and self.running >= self.most_running:
            yield f"{self.running} turns are running, which is the limit (most_running)"
        if self.running >= sum(worker.parallel for worker in able):
            yield "all workers are busy"


def read_snapshot(store: FleetStore) -> FleetSnapshot:
    """Read a snapshot. It blocks."""
    limits = store.limits
    workers, repositories, turns = store.workers(), store.repositories(), store.queued()
    pauses, quotas, caps = limits.model_pauses(), limits.request_quotas(), limits.caps()
    costs = limits.daily_costs(store.day() - timedelta(days=COST_DAYS - 1))
    waiting = store.waiting()
    readings: list[Rows[Any]] = [workers, repositories, turns, pauses, quotas, caps, costs, waiting]
    running_limits, versions = store.running_limits(), store.versions()
    readings += [limits.unreadable_cycles(), running_limits, versions]
    numbers = {one.repository: one.number for one in repositories}
    return FleetSnapshot(
        at=store.clock.now(),
        place=store.place,
        version=max(versions, default=(0, ""))[1] if workers else "",
        workers=workers,
        repositories=repositories,
        turns=[one for one in turns if _is_current(one, numbers)],
        model_pauses=dict(pauses),
        request_quotas=quotas,
        most_running=next(iter(running_limits), None),
        day_cap=dict(caps).get(DAY_CAP),
        spent_today=limits.spent_today(),
        costs=costs,
        waiting_tasks=waiting,
        unreadable=tuple(dict.fromkeys(row for one in readings for row in one.unreadable)),
    )


def _is_current(one: QueuedTurn, numbers: Mapping[str, int]) -> bool:
    """Return whether to show a turn.

    A running one is shown even if it was replaced, because it takes seconds to end, and so is one of a repository whose
    own row cannot be read.
    """
    number = numbers.get(one.turn.repository)
    return one.state == "running" or number is None or one.turn.number == number


_UNKNOWN = "is unknown to the fleet: start a worker with pullwright fleet run"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Whether a command had an effect, and the text that follows the name of its subject."""

    is_done: bool
    words: str


def add(store: FleetStore, repository: str, task: str = "") -> CommandResult:
    """Look at a repository now, or try a task there next."""
    if not task:
        return _outcome(lambda: store.wake(repository), "is looked at now", _UNKNOWN)
    claim_ref(task)
    why = "has a running turn, is paused, or is unknown to the fleet: see pullwright fleet status"
    return _outcome(lambda: store.ask(repository, task), f"tries {task} next", why)


def pause(store: FleetStore, repository: str, reason: str) -> CommandResult:
    """Pause a repository: no further turn starts there."""
    done = "is paused; a running turn continues to its end"
    return _outcome(lambda: store.pause(repository, reason), done, _UNKNOWN)


def resume(store: FleetStore, repository: str) -> CommandResult:
    """Continue a paused repository."""
    return _outcome(lambda: store.resume(repository), "continues", _UNKNOWN)


def cancel(store: FleetStore, repository: str) -> CommandResult:
    """Cancel the turn of a repository."""
    done = "continues with another task; a running cycle ends within seconds"
    return _outcome(lambda: store.cancel(repository), done, "has no turn")


def drain(store: FleetStore, worker: str) -> CommandResult:
    """Let a worker end after the current rounds of its cycles."""
    is_done = store.drain(worker)
    names = "" if is_done else ", ".join(one.worker for one in store.workers()) or "none"
    done, otherwise = (
        "ends after the current rounds of its cycles",
        f"is not a worker; the workers are: {names}",
    )
    return CommandResult(is_done, done if is_done else otherwise)


def _outcome(act: Callable[[], bool], words: str, otherwise: str) -> CommandResult:
    """Act on one repository. A row of it that cannot be read is an answer: the command goes on with the others."""
    try:
        is_done = act()
    except UnreadableRowError as error:
        return CommandResult(is_done=False, words=f"was not changed: {error}")
    return CommandResult(is_done, words if is_done else otherwise)
