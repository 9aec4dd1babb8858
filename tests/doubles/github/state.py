"""What the double knows: repositories, issues, pull requests, comments, tokens, apps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.doubles.github import bare

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path


class Rejected(Exception):  # noqa: N818  it is an answer of the double, not a defect of it
    """GitHub says no: a status, a message, and what a validation found."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: list[dict[str, object]] | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


@dataclass(slots=True)
class Comment:
    """A comment on an issue or a pull request."""

    id: int
    number: int
    author: str
    body: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Happening:
    """A `labeled`, `unlabeled` or `renamed` of an issue. `label` is the label; a new title is `old`, `new`."""

    id: int
    kind: str
    actor: str
    at: datetime
    label: str = ""
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class BodyEdit:
    """A change of a body; the creation is the first of them, once there is a second."""

    editor: str
    at: datetime
    text: str = ""


@dataclass(slots=True)
class Thread:
    """What issues and pull requests share: they are numbered together."""

    number: int
    title: str
    body: str | None
    author: str
    created_at: datetime
    updated_at: datetime
    labels: list[str] = field(default_factory=list)
    state: str = "open"
    closed_at: datetime | None = None
    comments: list[Comment] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    body_edits: list[BodyEdit] = field(default_factory=list)
    assignees: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Issue(Thread):
    """An issue. `blocked_by` and `parts` are numbers of issues of the same repository."""

    blocked_by: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Said:
    """A review, or a comment on a line. `sent_at` is None as long as only its writer sees it."""

    id: int
    author: str
    body: str
    created_at: datetime
    sent_at: datetime | None
    edited_at: datetime | None = None


@dataclass(slots=True)
class Review(Said):
    """A review as a whole. `state` is as GraphQL writes it."""

    state: str = "COMMENTED"


@dataclass(slots=True)
class ReviewThread:
    """Comments on a line of a file; `line` is None where the line is gone."""

    path: str
    line: int | None
    comments: list[Said] = field(default_factory=list)
    is_resolved: bool = False


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A check run, or with `is_status` a commit status, of a commit. `result` is None while it runs."""

    id: int
    name: str
    result: str | None
    summary: str
    started_at: datetime
    ended_at: datetime | None
    is_status: bool = False
    app: int = 15368
    external_id: str = ""
    title: str = ""


@dataclass(slots=True)
class Pull(Thread):
    """A pull request. `closes` are issues that it says it closes. `fork` is the other repository's `owner/name` if it comes from one."""

    head: str = ""
    base: str = ""
    head_sha: str = ""
    base_sha: str = ""
    draft: bool = False
    fork: str | None = None
    merged_at: datetime | None = None
    merge_commit_sha: str | None = None
    mergeable_state: str = "unknown"
    closes: tuple[int, ...] = ()
    reviews: list[Review] = field(default_factory=list)
    review_threads: list[ReviewThread] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BranchRule:
    """A rule for all branches, and whether the one who asks may push past it."""

    kind: str
    bypass: str = "never"
    parameters: Mapping[str, object] | None = None


@dataclass(slots=True)
class Repo:
    """A repository with a real bare git repository behind it.

    `people` are its collaborators: by login, what they may do and the name of their role. `changes` are the files
    that a commit changes which is in no git repository. `labels` are those that were made for themselves.
    """

    id: int
    full_name: str
    path: Path
    created_at: datetime
    private: bool = False
    default_branch: str = "main"
    has_issues: bool = True
    archived: bool = False
    allows_drafts: bool = True
    threads: dict[int, Issue | Pull] = field(default_factory=dict)
    former_names: set[str] = field(default_factory=set)
    moved: dict[int, str] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    checks: dict[str, list[CheckRun]] = field(default_factory=dict)
    attestations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    changes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rules: dict[int, BranchRule] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    people: dict[str, tuple[str, str]] = field(default_factory=lambda: {"reporter": ("write", "write")})

    @property
    def owner(self) -> str:
        """The part of the full name before the slash."""
        return self.full_name.split("/")[0]

    @property
    def name(self) -> str:
        """The part of the full name after the slash."""
        return self.full_name.split("/")[1]

    @property
    def issues(self) -> dict[int, Issue]:
        """By number, pull requests left out."""
        return {n: thread for n, thread in self.threads.items() if isinstance(thread, Issue)}

    @property
    def pulls(self) -> dict[int, Pull]:
        """By number."""
        return {n: thread for n, thread in self.threads.items() if isinstance(thread, Pull)}

    def branches(self) -> dict[str, str]:
        """Every branch and its commit, as git has it now."""
        return bare.branches(self.path)

    def show(self, revision: str, path: str) -> bytes | None:
        """A file's bytes at a revision, or None."""
        return bare.show(self.path, revision, path)

    def refresh_heads(self) -> None:
        """Open pull requests follow their branches."""
        heads = self.branches()
        for pull in self.pulls.values():
            if pull.state == "open" and pull.fork is None:
                pull.head_sha = heads.get(pull.head, pull.head_sha)

    def refresh_pull_refs(self) -> None:
        """`refs/pull/N/head` is there for each pull request, also when its branch or its fork is gone."""
        self.refresh_heads()
        bare.set_refs(
            self.path, {f"refs/pull/{one.number}/head": one.head_sha for one in self.pulls.values()}
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token may do. `repositories` is None for all; permissions are `read` or `write`.

    `scopes` are those of a classic token, as GitHub writes them.
    """

    login: str
    permissions: Mapping[str, str]
    repositories: frozenset[str] | None = None
    app: App | None = None
    expires_at: datetime | None = None
    scopes: str | None = None

    def allows(self, repo: Repo, permission: str, level: str) -> bool:
        """Whether this token has the permission at this level on the repository."""
        if self.repositories is not None and repo.full_name not in self.repositories:
            return False
        held = self.permissions.get(permission, "none")
        return held == "write" or (held == "read" and level == "read")


@dataclass(frozen=True, slots=True)
class App:
    """A GitHub App, installed once on these repositories. The key is a PEM text."""

    id: int
    slug: str
    private_key: str
    public_key: str
    installation: int
    repositories: frozenset[str]
    permissions: Mapping[str, str]
    token_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: nobody, a token, or an app with its own signed word."""

    grant: Grant | None = None
    app: App | None = None

    @property
    def login(self) -> str:
        """The name under which things are created."""
        return self.grant.login if self.grant else "ghost"
