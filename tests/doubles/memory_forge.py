"""A forge in memory, for rules that look at issues and pull requests: no git, no files, no server."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import (
    AttachmentPlace,
    Check,
    Comment,
    Feedback,
    Issue,
    IssueHistory,
    Permission,
    Proposal,
    PullRequest,
    PullRequestState,
    Repository,
    TokenKind,
    Traffic,
)
from orchestrator.core.errors import ForgeError, ForgeNotFoundError, ForgePermissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.bot.forge.base import Forge, OwnCheck, RequestQuota
    from orchestrator.core.redaction import Credential

_BOT = "pullwright[bot]"
_START = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When the first thing happens; each thing after it happens a minute later."""
_URL = "https://forge.example"


@dataclass(slots=True)
class MemoryForge:
    """A forge for a repository that git reaches elsewhere.

    Attributes:
        branch_commit: a branch's head, or None where there is no such branch.
        people: permission by login; others have none.
        skew: how far its clock is ahead.
        waits: by issue, those that block it.
        attachments: how those are fetched that there are; `signed` has other places of images.
    """

    name: str
    clone_url: str
    branch_commit: Callable[[str], str | None]
    people: dict[str, Permission] = field(default_factory=dict)
    attachments: dict[str, AttachmentPlace] = field(default_factory=dict)
    signed: dict[str, AttachmentPlace] = field(default_factory=dict)
    skew: timedelta = field(default_factory=timedelta)
    waits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _issues: dict[int, Issue] = field(default_factory=dict)
    _labelled: dict[tuple[int, str], tuple[str, datetime]] = field(default_factory=dict)
    _comments: dict[int, dict[str, Comment]] = field(default_factory=dict)
    _pulls: dict[int, PullRequest] = field(default_factory=dict)
    _steps: int = 0

    def add_issue(self, title: str, body: str, *, author: str, labels: tuple[str, ...] = ()) -> int:
        """Open an issue; its author put the labels on. Returns its number."""
        number, now = self._new_number(), self._tick()
        self._issues[number] = Issue(number, title, body, True, labels, author, self._url(number), now)
        for label in labels:
            self._labelled[number, label] = author, now
        return number

    def put_label(self, number: int, label: str, *, by: str) -> None:
        """A person puts a label on an issue."""
        issue = self.issue(number)
        self._issues[number] = replace(issue, labels=(*issue.labels, label))
        self._labelled[number, label] = by, self._tick()

    def say(self, number: int, author: str, body: str) -> None:
        """A person comments."""
        there = self._comments.setdefault(number, {})
        there[f"{author} {len(there)}"] = Comment(
            len(there) + 1, author, body, self._tick(), f"{self._url(number)}#c{len(there)}"
        )

    def change(self, number: int, **fields: Any) -> None:
        """Somebody changes an issue or a pull request."""
        known: dict[int, Any] = self._issues if number in self._issues else self._pulls
        known[number] = replace(known[number], **fields)

    def repository(self) -> Repository:
        return Repository(self.name, self.clone_url, "main", f"{_URL}/{self.name}")

    def credential(self) -> Credential | None:
        return None

    def open_issues(self, label: str) -> list[Issue]:
        found = [issue for issue in self._issues.values() if issue.is_open and label in issue.labels]
        return [self.issue(issue.number) for issue in found]

    def labelled_issues(self, label: str) -> list[int]:
        return [number for number, issue in self._issues.items() if label in issue.labels]

    def issue(self, number: int) -> Issue:
        if number not in self._issues:
            raise ForgeNotFoundError(f"no issue #{number} in {self.name}")
        blocked_by = sum(self._issues[other].is_open for other in self.waits.get(number, ()))
        return replace(self._issues[number], blocked_by=blocked_by)

    def permission(self, login: str) -> Permission:
        return self.people.get(login, Permission.NONE)

    def history(self, number: int, label: str) -> IssueHistory:
        self.issue(number)
        by, at = self._labelled.get((number, label), (None, None))
        return IssueHistory(by, at, ())

    def labelled_by(self, number: int, label: str) -> str | None:
        self._require(number)
        return self._labelled.get((number, label), (None, None))[0]

    def comments(self, number: int) -> list[Comment]:
        self._require(number)
        return list(self._comments.get(number, {}).values())

    def attachment(self, url: str) -> AttachmentPlace | None:
        return self.attachments.get(url)

    def signed_image(self, number: int, url: str) -> AttachmentPlace | None:
        del number
        return self.signed.get(url)

    def read_file(self, path: str, fingerprint: str = "") -> str | None:
        del path, fingerprint
        return None

    def pull_request(self, number: int) -> PullRequest:
        if number not in self._pulls:
            raise ForgeNotFoundError(f"no pull request #{number} in {self.name}")
        return self._pulls[number]

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        newest = sorted(self._pulls.values(), key=lambda pull: -pull.number)
        return [pull for pull in newest if pull.branch.startswith(branch_prefix)]

    def why_not_pushed(self, branch: str, email: str) -> str | None:
        del branch, email
        return None

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        commit = self.branch_commit(proposal.branch)
        if commit is None:
            raise ForgeError(f"cannot open a pull request: {self.name} has no branch {proposal.branch}")
        there = self.our_pull_requests(proposal.branch)
        found = next((pull for pull in there if pull.state is PullRequestState.OPEN), None)
        number = found.number if found else self._new_number()
        pull = PullRequest(
            number=number,
            title=proposal.title,
            body=proposal.body,
            url=self._url(number),
            draft=found.draft if found else proposal.draft,
            state=PullRequestState.OPEN,
            branch=proposal.branch,
            base=proposal.base,
            commit=commit,
        )
        self._pulls[number] = pull
        return pull, found is None

    def close_pull_request(self, number: int) -> PullRequest:
        if number not in self._pulls:
            raise ForgeNotFoundError(f"no pull request #{number}")
        self._pulls[number] = replace(self._pulls[number], state=PullRequestState.CLOSED)
        return self._pulls[number]

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        return None if issue is None else self.ensure_comment(issue, f"question-{key}", body)

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        self._require(number)
        there = self._comments.setdefault(number, {})
        there.pop(key, None)
        if body.strip():
            there[key] = Comment(len(there) + 1, _BOT, body, self._tick(), self._url(number))
        return self._url(number)

    def ensure_label(self, number: int, label: str) -> None:
        self._require(number)
        self.remove_label(number, label)
        self._relabel(number, lambda labels: (*labels, label))

    def make_label(self, label: str, description: str) -> bool:  # noqa: ARG002  there are no labels of its own
        return False

    def remove_label(self, number: int, label: str) -> None:
        self._require(number)
        self._relabel(number, lambda labels: tuple(n for n in labels if n.lower() != label.lower()))

    def blockers(self, issue: Issue) -> list[Issue]:
        return [one for number in self.waits.get(issue.number, ()) if (one := self.issue(number)).is_open]

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        self.issue(number)
        return []

    def feedback(self, number: int) -> list[Feedback]:
        self._require(number)
        return []

    def has_conflict(self, number: int) -> bool:
        del number
        return False

    def checks(self, commit: str) -> list[Check]:
        del commit
        return []

    def ensure_check(self, check: OwnCheck) -> str:
        del check
        raise ForgePermissionError("a forge in memory has no check runs")

    def attestations(self, digest: str) -> list[dict[str, Any]]:
        del digest
        return []

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        del checks, commit, base
        return []

    def fingerprint(self) -> str:
        state = (self.branch_commit("main"), self._issues, self._comments, self._pulls)
        return hashlib.sha256(repr(state).encode()).hexdigest()

    def ahead(self) -> timedelta:
        return self.skew

    def traffic(self) -> Traffic:
        return Traffic()

    def quotas(self) -> Sequence[RequestQuota]:
        return ()

    def begin_step(self) -> None:
        """No credential is shown."""

    def own_login(self) -> str | None:
        return _BOT

    def token_kind(self) -> TokenKind:
        return TokenKind.NONE

    def _relabel(self, number: int, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        if number in self._issues:
            found = self._issues[number]
            self._issues[number] = replace(found, labels=change(found.labels))
        else:
            pull = self._pulls[number]
            self._pulls[number] = replace(pull, labels=change(pull.labels))

    def _require(self, number: int) -> None:
        if number not in self._issues and number not in self._pulls:
            raise ForgeNotFoundError(f"no issue or pull request #{number} in {self.name}")

    def _url(self, number: int) -> str:
        return f"{_URL}/{self.name}/issues/{number}"

    def _new_number(self) -> int:
        return 1 + max((*self._issues, *self._pulls), default=0)

    def _tick(self) -> datetime:
        self._steps += 1
        return _START + timedelta(minutes=self._steps - 1)


if TYPE_CHECKING:

    def _conforms(forge: MemoryForge) -> Forge:
        return forge
