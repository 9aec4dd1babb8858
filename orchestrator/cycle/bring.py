"""Puts onto a fresh clone what is there of the task already: an earlier cycle's work, or the pull request's change."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.cycle.tasks import REBASE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from orchestrator.cycle.earlier import Earlier
    from orchestrator.cycle.tasks import Task
    from orchestrator.workspace.base import Adopted, BranchState
    from orchestrator.workspace.clone import Clone


@dataclass(frozen=True, slots=True)
class Brought:
    """What is on the clone now.

    Attributes:
        paths: what differs from the base, sorted.
        conflicts: those of them with conflict markers.
        base_moved: the work was made on another state of the repository.
        tip: the commit that the task's branch is expected at when it is pushed; None where there is none yet.
        joined: the next commit merges people's branch and the base, whether or not a file is changed.
        prints: what the pull request proposes already, and so needs no proposing: a print of each file.
    """

    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    base_moved: bool = False
    tip: str | None = None
    joined: bool = False
    prints: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_proposed(self) -> bool:
        """Whether all of it is the pull request's, and nothing of it a cycle's unfinished work."""
        return bool(self.joined or self.prints)

    @property
    def replays(self) -> bool:
        """Whether it only has to be committed to bring the pull request onto its base."""
        return self.is_proposed and not self.conflicts


def bring(clone: Clone, task: Task, earlier: Earlier | None, author_email: str) -> Brought | str:
    """Bring what is there. What people committed to the branch is never replaced.

    Args:
        clone: at the base's present commit, unchanged.
        task: with its pull request, if it is about one.
        earlier: what an unfinished cycle left; it holds the pull request's change as well.
        author_email: whose commits are ours.

    Returns:
        What is on the clone, or why the task is left alone.

    Raises:
        WorkspaceError: git failed.
    """
    tip = None
    if task.pull is not None:
        branch = task.pull.branch
        known = [earlier.base] if earlier is not None and earlier.base else []
        state = clone.branch_state(branch, author_email, known_bases=known)
        if state is None:
            return f"the branch {branch} of {task.pull.url} is gone"
        all_ours = state.is_ours or _has_only(state, author_email)
        if not all_ours and REBASE_LABEL not in {label.lower() for label in task.pull.labels}:
            return (
                f"{task.pull.url} has commits of people, so it is left to them; "
                f"the label {REBASE_LABEL} takes it up again"
            )
        # Several commits of ours are one cycle's that updated its pull request: they are continued.
        if not state.is_ours and not (all_ours and earlier is not None and earlier.work is not None):
            joined = clone.adopt_branch(branch)
            return replace(_proposed(clone, joined, joined.tip), joined=True)
        tip = state.tip
    if earlier is not None and earlier.work is not None:
        return _brought(clone.adopt(earlier.work, reference=earlier.reference), tip)
    if tip is not None and task.pull is not None:
        return _proposed(clone, clone.adopt(tip, reference=f"refs/heads/{task.pull.branch}"), tip)
    return Brought(tip=tip)


def _has_only(state: BranchState, email: str) -> bool:
    """Whether nobody else committed. Both addresses must be ours: whoever amends our commit stays its committer."""
    addresses = {
        address for one in state.commits_since_base for address in (one.committer_email, one.author_email)
    }
    return state.complete and bool(email) and addresses == {email}


def _brought(adopted: Adopted, tip: str | None) -> Brought:
    return Brought(tuple(sorted(adopted.paths)), tuple(sorted(adopted.conflicts)), adopted.base_moved, tip)


def _proposed(clone: Clone, adopted: Adopted, tip: str) -> Brought:
    return replace(_brought(adopted, tip), prints=prints(clone.tree, adopted.paths))


def prints(tree: Path, paths: Iterable[str]) -> dict[str, str]:
    """A text for each file that changes when the file does. Links are not followed, and nothing else is opened."""
    return {path: _print(tree / path) for path in paths}


def _print(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link {path.readlink()}"
        if not stat.S_ISREG(mode):
            return "no file"
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return f"{mode & stat.S_IXUSR} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError:
        return "no file"
