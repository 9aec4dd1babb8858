"""Environments that wrap another one: pass everything on, forbid changes, log, or act in a subfolder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Required, TypedDict, TypeVar, Unpack

from orchestrator.core.checks import check_methods
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.base import HasHostView, RunsReadOnly
from orchestrator.engine.environments.files import quoted, shown, split_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.base import (
        DirEntry,
        ExecResult,
        ExecutionEnvironment,
        GrepMatch,
        GrepOptions,
        HostView,
    )

_T = TypeVar("_T")


class _CommandOptions(TypedDict, total=False):
    """The named arguments of `ExecutionEnvironment.exec_command`, and that of `RunsReadOnly`."""

    timeout_ms: Required[int]
    working_dir: str | None
    env: Mapping[str, str] | None
    on_output: Callable[[str], None] | None
    read_only: bool


class Wrapper:
    """Passes every call on to `inner`. A subclass overrides what it changes.

    Raises:
        ConfigurationError: `inner` is no environment.
    """

    def __init__(self, inner: ExecutionEnvironment) -> None:
        check_methods("inner", inner, ("exec_command", "read_file"), "an environment")
        self.inner = inner

    async def initialize(self) -> None:
        """See `ExecutionEnvironment`."""
        await self.inner.initialize()

    async def cleanup(self) -> None:
        """See `ExecutionEnvironment`."""
        await self.inner.cleanup()

    def working_directory(self) -> str:
        """See `ExecutionEnvironment`."""
        return self.inner.working_directory()

    def platform(self) -> str:
        """See `ExecutionEnvironment`."""
        return self.inner.platform()

    def os_version(self) -> str:
        """See `ExecutionEnvironment`."""
        return self.inner.os_version()

    def host_view(self) -> HostView | None:
        """See `HasHostView`."""
        return self.inner.host_view() if isinstance(self.inner, HasHostView) else None

    def runs_read_only(self) -> bool:
        """See `RunsReadOnly`."""
        return isinstance(self.inner, RunsReadOnly) and self.inner.runs_read_only()

    def relative(self, path: str) -> str:
        """See `ExecutionEnvironment`."""
        return self.inner.relative(path)

    def inner_path(self, path: str) -> str:
        """Return the path in the form that `inner` expects."""
        return path

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment`."""
        return await self.inner.read_file(self.inner_path(path), max_bytes=max_bytes)

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment`."""
        inner_mode_of = None if mode_of is None else self.inner_path(mode_of)
        await self.inner.write_file(self.inner_path(path), content, mode_of=inner_mode_of)

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await self.inner.remove_file(self.inner_path(path))

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        return await self.inner.file_exists(self.inner_path(path))

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        return await self.inner.list_directory(self.inner_path(path), depth=depth)

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        return await self.inner.grep(pattern, self.inner_path(path), options)

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        return await self.inner.glob(pattern, self.inner_path(path))

    async def exec_command(self, command: str, **options: Unpack[_CommandOptions]) -> ExecResult:
        """See `ExecutionEnvironment`."""
        if (folder := options.get("working_dir")) is not None:
            options["working_dir"] = self.inner_path(folder)
        # `read_only` is among them only where `inner` knows it
        return await self.inner.exec_command(command, **options)  # type: ignore[misc]


class ReadOnlyEnvironment(Wrapper):
    """An environment that changes no file.

    Args:
        allow_commands: whether commands run. They can change files only where `inner` has no sandbox, or is no
            environment that `RunsReadOnly`.
    """

    def __init__(self, inner: ExecutionEnvironment, *, allow_commands: bool = False) -> None:
        super().__init__(inner)
        self._allow_commands = allow_commands

    async def write_file(
        self,
        path: str,  # noqa: ARG002  the protocol's
        content: bytes,  # noqa: ARG002  the protocol's
        *,
        mode_of: str | None = None,  # noqa: ARG002  the protocol's
    ) -> None:
        """Raise `ToolError`."""
        raise ToolError("Write operations are disabled in read-only mode")

    async def remove_file(self, path: str) -> None:  # noqa: ARG002  the protocol's
        """Raise `ToolError`."""
        raise ToolError("Write operations are disabled in read-only mode")

    async def exec_command(self, command: str, **options: Unpack[_CommandOptions]) -> ExecResult:
        """Run the command if commands are allowed, else raise `ToolError`."""
        if not self._allow_commands:
            raise ToolError("Commands are disabled in read-only mode")
        if self.runs_read_only():
            options["read_only"] = True
        return await super().exec_command(command, **options)


class LoggingEnvironment(Wrapper):
    """Logs one line for each operation: its name and arguments, its result and its duration.

    Neither contents of files nor variables are logged.

    Args:
        log: called with each line; it must not block.
    """

    def __init__(
        self, inner: ExecutionEnvironment, log: Callable[[str], None], *, clock: Clock | None = None
    ) -> None:
        super().__init__(inner)
        self._log = log
        self._clock = clock or SystemClock()

    async def initialize(self) -> None:
        """See `ExecutionEnvironment`."""
        await self._logged("initialize", super().initialize())

    async def cleanup(self) -> None:
        """See `ExecutionEnvironment`."""
        await self._logged("cleanup", super().cleanup())

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment`."""
        read = super().read_file(path, max_bytes=max_bytes)
        return await self._logged(f"read_file {quoted(path)}", read, lambda found: f"{len(found):,} bytes")

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment`."""
        written = super().write_file(path, content, mode_of=mode_of)
        await self._logged(f"write_file {quoted(path)}", written, lambda _: f"{len(content):,} bytes")

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await self._logged(f"remove_file {quoted(path)}", super().remove_file(path))

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        exists = super().file_exists(path)
        return await self._logged(f"file_exists {quoted(path)}", exists, lambda yes: "yes" if yes else "no")

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        listed = super().list_directory(path, depth=depth)
        return await self._logged(f"list_directory {quoted(path)}", listed, _count)

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        found = super().grep(pattern, path, options)
        return await self._logged(f"grep {quoted(pattern)} in {quoted(path)}", found, _count)

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        found = super().glob(pattern, path)
        return await self._logged(f"glob {quoted(pattern)} in {quoted(path)}", found, _count)

    async def exec_command(self, command: str, **options: Unpack[_CommandOptions]) -> ExecResult:
        """See `ExecutionEnvironment`."""
        return await self._logged(
            f"exec_command {quoted(command)}",
            super().exec_command(command, **options),
            lambda result: f"exit code {result.exit_code}" + (", timed out" if result.timed_out else ""),
        )

    async def _logged(
        self, what: str, operation: Awaitable[_T], describe: Callable[[_T], str] = lambda _: "done"
    ) -> _T:
        began = self._clock.monotonic()
        ending = "interrupted"
        try:
            answer = await operation
            ending = describe(answer)
        except ToolError as error:
            ending = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._log(f"{what}: {ending} ({round((self._clock.monotonic() - began) * 1_000)} ms)")
        return answer


def _count(found: Sequence[object]) -> str:
    return f"{len(found):,} found"


class ScopedEnvironment(Wrapper):
    """A subfolder, such as a subagent's working folder: paths are relative to it, and none leaves it.

    Commands start in it, but are not confined to it. `inner` is neither initialised nor cleaned up from here.

    Args:
        inner: the environment, initialised.
        folder: the subfolder, relative to the root of `inner`.

    Raises:
        PathRefusedError: the folder leaves the root of `inner`, or enters a `.git`.
    """

    def __init__(self, inner: ExecutionEnvironment, folder: str) -> None:
        super().__init__(inner)
        self._folder = inner.relative(folder)
        self._prefix = "" if self._folder == "." else f"{shown(self._folder)}/"

    async def initialize(self) -> None:
        """Check that the folder exists.

        Raises:
            FileMissingError, FileUnreadableError: it does not exist, or is no folder.
            PathRefusedError: the path to it passes through a symbolic link.
        """
        await self.inner.list_directory(self._folder, depth=1)

    async def cleanup(self) -> None:
        """Do nothing: `inner` owns everything."""

    def working_directory(self) -> str:
        """Return the subfolder's path as commands see it."""
        above = self.inner.working_directory()
        return above if self._folder == "." else f"{above.rstrip('/')}/{self._folder}"

    def host_view(self) -> HostView | None:
        """Return the view of the subfolder; None if a repository begins below the root: commands may have made it."""
        view = super().host_view()
        below = () if self._folder == "." else tuple(self._folder.split("/"))
        return view.at(below) if view is not None and view.at(below).is_trusted else None

    def relative(self, path: str) -> str:
        """See `ExecutionEnvironment`; relative to the subfolder."""
        return "/".join(split_path(path, (self.working_directory(),))) or "."

    def inner_path(self, path: str) -> str:
        """Return the path relative to the root of `inner`; a final `/`, which marks a folder, is kept."""
        names = split_path(path, (self.working_directory(),))
        inside = "/".join(names if self._folder == "." else (self._folder, *names)) or "."
        return f"{inside}/" if path.endswith("/") else inside

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        found = await super().grep(pattern, path, options)
        return [replace(match, path=match.path.removeprefix(self._prefix)) for match in found]

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        return [name.removeprefix(self._prefix) for name in await super().glob(pattern, path)]

    async def exec_command(self, command: str, **options: Unpack[_CommandOptions]) -> ExecResult:
        """See `ExecutionEnvironment`. Without `working_dir` the command starts in the subfolder."""
        options["working_dir"] = options.get("working_dir") or "."
        return await super().exec_command(command, **options)
