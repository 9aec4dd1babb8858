"""Fuzzes one target, or one after the other: with atheris where it is installed, else with mutated seeds.

Run: python -m tests.fuzz [--seconds N] [TARGET]. Ends with 1 where a promise is broken; the input is printed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.target import Target

NAMES = ("commands", "paths", "plans", "patches", "growth")
_SECONDS = 60
_LONGEST_BYTES = 4_096
_SLOWEST_S = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?", choices=NAMES, help="all, if left out")
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="for each target")
    options = parser.parse_args()
    if options.target is None:
        words = [sys.executable, "-m", "tests.fuzz", "--seconds", str(options.seconds)]
        return max(subprocess.run([*words, name], check=False).returncode for name in NAMES)
    if importlib.util.find_spec("atheris") is None:
        _say("atheris is not installed (pip install atheris): seeds are mutated without looking at coverage")
        return mutate(options.target, options.seconds)
    return guided(options.target, options.seconds)


def guided(name: str, seconds: int) -> int:
    """Let atheris, which sees the branches that an input takes, look for broken promises."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["orchestrator"]):
        target = _target(name)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        corpus = Path(folder)
        for number, seed in enumerate(target.seeds):
            (corpus / str(number)).write_bytes(seed)
        kept = tempfile.mkdtemp(prefix=f"fuzz-{name}-")
        limits = (
            f"-artifact_prefix={kept}/",
            f"-max_total_time={seconds}",
            f"-max_len={_LONGEST_BYTES}",
            f"-timeout={_SLOWEST_S}",
        )
        atheris.Setup([name, *limits, "-verbosity=0", "-print_final_stats=1", folder], _telling(target))
        atheris.Fuzz()  # does not return
    return 0


def mutate(name: str, seconds: int) -> int:
    target, random = _target(name), Random(1)  # noqa: S311  no secrecy
    run, end, inputs = _telling(target), time.monotonic() + seconds, 0
    for seed in target.seeds:
        run(seed)
    while time.monotonic() < end:
        run(target.mutated(random))
        inputs += 1
    _say(f"{name}: {inputs:,} inputs, no promise broken")
    return 0


def _target(name: str) -> Target:
    target: Target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    return target


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _telling(target: Target) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        try:
            target.run(data)
        except BaseException:
            _say(f"a promise is broken by {data!r}")
            raise

    return run


if __name__ == "__main__":
    sys.exit(main())
