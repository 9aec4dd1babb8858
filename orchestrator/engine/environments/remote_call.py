"""One script on the other side of a carrier: its start, its two outputs, its end, and how it is ended.

The command line is the same for every call. The script, its data and its variables go over
standard input, so that no value is ever in an argument list. A small shell there makes a
process group, says its number, takes the script, runs it, says its exit code, and ends what is
left of the group. Nothing runs before the number has arrived here, so that it can be killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.command import DRAIN_SECONDS, GRACE_SECONDS
from orchestrator.engine.environments.marked import Marked
from orchestrator.engine.environments.pipes import open_pipes
from orchestrator.engine.environments.starting import start_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.environments.carrier import Carrier

CONNECT_SECONDS = 30.0
"""How long the other side may take to say anything at all."""

KILL_SECONDS = GRACE_SECONDS + 0.5
"""How long an order to kill may take before the carrier itself is ended."""

MAX_CALLS = 8
"""At the same time; an SSH server takes 10 on one connection (`MaxSessions` in sshd_config)."""

_END_OF_SCRIPT = "#end"
_MAX_REASON_BYTES = 2_000
_CHUNK_BYTES = 65_536

_INNER = f"""\
printf '\\0pullwright-%s %s\\n' "$1" "$$"
printf '\\0pullwright-%s %s\\n' "$1" "$$" >&2
exec 4>&2 2>/dev/null
trap : TERM
IFS= read -r pw_n || exit 125
pw_body=$(dd bs=1 count="$pw_n")
case $pw_body in *'{_END_OF_SCRIPT}') ;; *) exit 125 ;; esac
( exec 2>&4 4>&-; eval "$pw_body" )
printf '\\0pullwright-%s end %s\\n' "$1" "$?" >&4
kill -KILL 0
"""
# The shell outlives SIGTERM: its number stands for the group until the script's end.

_OUTER = """\
pw_inner={inner}
exec 3>&2 2>/dev/null
if command -v setsid >/dev/null; then setsid sh -c "$pw_inner" pullwright {number} 2>&3 3>&-
else set -m; sh -c "$pw_inner" pullwright {number} <&0 2>&3 3>&- & wait
fi
exit 0
"""

_KILL_LINE = (
    "[ {tenths} = 0 ] || kill -TERM -{group} && i=0; while [ $i -lt {tenths} ]; do "
    "kill -0 {group} || exit 0; sleep 0.1; i=$((i+1)); done; kill -KILL -{group}; exit 9"
)
_LAST_GRACE_SECONDS = 1.0
_DIED_OF_KILL = 9
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a script ended: its exit code, negative where a time-out's signal ended it."""

    exit_code: int
    timed_out: bool = False


class RemoteCall:
    """One call from its start to its end. Use it once.

    Args:
        carrier: the way.
        script: shell text; it reads `data` on its standard input.
        data: for the script.
        on_stdout: takes what the script prints, as it comes.
        on_stderr: the same for standard error.
    """

    def __init__(
        self,
        carrier: Carrier,
        script: str,
        data: bytes,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> None:
        self._carrier = carrier
        body = f"{script}\n{_END_OF_SCRIPT}".encode()
        self._payload = f"{len(body)}\n".encode() + body
        self._data = data
        self._number = f"{os.getpid()}-{next(_numbers)}"
        self._out = Marked(self._number, self._take_stdout(on_stdout), lambda _: self._begin_stdout())
        self._err = Marked(self._number, self._take_stderr(on_stderr), self._hear)
        self._stdout_began = False
        self._reason = b""
        self._group = 0
        self._code: int | None = None
        self._greeted = asyncio.Event()
        self._ended = asyncio.Event()
        self._given_up = False
        self._killed_by: signal.Signals | None = None
        self._ordering = asyncio.Lock()

    async def run(self, seconds: float) -> Ending:
        """Run it; after `seconds` it is ended as by `kill`.

        Raises:
            ToolError: the other side cannot be reached, or was lost before the script ended.
        """
        out, err = open_pipes((self._out.add, self._out.end), (self._err.add, self._lost_sight))
        timed_out, process, talk = False, None, None
        try:
            process = await start(self._carrier, bootstrap(self._outer()), (out.writing, err.writing))
            talk = asyncio.create_task(self._talk(process))
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._greeted.wait()
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            timed_out = self._greeted.is_set()
            await self.kill()
        finally:
            try:
                if process is not None and not self._ended.is_set():
                    await self.kill(grace_seconds=0)
                if process is not None:
                    await asyncio.wait([out.ended, err.ended], timeout=DRAIN_SECONDS)
            finally:  # also where it is cancelled a second time
                out.close()
                err.close()
                if process is not None:
                    await _end(process, talk)
        async with (
            self._ordering
        ):  # an order to kill says which signal it was, maybe later than the end is seen
            return self._ending(timed_out=timed_out)

    async def kill(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """End the process group there: SIGTERM, the time of grace, SIGKILL; 0 is SIGKILL at once."""
        self._given_up = True
        if self._group and self._code is None:
            self._killed_by = signal.SIGTERM if grace_seconds else signal.SIGKILL
            line = _KILL_LINE.format(group=self._group, tenths=round(grace_seconds * 10))
            with suppress(ToolError, TimeoutError):
                async with self._ordering:
                    if await order(self._carrier, line, KILL_SECONDS) == _DIED_OF_KILL:
                        self._killed_by = signal.SIGKILL
        self._greeted.set()
        self._ended.set()

    def _outer(self) -> bytes:
        return _OUTER.format(inner=shlex.quote(_INNER), number=self._number).encode()

    async def _talk(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101  asked for in `start`
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(self._outer())
            await self._greeted.wait()
            if not self._given_up:
                process.stdin.write(self._payload)
                for begin in range(0, len(self._data), _CHUNK_BYTES):
                    process.stdin.write(self._data[begin : begin + _CHUNK_BYTES])
                    await process.stdin.drain()
            process.stdin.close()

    def _lost_sight(self) -> None:
        """Nobody there can say anything any more."""
        self._err.end()
        self._greeted.set()
        self._ended.set()

    def _begin_stdout(self) -> None:
        self._stdout_began = True

    def _take_stdout(self, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
        return lambda data: (
            take(data) if self._stdout_began else None
        )  # a login script's greeting is not ours

    def _take_stderr(self, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def taken(data: bytes) -> None:
            if self._group and self._code is None:
                take(data)
            self._reason = (self._reason + data)[-_MAX_REASON_BYTES:]

        return taken

    def _hear(self, word: bytes) -> None:
        """The group's number counts once, before anything runs there that could say another."""
        if not self._group and word.isdigit() and int(word) > 1:
            self._group = int(word)
            self._greeted.set()
        elif self._group and word.startswith(b"end ") and word[4:].isdigit():
            self._code = int(word[4:])
            self._ended.set()

    def _ending(self, *, timed_out: bool) -> Ending:
        if self._killed_by is not None:
            return Ending(-self._killed_by, timed_out=timed_out)
        if self._code is not None:
            return Ending(self._code)
        said = " ".join(self._reason.decode("utf-8", "replace").split()[-60:])
        what = "was lost" if self._group else "cannot be reached"
        raise ToolError(f"{self._carrier.name} {what}: {said or 'it said nothing'}")


class Calls:
    """The calls of one environment that run now, and the end of them all."""

    def __init__(self) -> None:
        self._running: set[RemoteCall] = set()
        self._room = asyncio.Semaphore(MAX_CALLS)
        self._closed = False

    async def run(self, call: RemoteCall, seconds: float) -> Ending:
        """Run a call when there is room for it; `ToolError` if all were ended."""
        async with self._room:
            if self._closed:
                raise ToolError("the environment was closed, so nothing runs in it any more")
            self._running.add(call)
            try:
                return await call.run(seconds)
            finally:
                self._running.discard(call)

    async def end_all(self) -> None:
        """End what runs, and let nothing begin any more."""
        self._closed = True
        await asyncio.gather(*(call.kill(grace_seconds=_LAST_GRACE_SECONDS) for call in self._running))


def bootstrap(script: bytes) -> str:
    """The line that takes a script of this length from standard input, byte by byte, and runs it."""
    return f'eval "$(dd bs=1 count={len(script)} 2>/dev/null)"'


async def order(carrier: Carrier, line: str, seconds: float) -> int:
    """Run a line there without input and output, and return its exit code.

    Raises:
        ToolError: the carrier's program could not be started.
        TimeoutError: it took longer.
    """
    nowhere = os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR)
    process = await start(carrier, line, nowhere)
    try:
        async with asyncio.timeout(seconds):
            return await process.wait()
    finally:
        await _end(process, None)


async def start(carrier: Carrier, line: str, outputs: tuple[int, int]) -> asyncio.subprocess.Process:
    """Start the carrier's program, in a process group of its own. The descriptors are closed here.

    Raises:
        ToolError: there is no such program, or it could not be started.
    """
    try:
        argv = carrier.argv(line)
        return await start_program(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=outputs[0],
            stderr=outputs[1],
            env=dict(carrier.variables()),
        )
    except OSError as error:
        raise ToolError(f"{carrier.name} cannot be reached: {error.strerror}") from error
    finally:
        for descriptor in outputs:
            os.close(descriptor)


async def _end(process: asyncio.subprocess.Process, talk: asyncio.Task[None] | None) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if talk is not None:
        talk.cancel()
        await asyncio.gather(talk, return_exceptions=True)
    if process.stdin is not None:
        process.stdin.close()  # not awaited: a cancelled `wait_closed` breaks asyncio's own bookkeeping
    await process.wait()
