"""Work that is not proposed is never thrown away: it is kept on the remote and as a patch file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.cycle_events import WorkSaved
from orchestrator.core.errors import ClaimLostError, WorkspaceError
from orchestrator.core.events import Warned
from orchestrator.cycle.earlier import pages_of, trimmed_events
from orchestrator.cycle.result import Outcome, outcome_of
from orchestrator.guard.outgoing import places_of_secrets
from orchestrator.workspace.wip import drop_wip

if TYPE_CHECKING:
    from orchestrator.cycle.act import Act
    from orchestrator.cycle.parts import Choice, CycleParts
    from orchestrator.cycle.result import CycleResult
    from orchestrator.workspace.claims import Lease

PATCH_NAME = "changes.patch"


def keep_work(parts: CycleParts, choice: Choice, act: Act, result: CycleResult) -> None:
    """Keep what was done and is not proposed, on every way out of a session; it does not raise.

    It goes to a hidden ref of the remote, from which the next cycle on the task goes on, and as a patch
    into the run's folder, or the temporary one if that is full. Where nothing can be written, the clone
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
        left = bool(paths)
    except WorkspaceError as failure:
        _keep(parts, act, f"the changes could not be read ({failure})")
        return
    if choice.lease is not None and not isinstance(error, ClaimLostError):
        with parts.stop.saving():
            _keep_on_remote(parts, choice, choice.lease, act, result, outcome, left, bool(patch))
    if patch:
        _keep_as_patch(parts, act, result, patch)
    if result.patch or result.saved:
        parts.emit(WorkSaved(result.patch or "", result.saved or ""))


def _keep_on_remote(  # noqa: PLR0913, PLR0917  what a cycle is, and what it came to
    parts: CycleParts,
    choice: Choice,
    lease: Lease,
    act: Act,
    result: CycleResult,
    outcome: Outcome,
    left: bool,  # noqa: FBT001
    has_changes: bool,  # noqa: FBT001
) -> None:
    """Push the work and the conversation, or drop what an earlier cycle pushed. A warning if that fails."""
    done = outcome in {Outcome.PROPOSED, Outcome.NO_TASK, Outcome.PLANNED} and not left
    try:
        if outcome is Outcome.NO_TASK and not (left or result.rounds or result.commit):
            return  # nobody went on with it
        if done and choice.earlier is not None and parts.records is not None:
            drop_wip(parts.records, lease.record.task, choice.earlier.commit, lease)
        elif done:
            return
        elif has_changes or act.conversation:
            said = trimmed_events(act.conversation)
            pages = pages_of(act.state(outcome), said, parts.guards.redact)
            saved = act.clone.save_wip(
                lease.record.task,
                pages,
                touched=set(act.ledger.touched),
                include_commands=act.ledger.shell_used,
                expected=choice.earlier.commit if choice.earlier else None,
                saved_at=parts.clock.now(),
                stamp=parts.run,
                find_secrets=lambda diff: places_of_secrets(diff, parts.guards.hold_back),
                lease=lease,
            )
            result.saved = saved.ref
            for item in saved.left_out:
                parts.emit(Warned(f"{item.path} is not in the saved work: {item.reason}"))
    except WorkspaceError as failure:
        parts.emit(Warned(f"the work could not be saved on the remote: {failure}"))


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
