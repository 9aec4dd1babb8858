"""Where the next task comes from, and which tasks are not taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError
from orchestrator.cycle.parts import Choice
from orchestrator.cycle.tasks import BRANCH_FOLDER, Task, checklist, from_issue, from_text
from orchestrator.forge.base import PullRequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.forge.base import Forge, PullRequest

BACKLOG_FILES = ("BACKLOG.md", "TODO.md", "ROADMAP.md")
_NAMED_REASONS = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person named: an issue, a text, or neither, which means the backlog."""

    issue: int | None = None
    text: str | None = None


@dataclass(slots=True)
class Backlog:
    """Chooses the next task. `attempted` holds the keys that this process is through with."""

    forge: Forge
    wanted: Wanted
    label: str
    attempted: set[str] = field(default_factory=set)

    async def choose(self) -> Choice:
        """The next task, or why there is none.

        Raises:
            ConfigurationError: the issue that the person named is closed.
            ForgeError: the forge failed.
        """
        choice = await asyncio.to_thread(self._choose)
        if choice.task:
            self.attempted.add(choice.task.key)
        return choice

    def _choose(self) -> Choice:
        pulls = self.forge.our_pull_requests(BRANCH_FOLDER)
        reasons: list[str] = []
        for task in self._candidates():
            reason = self._why_not(task, pulls)
            if reason is None:
                return Choice(task)
            reasons.append(reason)
        return Choice(None, _summary(reasons, self.label))

    def _candidates(self) -> Iterator[Task]:
        if self.wanted.issue is not None:
            issue = self.forge.issue(self.wanted.issue)
            if not issue.is_open:
                raise ConfigurationError(f"issue #{issue.number} is closed: reopen it, or name another one")
            yield from_issue(issue)
        elif self.wanted.text is not None:
            yield from_text(self.wanted.text)
        else:
            yield from map(from_issue, self.forge.open_issues(self.label))
            yield from self._items()

    def _items(self) -> Iterator[Task]:
        for file in BACKLOG_FILES:
            if text := self.forge.read_file(file):
                yield from checklist(file, text)

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
