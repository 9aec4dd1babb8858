"""What a clone can do with work that was begun earlier, by another run or by people on our branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.git.adopt import Adopter
from orchestrator.bot.git.branches import Branches
from orchestrator.bot.git.saving import Saver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from orchestrator.bot.git.base import Adopted, BranchState, Packed, SavedWork
    from orchestrator.bot.git.commit import Committer
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.git.swap import Fence


class Continuing:
    """The half of a `Clone` that continues earlier work.

    Args:
        files: git on our objects and the work tree.
        committer: makes the commits.
        remote: where the clone came from.
        base: the branch that was cloned, and its commit.
    """

    def __init__(self, files: HostGit, committer: Committer, remote: Remote, base: tuple[str, str]) -> None:
        self._branches = Branches(files.without_tree(), remote, base)
        self._adopter = Adopter(files, committer, remote, base[1])
        self._saver = Saver(files, committer, remote)
        self._onto = base[1]

    def adopt(self, commit: str, *, reference: str | None = None, packed: Packed | None = None) -> Adopted:
        """Bring what a commit changed onto the files, by a three-way merge. Nothing is committed.

        The files are as if tools had written the change: give `paths` to `commit`, which leaves out what it
        leaves out of any change. To be called before anything is changed or committed here.

        Args:
            commit: has one parent, with which it is compared.
            reference: the full name on the remote of what leads to the commit, itself or its child. None:
                the server is asked for the commit by its id, which not every server gives.
            packed: what `pack_wip` made of it; then no reference is needed.

        Raises:
            WorkspaceError: it cannot be read, or it has a path that leaves the work tree or enters `.git`.
        """
        return self._adopter.adopt(commit, reference, packed)

    def adopt_branch(self, branch: str) -> Adopted:
        """Continue a branch that has commits of others: the files become what it and the base make together.

        The next `commit` has the branch's head and the base as parents, so that its push rewrites nothing:
        `push(branch, expected=adopted.tip)`. Checks of that commit look at what differs from the merge,
        thus not at what people committed. Call it first; `adopt` may follow.

        Raises:
            WorkspaceError: there is no such branch, it left the base too far away to be sure, or it has a
                path that leaves the work tree or enters `.git`.
        """
        return self._adopter.adopt_branch(branch, self._branches)

    def branch_state(
        self, branch: str, author_email: str, *, known_bases: Collection[str] = ()
    ) -> BranchState | None:
        """What a branch of the remote has on top of the base; None where there is no such branch.

        Args:
            branch: its name.
            author_email: ours. Author and committer of our own commit both have it.
            known_bases: commits that the caller knows to have been the base's head, for a base that was
                rewritten since.

        Raises:
            WorkspaceError: the branch cannot be read.
        """
        return self._branches.state(branch, author_email, known_bases)

    def message_of(self, commit: str) -> str:
        """The message of a commit that is here, such as `BranchState.tip`.

        Raises:
            WorkspaceError: git failed.
        """
        return self._branches.message(commit)

    def save_wip(  # noqa: PLR0913  each is a fact of the save, given by name
        self,
        key: str,
        pages: Mapping[str, bytes],
        *,
        touched: set[str],
        include_commands: bool,
        expected: str | None,
        saved_at: datetime,
        stamp: str,
        find_secrets: Callable[[str], list[str]] = lambda _diff: [],
        lease: Fence | None = None,
    ) -> SavedWork:
        """Push everything that was changed since the base, committed or not, to the task's hidden reference.

        It is no proposal: only secrets are looked for, and a file that adds one is left out and named.
        Nothing of the clone changes.

        Args:
            key: the task's.
            pages: what is to be known about the work, by plain names, at most 20 MiB together. They are
                public where the repository is: secrets are the caller's to take out.
            touched: as for `commit`.
            include_commands: as for `commit`.
            expected: the commit that the reference must have, or None where it must not exist.
            saved_at: the time.
            stamp: a text that no other save has, such as the run and a number.
            find_secrets: names the places at which a diff adds secrets; see `Screen`.
            lease: ours on the task; it is moved in the same push.

        Raises:
            ClaimLostError: the task is somebody else's by now; nothing was pushed.
            PushRejectedError: the reference is not where it was expected, or the server does not want it.
            RemoteUnavailableError: no answer.
            WorkspaceError: git failed, a page cannot be saved, or there is no such key.
        """
        return self._saver.save(
            key,
            pages,
            touched=touched,
            include_commands=include_commands,
            expected=expected,
            saved_at=saved_at,
            stamp=stamp,
            find_secrets=find_secrets,
            lease=lease,
        )

    def pack_wip(
        self,
        key: str,
        *,
        touched: set[str],
        include_commands: bool,
        find_secrets: Callable[[str], list[str]] = lambda _diff: [],
    ) -> Packed:
        """What `save_wip` would push, without the remote, for `adopt` in a clone that is made later.

        Raises:
            WorkspaceError: git failed.
        """
        return self._saver.pack(
            key,
            touched=touched,
            include_commands=include_commands,
            find_secrets=find_secrets,
            onto=self._onto,
        )
