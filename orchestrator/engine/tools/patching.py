"""Does what a patch asks for, whatever its format: all of it or nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.engine.tools.base import Ok, ToolContext
from orchestrator.engine.tools.changes import Action, FileChange
from orchestrator.engine.tools.hunks import apply_chunks
from orchestrator.engine.tools.namesakes import did_you_mean
from orchestrator.engine.tools.staging import Staging
from orchestrator.engine.tools.textfile import TextFile, decode, file_name, syntax_remark

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence


async def apply_changes(context: ToolContext, changes: Sequence[FileChange]) -> Ok:
    """Check every change against the files, one after the other, then write all.

    Raises:
        ToolError: one cannot be made; nothing is written then.
    """
    patching = _Patching(context)
    try:
        for change in changes:
            await patching.stage(change)
        await _finished(patching.write())
    except ToolError as error:
        raise type(error)(f"{error}\n{patching.aftermath()}") from None
    return Ok("\n".join(["Applied the patch:", *patching.report(), *await patching.syntax_remarks()]))


async def _finished(work: Coroutine[None, None, None]) -> None:
    """Bring work that was begun to its end, even if this is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains that it was not
        raise


class _Patching:
    def __init__(self, context: ToolContext) -> None:
        self._staging = Staging(context.environment)
        self._context = context
        self._remarks: dict[str, list[str]] = {}
        self._written: set[str] = set()  # files whose whole text is the model's

    async def stage(self, change: FileChange) -> None:
        """Make one change on top of those before it.

        Raises:
            ToolError: it cannot be made.
        """
        name = file_name(self._context, change.path)
        try:
            before = await self._staging.read(name)
        except FileUnreadableError as error:
            raise FileUnreadableError(f"{change.action} {name}: {error}") from None
        if change.action is Action.ADD or (change.may_create and before is None):
            self._add(name, before, change)
        elif before is None:
            if self._staging.removed(name):
                raise FileMissingError(f"{change.action} {name}: the patch removes or moves it further up")
            raise FileMissingError(
                f"{change.action} {name}: {name} does not exist.{await did_you_mean(self._context, name)}"
            )
        elif change.action is Action.REMOVE:
            self._remove(name, before, change)
        else:
            await self._update(name, before, change)

    def _add(self, name: str, before: bytes | None, change: FileChange) -> None:
        data = change.content.encode()
        if before:
            data = decode(name, before).with_text(change.content)
            self._refuse_unseen(name, before, data)
        self._staging.put(name, data)
        self._written.add(name)
        self._note(name, change.remark)

    def _remove(self, name: str, before: bytes, change: FileChange) -> None:
        if change.chunks and self._edited(name, name, decode(name, before), change):
            raise ToolError(
                f"delete {name}: it has lines that the patch does not show; give all of its lines, or none"
            )
        self._staging.put(name, None)
        self._written.discard(name)

    async def _update(self, name: str, before: bytes, change: FileChange) -> None:
        target = name if change.move_to is None else file_name(self._context, change.move_to)
        data = before
        if change.chunks:
            file = decode(name, before)
            data = file.with_text(self._edited(name, target, file, change))
        if target == name:
            self._staging.put(name, data)
            return
        there = await self._staging.read(target)
        if there:
            self._refuse_unseen(target, there, data)
        self._staging.move(name, target, data)
        for remark in self._remarks.pop(name, ()):
            self._note(target, remark)
        if name in self._written:
            self._written.discard(name)
            self._written.add(target)

    def _edited(self, name: str, target: str, file: TextFile, change: FileChange) -> str:
        missed = self._context.ledger.misses_again
        edited = apply_chunks(name, file.text, change.chunks, lambda old: missed(name, old))
        for remark in edited.remarks:
            self._note(target, remark)
        return edited.text

    def _refuse_unseen(self, name: str, before: bytes, data: bytes) -> None:
        if data == before or name in self._written or name in self._context.ledger.shown:
            return
        raise ToolError(
            f"{name} exists and you have not seen its text, so it is not replaced: read it first, or change a part of it "
            "with an update"
        )

    def _note(self, name: str, remark: str) -> None:
        if remark:
            self._remarks.setdefault(name, []).append(remark)

    async def write(self) -> None:
        """Write all that was staged, and enter it into the ledger.

        Raises:
            ToolError: it could not be written.
        """
        await self._staging.write()
        self._record()

    async def syntax_remarks(self) -> list[str]:
        """What `syntax_remark` says of the files that were written."""
        found = [
            await syntax_remark(self._context, name, self._staging.before(name), data)
            for name, data in self._staging.changed().items()
            if data is not None
        ]
        return [remark.strip() for remark in found if remark]

    def aftermath(self) -> str:
        """What became of the files though the patch failed."""
        if not self._staging.left:
            return "Nothing was changed: a patch is applied as a whole or not at all."
        self._context.ledger.touched.update(self._staging.left)
        return f"These files were written before that and could not be put back: {', '.join(self._staging.left)}."

    def _record(self) -> None:
        ledger = self._context.ledger
        for name, data in self._staging.changed().items():
            ledger.touched.add(name)
            ledger.missed.pop(name, None)
            origin = self._staging.moved_from(name)
            if data is None:
                continue
            if name in self._written or (origin is not None and origin in ledger.shown):
                ledger.shown.add(name)
        ledger.shown -= {name for name, data in self._staging.changed().items() if data is None}

    def report(self) -> list[str]:
        """A line for each file: `A` added, `M` changed, `D` removed, `R` moved; what should be known in brackets."""
        changed = self._staging.changed()
        moved = {name: old for name in changed if (old := self._staging.moved_from(name)) is not None}
        lines = []
        for name in self._staging.names():
            remarks = list(self._remarks.get(name, ()))
            if name in moved:
                line = f"R {moved[name]} -> {name}"
            elif name in moved.values():
                continue
            elif name not in changed:
                line = f"M {name}"
                remarks.append("it is as it was: the patch does not change its text")
            elif changed[name] is None:
                line = f"D {name}"
            else:
                line = f"{'A' if self._staging.created(name) else 'M'} {name}"
            lines.append(f"{line} ({'; '.join(remarks)})" if remarks else line)
        return lines
