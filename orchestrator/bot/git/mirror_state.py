"""What a mirror was left with, and what the remote has by now."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.git.failures import error_for
from orchestrator.bot.git.names import is_commit_id, plain_branch
from orchestrator.core.git_names import is_branch_name

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote

STATE = "pullwright-state"
"""The file that a mirror has while it is in good order."""

_HEADS = "refs/heads/"


@dataclass(frozen=True, slots=True)
class Tip:
    """A branch of the remote, as the remote says it is now."""

    branch: str
    commit: str
    is_default: bool


def ask(git: HostGit, remote: Remote, branch: str | None, doing: str) -> Tip | None:
    """What the remote says about the branch; None where a clone will have something to say about it."""
    wanted = () if branch is None else (_HEADS + plain_branch(branch),)
    result = git.attempt(
        "ls-remote", "--symref", "--", remote.url, "HEAD", *wanted, doing=doing, remote=remote
    )
    if result.status != 0:
        raise error_for(result.stderr, doing)
    default, commits = "", {}
    # Not `splitlines`: a branch's name may hold what Unicode takes for the end of a line.
    for line in os.fsdecode(result.stdout).split("\n"):
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith(f"ref: {_HEADS}"):
            default = value.removeprefix(f"ref: {_HEADS}")
        elif is_commit_id(value):
            commits[name] = value
    found = branch if branch is not None else default
    commit = commits.get("HEAD" if branch is None else _HEADS + found)
    if commit is None or not is_branch_name(found):
        return None
    return Tip(found, commit, found == default)


def known_commit(path: Path, digits: int) -> str | None:
    """The tip that the mirror was left with, or None where it was not left in good order."""
    try:
        data = json.loads((path / STATE).read_bytes())
        commit = data["commit"]
        whole = data["shallow"] == _shallow_digest(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    good = isinstance(commit, str) and is_commit_id(commit) and len(commit) == digits
    return commit if good and whole else None


def write_state(path: Path, commit: str, now: float) -> None:
    """Say that the mirror is in good order, at which commit, and when it was used: seconds since 1970."""
    state = path / STATE
    scratch = path / f"{STATE}.new"
    scratch.write_text(json.dumps({"commit": commit, "shallow": _shallow_digest(path)}), "ascii")
    scratch.replace(state)
    os.utime(state, (now, now))


def _shallow_digest(path: Path) -> str:
    """Of the file in which git keeps where the history was cut off: a line lost there is a shorter history."""
    try:
        return hashlib.sha256((path / "shallow").read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def used_at(path: Path) -> float:
    """When a mirror was used last; one without a state goes first."""
    try:
        return (path / STATE).stat().st_mtime
    except OSError:
        return 0.0
