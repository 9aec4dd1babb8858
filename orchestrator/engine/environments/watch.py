"""Watches a sandbox from outside through its own `/proc`: counts, weighs, and signals what runs inside."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.engine.environments.confinement import Limits
    from orchestrator.engine.environments.control_group import MemoryGroup

INTERVAL_SECONDS = 0.1
_KIB = 1_024
_SHOWN_BYTES = 1_000_000


def free_bytes(root: str) -> int:
    """What is left for this user."""
    with suppress(OSError):
        found = os.statvfs(root)
        return found.f_bavail * found.f_frsize
    return 1 << 62  # not to be known: no reason to stop


def held_bytes() -> int:
    """What is in use on the whole machine and is no process's own: shared memory, temporary files, and what the
    kernel holds in sockets, pipes and tables. It is what `/proc/meminfo` does not name as free, as a copy of a disk,
    as reclaimable, or as private memory."""  # noqa: D205, D209  the summary needs two lines
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
    """What no limit of the kernel covers: all processes together, as root too, their memory, and the clone's disk.

    With a control group the kernel itself counts and limits memory. Without one it is the sum of what is
    private to the processes and of what the whole machine holds beside that since the command began: what
    other programs take of it in that time counts too, and what a command takes and gives back within
    `INTERVAL_SECONDS` is not seen.

    Args:
        proc: an open folder, the sandbox's `/proc`; this object closes it.
        root: the clone.
        limits: see there.
        free: how many bytes are left on the disk of a folder.
        held: see `held_bytes`.
        group: has all processes of the sandbox in it; this object closes it.
    """

    def __init__(  # noqa: PLR0913  by name
        self,
        proc: int,
        root: str,
        limits: Limits,
        free: Callable[[str], int] = free_bytes,
        *,
        held: Callable[[], int] = held_bytes,
        group: MemoryGroup | None = None,
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
        """Look again and again until a limit is passed; then kill."""
        while True:
            self._reason = self.passed()
            if self._reason:
                kill()
                return
            await asyncio.sleep(INTERVAL_SECONDS)

    def passed(self) -> str:
        """The limit that is passed now, or nothing."""
        threads, private = self._usage()
        if threads > self._limits.processes:
            return f"more than {self._limits.processes:,} processes and threads"
        if self._group is not None:
            if self._group.was_full():
                return self._too_much_memory()
        else:
            grown = self._grown()
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
        """Let go of the folder and of the group."""
        if self._group is not None:
            self._reason = self.reason
            self._group.close()
            self._group = None
        descriptor, self._proc = self._proc, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _too_much_memory(self) -> str:
        return f"more than {self._memory // _SHOWN_BYTES:,} MB of memory"

    def _grown(self) -> int:
        held = self._held()
        self._held_least = min(self._held_least, held)  # what ended just before may still be on its way out
        return held - self._held_least

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
        """Bytes of private memory, where what processes share since a fork counts once. This takes longer."""
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
