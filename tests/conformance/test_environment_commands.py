"""How every `ExecutionEnvironment` runs commands: outputs, ends, and what is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

from orchestrator.core.errors import ToolError
from tests.conformance.environments import COMMAND_PLACES

if TYPE_CHECKING:
    from orchestrator.engine.environments.base import ExecutionEnvironment

MS = 600_000
"""No command has that long: a test that waits for one fails by its own time limit."""


async def keeps_both_outputs_apart(here: ExecutionEnvironment) -> None:
    result = await here.exec_command(
        r"mkdir sub; echo out; echo err >&2; printf '\303'; sleep 0.1; printf '\251\377\0x'; exit 41",
        timeout_ms=MS,
        working_dir=".",
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("out\né\ufffd\0x", "err\n", 41)
    assert len(result.output) == len(result.stdout) + len(result.stderr)
    inside = await here.exec_command("pwd; cat", timeout_ms=MS, working_dir="sub")
    assert inside.stdout == f"{here.working_directory()}/sub\n"


async def is_not_held_by_what_a_command_leaves_behind(here: ExecutionEnvironment) -> None:
    result = await here.exec_command("sleep 631 & setsid sleep 1.5 & echo done", timeout_ms=MS)
    assert (result.stdout, result.exit_code) == ("done\n", 0)
    await _nothing_left(here, "sleep 631")


async def ends_a_command_when_its_caller_gives_up(here: ExecutionEnvironment) -> None:
    started = asyncio.Event()
    task = asyncio.create_task(
        here.exec_command("echo on; sleep 632 & sleep 632", timeout_ms=MS, on_output=lambda _: started.set())
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _nothing_left(here, "sleep 632")


async def ends_what_ignores_sigterm(here: ExecutionEnvironment) -> None:
    began = time.monotonic()
    result = await here.exec_command("trap '' TERM; echo on; while :; do sleep 0.1; done", timeout_ms=1_500)
    assert (result.stdout, result.exit_code, result.timed_out) == ("on\n", -9, True)
    assert time.monotonic() - began >= 2.0  # noise makes it only longer


async def _nothing_left(here: ExecutionEnvironment, command: str) -> None:
    """No process of the command is left soon; a dead one that nobody has taken yet does not count."""
    ask = f"for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p 2>/dev/null | grep -q '^{command} ' && echo $p; done; :"
    for _ in range(100):
        if not (await here.exec_command(ask, timeout_ms=MS)).stdout:
            return
    pytest.fail(f"{command} is still running")


async def runs_many_at_the_same_time(here: ExecutionEnvironment) -> None:
    results = await asyncio.gather(
        *(here.exec_command(f"echo {number}", timeout_ms=MS) for number in range(20))
    )
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(20)]


async def refuses_commands_that_cannot_start(here: ExecutionEnvironment) -> None:
    for command in ("echo a\0b", "echo \ud800", "x" * 3_000_000):
        with pytest.raises(ToolError, match="could not be started"):
            await here.exec_command(command, timeout_ms=MS)
    with pytest.raises(ToolError, match="time-out"):
        await here.exec_command("true", timeout_ms=0)
    value = "two\nlines 'and' \"quotes\" $HOME \\"
    result = await here.exec_command('printf %s "$GIVEN"', timeout_ms=MS, env={"GIVEN": value})
    assert result.stdout == value


Case: TypeAlias = Callable[["ExecutionEnvironment"], Awaitable[None]]

CASES: list[Case] = [keeps_both_outputs_apart, refuses_commands_that_cannot_start]

SLOW_CASES: list[Case] = [
    is_not_held_by_what_a_command_leaves_behind,
    ends_a_command_when_its_caller_gives_up,
    ends_what_ignores_sigterm,
    runs_many_at_the_same_time,
]


@pytest.mark.parametrize("case", CASES)
async def test_commands(case: Case, environment: ExecutionEnvironment) -> None:
    await case(environment)


@pytest.mark.parametrize("case", SLOW_CASES)
@pytest.mark.parametrize("environment", COMMAND_PLACES, indirect=True, ids=lambda place: place.__name__)
async def test_processes(case: Case, environment: ExecutionEnvironment) -> None:
    await case(environment)
