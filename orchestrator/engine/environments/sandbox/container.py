"""The sandbox of containers: the commands of a place run in one container of an image, by `docker` or `podman`.

The container has no network, no capability and no writable disk but the place. Its first process (`container_init`)
hands over a handle on itself, its `/proc` and a listening socket for the proxy, so that the kernel, not the engine's
program, says what runs inside, counts it and ends it. It ends when its standard input is closed, as with the death of
this program.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.engine.environments.base import NICENESS, limits_as_shell
from orchestrator.engine.environments.commands import VERSIONS, readable, start_program
from orchestrator.engine.environments.sandbox import visible
from orchestrator.engine.environments.sandbox.bubblewrap import PROXY_PORT, proxy_variables
from orchestrator.engine.environments.sandbox.container_engine import (
    ASK_SECONDS,
    LABEL,
    OTHER,
    find_image,
    last_line,
)
from orchestrator.engine.environments.sandbox.container_init import HANDED_OVER, init_program
from orchestrator.engine.environments.sandbox.limits import INTERVAL_SECONDS, Watch, group_of
from orchestrator.engine.environments.sandbox.proxy import Proxy, host_rule
from orchestrator.engine.environments.sandbox.seccomp import engine_profile
from orchestrator.engine.environments.sandbox.visible import Scratch, granted, private_folders, refuse_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

    from orchestrator.engine.environments.base import Limits, Place, SandboxOptions
    from orchestrator.engine.environments.commands import Command
    from orchestrator.engine.environments.sandbox.container_engine import Engine, Image
    from orchestrator.engine.environments.sandbox.limits import MemoryGroup


_START_SECONDS = 60.0
_QUEUE_SECONDS = 300.0
"""For a container while many are started."""
_AT_ONCE = 2
"""Containers that are started at the same time, and that are kept for the next command."""
_REMOVE_SECONDS = 10.0
_QUIET_SECONDS = 0.5
_LOOK_SECONDS = 0.005
_WAY = "/pullwright"
_INIT = f"{visible.HOME}/.pullwright-init"
"""Engines give a folder of memory the mode of the image's own folder of that name, and no image has this one."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BEGUN = b"\x02pullwright: begun\x03"
_MAX_WORD_BYTES = 131_071
"""Linux takes 131,072 bytes for one argument, with the NUL character at its end."""
_PIECE_BYTES = 1 << 16
_RAISED = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
_KILLED = -int(signal.SIGKILL)


class ContainerSandbox:
    """A `Sandbox` of containers. Made by `find_sandbox`.

    Args:
        engine: starts them.
        image: their files.
        options: what the person who runs this grants.
        inherited: this program's variables.

    Raises:
        ConfigurationError: a host or a path of the options makes no sense.
        SandboxMissingError: the image is for an unknown processor.
    """

    def __init__(
        self, engine: Engine, image: Image, options: SandboxOptions, inherited: Mapping[str, str]
    ) -> None:
        self.engine, self.image, self.options = engine, image, options
        self.name = f"{engine.name} {image.name} ({image.number.removeprefix('sha256:')[:12]})"
        self._inherited = dict(inherited)
        self._rules = [host_rule(text) for text in options.hosts]
        self._readable = granted(options.readable, inherited)
        init = init_program(image.architecture, _INIT, f"{_WAY}/way", PROXY_PORT)
        if init is None:
            raise SandboxMissingError(
                f"no sandbox for commands: {image.name} is for {image.architecture} processors; "
                f"use an image for amd64 or arm64, {OTHER}"
            )
        octal = "".join(f"\\{byte:03o}" for byte in init)
        self._first = f"umask 077; printf '{octal}' >{_INIT} && chmod 700 {_INIT} && exec {_INIT}"

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. The image's own stand before those of this machine; folders that tools write to are private."""
        image = {name: value for name, value in self.image.variables.items() if value}
        user = "root" if os.getuid() == 0 else "sandbox"
        fixed = {"HOME": visible.HOME, "TMPDIR": "/tmp", "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}  # noqa: S108  private
        return {
            "PATH": _DEFAULT_PATH,
            **image,
            **private_folders(image, visible.HOME),
            **fixed,
            **proxy_variables(PROXY_PORT),
        }

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`. The image has its own."""
        return {}

    def open(self, place: Place) -> OpenContainers:
        """See `Sandbox`."""
        problem = refuse_root(place.root, self._inherited)
        if not problem and any(char in place.root for char in "\n\r"):
            problem = f"{place.root!r} has a line break in its name, so it cannot be mounted"
        if problem:
            raise ToolError(problem)
        return OpenContainers(self, place)

    def proxy(self) -> Proxy:
        """A way to the network for one command."""
        return Proxy(self._rules, self.options.connect)

    def run_words(
        self, name: str, place: Place, way: Path, protections: Sequence[visible.Protection]
    ) -> list[str]:
        """What starts a container.

        Args:
            name: its name.
            place: what its commands may change.
            way: a folder of this machine with all that is only for the container.
            protections: of the place.
        """
        limits, root = self.options.limits, place.root
        words = [self.engine.program, "run", "--interactive", "--rm", "--pull", "never", "--name", name]
        words += ["--label", f"{LABEL}={os.getpid()}", "--log-driver", "none", "--no-healthcheck"]
        words += self.engine.user
        words += _confinement(way)
        words += _limits(limits, self.engine.name)
        for path, (size, mode) in visible.scratch(limits.scratch_bytes, self.image.volumes).items():
            if path != "/dev/shm":  # noqa: S108  it has a size of its own
                words += [
                    "--tmpfs",
                    f"{path}:rw,exec,nosuid,nodev,size={size},mode={mode if path != visible.HOME else '1777'}",
                ]
        words += _bind(str(way), _WAY, "readonly")
        for file in ("passwd", "group"):
            words += _bind(str(way / file), f"/etc/{file}", "readonly")
        for path in filter(os.path.exists, self._readable):
            words += _bind(path, path, "readonly")
        words += _bind(root, root)
        for number, one in enumerate(protections):
            source = str(way / f"protected-{number}") if one.content is not None else one.path
            words += _bind(source, one.path, "readonly")
        hidden = {name: "" for name, value in self.image.variables.items() if not value}
        for variable, value in {
            **hidden,
            **proxy_variables(PROXY_PORT),
        }.items():  # else docker's own settings count
            words += ["--env", f"{variable}={value}"]
        return [*words, "--entrypoint", "sh", self.image.number, "-c", self._first]


def find_container(wanted: str, options: SandboxOptions, inherited: Mapping[str, str]) -> ContainerSandbox:
    """The sandbox of an image, which is here already: getting it is the person's choice. Nothing is started.

    Args:
        wanted: `docker:IMAGE` or `podman:IMAGE`.
        options: what the person who runs this grants.
        inherited: this program's variables.

    Raises:
        SandboxMissingError: the engine or the image is not to be had; the message says what to do.
        ConfigurationError: a host or a path of the options makes no sense.
    """
    engine, image = find_image(wanted, inherited)
    return ContainerSandbox(engine, image, options, inherited)


def _confinement(way: Path) -> list[str]:
    """Words for a container without network, capabilities and a disk of its own."""
    words = ["--network", "none", "--hostname", visible.HOST_NAME, "--workdir", "/", "--read-only"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--security-opt", "label=disable", "--security-opt", f"seccomp={way / 'seccomp.json'}"]
    return [*words, "--oom-score-adj", "1000"]


def _limits(limits: Limits, engine: str) -> list[str]:
    memory = str(limits.memory())
    words = ["--memory", memory, "--memory-swap", memory, "--shm-size", str(visible.SHARED_BYTES)]
    words += ["--pids-limit", str(limits.processes + 2)]  # the first one, and the shell that waits
    if engine == "podman":  # it would raise these, which not every user may do
        most_files, most_processes = (resource.getrlimit(number)[1] for number in _RAISED)
        words += ["--ulimit", f"nofile={_least(limits.open_files, most_files)}"]
        words += ["--ulimit", f"nproc={_least(limits.processes, most_processes)}"]
    return words


def _least(wanted: int, most: int) -> str:
    value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    return f"{value}:{value}"


def _bind(source: str, target: str, *more: str) -> list[str]:
    """A mount. Engines read these words as a line of comma-separated values (RFC 4180)."""
    fields = ["type=bind", f"source={source}", f"target={target}", *more]
    quoted = [
        f'"{field.replace(chr(34), chr(34) * 2)}"' if set(field) & {",", '"'} else field for field in fields
    ]
    return ["--mount", ",".join(quoted)]


class Container:
    """A container that runs one command at a time. Made by `start_container`.

    Attributes:
        protections: what was protected when it was started.
        proc: its `/proc`, an open folder.
        listener: a listening socket inside.
    """

    def __init__(
        self,
        run: subprocess.Popen[bytes],
        name: str,
        protections: Sequence[visible.Protection],
        handed: Sequence[int],
    ) -> None:
        self.name, self.protections = name, tuple(protections)
        self._handle, self.proc, self.listener = handed
        self._run, self._killed = run, False
        self._abandoned = weakref.finalize(self, _abandon, run, handed)

    def memory(self, limits: Limits) -> MemoryGroup | None:
        """The engine's control group of it, where that holds the limit."""
        with suppress(OSError, StopIteration, ValueError):
            lines = Path(f"/proc/self/fdinfo/{self._handle}").read_text("ascii").splitlines()
            number = int(next(line for line in lines if line.startswith("Pid:")).split()[1])
            return group_of(number, limits.memory())
        return None

    def is_alive(self) -> bool:
        """Whether its first process runs: the handle of one that has ended can be read."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return not self._killed and not poll.poll(0)

    def kill(self) -> None:
        """End everything in it: the kernel ends a process namespace with its first process."""
        self._killed = True
        with suppress(OSError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def is_quiet(self) -> bool:
        """Whether nothing runs in it but its first process, or soon will not: what was killed takes a moment to go."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_SECONDS):
                while self.is_alive():
                    if not any(name.isdigit() and name != "1" for name in os.listdir(self.proc)):  # noqa: PTH208  a descriptor
                        return True
                    await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def end(self) -> None:
        """Kill it, and wait until nothing of it runs and the engine has removed it."""
        self._abandoned.detach()
        self.kill()
        await readable(self._handle)
        _close(self._run, (self._handle, self.proc, self.listener))
        await asyncio.to_thread(_wait_for, self._run)


def _close(run: subprocess.Popen[bytes], descriptors: Sequence[int]) -> None:
    assert run.stdin is not None  # noqa: S101  for the type checker
    run.stdin.close()
    for descriptor in descriptors:
        os.close(descriptor)


def _wait_for(run: subprocess.Popen[bytes]) -> None:
    try:
        run.wait(_REMOVE_SECONDS)
    except subprocess.TimeoutExpired:  # the engine goes on removing it
        run.kill()
        run.wait()


def _abandon(run: subprocess.Popen[bytes], handed: Sequence[int]) -> None:
    """End a container that nobody closed, as of an environment that nobody cleaned up."""
    with suppress(OSError):
        signal.pidfd_send_signal(handed[0], signal.SIGKILL)
    _close(run, handed)
    _wait_for(run)


async def start_container(
    sandbox: ContainerSandbox, place: Place, protections: Sequence[visible.Protection]
) -> Container:
    """Start one.

    Raises:
        ToolError: it does not start.
    """
    name = f"{LABEL}-{os.getpid()}-{secrets.token_hex(6)}"
    scratch = Scratch()
    said = tempfile.TemporaryFile()  # noqa: SIM115  the engine's program writes to it to its end
    run: subprocess.Popen[bytes] | None = None
    try:
        way = Path(scratch.path)
        _prepare(way, sandbox, protections)
        with _listening(way) as listener:
            run = subprocess.Popen(  # noqa: S603, ASYNC220  our own words; it takes a millisecond
                sandbox.run_words(name, place, way, protections),
                env=dict(sandbox.engine.variables),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            handed = await _receive(listener, run)
        if handed is not None:
            return Container(run, name, protections, handed)
        complaint = _complaint(said)
    except BaseException:
        if run is not None:
            _give_up(run)
        raise
    finally:
        said.close()
        scratch.remove()
    _give_up(run)
    raise ToolError(f"{sandbox.name} did not start: {complaint}")


def _prepare(way: Path, sandbox: ContainerSandbox, protections: Sequence[visible.Protection]) -> None:
    """Write the files that are mounted into a container."""
    accounts = visible.accounts()
    for name in ("passwd", "group"):
        (way / name).write_bytes(accounts[f"/etc/{name}"])
    (way / "seccomp.json").write_text(engine_profile(sandbox.image.architecture), "ascii")
    for number, one in enumerate(protections):
        if one.content is None:
            continue
        path = way / f"protected-{number}"
        if one.is_folder:
            path.mkdir(mode=0o555)
        else:
            path.write_bytes(one.content)


def _listening(way: Path) -> socket.socket:
    """A socket in a folder, whose path may be longer than a socket's address can be."""
    folder = os.open(way, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        listener.bind(f"/proc/self/fd/{folder}/way")
        listener.listen(1)
    finally:
        os.close(folder)
    return listener


async def _receive(listener: socket.socket, run: subprocess.Popen[bytes]) -> list[int] | None:
    """What the first process hands over; None where the engine's program ends before that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while run.poll() is None:
                with suppress(BlockingIOError):
                    channel, _ = listener.accept()
                    with channel:
                        channel.settimeout(ASK_SECONDS)
                        _, handed, _, _ = socket.recv_fds(channel, 1, HANDED_OVER)
                    return handed if len(handed) == HANDED_OVER else None
                await asyncio.sleep(_LOOK_SECONDS)
    return None


def _give_up(run: subprocess.Popen[bytes]) -> None:
    """Take back a start that failed or was cancelled half-way.

    Where the container starts nevertheless, its first process finds nobody to hand over to, or its standard input
    closed, and ends.
    """
    assert run.stdin is not None  # noqa: S101  for the type checker
    run.stdin.close()
    Thread(target=_wait_for, args=(run,)).start()


def _complaint(said: IO[bytes]) -> str:
    said.seek(0)
    return last_line(said.read())


class OpenContainers:
    """An `OpenSandbox`: one container, started with the first command, that runs one command after the other.

    A command that begins while another one runs gets a container of its own, so that no command sees another one's
    processes, and each has all that the limits allow. A container in which anything is left after a command is not
    used again.
    """

    def __init__(self, sandbox: ContainerSandbox, place: Place) -> None:
        self.sandbox, self.place = sandbox, place
        self._starting = asyncio.Semaphore(_AT_ONCE)
        self._idle: list[Container] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._made: dict[str, visible.Protection] = {}
        self._closed = False

    def launch(self, command: Command) -> ContainerLaunch:
        """See `OpenSandbox`."""
        for path in [path for path in self._made if _holds_anything(path)]:
            del self._made[path]  # somebody made a repository of it
        script = _script(command, self.sandbox.options.limits, self.sandbox.image)
        protections = [self._made.get(one.path, one) for one in visible.protections(self.place)]
        return ContainerLaunch(self, script, protections)

    async def take(self, protections: Sequence[visible.Protection]) -> Container:
        """A container in which nothing runs.

        Raises:
            ToolError: none starts.
        """
        async with self._starting:
            if self._closed:
                raise ToolError("the sandbox was closed, so nothing runs in it any more")
            return self._kept(protections) or await self._new(protections)

    def _kept(self, protections: Sequence[visible.Protection]) -> Container | None:
        while self._idle:
            found = self._idle.pop()
            if found.is_alive() and found.protections == tuple(protections):
                return found
            self._end(found)
        return None

    async def _new(self, protections: Sequence[visible.Protection]) -> Container:
        for one in protections:
            if one.is_missing:
                with suppress(FileExistsError):
                    os.mkdir(one.path)  # noqa: PTH102  a name
                    self._made[one.path] = one
        return await start_container(self.sandbox, self.place, protections)

    async def give_back(self, container: Container) -> None:
        """Keep a container for the next command, if nothing was left in it and few are kept."""
        if await container.is_quiet() and len(self._idle) < _AT_ONCE and not self._closed:
            self._idle.append(container)
        else:
            self._end(container)

    def _end(self, container: Container) -> None:
        container.kill()
        task = asyncio.get_running_loop().create_task(container.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """See `OpenSandbox`."""
        self._closed = True
        while self._idle:
            self._end(self._idle.pop())
        await asyncio.gather(*self._ending)
        for path in self._made:
            with suppress(OSError):  # it is not empty, or not there
                os.rmdir(path)  # noqa: PTH106  a name
        self._made.clear()


def _holds_anything(folder: str) -> bool:
    with suppress(OSError):
        return bool(os.listdir(folder))  # noqa: PTH208  a name
    return True


class ContainerLaunch:
    """A `Launch`: the engine's program runs a shell in a container, which reads what to do from its standard input."""

    start_seconds = _QUEUE_SECONDS

    def __init__(
        self, opened: OpenContainers, script: bytes, protections: Sequence[visible.Protection]
    ) -> None:
        self._opened, self._script, self._protections = opened, script, protections
        self._proxy = opened.sandbox.proxy()
        self._container: Container | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task[None] | None = None
        self._watch: Watch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._killed = False
        self._problem = ""
        self._code = _KILLED
        self._begun, self._gone = asyncio.Event(), asyncio.Event()

    @property
    def killed_for(self) -> str:
        """See `Launch`."""
        return self._watch.reason if self._watch else ""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """See `Launch`."""
        return self._proxy.refused

    async def start(self, stdout: int, stderr: int) -> None:
        """See `Launch`."""
        self._container = container = await self._opened.take(self._protections)
        engine, limits = self._opened.sandbox.engine, self._opened.sandbox.options.limits
        words = [engine.program, "exec", "--interactive", container.name, "sh", "-c", 'eval "$(cat)"']
        with tempfile.TemporaryFile() as file:
            file.write(self._script)
            file.seek(0)
            self._process = await start_program(
                *words,
                stdin=file,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env=dict(engine.variables),
                cwd="/",
            )
        loop = asyncio.get_running_loop()
        self._following = loop.create_task(self._follow(self._process, os.dup(stderr)))
        await self._begun.wait()
        if self._gone.is_set():
            return
        await self._proxy.serve(socket.socket(fileno=os.dup(container.listener)))
        self._watch = Watch(
            os.dup(container.proc), self._opened.place.root, limits, group=container.memory(limits)
        )
        self._watching = loop.create_task(self._watch_on(self._watch))

    async def _follow(self, process: asyncio.subprocess.Process, stderr: int) -> None:
        """Take what the command writes to its standard error, and its end."""
        try:
            said = await self._hand_on(process, stderr)
            self._code = await process.wait()
            if not self._begun.is_set():
                self._problem = last_line(said)
        finally:  # also where everything is cancelled as the program ends
            self._gone.set()
            self._begun.set()

    async def _hand_on(self, process: asyncio.subprocess.Process, stderr: int) -> bytes:
        """Hand on what comes after the mark that the command begins; what came before it."""
        assert process.stderr is not None  # noqa: S101  for the type checker
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()
        out, _ = await loop.connect_write_pipe(lambda: _Writing(closed), os.fdopen(stderr, "wb", 0))
        before = b""
        try:
            while piece := await process.stderr.read(_PIECE_BYTES):
                if not self._begun.is_set():
                    before, mark, piece = (before + piece).partition(_BEGUN)
                    if not mark:
                        continue
                    self._begun.set()
                out.write(piece)
        finally:
            out.close()
        await closed
        return before

    async def _watch_on(self, watch: Watch) -> None:
        await asyncio.sleep(INTERVAL_SECONDS)  # there is nothing to see before
        await watch.run(self.kill)

    async def ended(self) -> int:
        """See `Launch`."""
        if self._process is not None:
            await self._gone.wait()
        if self._killed:
            return _KILLED
        if self._problem:
            raise ToolError(f"the command could not be started: {self._problem}")
        return self._code

    def terminate(self) -> None:
        """See `Launch`."""
        if self._watch is None or not self._watch.terminate():
            self.kill()

    def kill(self) -> None:
        """See `Launch`. What a command left behind at its end is ended by the shell that waited for it."""
        if self._gone.is_set() or self._process is None or self._container is None:
            return
        self._killed = True
        self._container.kill()
        with suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """See `Launch`."""
        self.kill()
        if self._following is not None:
            await self._following
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
        await self._proxy.close()
        container, self._container = self._container, None
        if container is not None:
            if self.killed_for:  # the kernel may be about to end the first process too
                container.kill()
            await self._opened.give_back(container)


class _Writing(asyncio.BaseProtocol):
    """Says when all was written."""

    def __init__(self, closed: asyncio.Future[None]) -> None:
        self._closed = closed

    def connection_lost(self, _error: Exception | None) -> None:
        """Called by asyncio at the end."""
        if not self._closed.done():
            self._closed.set_result(None)


def _script(command: Command, limits: Limits, image: Image) -> bytes:
    """What the shell in a container is to do: start the command with its limits, and end what it leaves behind.

    Raises:
        ValueError, OSError: the command has a NUL character, or is too long.
    """
    variables = {
        name: value
        for name, value in command.variables.items()
        if name not in VERSIONS or name in image.variables  # of this machine's toolchains
    }
    given = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
    line, folder = os.fsencode(command.line), os.fsencode(command.folder)
    if any(b"\0" in text for text in (*given, line, folder)):
        raise ValueError("embedded null byte")
    if any(len(text) > _MAX_WORD_BYTES for text in (*given, line)):
        raise OSError(7, "Argument list too long")
    quoted = b" ".join(_quoted(text) for text in given)
    shell = b'"$(command -v bash || command -v sh)"'
    nice = b"$(command -v nice >/dev/null && echo nice -n %d)" % NICENESS
    return b"\n".join(
        [
            b"exec </dev/null",
            b"trap : TERM",
            limits_as_shell(limits).encode(),
            b"cd %s || exit 126" % _quoted(folder),
            b"printf '%s' >&2" % _BEGUN,
            b"%s env -i %s %s -c %s" % (nice, quoted, shell, _quoted(line)),
            b"code=$?",
            b"kill -9 -1 2>/dev/null",
            b"exit $code",
        ]
    )


def _quoted(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
