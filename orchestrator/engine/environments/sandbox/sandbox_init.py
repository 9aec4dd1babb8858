"""The first process of a bubblewrap sandbox: starts commands, each in its own namespaces.

It is a script for `python -I -S`, and no command can see it. Its arguments are the descriptors of a socket
and of a file with the values that are the same for all commands. Each message on the socket is a request with
six descriptors: a file with the request itself, the command's input and its two outputs, the entrance of a control
group, and a channel. When the socket is closed, every process here ends. When a channel is shut down, its command is
killed.

Messages on a channel: `S` if the process may not enter the group; `R` with descriptors (the command's
first process, its `/proc`, a listening socket for each port), or `E` and the reason why the command could not be
started; at the end `X` and the exit code. By then no process of the command is left, because the code is that
of the first process of a process namespace, which ends after all others. `bubblewrap.py` is the other side of
this protocol, and writes both files.

Calls and numbers: clone(2), mount(2), capset(2), prctl(2), netdevice(7) and the kernel's
`include/uapi/linux`.
"""

from __future__ import annotations

import ctypes
import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # importing it from typing takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NEW_MOUNTS, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x8000000, 0x20000000, 0x40000000
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
SET_DUMPABLE, SET_SECCOMP, DROP_BOUND, NO_NEW_PRIVILEGES, AMBIENT, CLEAR_ALL = 4, 22, 24, 38, 47, 4
SECCOMP_FILTER = 2
CAPABILITIES = (8, 12, 21)  # SETPCAP, NET_ADMIN, SYS_ADMIN: all capabilities of this process
CAPABILITIES_VERSION = 0x20080522
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 1  # of a network device
NICENESS = 10  # so that the watch outside is scheduled among thousands of processes
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored by Python; the command would inherit this
SIGNALLED = 128  # plus the signal's number, as in shells
MAX_BYTES = 4_096
MAX_DESCRIPTORS = 1 << 16

libc = ctypes.CDLL(None, use_errno=True)
python = ctypes.PyDLL(None, use_errno=True)  # its calls keep the interpreter's lock, as a fork requires


class FirstProcess:
    """A command's first process, started before there is a command: its number, its handle and its channels."""

    def __init__(self, common: dict[str, Any]) -> None:
        self.orders, theirs = socket.socketpair()
        self.channel = self.orders  # until a command has its own
        self.process = fork()
        if self.process == 0:
            run_first_process(common, theirs)
        theirs.close()
        self.handle = os.pidfd_open(self.process)


def main() -> None:
    """Serve requests until the socket is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    common = read_values(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the kernel does not deliver it to a first process
    waiting: FirstProcess | None = FirstProcess(common)
    send_message(control, b"R", os.pidfd_open(os.getpid()))
    poll = select.poll()
    poll.register(control, select.POLLIN)
    running: dict[int, FirstProcess] = {}
    while True:
        descriptor = poll.poll()[0][0]  # one at a time: numbers of closed descriptors are reused
        known = running.get(descriptor)
        if known is None:
            known, waiting = start_command(receive_request(control), waiting or FirstProcess(common)), None
            for number in (known.handle, known.channel.fileno()):
                running[number] = known
                poll.register(number, select.POLLIN)
            try:  # noqa: SIM105  contextlib takes long to load
                waiting = FirstProcess(common)
            except OSError:  # retried when it is needed
                pass
        elif descriptor == known.handle:
            for number in {descriptor, known.channel.fileno()} & running.keys():
                del running[number]
                poll.unregister(number)
            os.close(descriptor)
            _, status = os.waitpid(known.process, 0)
            send_message(known.channel, b"X%d" % os.waitstatus_to_exitcode(status))
            known.channel.close()
        else:  # no message ever comes on a channel: it was shut down
            del running[descriptor]
            poll.unregister(descriptor)
            signal.pidfd_send_signal(known.handle, signal.SIGKILL)


def start_command(received: tuple[int, ...], first: FirstProcess) -> FirstProcess:
    """Pass a request to a first process. If that process is dead, its end is reported as usual."""
    *rest, channel = received
    send_message(first.orders, b"C", *rest, os.dup(channel))
    first.orders.close()
    first.channel = socket.socket(fileno=channel)
    return first


def fork() -> int:
    """Fork into a new process namespace. Unlike unshare(2), it does not affect later forks of this process."""
    python.PyOS_BeforeFork()
    process = int(python.syscall(CLONE, NEW_PROCESSES | signal.SIGCHLD, 0, 0, 0, 0))
    number = ctypes.get_errno()
    (python.PyOS_AfterFork_Child if process == 0 else python.PyOS_AfterFork_Parent)()
    if process < 0:
        raise OSError(number, f"clone: {os.strerror(number)}")
    return process


def run_first_process(common: dict[str, Any], orders: socket.socket) -> NoReturn:
    """Run as the first process of a command, and exit with the command's exit code."""
    problem, code = b"", 126
    for_watch: tuple[int, ...] = ()
    try:
        close_all_but(0, 1, 2, orders.fileno())
        try:
            for_watch = build_namespaces(common)
        except Exception as error:  # noqa: BLE001  it is sent with the first request
            problem = reason(error)
        request, given, out, err, group, number = receive_request(orders)
        orders.close()
        channel = socket.socket(fileno=number)
        if not enter_group(group):
            send_message(channel, b"S")
        try:
            code = (
                126
                if problem
                else first_process(common, read_values(request), (given, out, err), channel, for_watch)
            )
        except Exception as error:  # noqa: BLE001  it is sent to the other side
            problem = reason(error)
        if problem:
            send_message(channel, b"E" + problem)
    finally:
        os._exit(code)  # after any error, so that no code continues unconfined


def enter_group(group: int) -> bool:
    """Enter the control group whose file this is, together with all later child processes."""
    try:
        os.write(group, b"0")
    except OSError:
        return False
    finally:
        os.close(group)
    return True


def build_namespaces(common: dict[str, Any]) -> tuple[int, ...]:
    """Build what is the same for all commands. Return the descriptors for the watch from outside."""
    call(libc.unshare, NEW_MOUNTS | NEW_NETWORK | NEW_IPC)
    run_steps(common["steps"])
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    return os.pidfd_open(os.getpid()), proc, *map(listener, common["ports"])


def first_process(
    common: dict[str, Any],
    wanted: dict[str, Any],
    streams: tuple[int, int, int],
    channel: socket.socket,
    for_watch: tuple[int, ...],
) -> int:
    """Start the command and wait for its end. Processes that it leaves running end with this process."""
    run_steps(wanted["steps"])
    drop_privileges(common["filter"])
    send_message(channel, b"R", *for_watch)
    command = spawn(wanted, streams, channel)
    os.closerange(0, MAX_DESCRIPTORS)
    while True:
        ended, status = os.wait()
        if ended == command:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else SIGNALLED + os.WTERMSIG(status)


def run_steps(steps: list[tuple[Any, ...]]) -> None:
    """Run the functions that the steps name in `STEPS`, in order."""
    for name, *arguments in steps:
        STEPS[name](*arguments)


def spawn(wanted: dict[str, Any], streams: tuple[int, int, int], channel: socket.socket) -> int:
    """Start the command with its limits. Keep only the command's own descriptors open, also in this process."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    close_all_but(0, 1, 2, channel.fileno())
    os.chdir(wanted["folder"])
    os.setsid()
    os.nice(NICENESS)
    for number, value in wanted["limits"].items():
        _, most = resource.getrlimit(number)
        allowed = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(number, (allowed, allowed))
    return os.posix_spawn(
        wanted["path"], wanted["words"], wanted["variables"], setpgroup=0, setsigdef=IGNORED
    )


def create_file(path: bytes, content: bytes) -> None:
    """Write a file, and create it if it does not exist."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o444)
    os.write(descriptor, content)
    os.close(descriptor)


def open_as(path: bytes, number: int) -> None:
    """Open a folder or file at this descriptor number, to mount it or on it. Links are not followed."""
    os.dup2(os.open(path, os.O_PATH | os.O_NOFOLLOW), number, inheritable=False)


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    """Mount a file system with the system call of this name."""
    call(libc.mount, source, target, kind, flags, data)


STEPS: dict[str, Callable[..., object]] = {
    "mount": mount,
    "open": open_as,
    "folder": lambda path: os.makedirs(path, exist_ok=True),
    "file": create_file,
    "remove": os.unlink,
}


def listener(port: int) -> int:
    """Return a listening socket on the loopback device of this network namespace, which is switched on here."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    device = struct.pack("16sh14x", b"lo", 0)
    flags = struct.unpack("16sh14x", fcntl.ioctl(found, GET_FLAGS, device))[1]
    fcntl.ioctl(found, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | IS_UP))
    found.bind(("127.0.0.1", port))
    found.listen(64)
    return found.detach()


def drop_privileges(program: bytes) -> None:
    """Drop every capability for good, forbid tracing, and install the filter of system calls."""
    prctl(SET_DUMPABLE, 0)
    for capability in CAPABILITIES:
        prctl(DROP_BOUND, capability)
    prctl(AMBIENT, CLEAR_ALL)
    call(libc.capset, struct.pack("=Ii", CAPABILITIES_VERSION, 0), bytes(24))
    prctl(NO_NEW_PRIVILEGES, 1)
    code = ctypes.create_string_buffer(program, len(program))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.addressof(described))


def prctl(*arguments: int) -> None:
    """Change an attribute of this process with the system call of this name."""
    call(libc.prctl, *(ctypes.c_ulong(number) for number in (*arguments, 0, 0, 0, 0)[:5]))


def call(function: Any, *arguments: object) -> None:
    """Call a function of the C library.

    Raises:
        OSError: the function reports a failure.
    """
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


def read_values(descriptor: int) -> dict[str, Any]:
    """Read a file that this program wrote."""
    with open(descriptor, "rb") as file:
        return dict(marshal.load(file))  # noqa: S302  the same program wrote it


def reason(error: BaseException) -> bytes:
    """Return the reason of an error as text."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).encode("utf-8", "replace")


def send_message(channel: socket.socket, text: bytes, *descriptors: int) -> None:
    """Send a message and descriptors, which are closed here. An error is ignored: the other side may be gone."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))
    try:  # noqa: SIM105  contextlib takes long to load
        channel.sendmsg([text[:MAX_BYTES]], [rights] if descriptors else [])
    except OSError:
        pass
    for descriptor in descriptors:
        os.close(descriptor)


def receive_request(control: socket.socket) -> tuple[int, int, int, int, int, int]:
    """Receive the six descriptors of the next request. Exit if no more requests come."""
    text, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(24), socket.MSG_CMSG_CLOEXEC)
    if not text:
        os._exit(0)
    request, given, out, err, group, channel = struct.unpack("6i", ancillary[0][2])
    return request, given, out, err, group, channel


def close_all_but(*kept: int) -> None:
    """Close every other descriptor."""
    low = 0
    for descriptor in sorted(kept):
        if low < descriptor:
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, MAX_DESCRIPTORS)


if __name__ == "__main__":
    main()
