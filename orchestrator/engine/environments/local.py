"""The environment on this machine: the files of one folder, and commands that run in it.

`LocalHostView` reads the folder and those above it as this program itself sees them; sandboxed commands see less.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator.core.checks import check_callable, check_flag, check_kind
from orchestrator.core.clock import SystemClock
from orchestrator.core.confined import ConfinedFolder, enter, entry_at, open_regular
from orchestrator.core.errors import ConfigurationError, FileUnreadableError, ToolError
from orchestrator.core.event_loop import in_thread
from orchestrator.engine.environments.base import (
    Command,
    DirEntry,
    ExecResult,
    GrepMatch,
    GrepOptions,
    Sandbox,
    SandboxFolder,
)
from orchestrator.engine.environments.commands import (
    EnvPolicy,
    RunningCommand,
    child_variables,
    command_variables,
)
from orchestrator.engine.environments.files import POINTER_BYTES, ConfinedTree, is_above, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.base import OpenSandbox

    RunOutside = Callable[[str, str, int], Awaitable[ExecResult]]
    """Runs a script of this program (script, folder, time-out in ms) as this user, outside of the sandbox."""


class LocalEnvironment:
    """An `ExecutionEnvironment` on this machine: files through `ConfinedTree`, commands in a sandbox.

    In the sandbox a command sees programs and the folder. It can change the folder but no `.git`, except with
    `own_repository`. Every process that it starts ends with it. With `sandbox="off"` the command runs as the
    user: it sees the whole machine, and a process with its own session (`setsid`) outlives it.

    Example::

        environment = LocalEnvironment("project")

    Args:
        env_policy: which of this program's variables commands get. In a sandbox the default and `CORE` mean
            `SANDBOXED`.
        inherited: this program's variables; None reads them when the first command runs.
        submodules: relative paths of other repositories inside; no file is written there.
        use_ripgrep: False searches in Python even if `rg` is installed.
        sandbox: `auto` finds the machine's sandbox when the first command runs; if there is none, no command
            runs.
        on_refused: called with `host:port` and the command for each connection that was not allowed.
        own_repository: whether the `.git` of the folder was made for these commands alone, so that they may
            change it. Such a repository must not be used outside of the sandbox: a command can make git run
            programs there.

    Raises:
        ConfigurationError: an argument has the wrong type or value; an unknown `sandbox` is never treated as
            `off`.
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
        sandbox: Sandbox | Literal["auto", "off"] = "auto",
        on_refused: Callable[[str, str], None] | None = None,
        own_repository: bool = False,
    ) -> None:
        _check_arguments(root, env_policy, inherited, submodules, sandbox)
        check_flag("use_ripgrep", use_ripgrep)
        check_flag("own_repository", own_repository)
        if on_refused is not None:
            check_callable("on_refused", on_refused)
        self.repositories = (".git", *(f"{path}/.git" for path in submodules))
        self._protected = () if own_repository else self.repositories
        self._own_repository = own_repository
        self._looks_for_sandbox = sandbox == "auto"
        self._sandbox = None if isinstance(sandbox, str) else sandbox
        self._opened: dict[bool, OpenSandbox] = {}
        """The sandboxes for commands that may change the folder (False) and for those that only read (True)."""
        self._variables: dict[str, str] | None = None
        self._sandbox_lock = asyncio.Lock()
        self._on_refused = on_refused
        self._tree = ConfinedTree(Path(root), submodules=submodules)
        self._clock = clock or SystemClock()
        self._env_policy = EnvPolicy(env_policy)
        self._inherited = inherited
        self._use_ripgrep = use_ripgrep
        self._running: set[RunningCommand] = set()
        self._closed = False

    async def initialize(self) -> None:
        """Do nothing: the constructor has opened the folder."""

    async def cleanup(self) -> None:
        """Stop running commands (SIGTERM, 2 s, SIGKILL) and close the folder."""
        self._closed = True
        await asyncio.gather(*(command.stop() for command in self._running))
        for opened in list(self._opened.values()):
            await opened.close()
        self._tree.close()

    def working_directory(self) -> str:
        """Return the folder's real path."""
        return self._tree.root

    def platform(self) -> str:
        """Return `linux`, `darwin` or `windows`."""
        return {"win32": "windows"}.get(sys.platform, sys.platform)

    def os_version(self) -> str:
        """Return the kernel's name and release."""
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
        # A cancelled call ends before the next one, or the removal of the folder, begins.
        await in_thread(partial(self._tree.write, path, content, mode_of=mode_of))

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await in_thread(self._tree.remove, path)

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        return await asyncio.to_thread(self._tree.exists, path)

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        return await asyncio.to_thread(self._list, path, depth)

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        from orchestrator.engine.environments.search import find_ripgrep, grep_tree

        ripgrep = find_ripgrep() if self._use_ripgrep else None
        return await grep_tree(self._tree, pattern, path, options, ripgrep)

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        from orchestrator.engine.environments.search import glob_files

        return await asyncio.to_thread(glob_files, self._tree, pattern, path)

    async def exec_command(  # noqa: PLR0913  all but the command by name
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
        read_only: bool = False,
    ) -> ExecResult:
        """See `ExecutionEnvironment` and `RunsReadOnly`. `env` is added after the filter.

        Raises:
            ToolError: the command cannot be started, `working_dir` is no folder of the tree, or the
                environment is closed.
            SandboxMissingError: a sandbox is required, and this machine has none.
        """
        if timeout_ms <= 0:
            raise ToolError(f"the time-out must be over 0 ms, not {timeout_ms}")
        folder = self._folder(working_dir or ".")
        sandbox = await self._resolve_sandbox()
        if self._variables is None:
            inherited = os.environ if self._inherited is None else self._inherited
            self._variables = command_variables(sandbox, self._env_policy, inherited)
        variables = {**self._variables, **(env or {})}
        if sandbox is not None and read_only not in self._opened:
            place = SandboxFolder(self._tree.root, () if read_only else self._protected, read_only)
            self._opened[read_only] = sandbox.open(place)
        opened = self._opened.get(read_only)
        result = await self._run(Command(command, folder, variables, timeout_ms), on_output, opened)
        if self._on_refused is not None:
            for host in result.refused_hosts:
                self._on_refused(host, command)
        return result

    def runs_read_only(self) -> bool:
        """Return True. Without a sandbox the argument changes nothing."""
        return True

    def host_view(self) -> LocalHostView | None:
        """Return the view (see `HasHostView`): a sandbox hides the folders above and the user's settings.

        None without a sandbox, and where commands can change the repository: its configuration decides what
        git runs.
        """
        if self._own_repository or not (self._looks_for_sandbox or self._sandbox):
            return None
        view = LocalHostView(self._tree.root, (), self._run_outside)
        return view if view.is_trusted else None

    async def _run_outside(self, script: str, folder: str, timeout_ms: int) -> ExecResult:
        inherited = os.environ if self._inherited is None else self._inherited
        # Variables of git are left out, whatever the policy for commands is.
        variables = child_variables(inherited, EnvPolicy.FILTERED)
        variables["GIT_CEILING_DIRECTORIES"] = os.path.dirname(folder)
        return await self._run(Command(script, folder, variables, timeout_ms))

    async def _run(
        self,
        command: Command,
        on_output: Callable[[str], None] | None = None,
        sandbox: OpenSandbox | None = None,
    ) -> ExecResult:
        if self._closed:
            raise ToolError("the environment was closed, so no command can run in it")
        running = RunningCommand(command, self._clock, on_output, sandbox)
        self._running.add(running)
        try:
            return await running.run()
        finally:
            self._running.discard(running)

    async def _resolve_sandbox(self) -> Sandbox | None:
        from orchestrator.engine.environments.sandbox import find_sandbox

        async with self._sandbox_lock:
            if self._looks_for_sandbox:
                self._sandbox = await asyncio.to_thread(find_sandbox, inherited=self._inherited)
                self._looks_for_sandbox = False
        return self._sandbox

    def _folder(self, path: str) -> str:
        if not self._tree.stat(path).is_dir:
            raise FileUnreadableError(f"{path} is not a folder")
        return os.path.join(self._tree.root, *self._tree.split(path))

    def _list(self, path: str, depth: int) -> list[DirEntry]:
        base = self._tree.split(path)
        waiting = [(base, entry) for entry in reversed(self._tree.entries(base))]
        listed = []
        while waiting:
            above, entry = waiting.pop()
            names = (*above, entry.name)
            listed.append(
                DirEntry(
                    shown("/".join(names[len(base) :])),
                    entry.is_dir,
                    None if entry.is_dir else entry.size,
                    entry.modified_ns,
                    entry.mode,
                )
            )
            if entry.is_dir and len(names) - len(base) < depth:
                with suppress(ToolError):  # no permission, or removed meanwhile
                    waiting += [(names, inner) for inner in reversed(self._tree.entries(names))]
        return listed


_SHELL_VARIABLES = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})
"""Variables that the shell sets itself."""


def conditions(sandbox: Sandbox | None, inherited: Mapping[str, str]) -> str:
    """Return a digest of what affects a command's result apart from files: variables, hosts, paths, limits.

    Results of commands are comparable only under equal conditions.
    """
    chosen = command_variables(sandbox, EnvPolicy.FILTERED, inherited)
    variables = sorted(one for one in chosen.items() if one[0] not in _SHELL_VARIABLES)
    facts = (sandbox.name, sandbox.options) if sandbox else ()
    return hashlib.sha256(repr((variables, facts)).encode("utf-8", "surrogatepass")).hexdigest()


def _check_arguments(
    root: object, env_policy: object, inherited: object, submodules: object, sandbox: object
) -> None:
    if not isinstance(root, str) or not root:
        check_kind("root", root, Path, "a path")
    if env_policy not in set(EnvPolicy):
        raise ConfigurationError(f"env_policy must be one of {', '.join(EnvPolicy)}; not {env_policy!r}")
    if inherited is not None:
        check_kind("inherited", inherited, Mapping, "variables by name")
    if isinstance(submodules, str) or not isinstance(submodules, Collection):
        check_kind("submodules", submodules, tuple, "a collection of paths")
    if sandbox not in ("auto", "off") and not callable(getattr(sandbox, "open", None)):
        raise ConfigurationError(f"sandbox must be auto, off or a Sandbox, not {sandbox!r}")


_POINTER = "gitdir:"
"""The beginning of a `.git` that is a file: https://git-scm.com/docs/gitrepository-layout."""

_LINKED = frozenset({"AGENTS.md", "CLAUDE.md", "GEMINI.md"})
"""Documents to which a link in the same folder is followed; `orientation.sh` has the same list."""


class LocalHostView:
    """The `HostView` of a folder of this machine.

    Args:
        root: the environment's real path. No command of the environment can change a `.git` in it or above
            it. Git is asked about that repository only, never about one further down.
        below: the names from the root down to the folder.
    """

    def __init__(self, root: str, below: tuple[str, ...], run: RunOutside) -> None:
        self._root, self._below, self._run = root, below, run

    def at(self, below: tuple[str, ...]) -> LocalHostView:
        """See `HostView`."""
        return LocalHostView(self._root, (*self._below, *below), self._run)

    @property
    def is_trusted(self) -> bool:
        """See `HostView`."""
        folder = self._root
        for name in self._below:
            folder = os.path.join(folder, name)
            if os.path.lexists(os.path.join(folder, ".git")):
                return False
        top = self._top()
        kept = os.path.join(self._root, ".git")
        return not any(
            is_above(self._root, place) and not is_above(kept, place)
            for place in (_repository_folders(top) if top is not None else ())
        )

    async def git(self, script: str, timeout_ms: int) -> str:
        """See `HostView`."""
        top = await asyncio.to_thread(self._top)
        return "" if top is None else (await self._run(script, top, timeout_ms)).stdout

    async def documents(
        self, names: Sequence[str], *, from_root: bool, most_bytes: int
    ) -> list[tuple[str, bytes]]:
        """See `HostView`."""

        def read() -> list[tuple[str, bytes]]:
            here = os.path.join(self._root, *self._below)
            top = "/" if from_root else self._top() or here
            found: list[tuple[str, bytes]] = []
            left = most_bytes
            for path, folder in _folders_down_to(top, here):
                for name in names:
                    content = _content(folder, name, names, left) if left > 0 else None
                    if content:
                        found.append((os.path.join(path, name), content))
                        left -= len(content)
            return found

        return await asyncio.to_thread(read)

    def _top(self) -> str | None:
        """Return the nearest folder with a repository, searching from the environment's root upwards."""
        folder = self._root
        while not _is_repository(os.path.join(folder, ".git")):
            folder, before = os.path.dirname(folder), folder
            if folder == before:
                return None
        return folder


def _is_repository(path: str) -> bool:
    """Return whether a `.git` is a repository. A sandbox may have an empty folder there for a while."""
    if os.path.isdir(path):
        return os.path.lexists(os.path.join(path, "HEAD"))
    return _small_file(path).startswith(_POINTER)


def _repository_folders(top: str) -> Iterator[str]:
    """Yield the real folder of the repository at `.git`, and the folder that it shares with other worktrees."""
    found = path = os.path.join(top, ".git")
    if not os.path.isdir(path):
        found = os.path.join(top, _small_file(path).removeprefix(_POINTER).strip())
    yield os.path.realpath(found)
    if shared := _small_file(os.path.join(found, "commondir")).strip():
        yield os.path.realpath(os.path.join(found, shared))


def _small_file(path: str) -> str:
    """Return a small file's text; empty if there is no such file."""
    above, name = os.path.split(path)
    try:
        with ConfinedFolder(above) as folder:
            return os.fsdecode(folder.beginning(name, POINTER_BYTES))
    except OSError:
        return ""


def _folders_down_to(top: str, folder: str) -> Iterator[tuple[str, int]]:
    """Yield each folder from the top down, with an open descriptor that is closed at the next step."""
    names = [name for name in os.path.relpath(folder, top).split("/") if name != "."]
    path, descriptor = top, -1
    try:
        with ConfinedFolder(top) as folder_at_top, folder_at_top.opened() as opened:
            descriptor = os.dup(opened)
        yield path, descriptor
        for name in names:
            inner = enter(descriptor, name)
            descriptor, outer = inner, descriptor
            os.close(outer)
            path = os.path.join(path, name)
            yield path, descriptor
    except OSError:  # replaced by a link meanwhile, or no permission: stop here
        return
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _content(folder: int, name: str, names: Sequence[str], most_bytes: int) -> bytes | None:
    """Return the beginning of a text file, or None."""
    first, _, below = name.partition("/")
    if below:
        try:
            inner = enter(folder, first)
        except OSError:
            return None
        try:
            return _content(inner, below, names, most_bytes)
        finally:
            os.close(inner)
    with suppress(OSError):
        last = name
        if entry_at(folder, last).is_link:
            last = os.readlink(last, dir_fd=folder).removeprefix("./")
            if last not in _LINKED or last in names:
                return None
        with os.fdopen(open_regular(folder, last), "rb") as file:
            content = file.read(most_bytes)
        return None if b"\0" in content else content
    return None
