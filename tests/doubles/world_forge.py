"""The forge of a simulated world: a forge in memory with people, whose branches are those of the git server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.tasks import issue_of, key_of
from orchestrator.bot.forge.base import (
    Check,
    CheckState,
    Comment,
    Feedback,
    FeedbackKind,
    Issue,
    Permission,
    PullRequest,
    PullRequestState,
)
from orchestrator.core.errors import (
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRejectedError,
    ForgeUnavailableError,
)
from tests.doubles.memory_forge import MemoryForge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from orchestrator.bot.forge.base import Proposal
    from tests.doubles.memory_git import MemoryRemote, Wire

WRITER = "ada"
_RIVALS = 900
"""The number of the pull request of a person for the first issue."""
LOCKED = 423
_STRANGERS = 1000
"""The number of the first issue of a stranger."""
_OURS = "<!-- pullwright:comment -->"


class WorldForge(MemoryForge):
    """A forge whose state everybody shares.

    Attributes:
        now: returns the present time, at which everything happens.
        locked: issues on which nobody may write.
        opened: when each pull request was opened, by its number.
        unprocessable: tasks, by number, whose pull request is refused.
        denied: the status with which a write fails, by its name and the number of the task.
    """

    def __init__(self, server: MemoryRemote, now: Callable[[], datetime], clone_url: str) -> None:
        super().__init__(
            "octo/many",
            clone_url,
            lambda branch: server.refs.get(f"refs/heads/{branch}"),
            {WRITER: Permission.WRITE, "eve": Permission.READ},
        )
        self.now = now
        self._files = server.files
        self.locked: set[int] = set()
        self.unprocessable: set[int] = set()
        self.failing: dict[str, str] = {}
        """By branch, a file without which its check fails."""
        self.denied: dict[tuple[str, int], int] = {}
        self._ids = 0
        self.opened: dict[int, datetime] = {}
        self._rivals: dict[int, PullRequest] = {}

    def add_strangers(self, count: int, label: str, at: datetime) -> None:
        """Open issues with a label from somebody who may not ask for work."""
        for number in range(_STRANGERS, _STRANGERS + count):
            title, url = f"Wish {number}", self._url(number)
            self._issues[number] = Issue(
                number, title, "Please.", True, (label,), "eve", url, at, updated_at=at
            )
            self._labelled[number, label] = "eve", at

    def _new_number(self) -> int:
        known = (*self._issues, *self._pulls)
        return 1 + max((number for number in known if number < _STRANGERS), default=0)

    def _require(self, number: int) -> None:
        if number in self.locked:
            raise refusal(LOCKED)
        super()._require(number)

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        if (issue_of(key_of(proposal.branch)) or 0) in self.unprocessable:
            raise ForgeRejectedError("GitHub refuses the request (422: Validation Failed)")
        pull, created = super().ensure_pull_request(proposal)
        self.opened.setdefault(pull.number, self.now())
        pull = self._pulls[pull.number] = replace(pull, author=self.own_login() or "", updated_at=self.now())
        return pull, created

    def create_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create a pull request even if the branch has one, which no forge of the program does."""
        found = {number: pull for number, pull in self._pulls.items() if pull.branch == proposal.branch}
        for number in found:
            del self._pulls[number]
        self._steps += 1
        made, _ = self.ensure_pull_request(proposal)
        del self._pulls[made.number]
        made = replace(made, number=max((*self._issues, *self._pulls, *found)) + 1)
        self._pulls |= {**found, made.number: made}
        return made, True

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        return [self._as_now(pull) for pull in super().our_pull_requests(branch_prefix)]

    def pull_request(self, number: int) -> PullRequest:
        return self._as_now(super().pull_request(number))

    def _as_now(self, pull: PullRequest) -> PullRequest:
        tip = self.branch_commit(pull.branch)
        is_moving = pull.state is PullRequestState.OPEN and tip is not None
        return replace(pull, commit=tip) if is_moving and tip is not None else pull

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        there = self._comments.get(number, {})
        if key in there and body.strip():  # it is edited in its place
            there[key] = replace(there[key], body=f"{body}\n\n{_OURS}", updated_at=self.now())
            return there[key].url
        super().ensure_comment(number, key, f"{body}\n\n{_OURS}" if body.strip() else "")
        return self._addressed(number, key)

    def comments(self, number: int) -> list[Comment]:
        return list(self._comments.get(number, {}).values())

    def feedback(self, number: int) -> list[Feedback]:
        return [
            Feedback(
                FeedbackKind.COMMENT,
                one.id,
                one.author,
                one.body,
                one.created_at,
                one.updated_at or one.created_at,
                one.url,
            )
            for one in self.comments(number)
        ]

    def checks(self, commit: str) -> list[Check]:
        wanted = [file for branch, file in self.failing.items() if self.branch_commit(branch) == commit]
        if not wanted:
            return []
        fails = wanted[0] not in self._files(commit)
        state = CheckState.FAILED if fails else CheckState.PASSED
        return [Check("tests", state, "A file is missing.", "")]

    def labelled_by(self, number: int, label: str) -> str | None:
        return self._labelled.get((number, label), (None, None))[0]

    def say(self, number: int, author: str, body: str) -> None:
        """A person comments."""
        key = f"person {self._ids}"
        there = self._comments.setdefault(number, {})
        there[key] = Comment(0, author, body, self._tick(), "")
        self._addressed(number, key)

    def close(self, number: int) -> None:
        """A person closes an issue."""
        self._issues[number] = replace(self._issues[number], is_open=False)

    def unlabel(self, number: int, label: str) -> None:
        """A person takes a label off an issue, which a locked one allows them."""
        self._relabel(number, lambda labels: tuple(name for name in labels if name != label))

    def assign(self, number: int, login: str) -> None:
        """A person takes an issue."""
        self._issues[number] = replace(self._issues[number], assignees=(login,), updated_at=self.now())

    def delete(self, number: int) -> None:
        """A person deletes an issue."""
        self._issues.pop(number, None)

    def add_rival(self, number: int) -> None:
        """A person proposes another change for an issue."""
        self._rivals[number] = PullRequest(
            _RIVALS + number, "Mine", "", self._url(_RIVALS + number), draft=False, state=PullRequestState.OPEN,
            branch="grace", base="main", commit="0" * 40, author="grace",
        )  # fmt: skip
        if number in self._issues:
            self._issues[number] = replace(self._issues[number], updated_at=self.now())

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        rivals = [self._rivals[number]] if number in self._rivals else []
        return [*super().linked_pull_requests(number), *rivals]

    def branch_of(self, number: int) -> str:
        """Return the branch of a pull request."""
        return self._pulls[number].branch if number in self._pulls else ""

    def issues(self) -> dict[int, Issue]:
        """Return all issues."""
        return self._issues

    def pulls(self) -> list[PullRequest]:
        """Return all pull requests."""
        return [self._as_now(pull) for pull in self._pulls.values()]

    def contents(self) -> tuple[object, ...]:
        """Return what somebody may find here, as it is now."""
        comments = {number: dict(there) for number, there in self._comments.items()}
        return dict(self._issues), dict(self._labelled), comments, dict(self._pulls)

    def _addressed(self, number: int, key: str) -> str:
        there = self._comments.get(number, {})
        if key not in there:
            return self._url(number)
        self._ids += 1
        url = f"{self._url(number)}#{self._ids}"
        there[key] = replace(there[key], id=self._ids, url=url)
        return url

    def _tick(self) -> datetime:
        return self.now()


_LOCAL = frozenset({"credential", "traffic", "quotas", "begin_step", "token_kind", "why_not_pushed"})
_WRITES = ("ensure_", "remove_", "close_", "make_")


REFUSALS: Mapping[int, tuple[type[ForgeError], str]] = {
    403: (ForgePermissionError, "the token may not: Resource not accessible"),
    404: (ForgeNotFoundError, "not found (404)"),
    410: (ForgeNotFoundError, "gone (410: This issue was deleted)"),
    422: (ForgeRejectedError, "rejected (422: Validation Failed)"),
    LOCKED: (ForgeRejectedError, "it is locked (403: Unable to create comment because issue is locked.)"),
}
"""What a reply of GitHub's of this status becomes. A locked conversation has a number of its own."""


def refusal(status: int) -> ForgeError:
    """Return the error that a reply of this status becomes."""
    kind, said = REFUSALS[status]
    return kind(f"cannot do this: {said}")


class FarForge:
    """The forge as one program sees it: over a wire on which requests fail."""

    def __init__(self, forge: WorldForge, wire: Wire, ahead: Callable[[], timedelta]) -> None:
        self._forge, self._wire = forge, wire
        self.ahead = ahead

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._forge, name)
        if name in _LOCAL or not callable(method):
            return method

        def fail() -> Any:
            raise ForgeUnavailableError("GitHub did not answer")

        def call(*arguments: Any) -> Any:
            def do() -> Any:
                about = arguments[0] if arguments else 0
                task = about if isinstance(about, int) else issue_of(key_of(getattr(about, "branch", "")))
                if (status := self._forge.denied.get((name, task or 0))) is not None:
                    return refusal(status)
                try:
                    return method(*arguments)
                except ForgeError as error:
                    return error

            found = self._wire.request(f"forge {name}", do, fail)
            if isinstance(found, ForgeError):
                raise found
            return found

        return call
