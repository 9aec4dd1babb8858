"""Work that is not proposed is never thrown away: it is kept on the remote or on this machine, and as a patch file."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.earlier import files_to_keep, pages_of, trimmed_events
from orchestrator.bot.cycle.result import Outcome, outcome_of
from orchestrator.bot.git.wip import drop_wip
from orchestrator.bot.policy.outgoing import places_of_secrets
from orchestrator.core.cycle_events import WorkSaved
from orchestrator.core.errors import ClaimLostError, JournalError, WorkspaceError
from orchestrator.core.events import Warned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.bot.cycle.act import Act
    from orchestrator.bot.cycle.claim import Choice
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.parts import CycleParts
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.journal.kept import KeptWork

PATCH_NAME = "changes.patch"


def keep_work(parts: CycleParts, choice: Choice, act: Act, result: CycleResult) -> None:
    """Keep what was done and is not proposed, on every way out of a session; it does not raise.

    It goes to a hidden ref of the remote, from which the next cycle on the task goes on. What the remote
    does not take is kept in the same form on this machine, for the next cycle here. For people it is a
    patch in the run's folder, or the temporary one if that is full. Where nothing can be written, the clone
    is kept and named. A cycle that came to its end leaves nothing, and what an earlier one left is dropped.
    """
    try:
        _keep_somewhere(parts, choice, act, result)
    except BaseException:  # a defect here must not cost the work: the clone would be removed now
        _keep(parts, act, "the changes could not be saved")
        raise


def _keep_somewhere(parts: CycleParts, choice: Choice, act: Act, result: CycleResult) -> None:
    error = sys.exception()
    outcome = result.outcome if error is None else outcome_of(error)
    try:
        # What waits for a person is in the patch and in our comment, and no work that somebody goes on with.
        paths, patch = act.left()
    except WorkspaceError as failure:
        _keep(parts, act, f"the changes could not be read ({failure})")
        return
    if choice.lease is not None and parts.kept is not None:
        is_ours = not isinstance(error, ClaimLostError)
        saving = _Saving(
            parts, choice.lease, parts.kept, choice.earlier, act, result, outcome, is_ours=is_ours
        )
        with parts.stop.saving():
            if outcome in {Outcome.PROPOSED, Outcome.NO_TASK, Outcome.PLANNED} and not paths:
                saving.drop()
            elif patch or act.conversation:
                saving.save()
    if patch:
        _keep_as_patch(parts, act, result, patch)
    if result.patch or result.saved:
        parts.emit(WorkSaved(result.patch or "", result.saved or ""))


@dataclass(frozen=True, slots=True)
class _Saving:
    """What a cycle had of its task, on its way to the remote, or else to the state of this machine.

    Attributes:
        is_ours: the claim was not seen to be somebody else's.
    """

    parts: CycleParts
    lease: Lease
    kept: KeptWork
    earlier: Earlier | None
    act: Act
    result: CycleResult
    outcome: Outcome
    is_ours: bool

    @property
    def _key(self) -> str:
        return self.lease.record.task

    def drop(self) -> None:
        """The task came to its end: drop what an earlier cycle left of it. A warning if that fails."""
        result, earlier, records = self.result, self.earlier, self.parts.records
        if self.outcome is Outcome.NO_TASK and not (result.rounds or result.commit):
            return  # nobody went on with it
        if not self.is_ours:
            return
        self.kept.remove(self._key)
        if earlier is None or earlier.commit is None or records is None:
            return
        try:
            drop_wip(records, self._key, earlier.commit, self.lease)
        except WorkspaceError as failure:
            self.parts.emit(Warned(f"saved work that is proposed by now could not be removed: {failure}"))

    def save(self) -> None:
        """Push the work and the conversation; where that fails, keep both on this machine."""
        act, parts = self.act, self.parts
        pages = pages_of(act.state(self.outcome), trimmed_events(act.conversation), parts.guards.redact)
        if self.is_ours:
            try:
                self._push(pages)
            except WorkspaceError as failure:
                parts.emit(Warned(f"the work could not be saved on the remote: {failure}"))
            else:
                self.kept.remove(self._key)
                return
        try:
            packed = act.clone.pack_wip(
                self._key,
                touched=set(act.ledger.touched),
                include_commands=act.ledger.shell_used,
                find_secrets=self._secrets,
            )
            replaces = self.earlier.commit if self.earlier else None
            self.kept.write(self._key, files_to_keep(packed, pages, replaces))
        except (JournalError, WorkspaceError) as failure:
            parts.emit(Warned(f"the next cycle will not go on with the work: {failure}"))
        else:
            parts.emit(Warned(f"the next cycle on {self._key} on this machine goes on with the work"))

    def _push(self, pages: Mapping[str, bytes]) -> None:
        act, parts = self.act, self.parts
        saved = act.clone.save_wip(
            self._key,
            pages,
            touched=set(act.ledger.touched),
            include_commands=act.ledger.shell_used,
            expected=self.earlier.commit if self.earlier else None,
            saved_at=parts.clock.now(),
            stamp=parts.run,
            find_secrets=self._secrets,
            lease=self.lease,
        )
        self.result.saved = saved.ref
        for item in saved.left_out:
            parts.emit(Warned(f"{item.path} is not in the saved work: {item.reason}"))

    def _secrets(self, diff: str) -> list[str]:
        return places_of_secrets(diff, self.parts.guards.hold_back)


def _keep_as_patch(parts: CycleParts, act: Act, result: CycleResult, patch: bytes) -> None:
    for folder in (parts.folder, Path(tempfile.gettempdir())):
        target = folder / (PATCH_NAME if folder == parts.folder else f"pullwright-{parts.run}.patch")
        try:
            write_private(target, patch)
        except OSError:
            continue
        result.patch = str(target)
        if parts.guards.hold_back(patch.decode("utf-8", "replace")):
            parts.emit(Warned("the saved patch holds what looks like a secret: do not publish it"))
        return
    _keep(parts, act, "no space to save the changes")


def write_private(target: Path, patch: bytes) -> None:
    """Write a new file that nobody else may read. A link that somebody put there is not followed."""
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(patch)


def _keep(parts: CycleParts, act: Act, why: str) -> None:
    """Leave the files where they are, without what git would run there for a person who looks at them."""
    warning = ""
    try:
        act.clone.keep()
    except WorkspaceError as error:
        warning = f"; run no git there: {error}"
    parts.emit(Warned(f"{why}; the clone is kept at {act.clone.tree}{warning}"))
