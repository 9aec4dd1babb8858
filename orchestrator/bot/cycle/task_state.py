"""May this task be taken now? One function of values answers, for whatever takes, chooses, shows or decides about tasks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import RETRY, died_of
from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.earlier import MOST_ATTEMPTS
from orchestrator.bot.cycle.tasks import RETRY_LABEL, TaskKind, issue_of, key_of, name_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.suggestions import Commands

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from orchestrator.bot.coordination.claim_record import ClaimRecord
    from orchestrator.bot.coordination.saved_work import UnfinishedWork
    from orchestrator.bot.cycle.earlier import UnfinishedState
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import PullRequest


WAITS = "waits"
"""Outcome, in a claim's record, of a task that waits for a person. The record says why."""

CRASHED = "crashed"
"""Outcome, in a claim's record, of a cycle whose process died, and whose work was saved afterwards."""

ERROR = "error"
"""Outcome, in a claim's record, of a cycle that ended for a reason outside of the task."""

DEATH_PAUSE = timedelta(minutes=15)
"""How long a task rests after its worker died for the second time in a row."""

LEFT_KINDS = frozenset({TaskKind.REVIEW, TaskKind.CHECKS})
"""Kinds of tasks that may be left to people for what is on the branch, and are then taken again once that changes."""

_DIGEST_DIGITS = 12


def asked_digest(task: Task) -> str:
    """Return a short digest of what is asked of a cycle. It changes when people say something new."""
    if task.kind in {TaskKind.NEW, TaskKind.UNFINISHED}:
        return words_digest(task)
    # The marker names the comments or the commit; the texts of checks may change without people.
    return hashlib.sha256(f"{task.kind} {task.status_marker}".encode()).hexdigest()[:_DIGEST_DIGITS]


def words_digest(task: Task) -> str:
    """Return a short digest of the task's text and of what people said about it."""
    about = [task.pull.commit] if task.pull is not None and task.kind in LEFT_KINDS else []
    text = "\0".join((task.title, task.body, *(remark.text for remark in task.remarks), *about))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]


class TaskStatus(StrEnum):
    """The states of a task, in words for people."""

    OPEN = "open"
    """The next cycle may take it: it is new, or a person asked for another try or said something new."""
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
    CAPPED = "has used up its budget"
    BLOCKED = "waits for other work"
    """It is taken when the issues that it waits for are closed."""
    LEFT = "left alone"
    """Nobody who may asks for it now, or somebody else does it."""


_OUTCOMES = {
    "question": TaskStatus.ASKED,
    "proposed": TaskStatus.PROPOSED,
    "failed": TaskStatus.FAILED,
    "tests_fail": TaskStatus.TESTS_FAIL,
    "damaged": TaskStatus.FAILED,
    ERROR: TaskStatus.FAILED,
    "limit": TaskStatus.UNFINISHED,
    "paused": TaskStatus.UNFINISHED,
    "interrupted": TaskStatus.UNFINISHED,
    CRASHED: TaskStatus.UNFINISHED,
    "unfinished": TaskStatus.UNFINISHED,
    "withdrawn": TaskStatus.UNFINISHED,
    "conflict": TaskStatus.UNFINISHED,
    "superseded": TaskStatus.NOTHING,
    "running": TaskStatus.WORKING,
    "no_task": TaskStatus.NOTHING,
    WAITS: TaskStatus.WAITS,
}
_BY_ANOTHER_WAY = frozenset({TaskStatus.CAPPED, TaskStatus.LEFT, TaskStatus.BLOCKED})
"""States that end by what their reasons say, and not by a request for another try."""
_LEFT_ALONE = {
    "no_task": "had nothing to do",
    "superseded": "was on the base already",
    "failed": "failed",
    "tests_fail": "was done, but its tests fail,",
}
"""Outcomes after which a task is not tried again before a person says something new, in words."""
_GO_ON = frozenset({ERROR, "limit", "conflict"})
"""Outcomes after which the next cycle goes on, for a limited number of cycles."""


def status_of_outcome(outcome: str) -> TaskStatus:
    """Return the state of a task whose last cycle had this outcome in a journal or a claim."""
    word = outcome.partition(" ")[0]
    return next((status for status in TaskStatus if status == outcome), _OUTCOMES.get(word, TaskStatus.OPEN))


@dataclass(frozen=True, slots=True)
class KnownTask:
    """What is known of a task at one time. What was not read has its default, which refuses nothing."""

    key: str
    now: datetime
    task: Task | None = None
    """The task as people ask for it now; None: nobody has read it, so it counts as unchanged since the last cycle."""
    pulls: Sequence[PullRequest] = ()
    """Our pull requests, newest first, including those of other tasks."""
    claim: ClaimRecord | None = None
    """The last claim on it, from the remote."""
    times: LeaseTimes = LeaseTimes()  # noqa: RUF009  a frozen value
    dead_runs: Container[str] = ()
    """Runs that are known to be dead or over, whose claims are free."""
    left: UnfinishedState | None = None
    """The readable state that an unfinished cycle left, on the remote or on this machine."""
    wip: UnfinishedWork | None = None
    """The saved work on the remote."""
    is_here: bool = False
    """Whether this machine keeps unfinished work of it that the remote did not take."""
    is_retry: bool = False
    """Whether a person asked for another try by a label, or by a command as far as the claim was not read."""
    is_named: bool = False
    """Whether a person named this task, so that earlier failures do not count."""
    has_answer: bool = False
    """Whether its question is answered, or a person who can answer is there."""
    closed: str = ""
    """Why nobody asks for it any more, such as a closed issue; empty if somebody may."""
    unwanted: str = ""
    """Why nobody who may asks for it now; empty if somebody does."""
    blocked: str = ""
    """The open issues that it waits for, in words; empty if there are none."""
    over_budget: str = ""
    """Why a task that has cost this much is not continued; empty if it may be."""
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    """How a person types commands about this repository."""

    @property
    def pull(self) -> PullRequest | None:
        """Our pull request for it: the open one, else the merged one, else the newest."""
        ours = [pull for pull in self.pulls if key_of(pull.branch) == self.key]
        order = [PullRequestState.OPEN, PullRequestState.MERGED, PullRequestState.CLOSED]
        return min(ours, key=lambda pull: order.index(pull.state), default=None)

    @property
    def is_asked_again(self) -> bool:
        """Whether a person asked for another try, by a label or a command."""
        return self.is_retry or (self.claim is not None and self.claim.outcome == RETRY)

    @property
    def name(self) -> str:
        """Its name in messages."""
        if self.task is not None:
            return name_of(self.task)
        number = issue_of(self.key)
        return self.key if number is None else f"issue #{number}"


@dataclass(frozen=True, slots=True)
class TaskState:
    """The answer: a task's state, and whether it may be taken now.

    Attributes:
        refusal: why it is not taken now, and what a person can do, in one line; empty if it may be taken.
        until: when it may be taken although nobody does anything; None if that is up to people or workers.
        why: why it waits for a person, without what to do; empty if it does not.
        gives_up: whether its claim does not say yet that it waits for a person.
        comes_last: whether the last cycle on the same words failed or died, so that other tasks come before it.
    """

    known: KnownTask
    status: TaskStatus
    refusal: str = ""
    until: datetime | None = None
    why: str = ""
    gives_up: bool = False
    comes_last: bool = False

    @property
    def key(self) -> str:
        """The task's key."""
        return self.known.key

    @property
    def claim(self) -> ClaimRecord | None:
        """The last claim on it."""
        return self.known.claim

    @property
    def pull(self) -> PullRequest | None:
        """Our pull request for it."""
        return self.known.pull

    @property
    def left(self) -> UnfinishedState | None:
        """The readable state that an unfinished cycle left."""
        return self.known.left

    @property
    def wip(self) -> UnfinishedWork | None:
        """The saved work on the remote."""
        return self.known.wip

    @property
    def since(self) -> datetime | None:
        """When the last claim on it moved; None if nobody claimed it."""
        return self.claim.renewed_at if self.claim is not None and self.claim.fault is None else None

    @property
    def has_work(self) -> bool:
        """Whether unfinished work is kept, with which the next cycle on this machine continues."""
        return self.known.is_here or self.wip is not None

    @property
    def has_trace(self) -> bool:
        """Whether anything of an earlier cycle is there."""
        return any(one is not None for one in (self.claim, self.pull, self.left, self.wip))

    @property
    def blocks(self) -> bool:
        """Whether the task is left alone until a person asks for another try."""
        if self.status is TaskStatus.PROPOSED:
            return self.pull is None
        is_over = self.status in {TaskStatus.WORKING, TaskStatus.MERGED, *_BY_ANOTHER_WAY}
        return bool(self.refusal) and self.until is None and not is_over

    @property
    def depends_on_words(self) -> bool:
        """Whether what people said since the last cycle may change the answer."""
        if self.status in {TaskStatus.WORKING, TaskStatus.MERGED, TaskStatus.CAPPED}:
            return False
        return self.status is not TaskStatus.PROPOSED or self.has_work

    def describe(self) -> str:
        """Return the state and its details, on one line."""
        if self.claim is not None and self.claim.fault is not None:
            return f"{self.status}, but its claim cannot be read: {self.claim.fault}"
        died = self.claim.died if self.claim is not None else 0
        rest = ""
        match self.status:
            case TaskStatus.WAITS | TaskStatus.CAPPED | TaskStatus.LEFT | TaskStatus.BLOCKED:
                known = self.known
                rest = f": {self.why or known.closed or known.over_budget or known.unwanted or known.blocked}"
            case TaskStatus.PROPOSED if self.pull is None and self.claim is not None:
                rest = f" as #{self.claim.pull}, which the forge does not list yet"
            case TaskStatus.PROPOSED | TaskStatus.MERGED | TaskStatus.DECLINED:
                rest = f" as #{self.pull.number}" if self.pull is not None else ""
                rest += ", unfinished work is kept" if self.has_work else ""
            case TaskStatus.FAILED | TaskStatus.UNFINISHED if not self.refusal or self.until:
                when = "the next cycle" if self.until is None else f"from {self.until:%H:%M} UTC on a cycle"
                rest = f", {when} {'goes on' if self.has_work else 'tries again'}"
                if died:
                    rest = f", its worker died{'' if died == 1 else ' twice'}{rest}"
            case TaskStatus.FAILED | TaskStatus.UNFINISHED if self.why and self.left is not None:
                rest = f" in {self.left.attempts} cycles"
            case TaskStatus.TESTS_FAIL if self.has_work:
                rest = ", the work is kept"
            case TaskStatus.OPEN if self.has_work:
                rest = ", the next cycle goes on with the work that is kept"
        return f"{self.status}{rest}"

    def next_step(self, commands: Commands) -> str:
        """Return the command that a person may type next, or the address to answer at; empty if nothing waits."""
        if self.status is TaskStatus.ASKED and self.left is not None:
            url = self.left.question_url
            return url if url.startswith("http") else commands.answer(self.key)
        if self.status is TaskStatus.PROPOSED and self.pull is not None:
            return commands.close(self.pull.number)
        return commands.retry(self.key) if self.blocks else ""


def task_state(known: KnownTask) -> TaskState:
    """Return the state of a task, and whether it may be taken now. It reads nothing, and asks nobody."""
    last = _LastCycle.of(known)
    for rule in _RULES:
        if (found := rule(known, last)) is not None:
            return found
    return TaskState(known, _takable_status(known), comes_last=last.comes_last)


@dataclass(frozen=True, slots=True)
class _LastCycle:
    """What the last claim says of the work that is asked for now.

    Attributes:
        kind: of the task as it is asked for now.
        outcome: its first word; empty if there is no claim, or nobody released it.
        digest: of the words of the task at its end, if they matter.
        died: how many of the last holders in a row died of what is asked now.
        is_same: whether the last holder was asked the same.
    """

    kind: TaskKind
    outcome: str = ""
    digest: str = ""
    died: int = 0
    is_same: bool = False
    comes_last: bool = False

    @classmethod
    def of(cls, known: KnownTask) -> _LastCycle:
        claim, task = known.claim, known.task
        kind = task.kind if task is not None else TaskKind.NEW
        if claim is None:
            return cls(kind)
        asked = asked_digest(task) if task is not None else claim.asked
        outcome, _, digest = claim.outcome.partition(" ")
        died, is_same = died_of(claim, asked), claim.asked == asked
        comes_last = not known.is_named and (died > 0 or (outcome == ERROR and is_same))
        return cls(kind, outcome, digest, died, is_same, comes_last)


def _held(known: KnownTask, _last: _LastCycle) -> TaskState | None:
    if known.claim is None or not known.claim.is_held(known.now, known.times, known.dead_runs):
        return None
    return TaskState(known, TaskStatus.WORKING, describe_holder(known.claim, known.commands))


def _ended(known: KnownTask, last: _LastCycle) -> TaskState | None:
    """Refuse a new task whose pull request was merged, or closed unmerged."""
    pull = known.pull
    if last.kind is not TaskKind.NEW or pull is None:
        return None
    if pull.state is PullRequestState.MERGED:
        return TaskState(known, TaskStatus.MERGED, f"{known.name} was done by {pull.address}")
    if pull.state is PullRequestState.OPEN or known.is_asked_again:
        return None
    no = f"{known.name} was declined: {pull.address} is closed unmerged"
    return TaskState(known, TaskStatus.DECLINED, f"{no}; for another try: {known.commands.retry(known.key)}")


def _closed(known: KnownTask, _last: _LastCycle) -> TaskState | None:
    return TaskState(known, TaskStatus.LEFT, known.closed) if known.closed else None


def _asked(known: KnownTask, _last: _LastCycle) -> TaskState | None:
    left = known.left
    if left is None or not left.waits_for_answer or known.is_asked_again or known.has_answer:
        return None
    url = left.question_url
    where = url if url.startswith("http") else known.commands.answer(known.key)
    return TaskState(known, TaskStatus.ASKED, f"{known.key} waits for an answer: {where}")


def _waiting(known: KnownTask, last: _LastCycle) -> TaskState | None:
    """Refuse a task whose workers died or gave up, and about which people said nothing since."""
    claim, left = known.claim, known.left
    if claim is None or known.is_asked_again or known.is_named:
        return None
    is_told = last.outcome == WAITS
    if last.died >= MOST_ATTEMPTS:
        why = f"its worker died {last.died} times in a row, the last time in run {claim.run} on {claim.owner}"
        why = f"{why} ({claim.why})" if claim.why else why
        why = claim.why if is_told else why
    elif last.outcome == CRASHED and last.died and left is not None and left.attempts >= MOST_ATTEMPTS:
        why = _not_completed(left)
    elif is_told and last.is_same:
        why = claim.why
    else:
        return None
    no = f"{known.key} waits for a person: {why}; for another try, {_to_ask_again(known)}"
    return TaskState(known, TaskStatus.WAITS, no, why=why, gives_up=not is_told)


def _proposed(known: KnownTask, last: _LastCycle) -> TaskState | None:
    """Refuse a new task whose pull request is open, or so new that the forge does not list it yet."""
    pull, claim = known.pull, known.claim
    if last.kind is not TaskKind.NEW:
        return None
    if pull is not None and pull.state is PullRequestState.OPEN:
        there = f"{known.name} has an open pull request, {pull.address}"
        no = f"{there}: review it, or {known.commands.close(pull.number)}"
        return TaskState(known, TaskStatus.PROPOSED, no)
    number = claim.new_pull(known.now) if claim is not None and last.outcome != RETRY else None
    if number is None or number in {one.number for one in known.pulls}:
        return None
    no = f"{known.name} was proposed as #{number}, which the forge does not list yet"
    no = f"{no}; if it does not exist: {known.commands.retry(known.key)}"
    return TaskState(known, TaskStatus.PROPOSED, no)


def _capped(known: KnownTask, _last: _LastCycle) -> TaskState | None:
    cap = known.task.usd_cap if known.task is not None else None
    spent = known.claim.spent if known.claim is not None else None
    if cap is not None and spent is not None and spent.rounds and (spent.usd is None or spent.usd >= cap):
        much = "an unknown part" if spent.usd is None else f"${spent.usd:.2f}"
        why = f"{much} of the ${cap:.2f} that a person allows on {known.name} is spent"
        no = f"{known.key}: {why}: allow more there"
        return TaskState(replace(known, over_budget=why), TaskStatus.CAPPED, no)
    if not known.over_budget:
        return None
    no = f"{known.key}: {known.over_budget}: raise the cap (--max-usd-per-task and its like)"
    return TaskState(known, TaskStatus.CAPPED, no)


def _resting(known: KnownTask, last: _LastCycle) -> TaskState | None:
    if known.claim is None or known.is_asked_again or known.is_named or last.died != MOST_ATTEMPTS - 1:
        return None
    until = known.claim.renewed_at + DEATH_PAUSE
    if until <= known.now:
        return None
    no = f"{known.key} ended its worker {last.died} times: it is tried again from {until:%H:%M} UTC on"
    return TaskState(known, TaskStatus.UNFINISHED, no, until, comes_last=last.comes_last)


def _not_proposed(known: KnownTask, last: _LastCycle) -> TaskState | None:
    """Refuse saved work of a pull request whose last cycle ended without proposing it."""
    claim, left, task = known.claim, known.left, known.task
    if last.kind is not TaskKind.UNFINISHED or last.outcome != "proposed" or claim is None or task is None:
        return None
    if left is not None and task.pull is not None and not left.knows(task.pull.commit):
        return None
    no = (
        f"run {claim.run} finished {known.key} without proposing all of its unfinished work, "
        f"{wip_ref(known.key)}; to delete that work: {known.commands.forget(known.key)}"
    )
    return TaskState(known, TaskStatus.PROPOSED, no)


def _tried(known: KnownTask, last: _LastCycle) -> TaskState | None:
    """Refuse a task that came to nothing, and about which people said nothing since."""
    claim, left = known.claim, known.left
    is_meant = last.kind in {TaskKind.NEW, TaskKind.UNFINISHED}
    is_meant |= last.outcome == "no_task" and last.kind in LEFT_KINDS
    if claim is None or known.is_asked_again or known.is_named or not (is_meant and last.digest):
        return None
    if known.task is not None and last.digest != words_digest(known.task):
        return None
    what, why = _LEFT_ALONE.get(last.outcome, ""), ""
    if last.outcome in _GO_ON and left is not None and left.attempts >= MOST_ATTEMPTS:
        what, why = f"was not completed in {left.attempts} cycles, the last", _not_completed(left)
    if not what:
        return None
    no = f"{known.key} {what} in run {claim.run}: {_to_ask_again(known)}"
    return TaskState(known, _OUTCOMES[last.outcome], no, why=why)


def _blocked(known: KnownTask, _last: _LastCycle) -> TaskState | None:
    if not known.blocked:
        return None
    return TaskState(known, TaskStatus.BLOCKED, f"{known.name} waits for {known.blocked}")


def _unwanted(known: KnownTask, _last: _LastCycle) -> TaskState | None:
    return TaskState(known, TaskStatus.LEFT, known.unwanted) if known.unwanted else None


_RULES = (
    *(_held, _ended, _closed, _asked, _waiting, _proposed, _capped, _resting, _not_proposed, _tried),
    *(_unwanted, _blocked),
)
"""The first that applies says why a task is not taken. What people decide about comes before what time decides."""


def _takable_status(known: KnownTask) -> TaskStatus:
    """Return the state of a task that may be taken."""
    if known.pull is not None:
        is_open = known.pull.state is PullRequestState.OPEN
        return TaskStatus.PROPOSED if is_open else TaskStatus.OPEN
    if known.is_asked_again:
        return TaskStatus.OPEN
    if known.claim is None:
        return TaskStatus.UNFINISHED if known.left is not None else TaskStatus.OPEN
    # The process of a claim that was not released has died.
    outcome = known.claim.outcome if known.claim.state == "released" else CRASHED
    found = status_of_outcome(outcome)
    goes_on = found is TaskStatus.UNFINISHED or (
        found is TaskStatus.FAILED and outcome.partition(" ")[0] != "failed"
    )
    # Otherwise people said something new, the question was dropped, or the pull request is gone.
    return found if goes_on else TaskStatus.OPEN


def _not_completed(left: UnfinishedState) -> str:
    return f"it was not completed in {left.attempts} cycles"


def _to_ask_again(known: KnownTask) -> str:
    is_issue = issue_of(known.key) is not None
    others = f", comment on it, put the label {RETRY_LABEL} on it" if is_issue else ""
    return f"change it{others}, or: {known.commands.retry(known.key)}"


def describe_holder(claim: ClaimRecord, commands: Commands) -> str:
    """Return the message that a worker holds a task, and what to do if that worker is dead."""
    free = commands.release(claim.task)
    if claim.fault is not None:
        return f"the claim on {claim.task} cannot be read ({claim.fault}); to free it: {free}"
    until = f"until {claim.expires_at:%H:%M} UTC"
    return f"{claim.task} is being worked on by {claim.owner}, run {claim.run}, {until}; if it is not: {free}"
