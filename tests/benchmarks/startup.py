"""Start-up: `--help` against an interpreter that does nothing. Aim: below 5x.

Run: python -m tests.benchmarks.startup
"""

from __future__ import annotations

import sys

from tests.benchmarks.measure import command, in_turns, table

if __name__ == "__main__":
    python = sys.executable
    jobs = {
        "python -c pass": command(python, "-c", "pass"),
        "python -m orchestrator --help": command(python, "-m", "orchestrator", "--help"),
        "python -m orchestrator run --help": command(python, "-m", "orchestrator", "run", "--help"),
    }
    table("Start-up", in_turns(jobs, runs=20), base="python -c pass")
