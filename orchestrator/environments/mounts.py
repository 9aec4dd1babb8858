"""The mounts of a bubblewrap sandbox, in its own words. Each bind costs half a millisecond of every command's start."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.environments.readable import (
    SYSTEM,
    hidden_in_system,
    hidden_in_versions,
    is_above,
    system_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOME = "/home/sandbox"
LAUNCHER = "/run/launcher.py"
HOST_NAME = "sandbox"
_SMALL_BYTES = 16 << 20
_SHARED_BYTES = 256 << 20
_COPIED_BYTES = 128 << 10
_POINTER_BYTES = 4_096
_PLAIN_MODE = 0o444
_TELLING = frozenset({"kallsyms", "kcore", "key-users", "keys", "kmsg", "sched_debug", "timer_list"})
"""Files of `/proc` that speak of the machine and are readable by everybody or by root."""


def system(inherited: Mapping[str, str]) -> list[str]:
    """The system's programs and libraries, without what people put beside them."""
    words: list[str] = []
    for folder in SYSTEM:
        if os.path.islink(folder):  # noqa: PTH114  a name
            words += ["--symlink", os.readlink(folder), folder]  # noqa: PTH115  a name
        elif os.path.isdir(folder):  # noqa: PTH112  a name
            words += ["--ro-bind", folder, folder]
    for folder in hidden_in_system(inherited):
        words += ["--tmpfs", folder, "--remount-ro", folder]
    return words


def etc() -> tuple[list[str], dict[str, bytes]]:
    """What is readable below `/etc`: mounts of folders, and small files by path, which are copied."""
    words: list[str] = []
    copies: dict[str, bytes] = {}
    for path in system_files():
        target = os.path.realpath(path)
        if os.path.islink(path) and any(is_above(folder, target) for folder in SYSTEM):  # noqa: PTH114  a name
            words += ["--symlink", target, path]
        elif os.path.isfile(path) and os.stat(path).st_size <= _COPIED_BYTES:  # noqa: PTH113, PTH116  names
            copies[path] = Path(path).read_bytes()
        else:
            words += ["--ro-bind-try", path, path]
    return words, copies


def proc() -> list[str]:
    """A new `/proc` that is read-only: root may write to it without any capability, as it asks for the user.

    What only root may read of the machine is covered where this is root.
    """
    words = ["--proc", "/proc", "--dev", "/dev"]
    root = os.getuid() == 0
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit():  # a process, maybe gone by now
            continue
        mode = entry.lstat().st_mode
        if stat.S_ISREG(mode) and (entry.name in _TELLING or (root and stat.S_IMODE(mode) != _PLAIN_MODE)):
            words += ["--ro-bind-try", "/dev/null", str(entry)]
    return [*words, "--remount-ro", "/proc"]


def scratch(size: int, more: Sequence[str] = ()) -> list[str]:
    """Private folders in memory that may be written to: the usual ones, and those of tools; `size` in bytes."""
    sizes = {"/dev/shm": _SHARED_BYTES, "/tmp": size, "/var/tmp": size, HOME: size}  # noqa: S108  private
    own = {HOME, *more}
    words: list[str] = []
    for folder, most in {**sizes, **dict.fromkeys(sorted(more), size)}.items():
        mode = "0700" if folder in own else "1777"
        words += ["--perms", mode, "--size", str(most), "--tmpfs", folder]
    return words


def programs(readable: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each folder of programs with its mounts, outer ones first, none that another one brings along."""
    found: list[tuple[str, list[str]]] = []
    for path in sorted(set(readable)):
        if any(is_above(outer, path) for outer, _ in found):
            continue
        words = ["--ro-bind-try", path, path]
        for secret in hidden_in_versions(path):
            words += (
                ["--tmpfs", secret, "--remount-ro", secret]
                if os.path.isdir(secret)  # noqa: PTH112  a name
                else ["--ro-bind-try", "/dev/null", secret]
            )
        found.append((path, words))
    return found


def accounts() -> dict[str, bytes]:
    """Files of `/etc` that say who is there: this user without a name of the host, and nobody."""
    user, group = os.getuid(), os.getgid()
    name = "root" if user == 0 else "sandbox"
    people = [f"{name}:x:{user}:{group}::{HOME}:/bin/bash", "nobody:x:65534:65534::/nonexistent:/bin/false"]
    groups = [f"{name}:x:{group}:", "nogroup:x:65534:"]
    texts = {
        "/etc/passwd": "\n".join([*people, ""]),
        "/etc/group": "\n".join([*groups, ""]),
        "/etc/hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    return {path: text.encode() for path, text in texts.items()}


def protection(root: str, name: str) -> tuple[list[str], bytes | None, bool]:
    """How a `.git` of the clone stays as it is.

    That of the root is mounted read-only. Further down a command may have put a link in the place of
    a folder, and a mount follows links to whatever they name on the host: so nothing of the host is
    mounted there, but an empty folder, or a copy of the file that leads to the repository.

    Returns:
        the mount (the number of a copy's descriptor goes after its first word), the copy's content,
        and whether the folder is not there and will be made for the mount.

    Raises:
        ToolError: it is a link.
    """
    path = os.path.join(root, name)  # noqa: PTH118  names, joined as they are
    above = os.path.dirname(path)  # noqa: PTH120  a name
    if os.path.realpath(above) != above or not os.path.isdir(above):  # noqa: PTH112  a name
        return [], None, False  # a link or nothing: no repository is reached through it that is not elsewhere
    nothing = ["--perms", "0555", "--tmpfs", path, "--remount-ro", path]
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return (nothing, None, True) if os.access(above, os.W_OK) else ([], None, False)
    if stat.S_ISLNK(mode):
        raise ToolError(f"{name} is a symbolic link, so a sandbox cannot protect it; no command runs here")
    if above == root:
        return ["--ro-bind", path, path], None, False
    if stat.S_ISDIR(mode):
        return nothing, None, False
    return ["--ro-bind-data", path], _pointer(path, name), False


def _pointer(path: str, name: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise ToolError(
            f"{name} cannot be read, so a sandbox cannot protect it; no command runs here"
        ) from None
    with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor
        return file.read(_POINTER_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
