"""The clone of one run: two folders side by side, a git directory of ours and the files that tools see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from orchestrator.bot.git.adopt import Adopter
from orchestrator.bot.git.base import Screen
from orchestrator.bot.git.branches import Branches, Publisher
from orchestrator.bot.git.folders import disarm
from orchestrator.bot.git.objects import Trees, recent_commits, tracked_files
from orchestrator.bot.git.saving import Saver
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from types import TracebackType

    from orchestrator.bot.git.base import (
        Adopted,
        BranchState,
        CommitLine,
        CommitOutcome,
        Packed,
        RemoteTip,
        SavedWork,
        Staged,
        TrackedFile,
    )
    from orchestrator.bot.git.commit import Committer
    from orchestrator.bot.git.folders import Owner
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.git.swap import Fence

_LARGE_BYTES = 1_000_000


class Clone:
    """A shallow clone in a temporary folder, removed when the `with` block ends.

    The model's tools see `tree` and nothing else. Git is run by this program only, on a git directory
    beside it. Not safe for use by several threads at once.

    Attributes:
        folder: holds everything.
        tree: the files.
        base_commit: the commit that was cloned.
        base_branch: its branch.
        trees: the trees of its objects, for runs of tests.
    """

    def __init__(
        self, owner: Owner, base: tuple[str, str], files: HostGit, committer: Committer, remote: Remote
    ) -> None:
        folder = self.folder = owner.folder
        self._owner = owner
        self._git = files.without_tree()
        self._committer = committer
        self._publisher = Publisher(self._git, remote, base[0])
        self._branches = Branches(self._git, remote, base)
        self._adopter = Adopter(files, committer, remote, base[1])
        self._saver = Saver(files, committer, remote)
        self._kept = owner.kept
        self.tree = folder / "tree"
        self.trees = Trees(files)
        self.base_branch, self.base_commit = base

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
        return self._committer.tip

    def tracked_files(self) -> list[TrackedFile]:
        """Every entry of the base commit, sorted by path."""
        return tracked_files(self._git, self.base_commit)

    def recent_commits(self, count: int) -> list[CommitLine]:
        """The last commits of the base branch, newest first; at most those that the shallow clone has."""
        return recent_commits(self._git, self.base_commit, count)

    def changed_paths(self) -> set[str]:
        """What differs from the last commit made here: tracked files, and new ones that are not ignored.

        Paths that were held or left out are among them as long as they differ.
        """
        return self._committer.changed_paths()

    def commit(
        self,
        touched: set[str],
        message: str,
        *,
        include_commands: bool,
        large_limit_bytes: int = _LARGE_BYTES,
        screen: Screen | None = None,
    ) -> CommitOutcome:
        """Commit exactly the touched paths, on top of what was committed before.

        Args:
            touched: paths that tools wrote or removed, relative, with `/`.
            message: the commit's message.
            include_commands: commands ran, so commit too what the work tree shows as changed. Commits that
                a command made in `tree/.git` are not looked at: their files are in the work tree.
            large_limit_bytes: a new file of a command that is larger than this is left out.
            screen: what every commit passes; None lets everything through.

        Raises:
            WorkspaceError: git failed, or the work tree is gone.
        """
        return self._committer.commit(
            touched,
            message,
            include_commands=include_commands,
            large_limit_bytes=large_limit_bytes,
            screen=screen or Screen(),
        )

    def stage(self, touched: set[str], *, include_commands: bool, screen: Screen | None = None) -> Staged:
        """What `commit` would commit now, screened as there; for `commit_staged`. Nothing is committed.

        Raises:
            WorkspaceError: git failed, or the work tree is gone.
        """
        return self._committer.stage(
            touched,
            include_commands=include_commands,
            large_limit_bytes=_LARGE_BYTES,
            screen=screen or Screen(),
        )

    def commit_staged(self, staged: Staged, message: str) -> CommitOutcome:
        """Commit what was staged last, whatever the files are by now.

        Raises:
            WorkspaceError: git failed.
        """
        return self._committer.commit_staged(staged, message)

    def changed_tree(self, touched: set[str], *, include_commands: bool) -> str:
        """Git's id of the files as they are now, screened by nothing. Takes the paths that `commit` would take.

        Raises:
            WorkspaceError: git failed, or the work tree is gone.
        """
        tree, _ = self._committer.staged_tree(
            touched, include_commands=include_commands, large_limit_bytes=_LARGE_BYTES
        )
        return tree

    def diff(self) -> str:
        """What is committed since the base, as a unified diff. Bytes that are not UTF-8 become U+FFFD."""
        return self._committer.diff().decode("utf-8", "replace")

    def pending_patch(
        self,
        touched: set[str],
        *,
        include_commands: bool,
        pushed: bool = True,
        changed: set[str] | None = None,
    ) -> bytes:
        """Everything changed since the last push (or the base, or the branch that is continued), committed or not, for `git apply`.

        Takes the paths that `commit` would take. What is left out is named in lines before the patch,
        which `git apply` skips. Empty where nothing changed.

        Args:
            touched: as for `commit`.
            include_commands: as for `commit`.
            pushed: what was pushed counts as kept; if not, it is in the patch as well.
            changed: what `changed_paths` has just found; None to look now.
        """
        return self._committer.pending_patch(
            (self._publisher.pushed if pushed else None) or self._committer.joined or self.base_commit,
            touched,
            include_commands=include_commands,
            large_limit_bytes=_LARGE_BYTES,
            changed=changed,
        )

    def remote_tip(self, branch: str) -> RemoteTip | None:
        """The head of a branch on the remote, or None where there is no such branch."""
        return self._publisher.remote_tip(branch)

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
        self._committer.require_forward(expected)
        if expected is not None and expected != self._committer.tip:
            self._committer.take_equal(expected)
        return self._publisher.push(branch, self._committer.tip, expected=expected, lease=lease)

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
            onto=self.base_commit,
        )
