"""A terminal in which a program runs, with a person at it who waits for words before typing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

from tests.doubles.forked import Forked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")
_CURSOR_ASKED, _CURSOR = b"\x1b[6n", b"\x1b[1;1R"
_LONGEST_WAIT_SECONDS = 60.0


class Terminal:
    """`pullwright` in a terminal of its own. What it prints is kept without control sequences in `text`.

    Args:
        new_interpreter: for a test of what is imported, and when.
    """

    def __init__(
        self,
        *argv: str,
        folder: Path,
        environ: Mapping[str, str],
        size: tuple[int, int] = (100, 30),
        new_interpreter: bool = False,
    ) -> None:
        self.text = ""
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": str(size[0]), **environ}
        if new_interpreter:
            self._process: subprocess.Popen[bytes] | Forked = subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *argv],
                stdin=there,
                stdout=there,
                stderr=there,
                cwd=folder,
                env=environ,
                start_new_session=True,
            )
        else:
            self._process = Forked(argv, (there, there, there), folder, environ)
        os.close(there)

    def wait_for(self, words: str) -> str:
        """Wait until these words came since the last wait; what came up to their end."""
        until = time.monotonic() + _LONGEST_WAIT_SECONDS
        while (place := self.text.find(words)) < 0:
            assert self._read(until - time.monotonic()), (
                f"{words!r} did not come; what came: {self.text[-2000:]}"
            )
        said, self.text = self.text[: place + len(words)], self.text[place + len(words) :]
        return said

    def type(self, text: str) -> None:
        """Type this, and Enter."""
        self.press(f"{text}\r")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._here, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl+C while the program works, which the terminal's driver makes a signal of."""
        self._process.send_signal(signal.SIGINT)

    def hang_up(self) -> None:
        """Close the window: the system tells the program."""
        self._process.send_signal(signal.SIGHUP)

    def end(self) -> int:
        """Wait for the program's end; its exit status."""
        until = time.monotonic() + _LONGEST_WAIT_SECONDS
        while self._read(until - time.monotonic()):
            pass
        return self._process.wait(timeout=_LONGEST_WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._here)

    def _read(self, seconds: float) -> bool:
        """Take in what came; False at the end of the program or of the time."""
        if not select.select([self._here], [], [], max(seconds, 0))[0]:
            return False
        try:
            data = os.read(self._here, 65_536)
        except OSError:  # Linux: the other end is closed
            return False
        if _CURSOR_ASKED in data:
            os.write(self._here, _CURSOR)
        self.text = _SEQUENCE.sub("", self.text + data.decode("utf-8", "replace")).replace("\r", "")
        return bool(data)
