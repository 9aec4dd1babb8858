"""Removes what is left of tasks that are long over: a few tombstones a cycle, and only where nothing is open."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS
from orchestrator.bot.coordination.claims import is_old, remove_tombstones
from orchestrator.bot.coordination.unfinished import wip_ref
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, key_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.core.errors import ForgeError, ForgeNotFoundError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.coordination.claim_record import ClaimRecord
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.forge.base import Forge, PullRequest

MOST_AT_ONCE = 5
"""Tombstones that a cycle looks at. Each may cost a request for its issue."""

_ISSUE = "issue-"


@dataclass(frozen=True, slots=True)
class Pruning:
    """Looks at the tombstones of one repository.

    Attributes:
        records: the hidden references.
        forge: tells which issues and pull requests are open.
        run: each run looks at others of them.
    """

    records: Records
    forge: Forge
    run: str

    def prune(self, claims: Sequence[ClaimRecord], seen: Mapping[str, str], now: datetime) -> list[str]:
        """Remove some old tombstones. It does not raise: the next cycle may do what this one could not.

        Args:
            claims: all claims.
            seen: what `Records.list` said of all claims and all unfinished work.
            now: the time, UTC.

        Returns:
            The tasks whose tombstones are gone.
        """
        old = [record for record in claims if is_old(record, now) and wip_ref(record.task) not in seen]
        if not old:
            return []
        with suppress(ForgeError, WorkspaceError):
            pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
            over = [
                record.task
                for record in sorted(old, key=self._turn)[:MOST_AT_ONCE]
                if self._is_over(record, pulls)
            ]
            if remove_tombstones(self.records, {task: seen[CLAIMS + task] for task in over}):
                return over
        return []

    def _turn(self, record: ClaimRecord) -> bytes:
        return hashlib.sha256(f"{self.run} {record.task}".encode()).digest()

    def _is_over(self, record: ClaimRecord, pulls: Sequence[PullRequest]) -> bool:
        """Whether the forge knows that nothing of the task is open, so that the tombstone need not say so."""
        ours = [pull for pull in pulls if (key_of(pull.branch) or ("",))[0] == record.task]
        if any(pull.state is PullRequestState.OPEN for pull in ours):
            return False
        if record.pull is not None and record.pull not in {pull.number for pull in ours}:
            return False
        number = record.task.removeprefix(_ISSUE)
        if number != record.task and number.isdecimal():
            try:
                return not self.forge.issue(int(number)).is_open
            except ForgeNotFoundError:  # it may be hidden from this token
                return False
        # An item or a text is nowhere closed. That it was proposed keeps it from being done again.
        return bool(ours)
