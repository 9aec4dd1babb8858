"""Reads a folder and the folders above it as this program itself sees them; sandboxed commands see less."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.files import enter, is_above, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from orchestrator.engine.environments.base import ExecResult

    RunOutside = Callable[[str, str, int], Awaitable[ExecResult]]
    """Runs a script of this program (script, folder, time-out in ms) as this user, outside of the sandbox."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_POINTER = "gitdir:"
"""The beginning of a `.git` that is a file: https://git-scm.com/docs/gitrepository-layout."""
_POINTER_BYTES = 4_096

_LINKED = frozenset({"AGENTS.md", "CLAUDE.md", "GEMINI.md"})
"""Documents to which a link in the same folder is followed; `orientation.sh` has the same list."""


class HostView:
    """A folder of this machine, the folders above it, and the git repository that contains it.

    Args:
        root: the environment's real path. No command of the environment can change a `.git` in it or above
            it. Git is asked about that repository only, never about one further down.
        below: the names from the root down to the folder.
    """

    def __init__(self, root: str, below: tuple[str, ...], run: RunOutside) -> None:
        self._root, self._below, self._run = root, below, run

    def at(self, below: tuple[str, ...]) -> HostView:
        """Return the view of a folder below this one."""
        return HostView(self._root, (*self._below, *below), self._run)

    @property
    def is_trusted(self) -> bool:
        """Whether no command can have created the repository of the folder, or changed its configuration."""
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
        """Run a script that asks git about the repository, and return its output; empty without a repository.

        Raises:
            ToolError: the script could not be started.
        """
        top = await asyncio.to_thread(self._top)
        return "" if top is None else (await self._run(script, top, timeout_ms)).stdout

    async def documents(
        self, names: Sequence[str], *, from_root: bool, most_bytes: int
    ) -> list[tuple[str, bytes]]:
        """Return the instruction files from the repository's top down to the folder, as path and content.

        Paths are absolute. The only symbolic link that is followed is one to a known document in the same
        folder that is not among the names.

        Args:
            names: file names, relative to each folder.
            from_root: begin at the root of the file system.
            most_bytes: limit of all files together; the last one is cut there.
        """

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
    try:
        with open(os.open(path, _FILE), "rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return os.fsdecode(file.read(_POINTER_BYTES)) if is_file else ""
    except OSError:
        return ""


def _folders_down_to(top: str, folder: str) -> Iterator[tuple[str, int]]:
    """Yield each folder from the top down, with an open descriptor that is closed at the next step."""
    names = [name for name in os.path.relpath(folder, top).split("/") if name != "."]
    path, descriptor = top, -1
    try:
        descriptor = os.open(top, _FOLDER)
        yield path, descriptor
        for name in names:
            inner = enter(descriptor, name, shown(name))
            descriptor, outer = inner, descriptor
            os.close(outer)
            path = os.path.join(path, name)
            yield path, descriptor
    except (OSError, ToolError):  # replaced by a link meanwhile, or no permission: stop here
        return
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _content(folder: int, name: str, names: Sequence[str], most_bytes: int) -> bytes | None:
    """Return the beginning of a text file, or None."""
    above, _, last = name.rpartition("/")
    if above:
        try:
            inner = enter(folder, above, shown(above))
        except ToolError:
            return None
        try:
            return _content(inner, last, names, most_bytes)
        finally:
            os.close(inner)
    with suppress(OSError):
        if stat.S_ISLNK(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            last = os.readlink(last, dir_fd=folder).removeprefix("./")
            if last not in _LINKED or last in names:
                return None
        with open(os.open(last, _FILE, dir_fd=folder), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                content = file.read(most_bytes)
                return None if b"\0" in content else content
    return None
