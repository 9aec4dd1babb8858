"""A folder that plays GitHub for a repository on disk: pull requests and questions are JSON files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.core.errors import ForgeError, ForgeNotFoundError
from orchestrator.forge.base import (
    Credential,
    Permission,
    Proposal,
    PullRequest,
    PullRequestState,
    Repository,
    TokenKind,
    Traffic,
)
from orchestrator.forge.local_files import (
    CommentRecord,
    PlaceRecord,
    PullRecord,
    QuestionRecord,
    alone,
    read_all,
    take_number,
    write,
)
from orchestrator.forge.local_places import PLACE_FILE, LocalPlace, places, root_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path
    from typing import NoReturn

    from orchestrator.core.clock import Clock
    from orchestrator.forge.base import Check, Comment, Feedback, Issue, IssueHistory

__all__ = ["LocalForge", "LocalPlace", "Question", "places", "root_of"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that waits for a person."""

    number: int
    key: str
    body: str
    url: str
    created_at: datetime


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
            ForgeNotFoundError: always, as do `history` and `comments`.
        """
        self._no_issue(number)

    def history(self, number: int, label: str) -> IssueHistory:  # noqa: ARG002  there is none of any label
        """Never one."""
        self._no_issue(number)

    def labelled_by(self, number: int, label: str) -> None:  # noqa: ARG002  whichever it is
        """Nobody that is known."""
        self._record(number)

    def comments(self, number: int) -> list[Comment]:
        """Never any: people do not talk in a folder."""
        self._no_issue(number)

    def permission(self, login: str) -> Permission:  # noqa: ARG002  the disk's permissions know no logins
        """Always `NONE`: nobody has a name here. Who may write is up to the disk."""
        return Permission.NONE

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
            missing = f"{self._path} has no branch {proposal.branch}: push it first"
            raise ForgeError(f"cannot open a pull request: {missing}")
        with alone(self._root):
            self._sign()
            known = next((r for r in self._pull_records() if self._is_open_on(r, proposal.branch)), None)
            if known is None and self._is_merged(commit):
                between = f"no commits between {proposal.base} and {proposal.branch}"
                raise ForgeError(f"cannot open a pull request: {between}")
            if known is None:
                record = self._new(proposal, commit)
                write(self._file("pulls", record.number), record)
            else:
                record = self._save(known, title=proposal.title, body=proposal.body, commit=commit)
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

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Keep a comment in the pull request's file, or replace the one with this key; an empty one removes it.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        with alone(self._root):
            record = self._record(number)
            made = CommentRecord(key=key, body=body)
            there = tuple(made if old.key == key else old for old in record.comments)
            comments = there if made in there else (*there, made)
            self._save(record, comments=tuple(one for one in comments if one.body.strip()))
        return f"{self._file('pulls', number).as_uri()}#{quote(key, safe='')}"

    def ensure_label(self, number: int, label: str) -> None:
        """Keep a label in the pull request's file, unless it is there.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        with alone(self._root):
            record = self._record(number)
            if label.lower() not in {name.lower() for name in record.labels}:
                self._save(record, labels=(*record.labels, label))

    def remove_label(self, number: int, label: str) -> None:
        """Take a label out of the pull request's file, if it is there.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        with alone(self._root):
            record = self._record(number)
            kept = tuple(name for name in record.labels if name.lower() != label.lower())
            self._save(record, labels=kept)

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Never any: there are no issues to be linked to."""
        self._no_issue(number)

    def feedback(self, number: int) -> list[Feedback]:
        """Empty: people do not talk in a folder.

        Raises:
            ForgeNotFoundError: there is no pull request of this number.
        """
        self._record(number)
        return []

    def has_conflict(self, number: int) -> bool:  # noqa: ARG002  nobody merges here but people
        """Never: nobody looks."""
        return False

    def checks(self, commit: str) -> list[Check]:  # noqa: ARG002  no commit has any
        """Empty: nothing checks a folder."""
        return []

    def pulse(self) -> str:
        """The same while no file here, no branch of ours and no default branch changes."""
        branch = self._default_branch()
        head = self._branch_commit(branch) if branch else None
        state = (branch, head, self._pull_records(), self.pull_requests(), self._question_records())
        return hashlib.sha256(repr(state).encode()).hexdigest()

    def traffic(self) -> Traffic:
        """None: nobody is asked."""
        return Traffic()

    def own_login(self) -> str | None:
        """None: nobody has a name here."""
        return None

    def token_kind(self) -> TokenKind:
        """None: a folder needs none."""
        return TokenKind.NONE

    def close(self, number: int) -> PullRequest:
        """Close a pull request unmerged, which means "no": its task is not taken again.

        Raises:
            ForgeNotFoundError: there is none of this number.
            ForgeError: it is merged.
        """
        with alone(self._root):
            record = self._record(number)
            if self._pull_request(record).state is PullRequestState.MERGED:
                raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
            return self._pull_request(self._save(record, is_closed=True))

    def _no_issue(self, number: int) -> NoReturn:
        raise ForgeNotFoundError(
            f"no issue #{number}: a local repository has no issues: use --task TEXT or a BACKLOG.md"
        )

    def _record(self, number: int) -> PullRecord:
        record = next((r for r in self._pull_records() if r.number == number), None)
        if record is None:
            raise ForgeNotFoundError(f"no pull request #{number} of {self._path}")
        return record

    def _save(self, record: PullRecord, **changes: object) -> PullRecord:
        """The record with these changes, written if they change it."""
        changed = record.model_copy(update=changes)
        if changed == record:
            return record
        changed = changed.model_copy(update={"updated_at": self._clock.now()})
        write(self._file("pulls", record.number), changed)
        return changed

    def _pull_records(self) -> list[PullRecord]:
        return read_all(self._root / "pulls", PullRecord)

    def _question_records(self) -> list[QuestionRecord]:
        return read_all(self._root / "questions", QuestionRecord)

    def _file(self, kind: str, number: int) -> Path:
        return (self._root / kind / f"{number}.json").absolute()

    def _sign(self) -> None:
        """Leave word of whose folder this is, for `places`."""
        file = self._root / PLACE_FILE
        if not file.exists():
            write(file, PlaceRecord(path=str(self._path)))

    def _new(self, proposal: Proposal, commit: str) -> PullRecord:
        now = self._clock.now()
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
