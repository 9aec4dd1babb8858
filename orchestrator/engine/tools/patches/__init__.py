"""The tool `apply_patch`: several changes to several files in one call, all of them or none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.engine.tools.base import TEXT, Ok, Order, Tool, ToolContext, ToolOutcome, define
from orchestrator.engine.tools.patches.formats import parse_unified, parse_v4a
from orchestrator.engine.tools.patches.hunks import Action, FilePatch, apply_chunks
from orchestrator.engine.tools.textfile import (
    TextFile,
    check_text,
    declared_encoding,
    decode_text,
    did_you_mean,
    editable_text,
    file_name,
    new_bytes,
    syntax_remark,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from orchestrator.engine.environments.base import ExecutionEnvironment


MAX_BYTES = 10_000_000
"""The limit of a file that is changed, moved or removed: its old content is kept until everything is written."""


class Staging:
    """The files of an environment with unwritten changes on top. Paths are normal forms.

    Attributes:
        left: files that stay changed although writing failed, because they could not be restored.
    """

    def __init__(self, environment: ExecutionEnvironment) -> None:
        self.left: list[str] = []
        self._environment = environment
        self._before: dict[str, bytes | None] = {}
        self._after: dict[str, bytes | None] = {}
        self._origins: dict[str, str] = {}  # path on disk, by the new path of a moved file
        self._done: list[str] = []  # files written or removed so far

    async def read(self, name: str) -> bytes | None:
        """Return a file's content with the changes so far; None if there is no such file."""
        if name not in self._before:
            self._before[name] = None
            if self._file_in_the_way(name) is None:
                with suppress(FileMissingError):
                    self._before[name] = await self._environment.read_file(name, max_bytes=MAX_BYTES)
        return self._after.setdefault(name, self._before[name])

    def before(self, name: str) -> bytes | None:
        """Return a changed file's previous content, at its old path if it was moved; None if it is new."""
        return self._before[self.moved_from(name) or name]

    def _file_in_the_way(self, name: str) -> str | None:
        """Return the file that will be removed and whose name becomes a folder in this path."""
        folders = (str(folder) for folder in PurePosixPath(name).parents)
        return next((folder for folder in folders if folder in self._before and self.removed(folder)), None)

    def put(self, name: str, data: bytes | None) -> None:
        """Set the content of a file that was read before; None removes it."""
        self._after[name] = data
        if data is None:
            self._origins.pop(name, None)

    def move(self, old: str, new: str, data: bytes) -> None:
        """Move a file to another path with another content. Both paths were read before."""
        origin = self._origins.get(old, old)
        self.put(old, None)
        self._origins.pop(new, None)
        self.put(new, data)
        if self._before[origin] is not None and origin != new:
            self._origins[new] = origin

    def removed(self, name: str) -> bool:
        """Return whether the changes so far remove an existing file."""
        return self._before[name] is not None and self._after[name] is None

    def changed(self) -> dict[str, bytes | None]:
        """Return the new content of every file that changes, in the order of reading; None for removed ones."""
        return {name: data for name, data in self._after.items() if data != self._before[name]}

    def names(self) -> tuple[str, ...]:
        """Return every path read, in order, except those without a file before and after the changes."""
        return tuple(
            name for name in self._after if self._after[name] is not None or self._before[name] is not None
        )

    def created(self, name: str) -> bool:
        """Return whether there is no such file on disk."""
        return self._before[name] is None

    def moved_from(self, name: str) -> str | None:
        """Return the old path of a file that is moved, with or without a change of its text; else None."""
        old = self._origins.get(name)
        return old if old is not None and self._after[old] is None else None

    async def write(self) -> None:
        """Write all changes.

        Files are removed last, so that a moved file can take its mode from the old path.
        Only files whose names become folders are removed before the files in these folders are written.

        Raises:
            ToolError: a file could not be written; everything except `left` is as it was before.
        """
        changed = self.changed()
        in_the_way = {name: self._file_in_the_way(name) for name, data in changed.items() if data is not None}
        order = [name for name, folder in in_the_way.items() if folder is None]
        order += [name for name in changed if name in in_the_way.values()]
        order += [name for name, folder in in_the_way.items() if folder is not None]
        order += [name for name in changed if name not in order]
        try:
            for name in order:
                if (data := changed[name]) is None:
                    await self._environment.remove_file(name)
                else:
                    await self._environment.write_file(name, data, mode_of=self._origins.get(name))
                self._done.append(name)
        except ToolError:
            await self._restore()
            raise

    async def _restore(self) -> None:
        """Undo what was written and removed, the last first."""
        for name in reversed(self._done):
            before = self._before[name]
            moved_to = next((new for new, old in self._origins.items() if old == name), None)
            try:
                if before is None:
                    await self._environment.remove_file(name)
                else:
                    mode_of = moved_to if self._after[name] is None else None
                    await self._environment.write_file(name, before, mode_of=mode_of)
            except ToolError:
                self.left.append(name)


async def apply_changes(context: ToolContext, changes: Sequence[FilePatch]) -> Ok:
    """Check every change against the files, one after the other, then write all.

    Raises:
        ToolError: a change cannot be applied; no file is written then.
    """
    patching = _Patching(context)
    try:
        for change in changes:
            await patching.stage(change)
        await _finish(patching.write())
    except ToolError as error:
        raise type(error)(f"{error}\n{patching.state_after_failure()}") from None
    return Ok("\n".join(["Applied the patch:", *patching.report(), *await patching.syntax_remarks()]))


async def _finish(work: Coroutine[None, None, None]) -> None:
    """Await work to its end, even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as never retrieved
        raise


class _Patching:
    def __init__(self, context: ToolContext) -> None:
        self._staging = Staging(context.environment)
        self._context = context
        self._remarks: dict[str, list[str]] = {}
        self._written: set[str] = set()  # files whose whole text the model wrote

    async def stage(self, change: FilePatch) -> None:
        """Stage one change on top of those before it; raise `ToolError` if it cannot be applied."""
        name = file_name(self._context, change.path)
        try:
            before = await self._staging.read(name)
        except FileUnreadableError as error:
            raise FileUnreadableError(f"{change.action} {name}: {error}") from None
        if change.action is Action.ADD or (change.may_create and before is None):
            await self._add(name, before, change)
        elif before is None:
            if self._staging.removed(name):
                raise FileMissingError(
                    f"{change.action} {name}: an earlier part of the patch removes or moves it"
                )
            raise FileMissingError(
                f"{change.action} {name}: {name} does not exist.{await did_you_mean(self._context, name)}"
            )
        elif change.action is Action.REMOVE:
            await self._remove(name, before, change)
        else:
            await self._update(name, before, change)

    async def _add(self, name: str, before: bytes | None, change: FilePatch) -> None:
        declared = await declared_encoding(self._context, name)
        data = new_bytes(self._context, name, change.content, declared)
        if before:
            data = decode_text(name, before, declared).with_text(change.content)
            self._refuse_unseen(name, before, data)
        self._staging.put(name, data)
        self._written.add(name)
        self._note(name, change.remark)

    async def _remove(self, name: str, before: bytes, change: FilePatch) -> None:
        declared = await declared_encoding(self._context, name) if change.chunks else None
        if change.chunks and self._edited(name, name, decode_text(name, before, declared), change):
            raise ToolError(
                f"delete {name}: it has lines that the patch does not show; give all of its lines, or none"
            )
        self._context.ledger.removed.setdefault(name, before)
        self._staging.put(name, None)
        self._written.discard(name)

    async def _update(self, name: str, before: bytes, change: FilePatch) -> None:
        target = name if change.move_to is None else file_name(self._context, change.move_to)
        data = before
        if change.chunks:
            file = editable_text(name, before, await declared_encoding(self._context, name))
            data = file.encode(self._edited(name, target, file, change))
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

    def _edited(self, name: str, target: str, file: TextFile, change: FilePatch) -> str:
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
        """Write all staged changes, and record them in the ledger; raise `ToolError` if one cannot be written."""
        await self._staging.write()
        ledger, changed = self._context.ledger, self._staging.changed()
        for name, data in changed.items():
            ledger.touched.add(name)
            ledger.missed.pop(name, None)
            if data is not None and (name in self._written or self._staging.moved_from(name) in ledger.shown):
                ledger.shown.add(name)
        ledger.shown -= {name for name, data in changed.items() if data is None}

    async def syntax_remarks(self) -> list[str]:
        """Return the remarks of `syntax_remark` on the written files."""
        found = [
            await syntax_remark(self._context, name, self._staging.before(name), data)
            for name, data in self._staging.changed().items()
            if data is not None
        ]
        return [remark.strip() for remark in found if remark]

    def state_after_failure(self) -> str:
        """Return a sentence about the files after a failed patch; record those that stay changed."""
        if not self._staging.left:
            return "Nothing was changed: a patch is applied as a whole or not at all."
        self._context.ledger.touched.update(self._staging.left)
        return f"These files were written before that and could not be restored: {', '.join(self._staging.left)}."

    def report(self) -> list[str]:
        """Return a line for each file: `A` added, `M` changed, `D` removed, `R` moved; remarks in brackets."""
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
                remarks.append("unchanged: the patch does not change its text")
            elif changed[name] is None:
                line = f"D {name}"
            else:
                line = f"{'A' if self._staging.created(name) else 'M'} {name}"
            lines.append(f"{line} ({'; '.join(remarks)})" if remarks else line)
        return lines


def apply_patch() -> Tool:
    """Create the tool for patches between `*** Begin Patch` and `*** End Patch`."""
    return _tool("apply_patch_v4a", parse_v4a)


def apply_unified_patch() -> Tool:
    """Create the tool for unified diffs; the model calls it `apply_patch` as well."""
    return _tool("apply_patch_unified", parse_unified)


def _tool(prompt: str, parse: Callable[[str], tuple[FilePatch, ...]]) -> Tool:
    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        patch = arguments["patch"]
        check_text("patch", patch)
        return await apply_changes(context, parse(patch))

    definition = define("apply_patch", {"patch": TEXT}, ("patch",), prompt=prompt)
    return Tool(definition, execute, order=Order.ALONE)
