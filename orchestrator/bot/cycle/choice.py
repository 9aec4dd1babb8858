"""The choice of a task: where tasks come from, what is known of each, and how its choice shows on the forge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.cycle.tasks import RETRY_LABEL
from orchestrator.core.cycle_events import (
    Claimed,
)
from orchestrator.core.messages import Spent
from orchestrator.core.prompts import fenced, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.task_state import KnownTask
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import Forge
    from orchestrator.core.events import Event
    from orchestrator.engine.session.budget import Limits


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen task, or the reason why there is none.

    Attributes:
        lease: the claim on the task; None in a dry run.
        earlier: the unfinished cycle on the task, if there is one.
        spent_before: the cost of the task's earlier cycles.
        limits: what the cycle may spend; None keeps the limits of its parts.
        after_claim: forge actions to perform once the task is claimed; each may raise `ForgeError`.
        wake_at: without a task, the time at which there may be one although nothing changes; None if never.
    """

    task: Task | None
    reason: str = ""
    lease: Lease | None = None
    earlier: Earlier | None = None
    limits: Limits | None = None
    spent_before: Spent = Spent()  # noqa: RUF009  a frozen value
    after_claim: tuple[Callable[[], object], ...] = ()
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that can be claimed, according to what was read so far.

    Attributes:
        known: the task as people ask for it now, with all that is known but its claim and its unfinished work.
        attempt: the key that marks this task as already attempted.
        after_claim: see `Choice`.
        labels: the labels of its issue.
    """

    known: KnownTask
    attempt: str
    after_claim: tuple[Callable[[], object], ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task as people ask for it now."""
        if self.known.task is None:
            raise AssertionError("a candidate was read")
        return self.known.task


@dataclass(frozen=True, slots=True)
class Unwanted:
    """Why the work on a begun task is not wanted any more. `is_over`: nobody would read a comment on it."""

    reason: str
    is_over: bool = False


class TaskSource(Protocol):
    """A source of tasks. It blocks: use it in a thread."""

    def candidates(self, fingerprint: str) -> Iterator[Candidate]:
        """Yield the tasks that may be claimed, the best first.

        Args:
            fingerprint: the current `Forge.fingerprint`.

        Raises:
            ConfigurationError: the issue that the user named is closed.
            ForgeError: the forge failed, or does not report who has write permission.
        """

    def confirm(self, candidate: Candidate, lease: Lease) -> Candidate | str:
        """Read a claimed candidate again. Return its current state, or why it must not be done any more."""

    def skip(self, reason: str) -> None:
        """Skip the current candidate. `reason` may be empty: another worker holds it, or it is done."""

    def begin(self, candidate: Candidate) -> None:
        """Mark a claimed task, so that this process does not choose it again."""

    def put_back(self) -> None:
        """Allow the last begun task to be chosen again: nothing was done, or the work continues later."""

    def why_none(self) -> Choice:
        """Return why there is no task, after all candidates were tried."""

    def why_unwanted(self, task: Task) -> Unwanted | None:
        """Read a begun task again. Return why its work is not wanted any more, or None.

        It takes one request that does not count against the rate limit while nobody changes the task.
        """

    def notices(self) -> list[Event]:
        """Return the events about tasks that were read since the last call."""


WAITS_KEY = "waits"
"""Section of our comment that says why a task waits for a person."""


def waiting_place(task: Task) -> int | None:
    """Return the number of the pull request or issue on which people are told that a task waits; None without one."""
    return task.pull.number if task.pull is not None else task.number


WORKING_LABEL = "pullwright:working"
"""Label of an issue in progress. It only mirrors the claim: no decision depends on it."""


def claimed_event(lease: Lease, spent_before: Spent = Spent()) -> Claimed:  # noqa: B008  a frozen value
    """Return the event that a task was claimed."""
    record, previous = lease.record, lease.previous
    until = record.expires_at.isoformat(timespec="seconds")
    took_over = previous.run if previous is not None and previous.state == "held" else ""
    return Claimed(record.task, record.owner, record.number, until, took_over, spent_before)


def tell_waiting(forge: Forge, place: int | None, why: str, run: str, retry: str) -> None:
    """Tell people on the page of a task that it waits for one of them, and why. It blocks.

    Args:
        place: the number of its issue or pull request; None if it has neither.
        retry: the command for another try.
    """
    if place is not None:
        body = render("cycle/waits", why=fenced(why), run=run, command=retry, label=RETRY_LABEL)
        forge.ensure_comment(place, WAITS_KEY, body)
