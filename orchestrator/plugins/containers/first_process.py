"""The first process of a container: a program of a dozen system calls, assembled here.

An image may have no program but a shell, and a shell can neither listen at a port nor hand over a descriptor.
The program sends three descriptors through a socket: a handle on itself, its `/proc`, and a listening socket
for the proxy. Then it waits until its standard input is closed, and ends together with everything in the
container. No process in the container can trace it. Orphaned processes that it inherits never stay as
zombies.

Sources: elf(5), syscalls(2), the kernel's `arch/x86/entry/syscalls/syscall_64.tbl` and
`include/uapi/asm-generic/unistd.h`.
"""

from __future__ import annotations

import signal
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

HANDED_OVER = 3
"""The number of descriptors that the program sends: its own handle, its `/proc` and the listening socket."""

_LOADED_AT = 0x400000
_HEAD_BYTES = 64 + 56
_FAILED = 101
"""The exit code after a required system call failed."""

# The kernel assigns these numbers, because all other descriptors are closed.
_HANDLE, _PROC, _LISTENER, _CHANNEL = 3, 4, 5, 6
_AT_HERE, _ALL = 0xFFFFFF9C, 0xFFFFFFFF
_CLOSED_ON_EXEC = 0o2000000
_SET_DUMPABLE, _IGNORE, _MASK_BYTES = 4, 1, 8
_BACKLOG = 64

_Call: TypeAlias = "tuple[str, tuple[int | str, ...]]"
"""A system call's name and arguments. A string stands for the address of the data of that name."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """How a processor makes system calls.

    Attributes:
        number: the machine's number in the ELF header.
        calls: numbers of system calls by name.
        call: returns the code for a system call, from its number and arguments.
        leave: the code that ends the program if the last call failed.
        wait: the code that reads standard input to its end and ends the program.
    """

    number: int
    calls: dict[str, int]
    call: Callable[[int, tuple[int, ...]], bytes]
    leave: bytes
    wait: bytes


def init_program(architecture: str, path: str, socket_path: str, port: int) -> bytes | None:
    """Return the program for an architecture as engines name it; None for an unknown one.

    Args:
        architecture: `amd64` or `arm64`.
        path: the path of the program; it removes itself from there.
        socket_path: the socket to which it sends its descriptors.
        port: the port at 127.0.0.1 where it listens.
    """
    machine = _MACHINES.get(architecture)
    if machine is None:
        return None
    calls: list[_Call] = [
        ("unlinkat", (_AT_HERE, "path", 0)),
        ("prctl", (_SET_DUMPABLE, 0, 0, 0, 0)),
        ("rt_sigaction", (signal.SIGCHLD, "ignore", 0, _MASK_BYTES)),
        ("close_range", (_HANDLE, _ALL, 0)),
        ("pidfd_open", (1, 0)),
        ("openat", (_AT_HERE, "proc", _CLOSED_ON_EXEC, 0)),
        ("socket", (socket.AF_INET, socket.SOCK_STREAM, 0)),
        ("bind", (_LISTENER, "port", 16)),
        ("listen", (_LISTENER, _BACKLOG)),
        ("socket", (socket.AF_UNIX, socket.SOCK_STREAM, 0)),
        ("connect", (_CHANNEL, "channel", 110)),
        ("sendmsg", (_CHANNEL, "message", 0)),
        ("close_range", (_HANDLE, _ALL, 0)),
    ]
    # The lengths of code and data do not depend on addresses, so addresses are computed from them first.
    addresses = dict.fromkeys(_data({}, path, socket_path, port), _LOADED_AT)
    at = _LOADED_AT + _HEAD_BYTES + len(_code(machine, calls, addresses))
    for name, content in _data({}, path, socket_path, port).items():
        addresses[name] = at
        at += len(content)
    data = b"".join(_data(addresses, path, socket_path, port).values())
    return _elf_header(machine.number, at - _LOADED_AT) + _code(machine, calls, addresses) + data


def _code(machine: _Machine, calls: list[_Call], addresses: dict[str, int]) -> bytes:
    code_of_calls = [
        machine.call(
            machine.calls[name],
            tuple(addresses[value] if isinstance(value, str) else int(value) for value in arguments),
        )
        for name, arguments in calls
    ]
    code = b"".join(one + machine.leave for one in code_of_calls) + machine.wait
    return code + bytes(-len(code) % 8)


def _data(addresses: dict[str, int], path: str, socket_path: str, port: int) -> dict[str, bytes]:
    """Return the data that the calls read, by name; each padded to a multiple of eight bytes."""
    rights = struct.pack("=Qii3i", 16 + 4 * HANDED_OVER, socket.SOL_SOCKET, 1, _HANDLE, _PROC, _LISTENER)
    rights += bytes(-len(rights) % 8)
    at = addresses.get
    found = {
        "path": path.encode() + b"\0",
        "proc": b"/proc\0",
        "ignore": struct.pack("=4Q", _IGNORE, 0, 0, 0),
        "port": struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, bytes([127, 0, 0, 1])),
        "channel": struct.pack("=H108s", socket.AF_UNIX, socket_path.encode()),
        "rights": rights,
        "piece": struct.pack("=2Q", at("proc", 0), 1),
        "message": struct.pack("=7Q", 0, 0, at("piece", 0), 1, at("rights", 0), len(rights), 0),
    }
    return {name: content + bytes(-len(content) % 8) for name, content in found.items()}


def _elf_header(machine: int, size: int) -> bytes:
    """Return the ELF header of a program that is loaded as one segment, readable and executable."""
    start = _LOADED_AT + _HEAD_BYTES
    elf = struct.pack(
        "=16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, machine, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    return elf + struct.pack("=IIQQQQQQ", 1, 5, 0, _LOADED_AT, _LOADED_AT, size, size, 0x1000)


def _call_x86(number: int, arguments: tuple[int, ...]) -> bytes:
    # mov edi, esi, edx, r10d, r8d; mov eax; syscall. Writing the lower half clears the upper one.
    registers = (b"\xbf", b"\xbe", b"\xba", b"\x41\xba", b"\x41\xb8")
    moves = [code + struct.pack("<I", value) for code, value in zip(registers, arguments, strict=False)]
    return b"".join([*moves, b"\xb8" + struct.pack("<I", number), b"\x0f\x05"])


def _call_arm(number: int, arguments: tuple[int, ...]) -> bytes:
    # movz and movk of w0 to w4, then of w8; svc #0
    moves = [
        word
        for register, value in (*enumerate(arguments), (8, number))
        for word in (
            0x52800000 | (value & 0xFFFF) << 5 | register,
            0x72A00000 | (value >> 16) << 5 | register,
        )
    ]
    return struct.pack(f"<{len(moves) + 1}I", *moves, 0xD4000001)


_MACHINES = {
    "amd64": _Machine(
        62,
        {
            "unlinkat": 263, "prctl": 157, "rt_sigaction": 13, "close_range": 436, "pidfd_open": 434, "openat": 257,
            "socket": 41, "bind": 49, "listen": 50, "connect": 42, "sendmsg": 46,
        },
        _call_x86,
        # test rax, rax; jns +9; mov edi, failed; mov al, 231 (exit_group); syscall
        b"\x48\x85\xc0\x79\x0c\xbf" + struct.pack("<I", _FAILED) + b"\xb8\xe7\0\0\0\x0f\x05",
        # again: xor edi, edi; mov rsi, rsp; mov edx, 1; xor eax, eax (read); syscall; dec rax; jz again;
        # xor edi, edi; mov eax, 231; syscall
        b"\x31\xff\x48\x89\xe6\xba\1\0\0\0\x31\xc0\x0f\x05\x48\xff\xc8\x74\xed\x31\xff\xb8\xe7\0\0\0\x0f\x05",
    ),
    "arm64": _Machine(
        183,
        {
            "unlinkat": 35, "prctl": 167, "rt_sigaction": 134, "close_range": 436, "pidfd_open": 434, "openat": 56,
            "socket": 198, "bind": 200, "listen": 201, "connect": 203, "sendmsg": 211,
        },
        _call_arm,
        # tbz x0, #63, +16; movz w0, failed; movz w8, 94 (exit_group); svc #0
        struct.pack("<4I", 0xB6F80080, 0x52800000 | _FAILED << 5, 0x52800000 | 94 << 5 | 8, 0xD4000001),
        # again: movz w0, 0; mov x1, sp; movz w2, 1; movz w8, 63 (read); svc; cmp x0, 1; b.eq again;
        # movz w0, 0; movz w8, 94; svc
        struct.pack(
            "<10I", 0x52800000, 0x910003E1, 0x52800022, 0x52800000 | 63 << 5 | 8, 0xD4000001, 0xF100041F, 0x54FFFF40,
            0x52800000, 0x52800000 | 94 << 5 | 8, 0xD4000001,
        ),
    ),
}  # fmt: skip
