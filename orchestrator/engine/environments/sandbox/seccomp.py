"""The system calls that a command may make: a filter in the kernel's own bytecode.

Mounts and namespaces do not cover everything: with `ptrace` and similar calls one process controls another, a
VSOCK socket reaches a virtual machine's host, and an io_uring makes calls that no filter sees. `syscalls.txt`
has the verdict for each call; a call that is not listed does not exist inside. Format:
https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import errno
import struct
from enum import StrEnum
from itertools import groupby
from pathlib import Path

_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; both machines are little-endian
_X32 = 0x40000000
"""The first number of x86_64's second table of calls, whose arguments have another size."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK
NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of linux/sched.h."""
NEW_TIME = 0x80
"""CLONE_NEWTIME; in `clone` these bits are a signal's number."""
PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""The values that Docker allows, and ADDR_NO_RANDOMIZE (linux/personality.h).

Sanitizers restart themselves with ADDR_NO_RANDOMIZE.
"""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 of linux/audit.h, by the machine's name in `os.uname`."""


class CallVerdict(StrEnum):
    """The verdict on a system call; each is a section of `syscalls.txt`."""

    ALLOWED = "allowed"
    CHECKED = "checked"
    """One argument decides."""
    REFUSED = "refused"
    """EPERM, as for a user without the permission."""
    MISSING = "missing"
    """ENOSYS, as on a kernel without the call, so that programs fall back to older calls."""


def verdicts(machine: str) -> dict[str, tuple[int, CallVerdict]]:
    """Return the number and verdict of each system call of a machine by name; empty for an unknown machine."""
    if machine not in _ARCHITECTURES:
        return {}
    column = 1 + list(_ARCHITECTURES).index(machine)
    found: dict[str, tuple[int, CallVerdict]] = {}
    section = CallVerdict.MISSING
    for line in Path(__file__).with_name("syscalls.txt").read_text("ascii").splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 1:
            section = CallVerdict(words[0].strip("[]"))
        elif words and words[column] != "-":
            found[words[0]] = (int(words[column]), section)
    return found


def syscall_filter(machine: str) -> bytes | None:
    """Return the filter for a machine as named in `os.uname`; None for an unknown machine."""
    calls = verdicts(machine)
    if not calls:
        return None
    leaves = {number: _LEAVES.get(verdict) or _CHECKS[name] for name, (number, verdict) in calls.items()}
    missing = _LEAVES[CallVerdict.MISSING]
    ends = [leaves.get(number, missing) for number in range(max(leaves) + 1)]
    ranges = [
        (first, leaf)
        for leaf, run in groupby(enumerate(ends), lambda end: end[1])
        for first, _ in [next(run)]
    ]
    program = [
        _op(_LOAD, _ARCH), _op(_EQUAL, _ARCHITECTURES[machine], 1, 0), _refuse(errno.EPERM),  # such as i386's calls
        _op(_LOAD, _NUMBER), _op(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS),
        *_search([*ranges, (len(ends), missing)]),
    ]  # fmt: skip
    return b"".join(program)


def _search(ranges: list[tuple[int, tuple[bytes, ...]]]) -> list[bytes]:
    """Return code that finds the loaded number's range (first number, final operations) by binary search."""
    if len(ranges) == 1:
        return list(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    return [_op(_AT_LEAST, ranges[middle][0], len(below), 0), *below, *above]


def _only(argument: int, values: tuple[int, ...], number: int) -> tuple[bytes, ...]:
    """Allow these values of an argument's lower half, and answer others with an error."""
    tests = [_op(_EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)]
    return (_op(_LOAD, _ARGUMENTS + 8 * argument), *tests, _refuse(number), _op(_RETURN, _ALLOW))


def _none_of(argument: int, tests: list[tuple[int, int]]) -> tuple[bytes, ...]:
    """Refuse an argument whose lower half passes one of the tests."""
    ops = [_op(code, value, len(tests) - place, 0) for place, (code, value) in enumerate(tests)]
    return (_op(_LOAD, _ARGUMENTS + 8 * argument), *ops, _op(_RETURN, _ALLOW), _refuse(errno.EPERM))


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)


_LEAVES = {
    CallVerdict.ALLOWED: (_op(_RETURN, _ALLOW),),
    CallVerdict.REFUSED: (_refuse(errno.EPERM),),
    CallVerdict.MISSING: (_refuse(errno.ENOSYS),),
}
"""The final operations of every other verdict than `CHECKED`."""

_CHECKS = {
    "socket": _only(0, FAMILIES, errno.EAFNOSUPPORT),
    "socketpair": _only(0, FAMILIES, errno.EAFNOSUPPORT),
    "personality": _only(0, PERSONALITIES, errno.EPERM),
    "ioctl": _none_of(1, [(_EQUAL, _TIOCSTI), (_EQUAL, _TIOCLINUX)]),
    "clone": _none_of(0, [(_SET, NAMESPACES)]),
    "unshare": _none_of(0, [(_SET, NAMESPACES | NEW_TIME)]),
}
"""The checks of the calls of which one argument decides."""
