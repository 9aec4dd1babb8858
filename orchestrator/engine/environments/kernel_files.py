"""Which file systems are no disks: what is read there is the kernel's, or a process's, or a device's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Names: the kernel's Documentation/filesystems
_TYPES = frozenset(
    {"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"}
    | {"mqueue", "nsfs", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs"}
)
_FOLDERS = ("/proc", "/sys", "/dev")


def kernel_devices() -> frozenset[int]:
    """Device numbers, as in `st_dev`, of all such file systems that are mounted, wherever they are."""
    found = set()
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            if after.split(" ", 1)[0] in _TYPES:
                major, _, minor = before.split(" ", 3)[2].partition(":")
                found.add(os.makedev(int(major), int(minor)))
    disk = Path("/").stat().st_dev
    for folder in _FOLDERS:
        with suppress(OSError):
            device = Path(folder).stat().st_dev
            found |= {device} - {disk}
    return frozenset(found)


def holds_kernel_files(root: str) -> bool:
    """Whether a folder, given by its real path, is above `/proc`, `/sys` or `/dev`."""
    return any(folder == root or folder.startswith(root.rstrip("/") + "/") for folder in _FOLDERS)
