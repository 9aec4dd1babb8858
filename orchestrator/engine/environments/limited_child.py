"""Has a program of this package work on what strangers wrote, in a process with limits of time and memory."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.engine.environments.commands import start_program

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject

_MAIN = Path(__file__).with_name("limited_child_main.py")


async def in_child(
    program: Path, asked: JsonObject, seconds: float, *, data: bytes | None = None
) -> dict[str, Any] | None:
    """Have a program do something; None where it failed or was stopped after `seconds`.

    The process has none of our environment's variables: some of them are keys.

    Args:
        program: a module, by its path, whose `WORK` has a function for each name.
        asked: the arguments of the function, and its name as `do`.
        data: passed as one more argument of this name.
    """
    process = await start_program(
        sys.executable,
        "-P",
        str(_MAIN),
        str(program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    line = json.dumps({**asked, "has_data": data is not None}).encode() + b"\n"
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(line + (data or b""))
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return json.loads(output) if process.returncode == 0 else None
