"""The first fetch of a clone: `git clone` into two folders side by side, and what git is told about them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.names import plain_branch
from orchestrator.core.errors import EmptyRepositoryError, WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.remote import Remote

# Ten commits cost as much as one, within the noise, where files change a little at a time (measured with
# tests/benchmarks/clone.py); they are what the first prompt shows of the history.
DEPTH_COMMITS = 10

# `git clone` finds out about the file system when it makes a repository; ours is written by us.
_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = false
\tignorecase = {ignorecase}
\tprecomposeunicode = {precompose}
"""


def first_fetch(folder: Path, remote: Remote, branch: str | None, doing: str) -> tuple[str, str]:
    """Fill both folders with one command.

    Args:
        folder: gets `host.git`, the git directory, and `tree`, the files.
        remote: what is cloned.
        branch: the branch, or None for the remote's default.
        doing: begins the message of an error.

    Returns:
        The branch and the commit.

    Raises:
        EmptyRepositoryError: the repository has no commit.
        WorkspaceError: there is no such branch, or git failed.
    """
    host, tree = folder / "host.git", folder / "tree"
    wanted = () if branch is None else ("--branch", plain_branch(branch))
    options = ("--quiet", "--template=", "--single-branch", "--no-tags", "--no-recurse-submodules")
    git = HostGit(folder)
    result = git.attempt(
        *("clone", *options, f"--depth={DEPTH_COMMITS}", f"--separate-git-dir={host}", *wanted),
        *("--", remote.url, str(tree)),
        doing=doing,
        remote=remote,
    )
    if result.status != 0:
        if branch is not None and "not found in upstream" in result.stderr:
            _refuse_empty(git, remote, doing)
            message = f"{doing}: it has no branch {branch!r}"
            raise WorkspaceError(message)
        raise error_for(result.stderr, doing)
    # The file that leads from the work tree to the git directory; tools must not find the latter.
    (tree / ".git").unlink()
    head = os.fsdecode((host / "HEAD").read_bytes()).strip()
    found = head.removeprefix("ref: refs/heads/")
    reference = host / "refs" / "heads" / found
    guessed = branch is None and remote.has_detached_head()
    if found != head and reference.is_file() and not guessed:
        return found, reference.read_text("ascii").strip()
    if branch is not None:
        message = f"{doing}: {branch!r} is a tag; name a branch"
        raise WorkspaceError(message)
    _refuse_empty(git, remote, doing)
    message = f"{doing}: it has no default branch (its HEAD is detached or names none); pass --base BRANCH"
    raise WorkspaceError(message)


def _refuse_empty(git: HostGit, remote: Remote, doing: str) -> None:
    if not git.run("ls-remote", "--heads", "--", remote.url, doing=doing, remote=remote):
        message = f"{remote.shown} is empty; push a first commit and run again"
        raise EmptyRepositoryError(message)


def configure(host: Path, *, sha256: bool) -> None:
    """Replace the configuration that `git clone` wrote, which names the remote, by our own."""
    text = _CONFIGURATION.format(
        version=1 if sha256 else 0,
        ignorecase=str((host / "head").exists()).lower(),
        precompose=str(sys.platform == "darwin").lower(),
    )
    (host / "config").write_text(
        text + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else ""), "utf-8"
    )
