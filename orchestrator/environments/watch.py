"""Watches a sandbox from outside through its own `/proc`: counts, weighs, and signals what runs inside."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.environments.confinement import Limits

INTERVAL_SECONDS = 0.1
_KIB = 1_024
_SHOWN_BYTES = 1_000_000


def free_bytes(root: str) -> int:
    """What is left for this user."""
    with suppress(OSError):
        found = os.statvfs(root)
        return found.f_bavail * found.f_frsize
    return 1 << 62  # not to be known: no reason to stop


class Watch:
    """What no limit of the kernel covers: all processes together, as root too, and the clone's disk.

    Args:
        proc: an open folder, the sandbox's `/proc`; this object closes it.
        root: the clone.
        limits: see there.
        free: how many bytes are left on the disk of a folder.
    """

    def __init__(self, proc: int, root: str, limits: Limits, free: Callable[[str], int] = free_bytes) -> None:
        self._proc = proc
        self._root = root
        self._limits = limits
        self._memory = limits.memory()
        self._shared_before = _shared_bytes()
        self._free = free
        self._floor = min(limits.disk_floor_bytes, free(root) // 2)
        self.reason = ""

    async def run(self, kill: Callable[[], None]) -> None:
        """Look again and again until a limit is passed; then kill."""
        while True:
            self.reason = self.passed()
            if self.reason:
                kill()
                return
            await asyncio.sleep(INTERVAL_SECONDS)

    def passed(self) -> str:
        """The limit that is passed now, or nothing."""
        threads, private = self._usage()
        if threads > self._limits.processes:
            return f"more than {self._limits.processes:,} processes and threads"
        if max(private, _shared_bytes() - self._shared_before) > self._memory:
            return f"more than {self._memory // _SHOWN_BYTES:,} MB of memory"
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
        """Let go of the folder."""
        descriptor, self._proc = self._proc, -1
        if descriptor >= 0:
            os.close(descriptor)

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


def _fields(folder: int, path: str) -> dict[str, int]:
    """The numbers of a file with lines such as `RssAnon: 12 kB`; nothing where the process is gone."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:  # noqa: PTH123  a descriptor
            lines = file.read().splitlines()
    except OSError:
        return {}
    pairs = (line.decode("ascii", "replace").split()[:2] for line in lines)
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}


def _shared_bytes() -> int:
    """What belongs to no process, of the whole machine: temporary files, shared memory, names and pipes in the kernel."""
    with suppress(OSError):
        folder = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fields = _fields(folder, "meminfo")
            return sum(fields.get(name, 0) for name in ("Shmem", "SUnreclaim")) * _KIB
        finally:
            os.close(folder)
    return 0
