"""One worker of a fleet: takes turns from the queue, runs a look or a cycle for each, and queues the next one.

DBOS distributes and stores the turns. It recovers only turns of its own executor. So each worker has its own id,
and the workers watch each other: a worker whose heartbeat stops for a whole lease is dead.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from dbos import DBOS
from dbos._serialization import DBOSPortableJSON

from orchestrator.bot.coordination.budget import midnight
from orchestrator.bot.cycle.parts import Assignment, CycleResult, Outcome
from orchestrator.bot.journal.folders import new_run_id
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson
from orchestrator.core.errors import FleetError, PullwrightError, RateLimitError
from orchestrator.plugins.fleet.control import read_snapshot
from orchestrator.plugins.fleet.rows import UnreadableRowError
from orchestrator.plugins.fleet.store import QUEUE, TURN
from orchestrator.plugins.fleet.turns import DAY_CAP, Following, RepositoryTurn, daily_cap_reached, following

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from datetime import datetime

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.worker.worker import NextStep
    from orchestrator.core.clock import Clock
    from orchestrator.plugins.fleet.control import FleetSnapshot
    from orchestrator.plugins.fleet.store import FleetStore
    from orchestrator.plugins.worker.members import Member


T = TypeVar("T")

ELSEWHERE_SECONDS = 60.0
"""Delay of a turn that this worker returns to the queue, because its fleet file does not name the repository."""
_BUSY_SECONDS = 10.0


Reporter: TypeAlias = "Callable[[Member, CycleResult, NextStep], None]"
"""Receives every completed cycle, and every look that found nothing, with the decision about it."""


class FleetWorker:
    """Runs the turns of the repositories of one fleet file.

    Args:
        members: the repositories, by their keys.
        stop: once it is requested, no further turn starts.
        most_usd: limit for all cycles of the fleet in a UTC day; None is no limit.
        once: whether each repository has one cycle only, even if it is paused by a server.
        on_over: called when no repository remains that could run.
    """

    def __init__(  # noqa: PLR0913, PLR0917  these differ between a test and a real fleet
        self,
        name: str,
        store: FleetStore,
        members: Mapping[str, Member],
        clock: Clock,
        stop: Stop,
        source: random.Random,
        report: Reporter,
        *,
        most_usd: float | None = None,
        once: bool = False,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.by_key = members
        self.members = tuple(members.values())
        self._store = store
        self._clock = clock
        self._stop = stop
        self._source = source
        self._report = report
        self._most_usd = most_usd
        self._once = once
        self._on_over = on_over
        self._over: set[str] = set()
        # Running turns after whose last try a worker died.
        self._suspects = 0

    def begin(self) -> None:
        """Queue a turn for each repository without one, at once or at its next scheduled time.

        The only worker of a database first takes over turns of earlier, dead workers, and removes the turns of
        repositories that its file no longer names. If other workers exist, existing turns keep their times.
        Otherwise each restart of a worker would cause a look at every repository.
        """
        self._store.limits.declare_cap(DAY_CAP, self._most_usd)
        known = {one.repository: one for one in self._store.repositories()}
        others = self._store.heartbeats()
        quotas = dict(self._store.limits.model_pauses())
        ready: dict[str, str] | None = None
        if self._store.is_shared:
            ready = self._store.ready() if others else None
        else:
            for worker in others:
                self._store.take_over(worker)
                self._store.remove_worker(worker)
            for repository in known.keys() - self.by_key.keys():
                self._store.end(repository)
        for key, member in self.by_key.items():
            state = known.get(key)
            if self._once and state is not None and state.paused is not None:
                self._over.add(key)
            pauses = (state.pause if state else None, member.left_pause, quotas.get(member.quota))
            try:
                self._begin(key, member, [one for one in pauses if one is not None], ready)
            except UnreadableRowError as error:
                member.halted = str(error)  # `restart_lost` begins it when the row is mended

    @property
    def is_over(self) -> bool:
        """Whether no repository remains that could run."""
        return all(
            one.halted is not None or (self._once and key in self._over) for key, one in self.by_key.items()
        )

    def _begin(
        self, key: str, member: Member, pauses: Iterable[Pause], ready: Mapping[str, str] | None
    ) -> None:
        """Start to serve a repository.

        Args:
            pauses: its known pauses.
            ready: the repositories that have a turn already, with their quotas; None if no other worker exists.
        """
        now, left = self._clock.now(), member.left_pause
        schedule = member.schedule
        first = None if ready is None else now
        member.due = self._once or schedule.begins_at_once
        if not member.due:
            jitter = self._source.random()
            first = schedule.next_fire(now) + timedelta(seconds=schedule.spread_seconds * jitter)
        if not self._once:
            for one in pauses:
                member.begin_pause(one, now)
        if ready is not None and left is None and ready.get(key) == member.quota:
            return  # saves a transaction for each repository
        if self._store.is_shared:
            self._store.begin(key, member.quota, first, left)
        else:
            self._store.restart(key, member.quota, max(first or now, member.not_before), left)

    def request_stop(self) -> None:
        """Start no further turn; running cycles end after their current round."""
        self._stop.request()
        for member in self.members:
            if member.runner is not None:
                member.runner.stop.request()

    def stop_at_once(self) -> None:
        """Start no further turn; running cycles save their work and end."""
        self._stop.at_once()
        for member in self.members:
            if member.runner is not None:
                member.runner.stop.at_once()
            if member.task is not None:
                member.task.cancel()

    def lose(self, turn: RepositoryTurn) -> None:
        """Stop a running turn that another worker took over or a person cancelled. Its work is saved."""
        member = self.by_key.get(turn.repository)
        if member is not None and member.runner is not None and member.task is not None:
            member.runner.stop.at_once()
            member.task.cancel()

    async def run_turn(self, turn: RepositoryTurn) -> None:
        """Run a turn, and queue the next one."""
        member = self.by_key.get(turn.repository)
        completed: tuple[CycleResult, NextStep] | None = None
        try:
            postponed = await asyncio.to_thread(self._postponed, turn, member)
            if postponed is not None or member is None:
                follows = postponed or Following(turn.again(), self._clock.now())
            else:
                result, step, follows = await self._run_member(turn, member)
                completed = result, step
            outcome = str(completed[0].outcome) if completed else "put back"
            usd = completed[0].usd if completed and turn.task else None
            await asyncio.to_thread(self._store.advance, turn, follows, outcome, usd)
        except FleetError as error:
            completed = CycleResult(None, Outcome.FAILED, error=str(error), cause=error), EndAsked()
        if completed is not None and member is not None and completed[0].outcome is not Outcome.FOUND:
            self._report(member, *completed)
            self._over.add(turn.repository)
        if self.is_over:
            self._on_over()

    def _postponed(self, turn: RepositoryTurn, member: Member | None) -> Following | None:
        """Return the later turn in place of one that cannot run here or now; None if it can."""
        now = self._clock.now()
        if self._stop():
            return Following(turn.again(), now)
        if member is None or (self._once and turn.repository in self._over):
            return Following(turn.again(), now + timedelta(seconds=ELSEWHERE_SECONDS))
        if member.running:
            return Following(turn.again(), now + timedelta(seconds=_BUSY_SECONDS))
        if turn.deaths and self._suspects:  # or one that kills its worker would count against the other
            return Following(turn.again(), now + timedelta(seconds=_BUSY_SECONDS))
        if self._store.is_paused(turn.repository):
            self._over.add(turn.repository)
            return Following(None, now)
        return None if self._once else self._quota_pause(turn, member, now)

    def _quota_pause(self, turn: RepositoryTurn, member: Member, now: datetime) -> Following | None:
        """Return the later turn in place of one whose model or forge quota is used up; None if neither is."""
        limits = self._store.limits
        pause = limits.pause_of(member.quota)
        if pause is None:
            pause = limits.request_pause(turn.repository)
            return Following(turn.again(), pause.until, pause) if pause is not None else None
        if member.halted is not None:  # a member with the same quota needs a person
            return Following(None, now, halted=member.halted)
        member.begin_pause(pause, now)
        return Following(turn.again(), pause.until, pause)

    async def _run_member(
        self, turn: RepositoryTurn, member: Member
    ) -> tuple[CycleResult, NextStep, Following]:
        run = new_run_id(self._clock.now(), self._source)
        reserve = member.most_usd if turn.task else 0.0
        most = self._most_usd if turn.task else None
        started = await asyncio.to_thread(self._store.limits.start_cycle, turn, self.name, run, reserve, most)
        if most is not None and not started:
            reason = daily_cap_reached(most)
            result = CycleResult(None, Outcome.PAUSED, reason=reason)
            pause = Pause(midnight(self._clock.now()), reason)
            member.begin_pause(pause, self._clock.now())
            return result, pause, Following(turn.again(), pause.until, pause)
        began = member.not_before = self._clock.now()
        member.pause = member.halted = None
        member.running, member.active_at = True, self._clock.monotonic()
        self._suspects += turn.deaths > 0
        try:
            result = await self._result(turn, member, run)
        finally:
            member.running = False
            self._suspects -= turn.deaths > 0
        attempted = member.runner.attempted if member.runner is not None else set(turn.attempted)
        member.next_steps.resume(turn.failures)
        step = member.next_steps.after(result)
        if result.outcome is not Outcome.FOUND:
            member.totals.count(result, self._clock.now())
        now, jitter = self._clock.now(), self._source.random()
        follows = following(turn, result, step, attempted, member.schedule, began, now, jitter)
        member.due = follows.turn is not None and not follows.turn.renewed
        if member.due and member.pause is None:  # else a member with the same quota was limited meanwhile
            member.not_before = began if isinstance(step, Pause) else follows.at
        await asyncio.to_thread(self._share, member, result, step)
        await asyncio.to_thread(self._store.limits.save_request_quotas, turn.repository, result.quotas)
        is_whole = result.outcome is Outcome.NO_TASK and result.task is None and not turn.task
        taken = {result.task.key} if result.task is not None else set()
        if result.waits or is_whole or taken:
            gone = None if is_whole else taken
            await asyncio.to_thread(self._store.note_waiting, turn.repository, result.waits, gone=gone)
        if isinstance(step, NeedsPerson) or (member.runner is not None and member.runner.stop()):
            await self._close(member)
        return result, step, follows

    async def _result(self, turn: RepositoryTurn, member: Member, run: str) -> CycleResult:
        try:
            if member.runner is None:
                member.runner = await asyncio.to_thread(member.build)
            runner = member.runner
            if self._stop():  # requested while the runner was built
                return CycleResult(None, Outcome.INTERRUPTED)
            if turn.renewed:
                runner.forget()
            runner.attempted.clear()
            runner.attempted.update(turn.attempted)
            assignment = Assignment(turn.task, only_look=not turn.task, dead_runs=turn.dead_runs, run=run)
            member.task = asyncio.current_task()
            return await runner.cycle(assignment)
        except asyncio.CancelledError:
            if not (self._stop() or (member.runner is not None and member.runner.stop())):
                raise
            return CycleResult(None, Outcome.INTERRUPTED)
        except PullwrightError as error:
            return CycleResult(None, Outcome.FAILED, error=str(error), cause=error)
        except Exception as error:  # noqa: BLE001  border: an error in one repository must not stop the others
            message = f"internal error, please report it: {type(error).__name__}: {error}"
            return CycleResult(None, Outcome.FAILED, error=message, cause=error)
        finally:
            member.task = None

    def sharing(self, member: Member, result: CycleResult) -> list[Member]:
        """Return the members of this worker that a rate limit of one cycle affects; the member alone without one."""
        if self._once or not isinstance(result.cause, RateLimitError):
            return [member]
        return [one for one in self.members if one is member or one.quota == member.quota]

    def _share(self, member: Member, result: CycleResult, step: NextStep) -> None:
        """Pause all members that share a used-up quota, in this worker and in others."""
        if not isinstance(step, Pause | NeedsPerson):
            return
        now = self._clock.now()
        for one in self.sharing(member, result):
            if isinstance(step, NeedsPerson):
                one.halted = step.reason
            else:
                one.begin_pause(step, now)
        if not self._once and isinstance(result.cause, RateLimitError):
            if isinstance(step, NeedsPerson):  # a person has to pay; nothing says when that is done
                step = Pause(now + timedelta(days=1), step.reason)
            self._store.limits.pause_quota(member.quota, step)

    async def close(self) -> None:
        """Close connections."""
        for member in self.members:
            await self._close(member)

    async def _close(self, member: Member) -> None:
        runner, member.runner = member.runner, None
        if runner is not None:
            with suppress(PullwrightError, OSError):
                await runner.close()


LEASE_SECONDS = 30.0
"""A worker is dead if its heartbeat did not change for this long, while the watcher could read it all the time."""
_BEATS_A_LEASE = 6
_PRUNE_SECONDS = 3_600.0
_READ_ALL_SECONDS = 600.0
"""Interval of a reading of all rows, for those that nobody can read."""
_RESTART_LOST_SECONDS = 60.0
"""Interval of a check that reads all repositories and rarely finds anything."""
POLL_SECONDS = 1.0
"""How often each worker polls for turns."""
POLL_FILE_SECONDS = 0.5
"""How often the only worker of a database file polls for turns."""
_LONGEST_END_SECONDS = 86_400


def new_worker_name(host: str) -> str:
    """Return a new unique name: the machine, and a random part."""
    return f"{host}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of a worker.

    Attributes:
        version: the program's version. Workers of the newest version take turns; others end after their current rounds.
        parallel: most turns of this worker at a time.
        most_running: most turns of the whole fleet at a time; None is no limit.
        poll_seconds: time between two polls for turns; None is the default.
    """

    worker: str
    version: str
    parallel: int = 1
    most_running: int | None = None
    lease_seconds: float = LEASE_SECONDS
    poll_seconds: float | None = None


@dataclass(slots=True)
class HeartbeatWatch:
    """Detects dead workers by their heartbeats, without comparing clocks of different machines.

    A worker is dead if its heartbeat did not change for a lease, during which the watcher could read the
    database all the time. While the database is unreachable, no worker is declared dead.
    """

    clock: Clock
    lease_seconds: float
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    _looked_at: float | None = None

    def dead(self, beats: dict[str, int]) -> list[str]:
        """Take the present heartbeats, and return the dead workers."""
        now = self.clock.monotonic()
        if self._looked_at is None or now - self._looked_at > self.lease_seconds / 2:
            self._seen.clear()  # heartbeats since then were not observed
        self._looked_at = now
        self._seen = {
            name: self._seen[name] if name in self._seen and self._seen[name][0] == count else (count, now)
            for name, count in beats.items()
        }
        return [name for name, (_, since) in self._seen.items() if now - since >= self.lease_seconds]


class TurnRunner(Protocol):
    """Runs turns, in the event loop that launched the worker."""

    def run_turn(self, turn: RepositoryTurn) -> Coroutine[Any, Any, None]:
        """Run a turn, and queue the next one. It does not raise."""

    def lose(self, turn: RepositoryTurn) -> None:
        """Stop a turn that runs here, because another worker took it over or a person cancelled it."""


class FleetEngine:
    """Runs one worker. A process has at most one.

    Args:
        on_drain: called in the event loop, with the reason, if this worker has to end.
        on_trouble: called in the event loop with what a person should see: rows that cannot be read, failed duties.
    """

    def __init__(  # noqa: PLR0913, PLR0917  these differ between a test and a real fleet
        self,
        store: FleetStore,
        options: EngineOptions,
        clock: Clock,
        runner: TurnRunner,
        on_drain: Callable[[str], None],
        on_trouble: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._runner = runner
        self._on_drain = on_drain
        self._on_trouble = on_trouble
        self._told: set[str] = set()
        usual = POLL_SECONDS if store.is_shared else POLL_FILE_SECONDS
        self._poll_seconds = options.poll_seconds or usual
        self._heartbeat_watch = HeartbeatWatch(clock, options.lease_seconds)
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[RepositoryTurn] = set()
        self._prune_at = self._restart_lost_at = self._read_all_at = 0.0

    async def launch(self) -> None:
        """Start to take turns."""
        store, options, loop = self._store, self._options, asyncio.get_running_loop()
        await asyncio.to_thread(store.add_worker, options.worker, options.version, options.parallel)
        # `call` converts the errors, and waits while the database is unreachable.
        await asyncio.to_thread(store.call, lambda _client: self._launch(loop))
        await asyncio.to_thread(store.call, lambda _client: self._register_queue())
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._care())]

    def _launch(self, loop: asyncio.AbstractEventLoop) -> None:
        store, options = self._store, self._options
        DBOS.destroy(destroy_registry=True)
        DBOS(
            config={
                "name": "pullwright",
                "system_database_url": store.url,
                "system_database_engine": store.engine,
                "executor_id": options.worker,
                "application_version": options.version,
                "serializer": DBOSPortableJSON,
                "run_migrations": False,
                "log_level": "CRITICAL",
                "notification_listener_polling_interval_sec": self._poll_seconds,
                "use_listen_notify": False,
            }
        )

        def turn(data: dict[str, Any]) -> str:
            def step() -> str:
                found = RepositoryTurn.from_json(data)
                asyncio.run_coroutine_threadsafe(self._run_turn(found), loop).result()
                return found.id

            return DBOS.run_step({"name": "play"}, step)

        DBOS.workflow(name=TURN)(turn)
        DBOS.launch()
        if not store.is_shared:  # the only worker takes turns even if it is older than the last one
            DBOS.set_latest_application_version(options.version)

    def _register_queue(self) -> None:
        options = self._options
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=min(options.parallel, options.most_running or options.parallel),
            global_concurrency=options.most_running,
            polling_interval_sec=self._poll_seconds,
            on_conflict="always_update",
        )

    async def _run_turn(self, turn: RepositoryTurn) -> None:
        self._running.add(turn)
        try:
            await self._runner.run_turn(turn)
        finally:
            self._running.discard(turn)

    async def close(self) -> None:
        """Take no more turns, wait for the running ones, and stop."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=_LONGEST_END_SECONDS)
        with suppress(FleetError):
            await asyncio.to_thread(self._store.remove_worker, self._options.worker)

    async def _beat(self) -> None:
        """Send heartbeats until the worker ends. They depend on nothing but the worker's own row."""
        store, options = self._store, self._options

        def beat() -> str:
            is_draining = store.beat(options.worker)
            if is_draining is None:
                # It was declared dead, for example because the machine slept. Others have taken over its turns.
                store.add_worker(options.worker, options.version, options.parallel)
            return "a person asked this worker to end" if is_draining else ""

        while True:
            if reason := await self._duty("heartbeat", beat):
                self._on_drain(reason)
            await self._clock.sleep(options.lease_seconds / _BEATS_A_LEASE)

    async def _care(self) -> None:
        """Watch the other workers, the turns and the database, until the worker ends. No duty depends on another."""
        while True:
            await self._duty("watching the other workers", self._take_over_dead)
            await self._duty("looking for turns that cannot be read", self._cancel_unreadable)
            for turn in await self._duty("comparing turns", self._replaced) or ():
                self._runner.lose(turn)
            newest = await self._duty("comparing versions", self._store.newest_version)
            if newest and newest != self._options.version:
                self._on_drain(f"workers of version {newest} take the turns now")
            now = self._clock.monotonic()
            if now >= self._restart_lost_at:
                self._restart_lost_at = now + _RESTART_LOST_SECONDS
                await self._duty("looking for lost turns", self._store.restart_lost)
            if now >= self._read_all_at:
                self._read_all_at = now + _READ_ALL_SECONDS
                snapshot = await self._duty("looking for rows that cannot be read", self._snapshot)
                for row in snapshot.unreadable if snapshot else ():
                    self._tell(row.words)
            if now >= self._prune_at:
                self._prune_at = now + _PRUNE_SECONDS
                await self._duty("deleting old turns", self._store.prune)
            await self._clock.sleep(self._options.lease_seconds / _BEATS_A_LEASE)

    async def _duty(self, name: str, act: Callable[[], T]) -> T | None:
        """Do something in a thread. Return None if it fails, after telling why."""
        try:
            return await asyncio.to_thread(act)
        except FleetError as error:
            self._tell(str(error))
        except Exception as error:  # noqa: BLE001  border: a duty that fails must not stop the others
            self._tell(f"internal error in {name}, please report it: {type(error).__name__}: {error}")
        return None

    def _tell(self, words: str) -> None:
        """Tell something once."""
        if words not in self._told:
            self._told.add(words)
            self._on_trouble(words)

    def _take_over_dead(self) -> None:
        others = self._store.heartbeats()
        others.pop(self._options.worker, None)
        for name in self._heartbeat_watch.dead(others):
            self._store.take_over(name)
            self._store.remove_worker(name)

    def _cancel_unreadable(self) -> None:
        self._store.cancel_unreadable(self._options.worker)

    def _replaced(self) -> list[RepositoryTurn]:
        """Return the running turns that another worker took over, or a person cancelled."""
        running = list(self._running)
        numbers = self._store.numbers([turn.repository for turn in running])
        return [turn for turn in running if numbers.get(turn.repository, -1) not in {turn.number, None}]

    def _snapshot(self) -> FleetSnapshot:
        return read_snapshot(self._store)
