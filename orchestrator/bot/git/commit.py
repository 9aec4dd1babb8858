"""Commits made by this program: it stages what was touched, path by path, and runs nothing of the clone's."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import CommitOutcome, Staged
from orchestrator.bot.git.failures import printable, storage_errors
from orchestrator.bot.git.objects import commit_of, with_markers
from orchestrator.bot.git.staging import COMMITTING, Screening, Stager, binary_patch, diff
from orchestrator.core.errors import PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.base import Identity, LeftOut, Screen
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.core.changes import FileChange
    from orchestrator.core.clock import Clock

_MOST_CHARACTERS = 20_000
_MOST_TRAILER_CHARACTERS = 4_000
_DEFAULT = "Change files"
# A line `Key: value`, and lines that begin with a blank and continue it:
# https://git-scm.com/docs/git-interpret-trailers
_TRAILERS = re.compile(r"(?:[A-Za-z0-9-]+:[ \t]*\S[^\n]*(?:\n[ \t]+\S[^\n]*)*(?:\n|$))+")
# Where git takes the message to be over: what follows would hide the trailers.
_ENDS = re.compile(r"^(?=---\s|---$|# -+ >8 -+$)", re.MULTILINE)


def clean_message(text: str) -> str:
    """The message with a line feed at its end, without NUL, at most 20,000 characters.

    What is too long loses the end of its text, and keeps the trailers.
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


class Committer:
    """The head of what is committed, and the ways to move it.

    Args:
        files: git on our objects and the work tree.
        base: the commit to begin with.
        identity: author and committer.
        clock: dates the commits.

    Attributes:
        tip: the last commit made here, or the base, or the branch's head that was joined.
        head: the commit or tree that the next commit's files are compared with.
        parents: of the next commit.
        start: the commit that all work here is on top of; of a joined branch, one that nobody made.
        joined: the head of the branch that is continued, or None.
        conflicts: paths that are not committed before they are free of conflict markers.
        adopted: paths of earlier work that was brought back; what is saved has them, touched again or not.
        index: the file with what the head has.
        fresh: nothing was committed here yet.
    """

    def __init__(
        self,
        files: HostGit,
        base: str,
        identity: Identity,
        clock: Clock,
    ) -> None:
        if files.git_dir is None or files.work_tree is None:
            raise WorkspaceError("a clone needs a git directory and a work tree")
        self.tip = self.head = self.start = base
        self.parents = [base]
        self.joined: str | None = None
        self.conflicts: set[str] = set()
        self.adopted: set[str] = set()
        self.fresh = True
        self._base = base
        # Of those paths that were to be committed, those that the head has; and the diff that it has then.
        self._settled: set[str] = set()
        self._shown: tuple[str, bytes] | None = None
        # What was staged last, what `_settled` is once it is committed, and its diff where there is one.
        self._staged: tuple[Staged, set[str], bytes | None] | None = None
        # The head's tree with all that it changes since the base, once something was committed here.
        self._screened: tuple[str, tuple[FileChange, ...]] | None = None
        self._git = files.without_tree()
        self._stager = Stager(files, files.work_tree)
        self._identity = identity
        self._clock = clock
        self._tree = files.work_tree
        self.index = files.git_dir / "index"

    def join(self, tip: str, parents: list[str], tree: str, index: Path) -> None:
        """Continue a branch: the next commit has these parents, and is compared with this tree.

        Args:
            tip: the branch's head.
            parents: of the next commit.
            tree: what the parents have together.
            index: a file with that tree, which is taken.
        """
        with storage_errors(COMMITTING):
            index.replace(self.index)
        self.start = commit_of(self._git, tree, parents, f"{tip} and its base")
        self.tip = self.joined = tip
        self.parents = parents
        self.head = tree
        self._screened = None

    def require_forward(self, expected: str | None) -> None:
        """Refuse a push that would take others' commits off the branch that is continued.

        Raises:
            PushRejectedError: what the remote is expected to have is not below what would be pushed.
        """
        if self.joined is None or expected is None:
            return
        below = self._git.attempt("merge-base", "--is-ancestor", expected, self.tip, doing="cannot push")
        if below.status != 0:
            message = f"cannot push: {printable(expected)} has commits that {self.tip} does not have"
            raise PushRejectedError(message)

    def take_equal(self, other: str) -> None:
        """Let a commit that is here stand for the last one made here, if it has the same files and parents.

        Whoever made the same commit a second time then has nothing to push over the first.
        """
        of = ("rev-parse", "--verify", "--quiet")
        names = [
            self._git.attempt(*of, f"{name}^{{tree}}", doing=COMMITTING).stdout for name in (self.tip, other)
        ]
        above = [
            self._git.attempt("rev-parse", f"{name}^@", "--", doing=COMMITTING).stdout
            for name in (self.tip, other)
        ]
        if names[1] and names[0] == names[1] and above[0] == above[1]:
            self.tip = self.head = other
            self.parents = [other]

    def changed_paths(self) -> set[str]:
        """See `Clone.changed_paths`."""
        self._require_tree()
        return self._stager.changed(self.index)

    def commit(
        self,
        touched: set[str],
        message: str,
        *,
        include_commands: bool,
        large_limit_bytes: int,
        screen: Screen,
    ) -> CommitOutcome:
        """See `Clone.commit`. Nothing changes here unless all of it succeeds."""
        staged = self.stage(
            touched, include_commands=include_commands, large_limit_bytes=large_limit_bytes, screen=screen
        )
        return self.commit_staged(staged, message)

    def stage(
        self, touched: set[str], *, include_commands: bool, large_limit_bytes: int, screen: Screen
    ) -> Staged:
        """See `Clone.stage`. Nothing changes here."""
        self._require_tree()
        index = self._scratch_index(_STAGED)
        wanted = touched | self.conflicts
        left_out = self._stager.stage(
            index,
            wanted,
            include_commands=include_commands,
            large_limit_bytes=large_limit_bytes,
        )
        screen = self._require_resolved(screen, index)
        screening = Screening(self._git, self._stager, self._base, self.head, screen, self._screened)
        found = screening.run(index)
        if found.refused is None and (left := self._unresolved(found.tree)):
            # Held, thus as the head has it: with the markers, if the head is a merge.
            found = replace(found, refused=f"a conflict waits for a person in {left}")
        settled = (wanted & self._stager.taken) - {item.path for item in left_out}
        outcome = CommitOutcome(
            None,
            found.files,
            left_out,
            found.notes,
            found.held_back,
            found.held,
            found.held_patch,
            found.changes,
            found.refused,
        )
        is_new = found.refused is None and not found.held_back and bool(found.files or len(self.parents) > 1)
        staged = Staged(found.tree, outcome, is_new)
        self._staged = staged, settled, found.diff
        return staged

    def commit_staged(self, staged: Staged, message: str) -> CommitOutcome:
        """See `Clone.commit_staged`. Nothing changes here unless all of it succeeds."""
        if not staged.is_new:
            return replace(staged.outcome, files=[])
        if self._staged is None or self._staged[0] is not staged:
            raise AssertionError("something else was staged since, or this was committed")
        _, settled, shown = self._staged
        tip = self._commit_tree(staged.tree, message)
        with storage_errors(COMMITTING):
            self.index.with_name(_STAGED).replace(self.index)
        self._staged = None
        self.tip = self.head = tip
        self.parents = [tip]
        self.fresh = False
        self._settled = settled
        self._shown = None if shown is None else (tip, shown)
        self._screened = staged.tree, staged.outcome.changes
        return replace(staged.outcome, commit=tip)

    def diff(self) -> bytes:
        """See `Clone.diff`."""
        if self._shown is not None and self._shown[0] == self.head:
            return self._shown[1]
        return diff(self._git, self._base, self.head)

    def pending_patch(
        self,
        since: str,
        touched: set[str],
        *,
        include_commands: bool,
        large_limit_bytes: int,
        changed: set[str] | None,
    ) -> bytes:
        """See `Clone.pending_patch`."""
        self._require_tree()
        # With nothing to stage and nothing to leave out there is nothing to make a patch of.
        wanted = touched | self.conflicts | self.adopted
        if since == self.head and wanted <= self._settled:
            changed = self._stager.changed(self.index) if changed is None else changed
            if not changed:
                return b""
        tree, left_out = self.staged_tree(
            touched, include_commands=include_commands, large_limit_bytes=large_limit_bytes
        )
        names = "".join(
            f"# left out: {printable(item.path)}: {printable(item.reason)}\n" for item in left_out
        )
        return names.encode() + binary_patch(self._git, since, tree)

    def staged_tree(
        self, touched: set[str], *, include_commands: bool, large_limit_bytes: int
    ) -> tuple[str, list[LeftOut]]:
        """The tree that the head and the changes make, screened by nothing, and what is left out of it."""
        self._require_tree()
        index = self._scratch_index("index.patch")
        left_out = self._stager.stage(
            index,
            touched | self.conflicts | self.adopted,
            include_commands=include_commands,
            large_limit_bytes=large_limit_bytes,
        )
        return self._stager.write_tree(index), left_out

    def _require_resolved(self, screen: Screen, index: Path) -> Screen:
        """The screen; one that refuses everything where a conflict is left."""
        if not self.conflicts or not (left := self._unresolved(self._stager.write_tree(index))):
            return screen
        refused = f"conflict markers are left in {left}"
        return replace(screen, refuse=lambda _: refused)

    def _unresolved(self, tree: str) -> str:
        """Names of files with conflict markers, for a person; empty if there are none."""
        left = with_markers(self._git, tree, self.conflicts)
        more = f" and {len(left) - _MOST_SHOWN_PATHS} more" if len(left) > _MOST_SHOWN_PATHS else ""
        return ", ".join(map(printable, left[:_MOST_SHOWN_PATHS])) + more

    def _require_tree(self) -> None:
        if self._tree.is_symlink() or not self._tree.is_dir():
            raise WorkspaceError("the clone's files are gone: something removed or replaced their folder")

    def _scratch_index(self, name: str) -> Path:
        """A copy of the index to work on, so that a failure leaves the index as it was."""
        scratch = self.index.with_name(name)
        with storage_errors(COMMITTING):
            scratch.with_name(f"{name}.lock").unlink(missing_ok=True)
            shutil.copy2(self.index, scratch)
        return scratch

    def _commit_tree(self, tree: str, message: str) -> str:
        date = f"@{int(self._clock.now().timestamp())} +0000"
        variables = {
            "GIT_AUTHOR_NAME": self._identity.name,
            "GIT_AUTHOR_EMAIL": self._identity.email,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_NAME": self._identity.name,
            "GIT_COMMITTER_EMAIL": self._identity.email,
            "GIT_COMMITTER_DATE": date,
        }
        parents = [word for parent in self.parents for word in ("-p", parent)]
        stdin = clean_message(message).encode("utf-8", "replace")
        made = self._git.run(
            "commit-tree", tree, *parents, doing=COMMITTING, stdin=stdin, variables=variables
        )
        return made.decode("ascii").strip()
