"""The sandbox of Linux: bubblewrap, told name by name what a command sees (https://github.com/containers/bubblewrap)."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.environments.cell import PROXY_PORT, Cell
from orchestrator.environments.hosts import host_rule
from orchestrator.environments.proxy import Proxy
from orchestrator.environments.readable import (
    SYSTEM,
    granted,
    is_above,
    program_folders,
    refuse_root,
    system_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.environments.command import Command
    from orchestrator.environments.confinement import Place, SandboxOptions

HOME = "/home/sandbox"
LAUNCHER = "/run/launcher.py"
_HOST_NAME = "sandbox"
_SMALL_BYTES = 16 << 20
_SHARED_BYTES = 256 << 20
_PLAIN_MODE = 0o444
_TELLING = frozenset({"kallsyms", "kcore", "key-users", "keys", "kmsg", "sched_debug", "timer_list"})
"""Files of `/proc` that speak of the machine and are readable by everybody or by root."""


@dataclass(frozen=True, slots=True)
class Walls:
    """What of the sandbox is the same for every command.

    Attributes:
        program: bubblewrap.
        filter: of kernel calls, see `seccomp`.
        no_nested: whether this bubblewrap and kernel can forbid user namespaces inside.
    """

    program: str
    filter: bytes
    no_nested: bool


class BubblewrapSandbox:
    """A `Sandbox` of namespaces: files, processes, network, users. Made by `find_sandbox`.

    Args:
        walls: see there.
        options: what the person who runs this grants.
        inherited: this program's variables; its path says which programs are readable.

    Raises:
        ConfigurationError: a host or a path of the options makes no sense.
    """

    name = "bubblewrap"

    def __init__(self, walls: Walls, options: SandboxOptions, inherited: Mapping[str, str]) -> None:
        self._walls = walls
        self._options = options
        self._inherited = dict(inherited)
        self._rules = [host_rule(text) for text in options.hosts]
        self._readable = [*program_folders(inherited), *granted(options.readable, inherited)]
        self._fixed = [
            *_namespaces(walls), *_system(), *_proc(), *_scratch(options.limits.scratch_bytes),
        ]  # fmt: skip

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. What is on this machine itself needs no proxy: inside, that is the sandbox."""
        user = "root" if os.getuid() == 0 else "sandbox"
        fixed = {"HOME": HOME, "TMPDIR": "/tmp", "USER": user, "LOGNAME": user}  # noqa: S108  private
        rustup = [path for path in self._readable if path.endswith("/.rustup/toolchains")]
        if rustup:
            fixed["RUSTUP_HOME"] = os.path.dirname(rustup[0])  # noqa: PTH120  a name
        return {**fixed, **proxy_variables(PROXY_PORT)}

    def launch(self, command: Command, place: Place) -> Cell:
        """See `Sandbox`."""
        problem = refuse_root(place.root, self._inherited)
        if problem:
            raise ToolError(problem)
        walls = self.around(place)
        files = {"seccomp": _memory(self._walls.filter)}
        files |= {path: _memory(text.encode()) for path, text in _accounts().items()}
        written = [
            word for path, fd in files.items() if path != "seccomp" for word in ("--file", str(fd), path)
        ]
        ends = ["--remount-ro", "/dev", "--remount-ro", "/run", "--remount-ro", "/"]

        def build(channel: int) -> Sequence[str]:
            head = [*self._fixed, *written, *walls, *ends, "--seccomp", str(files["seccomp"]), "--"]
            return [*head, os.path.realpath(sys.executable), "-I", "-S", LAUNCHER, str(channel)]

        return Cell(
            command,
            root=place.root,
            limits=self._options.limits,
            proxy=Proxy(self._rules, self._options.connect),
            build=build,
            files=list(files.values()),
        )

    def around(self, place: Place) -> list[str]:
        """The mounts of one clone: itself, what is protected in it, and the readable folders.

        Raises:
            ToolError: what is to be protected is a link.
        """
        above = [path for path in self._readable if not is_above(place.root, path)]
        inside = [path for path in self._readable if is_above(place.root, path)]
        words = [word for path in sorted(above) for word in ("--ro-bind-try", path, path)]
        words += ["--bind", place.root, place.root]
        words += [word for path in sorted(inside) for word in ("--ro-bind-try", path, path)]
        for name in place.protected:
            path = os.path.join(place.root, name)  # noqa: PTH118  names, joined as they are
            if os.path.islink(path):  # noqa: PTH114  the same
                raise ToolError(
                    f"{name} is a symbolic link, so a sandbox cannot protect it; no command runs here"
                )
            if os.path.lexists(path):
                words += ["--ro-bind", path, path]
        return words


def proxy_variables(port: int) -> dict[str, str]:
    """What makes programs use the proxy; both spellings are in use."""
    address = f"http://127.0.0.1:{port}"
    names = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address)
    names["NO_PROXY"] = "localhost,127.0.0.1,::1"
    return {spelled: value for name, value in names.items() for spelled in (name, name.lower())}


def _namespaces(walls: Walls) -> list[str]:
    words = [walls.program, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]
    words += ["--disable-userns"] if walls.no_nested else []
    words += ["--uid", str(os.getuid()), "--gid", str(os.getgid())]  # else git takes the clone for another's
    return [*words, "--cap-drop", "ALL", "--clearenv", "--hostname", _HOST_NAME, "--chdir", "/"]


def _system() -> list[str]:
    words: list[str] = []
    for folder in SYSTEM:
        if os.path.islink(folder):  # noqa: PTH114  a name
            words += ["--symlink", os.readlink(folder), folder]  # noqa: PTH115  a name
        elif os.path.isdir(folder):  # noqa: PTH112  a name
            words += ["--ro-bind", folder, folder]
    for path in system_files():
        words += ["--ro-bind-try", path, path]
    return words


def _proc() -> list[str]:
    """A new `/proc`, of which nothing but the processes can be changed.

    Root keeps the right to write to the files of `/proc/sys` without any capability: they ask
    for the user, not for capabilities. So what is not a process is covered.
    """
    words = ["--proc", "/proc", "--dev", "/dev"]
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        mode = entry.lstat().st_mode
        if stat.S_ISDIR(mode):
            words += ["--ro-bind-try", str(entry), str(entry)]
        elif stat.S_IMODE(mode) != _PLAIN_MODE or entry.name in _TELLING:
            words += ["--ro-bind-try", "/dev/null", str(entry)]
    return words


def _scratch(size: int) -> list[str]:
    sizes = {"/run": _SMALL_BYTES, "/dev/shm": _SHARED_BYTES, "/tmp": size, "/var/tmp": size, HOME: size}  # noqa: S108  private
    words: list[str] = []
    for folder, most in sizes.items():
        mode = "0700" if folder == HOME else "0755" if folder == "/run" else "1777"
        words += ["--perms", mode, "--size", str(most), "--tmpfs", folder]
    return [*words, "--ro-bind", str(Path(__file__).with_name("launcher.py")), LAUNCHER]


def _accounts() -> dict[str, str]:
    """Files of `/etc` that say who is there: this user without a name of the host, and nobody."""
    user, group = os.getuid(), os.getgid()
    name = "root" if user == 0 else "sandbox"
    people = [f"{name}:x:{user}:{group}::{HOME}:/bin/bash", "nobody:x:65534:65534::/nonexistent:/bin/false"]
    groups = [f"{name}:x:{group}:", "nogroup:x:65534:"]
    hosts = f"127.0.0.1 localhost {_HOST_NAME}\n::1 localhost\n"
    return {
        "/etc/passwd": "\n".join([*people, ""]),
        "/etc/group": "\n".join([*groups, ""]),
        "/etc/hosts": hosts,
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }


def _memory(content: bytes) -> int:
    descriptor = os.memfd_create("pullwright")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
