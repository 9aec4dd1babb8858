"""One command inside a sandbox, as the host sees it: the handshake with the launcher, the proxy, the watch."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.environments.control_group import make_group
from orchestrator.environments.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.environments.command import Command
    from orchestrator.environments.confinement import Limits
    from orchestrator.environments.control_group import ControlGroup
    from orchestrator.environments.proxy import Proxy

PROXY_PORT = 61_080
"""Above the ports that Linux gives out itself; in a network of its own it is always free."""

SHELLS = ("/bin/bash", "/bin/sh")
_MAX_DESCRIPTORS = 4
_RUNS = b"R"
_INT_BYTES = 4
_CREDENTIALS = 64
"""Room for process, user and group, with its head."""


class Cell:
    """A `Launch`: the program builds walls and starts the launcher in them, which becomes the command.

    The command itself never is on a command line; it goes through a socket that the launcher closes.

    Args:
        command: what is to run.
        root: the clone.
        limits: see there.
        proxy: the way to the network.
        build: makes the command line, given the number of the launcher's socket.
        files: descriptors that the program reads; this object closes them.
        listener: the proxy's socket where the sandbox has no network of its own.
        more_variables: for the command, where the sandbox knows them only now.
        at_end: called when this is closed.

    Raises:
        ValueError: a text has a NUL character or is not valid Unicode.
    """

    def __init__(  # noqa: PLR0913  by name
        self,
        command: Command,
        *,
        root: str,
        limits: Limits,
        proxy: Proxy,
        build: Callable[[int], Sequence[str]],
        files: Sequence[int] = (),
        listener: socket.socket | None = None,
        more_variables: Mapping[str, str] | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self._files = list(files)
        self._listener = listener
        self._at_end = at_end or _nothing
        self._proxy = proxy
        self._watch: Watch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._root, self._limits = root, limits
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        if hasattr(socket, "SO_PASSCRED"):
            self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.variables: Mapping[str, str] = {}
        self.pass_fds: Sequence[int] = ()
        try:
            self._request = _request(
                command,
                {**command.variables, **(more_variables or {})},
                limits,
                own_processes=listener is None,
            )
            self.argv = build(self._theirs.fileno())
        except BaseException:
            self.abandon()
            raise
        self.pass_fds = (self._theirs.fileno(), *files)

    @property
    def killed_for(self) -> str:
        """See `Launch`."""
        return self._watch.reason if self._watch else ""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """See `Launch`."""
        return self._proxy.refused

    async def started(self, kill: Callable[[], None]) -> str:
        """See `Launch`. The watch and the door to the network are there before the command is handed over."""
        self._close_theirs()
        loop = asyncio.get_running_loop()
        said, handed, process = await self._receive()
        if said != _RUNS or (self._listener is None and len(handed) != 2):  # noqa: PLR2004  socket and folder
            for descriptor in handed:
                os.close(descriptor)
            return said.decode("ascii", "replace") or "the sandbox did not start"
        if handed:
            self._watch = Watch(handed[1], self._root, self._limits, group=group_for(process, self._limits))
            self._listener = socket.socket(fileno=handed[0])
            first_to_go(process)
            self._watching = loop.create_task(self._watch.run(kill))
        listener, self._listener = self._listener, None
        if listener is not None:
            await self._proxy.serve(listener)
        with suppress(BrokenPipeError, ConnectionResetError):  # it died, which its end will say
            await loop.sock_sendall(self._ours, self._request)
            return (await loop.sock_recv(self._ours, 200)).decode("ascii", "replace")
        return ""

    def terminate(self) -> bool:
        """See `Launch`."""
        return self._watch is not None and self._watch.terminate()

    async def close(self) -> None:
        """See `Launch`."""
        self.abandon()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
        await self._proxy.close()

    async def _receive(self) -> tuple[bytes, list[int], int]:
        """The launcher's first word, the descriptors that came with it, and its number outside."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        number = self._ours.fileno()

        def come() -> None:
            loop.remove_reader(number)
            if not ready.done():  # cancelled meanwhile
                ready.set_result(None)

        loop.add_reader(number, come)
        try:
            await ready
        finally:
            loop.remove_reader(number)
        return _receive(self._ours)

    def _close_theirs(self) -> None:
        self._theirs.close()
        while self._files:
            os.close(self._files.pop())

    def abandon(self) -> None:
        """Let go of what it has before it is started."""
        self._close_theirs()
        self._ours.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        at_end, self._at_end = self._at_end, _nothing
        at_end()


def shell() -> str:
    """The shell that runs commands."""
    return SHELLS[0] if os.path.exists(SHELLS[0]) else SHELLS[1]  # noqa: PTH110  one stat


def _nothing() -> None:
    pass


def _receive(channel: socket.socket) -> tuple[bytes, list[int], int]:
    """A message, its descriptors, and the number of the process that sent it as the kernel says, or 0."""
    handed: list[int] = []
    process = 0
    try:
        said, ancillary, _, _ = channel.recvmsg(
            200, socket.CMSG_SPACE(_MAX_DESCRIPTORS * _INT_BYTES) + _CREDENTIALS
        )
    except OSError:
        return b"", handed, process
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) // _INT_BYTES * _INT_BYTES
            handed += struct.unpack(f"{whole // _INT_BYTES}i", data[:whole])
        elif hasattr(socket, "SCM_CREDENTIALS") and kind == socket.SCM_CREDENTIALS:
            process = struct.unpack("3i", data[: 3 * _INT_BYTES])[0]
    return said, handed, process


def group_for(process: int, limits: Limits) -> ControlGroup | None:
    """A control group with this process in it, where this machine lets this user have one."""
    group = make_group(limits.memory()) if limits.grouped and process > 0 else None
    try:
        if group is not None:
            group.add(process)
    except OSError:
        if group is not None:
            group.close()
        return None
    return group


def first_to_go(process: int) -> None:
    """Where the machine is out of memory, what runs inside ends before anything else."""
    if process > 0:
        with suppress(OSError):
            Path(f"/proc/{process}/oom_score_adj").write_text("1000", "ascii")


def _request(command: Command, variables: Mapping[str, str], limits: Limits, *, own_processes: bool) -> bytes:
    memory = limits.memory()
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: memory,  # not RLIMIT_AS: reserved addresses cost nothing, and many programs reserve
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    if own_processes and _counts_by_namespace():
        values[resource.RLIMIT_NPROC] = limits.processes
    pairs = [f"{name}={value}" for name, value in variables.items()]
    limit_words = " ".join(f"{number}:{value}" for number, value in values.items())
    texts = [limit_words, shell(), command.folder, command.line, *pairs]
    if any("\0" in text for text in texts):
        raise ValueError("embedded null byte")
    data = b"\0".join(os.fsencode(text) for text in texts)
    return len(data).to_bytes(8, "big") + data


def _counts_by_namespace() -> bool:
    """Since Linux 5.14 a user's processes are counted for each user namespace, before for the whole machine."""
    major, minor = os.uname().release.split(".")[:2]
    digits = "".join(char for char in minor if char.isdigit())
    return (int(major), int(digits or 0)) >= (5, 14)
