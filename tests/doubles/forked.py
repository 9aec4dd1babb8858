"""`python -m orchestrator` in a process of its own, forked from one that has imported the program already.

A new interpreter needs most of a second of a core for these imports. The tests of the start, of the demo and of the
action start new ones.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import NoReturn

_IMPORTED_LATE = (
    "anyio._backends._asyncio",
    "genai_prices.data",
    "git",
    "httpcore2",
    "jinja2",
    "jsonschema",
    "markdown_it",
    "pathspec",
    "prompt_toolkit.shortcuts",
    "rich.console",
    "truststore",
)
_LEFT_OUT = (
    "orchestrator.__main__",
    "orchestrator.plugins.fleet",
    "orchestrator.plugins.worker",
    "orchestrator.plugins.mcp",
)
"""What runs when it is imported, and what brings packages that few commands need."""
_LONGEST_ORDER = 1 << 20
_STREAMS = 3


class Forked:
    """A process that runs the program, with the part of `subprocess.Popen` that tests need.

    Args:
        argv: the words behind `pullwright`, or behind the code.
        streams: what becomes its standard input, output and error.
        folder: where it starts; here if it is not given.
        environ: its whole environment.
        code: what it runs instead of the program, as behind `python -c`.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        streams: tuple[int, int, int],
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        code: str = "",
    ) -> None:
        self.returncode: int | None = None
        self._end, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {
            "argv": argv,
            "folder": str(folder or Path.cwd()),
            "environ": dict(os.environ if environ is None else environ),
            "code": code,
        }
        with there:
            socket.send_fds(_server(), [json.dumps(order).encode()], [*streams, there.fileno()])
        self.pid = int(self._end.recv(64))

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)
            self.wait()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; its exit status, or the negative number of the signal that killed it."""
        if self.returncode is None:
            self._end.settimeout(timeout)
            with self._end:
                self.returncode = os.waitstatus_to_exitcode(int(self._end.recv(64)))
        return self.returncode


def run(
    *argv: str, environ: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, as `subprocess.run` does with no standard input and its output kept."""
    with (
        Path(os.devnull).open("rb") as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        process = Forked(argv, (nothing.fileno(), out.fileno(), err.fileno()), folder, environ)
        status = process.wait()
        return subprocess.CompletedProcess([*argv], status, _text(out), _text(err))


@contextlib.contextmanager
def piped(*argv: str, environ: Mapping[str, str] | None = None) -> Iterator[tuple[Forked, IO[str], IO[str]]]:
    """The program with its output and errors, to be read while it runs. It does not outlive the `with` block."""
    (out, program_out), (err, program_err) = os.pipe(), os.pipe()
    with os.fdopen(out, encoding="utf-8") as output, os.fdopen(err, encoding="utf-8") as errors:
        try:
            with Path(os.devnull).open("rb") as nothing:
                process = Forked(argv, (nothing.fileno(), program_out, program_err), environ=environ)
        finally:
            os.close(program_out)
            os.close(program_err)
        try:
            yield process, output, errors
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@functools.cache
def _server() -> socket.socket:
    """Where orders go. Its process ends with this one: then nobody has the other end of the socket."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen([sys.executable, "-m", __name__], stdin=there.fileno())
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


def _import_everything() -> None:
    import orchestrator

    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)
    for name in _IMPORTED_LATE:
        importlib.import_module(name)


def _serve() -> dict[str, Any] | None:
    """Fork a process for each order. Returns its order in that process, and None when nobody is left to order."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes between
    with socket.socket(fileno=os.dup(0)) as orders:
        while True:
            order, files, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, _STREAMS + 1)
            if not order:
                return None
            if not os.fork():
                break
            for file in files:
                os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        _report(child, files)
    whole: dict[str, Any] = json.loads(order)
    _become(whole, files)
    return whole


def _report(child: int, files: list[int]) -> NoReturn:
    """Tell the process's number, and its status once it has ended."""
    *streams, end = files
    for file in (0, *streams):
        os.close(file)
    os.setsid()
    with contextlib.suppress(OSError), socket.socket(fileno=end) as report:
        report.send(str(child).encode())
        report.send(str(os.waitpid(child, 0)[1]).encode())
    os._exit(0)


def _become(order: Mapping[str, Any], files: list[int]) -> None:
    """Have the streams, the folder, the words and the variables that a new process would have."""
    *streams, end = files
    os.close(end)
    os.setsid()
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    # New objects, for those of before know whether the file of before could seek.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115  to the end
        for number, mode, buffering, errors in (
            (0, "r", -1, None),
            (1, "w", -1, None),
            (2, "w", 1, "backslashreplace"),
        )
    )
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    time.tzset()
    tempfile.tempdir = None
    sys.path[0] = order["folder"]
    sys.argv = ["pullwright", *order["argv"]]


if __name__ == "__main__":
    _import_everything()
    gc.freeze()
    ordered = _serve()
    if ordered and ordered["code"]:
        exec(ordered["code"], {"__name__": "__main__"})  # noqa: S102  a test's own
    elif ordered:
        runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)
