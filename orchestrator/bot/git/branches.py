"""What a branch of the remote has on top of the base, with no more of the history than that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.git.base import BranchCommit, BranchState
from orchestrator.bot.git.fetching import fetch, parents, shallow_commits
from orchestrator.bot.git.names import plain_branch
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote

_BRANCH = "refs/pullwright/fetched/branch"
_BASE = "refs/pullwright/fetched/base"
# The first is enough for one commit on top of one that the clone has. A branch that is further from its
# base than the last is for people.
_FIRST_DEPTH_COMMITS = 2
_DEPTHS_COMMITS = (50, 250)
_MOST_LISTED = 1000


class Branches:
    """Reads branches of the remote.

    Args:
        git: git on our objects.
        remote: where they are.
        base: the branch that was cloned, and its commit then.
    """

    def __init__(self, git: HostGit, remote: Remote, base: tuple[str, str]) -> None:
        self._git = git
        self._remote = remote
        self._base_branch, self._base = base

    def state(self, branch: str, email: str, known_bases: Collection[str]) -> BranchState | None:
        """See `Clone.branch_state`."""
        plain_branch(branch)
        doing = f"cannot read branch {branch} of {self._remote.shown}"
        tip = self._fetch(branch, _FIRST_DEPTH_COMMITS, doing)
        if tip is None:
            return None
        listed: tuple[BranchCommit, ...] = ()
        above = parents(self._git, tip, doing=doing)
        bases = {self._base, *known_bases}
        if len(above) == 1 and above[0] in bases and tip not in bases:
            listed = self._list((tip, f"^{above[0]}"), doing)
            return _state(tip, listed, above[0], self._base, email, complete=True)
        for depth in (None, *_DEPTHS_COMMITS):
            found = tip if depth is None else self._fetch(branch, depth, doing, base=True)
            if found is None:
                return None
            begins = self._begins(found, doing)
            # Without the second one, commits with odd dates would be listed although the base has them.
            without = [f"^{commit}" for commit in (self._base, begins) if commit is not None]
            listed = self._list((found, *without), doing)
            if begins is not None and shallow_commits(self._git).isdisjoint(line.commit for line in listed):
                return _state(found, listed, begins, self._base, email, complete=True)
            tip = found
        return _state(tip, listed, None, self._base, email, complete=False)

    def beginning(self, branch: str) -> tuple[str, str]:
        """A branch's head, and the last commit that it has in common with the base.

        Raises:
            WorkspaceError: there is no such branch, or it begins too far away to be sure.
        """
        state = self.state(branch, "", ())
        doing = f"cannot continue branch {branch} of {self._remote.shown}"
        if state is None:
            message = f"{doing}: there is no such branch"
            raise WorkspaceError(message)
        begins = self._begins(state.tip, doing) if state.complete else None
        if begins is None:
            message = f"{doing}: where it left {self._base_branch} is not among the last commits of either"
            raise WorkspaceError(message)
        return state.tip, begins

    def message(self, commit: str) -> str:
        """See `Clone.message_of`."""
        shown = self._git.run(
            *("log", "-1", "--no-walk", "--encoding=UTF-8", "--format=%B", commit, "--"),
            doing="cannot read a commit's message",
        )
        return shown.decode("utf-8", "replace").strip()

    def _fetch(self, branch: str, depth: int, doing: str, *, base: bool = False) -> str | None:
        """The branch's head, or None where there is no such branch."""
        wanted = {f"refs/heads/{branch}": _BRANCH}
        if base and branch != self._base_branch:
            wanted[f"refs/heads/{self._base_branch}"] = _BASE
        if not fetch(self._git, self._remote, wanted, depth, doing=doing):
            return None
        return self._git.run("rev-parse", "--verify", _BRANCH, doing=doing).decode("ascii").strip()

    def _begins(self, tip: str, doing: str) -> str | None:
        found = self._git.attempt("merge-base", tip, self._base, doing=doing)
        return found.stdout.decode("ascii").strip() if found.status == 0 else None

    def _list(self, wanted: tuple[str, ...], doing: str) -> tuple[BranchCommit, ...]:
        output = self._git.run(
            *("log", "-z", f"--max-count={_MOST_LISTED}", "--encoding=UTF-8"),
            *("--format=tformat:%H%x00%cn%x00%ce%x00%ae", *wanted, "--"),
            doing=doing,
        )
        pieces = output.decode("utf-8", "replace").split("\0")[:-1]
        return tuple(
            BranchCommit(*pieces[start : start + 4])  # four fields each
            for start in range(0, len(pieces), 4)
        )


def _state(  # noqa: PLR0913  one finding, fact by fact
    tip: str, listed: tuple[BranchCommit, ...], begins: str | None, base: str, email: str, *, complete: bool
) -> BranchState:
    """Both addresses must be ours: whoever amends our commit stays its committer."""
    ours = (
        complete
        and len(listed) == 1
        and listed[0].commit == tip
        and bool(email)
        and {listed[0].committer_email, listed[0].author_email} == {email}
    )
    return BranchState(tip, listed, ours, begins != base, complete)
