"""A folder that acts as the forge of a repository on disk: pull requests and questions are JSON files."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta  # pydantic reads the annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.bot.forge.base import (
    Permission,
    Proposal,
    PullRequest,
    PullRequestState,
    Repository,
    TokenKind,
    Traffic,
)
from orchestrator.core.checks import first_problem
from orchestrator.core.errors import (
    DiskFullError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeUnavailableError,
)
from orchestrator.core.files import LONGEST_WAIT_SECONDS, is_full, lock_file, make_folder, replace_file
from orchestrator.core.prompts import one_line
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import NoReturn

    from orchestrator.bot.forge.base import (
        AttachmentPlace,
        Check,
        Comment,
        Feedback,
        Issue,
        IssueHistory,
        OwnCheck,
        RequestQuota,
    )
    from orchestrator.core.clock import Clock
    from orchestrator.core.redaction import Credential


class StoredModel(BaseModel):
    """A part of a file. Unknown fields are ignored: a later version may write more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class LocalRecord(StoredModel):
    """The fields of every `<folder>/<number>.json`. `schema_version` grows when an older program could misread it."""

    folder: ClassVar[str]
    schema_version: Literal[1] = 1
    number: int
    created_at: datetime
    updated_at: datetime


class CommentRecord(StoredModel):
    """A comment of ours on a pull request."""

    key: str
    body: str


class PullRecord(LocalRecord):
    """A pull request. `commit` is the branch's head when it was last written."""

    folder = "pulls"
    title: str
    body: str
    branch: str
    base: str
    commit: str
    draft: bool
    is_closed: bool = False
    comments: tuple[CommentRecord, ...] = ()
    labels: tuple[str, ...] = ()


class QuestionRecord(LocalRecord):
    """A question to a person."""

    folder = "questions"
    key: str
    body: str


class PlaceRecord(StoredModel):
    """`repository.json`: the repository that this folder belongs to."""

    schema_version: Literal[1] = 1
    path: str


_TITLE_CHARS = 200
M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=LocalRecord)


def _read(path: Path, form: type[M]) -> M:
    """Read one file. A `ForgeError` names the file if it cannot be read, or has another form."""
    try:
        with _file_errors("read", path):
            return form.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = first_problem(error)
        raise ForgeError(f"{path} is damaged ({problem}): repair it or remove it") from None


def _read_all(root: Path, form: type[R]) -> list[R]:
    """Read all records of a kind, newest first, except empty ones, which only reserve a number."""
    folder = root / form.folder
    if not folder.is_dir():
        return []
    with _file_errors("read", folder):
        paths = [path for path in folder.glob("*.json") if path.stem.isdecimal() and path.stat().st_size]
    return [_read(path, form) for path in sorted(paths, key=lambda path: int(path.stem), reverse=True)]


def take_number(folder: Path) -> int:
    """Reserve the next free number by creating its file, which fails in every other process."""
    with _file_errors("write", folder):
        make_folder(folder)
        numbers = (int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal())
        for number in itertools.count(max(numbers, default=0) + 1):
            with suppress(FileExistsError):
                os.close(os.open(folder / f"{number}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                break
    return number


def save_record(path: Path, record: BaseModel) -> None:
    """Replace a file atomically: a reader sees the old text or the new one."""
    text = record.model_dump_json(indent=2) + "\n"
    with _file_errors("write", path):
        make_folder(path.parent)
        replace_file(path, text.encode(), 0o600)


@contextmanager
def _file_errors(verb: str, path: Path) -> Iterator[None]:
    """Convert errors of the file system; `verb` and the path are in the message."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DiskFullError(f"cannot {verb} {path}: the disk is full") from error
        raise ForgeError(f"cannot {verb} {path}: {error.strerror or error}") from error


PLACE_FILE = "repository.json"


def root_of(state: Path, repository_path: Path) -> Path:
    """Return the folder below the state folder for a repository: a readable name and the digest of its path."""
    path = repository_path.resolve()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name.removesuffix(".git"))[:40].strip("-.") or "repository"
    return state / "forge" / f"{slug}-{digest}"


def places(state: Path) -> dict[Path, Path]:
    """Return every folder below a state folder that acts as a forge, with the path of its repository.

    The repository may not exist any more.
    """
    found = sorted((state / "forge").glob(f"*/{PLACE_FILE}"))
    return {file.parent: Path(_read(file, PlaceRecord).path) for file in found}


class Git(Protocol):
    """What git says about the repository, read anew by one or two processes for each answer."""

    def heads(self) -> tuple[str | None, Mapping[str, str]]:
        """Return the branch that HEAD names, and each branch's commit.

        The branch is None if HEAD names none or the branch has no commit.
        """

    def read_file(self, path: str, commit: str) -> str | None:
        """Return a file's text in a commit, or None if there is no such file."""

    def merged(self, commits: Collection[str], into: str) -> Collection[str]:
        """Return those of the commits that are in the history of the commit `into`. Missing commits are left out."""


class MergeBranch(Protocol):
    """Merges a branch into another one of the repository. `orchestrator.bot.git.local.merge_branch` is one."""

    def __call__(self, repository: Path, branch: str, *, commit: str, base: str, message: str) -> str:
        """Return the merge's commit.

        Raises:
            WorkspaceError: they conflict, or git refused. Nothing was changed then.
        """


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person."""

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
        commits: the commits, by branch.
    """

    default: str | None
    target: str | None
    commits: Mapping[str, str]

    def at(self, branch: str | None) -> str | None:
        """Return a branch's commit, or None if there is no such branch."""
        return None if branch is None else self.commits.get(branch)


class LocalForge:
    """A forge for a repository on disk.

    Methods ask git anew at each call, because others push meanwhile. Only `read_file` may be asked for an earlier
    moment.

    Args:
        root: the folder of this forge, as `root_of` returns it; created with the first record.
        repository_path: the repository, bare or with a working tree.
        git: answers questions about the repository.
        base: the branch that pull requests are for, if it is not the default branch. With a detached HEAD it
            is the default branch too.
        clock: gives the times in the files.
        redactor: removes secrets from all texts that are written; None for one that knows only their forms.
    """

    def __init__(  # noqa: PLR0913  all but three are given by name
        self,
        root: Path,
        repository_path: Path,
        git: Git,
        *,
        base: str | None = None,
        clock: Clock,
        redactor: Redactor | None = None,
    ) -> None:
        self._redactor = redactor or Redactor()
        self._root, self._path = root, repository_path.resolve()
        self._git, self._base, self._clock = git, base, clock
        self._seen: tuple[str, _Heads] | None = None

    def repository(self) -> Repository:
        """Return the repository itself."""
        if not self._path.is_dir():
            raise ForgeNotFoundError(f"no such repository: {self._path}")
        return Repository(self._path.name, str(self._path), self._heads().default, self._path.as_uri())

    def labelled_by(self, number: int, label: str) -> str | None:  # noqa: ARG002  the same for every label
        """Return None: a local repository does not record who adds labels."""
        self._pull(number)
        return None

    def attachment(self, url: str) -> AttachmentPlace | None:
        """Return None: a local repository has no attachments."""

    def signed_image(self, number: int, url: str) -> None:
        """Return None: a local repository has no attachments."""

    def read_file(self, path: str, fingerprint: str = "") -> str | None:
        """Return a file's text on the default branch, now or at the moment of the fingerprint; None if there is none."""
        heads = self._seen[1] if self._seen and self._seen[0] == fingerprint else self._heads()
        commit = heads.at(heads.default)
        return None if commit is None else self._git.read_file(path, commit)

    def pull_requests(self) -> list[PullRequest]:
        """Return all pull requests, newest first."""
        return self._as_pull_requests(self._pulls())

    def questions(self) -> list[Question]:
        """Return all questions, newest first."""
        return [
            Question(one.number, one.key, one.body, self._url(one), one.created_at)
            for one in _read_all(self._root, QuestionRecord)
        ]

    def pull_request(self, number: int) -> PullRequest:
        """Return one pull request, read now."""
        heads = self._heads()
        [found] = self._as_pull_requests([self._pull(number)], heads)
        # The last commit of a deleted branch can be fetched until git's garbage collection.
        reference = f"refs/heads/{found.branch}" if found.branch in heads.commits else found.commit
        return replace(found, reference=reference)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Return the pull requests whose branch has this prefix, newest first."""
        return self._as_pull_requests([one for one in self._pulls() if one.branch.startswith(branch_prefix)])

    def why_not_pushed(self, branch: str, email: str) -> str | None:  # noqa: ARG002  a local repository has no rules
        """Return None: what the repository's hooks refuse shows only in a push."""
        return None

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create the pull request of this branch, or update the open one."""
        heads = self._heads()
        commit = heads.at(proposal.branch)
        if commit is None:
            reason = f"{self._path} has no branch {proposal.branch}: push it first"
            raise ForgeError(f"cannot open a pull request: {reason}")
        if commit in self._merged([commit], heads):
            reason = f"no commits between {proposal.base} and {proposal.branch}"
            raise ForgeError(f"cannot open a pull request: {reason}")
        title, body = self._redactor.redact(proposal.title), self._redactor.redact(proposal.body)
        proposal = replace(proposal, title=title, body=body)
        with self._lock():
            there = (one for one in self._pulls() if one.branch == proposal.branch)
            known = next((one for one in there if not one.is_closed), None)
            if known is None:
                record = self._new_pull(proposal, commit)
            else:
                record = self._change(known, title=proposal.title, body=proposal.body, commit=commit)
        return self._pull_request(record, commit, PullRequestState.OPEN), known is None

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:  # noqa: ARG002  no issues here
        """Write a question to a file, or replace the one with this key. Returns the file's URI."""
        with self._lock():
            self._write_place()
            now = self._clock.now()
            known = next((one for one in _read_all(self._root, QuestionRecord) if one.key == key), None)
            number = known.number if known else take_number(self._root / QuestionRecord.folder)
            created = known.created_at if known else now
            clean = self._redactor.redact(body)
            record = QuestionRecord(number=number, created_at=created, updated_at=now, key=key, body=clean)
            save_record(self._file(record), record)
        return self._url(record)

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Store a comment in the pull request's file, or replace the one with this key; an empty one removes it."""
        with self._lock():
            record = self._pull(number)
            made = CommentRecord(key=key, body=self._redactor.redact(body))
            there = tuple(made if old.key == key else old for old in record.comments)
            comments = there if made in there else (*there, made)
            self._change(record, comments=tuple(one for one in comments if one.body.strip()))
        return f"{self._url(record)}#{quote(key, safe='')}"

    def ensure_label(self, number: int, label: str) -> None:
        """Add a label to the pull request's file unless it is there."""
        with self._lock():
            record = self._pull(number)
            if label.lower() not in {name.lower() for name in record.labels}:
                self._change(record, labels=(*record.labels, label))

    def make_label(self, label: str, description: str) -> bool:  # noqa: ARG002  labels are only words in files
        """Return False: labels exist only as words in the files of pull requests."""
        return False

    def remove_label(self, number: int, label: str) -> None:
        """Remove a label from the pull request's file if it is there."""
        with self._lock():
            record = self._pull(number)
            kept = tuple(name for name in record.labels if name.lower() != label.lower())
            self._change(record, labels=kept)

    def feedback(self, number: int) -> list[Feedback]:
        """Return no feedback: there are no reviews and comments of people here."""
        self._pull(number)
        return []

    def our_comments(self, number: int) -> list[str]:
        """Return the texts of the comments on a pull request, oldest first."""
        return [comment.body for comment in self._pull(number).comments]

    def fingerprint(self) -> str:
        """Return a text that stays the same while no record, no branch of ours and no default branch changes."""
        heads, pulls = self._heads(), self._pulls()
        branch = heads.default, heads.at(heads.default)
        questions = _read_all(self._root, QuestionRecord)
        state = (branch, pulls, self._as_pull_requests(pulls, heads), questions)
        digest = hashlib.sha256(repr(state).encode()).hexdigest()
        self._seen = digest, heads
        return digest

    def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request unmerged, which means "no": its task is not taken again."""
        with self._lock():
            record = self._pull(number)
            [pull] = self._as_pull_requests([record])
            if pull.state is PullRequestState.MERGED:
                raise ForgeError(f"pull request #{number} is merged: there is nothing to close")
            self._change(record, is_closed=True)
            return replace(pull, state=PullRequestState.CLOSED)

    def merge_pull_request(self, number: int, merge: MergeBranch) -> PullRequest:
        """Merge an open pull request into its base, and remove its branch."""
        pull = self.pull_request(number)
        if pull.state is not PullRequestState.OPEN:
            raise ForgeError(f"pull request #{number} is {pull.state}: there is nothing to merge")
        with self._lock():
            self._change(self._pull(number), commit=pull.commit)
            message = f"Merge pull request #{number}: {one_line(pull.title, limit=_TITLE_CHARS)}"
            merge(self._path, pull.branch, commit=pull.commit, base=pull.base, message=message)
        return replace(pull, state=PullRequestState.MERGED)

    # A local repository has no issues, people, checks or server.

    def credential(self) -> Credential | None:
        """Return None: git needs no credential here."""
        return None

    def open_issues(self, label: str) -> list[Issue]:  # noqa: ARG002  there are none of any label
        """Return an empty list: a local repository has no issues."""
        return []

    def labelled_issues(self, label: str) -> list[int]:  # noqa: ARG002  there are none of any label
        """Return an empty list: a local repository has no issues."""
        return []

    def issue(self, number: int) -> Issue:
        """Raise `ForgeNotFoundError`: a local repository has no issues."""
        self._raise_no_issue(number)

    def history(self, number: int, label: str) -> IssueHistory:  # noqa: ARG002  there is none of any label
        """Raise `ForgeNotFoundError`: a local repository has no issues."""
        self._raise_no_issue(number)

    def comments(self, number: int) -> list[Comment]:
        """Raise `ForgeNotFoundError`: people do not comment here."""
        self._raise_no_issue(number)

    def permission(self, login: str) -> Permission:  # noqa: ARG002  the disk's permissions know no logins
        """Return `NONE`: there are no logins here. The disk's permissions decide who may write."""
        return Permission.NONE

    def blockers(self, issue: Issue) -> list[Issue]:  # noqa: ARG002  there are no issues
        """Return an empty list: a local repository has no issues."""
        return []

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Raise `ForgeNotFoundError`: a local repository has no issues."""
        self._raise_no_issue(number)

    def has_conflict(self, number: int) -> bool:  # noqa: ARG002  nothing tries the merge
        """Return False: a local repository does not try merges."""
        return False

    def checks(self, commit: str) -> list[Check]:  # noqa: ARG002  no commit has any
        """Return an empty list: a local repository has no checks."""
        return []

    def ensure_check(self, check: OwnCheck) -> str:  # noqa: ARG002  there are none
        """Raise `ForgePermissionError`: a local repository has no check runs."""
        raise ForgePermissionError("a local repository has no check runs")

    def attestations(self, digest: str) -> list[dict[str, Any]]:
        """Return an empty list: a local repository keeps no attestations."""
        del digest
        return []

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Return an empty list: a local repository has no checks."""
        del checks, commit, base
        return []

    def traffic(self) -> Traffic:
        """Return zero requests: there is no server."""
        return Traffic()

    def quotas(self) -> Sequence[RequestQuota]:
        """Return none: there is no server."""
        return ()

    def ahead(self) -> timedelta:
        """Return zero: the clock is ours."""
        return timedelta(0)

    def begin_step(self) -> None:
        """Do nothing: no credential is shown."""

    def own_login(self) -> str | None:
        """Return None: there are no logins here."""
        return None

    def token_kind(self) -> TokenKind:
        """Return `TokenKind.NONE`: there are no tokens here."""
        return TokenKind.NONE

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold a lock against other processes, so that reading and writing are one step.

        The lock is released when the process ends.
        """
        with _file_errors("write", self._root):
            make_folder(self._root)
            try:
                handle = lock_file(self._root / "lock", LONGEST_WAIT_SECONDS)
            except BlockingIOError as error:
                raise ForgeUnavailableError(f"cannot write {self._root}: {error.strerror}") from error
        try:
            yield
        finally:
            os.close(handle)

    def _pulls(self) -> list[PullRecord]:
        return _read_all(self._root, PullRecord)

    def _pull(self, number: int) -> PullRecord:
        record = next((record for record in self._pulls() if record.number == number), None)
        if record is None:
            raise ForgeNotFoundError(f"no pull request #{number} of {self._path}")
        return record

    def _new_pull(self, proposal: Proposal, commit: str) -> PullRecord:
        self._write_place()
        now, number = self._clock.now(), take_number(self._root / PullRecord.folder)
        facts = asdict(proposal)
        record = PullRecord(number=number, created_at=now, updated_at=now, commit=commit, **facts)
        save_record(self._file(record), record)
        return record

    def _change(self, record: PullRecord, **changes: object) -> PullRecord:
        """Change fields of a pull request, and write it if they differ."""
        changed = record.model_copy(update=changes)
        if changed == record:
            return record
        changed = changed.model_copy(update={"updated_at": self._clock.now()})
        save_record(self._file(record), changed)
        return changed

    def _url(self, record: LocalRecord) -> str:
        return self._file(record).as_uri()

    def _file(self, record: LocalRecord) -> Path:
        return (self._root / record.folder / f"{record.number}.json").absolute()

    def _write_place(self) -> None:
        """Record which repository the folder belongs to, for `places`."""
        file = self._root / PLACE_FILE
        if not file.exists():
            save_record(file, PlaceRecord(path=str(self._path)))

    def _heads(self) -> _Heads:
        named, commits = self._git.heads()
        default = named or self._base
        return _Heads(default, self._base or default, commits)

    def _merged(self, commits: Collection[str], heads: _Heads) -> Collection[str]:
        into = heads.at(heads.target)
        return () if into is None or not commits else self._git.merged(commits, into)

    def _as_pull_requests(
        self, records: Sequence[PullRecord], heads: _Heads | None = None
    ) -> list[PullRequest]:
        """Return the records as pull requests, with their state according to git."""
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
            url=self._url(record),
            draft=record.draft,
            state=state,
            branch=record.branch,
            base=record.base,
            commit=commit,
            labels=record.labels,
        )

    def _raise_no_issue(self, number: int) -> NoReturn:
        raise ForgeNotFoundError(
            f"no issue #{number}: a local repository has no issues, use --task TEXT or a BACKLOG.md"
        )
