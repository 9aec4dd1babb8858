"""Commits of the remote that a shallow clone does not have yet, without shortening the history that it has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for, storage_errors
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote

_MOST_COMMIT_BYTES = 1_000_000
# Of a name, and of an id that the server does not give, which says it in one of two ways.
_MISSING = re.compile(r"couldn't find remote ref|not our ref|unadvertised object")


def fetch(git: HostGit, remote: Remote, wanted: Mapping[str, str], depth: int, *, doing: str) -> bool:
    """Fetch references with so many commits of their history.

    Args:
        git: git on our objects.
        remote: where they are.
        wanted: full names there, each with the full name that it gets here.
        depth: commits.
        doing: begins the message of an error.

    Returns:
        Whether all of them are there; else nothing was fetched.

    Raises:
        WorkspaceError: git failed.
    """
    options = ("--quiet", f"--depth={depth}", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
    before = shallow_commits(git)
    specs = [f"+{theirs}:{ours}" for theirs, ours in wanted.items()]
    result = git.attempt("fetch", *options, "--", remote.url, *specs, doing=doing, remote=remote)
    if result.status != 0 and _MISSING.search(result.stderr):
        return False
    if result.status != 0:
        raise error_for(result.stderr, doing)
    after = shallow_commits(git)
    # Git cuts the history where the depth ends, even of a commit whose parents are here since the clone.
    cut = {commit for commit in after - before if not _has_parents(git, commit, doing)}
    if after != (kept := (after & before) | cut):
        _write_shallow(git, kept, doing)
    return True


def shallow_commits(git: HostGit) -> set[str]:
    """Commits whose parents are not here."""
    path = _shallow_file(git)
    with storage_errors("cannot read the clone"):
        return set(path.read_text("ascii").split()) if path.exists() else set()


def parents(git: HostGit, commit: str, *, doing: str) -> list[str]:
    """The parents that a commit names, whether they are here or not.

    Raises:
        WorkspaceError: the commit is not here, or far too large.
    """
    size = git.run("cat-file", "-s", commit, doing=doing)
    if int(size) > _MOST_COMMIT_BYTES:
        message = f"{doing}: the commit {commit} is too large"
        raise WorkspaceError(message)
    head, _, _ = git.run("cat-file", "commit", commit, doing=doing).partition(b"\n\n")
    lines = [line.split(b" ") for line in head.split(b"\n")]
    return [line[1].decode("ascii") for line in lines if line[0] == b"parent"]


def is_here(git: HostGit, commit: str, *, doing: str) -> bool:
    """Whether the clone has a commit."""
    return git.attempt("cat-file", "-e", f"{commit}^{{commit}}", doing=doing).status == 0


def _has_parents(git: HostGit, commit: str, doing: str) -> bool:
    return all(is_here(git, parent, doing=doing) for parent in parents(git, commit, doing=doing))


def _write_shallow(git: HostGit, commits: set[str], doing: str) -> None:
    path = _shallow_file(git)
    scratch = path.with_name("shallow.new")
    with storage_errors(doing):
        scratch.write_text("".join(f"{commit}\n" for commit in sorted(commits)), "ascii")
        if commits:
            scratch.replace(path)
        else:
            scratch.unlink()
            path.unlink(missing_ok=True)


def _shallow_file(git: HostGit) -> Path:
    if git.git_dir is None:
        raise WorkspaceError("a clone needs a git directory")
    return git.git_dir / "shallow"
