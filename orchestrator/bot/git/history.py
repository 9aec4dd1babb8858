"""Reads a repository's history, and copies single trees of it into new repositories."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.git.hostgit import HostGit, storage_errors
from orchestrator.bot.git.objects import commit_of
from orchestrator.bot.git.remote import alternates, is_commit_id, plain_branch
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from orchestrator.bot.git.remote import Remote

_READING = "cannot read the history"
_COPYING = "cannot copy a tree of the history"
_FETCHING = "cannot fetch the commits of a pull request"
_AT_ONCE = 200
_FORM = "%H%x00%P%x00%cI%x00%B%x00%x1e"
BRANCH = "main"


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of the history. `when` is in ISO 8601; `message` is untrusted."""

    commit: str
    parents: tuple[str, ...]
    when: str
    message: str


class RepositoryHistory:
    """The commits and trees of a foreign repository, which is only read.

    Raises:
        WorkspaceError: git failed, in every method.
    """

    def __init__(self, git: HostGit) -> None:
        self.git = git.without_tree()

    def is_shallow(self) -> bool:
        """Return whether the repository has only the newest part of its history."""
        answer = self.git.run("rev-parse", "--is-shallow-repository", doing=_READING)
        return answer.strip() == b"true"

    def resolve(self, name: str) -> str:
        """Return the commit of a branch, a tag or an id."""
        words = ("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return self.git.run(*words, doing=_READING).decode("ascii").strip()

    def commits(self, start: str, most: int, *, with_merges: bool = False) -> Iterator[PastCommit]:
        """Yield a commit and its ancestors, newest first, at most so many. Merges are left out."""
        for skipped in range(0, most, _AT_ONCE):
            options = (f"--skip={skipped}", f"--max-count={min(_AT_ONCE, most - skipped)}")
            merges = () if with_merges else ("--no-merges",)
            output = self.git.run(
                *("log", *merges, *options, "--encoding=UTF-8", f"--format={_FORM}", start, "--"),
                doing=_READING,
            )
            entries = output.decode("utf-8", "replace").split("\0\x1e\n")[:-1]
            yield from map(_past_commit, entries)
            if len(entries) < _AT_ONCE:
                return

    def parents(self, commit: str) -> tuple[str, ...]:
        """Return the available parents of a commit."""
        found = self.git.run("rev-list", "--parents", "--max-count=1", commit, doing=_READING)
        return tuple(found.decode("ascii").split()[1:])

    def before(self, commit: str, count: int) -> str | None:
        """Return the ancestor so many first parents before a commit; None if it is not available."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}~{count}^{{commit}}")
        found = self.git.attempt(*words, doing=_READING)
        return found.stdout.decode("ascii").strip() if found.status == 0 else None

    def size_of_change(self, old: str, new: str) -> tuple[int, int, int]:
        """Count the changed files and the added and removed lines between two commits, as forges do."""
        output = self.git.run("diff-tree", "-r", "-M", "--numstat", "-z", old, new, doing=_READING)
        # `<added>TAB<removed>TAB<path>NUL`, of a renamed file `<added>TAB<removed>TABNUL<old>NUL<new>NUL`
        counts = [line.split(b"\t") for line in output.split(b"\0") if line.count(b"\t") >= 2]  # noqa: PLR2004  the same
        sums = [sum(int(one[place]) for one in counts if one[place].isdigit()) for place in (0, 1)]
        return len(counts), sums[0], sums[1]

    def object_folder(self) -> Path:
        """Return the folder of the objects, even if several working trees share it."""
        found = self.git.run("rev-parse", "--git-path", "objects", doing=_READING)
        return (self.git.folder / os.fsdecode(found.removesuffix(b"\n"))).resolve()

    def copy_tree(self, tree: str, target: HostGit) -> None:
        """Copy a tree with its content into another repository, without commits or names."""
        named = self.git.run("rev-list", "--objects", "--no-object-names", tree, doing=_COPYING)
        if is_commit_id(tree) and not named:
            raise WorkspaceError(f"{_COPYING}: {tree} is empty")
        target.run(
            *("pack-objects", "--quiet", str(target.git_dir / "objects" / "pack" / "pack")),
            doing=_COPYING,
            stdin=named,
            variables=alternates([self.object_folder()]),
        )

    def object_format(self) -> str:
        """Return the hash algorithm of object ids: `sha1` or `sha256`."""
        return self.git.run("rev-parse", "--show-object-format", doing=_READING).decode("ascii").strip()


def _past_commit(entry: str) -> PastCommit:
    commit, parents, when, message = entry.split("\0", 3)
    return PastCommit(commit, tuple(parents.split()), when, message.strip())


def create_store(path: Path, object_format: str = "sha1") -> HostGit:
    """Create or open an empty bare repository without hooks, remotes or the user's configuration.

    Raises:
        WorkspaceError: git is missing or failed, or there is no space.
    """
    doing = f"cannot create a repository at {path}"
    with storage_errors(doing):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (path / "HEAD").is_file():
            words = ("init", "--quiet", "--template=", "--bare", f"--object-format={object_format}")
            HostGit(path).run(*words, f"--initial-branch={BRANCH}", "--", str(path), doing=doing)
    return HostGit(path, path)


def commit_tree(store: HostGit, tree: str, message: str) -> str:
    """Make a tree the only commit of a store's only branch, with neutral author and time."""
    commit = commit_of(store, tree, (), message)
    store.run("update-ref", f"refs/heads/{BRANCH}", commit, doing=_COPYING)
    return commit


def fetch_commits(store: HostGit, remote: Remote, wanted: Mapping[str, int]) -> None:
    """Fetch commits by their ids into a store, each with so many ancestors.

    Raises:
        WorkspaceError: the server no longer has one of them, or git failed.
    """
    for commit, depth in wanted.items():
        if not is_commit_id(commit):
            raise WorkspaceError(f"{_FETCHING}: {commit[:80]!r} is not the id of a commit")
        store.run(*_FETCH, f"--depth={depth + 1}", "--", remote.url, commit, doing=_FETCHING, remote=remote)


def fetch_branch(store: HostGit, remote: Remote, branch: str, most: int) -> str:
    """Fetch the newest commits of a branch into a store, and return the last one's id.

    Raises:
        WorkspaceError: the branch does not exist, or git failed.
    """
    wanted = f"+refs/heads/{plain_branch(branch)}:refs/heads/{BRANCH}"
    doing = f"cannot fetch the history of {remote.shown}"
    store.run(*_FETCH, f"--depth={most}", "--", remote.url, wanted, doing=doing, remote=remote)
    return RepositoryHistory(store).resolve(f"refs/heads/{BRANCH}")


_FETCH = (
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-recurse-submodules",
    "--no-write-fetch-head",
    "--update-head-ok",
)
