"""The interface between tools and the place where they act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class DirEntry:
    """An entry of a folder. `name` is relative to the folder listed; `size` in bytes, None for folders."""

    name: str
    is_dir: bool
    size: int | None


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command did. `exit_code` is negative where a signal ended it.

    Attributes:
        output: standard output and standard error together, in the order of arrival.
        refused_hosts: `host:port` of connections that the sandbox did not allow; after a blank the reason,
            where allowing the host would not help.
        killed_for: the limit of the sandbox that it passed, such as `more than 1,024 processes`.
    """

    stdout: str
    stderr: str
    output: str
    exit_code: int
    timed_out: bool
    duration_ms: int
    refused_hosts: tuple[str, ...] = ()
    killed_for: str = ""


@dataclass(frozen=True, slots=True)
class GrepOptions:
    """How to search. `glob_filter` is a file pattern such as `*.py`."""

    glob_filter: str | None = None
    case_insensitive: bool = False
    max_results: int = 100


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A line that matches. Lines count from 1."""

    path: str
    line: int
    text: str


class ExecutionEnvironment(Protocol):
    """Files and commands of one folder. Paths are relative to it, with `/`.

    No path leaves the folder, enters a `.git`, or passes through a symbolic link: such a
    path raises `PathRefusedError`, from every method. An absolute path inside the folder is
    taken as the relative one.
    """

    async def initialize(self) -> None:
        """Make ready. Called once, before anything else."""

    async def cleanup(self) -> None:
        """Let go of everything, running commands included."""

    def working_directory(self) -> str:
        """The folder, as commands that run in it see it."""

    def platform(self) -> str:
        """`linux`, `darwin` or `windows`."""

    def os_version(self) -> str:
        """The operating system's own words for its version."""

    def relative(self, path: str) -> str:
        """The path's normal form, under which it is remembered; no file needs to be there.

        Raises:
            PathRefusedError: see the class.
        """

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """The file's whole content.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: not a regular file, over `max_bytes`, or no permission.
        """

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """Create or replace a file, and the folders above it. The file's mode is kept.

        Args:
            path: the file.
            content: all of it.
            mode_of: a file whose mode it takes instead, as when that file moves here.

        Raises:
            FileMissingError: there is nothing at `mode_of`.
            ToolError: no permission, no space, or a folder is in the way.
        """

    async def remove_file(self, path: str) -> None:
        """Remove a regular file; the folder it was in stays.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: it is not a regular file, or no permission.
        """

    async def file_exists(self, path: str) -> bool:
        """Whether a regular file is there."""

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """What is in a folder, `depth` levels deep, sorted; `.git` is left out.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: it is not a folder.
        """

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """Lines that match a regular expression (ripgrep's syntax), ignored files left out.

        Raises:
            ToolError: the expression is invalid, or nothing is at the path.
        """

    async def glob(self, pattern: str, path: str) -> list[str]:
        """Files whose path matches, newest first, ignored files left out."""

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """Run a shell command in a process group of its own; on time-out SIGTERM, 2 s, SIGKILL."""
