"""The sandbox of containers: commands of a folder run in a container of an image, by `docker` or `podman`.

The container has no network, no capability and no writable disk except the folder. Its first process
(`first_process`) hands over a handle on itself, its `/proc` and a listening socket for the proxy. So the
kernel, and not the engine's program, reports which processes run inside, counts them and ends them. The first
process ends when its standard input is closed, also by the death of this program.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import secrets
import select
import shutil
import signal
import socket
import string
import subprocess
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.redaction import is_secret
from orchestrator.engine.environments.commands import VERSIONS, start_program, until_ready, wait_or_kill
from orchestrator.engine.environments.sandbox import try_sandbox
from orchestrator.engine.environments.sandbox.limits import (
    NICENESS,
    LimitWatch,
    WatchedLaunch,
    group_of,
    limits_as_shell,
)
from orchestrator.engine.environments.sandbox.proxy import PROXY_PORT, Proxy, host_rule, proxy_variables
from orchestrator.engine.environments.sandbox.seccomp import (
    FAMILIES,
    NAMESPACES,
    NEW_TIME,
    PERSONALITIES,
    CallVerdict,
    verdicts,
)
from orchestrator.engine.environments.sandbox.visible import (
    HOME,
    HOST_NAME,
    SHARED_BYTES,
    Protection,
    Scratch,
    account_files,
    check_root,
    checked_grants,
    private_folders,
    protections,
    scratch_folders,
    user_variables,
)
from orchestrator.plugins.containers.first_process import HANDED_OVER, init_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxLimits, SandboxOptions
    from orchestrator.engine.environments.commands import ChildProgram
    from orchestrator.engine.environments.sandbox.limits import MemoryGroup


ENGINES = ("docker", "podman")
LABEL = "pullwright"
"""The label of every container."""
USE_SYSTEM_SANDBOX = "or leave out --sandbox for the system's own"
"""The end of a message about a container that cannot be started."""
_ASK_SECONDS = 30.0
HANDOVER = "/pullwright"
"""A folder in the container with a socket and files for this container only."""
_START_SECONDS = 60.0
_REMOVE_SECONDS = 10.0
"""How long to wait for the engine's program; the engine itself continues to remove the container."""
_QUIET_SECONDS = 0.5
_POLL_SECONDS = 0.005

_NEEDED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR")
_NEEDED_BY_PREFIX = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "XDG_", "DBUS_SESSION_")
_SHOWN_CHARS = 300
_MOST_OUTPUT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """The program that starts containers.

    Attributes:
        name: `docker` or `podman`.
        program: its path.
        variables: all its variables; none of them is visible in a container.
        user: options with which a container's files belong to the user who runs this program.
    """

    name: str
    program: str
    variables: Mapping[str, str]
    user: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """The image from which containers are started.

    Attributes:
        name: the name as the user wrote it.
        number: the image's id when this program started; its name may be moved to another image meanwhile.
        architecture: such as `amd64`.
        variables: the image's variables; one that looks like a secret has an empty value.
        volumes: folders that would be on the disk of this machine.
    """

    name: str
    number: str
    architecture: str
    variables: Mapping[str, str]
    volumes: tuple[str, ...]


def find_image(wanted: str, inherited: Mapping[str, str]) -> tuple[ContainerEngine, ContainerImage]:
    """Find an image that is already on this machine, and its engine. No image is pulled, no container started.

    Args:
        wanted: `docker:IMAGE` or `podman:IMAGE`.
    """
    name, _, image = wanted.partition(":")
    program = shutil.which(name, path=inherited.get("PATH"))
    if program is None or name not in ENGINES:
        raise SandboxMissingError(
            f"no sandbox for commands: there is no program {name}; install it, {USE_SYSTEM_SANDBOX}"
        )
    variables = {
        variable: value
        for variable, value in inherited.items()
        if variable in _NEEDED or variable.startswith(_NEEDED_BY_PREFIX)
    }
    engine_alone = ContainerEngine(name, program, variables, ())
    form = "{{json .SecurityOptions}}" if name == "docker" else "{{json .Host.Security}}"
    code, output = _ask(engine_alone, "info", "--format", form)
    if code:
        raise SandboxMissingError(
            f"no sandbox for commands: {name} does not answer, start it, {USE_SYSTEM_SANDBOX}: {output}"
        )
    code, description = _ask(engine_alone, "image", "inspect", "--", image)
    if code:
        raise SandboxMissingError(
            f"no sandbox for commands: {name} has no image {image}; get it with {name} pull {image}, {USE_SYSTEM_SANDBOX}"
        )
    engine = replace(engine_alone, user=_user(name, output))
    _remove_unstarted(engine)
    return engine, _image(image, json.loads(description)[0])


def _ask(engine: ContainerEngine, *words: str) -> tuple[int, str]:
    """Run an engine command; return its exit code, and its output or the last line of its error output."""
    try:
        ran = subprocess.run(  # noqa: S603  fixed arguments, and a name after --
            [engine.program, *words],
            env=dict(engine.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"there was no answer within {_ASK_SECONDS:.0f} seconds"
    except OSError as error:
        return 1, error.strerror or str(error)
    if ran.returncode:
        return ran.returncode, last_line(ran.stderr)
    return 0, ran.stdout.decode("utf-8", "replace")


def _user(engine: str, security: str) -> tuple[str, ...]:
    """Return the options for a container's user: the user who runs this, or one that is mapped to it."""
    own = f"{os.getuid()}:{os.getgid()}"
    if engine == "podman":
        return ("--user", own) if os.getuid() == 0 else ("--userns", "keep-id", "--user", own)
    if "name=rootless" in security:
        return ("--user", "0:0")
    return ("--userns", "host", "--user", own) if "name=userns" in security else ("--user", own)


def _image(name: str, description: dict[str, object]) -> ContainerImage:
    config = description.get("Config")
    config = config if isinstance(config, dict) else {}
    pairs = (line.partition("=") for line in config.get("Env") or ())
    variables = {name: "" if is_secret(name, value) else value for name, _, value in pairs}
    volumes = tuple(sorted(str(path) for path in config.get("Volumes") or ()))
    return ContainerImage(
        name, str(description["Id"]), str(description.get("Architecture")), variables, volumes
    )


def _remove_unstarted(engine: ContainerEngine) -> None:
    """Remove containers that a killed program created and never started; started ones end with their program."""
    unstarted = ("ps", "--all", "--filter", f"label={LABEL}", "--filter", "status=created")
    code, names = _ask(engine, *unstarted, "--format", "{{.Names}}")
    if code == 0:
        for name in names.split():
            owner = name.split("-")[1] if name.count("-") > 1 else ""
            if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                _ask(engine, "rm", "--force", name)


def last_line(output: bytes) -> str:
    """Return the last line with text, shortened for a message."""
    lines = [
        line
        for line in output.decode("utf-8", "replace").splitlines()
        if line.strip() and "--help" not in line
    ]
    return lines[-1].strip()[:_SHOWN_CHARS] if lines else "it printed no error message"


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """The properties that all containers of a sandbox share.

    Attributes:
        readable: paths of this machine that commands may read.
        first: the first script of the image's shell, which starts the first process.
    """

    engine: ContainerEngine
    image: ContainerImage
    limits: SandboxLimits
    readable: tuple[str, ...]
    first: str

    @property
    def name(self) -> str:
        """The engine and the image, for display."""
        return f"{self.engine.name} {self.image.name} ({self.image.number.removeprefix('sha256:')[:12]})"

    def run_words(
        self, name: str, folder: SandboxFolder, handover: Path, protections: Sequence[Protection]
    ) -> list[str]:
        """Return the command line that starts a container of this name.

        Args:
            handover: a folder of this machine with the files for this container only.
            protections: protections of the folder.
        """
        limits, root = self.limits, folder.root
        words = [self.engine.program, "run", "--interactive", "--rm", "--pull", "never", "--name", name]
        words += ["--label", f"{LABEL}={os.getpid()}", "--log-driver", "none", "--no-healthcheck"]
        words += self.engine.user
        words += ["--network", "none", "--hostname", HOST_NAME, "--workdir", "/", "--read-only"]
        words += ["--cap-drop", "ALL"]
        for option in ("no-new-privileges", "label=disable", f"seccomp={handover / 'seccomp.json'}"):
            words += ["--security-opt", option]
        words += ["--oom-score-adj", "1000", *_limits(limits, self.engine.name)]
        for path, (size, mode) in scratch_folders(limits.scratch_bytes, self.image.volumes).items():
            if path != "/dev/shm":  # noqa: S108  it has a size of its own
                words += [
                    "--tmpfs",
                    f"{path}:rw,exec,nosuid,nodev,size={size},mode={mode if path != HOME else '1777'}",
                ]
        words += _bind(str(handover), HANDOVER, "readonly")
        for file in ("passwd", "group"):
            words += _bind(str(handover / file), f"/etc/{file}", "readonly")
        for path in filter(os.path.exists, self.readable):
            words += _bind(path, path, "readonly")
        words += _bind(root, root, *(["readonly"] if folder.read_only else []))
        for number, one in enumerate(protections):
            source = str(handover / f"protected-{number}") if one.content is not None else one.path
            words += _bind(source, one.path, "readonly")
        hidden = {variable: "" for variable, value in self.image.variables.items() if not value}
        for variable, value in (hidden | proxy_variables()).items():  # overrides docker's own proxy settings
            words += ["--env", f"{variable}={value}"]
        return [*words, "--entrypoint", "sh", self.image.number, "-c", self.first]


def _limits(limits: SandboxLimits, engine: str) -> list[str]:
    memory = str(limits.memory())
    words = ["--memory", memory, "--memory-swap", memory, "--shm-size", str(SHARED_BYTES)]
    words += ["--pids-limit", str(limits.processes + 2)]  # plus the first process and the waiting shell
    if engine == "podman":  # its defaults may exceed what this user may set
        for name, number, wanted in (
            ("nofile", resource.RLIMIT_NOFILE, limits.open_files),
            ("nproc", resource.RLIMIT_NPROC, limits.processes),
        ):
            _, most = resource.getrlimit(number)
            value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            words += ["--ulimit", f"{name}={value}:{value}"]
    return words


def _bind(source: str, target: str, *more: str) -> list[str]:
    """Return the options of a bind mount, as one line of comma-separated values (RFC 4180)."""
    fields = ["type=bind", f"source={source}", f"target={target}", *more]
    quoted = [
        f'"{field.replace(chr(34), chr(34) * 2)}"' if set(field) & {",", '"'} else field for field in fields
    ]
    return ["--mount", ",".join(quoted)]


class Container:
    """A container that runs one command at a time. Created by `start_container`.

    Attributes:
        protections: the protections with which it was started.
        proc: descriptor of its `/proc`, an open folder.
        listener: descriptor of a listening socket inside.
    """

    def __init__(
        self,
        run: subprocess.Popen[bytes],
        name: str,
        protections: Sequence[Protection],
        received: Sequence[int],
    ) -> None:
        self.name, self.protections = name, tuple(protections)
        self._handle, self.proc, self.listener = received
        self._run, self._killed = run, False
        self._finalizer = weakref.finalize(self, _abandon, run, received)

    def memory(self, limits: SandboxLimits) -> MemoryGroup | None:
        """Return the control group that the engine made for the container, if it has this memory limit."""
        with suppress(OSError, StopIteration, ValueError):
            lines = Path(f"/proc/self/fdinfo/{self._handle}").read_text("ascii").splitlines()
            number = int(next(line for line in lines if line.startswith("Pid:")).split()[1])
            return group_of(number, limits.memory())
        return None

    def is_alive(self) -> bool:
        """Return whether the container's first process runs. The handle of an ended process is readable."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return not self._killed and not poll.poll(0)

    def kill(self) -> None:
        """Kill every process in the container: the kernel ends a process namespace with its first process."""
        self._killed = True
        with suppress(OSError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    async def is_quiet(self) -> bool:
        """Return whether no process but the first is left, after a short wait for killed ones to disappear."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_SECONDS):
                while self.is_alive():
                    if not any(name.isdigit() and name != "1" for name in os.listdir(self.proc)):
                        return True
                    await asyncio.sleep(_POLL_SECONDS)
        return False

    async def end(self) -> None:
        """Kill the container, and wait until no process of it runs and the engine has removed it."""
        self._finalizer.detach()
        self.kill()
        await until_ready(self._handle)
        _close(self._run, (self._handle, self.proc, self.listener))
        await asyncio.to_thread(wait_or_kill, self._run, _REMOVE_SECONDS)


def _close(run: subprocess.Popen[bytes], descriptors: Sequence[int]) -> None:
    assert run.stdin is not None  # noqa: S101  for the type checker
    run.stdin.close()
    for descriptor in descriptors:
        os.close(descriptor)


def _abandon(run: subprocess.Popen[bytes], received: Sequence[int]) -> None:
    """End a container that was never closed, for example that of an environment without clean-up."""
    with suppress(OSError):
        signal.pidfd_send_signal(received[0], signal.SIGKILL)
    _close(run, received)
    wait_or_kill(run, _REMOVE_SECONDS)


async def start_container(
    plan: ContainerPlan, folder: SandboxFolder, protections: Sequence[Protection]
) -> Container:
    """Start a container; raise `ToolError` if it does not start."""
    name = f"{LABEL}-{os.getpid()}-{secrets.token_hex(6)}"
    scratch = Scratch()
    output = tempfile.TemporaryFile()  # noqa: SIM115  the engine's program keeps writing to it
    run: subprocess.Popen[bytes] | None = None
    try:
        handover = Path(scratch.path)
        _write_handover(handover, plan.image.architecture, protections)
        with _listening(handover) as listener:
            run = subprocess.Popen(  # noqa: S603, ASYNC220  fixed arguments; it takes a millisecond
                plan.run_words(name, folder, handover, protections),
                env=dict(plan.engine.variables),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )
            received = await _receive(listener, run)
        if received is not None:
            return Container(run, name, protections, received)
        # Not `seek`: the engine's program, which may still write, shares the place in the file.
        problem = last_line(os.pread(output.fileno(), _MOST_OUTPUT_BYTES, 0))
    except BaseException:
        if run is not None:
            _give_up(run)
        raise
    finally:
        output.close()
        scratch.remove()
    _give_up(run)
    raise ToolError(f"{plan.name} did not start: {problem}")


def _write_handover(handover: Path, architecture: str, protections: Sequence[Protection]) -> None:
    """Write the files that are mounted into a container."""
    accounts = account_files()
    for name in ("passwd", "group"):
        (handover / name).write_bytes(accounts[f"/etc/{name}"])
    (handover / "seccomp.json").write_text(engine_profile(architecture), "ascii")
    for number, one in enumerate(protections):
        if one.content is None:
            continue
        path = handover / f"protected-{number}"
        if one.is_folder:
            path.mkdir(mode=0o555)
        else:
            path.write_bytes(one.content)


def _listening(handover: Path) -> socket.socket:
    """Return a socket that listens in a folder whose path may be too long for a socket address."""
    folder = os.open(handover, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        listener.bind(f"/proc/self/fd/{folder}/socket")
        listener.listen(1)
    finally:
        os.close(folder)
    return listener


async def _receive(listener: socket.socket, run: subprocess.Popen[bytes]) -> list[int] | None:
    """Receive the descriptors of the first process; None if the engine's program ends before that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while run.poll() is None:
                with suppress(BlockingIOError):
                    channel, _ = listener.accept()
                    with channel:
                        channel.settimeout(_ASK_SECONDS)
                        _, received, _, _ = socket.recv_fds(channel, 1, HANDED_OVER)
                    return received if len(received) == HANDED_OVER else None
                await asyncio.sleep(_POLL_SECONDS)
    return None


def _give_up(run: subprocess.Popen[bytes]) -> None:
    """Undo a start that failed or was cancelled half-way.

    If the container starts nevertheless, its first process cannot connect to the socket or finds its standard
    input closed, and ends.
    """
    assert run.stdin is not None  # noqa: S101  for the type checker
    run.stdin.close()
    Thread(target=wait_or_kill, args=(run, _REMOVE_SECONDS)).start()


_ENGINE_NAMES = {"amd64": ("x86_64", "SCMP_ARCH_X86_64"), "arm64": ("aarch64", "SCMP_ARCH_AARCH64")}
_VALUES: dict[str, list[dict[str, object]]] = {
    "socket": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"} for value in FAMILIES],
    "socketpair": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"} for value in FAMILIES],
    "personality": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"} for value in PERSONALITIES],
    "clone": [{"index": 0, "value": NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
    "unshare": [{"index": 0, "value": NAMESPACES | NEW_TIME, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
}
"""The arguments with which the filter allows a call, in the engines' format."""


def engine_profile(architecture: str) -> str:
    """Return the system sandbox's filter of system calls in the format of container engines, for an architecture as they name it.

    Format: https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp. There a
    comparison is of 64 bits, so the lower half alone cannot be checked. Therefore `ioctl` is allowed; no
    container has a terminal.
    """
    machine, named = _ENGINE_NAMES[architecture]
    by_verdict: dict[CallVerdict, list[str]] = {}
    for name, (_, verdict) in verdicts(machine).items():
        by_verdict.setdefault(verdict, []).append(name)
    unchecked = [name for name in by_verdict[CallVerdict.CHECKED] if name not in _VALUES]
    allowed, refused = by_verdict[CallVerdict.ALLOWED] + unchecked, by_verdict[CallVerdict.REFUSED]
    rules: list[dict[str, object]] = [
        {"names": allowed, "action": "SCMP_ACT_ALLOW"},
        {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM},
    ]
    for name, tests in _VALUES.items():
        rules += [{"names": [name], "action": "SCMP_ACT_ALLOW", "args": [dict(test)]} for test in tests]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": errno.ENOSYS,
            "architectures": [named],
            "syscalls": rules,
        }
    )


_QUEUE_SECONDS = 300.0
"""Time limit for a container to start, while many others are started."""
_AT_ONCE = 2
"""The number of containers that start at the same time, and of idle ones that are kept for the next command."""
_INIT = f"{HOME}/.pullwright-init"
"""The path of its first process in a container.

Engines give a folder in memory the mode of the image's own folder of that name, and no image has this one.
"""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BEGUN = b"\x02pullwright: begun\x03"
_MAX_WORD_BYTES = 131_071
"""The longest argument. Linux allows 131,072 bytes for each, with the NUL character at its end."""
_SCRIPT = "PULLWRIGHT_SCRIPT"
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits} '\"$()-=/._<>&|")
_PIECE_BYTES = 1 << 16
_KILLED = -int(signal.SIGKILL)


def find_container_sandbox(
    wanted: str, options: SandboxOptions, inherited: Mapping[str, str] | None = None
) -> ContainerSandbox | None:
    """Find a sandbox of containers; None if the text names another one. A test command has run in it.

    Args:
        wanted: `docker:IMAGE` or `podman:IMAGE`.
        inherited: this program's variables; None reads them.

    Raises:
        SandboxMissingError: the engine or the image is not there, or cannot be used.
        ConfigurationError: a host or a path of the options is invalid.
    """
    if wanted.partition(":")[0] not in ENGINES:
        return None
    variables = os.environ if inherited is None else inherited
    sandbox = ContainerSandbox(*find_image(wanted, variables), options, variables)
    failure = try_sandbox(sandbox)
    if 'exec: "sh"' in failure or "executable file `sh`" in failure:
        failure = f"the image {sandbox.plan.image.name} has no sh, which starts commands; use one that has it"
    if failure:
        raise SandboxMissingError(
            f"no sandbox for commands: {' '.join(failure.split())}, {USE_SYSTEM_SANDBOX}"
        )
    return sandbox


class ContainerSandbox:
    """A `Sandbox` of containers. Created by `find_container_sandbox`."""

    def __init__(
        self,
        engine: ContainerEngine,
        image: ContainerImage,
        options: SandboxOptions,
        inherited: Mapping[str, str],
    ) -> None:
        self.options, self._inherited = options, dict(inherited)
        self.proxy = partial(Proxy, [host_rule(text) for text in options.hosts], options.connect)
        """Creates the proxy of one command."""
        readable = tuple(checked_grants(options.readable, inherited))
        init = init_program(image.architecture, _INIT, f"{HANDOVER}/socket", PROXY_PORT)
        if init is None:
            raise SandboxMissingError(
                f"no sandbox for commands: {image.name} is for {image.architecture} processors; "
                f"use an image for amd64 or arm64, {USE_SYSTEM_SANDBOX}"
            )
        octal = "".join(f"\\{byte:03o}" for byte in init)
        first = f"umask 077; printf '{octal}' >{_INIT} && chmod 700 {_INIT} && exec {_INIT}"
        self.plan = ContainerPlan(engine, image, options.limits, readable, first)
        self.name = self.plan.name

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. The image's variables override this machine's; folders that tools write to are private."""
        image = {name: value for name, value in self.plan.image.variables.items() if value}
        return {
            "PATH": _DEFAULT_PATH,
            **image,
            **private_folders(image, HOME),
            **user_variables(),
            "SHELL": "/bin/sh",
            **proxy_variables(),
        }

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`. Empty, because the image has its own toolchains."""
        return {}

    def open(self, folder: SandboxFolder) -> _OpenContainers:
        """See `Sandbox`."""
        check_root(folder.root, self._inherited)
        if any(char in folder.root for char in "\n\r"):
            raise ToolError(f"{folder.root!r} has a line break in its name, so it cannot be mounted")
        return _OpenContainers(self, folder)


class _OpenContainers:
    """An `OpenSandbox`: one container, started with the first command, that runs one command after the other.

    A command that starts while another one runs gets its own container. So no command sees another one's
    processes, and each may use all that the limits allow. A container that still has processes after a
    command is not used again.
    """

    def __init__(self, sandbox: ContainerSandbox, folder: SandboxFolder) -> None:
        self.sandbox, self.folder = sandbox, folder
        self._starting = asyncio.Semaphore(_AT_ONCE)
        self._idle: list[Container] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._made: dict[str, Protection] = {}
        self._closed = False

    def launch(self, command: Command) -> _ContainerLaunch:
        for path in [path for path in self._made if not self._is_empty(path)]:
            del self._made[path]  # a command has created a repository there
        script = _script(command, self.sandbox.options.limits, self.sandbox.plan.image)
        kept = [self._made.get(one.path, one) for one in protections(self.folder)]
        return _ContainerLaunch(self, script, kept)

    async def take(self, protections: Sequence[Protection]) -> Container:
        """Return a container in which no command runs; raise `ToolError` if none starts."""
        async with self._starting:
            if self._closed:
                raise ToolError("the sandbox was closed, so no command can run in it")
            return self._take_idle(protections) or await self._new(protections)

    def _take_idle(self, protections: Sequence[Protection]) -> Container | None:
        while self._idle:
            found = self._idle.pop()
            if found.is_alive() and found.protections == tuple(protections):
                return found
            self._end(found)
        return None

    async def _new(self, protections: Sequence[Protection]) -> Container:
        for one in protections:
            if one.is_missing:
                with ConfinedFolder(self.folder.root) as folder:
                    path = one.path.removeprefix(f"{self.folder.root}/")
                    if folder.find(path) is None:
                        folder.make_folder(path)
                        self._made[one.path] = one
        return await start_container(self.sandbox.plan, self.folder, protections)

    async def give_back(self, container: Container) -> None:
        """Keep a container for the next command if no process is left in it and few are kept, else end it."""
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
        self._closed = True
        while self._idle:
            self._end(self._idle.pop())
        await asyncio.gather(*self._ending)
        for path in self._made:
            with suppress(OSError), ConfinedFolder(self.folder.root) as folder:
                folder.remove_empty(path.removeprefix(f"{self.folder.root}/"))
        self._made.clear()

    def _is_empty(self, path: str) -> bool:
        with suppress(OSError), ConfinedFolder(self.folder.root) as folder:
            return not folder.entries(path.removeprefix(f"{self.folder.root}/"))
        return False


class _ContainerLaunch(WatchedLaunch):
    """A `Launch`: the engine runs a shell in a container, which reads its script from standard input.

    A command that has an input of its own gets the script in a variable instead. It is not an argument of the
    engine's program, because everybody on the machine can read those.
    """

    start_seconds = _QUEUE_SECONDS

    def __init__(self, opened: _OpenContainers, script: bytes, protections: Sequence[Protection]) -> None:
        super().__init__(opened.sandbox.proxy())
        self._opened, self._script, self._protections = opened, script, protections
        self._container: Container | None = None
        self._process: ChildProgram | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self, stdout: int, stderr: int, stdin: int | None = None) -> None:
        self._container = container = await self._opened.take(self._protections)
        engine, limits = self._opened.sandbox.plan.engine, self._opened.sandbox.options.limits
        given = {} if stdin is None else {_SCRIPT: _as_text(self._script)}
        reading = "cat" if stdin is None else f'printf %b "${_SCRIPT}"'
        named = [word for name in given for word in ("--env", name)]
        words = [engine.program, "exec", "--interactive", *named, container.name]
        with tempfile.TemporaryFile() as file:
            file.write(b"exec </dev/null\n" + self._script)
            file.seek(0)
            self._process = await start_program(
                *(*words, "sh", "-c", f'eval "$({reading})"'),
                stdin=file if stdin is None else stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env={**engine.variables, **given},
                cwd="/",
            )
        loop = asyncio.get_running_loop()
        self._following = loop.create_task(self._follow(self._process, os.dup(stderr)))
        await self._begun.wait()
        if self._finished.is_set():
            return
        await self._doors.serve(socket.socket(fileno=os.dup(container.listener)))
        self._watch = LimitWatch(
            os.dup(container.proc), self._opened.folder.root, limits, group=container.memory(limits)
        )
        self._watching = loop.create_task(self._watch.run(self.kill))

    async def _follow(self, process: asyncio.subprocess.Process, stderr: int) -> None:
        """Read the command's standard error to the end, and wait for the exit code."""
        try:
            error_output = await self._forward(process, stderr)
            self._code = await process.wait()
            if not self._begun.is_set():
                self._problem = last_line(error_output)
        finally:  # also when the task is cancelled because the program ends
            self._finished.set()
            self._begun.set()

    async def _forward(self, process: asyncio.subprocess.Process, stderr: int) -> bytes:
        """Forward the output after the mark with which the command begins; return the output before it."""
        assert process.stderr is not None  # noqa: S101  for the type checker
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()
        out, _ = await loop.connect_write_pipe(lambda: _WriteProtocol(closed), os.fdopen(stderr, "wb", 0))
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

    async def ended(self) -> int:
        if self._process is not None:
            await self._finished.wait()
        if self._killed:
            return _KILLED
        if self._problem:
            raise ToolError(f"the command could not be started: {self._problem}")
        return self._code

    def kill(self) -> None:
        """Kill the container's processes (see `Launch`); those that outlive the command are killed by its shell."""
        if self._finished.is_set() or self._process is None or self._container is None:
            return
        self._killed = True
        self._container.kill()
        with suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        self.kill()
        if self._following is not None:
            await self._following
        if self._process is not None:
            await self._process.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
        await self._doors.close()
        container, self._container = self._container, None
        if container is not None:
            if self.killed_for:  # the kernel may kill the first process next
                container.kill()
            await self._opened.give_back(container)


class _WriteProtocol(asyncio.BaseProtocol):
    """A protocol that sets a future when everything is written; asyncio calls `connection_lost` then."""

    def __init__(self, closed: asyncio.Future[None]) -> None:
        self._closed = closed

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)


def _script(command: Command, limits: SandboxLimits, image: ContainerImage) -> bytes:
    """Return the script for the shell in a container.

    It starts the command with its limits, and ends the processes that the command leaves running.
    """
    variables = {
        name: value
        for name, value in command.variables.items()
        if name not in VERSIONS or name in image.variables  # these select toolchains of this machine
    }
    assignments = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
    line, folder = os.fsencode(command.line), os.fsencode(command.folder)
    if any(b"\0" in text for text in (*assignments, line, folder)):
        raise ValueError("embedded null byte")
    if any(len(text) > _MAX_WORD_BYTES for text in (*assignments, line)):
        raise OSError(7, "Argument list too long")
    quoted = b" ".join(_quoted(text) for text in assignments)
    shell = b'"$(command -v bash || command -v sh)"'
    nice = b"$(command -v nice >/dev/null && echo nice -n %d)" % NICENESS
    return b"\n".join(
        [
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


def _as_text(script: bytes) -> str:
    """Return a script for `printf %b`, in ASCII: engines change other bytes. Raise `OSError` if it is too long."""
    text = "".join(chr(byte) if chr(byte) in _PLAIN else f"\\0{byte:03o}" for byte in script)
    if len(text) > _MAX_WORD_BYTES - len(_SCRIPT):
        raise OSError(7, "Argument list too long")
    return text


def _quoted(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
