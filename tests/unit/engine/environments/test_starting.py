from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from orchestrator.engine.environments.commands import start_program

QUIET = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.DEVNULL}


async def test_a_program_runs_in_a_group_of_its_own() -> None:
    process = await start_program(sys.executable, "-c", "import os; os._exit(os.getpid() != os.getpgid(0))")
    assert await process.wait() == 0


async def test_what_is_not_there_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        await start_program("/nowhere/program")


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="this system does not list a process's children"
)
async def test_a_start_that_is_cancelled_at_any_time_leaves_no_program() -> None:
    loop = asyncio.get_running_loop()
    for steps in range(12):
        for again in (False, True):
            starting = loop.create_task(start_program("sleep", "99", **QUIET))
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
