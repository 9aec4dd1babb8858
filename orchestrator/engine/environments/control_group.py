"""A control group of the kernel for one command: its memory is counted and limited with all that the kernel holds for it.

Both versions are spoken: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_PREFIX = "pullwright"
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
"""Where groups can be made, which is found by trying; that takes longer than all the rest."""
_left: set[Path] = set()
"""Groups of this program in which a process was still ending when they were closed."""


class MemoryGroup(Protocol):
    """Counts the memory of all processes of a command, and limits it."""

    def was_full(self) -> bool:
        """Whether the kernel ended a process because the limit was reached."""

    def close(self) -> None:
        """Let go of it."""


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


def make_group(
    limit: int, *, own: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup"
) -> ControlGroup | None:
    """A new group below this program's own, or below one above that; None where this user may make none.

    In version 2 only a group without processes can limit the groups in it, so it is one above, such as
    that of a user's own services; none is where this program itself has a limit there.

    Args:
        limit: bytes.
        own: where the kernel says in which groups this program is.
        root: where groups are mounted.
    """
    known = _known.pop((own, root), None)
    for parent, version in [known] if known else _parents(Path(own), Path(root)):
        folder = parent / f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        with suppress(OSError):
            folder.mkdir()
            group = ControlGroup(folder, version, limit)
            if not known:
                _sweep(parent)
            _known[own, root] = parent, version
            return group
    return None


class ContainerGroup:
    """The group that an engine made for a container. What was ended before this object was made does not count."""

    def __init__(self, events: Path) -> None:
        self._events, self._before = events, _ended_by_kernel(events)

    def was_full(self) -> bool:
        """See `MemoryGroup`."""
        return _ended_by_kernel(self._events) > self._before

    def close(self) -> None:
        """See `MemoryGroup`. The engine removes it."""


def group_of(process: int, limit: int, *, root: str = "/sys/fs/cgroup") -> ContainerGroup | None:
    """The group of a process, where it holds the limit; None where it does not, or cannot be seen.

    Args:
        process: its number.
        limit: bytes.
        root: where groups are mounted.
    """
    for folder, version in _parents(Path(f"/proc/{process}/cgroup"), Path(root))[:1]:
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
                if _is_limited(root / above):  # what a person set for this program holds for its commands too
                    break
    return found


def _is_limited(group: Path) -> bool:
    with suppress(OSError):
        return (group / _V2.limits[0]).read_text("ascii").strip() != "max"
    return False


def _set(file: Path, value: str) -> None:
    """Write to a file of the kernel's, and make none where it has none."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _sweep(parent: Path) -> None:
    """Remove groups that programs left which are no more."""
    dead = (
        folder
        for folder in parent.glob(f"{_PREFIX}-*-*")
        if not os.path.exists(f"/proc/{folder.name.split('-')[1]}")  # noqa: PTH110  a name
    )
    _left.update(dead)
    _remove_left()


def _remove_left() -> None:
    for folder in list(_left):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY:
                continue
        _left.discard(folder)
