"""One cycle, top to bottom: claim a task, clone, plan and act, verify, propose, finish.

The model asks for a pull request during its session, with the tool `create_pull_request`. The change is then
verified and proposed here, and the model reads the result: failing tests go back to it.
"""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.act import TITLE_CHARS, CycleSession
from orchestrator.bot.cycle.choice import Choice
from orchestrator.bot.cycle.claim import Heartbeat, claim_task, look_for_task, show_claim
from orchestrator.bot.cycle.finish import (
    finish_cycle,
    release_claim,
    save_unfinished,
    settle,
    tell_overtaken,
)
from orchestrator.bot.cycle.parts import (
    OVERTIME_SECONDS,
    CycleResult,
    FoundTask,
    Outcome,
    PullRequestResult,
)
from orchestrator.bot.cycle.propose import UnfitTextError
from orchestrator.bot.cycle.tasks import TaskKind
from orchestrator.bot.git.opening import opened_clone
from orchestrator.core.cycle_events import Cloned, CycleEnded, ForgeUsed, Phase, PhaseEntered, TaskTaken
from orchestrator.core.errors import (
    BadReplyError,
    BudgetExhaustedError,
    PullwrightError,
    ToolError,
)
from orchestrator.core.events import Defence, Guarded, Warned
from orchestrator.core.messages import Spent
from orchestrator.core.prompts import fenced, render
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from orchestrator.bot.cycle.act import Operator
    from orchestrator.bot.cycle.attempt import CycleParts, CycleStart


async def run_cycle(start: CycleStart, operator: Operator | None = None) -> CycleResult:
    """Run one cycle: read the rules, repair what dead runs left, claim a task, work on it, release it.

    It always returns a result, and paid work is always saved.

    Args:
        operator: works in place of the model's loop; the cycle's parts have its prepared work.
    """
    result = CycleResult(start.run)
    before = start.forge.traffic()
    start.emit(start.event)
    parts, claimed = None, Choice(None)
    try:
        async with _time_limit(start.minutes):
            # In a thread, because this asks the forge.
            parts, fingerprint, notes = await asyncio.to_thread(_build_parts, start)
            for note in notes:
                parts.emit(Guarded(Defence.INSTRUCTIONS, note))
            parts.emit(PhaseEntered(Phase.CHOOSE))
            await _recover(parts, start.assignment.dead_runs)
            if start.assignment.only_look:
                await _report_next_task(parts, fingerprint, result)
            else:
                claimed = await claim_task(parts, fingerprint)
                parts = replace(parts, limits=claimed.limits or parts.limits)
                await _work_on(parts, claimed, result, operator)
    except asyncio.CancelledError:
        if not start.stop.requested:
            raise
        result.outcome = Outcome.INTERRUPTED
    except PullwrightError as error:
        result.end_by(error)
    except BudgetExhaustedError as error:
        result.outcome, result.reason, result.cause = Outcome.LIMIT, str(error), error
    except Exception as error:  # noqa: BLE001  border: a defect ends this cycle, not the worker
        result.outcome, result.cause = Outcome.FAILED, error
        result.error = f"internal error, please report it: {type(error).__name__}: {error}"
        start.emit(Warned("".join(traceback.format_exception(error))))
    finally:
        if parts is not None:
            await tell_overtaken(parts, result)
            await release_claim(parts, claimed, result)
            await settle(parts, result)
        result.requests = start.forge.traffic() - before
        result.quotas = start.forge.quotas()
    if result.requests.requests:
        start.emit(ForgeUsed(**asdict(result.requests)))
    start.emit(CycleEnded(result.to_json()))
    return result


@asynccontextmanager
async def _time_limit(
    minutes: float | None, overtime_seconds: float = OVERTIME_SECONDS
) -> AsyncIterator[None]:
    """End the block if it goes on for long after the cycle's time limit, whatever it does."""
    deadline = asyncio.timeout(None if minutes is None else minutes * 60.0 + overtime_seconds)
    try:
        async with deadline:
            yield
    except TimeoutError as error:
        if not deadline.expired():
            raise
        message = (
            f"{minutes:g} minutes are over, and the cycle did not end within {overtime_seconds:.0f} s more"
        )
        raise BudgetExhaustedError(message) from error


async def _work_on(parts: CycleParts, choice: Choice, result: CycleResult, operator: Operator | None) -> None:
    """Clone, plan and act, verify, propose and finish, while the heartbeat keeps the claim."""
    task = result.task = choice.task
    if task is None:
        result.outcome, result.reason, result.wake_at = Outcome.NO_TASK, choice.reason, choice.wake_at
        return
    parts.emit(TaskTaken(task.key, task.title, task.body, task.source, task.number))
    session: CycleSession | None = None

    def spent() -> Spent:
        return choice.spent_before + (session.spent if session else Spent())

    async with Heartbeat(choice.lease, spent, parts.clock, parts.emit):
        await show_claim(parts, choice)
        if parts.memory is not None:
            await parts.memory.learn()
        parts.emit(PhaseEntered(Phase.CLONE))
        opener = partial(parts.open_clone, Path(tempfile.gettempdir()))
        async with opened_clone(opener, lambda text: parts.emit(Warned(text)), parts.stop.now) as clone:
            files = await asyncio.to_thread(clone.tracked_files)
            parts.emit(Cloned(clone.base_commit, clone.base_branch, len(files), str(clone.folder)))
            session = CycleSession(parts, choice, clone, files, result)
            async with session.verification:
                try:
                    end = await _plan_and_act(session, operator)
                    await finish_cycle(session, end)
                finally:
                    await save_unfinished(session, choice.lease)


async def _plan_and_act(session: CycleSession, operator: Operator | None) -> SessionEnd:
    """Run the session and return how it ended. A proposed change stays proposed, however the session ends."""
    try:
        return await _run_session(session, operator)
    except BadReplyError as error:
        if session.attempt.result.pull_request is None:
            raise
        session.attempt.emit(
            Warned(f"the model continued after its pull request, and did not finish: {error}")
        )
        return SessionEnd(EndKind.COMPLETED, "")
    finally:
        await session.close()


async def _run_session(session: CycleSession, operator: Operator | None) -> SessionEnd:
    """Do what needs no model; else let the model plan and act, and verify and propose what it asks for.

    If a person does the work, that person decides what is proposed, and when.
    """
    end = await session.begin()
    if end is None and operator is not None:
        return await operator.work(session, partial(_verify_and_propose, session))
    end = end or await _replay(session) or await _complete_earlier_proposal(session)
    if end is not None:
        return end
    async for request in session.requests():
        request.answer(_verify_and_propose(session, request.title, request.body))
    end = session.end
    if end is None:
        raise AssertionError("a session that makes no more requests has an end")
    await _propose_unasked_changes(session, end)
    if end.kind in {EndKind.FINISH, EndKind.COMPLETED, EndKind.AWAITING, EndKind.LIMIT}:
        await _propose_refused_change(session)
    return end


async def _verify_and_propose(
    session: CycleSession, title: str, body: str, *, ignore_doubts: bool = False
) -> str:
    """Stage the files that tools touched, run the tests, and propose the change: see `ProposeChange`.

    If the base moves meanwhile, the change is put onto it and verified again.
    """
    while True:
        change = await session.proposer.prepare(title, body, ignore_doubts=ignore_doubts)
        await session.verification.check(change, ignore_doubts=ignore_doubts)
        answer = await session.proposer.propose(change)
        if answer is not None:
            return answer


def _build_parts(start: CycleStart) -> tuple[CycleParts, str, Sequence[str]]:
    """Build the cycle's parts with the restrictions of the repository's own rules on its default branch.

    Returns:
        The parts, the forge's fingerprint, and notes on the rules.
    """
    fingerprint = start.forge.fingerprint()
    parts, notes = start.parts(start.rules_file.text(fingerprint))
    return parts, fingerprint, notes


async def _recover(parts: CycleParts, others: Collection[str]) -> None:
    """Save what killed runs of this machine left. Free their claims, and those of `others` that died elsewhere."""
    if parts.recover is not None and parts.claimer is not None:
        parts.claimer.dead_runs = await asyncio.to_thread(parts.recover) | others


async def _report_next_task(parts: CycleParts, fingerprint: str, result: CycleResult) -> None:
    """Report which task a cycle would claim now, or why there is none."""
    looked = await look_for_task(parts, fingerprint)
    if isinstance(looked, FoundTask):
        result.outcome, result.found = Outcome.FOUND, looked
    else:
        result.outcome, result.reason, result.wake_at = Outcome.NO_TASK, looked.reason, looked.wake_at


async def _replay(session: CycleSession) -> SessionEnd | None:
    """Put a pull request onto its moved base. Return None if this is not the task, or a model is needed."""
    attempt, restored = session.attempt, session.restored
    task, base = attempt.task, attempt.clone.base_branch
    if task.kind is not TaskKind.REBASE or task.pull is None or not restored.replays:
        return None
    if not restored.base_moved:
        return SessionEnd(EndKind.FINISH, f"{task.url} is on top of {base} already")
    while True:
        change = await session.proposer.prepare_replay(task.pull)
        try:
            await session.verification.check(change, ignore_doubts=True)
        except ToolError as error:
            attempt.emit(Warned(f"the change does not pass its tests on top of {base}: {error}"))
            return None
        reason = await session.proposer.replay(task.pull, change)
        if reason is not None:
            return SessionEnd(EndKind.FINISH, reason)


async def _complete_earlier_proposal(session: CycleSession) -> SessionEnd | None:
    """Complete what an earlier cycle could not tell the forge. Return None if a model is needed."""
    attempt, restored, earlier = session.attempt, session.restored, session.earlier
    task, pull = attempt.task, attempt.task.pull
    if earlier is None:
        return None
    if restored.is_over and pull is not None:
        attempt.result.pull_request = PullRequestResult.of(pull)
        return SessionEnd(EndKind.FINISH, f"a later cycle proposed this work: {pull.address}")
    if question := earlier.unasked(task):
        session.tell_resumed()
        return SessionEnd(EndKind.QUESTION, question)
    committed = session.proposer.read_message(restored.message) if restored.message else None
    begun = committed or earlier.begun_for(task)
    if begun is None or restored.conflicts:
        return None
    try:
        await _verify_and_propose(session, begun.title, begun.body, ignore_doubts=True)
    except ToolError as error:
        if session.verification.proposes_failing:
            await _propose_refused_change(session)
        if attempt.result.pull_request is None:
            if session.verification.refused is None:  # else the model is told
                attempt.emit(
                    Warned(
                        f"the change that an earlier cycle had prepared cannot be proposed unchanged: {error}"
                    )
                )
            return None
    session.tell_resumed()
    return SessionEnd(
        EndKind.FINISH, "an earlier cycle had prepared the change, but did not open the pull request"
    )


async def _propose_unasked_changes(session: CycleSession, end: SessionEnd) -> None:
    """Propose the changes of a model that ended without asking for a pull request, as a draft.

    The model was told that nobody reads its plain text, so it considers the work done or has nobody to ask.
    Changes that it gave up by `finish`, or that a limit interrupted, are not proposed.
    """
    was_requested = session.proposer.has_pull_request or session.verification.refused
    if was_requested or end.kind not in {EndKind.COMPLETED, EndKind.AWAITING}:
        return
    if not await asyncio.to_thread(session.pending.paths):
        return
    session.proposer.draft = True
    title, last_words = session.attempt.task.title[:TITLE_CHARS], end.text.strip()
    try:
        try:
            body = render("cycle/proposed_by_host", words=fenced(last_words) if last_words else "")
            await _verify_and_propose(session, title, body, ignore_doubts=True)
        except UnfitTextError:
            body = render("cycle/proposed_by_host", words="")
            await _verify_and_propose(session, title, body, ignore_doubts=True)
    except ToolError as error:
        if session.verification.refused is None:  # else the outcome says it
            session.attempt.emit(
                Warned(f"the changes, which the model did not propose, cannot be proposed for it: {error}")
            )


async def _propose_refused_change(session: CycleSession) -> None:
    """Propose a change that was refused because of its tests, if it is still there unchanged."""
    verification = session.verification
    refused = verification.refused
    if refused is None or verification.is_required or verification.keeps_back:
        return
    if session.proposer.has_pull_request:
        return
    with verification.final_attempt():
        try:
            await _verify_and_propose(session, *refused)
        except ToolError as error:
            session.attempt.emit(
                Warned(f"the change that was refused for its tests cannot be proposed: {error}")
            )
