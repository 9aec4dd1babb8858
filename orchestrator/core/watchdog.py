"""Starts the process that ends this one if it does not end by itself, and tells it what this one does.

Python handles a signal between two steps of its own code. A process that is stuck within one step is deaf: in a pattern
of `re`, in a library's function, in a wait that only the system could end. The other process is not. It learns of signals
from the handler on the C level, which writes each signal's number into the pipe of `signal.set_wakeup_fd`, whatever
Python is doing. It is a new program without this one's environment, so it has no secret in its memory.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from orchestrator.core import watchdog_process
from orchestrator.core.watchdog_process import MARK, MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GRACE_SECONDS = 10.0
"""Time between a request to end and SIGKILL: a second Ctrl+C, SIGTERM, SIGHUP, or a time limit that is over."""
OVERTIME_SECONDS = 60.0
"""Time that work may take beyond its time limit before the watchdog asks the process to end."""
EXIT_SECONDS = 3.0
"""Time that threads get to end at the exit of the process, before it ends without them."""
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that request an end at once. The second SIGINT is another such request."""
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class _Link:
    """The pipes to the watchdog.

    Attributes:
        commands: takes signals and messages.
        wake: readable after each signal.
        overtime_seconds: how long work may go on after its time limit.
        mark: the value of `MARK` for the programs of this process.
    """

    def __init__(self, commands: int, wake: int, overtime_seconds: float) -> None:
        self.commands, self.wake, self.overtime_seconds = commands, wake, overtime_seconds
        self.mark = os.urandom(8).hex()
        self._marked = False
        self._limits = 0

    def send(self, message: bytes) -> None:
        """Send a message. If the watchdog is gone, the process goes on without it."""
        data = message + b"\0"
        if len(data) <= MOST_BYTES:
            with suppress(OSError):
                os.write(self.commands, data)

    def tell_mark(self) -> None:
        if not self._marked:
            self._marked = True
            self.send(b"M" + self.mark.encode("ascii"))

    def next_limit(self) -> int:
        self._limits += 1
        return self._limits


_link: _Link | None = None


def start_watchdog(grace_seconds: float = GRACE_SECONDS, overtime_seconds: float = OVERTIME_SECONDS) -> None:
    """Start the second process, which watches this one until it ends. Call it before any thread exists.

    If no process can be started, there is no watchdog.

    Args:
        grace_seconds: see `GRACE_SECONDS`.
        overtime_seconds: see `OVERTIME_SECONDS`.
    """
    global _link  # noqa: PLW0603  a process has one watchdog, as it has one `set_wakeup_fd`
    if not sys.executable or _link is not None:
        return
    (read, commands), (wake, write) = os.pipe(), os.pipe()
    os.set_blocking(commands, False)
    os.set_blocking(wake, False)
    words = [sys.executable, "-I", "-S", "-B", os.path.abspath(watchdog_process.__file__)]  # noqa: PTH100  pathlib takes long to load
    try:
        os.posix_spawn(
            sys.executable,
            [*words, str(os.getpid()), str(grace_seconds)],
            {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read, 0),
                (os.POSIX_SPAWN_DUP2, write, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            # It must outlive what ends the process that it watches. It ends when that one is gone.
            setsigmask=[signal.SIGINT, *ENDING_SIGNALS, signal.SIGQUIT, signal.SIGTSTP],
        )
    except OSError:
        os.close(commands)
        os.close(wake)
        return
    finally:
        os.close(read)
        os.close(write)
    _link = _Link(commands, wake, overtime_seconds)
    signal.set_wakeup_fd(commands, warn_on_full_buffer=False)


def wake_descriptor() -> int | None:
    """Return the descriptor that is readable after each signal; None without a watchdog."""
    return _link.wake if _link is not None else None


def owner_variables() -> dict[str, str]:
    """Return the environment variable of a program that must end with this process; none without a watchdog."""
    if _link is None:
        return {}
    _link.tell_mark()
    return {MARK: _link.mark}


def interrupts_handled() -> None:
    """Forget earlier Ctrl+C: each of them has done what it is for, so the next one is again the first."""
    if _link is not None:
        _link.send(b"I")


@contextmanager
def watched_run(folder: Path) -> Iterator[None]:
    """Have the watchdog write `NOTE_FILE` into a run's folder if it ends the process during the block."""
    name = os.fsencode(folder.absolute())
    if _link is not None:
        _link.send(b"R" + name)
    try:
        yield
    finally:
        if _link is not None:
            _link.send(b"X" + name)


@contextmanager
def time_limit(minutes: float | None) -> Iterator[None]:
    """Have the watchdog end the process if the block takes longer than its time limit and the overtime.

    It sends SIGTERM then, and SIGKILL after the grace.

    Args:
        minutes: the time limit; None for none.
    """
    if _link is None or minutes is None:
        yield
        return
    number = _link.next_limit()
    until = time.monotonic() + minutes * 60.0 + _link.overtime_seconds
    words = f"{minutes:g} minutes (max_minutes) were over for {_link.overtime_seconds:g} s"
    _link.send(f"L{number} {until} {words}".encode())
    try:
        yield
    finally:
        _link.send(f"D{number}".encode("ascii"))


def leave_within_grace(status: int, seconds: float = EXIT_SECONDS) -> None:
    """Make sure that the exit of this process, which begins now, does not wait for its threads for ever.

    Args:
        status: the exit status. It holds even if the process ends without its threads.
        seconds: how long the exit may wait for them.
    """
    threading = sys.modules.get("threading")
    is_alone = threading is None or threading.active_count() == 1
    if _link is not None:
        # Without other threads nothing waits for a program any more, so none is left that has to be killed.
        _link.send(b"E-" if is_alone else b"E")
    if threading is None or is_alone:
        return

    def leave() -> None:
        time.sleep(seconds)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)

    threading.Thread(target=leave, daemon=True).start()


def leave_first_process() -> None:
    """Go on in a child process if this is the first process of a container, which nobody inside can kill.

    The first process then passes signals on, reaps what is orphaned, and ends with the child's status.
    """
    if os.getpid() != 1:
        return
    child = os.fork()
    if not child:
        # A group of its own, so that a terminal's Ctrl+C comes here once.
        os.setpgid(0, 0)
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):
            os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, before)
        return

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, *ENDING_SIGNALS):
        signal.signal(number, pass_on)
    while True:
        process, status = os.wait()
        if process == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
