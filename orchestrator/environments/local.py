"""The environment on this machine: files of one folder, and commands that run in it."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.environments.base import DirEntry, ExecResult, GrepMatch, GrepOptions
from orchestrator.environments.command import Command, RunningCommand
from orchestrator.environments.confined import ConfinedTree
from orchestrator.environments.paths import shown
from orchestrator.environments.search import find_ripgrep, glob_files, grep
from orchestrator.environments.variables import EnvPolicy, child_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from orchestrator.core.clock import Clock


class LocalEnvironment:
    """An `ExecutionEnvironment` without walls around its commands: they run as the user does.

    Files go through `ConfinedTree`. A command sees the machine; what it leaves behind in its
    process group ends with it, what makes a session of its own (`setsid`) does not.

    Example::

        environment = LocalEnvironment("project")

    Args:
        root: the folder.
        clock: measures how long commands take.
        env_policy: which of this program's variables commands are given.
        inherited: this program's variables; None reads them when the first command runs.
        submodules: relative paths of other repositories inside; nothing is written there.
        use_ripgrep: False searches in Python even where there is an `rg`.

    Raises:
        FileMissingError, FileUnreadableError: there is no folder at `root`.
    """

    def __init__(  # noqa: PLR0913  all but the first by name
        self,
        root: Path | str,
        *,
        clock: Clock | None = None,
        env_policy: EnvPolicy = EnvPolicy.FILTERED,
        inherited: Mapping[str, str] | None = None,
        submodules: Collection[str] = (),
        use_ripgrep: bool = True,
    ) -> None:
        self._tree = ConfinedTree(Path(root), submodules=submodules)
        self._clock = clock or SystemClock()
        self._env_policy = env_policy
        self._inherited = inherited
        self._ripgrep = find_ripgrep() if use_ripgrep else None
        self._running: set[RunningCommand] = set()
        self._closed = False

    async def initialize(self) -> None:
        """Nothing is left to do: the folder was opened when this was made."""

    async def cleanup(self) -> None:
        """End running commands (SIGTERM, 2 s, SIGKILL) and let go of the folder."""
        self._closed = True
        await asyncio.gather(*(command.stop() for command in self._running))
        self._tree.close()

    def working_directory(self) -> str:
        """The folder's real path."""
        return self._tree.root

    def platform(self) -> str:
        """`linux`, `darwin` or `windows`."""
        return {"win32": "windows"}.get(sys.platform, sys.platform)

    def os_version(self) -> str:
        """The kernel's name and release."""
        system = os.uname()
        return f"{system.sysname} {system.release}"

    def relative(self, path: str) -> str:
        """See `ExecutionEnvironment`."""
        return self._tree.relative(path)

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment`."""
        return await asyncio.to_thread(self._tree.read, path, max_bytes=max_bytes)

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment`."""
        await asyncio.to_thread(self._tree.write, path, content, mode_of=mode_of)

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await asyncio.to_thread(self._tree.remove, path)

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        return await asyncio.to_thread(self._tree.exists, path)

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        return await asyncio.to_thread(self._list, path, depth)

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        return await grep(self._tree, pattern, path, options, self._ripgrep)

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        return await asyncio.to_thread(glob_files, self._tree, pattern, path)

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """See `ExecutionEnvironment`. `env` is added after the filter.

        Raises:
            ToolError: the command cannot be started, `working_dir` is no folder of the tree, or
                this was cleaned up.
        """
        if timeout_ms <= 0:
            raise ToolError(f"the time-out must be over 0 ms, not {timeout_ms}")
        folder = await asyncio.to_thread(self._folder, working_dir or ".")
        if self._closed:
            raise ToolError("the environment was closed, so nothing runs in it any more")
        inherited = os.environ if self._inherited is None else self._inherited
        variables = {**child_variables(inherited, self._env_policy), **(env or {})}
        running = RunningCommand(Command(command, folder, variables, timeout_ms), self._clock, on_output)
        self._running.add(running)
        try:
            return await running.run()
        finally:
            self._running.discard(running)

    def _folder(self, path: str) -> str:
        if not self._tree.stat(path).is_dir:
            raise FileUnreadableError(f"{path} is not a folder")
        return os.path.join(self._tree.root, *self._tree.split(path))  # noqa: PTH118  names, joined as they are

    def _list(self, path: str, depth: int) -> list[DirEntry]:
        base = self._tree.split(path)
        waiting = [(base, entry) for entry in reversed(self._tree.entries(base))]
        listed = []
        while waiting:
            above, entry = waiting.pop()
            names = (*above, entry.name)
            listed.append(
                DirEntry(
                    shown("/".join(names[len(base) :])), entry.is_dir, None if entry.is_dir else entry.size
                )
            )
            if entry.is_dir and len(names) - len(base) < depth:
                with suppress(ToolError):  # no permission, or removed meanwhile
                    waiting += [(names, inner) for inner in reversed(self._tree.entries(names))]
        return listed
