"""What has become of a task: one answer, in the same words, for every command that tells of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS
from orchestrator.bot.coordination.claims import RETRY
from orchestrator.bot.coordination.saved_work import WORK, is_key, load_wip
from orchestrator.bot.cycle.earlier import MOST_ATTEMPTS, UnfinishedState, read_state_pages
from orchestrator.bot.cycle.tasks import RETRY_LABEL, key_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.worker.manners import has_label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claim_record import ClaimRecord, LeaseTimes
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.coordination.saved_work import Wip
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.core.repositories import Commands


class Kind(StrEnum):
    """The states of a task, in the words that people read."""

    OPEN = "open"
    """The next cycle may take it: it is new, or a person asked for another try."""
    WORKING = "being worked on"
    ASKED = "waits for an answer"
    PROPOSED = "proposed"
    MERGED = "merged"
    DECLINED = "declined"
    """Its pull request was closed unmerged."""
    FAILED = "failed"
    UNFINISHED = "unfinished"
    """A limit, an outage or an interruption ended its last cycle; the next one goes on."""
    NOTHING = "nothing to do"


_OUTCOMES = {
    "question": Kind.ASKED,
    "proposed": Kind.PROPOSED,
    "failed": Kind.FAILED,
    "damaged": Kind.FAILED,
    "error": Kind.FAILED,
    "limit": Kind.UNFINISHED,
    "paused": Kind.UNFINISHED,
    "interrupted": Kind.UNFINISHED,
    "crashed": Kind.UNFINISHED,
    "unfinished": Kind.UNFINISHED,
    "running": Kind.WORKING,
    "no_task": Kind.NOTHING,
}
_OF_PULL = {
    PullRequestState.OPEN: Kind.PROPOSED,
    PullRequestState.MERGED: Kind.MERGED,
    PullRequestState.CLOSED: Kind.DECLINED,
}


def kind_of_outcome(outcome: str) -> Kind:
    """The state of a task whose last cycle came to this, as far as a journal or a claim tells it."""
    word = outcome.partition(" ")[0]
    return next((kind for kind in Kind if kind == outcome), _OUTCOMES.get(word, Kind.OPEN))


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task, and what has become of it.

    Attributes:
        key: the task's.
        kind: its state.
        claim: the last claim on it.
        pull: our newest pull request for it.
        left: what an unfinished cycle left, as far as it can be read; `wip` is its commit on the remote.
        is_here: this machine keeps unfinished work of it, which the remote did not take.
    """

    key: str
    kind: Kind
    claim: ClaimRecord | None = None
    pull: PullRequest | None = None
    left: UnfinishedState | None = None
    wip: Wip | None = None
    is_here: bool = False

    @property
    def has_work(self) -> bool:
        """Whether unfinished work is kept that the next cycle here goes on with."""
        return self.is_here or self.wip is not None

    @property
    def blocks(self) -> bool:
        """Whether the task is left alone until a person says something."""
        gave_up = self.left is not None and self.left.attempts >= MOST_ATTEMPTS
        outcome = self.claim.outcome.partition(" ")[0] if self.claim else ""
        match self.kind:
            case Kind.DECLINED | Kind.NOTHING | Kind.ASKED:
                return True
            case Kind.PROPOSED:
                return self.pull is None
            case Kind.FAILED | Kind.UNFINISHED:
                return outcome == "failed" or (gave_up and outcome in {"error", "limit"})
            case _:
                return False

    def words(self) -> str:
        """The state with what belongs to it, on one line."""
        if self.claim is not None and self.claim.fault is not None:
            return f"{self.kind}, as far as can be told: {self.claim.fault}"
        gave_up = self.blocks and self.left is not None and self.left.attempts >= MOST_ATTEMPTS
        rest = ""
        match self.kind:
            case Kind.PROPOSED if self.pull is None and self.claim is not None:
                rest = f" as #{self.claim.pull}, which the forge does not list yet"
            case Kind.PROPOSED | Kind.MERGED | Kind.DECLINED:
                rest = f" as #{self.pull.number}" if self.pull is not None else ""
                rest += ", unfinished work is kept" if self.has_work else ""
            case Kind.FAILED | Kind.UNFINISHED if not self.blocks:
                rest = f", the next cycle {'goes on' if self.has_work else 'tries again'}"
            case Kind.FAILED | Kind.UNFINISHED if gave_up and self.left is not None:
                rest = f" in {self.left.attempts} cycles"
            case Kind.OPEN if self.has_work:
                rest = ", the next cycle goes on with the work that is kept"
            case _:
                pass
        return f"{self.kind}{rest}"

    def next_step(self, commands: Commands) -> str:
        """The command that a person may type next, or the address to answer at; empty where nothing waits."""
        if self.kind is Kind.ASKED and self.left is not None:
            url = self.left.question_url
            return url if url.startswith("http") else commands.answer(self.key)
        if self.kind is Kind.PROPOSED and self.pull is not None:
            return commands.close(self.pull.number)
        return commands.retry(self.key) if self.blocks else ""


@dataclass(frozen=True, slots=True)
class AsOf:
    """By what a claim is judged.

    Attributes:
        now: the time, UTC.
        times: how long claims hold.
        dead_runs: runs of this machine that are known to be dead or over.
    """

    now: datetime
    times: LeaseTimes
    dead_runs: Collection[str] = ()

    def is_held(self, claim: ClaimRecord | None) -> bool:
        """Whether a worker has the task: its claim holds, and its run is not known to be dead."""
        return (
            claim is not None
            and not claim.is_free(self.now, self.times)
            and (claim.fault is not None or claim.run not in self.dead_runs)
        )


def state_of(  # noqa: PLR0913  all that is known of a task
    key: str,
    claim: ClaimRecord | None,
    wip: Wip | None,
    pulls: Iterable[PullRequest],
    as_of: AsOf,
    *,
    here: UnfinishedState | None = None,
) -> TaskState:
    """The state of one task. There is no other place that decides this.

    Args:
        key: the task's.
        claim: the claim on it, or None.
        wip: its unfinished work, or None.
        pulls: our pull requests, newest first, those of other tasks among them.
        as_of: by what the claim is judged.
        here: what only this machine has of it, or None.
    """
    pages = read_state_pages(wip.pages) if wip is not None and wip.fault is None else None
    left = here or (pages[0] if pages else None)
    ours = [pull for pull in pulls if (key_of(pull.branch) or ("",))[0] == key]
    pull = next((one for one in ours if one.state is PullRequestState.OPEN), ours[0] if ours else None)
    if as_of.is_held(claim):
        kind = Kind.WORKING
    elif pull is not None:
        kind = _of_proposed(pull, claim, left)
    else:
        kind = _of_unproposed(claim, left, as_of.now)
    return TaskState(key, kind, claim, pull, left, wip, here is not None)


def _is_retry(claim: ClaimRecord | None) -> bool:
    return claim is not None and claim.outcome == RETRY


def _of_proposed(pull: PullRequest, claim: ClaimRecord | None, left: UnfinishedState | None) -> Kind:
    """The state of a task with a pull request of ours."""
    if pull.state is PullRequestState.CLOSED:
        return Kind.OPEN if _is_retry(claim) or has_label(pull.labels, RETRY_LABEL) else Kind.DECLINED
    waits = left is not None and left.waits_for_answer and not _is_retry(claim)
    return Kind.ASKED if waits and pull.state is PullRequestState.OPEN else _OF_PULL[pull.state]


def _of_unproposed(claim: ClaimRecord | None, left: UnfinishedState | None, now: datetime) -> Kind:
    """The state of a task without one."""
    if _is_retry(claim):
        return Kind.OPEN
    if left is not None and left.waits_for_answer:
        return Kind.ASKED
    if claim is None:
        return Kind.UNFINISHED if left is not None else Kind.OPEN
    # A claim that nobody let go of is that of a process that died.
    found = kind_of_outcome(claim.outcome if claim.state == "released" else "crashed")
    if found is Kind.PROPOSED and claim.new_pull(now) is not None:
        return found
    # Its question was dropped, or its pull request is gone: nothing keeps it.
    return Kind.OPEN if found in {Kind.ASKED, Kind.PROPOSED} else found


def list_states(
    records: Records,
    claims: Claims,
    pulls: Sequence[PullRequest],
    as_of: AsOf,
    here: Mapping[str, UnfinishedState],
) -> list[TaskState]:
    """Every task of which something is known: a claim, unfinished work, or a pull request of ours; by key.

    `here` is what only this machine has, by the tasks' keys.

    Raises:
        RemoteUnavailableError: no answer, after several tries.
        WorkspaceError: the remote refused.
    """
    seen = records.list(CLAIMS, WORK)
    known = {record.task: record for record in claims.list(seen)}
    works = _works(records, seen)
    keys = {*known, *works, *here, *(found[0] for pull in pulls if (found := key_of(pull.branch)))}
    return [
        state_of(key, known.get(key), works.get(key), pulls, as_of, here=here.get(key))
        for key in sorted(keys)
    ]


def _works(records: Records, seen: Mapping[str, str]) -> dict[str, Wip]:
    found = {}
    for ref in seen:
        key = ref.removeprefix(WORK)
        if key != ref and is_key(key) and (wip := load_wip(records, key, seen)) is not None:
            found[key] = wip
    return found
