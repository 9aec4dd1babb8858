"""One worker of a fleet: takes turns from the queue, runs them, and queues the next ones.

DBOS distributes and stores the turns. It recovers only turns of its own executor. So each worker has its own id,
and the workers watch each other: a worker whose heartbeat stops for a whole lease is dead.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dbos import DBOS
from dbos._serialization import DBOSPortableJSON

from orchestrator.bot.fleet.store import QUEUE, TURN
from orchestrator.bot.fleet.turns import RepositoryTurn
from orchestrator.core.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orchestrator.bot.fleet.store import FleetStore
    from orchestrator.core.clock import Clock

LEASE_SECONDS = 30.0
"""A worker is dead if its heartbeat did not change for this long, while the watcher could read it all the time."""
_BEATS_A_LEASE = 6
_PRUNE_SECONDS = 3_600.0
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
    """

    def __init__(
        self,
        store: FleetStore,
        options: EngineOptions,
        clock: Clock,
        runner: TurnRunner,
        on_drain: Callable[[str], None],
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._runner = runner
        self._on_drain = on_drain
        usual = POLL_SECONDS if store.is_shared else POLL_FILE_SECONDS
        self._poll_seconds = options.poll_seconds or usual
        self._heartbeat_watch = HeartbeatWatch(clock, options.lease_seconds)
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._running: set[RepositoryTurn] = set()
        self._prune_at = self._restart_lost_at = 0.0

    async def launch(self) -> None:
        """Start to take turns.

        Raises:
            FleetError: the database cannot be used.
        """
        store, options, loop = self._store, self._options, asyncio.get_running_loop()
        await asyncio.to_thread(store.add_worker, options.worker, options.version, options.parallel)
        # `call` converts the errors, and waits while the database is unreachable.
        await asyncio.to_thread(store.call, lambda _client: self._launch(loop))
        await asyncio.to_thread(store.call, lambda _client: self._register_queue())
        self._heartbeat_task = asyncio.create_task(self._beat())

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
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.wait([self._heartbeat_task])
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=_LONGEST_END_SECONDS)
        with suppress(FleetError):
            await asyncio.to_thread(self._store.remove_worker, self._options.worker)

    async def _beat(self) -> None:
        """Send heartbeats and watch the other workers, until the worker ends."""
        while True:
            with suppress(FleetError):
                running = set(self._running)
                reason = await asyncio.to_thread(self._beat_once)
                if reason:
                    self._on_drain(reason)
                numbers = await asyncio.to_thread(self._store.numbers, [turn.repository for turn in running])
                for turn in running & self._running:
                    if numbers.get(turn.repository) != turn.number:
                        self._runner.lose(turn)
            await self._clock.sleep(self._options.lease_seconds / _BEATS_A_LEASE)

    def _beat_once(self) -> str:
        """Send a heartbeat and take over turns of dead workers. Return why this worker has to end; empty if it has not."""
        store, options = self._store, self._options
        draining = store.beat(options.worker)
        others = store.heartbeats()
        others.pop(options.worker, None)
        for name in self._heartbeat_watch.dead(others):
            store.take_over(name)
            store.remove_worker(name)
        now = self._clock.monotonic()
        if now >= self._restart_lost_at:
            self._restart_lost_at = now + _RESTART_LOST_SECONDS
            store.restart_lost()
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE_SECONDS
            store.prune()
        if draining is None:
            # It was declared dead, for example because the machine slept. Others have taken over its turns.
            store.add_worker(options.worker, options.version, options.parallel)
            return ""
        newest = store.newest_version()
        if newest != options.version:
            return f"workers of version {newest} take the turns now"
        return "a person asked this worker to end" if draining else ""
