"""The start of a command, beside what it cannot be faster than: a plain subprocess, and a bubblewrap with one mount.

Aims: without a sandbox at most 1.2 times `subprocess.run`, in the sandbox at most 2.5 times that bubblewrap. The
jobs take turns, and all make sessions of their own, to which Linux gives equal shares; so the ratios of the medians
hold on a busy machine too, but for the niceness of what runs in the sandbox. The ratios of the fastest runs are those
of a calm machine, on which nothing else had the processor meanwhile; where the two differ much, run it again.

Run: python -m tests.benchmarks.sandbox
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import _programs, find_sandbox
from tests.benchmarks.measure import table

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 100
MS = 60_000
PLAIN, OFF = "subprocess.run", "exec_command, sandbox off"
BARE, ON = "bubblewrap, one mount", "exec_command, sandbox"


def peer(*words: str) -> None:
    """Run a program as people do."""
    subprocess.run(words, capture_output=True, check=True, start_new_session=True)


async def measure() -> None:
    """Print the table and the two ratios."""
    sandbox = find_sandbox()
    bare = [next(_programs(os.environ)), "--unshare-all", "--ro-bind", "/", "/", "/usr/bin/true"]
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        Path(root, ".git").mkdir()
        inside, outside = LocalEnvironment(root, sandbox=sandbox), LocalEnvironment(root, sandbox="off")

        async def first() -> None:
            fresh = LocalEnvironment(root, sandbox=sandbox)
            await fresh.exec_command("true", timeout_ms=MS)
            await fresh.cleanup()

        jobs: dict[str, Callable[[], object]] = {
            PLAIN: lambda: peer("/bin/bash", "-c", "true"),
            OFF: lambda: outside.exec_command("true", timeout_ms=MS),
            BARE: lambda: peer(*bare),
            ON: lambda: inside.exec_command("true", timeout_ms=MS),
            "the first, and cleanup": first,
        }
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for run in range(RUNS + 1):  # the first round is not counted
            for name, job in jobs.items():
                began = time.perf_counter()
                going = job()
                if isinstance(going, Awaitable):
                    await going
                seconds[name] += [time.perf_counter() - began] if run else []
        await inside.cleanup()
        await outside.cleanup()
    table("Start of a command", seconds, base=PLAIN)
    for what, of in (("medians", statistics.median), ("fastest runs", min)):
        time_of = {name: of(values) for name, values in seconds.items()}
        print(f"\n{what}:")
        print(f"  sandbox off: {time_of[OFF] / time_of[PLAIN]:.2f} times subprocess.run (aim: 1.2)")
        print(f"  sandbox: {time_of[ON] / time_of[BARE]:.2f} times bubblewrap with one mount (aim: 2.5)")


if __name__ == "__main__":
    asyncio.run(measure())
