"""Tasks for people: their states as everything known shows them, and decisions about them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS, claim_ref
from orchestrator.bot.coordination.claims import remove_records
from orchestrator.bot.coordination.saved_work import WORK, load_wip, wip_ref
from orchestrator.bot.cycle.claimer import HEADS, OUR_BRANCHES, branches_of
from orchestrator.bot.cycle.earlier import is_newest_kept, read_kept, read_saved
from orchestrator.bot.cycle.task_state import KnownTask, TaskState, TaskStatus, describe_holder, task_state
from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    TASK_KEY,
    Task,
    checklist,
    from_text,
    issue_of,
    key_of,
)
from orchestrator.bot.forge.base import PullRequestState, TokenKind
from orchestrator.bot.worker.candidates import BACKLOG_FILES
from orchestrator.core.errors import ConfigurationError, ForgeError, ForgeNotFoundError, PushRejectedError
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import is_task_key

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.forge.base import Forge, PullRequest
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.bot.suggestions import Commands
    from orchestrator.bot.worker.backlog import Backlog
    from orchestrator.core.clock import Clock


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
        backlog: asks the forge what people want now, as the next cycle would.
        why_over_budget: returns why a task that has cost this much is not continued, or None.
        kept_answer: returns the answer that was kept on this machine for the question of a run on a task; empty if
            there is none.
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
    backlog: Backlog
    why_over_budget: Callable[[Spent], str | None] = lambda _spent: None
    kept_answer: Callable[[str, str], str] = lambda _key, _run: ""

    def states(self, *, with_pulls: bool = True) -> list[TaskState]:
        """Return every known task, sorted by key.

        Args:
            with_pulls: whether the forge is asked for pull requests; False if it does not answer.
        """
        search = self.backlog.begin_search() if with_pulls else None
        pulls = search.pulls if search is not None else []
        seen = self.records.tips((CLAIMS, WORK, *OUR_BRANCHES))
        claims = {record.task: record for record in self.claims.list(seen)}
        saved = {ref.removeprefix(WORK) for ref in seen if ref.startswith(WORK)}
        keys = {
            *claims,
            *filter(is_task_key, saved),
            *self.kept.keys(),
            *(key_of(pull.branch) for pull in pulls),
        }
        states = []
        for key in sorted(keys - {""}):
            state = task_state(self._known(key, claims.get(key), pulls, seen))
            if state.has_trace and search is not None and state.depends_on_words:
                state = task_state(search.as_asked_now(state.known))
            states += [state] if state.has_trace else []
        for key in search.that_may_wait() if search is not None else ():
            if key not in keys and search is not None:
                state = task_state(search.as_asked_now(self._known(key, None, pulls, seen)))
                states += [state] if state.status is TaskStatus.BLOCKED else []
        return states

    def _known(
        self, key: str, claim: ClaimRecord | None, pulls: Sequence[PullRequest], seen: Mapping[str, str]
    ) -> KnownTask:
        """Return what refs, pull requests and this machine show of a task. `seen`: its refs and its branches."""
        wip = load_wip(self.records, key, seen)
        pages = read_saved(wip)
        known = KnownTask(
            key,
            self.clock.now(),
            pulls=pulls,
            claim=claim,
            times=self.times,
            dead_runs=self.dead_runs,
            left=pages[0] if pages else None,
            wip=wip,
            over_budget=(claim is not None and self.why_over_budget(claim.spent)) or "",
            commands=self.commands,
        )
        kept, pull = read_kept(self.kept.read(key)), known.pull
        branches = branches_of(Task(key, "", "", ""), seen)
        is_open = pull is not None and pull.state is PullRequestState.OPEN
        tip = pull.commit if pull is not None and is_open else branches[min(branches)] if branches else ""
        if kept is not None and is_newest_kept(kept, wip.commit if wip is not None else None, tip):
            known = replace(known, left=kept[0].state, is_here=True)
        left = known.left
        if left is None or not left.waits_for_answer:
            return known
        return replace(known, has_answer=bool(self.kept_answer(key, left.run)))

    def is_held(self, claim: ClaimRecord) -> bool:
        """Return whether a worker that is not known to be dead holds the task."""
        return claim.is_held(self.clock.now(), self.times, self.dead_runs)

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
            state = states.setdefault(key, self._unknown(key))
            if key not in words and state.pull is not None:
                words[key] = state.pull.title
        numbered = self._by_number(named.strip(), states)
        if numbered is not None:
            return states.get(numbered, self._unknown(numbered))
        return states[_key_named(named, states, words)]

    def retry(self, state: TaskState) -> DecisionResult:
        """Let the next cycle take a task again. Its saved work is kept."""
        if refusal := self._why_no_retry(state):
            return _unchanged(refusal, state)
        if not state.blocks and state.refusal and state.status is not TaskStatus.UNFINISHED:
            return _unchanged(state.refusal, state)
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
        """Delete what is kept of a task: unfinished work, conversation, failures, and a claim that nobody holds."""
        if state.status is TaskStatus.WORKING:
            return _unchanged(self._busy_note(state), state)
        seen = self.records.list(claim_ref(state.key), wip_ref(state.key))
        if not seen and not state.known.is_here:
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
        seen = self.records.tips((claim_ref(key), wip_ref(key), *OUR_BRANCHES))
        pulls = [
            pull
            for pull in self.forge.our_pull_requests(BRANCH_FOLDERS)
            if known is None or pull.number != known.number
        ]
        if known is not None:
            pulls.insert(0, known)
        return task_state(self._known(key, self.claims.show(key), pulls, seen))

    def _unknown(self, key: str) -> TaskState:
        """Return the state of a task of which nothing is known."""
        return task_state(KnownTask(key, self.clock.now(), commands=self.commands))

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


@dataclass(frozen=True, slots=True)
class Results:
    """What tasks came to and what they cost, as far as their claims are kept.

    Attributes:
        merged: tasks whose pull request was merged.
        declined: tasks whose pull request was closed unmerged.
        abandoned: tasks that cost something, have no pull request, and are left to a person.
        spent: the cost of all tasks, those that are still going on included.
    """

    merged: int
    declined: int
    abandoned: int
    spent: Spent

    @property
    def usd_each(self) -> float | None:
        """The cost of all tasks for each merged one; None if it is not known or nothing is merged."""
        return None if self.spent.usd is None or not self.merged else self.spent.usd / self.merged

    def __str__(self) -> str:
        """Return the numbers in words."""
        return f"{self.merged} merged, {self.declined} declined, {self.abandoned} abandoned"


def results_of(states: Iterable[TaskState]) -> Results:
    """Return what tasks came to. Those without a claim are left out, because their cost is not known."""
    claimed = [state for state in states if state.claim is not None and state.claim.fault is None]
    counts = Counter(state.status for state in claimed)
    costly = (state for state in claimed if state.claim is not None and state.claim.spent.rounds)
    return Results(
        counts[TaskStatus.MERGED],
        counts[TaskStatus.DECLINED],
        sum(state.blocks and state.pull is None and state.status is not TaskStatus.ASKED for state in costly),
        sum((state.claim.spent for state in claimed if state.claim is not None), Spent()),
    )


_MONTH = timedelta(days=30)


def usd_of_a_month(spent: Spent, period: timedelta) -> float | None:
    """Return what thirty days would cost at the rate of a period; None if that is not known."""
    return None if spent.usd is None or not period else spent.usd * (_MONTH / period)


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
