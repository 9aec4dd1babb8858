"""A repository in a folder of this machine: create a new one, or read an existing one in place."""

from __future__ import annotations

import os
import posixpath
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.git.history import RepositoryHistory
from orchestrator.bot.git.hostgit import HostGit, storage_errors
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.git.remote import is_commit_id
from orchestrator.core.addresses import without_credential
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator.bot.git.base import Identity

_BRANCH = "main"


def create_repository(path: Path, files: Mapping[str, str], message: str, identity: Identity) -> None:
    """Create a bare repository at `path` whose branch `main` contains these files.

    Args:
        path: its place; must not exist.
        files: text by relative path.

    Raises:
        WorkspaceError: git is missing or failed, or there is no space.
    """
    doing = f"cannot create a repository at {path}"
    facts = (("NAME", identity.name), ("EMAIL", identity.email))
    who = {f"GIT_{role}_{fact}": value for role in ("AUTHOR", "COMMITTER") for fact, value in facts}
    with storage_errors(doing), tempfile.TemporaryDirectory(prefix="pullwright-") as folder:
        path.mkdir(parents=True)
        tree = Path(folder)
        start = HostGit(tree)
        words = ("init", "--quiet", "--template=", "--bare", f"--initial-branch={_BRANCH}")
        start.run(*words, "--", str(path), doing=doing)
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text, encoding="utf-8")
        git = HostGit(tree, path, tree)
        git.run("add", "--all", doing=doing)
        git.run("commit", "--quiet", f"--message={message}", doing=doing, variables=who)


_MOST_FILE_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Located:
    """The repository that contains a folder.

    Attributes:
        top: what is cloned: the top of the working tree, or the bare repository.
        home: the git directory, which all of its working trees share and no other repository has.
        origin: the address of its remote `origin`, without a credential; empty if there is none.
        is_repository: whether git found a repository.
    """

    top: Path
    home: Path
    origin: str = ""
    is_repository: bool = True


def locate(folder: Path) -> Located:
    """Find the repository of a folder as git does, upwards from inside a working tree.

    A folder without a repository, or with one that git does not trust, is returned unchanged.
    """
    start = folder.resolve()
    git, doing = HostGit(start), f"cannot read {folder}"

    def ask(*words: str) -> str | None:
        found = git.attempt(*words, doing=doing)
        # One line end is git's; a path may have its own.
        return os.fsdecode(found.stdout.removesuffix(b"\n")) if found.status == 0 else None

    # Both at once. In a bare repository, and inside of a `.git` folder, there is no work tree to be at the top of:
    # then the second fails.
    both = git.attempt("rev-parse", "--git-common-dir", "--show-toplevel", doing=doing)
    said: list[str | None] = [*os.fsdecode(both.stdout).split("\n")[:-1]]
    if len(said) == (2 if both.status == 0 else 1):
        common, top = (*said, None)[:2]
    else:  # there is none, or a path has a line end of its own
        common = ask("rev-parse", "--git-common-dir")
        top = ask("rev-parse", "--show-toplevel") if common is not None else None
    if common is None:
        return Located(start, start, is_repository=False)
    shared = (start / common).resolve()
    home = shared.parent if shared.name == ".git" else shared
    found = HostGit(start, shared).attempt("config", "--local", "--get", "remote.origin.url", doing=doing)
    origin = os.fsdecode(found.stdout).strip() if found.status == 0 else ""
    return Located(Path(top).resolve() if top else home, home, without_credential(origin))


class LocalRepository:
    """A bare repository or a work tree.

    Raises:
        WorkspaceError: it is not a git repository, or git does not trust it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path.resolve()
        if not folder.is_dir():
            message = f"{path} is not a folder" if folder.exists() else f"{path} does not exist"
            raise WorkspaceError(message)
        # The ceiling keeps git from finding a repository further up.
        found = HostGit(folder).attempt(
            *("rev-parse", "--absolute-git-dir"),
            doing=f"cannot read {path}",
            variables={"GIT_CEILING_DIRECTORIES": str(folder.parent)},
        )
        if found.status != 0 and "dubious ownership" in found.stderr:
            message = f"{path} belongs to another user, so git does not trust it; run as its owner"
            raise WorkspaceError(message)
        if found.status != 0:
            message = (
                f"{path} is not a git repository: name one, or make it one (git init, then a first commit)"
            )
            raise WorkspaceError(message)
        self._git = HostGit(folder, Path(os.fsdecode(found.stdout.removesuffix(b"\n"))))
        self._doing = f"cannot read {path}"

    @property
    def name(self) -> str:
        """The folder's name, without `.git`."""
        folder = self.path.resolve()
        return (folder.parent if folder.name == ".git" else folder).name.removesuffix(".git")

    def is_empty(self) -> bool:
        """Return whether no branch has a commit."""
        return not self._git.run("for-each-ref", "--count=1", "refs/heads", doing=self._doing)

    def default_branch(self) -> str | None:
        """Return the branch that HEAD names; None if HEAD is detached or the branch has no commit."""
        return self.heads()[0]

    def heads(self) -> tuple[str | None, dict[str, str]]:
        """Return the branch that HEAD names, like `default_branch`, and the commit of each branch."""
        form = "--format=%(HEAD)%(objectname) %(refname)"
        listed = os.fsdecode(self._git.run("for-each-ref", form, "refs/heads", doing=self._doing))
        default, commits = None, {}
        for line in listed.removesuffix("\n").split("\n") if listed else ():
            commit, _, reference = line[1:].partition(" ")
            branch = reference.removeprefix("refs/heads/")
            commits[branch] = commit
            if line.startswith("*"):
                default = branch
        return default, commits

    def reviewed_commit(self) -> str | None:
        """Return the commit of the default branch, whatever branch is checked out; None if unknown.

        The default branch is what `origin` declared, else `main` or `master`, else the only branch.
        """
        found = self._git.attempt(
            *("rev-parse", "--verify", "--quiet", "refs/remotes/origin/HEAD^{commit}"), doing=self._doing
        )
        if found.status == 0:
            return found.stdout.decode("ascii").strip()
        _, commits = self.heads()
        named = next((commits[name] for name in ("main", "master") if name in commits), None)
        return named or (next(iter(commits.values())) if len(commits) == 1 else None)

    def trees(self) -> Trees:
        """Return its trees, for reading."""
        return Trees(self._git)

    def history(self) -> RepositoryHistory:
        """Return its commits and trees, for reading and copying."""
        return RepositoryHistory(self._git)

    def read_file(self, path: str, commit: str) -> str | None:
        """Return a file's text in a commit; None if the file does not exist. Undecodable bytes become U+FFFD.

        Raises:
            WorkspaceError: it is larger than 5 MB, the commit does not exist, or git failed.
        """
        if not is_commit_id(commit):
            message = f"{self._doing}: {commit!r} is not the id of a commit"
            raise WorkspaceError(message)
        if posixpath.normpath(path) != path or path.startswith(("/", "../", "\0")):
            return None
        listed = self._git.run("ls-tree", "-z", "-l", "--full-tree", commit, "--", path, doing=self._doing)
        fields, _, found = listed.removesuffix(b"\0").partition(b"\t")
        if found != os.fsencode(path) or not fields.startswith(b"100"):
            return None
        _, _, blob, size = fields.decode("ascii").split()
        if int(size) > _MOST_FILE_BYTES:
            message = f"{path} in {self.path} is larger than {_MOST_FILE_BYTES:,} bytes"
            raise WorkspaceError(message)
        return self._git.run("cat-file", "blob", blob, doing=self._doing).decode("utf-8", "replace")

    def merged(self, commits: Collection[str], into: str) -> frozenset[str]:
        """Return the commits that are part of the history of another, so that they were merged.

        A missing commit is not returned: its branch was removed, and git cleaned up.

        Raises:
            WorkspaceError: `into` does not exist, or its history is damaged.
        """
        asked = self._commits_of(commits)
        if not asked or not is_commit_id(into):
            return frozenset()
        ends = "".join(f"{name}\n" for name in (*asked, f"^{into}")).encode("ascii")
        outside = self._git.run("rev-list", "--stdin", stdin=ends, doing=self._doing)
        return frozenset(asked).difference(outside.decode("ascii").split())

    def _commits_of(self, names: Collection[str]) -> list[str]:
        """Return the names that are existing commits."""
        asked = "".join(f"{name}\n" for name in names if is_commit_id(name)).encode("ascii")
        if not asked:
            return []
        form = "--batch-check=%(objectname) %(objecttype)"
        told = self._git.run("cat-file", form, stdin=asked, doing=self._doing).decode("ascii")
        return [line.removesuffix(" commit") for line in told.splitlines() if line.endswith(" commit")]
