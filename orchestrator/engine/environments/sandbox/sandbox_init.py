"""The first process of a bubblewrap sandbox: starts each command in namespaces of its own, and says how it ended.

It is a script for `python -I -S`, and no command can see it. Its arguments are the numbers of a socket and of a file
with what is the same for all commands. Each message on the socket is a request with five descriptors: a file with
the request itself, the command's two outputs, the entrance of a control group, and a channel. When the socket is
closed, everything here ends; when a channel is shut down, its command is killed. On the channel come `S` where it may
not enter the group, `R` with three descriptors (the command's first process, its `/proc`, the proxy's listening
socket), or `E` and why it could not be started; in the end `X` and the exit code. By then nothing of the command is
left: the code is that of the first process of a process namespace, which ends after all others. `bubblewrap.py` is the
other side of this, and writes both files.

Calls and numbers: clone(2), mount(2), capset(2), prctl(2), netdevice(7) and the kernel's `include/uapi/linux`.
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

TYPE_CHECKING = False  # typing's own, whose import takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NEW_MOUNTS, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x8000000, 0x20000000, 0x40000000
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
SET_DUMPABLE, SET_SECCOMP, DROP_BOUND, NO_NEW_PRIVILEGES, AMBIENT, CLEAR_ALL = 4, 22, 24, 38, 47, 4
SECCOMP_FILTER = 2
CAPABILITIES = (8, 12, 21)  # SETPCAP, NET_ADMIN, SYS_ADMIN: all that this process was given
CAPABILITIES_VERSION = 0x20080522
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 1  # of a network device
NICENESS = 10  # what watches from outside must get its turn among thousands
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python, and a program would inherit it
SIGNALLED = 128  # and the signal's number, as shells say it
MAX_BYTES = 4_096
MAX_DESCRIPTORS = 1 << 16

libc = ctypes.CDLL(None, use_errno=True)
python = ctypes.PyDLL(None, use_errno=True)  # a call that keeps the interpreter's lock, as a fork must


class FirstProcess:
    """A command's first process, made before there is a command: its number here and handle, and the ways to it."""

    def __init__(self, common: dict[str, Any]) -> None:
        self.orders, theirs = socket.socketpair()
        self.channel = self.orders  # until there is one
        self.process = fork()
        if self.process == 0:
            be_first(common, theirs)
        theirs.close()
        self.handle = os.pidfd_open(self.process)


def main() -> None:
    """Serve until the socket is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    common = read_values(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the kernel does not deliver to a first process
    waiting: FirstProcess | None = FirstProcess(common)
    send_message(control, b"R", os.pidfd_open(os.getpid()))
    poll = select.poll()
    poll.register(control, select.POLLIN)
    running: dict[int, FirstProcess] = {}
    while True:
        descriptor = poll.poll()[0][0]  # one at a time: the numbers of closed ones are given out again
        known = running.get(descriptor)
        if known is None:
            known, waiting = start_command(receive_request(control), waiting or FirstProcess(common)), None
            for number in (known.handle, known.channel.fileno()):
                running[number] = known
                poll.register(number, select.POLLIN)
            try:  # noqa: SIM105  the same
                waiting = FirstProcess(common)
            except OSError:  # then it is tried again when it is needed
                pass
        elif descriptor == known.handle:
            for number in {descriptor, known.channel.fileno()} & running.keys():
                del running[number]
                poll.unregister(number)
            os.close(descriptor)
            _, status = os.waitpid(known.process, 0)
            send_message(known.channel, b"X%d" % os.waitstatus_to_exitcode(status))
            known.channel.close()
        else:  # nothing is ever said on a channel: it was shut down
            del running[descriptor]
            poll.unregister(descriptor)
            signal.pidfd_send_signal(known.handle, signal.SIGKILL)


def start_command(handed: tuple[int, ...], first: FirstProcess) -> FirstProcess:
    """Hand a request over to a first process; where that is dead, its end says so."""
    *rest, channel = handed
    send_message(first.orders, b"C", *rest, os.dup(channel))
    first.orders.close()
    first.channel = socket.socket(fileno=channel)
    return first


def fork() -> int:
    """Fork into a new process namespace. Unlike unshare(2) it changes nothing for later forks of this process."""
    python.PyOS_BeforeFork()
    process = int(python.syscall(CLONE, NEW_PROCESSES | signal.SIGCHLD, 0, 0, 0, 0))
    number = ctypes.get_errno()
    (python.PyOS_AfterFork_Child if process == 0 else python.PyOS_AfterFork_Parent)()
    if process < 0:
        raise OSError(number, f"clone: {os.strerror(number)}")
    return process


def be_first(common: dict[str, Any], orders: socket.socket) -> NoReturn:
    """Be the first process of a command, and end as the command does."""
    problem, code = b"", 126
    handed: tuple[int, ...] = ()
    try:
        close_all_but(0, 1, 2, orders.fileno())
        try:
            handed = build_namespaces(common)
        except Exception as error:  # noqa: BLE001  it is sent with the first request
            problem = reason(error)
        request, out, err, group, number = receive_request(orders)
        orders.close()
        channel = socket.socket(fileno=number)
        if not enter_group(group):
            send_message(channel, b"S")
        try:
            code = (
                126 if problem else first_process(common, read_values(request), (out, err), channel, handed)
            )
        except Exception as error:  # noqa: BLE001  the same
            problem = reason(error)
        if problem:
            send_message(channel, b"E" + problem)
    finally:
        os._exit(code)  # whatever it is, nothing runs on unconfined


def enter_group(group: int) -> bool:
    """Enter the control group whose file this is, with all that is started from here on."""
    try:
        os.write(group, b"0")
    except OSError:
        return False
    finally:
        os.close(group)
    return True


def build_namespaces(common: dict[str, Any]) -> tuple[int, ...]:
    """Build what is the same for all commands. Returns the descriptors for who watches from outside."""
    call(libc.unshare, NEW_MOUNTS | NEW_NETWORK | NEW_IPC)
    take_steps(common["steps"])
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    return os.pidfd_open(os.getpid()), proc, listener(common["port"])


def first_process(
    common: dict[str, Any],
    asked: dict[str, Any],
    outputs: tuple[int, int],
    channel: socket.socket,
    handed: tuple[int, ...],
) -> int:
    """Start the command and wait for its end. What is left of it ends with this process."""
    take_steps(asked["steps"])
    drop_powers(common["filter"])
    send_message(channel, b"R", *handed)
    command = spawn(asked, outputs, channel)
    os.closerange(0, MAX_DESCRIPTORS)
    while True:
        ended, status = os.wait()
        if ended == command:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else SIGNALLED + os.WTERMSIG(status)


def take_steps(steps: list[tuple[Any, ...]]) -> None:
    """Do what `STEPS` names, one after another."""
    for name, *arguments in steps:
        STEPS[name](*arguments)


def spawn(asked: dict[str, Any], outputs: tuple[int, int], channel: socket.socket) -> int:
    """Start the command with its limits, and only its own descriptors. Its parent's are the same then."""
    for number, descriptor in enumerate((os.open("/dev/null", os.O_RDONLY), *outputs)):
        os.dup2(descriptor, number)
    close_all_but(0, 1, 2, channel.fileno())
    os.chdir(asked["folder"])
    os.setsid()
    os.nice(NICENESS)
    for number, value in asked["limits"].items():
        _, most = resource.getrlimit(number)
        allowed = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(number, (allowed, allowed))
    path, *words = asked["words"]
    words.insert(0, os.path.basename(path))  # noqa: PTH119  a name
    return os.posix_spawn(path, words, asked["variables"], setpgroup=0, setsigdef=IGNORED)


def create_file(path: bytes, content: bytes) -> None:
    """Write a file, and make it where it is not there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o444)
    os.write(descriptor, content)
    os.close(descriptor)


def open_as(path: bytes, number: int) -> None:
    """Open a folder or a file under this number, to mount it or on it. A link is not followed."""
    os.dup2(os.open(path, os.O_PATH | os.O_NOFOLLOW), number, inheritable=False)


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    """Mount something: the call of this name, of section 2 of the manual."""
    call(libc.mount, source, target, kind, flags, data)


STEPS: dict[str, Callable[..., object]] = {
    "mount": mount,
    "open": open_as,
    "folder": lambda path: os.makedirs(path, exist_ok=True),  # noqa: PTH103  bytes
    "file": create_file,
    "remove": os.unlink,
}


def listener(port: int) -> int:
    """A listening socket on this network's own loopback device, which is off at first."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    device = struct.pack("16sh14x", b"lo", 0)
    flags = struct.unpack("16sh14x", fcntl.ioctl(found, GET_FLAGS, device))[1]
    fcntl.ioctl(found, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | IS_UP))
    found.bind(("127.0.0.1", port))
    found.listen(64)
    return found.detach()


def drop_powers(program: bytes) -> None:
    """Give up every capability for ever, refuse to be traced, and let the kernel filter calls."""
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
    """Change this process: the call of this name, of section 2 of the manual."""
    call(libc.prctl, *(ctypes.c_ulong(number) for number in (*arguments, 0, 0, 0, 0)[:5]))


def call(function: Any, *arguments: object) -> None:
    """Call a function of the C library.

    Raises:
        OSError: it says that it failed.
    """
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


def read_values(descriptor: int) -> dict[str, Any]:
    """Read a file of this program's."""
    with open(descriptor, "rb") as file:
        return dict(marshal.load(file))  # noqa: S302  the same program wrote it


def reason(error: BaseException) -> bytes:
    """Why something failed."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).encode("utf-8", "replace")


def send_message(channel: socket.socket, text: bytes, *descriptors: int) -> None:
    """Send a message and descriptors, which are closed here. The other side may be gone."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))
    try:  # noqa: SIM105  contextlib takes long to load
        channel.sendmsg([text[:MAX_BYTES]], [rights] if descriptors else [])
    except OSError:
        pass
    for descriptor in descriptors:
        os.close(descriptor)


def receive_request(control: socket.socket) -> tuple[int, int, int, int, int]:
    """The five descriptors of the next request. Ends everything where none comes any more."""
    text, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(20), socket.MSG_CMSG_CLOEXEC)
    if not text:
        os._exit(0)
    request, out, err, group, channel = struct.unpack("5i", ancillary[0][2])
    return request, out, err, group, channel


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
