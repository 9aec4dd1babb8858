"""A folder that plays GitHub for a repository on disk: pull requests and questions are JSON files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from orchestrator.bot.forge.base import (
    Proposal,
    PullRequest,
    PullRequestState,
    Repository,
)
from orchestrator.bot.forge.local_absences import LocalAbsences
from orchestrator.bot.forge.local_files import CommentRecord
from orchestrator.bot.forge.local_places import LocalPlace, places, root_of
from orchestrator.bot.forge.local_records import LocalRecords
from orchestrator.core.errors import ForgeError, ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.forge.base import Feedback
    from orchestrator.bot.forge.local_files import PullRecord
    from orchestrator.core.clock import Clock

__all__ = ["Git", "LocalForge", "LocalPlace", "Question", "places", "root_of"]


class Git(Protocol):
    """What git says of the repository. Each answer costs a program or two, and is true when it is given."""

    def heads(self) -> tuple[str | None, Mapping[str, str]]:
        """The branch that HEAD names, None where there is none or it has no commit, and each branch's commit."""

    def read_file(self, path: str, commit: str) -> str | None:
        """A file's text in a commit, or None where there is no such file."""

    def merged(self, commits: Collection[str], into: str) -> Collection[str]:
        """Those of the commits that are part of the history of another. One that is not there is none of them."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that waits for a person."""

    number: int
    key: str
    body: str
    url: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class _Heads:
    """The branches at one moment.

    Attributes:
        default: the default branch, None while the repository is empty.
        target: the branch that pull requests are merged into.
        commits: by branch.
    """

    default: str | None
    target: str | None
    commits: Mapping[str, str]

    def at(self, branch: str | None) -> str | None:
        """A branch's commit, or None where there is no such branch."""
        return None if branch is None else self.commits.get(branch)


class LocalForge(LocalAbsences):
    """A forge for a repository on disk.

    Every method asks git anew, once: others push meanwhile.

    Args:
        root: the folder of this forge, as `root_of` gives it; made when there is something to write.
        repository_path: the repository, bare or with a work tree.
        git: what git says of it.
        base: the branch that pull requests are for, where it is not the default branch; the default
            branch too where HEAD is detached.
        clock: for the times in the files.
    """

    def __init__(
        self, root: Path, repository_path: Path, git: Git, *, base: str | None = None, clock: Clock
    ) -> None:
        self._path = repository_path.resolve()
        self._git = git
        self._base = base
        self._records = LocalRecords(root, self._path, clock)

    def repository(self) -> Repository:
        """The repository itself.

        Raises:
            ForgeNotFoundError: its folder is gone.
        """
        if not self._path.is_dir():
            raise ForgeNotFoundError(f"no such repository: {self._path}")
        return Repository(self._path.name, str(self._path), self._heads().default, self._path.as_uri())

    def labelled_by(self, number: int, label: str) -> None:  # noqa: ARG002  whichever it is
        """Nobody that is known."""
        self._records.pull(number)

    def read_file(self, path: str) -> str | None:
        """A file's text on the default branch, or None where there is none."""
        heads = self._heads()
        commit = heads.at(heads.default)
        return None if commit is None else self._git.read_file(path, commit)

    def pull_requests(self) -> list[PullRequest]:
        """All of them, newest first."""
        return self._seen(self._records.pulls())

    def questions(self) -> list[Question]:
        """All of them, newest first."""
        return [
            Question(record.number, record.key, record.body, self._records.url(record), record.created_at)
            for record in self._records.questions()
        ]

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Those whose branch begins so, newest first."""
        return self._seen([one for one in self._records.pulls() if one.branch.startswith(branch_prefix)])

    def why_not_pushed(self, branch: str, email: str) -> str | None:  # noqa: ARG002  there are no rules
        """None: what hooks of the repository say is known when it is pushed to."""
        return None

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date.

        Raises:
            ForgeError: there is no such branch, or nothing in it that the default branch lacks.
        """
        heads = self._heads()
        commit = heads.at(proposal.branch)
        if commit is None:
            missing = f"{self._path} has no branch {proposal.branch}: push it first"
            raise ForgeError(f"cannot open a pull request: {missing}")
        if commit in self._merged([commit], heads):
            between = f"no commits between {proposal.base} and {proposal.branch}"
            raise ForgeError(f"cannot open a pull request: {between}")
        with self._records.alone():
            there = (one for one in self._records.pulls() if one.branch == proposal.branch)
            known = next((one for one in there if not one.is_closed), None)
            if known is None:
                record = self._records.new_pull(proposal, commit)
            else:
                record = self._records.change_pull(
                    known, title=proposal.title, body=proposal.body, commit=commit
                )
        return self._pull_request(record, commit, PullRequestState.OPEN), known is None

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:  # noqa: ARG002  no issues here
        """Put a question into a file, or replace the one with this key. Returns the file's URI."""
        with self._records.alone():
            return self._records.url(self._records.put_question(key, body))

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Keep a comment in the pull request's file, or replace the one with this key; an empty one removes it.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        with self._records.alone():
            record = self._records.pull(number)
            made = CommentRecord(key=key, body=body)
            there = tuple(made if old.key == key else old for old in record.comments)
            comments = there if made in there else (*there, made)
            self._records.change_pull(record, comments=tuple(one for one in comments if one.body.strip()))
        return f"{self._records.url(record)}#{quote(key, safe='')}"

    def ensure_label(self, number: int, label: str) -> None:
        """Keep a label in the pull request's file, unless it is there.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        with self._records.alone():
            record = self._records.pull(number)
            if label.lower() not in {name.lower() for name in record.labels}:
                self._records.change_pull(record, labels=(*record.labels, label))

    def remove_label(self, number: int, label: str) -> None:
        """Take a label out of the pull request's file, if it is there.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        with self._records.alone():
            record = self._records.pull(number)
            kept = tuple(name for name in record.labels if name.lower() != label.lower())
            self._records.change_pull(record, labels=kept)

    def feedback(self, number: int) -> list[Feedback]:
        """Empty: people do not talk in a folder.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        self._records.pull(number)
        return []

    def pulse(self) -> str:
        """The same while no file here, no branch of ours and no default branch changes."""
        heads, pulls = self._heads(), self._records.pulls()
        branch = heads.default, heads.at(heads.default)
        state = (branch, pulls, self._seen(pulls, heads), self._records.questions())
        return hashlib.sha256(repr(state).encode()).hexdigest()

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request unmerged, which means "no": its task is not taken again.

        Raises:
            ForgeNotFoundError: there is none of this number.
            ForgeError: it is merged.
        """
        with self._records.alone():
            record = self._records.pull(number)
            [pull] = self._seen([record])
            if pull.state is PullRequestState.MERGED:
                raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
            self._records.change_pull(record, is_closed=True)
            return replace(pull, state=PullRequestState.CLOSED)

    def _heads(self) -> _Heads:
        named, commits = self._git.heads()
        default = named or self._base
        return _Heads(default, self._base or default, commits)

    def _merged(self, commits: Collection[str], heads: _Heads) -> Collection[str]:
        into = heads.at(heads.target)
        return () if into is None or not commits else self._git.merged(commits, into)

    def _seen(self, records: Sequence[PullRecord], heads: _Heads | None = None) -> list[PullRequest]:
        """The records with what git says of them, asked about all of them at once."""
        if not records:
            return []
        heads = heads or self._heads()
        # Somebody may have pushed to the branch since, or removed it after merging.
        commits = [heads.at(record.branch) or record.commit for record in records]
        merged = self._merged(set(commits), heads)
        found = []
        for record, commit in zip(records, commits, strict=True):
            state = PullRequestState.CLOSED if record.is_closed else PullRequestState.OPEN
            state = PullRequestState.MERGED if commit in merged else state
            found.append(self._pull_request(record, commit, state))
        return found

    def _pull_request(self, record: PullRecord, commit: str, state: PullRequestState) -> PullRequest:
        return PullRequest(
            number=record.number,
            title=record.title,
            body=record.body,
            url=self._records.url(record),
            draft=record.draft,
            state=state,
            branch=record.branch,
            base=record.base,
            commit=commit,
            labels=record.labels,
        )
