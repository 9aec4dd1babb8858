"""Nothing outlives its command, and no command outlives the program: judged by what lives, seen from outside."""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import _programs
from orchestrator.engine.environments.sandbox.bubblewrap import _INIT, BubblewrapSandbox
from orchestrator.engine.environments.sandbox.seccomp import syscall_filter
from tests.conformance.environments import this_machines_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
MS = 600_000
"""No command has that long: a test that waits for one fails by its own time limit."""
SHORT_MS = 1_500
"""Enough for a shell to begin on a busy machine."""

STAYS = "echo up >&3; exec -a {mark} sleep 600"
FIRST = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for call in (lambda: libc.ptrace(0x4206, 1, 0, 0), lambda: libc.ptrace(16, 1, 0, 0)):
    call()  # PTRACE_SEIZE, PTRACE_ATTACH
first = libc.syscall(434, 1, 0)
for number in range(64):
    libc.syscall(438, first, number, 0)  # pidfd_getfd
libc.prctl(1, 0)  # no signal at the death of the parent
for number in range(1, 65):
    if number not in (9, 19, 32, 33):
        libc.signal(number, ctypes.c_void_p(1))
for path in ("/proc/1/mem", "/proc/1/fd/3", "/proc/1/oom_score_adj"):
    try:
        os.open(path, os.O_RDWR)
    except OSError:
        pass
os.kill(1, 9), os.kill(1, 15), os.kill(1, 19)
"""
TWICE = """
import os, sys
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
os.execv("/bin/bash", ["bash", "-c", sys.argv[1]])
"""


def python(text: str, *words: str) -> str:
    return " ".join(map(shlex.quote, (sys.executable, "-c", text, *words)))


DAEMONS = {
    "in the background": f"bash -c '{STAYS}' &",
    "in a session of its own": f"setsid bash -c '{STAYS}' &",
    "forked twice": python(TWICE, STAYS),
    "deaf": f"(trap '' HUP INT QUIT TERM USR1 USR2; setsid bash -c '{STAYS}') &",
    "without the outputs": f"setsid bash -c '{STAYS}' >/dev/null 2>&1 &",
    "stopped": f"setsid bash -c 'kill -STOP $$; {STAYS}' & echo up >&3",
    "a fork bomb's": f"for n in 1 2 3 4 5 6 7 8; do setsid bash -c '{STAYS}' & done",
    "after an attack on the first process": f"{python(FIRST)}; setsid bash -c '{STAYS}' &",
}


def alive(mark: str) -> list[int]:
    """Processes of this machine with a word in their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def mark() -> Iterator[str]:
    word = f"mark-{uuid.uuid4().hex}"
    yield word
    for number in alive(word):
        os.kill(number, signal.SIGKILL)


def line(daemon: str, mark: str) -> str:
    """Ends when the daemon is there."""
    return f"mkfifo up; exec 3<>up; {DAEMONS[daemon].format(mark=mark)}\nread -r word <&3; rm up; echo $word"


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_no_process_survives_when_its_command_has_ended(daemon: str, mark: str, tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    result = await environment.exec_command(line(daemon, mark), timeout_ms=MS)
    assert alive(mark) == []
    assert (result.stdout, result.exit_code) == ("up\n", 0)
    await environment.cleanup()


@pytest.mark.parametrize("daemon", ["in a session of its own", "forked twice", "deaf", "without the outputs"])
async def test_the_same_process_survives_without_a_sandbox(daemon: str, mark: str, tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox="off")
    await environment.exec_command(line(daemon, mark), timeout_ms=MS)
    while not alive(mark):
        pass  # fails by its time limit; while a process replaces itself, its command line is empty for a moment
    await environment.cleanup()


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_no_process_survives_when_its_caller_has_given_up(
    daemon: str, mark: str, tmp_path: Path
) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    up = asyncio.Event()
    command = f"{line(daemon, mark)}; trap '' TERM; sleep 600"
    task = asyncio.create_task(environment.exec_command(command, timeout_ms=MS, on_output=lambda _: up.set()))
    await up.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(mark) == []
    await environment.cleanup()


async def test_no_process_survives_when_its_time_is_over(mark: str, tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    result = await environment.exec_command(f"{line('deaf', mark)}; sleep 600", timeout_ms=SHORT_MS)
    assert result.timed_out
    assert alive(mark) == []
    await environment.cleanup()


async def test_a_first_process_that_lies_is_killed_by_its_handle(mark: str, tmp_path: Path) -> None:
    """As if an attack on it had succeeded: it says that the command has ended well, and everything lives on."""
    honest = _INIT.read_text(encoding="utf-8")
    said = 'send_message(channel, b"R", *for_watch)'
    assert honest.count(said) == 1
    lying = tmp_path / "init.py"
    lying.write_text(honest.replace(said, f'{said}; send_message(channel, b"X0")'))
    calls = syscall_filter(os.uname().machine)
    assert calls is not None
    root = tmp_path / "clone"
    root.mkdir()
    program = next(_programs(os.environ))
    sandbox = BubblewrapSandbox(program, calls, SandboxOptions(), os.environ, lying)
    environment = LocalEnvironment(root, sandbox=sandbox)
    result = await environment.exec_command(f"exec -a {mark} sleep 600", timeout_ms=MS)
    assert alive(mark) == []
    assert result.exit_code == 0
    await environment.cleanup()


PROGRAM = """
import asyncio, sys
from orchestrator.engine.environments.local import LocalEnvironment

async def main():
    environment = LocalEnvironment(sys.argv[1])
    await environment.exec_command(sys.argv[2], timeout_ms=600_000, on_output=lambda text: print(text, flush=True))

asyncio.run(main())
"""


@pytest.mark.parametrize("daemon", ["deaf", "after an attack on the first process"])
def test_no_process_survives_when_the_program_was_killed(daemon: str, mark: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), f"{line(daemon, mark)}; sleep 600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[5]) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        while not (found := [number for number in alive(mark) if number != program.pid]):
            pass  # while a process replaces itself, its command line is empty for a moment
        handles = [os.pidfd_open(number) for number in found]
        program.kill()
        program.wait()
        for handle in handles:
            select.select([handle], [], [])  # which says that it has ended
            os.close(handle)


async def test_one_command_ends_and_the_others_go_on(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    up = asyncio.Event()
    slow = asyncio.create_task(
        environment.exec_command(
            "echo on; until test -e go; do :; done; echo $?", timeout_ms=MS, on_output=lambda _: up.set()
        )
    )
    await up.wait()
    assert (await environment.exec_command("kill -9 -1; kill -9 $$", timeout_ms=MS)).exit_code == 137
    await environment.exec_command("touch go", timeout_ms=MS)
    assert (await slow).stdout == "on\n0\n"
    await environment.cleanup()


async def test_a_sandbox_that_has_ended_is_made_again(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    for _ in range(2):
        assert (await environment.exec_command("echo on", timeout_ms=MS)).stdout == "on\n"
        for number in alive(str(tmp_path)):
            os.kill(number, signal.SIGKILL)
            select.select([os.pidfd_open(number)], [], [])
    await environment.cleanup()


async def test_closing_while_commands_are_being_started_leaves_nothing(tmp_path: Path) -> None:
    """Closed after each number of steps of the event loop."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for steps in range(0, 40, 3):
        environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
        tasks = [asyncio.create_task(environment.exec_command("sleep 600", timeout_ms=MS)) for _ in range(2)]
        for _ in range(steps):
            await asyncio.sleep(0)
        await environment.cleanup()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, ToolError) or one.exit_code < 0 for one in ended), ended  # type: ignore[union-attr]
    assert alive(str(tmp_path)) == []
    # What earlier tests left may be collected meanwhile, so that there can be fewer.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("times", [1, 2])
async def test_a_command_cancelled_while_it_is_being_started_leaves_nothing(
    times: int, mark: str, tmp_path: Path
) -> None:
    """Cancelled after each number of steps of the event loop, once or twice."""
    environment = LocalEnvironment(tmp_path, sandbox=this_machines_sandbox())
    await environment.exec_command("true", timeout_ms=MS)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for steps in range(12):
        task = asyncio.create_task(environment.exec_command(f"exec -a {mark} sleep 600", timeout_ms=MS))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        if times > 1:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
    assert (await environment.exec_command("echo on", timeout_ms=MS)).stdout == "on\n"
    await environment.cleanup()
    assert alive(mark) == []
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
