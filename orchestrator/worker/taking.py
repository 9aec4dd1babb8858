"""Takes a task: waits for nobody, claims it, and finds what an unfinished cycle on it left."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ForgePermissionError, WorkspaceError
from orchestrator.cycle.earlier import Earlier, State, read_pages
from orchestrator.cycle.let_go import ERROR, words_digest
from orchestrator.cycle.question import asked_at
from orchestrator.cycle.tasks import Remark, TaskKind
from orchestrator.worker.answers import find_answer, spelled_out
from orchestrator.worker.manners import RETRY_LABEL
from orchestrator.worker.naming import RemoteNames, hidden_only, patterns
from orchestrator.worker.pruning import Pruning
from orchestrator.workspace.claims import ClaimRecord
from orchestrator.workspace.wip import load_wip, wip_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from orchestrator.core.spent import Spent
    from orchestrator.cycle.tasks import Task
    from orchestrator.forge.base import Forge
    from orchestrator.workspace.claims import Claims, Lease
    from orchestrator.workspace.records import Records


MOST_ATTEMPTS = 3
"""Cycles on one task that a limit or an error ended, until a person has to say something."""


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
        answer: the person's own answer to the question that is open; then nothing else is taken.
        base: the branch to start from, where a person named it.
        author_email: whose commits ours are.
        earlier: what was found, by the task's key.
        named_tasks: the tasks that were taken, with branches for which the remote has room, by their keys.
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
    answer: str | None = None
    base: str | None = None
    author_email: str = ""
    earlier: dict[str, Earlier] = field(default_factory=dict)
    named_tasks: dict[str, Task] = field(default_factory=dict)
    _names: RemoteNames | None = None
    _held: set[str] = field(default_factory=set)
    _seen: Mapping[str, str] | None = None
    _listed: Sequence[ClaimRecord] = ()

    def held_by_others(self) -> Collection[str]:
        """The tasks that other workers have begun and not ended, asked now. `take` then leaves them alone."""
        # In one request, also for `take`: a claim that moved since is not taken, and whoever has changed
        # unfinished work since has moved its claim.
        self._seen = self._look()
        self._listed = self.claims.list(self._seen)
        self._held = {
            record.task
            for record in self._listed
            if record.run != self.run and record.run not in self.dead_runs and not self.claims.is_free(record)
        }
        return self._held

    def take(self, task: Task) -> Lease | str:
        """Claim the task, or say why it is left alone.

        Raises:
            ConfigurationError: the branch to start from is not there.
            WorkspaceError: the remote cannot be reached, or has no room for our names.
            ForgeError: the forge failed, or its rules refuse the branch.
        """
        if task.key in self._held:
            return f"{task.key} is being worked on by another worker"
        seen = self._seen
        if seen is None:
            seen = self._look()
        found = self._to_go_on_with(task, seen)
        if isinstance(found, str):
            return found
        if reason := self._require_room(task):
            return reason
        taken = self.claims.take(
            task.key,
            self.run,
            dead_runs=self.dead_runs,
            unless=lambda record: self._settled(task, record, found),
            seen=seen,
        )
        if isinstance(taken, ClaimRecord):
            taken = f"{task.key} is being worked on by {taken.owner}, run {taken.run}, until {taken.expires_at:%H:%M} UTC"
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

    def _look(self) -> Mapping[str, str]:
        """Claims and unfinished work, asked for together with all names that matter here."""
        there = self.records.tips(patterns(self.base))
        self._names = RemoteNames(there.keys(), self.records.remote.shown)
        return hidden_only(there)

    def _require_room(self, task: Task) -> str | None:
        """Make sure, before anything is claimed, that what will be pushed can be; or why this task is left alone.

        Raises:
            ConfigurationError: there is no branch to start from.
            RemoteRefusedError: names are taken.
            ForgeError: the forge's rules refuse the branch, or it failed.
        """
        names = self._names
        if names is None:
            raise AssertionError("the remote was looked at")
        if self.base is not None:
            names.require_base(self.base)
        if taken := names.require_hidden(task.key):
            return taken
        task = self.named_tasks[task.key] = names.named(task)
        is_new = task.pull is None and not names.has_branch(task.branch)
        if is_new and (refusal := self.forge.why_not_pushed(task.branch, self.author_email)):
            raise ForgePermissionError(refusal)
        return None

    def _to_go_on_with(self, task: Task, seen: Mapping[str, str]) -> Earlier | str | None:
        """What an unfinished cycle left, with the answer to its question; or why the task is left alone."""
        found = self._left(task.key, seen)
        if self.answer is not None and (found is None or not found.state.waits_for_answer):
            return f"{task.key} has no open question that --answer could be for"
        if found is None:
            gone = task.kind is TaskKind.UNFINISHED
            return f"{task.key} was finished by another worker just now" if gone else None
        if not found.state.waits_for_answer or task.is_retry:
            return found
        answer = self._answered(task, found)
        if answer is None:
            where = found.state.question_url if asked_at(task) else "give it with --answer TEXT"
            return f"{task.key} waits for an answer: {where}"
        return replace(found, answer=answer)

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
            return f"{task.key}: {words}"
        outcome, _, digest = record.outcome.partition(" ")
        goes_on = task.kind is TaskKind.UNFINISHED
        if goes_on and outcome == "proposed":
            return f"{task.key} was finished in run {record.run}, which left out what {wip_ref(task.key)} has besides"
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
        return f"{task.key} {came_to} in run {record.run}: change it, comment on it, or put the label {RETRY_LABEL} on it"

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
