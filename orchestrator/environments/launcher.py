"""Runs inside the sandbox, before the command: hands descriptors out, sets limits, becomes the command.

It is a script for `python -I -S` and imports nothing but what an interpreter has built in.
Its arguments are the number of a socket and, where it is to listen, a port. It says `R`, with the
listening socket and `/proc`; what it then reads is a length of 8 bytes and texts with NUL between
them: limits as `number:value` with blanks between, shell, folder, line, `NAME=value` for each variable.
"""

import os
import sys


def main() -> None:
    """Say that it runs, then become the command, or say why not."""
    import _socket
    import resource

    signals = __import__("_signal")  # `signal` itself would load `enum`, which takes longer than all of this

    channel = _socket.socket(fileno=int(sys.argv[1]))
    channel_fd = channel.fileno()
    os.set_inheritable(channel_fd, False)
    try:
        handed = _open(int(sys.argv[2])) if sys.argv[2:] else []
        ancillary = [
            (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in handed))
        ]
        channel.sendmsg([b"R"], ancillary if handed else [])
        for descriptor in handed:
            os.close(descriptor)
        length = int.from_bytes(_read(channel_fd, 8), "big")
        limits, shell, folder, line, *variables = _read(channel_fd, length).split(b"\0")
        for pair in limits.split():
            number, value = map(int, pair.split(b":"))
            _, most = resource.getrlimit(number)
            allowed = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(number, (allowed, allowed))
        for number in (signals.SIGPIPE, signals.SIGXFSZ):  # which Python ignores, and a program would inherit
            signals.signal(number, signals.SIG_DFL)
        os.nice(10)  # what watches from outside must get its turn among thousands
        os.chdir(folder)
        environment = dict(pair.split(b"=", 1) for pair in variables)
        os.execve(shell, [os.path.basename(shell), b"-c", line], environment)  # noqa: PTH119, S606  what it is for
    except OSError as error:
        channel.send((error.strerror or "unknown").encode())
        os._exit(126)


def _open(port: int) -> list[int]:
    import _socket

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return [listener.detach(), os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)]


def _read(descriptor: int, size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(descriptor, min(size, 1 << 20))
        if not piece:
            os._exit(125)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


if __name__ == "__main__":
    main()
