"""Decides which tasks can be claimed: by earlier cycles, people's answers, and free names on the remote."""

from __future__ import annotations

import difflib
import hashlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS, ClaimRecord, claim_ref
from orchestrator.bot.coordination.claims import RETRY, Lease, is_old, remove_tombstones
from orchestrator.bot.coordination.records import MEMORY
from orchestrator.bot.coordination.saved_work import WORK, list_wip, load_wip, wip_ref
from orchestrator.bot.cycle.choice import WORKING_LABEL, claimed_event, tell_waiting, waiting_place
from orchestrator.bot.cycle.earlier import Earlier, UnfinishedState, is_newest_kept, read_kept, read_saved
from orchestrator.bot.cycle.task_state import WAITS, asked_digest, describe_holder, task_state
from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    Remark,
    TaskKind,
    asked_at,
    find_answer,
    issue_of,
    key_of,
    with_choice,
)
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.git.hostgit import printable_line
from orchestrator.bot.git.remote import HIDDEN, in_the_way, is_commit_id
from orchestrator.bot.suggestions import Commands
from orchestrator.core.errors import (
    ConfigurationError,
    EmptyRepositoryError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    RemoteRefusedError,
    WorkspaceError,
)
from orchestrator.core.repositories import is_branch_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.task_state import KnownTask, TaskState
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import Forge, PullRequest
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.core.events import Event
    from orchestrator.core.messages import Spent


_UNKNOWN_STATE = UnfinishedState("", "", "", "", "", attempts=0)


@dataclass(slots=True)
class Claimer:
    """Claims tasks for one run. `take` may be called from a thread.

    Attributes:
        records: the hidden refs of the remote.
        run: the run that will hold the claims.
        dead_runs: runs that are known to be dead or over, whose claims are free.
        named: whether the user named this task; then it is taken even if earlier cycles failed.
        may: returns whether a person has permission to cause work, and so to answer.
        clean: removes what people do not see from a text, given its author.
        why_over_budget: returns why a task that has cost this much is not continued, or None.
        kept: unfinished work that only this machine has.
        warn: shows the user a message.
        tell: records an event.
        answer: the user's own answer to the open question; then no other task is taken.
        kept_answer: returns the answer that a person gave on this machine to the question of a run on a task, by the
            task's key and the run; empty if there is none.
        attended: whether a person works on the task, who can answer its question.
        base: the branch to start from, if the user named one.
        author_email: the author of our commits.
        earlier: the unfinished cycles that were found, by task key.
        memory: the remote's ref of learned facts, as last seen; None before the remote was read.
        named_tasks: the taken tasks with branch names that are free on the remote, by key.
        waiting: the tasks of this search that wait for a person, by key, each with the reason.
    """

    records: Records
    claims: Claims
    forge: Forge
    run: str
    dead_runs: Container[str]
    named: bool
    may: Callable[[str], bool]
    clean: Callable[[str, str], str]
    why_over_budget: Callable[[Spent], str | None]
    kept: KeptWork
    warn: Callable[[str], None]
    tell: Callable[[Event], None] = lambda _event: None
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    answer: str | None = None
    kept_answer: Callable[[str, str], str] = lambda _key, _run: ""
    base: str | None = None
    author_email: str = ""
    attended: bool = False
    earlier: dict[str, Earlier] = field(default_factory=dict)
    named_tasks: dict[str, Task] = field(default_factory=dict)
    memory: Mapping[str, str] | None = None
    waiting: dict[str, str] = field(default_factory=dict)
    _names: RemoteNames | None = None
    _held: dict[str, ClaimRecord] = field(default_factory=dict)
    _retried: dict[str, str] = field(default_factory=dict)
    _seen: Mapping[str, str] | None = None
    _listed: Sequence[ClaimRecord] = ()
    _known: dict[str, ClaimRecord] = field(default_factory=dict)
    _given_up: TaskState | None = None

    def held_by_others(self) -> Collection[str]:
        """Read which tasks other workers hold now. `take` then refuses them."""
        # `take` uses this reading too. It may be outdated by then, but a claim that has changed since is not
        # taken, and nobody changes a task's unfinished work without changing its claim.
        self._seen = self._look()
        self._listed = self.claims.list(self._seen)
        self._known = {record.task: record for record in self._listed}
        self._held = {
            record.task: record for record in self._listed if record.run != self.run and self._is_held(record)
        }
        self._retried = {
            record.task: f"by hand {record.nonce}" for record in self._listed if record.outcome == RETRY
        }
        return self._held.keys()

    def retry_request(self, key: str) -> str:
        """Return the claim by which a person asked to retry a task; empty if nobody did."""
        if self._seen is None:
            self.held_by_others()
        return self._retried.get(key, "")

    def comes_last(self, known: KnownTask) -> bool:
        """Return whether the last worker of a task died, or could not complete it. Then others are tried before it."""
        if self._seen is None:
            self.held_by_others()
        return task_state(self._with_claim(known, self._known.get(known.key))).comes_last

    def unfinished(self) -> Collection[str]:
        """Return the tasks with unfinished work that can be continued here."""
        return set(list_wip(self.records)) | self.kept.keys()

    def take(self, known: KnownTask) -> Lease | str:
        """Claim the task, or return why it is not taken.

        Raises:
            ConfigurationError: the branch to start from does not exist.
            WorkspaceError: the remote cannot be reached, or names that we need are taken.
            ForgeError: the forge failed, or its rules refuse the branch.
        """
        fit = self._fit(known)
        if isinstance(fit, str):
            return fit
        known, task, found, seen = fit
        taken = self.claims.take(
            task.key,
            self.run,
            dead_runs=self.dead_runs,
            unless=lambda record: self._why_not(known, record),
            seen=seen,
            asked=asked_digest(task),
        )
        if isinstance(taken, ClaimRecord):
            taken = describe_holder(taken, self.commands)
        if isinstance(taken, str):
            self._give_up(task)
            return taken
        if self._has_changed(task, found, taken, seen):
            return f"{task.key} was released just now by another worker, which saved newer work"
        if found is not None:
            self.earlier[task.key] = found
        # Only after a claim, so that a search without a result takes no further requests.
        listed, self._listed = [record for record in self._listed if record.task != task.key], ()
        Pruning(self.records, self.forge, self.run).prune(listed, seen, taken.record.taken_at)
        return taken

    def why_not(self, known: KnownTask) -> tuple[str | None, int]:
        """Return why `take` would refuse a task, as far as known without a claim, and the next claim's number.

        It raises the same errors as `take`.
        """
        fit = self._fit(known)
        if isinstance(fit, str):
            return fit, 0
        known, task, _, seen = fit
        record = self.claims.show(task.key, seen)
        reason, number = self._why_not(known, record), record.number if record is not None else 0
        if record is not None and self._is_held(record):
            return reason, number
        self._give_up(task)
        return reason, number + 1

    def _fit(self, known: KnownTask) -> tuple[KnownTask, Task, Earlier | None, Mapping[str, str]] | str:
        """Return what is known of a task with what its unfinished cycle left, and the refs that were seen.

        Or return why it cannot be claimed.
        """
        task = known.task
        if task is None:
            raise AssertionError("a task that is claimed was read")
        if task.key in self._held:
            return describe_holder(self._held[task.key], self.commands)
        seen = self._look() if self._seen is None else self._seen
        found = self._to_continue(task, seen)
        if isinstance(found, str):
            return found
        known = replace(
            known,
            left=found.state if found is not None else None,
            is_retry=task.is_retry or (found is not None and self._is_retried(task)),
            has_answer=self.attended or (found is not None and found.answer is not None),
        )
        refusal = self._why_not(known, None) or self._require_free_names(task)
        return refusal or (known, task, found, seen)

    def _is_held(self, record: ClaimRecord) -> bool:
        return record.is_held(self.claims.clock.now(), self.claims.times, self.dead_runs)

    def _is_retried(self, task: Task) -> bool:
        """Return whether a person asked for another try, so that earlier failures do not count."""
        return task.is_retry or bool(self.retry_request(task.key))

    def _with_claim(self, known: KnownTask, record: ClaimRecord | None) -> KnownTask:
        return replace(
            known,
            now=self.claims.clock.now(),
            times=self.claims.times,
            dead_runs=self.dead_runs,
            claim=record,
            is_named=self.named,
            over_budget=(record is not None and self.why_over_budget(record.spent)) or "",
            commands=self.commands,
        )

    def _why_not(self, known: KnownTask, record: ClaimRecord | None) -> str | None:
        """Return why a task with this claim is not taken, and remember if it waits for a person."""
        state = task_state(self._with_claim(known, record))
        if state.why:
            self.waiting[state.key] = state.why
        if state.gives_up:
            self._given_up = state
        return state.refusal or None

    def with_branch(self, task: Task) -> Task:
        """Return a taken task with a branch name that is free on the remote."""
        named = self.named_tasks.get(task.key)
        if named is None:
            return task
        return replace(task, branch_folder=named.branch_folder, branch_suffix=named.branch_suffix)

    def _look(self) -> Mapping[str, str]:
        """Read claims, unfinished work and our branches from the remote in one request."""
        there = self.records.tips(patterns(self.base))
        self._names = RemoteNames(there.keys(), self.records.remote.shown)
        self.memory = {name: commit for name, commit in there.items() if name == MEMORY}
        ours = (CLAIMS, WORK, *OUR_BRANCHES)
        return {name: commit for name, commit in there.items() if name.startswith(ours)}

    def _require_free_names(self, task: Task) -> str | None:
        """Check before a claim that our refs can be pushed. Return why only this task is refused, or None."""
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

    def _to_continue(self, task: Task, seen: Mapping[str, str]) -> Earlier | str | None:
        """Return the unfinished cycle with the answer to its question, or why the task is not taken."""
        found = self._unfinished_cycle(task, seen)
        if self.answer is not None and (refusal := self._why_no_answer(task.key, found)):
            return refusal
        if found is None:
            gone = task.kind is TaskKind.UNFINISHED
            return f"{task.key} was finished by another worker just now" if gone else None
        if self._is_retried(task):
            return replace(found, state=replace(found.state, attempts=0))
        return (
            replace(found, answer=self._find_answer(task, found)) if found.state.waits_for_answer else found
        )

    def _why_no_answer(self, key: str, found: Earlier | None) -> str:
        """Return why the user's answer does not fit this task; empty if it answers its question."""
        if found is None or not found.state.waits_for_answer:
            return f"{key} has no open question that --answer could be for: leave --answer out"
        # An answer that names no task could be for any of them.
        waiting = () if self.named else sorted(self.unfinished())
        others = [other for other in waiting if other != key and self._waits_for_answer(other)]
        if not others:
            return ""
        commands = "; ".join(self.commands.answer(one) for one in (key, *others))
        return f"{len(others) + 1} tasks wait for an answer; name the task of this answer: {commands}"

    def _waits_for_answer(self, key: str) -> bool:
        kept = read_kept(self.kept.read(key))
        found = kept[0] if kept is not None else self._on_remote(key, self.records.list(wip_ref(key)))
        return found is not None and found.state.waits_for_answer

    def _has_changed(self, task: Task, found: Earlier | None, lease: Lease, seen: Mapping[str, str]) -> bool:
        """Return whether the previous holder changed the saved work after we read it. Then the claim is released."""
        ref = wip_ref(task.key)
        if lease.previous is None:
            return False
        has_changed = True
        try:
            now = self.records.tips([ref, *OUR_BRANCHES])
            is_same_work = now.get(ref) == (found.commit if found else None)
            has_changed = not is_same_work or branches_of(task, now) != branches_of(task, seen)
        finally:
            if has_changed:
                with suppress(WorkspaceError):  # it expires by itself
                    lease.undo_claim()
        return has_changed

    def _give_up(self, task: Task) -> None:
        """Let a task wait for a person if its workers died too often, and tell people where they see it."""
        given_up, self._given_up = self._given_up, None
        if given_up is None or given_up.claim is None:
            return
        why, deaths = given_up.why, given_up.claim.died
        lease = self.claims.take(task.key, self.run, self.dead_runs, asked=asked_digest(task))
        if not isinstance(lease, Lease):
            return
        self.tell(claimed_event(lease))  # so that the run's record stays, and the digest has the reason
        try:
            tell_waiting(self.forge, waiting_place(task), why, self.run, self.commands.retry(task.key))
            if task.number is not None:
                self.forge.remove_label(task.number, WORKING_LABEL)
        except ForgeError as error:
            self.warn(f"{task.key} waits for a person, and its page does not show it: {error}")
        finally:
            lease.release(WAITS, deaths=deaths, why=why)

    def _unfinished_cycle(self, task: Task, seen: Mapping[str, str]) -> Earlier | None:
        """Return the unfinished cycle, from the remote, from this machine, or from a pushed branch without a pull request."""
        branch, tip = self._unproposed(task, seen)
        found = self._on_remote(task.key, seen)
        kept = self._on_this_machine(task, found.commit if found else None, tip)
        if kept is not None:
            found = kept
        if found is None and branch:
            found = Earlier(_UNKNOWN_STATE, None, "", None)
        return found and replace(found, branch=branch)

    def _on_remote(self, key: str, seen: Mapping[str, str]) -> Earlier | None:
        wip = load_wip(self.records, key, seen)
        if wip is None:
            return None
        pages = read_saved(wip)
        # Unreadable work is not continued, but this cycle's end still replaces or removes it.
        state, events = pages or (_UNKNOWN_STATE, ())
        return Earlier(state, wip.work if pages else None, wip_ref(key), wip.commit, wip.base, events)

    def _on_this_machine(self, task: Task, saved: str | None, tip: str) -> Earlier | None:
        """Return the unfinished cycle that only this machine has, unless another cycle continued without it.

        `saved` is the commit of the unfinished work on the remote, and `tip` that of the task's branch.
        """
        kept = read_kept(self.kept.read(task.key))
        if kept is None:
            return None
        if is_newest_kept(kept, saved, tip):
            return replace(kept[0], commit=saved)
        if (aside := self.kept.set_aside(task.key)) is not None:
            self.warn(
                f"{task.key} was continued elsewhere; this machine's older work on it was moved to {aside}"
            )
        return None

    def _unproposed(self, task: Task, seen: Mapping[str, str]) -> tuple[str, str]:
        """Return the task's branch without a pull request, and its commit; empty if there is none."""
        if task.pull is not None:
            return "", task.pull.commit
        branches = branches_of(task, seen)
        if branches and task.is_retry:
            pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
            branches = dict(branches.items() - {(pull.branch, pull.commit) for pull in pulls})
        if not branches:
            return "", ""
        branch = task.branch if task.branch in branches else min(branches)
        return branch, branches[branch]

    def _find_answer(self, task: Task, found: Earlier) -> Remark | None:
        if self.answer is not None:
            return Remark("", with_choice(self.answer, found.state.question), trusted=True)
        if kept := self.kept_answer(task.key, found.state.run):
            return Remark("", with_choice(kept, found.state.question), trusted=True)
        if (number := asked_at(task)) is None:
            return None
        comments = self.forge.comments(number)
        # The caller stores the answer, so that later edits of the comment have no effect.
        return find_answer(comments, found.state.question, found.state.question_url, self.may, self.clean)


def branches_of(task: Task, seen: Mapping[str, str]) -> dict[str, str]:
    """Return the branches of a task with their commits, among the refs of the remote."""
    return {
        branch: commit
        for ref, commit in seen.items()
        if ref.startswith(HEADS) and task.has_branch(branch := ref.removeprefix(HEADS))
    }


HEADS = "refs/heads/"

OUR_BRANCHES = tuple(f"{HEADS}{folder}" for folder in BRANCH_FOLDERS)
"""Full names of the folders of our branches."""

_TAGS = "refs/tags/"

_MOST_COMPARED = 1000


def patterns(base: str | None) -> tuple[str, ...]:
    """Return the refs to ask the remote for, as accepted by `Records.tips`."""
    tag = (f"{_TAGS}{base}",) if base is not None and is_branch_name(base) else ()
    return (HEADS, *tag, HIDDEN.removesuffix("/"), HIDDEN)


@dataclass(frozen=True, slots=True)
class RemoteNames:
    """The refs of a remote.

    Names taken by other branches or refs raise a `RemoteRefusedError`.

    Attributes:
        there: their full names.
        shown: the remote's name in messages.
    """

    there: Collection[str]
    shown: str

    def has_branch(self, name: str) -> bool:
        """Return whether a branch exists."""
        return f"{HEADS}{name}" in self.there

    def require_base(self, base: str) -> None:
        """Check that the branch to start from and to propose to exists.

        Raises:
            ConfigurationError: it does not; the message says what else has its name.
            EmptyRepositoryError: there is no branch at all.
        """
        heads = [name.removeprefix(HEADS) for name in self.there if name.startswith(HEADS)]
        if base in heads:
            return
        if not heads:
            raise EmptyRepositoryError(f"{self.shown} is empty; push a first commit and run again")
        close = difflib.get_close_matches(base, sorted(heads)[:_MOST_COMPARED], n=1)
        if f"{_TAGS}{base}" in self.there:
            why = "it is a tag; name a branch"
        elif is_commit_id(base):
            why = "it is a commit; name a branch"
        else:
            why = f"did you mean {close[0]}?" if close else "push it first, or name another one"
        raise ConfigurationError(
            f"--base {printable_line(base)}: {self.shown} has no branch of this name; {why}"
        )

    def require_hidden(self, key: str) -> str | None:
        """Check that claim and unfinished work of a task can be stored.

        Returns:
            Why only this task cannot be taken, or None.
        """
        for ref in (claim_ref(key), wip_ref(key)):
            if found := in_the_way(ref, self.there):
                message = (
                    f"{self.shown} has a reference {printable_line(found)}, so git cannot create {ref}: "
                    f"remove it, with git push {self.shown} :{printable_line(found)}"
                )
                if found.casefold().startswith(ref.casefold()):
                    return message
                raise RemoteRefusedError(message)
        return None

    def folder(self) -> str:
        """Return the first of our branch folders that can be created."""
        for folder in BRANCH_FOLDERS:
            if self.why_not_below(folder) is None:
                return folder
        names = " and ".join(folder.removesuffix("/") for folder in BRANCH_FOLDERS)
        raise RemoteRefusedError(
            f"{self.shown} has branches called {names}, so git can create no branch below them: "
            "rename or delete one of the two"
        )

    def why_not_below(self, folder: str) -> str | None:
        """Return the branch that prevents others below a folder, or None."""
        found = in_the_way(f"{HEADS}{folder}x", self.there, below=False)
        return None if found is None else found.removeprefix(HEADS)

    def named(self, task: Task) -> Task:
        """Return the task with a branch that can be created. Every machine that sees the same remote gets the same name."""
        if task.pull is not None:
            return task
        task, number = replace(task, branch_folder=self.folder()), 2
        while any(in_the_way(f"{HEADS}{name}", self.there) for name in (task.branch, task.plain_branch)):
            task, number = replace(task, branch_suffix=f"-{number}"), number + 1
        return task


MOST_AT_ONCE = 5
"""Most tombstones examined in a cycle. Each may cost a request for its issue."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """Removes tombstones, the records of released claims, of one repository.

    Attributes:
        run: selects the tombstones to examine: each run examines others.
    """

    records: Records
    forge: Forge
    run: str

    def prune(self, claims: Sequence[ClaimRecord], seen: Mapping[str, str], now: datetime) -> list[str]:
        """Remove some old tombstones. It does not raise: the next cycle tries again.

        Args:
            seen: all claims and unfinished work, as returned by `Records.list`.

        Returns:
            The tasks whose tombstones were removed.
        """
        old = [record for record in claims if is_old(record, now) and wip_ref(record.task) not in seen]
        if not old:
            return []
        with suppress(ForgeError, WorkspaceError):
            pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
            over = [
                record.task
                for record in sorted(old, key=self._turn)[:MOST_AT_ONCE]
                if self._is_over(record, pulls)
            ]
            if remove_tombstones(self.records, {task: seen[CLAIMS + task] for task in over}):
                return over
        return []

    def _turn(self, record: ClaimRecord) -> bytes:
        return hashlib.sha256(f"{self.run} {record.task}".encode()).digest()

    def _is_over(self, record: ClaimRecord, pulls: Sequence[PullRequest]) -> bool:
        """Return whether the forge itself shows that the task has nothing open. Then the tombstone is redundant."""
        ours = [pull for pull in pulls if key_of(pull.branch) == record.task]
        if any(pull.state is PullRequestState.OPEN for pull in ours):
            return False
        if record.pull is not None and record.pull not in {pull.number for pull in ours}:
            return False
        if (number := issue_of(record.task)) is not None:
            try:
                return not self.forge.issue(number).is_open
            except ForgeNotFoundError:  # it may be hidden from this token
                return False
        # An item or a text has no closed state. Its pull request keeps it from being done again.
        return bool(ours)
