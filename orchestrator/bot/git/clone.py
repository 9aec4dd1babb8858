"""The clone of one run: two folders side by side, a git directory of ours and the files that tools see."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from orchestrator.bot.git.base import Screen
from orchestrator.bot.git.commit import Committer
from orchestrator.bot.git.continuing import Continuing
from orchestrator.bot.git.disarm import disarm
from orchestrator.bot.git.failures import storage_errors
from orchestrator.bot.git.first_fetch import DEPTH_COMMITS, configure, first_fetch
from orchestrator.bot.git.history import recent_commits, tracked_files
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.mirror import Mirrors
from orchestrator.bot.git.model_repository import create_model_repository
from orchestrator.bot.git.owner import address_key, new_owned_folder
from orchestrator.bot.git.publish import Publisher
from orchestrator.bot.git.remote import Remote, parse_remote
from orchestrator.bot.git.trees import Trees
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from orchestrator.bot.git.base import (
        CommitLine,
        CommitOutcome,
        Identity,
        RemoteTip,
        Staged,
        TrackedFile,
    )
    from orchestrator.bot.git.credential import GitCredential
    from orchestrator.bot.git.owner import Owner
    from orchestrator.bot.git.swap import Fence
    from orchestrator.core.clock import Clock

_LARGE_BYTES = 1_000_000
_SHA1_DIGITS = 40


class Clone(Continuing):
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
        super().__init__(files, committer, remote, base)
        folder = self.folder = owner.folder
        self._owner = owner
        self._git = files.without_tree()
        self._committer = committer
        self._publisher = Publisher(self._git, remote, base[0])
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


def open_clone(  # noqa: PLR0913  each is a fact of the run, given by name
    url: str,
    *,
    branch: str | None,
    credential: Callable[[], GitCredential | None],
    parent: Path,
    with_git: bool,
    identity: Identity,
    clock: Clock | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    mirror: Path | None = None,
    run: str = "",
    note: Callable[[str], None] = lambda _text: None,
) -> Clone:
    """Clone one branch of a repository, shallow, into a new folder.

    Args:
        url: a URL without a password, `user@host:path`, or a local path.
        branch: the branch, or None for the remote's default.
        credential: asked for whenever the remote is contacted.
        parent: where the new folder is made.
        with_git: give the files a repository of their own, for the model's commands.
        identity: author and committer of what is committed.
        clock: dates the commits; the machine's clock by default.
        cancelled: asked while the remote is contacted; True ends that at once.
        mirror: a folder of this user for mirrors of remotes, which make the next clone cheaper; None for
            none. With one or without, the clone is the same.
        run: the run's id; it is written down beside the files.
        note: takes one line that a person may want to know, such as why a mirror was not used.

    Raises:
        EmptyRepositoryError: the repository has no commit.
        WorkspaceError: anything else that goes wrong, said in one line.
    """
    if not identity.name.strip(" .,:;<>\"\\'") or not identity.email.strip():
        raise WorkspaceError("git needs a name and an e-mail address for commits")
    remote = replace(parse_remote(url, credential), cancelled=cancelled)
    clock = clock or SystemClock()
    doing = f"cannot clone {remote.shown}"
    with ExitStack() as undo, storage_errors(doing):
        parent.mkdir(parents=True, exist_ok=True)
        owner = new_owned_folder(parent.resolve(), run, address_key(remote.url))
        undo.callback(owner.remove)
        folder = owner.folder
        base = None
        if mirror is not None:
            mirrors = Mirrors(mirror, clock=clock, depth=DEPTH_COMMITS, note=note)
            base = mirrors.clone(folder, remote, branch, doing, partial(first_fetch, folder, doing=doing))
        base = base or first_fetch(folder, remote, branch, doing)
        configure(folder / "host.git", sha256=len(base[1]) > _SHA1_DIGITS)
        if with_git:
            create_model_repository(folder / "host.git", folder / "tree", *base, identity)
        owner.complete(*base)
        undo.pop_all()
        return assemble(owner, base, remote, identity, clock)


def assemble(owner: Owner, base: tuple[str, str], remote: Remote, identity: Identity, clock: Clock) -> Clone:
    """The clone in a folder that is complete, from its parts.

    Args:
        owner: holds the folder.
        base: the branch and the commit that were cloned.
        remote: where they came from.
        identity: author and committer of what is committed.
        clock: dates the commits.
    """
    folder, host = owner.folder, owner.folder / "host.git"
    files = HostGit(folder, host, folder / "tree")
    return Clone(owner, base, files, Committer(files, base[1], identity, clock), remote)
