"""Puts onto a fresh clone what is there of the task already: an earlier cycle's work, or the pull request's change."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.tasks import REBASE_LABEL, TaskKind
from orchestrator.core.errors import PushRejectedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.cycle.unfinished import Earlier
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.git.base import Adopted, BranchState
    from orchestrator.bot.git.clone import Clone


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
        message: of the commit that a cycle pushed and did not propose, where nothing else tells its words.
        is_over: a later cycle proposed what the unfinished one had left.
    """

    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    base_moved: bool = False
    tip: str | None = None
    joined: bool = False
    prints: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    is_over: bool = False

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
        PushRejectedError: the branch of a task without a pull request has commits of people.
        WorkspaceError: git failed.
    """
    if task.pull is not None:
        return _bring_pull(clone, task, task.pull, earlier, author_email)
    if earlier is None:
        return Brought()
    state = _branch_state(clone, earlier.branch, earlier, author_email) if earlier.branch else None
    if state is not None:
        return _bring_branch(clone, earlier, state, author_email)
    return _brought(_adopted(clone, earlier), None) if earlier.work is not None else Brought()


def _bring_pull(
    clone: Clone, task: Task, pull: PullRequest, earlier: Earlier | None, author_email: str
) -> Brought | str:
    """As `bring`, for a task about a pull request."""
    state = _branch_state(clone, pull.branch, earlier, author_email)
    if state is None:
        return f"the branch {pull.branch} of {pull.url} is gone"
    all_ours = state.is_ours or _has_only(state, author_email)
    if not all_ours and REBASE_LABEL not in {label.lower() for label in pull.labels}:
        return f"{pull.url} has commits of people, so it is left to them; the label {REBASE_LABEL} takes it up again"
    if task.kind is TaskKind.UNFINISHED and earlier is not None and all_ours and not earlier.knows(state.tip):
        return Brought(tip=state.tip, is_over=True)
    # Several commits of ours are one cycle's that updated its pull request: they are continued.
    if not state.is_ours and not (all_ours and earlier is not None and earlier.work is not None):
        joined = clone.adopt_branch(pull.branch)
        return replace(_proposed(clone, joined, joined.tip), joined=True)
    if earlier is not None and earlier.work is not None:
        return _brought(_adopted(clone, earlier), state.tip)
    adopted = clone.adopt(state.tip, reference=f"refs/heads/{pull.branch}")
    return _proposed(clone, adopted, state.tip)


def _bring_branch(clone: Clone, earlier: Earlier, state: BranchState, author_email: str) -> Brought:
    """As `bring`, where a cycle pushed its branch and opened no pull request."""
    branch = earlier.branch
    if state.complete and not state.commits_since_base:  # somebody merged it
        merged = Brought(tip=state.tip)
        return _brought(_adopted(clone, earlier), state.tip) if earlier.work is not None else merged
    if not (state.is_ours or _has_only(state, author_email)):
        theirs = (one for one in state.commits_since_base if one.committer_email != author_email)
        whose = next((f"a commit by {one.committer_name}" for one in theirs), "commits of people")
        message = f"branch {branch} has {whose}, which is not replaced; merge or delete the branch first"
        raise PushRejectedError(message)
    if earlier.work is not None and earlier.knows(state.tip):
        return _brought(_adopted(clone, earlier), state.tip)
    # What a later cycle pushed has in it what an earlier one had saved.
    words = clone.message_of(state.tip)
    if state.is_ours:
        adopted = clone.adopt(state.tip, reference=f"refs/heads/{branch}")
    else:
        adopted = clone.adopt_branch(branch)
    return replace(_brought(adopted, state.tip), message=words, joined=not state.is_ours)


def _branch_state(
    clone: Clone, branch: str, earlier: Earlier | None, author_email: str
) -> BranchState | None:
    known = [earlier.base] if earlier is not None and earlier.base else []
    return clone.branch_state(branch, author_email, known_bases=known)


def _adopted(clone: Clone, earlier: Earlier) -> Adopted:
    return clone.adopt(earlier.work or "", reference=earlier.reference or None, packed=earlier.objects)


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
