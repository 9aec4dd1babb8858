"""A repository in a folder of this machine, read where it lies; nothing is written into it."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from orchestrator.core.errors import WorkspaceError
from orchestrator.workspace.hostgit import HostGit
from orchestrator.workspace.names import is_commit_id, plain_branch

_MOST_FILE_BYTES = 5_000_000


class LocalRepository:
    """A bare repository or a work tree.

    Args:
        path: the folder.

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
            message = f"{path} is not a git repository"
            raise WorkspaceError(message)
        self._git = HostGit(folder, Path(os.fsdecode(found.stdout.removesuffix(b"\n"))))
        self._doing = f"cannot read {path}"

    @property
    def name(self) -> str:
        """The folder's name, without `.git`."""
        folder = self.path.resolve()
        return (folder.parent if folder.name == ".git" else folder).name.removesuffix(".git")

    def is_empty(self) -> bool:
        """Whether no branch has a commit."""
        return not self._git.run("for-each-ref", "--count=1", "refs/heads", doing=self._doing)

    def default_branch(self) -> str | None:
        """The branch that HEAD names, or None where HEAD is detached or the branch has no commit."""
        head = self._git.attempt("symbolic-ref", "--quiet", "HEAD", doing=self._doing)
        branch = os.fsdecode(head.stdout).strip().removeprefix("refs/heads/")
        return branch if head.status == 0 and self._commit(branch) is not None else None

    def read_file(self, path: str, branch: str) -> str | None:
        """A file's text on a branch, or None where there is no such file. Undecodable bytes become U+FFFD.

        Raises:
            WorkspaceError: it is larger than 5 MB, or git failed.
        """
        commit = self._commit(plain_branch(branch))
        if commit is None or posixpath.normpath(path) != path or path.startswith(("/", "../", "\0")):
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

    def contains(self, commit: str, branch: str) -> bool:
        """Whether a commit is part of a branch's history, which says that it was merged."""
        if not is_commit_id(commit) or self._commit(plain_branch(branch)) is None:
            return False
        reference = f"refs/heads/{branch}"
        return (
            self._git.attempt("merge-base", "--is-ancestor", commit, reference, doing=self._doing).status == 0
        )

    def branch_commit(self, branch: str) -> str | None:
        """The commit that a branch is at, or None where there is no such branch."""
        return self._commit(plain_branch(branch))

    def _commit(self, branch: str) -> str | None:
        reference = f"refs/heads/{branch}^{{commit}}"
        found = self._git.attempt("rev-parse", "--verify", "--quiet", reference, doing=self._doing)
        return found.stdout.decode("ascii").strip() if found.status == 0 else None
