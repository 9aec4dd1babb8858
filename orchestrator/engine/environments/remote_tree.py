"""The files below one folder on the other side of a carrier, with the rules of `ConfinedTree`.

Each act is one call, whose script checks the path where it uses it. A shell cannot hold a
folder open, so unlike on this machine a program there that swaps a name for a link in the very
moment of use may win; it could do by itself all that this would let it do.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.core.git_names import is_git_name
from orchestrator.engine.environments import remote_scripts as scripts
from orchestrator.engine.environments.paths import quoted, shown, split_path
from orchestrator.engine.environments.refusals import too_large
from orchestrator.engine.environments.remote_call import RemoteCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.engine.environments.carrier import Carrier
    from orchestrator.engine.environments.remote_call import Calls, Ending

FILE_SECONDS = 60.0
"""For one act on one file."""

SEARCH_SECONDS = 20.0
"""For a listing or a search."""

MAX_ANSWER_BYTES = 64_000_000
_MAX_COMPLAINT_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What the other side is: see `remote_scripts.ROOT`."""

    root: str
    system: str
    release: str
    shell: str
    ripgrep: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script printed, and how it ended. `cut` if more was printed than is kept."""

    ending: Ending
    stdout: bytes
    stderr: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A file or folder. `kind` is `f`, `d`, `l` or `o`; `names` lead from the root, as on disk."""

    names: tuple[str, ...]
    kind: str
    size: int
    modified: float


class RemoteTree:
    """See the module.

    Args:
        carrier: the way.
        calls: keeps calls while they run, so that they can be ended.
    """

    def __init__(self, carrier: Carrier, calls: Calls) -> None:
        self._carrier = carrier
        self._calls = calls
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """What `look` found.

        Raises:
            ToolError: it was not asked yet.
        """
        if self._facts is None:
            raise ToolError(f"{self._carrier.name} is not connected: call initialize() first")
        return self._facts

    async def look(self, *, use_ripgrep: bool) -> None:
        """Ask the other side what it is; without `use_ripgrep` no `rg` is seen.

        Raises:
            ToolError: it cannot be reached, or the folder is not there.
        """
        folder = self._carrier.folder
        answer = await self._run(scripts.script_on(folder, (), scripts.ROOT), b"", FILE_SECONDS)
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        if answer.ending.exit_code or len(lines) != len(Facts.__slots__) or not lines[0].isprintable():
            raise ToolError(f"{self._carrier.name} has no usable folder {quoted(folder)}")
        root, system, release, shell, ripgrep = lines
        self._facts = Facts(root, system, release, shell, ripgrep if use_ripgrep else "")

    def split(self, path: str) -> tuple[str, ...]:
        """The names on the way from the root to the path, by spelling alone."""
        given = self._carrier.folder
        return split_path(path, (self.facts.root, given) if given.startswith("/") else (self.facts.root,))

    async def kind(self, path: str) -> str:
        """`f` for a regular file, `d` for a folder, `o` for something else.

        Raises:
            FileMissingError: nothing is there.
        """
        return (await self.act(path, scripts.KIND, "looked at")).decode().strip()

    async def exists(self, path: str) -> bool:
        """Whether a regular file is there."""
        try:
            return await self.kind(path) == "f"
        except (FileMissingError, FileUnreadableError):
            return False

    async def read(self, path: str, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment.read_file`."""
        most = max_bytes + 100
        answer = await self.act(path, scripts.READ, "read", max_bytes=most, limit=str(max_bytes))
        size, _, content = answer.partition(b"\n")
        if int(size) > max_bytes or len(content) > max_bytes:
            raise too_large(quoted(path), max(int(size), len(content)), max_bytes)
        return content

    async def write(self, path: str, content: bytes, mode_of: str | None) -> None:
        """See `ExecutionEnvironment.write_file`."""
        if not self.split(path) or path.endswith("/"):
            raise ToolError(f"{quoted(path)} names a folder; name a file to write")
        chmod = "" if mode_of is None else (await self.act(mode_of, scripts.MODE, "looked at")).decode()
        size = str(len(content))
        await self.act(path, scripts.WRITE, "written", data=content, size=size, chmod=chmod.strip())

    async def remove(self, path: str) -> None:
        """See `ExecutionEnvironment.remove_file`."""
        if not self.split(path) or path.endswith("/"):
            raise FileUnreadableError(f"{quoted(path)} names a folder; name a file to remove")
        await self.act(path, scripts.REMOVE, "removed")

    async def below(self, path: str, depth: int | None = None) -> list[Found]:
        """Everything below a folder, sorted, links among it; every spelling of `.git` is left out."""
        base = self.split(path)
        answer = await self.act(path, scripts.LIST, "listed", depth=str(depth or ""))
        found = [entry for entry in _entries(base, answer) if not any(map(is_git_name, entry.names))]
        return sorted(found, key=lambda entry: [os.fsencode(name) for name in entry.names])

    async def act(
        self,
        path: str,
        script: str,
        verb: str,
        *,
        data: bytes = b"",
        max_bytes: int = MAX_ANSWER_BYTES,
        **variables: str,
    ) -> bytes:
        """Run a script about a path; what it printed.

        Raises:
            ToolError: what `remote_scripts.refusal` says, or the answer is too long or too late.
        """
        names = self.split(path)
        answer = await self.ask(names, script, variables, data=data, max_bytes=max_bytes)
        if answer.ending.timed_out:
            raise ToolError(f"{quoted(path)} was not {verb} within {FILE_SECONDS:.0f} seconds")
        if answer.cut:
            raise ToolError(f"{quoted(path)} holds too much for one answer: name a smaller part of it")
        if answer.ending.exit_code:
            raise scripts.refusal(answer.ending.exit_code, quoted(path), verb)
        return answer.stdout

    async def ask(  # noqa: PLR0913  the last three by name
        self,
        names: Sequence[str],
        script: str,
        variables: Mapping[str, str],
        *,
        data: bytes = b"",
        max_bytes: int = MAX_ANSWER_BYTES,
        seconds: float = FILE_SECONDS,
    ) -> Answer:
        """Run a script about a path, whatever its end.

        Raises:
            ToolError: the other side cannot be reached.
        """
        text = scripts.script_on(self.facts.root, names, script, **variables)
        return await self._run(text, data, seconds, max_bytes)

    async def _run(self, text: str, data: bytes, seconds: float, max_bytes: int = MAX_ANSWER_BYTES) -> Answer:
        stdout, stderr, cut = bytearray(), bytearray(), asyncio.Event()

        def keep(piece: bytes) -> None:
            stdout.extend(piece[: max_bytes - len(stdout)])
            if len(stdout) >= max_bytes:
                cut.set()

        def complain(piece: bytes) -> None:
            stderr.extend(piece[: _MAX_COMPLAINT_BYTES - len(stderr)])

        call = RemoteCall(self._carrier, text, data, keep, complain)
        stop = asyncio.create_task(_kill_when(cut, call))
        try:
            ending = await self._calls.run(call, seconds)
        finally:
            stop.cancel()
            await asyncio.gather(stop, return_exceptions=True)
        return Answer(ending, bytes(stdout), bytes(stderr), cut.is_set())


async def _kill_when(event: asyncio.Event, call: RemoteCall) -> None:
    await event.wait()
    await call.kill(grace_seconds=0)


def _entries(base: tuple[str, ...], listing: bytes) -> Iterator[Found]:
    for line in listing.split(b"\0")[:-1]:
        kind, size, modified, name = line.decode("utf-8", "surrogateescape").split(" ", 3)
        kind = kind if kind in "fdl" else "o"
        yield Found((*base, *name.split("/")), kind, int(size), float(modified))


def spelled(names: Sequence[str]) -> str:
    """A path found on the other side, for a model to read."""
    return shown("/".join(names))
