"""One cycle, top to bottom: claim a task, clone, plan and act, verify, propose, finish."""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.act import Act
from orchestrator.bot.cycle.claim import Choice, Heartbeat, claim_task, show_claim
from orchestrator.bot.cycle.finish import decide_outcome, release_claim, save_unfinished, settle, tell_refused
from orchestrator.bot.cycle.parts import CycleResult, Outcome, outcome_of
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import BadReplyError, PullwrightError, WorkspaceError
from orchestrator.core.events import (
    Cloned,
    CycleEnded,
    ForgeUsed,
    Phase,
    PhaseEntered,
    TaskTaken,
    Warned,
)
from orchestrator.core.spent import Spent
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.cycle.parts import CycleParts, CycleStart
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.git.clone import Clone


async def run_cycle(start: CycleStart) -> CycleResult:
    """Run one cycle: read the rules, repair what dead runs left, claim a task, work on it, release it.

    Whatever happens, there is a result, and work that was paid for is kept.
    """
    result = CycleResult(start.run)
    before = start.forge.traffic()
    start.emit(start.event)
    parts, claimed = None, Choice(None)
    try:
        pulse = await asyncio.to_thread(start.forge.pulse)
        parts = await _under_repository_rules(start, pulse)
        parts.emit(PhaseEntered(Phase.CHOOSE))
        await _recover(parts)
        claimed = await claim_task(parts, pulse)
        parts = replace(parts, limits=claimed.limits or parts.limits)
        await _work_on(parts, claimed, result)
    except asyncio.CancelledError:
        if not start.stop.requested:
            raise
        result.outcome = Outcome.INTERRUPTED
    except PullwrightError as error:
        result.outcome, result.error, result.cause = outcome_of(error), str(error), error
    except Exception as error:  # noqa: BLE001  border: a defect ends this cycle, not the worker
        result.outcome, result.cause = Outcome.FAILED, error
        result.error = f"internal error, please report it: {type(error).__name__}: {error}"
        start.emit(Warned("".join(traceback.format_exception(error))))
    finally:
        if parts is not None:
            await release_claim(parts, claimed, result)
            await settle(parts, result)
        result.requests = start.forge.traffic() - before
    if result.requests.requests:
        start.emit(ForgeUsed(**asdict(result.requests)))
    start.emit(CycleEnded(result.to_json()))
    return result


async def _under_repository_rules(start: CycleStart, pulse: str) -> CycleParts:
    """What to work with, as strict as the repository's own rules on its default branch are."""
    text = await asyncio.to_thread(start.rules_file.text, pulse)
    # Opens the hidden refs, and so asks the forge for the address: an outage is a result of the cycle.
    parts, notes = await asyncio.to_thread(start.parts, text)
    for note in notes:
        parts.emit(Guarded(Defence.INSTRUCTIONS, note))
    return parts


async def _recover(parts: CycleParts) -> None:
    """Save what runs killed here have left; their claims are free."""
    if parts.recovery is not None and parts.claimer is not None:
        parts.claimer.dead_runs = await asyncio.to_thread(parts.recovery.recover)


async def _work_on(parts: CycleParts, choice: Choice, result: CycleResult) -> None:
    """Clone, plan and act, finish. The session's call of `create_pull_request` verifies and proposes: see `Act`."""
    task = result.task = choice.task
    if task is None:
        result.outcome, result.reason, result.wake_at = Outcome.NO_TASK, choice.reason, choice.wake_at
        return
    parts.emit(TaskTaken(task.key, task.title, task.body, task.source, task.number))
    act: Act | None = None

    def spent() -> Spent:
        return choice.spent_before + (act.spent if act else Spent())

    async with Heartbeat(choice.lease, spent, parts.clock, parts.emit):
        await show_claim(parts, choice)
        parts.emit(PhaseEntered(Phase.CLONE))
        with _removed(await _clone(parts), parts) as clone:
            files = await asyncio.to_thread(clone.tracked_files)
            parts.emit(Cloned(clone.base_commit, clone.base_branch, len(files), str(clone.folder)))
            act = Act(parts, choice, clone, files, result)
            async with act.verification:
                try:
                    await _act(parts, task, act, result)
                finally:
                    save_unfinished(parts, choice, act, result)


@contextmanager
def _removed(clone: Clone, parts: CycleParts) -> Iterator[Clone]:
    """The clone, removed at the end. A folder that stays is no reason to call what was done a failure."""
    try:
        yield clone
    finally:
        try:
            clone.close()
        except WorkspaceError as error:
            parts.emit(Warned(f"the clone could not be removed: {error}"))


async def _act(parts: CycleParts, task: Task, act: Act, result: CycleResult) -> None:
    try:
        end = await act.run()
    except BadReplyError as error:
        if result.pull_request is None:
            raise
        # What is proposed stays proposed, whatever the model says after it.
        parts.emit(Warned(f"the model went on after its pull request, and came to no end: {error}"))
        end = SessionEnd(EndKind.COMPLETED, "")
    finally:
        await act.close()
    _, patch = await asyncio.to_thread(act.left)
    await decide_outcome(parts, task, end, result, left=patch)
    if (why := act.verification.why_refused) and not result.pull_request:
        tell_refused(result, why)


async def _clone(parts: CycleParts) -> Clone:
    """Clone in a thread; a cancelled clone is waited for, so that its folder can be removed."""
    opening = asyncio.create_task(asyncio.to_thread(parts.open_clone, Path(tempfile.gettempdir())))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()
        raise
