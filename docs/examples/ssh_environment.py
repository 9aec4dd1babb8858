"""An `ExecutionEnvironment` on another machine, by the `ssh` program: an example of the extension point.

It needs a POSIX shell there, and `find`, `grep`, `stat` of GNU and `timeout`. Copy it and change it.

    there = SshEnvironment("me@build.example", "/srv/project")
    session = Session(profile=openai_profile(model="gpt-5.2"), environment=there)

Nothing keeps the model's commands on that machine inside of the folder: give them a user, or a machine, of their own.
"""

from __future__ import annotations

import asyncio
import fnmatch
import posixpath
import shlex
import time
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.environments.base import DirEntry, ExecResult, GrepMatch, GrepOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTIONS = ("-o", "BatchMode=yes", "-o", "ForwardAgent=no", "-o", "ClearAllForwardings=yes")
"""Nobody is asked for a password, and the other side reaches nothing of this one: ssh_config(5)."""

_NO_LINKS = 'p=.; IFS=/; for n in $1; do p=$p/$n; [ ! -L "$p" ] || exit 93; done; unset IFS; '
"""Ends with 93 where a part of the path in `$1` is a symbolic link."""
_ENDS = {91: FileMissingError, 92: FileUnreadableError, 93: PathRefusedError}
_MISSING = '[ -e "$1" ] || exit 91; '
_NOT_A_FILE = '[ -f "$1" ] || exit 92; '
_LATE = 124, 137
"""How `timeout` ends where the command took too long, and where it had to be killed."""


class SshEnvironment:
    """Files and commands of a folder of another machine.

    Args:
        destination: as `ssh` takes it, such as `me@host`.
        folder: an absolute path there.
    """

    def __init__(self, destination: str, folder: str) -> None:
        if destination.startswith("-"):
            raise ToolError(f"{destination} is no destination")
        self._destination, self._folder = destination, folder
        self._root = self._platform = self._version = ""
        self._running: set[asyncio.subprocess.Process] = set()

    async def initialize(self) -> None:
        """Look at the other side once."""
        said = await self._ask("pwd -P; uname -s; uname -sr")
        self._root, system, self._version = said.decode().splitlines()
        self._platform = system.lower()

    async def cleanup(self) -> None:
        """End what runs: `timeout` there is asked to end with the connection."""
        for process in self._running:
            process.kill()

    def working_directory(self) -> str:
        """The folder's real path there."""
        return self._root

    def platform(self) -> str:
        """`linux` or `darwin`."""
        return self._platform

    def os_version(self) -> str:
        """The kernel's name and release."""
        return self._version

    def relative(self, path: str) -> str:
        """The path's normal form; what leaves the folder or enters a repository's own files is refused."""
        normal = posixpath.normpath(posixpath.join(self._root, path))
        inside = posixpath.relpath(normal, self._root)
        parts = inside.split("/")
        if not path or "\0" in path or parts[0] == ".." or ".git" in [part.lower() for part in parts]:
            raise PathRefusedError(f"{path!r} is not in the folder")
        return inside

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment`."""
        script = _MISSING + _NOT_A_FILE + '[ "$(stat -c %s "$1")" -le "$2" ] || exit 92; cat "$1"'
        return await self._ask(_NO_LINKS + script, path, str(max_bytes))

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment`. A new file takes the place of the old one, so that it is whole at any time."""
        script = _NO_LINKS + '[ ! -d "$1" ] || exit 92; [ -z "$2" ] || [ -e "$2" ] || exit 91; m=${2:-$1}; '
        script += 'mkdir -p "$(dirname "$1")" && cat > "$1.new" && '
        script += '{ [ ! -e "$m" ] || chmod "$(stat -c %a "$m")" "$1.new"; } && mv "$1.new" "$1"'
        await self._ask(script, path, self.relative(mode_of) if mode_of else "", content=content)

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await self._ask(_NO_LINKS + _MISSING + _NOT_A_FILE + 'rm -f -- "$1"', path)

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        return await self._ask(_NO_LINKS + '[ ! -f "$1" ] || echo yes', path) != b""

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        find = 'find "./$1" -mindepth 1 -maxdepth "$2" -name .git -prune -o -mindepth 1 -printf "%P\\t%y\\t%s\\0"'
        said = await self._ask(f'{_NO_LINKS}{_MISSING}[ -d "$1" ] || exit 92; {find}', path, str(depth))
        found = [entry.rsplit("\t", 2) for entry in said.decode("utf-8", "replace").split("\0") if entry]
        entries = [
            DirEntry(name, kind == "d", None if kind == "d" else int(size)) for name, kind, size in found
        ]
        return sorted(entries, key=lambda entry: entry.name.split("/"))

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`. The expression is one of `grep -E`."""
        words = ["grep", "-rnIE", "--null", "--exclude-dir=.git"]
        words += ["-i"] if options.case_insensitive else []
        words += [f"--include={options.glob_filter}"] if options.glob_filter else []
        line = shlex.join([*words, "-e", pattern])
        said = await self._ask(f'{_NO_LINKS}{_MISSING}{line} "./$1" || [ $? -eq 1 ]', path)
        found = []
        for text in said.decode("utf-8", "replace").splitlines()[: options.max_results]:
            name, _, rest = text.partition("\0")
            number, _, content = rest.partition(":")
            found.append(GrepMatch(posixpath.normpath(name), int(number), content))
        return found

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`. A `*` matches a `/` too."""
        find = 'find "./$1" -name .git -prune -o -type f -printf "%T@\\t%P\\0"'
        said = await self._ask(f"{_NO_LINKS}{find}", path)
        found = [entry.partition("\t") for entry in said.decode("utf-8", "replace").split("\0") if entry]
        newest = sorted(found, key=lambda entry: float(entry[0]), reverse=True)
        wanted = (name for _, _, name in newest if fnmatch.fnmatchcase(name, pattern.removeprefix("**/")))
        return [posixpath.normpath(posixpath.join(path, name)) for name in wanted]

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """See `ExecutionEnvironment`. The variables are read from standard input, so that no argument shows them."""
        began = time.monotonic()
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
        script = f'{_NO_LINKS}cd "$1" || exit 93; eval "$(cat)"; '
        script += f'exec timeout -k 2 {timeout_ms / 1_000} sh -c "$2" </dev/null'
        process = await self._start(script, self.relative(working_dir or "."), command)
        assert process.stdin is not None  # noqa: S101  for the type checker
        process.stdin.write(exports.encode())
        process.stdin.close()
        both: list[str] = []

        async def take(stream: asyncio.StreamReader) -> str:
            own = []
            while piece := (await stream.read(65_536)).decode("utf-8", "replace"):
                own.append(piece)
                both.append(piece)
                if on_output is not None:
                    on_output(piece)
            return "".join(own)

        assert process.stdout is not None  # noqa: S101  for the type checker
        assert process.stderr is not None  # noqa: S101  for the type checker
        try:
            stdout, stderr = await asyncio.gather(take(process.stdout), take(process.stderr))
            code = await process.wait()
        finally:
            self._end(process)
        if code in _ENDS:
            raise _ENDS[code](f"{working_dir} is no folder here")
        late = code in _LATE and time.monotonic() - began >= timeout_ms / 1_000
        milliseconds = round((time.monotonic() - began) * 1_000)
        return ExecResult(stdout, stderr, "".join(both), -15 if late else code, late, milliseconds)

    async def _ask(self, script: str, path: str = ".", *more: str, content: bytes = b"") -> bytes:
        """Run a script in the folder; its output."""
        process = await self._start(script, self.relative(path) if self._root else path, *more)
        try:
            stdout, stderr = await process.communicate(content)
        finally:
            self._end(process)
        if process.returncode in _ENDS:
            raise _ENDS[process.returncode](f"{path} is missing, a link, or of another kind")
        if process.returncode:
            raise ToolError(
                stderr.decode("utf-8", "replace").strip() or f"ssh ended with {process.returncode}"
            )
        return stdout

    async def _start(self, script: str, *words: str) -> asyncio.subprocess.Process:
        line = shlex.join(["sh", "-c", script, "sh", *words])
        there = f"cd {shlex.quote(self._folder)} && exec {line}"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "ssh", *OPTIONS, "--", self._destination, there, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._running.add(process)
        return process

    def _end(self, process: asyncio.subprocess.Process) -> None:
        self._running.discard(process)
        if process.returncode is None:
            process.kill()
