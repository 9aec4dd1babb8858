"""Where the next task comes from, and which tasks are not taken."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.clock import SystemClock
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import ConfigurationError, ForgeNotFoundError, WorkspaceError
from orchestrator.cycle.parts import Choice
from orchestrator.cycle.tasks import BRANCH_FOLDER, Task, TaskKind, checklist, from_issue, from_text
from orchestrator.worker.idle import Idle
from orchestrator.worker.look import CLAIMS_LOOK_AGAIN, Look, Ready
from orchestrator.worker.manners import Manners, name_of, why_hands_off, why_not_again
from orchestrator.worker.remarks import CommentsPolicy, choose_remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.forge.base import Forge, Issue
    from orchestrator.workspace.claims import Lease

    Claim: TypeAlias = Callable[[Task], Lease | str]

BACKLOG_FILES = ("BACKLOG.md", "TODO.md", "ROADMAP.md")
_NAMED_REASONS = 3


def _as_it_is(text: str) -> tuple[str, list[str]]:
    return text, []


def _unheard(event: Guarded) -> None:
    del event


def _nobody() -> tuple[str, ...]:
    return ()


def _no_conflict(number: int) -> bool:
    del number
    return False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person named: an issue, a text, or neither, which means the backlog."""

    issue: int | None = None
    text: str | None = None

    @property
    def prefix(self) -> str:
        """What the branches begin with that it is about."""
        if self.issue is not None:
            return f"{BRANCH_FOLDER}issue-{self.issue}-"
        return BRANCH_FOLDER if self.text is None else from_text(self.text).branch_prefix


@dataclass(slots=True)
class Backlog:
    """Chooses the next task: our own pull requests first, then what is new.

    Attributes:
        attempted: what this process is through with.
        allow_actors: logins that may cause work whatever the forge says of them.
        comments_policy: whose comments on an issue become remarks of its task.
        clean: a text without what people do not see, and a line for each thing that was taken out.
        clean_name: the same for a title.
        emit: told of what was refused or taken out.
        manners: how much is asked of the people who review.
        claim: takes a task for this worker, or says why it cannot be had. None: nothing is claimed.
        in_flight: keys of the tasks that other workers hold now.
        has_conflict: whether a pull request, by number, cannot be merged into its base as it is.
        unfinished: keys of the tasks on which a cycle left unfinished work.
        pulse: the forge's, if somebody has asked for it already; None asks.
        clock: the time of day.
        idle: what is remembered between two backlogs of one process.
    """

    forge: Forge
    wanted: Wanted
    label: str
    attempted: set[str] = field(default_factory=set)
    allow_actors: Collection[str] = ()
    comments_policy: CommentsPolicy = "writers"
    clean: Callable[[str], tuple[str, list[str]]] = _as_it_is
    clean_name: Callable[[str], tuple[str, list[str]]] = _as_it_is
    emit: Callable[[Guarded], None] = _unheard
    manners: Manners = Manners()  # noqa: RUF009  a frozen value
    claim: Claim | None = None
    in_flight: Callable[[], Collection[str]] = _nobody
    has_conflict: Callable[[int], bool] = _no_conflict
    unfinished: Callable[[], Collection[str]] = _nobody
    pulse: Callable[[], str] | None = None
    clock: Clock = field(default_factory=SystemClock)
    idle: Idle = field(default_factory=Idle)
    _noticed: list[Guarded] = field(default_factory=list, init=False)
    _last: str = field(default="", init=False)

    async def choose(self) -> Choice:
        """The next task, or why there is none.

        Raises:
            ConfigurationError: the issue that the person named is closed.
            ForgeError: the forge failed, or does not tell who may write.
            WorkspaceError: the claim could be neither taken nor refused.
        """
        try:
            return await asyncio.to_thread(self._choose)
        finally:
            # Told from here: listeners do not expect to be called by another thread.
            noticed, self._noticed = self._noticed, []
            for event in noticed:
                self.emit(event)

    def put_back(self) -> None:
        """The task that was chosen last was not begun, or may go on later: this process may choose it again."""
        self.attempted.discard(self._last)

    def _choose(self) -> Choice:
        pulse = (self.pulse or self.forge.pulse)()
        known = self.idle.recall(pulse, self.clock.now())
        if known is not None:
            return known
        look = self._look()
        choice = self._find(look)
        self.idle.remember(pulse, choice, look.now)
        return choice

    def _look(self) -> Look:
        return Look(
            self.forge,
            self.label,
            self.allow_actors,
            self.manners,
            self.clock.now(),
            self._clean_at,
            lambda text: self.clean_name(text)[0],
            self.has_conflict,
            self.unfinished,
        )

    def _find(self, look: Look) -> Choice:
        for found in look.upkeep(self.wanted.prefix):
            if found.attempt in self.attempted:
                continue
            ready = self._in_its_words(found, look)
            if isinstance(ready, str):
                look.note(ready)
            elif choice := self._take(ready, look):
                return choice
        full = look.why_no_new_task(look.pulls, self.in_flight)
        if full is not None:
            look.note(full.reason, full.until, first=True)
        else:
            for ready in self._new(look):
                if choice := self._take(ready, look):
                    return choice
        reason = _summary(look.reasons, self.label)
        return Choice(None, reason, wake_at=min(look.times, default=None))

    def _take(self, ready: Ready, look: Look) -> Choice | None:
        """Claim what is ready, and look again: what was read before the claim may be old by now."""
        lease: Lease | None = None
        if self.claim is not None:
            held = self.claim(ready.task)
            if isinstance(held, str):
                look.note(held, look.now + CLAIMS_LOOK_AGAIN)
                return None
            lease, kept = held, False
            try:
                still = self._still(ready, lease, look)
                kept = isinstance(still, Ready)
            finally:
                if not kept:
                    _let_go(lease)
            if isinstance(still, str):
                look.note(still, look.now + CLAIMS_LOOK_AGAIN)
                return None
            ready = still
        self._last = ready.attempt
        self.attempted.add(ready.attempt)
        return Choice(ready.task, lease=lease, after_claim=ready.after)

    def _still(self, ready: Ready, lease: Lease, look: Look) -> Ready | str:
        """What is ready, as it is now that nobody else can do it, or why it is not any more."""
        pulls = self.forge.our_pull_requests(BRANCH_FOLDER)
        if ready.task.kind is not TaskKind.NEW:
            again = look.again(ready, pulls)
            return again if isinstance(again, str) else self._in_its_words(again, look)
        before = lease.previous.pull if lease.previous else None
        if before is not None and before not in {pull.number for pull in pulls}:
            return f"{name_of(ready.task)} was proposed as #{before}, which the forge does not list yet"
        done, _ = why_not_again(ready.task, pulls, ready.labels)
        full = look.why_no_new_task(pulls, self.in_flight)
        return done or (full.reason if full else ready)

    def _in_its_words(self, ready: Ready, look: Look) -> Ready | str:
        """What an issue's unfinished task is by the words that the issue has now, or why it is left alone."""
        task = ready.task
        if task.kind is not TaskKind.UNFINISHED or task.number is None:
            return ready
        try:
            issue = self.forge.issue(task.number)
        except ForgeNotFoundError as error:
            return f"its pull request is open, but {error}"
        if not issue.is_open:
            return f"issue #{issue.number} is closed"
        reason = self._why_not_issue(issue, look)
        if reason is not None:
            return reason
        told = self._told(issue, look)
        return replace(ready, task=replace(told, kind=task.kind, pull=task.pull))

    def _new(self, look: Look) -> Iterator[Ready]:
        for candidate in self._candidates():
            issue = None if isinstance(candidate, Task) else candidate
            task = candidate if isinstance(candidate, Task) else from_issue(candidate)
            labels = issue.labels if issue else ()
            reason, retried = why_not_again(task, look.pulls, labels)
            attempt = f"{task.key} retry {max(retried)}" if retried else task.key
            if reason is None and attempt in self.attempted:
                reason = f"{name_of(task)} was worked on in this run"
            if reason is None and issue is not None:
                reason = self._why_not_issue(issue, look)
                task = task if reason else self._told(issue, look)
            task = replace(task, is_retry=bool(retried))
            if reason is None:
                yield Ready(task, attempt, look.unlabel(retried), labels)
            else:
                look.note(reason)

    def _candidates(self) -> Iterator[Issue | Task]:
        """Issues, which have to be admitted, and tasks, which whoever may write has put there."""
        if self.wanted.issue is not None:
            issue = self.forge.issue(self.wanted.issue)
            if not issue.is_open:
                raise ConfigurationError(f"issue #{issue.number} is closed: reopen it, or name another one")
            yield issue
        elif self.wanted.text is not None:
            yield from_text(self.wanted.text)
        else:
            yield from self.forge.open_issues(self.label)
            yield from self._items()

    def _items(self) -> Iterator[Task]:
        # Files of the default branch: only people who may write change them.
        for file in BACKLOG_FILES:
            if text := self.forge.read_file(file):
                seen, lines = self.clean(text)
                self._notice_hidden(file, lines)
                yield from checklist(file, seen)

    def _why_not_issue(self, issue: Issue, look: Look) -> str | None:
        """Why an issue is left alone: nobody who may asked for it, or it is somebody else's."""
        refusal = look.admission.refusal(issue)
        if refusal is not None:
            self._noticed.append(Guarded(Defence.ADMISSION, refusal))
            return refusal
        ours = [pull.number for pull in look.pulls]
        return why_hands_off(issue, lambda: self.forge.linked_pull_requests(issue.number), ours, look.me)

    def _told(self, issue: Issue, look: Look) -> Task:
        """The task that an admitted issue is. Its text is the one that was judged: it is not read again."""
        title, title_lines = self.clean_name(issue.title)
        body, body_lines = self.clean(issue.body)
        lines = [f"title: {line}" for line in title_lines] + [f"body: {line}" for line in body_lines]

        def clean(text: str, author: str) -> str:
            seen, found = self.clean(text)
            lines.extend(f"comment by {author or 'an account that is gone'}: {line}" for line in found)
            return seen

        comments = [] if self.comments_policy == "none" else self.forge.comments(issue.number)
        remarks = choose_remarks(comments, self.comments_policy, look.admission.may, clean)
        self._notice_hidden(f"issue #{issue.number}", lines)
        return from_issue(replace(issue, title=title, body=body), remarks)

    def _clean_at(self, text: str, place: str) -> str:
        seen, lines = self.clean(text)
        self._notice_hidden(place, lines)
        return seen

    def _notice_hidden(self, place: str, lines: list[str]) -> None:
        if lines:
            message = f"{place}: the model would have seen this; you did not"
            event = Guarded(Defence.HIDDEN_TEXT, message, details=tuple(lines))
            if event not in self._noticed:
                self._noticed.append(event)


def _let_go(lease: Lease) -> None:
    """Release a claim on what is not done after all. What the tombstone before it told stays told."""
    before = lease.previous
    with suppress(WorkspaceError):  # it expires by itself
        lease.release((before.outcome if before else "") or "skipped", before.pull if before else None)


def _summary(reasons: Sequence[str], label: str) -> str:
    if not reasons:
        return f"no open issue has the label {label!r}, and {', '.join(BACKLOG_FILES)} have no unticked item"
    named = "; ".join(reasons[:_NAMED_REASONS])
    more = len(reasons) - _NAMED_REASONS
    return f"{named}; and {more} more" if more > 0 else named
