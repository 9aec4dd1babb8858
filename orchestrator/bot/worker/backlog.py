"""Chooses the next task: our own pull requests first, then new tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.choice import Candidate, Choice
from orchestrator.bot.cycle.task_state import task_state
from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    RETRY_LABEL,
    Task,
    TaskKind,
    from_conversation,
    from_issue,
    from_text,
    issue_of,
    name_of,
)
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker.candidates import (
    BACKLOG_FILES,
    BLOCKED_KEY,
    CLAIMS_LOOK_AGAIN,
    SeenPulls,
    TaskSearch,
)
from orchestrator.bot.worker.task_rules import (
    ReviewLimits,
    TextFilter,
    VisibleText,
    why_not_set_up,
)
from orchestrator.core.clock import SystemClock
from orchestrator.core.events import Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.choice import Unwanted
    from orchestrator.bot.forge.base import Forge, Issue, PullRequest
    from orchestrator.bot.journal.folders import RefusedIssues
    from orchestrator.bot.worker.task_rules import CommentsPolicy
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event

LONGEST = timedelta(hours=1)
"""How long a result without a task stays valid: the forge's fingerprint does not show all, such as permissions."""
_NAMED_REASONS = 6


@dataclass(slots=True)
class LastSearch:
    """The last search without a result. It stays valid while nothing changes on the forge, for a limited time.

    Attributes:
        warned: names of the warnings that were emitted already.
    """

    warned: set[str] = field(default_factory=set)
    _fingerprint: str = ""
    _until: datetime | None = None
    _choice: Choice | None = None

    def recall(self, fingerprint: str, now: datetime) -> Choice | None:
        """Return the remembered choice if it is still valid, else None."""
        is_good = fingerprint == self._fingerprint and self._until is not None and now < self._until
        return self._choice if is_good else None

    def remember(self, fingerprint: str, choice: Choice, now: datetime) -> None:
        """Remember a choice that found no task.

        Args:
            fingerprint: taken before the search, so that the next one notices what changed during the search.
            now: when the search began.
        """
        self._fingerprint, self._choice = fingerprint, choice
        self._until = min(now + LONGEST, choice.wake_at) if choice.wake_at else now + LONGEST

    def forget(self) -> None:
        """Forget the remembered choice, because there is a task: the next search reads everything again."""
        self._choice = None


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """What a person selected: an issue, a text, or a backlog item by its key. Without any, the whole backlog.

    Attributes:
        conversation: the first run of the conversation whose changes are proposed, and the proposal's title.
    """

    issue: int | None = None
    text: str | None = None
    item: str | None = None
    conversation: tuple[str, str] | None = None

    @property
    def key(self) -> str | None:
        """The key of the selected task; None for the whole backlog."""
        if self.issue is not None:
            return f"issue-{self.issue}"
        if self.item is not None:
            return self.item
        return None if self.text is None else from_text(self.text).key


@dataclass(slots=True)
class Backlog:
    """Finds the next task: our own pull requests first, then new tasks. See `TaskSource` for its methods.

    Attributes:
        attempted: the attempts that this process does not repeat: see `Candidate.attempt`.
        allow_actors: logins that may cause work whatever permissions the forge reports.
        comments_policy: whose comments on an issue become remarks of its task.
        clean: returns a text as people see it; `clean_name` does the same for a title.
        is_claiming: whether tasks are claimed, so that the label of work in progress is kept right.
        in_flight: returns the keys of the tasks that other workers hold now.
        has_conflict: returns whether a pull request, by number, has a merge conflict with its base.
        unfinished: returns the keys of the tasks on which a cycle left unfinished work.
        retry_request: returns the claim by which a person asked for another try of a task; empty if nobody did.
        only: the key of the only task that is considered; empty for all. No person chose it.
        thread: the number of the only issue or pull request that is considered; None for all. No person chose it.
        refused: the issues that were refused before and have not changed since; None remembers none.
    """

    forge: Forge
    selection: TaskSelection
    label: str
    attempted: set[str] = field(default_factory=set)
    allow_actors: Collection[str] = ()
    comments_policy: CommentsPolicy = "writers"
    clean: Callable[[str], VisibleText] = VisibleText
    clean_name: Callable[[str], VisibleText] = VisibleText
    limits: ReviewLimits = ReviewLimits()  # noqa: RUF009  a frozen value
    is_claiming: bool = False
    in_flight: Callable[[], Collection[str]] = tuple
    has_conflict: Callable[[int], bool] = lambda _number: False
    unfinished: Callable[[], Collection[str]] = tuple
    retry_request: Callable[[str], str] = lambda _key: ""
    only: str = ""
    thread: int | None = None
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    clock: Clock = field(default_factory=SystemClock)
    last_search: LastSearch = field(default_factory=LastSearch)
    refused: RefusedIssues | None = None
    _events: list[Event] = field(default_factory=list, init=False)
    _fingerprint: str = field(default="", init=False)
    _current_search: TaskSearch | None = field(default=None, init=False)
    _no_task: Choice | None = field(default=None, init=False)
    _last_attempt: str = field(default="", init=False)

    def candidates(self, fingerprint: str) -> Iterator[Candidate]:
        """Yield the tasks that may be claimed, the best first."""
        self._fingerprint, self._no_task = fingerprint, self.last_search.recall(fingerprint, self.clock.now())
        if self._no_task is not None:
            return
        search = self._current_search = self.begin_search()
        if (reason := why_not_set_up(search.pulls)) is not None:
            search.note(reason)
            return
        for found in search.upkeep(self.only or self.selection.key, self.thread):
            if found.attempt in self.attempted:
                continue
            candidate: Candidate | str = ""
            with search.reading(name_of(found.task)):
                candidate = search.with_issue_text(found)
            if isinstance(candidate, str):
                search.note(candidate)
            else:
                yield candidate
        labelled = search.issues_in_progress() if self.is_claiming else []
        held = self.in_flight()
        search.correct_labels(number for number in labelled if f"issue-{number}" not in held)
        full = search.why_no_new_task(search.pulls, lambda: held)
        if self.thread in {pull.number for pull in search.pulls}:
            search.note(f"pull request #{self.thread} has no task now")
        elif full is not None:
            search.note(full.reason, full.until, first=True)
        else:
            yield from self._new_tasks(search)
            if self.thread is not None and not search.reasons:
                search.note(
                    f"#{self.thread} is neither an open issue with the label {self.label!r} nor our pull request"
                )

    def confirm(self, candidate: Candidate, lease: Lease) -> Candidate | str:
        """Return the candidate's present state, read after the claim, or why it is not to be done any more."""
        confirmed: Candidate | str = ""
        with self._search.reading(name_of(candidate.task)):
            confirmed = self._check_again(candidate, lease)
        return confirmed  # noqa: RET504  `reading` ends some errors

    def skip(self, reason: str) -> None:
        """Note why a candidate was not taken: another worker holds it, or it was done meanwhile."""
        if reason:
            self._search.note(reason, self._search.now + CLAIMS_LOOK_AGAIN)

    def begin(self, candidate: Candidate) -> None:
        """Mark the candidate as attempted, so that this process does not choose it again."""
        self._last_attempt = candidate.attempt
        self.attempted.add(candidate.attempt)
        self.last_search.forget()

    def put_back(self) -> None:
        """Allow the last begun task to be chosen again."""
        self.attempted.discard(self._last_attempt)

    def why_unwanted(self, task: Task) -> Unwanted | None:
        """Return why nobody wants the work on a begun task any more, or None."""
        return self._search.why_unwanted(task, is_named=self.selection.issue is not None)

    def why_none(self) -> Choice:
        """Return a choice without a task that says why there is none."""
        if self._no_task is None:
            search = self._search
            search.require_access()
            reason = _summary(search.reasons, self.label)
            self._no_task = Choice(None, reason, wake_at=min(search.times, default=None))
            self.last_search.remember(self._fingerprint, self._no_task, search.now)
        return self._no_task

    def seen(self) -> SeenPulls:
        """Return what this search has read about our pull requests."""
        return self._current_search.seen() if self._current_search is not None else SeenPulls()

    def notices(self) -> list[Event]:
        """Return the events about the tasks that were read, and clear them."""
        events = list(self._events)
        self._events.clear()
        return events

    @property
    def _search(self) -> TaskSearch:
        if self._current_search is None:
            raise AssertionError("`candidates` comes first")
        return self._current_search

    def begin_search(self) -> TaskSearch:
        """Start to ask the forge, with all our pull requests."""
        return TaskSearch(
            self.forge,
            self.label,
            self.allow_actors,
            self.limits,
            self.clock.now(),
            TextFilter(self.clean, self.clean_name, self._events),
            self.has_conflict,
            self.unfinished,
            self._warn,
            self.commands,
            self.comments_policy,
            skips=self.selection == TaskSelection(),
            fingerprint=self._fingerprint,
            refused=self.refused if self._is_of_all else None,
        )

    @property
    def _is_of_all(self) -> bool:
        """Whether the whole backlog is considered."""
        return self.selection == TaskSelection() and not self.only and self.thread is None

    def _warn(self, name: str, text: str) -> None:
        """Record a warning, once per name."""
        if name not in self.last_search.warned:
            self.last_search.warned.add(name)
            self._events.append(Warned(text))

    def _check_again(self, ready: Candidate, lease: Lease) -> Candidate | str:
        search = self._search
        pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
        if ready.task.kind is not TaskKind.NEW:
            again = search.upkeep_again(ready, pulls)
            return again if isinstance(again, str) else search.with_issue_text(again)
        known = replace(ready.known, pulls=pulls, now=self.clock.now())
        known = replace(known, is_retry=bool(search.retry_labels(known, ready.labels)))
        if (before := lease.previous) is not None:  # whoever held it does not any more
            known = replace(known, claim=before, dead_runs=(before.run,))
        full = search.why_no_new_task(pulls, self.in_flight)
        return task_state(known).refusal or (full.reason if full else ready)

    def _new_tasks(self, search: TaskSearch) -> Iterator[Candidate]:
        named = self.selection
        try:
            for candidate in search.candidates(
                named.issue, named.text, named.item, with_files=self.thread is None
            ):
                issue = None if isinstance(candidate, Task) else candidate
                task = candidate if isinstance(candidate, Task) else from_issue(candidate)
                if self.only not in {"", task.key} or self.thread not in {None, issue_of(task.key)}:
                    continue
                found: Candidate | str = ""
                with search.reading(name_of(task)):
                    found = self._judge(task, issue, search)
                if isinstance(found, Candidate):
                    yield found
                else:
                    search.note(found)
        finally:
            search.end()

    def _judge(self, task: Task, issue: Issue | None, search: TaskSearch) -> Candidate | str:
        """Return a task that may be claimed, or the reason why not."""
        labels, known = issue.labels if issue else (), search.known(task)
        asked, retried = self.retry_request(task.key), search.retry_labels(known, labels)
        is_retry = bool(asked or retried)
        known = replace(known, is_retry=is_retry, is_named=self.selection != TaskSelection())
        refusal = task_state(known).refusal
        attempt = f"{task.key} retry {asked or max(retried)}" if is_retry else task.key
        if not refusal and attempt in self.attempted:
            refusal = f"{name_of(task)} was worked on in this run"
        if not refusal and issue is not None:
            known = search.with_issue(known, issue)
            refusal = task_state(known).refusal
        if not refusal:
            known = search.with_blockers(known, issue)
            refusal = task_state(known).refusal
            if refusal and issue is not None and self.is_claiming:
                search.tell_blocked(issue, known.blocked)
        if refusal:
            return refusal
        after: tuple[Callable[[], object], ...] = tuple(
            partial(self.forge.remove_label, number, RETRY_LABEL) for number in retried
        )
        if issue is not None and search.is_told_blocked(issue.number):
            after = (*after, partial(self.forge.ensure_comment, issue.number, BLOCKED_KEY, ""))
        task = replace(known.task or task, is_retry=is_retry)
        return Candidate(replace(known, task=task), attempt, after, labels)


@dataclass(slots=True)
class ConversationTasks(Backlog):
    """Finds the one task of a conversation's changes: a new pull request, or the open one that has them."""

    def candidates(self, fingerprint: str) -> Iterator[Candidate]:
        """Yield the conversation's task if it may be claimed."""
        self._fingerprint, self._no_task = fingerprint, None
        search = self._current_search = self.begin_search()
        candidate = self._present_task(search, search.pulls)
        if isinstance(candidate, str):
            search.note(candidate)
        else:
            yield candidate

    def why_unwanted(self, task: Task) -> Unwanted | None:
        """Return None: the person who works on it is there."""
        del task
        return None

    def _check_again(self, ready: Candidate, lease: Lease) -> Candidate | str:
        del ready, lease
        return self._present_task(self._search, self.forge.our_pull_requests(BRANCH_FOLDERS))

    def _present_task(self, search: TaskSearch, pulls: Sequence[PullRequest]) -> Candidate | str:
        """Return the task in its present state on the forge, or why it is not to be done."""
        task = self._next_part(pulls)
        for pull in pulls:
            if pull.state is PullRequestState.OPEN and task.has_branch(pull.branch):
                review = replace(task, kind=TaskKind.REVIEW, pull=pull)
                return Candidate(search.known(review), f"{task.key} {pull.commit}")
        task = replace(task, is_retry=bool(self.retry_request(task.key)))
        known = replace(search.known(task), pulls=pulls)
        known = replace(known, is_retry=task.is_retry or bool(search.retry_labels(known, ())))
        refusal = task_state(known).refusal
        full = None if refusal else search.why_no_new_task(pulls, self.in_flight)
        return refusal or (full.reason if full else Candidate(known, task.key))

    def _next_part(self, pulls: Sequence[PullRequest]) -> Task:
        """Return the first part of the conversation's work that is not merged."""
        if self.selection.conversation is None:
            raise AssertionError("a conversation was named")
        merged = [pull.branch for pull in pulls if pull.state is PullRequestState.MERGED]
        tasks = (from_conversation(*self.selection.conversation, part) for part in count(1))
        return next(task for task in tasks if not any(map(task.has_branch, merged)))


def _summary(reasons: Sequence[str], label: str) -> str:
    if not reasons:
        return f"no open issue has the label {label!r}, and {', '.join(BACKLOG_FILES)} have no unticked item"
    named = "; ".join(reasons[:_NAMED_REASONS])
    more = len(reasons) - _NAMED_REASONS
    return f"{named}; and {more} more" if more > 0 else named
