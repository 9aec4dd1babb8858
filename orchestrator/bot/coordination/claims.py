"""Claims: of all workers anywhere one has a task, with nothing between them but the repository's git server."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import (
    CLAIMS,
    ClaimRecord,
    LeaseTimes,
    claim_message,
    claim_ref,
    parse_claim,
)
from orchestrator.bot.coordination.lease import Lease
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from orchestrator.bot.coordination.records import Records
    from orchestrator.core.clock import Clock

__all__ = ["ClaimRecord", "Claims", "Lease", "LeaseTimes"]

RETRY = "retry"
"""The outcome by which a person says that a task is to be taken again, whatever became of it."""
_MOST_LOOKS = 5
_BY_A_PERSON = "a person"


class Claims:
    """The claims on the tasks of one repository.

    Args:
        records: the hidden references of the remote.
        owner: names this machine for people; one word.
        clock: tells the time.
        times: how long a claim holds.
        nonce: makes a text that was never made before, on any machine.
    """

    def __init__(
        self, records: Records, owner: str, clock: Clock, times: LeaseTimes, nonce: Callable[[], str]
    ) -> None:
        self._records = records
        self._owner = owner
        self._clock = clock
        self._times = times
        self._nonce = nonce
        # What a commit says never changes: those that were listed last are not read again.
        self._said: dict[str, ClaimRecord] = {}

    def take(
        self,
        task: str,
        run: str,
        dead_runs: Collection[str] = (),
        unless: Callable[[ClaimRecord], str | None] = lambda _record: None,
        *,
        seen: Mapping[str, str] | None = None,
    ) -> Lease | ClaimRecord | str:
        """Take a task if it is free: never claimed, released, expired, or held by a run that is dead.

        Of all who try at once one gets it. A claim that this run has already, because an answer was lost,
        is taken up again.

        Args:
            task: its key.
            run: who takes it; no other run anywhere has this name.
            dead_runs: runs that are known to be dead.
            unless: asked of the claim before, where the task is free: why it is not taken all the same.
            seen: what `Records.list` said of the claim's reference, among others. It may be old: the push
                takes the claim only if it is still there. None: it is asked for.

        Returns:
            The lease; or the claim of the one who has it; or what `unless` said.

        Raises:
            RemoteUnavailableError: no answer, after several tries. If the claim arrived after all, the same
                run gets it at the next call, and others when it has expired.
            PushRejectedError: the server does not want it.
            WorkspaceError: the key is none, or git failed.
        """
        ref = claim_ref(task)
        for _ in range(_MOST_LOOKS):
            found, before = self._read(task, seen)
            seen = None
            ours = before is not None and (before.owner, before.run) == (self._owner, run)
            if before is not None and not (ours and before.state == "held"):
                if not (before.is_free(self._clock.now(), self._times) or _is_dead(before, dead_runs)):
                    return before
                if (reason := unless(before)) is not None:
                    return reason
            record = self._next(task, run, before, ours=ours)
            commit = self._records.commit(claim_message(record), found)
            if self._records.swap(ref, found, commit):
                self._said[commit] = record
                return Lease(self._records, commit, record, before, self._clock, self._times, self._nonce)
        message = f"the claim on {task} changes faster than it can be read"
        raise PushRejectedError(message)

    def list(self, seen: Mapping[str, str] | None = None) -> Sequence[ClaimRecord]:
        """All claims, held and released, by their keys. Names that are no task's are left out.

        Args:
            seen: what `Records.list` said just now of the claims, among others; None asks.

        Raises:
            RemoteUnavailableError: no answer, after several tries.
            WorkspaceError: the remote refused.
        """
        tips = self._records.list(CLAIMS) if seen is None else seen
        found = {task: commit for ref, commit in sorted(tips.items()) if (task := _task_of(ref)) is not None}
        claims = self._read_all(found)
        self._said = {found[task]: claim for task, claim in claims.items() if claim.fault is None}
        return [claims[task] for task in found]

    def is_free(self, record: ClaimRecord) -> bool:
        """Whether the task of such a claim may be taken now: it is released or expired."""
        return record.is_free(self._clock.now(), self._times)

    def show(self, task: str) -> ClaimRecord | None:
        """The claim on one task, or None. The errors are those of `list`."""
        return self._read(task)[1]

    def release(self, task: str, reason: str, shown: ClaimRecord | None = None) -> ClaimRecord | None:
        """A person takes the task away from whoever holds it; the holder's next push is refused.

        Args:
            task: its key.
            reason: becomes the outcome.
            shown: what the person saw; where the claim has another holder by now, nothing is changed.

        Returns:
            What was released; None where nobody held it.

        Raises:
            PushRejectedError: somebody else moved it meanwhile, or the server does not want it.
            RemoteUnavailableError: no answer, after several tries.
            WorkspaceError: the key is none, or git failed.
        """
        for _ in range(_MOST_LOOKS):
            found, before = self._read(task)
            if before is None or before.state == "released":
                return None
            if shown is not None and (shown.run, shown.number) != (before.run, before.number):
                break
            now = self._clock.now()
            # A record that cannot be read tells no number and no cost: both begin anew.
            record = replace(before, run=before.run or _BY_A_PERSON, number=max(before.number, 1))
            record = replace(record, state="released", outcome=reason, nonce=self._nonce(), fault=None)
            record = replace(record, renewed_at=now, expires_at=now)
            commit = self._records.commit(claim_message(record), found)
            if self._records.swap(claim_ref(task), found, commit):
                return before
            # Its holder's heartbeat was in between, and a person releases a holder, not a heartbeat.
            shown = shown or before
        message = f"the claim on {task} was moved meanwhile: look at it again"
        raise PushRejectedError(message)

    def ask_again(self, task: str, dead_runs: Collection[str] = ()) -> ClaimRecord | None:
        """A person asks for another try: the next worker may take the task, whatever became of it before.

        What the task has cost so far, and its pull request, stay on the record.

        Args:
            task: its key.
            dead_runs: runs that are known to be dead.

        Returns:
            The claim of whoever has the task now; None where it was written down.

        Raises:
            PushRejectedError: the claim changes faster than it can be read, or the server does not want it.
            RemoteUnavailableError: no answer, after several tries.
            WorkspaceError: the key is none, or git failed.
        """
        for _ in range(_MOST_LOOKS):
            found, before = self._read(task)
            now = self._clock.now()
            if before is not None and not (before.is_free(now, self._times) or _is_dead(before, dead_runs)):
                return before
            record = before or ClaimRecord(task, "released", self._owner, _BY_A_PERSON, 1, now, now, now)
            record = replace(record, run=record.run or _BY_A_PERSON, number=max(record.number, 1))
            record = replace(record, state="released", outcome=RETRY, nonce=self._nonce(), fault=None)
            record = replace(record, renewed_at=now, expires_at=now)
            commit = self._records.commit(claim_message(record), found)
            if self._records.swap(claim_ref(task), found, commit):
                return None
        message = f"the claim on {task} changes faster than it can be read"
        raise PushRejectedError(message)

    def _read_all(self, found: Mapping[str, str]) -> dict[str, ClaimRecord]:
        """What the claims of some tasks say, each at its commit."""
        known = {
            task: said
            for task, commit in found.items()
            if (said := self._said.get(commit)) is not None and said.task == task
        }
        read = self._records.read_all(
            {CLAIMS + task: commit for task, commit in found.items() if task not in known}
        )
        return known | {
            (task := ref.removeprefix(CLAIMS)): parse_claim(task, record) for ref, record in read.items()
        }

    def _read(
        self, task: str, seen: Mapping[str, str] | None = None
    ) -> tuple[str | None, ClaimRecord | None]:
        """The commit of a task's claim, and what it says."""
        ref = claim_ref(task)
        for _ in range(_MOST_LOOKS):
            found = (self._records.list(ref) if seen is None else seen).get(ref)
            seen = None
            if found is None:
                return None, None
            record = self._read_all({task: found})[task]
            if record.fault is None or self._records.list(ref).get(ref) == found:
                return found, record
        message = f"the claim on {task} changes faster than it can be read"
        raise WorkspaceError(message)

    def _next(self, task: str, run: str, before: ClaimRecord | None, *, ours: bool) -> ClaimRecord:
        now = self._clock.now()
        end = now + timedelta(seconds=self._times.lease_seconds)
        number = before.number + 1 if before else 1
        taken_at = now
        if before is not None and ours and before.state == "held":
            number, taken_at = before.number, before.taken_at
        return ClaimRecord(
            task,
            "held",
            self._owner,
            run,
            number,
            taken_at,
            now,
            end,
            pull=before.pull if before else None,
            spent=before.spent if before else Spent(),
            nonce=self._nonce(),
        )


def _is_dead(record: ClaimRecord, dead_runs: Collection[str]) -> bool:
    return record.fault is None and record.run in dead_runs


def _task_of(ref: str) -> str | None:
    """The task of a claim's reference; None where it is none's."""
    task = ref.removeprefix(CLAIMS)
    try:
        return task if claim_ref(task) == ref else None
    except WorkspaceError:
        return None
