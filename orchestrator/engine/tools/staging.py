"""Files as they will be: changes are collected, then written all together or not at all."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orchestrator.engine.environments.base import ExecutionEnvironment

MAX_BYTES = 10_000_000
"""Of a file that is changed, moved or removed: its old bytes are kept until all is written."""


class Staging:
    """The files of an environment with changes on top that are not yet written. Paths are normal forms.

    Attributes:
        left: files that are changed though writing failed, because they could not be put back.
    """

    def __init__(self, environment: ExecutionEnvironment) -> None:
        self.left: list[str] = []
        self._environment = environment
        self._before: dict[str, bytes | None] = {}
        self._after: dict[str, bytes | None] = {}
        self._origin: dict[str, str] = {}  # of a moved file: its path on disk
        self._undo: list[tuple[str, Callable[[], Coroutine[None, None, None]]]] = []

    async def read(self, name: str) -> bytes | None:
        """A file as it will be, None if there is none.

        Raises:
            ToolError: the path is refused, or what is there is no file or over 10 MB.
        """
        if name not in self._before and self._makes_way(name) is not None:
            self._before[name] = None
        elif name not in self._before:
            try:
                self._before[name] = await self._environment.read_file(name, max_bytes=MAX_BYTES)
            except FileMissingError:
                self._before[name] = None
        return self._after.setdefault(name, self._before[name])

    def before(self, name: str) -> bytes | None:
        """What a changed file held before, under its old path if it was moved; None if it is new."""
        return self._before[self.moved_from(name) or name]

    def _makes_way(self, name: str) -> str | None:
        """The file that will be removed and has the name of a folder of this path."""
        folders = (str(folder) for folder in PurePosixPath(name).parents)
        return next((folder for folder in folders if folder in self._before and self.removed(folder)), None)

    def put(self, name: str, data: bytes | None) -> None:
        """Give a file, which was read before, another content; None removes it."""
        self._after[name] = data
        if data is None:
            self._origin.pop(name, None)

    def move(self, old: str, new: str, data: bytes) -> None:
        """Let a file have another path and content. Both paths were read before."""
        origin = self._origin.get(old, old)
        self.put(old, None)
        self._origin.pop(new, None)
        self.put(new, data)
        if self._before[origin] is not None and origin != new:
            self._origin[new] = origin

    def removed(self, name: str) -> bool:
        """Whether the changes so far remove a file that is there."""
        return self._before[name] is not None and self._after[name] is None

    def changed(self) -> dict[str, bytes | None]:
        """The new content of every file that will differ, in the order in which they were read; None for removed."""
        return {name: data for name, data in self._after.items() if data != self._before[name]}

    def names(self) -> tuple[str, ...]:
        """Every path read, in order, but for those where nothing is, was or will be."""
        return tuple(
            name for name in self._after if self._after[name] is not None or self._before[name] is not None
        )

    def created(self, name: str) -> bool:
        """Whether there is no such file on disk."""
        return self._before[name] is None

    def moved_from(self, name: str) -> str | None:
        """The old path of a file that only changes its place and perhaps its text."""
        old = self._origin.get(name)
        return old if old is not None and self._after[old] is None else None

    async def write(self) -> None:
        """Write all. Files are removed last, so that a moved one's mode can be taken from the old place.

        Only those that stand where a folder has to be are removed before the files in that folder are written.

        Raises:
            ToolError: something could not be written; everything but `left` is as it was before.
        """
        changed = self.changed()
        in_the_way = {name: self._makes_way(name) for name, data in changed.items() if data is not None}
        early = [name for name in changed if name in in_the_way.values()]
        try:
            for name in (name for name, folder in in_the_way.items() if folder is None):
                await self._write(name)
            for name in early:
                await self._remove(name)
            for name in (name for name, folder in in_the_way.items() if folder is not None):
                await self._write(name)
            for name in (name for name, data in changed.items() if data is None and name not in early):
                await self._remove(name)
        except ToolError:
            await self._put_back()
            raise

    async def _write(self, name: str) -> None:
        data = self._after[name] or b""
        await self._environment.write_file(name, data, mode_of=self._origin.get(name))
        self._undo.append((name, self._undo_write(name)))

    async def _remove(self, name: str) -> None:
        await self._environment.remove_file(name)
        self._undo.append((name, self._undo_removal(name)))

    def _undo_write(self, name: str) -> Callable[[], Coroutine[None, None, None]]:
        before = self._before[name]
        if before is None:
            return lambda: self._environment.remove_file(name)
        return lambda: self._environment.write_file(name, before)

    def _undo_removal(self, name: str) -> Callable[[], Coroutine[None, None, None]]:
        before = self._before[name] or b""
        moved = next((new for new, old in self._origin.items() if old == name), None)
        return lambda: self._environment.write_file(name, before, mode_of=moved)

    async def _put_back(self) -> None:
        for name, undo in reversed(self._undo):
            try:
                await undo()
            except ToolError:
                self.left.append(name)
