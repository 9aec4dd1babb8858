"""Runs a function of a program of this package on untrusted data, in a process with limits of time and memory.

This file is both sides. `in_child` starts it as the main script of the process, which imports nothing else of
this package. There it reads one line of JSON from standard input, and the bytes after it if the line says so,
and answers with one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from orchestrator.core.messages import JsonObject

CPU_SECONDS = 30
MEMORY_BYTES = 2 * 1024**3


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
    import asyncio

    from orchestrator.engine.environments.commands import start_program

    process = await start_program(
        sys.executable,
        "-P",
        __file__,
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


def main() -> None:
    """Set the limits of this process, and run the function that standard input names."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    if asked.pop("has_data"):
        asked["data"] = sys.stdin.buffer.read()
    spec = spec_from_file_location("program", sys.argv[1])
    if spec is None or spec.loader is None:
        raise SystemExit(2)
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    json.dump(program.WORK[asked.pop("do")](**asked), sys.stdout)


if __name__ == "__main__":
    main()
