"""Changes that were made and not proposed are never thrown away: they become a patch file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import WorkspaceError
from orchestrator.core.events import Warned, WorkSaved

if TYPE_CHECKING:
    from orchestrator.cycle.act import Act
    from orchestrator.cycle.parts import CycleParts
    from orchestrator.cycle.result import CycleResult

PATCH_NAME = "changes.patch"


def save_work(parts: CycleParts, act: Act, result: CycleResult) -> None:
    """Write the unproposed changes to the run's folder, or to the temporary one if that is full.

    Where neither can be written, the clone is kept and named. Runs on every way out of a session,
    so it does not raise.
    """
    try:
        patch = b"" if parts.manner.dry_run and not act.pending() else act.pending_patch()
        if not patch:
            return
    except WorkspaceError as error:
        _keep(parts, act, f"the changes could not be read ({error})")
        return
    for folder in (parts.folder, Path(tempfile.gettempdir())):
        target = folder / (PATCH_NAME if folder == parts.folder else f"pullwright-{parts.run}.patch")
        try:
            _write(target, patch)
        except OSError:
            continue
        result.patch = str(target)
        parts.emit(WorkSaved(str(target)))
        if parts.guards.hold_back(patch.decode("utf-8", "replace")):
            parts.emit(Warned("the saved patch holds what looks like a secret: do not publish it"))
        return
    _keep(parts, act, "no space to save the changes")


def _write(target: Path, patch: bytes) -> None:
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
