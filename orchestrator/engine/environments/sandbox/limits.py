"""The limits of a sandbox: a control group counts memory, and a watch from outside counts the rest.

Both versions of control groups are supported: https://docs.kernel.org/admin-guide/cgroup-v2.html and
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
    from collections.abc import Callable, Mapping

    from orchestrator.engine.environments.base import Doors, SandboxLimits

NICENESS = 10
"""The niceness of commands, so that the watch outside is scheduled among thousands of processes."""
_INTERVAL_SECONDS = 0.1
_KIB = 1_024
_SHOWN_BYTES = 1_000_000

_PREFIX = "pullwright"
_GROUPS = "/sys/fs/cgroup"
_group_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version of control groups.

    Attributes:
        limits: files that get the limit in bytes; the first must exist.
        switches: files that get a fixed value. `memory.oom.group` makes the kernel end all processes
            together.
        events: a file with a line `oom_kill`: the number of processes that the kernel killed because memory
            ran out.
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
"""Where groups can be created. This is found by trying, which takes longer than everything else."""
_leftover_groups: set[Path] = set()
"""Groups of this program in which a process was still ending when they were closed."""


class MemoryGroup:
    """A control group with a limit of memory. Earlier kills by the kernel are not counted."""

    def __init__(self, events: Path) -> None:
        self._events, self._before = events, _oom_kills(events)

    def was_full(self) -> bool:
        """Return whether the kernel killed a process because the limit was reached."""
        return _oom_kills(self._events) > self._before

    def close(self) -> None:
        """Do nothing: whoever made the group removes it."""


class ControlGroup(MemoryGroup):
    """A control group for one command. It is empty until a process enters; child processes are in it too.

    Attributes:
        entrance: an open file. A process enters when its number is written to the file, or when it writes `0`
            itself.
    """

    def __init__(self, folder: Path, version: _Version, limit: int) -> None:
        super().__init__(folder / version.events)
        self._folder = folder
        self.entrance = -1
        try:
            first, *others = version.limits
            _set(folder / first, str(limit))
            for name, value in [*((name, str(limit)) for name in others), *version.switches.items()]:
                with suppress(OSError):  # the kernel does not count swap, or has no such file
                    _set(folder / name, value)
            self.entrance = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the group. If a process in it is still ending, a later group removes it."""
        entrance, self.entrance = self.entrance, -1
        if entrance >= 0:
            os.close(entrance)
        _leftover_groups.add(self._folder)
        _remove_leftover_groups()


def make_group(limit: int, *, own: str = "/proc/self/cgroup", root: str = _GROUPS) -> ControlGroup | None:
    """Create a group below this program's own or below an ancestor of it; None if this user may create none.

    In version 2 only a group without processes can limit the groups in it. So it is created in an ancestor,
    such as the group of a user's own services, but in none above a group that limits this program's memory.

    Args:
        limit: memory limit in bytes.
        own: the file in which the kernel lists the groups of this program.
        root: the folder where groups are mounted.
    """
    known = _known.pop((own, root), None)
    for parent, version in [known] if known else _parents(Path(own), Path(root)):
        folder = parent / f"{_PREFIX}-{os.getpid()}-{next(_group_numbers)}"
        with suppress(OSError):
            folder.mkdir()
            group = ControlGroup(folder, version, limit)
            if not known:  # also remove the groups of programs that have ended
                _leftover_groups.update(
                    one
                    for one in parent.glob(f"{_PREFIX}-*-*")
                    if not os.path.exists(f"/proc/{one.name.split('-')[1]}")
                )
                _remove_leftover_groups()
            _known[own, root] = parent, version
            return group
    return None


def group_of(process: int, limit: int) -> MemoryGroup | None:
    """Return the group of a process; None if it is not visible, or has no such limit (in bytes)."""
    for folder, version in _parents(Path(f"/proc/{process}/cgroup"), Path(_GROUPS))[:1]:
        with suppress(OSError, ValueError):
            if int((folder / version.limits[0]).read_text("ascii")) <= limit:
                return MemoryGroup(folder / version.events)
    return None


def _oom_kills(events: Path) -> int:
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in events.read_text("ascii").splitlines())
        return int(counts.get("oom_kill", 0))
    return 0


def _parents(own: Path, root: Path) -> list[tuple[Path, _Version]]:
    """Return the folders in which a group may be created, the nearest first."""
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
                        break  # a limit of this program is also one of its commands
    return found


def _set(file: Path, value: str) -> None:
    """Write to an existing file of the kernel; a missing file is not created."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _remove_leftover_groups() -> None:
    for folder in list(_leftover_groups):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY:
                continue
        _leftover_groups.discard(folder)


def limits_as_shell(limits: SandboxLimits) -> str:
    """Return shell text that sets the limits of one process, where they are not lower already.

    Units of `ulimit`: POSIX for `-f`, and for the others those on which all shells agree.
    """
    values = {
        "-c": 0,
        "-d": limits.memory() // 1_024,
        "-f": limits.file_bytes // 512,
        "-n": limits.open_files,
    }
    return "; ".join(f"ulimit {option} {value} 2>/dev/null || :" for option, value in values.items())


def _free_bytes(root: str) -> int:
    """Return the free bytes on the disk of a folder that this user may use."""
    with suppress(OSError):
        found = os.statvfs(root)
        return found.f_bavail * found.f_frsize
    return 1 << 62  # unknown, so the command is not stopped


def _shared_bytes() -> int:
    """Return the bytes of memory in use on the whole machine that are private to no process.

    That is shared memory, temporary files, and memory of the kernel for sockets, pipes and tables: all that
    `/proc/meminfo` does not list as free, as a copy of a disk, as reclaimable, or as private.
    """
    with suppress(OSError):
        folder = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fields = _fields(folder, "meminfo")
        finally:
            os.close(folder)
        others = ("MemFree", "SReclaimable", "AnonPages", "Buffers", "Cached", "SwapCached")
        # "Cached" counts shared memory too
        shared = (
            fields.get("MemTotal", 0) + fields.get("Shmem", 0) - sum(fields.get(name, 0) for name in others)
        )
        return shared * _KIB
    return 0


class LimitWatch:
    """Watches what the kernel does not limit: a command's processes, their memory, the clone's disk.

    With a control group the kernel itself counts and limits memory. Without one, memory is the sum of the
    private memory of all processes and of the growth of the memory shared on the whole machine since the
    command began. So shared memory that other programs allocate meanwhile counts too, and memory that the
    command allocates and frees within `_INTERVAL_SECONDS` is not seen.

    Args:
        proc: the sandbox's `/proc`, an open folder; this object closes it.
        root: the clone.
        free_bytes: returns the free bytes on the disk of a folder.
        shared_bytes: returns the shared memory of the machine, see `_shared_bytes`.
        group: the group with all processes of the sandbox; this object closes it.
    """

    def __init__(  # noqa: PLR0913  by name
        self,
        proc: int,
        root: str,
        limits: SandboxLimits,
        free_bytes: Callable[[str], int] = _free_bytes,
        *,
        shared_bytes: Callable[[], int] = _shared_bytes,
        group: MemoryGroup | None = None,
    ) -> None:
        self._proc = proc
        self._root = root
        self._limits = limits
        self._memory = limits.memory()
        self._group = group
        self._shared_bytes, self._free_bytes = shared_bytes, free_bytes
        self._least_shared = shared_bytes()
        self._disk_floor = min(limits.disk_floor_bytes, free_bytes(root) // 2)
        self._reason = ""

    @property
    def reason(self) -> str:
        """The limit that was exceeded; empty if none was."""
        if not self._reason and self._group is not None and self._group.was_full():
            self._reason = self._too_much_memory()
        return self._reason

    async def run(self, kill: Callable[[], None]) -> None:
        """Check every `_INTERVAL_SECONDS` until a limit is exceeded; then call `kill`."""
        while not self._reason:
            await asyncio.sleep(_INTERVAL_SECONDS)  # a command that has just started uses little
            self._reason = self.exceeded()
        kill()

    def exceeded(self) -> str:
        """Return the limit that is exceeded now; empty if none is."""
        threads, private = self._usage()
        if threads > self._limits.processes:
            return f"more than {self._limits.processes:,} processes and threads"
        if self._group is not None:
            if self._group.was_full():
                return self._too_much_memory()
        else:
            shared = self._shared_bytes()
            # At first, memory of a process that has just ended may still be in use.
            self._least_shared = min(self._least_shared, shared)
            grown = shared - self._least_shared
            if private + grown > self._memory and self._exact_private_bytes() + grown > self._memory:
                return self._too_much_memory()
        if self._free_bytes(self._root) < self._disk_floor:
            return "so much disk that almost none is left"
        return ""

    def terminate(self) -> bool:
        """Send SIGTERM to every process but the first, which ends after them; return whether one was sent."""
        is_sent = False
        for number in self._process_numbers():
            if number == "1":
                continue
            with suppress(OSError):
                process = os.open(number, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
                try:  # the folder stays that of this process even if its number is reused
                    signal.pidfd_send_signal(process, signal.SIGTERM)
                    is_sent = True
                finally:
                    os.close(process)
        return is_sent

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

    def _process_numbers(self) -> list[str]:
        if self._proc < 0:
            return []
        with suppress(OSError):
            return [name for name in os.listdir(self._proc) if name.isdigit()]
        return []

    def _usage(self) -> tuple[int, int]:
        """Return the number of threads, and the bytes of private memory, of all processes.

        If there are more processes than allowed, they are not read, and the memory is 0.
        """
        numbers = self._process_numbers()
        if len(numbers) > self._limits.processes:
            return len(numbers), 0
        threads = private = 0
        for number in numbers:
            fields = _fields(self._proc, f"{number}/status")
            threads += fields.get("Threads", 0)
            private += _private_kib(fields)
        return threads, private * _KIB

    def _exact_private_bytes(self) -> int:
        """Return the bytes of private memory, where memory shared since a fork counts once. This is slower."""
        private = 0
        for number in self._process_numbers():
            fields = _fields(self._proc, f"{number}/smaps_rollup")
            if "Pss_Anon" in fields:
                private += fields["Pss_Anon"] + fields.get("SwapPss", 0)
            else:  # no permission, or the kernel has no such line
                private += _private_kib(_fields(self._proc, f"{number}/status"))
        return private * _KIB


def _private_kib(status: Mapping[str, int]) -> int:
    return status.get("RssAnon", 0) + status.get("VmSwap", 0)


def _fields(folder: int, path: str) -> dict[str, int]:
    """Return the numbers of a file with lines such as `RssAnon: 12 kB`; empty if the process is gone."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    pairs = (line.decode("ascii", "replace").split()[:2] for line in lines)
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}


class WatchedLaunch(ABC):
    """The base class of a `Launch` that is watched from outside: its doors, its watch, and its exit state."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._watch: LimitWatch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._killed = False
        self._problem = ""
        self._code = -int(signal.SIGKILL)
        self._begun, self._finished = asyncio.Event(), asyncio.Event()

    @property
    def killed_for(self) -> str:
        """See `Launch`."""
        return self._watch.reason if self._watch else ""

    @property
    def refused_hosts(self) -> tuple[str, ...]:
        """See `Launch`."""
        return self._doors.refused

    @abstractmethod
    def kill(self) -> None:
        """See `Launch`."""

    def terminate(self) -> None:
        """See `Launch`."""
        if self._watch is None or not self._watch.terminate():
            self.kill()
