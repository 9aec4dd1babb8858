"""The watchdog: real processes that are stuck in one way or another, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.watchdog_process import NOTE_FILE
from tests.doubles.forked import Forked

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """
import asyncio, os, subprocess, sys, threading
from pathlib import Path
from orchestrator.core import watchdog
from orchestrator.core.event_loop import in_abandoned_thread, on_ending_signals, run

watchdog.start_watchdog({grace}, overtime_seconds=0.0)

def ready():
    print("ready", flush=True)
"""

HOLDS_THE_INTERPRETER = "import itertools; ready(); sum(itertools.repeat(0, 10**18))"
"""Nothing else of Python runs meanwhile: no other thread, no handler of a signal."""

IN_A_LOOP = """
async def work():
    task = asyncio.current_task()
    on_ending_signals(task.cancel, interrupt=task.cancel)
    {stuck}

try:
    run(work())
except asyncio.CancelledError:
    pass
"""

IGNORES = "trap '' TERM HUP INT; echo ready; sleep 1000 & sleep 1000"
STUCK = {
    "a pattern": "import re; ready(); re.match('(a+)+$', 'a' * 60 + 'b')",
    "a call that holds the interpreter": HOLDS_THE_INTERPRETER,
    "the same in a thread": f"""
    def hold():
        {HOLDS_THE_INTERPRETER}
    await asyncio.to_thread(hold)""",
    "a pipe that nobody writes to": "os.mkfifo('pipe'); ready(); Path('pipe').open()",
    "a child that ignores signals": (
        f'subprocess.run(["sh", "-c", "{IGNORES}"], env=os.environ | watchdog.owner_variables())'
    ),
    "a thread that never ends": "ready(); await asyncio.to_thread(threading.Event().wait)",
    "a task that swallows its cancellation": """
    ready()
    while True:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            pass""",
    "a handler that never returns": """
    on_ending_signals(threading.Event().wait, interrupt=threading.Event().wait)
    ready()
    await asyncio.sleep(1_000)""",
}
SIGNALS = {
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "a second Ctrl+C": (signal.SIGINT, signal.SIGINT),
}


@dataclass(slots=True)
class Program:
    """A process, and what it and its children print."""

    process: Forked
    output: int

    def deliver(self, number: int) -> None:
        """Send a signal, and wait until it has come: an equal one that comes meanwhile would be lost."""
        self.process.send_signal(number)
        with contextlib.suppress(FileNotFoundError):
            while _pending(self.process.pid) >> (number - 1) & 1:
                os.sched_yield()

    def read_line(self) -> bytes:
        """A line, as it was printed."""
        line = b""
        while not line.endswith(b"\n") and (letter := os.read(self.output, 1)):
            line += letter
        return line

    def end_of_output(self) -> bytes:
        """The rest of the output. It ends when nobody can write to it: the process and its children are gone."""
        rest = b""
        while data := os.read(self.output, 4096):
            rest += data
        return rest


def _pending(process: int) -> int:
    """The signals that a process was sent and has not received, a bit each."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("ShdPnd:")[2].split()[0], 16)


@contextlib.contextmanager
def started(code: str, folder: Path, grace: float = 0.2) -> Iterator[Program]:
    """Run code in a process that has a watchdog."""
    read, write = os.pipe()
    try:
        with Path(os.devnull).open("r+b") as nothing:
            streams = nothing.fileno(), write, nothing.fileno()
            process = Forked((), streams, folder, code=HEAD.format(grace=grace) + code)
        os.close(write)
        try:
            yield Program(process, read)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
    finally:
        os.close(read)


@pytest.mark.parametrize("how", SIGNALS)
def test_a_process_that_is_stuck_ends_with_its_children_after_signals(how: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        programs = {}
        for number, (name, stuck) in enumerate(STUCK.items()):
            (folder := tmp_path / str(number)).mkdir()
            programs[name] = stack.enter_context(started(IN_A_LOOP.format(stuck=stuck), folder))
        for program in programs.values():
            assert program.read_line() == b"ready\n"
            for number in SIGNALS[how]:
                program.deliver(number)
        ends = {}
        for name, program in programs.items():
            ends[name] = program.process.wait(60), program.end_of_output()
    assert ends == dict.fromkeys(STUCK, (-signal.SIGKILL, b""))


def test_a_time_limit_ends_it_too(tmp_path: Path) -> None:
    limit = f"""
    with watchdog.time_limit(0.001), watchdog.watched_run(Path("run")):
        {HOLDS_THE_INTERPRETER}"""
    (tmp_path / "run").mkdir()
    with started(IN_A_LOOP.format(stuck=limit), tmp_path) as program:
        assert program.process.wait(60) == -signal.SIGKILL
        program.end_of_output()
    note = (tmp_path / "run" / NOTE_FILE).read_text()
    assert note == (
        "the process was killed: it did not end within 0.2 s of SIGTERM, which it was sent because 0.001 minutes "
        "(max_minutes) were over for 0 s"
    )


def test_a_time_limit_is_an_orderly_end_where_that_is_possible(tmp_path: Path) -> None:
    code = """
async def work():
    on_ending_signals(asyncio.current_task().cancel)
    with watchdog.time_limit(0.001):
        await asyncio.sleep(1_000)

try:
    run(work())
except asyncio.CancelledError:
    print("saved", flush=True)
    sys.exit(5)
"""
    with started(code, tmp_path, grace=60) as program:
        assert program.end_of_output() == b"saved\n"
        assert program.process.wait(60) == 5


def test_a_time_limit_that_was_kept_ends_nothing(tmp_path: Path) -> None:
    code = """
with watchdog.time_limit(0.001):
    pass
with watchdog.time_limit(None):
    threading.Event().wait(0.3)
print("done")
"""
    with started(code, tmp_path) as program:
        assert program.end_of_output() == b"done\n"
        assert program.process.wait(60) == 0


def test_signals_reach_a_loop_that_waits_and_an_orderly_end_stays_one(tmp_path: Path) -> None:
    code = """
async def work():
    ended = asyncio.Event()
    on_ending_signals(ended.set, interrupt=lambda: print("Ctrl+C", flush=True))
    ready()
    await ended.wait()
    print("saved", flush=True)

run(work())
sys.exit(7)
"""
    for number in (signal.SIGTERM, signal.SIGHUP):
        with started(code, tmp_path, grace=60) as program:
            assert program.read_line() == b"ready\n"
            program.process.send_signal(signal.SIGINT)
            assert program.read_line() == b"Ctrl+C\n"
            program.process.send_signal(number)
            assert program.end_of_output() == b"saved\n"
            assert program.process.wait(60) == 7


def test_ctrl_c_that_has_done_its_work_is_not_counted(tmp_path: Path) -> None:
    code = """
async def work():
    told, times = asyncio.Event(), 0
    on_ending_signals(told.set, interrupt=told.set)
    for word in ("one", "two", "three"):
        print(word, flush=True)
        await told.wait()
        told.clear()
        watchdog.interrupts_handled()
    await asyncio.sleep(0.5)
    print("still here", flush=True)

run(work())
"""
    with started(code, tmp_path) as program:
        for word in (b"one\n", b"two\n", b"three\n"):
            assert program.read_line() == word
            program.process.send_signal(signal.SIGINT)
        assert program.end_of_output() == b"still here\n"


def test_a_terminal_that_closes_does_not_end_what_nohup_started(tmp_path: Path) -> None:
    code = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)

async def work():
    ended = asyncio.Event()
    on_ending_signals(lambda: print("told", flush=True), interrupt=ended.set)
    ready()
    await ended.wait()

run(work())
"""
    with started(code, tmp_path, grace=60) as program:
        assert program.read_line() == b"ready\n"
        program.process.send_signal(signal.SIGHUP)
        program.process.send_signal(signal.SIGINT)
        assert program.end_of_output() == b""
        assert program.process.wait(60) == 0


@pytest.mark.parametrize(
    "work",
    [
        "threading.Thread(target=threading.Event().wait).start()",
        """
async def work():
    asyncio.ensure_future(asyncio.to_thread(threading.Event().wait))
    await asyncio.sleep(0.01)

run(work(), threads_seconds=0.1)
""",
    ],
    ids=["a thread", "a thread of the loop"],
)
def test_threads_that_never_end_do_not_change_the_exit_status(work: str, tmp_path: Path) -> None:
    code = f"""{work}
print("done")
watchdog.leave_within_grace(3, 0.1)
sys.exit(3)
"""
    with started(code, tmp_path, grace=60) as program:
        assert program.end_of_output() == b"done\n"
        assert program.process.wait(60) == 3


def test_a_thread_that_waits_for_input_does_not_hold_up_the_end(tmp_path: Path) -> None:
    code = """
async def work():
    reading, _ = os.pipe()
    waiting = asyncio.ensure_future(in_abandoned_thread(lambda: os.read(reading, 1)))
    await asyncio.sleep(0.01)
    waiting.cancel()
    print(await in_abandoned_thread(lambda: "read"))

run(work())
"""
    with started(code, tmp_path, grace=60) as program:
        assert program.end_of_output() == b"read\n"
        assert program.process.wait(60) == 0


def test_the_programs_of_a_process_that_was_killed_end(tmp_path: Path) -> None:
    # They are in sessions of their own, ignore signals, and have started others.
    code = f"""
for _ in range(3):
    subprocess.Popen(
        ["sh", "-c", "{IGNORES}"], env=os.environ | watchdog.owner_variables(), start_new_session=True
    )
threading.Event().wait()
"""
    with started(code, tmp_path) as program:
        for _ in range(3):
            assert program.read_line() == b"ready\n"
        program.process.kill()
        assert program.end_of_output() == b""


def test_the_commands_of_a_process_that_was_killed_end(tmp_path: Path) -> None:
    code = f"""
from orchestrator.engine.environments.base import Command
from orchestrator.engine.environments.commands import ProgramLaunch

async def work():
    launch = ProgramLaunch(("sh", "-c", "{IGNORES}"), Command("", "/", {{"PATH": os.environ["PATH"]}}, 1))
    await launch.start(1, 2)
    await asyncio.Event().wait()

run(work())
"""
    with started(code, tmp_path) as program:
        assert program.read_line() == b"ready\n"
        program.process.kill()
        assert program.end_of_output() == b""


def test_what_is_left_running_at_an_orderly_end_stays(tmp_path: Path) -> None:
    code = """
subprocess.Popen(["sh", "-c", "sleep 0.5; echo stayed"], env=os.environ | watchdog.owner_variables())
watchdog.leave_within_grace(0)
"""
    with started(code, tmp_path, grace=60) as program:
        assert program.process.wait(60) == 0
        assert program.end_of_output() == b"stayed\n"


def test_the_watchdog_has_nothing_of_the_programs_environment(tmp_path: Path) -> None:
    code = """
os.environ["SECRET"] = "zebraquartz"
for process in filter(str.isdecimal, os.listdir("/proc")):
    try:
        words = Path("/proc", process, "cmdline").read_bytes()
        parent = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        continue
    if b"watchdog_process" in words and int(parent) == os.getpid():
        print(Path("/proc", process, "environ").read_text().split("\\0"))
"""
    with started(code, tmp_path) as program:
        assert program.end_of_output() == b"['']\n"


def test_without_a_watchdog_everything_goes_on(tmp_path: Path) -> None:
    code = """
watchdog._link.send(b"D1")
for process in filter(str.isdecimal, os.listdir("/proc")):
    try:
        words = Path("/proc", process, "cmdline").read_bytes()
        parent = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        continue
    if b"watchdog_process" in words and int(parent) == os.getpid():
        os.kill(int(process), 9)
        os.waitpid(int(process), 0)

async def work():
    ended = asyncio.Event()
    on_ending_signals(ended.set)
    with watchdog.time_limit(1.0):
        ready()
        await ended.wait()

run(work())
print("saved", flush=True)
"""
    with started(code, tmp_path) as program:
        assert program.read_line() == b"ready\n"
        program.process.send_signal(signal.SIGTERM)
        assert program.end_of_output() == b"saved\n"
