"""The hold on one task: renewed while it is worked on, moved with every push, released at the end."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import claim_message, claim_ref, parse_claim
from orchestrator.bot.git.swap import Answer, Update, push_updates
from orchestrator.core.errors import ClaimLostError, PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.swap import Pushed, Tries
    from orchestrator.core.clock import Clock
    from orchestrator.core.spent import Spent

_MOST_LOOKS = 4


class Lease:
    """A claim of ours. Safe for use by several threads: one of them renews it while another one pushes.

    Args:
        records: the hidden references of the remote.
        commit: what the claim's reference has now.
        record: what that commit says.
        previous: the claim before it, or None.
        clock: tells the time.
        times: how long it holds.
        nonce: makes a text that was never made before.

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
            RemoteUnavailableError: no answer, after several tries; it may be tried again.
            PushRejectedError: the server does not want it.
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
            RemoteUnavailableError: no answer, after several tries; it may be tried again.
            PushRejectedError: the server does not want it.
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
            spent: as for `renew`.

        Returns:
            Whether the word is there. False: somebody else has moved the claim meanwhile, which is no error.

        Raises:
            RemoteUnavailableError: no answer, after several tries; the claim expires by itself.
            PushRejectedError: the server does not want it.
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
            git: has the objects of the update.
            update: a branch, or work that is not finished; its name is checked.
            doing: begins the message of an error.
            objects: folders with more objects.

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
                if pushed.answer is Answer.NOT_ATOMIC:
                    atomic = False
                elif pushed.answer is Answer.MOVED:
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
