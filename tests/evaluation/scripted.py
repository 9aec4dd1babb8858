"""Serve models that copy the real change of a task, do nothing, or cheat, for a repository whose past is known.

    python -m tests.evaluation.scripted REPOSITORY

It prints flags. `pullwright backtest --repo REPOSITORY --from-git FLAGS` has to solve all with the first model, and
nothing with any other. Stops with Ctrl+C.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from tests.plugins.backtest.scripted_past import ScriptedPast, cheats, copies, does_nothing


def main() -> None:
    """Serve until somebody stops it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.evaluation.scripted", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("repository", type=Path, help="a repository on this disk")
    given = parser.parse_args()
    behaviours = {"copies": copies(given.repository), "nothing": does_nothing, **cheats(given.repository)}
    with ScriptedPast(behaviours) as server:
        named = " ".join(f"--model openai-chat:{name}" for name in behaviours)
        print(f"--api-url {server.url} --contract json-plan --profile planner {named}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
