"""A subfolder of an environment as an environment of its own, such as a subagent's working folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.engine.environments.paths import shown, split_path
from orchestrator.engine.environments.wrappers import Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.engine.environments.base import (
        DirEntry,
        ExecResult,
        ExecutionEnvironment,
        GrepMatch,
        GrepOptions,
    )
    from orchestrator.engine.environments.host_view import HostView


class ScopedEnvironment(Wrapper):
    """Paths are seen from the subfolder, and none leaves it; commands begin in it, without walls.

    `inner` belongs to somebody else: it is neither initialised nor cleaned up from here.

    Args:
        inner: the environment, initialised.
        folder: the subfolder, seen from the root of `inner`.

    Raises:
        PathRefusedError: the folder leaves the root of `inner`, or enters a `.git`.
    """

    def __init__(self, inner: ExecutionEnvironment, folder: str) -> None:
        super().__init__(inner)
        self._folder = inner.relative(folder)
        self._prefix = "" if self._folder == "." else f"{shown(self._folder)}/"

    async def initialize(self) -> None:
        """See that the folder is there.

        Raises:
            FileMissingError, FileUnreadableError: it is not, or is no folder.
            PathRefusedError: there is a symbolic link on the way.
        """
        await self.inner.list_directory(self._folder, depth=1)

    async def cleanup(self) -> None:
        """Nothing: what is to be let go belongs to `inner`."""

    def working_directory(self) -> str:
        """The subfolder, as commands see it."""
        above = self.inner.working_directory()
        return above if self._folder == "." else f"{above.rstrip('/')}/{self._folder}"

    def host_view(self) -> HostView | None:
        """See `HasHostView`. None where a repository begins below the root of `inner`: commands may have made it."""
        view = super().host_view()
        below = () if self._folder == "." else tuple(self._folder.split("/"))
        return view.at(below) if view is not None and view.at(below).is_trusted else None

    def relative(self, path: str) -> str:
        """See `ExecutionEnvironment`; from the subfolder."""
        return "/".join(split_path(path, (self.working_directory(),))) or "."

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment`."""
        return await self.inner.read_file(self._inside(path), max_bytes=max_bytes)

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment`."""
        taken = None if mode_of is None else self._inside(mode_of)
        await self.inner.write_file(self._inside(path), content, mode_of=taken)

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await self.inner.remove_file(self._inside(path))

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        return await self.inner.file_exists(self._inside(path))

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        return await self.inner.list_directory(self._inside(path), depth=depth)

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        found = await self.inner.grep(pattern, self._inside(path), options)
        return [replace(match, path=match.path.removeprefix(self._prefix)) for match in found]

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        return [
            name.removeprefix(self._prefix) for name in await self.inner.glob(pattern, self._inside(path))
        ]

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """See `ExecutionEnvironment`."""
        folder = self._inside(working_dir or ".")
        return await self.inner.exec_command(
            command, timeout_ms=timeout_ms, working_dir=folder, env=env, on_output=on_output
        )

    def _inside(self, path: str) -> str:
        """The path seen from the root of `inner`; a `/` at its end still says that a folder is meant."""
        names = split_path(path, (self.working_directory(),))
        inside = "/".join(names if self._folder == "." else (self._folder, *names)) or "."
        return f"{inside}/" if path.endswith("/") else inside
