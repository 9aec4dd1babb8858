"""Finish, the last step of a cycle: what the session leaves, outcome, question, saved work, and released claim."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.saved_work import save_wip, wip_ref, wip_subject
from orchestrator.bot.cycle.choice import WORKING_LABEL, tell_waiting, waiting_place
from orchestrator.bot.cycle.claim import show_cap, show_on_forge
from orchestrator.bot.cycle.earlier import (
    MOST_ATTEMPTS,
    files_to_keep,
    pages_of,
    trimmed_events,
)
from orchestrator.bot.cycle.parts import (
    ACCESS_ERRORS,
    OVERTAKEN,
    OVERTAKEN_KEY,
    TASK_ERRORS,
    Outcome,
    outcome_of,
)
from orchestrator.bot.cycle.task_state import ERROR, WAITS, words_digest
from orchestrator.bot.cycle.tasks import CHOICE, asked_at
from orchestrator.bot.git.remote import Update
from orchestrator.bot.journal.folders import PATCH_NAME
from orchestrator.bot.policy.change_checks import places_of_secrets
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.verification.page import COMMAND_CHARS, table_rows
from orchestrator.core.cycle_events import (
    Phase,
    PhaseEntered,
    QuestionAsked,
    WorkSaved,
)
from orchestrator.core.errors import (
    BaseConflictError,
    ClaimLostError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRejectedError,
    JournalError,
    OvertakenError,
    PeoplesCommitsError,
    PushRefusedError,
    PushRejectedError,
    WithdrawnError,
    WorkspaceError,
)
from orchestrator.core.event_loop import in_thread
from orchestrator.core.events import Warned
from orchestrator.core.files import sync_folder
from orchestrator.core.prompts import one_line, render
from orchestrator.engine.session.loop import EndKind, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.act import CycleSession
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.choice import Choice
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.git.base import Snapshot
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.core.events import Emit, Event


_LAST_WORDS_CHARACTERS = 300

_NO_TASK_WORDS = ("no task", "no_task", "no eligible", "no open task", "no more task", "nothing to do")


_TALKED_OUT = {EndKind.FINISH, EndKind.COMPLETED, EndKind.AWAITING, EndKind.LIMIT}
"""The ends after which the model has nothing more to say about a change that its tests keep back."""


async def finish_cycle(session: CycleSession, end: SessionEnd) -> None:
    """Record the result of the session, and post its question if it has one."""
    result, verification = session.attempt.result, session.verification
    _, left = await asyncio.to_thread(session.pending.left)
    session.attempt.parts.emit(PhaseEntered(Phase.FINISH))
    is_kept_back = verification.refused is not None and verification.keeps_back
    if is_kept_back and not result.pull_request and end.kind in _TALKED_OUT:
        result.outcome, result.reason = Outcome.TESTS_FAIL, verification.why_refused or None
        await _tell_tests_fail(session)
        return
    await _record_end(session, end, has_left=bool(left))
    if result.outcome is Outcome.PROPOSED:
        await _take_back_tests_fail(session)
    elif session.proposer.refusal is not None and _is_given_up(result):
        refusal = session.proposer.refusal
        result.outcome, result.error, result.cause = Outcome.FAILED, str(refusal), refusal
    elif (why := verification.why_refused) and not result.pull_request:
        _report_refused_tests(result, f"nothing was proposed because of its tests ({why}); the work is kept")


def _is_given_up(result: CycleResult) -> bool:
    """Return whether the model ended without a pull request, and not because of a limit."""
    return result.pull_request is None and result.outcome in {Outcome.FAILED, Outcome.NO_TASK}


async def _record_end(session: CycleSession, end: SessionEnd, *, has_left: bool) -> None:
    """Record how the session ended.

    Args:
        has_left: whether it leaves changes that are not proposed.
    """
    parts, task, result = session.attempt.parts, session.attempt.task, session.attempt.result
    proposed = Outcome.PLANNED if parts.options.dry_run else Outcome.PROPOSED
    kind = end.kind
    if kind is EndKind.AWAITING and result.pull_request:
        # The text is an offer of more work: a question that needs an answer is asked by `ask_question`.
        kind = EndKind.COMPLETED
    match kind:
        case EndKind.QUESTION | EndKind.AWAITING:
            result.outcome, result.question = Outcome.QUESTION, end.text
            result.question_url, result.unasked = await post_question(parts, task, end.text)
        case EndKind.COMPLETED if not result.pull_request:
            words = one_line(" ".join(end.text.split()), limit=_LAST_WORDS_CHARACTERS, keep="`")
            result.outcome = Outcome.FAILED
            result.error = f"the model stopped and proposed nothing; its last words: {words}"
        case EndKind.FINISH | EndKind.COMPLETED:
            result.reason = end.text or None
            result.outcome = proposed if result.pull_request else Outcome.NO_TASK
            if has_left and not result.pull_request:
                result.outcome = Outcome.FAILED
                result.error = "the model finished without proposing its changes; they are in the patch"
        case EndKind.LIMIT:
            done = result.pull_request and not has_left
            result.outcome = proposed if done else Outcome.LIMIT
            result.reason = end.text
        case EndKind.OVERFLOW:
            result.outcome, result.error = Outcome.FAILED, end.text
        case EndKind.INTERRUPTED:
            result.outcome = Outcome.INTERRUPTED


async def _tell_tests_fail(session: CycleSession) -> None:
    """Show people on the issue what the tests said of the change that is not proposed, and the next commands."""
    parts, task = session.attempt.parts, session.attempt.task
    place, verdict = asked_at(task), session.verification.verdict
    if place is None or verdict is None or parts.options.dry_run:
        return
    commands = Commands(parts.repository)
    body = render(
        "cycle/tests_fail",
        is_update=task.pull is not None,
        reasons=verdict.reasons,
        rows=table_rows(verdict.runs),
        command=one_line(verdict.runs.command, limit=COMMAND_CHARS),
        retry=commands.retry(task.key),
        draft=commands.propose_failing(task.key),
        run=parts.run,
    )
    await show_on_forge(
        parts, lambda: parts.forge.ensure_comment(place, TESTS_FAIL_KEY, parts.guards.redactor.redact(body))
    )


async def _take_back_tests_fail(session: CycleSession) -> None:
    """Remove what an earlier cycle said of its failing tests, now that the task's change is proposed."""
    parts, earlier, place = session.attempt.parts, session.earlier, asked_at(session.attempt.task)
    was_told = earlier is not None and earlier.state.why == Outcome.TESTS_FAIL
    if was_told and place is not None and not parts.options.dry_run:
        await show_on_forge(parts, lambda: parts.forge.ensure_comment(place, TESTS_FAIL_KEY, ""))


TESTS_FAIL_KEY = "tests"
"""Section of our comment on an issue about a change that was not proposed because of its tests."""


def _report_refused_tests(result: CycleResult, message: str) -> None:
    if result.outcome is Outcome.LIMIT:
        result.reason = f"{result.reason}; {message}"
    elif result.outcome in {Outcome.FAILED, Outcome.NO_TASK}:
        result.outcome, result.error = Outcome.FAILED, message


def says_no_task(result: CycleResult) -> bool:
    """Return whether the model finished by saying that there is no task, which ends continuous mode."""
    reason = (result.reason or "").lower()
    return result.outcome is Outcome.NO_TASK and any(words in reason for words in _NO_TASK_WORDS)


_QUESTION_DIGITS = 8


async def post_question(parts: CycleParts, task: Task, question: str) -> tuple[str | None, str]:
    """Post a question on the task's issue, or another place that its forge has for it.

    Returns:
        Its address; None in a dry run, if the question contains a secret, or if there is no place for it. And why it
        could not be posted at its place; empty if it was.
    """
    url, guards, refusal = None, parts.guards, ""
    text = guards.wording.comment(question, issue=None)
    # Both are checked: removing parts of a text may join the parts of a secret.
    if not parts.options.dry_run and not any(map(guards.redactor.holds_secret, (question, text))):
        has_choices = CHOICE.search(question) is not None
        place = asked_at(task)
        is_folder = parts.repository.startswith("/")  # where nobody can comment
        command = Commands(parts.repository).answer(task.key) if is_folder else ""
        body = render(
            "cycle/question", question=text, run=parts.run, has_choices=has_choices, command=command
        )
        # Another question on the task gets another comment.
        key = f"{task.key}-{hashlib.sha256(question.encode()).hexdigest()[:_QUESTION_DIGITS]}"
        try:
            url = await asyncio.to_thread(parts.forge.ensure_question, place, key, body)
        except (ForgeNotFoundError, ForgePermissionError, ForgeRejectedError) as error:
            # It stays with the task, which has no better place for it than its own page.
            url, refusal = task.url or f"#{place}", str(error)
            parts.emit(Warned(f"the question could not be posted: {error}"))
    parts.emit(QuestionAsked(question, url))
    return url, refusal


_GIT_FOLDER = "git"


_COMPLETED = frozenset({Outcome.PROPOSED, Outcome.NO_TASK, Outcome.PLANNED, Outcome.SUPERSEDED})


async def tell_overtaken(parts: CycleParts, result: CycleResult) -> None:
    """Say on the task's issue why nothing was proposed, unless nobody would read it there. It does not raise."""
    cause, task = result.cause, result.task
    if not isinstance(cause, OvertakenError):
        return
    is_over = isinstance(cause, WithdrawnError) and cause.is_over
    result.cause = None  # nothing failed
    if task is None or task.number is None or is_over or parts.options.dry_run:
        return
    number = task.number
    body = render(
        "cycle/overtaken",
        outcome=str(result.outcome),
        reason=parts.guards.wording.inline(result.reason or ""),
        is_kept=bool(result.saved),
        is_kept_here=result.is_kept_here,
        again=Commands(parts.repository).retry(task.key),
        run=parts.run,
    )
    await show_on_forge(parts, lambda: parts.forge.ensure_comment(number, OVERTAKEN_KEY, body))


async def save_unfinished(session: CycleSession, lease: Lease | None) -> None:
    """Save changes that are not proposed, however the session ended. It raises no expected error.

    The work goes to a hidden ref of the remote, from which the next cycle on the task continues. If the
    remote refuses it, it is stored on this machine for the next cycle here. For people a patch is written to
    the run's folder. If its disk is full and no other place has all changes, it is written to the temporary folder. If
    nothing can be written, the clone stays and its path is reported. If the files cannot be read, the conversation is
    saved alone. A completed cycle saves nothing, and earlier unfinished work is deleted.
    """
    parts, error = session.attempt.parts, sys.exception()
    notices: list[Event] = []
    try:
        with parts.stop.saving():
            await in_thread(_save_or_leave, session, lease, error, notices.append)
    finally:
        for event in notices:  # from here, because listeners must not be called by another thread
            parts.emit(event)


def _save_or_leave(
    session: CycleSession, lease: Lease | None, error: BaseException | None, emit: Emit
) -> None:
    try:
        _save(session, lease, error, emit)
    except (
        BaseException
    ):  # an unexpected error must not lose the work: without this, the clone is removed now
        _leave_clone(session, "the changes could not be saved", emit)
        raise


def _save(session: CycleSession, lease: Lease | None, error: BaseException | None, emit: Emit) -> None:
    parts, result = session.attempt.parts, session.attempt.result
    is_copy = parts.operator is not None and parts.operator.prepared_work is not None
    outcome = result.outcome if error is None else outcome_of(error)
    # Changes that wait for a person are in the patch and in our comment. No cycle continues them.
    left = _left(session, emit)
    paths, patch = left or (set(), b"")
    goes_on = False
    if lease is not None and parts.kept is not None:
        holds_claim = not isinstance(error, ClaimLostError)
        counts = not isinstance(error, ACCESS_ERRORS)
        saving = _Saving(session, lease, parts.kept, outcome, emit, holds_claim=holds_claim, counts=counts)
        if outcome in _COMPLETED and not paths:
            if left is not None:
                saving.end()
        elif not is_copy and (patch or session.conversation):
            goes_on = saving.save(has_files=left is not None)
    if patch and not is_copy:
        _save_patch(session, patch, emit, goes_on=goes_on)
    if isinstance(error, OvertakenError) and (result.saved or outcome is Outcome.SUPERSEDED):
        _remove_new_branch(session, emit)
    if result.patch or result.saved:
        emit(WorkSaved(result.patch or "", result.saved or ""))


def _remove_new_branch(session: CycleSession, emit: Emit) -> None:
    """Remove the branch that was pushed for a pull request which is not opened: its base may have been rewritten."""
    proposer, result = session.proposer, session.attempt.result
    if not proposer.new_branch or proposer.pushed is None or proposer.has_pull_request:
        return
    try:
        session.clone.remove_branch(proposer.new_branch, proposer.pushed)
    except WorkspaceError as failure:
        emit(Warned(f"the branch {proposer.new_branch} stays without a pull request: {failure}"))
    else:
        result.branch = result.commit = None


def _left(session: CycleSession, emit: Emit) -> tuple[set[str], bytes] | None:
    """Return the changes that are not proposed, as `PendingChanges.left`; None if they cannot be read.

    Reading them writes objects. If the temporary folder is full, these go to the run's folder.
    """
    try:
        return session.pending.left()
    except (OSError, WorkspaceError) as failure:
        first = failure
    try:
        session.clone.continue_in(session.attempt.parts.folder / _GIT_FOLDER)
        return session.pending.left()
    except (OSError, WorkspaceError):
        _leave_clone(session, f"the changes could not be read ({first})", emit)
        return None


@dataclass(frozen=True, slots=True)
class _Saving:
    """Saves a cycle's work to the remote, or else to this machine.

    Attributes:
        holds_claim: False once another worker was seen to hold the claim.
        counts: whether the cycle was an attempt at the task.
    """

    session: CycleSession
    lease: Lease
    kept: KeptWork
    outcome: Outcome
    emit: Emit
    holds_claim: bool
    counts: bool

    @property
    def _parts(self) -> CycleParts:
        return self.session.attempt.parts

    @property
    def _key(self) -> str:
        return self.lease.record.task

    def end(self) -> None:
        """Note that nothing of the task is left: the release of the claim removes what was saved of it."""
        result = self.session.attempt.result
        is_untouched = self.outcome is Outcome.NO_TASK and not (result.rounds or result.commit)
        result.is_over = self.holds_claim and not is_untouched  # else this cycle did not continue it

    def save(self, *, has_files: bool = True) -> bool:
        """Push the work and the conversation; store both on this machine if the push fails.

        Args:
            has_files: whether the files can be read; if not, those stay that an earlier cycle saved.

        Returns:
            Whether the next cycle goes on with all changes, so that nobody needs a patch.
        """
        session, parts = self.session, self._parts
        state = replace(session.state(self.outcome, counts=self.counts), files_lost=not has_files)
        pages = pages_of(state, trimmed_events(session.conversation), parts.guards.redactor)
        replaces = session.continues
        files = None if has_files else session.saved_files
        if self.holds_claim:
            try:
                is_whole = self._push(pages, replaces, files)
            except (BaseConflictError, ForgeError, WorkspaceError) as failure:
                self.emit(Warned(f"the work could not be saved on the remote: {failure}"))
            else:
                self.kept.remove(self._key)
                return is_whole
        try:
            made = files or session.clone.snapshot(
                set(session.ledger.touched),
                wip_subject(self._key),
                include_commands=session.ledger.shell_used,
                find_secrets=self._secrets,
                redact=parts.guards.redactor.redact,
            )
            self.kept.write(self._key, files_to_keep(session.clone.pack(made), pages, replaces))
        except (JournalError, WorkspaceError) as failure:
            message = (
                f"the work could not be stored on this machine; the next cycle starts without it: {failure}"
            )
        else:
            session.attempt.result.is_kept_here = True
            message = f"the next cycle on {self._key} on this machine continues the work"
        self.emit(Warned(message))
        return False

    def _push(self, pages: Mapping[str, bytes], replaces: str | None, files: Snapshot | None) -> bool:
        """Push the work. Return whether no change was left out."""
        session, parts = self.session, self._parts
        if files is None:
            by_commands = session.ledger.shell_used
            moved = session.attempt.moved_base()
            if moved is not None and moved.is_rewritten:
                # What was taken off the base stays off the remote.
                session.clone.put_onto(moved, set(session.ledger.touched), include_commands=by_commands)
        saved = save_wip(
            session.clone,
            self._key,
            pages,
            touched=set(session.ledger.touched),
            include_commands=session.ledger.shell_used,
            continues=replaces,
            saved_at=parts.clock.now(),
            stamp=parts.run,
            find_secrets=self._secrets,
            redact=parts.guards.redactor.redact,
            lease=self.lease,
            files=files,
        )
        session.attempt.result.saved = saved.ref
        for item in saved.left_out:
            self.emit(Warned(f"{item.path} is not in the saved work: {item.reason}"))
        return not (saved.left_out or session.proposer.left_out)

    def _secrets(self, diff: str) -> list[str]:
        return places_of_secrets(diff, self._parts.guards.redactor.holds_secret)


def _save_patch(session: CycleSession, patch: bytes, emit: Emit, *, goes_on: bool) -> None:
    """Write a patch for people. What the next cycle has goes to the run's folder only: nobody would remove it elsewhere."""
    parts = session.attempt.parts
    elsewhere = Path(tempfile.gettempdir(), f"pullwright-{parts.run}.patch")
    for target in (parts.folder / PATCH_NAME, *(() if goes_on else (elsewhere,))):
        try:
            write_private(target, patch)
        except OSError:
            continue
        session.attempt.result.patch = str(target)
        if parts.guards.redactor.holds_secret(patch.decode("utf-8", "replace")):
            emit(Warned("the saved patch holds what looks like a secret: do not publish it"))
        return
    if not goes_on:
        _leave_clone(session, "no space to save the changes", emit)


def write_private(target: Path, patch: bytes) -> None:
    """Write a new file that only its owner can read. An existing link is not followed."""
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(patch)
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(target.parent)


def _leave_clone(session: CycleSession, why: str, emit: Emit) -> None:
    """Leave the clone in place for a person, without the configuration that git would execute there."""
    warning = ""
    try:
        session.clone.keep()
    except WorkspaceError as error:
        warning = f"; run no git there: {error}"
    emit(Warned(f"{why}; the clone is kept at {session.clone.tree}{warning}"))


STATUS_KEY = "status"
"""Section of our comment on a pull request that records what was handled."""

_STATUS_CHARACTERS = 2_000

_OUTCOME_WORDS = {
    Outcome.PROPOSED: "the pull request was updated",
    Outcome.NO_TASK: "nothing was changed",
    Outcome.FAILED: "it failed",
    Outcome.LIMIT: "a limit ended it",
    Outcome.TESTS_FAIL: "a change was made and not pushed, because its tests fail",
}

_SHORT_COMMIT = 10


def _why_waiting(result: CycleResult, choice: Choice) -> str:
    """Return why only a person can help with the task; empty if another cycle may complete it."""
    attempts = 1 + (choice.earlier.state.attempts if choice.earlier else 0)
    is_last = attempts >= MOST_ATTEMPTS and not isinstance(result.cause, (*TASK_ERRORS, *ACCESS_ERRORS))
    if isinstance(result.cause, (PushRefusedError, PeoplesCommitsError)) or (
        result.outcome is Outcome.FAILED and result.cause is not None and is_last
    ):
        return result.error or str(result.cause)
    if result.unasked and choice.task is not None:
        return f"its question ({result.question}) could not be posted: {result.unasked}"
    return ""


async def release_claim(parts: CycleParts, choice: Choice, result: CycleResult) -> None:
    """Release the claim with the task's outcome, and remove the label. It does not raise."""
    lease, task = choice.lease, choice.task
    if lease is None or task is None:
        return
    pull = result.pull_request.number if result.pull_request else None
    redact = parts.guards.redactor.redact
    why = redact(" ".join(_why_waiting(result, choice).split()))
    # What stopped from outside says nothing about deaths before it.
    deaths = None if result.outcome in {Outcome.PAUSED, Outcome.INTERRUPTED} else 0
    released = False
    with parts.stop.saving():
        if result.outcome in _COMPLETED:
            await _note_round(parts, task, result)
        if why:
            result.waits[task.key] = why
            place, retry = waiting_place(task), Commands(parts.repository).retry(task.key)
            await show_on_forge(parts, lambda: tell_waiting(parts.forge, place, why, parts.run, retry))
        drops = _saved_before(choice, result)
        release = partial(
            lease.release,
            WAITS if why else outcome_words(result, task),
            pull,
            choice.spent_before + result.spent,
            deaths=deaths,
            why=why,
        )
        try:
            try:
                released = await asyncio.to_thread(release, drops=drops)
            except PushRejectedError as error:
                if drops is None:
                    raise
                parts.emit(Warned(f"saved work that has been proposed since could not be removed: {error}"))
                released = await asyncio.to_thread(release)
            if released and result.is_over and parts.kept is not None:
                parts.kept.remove(task.key)
        except WorkspaceError as error:
            parts.emit(Warned(f"the claim on {task.key} was not released, and expires by itself: {error}"))
        if released and result.outcome not in _COMPLETED:
            # Not before: what a full disk ended was neither saved nor released, and is to be done again.
            await _note_round(parts, task, result)
        if (number := task.number) is not None and not lease.lost:
            await show_cap(parts, choice, choice.spent_before + result.spent, is_over=True)
            await show_on_forge(parts, lambda: parts.forge.remove_label(number, WORKING_LABEL))


def _saved_before(choice: Choice, result: CycleResult) -> Update | None:
    """Return the removal of what earlier cycles saved on the remote; None if there is nothing to remove."""
    task, earlier = choice.task, choice.earlier
    if not result.is_over or task is None or earlier is None or earlier.commit is None:
        return None
    return Update(wip_ref(task.key), earlier.commit, None)


async def settle(parts: CycleParts, result: CycleResult) -> None:
    """Record the cycle's cost for other machines, what waits for a person, and whether the task continues here. It does not raise."""
    try:
        with parts.stop.saving():
            await parts.budget.close(result.run or "", result.spent)
    except WorkspaceError as error:
        parts.emit(Warned(f"the cost of the cycle was not recorded for other machines: {error}"))
    if parts.claimer is not None:
        redact = parts.guards.redactor.redact
        result.waits |= {key: redact(why) for key, why in parts.claimer.waiting.items()}
    if result.outcome in {Outcome.PAUSED, Outcome.CONFLICT}:
        parts.tasks.put_back()


async def _note_round(parts: CycleParts, task: Task, result: CycleResult) -> None:
    """Record on our pull request which comments or checks were handled, so that they are not handled again.

    If the model was not asked, nothing was handled; if the work continues later, it is not complete. The call for a
    cycle without a result follows the release of its claim.
    """
    pull, goes_on = task.pull, result.outcome in {Outcome.PAUSED, Outcome.INTERRUPTED, Outcome.QUESTION}
    if pull is None or not task.status_marker or goes_on or not (result.rounds or result.commit):
        return
    reason = (result.reason or result.error or "")[:_STATUS_CHARACTERS]
    body = render(
        "cycle/status",
        kind=str(task.kind),
        head=pull.commit[:_SHORT_COMMIT],
        run=parts.run,
        outcome=_OUTCOME_WORDS.get(result.outcome, str(result.outcome)),
        marker=task.status_marker,
        words=parts.guards.wording.comment(reason, issue=None),
    )
    await show_on_forge(parts, lambda: parts.forge.ensure_comment(pull.number, STATUS_KEY, body))


def outcome_words(result: CycleResult, task: Task) -> str:
    """Return the outcome for the claim's record: one word, and a digest of the task's text if it matters.

    `failed` is a fault of the model or the task; `error` is any other fault, as of a server or the disk.
    """
    outcome = str(result.outcome)
    if (
        result.cause is not None
        and not isinstance(result.cause, TASK_ERRORS)
        and result.outcome is Outcome.FAILED
    ):
        outcome = ERROR
    if result.outcome in {
        *(Outcome.NO_TASK, Outcome.FAILED, Outcome.LIMIT, Outcome.TESTS_FAIL),
        *OVERTAKEN,
    }:
        return f"{outcome} {words_digest(task)}"
    return outcome
