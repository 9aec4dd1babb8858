"""GitHub on loopback: REST with the rules of the real one, and real git behind it."""

from __future__ import annotations

import functools
import json
import secrets
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import pytest

from orchestrator.app.plugins import own_names
from tests.doubles.github import bare, people
from tests.doubles.github.handler import Handler
from tests.doubles.github.render import Renderer
from tests.doubles.github.routes import Routes
from tests.doubles.github.state import App, Comment, Grant, Issue, Pull, Repo
from tests.doubles.templates import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from tests.doubles.github.faults import Fault
    from tests.doubles.lfs_server import LfsStore

ALL = {"contents": "write", "issues": "write", "pull_requests": "write", "workflows": "write"}
START = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_FILES: Mapping[str, str | bytes | None] = {"README.md": "# Example\n"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request that arrived. Header names are lower case; `token` is what it showed.

    `path` is below the API's root for REST, and the whole path for git.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    token: str | None
    body: Any
    status: int


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    github: GitHub

    def __init__(self, github: GitHub) -> None:
        self.github = github
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  the stdlib calls it so
        """A client that hangs up is no news; a defect of the double is a violation."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.github.violations.append(f"the double failed: {error!r}")


class GitHub:
    """A GitHub that lives as long as the `with` block.

    Attributes:
        faults: replies that go wrong on purpose; the first match strikes.
        requests: every REST and git request that arrived, in order.
        probes: how often it was asked, without a credential, whether it is GitHub.
        queries: every GraphQL query that arrived, in order.
        attachments: files by path, as people drop them into an issue; who shows no token gets none.
        nobodies: logins that no account has, in lower case.
        violations: requests and replies that GitHub's own description does not allow.
        now: the time by which installation tokens expire; the machine's unless a test sets it.
    """

    def __init__(self, folder: Path) -> None:
        if "github" not in own_names():
            pytest.skip("the plug-in github is not there")
        self.folder = folder
        self.lfs: LfsStore | None = None
        self.faults: list[Fault] = []
        self.requests: list[Recorded] = []
        self.probes = 0
        self.queries: list[Recorded] = []
        self.nobodies: set[str] = set()
        self.violations: list[str] = []
        self.lock = threading.RLock()
        self.reset_at = int((START + timedelta(hours=1)).timestamp())
        self.remaining = 5000
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.skew: timedelta | None = None
        """How far its clock is ahead of this machine's; None tells no time."""
        self.repositories: list[Repo] = []
        self.grants: dict[str, Grant] = {}
        self.attachments: dict[str, bytes] = {}
        self.apps: list[App] = []
        self._ticks = 0
        self._ids = 1000
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.web_url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.web_url}/api/v3"
        self.render = Renderer(self.web_url, self.url)
        self.routes = Routes(self)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # What a test sets up.

    def add_repository(
        self,
        full_name: str,
        files: Mapping[str, str | bytes | None] | None = DEFAULT_FILES,
        *,
        private: bool = False,
        default_branch: str = "main",
    ) -> Repo:
        """A repository with a first commit of these files; None leaves it empty."""

        def make(template: Path) -> None:
            bare.create(template, default_branch)
            if files is not None:
                bare.commit(template, files, branch=default_branch, message="First commit")

        path = self.folder / f"{full_name}.git"
        copied(path, ("bare", default_branch, files if files is None else tuple(files.items())), make)
        repo = Repo(self.next_id(), full_name, path, self.tick(), private, default_branch)
        self.repositories.append(repo)
        return repo

    def add_issue(
        self,
        repo: Repo,
        title: str,
        body: str | None = "",
        labels: Iterable[str] = (),
        author: str = "reporter",
    ) -> Issue:
        """An open issue, later than everything before it, labelled by its author as it was made.

        `reporter` may write to every repository; who else may is set with `people.collaborate`.
        """
        now = self.tick()
        issue = Issue(self.next_number(repo), title, body, author, now, now)
        people.label_all(self, issue, labels, author)
        repo.threads[issue.number] = issue
        return issue

    def add_comment(self, repo: Repo, number: int, body: str, author: str = "reporter") -> Comment:
        """A comment by somebody on an issue or pull request."""
        now = self.tick()
        comment = Comment(self.next_id(), number, author, body, now, now)
        repo.threads[number].comments.append(comment)
        repo.threads[number].updated_at = now
        return comment

    def add_pull(
        self, repo: Repo, head: str, *, title: str = "", fork: str | None = None, author: str = "ada"
    ) -> Pull:
        """An open pull request that was there before, without a check of its branches.

        `fork` is the `owner/name` of another repository that it comes from.
        """
        now = self.tick()
        pull = Pull(self.next_number(repo), title or f"Pull {head}", "", author, now, now)
        pull.head, pull.base, pull.fork = head, repo.default_branch, fork
        pull.head_sha = pull.base_sha = "0" * 40
        repo.threads[pull.number] = pull
        return pull

    def commit(
        self,
        repo: Repo,
        files: Mapping[str, str | bytes | None],
        *,
        branch: str | None = None,
        message: str = "A commit by somebody else",
    ) -> str:
        """Somebody pushes a commit; a new branch starts at the default branch. Returns its id."""
        start = repo.default_branch if repo.default_branch in repo.branches() else None
        return bare.commit(
            repo.path, files, branch=branch or repo.default_branch, message=message, start=start
        )

    def merge(self, repo: Repo, number: int) -> str:
        """Somebody merges a pull request, really. Returns the merge commit's id."""
        repo.refresh_heads()
        pull = repo.pulls[number]
        message = f"Merge pull request #{number}"
        commit = bare.merge(repo.path, base=pull.base, head=pull.head_sha, message=message)
        pull.merge_commit_sha = commit
        pull.state, pull.merged_at = "closed", self.tick()
        pull.closed_at = pull.updated_at = pull.merged_at
        return commit

    def close(self, repo: Repo, number: int) -> None:
        """Somebody closes an issue, or a pull request without merging it."""
        thread = repo.threads[number]
        thread.state, thread.closed_at = "closed", self.tick()
        thread.updated_at = thread.closed_at

    def transfer(self, repo: Repo, number: int, to: Repo) -> Issue:
        """Somebody moves an issue to another repository; its old address answers with a redirection."""
        issue = repo.issues[number]
        moved = self.add_issue(to, issue.title, issue.body, issue.labels, issue.author)
        moved.comments = issue.comments
        del repo.threads[number]
        repo.moved[number] = f"{to.full_name}/issues/{moved.number}"
        return moved

    def delete_issue(self, repo: Repo, number: int) -> None:
        """Somebody deletes an issue, which then is gone."""
        del repo.threads[number]
        repo.gone.add(number)

    def rename(self, repo: Repo, full_name: str) -> None:
        """The repository moves; its old name answers with a redirection."""
        repo.former_names.add(repo.full_name.lower())
        repo.full_name = full_name

    def token(
        self,
        login: str = "pullwright-bot",
        *,
        permissions: Mapping[str, str] | None = None,
        repositories: Iterable[str] | None = None,
        scopes: str | None = None,
        expires_at: datetime | None = None,
    ) -> str:
        """A personal access token.

        Args:
            login: whose it is.
            permissions: `contents`, `issues`, `pull_requests`: `read` or `write`; all if None.
            repositories: the full names that it covers; all if None.
            scopes: of a classic token, as GitHub writes them; None for a fine-grained one.
            expires_at: when it is worth nothing any more.
        """
        token = f"{'github_pat_' if scopes is None else 'ghp_'}{secrets.token_hex(20)}"
        covered = None if repositories is None else frozenset(repositories)
        may = ALL if permissions is None else permissions
        self.grants[token] = Grant(login, may, covered, expires_at=expires_at, scopes=scopes)
        return token

    def revoke(self, token: str) -> None:
        """The token is worth nothing from now on."""
        del self.grants[token]

    def app(
        self,
        repositories: Iterable[str],
        *,
        permissions: Mapping[str, str] | None = None,
        token_seconds: int = 3600,
    ) -> App:
        """A GitHub App with a key that no other app of this server has, installed on these repositories."""
        private_key, public_key = _key_pair(len(self.apps))
        number = len(self.apps) + 1
        app = App(
            id=4000 + number,
            slug=f"pullwright-app-{number}",
            private_key=private_key,
            public_key=public_key,
            installation=7000 + number,
            repositories=frozenset(repositories),
            permissions=ALL if permissions is None else permissions,
            token_seconds=token_seconds,
        )
        self.apps.append(app)
        return app

    def calls(self, method: str, path: str = "") -> list[Recorded]:
        """The recorded REST and git requests of a method whose path contains this."""
        return [seen for seen in self.requests if seen.method == method and path in seen.path]

    # What the routes need.

    def repository(self, full_name: str) -> Repo | None:
        """A repository by its name, or by a former one."""
        name = full_name.lower()
        for repo in self.repositories:
            if name == repo.full_name.lower():
                return repo
        return next((repo for repo in self.repositories if name in repo.former_names), None)

    def installation_token(self, app: App, repositories: Iterable[str]) -> tuple[str, datetime]:
        """A new token for an app's installation, good for these repositories only."""
        token = f"ghs_{app.id}_{secrets.token_hex(60)}"
        expires_at = self.now() + timedelta(seconds=app.token_seconds)
        grant = Grant(f"{app.slug}[bot]", app.permissions, frozenset(repositories), app, expires_at)
        self.grants[token] = grant
        return token, expires_at

    def tick(self) -> datetime:
        """A moment later than every one before."""
        with self.lock:
            self._ticks += 1
            return START + timedelta(seconds=self._ticks)

    def next_id(self) -> int:
        """A number that nothing else has."""
        with self.lock:
            self._ids += 1
            return self._ids

    def next_number(self, repo: Repo) -> int:
        """The next number of an issue or pull request."""
        return max(repo.threads, default=0) + 1

    def dump(self) -> str:
        """Everything that happened, for a person who looks at a failed test."""
        return json.dumps([f"{r.method} {r.path} -> {r.status}" for r in self.requests], indent=1)


@functools.cache
def _key_pair(_number: int) -> tuple[str, str]:
    """The keys of a server's first app, its second, and so on: the same ones in each test, for they take long."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()
