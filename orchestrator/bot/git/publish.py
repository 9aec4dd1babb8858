"""Bringing a branch to the remote by compare-and-swap, and reading back what the remote holds."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import RemoteTip
from orchestrator.bot.git.failures import printable
from orchestrator.bot.git.names import is_commit_id, plain_branch
from orchestrator.bot.git.swap import Update, push_error
from orchestrator.core.errors import PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from orchestrator.bot.git.hostgit import GitResult, HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.git.swap import Fence

_TIP_REFERENCE = "refs/pullwright/remote-tip"


class Publisher:
    """Branches of the remote.

    Args:
        git: git on our objects.
        remote: where to push.
        base_branch: the branch that is never pushed to.

    Attributes:
        pushed: the last commit that was pushed, or None.
    """

    def __init__(self, git: HostGit, remote: Remote, base_branch: str) -> None:
        self._git = git
        self._remote = remote
        self._base_branch = base_branch
        self._pushed: dict[str, str] = {}
        self.pushed: str | None = None

    def remote_tip(self, branch: str) -> RemoteTip | None:
        """See `Clone.remote_tip`."""
        plain_branch(branch)
        doing = f"cannot read branch {branch} of {self._remote.shown}"
        commit = self._remote_commit(branch, doing)
        if commit is None:
            return None
        known = self._git.attempt("cat-file", "-e", f"{commit}^{{commit}}", doing=doing)
        if known.status != 0:
            # Depth 1: the branch may have left the history before the commits that this clone has.
            options = ("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
            wanted = f"+refs/heads/{branch}:{_TIP_REFERENCE}"
            self._git.run("fetch", *options, "--", self._remote.url, wanted, doing=doing, remote=self._remote)
            commit = self._git.run("rev-parse", _TIP_REFERENCE, doing=doing).decode("ascii").strip()
        line = self._git.run(
            *("log", "-1", "--no-walk", "--encoding=UTF-8", "--format=%ce%x00%cn", commit), doing=doing
        )
        email, _, name = line.decode("utf-8", "replace").rstrip("\n").partition("\0")
        return RemoteTip(commit, email, name)

    def push(self, branch: str, commit: str, *, expected: str | None, lease: Fence | None = None) -> str:
        """See `Clone.push`."""
        plain_branch(branch)
        if branch == self._base_branch:
            message = f"the change goes to a branch of its own, never to {branch}, its base"
            raise PushRejectedError(message)
        old = expected if expected is not None else self._pushed.get(branch, "")
        if old and not is_commit_id(old):
            message = f"{printable(old)!r} is not a commit id"
            raise WorkspaceError(message)
        doing = f"cannot push {branch} to {self._remote.shown}"
        update = Update(f"refs/heads/{branch}", old or None, commit)
        if lease is None:
            self._push_alone(branch, update, doing)
            found = self._remote_commit(branch, doing)
        else:
            found = lease.push(self._git, update, doing=doing)
        if found != commit:
            message = f"{doing}: the remote holds {found or 'nothing'} instead of {commit}"
            raise PushRejectedError(message)
        self._pushed[branch] = self.pushed = commit
        return commit

    def _push_alone(self, branch: str, update: Update, doing: str) -> None:
        result = self._git.attempt(
            *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"),
            *(f"--force-with-lease={update.ref}:{update.old or ''}", "--", self._remote.url),
            f"{update.new}:{update.ref}",
            doing=doing,
            remote=self._remote,
        )
        if result.status != 0:
            self._require_arrived(branch, update.new or "", result, doing)

    def _require_arrived(self, branch: str, commit: str, result: GitResult, doing: str) -> None:
        """A push that failed may have arrived: an earlier try, or a connection cut after the server's work."""
        with suppress(WorkspaceError):
            if self._remote_commit(branch, doing) == commit:
                return
        raise push_error(result, doing)

    def _remote_commit(self, branch: str, doing: str) -> str | None:
        reference = f"refs/heads/{branch}"
        output = self._git.run(
            "ls-remote", "--", self._remote.url, reference, doing=doing, remote=self._remote
        )
        # The pattern also matches longer names that end in it.
        for line in output.decode("utf-8", "surrogateescape").splitlines():
            commit, _, name = line.partition("\t")
            if name == reference:
                return commit
        return None
