"""A forge in memory: issues with the people around them, comments, labels, pull requests. Nothing leaves it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import (
    Check,
    Comment,
    Credential,
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
from orchestrator.bot.forge.memory_place import URL, MemoryPlace, Written
from orchestrator.core.errors import ForgeError, ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.forge.base import Forge

_BOT = "pullwright[bot]"


@dataclass(slots=True)
class MemoryForge(MemoryPlace):
    """A forge for a repository that git can reach elsewhere. It is what `pullwright redteam` talks to.

    Example::

        forge = MemoryForge("owner/name", "/srv/name.git", branch_commit=lambda _branch: None)
        number = forge.add_issue("Mend it", "It is broken.", author="ada", labels=("pullwright",))
    """

    def pull_requests(self) -> list[PullRequest]:
        """All of them, newest first."""
        return [self._pulls[number] for number in sorted(self._pulls, reverse=True)]

    def labels(self, number: int) -> list[str]:
        """The labels that were put on by `ensure_label`."""
        return list(self._labels.get(number, ()))

    def repository(self) -> Repository:
        """The repository itself."""
        return Repository(self.name, self.clone_url, self.default_branch, f"{URL}/{self.name}")

    def credential(self) -> Credential | None:
        """None: there is nothing to log in to."""
        return None

    def open_issues(self, label: str) -> list[Issue]:
        """Open issues with this label, oldest first."""
        return [issue for issue in self._issues.values() if issue.is_open and label in issue.labels]

    def permission(self, login: str) -> Permission:
        """What `people` says; the forge knows nobody else."""
        self.asked.append(login)
        return self.people.get(login, Permission.NONE)

    def history(self, number: int, label: str) -> IssueHistory:
        """Who put the label on an issue, and who edited it.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """
        self.issue(number)
        by, at = self._labelled.get((number, label), (None, None))
        return IssueHistory(by, at, tuple(self._edits.get(number, ())))

    def labelled_by(self, number: int, label: str) -> str | None:
        """Who put a label on an issue."""
        self._require(number)
        return self._labelled.get((number, label), (None, None))[0]

    def comments(self, number: int) -> list[Comment]:
        """The comments, oldest first."""
        self._require(number)
        return list(self._comments.get(number, ()))

    def read_file(self, path: str) -> str | None:
        """A file's text on the default branch, or None where there is none."""
        return self.files.get(path)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Those whose branch begins so, newest first."""
        return [pull for pull in self.pull_requests() if pull.branch.startswith(branch_prefix)]

    def why_not_pushed(self, branch: str, email: str) -> str | None:  # noqa: ARG002  there are no rules
        """None: nobody makes rules here."""
        return None

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date.

        Raises:
            ForgeError: there is no such branch.
        """
        commit = self.branch_commit(proposal.branch)
        if commit is None:
            raise ForgeError(f"cannot open a pull request: {self.name} has no branch {proposal.branch}")
        found = next((pull for pull in self.our_pull_requests(proposal.branch) if _is_open(pull)), None)
        number = found.number if found else self._new_number()
        pull = PullRequest(
            number=number,
            title=proposal.title,
            body=proposal.body,
            url=f"{URL}/{self.name}/pull/{number}",
            draft=found.draft if found else proposal.draft,
            state=PullRequestState.OPEN,
            branch=proposal.branch,
            base=proposal.base,
            commit=commit,
        )
        self._pulls[number] = pull
        self.written += [Written(number, "title", pull.title), Written(number, "body", pull.body)]
        return pull, found is None

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request without merging it.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        if number not in self._pulls:
            raise ForgeNotFoundError(f"no pull request #{number}")
        self._pulls[number] = replace(self._pulls[number], state=PullRequestState.CLOSED)
        return self._pulls[number]

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Put a question on the issue, once per key; None where the task is no issue."""
        if issue is None:
            return None
        self.written.append(Written(issue, "question", body))
        return self._comment(issue, f"question-{key}", body)

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Put a comment on an issue or pull request, once per key; an empty one removes it.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        self._require(number)
        if not body.strip():
            made = self._keys.pop((number, key), None)
            self._comments[number] = [one for one in self._comments.get(number, ()) if one.id != made]
            return f"{URL}/{self.name}/issues/{number}"
        self.written.append(Written(number, "comment", body))
        return self._comment(number, key, body)

    def ensure_label(self, number: int, label: str) -> None:
        """Put a label on an issue or pull request, unless it is there.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        self._require(number)
        there = self._labels.setdefault(number, [])
        if label not in there:
            there.append(label)
            self.written.append(Written(number, "label", label))

    def remove_label(self, number: int, label: str) -> None:
        """Take a label off an issue or pull request, if it is there.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        self._require(number)
        if number in self._issues:
            issue = self._issues[number]
            kept = tuple(name for name in issue.labels if name.lower() != label.lower())
            self._issues[number] = replace(issue, labels=kept)
        there = self._labels.get(number, [])
        there[:] = [name for name in there if name.lower() != label.lower()]

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """None: nobody links them here.

        Raises:
            ForgeNotFoundError: there is no such issue.
        """
        self.issue(number)
        return []

    def feedback(self, number: int) -> list[Feedback]:
        """None: nobody reviews here.

        Raises:
            ForgeNotFoundError: there is no such pull request.
        """
        if number not in self._pulls:
            raise ForgeNotFoundError(f"no pull request #{number} in {self.name}")
        return []

    def has_conflict(self, number: int) -> bool:  # noqa: ARG002  nobody merges here but people
        """Never: nobody looks."""
        return False

    def checks(self, commit: str) -> list[Check]:
        """Those that somebody added."""
        return list(self._checks.get(commit, ()))

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Those of an app that the base branch requires."""
        del commit
        return [check for check in checks if check.app in self.required_apps.get(base, ())]

    def pulse(self) -> str:
        """A short text that stays the same while nothing here changes, and no default branch."""
        head = self.branch_commit(self.default_branch) if self.default_branch else None
        state = (head, self._issues, self._comments, self._pulls, self._labels, self._edits)
        return hashlib.sha256(repr(state).encode()).hexdigest()

    def traffic(self) -> Traffic:
        """None: nothing leaves it."""
        return Traffic()

    def own_login(self) -> str | None:
        """The bot's name."""
        return _BOT

    def token_kind(self) -> TokenKind:
        """None: there is nothing to log in to."""
        return TokenKind.NONE

    def _comment(self, number: int, key: str, body: str) -> str:
        made = self._keys.get((number, key))
        if made is None:
            made = self._keys[number, key] = self.add_comment(number, body, author=_BOT)
        there = self._comments[number]
        at = next(at for at, comment in enumerate(there) if comment.id == made)
        there[at] = replace(there[at], body=body)
        return there[at].url

    def _require(self, number: int) -> None:
        if number not in self._issues and number not in self._pulls:
            raise ForgeNotFoundError(f"no issue or pull request #{number} in {self.name}")


def _is_open(pull: PullRequest) -> bool:
    return pull.state is PullRequestState.OPEN


if TYPE_CHECKING:

    def _conforms(forge: MemoryForge) -> Forge:
        return forge
