"""The process that `orchestrator.core.watchdog` starts: it ends the other one, and the programs that that one started.

It is the main script of its process, which imports nothing else of this package. On standard input come the numbers of the
signals that the other process received, a byte each, and its messages. A message begins with a capital letter, which is
more than any signal's number, and ends with a NUL.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself takes 0.8 MB more
import os
import sys
import time

NOTE_FILE = "killed.txt"
"""The file in a run's folder that says why the run's process was killed."""
MARK = "PULLWRIGHT_STARTED_BY"
"""The environment variable by which the programs of a process that has died are found."""
MOST_BYTES = 4096
"""The size up to which a write into a pipe is never mixed with another one: PIPE_BUF of Linux."""

_FIRST_LETTER = ord("A")
_READ_BYTES = 65_536
_NOTE_SECONDS = 1.0
_PAUSE_SECONDS = 0.02
_STOPPED_SECONDS = 60.0
"""How long a limit is postponed if the process is stopped, as by Ctrl+Z."""
_ROUNDS = 250
"""Most searches for programs that are still there. One that waits for a device may be there for long."""
_ENDING = {signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


class Watch:
    """Watches a process, which is the parent of this one.

    Args:
        process: its id.
        grace: seconds between a request to end and SIGKILL.
    """

    def __init__(self, process: int, grace: float) -> None:
        self._process, self._grace = process, grace
        self._interrupts = 0
        self._end_at: float | None = None
        self._after = ""
        self._limits: dict[bytes, tuple[float, str]] = {}
        self._runs: set[bytes] = set()
        self._mark = b""
        self._rest = b""

    def run(self) -> None:
        """Watch until the process is gone. Then kill the programs that it started."""
        import select

        poll = select.poll()
        poll.register(0, select.POLLIN)
        while True:
            times = [at for at, _ in self._limits.values()]
            if self._end_at is not None:
                times.append(self._end_at)
            left = max(min(times) - time.monotonic(), 0.0) if times else None
            if poll.poll(None if left is None else left * 1_000 + 1):
                data = os.read(0, _READ_BYTES)
                if not data:  # nobody has the other end of the pipe any more
                    break
                self._take(self._rest + data)
            self._look_at_times()
        if self._after:
            self._write_notes(f"the process was killed after {self._after}")
        if self._mark:
            _kill_all(self._mark)

    def _take(self, data: bytes) -> None:
        while data:
            if data[0] < _FIRST_LETTER:
                self._take_signal(data[0])
                data = data[1:]
                continue
            message, end, rest = data.partition(b"\0")
            if not end:
                break
            self._take_message(message[:1], message[1:])
            data = rest
        self._rest = data

    def _take_signal(self, number: int) -> None:
        # Python's handlers run between two steps of its code, so a loop that waits has to be woken up.
        try:
            os.write(1, bytes((number,)))
        except OSError:  # nobody reads
            pass
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                self._request_end("a second Ctrl+C")
        elif number in _ENDING:
            self._request_end(_ENDING[number])

    def _take_message(self, kind: bytes, value: bytes) -> None:
        match kind:
            case b"R":
                self._runs.add(value)
            case b"X":
                self._runs.discard(value)
            case b"L":
                number, until, words = value.split(b" ", 2)
                self._limits[number] = float(until), words.decode()
            case b"D":
                self._limits.pop(value, None)
            case b"I":
                self._interrupts = 0
            case b"M":
                self._mark = f"{MARK}=".encode() + value
            case b"E":
                self._limits.clear()
                self._mark = b"" if value == b"-" else self._mark
                self._request_end("its last step")
            case _:
                pass

    def _request_end(self, after: str) -> None:
        if self._end_at is None:
            self._end_at, self._after = time.monotonic() + self._grace, after

    def _look_at_times(self) -> None:
        now = time.monotonic()
        if self._end_at is not None and now >= self._end_at:
            self._write_notes(
                f"the process was killed: it did not end within {self._grace:g} s of {self._after}"
            )
            self._signal(signal.SIGKILL)
            self._end_at = now + self._grace  # it may wait for a device meanwhile
        for number, (at, words) in list(self._limits.items()):
            if now < at:
                continue
            if _is_stopped(self._process):
                self._limits[number] = now + _STOPPED_SECONDS, words
                continue
            del self._limits[number]
            self._request_end(f"SIGTERM, which it was sent because {words}")
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if os.getppid() == self._process:
            try:
                os.kill(self._process, number)
            except ProcessLookupError:
                pass

    def _write_notes(self, why: str) -> None:
        """Write the reason into the folders of the runs. Do not wait long for a file system that hangs."""
        if not self._runs:
            return
        child = os.fork()
        if not child:
            for folder in self._runs:
                _write_note(folder, why)
            os._exit(0)
        end = time.monotonic() + _NOTE_SECONDS
        while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
        self._runs.clear()


def _write_note(folder: bytes, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.write(os.open(folder + b"/" + NOTE_FILE.encode("ascii"), flags, 0o600), text.encode())
    except OSError:  # the folder is gone, or the disk is full
        pass


def _is_stopped(process: int) -> bool:
    """Return whether a process is stopped by a signal. Format: proc_pid_stat(5), the state follows the name."""
    state = _content(f"/proc/{process}/stat").rpartition(b")")[2].split()
    return bool(state) and state[0] in {b"T", b"t"}


def _kill_all(mark: bytes) -> None:
    """Kill each process with a variable in its environment, until there is none. It needs Linux's /proc."""
    for _ in range(_ROUNDS):
        try:
            names = os.listdir("/proc")
        except OSError:
            return
        killed = [name for name in names if name.isdecimal() and _kill_marked(int(name), mark)]
        if not killed:
            return
        time.sleep(_PAUSE_SECONDS)


def _kill_marked(process: int, mark: bytes) -> bool:
    try:
        handle = os.pidfd_open(process)  # first, so that the number cannot become another process's
    except OSError:
        return False
    try:
        if mark not in _content(f"/proc/{process}/environ").split(b"\0"):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _content(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError:
        return b""


def main() -> None:
    """Watch the process whose id is the first argument, with the grace in seconds that is the second one."""
    try:
        os.setsid()  # what kills the other one's process group does not reach this one
    except OSError:
        pass
    os.closerange(3, MOST_BYTES)
    os.set_blocking(1, False)
    os.chdir("/")
    Watch(int(sys.argv[1]), float(sys.argv[2])).run()


if __name__ == "__main__":
    main()
