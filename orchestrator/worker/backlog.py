"""Where the next task comes from, and which tasks are not taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import ConfigurationError
from orchestrator.cycle.parts import Choice
from orchestrator.cycle.tasks import BRANCH_FOLDER, Task, checklist, from_issue, from_text
from orchestrator.forge.base import PullRequestState
from orchestrator.worker.admission import Admission
from orchestrator.worker.remarks import CommentsPolicy, choose_remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from orchestrator.forge.base import Forge, Issue, PullRequest

BACKLOG_FILES = ("BACKLOG.md", "TODO.md", "ROADMAP.md")
_NAMED_REASONS = 3


def _as_it_is(text: str) -> tuple[str, list[str]]:
    return text, []


def _unheard(event: Guarded) -> None:
    del event


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person named: an issue, a text, or neither, which means the backlog."""

    issue: int | None = None
    text: str | None = None


@dataclass(slots=True)
class Backlog:
    """Chooses the next task.

    Attributes:
        attempted: the keys that this process is through with.
        allow_actors: logins that may cause work whatever the forge says of them.
        comments_policy: whose comments on an issue become remarks of its task.
        clean: a text without what people do not see, and a line for each thing that was taken out.
        clean_name: the same for a title.
        emit: told of what was refused or taken out.
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
    _noticed: list[Guarded] = field(default_factory=list, init=False)

    async def choose(self) -> Choice:
        """The next task, or why there is none.

        Raises:
            ConfigurationError: the issue that the person named is closed.
            ForgeError: the forge failed, or does not tell who may write.
        """
        try:
            choice = await asyncio.to_thread(self._choose)
        finally:
            # Told from here: listeners do not expect to be called by another thread.
            noticed, self._noticed = self._noticed, []
            for event in noticed:
                self.emit(event)
        if choice.task:
            self.attempted.add(choice.task.key)
        return choice

    def _choose(self) -> Choice:
        pulls = self.forge.our_pull_requests(BRANCH_FOLDER)
        admission = Admission(self.forge, self.label, self.allow_actors)
        reasons: list[str] = []
        for candidate in self._candidates():
            task = candidate if isinstance(candidate, Task) else from_issue(candidate)
            reason = self._why_not(task, pulls)
            if reason is None and not isinstance(candidate, Task):
                reason = self._refusal(candidate, admission)
                task = task if reason else self._told(candidate, admission)
            if reason is None:
                return Choice(task)
            reasons.append(reason)
        return Choice(None, _summary(reasons, self.label))

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

    def _refusal(self, issue: Issue, admission: Admission) -> str | None:
        refusal = admission.refusal(issue)
        if refusal is not None:
            self._noticed.append(Guarded(Defence.ADMISSION, refusal))
        return refusal

    def _told(self, issue: Issue, admission: Admission) -> Task:
        """The task that an admitted issue is. Its text is the one that was judged: it is not read again."""
        title, title_lines = self.clean_name(issue.title)
        body, body_lines = self.clean(issue.body)
        lines = [f"title: {line}" for line in title_lines] + [f"body: {line}" for line in body_lines]

        def clean(text: str, author: str) -> str:
            seen, found = self.clean(text)
            lines.extend(f"comment by {author or 'an account that is gone'}: {line}" for line in found)
            return seen

        comments = [] if self.comments_policy == "none" else self.forge.comments(issue.number)
        remarks = choose_remarks(comments, self.comments_policy, admission.may, clean)
        self._notice_hidden(f"issue #{issue.number}", lines)
        return from_issue(replace(issue, title=title, body=body), remarks)

    def _notice_hidden(self, place: str, lines: list[str]) -> None:
        if lines:
            message = f"{place}: the model would have seen this; you did not"
            self._noticed.append(Guarded(Defence.HIDDEN_TEXT, message, details=tuple(lines)))

    def _why_not(self, task: Task, pulls: Iterable[PullRequest]) -> str | None:
        """Why a task is not taken: it has a pull request of ours, or this process is through with it."""
        ours = [pull for pull in pulls if pull.branch.startswith(task.branch_prefix)]
        by_state: dict[PullRequestState, Callable[[PullRequest], str]] = {
            PullRequestState.OPEN: lambda pull: f"{_name(task)} has an open pull request, {pull.url}",
            PullRequestState.MERGED: lambda pull: f"{_name(task)} was done by {pull.url}",
            PullRequestState.CLOSED: lambda pull: (
                f"{_name(task)} was declined: {pull.url} is closed unmerged"
            ),
        }
        for state, say in by_state.items():
            if found := next((pull for pull in ours if pull.state is state), None):
                return say(found)
        return f"{_name(task)} was worked on in this run" if task.key in self.attempted else None


def _name(task: Task) -> str:
    return f"issue #{task.number}" if task.number else f"the task {task.title!r}"


def _summary(reasons: list[str], label: str) -> str:
    if not reasons:
        return f"no open issue has the label {label!r}, and {', '.join(BACKLOG_FILES)} have no unticked item"
    named = "; ".join(reasons[:_NAMED_REASONS])
    more = len(reasons) - _NAMED_REASONS
    return f"{named}; and {more} more" if more > 0 else named
