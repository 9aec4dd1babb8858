"""The mounts of a sandbox: those of a session in the words of bubblewrap, those of a command as steps of `sandbox_init`."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.readable import (
    SYSTEM,
    hidden_in_system,
    hidden_in_versions,
    is_above,
    system_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.environments.confinement import Place

Step: TypeAlias = "tuple[Any, ...]"
"""What `sandbox_init` does before a command, by name, with arguments; texts are bytes."""

HOME = "/home/sandbox"
HOST_NAME = "sandbox"
_SMALL_BYTES = 16 << 20
SHARED_BYTES = 256 << 20
"""Of `/dev/shm`."""
_COPIED_BYTES = 128 << 10
_POINTER_BYTES = 4_096
_PLAIN_MODE = 0o444
_FIRST_NUMBER = 100
"""Of descriptors that are mounted; a sandbox's first process has no such high ones."""

# mount(2) and the kernel's include/uapi/linux/mount.h
_READ_ONLY, _PLAIN, _NO_PROGRAMS, _BIND, _RECURSIVE, _PRIVATE = 1, 2 | 4, 8, 4096, 16384, 1 << 18
_CHANGE = 32 | _BIND
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


def covered_in_proc() -> list[str]:
    """Files of `/proc` that no command may read: what speaks of the machine, and what only root may where this is root."""
    root = os.getuid() == 0
    found = []
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit():  # a process, maybe gone by now
            continue
        mode = entry.lstat().st_mode
        if stat.S_ISREG(mode) and (entry.name in _TELLING or (root and stat.S_IMODE(mode) != _PLAIN_MODE)):
            found.append(str(entry))
    return found


def scratch(size: int, more: Sequence[str] = ()) -> dict[str, tuple[int, str]]:
    """Private folders in memory that may be written to, outer ones first: their bytes and mode.

    Args:
        size: in bytes, of each.
        more: those of tools.
    """
    own = {HOME: (size, "0700"), **dict.fromkeys(sorted(more), (size, "0700"))}
    return {"/dev/shm": (SHARED_BYTES, "1777"), "/tmp": (size, "1777"), "/var/tmp": (size, "1777"), **own}  # noqa: S108  private


def own_mounts(
    covered: Sequence[str], folders: Mapping[str, tuple[int, str]], kept: Sequence[str]
) -> list[Step]:
    """A `/proc` and scratch folders of the command's own.

    That `/proc` is read-only: root may write to it without any capability, as it asks for the user. Before that
    the command is made the first to end where the machine is out of memory.

    Args:
        covered: files of `/proc`.
        folders: see `scratch`.
        kept: mounts that are there already; those below a scratch folder are put into the new one.
    """
    inside = [path for path in kept if any(is_above(folder, path) for folder in folders)]
    inside = [path for path in inside if not any(path != up and is_above(up, path) for up in inside)]
    steps: list[Step] = [("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)]
    steps += [("open", os.fsencode(path), _FIRST_NUMBER + place) for place, path in enumerate(inside)]
    steps += [
        ("mount", b"proc", b"/proc", b"proc", _PLAIN | _NO_PROGRAMS, None),
        ("file", b"/proc/self/oom_score_adj", b"1000"),
    ]
    steps += [("mount", b"/dev/null", os.fsencode(path), None, _BIND, None) for path in covered]
    steps.append(("mount", None, b"/proc", None, _CHANGE | _READ_ONLY | _PLAIN | _NO_PROGRAMS, None))
    for folder, (size, mode) in folders.items():
        path, options = os.fsencode(folder), f"mode={mode},size={size}".encode()
        steps += [("folder", path), ("mount", b"tmpfs", path, b"tmpfs", _PLAIN, options)]
    for place, name in enumerate(inside):
        path = os.fsencode(name)
        if os.path.isdir(path):  # noqa: PTH112  a name
            steps.append(("folder", path))
        else:
            steps += [("folder", os.path.dirname(path)), ("file", path, b"")]  # noqa: PTH120  a name
        steps.append(("mount", _handle(_FIRST_NUMBER + place), path, None, _BIND | _RECURSIVE, None))
    return steps


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


@dataclass(frozen=True, slots=True)
class Protection:
    """How a `.git` of the clone stays as it is.

    Attributes:
        path: the `.git`, absolute.
        content: what is seen in its place; None for itself, which then cannot be changed.
        is_folder: an empty folder is seen in its place.
        is_missing: it is not there, and an empty folder has to be made to be covered.
    """

    path: str
    content: bytes | None = None
    is_folder: bool = False
    is_missing: bool = False

    def steps(self, root: str) -> list[Step]:
        """What `sandbox_init` does. Nothing is mounted on what is a link by then."""
        place, target = os.fsencode(self.path), _handle(_FIRST_NUMBER)
        hold: Step = ("open", place, _FIRST_NUMBER)
        fixed: Step = ("mount", None, place, None, _CHANGE | _READ_ONLY | _PLAIN | _no_programs(root), None)
        if self.content is None:
            return [hold, ("mount", target, target, None, _BIND, None), fixed]
        if self.is_folder:
            made: list[Step] = [("folder", place)] if self.is_missing else []
            return [*made, hold, ("mount", b"tmpfs", target, b"tmpfs", _PLAIN | _READ_ONLY, b"mode=555")]
        copy = b"/dev/shm/copy"
        return [
            ("file", copy, self.content),
            hold,
            ("mount", copy, target, None, _BIND, None),
            fixed,
            ("remove", copy),
        ]


def protections(place: Place) -> list[Protection]:
    """How the protected paths of a place stay as they are.

    That of the root is made read-only. Further down a command may have put a link in the place of
    a folder, so nothing is mounted there but an empty folder, or a copy of the file that leads to the
    repository.

    Raises:
        ToolError: one is a link.
    """
    found = (_protection(place.root, name) for name in place.protected)
    return [one for one in found if one is not None]


def _protection(root: str, name: str) -> Protection | None:
    path = os.path.join(root, name)  # noqa: PTH118  names, joined as they are
    above = os.path.dirname(path)  # noqa: PTH120  a name
    if os.path.realpath(above) != above or not os.path.isdir(above):  # noqa: PTH112  a name
        return None  # a link or nothing: no repository is reached through it that is not elsewhere
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        can_be_made = os.access(above, os.W_OK)
        return Protection(path, b"", is_folder=True, is_missing=True) if can_be_made else None
    if stat.S_ISLNK(mode):
        raise ToolError(f"{name} is a symbolic link, so a sandbox cannot protect it; no command runs here")
    if above == root:
        return Protection(path)
    if stat.S_ISDIR(mode):
        return Protection(path, b"", is_folder=True)
    return Protection(path, _pointer(path, name))


def _handle(number: int) -> bytes:
    return b"/proc/self/fd/%d" % number


def _no_programs(root: str) -> int:
    """What a mount of this disk keeps whatever is asked of it."""
    return _NO_PROGRAMS if os.statvfs(root).f_flag & os.ST_NOEXEC else 0


def _pointer(path: str, name: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise ToolError(
            f"{name} cannot be read, so a sandbox cannot protect it; no command runs here"
        ) from None
    with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor
        return file.read(_POINTER_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
