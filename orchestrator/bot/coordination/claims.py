"""Claims: each task has at most one worker anywhere, using only the repository's git server."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import (
    CLAIMS,
    MOST_REASON_CHARACTERS,
    ClaimRecord,
    LeaseTimes,
    claim_message,
    claim_ref,
    parse_claim,
)
from orchestrator.bot.git.hostgit import printable_line
from orchestrator.bot.git.remote import PushAnswer, Update, push_updates
from orchestrator.core.errors import ClaimLostError, PushRejectedError, WorkspaceError
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import is_task_key

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Pushed, RetrySchedule
    from orchestrator.core.clock import Clock


class Lease:
    """A claim that this run holds. It is thread-safe: one thread renews it while another one pushes.

    Every method may raise the errors of `Claims`, and `ClaimLostError` as documented.

    Attributes:
        previous: the claim before this one, or None.
        renew_seconds: how often to renew it.
    """

    def __init__(
        self, claims: Claims, commit: str, record: ClaimRecord, previous: ClaimRecord | None
    ) -> None:
        self._records, self._clock, self._times = claims.records, claims.clock, claims.times
        self._nonce = claims.nonce
        self._ref = claim_ref(record.task)
        # Every commit of ours that may have arrived, or may still do so.
        self._ours = {commit: record}
        self._commit = commit
        self._lost_because: str | None = None
        self._lock = claims.make_lock()
        self._lost = False
        # When the claim was last moved together with something else and read back, by the monotonic clock.
        self._fenced_at: float | None = None
        self.previous = previous
        self.renew_seconds = claims.times.renew_seconds

    @property
    def record(self) -> ClaimRecord:
        """The content of the claim, as far as known."""
        return self._ours[self._commit]

    @property
    def lost(self) -> bool:
        """Whether somebody else was seen to have moved the claim."""
        return self._lost

    def renew(self, spent: Spent | None = None) -> ClaimRecord:
        """Renew the claim.

        Args:
            spent: the cost of all cycles on the task so far; None keeps the recorded one.
        """
        with self._lock:
            self._move(lambda: self._renewed(spent))
            return self.record

    def ensure_held(self) -> None:
        """Check that the claim is still held: by renewing it, unless `push` moved and verified it recently.

        A claim that moved together with the pushed ref needs no second push within the renewal interval. Two
        clocks measure it: one stops while the machine sleeps, the other may jump.
        """
        with self._lock:
            self._require_held()
            if self._fenced_at is not None:
                since = self._clock.monotonic() - self._fenced_at
                by_day = abs(self._clock.now() - self.record.renewed_at).total_seconds()
                if max(since, by_day) < self._times.renew_seconds:
                    return
            self.renew()

    def release(  # noqa: PLR0913  all that a claim says of an end
        self,
        outcome: str,
        pull: int | None = None,
        spent: Spent | None = None,
        *,
        drops: Update | None = None,
        deaths: int | None = None,
        why: str = "",
    ) -> bool:
        """Release the task and record its outcome. It may be called again.

        Args:
            outcome: a few words, such as `proposed`.
            pull: the task's pull request; None keeps the recorded one.
            drops: unfinished work that the outcome ends. It is removed in the same push, so that no crash leaves a
                task without both.
            deaths: how many of the last holders in a row died; None keeps the recorded number.
            why: the reason of the outcome, for people.

        Returns:
            Whether the outcome was recorded. False: somebody else has moved the claim, which is not an error.

        Raises:
            PushRejectedError: `drops` is not where it was expected, or the server refused it; the claim is still held.
            RemoteUnavailableError: no answer, after several attempts; the claim expires by itself.
        """

        def tombstone() -> ClaimRecord:
            record = self._renewed(spent)
            pulls = record.pull if pull is None else pull
            return replace(
                record,
                state="released",
                outcome=outcome,
                pull=pulls,
                expires_at=record.renewed_at,
                deaths=record.deaths if deaths is None else deaths,
                why=printable_line(" ".join(why.split()))[:MOST_REASON_CHARACTERS],
            )

        if drops is not None and self.record.state != "released":
            doing = f"cannot drop the unfinished work on {self.record.task} of {self._records.remote.shown}"
            try:
                self.push(self._records.git, drops, doing=doing, claim=tombstone)
            except ClaimLostError:
                return False
        return self._end(tombstone)

    def undo_claim(self) -> bool:
        """Release the task as if it had not been claimed: the earlier record and its time are kept.

        It returns and raises what `release` does.
        """
        before = self.previous
        if before is None or before.state != "released":
            return self.release((before.outcome if before else "") or "skipped")
        return self._end(
            lambda: replace(before, number=self.record.number, spent=self.record.spent, nonce=self._nonce())
        )

    def push(
        self,
        git: HostGit,
        update: Update,
        *,
        doing: str,
        claim: Callable[[], ClaimRecord] | None = None,
        base: str | None = None,
    ) -> str | None:
        """Fence a push: move one more ref in the same push as the claim, so that neither moves alone.

        Git checks no lease on a ref that does not move, therefore the claim is renewed. If the server does
        not support atomic pushes, the claim moves first and is checked again afterwards. An update that moves
        nothing needs no push: both refs are only read.

        Args:
            update: a branch, or unfinished work; its name is checked.
            claim: makes the claim's new record; None renews it. A server without atomic pushes only renews it.
            base: the commit of the base on which a branch stands, for the record; None keeps the recorded one.

        Returns:
            The commit of the ref on the remote afterwards, read back.

        Raises:
            ClaimLostError: somebody else moved the claim. The other ref was not touched, unless that happened
                between the two pushes that a server without atomic push needs.
            PushRejectedError: the other ref is not where it was expected, or the server refused it; the claim
                is still held.
            RemoteUnavailableError: no answer, after several attempts; the push may have arrived, or may do so
                later.
        """
        with self._lock:
            tries: RetrySchedule | None = None
            atomic = True
            if update.old == update.new:
                self._require_held()
                tips = self._records.tips([self._ref, update.ref])
                self._check_tip(tips.get(self._ref))
                return tips.get(update.ref)
            while True:
                self._require_held()
                commit = None
                if atomic:
                    commit = self._write(self._renewed(None, base) if claim is None else claim())
                    updates = [Update(self._ref, self._commit, commit), update]
                else:
                    self._move(lambda: self._renewed(None, base))
                    updates = [update]
                pushed = push_updates(
                    git, self._records.remote, updates, doing=doing, objects=[self._records.objects]
                )
                if pushed.answer is PushAnswer.NOT_ATOMIC:
                    atomic = False
                elif pushed.answer is PushAnswer.MOVED:
                    tips = self._records.tips([self._ref, update.ref], tries)
                    if commit is None:
                        # Between the two pushes somebody may have moved the claim.
                        self._check_tip(tips.get(self._ref))
                    self._commit = commit or self._commit
                    is_ours = commit is not None and tips.get(self._ref) == commit
                    self._fenced_at = self._clock.monotonic() if is_ours else None
                    return tips.get(update.ref)
                else:
                    tries = tries or self._records.tries()
                    if self._arrived(update, pushed, tries):
                        return update.new

    def _arrived(self, update: Update, pushed: Pushed, tries: RetrySchedule) -> bool:
        """Check both refs after a push without success. Return whether the update is there."""
        tries.before_looking(pushed.error)
        tips = self._records.tips([self._ref, update.ref], tries)
        self._check_tip(tips.get(self._ref))
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
        """Replace the claim by a released record. Return whether it is there."""
        with self._lock:
            if self.record.state == "released":
                return True
            try:
                self._move(make)
            except ClaimLostError:
                return False
            return True

    def _move(self, make: Callable[[], ClaimRecord]) -> None:
        for _ in range(_MOST_TRIES):
            self._require_held()
            commit = self._write(make())
            if self._records.swap(self._ref, self._commit, commit):
                self._commit = commit
                return
            # It may be that an earlier push of ours arrived after all.
            self._check_tip(self._records.list(self._ref).get(self._ref))
        message = f"the claim on {self.record.task} cannot be moved, although nobody else moved it"
        raise PushRejectedError(message)

    def _check_tip(self, tip: str | None) -> None:
        """Accept a commit of the ref as the claim's, if this lease created it."""
        if tip is None or tip not in self._ours:
            self._lost = True
            self._lost_because = self._holder(tip)
            self._require_held()
        else:
            self._commit = tip

    def _require_held(self) -> None:
        if self._lost or self.record.state == "released":
            task = self.record.task
            message = f"this run does not hold the claim on {task} any more: {self._lost_because or 'it was released'}"
            raise ClaimLostError(message)

    def _holder(self, tip: str | None) -> str:
        if tip is None:
            return "somebody removed it"
        with suppress(WorkspaceError):
            record = self._records.read(tip)
            if record is not None:
                found = parse_claim(self.record.task, record)
                return f"{found.state} by {found.owner}, run {found.run}, number {found.number}"
        return "another process moved it"

    def _renewed(self, spent: Spent | None, base: str | None = None) -> ClaimRecord:
        now = self._clock.now()
        return replace(
            self.record,
            renewed_at=now,
            expires_at=now + timedelta(seconds=self._times.lease_seconds),
            spent=self.record.spent if spent is None else spent,
            base=self.record.base if base is None else base,
            nonce=self._nonce(),
        )

    def _write(self, record: ClaimRecord) -> str:
        commit = self._records.commit(claim_message(record), self._commit)
        self._ours[commit] = record
        return commit


RETRY = "retry"
"""The outcome that records a person's request to retry a task."""
_MOST_TRIES = 5
_BY_A_PERSON = "a person"


@dataclass(slots=True)
class Claims:
    """The claims on the tasks of one repository.

    Every method may raise `RemoteUnavailableError` (no answer after several attempts), `PushRejectedError`
    (the server refused), and `WorkspaceError`.

    Attributes:
        owner: name of this machine for people; one word.
        nonce: creates a globally unique text.
        make_lock: creates a lock that its owner may take again.
    """

    records: Records
    owner: str
    clock: Clock
    times: LeaseTimes
    nonce: Callable[[], str]
    make_lock: Callable[[], AbstractContextManager[object]] = threading.RLock
    # A commit never changes: those that were listed last are not read again.
    _known_claims: dict[str, ClaimRecord] = field(default_factory=dict)

    def take(  # noqa: PLR0913  all but four are given by name
        self,
        task: str,
        run: str,
        dead_runs: Container[str] = (),
        unless: Callable[[ClaimRecord], str | None] = lambda _record: None,
        *,
        seen: Mapping[str, str] | None = None,
        asked: str = "",
    ) -> Lease | ClaimRecord | str:
        """Claim a task if it is free: never claimed, released, expired, or held by a dead run.

        Of simultaneous callers exactly one succeeds. A claim that this run already holds, because an answer
        was lost, is returned.

        Args:
            run: a globally unique run id.
            unless: called with the previous claim of a free task; returns why it is not taken all the same.
            seen: result of `Records.list` for the claim's ref, among others. It may be outdated: the push
                succeeds only if it is still current. None reads it.
            asked: a digest of what is to be done. Holders who died while they did something else do not count.

        Returns:
            The lease; or the claim of its holder; or the text that `unless` returned.

        Raises:
            RemoteUnavailableError: no answer, after several attempts. If the claim arrived after all, the
                same run receives it at the next call, and others once it has expired.
        """
        ref = claim_ref(task)
        for _ in range(_MOST_TRIES):
            found, before = self._read(task, seen)
            seen = None
            ours = before is not None and (before.owner, before.run) == (self.owner, run)
            if before is not None and not (ours and before.state == "held"):
                if before.is_held(self.clock.now(), self.times, dead_runs):
                    return before
                if (reason := unless(before)) is not None:
                    return reason
            record = self._next(task, run, before, asked, ours=ours)
            commit = self.records.commit(claim_message(record), found)
            if self.records.swap(ref, found, commit):
                self._known_claims[commit] = record
                return Lease(self, commit, record, before)
        message = f"the claim on {task} changes faster than it can be read"
        raise PushRejectedError(message)

    def list(self, seen: Mapping[str, str] | None = None) -> Sequence[ClaimRecord]:
        """Return all claims, held and released, by task key. Invalid names are left out.

        Args:
            seen: result of a recent `Records.list` of the claims, among others; None reads it.
        """
        tips = self.records.list(CLAIMS) if seen is None else seen
        refs = {ref: commit for ref, commit in sorted(tips.items()) if ref.startswith(CLAIMS)}
        found = {
            task: commit for ref, commit in refs.items() if is_task_key(task := ref.removeprefix(CLAIMS))
        }
        claims = self._read_all(found)
        self._known_claims = {found[task]: claim for task, claim in claims.items() if claim.fault is None}
        return [claims[task] for task in found]

    def show(self, task: str, seen: Mapping[str, str] | None = None) -> ClaimRecord | None:
        """Return the claim on one task, or None. Arguments and errors are those of `list`."""
        return self._read(task, seen)[1]

    def release(self, task: str, reason: str, shown: ClaimRecord | None = None) -> ClaimRecord | None:
        """Release a task on behalf of a person, whoever holds it. The holder's next push is refused.

        Args:
            reason: becomes the outcome.
            shown: the claim that the person saw; if it has another holder now, nothing is changed.

        Returns:
            The released claim; None if nobody held it.
        """
        for _ in range(_MOST_TRIES):
            found, before = self._read(task)
            if before is None or before.state == "released":
                return None
            if shown is not None and (shown.run, shown.number) != (before.run, before.number):
                break
            if self._write_released(task, found, before, reason):
                return before
            # Its holder's heartbeat moved it: the holder that the person saw is the same.
            shown = shown or before
        message = f"the claim on {task} has changed meanwhile: check it again"
        raise PushRejectedError(message)

    def request_retry(self, task: str, dead_runs: Container[str] = ()) -> ClaimRecord | None:
        """Record a person's request to retry: the next worker may take the task, whatever its outcome was.

        The task's cost so far and its pull request stay on the record.

        Returns:
            The claim of the present holder; None if the request was recorded.
        """
        for _ in range(_MOST_TRIES):
            found, before = self._read(task)
            now = self.clock.now()
            if before is not None and before.is_held(now, self.times, dead_runs):
                return before
            record = before or ClaimRecord(task, "released", self.owner, _BY_A_PERSON, 1, now, now, now)
            if self._write_released(task, found, record, RETRY):
                return None
        message = f"the claim on {task} changes faster than it can be read"
        raise PushRejectedError(message)

    def _write_released(self, task: str, found: str | None, record: ClaimRecord, outcome: str) -> bool:
        """Write a person's record, if the claim is unchanged. An unreadable record is replaced."""
        now = self.clock.now()
        released = replace(
            record,
            run=record.run or _BY_A_PERSON,
            number=max(record.number, 1),
            state="released",
            outcome=outcome,
            renewed_at=now,
            expires_at=now,
            nonce=self.nonce(),
            deaths=0 if outcome == RETRY else record.deaths,
            why="",
            fault=None,
        )
        return self.records.swap(claim_ref(task), found, self.records.commit(claim_message(released), found))

    def _read_all(self, found: Mapping[str, str]) -> dict[str, ClaimRecord]:
        """Read the claims of some tasks, each at its commit."""
        known = {
            task: claim
            for task, commit in found.items()
            if (claim := self._known_claims.get(commit)) is not None and claim.task == task
        }
        read = self.records.read_all(
            {CLAIMS + task: commit for task, commit in found.items() if task not in known}
        )
        return known | {
            (task := ref.removeprefix(CLAIMS)): parse_claim(task, record) for ref, record in read.items()
        }

    def _read(
        self, task: str, seen: Mapping[str, str] | None = None
    ) -> tuple[str | None, ClaimRecord | None]:
        """Return the commit of a task's claim, and its content."""
        ref = claim_ref(task)
        for _ in range(_MOST_TRIES):
            found = (self.records.list(ref) if seen is None else seen).get(ref)
            seen = None
            if found is None:
                return None, None
            record = self._read_all({task: found})[task]
            if record.fault is None or self.records.list(ref).get(ref) == found:
                return found, record
        message = f"the claim on {task} changes faster than it can be read"
        raise WorkspaceError(message)

    def _next(
        self, task: str, run: str, before: ClaimRecord | None, asked: str, *, ours: bool
    ) -> ClaimRecord:
        now = self.clock.now()
        end = now + timedelta(seconds=self.times.lease_seconds)
        number = before.number + 1 if before else 1
        taken_at, deaths = now, died_of(before, asked)
        if before is not None and ours and before.state == "held":
            number, taken_at = before.number, before.taken_at
            asked, deaths = before.asked, before.deaths
        return ClaimRecord(
            task,
            "held",
            self.owner,
            run,
            number,
            taken_at,
            now,
            end,
            pull=before.pull if before else None,
            spent=before.spent if before else Spent(),
            nonce=self.nonce(),
            asked=asked,
            deaths=deaths,
            base=before.base if before else "",
        )


def died_of(before: ClaimRecord | None, asked: str) -> int:
    """Return how many of the last holders in a row died of what is asked now. `before` is free, or its run is dead."""
    if before is None or before.asked not in {"", asked}:
        return 0
    return before.died


KEPT_DAYS = 90
"""Days that a released claim is kept, to show the task's outcome and to count its cost."""


def is_old(record: ClaimRecord, now: datetime) -> bool:
    """Return whether a released record is so old that nobody needs it any more."""
    is_tombstone = record.fault is None and record.state == "released"
    return is_tombstone and now - record.renewed_at > timedelta(days=KEPT_DAYS)


def remove_tombstones(records: Records, found: Mapping[str, str]) -> bool:
    """Remove the claims of some tasks as `remove_records` does, by the commit of each task's claim.

    The task's number is removed with the tombstone, so the next claim begins with 1 again. This is safe: a
    push is not accepted for a number, only for the commit of the claim, which is unique. An earlier holder
    expects a commit that is no longer there.
    """
    doing = f"cannot remove old claims of {records.remote.shown}"
    return remove_records(records, {claim_ref(task): commit for task, commit in found.items()}, doing)


def remove_records(records: Records, found: Mapping[str, str], doing: str) -> bool:
    """Remove hidden refs in one push, if none of them has moved.

    Returns:
        Whether all were removed. False: one has moved, or there was no answer.
    """
    if not found:
        return True
    updates = [Update(ref, commit, None) for ref, commit in found.items()]
    pushed = push_updates(records.git, records.remote, updates, doing=doing)
    if pushed.answer is PushAnswer.NOT_ATOMIC:
        return all(records.delete(update.ref, update.old or "") for update in updates)
    return pushed.answer is PushAnswer.MOVED
