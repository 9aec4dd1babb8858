"""The clone of one run: two folders side by side, a git directory of ours and the files that tools see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from orchestrator.bot.git.adopt import Adopter
from orchestrator.bot.git.base import (
    Packed,
)
from orchestrator.bot.git.branches import Branches
from orchestrator.bot.git.commit import Committer
from orchestrator.bot.git.folders import disarm
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Trees, recent_commits, tracked_files
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

    from orchestrator.bot.git.base import (
        Adopted,
        BranchState,
        CommitLine,
        Identity,
        RemoteTip,
        Snapshot,
        TrackedFile,
    )
    from orchestrator.bot.git.folders import Owner
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.git.swap import Fence
    from orchestrator.core.clock import Clock


class Clone(Committer):
    """A shallow clone in a temporary folder, removed when the `with` block ends.

    The model's tools see `tree` and nothing else. Git is run by this program only, on a git directory
    beside it. Not safe for use by several threads at once.

    Attributes:
        folder: holds everything.
        base_commit: the commit that was cloned.
        base_branch: its branch.
        trees: the trees of its objects, for runs of tests.
    """

    def __init__(
        self, owner: Owner, base: tuple[str, str], identity: Identity, clock: Clock, remote: Remote
    ) -> None:
        folder = self.folder = owner.folder
        files = HostGit(folder, folder / "host.git", folder / "tree")
        self.base_branch, self.base_commit = base
        super().__init__(files, self.base_commit, identity, clock)
        self._owner = owner
        self._kept = owner.kept
        self.remote = remote
        self.trees = Trees(files)
        self._branches = Branches(self.git, remote, base)
        self._adopter = Adopter(files, self, remote, self.base_commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except WorkspaceError:
            # What ended the block says more than a folder that stayed.
            if error is None:
                raise

    def keep(self) -> None:
        """Leave the folder where it is: it holds the only copy of work that could not be saved.

        A person may run git there, so every `.git` below `tree` is removed first, and what git would take
        for a bare repository is made none.

        Raises:
            WorkspaceError: one of them could not be removed. The folder stays all the same.
        """
        self._kept = True
        try:
            self._owner.keep()
        finally:
            disarm(self.tree, self.folder)

    def leave(self) -> None:
        """Let `close` leave the folder as it is, so that another process can open it again."""
        self._kept = True

    def close(self) -> None:
        """Remove the folder, unless it is kept. May be called again.

        Raises:
            WorkspaceError: something could not be removed.
        """
        if self._kept:
            self._owner.release()
        else:
            self._owner.remove()

    @property
    def head_commit(self) -> str:
        """The last commit that was made here, or the base."""
        return self.tip

    def tracked_files(self) -> list[TrackedFile]:
        """Every entry of the base commit, sorted by path."""
        return tracked_files(self.git, self.base_commit)

    def recent_commits(self, count: int) -> list[CommitLine]:
        """The last commits of the base branch, newest first; at most those that the shallow clone has."""
        return recent_commits(self.git, self.base_commit, count)

    def remote_tip(self, branch: str) -> RemoteTip | None:
        """The head of a branch on the remote, or None where there is no such branch."""
        return self._branches.remote_tip(branch)

    def push(self, branch: str, *, expected: str | None, lease: Fence | None = None) -> str:
        """Push what is committed, and read the remote's id back.

        Args:
            branch: the branch's name on the remote; never the base branch.
            expected: the commit that the remote branch must have now, or None where it must not exist.
                After a push of this clone to the branch, None means what was pushed then.
            lease: the claim on the task, which moves in the same push: neither moves without the other.

        Returns:
            The commit that the remote holds: `expected`, if that has the same files on the same parents.

        Raises:
            ClaimLostError: somebody else moved the claim; the branch was not touched.
            PushRejectedError: the remote did not take it, or holds something else.
            RemoteUnavailableError: no answer; it may have arrived, and pushing again is harmless.
        """
        self.require_forward(expected)
        if expected is not None and expected != self.tip:
            self.take_equal(expected)
        self.pushed = self._branches.push(branch, self.tip, expected=expected, lease=lease)
        return self.pushed

    def adopt(self, commit: str, *, reference: str | None = None, packed: Packed | None = None) -> Adopted:
        """Bring what a commit changed onto the files, by a three-way merge. Nothing is committed.

        The files are as if tools had written the change: give `paths` to `commit`, which leaves out what it
        leaves out of any change. To be called before anything is changed or committed here.

        Args:
            commit: has one parent, with which it is compared.
            reference: the full name on the remote of what leads to the commit, itself or its child. None:
                the server is asked for the commit by its id, which not every server gives.
            packed: what `pack` made of it; then no reference is needed.

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
        """
        return self._branches.state(branch, author_email, known_bases)

    def message_of(self, commit: str) -> str:
        """The message of a commit that is here, such as `BranchState.tip`."""
        return self._branches.message(commit)

    def pack(self, snapshot: Snapshot) -> Packed:
        """A snapshot without the remote, for `adopt` in a clone that is made later."""
        onto, pack = self.base_commit, b""
        if snapshot.commit is not None:
            wanted = f"{snapshot.commit}\n^{onto}\n".encode("ascii")
            words = ("pack-objects", "--revs", "--stdout", "-q")
            pack = self.git.run(*words, doing="cannot pack the changes", stdin=wanted)
        return Packed(snapshot.commit, snapshot.start, onto, pack)
