"""Commands: their variables, their start, their output and their end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.environments.base import SandboxLimits, SandboxOptions
from orchestrator.engine.environments.commands import EnvPolicy, KeptText, child_variables, start_program
from orchestrator.engine.environments.files import ConfinedTree
from orchestrator.engine.environments.limited_child import in_child
from orchestrator.engine.environments.local import LocalEnvironment, conditions
from orchestrator.engine.environments.sandbox.seatbelt import SeatbeltSandbox
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

KEPT = [
    "PULLWRIGHT_HOME",
    "PULLWRIGHT_API_URL",
    "GIT_ASKPASS",
    "GIT_CONFIG_COUNT",
    "SSH_AUTH_SOCK",
    "PYTHONPYCACHEPREFIX",
    "GPG_AGENT_INFO",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
]


@table("name", KEPT)
def test_what_steers_git_or_signs_in_is_kept_from_commands_too(name: str) -> None:
    assert child_variables({name: "value"}, EnvPolicy.FILTERED) == {}
    assert child_variables({name: "value"}, EnvPolicy.CORE) == {}


@table("name", ["PATH", "PWD", "LC_ALL", "EDITOR", "CI", "PYTHONPATH", "KEYBOARD", "GITHUB_SHA"])
def test_other_variables_are_inherited(name: str) -> None:
    assert child_variables({name: "value"}, EnvPolicy.FILTERED) == {name: "value"}


def test_a_url_with_a_user_in_it_is_a_secret() -> None:
    variables = {
        "INDEX": "https://user:pass@host/simple",
        "DSN": "https://abc@host/1",
        "SITE": "https://host/a@b",
    }
    assert child_variables(variables, EnvPolicy.FILTERED) == {"SITE": "https://host/a@b"}


def test_the_other_policies() -> None:
    variables = {"PATH": "/bin", "CARGO_HOME": "/c", "LC_ALL": "C", "CI": "1", "GH_TOKEN": "t"}
    assert child_variables(variables, EnvPolicy.ALL) == variables
    assert child_variables(variables, EnvPolicy.NONE) == {}
    assert child_variables(variables, EnvPolicy.CORE) == {"PATH": "/bin", "CARGO_HOME": "/c", "LC_ALL": "C"}


INSIDE = SandboxOptions(("pypi.org",), (), SandboxLimits(processes=64))
HERE = {"PATH": "/bin", "LANG": "C", "EDITOR": "vi"}
CONDITIONS: dict[str, tuple[SandboxOptions | None, dict[str, str]]] = {
    "as they are": (INSIDE, HERE),
    "another limit": (replace(INSIDE, limits=SandboxLimits(processes=65)), HERE),
    "another host": (replace(INSIDE, hosts=("pypi.org:8080",)), HERE),
    "another folder": (replace(INSIDE, readable=("/opt",)), HERE),
    "another variable": (INSIDE, {**HERE, "LANG": "de"}),
    "one variable more": (INSIDE, {**HERE, "CI": "1"}),
    "no sandbox": (None, HERE),
    "another variable without a sandbox": (None, {**HERE, "EDITOR": "ed"}),
}


def _conditions(options: SandboxOptions | None, inherited: dict[str, str]) -> str:
    return conditions(SeatbeltSandbox(options, {}) if options else None, inherited)


def test_each_difference_for_commands_is_another_condition() -> None:
    assert len({_conditions(*given) for given in CONDITIONS.values()}) == len(CONDITIONS)


@pytest.mark.parametrize("options", [INSIDE, None])
def test_variables_not_passed_on_or_set_by_the_shell_are_no_condition(options: SandboxOptions | None) -> None:
    elsewhere = {**HERE, "PWD": "/x", "OLDPWD": "/y", "SHLVL": "3", "_": "/bin/z", "GITHUB_TOKEN": "ghp_1"}
    assert _conditions(options, elsewhere) == _conditions(options, HERE)


QUIET = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.DEVNULL}


async def test_a_program_runs_in_a_group_of_its_own() -> None:
    process = await start_program(
        sys.executable, "-c", "import os; os._exit(os.getpid() != os.getpgid(0))", env={}
    )
    assert await process.wait() == 0


async def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await start_program("/nowhere/program", env={})


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="this system does not list a process's children"
)
async def test_a_start_that_is_cancelled_at_any_time_leaves_no_program() -> None:
    loop = asyncio.get_running_loop()
    for steps in range(12):
        for again in (False, True):
            starting = loop.create_task(start_program("sleep", "99", env=dict(os.environ), **QUIET))
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            if again:
                await asyncio.sleep(0)
                starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled():  # it was there before
                process = starting.result()
                process.kill()
                await process.wait()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    names = [Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip() for child in children]
    assert "sleep" not in names


def warned_by(work: Coroutine[Any, Any, None]) -> list[str]:
    """Run a coroutine in a loop of its own, and return what is still open when the loop has ended."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(work)
        gc.collect()
    return [str(one.message) for one in found]


def test_a_closed_program_leaves_no_pipe_open_that_its_child_holds() -> None:
    async def work() -> None:
        line = "setsid sleep 99 & echo $!"
        async with await start_program(
            "sh", "-c", line, env=dict(os.environ), stdout=asyncio.subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            child = int(await process.stdout.readline())
            while process.returncode is None:  # noqa: ASYNC110  no event tells it
                await asyncio.sleep(0)
        os.kill(child, signal.SIGKILL)

    assert warned_by(work()) == []


def test_a_program_whose_output_nobody_reads_is_closed_and_its_exit_status_is_known() -> None:
    async def work() -> None:
        for _ in range(20):  # the status was lost once in five times
            async with await start_program(
                "yes", env=dict(os.environ), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            ) as process:
                while not process.stdout._paused:  # type: ignore[union-attr]  # noqa: ASYNC110  no event tells it
                    await asyncio.sleep(0)
            assert process.returncode == -signal.SIGKILL
            await process.close()

    assert warned_by(work()) == []


@pytest.mark.parametrize("seconds", [0, 600])
def test_a_limited_child_leaves_no_pipe_open_however_it_is_given_up(tmp_path: Path, seconds: int) -> None:
    """Its function ends the process at once; a process of its own holds the pipe, so that the answer has no end."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, signal
def leave():
    if os.fork() == 0:
        os.setsid()
        open(f"{tmp_path}/left.{{os.getpid()}}", "w").close()
        signal.pause()
    os._exit(0)
WORK = {{"leave": leave}}
""")

    async def work() -> None:
        asking = asyncio.create_task(in_child({"do": "leave"}, seconds, program=program))
        if seconds:
            while not list(tmp_path.glob("left.*")):  # noqa: ASYNC110  no event tells it
                await asyncio.sleep(0)
            for _ in range(9):
                asking.cancel()
                await asyncio.sleep(0)
        with suppress(asyncio.CancelledError):
            assert await asking is None

    assert warned_by(work()) == []
    for found in tmp_path.glob("left.*"):
        os.kill(int(found.suffix[1:]), signal.SIGKILL)


LONG_MS = 600_000
"""No command has that long: a test that waits for one fails by its own time limit."""
SHORT_MS = 1_500
"""Enough for a shell to begin on a busy machine."""


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    environment = LocalEnvironment(
        tmp_path,
        clock=SystemClock(),
        inherited={"PATH": os.environ["PATH"], "GH_TOKEN": "hidden", "COLOUR": "blue"},
        sandbox="off",
    )
    await environment.initialize()
    yield environment
    await environment.cleanup()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123  a zombie that nobody has taken yet is dead
        return stat.read().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> bool:
    for _ in range(6_000):  # a minute
        try:
            if not alive(pid):
                return True
        except FileNotFoundError:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_output_of_both_streams_and_the_exit_code(local: LocalEnvironment) -> None:
    pieces: list[str] = []
    result = await local.exec_command(
        "echo out; echo err >&2; exit 3", timeout_ms=LONG_MS, on_output=pieces.append
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert sorted(result.output.splitlines()) == ["err", "out"]
    assert "".join(pieces) == result.output
    assert not result.timed_out


async def test_it_runs_in_the_folder_without_input_in_a_group_of_its_own(
    local: LocalEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    result = await local.exec_command(
        "pwd; cat; ps -o pgid= -p $$ | tr -d ' '; echo $$", timeout_ms=LONG_MS, working_dir="sub"
    )
    folder, group, own = result.stdout.splitlines()
    assert folder == str(tmp_path / "sub")
    assert group == own != str(os.getpgrp())


async def test_secrets_of_this_program_are_not_in_its_variables(local: LocalEnvironment) -> None:
    result = await local.exec_command("env", timeout_ms=LONG_MS, env={"EXTRA": "given"})
    assert "hidden" not in result.output
    assert "COLOUR=blue" in result.output
    assert "EXTRA=given" in result.output


async def test_text_that_is_cut_between_bytes_is_put_together(local: LocalEnvironment) -> None:
    result = await local.exec_command(r"printf '\303'; sleep 0.05; printf '\251\377'", timeout_ms=LONG_MS)
    assert result.stdout == "é\ufffd"


async def test_time_out_ends_the_whole_group_and_keeps_the_output(local: LocalEnvironment) -> None:
    result = await local.exec_command("sleep 600 & echo $!; wait", timeout_ms=SHORT_MS)
    assert result.timed_out
    assert result.exit_code < 0
    assert await gone(int(result.stdout))


async def test_a_command_that_ignores_sigterm_is_killed_two_seconds_later(local: LocalEnvironment) -> None:
    began = time.monotonic()
    result = await local.exec_command(
        "trap '' TERM; echo ready; while :; do sleep 0.1; done", timeout_ms=SHORT_MS
    )
    assert result.timed_out
    assert result.exit_code == -9
    assert time.monotonic() - began >= 2.0  # noise makes it only longer


async def test_processes_in_the_background_end_with_the_command(local: LocalEnvironment) -> None:
    result = await local.exec_command("sleep 600 & echo $!", timeout_ms=LONG_MS)
    assert result.exit_code == 0
    assert await gone(int(result.stdout))


async def test_a_daemon_that_keeps_the_pipe_open_does_not_delay_the_result(local: LocalEnvironment) -> None:
    daemon = "setsid sh -c 'echo $$; touch up; exec sleep 600' &"
    result = await local.exec_command(
        f"{daemon} until test -e up; do sleep 0.01; done; echo done", timeout_ms=LONG_MS
    )
    os.kill(int(result.stdout.split()[0]), 9)
    assert "done" in result.stdout


async def test_cancelling_ends_the_command(local: LocalEnvironment) -> None:
    started = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        local.exec_command(
            "echo $$; sleep 600", timeout_ms=LONG_MS, on_output=lambda text: started.set_result(int(text))
        )
    )
    pid = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pid)


async def test_cleanup_ends_what_still_runs(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, clock=SystemClock(), sandbox="off")
    started = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        environment.exec_command(
            "echo $$; sleep 600", timeout_ms=LONG_MS, on_output=lambda text: started.set_result(int(text))
        )
    )
    pid = await started
    await environment.cleanup()
    assert (await task).exit_code < 0
    assert await gone(pid)


async def test_cleanup_ends_what_ignores_sigterm(tmp_path: Path) -> None:
    environment = LocalEnvironment(str(tmp_path), sandbox="off")
    started = asyncio.Event()
    command = "trap '' TERM; echo on; while :; do sleep 0.1; done"
    task = asyncio.create_task(
        environment.exec_command(command, timeout_ms=LONG_MS, on_output=lambda _: started.set())
    )
    await started.wait()
    await environment.cleanup()
    assert (await task).exit_code == -9
    with pytest.raises(ToolError):
        await environment.exec_command("true", timeout_ms=LONG_MS)


async def test_endless_output_is_kept_in_bounds(local: LocalEnvironment) -> None:
    result = await local.exec_command(
        "echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo last", timeout_ms=LONG_MS
    )
    assert len(result.output) < 10_000_100
    assert result.output.startswith("first\n")
    assert result.output.endswith("last\n")
    assert "[... 20000011 characters of output were not kept ...]" in result.output


@pytest.mark.parametrize(
    ("command", "reason"),
    [("echo a\0b", "null byte"), ("echo \ud800", "surrogates"), ("x" * 3_000_000, "too long")],
)
async def test_a_command_that_cannot_be_started(command: str, reason: str, local: LocalEnvironment) -> None:
    with pytest.raises(ToolError, match=f"could not be started: .*{reason}"):
        await local.exec_command(command, timeout_ms=LONG_MS)


async def test_a_command_that_does_not_exist_says_so(local: LocalEnvironment) -> None:
    result = await local.exec_command("no-such-program-anywhere", timeout_ms=LONG_MS)
    assert result.exit_code == 127
    assert "not found" in result.stderr


async def test_working_dir_must_be_a_folder_inside(local: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/tmp")  # noqa: S108  any folder outside
    for path, error in (
        ("..", PathRefusedError),
        ("/etc", PathRefusedError),
        ("link", PathRefusedError),
        (".git", PathRefusedError),
        ("missing", FileMissingError),
        ("file", FileUnreadableError),
    ):
        with pytest.raises(error):
            await local.exec_command("pwd", timeout_ms=LONG_MS, working_dir=path)
    with pytest.raises(ToolError, match="time-out"):
        await local.exec_command("pwd", timeout_ms=0)


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(2, 40))
def test_kept_text_is_bounded_and_has_both_ends(pieces: list[str], most: int) -> None:
    kept, whole = KeptText(most), "".join(pieces)
    for piece in pieces:
        kept.add(piece)
    half = most // 2
    if len(whole) <= 2 * half:
        assert kept.text() == whole
    else:
        marker = f"\n[... {len(whole) - 2 * half} characters of output were not kept ...]\n"
        assert kept.text() == whole[:half] + marker + whole[-half:]


DESCRIPTORS = Path("/proc/self/fd")


def descriptors() -> list[str]:
    return sorted(path.name for path in DESCRIPTORS.iterdir())


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="this system does not list a process's descriptors")
async def test_a_command_cancelled_while_it_is_being_started_leaves_no_descriptor(tmp_path: Path) -> None:
    """Cancelled after each number of steps of the event loop until it is under way."""
    environment = LocalEnvironment(tmp_path, sandbox="off")
    await environment.exec_command("true", timeout_ms=LONG_MS)
    before = descriptors()
    for steps in range(60):
        running = asyncio.create_task(environment.exec_command("exec sleep 9", timeout_ms=LONG_MS))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
    async with asyncio.timeout(60):  # those of killed processes go when the system has reaped them
        # Not more: one from before may still have been closing. Nothing tells of the end of that.
        while len(descriptors()) > len(before):  # noqa: ASYNC110
            await asyncio.sleep(0)
    await environment.cleanup()


class SlowTree(ConfinedTree):
    """A tree whose writes end when they may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def write(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        self.begun.set()
        assert self.may_end.wait(60)
        super().write(path, content, mode_of=mode_of)


async def test_a_cancelled_write_ends_before_the_next_one_begins(tmp_path: Path) -> None:
    """Its thread would write the old content over the new one, or into a clone that is being removed."""
    environment = LocalEnvironment(tmp_path, sandbox="off")
    await environment.cleanup()
    slow = environment._tree = SlowTree(tmp_path)
    writing = asyncio.create_task(environment.write_file("a", b"old"))
    await asyncio.to_thread(slow.begun.wait, 60)
    writing.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not writing.done()
    slow.may_end.set()
    await asyncio.wait([writing])
    assert writing.cancelled()
    assert (tmp_path / "a").read_bytes() == b"old"
    await environment.cleanup()
