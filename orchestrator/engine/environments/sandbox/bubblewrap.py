"""The sandbox of Linux: bubblewrap with a list of all that a command sees.

Bubblewrap (https://github.com/containers/bubblewrap) is started once for each folder. Inside it
`sandbox_init` starts each command in namespaces of its own. This program keeps a handle on each command's
first process. When that process ends, the kernel ends all other processes in its process namespace, and so
every process that the command started.
"""

from __future__ import annotations

import asyncio
import copy
import marshal
import os
import resource
import signal
import socket
import subprocess
import sys
import weakref
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.commands import (
    START_SECONDS,
    shell_program,
    until_ready,
    wait_or_kill,
)
from orchestrator.engine.environments.files import is_above
from orchestrator.engine.environments.sandbox.limits import LimitWatch, WatchedLaunch, make_group
from orchestrator.engine.environments.sandbox.proxy import PROXY_PORT, Proxy, host_rule, proxy_variables
from orchestrator.engine.environments.sandbox.visible import (
    HOST_NAME,
    Step,
    account_files,
    bare_view,
    check_root,
    checked_grants,
    covered_in_proc,
    etc_mounts,
    file_steps,
    own_mounts,
    program_folders,
    program_mounts,
    protections,
    scratch_folders,
    system_mounts,
    toolchains,
    user_variables,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.engine.environments.base import (
        Command,
        Doors,
        SandboxFolder,
        SandboxLimits,
        SandboxOptions,
    )

_CAPABILITIES = ("CAP_SETPCAP", "CAP_NET_ADMIN", "CAP_SYS_ADMIN")
"""The capabilities of `sandbox_init`, over its own namespaces only.

It needs them to create more namespaces, and to drop all capabilities.
"""

_INIT = Path(__file__).with_name("sandbox_init.py")
_FOR_WATCH = 2
_MAX_DESCRIPTORS = 4
_MAX_MESSAGE_BYTES = 4_096
_SHOWN_CHARS = 300
_END_SECONDS = 5.0
"""How long an abandoned sandbox may take to end by itself."""


class BubblewrapSandbox:
    """A `Sandbox` of namespaces: files, processes, network, users. Created by `find_sandbox`.

    Args:
        program: the path of bubblewrap.
        calls: filter of system calls, see `seccomp`.
        inherited: this program's variables; its `PATH` determines which programs are readable.
        init: the script that starts commands inside.
    """

    name = "bubblewrap"

    def __init__(
        self,
        program: str,
        calls: bytes,
        options: SandboxOptions,
        inherited: Mapping[str, str],
        init: Path = _INIT,
    ) -> None:
        self._program, self.calls, self.init = program, calls, init
        self.options, self._inherited = options, dict(inherited)
        self.doors: Callable[[], Doors] = partial(
            Proxy, [host_rule(text) for text in options.hosts], options.connect
        )
        """Creates the only way of one command to the network."""
        self.ports: tuple[int, ...] = (PROXY_PORT,)
        more = checked_grants(options.readable, inherited)
        tools = toolchains(inherited, more)
        readable = [*program_folders(inherited, tools.readable, tools.private), *more]
        rustup = [os.path.dirname(path) for path in readable if path.endswith("/.rustup/toolchains")]
        self._tools = {**({"RUSTUP_HOME": rustup[0]} if rustup else {}), **tools.variables}
        self._programs = program_mounts(readable)
        self._scratch = scratch_folders(options.limits.scratch_bytes, tools.private)
        self._covered = covered_in_proc()
        self._folders, copies = etc_mounts()
        self._copies = {**copies, **account_files()}
        self.created: Counter[str] = Counter()

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`."""
        return {**user_variables(), **proxy_variables()}

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`."""
        return self._tools

    def with_doors(self, doors: Doors, ports: tuple[int, ...]) -> BubblewrapSandbox:
        """Return this sandbox for one command whose only way to the network are these ports of its own loopback device."""
        changed = copy.copy(self)
        changed.doors, changed.ports = lambda: doors, ports
        return changed

    def bare_steps(self, command: Command) -> list[Step]:
        """Return the steps that hide every program from a command but those that it names."""
        return (
            []
            if command.programs is None
            else bare_view([path for path, _ in self._programs], command.programs)
        )

    def open(self, folder: SandboxFolder) -> _OpenBubblewrap:
        """See `Sandbox`."""
        check_root(folder.root, self._inherited)
        return _OpenBubblewrap(self, folder)

    def words(self, folder: SandboxFolder, files: list[int]) -> list[str]:
        """Return bubblewrap's command line for a folder, without the program to start in it.

        Descriptors of files that bubblewrap reads are appended to `files`.
        """
        root = folder.root
        outside = [(path, words) for path, words in self._programs if not is_above(root, path)]
        inside = [(path, words) for path, words in self._programs if is_above(root, path)]
        words = [self._program, "--unshare-user", "--unshare-all", "--as-pid-1", "--die-with-parent"]
        # With another user id, git would consider the clone another user's.
        words += ["--new-session", "--uid", str(os.getuid()), "--gid", str(os.getgid())]
        words += ["--cap-drop", "ALL", *(word for name in _CAPABILITIES for word in ("--cap-add", name))]
        words += ["--clearenv", "--hostname", HOST_NAME, "--chdir", "/"]
        words += ["--proc", "/proc", "--dev", "/dev", *system_mounts(self._inherited)]
        words += [*self._folders, "--dir", "/run"]
        for path, (_, mode) in self._scratch.items():
            words += ["--perms", mode, "--dir", path]
        for path, content in self._copies.items():
            files.append(_memory_file(content))
            words += ["--perms", "0444", "--file", str(files[-1]), path]
        words += [word for _, mount in outside for word in mount]
        words += ["--ro-bind" if folder.read_only else "--bind", root, root]
        words += [word for _, mount in inside for word in mount]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--"]

    def mount_steps(self, root: str) -> list[Step]:
        """Return the mount steps that are the same for each command in a folder."""
        programs = [path for path, _ in self._programs if os.path.exists(path)]
        return own_mounts(self._covered, self._scratch, [*programs, root])

    def remove_created(self, root: str, created: Sequence[str]) -> None:
        """Remove the empty folders that were created as mount points, if no other command still needs them."""
        self.created.subtract(created)
        for path in created:
            if self.created[path] <= 0:
                del self.created[path]
                with suppress(OSError), ConfinedFolder(root) as folder:
                    folder.remove_empty(os.path.relpath(path, root))


class _OpenBubblewrap:
    """An `OpenSandbox`: one bubblewrap and the `sandbox_init` in it, started with the first command.

    Both end with this program: the kernel kills bubblewrap with its parent, and `sandbox_init` ends when its
    socket is closed. A command cannot reach them, because they are in process namespaces above its own.
    """

    def __init__(self, sandbox: BubblewrapSandbox, folder: SandboxFolder) -> None:
        self.sandbox, self.folder = sandbox, folder
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._first = self._stderr = -1
        self._closed = False
        self._finalizer: weakref.finalize[..., _OpenBubblewrap] | None = None

    def launch(self, command: Command) -> _BubblewrapLaunch:
        found = protections(self.folder)
        created = [one.path for one in found if one.is_missing or self.sandbox.created[one.path]]
        steps = [step for one in found for step in one.steps(self.folder.root)]
        steps += [*file_steps(command.files), *self.sandbox.bare_steps(command)]
        request = _request(command, self.sandbox.options.limits, steps)
        self.sandbox.created.update(created)
        return _BubblewrapLaunch(self, request, created)

    async def send(self, descriptors: Sequence[int]) -> None:
        """Send a request to `sandbox_init`, started first if needed; raise `ToolError` or `OSError` if it fails."""
        async with self._starting:
            if self._closed:
                raise ToolError("the sandbox was closed, so no command can run in it")
            if self._process is None or self._process.poll() is not None:
                await self._end()
                self._process = self._start()
                self._finalizer = weakref.finalize(self, _abandon, self._process, self._control)
            assert self._control is not None  # noqa: S101  for the type checker
            if self._first < 0:
                await until_ready(self._control.fileno())
                _, received = _receive(self._control)
                if len(received) != 1:
                    raise ToolError(f"the sandbox did not start: {self.last_error_line()}")
                self._first = received[0]
            socket.send_fds(self._control, [b"C"], descriptors)

    def _start(self) -> subprocess.Popen[bytes]:
        self._control, child_end = socket.socketpair()
        self._control.setblocking(False)
        steps = self.sandbox.mount_steps(self.folder.root)
        common_values = {"filter": self.sandbox.calls, "ports": self.sandbox.ports, "steps": steps}
        script = _memory_file(self.sandbox.init.read_bytes())
        common = _memory_file(marshal.dumps(common_values))
        files = [script, common]
        self._stderr = _memory_file(b"")
        try:
            words = self.sandbox.words(self.folder, files)
            python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8"]
            return subprocess.Popen(  # noqa: S603  fixed arguments
                [*words, *python, f"/proc/self/fd/{script}", str(child_end.fileno()), str(common)],
                env={},
                cwd="/",
                pass_fds=(*files, child_end.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,
            )
        finally:
            child_end.close()
            for descriptor in files:
                os.close(descriptor)

    def last_error_line(self) -> str:
        """Return the last line that bubblewrap or `sandbox_init` wrote to standard error."""
        if self._stderr < 0:
            return "the sandbox was closed"
        lines = os.pread(self._stderr, _MAX_MESSAGE_BYTES, 0).decode("utf-8", "replace").splitlines()
        return lines[-1][:_SHOWN_CHARS] if lines else "it printed no error message"

    async def close(self) -> None:
        async with self._starting:
            self._closed = True
            await self._end()

    async def _end(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        process, self._process = self._process, None
        control, self._control = self._control, None
        first, self._first = self._first, -1
        stderr, self._stderr = self._stderr, -1
        if control is not None:
            control.close()
        if process is not None:
            with suppress(ProcessLookupError):
                if first >= 0:
                    signal.pidfd_send_signal(first, signal.SIGKILL)
                else:
                    process.kill()
            await asyncio.to_thread(process.wait)
        for descriptor in (first, stderr):
            if descriptor >= 0:
                os.close(descriptor)


def _abandon(process: subprocess.Popen[bytes], control: socket.socket | None) -> None:
    """End a sandbox that was never closed, for example that of an environment without clean-up."""
    if control is not None:
        control.close()  # this ends `sandbox_init`, and that ends bubblewrap
    wait_or_kill(process, _END_SECONDS)


class _BubblewrapLaunch(WatchedLaunch):
    """A `Launch`: a request to `sandbox_init`, its answers, and the handle on the command's first process."""

    start_seconds = START_SECONDS

    def __init__(self, opened: _OpenBubblewrap, request: bytes, created: Sequence[str]) -> None:
        super().__init__(opened.sandbox.doors())
        self._opened, self._request, self._created = opened, request, created
        self._limits = opened.sandbox.options.limits
        self._channel: socket.socket | None = None
        self._sent = False
        self._first = -1
        self._listeners: list[socket.socket] = []
        self._group = make_group(self._limits.memory()) if self._limits.grouped else None

    async def start(self, stdout: int, stderr: int, stdin: int | None = None) -> None:
        self._channel, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        file = _memory_file(self._request)
        entrance = os.open(os.devnull, os.O_WRONLY) if self._group is None else os.dup(self._group.entrance)
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        try:
            await self._opened.send((file, given, stdout, stderr, entrance, child_end.fileno()))
        finally:
            child_end.close()
            for descriptor in (file, given, entrance):
                os.close(descriptor)
        self._sent = True
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel.fileno(), self._receive)
        await self._begun.wait()
        if self._listeners and self._watch is not None:
            for listener in tuple(self._listeners):
                await self._doors.serve(listener)
                self._listeners.remove(listener)  # until then it is closed here if this is cancelled
            self._watching = loop.create_task(self._watch.run(self.kill))

    def _receive(self) -> None:
        """Read and process one answer."""
        assert self._channel is not None  # noqa: S101  for the type checker
        message, received = _receive(self._channel)
        if message == b"S":
            self._close_group()
            return
        if message == b"R" and len(received) == _FOR_WATCH + len(self._opened.sandbox.ports):
            self._first, proc, *listeners = received
            self._watch = LimitWatch(proc, self._opened.folder.root, self._limits, group=self._group)
            self._group = None
            self._listeners = [socket.socket(fileno=one) for one in listeners]
        elif message.startswith(b"E"):
            self._problem = message[1:].decode("utf-8", "replace")
        else:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._finished.set()
            if message.startswith(b"X"):
                self._code = int(message[1:])
            elif not self._killed:
                self._problem = f"its sandbox has ended: {self._opened.last_error_line()}"
        self._begun.set()

    async def ended(self) -> int:
        if self._sent:
            await self._finished.wait()
        if self._problem and not self._killed:
            raise ToolError(f"the command could not be started: {self._problem}")
        return self._code

    def kill(self) -> None:
        """See `Launch`. Use both the handle and the channel, because the handle arrives later."""
        self._killed = self._killed or not self._finished.is_set()
        with suppress(OSError):
            if self._first >= 0:
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        with suppress(OSError):
            if self._channel is not None:
                self._channel.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        self.kill()
        try:
            if self._sent:
                await self._finished.wait()
            if self._first >= 0:
                await until_ready(self._first)  # readable once every process of the command is gone
        finally:
            self._release()
        if self._watching is not None:
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._doors.close()

    def _close_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def _release(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._close_group()
        if self._watch is not None:
            self._watch.close()
        for listener in self._listeners:
            listener.close()
        if self._channel is not None:
            if self._sent and not self._finished.is_set():
                asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None
        first, self._first = self._first, -1
        if first >= 0:
            os.close(first)
        created, self._created = self._created, ()
        self._opened.sandbox.remove_created(self._opened.folder.root, created)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a message and its descriptors; an empty message if the other side is gone."""
    try:
        message, received, _, _ = socket.recv_fds(
            channel, _MAX_MESSAGE_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except OSError:
        return b"", []
    return message, received


def _request(command: Command, limits: SandboxLimits, steps: Sequence[Step]) -> bytes:
    """Encode a request for `sandbox_init`, by `marshal` because both ends are the same Python."""
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: limits.memory(),  # not RLIMIT_AS: many programs reserve addresses that they never use
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    major, minor = os.uname().release.split(".")[:2]
    digits = "".join(char for char in minor if char.isdigit())
    # Before Linux 5.14 the limit counts the user's processes on the whole machine.
    if (int(major), int(digits or 0)) >= (5, 14):
        values[resource.RLIMIT_NPROC] = limits.processes
    variables = {os.fsencode(name): os.fsencode(value) for name, value in command.variables.items()}
    shell = shell_program()
    argv = command.argv or (os.path.basename(shell), "-c", command.line)
    path, words = os.fsencode(argv[0] if command.argv else shell), [os.fsencode(word) for word in argv]
    folder = os.fsencode(command.folder)
    if any(b"\0" in text for text in (*words, folder, *variables, *variables.values())):
        raise ValueError("embedded null byte")
    fields = {"folder": folder, "limits": values, "path": path, "steps": [*steps], "variables": variables}
    return marshal.dumps({**fields, "words": words})


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("pullwright")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
