"""The limits of a sandbox: a control group of the kernel counts memory, and a watch from outside counts the rest.

Both versions of control groups are spoken: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.environments.base import SandboxLimits
    from orchestrator.engine.environments.sandbox.proxy import Proxy

_PREFIX = "pullwright"
_GROUPS = "/sys/fs/cgroup"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version.

    Attributes:
        limits: get the limit in bytes; the first must be there.
        switches: get a value. `memory.oom.group` ends all processes with the first.
        events: has a line `oom_kill` with the number of processes that the kernel ended for want of memory.
    """

    limits: tuple[str, ...]
    switches: dict[str, str]
    events: str


_V1 = _Version(
    ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"),
    {},
    "memory.oom_control",
)
_V2 = _Version(("memory.max",), {"memory.swap.max": "0", "memory.oom.group": "1"}, "memory.events")


_known: dict[tuple[str, str], tuple[Path, _Version]] = {}
"""Where groups can be made. This is found by trying, which takes longer than all the rest."""
_left: set[Path] = set()
"""Groups of this program in which a process was still ending when they were closed."""


class ControlGroup:
    """A group. It is empty until a process comes in; those that it starts then are in it too.

    Attributes:
        entrance: an open file. A process comes in whose number is written to it, or that writes `0` itself.
    """

    def __init__(self, folder: Path, version: _Version, limit: int) -> None:
        self._folder, self._version = folder, version
        self.entrance = -1
        try:
            first, *others = version.limits
            _set(folder / first, str(limit))
            for name, value in [*((name, str(limit)) for name in others), *version.switches.items()]:
                with suppress(OSError):  # this kernel counts no swap, or has no such switch
                    _set(folder / name, value)
            self.entrance = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:
            self.close()
            raise

    def was_full(self) -> bool:
        """Whether the kernel ended a process because the limit was reached."""
        return _ended_by_kernel(self._folder / self._version.events) > 0

    def close(self) -> None:
        """Remove it. Where a process is still ending, one of the next groups does it."""
        entrance, self.entrance = self.entrance, -1
        if entrance >= 0:
            os.close(entrance)
        _left.add(self._folder)
        _remove_left()


def make_group(limit: int, *, own: str = "/proc/self/cgroup", root: str = _GROUPS) -> ControlGroup | None:
    """A new group below this program's own, or below one above that; None where this user may make none.

    In version 2 only a group without processes can limit the groups in it, so it is made in one above, such as that of
    a user's own services. None is made where this program itself has a limit.

    Args:
        limit: in bytes.
        own: where the kernel says in which groups this program is.
        root: where groups are mounted.
    """
    known = _known.pop((own, root), None)
    for parent, version in [known] if known else _parents(Path(own), Path(root)):
        folder = parent / f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        with suppress(OSError):
            folder.mkdir()
            group = ControlGroup(folder, version, limit)
            if not known:  # groups of programs that have ended
                _left.update(
                    one
                    for one in parent.glob(f"{_PREFIX}-*-*")
                    if not os.path.exists(f"/proc/{one.name.split('-')[1]}")  # noqa: PTH110  a name
                )
                _remove_left()
            _known[own, root] = parent, version
            return group
    return None


class ContainerGroup:
    """The group that an engine made for a container. Processes that the kernel ended before do not count."""

    def __init__(self, events: Path) -> None:
        self._events, self._before = events, _ended_by_kernel(events)

    def was_full(self) -> bool:
        """See `ControlGroup`."""
        return _ended_by_kernel(self._events) > self._before

    def close(self) -> None:
        """Do nothing: the engine removes it."""


def group_of(process: int, limit: int) -> ContainerGroup | None:
    """The group of a process; None where it cannot be seen, or has no such limit (in bytes)."""
    for folder, version in _parents(Path(f"/proc/{process}/cgroup"), Path(_GROUPS))[:1]:
        with suppress(OSError, ValueError):
            if int((folder / version.limits[0]).read_text("ascii")) <= limit:
                return ContainerGroup(folder / version.events)
    return None


def _ended_by_kernel(events: Path) -> int:
    """How many processes of a group the kernel ended for want of memory."""
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in events.read_text("ascii").splitlines())
        return int(counts.get("oom_kill", 0))
    return 0


def _parents(own: Path, root: Path) -> list[tuple[Path, _Version]]:
    """Where a group may be made, the nearest first."""
    found: list[tuple[Path, _Version]] = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inner = Path(path.lstrip("/"))
        if "memory" in controllers.split(","):
            found.append((root / "memory" / inner, _V1))
        elif not controllers and (root / "cgroup.controllers").exists():
            for above in (inner, *inner.parents):
                found.append((root / above, _V2))
                with suppress(OSError):
                    if (root / above / _V2.limits[0]).read_text("ascii").strip() != "max":
                        break  # a limit of this program is one of its commands too
    return found


def _set(file: Path, value: str) -> None:
    """Write to a file of the kernel's, and make none where it has none."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _remove_left() -> None:
    for folder in list(_left):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY:
                continue
        _left.discard(folder)


NICENESS = 10
"""Of commands: what watches from outside must get its turn among thousands."""
_INTERVAL_SECONDS = 0.1
_KIB = 1_024
_SHOWN_BYTES = 1_000_000


def limits_as_shell(limits: SandboxLimits) -> str:
    """Shell text that sets limits of one process, where they are not lower already.

    Units of `ulimit`: POSIX for `-f`, and what all shells agree on.
    """
    values = {
        "-c": 0,
        "-d": limits.memory() // 1_024,
        "-f": limits.file_bytes // 512,
        "-n": limits.open_files,
    }
    return "; ".join(f"ulimit {option} {value} 2>/dev/null || :" for option, value in values.items())


def _free_bytes(root: str) -> int:
    """What is left for this user."""
    with suppress(OSError):
        found = os.statvfs(root)
        return found.f_bavail * found.f_frsize
    return 1 << 62  # unknown: no reason to stop


def _shared_bytes() -> int:
    """Memory in use on the whole machine that is private to no process: shared memory, temporary files, and what the
    kernel holds in sockets, pipes and tables."""  # noqa: D205, D209  the summary needs two lines
    # all that `/proc/meminfo` does not name as free, as a copy of a disk, as reclaimable, or as private
    with suppress(OSError):
        folder = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fields = _fields(folder, "meminfo")
        finally:
            os.close(folder)
        copies = sum(fields.get(name, 0) for name in ("Buffers", "Cached", "SwapCached")) - fields.get(
            "Shmem", 0
        )
        others = sum(fields.get(name, 0) for name in ("MemFree", "SReclaimable", "AnonPages"))
        return (fields.get("MemTotal", 0) - copies - others) * _KIB
    return 0


class Watch:
    """Watches what the kernel does not limit: the processes of a command together, their memory, and the clone's disk.

    With a control group the kernel itself counts and limits memory. Without one it is the sum of what is private to
    the processes and of what the memory shared on the whole machine has grown by since the command began. So what
    other programs take of that in the meantime counts too, and what a command takes and gives back within
    `_INTERVAL_SECONDS` is not seen.

    Args:
        proc: an open folder, the sandbox's `/proc`; this object closes it.
        root: the clone.
        free: how many bytes are left on the disk of a folder.
        held: see `_shared_bytes`.
        group: has all processes of the sandbox in it; this object closes it.
    """

    def __init__(  # noqa: PLR0913  by name
        self,
        proc: int,
        root: str,
        limits: SandboxLimits,
        free: Callable[[str], int] = _free_bytes,
        *,
        held: Callable[[], int] = _shared_bytes,
        group: ControlGroup | ContainerGroup | None = None,
    ) -> None:
        self._proc = proc
        self._root = root
        self._limits = limits
        self._memory = limits.memory()
        self._group = group
        self._held = held
        self._held_least = held()
        self._free = free
        self._floor = min(limits.disk_floor_bytes, free(root) // 2)
        self._reason = ""

    @property
    def reason(self) -> str:
        """The limit that was passed, or nothing."""
        if not self._reason and self._group is not None and self._group.was_full():
            self._reason = self._too_much_memory()
        return self._reason

    async def run(self, kill: Callable[[], None]) -> None:
        """Look every `_INTERVAL_SECONDS` until a limit is passed; then kill."""
        while not self._reason:
            await asyncio.sleep(_INTERVAL_SECONDS)  # there is nothing to see before
            self._reason = self.passed()
        kill()

    def passed(self) -> str:
        """The limit that is passed now, or nothing."""
        threads, private = self._usage()
        if threads > self._limits.processes:
            return f"more than {self._limits.processes:,} processes and threads"
        if self._group is not None:
            if self._group.was_full():
                return self._too_much_memory()
        else:
            held = self._held()
            self._held_least = min(
                self._held_least, held
            )  # what ended just before may still be on its way out
            grown = held - self._held_least
            if private + grown > self._memory and self._exactly() + grown > self._memory:
                return self._too_much_memory()
        if self._free(self._root) < self._floor:
            return "so much disk that almost none is left"
        return ""

    def terminate(self) -> bool:
        """Send SIGTERM to every process but the first, which ends with the others."""
        asked = False
        for number in self._numbers():
            if number == "1":
                continue
            with suppress(OSError):
                process = os.open(number, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
                try:  # the folder stands for this process, not for its number
                    signal.pidfd_send_signal(process, signal.SIGTERM)
                    asked = True
                finally:
                    os.close(process)
        return asked

    def close(self) -> None:
        """Close the folder and the group."""
        if self._group is not None:
            self._reason = self.reason
            self._group.close()
            self._group = None
        descriptor, self._proc = self._proc, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _too_much_memory(self) -> str:
        return f"more than {self._memory // _SHOWN_BYTES:,} MB of memory"

    def _numbers(self) -> list[str]:
        if self._proc < 0:
            return []
        with suppress(OSError):
            return [
                name
                for name in os.listdir(self._proc)  # noqa: PTH208  a descriptor
                if name.isdigit()
            ]
        return []

    def _usage(self) -> tuple[int, int]:
        """Threads, and bytes of private memory, of all processes; more processes than allowed are not read."""
        numbers = self._numbers()
        if len(numbers) > self._limits.processes:
            return len(numbers), 0
        threads = private = 0
        for number in numbers:
            fields = _fields(self._proc, f"{number}/status")
            threads += fields.get("Threads", 0)
            private += fields.get("RssAnon", 0) + fields.get("VmSwap", 0)
        return threads, private * _KIB

    def _exactly(self) -> int:
        """Bytes of private memory. What processes share since a fork counts once. This takes longer."""
        private = 0
        for number in self._numbers():
            fields = _fields(self._proc, f"{number}/smaps_rollup")
            if "Pss_Anon" in fields:
                private += fields["Pss_Anon"] + fields.get("SwapPss", 0)
            else:  # it may not be read, or this kernel has no such line
                fields = _fields(self._proc, f"{number}/status")
                private += fields.get("RssAnon", 0) + fields.get("VmSwap", 0)
        return private * _KIB


def _fields(folder: int, path: str) -> dict[str, int]:
    """The numbers of a file with lines such as `RssAnon: 12 kB`; nothing where the process is gone."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:  # noqa: PTH123  a descriptor
            lines = file.read().splitlines()
    except OSError:
        return {}
    pairs = (line.decode("ascii", "replace").split()[:2] for line in lines)
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}


class WatchedLaunch(ABC):
    """What each `Launch` has that is watched from outside: a proxy, a watch, and how the command ended."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._watch: Watch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._killed = False
        self._problem = ""
        self._code = -int(signal.SIGKILL)
        self._begun, self._gone = asyncio.Event(), asyncio.Event()

    @property
    def killed_for(self) -> str:
        """See `Launch`."""
        return self._watch.reason if self._watch else ""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """See `Launch`."""
        return self._proxy.refused

    @abstractmethod
    def kill(self) -> None:
        """See `Launch`."""

    def terminate(self) -> None:
        """See `Launch`."""
        if self._watch is None or not self._watch.terminate():
            self.kill()
