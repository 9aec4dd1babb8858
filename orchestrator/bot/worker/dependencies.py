"""What a task waits for: issues that block its issue, its sub-issues, the task list in its text, and `(after #12)`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.bot.cycle.tasks import Task, issue_of, listed_in
from orchestrator.bot.forge.base import Issue, PullRequestState
from orchestrator.core.errors import ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.bot.forge.base import Forge, PullRequest

MOST_ASKED = 30
"""Most requests of one look about what tasks wait for. Beyond them only what the lists show is known."""
_MOST_FOLLOWED = 12
_ADDRESS = re.compile(r"/(?P<name>[^/]+/[^/]+)/issues/(?P<number>[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a task waits for now.

    Attributes:
        names: of the open issues, items and pull requests; empty if only their number is known.
        count: of them.
        circle: names of those that wait for each other, in order, the first one again at the end.
    """

    names: tuple[str, ...]
    count: int
    circle: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return what the task waits for, in words."""
        if self.circle:
            return f"{', which waits for '.join(self.circle)}; this never ends: take one of these links off"
        return ", ".join(self.names) or f"{self.count} open issue{'' if self.count == 1 else 's'}"


@dataclass(slots=True)
class Dependencies:
    """Finds what tasks wait for, in one look at a backlog.

    Attributes:
        issues: returns the open issues that the look has listed, by number.
        items: returns the open items of the backlog files, by key.
        pulls: our pull requests.
        warn: receives warnings for a person, each with a name under which it is emitted once.
    """

    forge: Forge
    issues: Callable[[], Mapping[int, Issue]]
    items: Callable[[], Mapping[str, Task]]
    pulls: Sequence[PullRequest]
    warn: Callable[[str, str], object]
    _left: int = MOST_ASKED
    _read: dict[int, Issue | None] = field(default_factory=dict)
    _blockers: dict[int, list[Issue]] = field(default_factory=dict)

    def of(self, task: Task, issue: Issue | None) -> Blocked | None:
        """Return what a task waits for; None if it waits for nothing.

        Args:
            issue: the task's, as just read; None if it is no issue.
        """
        node = task if issue is None else issue
        counted = 0 if issue is None else issue.blocked_by + issue.open_parts
        found = self._next(node, task.key)
        if not found and not counted:
            return None
        circle = self._circle(_name_of(task.key), task.key, node)
        return Blocked(tuple(found), max(len(found), counted), circle)

    def _next(self, node: Issue | Task, key: str) -> dict[str, Issue | Task | PullRequest]:
        """Return what an issue or an item waits for, by its name."""
        found: dict[str, Issue | Task | PullRequest] = {}
        if isinstance(node, Task):
            references = node.after
        else:
            references = listed_in(node.body, node.url.rpartition("/")[0])
            for one in self._blockers_of(node):
                found[_issue_name(one, node)] = one
        for reference in references:
            other = self._referred(reference, key)
            if other is not None:
                found[reference] = other
        return found

    def _blockers_of(self, issue: Issue) -> list[Issue]:
        if not (issue.blocked_by or issue.open_parts):
            return []
        if issue.number not in self._blockers:
            if not self._may_ask():
                return []
            self._blockers[issue.number] = self.forge.blockers(issue)
        return self._blockers[issue.number]

    def _referred(self, reference: str, key: str) -> Issue | Task | PullRequest | None:
        """Return the open issue, item or pull request of a reference; None if it is done, or the task itself."""
        if not reference.startswith("#"):
            return self.items().get(reference) if reference != key else None
        number = int(reference[1:])
        if number == issue_of(key):
            return None
        pull = next((one for one in self.pulls if one.number == number), None)
        if pull is not None:
            return None if pull.state is PullRequestState.MERGED else pull
        found = self._issue(number)
        return found if found is not None and found.is_open else None

    def _issue(self, number: int) -> Issue | None:
        listed = self.issues().get(number)
        if listed is not None or number in self._read or not self._may_ask():
            return listed or self._read.get(number)
        self._read[number] = None
        try:
            self._read[number] = self.forge.issue(number)
        except ForgeNotFoundError as error:
            self.warn(f"#{number} is waited for", f"nothing waits for #{number}: {error}")
        return self._read[number]

    def _may_ask(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def _circle(self, name: str, key: str, node: Issue | Task) -> tuple[str, ...]:
        """Return a circle among what an issue or item waits for, directly or through others; empty if there is none."""
        paths: list[tuple[tuple[str, ...], str, Issue | Task]] = [((name,), key, node)]
        seen: set[str] = set()
        while paths and len(seen) < _MOST_FOLLOWED:
            path, key, node = paths.pop()
            seen.add(path[-1])
            for other, found in self._next(node, key).items():
                if other in path:
                    return (*path[path.index(other) :], other)
                if other in seen or "/" in other:  # another repository's are not followed
                    continue
                if isinstance(found, Task):
                    paths.append(((*path, other), found.key, found))
                elif isinstance(found, Issue):
                    paths.append(((*path, other), f"issue-{other[1:]}", found))
        return ()


def _name_of(key: str) -> str:
    number = issue_of(key)
    return key if number is None else f"#{number}"


def _issue_name(issue: Issue, seen_from: Issue) -> str:
    """Return the name of an issue as GitHub writes it on the page of another one."""
    there, here = (_ADDRESS.fullmatch(urlsplit(one.url).path) for one in (issue, seen_from))
    is_here = there is None or here is None or there["name"].lower() == here["name"].lower()
    return f"#{issue.number}" if is_here or there is None else f"{there['name']}#{issue.number}"
