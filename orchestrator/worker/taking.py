"""Takes a task: waits for nobody, claims it, and finds what an unfinished cycle on it left."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.commands import Commands
from orchestrator.core.errors import WorkspaceError
from orchestrator.cycle.earlier import Earlier, State, read_pages
from orchestrator.cycle.let_go import ERROR, words_digest
from orchestrator.cycle.question import asked_at
from orchestrator.cycle.tasks import Remark, TaskKind
from orchestrator.worker.answers import find_answer, spelled_out
from orchestrator.worker.manners import RETRY_LABEL
from orchestrator.worker.pruning import Pruning
from orchestrator.worker.task_states import MOST_ATTEMPTS
from orchestrator.workspace.claim_record import CLAIMS, claim_ref
from orchestrator.workspace.claims import RETRY, ClaimRecord
from orchestrator.workspace.wip import WORK, list_wip, load_wip, wip_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from orchestrator.core.spent import Spent
    from orchestrator.cycle.tasks import Task
    from orchestrator.forge.base import Forge
    from orchestrator.workspace.claims import Claims, Lease
    from orchestrator.workspace.records import Records


@dataclass(slots=True)
class Taker:
    """Claims tasks for one run. Its `take` may be called from a thread.

    Attributes:
        records: the hidden refs of the remote.
        claims: the claims among them.
        forge: where people answer.
        run: whose claims they will be.
        dead_runs: runs of this machine that are known to be dead, whose claims are free.
        named: the person named this task, so that it is taken although it came to nothing before.
        may: whether somebody may cause work, and so may answer.
        clean: a text without what people do not see; told who wrote it.
        spent_up: why a task is left alone that has cost this much so far, or None.
        commands: what a reason tells a person to type.
        answer: the person's own answer to the question that is open; then nothing else is taken.
        earlier: what was found, by the task's key.
    """

    records: Records
    claims: Claims
    forge: Forge
    run: str
    dead_runs: Collection[str]
    named: bool
    may: Callable[[str], bool]
    clean: Callable[[str, str], str]
    spent_up: Callable[[Spent], str | None]
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    answer: str | None = None
    earlier: dict[str, Earlier] = field(default_factory=dict)
    _held: dict[str, ClaimRecord] = field(default_factory=dict)
    _retried: dict[str, str] = field(default_factory=dict)
    _seen: Mapping[str, str] | None = None
    _listed: Sequence[ClaimRecord] = ()

    def held_by_others(self) -> Collection[str]:
        """The tasks that other workers have begun and not ended, asked now. `take` then leaves them alone."""
        # In one request, also for `take`: a claim that moved since is not taken, and whoever has changed
        # unfinished work since has moved its claim.
        self._seen = self.records.list(CLAIMS, WORK)
        self._listed = self.claims.list(self._seen)
        self._held = {
            record.task: record
            for record in self._listed
            if record.run != self.run and record.run not in self.dead_runs and not self.claims.is_free(record)
        }
        self._retried = {
            record.task: f"by hand {record.nonce}" for record in self._listed if record.outcome == RETRY
        }
        return self._held.keys()

    def asked_again(self, key: str) -> str:
        """By which claim a person asked for another try of a task; empty where nobody did.

        Raises:
            WorkspaceError: the remote cannot be reached.
        """
        if self._seen is None:
            self.held_by_others()
        return self._retried.get(key, "")

    def take(self, task: Task) -> Lease | str:
        """Claim the task, or say why it is left alone.

        Raises:
            WorkspaceError: the remote cannot be reached.
            ForgeError: the forge failed.
        """
        if task.key in self._held:
            return self._is_held(self._held[task.key])
        seen = self._seen
        if seen is None:
            seen = self.records.list(claim_ref(task.key), wip_ref(task.key))
        found = self._to_go_on_with(task, seen)
        if isinstance(found, str):
            return found
        taken = self.claims.take(
            task.key,
            self.run,
            dead_runs=self.dead_runs,
            unless=lambda record: self._settled(task, record, found),
            seen=seen,
        )
        if isinstance(taken, ClaimRecord):
            taken = self._is_held(taken)
        if isinstance(taken, str):
            return taken
        if self._has_moved(task.key, found, taken):
            return f"{task.key} was let go of by another worker just now, who left other work"
        if found is not None:
            self.earlier[task.key] = found
        # Only by those who have something to do: to look for nothing costs nothing.
        listed, self._listed = [record for record in self._listed if record.task != task.key], ()
        Pruning(self.records, self.forge, self.run).prune(listed, seen, taken.record.taken_at)
        return taken

    def _to_go_on_with(self, task: Task, seen: Mapping[str, str]) -> Earlier | str | None:
        """What an unfinished cycle left, with the answer to its question; or why the task is left alone."""
        found = self._left(task.key, seen)
        if self.answer is not None and (refusal := self._why_no_answer(task.key, found)):
            return refusal
        if found is None:
            gone = task.kind is TaskKind.UNFINISHED
            return f"{task.key} was finished by another worker just now" if gone else None
        if task.is_retry or self.asked_again(task.key):
            # A person wants it tried as if for the first time, with the work that is there.
            return replace(found, state=replace(found.state, attempts=0))
        if not found.state.waits_for_answer:
            return found
        answer = self._answered(task, found)
        if answer is None:
            url = found.state.question_url
            where = url if url.startswith("http") else self.commands.answer(task.key)
            return f"{task.key} waits for an answer: {where}"
        return replace(found, answer=answer)

    def _why_no_answer(self, key: str, found: Earlier | None) -> str:
        """Why the person's answer is for nothing here; empty where it is for the question of this task."""
        if found is None or not found.state.waits_for_answer:
            return f"{key} has no open question that --answer could be for: leave --answer out"
        others = [] if self.named else self._others_that_wait(key)
        if not others:
            return ""
        commands = "; ".join(self.commands.answer(one) for one in (key, *others))
        return f"{len(others) + 1} tasks wait for an answer, name the one that this is for: {commands}"

    def _others_that_wait(self, key: str) -> list[str]:
        """The other tasks with an open question: an answer that names no task could be for any of them."""
        others = [other for other in list_wip(self.records) if other != key]
        return [
            other
            for other in others
            if (left := self._left(other, self.records.list(wip_ref(other)))) and left.state.waits_for_answer
        ]

    def _has_moved(self, key: str, found: Earlier | None, lease: Lease) -> bool:
        """Whether the holder before saved or dropped work after we had looked. Then the claim is given back."""
        before, ref = lease.previous, wip_ref(key)
        if before is None:
            return False
        moved = True
        try:
            moved = self.records.list(ref).get(ref) != (found.commit if found else None)
        finally:
            if moved:
                with suppress(WorkspaceError):  # it expires by itself
                    lease.give_back()
        return moved

    def _settled(self, task: Task, record: ClaimRecord, found: Earlier | None) -> str | None:
        """Why a task is not taken again: it has cost what it may, or came to nothing and nobody says something new."""
        if words := self.spent_up(record.spent):
            return f"{task.key}: {words}: raise the cap (--max-usd-per-task and its like)"
        outcome, _, digest = record.outcome.partition(" ")
        goes_on = task.kind is TaskKind.UNFINISHED
        if goes_on and outcome == "proposed":
            drop = self.commands.forget(task.key)
            return (
                f"{task.key} was finished in run {record.run}, which left out what {wip_ref(task.key)} has besides; "
                f"to drop that: {drop}"
            )
        if (
            self.named
            or task.is_retry
            or not (goes_on or task.kind is TaskKind.NEW)
            or digest != words_digest(task)
        ):
            return None
        if outcome == "no_task":
            came_to = "had nothing to do"
        elif outcome == "failed":
            came_to = "failed"
        elif outcome in {ERROR, "limit"} and found is not None and found.state.attempts >= MOST_ATTEMPTS:
            came_to = f"came to no end in {found.state.attempts} cycles, the last"
        else:
            return None
        others = f", comment on it, put the label {RETRY_LABEL} on it" if task.number is not None else ""
        return f"{task.key} {came_to} in run {record.run}: change it{others}, or: {self.commands.retry(task.key)}"

    def _is_held(self, claim: ClaimRecord) -> str:
        """That a task is another worker's, and what a person can do where that worker is gone."""
        free = self.commands.release(claim.task)
        if claim.fault is not None:
            return f"the claim on {claim.task} cannot be read ({claim.fault}); to free it: {free}"
        until = f"until {claim.expires_at:%H:%M} UTC"
        return f"{claim.task} is being worked on by {claim.owner}, run {claim.run}, {until}; if it is not: {free}"

    def _left(self, key: str, seen: Mapping[str, str]) -> Earlier | None:
        wip = load_wip(self.records, key, seen)
        pages = read_pages(wip.pages) if wip is not None and wip.fault is None else None
        if wip is None:
            return None
        # What cannot be read is not gone on with, and still replaced or dropped by what this cycle leaves.
        state, events = pages or (State("", "", "", "", "", attempts=0), ())
        return Earlier(state, wip.work if pages else None, wip_ref(key), wip.commit, wip.base, events)

    def _answered(self, task: Task, found: Earlier) -> Remark | None:
        if self.answer is not None:
            return Remark("", spelled_out(self.answer, found.state.question), trusted=True)
        if (number := asked_at(task)) is None:
            return None
        comments = self.forge.comments(number)
        return find_answer(comments, found.state.question, found.state.question_url, self.may, self.clean)
