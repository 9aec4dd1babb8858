"""Start-up: `--help`, and `chat` to its prompt, against an interpreter that does nothing. Aims: below 4x and 15x.

Run: python -m tests.benchmarks.startup
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measure import command, in_turns, table
from tests.doubles.terminal import Terminal


def to_the_prompt() -> None:
    """Start `chat` in a terminal, and wait until a person could type."""
    with tempfile.TemporaryDirectory() as folder:
        where = {"PULLWRIGHT_HOME": folder}
        with Terminal(
            "chat", "--model", "echo", folder=Path.cwd(), environ=where, new_interpreter=True
        ) as person:
            person.wait_for("\n>")


if __name__ == "__main__":
    python = sys.executable
    jobs = {
        "python -c pass": command(python, "-c", "pass"),
        "python -m orchestrator --help": command(python, "-m", "orchestrator", "--help"),
        "python -m orchestrator": command(python, "-m", "orchestrator"),
        "python -m orchestrator --version": command(python, "-m", "orchestrator", "--version"),
        "python -m orchestrator run --help": command(python, "-m", "orchestrator", "run", "--help"),
        "... completion bash": command(python, "-m", "orchestrator", "completion", "bash"),
        "chat, to its prompt": to_the_prompt,
    }
    table("Start-up", in_turns(jobs, runs=20), base="python -c pass")
