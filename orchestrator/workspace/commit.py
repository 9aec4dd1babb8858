"""Commits made by this program: it stages what was touched, path by path, and runs nothing of the clone's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import WorkspaceError
from orchestrator.workspace.base import CommitOutcome
from orchestrator.workspace.failures import printable, storage_errors
from orchestrator.workspace.screening import Screening, binary_patch, diff
from orchestrator.workspace.staging import COMMITTING, Stager

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.clock import Clock
    from orchestrator.workspace.base import Identity, Screen
    from orchestrator.workspace.hostgit import HostGit

_MOST_MESSAGE_CHARACTERS = 20_000
_DEFAULT_MESSAGE = "Change files"


class Committer:
    """The head of what is committed, and the ways to move it.

    Args:
        files: git on our objects and the work tree.
        base: the commit to begin with.
        identity: author and committer.
        clock: dates the commits.

    Attributes:
        tip: the last commit made here, or the base.
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
        self.tip = base
        self._base = base
        self._git = files.without_tree()
        self._stager = Stager(files, files.work_tree)
        self._identity = identity
        self._clock = clock
        self._tree = files.work_tree
        self._index = files.git_dir / "index"

    def changed_paths(self) -> set[str]:
        """See `Clone.changed_paths`."""
        self._require_tree()
        return self._stager.changed(self._index)

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
        self._require_tree()
        index = self._scratch_index("index.commit")
        left_out = self._stager.stage(
            index, touched, include_commands=include_commands, large_limit_bytes=large_limit_bytes
        )
        found = Screening(self._git, self._stager, self._base, self.tip, screen).run(index)
        outcome = CommitOutcome(
            None,
            [],
            left_out,
            found.notes,
            found.held_back,
            found.held,
            found.held_patch,
            found.changes,
            found.refused,
        )
        if found.refused is not None or found.held_back or not found.files:
            return outcome
        tip = self._commit_tree(found.tree, message)
        with storage_errors(COMMITTING):
            index.replace(self._index)
        self.tip = tip
        return replace(outcome, commit=tip, files=found.files)

    def diff(self) -> bytes:
        """See `Clone.diff`."""
        return diff(self._git, self._base, self.tip)

    def pending_patch(
        self, since: str, touched: set[str], *, include_commands: bool, large_limit_bytes: int
    ) -> bytes:
        """See `Clone.pending_patch`."""
        self._require_tree()
        index = self._scratch_index("index.patch")
        left_out = self._stager.stage(
            index, touched, include_commands=include_commands, large_limit_bytes=large_limit_bytes
        )
        names = "".join(
            f"# left out: {printable(item.path)}: {printable(item.reason)}\n" for item in left_out
        )
        return names.encode() + binary_patch(self._git, since, self._stager.write_tree(index))

    def _require_tree(self) -> None:
        if self._tree.is_symlink() or not self._tree.is_dir():
            raise WorkspaceError("the clone's files are gone: something removed or replaced their folder")

    def _scratch_index(self, name: str) -> Path:
        """A copy of the index to work on, so that a failure leaves the index as it was."""
        scratch = self._index.with_name(name)
        with storage_errors(COMMITTING):
            scratch.with_name(f"{name}.lock").unlink(missing_ok=True)
            shutil.copyfile(self._index, scratch)
        return scratch

    def _commit_tree(self, tree: str, message: str) -> str:
        text = message.replace("\0", "")[:_MOST_MESSAGE_CHARACTERS].strip() or _DEFAULT_MESSAGE
        date = f"@{int(self._clock.now().timestamp())} +0000"
        variables = {
            "GIT_AUTHOR_NAME": self._identity.name,
            "GIT_AUTHOR_EMAIL": self._identity.email,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_NAME": self._identity.name,
            "GIT_COMMITTER_EMAIL": self._identity.email,
            "GIT_COMMITTER_DATE": date,
        }
        stdin = f"{text}\n".encode("utf-8", "replace")
        made = self._git.run(
            "commit-tree", tree, "-p", self.tip, doing=COMMITTING, stdin=stdin, variables=variables
        )
        return made.decode("ascii").strip()
