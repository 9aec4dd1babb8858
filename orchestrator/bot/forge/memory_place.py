"""A repository in memory, and what people do there: they open issues, label and edit them, and comment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import Check, Comment, Edit, Issue, Permission, PullRequest
from orchestrator.core.errors import ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When the first thing happens here; each thing after it happens a minute later."""

URL = "https://forge.example"


@dataclass(frozen=True, slots=True)
class Written:
    """Something that was written to the forge. `what` is `title`, `body`, `comment`, `question` or `label`."""

    number: int | None
    what: str
    text: str


@dataclass(slots=True)
class MemoryPlace:
    """What there is in memory of a repository, and the people around it.

    Attributes:
        name: `owner/name`.
        clone_url: where git finds it.
        branch_commit: a branch's head, or None where there is no such branch.
        default_branch: its name; None while the repository is empty.
        files: text by path, on the default branch.
        people: permission by login; others have none.
        required_apps: names of the apps whose checks a branch requires.
        written: everything that was written, in order.
        asked: whose permission was asked.
    """

    name: str
    clone_url: str
    branch_commit: Callable[[str], str | None]
    default_branch: str | None = "main"
    files: Mapping[str, str] = field(default_factory=dict)
    people: dict[str, Permission] = field(default_factory=dict)
    required_apps: Mapping[str, Collection[str]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    _issues: dict[int, Issue] = field(default_factory=dict)
    _labelled: dict[tuple[int, str], tuple[str, datetime]] = field(default_factory=dict)
    _edits: dict[int, list[Edit]] = field(default_factory=dict)
    _comments: dict[int, list[Comment]] = field(default_factory=dict)
    _keys: dict[tuple[int, str], int] = field(default_factory=dict)
    _pulls: dict[int, PullRequest] = field(default_factory=dict)
    _labels: dict[int, list[str]] = field(default_factory=dict)
    _checks: dict[str, list[Check]] = field(default_factory=dict)
    _steps: int = 0
    _made: int = 0

    def add_issue(self, title: str, body: str, *, author: str, labels: tuple[str, ...] = ()) -> int:
        """Open an issue; its author put the labels on. Returns its number."""
        number, now = self._new_number(), self._tick()
        url = f"{URL}/{self.name}/issues/{number}"
        self._issues[number] = Issue(number, title, body, True, labels, author, url, now)
        for label in labels:
            self._labelled[number, label] = author, now
        return number

    def put_label(self, number: int, label: str, *, by: str) -> None:
        """A person puts a label on an issue."""
        issue = self.issue(number)
        self._issues[number] = replace(issue, labels=(*issue.labels, label))
        self._labelled[number, label] = by, self._tick()

    def edit_issue(self, number: int, *, by: str, title: str | None = None, body: str | None = None) -> None:
        """A person changes an issue's title, its body or both."""
        issue = self.issue(number)
        edits = self._edits.setdefault(number, [])
        edits += [
            Edit(by, self._tick(), what)
            for what, text in (("title", title), ("body", body))
            if text is not None
        ]
        title, body = issue.title if title is None else title, issue.body if body is None else body
        self._issues[number] = replace(issue, title=title, body=body)

    def add_comment(self, number: int, body: str, *, author: str) -> int:
        """A person comments on an issue or pull request. Returns the comment's id."""
        there = self._comments.setdefault(number, [])
        self._made += 1
        made = self._made
        there.append(Comment(made, author, body, self._tick(), f"{URL}/{self.name}/issues/{number}#{made}"))
        return made

    def add_check(self, commit: str, check: Check) -> None:
        """A program says how a commit is."""
        self._checks.setdefault(commit, []).append(check)

    def issue(self, number: int) -> Issue:
        """One issue.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        if number not in self._issues:
            raise ForgeNotFoundError(f"no issue #{number} in {self.name}")
        return self._issues[number]

    def _new_number(self) -> int:
        return 1 + max((*self._issues, *self._pulls), default=0)

    def _tick(self) -> datetime:
        self._steps += 1
        return START + timedelta(minutes=self._steps - 1)
