"""Runs a program of this package on untrusted data, in a process with limits of time and memory."""

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
    program: Path, request: JsonObject, seconds: float, *, data: bytes | None = None
) -> dict[str, Any] | None:
    """Run a function of a program in a limited process; return None if it failed or took over `seconds`.

    The process gets none of this program's environment variables, because some of them are keys.

    Args:
        program: the path of a module whose `WORK` maps names to functions.
        request: the function's name as `do`, and its arguments.
        data: passed as an additional argument named `data`.
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
    line = json.dumps({**request, "has_data": data is not None}).encode() + b"\n"
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
