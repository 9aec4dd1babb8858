"""Plays turns: runs a look or a cycle on one of the repositories that this worker knows, and says what follows."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.cycle.parts import Assignment, CycleResult, Outcome
from orchestrator.bot.fleet.turns import Following, following, put_back
from orchestrator.bot.journal.folders import new_run_id
from orchestrator.bot.journal.index import Pause
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson
from orchestrator.core.errors import FleetError, PullwrightError, RateLimitError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.fleet.store import FleetStore
    from orchestrator.bot.fleet.turns import RepositoryTurn
    from orchestrator.bot.worker.fleet import Member
    from orchestrator.bot.worker.worker import NextStep
    from orchestrator.core.clock import Clock

ELSEWHERE_SECONDS = 60.0
"""A turn of a repository that this worker's file does not name is offered to others after so long."""
_BUSY_SECONDS = 10.0


class Reporter(Protocol):
    """Told of every cycle that ended, of what follows, and of looks that found nothing."""

    def __call__(self, member: Member, result: CycleResult, onward: NextStep) -> None:
        """Take one."""


class FleetWorker:
    """Plays the turns of the repositories of one file.

    Attributes:
        members: the repositories, by their keys.
        most_usd: what all cycles of the fleet may cost in a UTC day; None is no limit.
    """

    def __init__(  # noqa: PLR0913, PLR0917  what differs between a test and a machine
        self,
        name: str,
        store: FleetStore,
        members: Mapping[str, Member],
        clock: Clock,
        stop: Stop,
        source: random.Random,
        report: Reporter,
        most_usd: float | None = None,
    ) -> None:
        self.by_key = members
        self.members = tuple(members.values())
        self._name = name
        self._store = store
        self._clock = clock
        self._stop = stop
        self._source = source
        self._report = report
        self._most_usd = most_usd

    def begin(self) -> None:
        """Give each repository a turn that has none. Those that begin at once are looked at now.

        Where others work already, what has a turn keeps its time: else each worker that is started once more
        would have all of the fleet looked at.
        """
        now = self._clock.now()
        is_first = {one.worker for one in self._store.workers()} <= {self._name}
        ready = {} if is_first else self._store.ready()
        for key, member in self.by_key.items():
            if ready.get(key) == member.quota:
                continue  # a thousand transactions take seconds
            at_once = None if is_first else now
            first = at_once if member.schedule.begins_at_once else member.schedule.next_fire(now)
            self._store.begin(key, member.quota, first)

    def request_stop(self) -> None:
        """Begin nothing more; what runs ends after its round."""
        self._stop.request()
        for member in self.members:
            if member.runner is not None:
                member.runner.stop.request()

    def stop_at_once(self) -> None:
        """Begin nothing more; what runs keeps its work and ends."""
        self._stop.at_once()
        for member in self.members:
            if member.runner is not None:
                member.runner.stop.at_once()
            if member.task is not None:
                member.task.cancel()

    def lose(self, turn: RepositoryTurn) -> None:
        """End a turn that another worker has taken over, or a person cancelled. What it has done so far is kept."""
        member = self.by_key.get(turn.repository)
        if member is not None and member.runner is not None and member.task is not None:
            member.runner.stop.at_once()
            member.task.cancel()

    async def play(self, turn: RepositoryTurn) -> None:
        """Play a turn, and queue what follows."""
        member = self.by_key.get(turn.repository)
        played: tuple[CycleResult, NextStep] | None = None
        try:
            refused = await asyncio.to_thread(self._why_not, turn, member)
            if refused is not None or member is None:
                follows = refused or put_back(turn, self._clock.now())
            else:
                result, step, follows = await self._played(turn, member)
                played = result, step
            outcome = str(played[0].outcome) if played else "put back"
            usd = played[0].usd if played and turn.task else None
            await asyncio.to_thread(self._store.advance, turn, follows, outcome, usd)
        except FleetError as error:
            played = CycleResult(None, Outcome.FAILED, error=str(error), cause=error), EndAsked()
        if played is not None and member is not None and played[0].outcome is not Outcome.FOUND:
            self._report(member, *played)

    def _why_not(self, turn: RepositoryTurn, member: Member | None) -> Following | None:
        """What follows a turn that cannot be played here, or now."""
        now = self._clock.now()
        if self._stop():
            return put_back(turn, now)
        if member is None:
            return put_back(turn, now + timedelta(seconds=ELSEWHERE_SECONDS))
        if member.running:
            return put_back(turn, now + timedelta(seconds=_BUSY_SECONDS))
        if self._store.is_paused(turn.repository):
            return Following(None, now)
        if (pause := self._store.limits.pause_of(member.quota)) is not None:
            return Following(turn.again(), pause.until, pause)
        return None

    async def _played(self, turn: RepositoryTurn, member: Member) -> tuple[CycleResult, NextStep, Following]:
        run = new_run_id(self._clock.now(), self._source)
        reserve = member.most_usd if turn.task else 0.0
        most = self._most_usd if turn.task else None
        started = await asyncio.to_thread(
            self._store.limits.start_cycle, turn, self._name, run, reserve, most
        )
        if not started:
            reason = f"the fleet has spent what it may in a day, {most:g} US dollars (max_usd_per_day)"
            result = CycleResult(None, Outcome.PAUSED, reason=reason)
            pause = Pause(self._store.limits.next_day(), reason)
            return result, pause, Following(turn.again(), pause.until, pause)
        member.running, member.pause, member.active_at = True, None, self._clock.monotonic()
        try:
            result = await self._result(turn, member, run)
        finally:
            member.running = False
        attempted = member.runner.attempted if member.runner is not None else set(turn.attempted)
        member.next_steps.resume(turn.failures)
        step = member.next_steps.after(result)
        if result.outcome is not Outcome.FOUND:
            member.totals.count(result, self._clock.now())
        follows = following(
            turn, result, step, attempted, member.schedule, self._clock.now(), self._source.random()
        )
        await asyncio.to_thread(self._share, member, result, step)
        self._note(member, step, follows)
        if member.halted is not None or (member.runner is not None and member.runner.stop()):
            await self._close(member)
        return result, step, follows

    async def _result(self, turn: RepositoryTurn, member: Member, run: str) -> CycleResult:
        try:
            if member.runner is None:
                member.runner = await asyncio.to_thread(member.build)
            runner = member.runner
            if self._stop():  # asked for while it was built
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
        except Exception as error:  # noqa: BLE001  border: a defect in one repository is not that of others
            said = f"internal error, please report it: {type(error).__name__}: {error}"
            return CycleResult(None, Outcome.FAILED, error=said, cause=error)
        finally:
            member.task = None

    def _share(self, member: Member, result: CycleResult, step: NextStep) -> None:
        """A limit of the model's key concerns all of the fleet that live on it, on every machine."""
        if not isinstance(result.cause, RateLimitError):
            return
        if isinstance(step, NeedsPerson):  # money brings it back, and nobody tells when
            step = Pause(self._clock.now() + timedelta(days=1), step.reason)
        if isinstance(step, Pause):
            self._store.limits.pause_quota(member.quota, step)

    def _note(self, member: Member, step: NextStep, follows: Following) -> None:
        """What the page of health tells of a repository on this machine."""
        member.not_before = follows.at
        member.due = follows.turn is not None and not follows.turn.renewed
        member.halted = step.reason if isinstance(step, NeedsPerson) else None
        if isinstance(step, Pause):
            member.pause = step
            member.totals.add_pause(self._clock.now(), step.until)

    async def close(self) -> None:
        """Close connections."""
        for member in self.members:
            await self._close(member)

    async def _close(self, member: Member) -> None:
        runner, member.runner = member.runner, None
        if runner is not None:
            with contextlib.suppress(PullwrightError, OSError):
                await runner.close()
