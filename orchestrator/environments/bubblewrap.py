"""The sandbox of Linux: bubblewrap, told name by name what a command sees (https://github.com/containers/bubblewrap)."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.environments import mounts
from orchestrator.environments.cell import PROXY_PORT, Cell
from orchestrator.environments.hosts import host_rule
from orchestrator.environments.proxy import Proxy
from orchestrator.environments.readable import granted, is_above, program_folders, refuse_root
from orchestrator.environments.toolchains import toolchains

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.environments.command import Command
    from orchestrator.environments.confinement import Place, SandboxOptions


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
        more = granted(options.readable, inherited)
        tools = toolchains(inherited, more)
        readable = [*program_folders(inherited, tools.readable, tools.private), *more]
        rustup = [os.path.dirname(path) for path in readable if path.endswith("/.rustup/toolchains")]  # noqa: PTH120  names
        self._tools = {**({"RUSTUP_HOME": rustup[0]} if rustup else {}), **tools.variables}
        self._programs = mounts.programs(readable)
        folders, copies = mounts.etc()
        launcher = Path(__file__).with_name("launcher.py").read_bytes()
        self._copies = {**copies, **mounts.accounts(), mounts.LAUNCHER: launcher}
        self._fixed = [
            *_namespaces(walls), *mounts.proc(), *mounts.system(inherited), *folders,
            *mounts.scratch(options.limits.scratch_bytes, tools.private),
        ]  # fmt: skip
        self._made: Counter[str] = Counter()

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. What is on this machine itself needs no proxy: inside, that is the sandbox."""
        user = "root" if os.getuid() == 0 else "sandbox"
        fixed = {"HOME": mounts.HOME, "TMPDIR": "/tmp", "USER": user, "LOGNAME": user}  # noqa: S108  private
        return {**fixed, **proxy_variables(PROXY_PORT)}

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`."""
        return self._tools

    def launch(self, command: Command, place: Place) -> Cell:
        """See `Sandbox`."""
        problem = refuse_root(place.root, self._inherited)
        if problem:
            raise ToolError(problem)
        files: list[int] = []

        def file(content: bytes) -> str:
            files.append(_memory(content))
            return str(files[-1])

        try:
            walls, made = self._around(place, file)
            copies = [
                word
                for path, text in self._copies.items()
                for word in ("--perms", "0444", "--file", file(text), path)
            ]
            calls = file(self._walls.filter)
        except BaseException:
            for descriptor in files:
                os.close(descriptor)
            raise
        ends = ["--remount-ro", "/dev", "--remount-ro", "/", "--seccomp", calls, "--"]
        self._made.update(made)

        def build(channel: int) -> Sequence[str]:
            python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8"]
            return [
                *self._fixed, *copies, *walls, *ends, *python, mounts.LAUNCHER, str(channel), str(PROXY_PORT),
            ]  # fmt: skip

        return Cell(
            command,
            root=place.root,
            limits=self._options.limits,
            proxy=Proxy(self._rules, self._options.connect),
            build=build,
            files=files,
            at_end=lambda: self._take_away(made),
        )

    def _around(self, place: Place, file: Callable[[bytes], str]) -> tuple[list[str], list[str]]:
        """The mounts of one clone (programs, itself, what is protected in it), and folders made for them.

        Raises:
            ToolError: what is to be protected is a link.
        """
        outside = [words for path, words in self._programs if not is_above(place.root, path)]
        inside = [words for path, words in self._programs if is_above(place.root, path)]
        words = [word for mount in outside for word in mount]
        words += ["--bind", place.root, place.root]
        words += [word for mount in inside for word in mount]
        made: list[str] = []
        for name in place.protected:
            mount, copy, missing = mounts.protection(place.root, name)
            words += mount if copy is None else [mount[0], file(copy), *mount[1:]]
            path = os.path.join(place.root, name)  # noqa: PTH118  names, joined as they are
            if missing or self._made[path]:
                made.append(path)
        return words, made

    def _take_away(self, made: Sequence[str]) -> None:
        """Remove the empty folders that were made to be covered, with the last command that has them."""
        self._made.subtract(made)
        for path in made:
            if self._made[path] <= 0:
                del self._made[path]
                with suppress(OSError):  # it is not empty, or not there: the mount was never made
                    os.rmdir(path)  # noqa: PTH106  a name


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
    return [*words, "--cap-drop", "ALL", "--clearenv", "--hostname", mounts.HOST_NAME, "--chdir", "/"]


def _memory(content: bytes) -> int:
    descriptor = os.memfd_create("pullwright")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
