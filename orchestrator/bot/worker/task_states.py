"""The states of tasks, and the decisions that a person makes about them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS, claim_ref
from orchestrator.bot.coordination.claims import RETRY, remove_records
from orchestrator.bot.coordination.saved_work import WORK, load_wip, wip_ref
from orchestrator.bot.cycle.claim import WAITS
from orchestrator.bot.cycle.claimer import CRASHED, HEADS, OUR_BRANCHES, describe_holder
from orchestrator.bot.cycle.earlier import MOST_ATTEMPTS, UnfinishedState, read_kept, read_saved
from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    RETRY_LABEL,
    TASK_KEY,
    Task,
    checklist,
    from_text,
    issue_of,
    key_of,
)
from orchestrator.bot.forge.base import PullRequestState, TokenKind
from orchestrator.bot.worker.candidates import BACKLOG_FILES
from orchestrator.bot.worker.task_rules import has_label
from orchestrator.core.errors import ConfigurationError, ForgeError, ForgeNotFoundError, PushRejectedError
from orchestrator.core.repositories import is_task_key

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.coordination.saved_work import UnfinishedWork
    from orchestrator.bot.forge.base import Forge, PullRequest
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.core.clock import Clock
    from orchestrator.core.suggestions import Commands


class TaskStatus(StrEnum):
    """The states of a task, in words for people."""

    OPEN = "open"
    """The next cycle may take it: it is new, or a person asked for another try."""
    WORKING = "being worked on"
    ASKED = "waits for an answer"
    PROPOSED = "proposed"
    MERGED = "merged"
    DECLINED = "declined"
    """Its pull request was closed unmerged."""
    FAILED = "failed"
    TESTS_FAIL = "its tests fail"
    """A change was made and not proposed, because its tests fail. The work is kept."""
    UNFINISHED = "unfinished"
    """A limit, an outage or an interruption ended its last cycle; the next one goes on."""
    NOTHING = "nothing to do"
    WAITS = "waits for a person"
    """Another try would fail, too: the claim says why."""


_OUTCOMES = {
    "question": TaskStatus.ASKED,
    "proposed": TaskStatus.PROPOSED,
    "failed": TaskStatus.FAILED,
    "tests_fail": TaskStatus.TESTS_FAIL,
    "damaged": TaskStatus.FAILED,
    "error": TaskStatus.FAILED,
    "limit": TaskStatus.UNFINISHED,
    "paused": TaskStatus.UNFINISHED,
    "interrupted": TaskStatus.UNFINISHED,
    "crashed": TaskStatus.UNFINISHED,
    "unfinished": TaskStatus.UNFINISHED,
    "withdrawn": TaskStatus.UNFINISHED,
    "conflict": TaskStatus.UNFINISHED,
    "superseded": TaskStatus.NOTHING,
    "running": TaskStatus.WORKING,
    "no_task": TaskStatus.NOTHING,
    WAITS: TaskStatus.WAITS,
}
_OF_PULL = {
    PullRequestState.OPEN: TaskStatus.PROPOSED,
    PullRequestState.MERGED: TaskStatus.MERGED,
    PullRequestState.CLOSED: TaskStatus.DECLINED,
}


def status_of_outcome(outcome: str) -> TaskStatus:
    """Return the state of a task whose last cycle had this outcome in a journal or a claim."""
    word = outcome.partition(" ")[0]
    return next((status for status in TaskStatus if status == outcome), _OUTCOMES.get(word, TaskStatus.OPEN))


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task and its present state.

    Attributes:
        claim: the last claim on it.
        pull: our pull request for it: the open one, else the newest.
        left: the readable state that an unfinished cycle left.
        wip: the saved work on the remote.
        is_here: whether this machine keeps unfinished work of it that the remote did not take.
    """

    key: str
    status: TaskStatus
    claim: ClaimRecord | None = None
    pull: PullRequest | None = None
    left: UnfinishedState | None = None
    wip: UnfinishedWork | None = None
    is_here: bool = False

    @property
    def has_work(self) -> bool:
        """Whether unfinished work is kept, with which the next cycle on this machine continues."""
        return self.is_here or self.wip is not None

    @property
    def blocks(self) -> bool:
        """Whether the task is left alone until a person decides."""
        gave_up = self.left is not None and self.left.attempts >= MOST_ATTEMPTS
        outcome = self.claim.outcome.partition(" ")[0] if self.claim else ""
        match self.status:
            case (
                TaskStatus.DECLINED
                | TaskStatus.NOTHING
                | TaskStatus.ASKED
                | TaskStatus.TESTS_FAIL
                | TaskStatus.WAITS
            ):
                return True
            case TaskStatus.PROPOSED:
                return self.pull is None
            case TaskStatus.FAILED | TaskStatus.UNFINISHED:
                return outcome == "failed" or (gave_up and outcome in {"error", "limit", "conflict", CRASHED})
            case _:
                return False

    def describe(self) -> str:
        """Return the state and its details, on one line."""
        if self.claim is not None and self.claim.fault is not None:
            return f"{self.status}, but its claim cannot be read: {self.claim.fault}"
        gave_up = self.blocks and self.left is not None and self.left.attempts >= MOST_ATTEMPTS
        rest = ""
        match self.status:
            case TaskStatus.WAITS if self.claim is not None:
                died = f"its worker died {self.claim.died} times in a row"
                rest = f": {self.claim.why if self.claim.outcome == WAITS else died}"
            case TaskStatus.PROPOSED if self.pull is None and self.claim is not None:
                rest = f" as #{self.claim.pull}, which the forge does not list yet"
            case TaskStatus.PROPOSED | TaskStatus.MERGED | TaskStatus.DECLINED:
                rest = f" as #{self.pull.number}" if self.pull is not None else ""
                rest += ", unfinished work is kept" if self.has_work else ""
            case TaskStatus.FAILED | TaskStatus.UNFINISHED if not self.blocks:
                rest = f", the next cycle {'goes on' if self.has_work else 'tries again'}"
                if self.claim is not None and self.claim.died:
                    rest = (
                        f", its worker died{rest}"
                        if self.claim.died == 1
                        else f", its worker died twice{rest}"
                    )
            case TaskStatus.FAILED | TaskStatus.UNFINISHED if gave_up and self.left is not None:
                rest = f" in {self.left.attempts} cycles"
            case TaskStatus.TESTS_FAIL if self.has_work:
                rest = ", the work is kept"
            case TaskStatus.OPEN if self.has_work:
                rest = ", the next cycle goes on with the work that is kept"
            case _:
                pass
        return f"{self.status}{rest}"

    def next_step(self, commands: Commands) -> str:
        """Return the command that a person may type next, or the address to answer at; empty if nothing waits."""
        if self.status is TaskStatus.ASKED and self.left is not None:
            url = self.left.question_url
            return url if url.startswith("http") else commands.answer(self.key)
        if self.status is TaskStatus.PROPOSED and self.pull is not None:
            return commands.close(self.pull.number)
        return commands.retry(self.key) if self.blocks else ""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """The values by which a claim is judged. `dead_runs` are known to be dead or over."""

    now: datetime
    times: LeaseTimes
    dead_runs: Container[str] = ()

    def is_held(self, claim: ClaimRecord | None) -> bool:
        """Return whether a worker holds the task: its claim is valid, and its run is not known to be dead."""
        return (
            claim is not None
            and not claim.is_free(self.now, self.times)
            and (claim.fault is not None or claim.run not in self.dead_runs)
        )


def task_state(  # noqa: PLR0913  all that is known of a task
    key: str,
    claim: ClaimRecord | None,
    wip: UnfinishedWork | None,
    pulls: Iterable[PullRequest],
    as_of: ClaimCheck,
    *,
    here: UnfinishedState | None = None,
) -> TaskState:
    """Return the state of one task.

    Args:
        pulls: our pull requests, newest first, including those of other tasks.
        here: the state that only this machine has, or None.
    """
    pages = read_saved(wip)
    left = here or (pages[0] if pages else None)
    ours = [pull for pull in pulls if key_of(pull.branch) == key]
    pull = next((one for one in ours if one.state is PullRequestState.OPEN), ours[0] if ours else None)
    if as_of.is_held(claim):
        status = TaskStatus.WORKING
    elif claim is not None and (claim.outcome == WAITS or claim.died >= MOST_ATTEMPTS):
        is_over = pull is not None and pull.state is PullRequestState.MERGED
        status = TaskStatus.MERGED if is_over else TaskStatus.WAITS
    elif pull is not None:
        status = _status_with_pull(pull, claim, left)
    else:
        status = _status_without_pull(claim, left, as_of.now)
    return TaskState(key, status, claim, pull, left, wip, here is not None)


def _is_retry(claim: ClaimRecord | None) -> bool:
    return claim is not None and claim.outcome == RETRY


def _status_with_pull(
    pull: PullRequest, claim: ClaimRecord | None, left: UnfinishedState | None
) -> TaskStatus:
    if pull.state is PullRequestState.CLOSED and (_is_retry(claim) or has_label(pull.labels, RETRY_LABEL)):
        return TaskStatus.OPEN
    waits = left is not None and left.waits_for_answer and not _is_retry(claim)
    return TaskStatus.ASKED if waits and pull.state is PullRequestState.OPEN else _OF_PULL[pull.state]


def _status_without_pull(
    claim: ClaimRecord | None, left: UnfinishedState | None, now: datetime
) -> TaskStatus:
    if _is_retry(claim):
        return TaskStatus.OPEN
    if left is not None and left.waits_for_answer:
        return TaskStatus.ASKED
    if claim is None:
        return TaskStatus.UNFINISHED if left is not None else TaskStatus.OPEN
    # The process of a claim that was not released has died.
    found = status_of_outcome(claim.outcome if claim.state == "released" else "crashed")
    if found is TaskStatus.PROPOSED and claim.new_pull(now) is not None:
        return found
    # The question was dropped, or the pull request is gone: nothing prevents another try.
    return TaskStatus.OPEN if found in {TaskStatus.ASKED, TaskStatus.PROPOSED} else found


def list_states(
    records: Records,
    claims: Claims,
    pulls: Sequence[PullRequest],
    as_of: ClaimCheck,
    here: Mapping[str, UnfinishedState],
) -> list[TaskState]:
    """Return every known task, by key: those with a claim, unfinished work, or a pull request of ours.

    `here` has the states that only this machine has, by the tasks' keys.

    Raises:
        RemoteUnavailableError: no answer, after several tries.
        WorkspaceError: the remote refused.
    """
    seen = records.list(CLAIMS, WORK)
    known = {record.task: record for record in claims.list(seen)}
    works = {
        ref.removeprefix(WORK): wip
        for ref in seen
        if ref.startswith(WORK)
        and is_task_key(ref.removeprefix(WORK))
        and (wip := load_wip(records, ref.removeprefix(WORK), seen)) is not None
    }
    keys = {*known, *works, *here, *(key_of(pull.branch) for pull in pulls)} - {""}
    return [
        task_state(key, known.get(key), works.get(key), pulls, as_of, here=here.get(key))
        for key in sorted(keys)
    ]


_NUMBER = re.compile(r"#?([1-9][0-9]{0,9})")
_LEAST_LETTERS = 3
"""The shortest part of a task's text that may name it: shorter ones match too many tasks."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """The result of a decision about a task.

    Attributes:
        words: what was done, or why nothing was, for people.
        after: the task's state after the decision.
    """

    words: str
    after: TaskState
    changed: bool


@dataclass(frozen=True, slots=True)
class TaskDecisions:
    """Decisions about the tasks of one repository.

    Attributes:
        dead_runs: runs of this machine that are known to be dead or over.
        words: the texts of the tasks that this machine worked on, by key.
        kept: unfinished work that only this machine has.
    """

    records: Records
    claims: Claims
    forge: Forge
    times: LeaseTimes
    clock: Clock
    commands: Commands
    dead_runs: Container[str]
    words: Mapping[str, str]
    kept: KeptWork

    def states(self, *, with_pulls: bool = True) -> list[TaskState]:
        """Return every known task, sorted by key.

        Args:
            with_pulls: whether the forge is asked for pull requests; False if it does not answer.

        Raises:
            ForgeError: the forge failed.
            WorkspaceError: the remote cannot be reached.
        """
        pulls = self.forge.our_pull_requests(BRANCH_FOLDERS) if with_pulls else []
        here = {
            key: state for key in sorted(self.kept.keys()) if (state := self._kept_state(key)) is not None
        }
        return list_states(self.records, self.claims, pulls, self._as_of(), here)

    def _kept_state(self, key: str) -> UnfinishedState | None:
        """Return the state of a task that only this machine has, or None."""
        found = read_kept(self.kept.read(key))
        return found[0].state if found is not None else None

    def is_held(self, claim: ClaimRecord) -> bool:
        """Return whether a worker that is not known to be dead holds the task."""
        return self._as_of().is_held(claim)

    def _as_of(self) -> ClaimCheck:
        return ClaimCheck(self.clock.now(), self.times, self.dead_runs)

    def find(self, named: str) -> TaskState:
        """Return the task that a person names by its key, a number, or a part of its text.

        Raises:
            ConfigurationError: no task or several match; the message names the nearest.
            ForgeError: the forge failed.
            WorkspaceError: the remote cannot be reached.
        """
        states = {state.key: state for state in self.states()}
        items = {task.key: task for file in BACKLOG_FILES for task in self._items(file)}
        words = {**self.words, **{key: task.body or task.title for key, task in items.items()}}
        for key in {*words, *states}:
            state = states.setdefault(key, TaskState(key, TaskStatus.OPEN))
            if key not in words and state.pull is not None:
                words[key] = state.pull.title
        numbered = self._by_number(named.strip(), states)
        if numbered is not None:
            return states.get(numbered, TaskState(numbered, TaskStatus.OPEN))
        return states[_key_named(named, states, words)]

    def retry(self, state: TaskState) -> DecisionResult:
        """Let the next cycle take a task again. Its saved work is kept.

        Raises:
            ForgeError: the forge failed.
            WorkspaceError: the remote cannot be reached, or refused the change.
        """
        if refusal := self._why_no_retry(state):
            return _unchanged(refusal, state)
        if not state.blocks:
            return _unchanged(f"{state.key} is not blocked: the next cycle may take it already", state)
        if self.claims.request_retry(state.key, self.dead_runs) is not None:
            return _unchanged(self._busy_note(self._present_state(state.key)), state)
        after = self._present_state(state.key)
        goes_on = ", and goes on with the work that is kept" if after.has_work else ""
        return DecisionResult(
            f"{state.key} may be taken again by the next cycle{goes_on}", after, changed=True
        )

    def close(self, number: int) -> DecisionResult:
        """Close a pull request of ours unmerged. Its task is not taken again before a retry.

        Raises:
            ConfigurationError: it is not ours.
            ForgeError: the forge failed, or it is merged.
            WorkspaceError: the remote cannot be reached.
        """
        pull = self._own_pull_request(number)
        key = key_of(pull.branch)
        state = self._present_state(key)
        if pull.state is PullRequestState.MERGED:
            return _unchanged(f"#{number} is merged: there is nothing to close", state)
        if pull.state is PullRequestState.CLOSED:
            return _unchanged(f"#{number} is closed already", state)
        if state.status is TaskStatus.WORKING:
            return _unchanged(self._busy_note(state), state)
        self.forge.close_pull_request(number)
        closed = replace(pull, state=PullRequestState.CLOSED)
        # The forge's list may lag behind the closing.
        after = self._present_state(key, known=closed)
        words = f"closed #{number}; {key} is not taken again, unless you say so: {self.commands.retry(key)}"
        return DecisionResult(words, after, changed=True)

    def would_lose(self, state: TaskState) -> str:
        """Return a description of what forgetting a task destroys; empty if nothing."""
        if not state.has_work:
            return ""
        if state.left is None:
            return f"what {wip_ref(state.key)} holds, which cannot be read here"
        count = len(state.left.touched)
        files = f"{count} changed file{'' if count == 1 else 's'}" if count else "no changed file"
        return f"the work of run {state.left.run} ({files}) and its conversation with the model"

    def forget(self, state: TaskState) -> DecisionResult:
        """Delete what is kept of a task: unfinished work, conversation, failures, and a claim that nobody holds.

        Raises:
            PushRejectedError: another process changed it meanwhile.
            WorkspaceError: the remote cannot be reached, or refused the change.
        """
        if state.status is TaskStatus.WORKING:
            return _unchanged(self._busy_note(state), state)
        seen = self.records.list(claim_ref(state.key), wip_ref(state.key))
        if not seen and not state.is_here:
            return _unchanged(f"nothing is kept of {state.key}{self._remaining_note(state)}", state)
        expected = state.wip.commit if state.wip is not None else None
        moved = (
            seen.get(wip_ref(state.key)) != expected
            or self._present_state(state.key).status is TaskStatus.WORKING
        )
        doing = f"cannot forget {state.key} of {self.records.remote.shown}"
        if moved or (seen and not remove_records(self.records, seen, doing)):
            raise PushRejectedError(f"{state.key} was changed by a worker just now: look at it again")
        self.kept.remove(state.key)
        return DecisionResult(
            f"forgot {state.key}{self._remaining_note(state)}", self._present_state(state.key), changed=True
        )

    def _remaining_note(self, state: TaskState) -> str:
        """Return what the forge and the remote still know of a forgotten task, for people."""
        pull = state.pull
        if pull is None:
            task, shown = Task(state.key, "", "", ""), self.records.remote.shown
            heads = [
                ref for ref in self.records.tips(OUR_BRANCHES) if task.has_branch(ref.removeprefix(HEADS))
            ]
            drop = f"git push {shown} {' '.join(f':{ref}' for ref in heads)}"
            return (
                f"; the next cycle proposes the branch that was pushed for it; to drop that: {drop}"
                if heads
                else ""
            )
        if pull.state is PullRequestState.MERGED:
            return ""
        if pull.state is PullRequestState.OPEN:
            return f"; its pull request #{pull.number} is open: {self.commands.close(pull.number)}"
        return f"; its pull request #{pull.number} stays closed, so it is not taken before: {self.commands.retry(state.key)}"

    def _why_no_retry(self, state: TaskState) -> str:
        if state.status is TaskStatus.WORKING:
            return self._busy_note(state)
        if state.pull is not None and state.status is TaskStatus.MERGED:
            return f"#{state.pull.number} is merged: there is nothing to try again; write a new task"
        if state.pull is not None and state.status is TaskStatus.PROPOSED:
            number = state.pull.number
            return f"#{number} is open: review it, or close it first: {self.commands.close(number)}"
        issue = issue_of(state.key)
        if issue is None:
            return ""
        try:
            is_open = self.forge.issue(issue).is_open
        except ForgeNotFoundError as error:
            return str(error)
        return "" if is_open else f"issue #{issue} is closed: reopen it first"

    def _busy_note(self, state: TaskState) -> str:
        if state.claim is None:
            return f"{state.key} is being worked on: try again later"
        return describe_holder(state.claim, self.commands)

    def _present_state(self, key: str, known: PullRequest | None = None) -> TaskState:
        """Return the present state of one task. `known` replaces the listed pull request of the same number."""
        seen = self.records.list(claim_ref(key), wip_ref(key))
        pulls = [
            pull
            for pull in self.forge.our_pull_requests(BRANCH_FOLDERS)
            if known is None or pull.number != known.number
        ]
        if known is not None:
            pulls.insert(0, known)
        wip = load_wip(self.records, key, seen)
        return task_state(key, self.claims.show(key), wip, pulls, self._as_of(), here=self._kept_state(key))

    def _own_pull_request(self, number: int) -> PullRequest:
        """Return the pull request if we opened it: on a branch of ours, and by us or with our marker."""
        pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
        pull = next((one for one in pulls if one.number == number), None)
        if pull is None or not key_of(pull.branch) or not self._is_by_us(pull):
            listed = ", ".join(f"#{one.number}" for one in pulls if one.state is PullRequestState.OPEN)
            open_ones = f"open ones of ours: {listed}" if listed else "none of ours is open"
            raise ConfigurationError(f"#{number} is no pull request of Pullwright's here; {open_ones}")
        return pull

    def _is_by_us(self, pull: PullRequest) -> bool:
        if not pull.author and self.forge.token_kind() is TokenKind.NONE:  # a local folder knows no logins
            return True
        me = self.forge.own_login()
        if me is not None:
            return pull.author.lower() == me.lower()
        return pull.author.endswith("[bot]") and Task(key_of(pull.branch), "", "", "").is_marked(pull.body)

    def _by_number(self, named: str, states: Mapping[str, TaskState]) -> str | None:
        """Return the key of the task of our pull request or the issue `12` or `#12`; None if this is no number."""
        found = _NUMBER.fullmatch(named)
        if found is None:
            return None
        for pull in self.forge.our_pull_requests(BRANCH_FOLDERS):
            if pull.number == int(found[1]) and (key := key_of(pull.branch)):
                return key
        key_of_issue = f"issue-{found[1]}"
        if key_of_issue not in states:
            try:
                self.forge.issue(int(found[1]))
            except ForgeError as error:
                raise ConfigurationError(
                    f"#{found[1]} is no task here ({error}){_listed(states, {})}"
                ) from None
        return key_of_issue

    def _items(self, file: str) -> Iterable[Task]:
        text = self.forge.read_file(file)
        return checklist(file, text) if text else ()


def _unchanged(why: str, state: TaskState) -> DecisionResult:
    return DecisionResult(why, state, changed=False)


def _key_named(named: str, states: Mapping[str, TaskState], words: Mapping[str, str]) -> str:
    """Return the key that a person names by a key, a part of one, or a part of a task's text."""
    text = " ".join(named.split())
    digest = from_text(named).key.removeprefix("text-") if text else ""
    exact = [key for key in (text.lower(), f"text-{digest}", f"item-{digest}") if key in states]
    if exact:
        return exact[0]
    if TASK_KEY.fullmatch(text.lower()):
        raise ConfigurationError(f"nothing is known of the task {text.lower()}{_listed(states, words)}")
    lowered = text.casefold()
    found = [key for key in states if len(text) >= _LEAST_LETTERS and key.startswith(text.lower())]
    found = found or [
        key
        for key in states
        if len(text) >= _LEAST_LETTERS and lowered in " ".join(words.get(key, "").split()).casefold()
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(f"{text[:60]!r} names {len(found)} tasks: {_several(found, words)}")
    raise ConfigurationError(f"no task here is named {text[:60]!r}{_listed(states, words)}")


def _listed(states: Mapping[str, TaskState], words: Mapping[str, str]) -> str:
    """Return the tasks that a person may have meant; those that wait for a person come first."""
    keys = sorted(states, key=lambda key: (not states[key].blocks, key))
    return f"; there are: {_several(keys, words)}" if keys else "; no task is known here"


def _several(keys: Sequence[str], words: Mapping[str, str]) -> str:
    shown = [
        f"{key} ({' '.join(words[key].split())[:40]})" if words.get(key) else key for key in keys[:_NAMED]
    ]
    more = len(keys) - _NAMED
    return f"{', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
