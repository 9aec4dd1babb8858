"""The clone of one run: two folders side by side, a git directory of ours and the files that tools see."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from orchestrator.bot.git.base import (
    CommitOutcome,
    CommitScreen,
    LeftOut,
    Packed,
    Snapshot,
    Staged,
)
from orchestrator.bot.git.branches import Branches, bundle_reference, fetch_proposed
from orchestrator.bot.git.folders import disarm
from orchestrator.bot.git.hostgit import HostGit, name_paths, printable_line, storage_errors
from orchestrator.bot.git.lfs import EDITED_POINTER, LfsServer, why_refused
from orchestrator.bot.git.objects import (
    Difference,
    TreeEntry,
    Trees,
    blobs_of,
    changed_tree,
    commit_of,
    differences,
    entries_at,
    identity_variables,
    pack_commit,
    read_objects,
    recent_commits,
    tree_of,
    with_markers,
    write_blob,
    write_tree,
)
from orchestrator.bot.git.staging import COMMITTING, Screening, Stager, binary_patch, diff, held_paths
from orchestrator.bot.git.working_tree import WorkingTree
from orchestrator.core.changes import FileChange
from orchestrator.core.errors import PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path
    from types import TracebackType

    from orchestrator.bot.git.base import (
        AppliedWork,
        BranchState,
        CommitLine,
        Identity,
        MovedBase,
        ProposedCommits,
        RemoteTip,
        TrackedFile,
    )
    from orchestrator.bot.git.folders import Owner
    from orchestrator.bot.git.lfs import LfsFile
    from orchestrator.bot.git.remote import Fence, Remote
    from orchestrator.bot.git.work import WorkApplier
    from orchestrator.core.clock import Clock

_MOST_CHARACTERS = 20_000
_MOST_TRAILER_CHARACTERS = 4_000
_DEFAULT = "Change files"
# A line `Key: value`, and lines that begin with a blank and continue it:
# https://git-scm.com/docs/git-interpret-trailers
_TRAILERS = re.compile(r"(?:[A-Za-z0-9-]+:[ \t]*\S[^\n]*(?:\n[ \t]+\S[^\n]*)*(?:\n|$))+")
# Lines that end a message for git: text after them would hide the trailers.
_ENDS = re.compile(r"^(?=---\s|---$|# -+ >8 -+$)", re.MULTILINE)


def clean_message(text: str) -> str:
    """Return the message with a line feed at its end, without NUL, and at most 20,000 characters.

    A longer one loses the end of its text, and keeps the trailers.
    """
    plain = text.replace("\0", "").replace("\r\n", "\n").strip() or _DEFAULT
    plain = _ENDS.sub(" ", plain)
    body, blank, last = plain.rpartition("\n\n")
    if blank and len(last) <= _MOST_TRAILER_CHARACTERS and _TRAILERS.fullmatch(last):
        room = _MOST_CHARACTERS - len(last) - 2
        return f"{body[:room].rstrip()}\n\n{last}\n"
    return f"{plain[:_MOST_CHARACTERS].rstrip()}\n"


_MOST_SHOWN_PATHS = 3
_STAGED = "index.commit"
_LFS_CONFIGURATION = ".lfsconfig"
# The first one that is there: https://github.com/git-lfs/git-lfs/blob/main/docs/man/git-lfs-config.adoc
_LFS_KEYS = ("lfs.pushurl", "lfs.url", "remote.origin.lfspushurl", "remote.origin.lfsurl")
# Only so many changed files are searched for secrets one by one. If there are more, none of them is kept.
_FILE_MODES = frozenset({"100644", "100755"})
_MOST_SEARCHED = 1000


class Clone:
    """A shallow clone in a temporary folder, removed at the end of the `with` block.

    The model's tools see only `tree`. Git is run only by this program, on a git directory beside it. It is
    not thread-safe. Every method may raise `WorkspaceError`: git failed, or the working tree is gone.

    Attributes:
        trees: the trees of its objects, for test runs.
        tip: the last commit made here, or the base, or the head of the joined branch.
        head: the commit or tree that the next commit's files are compared with.
        start: the commit that all work here is based on; for a joined branch an artificial one.
        joined: the head of the branch that is continued, or None.
        pushed: the last commit that was pushed, or None.
        conflicts: paths that are not committed until they are free of conflict markers.
        applied: paths of restored earlier work; they are saved again, touched or not.
        index: the index file of the head.
        fresh: whether nothing was committed here yet.
    """

    _elsewhere: Path | None = None

    def __init__(
        self, owner: Owner, base: tuple[str, str], identity: Identity, clock: Clock, remote: Remote
    ) -> None:
        self.folder, self._owner, self._kept = owner.folder, owner, owner.kept
        self.git = git = HostGit(owner.folder, owner.folder / "host.git")
        self.trees = Trees(git)
        self.tree, self.index = owner.folder / "tree", git.git_dir / "index"
        self.base_branch, self.base_commit = base
        self.remote, self._branches = remote, Branches(self.git, remote, base)
        self._identity, self._clock = identity, clock
        self._files = WorkingTree(git, self.tree, times=self.index)
        self._stager = Stager(git, self._files)
        self.tip = self.head = self.start = self.base_commit
        self.parents = [self.base_commit]
        self.joined: str | None = None
        self.pushed: str | None = None
        self.conflicts: set[str] = set()
        self.applied: set[str] = set()
        self.fresh = True
        # The paths that were to be committed and are the same in the head; and the head's diff, if it was made.
        self._settled: set[str] = set()
        self._shown: tuple[str, bytes] | None = None
        # What was staged last, and the new values of `_settled` and `_shown` once it is committed.
        self._staged: tuple[Staged, set[str], bytes | None] | None = None
        self._lfs = LfsServer(remote, self._lfs_address)
        # What was staged last and belongs into Git LFS, and what was committed and is not at the server yet; by path.
        self._lfs_staged: dict[str, LfsFile] = {}
        self._lfs_committed: dict[str, LfsFile] = {}
        # Tip, head, parents and freshness before the last commit, until it is taken back.
        self._before: tuple[str, str, list[str], bool] | None = None
        # The head's tree with all that it changes since the base, once something was committed here.
        self._screened: tuple[str, tuple[FileChange, ...]] | None = None

    def join(self, tip: str, parents: list[str], tree: str, index: Path) -> None:
        """Continue a branch: the next commit has these parents, and is compared with this tree.

        Args:
            tree: the merged tree of the parents.
            index: an index file of that tree, which is taken over.
        """
        with storage_errors(COMMITTING):
            index.replace(self.index)
        self._files.trust(self.index)
        self.start = commit_of(self.git, tree, parents, f"{tip} and its base")
        self.tip = self.joined = tip
        self.parents = parents
        self.head = tree
        self._screened = None

    def _require_forward(self, expected: str | None) -> None:
        """Refuse a push that would remove other people's commits from the continued branch."""
        if self.joined is None or expected is None:
            return
        below = self.git.attempt("merge-base", "--is-ancestor", expected, self.tip, doing="cannot push")
        if below.status != 0:
            raise PushRejectedError(
                f"cannot push: {printable_line(expected)} has commits that {self.tip} does not have"
            )

    def _use_equal(self, other: str) -> None:
        """Use a fetched commit in place of the last one made here, if both have the same files and parents.

        A repeated cycle that made the same commit then has nothing to push over the first one.
        """
        # The tree, then the parents.
        mine, theirs = (
            self.git.attempt("rev-parse", "--revs-only", f"{name}^{{tree}}", f"{name}^@", doing=COMMITTING)
            for name in (self.tip, other)
        )
        if mine.stdout and mine.stdout == theirs.stdout:
            self.tip = self.head = other
            self.parents = [other]

    def changed_paths(self, among: Collection[str] | None = None) -> set[str]:
        """Return the paths that differ from the last commit made here, including new files that are not ignored.

        Paths that were held or left out are included as long as they differ.

        Args:
            among: the only paths to look at, which takes no walk over all files; by default every path.
        """
        self._require_tree()
        return self._files.changed(self.index, among)

    def stage(
        self, touched: set[str], *, include_commands: bool, screen: CommitScreen | None = None
    ) -> Staged:
        """Stage exactly the touched paths, for `commit_staged`. It succeeds completely or not at all.

        Args:
            touched: paths that tools wrote or removed, relative, with `/`.
            include_commands: whether commands ran, so that all changes of the working tree are staged.
                Commits that a command made in `tree/.git` are ignored: their files are in the working tree.
            screen: the checks of every commit; None lets everything pass.
        """
        self._require_tree()
        index = self._scratch_index(_STAGED)
        wanted = touched | self.conflicts
        self._stager.admits = screen.admits if screen else self._stager.admits
        left_out = self._stager.stage(index, wanted, include_commands=include_commands)
        without_lfs, refused = self._ask_lfs(index, touched)
        left_out = sorted([*left_out, *without_lfs], key=lambda item: item.path)
        if include_commands:
            left_out += self._stager.made_and_ignored([item.path for item in left_out])
        screen = self._require_resolved(screen or CommitScreen(), index)
        screening = Screening(self.git, self._stager, self.base_commit, self.head, screen, self._screened)
        found = screening.run(index, left_out)
        outcome = found.outcome
        self._lfs_staged = {
            path: file for path, file in self._lfs_staged.items() if path in set(outcome.files)
        }
        if outcome.refused is None:
            outcome = replace(outcome, refused=refused)
        if outcome.refused is None and (left := self._unresolved(found.tree)):
            # A held path is as the head has it: with the markers, if the head is a merge.
            outcome = replace(outcome, refused=f"a person has to resolve the conflict in {left}")
        settled = (wanted & self._stager.taken) - {item.path for item in left_out}
        is_allowed = outcome.refused is None and not outcome.held_back
        staged = Staged(found.tree, outcome, is_allowed and bool(outcome.files or len(self.parents) > 1))
        # People see the pointers.
        self._staged = staged, settled, None if self._lfs_staged else found.diff
        return staged

    def _ask_lfs(self, index: Path, touched: set[str]) -> tuple[list[LeftOut], str | None]:
        """Keep new contents of Git LFS staged if the server takes them. Return what is left out, and why all is refused.

        What only commands made is left out; without what a tool wrote, the change would be another one.
        """
        there = self._stager.in_lfs
        self._stager.put_pointers(index, {path: file for path, file in there.items() if file.is_known})
        new = {path: file for path, file in there.items() if not file.is_known}
        self._lfs_staged = new
        reasons = dict.fromkeys(self._stager.edited_pointers & touched, EDITED_POINTER)
        left_out: list[LeftOut] = []
        if new and (why := self._lfs.why_not(new.values())) is not None:
            tracked = self._files.index(self.index)
            listed = [Difference(path, tracked.get(path), file.content) for path, file in new.items()]
            self._stager.restore(listed, index)
            self._stager.taken -= new.keys()
            self._lfs_staged = {}
            left_out = [LeftOut(path, why_refused(why)) for path in new]
            reasons |= dict.fromkeys(touched & new.keys(), why_refused(why))
        if not reasons:
            return left_out, None
        paths = sorted(path for path, reason in reasons.items() if reason == reasons[min(reasons)])
        return left_out, f"{name_paths(paths, _MOST_SHOWN_PATHS)}: {reasons[min(reasons)]}"

    def _lfs_address(self) -> str:
        """Return the address of Git LFS in the base commit's `.lfsconfig`; empty if it has none.

        A file of the working tree is not asked: the model may write it.
        """
        blob = self.blobs([_LFS_CONFIGURATION]).get(_LFS_CONFIGURATION)
        if blob is None:
            return ""
        for key in _LFS_KEYS:
            found = self.git.attempt("config", "--blob", blob, "--get", key, doing=COMMITTING)
            if found.status == 0:
                return found.stdout.decode("utf-8", "replace").strip()
        return ""

    def _upload_lfs(self, branch: str) -> None:
        """Give the server of Git LFS the contents whose pointers are about to be pushed."""
        if not self._lfs_committed:
            return
        there = entries_at(self.git, self.tip, self._lfs_committed)
        wanted = [file for path, file in self._lfs_committed.items() if there.get(path) == file.pointer]
        if wanted:
            self._lfs.upload(
                wanted,
                lambda file: read_objects(self.git, [file.content.object_id], doing=COMMITTING)[0],
                branch,
            )
        self._lfs_committed = {}

    def commit_staged(self, staged: Staged, message: str) -> CommitOutcome:
        """Commit what was staged last on top of the previous commit, even if files have changed since."""
        if not staged.is_new:
            return replace(staged.outcome, files=[])
        if self._staged is None or self._staged[0] is not staged:
            raise AssertionError("something else was staged since, or this was committed")
        _, settled, shown = self._staged
        tree = staged.tree
        if self._lfs_staged:
            index = self.index.with_name(_STAGED)
            self._stager.put_pointers(index, self._lfs_staged)
            tree = self._stager.tree(index)
        tip = self._commit_tree(tree, message)
        self._lfs_committed |= self._lfs_staged
        self._before = self.tip, self.head, self.parents, self.fresh
        with storage_errors(COMMITTING):
            self.index.with_name(_STAGED).replace(self.index)
        self._staged = None
        self.tip = self.head = tip
        self.parents = [tip]
        self.fresh = False
        self._settled = settled
        self._shown = None if shown is None else (tip, shown)
        self._screened = tree, staged.outcome.changes
        return replace(staged.outcome, commit=tip)

    def uncommit(self) -> None:
        """Take the last commit back, which no remote has: its changes are not committed any more, and stay in the files."""
        if self._before is None:
            raise AssertionError("there is no commit to take back")
        (self.tip, self.head, self.parents, self.fresh), self._before = self._before, None
        index = self.index.with_name("index.undo")
        self.git.run("read-tree", self.head, doing=COMMITTING, index=index)
        with storage_errors(COMMITTING):
            index.replace(self.index)
        self._files.trust(self.index)
        self._settled, self._shown, self._staged, self._screened = set(), None, None, None

    def diff(self) -> str:
        """Return the commits since the base as a unified diff. Invalid UTF-8 becomes U+FFFD."""
        if self._shown is not None and self._shown[0] == self.head:
            return self._shown[1].decode("utf-8", "replace")
        return diff(self.git, self.base_commit, self.head).decode("utf-8", "replace")

    def pending_patch(
        self,
        touched: set[str],
        *,
        include_commands: bool,
        pushed: bool = True,
        changed: set[str] | None = None,
    ) -> bytes:
        """Return all changes since the last push (or the base, or the continued branch), for `git apply`.

        It covers the paths that `stage` would take, committed or not. What is left out is listed in lines
        before the patch, which `git apply` skips. It is empty if nothing changed.

        Args:
            touched: as for `commit`.
            include_commands: as for `commit`.
            pushed: whether pushed changes count as saved; if not, they are in the patch as well.
            changed: a recent result of `changed_paths` for every path; None to compute what is needed.
        """
        since = (self.pushed if pushed else None) or self.joined or self.base_commit
        self._require_tree()
        # With nothing to stage and nothing to leave out the patch is empty.
        wanted = touched | self.conflicts | self.applied
        if since == self.head and wanted <= self._settled:
            if changed is None:
                changed = self._files.changed(self.index, None if include_commands else wanted)
            if not changed:
                return b""
        tree, left_out = self._staged_tree(touched, include_commands=include_commands, changed=changed)
        names = "".join(
            f"# left out: {printable_line(item.path)}: {printable_line(item.reason)}\n" for item in left_out
        )
        return names.encode() + binary_patch(self.git, since, tree)

    def changed_tree(self, touched: set[str], *, include_commands: bool) -> str:
        """Return the tree id of the present files, without checks. It covers the paths that `stage` would take."""
        return self._staged_tree(touched, include_commands=include_commands)[0]

    def _staged_tree(
        self, touched: set[str], *, include_commands: bool, changed: set[str] | None = None
    ) -> tuple[str, list[LeftOut]]:
        """Return the tree of head and changes, without checks, and the paths left out of it."""
        self._require_tree()
        index = self._scratch_index("index.patch")
        wanted = touched | self.conflicts | self.applied
        left_out = self._stager.stage(index, wanted, include_commands=include_commands, changed=changed)
        return self._stager.tree(index), left_out

    def snapshot(  # noqa: PLR0913  all but two are given by name
        self,
        touched: set[str],
        message: str,
        *,
        include_commands: bool,
        find_secrets: Callable[[str], list[str]] = lambda _diff: [],
        redact: Callable[[str], str] = str,
        leave_out: Callable[[str], str | None] | None = None,
    ) -> Snapshot:
        """Create a commit of all changes since the base, committed or not. Nothing else changes.

        It is not a proposal: it is searched only for secrets. Of a file that adds one, the added lines are kept
        without it; if that is not enough, the file is left out and reported.

        Args:
            touched: as for `commit`.
            include_commands: as for `commit`.
            find_secrets: returns the places at which a diff adds secrets; see `CommitScreen`.
            redact: removes secrets from a text.
            leave_out: returns why a path is left out, or None.
        """
        tree, left_out = self._staged_tree(touched, include_commands=include_commands)
        tree, unwanted = self._without(tree, leave_out) if leave_out else (tree, [])
        tree, secret = self._without_secrets(tree, find_secrets, redact)
        named = tuple(sorted(left_out + unwanted + secret, key=lambda item: item.path))
        if tree == tree_of(self.git, self.start):
            return Snapshot(None, self.start, named)
        return Snapshot(commit_of(self.git, tree, [self.start], message), self.start, named)

    def _without_secrets(
        self, tree: str, find_secrets: Callable[[str], list[str]], redact: Callable[[str], str]
    ) -> tuple[str, list[LeftOut]]:
        """Return the tree without secrets, or without files that add one. If that is not enough, no change is left."""

        def adds_secrets(tree: str, *paths: str) -> bool:
            made = diff(self.git, self.start, tree, "--text", paths=paths)
            return bool(find_secrets(made.decode("utf-8", "replace")))

        whole = tree
        if not adds_secrets(whole):
            return whole, []
        left_out: list[LeftOut] = []
        changed = differences(self.git, self.start, tree)
        if len(changed) <= _MOST_SEARCHED:
            found = [one for one in changed if one.new is not None and adds_secrets(whole, one.path)]
            clean = [new for one in found if (new := self._redacted(one, redact)) is not None]
            index = self.index.with_name("index.redacted")
            whole = changed_tree(self.git, whole, clean, index, doing=COMMITTING)
            tree, left_out = self._without(
                whole, lambda path: "it holds a secret" if adds_secrets(whole, path) else None
            )
            if not adds_secrets(tree):
                return tree, left_out
        empty, rest = self._without(tree, lambda _: "the change holds a secret")
        return empty, left_out + rest

    def _redacted(self, change: Difference, redact: Callable[[str], str]) -> Difference | None:
        """Return the change of a file in which the added lines are redacted; None for what is no text."""
        entries = [entry for entry in (change.old, change.new) if entry is not None]
        if change.new is None or any(entry.mode not in _FILE_MODES for entry in entries):
            return None
        *old, new = read_objects(self.git, [entry.object_id for entry in entries], doing=COMMITTING)
        known = set(old[0].splitlines(keepends=True)) if old else set()
        try:
            lines = [
                line if line in known else redact(line.decode("utf-8")).encode("utf-8")
                for line in new.splitlines(keepends=True)
            ]
        except UnicodeDecodeError:
            return None
        blob = write_blob(self.git, b"".join(lines), doing=COMMITTING)
        return Difference(change.path, change.new, TreeEntry(change.new.mode, blob))

    def _without(self, tree: str, reason: Callable[[str], str | None]) -> tuple[str, list[LeftOut]]:
        """Return the tree with the start's version of each path for which there is a reason."""
        changed = differences(self.git, self.start, tree)
        changes = [FileChange(difference.path, None, None) for difference in changed]
        out = held_paths(changes, lambda change: reason(change.path))
        if not out:
            return tree, []
        index = self.index.with_name("index.snapshot")
        self.git.run("read-tree", tree, doing=COMMITTING, index=index)
        self._stager.restore([difference for difference in changed if difference.path in out], index)
        return write_tree(self.git, index, doing=COMMITTING), [
            LeftOut(path, why) for path, why in sorted(out.items())
        ]

    def _require_resolved(self, screen: CommitScreen, index: Path) -> CommitScreen:
        """Return the screen, or one that refuses everything if conflict markers are left."""
        if not self.conflicts or not (left := self._unresolved(self._stager.tree(index))):
            return screen
        refused = f"conflict markers are left in {left}"
        return replace(screen, refuse=lambda _: refused)

    def _unresolved(self, tree: str) -> str:
        """Return names of files with conflict markers, for a person; empty if there are none."""
        return name_paths(with_markers(self.git, tree, self.conflicts), _MOST_SHOWN_PATHS)

    def _require_tree(self) -> None:
        if self.tree.is_symlink() or not self.tree.is_dir():
            raise WorkspaceError("the clone's files are missing: something removed or replaced their folder")

    def _scratch_index(self, name: str) -> Path:
        """Return a copy of the index to work on, so that a failure leaves the index unchanged."""
        scratch = self.index.with_name(name)
        with storage_errors(COMMITTING):
            scratch.with_name(f"{name}.lock").unlink(missing_ok=True)
            shutil.copy2(self.index, scratch)
        return scratch

    def _commit_tree(self, tree: str, message: str) -> str:
        variables = identity_variables(self._identity, int(self._clock.now().timestamp()))
        parents = [word for parent in self.parents for word in ("-p", parent)]
        stdin = clean_message(message).encode("utf-8", "replace")
        made = self.git.run("commit-tree", tree, *parents, doing=COMMITTING, stdin=stdin, variables=variables)
        return made.decode("ascii").strip()

    @cached_property
    def _applier(self) -> WorkApplier:
        from orchestrator.bot.git.work import WorkApplier

        return WorkApplier(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except WorkspaceError:
            # The error that ended the block is more important than a folder that stayed.
            if error is None:
                raise

    def keep(self) -> None:
        """Leave the folder in place, because it contains the only copy of work that could not be saved.

        A person may run git there, so every `.git` below `tree` is removed first, and folders that git would treat as
        a bare repository are disarmed. The folder stays even if one of them cannot be removed.
        """
        self._kept = True
        try:
            self._owner.keep()
        finally:
            disarm(self.tree)

    def continue_in(self, folder: Path) -> None:
        """Keep git's files in a new folder from now on, because the disk of the clone is full. `close` removes it."""
        self._elsewhere = folder
        with storage_errors("cannot move git's files to another disk"):
            self.git.continue_in(folder)
        self.index = self.git.git_dir / self.index.name
        self._files.trust(self.index)

    def leave(self) -> None:
        """Make `close` leave the folder unchanged, so that another process can open it again."""
        self._kept = True

    def close(self) -> None:
        """Remove the folder, unless it is kept. It may be called again."""
        if self._elsewhere is not None:
            shutil.rmtree(self._elsewhere, ignore_errors=True)
        if self._kept:
            self._owner.release()
        else:
            self._owner.remove()

    @property
    def head_commit(self) -> str:
        """The last commit that was made here, or the base."""
        return self.tip

    def tracked_files(self) -> list[TrackedFile]:
        """Return every entry of the base commit, sorted by path."""
        return self.trees.files(self.base_commit)

    def commit_sha256(self, commit: str) -> str:
        """Return the SHA-256 of a commit's object, by which stores of attestations find it."""
        return self.trees.commit_sha256(commit)

    def blobs(self, paths: Sequence[str], commit: str = "") -> dict[str, str]:
        """Return the blobs of existing files, by path. An empty `commit` is the base commit."""
        return blobs_of(self.git, commit or self.base_commit, paths)

    def recent_commits(self, count: int) -> list[CommitLine]:
        """Return the last commits of the base branch, newest first, as far as the shallow clone has them."""
        return recent_commits(self.git, self.base_commit, count)

    def remote_tip(self, branch: str) -> RemoteTip | None:
        """Return the head of a branch on the remote; None if the branch does not exist."""
        return self._branches.remote_tip(branch)

    def push(self, branch: str, *, expected: str | None, lease: Fence | None = None) -> str:
        """Push the commits, and read the remote's commit back.

        Args:
            branch: the branch's name on the remote; never the base branch.
            expected: the commit that the remote branch must have now, or None if it must not exist. After a
                push of this clone to the branch, None means the commit pushed then.
            lease: the claim on the task, which moves in the same push: neither moves without the other.

        Returns:
            The commit on the remote: `expected`, if that has the same files and parents.

        Raises:
            ClaimLostError: somebody else moved the claim; the branch was not touched.
            PushRejectedError: the remote refused it, or its Git LFS did; or it has another commit.
            RemoteUnavailableError: no answer; it may have arrived, and pushing again is harmless.
        """
        self._require_forward(expected)
        if expected is not None and expected != self.tip:
            self._use_equal(expected)
        self._upload_lfs(branch)
        self.pushed = self._branches.push(branch, self.tip, expected=expected, lease=lease)
        return self.pushed

    def remove_branch(self, branch: str, commit: str) -> None:
        """Remove a branch from the remote that is at this commit still.

        Raises:
            PushRejectedError: the remote refused it, or the branch has another commit.
            RemoteUnavailableError: no answer.
        """
        self.pushed = None
        self._branches.remove(branch, commit)

    def moved_base(self) -> MovedBase | None:
        """Return the base branch's present head on the remote; None if it is the base of this clone.

        Raises:
            BaseConflictError: the branch does not exist any more.
        """
        return self._branches.moved_base()

    def rename_base(self, branch: str) -> bool:
        """Take another branch of the remote for the base. Return whether this is so: only if it has the base's commit."""
        if not self._branches.rename_base(branch):
            return False
        self.base_branch = branch
        return True

    def leave_rewritten_base(self, touched: set[str], *, include_commands: bool) -> None:
        """Put all changes onto the base branch's present head if its history was rewritten since the clone.

        What was taken off the base then stays off the remote. The arguments are those of `put_onto`. It raises a
        `BaseConflictError` if the branch does not exist any more.
        """
        moved = self.moved_base()
        if moved is not None and moved.is_rewritten:
            self.put_onto(moved, touched, include_commands=include_commands)

    def put_onto(self, base: MovedBase, touched: set[str], *, include_commands: bool) -> list[str]:
        """Put all changes onto another commit of the base branch, as if it had been cloned.

        The files on disk become those of the merge. What was committed here is a change of the files again.

        Args:
            base: the result of `moved_base`.
            touched: as for `stage`.
            include_commands: as for `stage`.

        Returns:
            The paths with conflicts, as `apply_work` leaves them. A file that a rewritten base does not have any
            more is removed even if it was changed here.

        Raises:
            WorkspaceError: a branch with other people's commits is continued, or something is in the way. The
                clone is then as before.
        """
        if self.joined is not None:
            raise WorkspaceError(f"{self.base_branch} moved while a branch of other people was continued")
        tree, _ = self._staged_tree(touched | self.applied, include_commands=include_commands)
        merged = self._applier.put_onto(base, tree)
        index = self._scratch_index("index.base")
        self.git.run("read-tree", base.commit, doing=COMMITTING, index=index)
        with storage_errors(COMMITTING):
            index.replace(self.index)
        self._files.trust(self.index)
        self.base_commit = self.tip = self.head = self.start = base.commit
        self._branches.follow(base.commit)
        self._owner.complete(self.base_branch, base.commit)
        self.parents, self.fresh = [base.commit], True
        self.conflicts = set(merged.conflicts)
        self.applied = {found.path for found in differences(self.git, base.commit, merged.tree)}
        self._settled, self._shown, self._staged, self._screened = set(), None, None, None
        return merged.conflicts

    def apply_work(
        self, commit: str, *, reference: str | None = None, packed: Packed | None = None
    ) -> AppliedWork:
        """Apply a commit's change to the files, by a three-way merge. Nothing is committed.

        The files are as if tools had written the change: pass `paths` to `commit`, which applies its usual
        rules. Call it before anything is changed or committed here.

        Args:
            commit: has one parent, with which it is compared.
            reference: full name of a remote ref to the commit or its child. None asks the server for the
                commit by its id, which not every server supports.
            packed: the result of `pack`; then no ref is needed.
        """
        return self._applier.apply_work(commit, reference, packed)

    def continue_branch(self, branch: str) -> AppliedWork:
        """Continue a branch with commits of others: the files become the merge of the branch and the base.

        The next `commit` has the branch's head and the base as parents, so that its push rewrites nothing:
        `push(branch, expected=applied.tip)`. Checks of that commit cover the differences from the merge, so
        not what people committed. Call it first; `apply_work` may follow.
        """
        return self._applier.continue_branch(branch, self._branches)

    def branch_state(
        self, branch: str, author_email: str, *, known_bases: Collection[str] = ()
    ) -> BranchState | None:
        """Return the state of a remote branch relative to the base; None if the branch does not exist.

        Args:
            author_email: our address. Author and committer of our own commits both have it.
            known_bases: commits known to have been the base's head, for a base that was rewritten since.
        """
        return self._branches.state(branch, author_email, known_bases)

    def fetch_proposed(self, reference: str, onto: str, bundle: Path | None = None) -> ProposedCommits:
        """Fetch a proposed change, and find its merge base. Nothing of it is checked out.

        Args:
            reference: full name of a remote ref to the head, or the head's id; ignored for a bundle, whose
                only branch counts.
            onto: full name of the target branch, or a commit of it.
            bundle: a file of `git bundle` with the change.
        """
        if bundle is None:
            return fetch_proposed(self.git, self.remote, reference, onto)
        source = replace(
            self.remote, url=str(bundle), shown=str(bundle), scheme="file", authority="", folder=bundle
        )
        return fetch_proposed(self.git, self.remote, bundle_reference(self.git, source), onto, source)

    def message_of(self, commit: str) -> str:
        """Return the message of a fetched commit, such as `BranchState.tip`."""
        return self._branches.message(commit)

    def pack(self, snapshot: Snapshot) -> Packed:
        """Pack a snapshot without the remote, for `apply_work` in a later clone."""
        onto, pack = self.base_commit, b""
        if snapshot.commit is not None:
            pack = pack_commit(self.git, snapshot.commit, onto, doing="cannot pack the changes")
        return Packed(snapshot.commit, snapshot.start, onto, pack)
