"""While a task is ours: the claim is shown on the issue, kept alive by a heartbeat, and released at the end."""

from __future__ import annotations

import asyncio
import hashlib
from types import NoneType
from typing import TYPE_CHECKING, Self

from orchestrator.bot.cycle.result import Outcome
from orchestrator.core.cycle_events import Claimed
from orchestrator.core.errors import (
    BadReplyError,
    ClaimLostError,
    ContentFilterError,
    ContextLengthError,
    ForgeError,
    InvalidRequestError,
    ToolError,
    WorkspaceError,
)
from orchestrator.core.events import Warned
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.claim import Choice
    from orchestrator.bot.cycle.parts import CycleParts
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.core.spent import Spent


class Heartbeat:
    """A heartbeat. Where another worker has taken the claim over, the block ends with `ClaimLostError`.

    A remote that cannot be reached is no reason to stop: the fence decides when the branch is pushed.

    Args:
        lease: what is renewed; None where nothing is claimed, as in a dry run.
        spent: what the task has cost so far, for the claim's record.
        clock: time between two beats.
        emit: told of beats that failed.
    """

    def __init__(self, lease: Lease | None, spent: Callable[[], Spent], clock: Clock, emit: Emit) -> None:
        self._lease, self._spent, self._clock, self._emit = lease, spent, clock, emit
        self._beats: asyncio.Task[None] | None = None
        self._lost: ClaimLostError | None = None

    async def __aenter__(self) -> Self:
        """Begin to beat."""
        worker = asyncio.current_task()
        if self._lease is not None and worker is not None:
            self._beats = asyncio.create_task(self._beat(self._lease, worker))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop beating.

        Raises:
            ClaimLostError: that is why the work was cancelled.
        """
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait([self._beats])
        worker = asyncio.current_task()
        if self._lost is None or not isinstance(error, asyncio.CancelledError) or worker is None:
            return
        if worker.uncancel() == 0:  # else somebody else cancelled too, and that counts
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
                self._emit(Warned(f"the claim could not be renewed, and is tried again: {error}"))


WORKING_LABEL = "pullwright:working"
"""On an issue that is being worked on. It only mirrors the claim: nothing asks for it."""

STATUS_KEY = "status"
"""The section of our comment on a pull request that says what was worked on."""

ERROR = "error"
"""The outcome, in a claim's record, of a cycle that something outside of the task ended."""

_OF_THE_TASK = (
    NoneType,
    BadReplyError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ToolError,
)
_DIGEST_DIGITS = 12
_WORDS_CHARACTERS = 2_000
_ENDED = {
    Outcome.PROPOSED: "the pull request was updated",
    Outcome.NO_TASK: "nothing was changed",
    Outcome.FAILED: "it failed",
    Outcome.LIMIT: "a limit ended it",
}
_SHORT_COMMIT = 10


async def show_claim(parts: CycleParts, choice: Choice) -> None:
    """Tell of the claim, in the journal and on the issue, and do what had to wait for it."""
    if choice.lease is None or choice.task is None:
        return
    record, previous = choice.lease.record, choice.lease.previous
    expired = previous is not None and previous.state == "held"
    parts.emit(
        Claimed(
            choice.task.key,
            record.owner,
            record.number,
            record.expires_at.isoformat(timespec="seconds"),
            previous.run if previous and expired else "",
            choice.spent_before,
        )
    )
    for action in choice.after_claim:
        await _on_forge(parts, action)
    if (number := choice.task.number) is not None:
        await _on_forge(parts, lambda: parts.forge.ensure_label(number, WORKING_LABEL))


async def release_claim(parts: CycleParts, choice: Choice, result: CycleResult) -> None:
    """Release the claim, with what became of the task, and take the label off. It does not raise."""
    lease, task = choice.lease, choice.task
    if lease is None or task is None:
        return
    pull = result.pull_request.number if result.pull_request else None
    with parts.stop.saving():
        await _note_round(parts, task, result)
        try:
            await asyncio.to_thread(
                lease.release,
                outcome_words(result, task),
                pull=pull,
                spent=choice.spent_before + result.spent,
            )
        except WorkspaceError as error:
            parts.emit(Warned(f"the claim on {task.key} was not released, and expires by itself: {error}"))
        if (number := task.number) is not None and not lease.lost:
            await _on_forge(parts, lambda: parts.forge.remove_label(number, WORKING_LABEL))


async def settle(parts: CycleParts, result: CycleResult) -> None:
    """Note for other machines what the cycle has cost, and for this one whether the task goes on. It does not raise."""
    try:
        with parts.stop.saving():
            await parts.budget.close(result.run or "", result.spent)
    except WorkspaceError as error:
        parts.emit(Warned(f"what the cycle has cost was not written down for other machines: {error}"))
    if result.outcome is Outcome.PAUSED:
        parts.tasks.put_back()


async def _note_round(parts: CycleParts, task: Task, result: CycleResult) -> None:
    """Say on our pull request what was worked on, so that it is not worked on again.

    Where the model was not asked, nothing was worked on; where the work goes on later, it is not over.
    """
    pull, goes_on = task.pull, result.outcome in {Outcome.PAUSED, Outcome.INTERRUPTED, Outcome.QUESTION}
    if pull is None or not task.status_marker or goes_on or not (result.rounds or result.commit):
        return
    said = (result.reason or result.error or "")[:_WORDS_CHARACTERS]
    body = render(
        "cycle/status",
        kind=str(task.kind),
        head=pull.commit[:_SHORT_COMMIT],
        run=parts.run,
        outcome=_ENDED.get(result.outcome, str(result.outcome)),
        marker=task.status_marker,
        words=parts.guards.redact(parts.guards.wording.comment(said, issue=None)),
    )
    await _on_forge(parts, lambda: parts.forge.ensure_comment(pull.number, STATUS_KEY, body))


async def _on_forge(parts: CycleParts, action: Callable[[], object]) -> None:
    """What only shows something to people is no reason to fail."""
    try:
        await asyncio.to_thread(action)
    except ForgeError as error:
        parts.emit(Warned(str(error)))


def outcome_words(result: CycleResult, task: Task) -> str:
    """How a claim's record tells the outcome: one word, and what the task's words were where that may matter.

    `failed` is the model's or the task's own fault; `error` is what went wrong around it.
    """
    outcome = str(result.outcome)
    if result.outcome is Outcome.FAILED and not isinstance(result.cause, _OF_THE_TASK):
        outcome = ERROR
    if result.outcome in {Outcome.NO_TASK, Outcome.FAILED, Outcome.LIMIT}:
        return f"{outcome} {words_digest(task)}"
    return outcome


def words_digest(task: Task) -> str:
    """A short text that changes with the task's words and what people said about it."""
    words = "\0".join((task.title, task.body, *(remark.text for remark in task.remarks)))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
