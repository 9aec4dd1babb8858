"""Which calls of the kernel a command may not make: a filter in the kernel's own bytecode.

It takes away what mounts and namespaces do not cover: keyrings, sockets of other families
(VSOCK reaches a virtual machine's host), new user namespaces, typing into a terminal, and
parts of the kernel that no build needs.
Format: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import errno
import struct

_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; both machines are little-endian
_X32 = 0x40000000
_NEW_USER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK

# Numbers: the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_NEW = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435,
    "mount_setattr": 442,
}  # fmt: skip
_MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (0xC000003E, {
        "ioctl": 16, "socket": 41, "clone": 56, "syslog": 103, "pivot_root": 155, "chroot": 161, "acct": 163,
        "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304,
        "setns": 308, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, **_NEW,
    }),
    "aarch64": (0xC00000B7, {
        "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "quotactl": 60, "acct": 89,
        "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "syslog": 116,
        "reboot": 142, "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220,
        "swapon": 224, "swapoff": 225, "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294, **_NEW,
    }),
}  # fmt: skip
_CHECKED = ("socket", "ioctl", "clone", "unshare")
_NOT_THERE = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")  # programs fall back


def syscall_filter(machine: str) -> bytes | None:
    """The filter for a machine as `os.uname` names it, or None for a machine that is not known here."""
    if machine not in _MACHINES:
        return None
    arch, numbers = _MACHINES[machine]
    program = [_op(_LOAD, _ARCH), _op(_EQUAL, arch, 1, 0), _refuse(errno.EPERM), _op(_LOAD, _NUMBER)]
    program += [_op(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for name, number in numbers.items():
        if name not in _CHECKED:
            program += [
                _op(_EQUAL, number, 0, 1),
                _refuse(errno.ENOSYS if name in _NOT_THERE else errno.EPERM),
            ]
    families = [_op(_EQUAL, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)]
    program += _when(numbers["socket"], 0, [*families, _refuse(errno.EAFNOSUPPORT)])
    typing = [_op(_EQUAL, _TIOCSTI, 1, 0), _op(_EQUAL, _TIOCLINUX, 0, 1), _refuse(errno.EPERM)]
    program += _when(numbers["ioctl"], 1, typing)
    for name in ("clone", "unshare"):
        program += _when(numbers[name], 0, [_op(_SET, _NEW_USER, 0, 1), _refuse(errno.EPERM)])
    return b"".join([*program, _op(_RETURN, _ALLOW)])


def _when(number: int, argument: int, checks: list[bytes]) -> list[bytes]:
    """For this call the checks of one argument's lower half, and what passes them is allowed."""
    body = [_op(_LOAD, _ARGUMENTS + 8 * argument), *checks, _op(_RETURN, _ALLOW)]
    return [_op(_EQUAL, number, 0, len(body)), *body]


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)
