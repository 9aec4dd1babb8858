"""What a cycle pays for tests beside the tests' own time. Run it by hand: `python -m tests.benchmarks.tests_in_a_cycle`.

A repository of `--files` files whose tests take `--seconds` is cloned, and its base run is cached by a first look.
Then, in turns: the command alone in a folder of the files, as a person types it; and the host's runs of a change of
code alone, and of one of code and tests. What counts is the last column: the time of all that the host does (trees,
sandbox, control test, reports, verdict), divided by the commands' own time inside. At most 1.10 is asked for.

With `--installed` a set-up makes that many files of `--kilobytes` each, as a virtual environment has them; it is
cached like the base's run, and each measured row takes a new slot of its own, as a new process does.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.verification.base import RunKind, RunOptions
from orchestrator.bot.verification.verdict import judge_runs
from tests.unit.bot.verification.rig import PYTEST, bench

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.bot.verification.rig import Bench

_TESTS = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds: of everything, and of the commands in it; and how many commands."""

    all: float
    own: float
    runs: int


def _test_files(number: int, seconds: float) -> dict[str, str | bytes]:
    body = f"import time\n\nimport pytest\n\nfrom code_0 import value\n\n\n@pytest.mark.parametrize('n', range({_TESTS}))\n"
    test = f"def test_value(n):\n    time.sleep({seconds / _TESTS})\n    assert value() == 0\n"
    code = {f"code_{n}.py": f"def value():\n    return {n}\n" + "# a line\n" * 200 for n in range(number)}
    return {**code, "tests/test_value.py": body + test}


_CHANGES: Mapping[str, Mapping[str, str]] = {
    "code": {"code_0.py": "def value():\n    return 0 + 0\n"},
    "code and a new test": {
        "code_0.py": "def value():\n    return 0 + 0\n\n\ndef other():\n    return 1\n",
        "tests/test_other.py": "import code_0\n\n\ndef test_other():\n    assert code_0.other() == 1\n",
    },
}


def _setup(number: int, kilobytes: int) -> str:
    """A command that makes files; empty for none."""
    made = (
        "import os, pathlib\n"
        f"for n in range({number}):\n"
        "    path = pathlib.Path(f'.venv/lib/p{n // 100}/m{n}.py')\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        f"    path.write_bytes(os.urandom({kilobytes * 1_000}))\n"
    )
    return f"{sys.executable} -c {shlex.quote(made)}" if number else ""


async def _verified(of: Bench, files: Mapping[str, str], setup: str) -> Cost:
    change = of.change(files)
    start = time.perf_counter()
    async with of.runs(RunOptions(PYTEST, setup)) as runs:
        made = await runs.verify(change)
        judge_runs(made, change)
    seconds = time.perf_counter() - start
    for path in files.keys() - {"code_0.py"}:
        (of.clone.tree / path).unlink()
    trees: dict[str, float] = {}
    for run in (made.before, made.after, made.kept, made.new):
        if run is None or (run.kind is RunKind.BEFORE and run.cached):
            continue
        if run.problem or not run.cases:
            raise SystemExit(f"the run is invalid: {run.problem}")
        trees[run.tree] = max(run.seconds, trees.get(run.tree, 0.0))  # of equal trees there is one run
    return Cost(seconds, sum(trees.values()), len(trees))


def _alone(folder: Path) -> Cost:
    start = time.perf_counter()
    subprocess.run(PYTEST, shell=True, check=True, cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S602  of our own
    seconds = time.perf_counter() - start
    return Cost(seconds, seconds, 1)


def main() -> None:
    """Measure in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--installed", type=int, default=0)
    parser.add_argument("--kilobytes", type=int, default=25)
    parser.add_argument("--sandbox", choices=("auto", "off"), default="off")
    arguments = parser.parse_args()
    costs: dict[str, list[Cost]] = {"the command alone": [], **{name: [] for name in _CHANGES}}
    with tempfile.TemporaryDirectory() as folder:
        files = _test_files(arguments.files, arguments.seconds)
        with bench(Path(folder), files, sandbox=arguments.sandbox) as of:
            setup = _setup(arguments.installed, arguments.kilobytes)
            asyncio.run(_verified(of, _CHANGES["code"], setup))
            for _ in range(arguments.rounds):
                costs["the command alone"].append(_alone(of.clone.tree))
                for name, change in _CHANGES.items():
                    costs[name].append(asyncio.run(_verified(of, change, setup)))
    print(f"{'':24}{'runs':>6}{'all':>10}{'own':>10}{'ratio':>8}")
    for name, found in costs.items():
        best = min(found, key=lambda cost: cost.all / cost.own)
        ratio = statistics.median(cost.all / cost.own for cost in found)
        print(f"{name:24}{best.runs:>6}{best.all:>9.2f}s{best.own:>9.2f}s{ratio:>8.3f}")


if __name__ == "__main__":
    main()
