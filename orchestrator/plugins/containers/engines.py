"""Containers: the engine of this machine (`docker` or `podman`), an image that it has, and their start."""

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
import subprocess
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.redaction import is_secret
from orchestrator.engine.environments.commands import until_ready, wait_or_kill
from orchestrator.engine.environments.sandbox.limits import group_of
from orchestrator.engine.environments.sandbox.proxy import proxy_variables
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
    scratch_folders,
)
from orchestrator.plugins.containers.first_process import HANDED_OVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.environments.base import SandboxFolder, SandboxLimits
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

    Raises:
        SandboxMissingError: there is no such engine or image; the message says what to do.
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
