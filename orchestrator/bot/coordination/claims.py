"""Claims: of all workers anywhere one has a task, with nothing between them but the repository's git server."""

from __future__ import annotations

import threading
from contextlib import suppress
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
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.remote import PushAnswer, Update, push_updates
from orchestrator.core.errors import ClaimLostError, PushRejectedError, WorkspaceError
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.git.remote import Pushed, Tries
    from orchestrator.core.clock import Clock


class Lease:
    """A claim of ours. Safe for use by several threads: one of them renews it while another one pushes.

    Every method may raise the errors of `Claims`, and `ClaimLostError` where it says so.

    Attributes:
        previous: the claim that this one followed, or None.
        renew_seconds: how often it wants to be renewed.
    """

    def __init__(  # noqa: PLR0913, PLR0917  made by `Claims` alone
        self,
        records: Records,
        commit: str,
        record: ClaimRecord,
        previous: ClaimRecord | None,
        clock: Clock,
        times: LeaseTimes,
        nonce: Callable[[], str],
    ) -> None:
        self._records = records
        self._ref = claim_ref(record.task)
        self._clock = clock
        self._times = times
        self._nonce = nonce
        # Every commit of ours that may have arrived, or may still do so.
        self._ours = {commit: record}
        self._commit = commit
        self._over: str | None = None
        self._lock = threading.RLock()
        self._lost = False
        # When the claim was last moved together with something else and read back, by the monotonic clock.
        self._fenced_at: float | None = None
        self.previous = previous
        self.renew_seconds = times.renew_seconds

    @property
    def record(self) -> ClaimRecord:
        """What the claim says, as far as is known."""
        return self._ours[self._commit]

    @property
    def lost(self) -> bool:
        """Whether somebody else was seen to have moved the claim."""
        return self._lost

    def renew(self, spent: Spent | None = None) -> ClaimRecord:
        """Say that the work goes on.

        Args:
            spent: what the task has cost so far, in all its cycles; None leaves what was said before.

        Raises:
            ClaimLostError: another worker, or a person, moved the claim.
        """
        with self._lock:
            self._move(lambda: self._renewed(spent))
            return self.record

    def make_sure(self) -> None:
        """Check that the claim is ours: by renewing it, unless `push` moved it and read it back just now.

        What moved together with the claim needs no second push to say so, for as long as is between two
        renewals. That is measured by both clocks: one stands still while the machine sleeps, the other jumps.

        Raises:
            ClaimLostError: another worker, or a person, moved the claim.
        """
        with self._lock:
            self._require_held()
            if self._fenced_at is not None:
                since = self._clock.monotonic() - self._fenced_at
                by_day = abs(self._clock.now() - self.record.renewed_at).total_seconds()
                if max(since, by_day) < self._times.renew_seconds:
                    return
            self.renew()

    def release(self, outcome: str, pull: int | None = None, spent: Spent | None = None) -> bool:
        """Let go of the task, and leave word of what became of it. May be called again.

        Args:
            outcome: a few words, such as `proposed`.
            pull: the task's pull request; None leaves what was said before.

        Returns:
            Whether the word is there. False: somebody else has moved the claim meanwhile, which is no error.

        Raises:
            RemoteUnavailableError: no answer, after several tries; the claim expires by itself.
        """

        def tombstone() -> ClaimRecord:
            record = self._renewed(spent)
            pulls = record.pull if pull is None else pull
            return replace(
                record, state="released", outcome=outcome, pull=pulls, expires_at=record.renewed_at
            )

        return self._end(tombstone)

    def give_back(self) -> bool:
        """Let go of the task as if it had not been taken: what was said of it stays said, with its time.

        Returns and raises what `release` does.
        """
        before = self.previous
        if before is None or before.state != "released":
            return self.release((before.outcome if before else "") or "skipped")
        return self._end(
            lambda: replace(before, number=self.record.number, spent=self.record.spent, nonce=self._nonce())
        )

    def push(self, git: HostGit, update: Update, *, doing: str, objects: Iterable[Path] = ()) -> str | None:
        """The fence: move one more reference, in the same push as the claim, so that neither moves alone.

        Git checks no lease on a reference that stays where it is, therefore the claim is renewed. Where the
        server has no atomic push the claim moves first, and is looked at again afterwards. An update that moves
        nothing needs no push: both references are only looked at.

        Args:
            update: a branch, or work that is not finished; its name is checked.

        Returns:
            What the remote holds there afterwards, read back.

        Raises:
            ClaimLostError: somebody else moved the claim; the other reference was not touched, unless that
                happened between the two pushes that a server without atomic push needs.
            PushRejectedError: the other reference is not where it was expected, or the server does not want
                it; the claim is still ours.
            RemoteUnavailableError: no answer, after several tries; it may have arrived, or do so later.
        """
        folders = [self._records.objects, *objects]
        with self._lock:
            tries = self._records.tries()
            atomic = True
            if update.old == update.new:
                self._require_held()
                tips = self._records.tips([self._ref, update.ref], tries)
                self._see(tips.get(self._ref))
                return tips.get(update.ref)
            while True:
                self._require_held()
                commit = None
                if atomic:
                    commit = self._write(self._renewed(None))
                    updates = [Update(self._ref, self._commit, commit), update]
                else:
                    self._move(lambda: self._renewed(None))
                    updates = [update]
                pushed = push_updates(git, self._records.remote, updates, doing=doing, objects=folders)
                if pushed.answer is PushAnswer.NOT_ATOMIC:
                    atomic = False
                elif pushed.answer is PushAnswer.MOVED:
                    tips = self._records.tips([self._ref, update.ref], tries)
                    if commit is None:
                        # Between the two pushes somebody may have moved the claim.
                        self._see(tips.get(self._ref))
                    self._commit = commit or self._commit
                    is_ours = commit is not None and tips.get(self._ref) == commit
                    self._fenced_at = self._clock.monotonic() if is_ours else None
                    return tips.get(update.ref)
                elif self._arrived(update, pushed, tries):
                    return update.new

    def _arrived(self, update: Update, pushed: Pushed, tries: Tries) -> bool:
        """After a push without success: look at both references, and say whether ours is there."""
        tries.before_looking(pushed.error)
        tips = self._records.tips([self._ref, update.ref], tries)
        self._see(tips.get(self._ref))
        if tips.get(update.ref) == update.new:
            return True
        if tips.get(update.ref) != update.old:
            what = "the branch" if update.ref.startswith("refs/heads/") else update.ref
            message = f"{str(pushed.error).partition(': ')[0]}: {what} changed on the remote meanwhile"
            raise PushRejectedError(message)
        pushed.require_possible()
        tries.wait(pushed.error)
        return False

    def _end(self, make: Callable[[], ClaimRecord]) -> bool:
        """Move the claim to what releases it; whether it is there."""
        with self._lock:
            if self.record.state == "released":
                return True
            try:
                self._move(make)
            except ClaimLostError:
                return False
            return True

    def _move(self, make: Callable[[], ClaimRecord]) -> None:
        """Move the claim to what `make` says."""
        for _ in range(_MOST_LOOKS):
            self._require_held()
            commit = self._write(make())
            if self._records.swap(self._ref, self._commit, commit):
                self._commit = commit
                return
            # It may be that an earlier push of ours arrived after all.
            self._see(self._records.list(self._ref).get(self._ref))
        message = f"the claim on {self.record.task} cannot be moved, although it is where it was"
        raise PushRejectedError(message)

    def _see(self, tip: str | None) -> None:
        """Take the commit that is there for the claim's, if we made it."""
        if tip is None or tip not in self._ours:
            self._lost = True
            self._over = self._holder(tip)
            self._require_held()
        else:
            self._commit = tip

    def _require_held(self) -> None:
        if self._lost or self.record.state == "released":
            task = self.record.task
            message = f"the claim on {task} is not ours any more: {self._over or 'it was released'}"
            raise ClaimLostError(message)

    def _holder(self, tip: str | None) -> str:
        if tip is None:
            return "somebody removed it"
        with suppress(WorkspaceError):
            record = self._records.read(tip)
            if record is not None:
                found = parse_claim(self.record.task, record)
                return f"{found.state} by {found.owner}, run {found.run}, number {found.number}"
        return "somebody moved it"

    def _renewed(self, spent: Spent | None) -> ClaimRecord:
        now = self._clock.now()
        return replace(
            self.record,
            renewed_at=now,
            expires_at=now + timedelta(seconds=self._times.lease_seconds),
            spent=self.record.spent if spent is None else spent,
            nonce=self._nonce(),
        )

    def _write(self, record: ClaimRecord) -> str:
        commit = self._records.commit(claim_message(record), self._commit)
        self._ours[commit] = record
        return commit


RETRY = "retry"
"""The outcome by which a person says that a task is to be taken again, whatever became of it."""
_MOST_LOOKS = 5
_BY_A_PERSON = "a person"


class Claims:
    """The claims on the tasks of one repository.

    Every method may raise `RemoteUnavailableError`, where there is no answer after several tries,
    `PushRejectedError`, where the server does not want it, and `WorkspaceError`.

    Args:
        owner: names this machine for people; one word.
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
            run: who takes it; no other run anywhere has this name.
            unless: asked of the claim before, where the task is free: why it is not taken all the same.
            seen: what `Records.list` said of the claim's reference, among others. It may be old: the push
                takes the claim only if it is still there. None: it is asked for.

        Returns:
            The lease; or the claim of the one who has it; or what `unless` said.

        Raises:
            RemoteUnavailableError: no answer, after several tries. If the claim arrived after all, the same
                run gets it at the next call, and others when it has expired.
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
        """
        tips = self._records.list(CLAIMS) if seen is None else seen
        found = {task: commit for ref, commit in sorted(tips.items()) if (task := _task_of(ref)) is not None}
        claims = self._read_all(found)
        self._said = {found[task]: claim for task, claim in claims.items() if claim.fault is None}
        return [claims[task] for task in found]

    def is_free(self, record: ClaimRecord) -> bool:
        """Whether the task of such a claim may be taken now: it is released or expired."""
        return record.is_free(self._clock.now(), self._times)

    def show(self, task: str, seen: Mapping[str, str] | None = None) -> ClaimRecord | None:
        """The claim on one task, or None. Arguments and errors are those of `list`."""
        return self._read(task, seen)[1]

    def release(self, task: str, reason: str, shown: ClaimRecord | None = None) -> ClaimRecord | None:
        """A person takes the task away from whoever holds it; the holder's next push is refused.

        Args:
            reason: becomes the outcome.
            shown: what the person saw; where the claim has another holder by now, nothing is changed.

        Returns:
            What was released; None where nobody held it.

        Raises:
            PushRejectedError: somebody else moved it meanwhile, or the server does not want it.
        """
        for _ in range(_MOST_LOOKS):
            found, before = self._read(task)
            if before is None or before.state == "released":
                return None
            if shown is not None and (shown.run, shown.number) != (before.run, before.number):
                break
            if self._write_released(task, found, before, reason):
                return before
            # Its holder's heartbeat was in between, and a person releases a holder, not a heartbeat.
            shown = shown or before
        message = f"the claim on {task} was moved meanwhile: look at it again"
        raise PushRejectedError(message)

    def ask_again(self, task: str, dead_runs: Collection[str] = ()) -> ClaimRecord | None:
        """A person asks for another try: the next worker may take the task, whatever became of it before.

        What the task has cost so far, and its pull request, stay on the record.

        Returns:
            The claim of whoever has the task now; None where it was written down.

        Raises:
            PushRejectedError: the claim changes faster than it can be read, or the server does not want it.
        """
        for _ in range(_MOST_LOOKS):
            found, before = self._read(task)
            now = self._clock.now()
            if before is not None and not (before.is_free(now, self._times) or _is_dead(before, dead_runs)):
                return before
            record = before or ClaimRecord(task, "released", self._owner, _BY_A_PERSON, 1, now, now, now)
            if self._write_released(task, found, record, RETRY):
                return None
        message = f"the claim on {task} changes faster than it can be read"
        raise PushRejectedError(message)

    def _write_released(self, task: str, found: str | None, record: ClaimRecord, outcome: str) -> bool:
        """Write what a person says, if the claim is where it was. An unreadable record begins anew."""
        now = self._clock.now()
        released = replace(
            record,
            run=record.run or _BY_A_PERSON,
            number=max(record.number, 1),
            state="released",
            outcome=outcome,
            renewed_at=now,
            expires_at=now,
            nonce=self._nonce(),
            fault=None,
        )
        return self._records.swap(
            claim_ref(task), found, self._records.commit(claim_message(released), found)
        )

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


KEPT_DAYS = 90
"""After its release. Until then it tells people what became of the task, and what it has cost counts on."""


def is_old(record: ClaimRecord, now: datetime) -> bool:
    """Whether a record is a tombstone for so long that nobody waits for what it says."""
    is_tombstone = record.fault is None and record.state == "released"
    return is_tombstone and now - record.renewed_at > timedelta(days=KEPT_DAYS)


def remove_tombstones(records: Records, found: Mapping[str, str]) -> bool:
    """Remove the claims of some tasks as `remove_records` does, by the commit of each task's claim.

    With the tombstone goes the task's number, and the next claim begins with 1 again. That lets nobody in:
    no push is accepted for a number, only for the commit that the claim has, which was made once. Who held
    the task before expects a commit that is not there any more.
    """
    doing = f"cannot remove old claims of {records.remote.shown}"
    return remove_records(records, {claim_ref(task): commit for task, commit in found.items()}, doing)


def remove_records(records: Records, found: Mapping[str, str], doing: str) -> bool:
    """Remove hidden references, in one push, if each is still where it was seen.

    Returns:
        Whether all of them are gone. False: one has moved meanwhile, or there was no answer.

    Raises:
        WorkspaceError: git could not try.
    """
    if not found:
        return True
    place = records.objects.parent
    updates = [Update(ref, commit, None) for ref, commit in found.items()]
    pushed = push_updates(HostGit(place.parent, place), records.remote, updates, doing=doing)
    if pushed.answer is PushAnswer.NOT_ATOMIC:
        return all(records.delete(update.ref, update.old or "") for update in updates)
    return pushed.answer is PushAnswer.MOVED
