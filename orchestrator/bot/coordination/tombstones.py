"""Claims of tasks that are long over. They are removed, so that what every worker lists does not grow for ever.

With the tombstone goes the task's number, and the next claim begins with 1 again. That lets nobody in: no push
is accepted for a number, only for the commit that the claim has, which was made once. Who held the task before
expects a commit that is not there any more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import claim_ref
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.swap import Answer, Update, push_updates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from orchestrator.bot.coordination.claim_record import ClaimRecord
    from orchestrator.bot.coordination.records import Records

KEPT_DAYS = 90
"""After its release. Until then it tells people what became of the task, and what it has cost counts on."""


def is_old(record: ClaimRecord, now: datetime) -> bool:
    """Whether a record is a tombstone for so long that nobody waits for what it says."""
    is_tombstone = record.fault is None and record.state == "released"
    return is_tombstone and now - record.renewed_at > timedelta(days=KEPT_DAYS)


def remove_tombstones(records: Records, found: Mapping[str, str]) -> bool:
    """Remove the claims of some tasks, in one push, if each is still where it was seen.

    Args:
        records: the hidden references of the remote.
        found: the commit of each task's claim.

    Returns:
        Whether all of them are gone. False: somebody has taken one of the tasks meanwhile, or there was no
        answer; then it may be tried again later.

    Raises:
        WorkspaceError: git could not try.
    """
    doing = f"cannot remove old claims of {records.remote.shown}"
    return remove_records(records, {claim_ref(task): commit for task, commit in found.items()}, doing)


def remove_records(records: Records, found: Mapping[str, str], doing: str) -> bool:
    """Remove hidden references, in one push, if each is still where it was seen.

    Args:
        records: the hidden references of the remote.
        found: the commit of each reference.
        doing: begins the message if it fails.

    Returns:
        Whether all of them are gone. False: one has moved meanwhile, or there was no answer.

    Raises:
        WorkspaceError: git could not try.
    """
    if not found:
        return True
    place = records.objects.parent
    updates = [Update(ref, commit, None) for ref, commit in found.items()]
    pushed = push_updates(HostGit(place.parent, place), records.remote, updates, doing=doing)
    if pushed.answer is Answer.NOT_ATOMIC:
        return all(records.delete(update.ref, update.old or "") for update in updates)
    return pushed.answer is Answer.MOVED
