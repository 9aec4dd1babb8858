"""Bringing a branch to the remote by compare-and-swap, and reading back what the remote holds."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.core.errors import PushRejectedError, WorkspaceError
from orchestrator.workspace.base import RemoteTip
from orchestrator.workspace.failures import error_for, printable
from orchestrator.workspace.names import checked_branch, is_commit_id

if TYPE_CHECKING:
    from orchestrator.workspace.hostgit import GitResult, HostGit
    from orchestrator.workspace.remote import Remote

_TIP_REFERENCE = "refs/pullwright/remote-tip"
_MOST_REMOTE_LINES = 4
# `!<TAB>from:to<TAB>[remote rejected] (reason)`, see "OUTPUT" in https://git-scm.com/docs/git-push
_REJECTED = re.compile(r"^!\t[^\t]*\t\[(?P<kind>[^\]]*)\](?: \((?P<reason>.*)\))?", re.MULTILINE)


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
        checked_branch(self._git, branch)
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

    def push(self, branch: str, commit: str, *, expected: str | None) -> str:
        """See `Clone.push`."""
        checked_branch(self._git, branch)
        if branch == self._base_branch:
            message = f"the change goes to a branch of its own, never to {branch}, its base"
            raise PushRejectedError(message)
        lease = expected if expected is not None else self._pushed.get(branch, "")
        if lease and not is_commit_id(lease):
            message = f"{printable(lease)!r} is not a commit id"
            raise WorkspaceError(message)
        doing = f"cannot push {branch} to {self._remote.shown}"
        result = self._git.attempt(
            *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"),
            *(f"--force-with-lease=refs/heads/{branch}:{lease}", "--", self._remote.url),
            f"{commit}:refs/heads/{branch}",
            doing=doing,
            remote=self._remote,
        )
        if result.status != 0:
            self._require_arrived(branch, commit, result, doing)
        found = self._remote_commit(branch, doing)
        if found != commit:
            message = f"{doing}: the remote holds {found or 'nothing'} instead of {commit}"
            raise PushRejectedError(message)
        self._pushed[branch] = self.pushed = commit
        return commit

    def _require_arrived(self, branch: str, commit: str, result: GitResult, doing: str) -> None:
        """A push that failed may have arrived: an earlier try, or a connection cut after the server's work."""
        with suppress(WorkspaceError):
            if self._remote_commit(branch, doing) == commit:
                return
        raise _push_error(result, doing)

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


def _push_error(result: GitResult, doing: str) -> WorkspaceError:
    rejected = _REJECTED.search(result.stdout.decode("utf-8", "replace"))
    if rejected is None:
        return error_for(result.stderr, doing)
    reason = rejected["reason"] or rejected["kind"]
    if reason == "stale info":
        return PushRejectedError(f"{doing}: the branch changed on the remote meanwhile")
    said = [
        shown
        for line in result.stderr.splitlines()
        if line.startswith("remote:") and (shown := printable(line.removeprefix("remote:")))
    ]
    detail = f"; the server says: {' '.join(said[:_MOST_REMOTE_LINES])}" if said else ""
    return PushRejectedError(f"{doing}: {printable(reason)}{detail}")
