"""Claim, the first step of a cycle: choose a task that nobody else holds, claim it, and keep the claim alive."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from orchestrator.bot.coordination.budget import Refused
from orchestrator.bot.cycle.choice import (
    WAITS_KEY,
    WORKING_LABEL,
    Candidate,
    Choice,
    TaskSource,
    claimed_event,
    waiting_place,
)
from orchestrator.bot.cycle.parts import FoundTask
from orchestrator.bot.cycle.task_state import WAITS
from orchestrator.core.errors import ClaimLostError, ForgeError, WorkspaceError
from orchestrator.core.events import Warned
from orchestrator.core.messages import Spent
from orchestrator.core.prompts import render
from orchestrator.engine.session.budget import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.claimer import Claimer
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit


async def claim_task(parts: CycleParts, fingerprint: str) -> Choice:
    """Claim the next task and reserve its budget. A choice without a task says why."""
    choice = await _choose(parts, fingerprint)
    if choice.task is None:
        return choice
    previous = choice.lease.previous if choice.lease else None
    before = previous.spent if previous else Spent()
    if parts.operator is not None and (prepared := parts.operator.prepared_work) is not None:
        # No model is asked, so nothing is reserved. The task's saved work on the remote is replaced.
        if found := choice.earlier:
            prepared = replace(prepared, commit=found.commit, branch=found.branch)
        return replace(choice, spent_before=parts.operator.spent, earlier=prepared)
    try:
        granted = await parts.budget.open(parts.folder, before, parts.emit, parts.least, choice.task.usd_cap)
    except BaseException:
        await _give_back(parts, choice)
        raise
    if isinstance(granted, Refused):
        await _give_back(parts, choice)
        return Choice(None, f"{choice.task.key}: {granted.reason}", wake_at=granted.until)
    limits = Limits(granted.rounds, granted.tokens, granted.usd, granted.minutes)
    return replace(choice, spent_before=before, limits=limits)


async def look_for_task(parts: CycleParts, fingerprint: str) -> FoundTask | Choice:
    """Find the task that `claim_task` would claim now, without claiming it. A choice without a task says why."""
    try:
        return await asyncio.to_thread(find_next, parts.tasks, parts.claimer, fingerprint)
    finally:
        for event in parts.tasks.notices():
            parts.emit(event)


async def _choose(parts: CycleParts, fingerprint: str) -> Choice:
    """Choose a task in a thread. On cancellation wait for the thread, which may have claimed a task."""
    choosing = asyncio.create_task(asyncio.to_thread(claim_next, parts.tasks, parts.claimer, fingerprint))
    try:
        return await asyncio.shield(choosing)
    except asyncio.CancelledError:
        await asyncio.wait([choosing])
        if not choosing.cancelled() and choosing.exception() is None:
            await _give_back(parts, choosing.result())
        raise
    finally:
        # Emitted from here, because listeners must not be called by another thread.
        for event in parts.tasks.notices():
            parts.emit(event)


async def _give_back(parts: CycleParts, choice: Choice) -> None:
    """Release the claim, and make the task available again."""
    parts.tasks.put_back()
    if choice.lease is not None:
        with parts.stop.saving(), suppress(WorkspaceError):  # a claim that is not released expires
            await asyncio.to_thread(choice.lease.undo_claim)


def claim_next(tasks: TaskSource, claimer: Claimer | None, fingerprint: str) -> Choice:
    """Claim the first task that can be claimed, and read it again after the claim.

    Without a claimer, return the first task.
    """
    for candidate in _in_order(tasks, claimer, fingerprint):
        if claimer is None:
            tasks.begin(candidate)
            return Choice(candidate.task, after_claim=candidate.after_claim)
        lease = claimer.take(candidate.known)
        if isinstance(lease, str):
            tasks.skip(lease)
            continue
        confirmed: Candidate | str = ""
        try:
            confirmed = tasks.confirm(candidate, lease)
        finally:
            if isinstance(confirmed, str):
                with suppress(WorkspaceError):  # a claim that is not released expires
                    lease.undo_claim()
        if isinstance(confirmed, str):
            tasks.skip(confirmed)
            continue
        tasks.begin(confirmed)
        task = claimer.with_branch(confirmed.task)
        earlier = claimer.earlier.get(task.key)
        return Choice(task, lease=lease, earlier=earlier, after_claim=confirmed.after_claim)
    return tasks.why_none()


def _in_order(tasks: TaskSource, claimer: Claimer | None, fingerprint: str) -> Iterator[Candidate]:
    """Yield the candidates. Those whose last worker died or failed come after all others."""
    last: list[Candidate] = []
    for candidate in tasks.candidates(fingerprint):
        if claimer is not None and claimer.comes_last(candidate.known):
            last.append(candidate)
        else:
            yield candidate
    yield from last


def find_next(tasks: TaskSource, claimer: Claimer | None, fingerprint: str) -> FoundTask | Choice:
    """Return the first task that `claim_next` would try, as far as this is known without a claim."""
    for candidate in _in_order(tasks, claimer, fingerprint):
        task, number = candidate.task, 0
        if claimer is not None:
            reason, number = claimer.why_not(candidate.known)
            if reason is not None:
                tasks.skip(reason)
                continue
        is_last = claimer is not None and claimer.comes_last(candidate.known)
        return FoundTask(task.key, task.title, task.kind, candidate.attempt, number, is_last)
    return tasks.why_none()


class Heartbeat:
    """A context manager that renews a claim. It raises `ClaimLostError` if another worker took the claim over.

    If the remote cannot be reached, the work continues: the fencing number is checked again at the push.

    Args:
        lease: the claim to renew; None if nothing is claimed, as in a dry run.
        spent: returns the task's cost so far, which is written into the claim's record.
    """

    def __init__(self, lease: Lease | None, spent: Callable[[], Spent], clock: Clock, emit: Emit) -> None:
        self._lease, self._spent, self._clock, self._emit = lease, spent, clock, emit
        self._beats: asyncio.Task[None] | None = None
        self._lost: ClaimLostError | None = None

    async def __aenter__(self) -> Self:
        """Start to renew the claim."""
        worker = asyncio.current_task()
        if self._lease is not None and worker is not None:
            self._beats = asyncio.create_task(self._beat(self._lease, worker))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop renewing the claim.

        Raises:
            ClaimLostError: the work was cancelled because the claim was lost.
        """
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait([self._beats])
        worker = asyncio.current_task()
        if self._lost is None or not isinstance(error, asyncio.CancelledError) or worker is None:
            return
        if worker.uncancel() == 0:  # otherwise another cancellation was requested too, which takes precedence
            raise self._lost from None

    async def _beat(self, lease: Lease, worker: asyncio.Task[object]) -> None:
        while True:
            await self._clock.sleep(lease.renew_seconds)
            try:
                await asyncio.to_thread(lease.renew, self._spent())
            except ClaimLostError as error:
                self._lost = error
                worker.cancel()
                return
            except WorkspaceError as error:
                self._emit(Warned(f"the claim could not be renewed; it will be tried again: {error}"))


async def show_claim(parts: CycleParts, choice: Choice) -> None:
    """Report the claim in the journal and on the issue, and perform the actions that waited for it."""
    if choice.lease is None or choice.task is None:
        return
    previous = choice.lease.previous
    parts.emit(claimed_event(choice.lease, choice.spent_before))
    for action in choice.after_claim:
        await show_on_forge(parts, action)
    place = waiting_place(choice.task)
    if previous is not None and previous.outcome == WAITS and place is not None:
        await show_on_forge(parts, lambda: parts.forge.ensure_comment(place, WAITS_KEY, ""))
    if (number := choice.task.number) is not None:
        await show_on_forge(parts, lambda: parts.forge.ensure_label(number, WORKING_LABEL))
    await show_cap(parts, choice, choice.spent_before)


CAP_KEY = "cap"
"""Section of our comment that says what may be spent on an issue, and what was."""


async def show_cap(parts: CycleParts, choice: Choice, spent: Spent, *, is_over: bool = False) -> None:
    """Show on the issue the cap that a person set in words, what is spent, and a lower cap of the operator's."""
    task = choice.task
    if task is None or task.usd_cap is None or (number := task.number) is None:
        return
    rest = task.usd_cap - (choice.spent_before.usd or 0.0)
    granted = choice.limits.usd if choice.limits is not None else None
    body = render(
        "cycle/cap",
        cap=f"${task.usd_cap:.2f}",
        spent=None if spent.usd is None else f"${spent.usd:.2f}",
        lower=f"${granted:.2f}" if granted is not None and granted < rest - _CENT / 2 else "",
        is_over=is_over,
        run=parts.run,
    )
    await show_on_forge(parts, lambda: parts.forge.ensure_comment(number, CAP_KEY, body))


_CENT = 0.01


async def show_on_forge(parts: CycleParts, action: Callable[[], object]) -> None:
    """Perform an action that only informs people. Its failure is a warning."""
    try:
        await asyncio.to_thread(action)
    except ForgeError as error:
        parts.emit(Warned(str(error)))
