"""One cycle, top to bottom: claim a task, clone, plan and act, verify, propose, finish.

The model asks for a pull request during its session, with the tool `create_pull_request`. The change is then
verified
and proposed here, and the model reads the result: failing tests go back to it.
"""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.act import TITLE_CHARS, CycleSession
from orchestrator.bot.cycle.claim import Choice, Heartbeat, claim_task, look_for_task, show_claim
from orchestrator.bot.cycle.finish import finish_cycle, release_claim, save_unfinished, settle
from orchestrator.bot.cycle.parts import CycleResult, FoundTask, Outcome, outcome_of
from orchestrator.bot.cycle.propose import UnfitWordsError, as_result
from orchestrator.bot.cycle.tasks import TaskKind
from orchestrator.bot.git.opening import open_in_thread
from orchestrator.core.errors import BadReplyError, PullwrightError, ToolError, WorkspaceError
from orchestrator.core.events import (
    Cloned,
    CycleEnded,
    Defence,
    ForgeUsed,
    Guarded,
    Phase,
    PhaseEntered,
    TaskTaken,
    Warned,
)
from orchestrator.core.fence import fenced
from orchestrator.core.messages import Spent
from orchestrator.core.prompts import render
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from orchestrator.bot.cycle.parts import CycleParts, CycleStart
    from orchestrator.bot.git.clone import Clone


async def run_cycle(start: CycleStart) -> CycleResult:
    """Run one cycle: read the rules, repair what dead runs left, claim a task, work on it, release it.

    It always returns a result, and paid work is always saved.
    """
    result = CycleResult(start.run)
    before = start.forge.traffic()
    start.emit(start.event)
    parts, claimed = None, Choice(None)
    try:
        fingerprint = await asyncio.to_thread(start.forge.fingerprint)
        parts = await _build_parts(start, fingerprint)
        parts.emit(PhaseEntered(Phase.CHOOSE))
        await _recover(parts, start.assignment.dead_runs)
        if start.assignment.only_look:
            await _report_next_task(parts, fingerprint, result)
        else:
            claimed = await claim_task(parts, fingerprint)
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
        result.quotas = start.forge.quotas()
    if result.requests.requests:
        start.emit(ForgeUsed(**asdict(result.requests)))
    start.emit(CycleEnded(result.to_json()))
    return result


async def _work_on(parts: CycleParts, choice: Choice, result: CycleResult) -> None:
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
        opened = await open_in_thread(partial(parts.open_clone, Path(tempfile.gettempdir())))
        with _closing(opened, parts) as clone:
            files = await asyncio.to_thread(clone.tracked_files)
            parts.emit(Cloned(clone.base_commit, clone.base_branch, len(files), str(clone.folder)))
            session = CycleSession(parts, choice, clone, files, result)
            async with session.verification:
                try:
                    end = await _plan_and_act(session)
                    await finish_cycle(session, end)
                finally:
                    save_unfinished(parts, choice, session, result)


async def _plan_and_act(session: CycleSession) -> SessionEnd:
    """Run the session and return how it ended. A proposed change stays proposed, however the session ends."""
    try:
        return await _run_session(session)
    except BadReplyError as error:
        if session.attempt.result.pull_request is None:
            raise
        session.attempt.emit(
            Warned(f"the model continued after its pull request, and did not finish: {error}")
        )
        return SessionEnd(EndKind.COMPLETED, "")
    finally:
        await session.close()


async def _run_session(session: CycleSession) -> SessionEnd:
    """Do what needs no model; else let the model plan and act, and verify and propose what it asks for.

    If a person does the work, that person decides what is proposed, and when.
    """
    end, operator = await session.begin(), session.attempt.parts.operator
    if end is None and operator is not None:
        return await operator.work(session, partial(_verify_and_propose, session))
    end = end or await _replay(session) or await _complete_earlier_proposal(session)
    if end is not None:
        return end
    async for asked in session.requests():
        asked.answer(_verify_and_propose(session, asked.title, asked.body))
    end = session.end
    if end is None:
        raise AssertionError("a session that makes no more requests has an end")
    await _propose_unasked_changes(session, end)
    if end.kind in {EndKind.FINISH, EndKind.COMPLETED, EndKind.AWAITING, EndKind.LIMIT}:
        await _propose_refused_change(session)
    return end


async def _verify_and_propose(session: CycleSession, title: str, body: str, *, is_begun: bool = False) -> str:
    """Stage the files that tools touched, run the tests, and propose the change. Return the model's answer.

    Args:
        is_begun: whether single refusals are skipped: see `Proposer.prepare`.

    Raises:
        ToolError: the change or its tests must not be proposed; the model can repair it.
        WorkspaceError: git failed.
        ForgeError: the forge failed.
    """
    change = await session.proposer.prepare(title, body, is_begun=is_begun)
    await session.verification.check(change, is_begun=is_begun)
    return await session.proposer.propose(change)


async def _build_parts(start: CycleStart, fingerprint: str) -> CycleParts:
    """Build the cycle's parts with the restrictions of the repository's own rules on its default branch."""
    text = await asyncio.to_thread(start.rules_file.text, fingerprint)
    # Building the parts asks the forge for the address, so an outage here is a result of the cycle.
    parts, notes = await asyncio.to_thread(start.parts, text)
    for note in notes:
        parts.emit(Guarded(Defence.INSTRUCTIONS, note))
    return parts


async def _recover(parts: CycleParts, others: Collection[str]) -> None:
    """Save what killed runs of this machine left, and free their claims and those of `others`, dead elsewhere."""
    if parts.recovery is not None and parts.claimer is not None:
        parts.claimer.dead_runs = {*await asyncio.to_thread(parts.recovery.recover), *others}


async def _report_next_task(parts: CycleParts, fingerprint: str, result: CycleResult) -> None:
    """Report which task a cycle would claim now, or why there is none."""
    looked = await look_for_task(parts, fingerprint)
    if isinstance(looked, FoundTask):
        result.outcome, result.found = Outcome.FOUND, looked
    else:
        result.outcome, result.reason, result.wake_at = Outcome.NO_TASK, looked.reason, looked.wake_at


@contextmanager
def _closing(clone: Clone, parts: CycleParts) -> Iterator[Clone]:
    """Yield the clone and remove it at the end. A folder that cannot be removed is only a warning."""
    try:
        yield clone
    finally:
        try:
            clone.close()
        except WorkspaceError as error:
            parts.emit(Warned(f"the clone could not be removed: {error}"))


async def _replay(session: CycleSession) -> SessionEnd | None:
    """Put a pull request onto its moved base. Return None if this is not the task, or a model is needed."""
    attempt, brought = session.attempt, session.brought
    task, base = attempt.task, attempt.clone.base_branch
    if task.kind is not TaskKind.REBASE or task.pull is None or not brought.replays:
        return None
    if not brought.base_moved:
        return SessionEnd(EndKind.FINISH, f"{task.url} is on top of {base} as it is")
    change = await session.proposer.prepare_replay(task.pull)
    try:
        await session.verification.check(change, is_begun=True)
    except ToolError as error:
        attempt.emit(Warned(f"on top of {base} the tests do not pass: {error}"))
        return None
    return SessionEnd(EndKind.FINISH, await session.proposer.replay(task.pull, change))


async def _complete_earlier_proposal(session: CycleSession) -> SessionEnd | None:
    """Complete what an earlier cycle could not tell the forge. Return None if a model is needed."""
    attempt, brought, earlier = session.attempt, session.brought, session.earlier
    task, pull = attempt.task, attempt.task.pull
    if earlier is None:
        return None
    if brought.is_over and pull is not None:
        attempt.result.pull_request = as_result(pull)
        return SessionEnd(EndKind.FINISH, f"{pull.address} has all that was left")
    if question := earlier.unasked(task):
        session.tell_resumed()
        return SessionEnd(EndKind.QUESTION, question)
    words = session.proposer.words_of(brought.message) if brought.message else None
    begun = words or earlier.begun_for(task)
    if begun is None or brought.conflicts:
        return None
    try:
        await _verify_and_propose(session, begun.title, begun.body, is_begun=True)
    except ToolError as error:
        attempt.emit(
            Warned(f"the change that an earlier cycle had prepared cannot be proposed unchanged: {error}")
        )
        return None
    session.tell_resumed()
    return SessionEnd(
        EndKind.FINISH, "an earlier cycle had prepared the change, but could not open the pull request"
    )


async def _propose_unasked_changes(session: CycleSession, end: SessionEnd) -> None:
    """Propose the changes of a model that ended without asking for a pull request, as a draft.

    The model was told that nobody reads its plain text, so it considers the work done or has nobody to ask.
    Changes that it gave up by `finish`, or that a limit interrupted, are not proposed.
    """
    asked_for = session.proposer.has_pull_request or session.verification.refused
    if asked_for or end.kind not in {EndKind.COMPLETED, EndKind.AWAITING}:
        return
    if not await asyncio.to_thread(session.pending.paths):
        return
    session.proposer.draft = True
    title, said = session.attempt.task.title[:TITLE_CHARS], end.text.strip()
    try:
        try:
            words = render("cycle/proposed_by_host", words=fenced(said) if said else "")
            await _verify_and_propose(session, title, words, is_begun=True)
        except UnfitWordsError:
            words = render("cycle/proposed_by_host", words="")
            await _verify_and_propose(session, title, words, is_begun=True)
    except ToolError as error:
        session.attempt.emit(
            Warned(
                f"the model's changes, which it did not propose, cannot be proposed for it either: {error}"
            )
        )


async def _propose_refused_change(session: CycleSession) -> None:
    """Propose a change that was refused because of its tests, if it is still there unchanged."""
    verification = session.verification
    refused = verification.refused
    if refused is None or verification.is_required or session.proposer.has_pull_request:
        return
    with verification.last_time():
        try:
            await _verify_and_propose(session, *refused)
        except ToolError as error:
            session.attempt.emit(
                Warned(f"the change that was refused for its tests cannot be proposed: {error}")
            )
