"""Puts onto a fresh clone what is there of the task already: an earlier cycle's work, or the pull request's change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.cycle.earlier import Earlier
    from orchestrator.cycle.tasks import Task
    from orchestrator.workspace.base import Adopted
    from orchestrator.workspace.clone import Clone

REBASE_LABEL = "pullwright:rebase"
"""On an open pull request: bring it onto its base, whoever committed to it."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What is on the clone now.

    Attributes:
        paths: what differs from the base, sorted.
        conflicts: those of them with conflict markers.
        base_moved: the work was made on another state of the repository.
        tip: the commit that the task's branch is expected at when it is pushed; None where there is none yet.
    """

    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    base_moved: bool = False
    tip: str | None = None


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
        if not state.is_ours and REBASE_LABEL not in {label.lower() for label in task.pull.labels}:
            return (
                f"{task.pull.url} has commits of people, so it is left to them; "
                f"the label {REBASE_LABEL} takes it up again"
            )
        if not state.is_ours:
            joined = clone.adopt_branch(branch)
            return _brought(joined, joined.tip)
        tip = state.tip
    if earlier is not None and earlier.work is not None:
        return _brought(clone.adopt(earlier.work, reference=earlier.reference), tip)
    if tip is not None and task.pull is not None:
        return _brought(clone.adopt(tip, reference=f"refs/heads/{task.pull.branch}"), tip)
    return Brought(tip=tip)


def _brought(adopted: Adopted, tip: str | None) -> Brought:
    return Brought(tuple(sorted(adopted.paths)), tuple(sorted(adopted.conflicts)), adopted.base_moved, tip)
