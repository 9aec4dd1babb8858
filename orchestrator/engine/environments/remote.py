"""The environment on the other side of a carrier: the same answers as on this machine, by small shell scripts."""

from __future__ import annotations

import codecs
import re
import shlex
from typing import TYPE_CHECKING

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.engine.environments import remote_scripts as scripts
from orchestrator.engine.environments.base import DirEntry, ExecResult, GrepMatch, GrepOptions
from orchestrator.engine.environments.kept import KeptText
from orchestrator.engine.environments.remote_call import Calls, RemoteCall
from orchestrator.engine.environments.remote_search import glob_there, grep_there
from orchestrator.engine.environments.remote_tree import RemoteTree, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.carrier import Carrier

_MAX_COMMAND_BYTES = 131_000  # Linux takes 131,072 for one argument
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class RemoteEnvironment:
    """An `ExecutionEnvironment` on the other side of a carrier.

    It needs a POSIX shell there with `find`, `head`, `stat` and `dd`; Python is not needed.
    Commands get the variables that the other side gives by itself, and those of `env`; nothing of
    this machine's. What a command leaves behind in its process group ends with it.

    Args:
        carrier: the way there.
        clock: measures how long commands take.
        use_ripgrep: False searches with `grep -E` even where there is an `rg`.
    """

    def __init__(self, carrier: Carrier, *, clock: Clock | None = None, use_ripgrep: bool = True) -> None:
        self._carrier = carrier
        self._clock = clock or SystemClock()
        self._use_ripgrep = use_ripgrep
        self._calls = Calls()
        self._tree = RemoteTree(carrier, self._calls)

    async def initialize(self) -> None:
        """Open the way and look at the other side.

        Raises:
            ConfigurationError: there is no way, or no such folder.
        """
        try:
            await self._carrier.open()
            await self._tree.look(use_ripgrep=self._use_ripgrep)
        except ToolError as error:
            await self._carrier.close()
            raise ConfigurationError(str(error)) from error

    async def cleanup(self) -> None:
        """End running commands (SIGTERM, 1 s, SIGKILL) and close the way."""
        await self._calls.end_all()
        await self._carrier.close()

    def working_directory(self) -> str:
        """The folder's real path there."""
        return self._tree.facts.root

    def platform(self) -> str:
        """`linux`, `darwin` or `windows`."""
        system = self._tree.facts.system.lower()
        return "windows" if system.startswith(("mingw", "msys", "cygwin")) else system

    def os_version(self) -> str:
        """The kernel's name and release."""
        return f"{self._tree.facts.system} {self._tree.facts.release}"

    def relative(self, path: str) -> str:
        """See `ExecutionEnvironment`."""
        return "/".join(self._tree.split(path)) or "."

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment`."""
        return await self._tree.read(path, max_bytes)

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment`."""
        await self._tree.write(path, content, mode_of)

    async def remove_file(self, path: str) -> None:
        """See `ExecutionEnvironment`."""
        await self._tree.remove(path)

    async def file_exists(self, path: str) -> bool:
        """See `ExecutionEnvironment`."""
        return await self._tree.exists(path)

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        """See `ExecutionEnvironment`."""
        above = len(self._tree.split(path))
        return [
            DirEntry(
                spelled(found.names[above:]), found.kind == "d", None if found.kind == "d" else found.size
            )
            for found in await self._tree.below(path, depth)
        ]

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """See `ExecutionEnvironment`."""
        return await grep_there(self._tree, pattern, path, options)

    async def glob(self, pattern: str, path: str) -> list[str]:
        """See `ExecutionEnvironment`."""
        return await glob_there(self._tree, pattern, path)

    async def exec_command(
        self,
        command: str,
        *,
        timeout_ms: int,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> ExecResult:
        """See `ExecutionEnvironment`.

        Raises:
            ToolError: the command cannot be started, `working_dir` is no folder of the tree, or the
                other side is gone.
        """
        if timeout_ms <= 0:
            raise ToolError(f"the time-out must be over 0 ms, not {timeout_ms}")
        folder = working_dir or "."
        began = self._clock.monotonic()
        output = _Output(on_output)
        script = scripts.FOLDER + _command_script(self._tree.facts.shell, command, env or {})
        text = scripts.script_on(self._tree.facts.root, self._tree.split(folder), script)
        call = RemoteCall(self._carrier, text, b"", output.take_stdout, output.take_stderr)
        ending = await self._calls.run(call, timeout_ms / 1_000)
        output.end()
        if ending.exit_code in scripts.VERDICTS:  # the command's own code, unless the folder is refused
            await self._tree.act(folder, scripts.FOLDER, "entered")
        return ExecResult(
            stdout=output.stdout.text(),
            stderr=output.stderr.text(),
            output=output.both.text(),
            exit_code=ending.exit_code,
            timed_out=ending.timed_out,
            duration_ms=round((self._clock.monotonic() - began) * 1_000),
        )


class _Output:
    """Both outputs of a command as text, apart and together."""

    def __init__(self, on_output: Callable[[str], None] | None) -> None:
        self.stdout, self.stderr, self.both = KeptText(), KeptText(), KeptText()
        self._on_output = on_output
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decode_stdout, self._decode_stderr = decoder("replace"), decoder("replace")

    def take_stdout(self, data: bytes) -> None:
        self._add(self.stdout, self._decode_stdout.decode(data))

    def take_stderr(self, data: bytes) -> None:
        self._add(self.stderr, self._decode_stderr.decode(data))

    def end(self) -> None:
        """Nothing more comes: half a character at the end is shown as such."""
        self._add(self.stdout, self._decode_stdout.decode(b"", final=True))
        self._add(self.stderr, self._decode_stderr.decode(b"", final=True))

    def _add(self, kept: KeptText, text: str) -> None:
        if text:
            kept.add(text)
            self.both.add(text)
            if self._on_output is not None:
                self._on_output(text)


def _command_script(shell: str, command: str, variables: Mapping[str, str]) -> str:
    """Shell text that becomes the command, in the folder that was entered.

    Raises:
        ToolError: the command or a variable cannot be handed over.
    """
    for name in variables:
        if not _NAME.fullmatch(name):
            raise ToolError(
                f"the variable {name!r} cannot be given: use letters, digits and _, no digit first"
            )
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    text = "\n".join([*exports, f"exec {_without_startup(shell)} -c {shlex.quote(command)} </dev/null"])
    if "\0" in text:
        raise ToolError("the command could not be started: embedded null byte")
    try:
        size = len(command.encode())
        text.encode()
    except UnicodeEncodeError:
        raise ToolError("the command could not be started: surrogates are not allowed in it") from None
    if size > _MAX_COMMAND_BYTES:
        raise ToolError("the command could not be started: Argument list too long")
    return text


def _without_startup(shell: str) -> str:
    """Bash reads `.bashrc` even for `-c` where it takes itself for started by an SSH server; that is slow."""
    return shlex.quote(shell) + (" --norc" if shell.endswith("/bash") else "")
