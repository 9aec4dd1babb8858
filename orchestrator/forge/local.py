"""A folder that plays GitHub for a repository on disk: pull requests and questions are JSON files."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ForgeError, ForgeNotFoundError
from orchestrator.forge.base import Credential, Issue, Proposal, PullRequest, PullRequestState, Repository
from orchestrator.forge.local_files import (
    PlaceRecord,
    PullRecord,
    QuestionRecord,
    alone,
    read,
    read_all,
    take_number,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from orchestrator.core.clock import Clock

_PLACE_FILE = "repository.json"


@dataclass(frozen=True, slots=True)
class Question:
    """A question that waits for a person."""

    number: int
    key: str
    body: str
    url: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A folder that plays GitHub, and the repository that it does so for, which may be gone."""

    root: Path
    repository_path: Path


def root_of(state: Path, repository_path: Path) -> Path:
    """Where the state folder keeps what belongs to a repository: a readable name, and its path's digest."""
    path = repository_path.resolve()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name.removesuffix(".git"))[:40].strip("-.") or "repository"
    return state / "forge" / f"{slug}-{digest}"


def places(state: Path) -> list[LocalPlace]:
    """Every folder that plays GitHub below a state folder, by name.

    Raises:
        ForgeError: one of them is damaged.
    """
    found = sorted((state / "forge").glob(f"*/{_PLACE_FILE}"))
    return [LocalPlace(file.parent, type(file)(read(file, PlaceRecord).path)) for file in found]


class LocalForge:
    """A forge for a repository on disk.

    Args:
        root: the folder of this forge, as `root_of` gives it; made when there is something to write.
        repository_path: the repository, bare or with a work tree.
        default_branch: its default branch, None while it is empty.
        read_file: a file's text on the default branch, by path, or None.
        is_merged: whether the default branch contains a commit.
        branch_commit: a branch's head, or None where there is no such branch.
        clock: for the times in the files.
    """

    def __init__(  # noqa: PLR0913  git belongs to another room, so its answers come in as callables
        self,
        root: Path,
        repository_path: Path,
        *,
        default_branch: Callable[[], str | None],
        read_file: Callable[[str], str | None],
        is_merged: Callable[[str], bool],
        branch_commit: Callable[[str], str | None],
        clock: Clock,
    ) -> None:
        self._root = root
        self._path = repository_path.resolve()
        self._default_branch = default_branch
        self._read_file = read_file
        self._is_merged = is_merged
        self._branch_commit = branch_commit
        self._clock = clock

    def repository(self) -> Repository:
        """The repository itself.

        Raises:
            ForgeNotFoundError: its folder is gone.
        """
        if not self._path.is_dir():
            raise ForgeNotFoundError(f"no such repository: {self._path}")
        return Repository(self._path.name, str(self._path), self._default_branch(), self._path.as_uri())

    def credential(self) -> Credential | None:
        """None: a folder needs none."""
        return None

    def open_issues(self, label: str) -> list[Issue]:  # noqa: ARG002  there are none of any label
        """Empty: a folder has no issues."""
        return []

    def issue(self, number: int) -> Issue:
        """Never one.

        Raises:
            ForgeNotFoundError: always.
        """
        raise ForgeNotFoundError(
            f"no issue #{number}: a local repository has no issues: use --task TEXT or a BACKLOG.md"
        )

    def read_file(self, path: str) -> str | None:
        """A file's text on the default branch, or None where there is none."""
        return self._read_file(path)

    def pull_requests(self) -> list[PullRequest]:
        """All of them, newest first."""
        return [self._pull_request(record) for record in self._pull_records()]

    def questions(self) -> list[Question]:
        """All of them, newest first."""
        return [
            Question(r.number, r.key, r.body, self._file("questions", r.number).as_uri(), r.created_at)
            for r in self._question_records()
        ]

    def our_pull_requests(self, branch_prefix: str) -> list[PullRequest]:
        """Those whose branch begins so, newest first."""
        return [pull for pull in self.pull_requests() if pull.branch.startswith(branch_prefix)]

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or bring the open one up to date.

        Raises:
            ForgeError: there is no such branch, or nothing in it that the default branch lacks.
        """
        commit = self._branch_commit(proposal.branch)
        if commit is None:
            raise ForgeError(
                f"cannot open a pull request: {self._path} has no branch {proposal.branch}: push it first"
            )
        with alone(self._root):
            self._sign()
            known = next((r for r in self._pull_records() if self._is_open_on(r, proposal.branch)), None)
            if known is None and self._is_merged(commit):
                raise ForgeError(
                    f"cannot open a pull request: no commits between {proposal.base} and {proposal.branch}"
                )
            now = self._clock.now()
            if known is None:
                record = self._new(proposal, commit, now)
            else:
                said = {"title": proposal.title, "body": proposal.body, "commit": commit}
                record = known.model_copy(update=said)
                record = record if record == known else record.model_copy(update={"updated_at": now})
            if record != known:
                write(self._file("pulls", record.number), record)
        return self._pull_request(record), known is None

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:  # noqa: ARG002  no issues here
        """Put a question into a file, or replace the one with this key. Returns the file's URI."""
        with alone(self._root):
            self._sign()
            now = self._clock.now()
            known = next((record for record in self._question_records() if record.key == key), None)
            if known is None:
                number = take_number(self._root / "questions")
                record = QuestionRecord(number=number, created_at=now, updated_at=now, key=key, body=body)
            else:
                record = known.model_copy(update={"body": body, "updated_at": now})
            write(self._file("questions", record.number), record)
        return self._file("questions", record.number).as_uri()

    def close(self, number: int) -> PullRequest:
        """Close a pull request unmerged, which means "no": its task is not taken again.

        Raises:
            ForgeNotFoundError: there is none of this number.
            ForgeError: it is merged.
        """
        with alone(self._root):
            record = next((r for r in self._pull_records() if r.number == number), None)
            if record is None:
                raise ForgeNotFoundError(f"no pull request #{number} of {self._path}")
            if self._pull_request(record).state is PullRequestState.MERGED:
                raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
            if not record.is_closed:
                record = record.model_copy(update={"is_closed": True, "updated_at": self._clock.now()})
                write(self._file("pulls", number), record)
        return self._pull_request(record)

    def _pull_records(self) -> list[PullRecord]:
        return read_all(self._root / "pulls", PullRecord)

    def _question_records(self) -> list[QuestionRecord]:
        return read_all(self._root / "questions", QuestionRecord)

    def _file(self, kind: str, number: int) -> Path:
        return (self._root / kind / f"{number}.json").absolute()

    def _sign(self) -> None:
        """Leave word of whose folder this is, for `places`."""
        file = self._root / _PLACE_FILE
        if not file.exists():
            write(file, PlaceRecord(path=str(self._path)))

    def _new(self, proposal: Proposal, commit: str, now: datetime) -> PullRecord:
        return PullRecord(
            number=take_number(self._root / "pulls"),
            created_at=now,
            updated_at=now,
            title=proposal.title,
            body=proposal.body,
            branch=proposal.branch,
            base=proposal.base,
            commit=commit,
            draft=proposal.draft,
        )

    def _is_open_on(self, record: PullRecord, branch: str) -> bool:
        return record.branch == branch and self._pull_request(record).state is PullRequestState.OPEN

    def _pull_request(self, record: PullRecord) -> PullRequest:
        # Somebody may have pushed to the branch since, or removed it after merging.
        commit = self._branch_commit(record.branch) or record.commit
        state = PullRequestState.CLOSED if record.is_closed else PullRequestState.OPEN
        if self._is_merged(commit):
            state = PullRequestState.MERGED
        return PullRequest(
            number=record.number,
            title=record.title,
            body=record.body,
            url=self._file("pulls", record.number).as_uri(),
            draft=record.draft,
            state=state,
            branch=record.branch,
            base=record.base,
            commit=commit,
        )
