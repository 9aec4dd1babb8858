"""Where the next task comes from, and which tasks are not taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claims import RETRY
from orchestrator.bot.cycle.claim import Choice
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, Task, TaskKind, from_issue, from_text
from orchestrator.bot.worker.candidates import (
    BACKLOG_FILES,
    CLAIMS_LOOK_AGAIN,
    Look,
    Reading,
    Ready,
    Screen,
    Seen,
)
from orchestrator.bot.worker.task_rules import Manners, name_of, why_not_again
from orchestrator.core.clock import SystemClock
from orchestrator.core.events import Warned
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.forge.base import Forge, Issue
    from orchestrator.bot.worker.task_rules import CommentsPolicy
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event


_NAMED_REASONS = 3


LONGEST = timedelta(hours=1)
"""Some things do not show in the forge's pulse, such as what people may do; after so long all is looked at."""


@dataclass(slots=True)
class Idle:
    """The last choice that found nothing, good for as long as the forge's pulse is the same.

    Attributes:
        told: names of what was warned of already.
    """

    told: set[str] = field(default_factory=set)
    _pulse: str = ""
    _until: datetime | None = None
    _choice: Choice | None = None

    def recall(self, pulse: str, now: datetime) -> Choice | None:
        """The choice that is still good, or None."""
        is_good = pulse == self._pulse and self._until is not None and now < self._until
        return self._choice if is_good else None

    def remember(self, pulse: str, choice: Choice, now: datetime) -> None:
        """Keep a choice that found nothing.

        Args:
            pulse: as it was before the look, so that what changed meanwhile is noticed by the next.
            choice: what the look came to.
            now: when the look began.
        """
        self._pulse, self._choice = pulse, choice
        self._until = min(now + LONGEST, choice.wake_at) if choice.wake_at else now + LONGEST

    def forget(self) -> None:
        """There is a task, which is no reason to look at less the next time."""
        self._choice = None


def _as_it_is(text: str) -> Seen:
    return Seen(text)


def _nobody() -> tuple[str, ...]:
    return ()


def _not_again(key: str) -> str:
    del key
    return ""


def _no_conflict(number: int) -> bool:
    del number
    return False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person named: an issue, a text, an item of the backlog by its key, or none, which means the backlog."""

    issue: int | None = None
    text: str | None = None
    item: str | None = None

    @property
    def key(self) -> str | None:
        """The key of the task that it is about; None for all of them."""
        if self.issue is not None:
            return f"issue-{self.issue}"
        if self.item is not None:
            return self.item
        return None if self.text is None else from_text(self.text).key


@dataclass(slots=True)
class Backlog:
    """Finds the next task: our own pull requests first, then what is new.

    Attributes:
        attempted: what this process is through with.
        allow_actors: logins that may cause work whatever the forge says of them.
        comments_policy: whose comments on an issue become remarks of its task.
        clean: a text as people see it, and what is to be said of it.
        clean_name: the same for a title.
        manners: how much is asked of the people who review.
        in_flight: keys of the tasks that other workers hold now.
        has_conflict: whether a pull request, by number, cannot be merged into its base as it is.
        unfinished: keys of the tasks on which a cycle left unfinished work.
        asked_again: by which claim a person asked for another try of a task, by its key; empty where nobody did.
        commands: what a reason tells a person to type.
        clock: the time of day.
        idle: what is remembered between two backlogs of one process.
    """

    forge: Forge
    wanted: Wanted
    label: str
    attempted: set[str] = field(default_factory=set)
    allow_actors: Collection[str] = ()
    comments_policy: CommentsPolicy = "writers"
    clean: Callable[[str], Seen] = _as_it_is
    clean_name: Callable[[str], Seen] = _as_it_is
    manners: Manners = Manners()  # noqa: RUF009  a frozen value
    in_flight: Callable[[], Collection[str]] = _nobody
    has_conflict: Callable[[int], bool] = _no_conflict
    unfinished: Callable[[], Collection[str]] = _nobody
    asked_again: Callable[[str], str] = _not_again
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    clock: Clock = field(default_factory=SystemClock)
    idle: Idle = field(default_factory=Idle)
    _noticed: list[Event] = field(default_factory=list, init=False)
    _pulse: str = field(default="", init=False)
    _now: Reading | None = field(default=None, init=False)
    _none: Choice | None = field(default=None, init=False)
    _last: str = field(default="", init=False)

    def candidates(self, pulse: str) -> Iterator[Ready]:
        """The tasks that nothing speaks against, the best first. See `TaskSource`, as for the others."""
        self._pulse, self._none = pulse, self.idle.recall(pulse, self.clock.now())
        if self._none is not None:
            return
        reading = self._now = self._reading()
        look = reading.look
        for found in look.upkeep(self.wanted.key):
            if found.attempt in self.attempted:
                continue
            ready: Ready | str = ""
            with look.one(name_of(found.task)):
                ready = reading.in_its_words(found)
            if isinstance(ready, str):
                look.note(ready)
            else:
                yield ready
        full = look.why_no_new_task(look.pulls, self.in_flight)
        if full is not None:
            look.note(full.reason, full.until, first=True)
        else:
            yield from self._new(reading)

    def confirm(self, candidate: Ready, lease: Lease) -> Ready | str:
        """The candidate as it is now that nobody else can do it, or why it is not to be done any more."""
        still: Ready | str = ""
        with self._at.look.one(name_of(candidate.task)):
            still = self._still(candidate, lease, self._at)
        return still  # noqa: RET504  the block ends some errors

    def pass_over(self, reason: str) -> None:
        """Another worker has it, or it was done meanwhile."""
        if reason:
            self._at.look.note(reason, self._at.look.now + CLAIMS_LOOK_AGAIN)

    def begin(self, candidate: Ready) -> None:
        """This process does not choose it again."""
        self._last = candidate.attempt
        self.attempted.add(candidate.attempt)
        self.idle.forget()

    def put_back(self) -> None:
        """The task that was begun last may be chosen again."""
        self.attempted.discard(self._last)

    def why_none(self) -> Choice:
        """Why there is no task."""
        if self._none is None:
            look = self._at.look
            look.require_access()
            self._none = Choice(
                None, _summary(look.reasons, self.label), wake_at=min(look.times, default=None)
            )
            self.idle.remember(self._pulse, self._none, look.now)
        return self._none

    def notices(self) -> list[Event]:
        """What is to be told of the tasks that were read."""
        noticed = list(self._noticed)
        self._noticed.clear()
        return noticed

    @property
    def _at(self) -> Reading:
        if self._now is None:
            raise AssertionError("`candidates` comes first")
        return self._now

    def _reading(self) -> Reading:
        """One look at the forge, and the reader of what it finds."""
        screen = Screen(self.clean, self.clean_name, self._noticed)
        look = Look(
            self.forge,
            self.label,
            self.allow_actors,
            self.manners,
            self.clock.now(),
            screen.text,
            screen.line,
            self.has_conflict,
            self.unfinished,
            screen.refused,
            self._warn,
            self.commands,
            skips=self.wanted == Wanted(),
            quotes_strangers=self.comments_policy == "quoted",
        )
        return Reading(look, screen, self.comments_policy)

    def _warn(self, name: str, text: str) -> None:
        """Say something once, however often it is looked at."""
        if name not in self.idle.told:
            self.idle.told.add(name)
            self._noticed.append(Warned(text))

    def _still(self, ready: Ready, lease: Lease, reading: Reading) -> Ready | str:
        look = reading.look
        pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
        if ready.task.kind is not TaskKind.NEW:
            again = look.again(ready, pulls)
            return again if isinstance(again, str) else reading.in_its_words(again)
        asked = lease.previous is not None and lease.previous.outcome == RETRY
        before = lease.previous.new_pull(look.now) if lease.previous and not asked else None
        if before is not None and before not in {pull.number for pull in pulls}:
            gone = f"if there is none: {self.commands.retry(ready.task.key)}"
            return (
                f"{name_of(ready.task)} was proposed as #{before}, which the forge does not list yet; {gone}"
            )
        done, _ = why_not_again(
            ready.task, pulls, ready.labels, look.is_asked, by_hand=asked, commands=self.commands
        )
        full = look.why_no_new_task(pulls, self.in_flight)
        return done or (full.reason if full else ready)

    def _new(self, reading: Reading) -> Iterator[Ready]:
        look = reading.look
        for candidate in reading.candidates(self.wanted.issue, self.wanted.text, self.wanted.item):
            issue = None if isinstance(candidate, Task) else candidate
            task = candidate if isinstance(candidate, Task) else from_issue(candidate)
            found: Ready | str = ""
            with look.one(name_of(task)):
                found = self._judged(task, issue, reading)
            if isinstance(found, Ready):
                yield found
            else:
                look.note(found)

    def _judged(self, task: Task, issue: Issue | None, reading: Reading) -> Ready | str:
        """A candidate that nothing speaks against, or what does."""
        look = reading.look
        labels = issue.labels if issue else ()
        asked = self.asked_again(task.key)
        reason, retried = why_not_again(
            task, look.pulls, labels, look.is_asked, by_hand=bool(asked), commands=self.commands
        )
        attempt = f"{task.key} retry {asked or max(retried)}" if asked or retried else task.key
        if reason is None and attempt in self.attempted:
            reason = f"{name_of(task)} was worked on in this run"
        if reason is None and issue is not None:
            reason = reading.why_not(issue)
            task = task if reason else reading.told(issue)
        if reason is not None:
            return reason
        return Ready(replace(task, is_retry=bool(asked or retried)), attempt, look.unlabel(retried), labels)


def _summary(reasons: Sequence[str], label: str) -> str:
    if not reasons:
        return f"no open issue has the label {label!r}, and {', '.join(BACKLOG_FILES)} have no unticked item"
    named = "; ".join(reasons[:_NAMED_REASONS])
    more = len(reasons) - _NAMED_REASONS
    return f"{named}; and {more} more" if more > 0 else named
