"""The start of a command: plain, in a bubblewrap with one mount, with all of ours, and as it really runs.

Aims on an idle machine of two cores: our mounts below 4 times the bubblewrap with one, all below 40 ms, of
which 10 are the start of the Python that becomes the command.

Run: python -m tests.benchmarks.sandbox
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path

from orchestrator.environments.bubblewrap import BubblewrapSandbox
from orchestrator.environments.command import Command
from orchestrator.environments.confinement import Place
from orchestrator.environments.local import LocalEnvironment
from orchestrator.environments.sandbox import _programs, find_sandbox
from tests.benchmarks.measure import in_turns, table

RUNS = 20


def walls_only(sandbox: BubblewrapSandbox, root: str) -> None:
    """The mounts and namespaces, with `true` in place of the launcher."""
    cell = sandbox.launch(Command("true", root, {}, 1_000), Place(root))
    try:
        words = [*cell.argv[: cell.argv.index("--") + 1], "/usr/bin/true"]
        subprocess.run(words, env={}, pass_fds=cell.pass_fds, check=True)
    finally:
        cell.abandon()


def main() -> None:
    """Print the table."""
    sandbox = find_sandbox()
    if not isinstance(sandbox, BubblewrapSandbox):
        raise SystemExit("this measures bubblewrap, which is for Linux")
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        root = os.path.realpath(folder)
        Path(root, ".git").mkdir()
        inside = LocalEnvironment(root, sandbox=sandbox)
        outside = LocalEnvironment(root, sandbox="off")
        bare = [next(_programs(os.environ)), "--unshare-all", "--ro-bind", "/", "/"]
        jobs = {
            "bash -c true": lambda: subprocess.run(["/bin/bash", "-c", "true"], check=True),
            "bubblewrap, one mount": lambda: subprocess.run([*bare, "/usr/bin/true"], check=True),
            "bubblewrap, our mounts": lambda: walls_only(sandbox, root),
            "exec_command, sandbox off": lambda: runner.run(outside.exec_command("true", timeout_ms=9_000)),
            "exec_command, sandbox": lambda: runner.run(inside.exec_command("true", timeout_ms=9_000)),
        }
        table("Start of a command", in_turns(jobs, RUNS), base="bash -c true")
        runner.run(inside.cleanup())
        runner.run(outside.cleanup())


if __name__ == "__main__":
    main()
