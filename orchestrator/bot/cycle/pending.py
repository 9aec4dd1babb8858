"""What a cycle has changed and not proposed: for the model to be told of, and as a patch to be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.cycle.bring import Brought, prints

if TYPE_CHECKING:
    from orchestrator.bot.cycle.propose import Proposer
    from orchestrator.bot.git.clone import Clone
    from orchestrator.engine.tools.base import Ledger


class Pending:
    """Compares the clone with what is proposed.

    Attributes:
        brought: what was on the clone before the session began.
    """

    def __init__(self, clone: Clone, ledger: Ledger, proposer: Proposer, *, dry_run: bool) -> None:
        self._clone, self._ledger, self._proposer, self._dry_run = clone, ledger, proposer, dry_run
        self.brought = Brought()
        self._is_closed = False
        self._left: tuple[set[str], bytes] | None = None

    def close(self) -> None:
        """Nothing changes any more: from now on `left` is looked for once."""
        self._is_closed = True

    def paths(self) -> set[str]:
        """What was changed and not committed, by path."""
        return self._mine(self._clone.changed_paths())

    def _mine(self, changed: set[str]) -> set[str]:
        mine = changed if self._ledger.shell_used else changed & self._ledger.touched
        return {path for path in mine - self._proposer.left_out if not self._is_proposed(path)}

    def left(self) -> tuple[set[str], bytes]:
        """What is not proposed, by path, and as a patch.

        The patch also has what waits for a person; that of a dry run only what would not be proposed.

        Raises:
            WorkspaceError: the files cannot be read.
        """
        if self._left is not None:
            return self._left
        changed = self._clone.changed_paths()
        paths = self._mine(changed)
        is_proposed = self._dry_run or (self.brought.is_proposed and not self._proposer.is_committed)
        patch = b""
        if paths or not is_proposed:
            patch = self._clone.pending_patch(
                set(self._ledger.touched),
                include_commands=self._ledger.shell_used,
                pushed=self._proposer.has_pull_request,
                changed=changed,
            )
        if self._is_closed:
            self._left = paths, patch
        return paths, patch

    def _is_proposed(self, path: str) -> bool:
        """Whether a file is as the pull request has had it since before this cycle."""
        seen = self.brought.prints
        return path in seen and prints(self._clone.tree, [path])[path] == seen[path]
