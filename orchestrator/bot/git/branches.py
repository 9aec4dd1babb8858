"""Branches of the remote: reads their commits on top of the base, pushes, and fetches proposed changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import BranchCommit, BranchState, MovedBase, ProposedCommits, RemoteTip
from orchestrator.bot.git.hostgit import error_for, printable_line, storage_errors
from orchestrator.bot.git.objects import commit_at
from orchestrator.bot.git.remote import (
    PushAnswer,
    Update,
    is_commit_id,
    listed_refs,
    plain_branch,
    push_updates,
)
from orchestrator.core.errors import BaseConflictError, PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Fence, Remote

_MOST_COMMIT_BYTES = 1_000_000
# Git's messages for a missing name, and for an id that the server does not serve.
_MISSING = re.compile(r"couldn't find remote ref|not our ref|unadvertised object")


def fetch(git: HostGit, remote: Remote, wanted: Mapping[str, str], depth: int, *, doing: str) -> bool:
    """Fetch refs with this depth of history.

    Args:
        wanted: full names on the remote, each with its full name here.

    Returns:
        Whether all of them exist; else nothing was fetched.
    """
    options = ("--quiet", f"--depth={depth}", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
    before = shallow_commits(git)
    specs = [f"+{theirs}:{ours}" for theirs, ours in wanted.items()]
    result = git.attempt("fetch", *options, "--", remote.url, *specs, doing=doing, remote=remote)
    if result.status != 0 and _MISSING.search(result.stderr):
        return False
    if result.status != 0:
        raise error_for(result.stderr, doing)
    after = shallow_commits(git)
    # Git cuts the history where the depth ends, even of a commit whose parents are here since the clone.
    cut = {
        commit
        for commit in after - before
        if not all(is_here(git, parent, doing=doing) for parent in parents(git, commit, doing=doing))
    }
    if after != (kept := (after & before) | cut):
        _write_shallow(git, kept, doing)
    return True


def shallow_commits(git: HostGit) -> set[str]:
    """Return the commits whose parents were not fetched."""
    path = git.git_dir / "shallow"
    with storage_errors("cannot read the clone"):
        return set(path.read_text("ascii").split()) if path.exists() else set()


def parents(git: HostGit, commit: str, *, doing: str) -> list[str]:
    """Return the parents that a commit names, whether they were fetched or not."""
    size = git.run("cat-file", "-s", commit, doing=doing)
    if int(size) > _MOST_COMMIT_BYTES:
        raise WorkspaceError(f"{doing}: the commit {commit} is too large")
    head, _, _ = git.run("cat-file", "commit", commit, doing=doing).partition(b"\n\n")
    lines = [line.split(b" ") for line in head.split(b"\n")]
    return [line[1].decode("ascii") for line in lines if line[0] == b"parent"]


def is_here(git: HostGit, commit: str, *, doing: str) -> bool:
    """Return whether the clone has a commit."""
    return git.attempt("cat-file", "-e", f"{commit}^{{commit}}", doing=doing).status == 0


def _write_shallow(git: HostGit, commits: set[str], doing: str) -> None:
    path = git.git_dir / "shallow"
    scratch = path.with_name("shallow.new")
    with storage_errors(doing):
        scratch.write_text("".join(f"{commit}\n" for commit in sorted(commits)), "ascii")
        if commits:
            scratch.replace(path)
        else:
            scratch.unlink()
            path.unlink(missing_ok=True)


_BRANCH = "refs/pullwright/fetched/branch"
_BASE = "refs/pullwright/fetched/base"
_TIP = "refs/pullwright/remote-tip"
# The first is enough for one commit on top of one that the clone has. A branch that is further from its
# base than the last is for people.
_FIRST_DEPTH_COMMITS = 2
_DEPTHS_COMMITS = (50, 250)
_MOST_LISTED = 1000


class Branches:
    """The branches of the remote."""

    def __init__(self, git: HostGit, remote: Remote, base: tuple[str, str]) -> None:
        self._git = git
        self._remote = remote
        self._base_branch, self._base = base
        self._pushed: dict[str, str] = {}

    def state(self, branch: str, email: str, known_bases: Collection[str]) -> BranchState | None:
        """Read the state of a branch: see `Clone.branch_state`."""
        doing = f"cannot read branch {branch} of {self._remote.shown}"
        state = self._above_base(branch, email, doing)
        if state is None or state.has_only_ours or (state.complete and not state.commits_since_base):
            return state
        # The base's history may have been rewritten: then what was its head lies between the base and our commit.
        below = parents(self._git, state.tip, doing=doing)
        if len(below) != 1 or below[0] not in known_bases:
            return state
        listed = self._list((state.tip, f"^{below[0]}"), doing)
        return _state(state.tip, listed, below[0], self._base, email, complete=True)

    def _above_base(self, branch: str, email: str, doing: str) -> BranchState | None:
        """Read which commits of a branch the base does not have."""
        plain_branch(branch)
        tip = self._fetch(branch, _FIRST_DEPTH_COMMITS, doing)
        if tip is None:
            return None
        listed: tuple[BranchCommit, ...] = ()
        tip_parents = parents(self._git, tip, doing=doing)
        if tip_parents == [self._base] and tip != self._base:
            listed = self._list((tip, f"^{self._base}"), doing)
            return _state(tip, listed, self._base, self._base, email, complete=True)
        for depth in (None, *_DEPTHS_COMMITS):
            found = tip if depth is None else self._fetch(branch, depth, doing, base=True)
            if found is None:
                return None
            start = merge_base(self._git, found, self._base, doing)
            # Without the second one, commits with odd dates would be listed although the base has them.
            without = [f"^{commit}" for commit in (self._base, start) if commit is not None]
            listed = self._list((found, *without), doing)
            if start is not None and shallow_commits(self._git).isdisjoint(line.commit for line in listed):
                return _state(found, listed, start, self._base, email, complete=True)
            tip = found
        return _state(tip, listed, None, self._base, email, complete=False)

    def beginning(self, branch: str) -> tuple[str, str]:
        """Return a branch's head, and its merge base with the base branch.

        Raises:
            WorkspaceError: the branch does not exist, or begins too far back to be certain.
        """
        state = self.state(branch, "", ())
        doing = f"cannot continue branch {branch} of {self._remote.shown}"
        if state is None:
            raise WorkspaceError(f"{doing}: there is no such branch")
        start = merge_base(self._git, state.tip, self._base, doing) if state.complete else None
        if start is None:
            raise WorkspaceError(
                f"{doing}: its last commits and those of {self._base_branch} have no common ancestor"
            )
        return state.tip, start

    def message(self, commit: str) -> str:
        """Return a commit's message: see `Clone.message_of`."""
        shown = self._git.run(
            *("log", "-1", "--no-walk", "--encoding=UTF-8", "--format=%B", commit, "--"),
            doing="cannot read a commit's message",
        )
        return shown.decode("utf-8", "replace").strip()

    def remote_tip(self, branch: str) -> RemoteTip | None:
        """Return a branch's head: see `Clone.remote_tip`."""
        plain_branch(branch)
        doing = f"cannot read branch {branch} of {self._remote.shown}"
        commit = self._remote_commit(f"refs/heads/{branch}", doing)
        if commit is None:
            return None
        if not is_here(self._git, commit, doing=doing):
            # Depth 1: the branch may have left the history before the commits that this clone has.
            options = ("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
            wanted = f"+refs/heads/{branch}:{_TIP}"
            self._git.run("fetch", *options, "--", self._remote.url, wanted, doing=doing, remote=self._remote)
            commit = commit_at(self._git, _TIP, doing=doing)
        line = self._git.run(
            *("log", "-1", "--no-walk", "--encoding=UTF-8", "--format=%ce%x00%cn", commit), doing=doing
        )
        email, _, name = line.decode("utf-8", "replace").rstrip("\n").partition("\0")
        return RemoteTip(commit, email, name)

    def moved_base(self) -> MovedBase | None:
        """Return the base branch's present head: see `Clone.moved_base`."""
        doing = f"cannot read branch {self._base_branch} of {self._remote.shown}"
        name = f"refs/heads/{self._base_branch}"
        tip = self._remote_commit(name, doing)
        if tip == self._base:
            return None
        for depth in (_FIRST_DEPTH_COMMITS, *_DEPTHS_COMMITS):
            if tip is None or not fetch(self._git, self._remote, {name: _BASE}, depth, doing=doing):
                raise BaseConflictError(f"the branch {self._base_branch} does not exist any more")
            tip = commit_at(self._git, _BASE, doing=doing)
            if merge_base(self._git, tip, self._base, doing) == self._base:
                return MovedBase(tip, is_rewritten=False)
        return MovedBase(str(tip), is_rewritten=True)

    def rename_base(self, branch: str) -> bool:
        """Take another branch for the base if it has the base's commit: see `Clone.rename_base`."""
        before, self._base_branch = self._base_branch, branch
        try:
            moved = self.moved_base()
        except BaseConflictError:
            moved = None
            branch = before
        if moved is not None and moved.is_rewritten:
            branch = before
        self._base_branch = branch
        return branch != before

    def follow(self, base: str) -> None:
        """Take another commit of the base branch for the base."""
        self._base = base

    def push(self, branch: str, commit: str, *, expected: str | None, lease: Fence | None = None) -> str:
        """Push a commit: see `Clone.push`."""
        plain_branch(branch)
        if branch == self._base_branch:
            raise PushRejectedError(
                f"the change needs its own branch: it is never pushed to {branch}, its base"
            )
        old = expected if expected is not None else self._pushed.get(branch, "")
        if old and not is_commit_id(old):
            raise WorkspaceError(f"{printable_line(old)!r} is not a commit id")
        doing = f"cannot push {branch} to {self._remote.shown}"
        update = Update(f"refs/heads/{branch}", old or None, commit)
        if lease is None:
            found = self._push_alone(update, doing)
        else:
            found = lease.push(self._git, update, doing=doing, base=self._base)
        if found != commit:
            raise PushRejectedError(f"{doing}: the remote has {found or 'nothing'} instead of {commit}")
        self._pushed[branch] = commit
        return commit

    def remove(self, branch: str, commit: str) -> None:
        """Remove a branch: see `Clone.remove_branch`."""
        plain_branch(branch)
        doing = f"cannot remove {branch} from {self._remote.shown}"
        self._pushed.pop(branch, None)
        if self._push_alone(Update(f"refs/heads/{branch}", commit, None), doing) is not None:
            raise PushRejectedError(f"{doing}: it has another commit now")

    def _push_alone(self, update: Update, doing: str) -> str | None:
        """Push, and read back: a failed push may have arrived by an earlier try, or before the connection was cut."""
        pushed = push_updates(self._git, self._remote, [update], doing=doing)
        try:
            found = self._remote_commit(update.ref, doing)
        except WorkspaceError:
            if pushed.answer is PushAnswer.MOVED:
                raise
            raise pushed.error from None
        if pushed.answer is not PushAnswer.MOVED and found != update.new:
            raise pushed.error
        return found

    def _remote_commit(self, reference: str, doing: str) -> str | None:
        output = self._git.run(
            "ls-remote", "--", self._remote.url, reference, doing=doing, remote=self._remote
        )
        # The pattern also matches longer names that end in it.
        return listed_refs(output).get(reference)

    def _fetch(self, branch: str, depth: int, doing: str, *, base: bool = False) -> str | None:
        """Fetch a branch and return its head; None if it does not exist."""
        wanted = {f"refs/heads/{branch}": _BRANCH}
        if base and branch != self._base_branch:
            wanted[f"refs/heads/{self._base_branch}"] = _BASE
        if not fetch(self._git, self._remote, wanted, depth, doing=doing):
            return None
        return commit_at(self._git, _BRANCH, doing=doing)

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
    tip: str, listed: tuple[BranchCommit, ...], start: str | None, base: str, email: str, *, complete: bool
) -> BranchState:
    """Build the state of a branch."""
    addresses = {address for one in listed for address in (one.author_email, one.committer_email)}
    has_only_ours = complete and bool(email) and addresses == {email}
    is_ours = has_only_ours and [one.commit for one in listed] == [tip]
    return BranchState(tip, listed, is_ours, has_only_ours, start != base, complete)


_PROPOSED = "refs/pullwright/fetched/proposed"
_ONTO = "refs/pullwright/fetched/onto"
_WHOLE = 2**31 - 1
"""The depth that means the complete history: https://git-scm.com/docs/git-fetch, `--unshallow`."""
_DEEPER_COMMITS = (10, 50, 250, 2_000, _WHOLE)
_BUNDLE_LACKS = "lacks these prerequisite commits"


def fetch_proposed(
    git: HostGit, remote: Remote, reference: str, onto: str, bundle: Remote | None = None
) -> ProposedCommits:
    """Fetch a proposed change, with enough history to find its merge base.

    Args:
        reference: full name of the ref to the head, or the head's id.
        onto: full name of the target branch, or a commit of it.
        bundle: a file that contains the ref, in place of the remote.
    """
    doing = f"cannot read {printable_line(reference)} of {(bundle or remote).shown}"
    wanted = {onto: _ONTO} if bundle else {onto: _ONTO, reference: _PROPOSED}
    for depth in _DEEPER_COMMITS:
        if not fetch(git, remote, wanted, depth, doing=doing):
            raise WorkspaceError(
                f"{doing}: the remote does not have it, or does not have {printable_line(onto)}"
            )
        is_last = depth == _WHOLE
        if bundle and not _unbundle(git, bundle, reference, doing, is_last=is_last):
            continue
        head, base = (commit_at(git, name, doing=doing) for name in (_PROPOSED, _ONTO))
        start = merge_base(git, head, base, doing)
        if start is not None and (is_last or _is_known(git, (head, base), start, doing)):
            return _as_merged(git, head, base, doing) if start == head else ProposedCommits(head, base, start)
    raise WorkspaceError(f"{doing}: it has no commit in common with {printable_line(onto)}")


def bundle_reference(git: HostGit, bundle: Remote) -> str:
    """Return the ref of the proposed change in a bundle: its only branch, or else its HEAD."""
    doing = f"cannot read {bundle.shown}"
    listed = git.attempt("bundle", "list-heads", str(bundle.folder), doing=doing)
    if listed.status != 0:
        raise WorkspaceError(f"{doing}: it is not a bundle of git")
    lines = listed.stdout.decode("utf-8", "surrogateescape").split("\n")
    names = [line.partition(" ")[2] for line in lines if line]
    branches = [name for name in names if name.startswith("refs/heads/")] or [
        name for name in names if name == "HEAD"
    ]
    if len(branches) == 1:
        return branches[0]
    raise WorkspaceError(
        f"{doing}: it has {len(branches)} branches; create one with a single branch: git bundle create FILE main..BRANCH"
    )


def _unbundle(git: HostGit, bundle: Remote, reference: str, doing: str, *, is_last: bool) -> bool:
    """Read the bundle. Return False if commits are missing that it depends on."""
    words = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--update-shallow")
    result = git.attempt(
        "fetch", *words, "--", bundle.url, f"+{reference}:{_PROPOSED}", doing=doing, remote=bundle
    )
    if result.status == 0:
        return True
    if _BUNDLE_LACKS in result.stderr and not is_last:
        return False
    raise error_for(result.stderr, doing)


def merge_base(git: HostGit, one: str, other: str, doing: str) -> str | None:
    """Return the best common ancestor of two commits; None if the fetched history has none."""
    found = git.attempt("merge-base", one, other, doing=doing)
    return found.stdout.decode("ascii").strip() if found.status == 0 else None


def _is_known(git: HostGit, ends: tuple[str, str], start: str, doing: str) -> bool:
    """Return whether the merge base is certain: a history cut off above it might hide a later one."""
    listed = git.run("rev-list", *ends, f"^{start}", "--", doing=doing).decode("ascii").split()
    return shallow_commits(git).isdisjoint(listed)


def _as_merged(git: HostGit, head: str, base: str, doing: str) -> ProposedCommits:
    """Return the start of a head that was already merged: before its merge commit, else its parent."""
    words = ("rev-list", "--first-parent", "--ancestry-path", f"{head}..{base}", "--")
    later = git.run(*words, doing=doing).decode("ascii").split()
    merge = parents(git, later[-1], doing=doing) if later else []
    is_merge = len(merge) > 1 and merge[0] != head
    before = merge[:1] if is_merge else parents(git, head, doing=doing)[:1]
    if not before or not is_here(git, before[0], doing=doing):
        raise WorkspaceError(f"{doing}: it is merged already, and has no parent to compare it with")
    start = merge_base(git, head, before[0], doing) if is_merge else before[0]
    return ProposedCommits(head, base, start or before[0], is_merged=True)
