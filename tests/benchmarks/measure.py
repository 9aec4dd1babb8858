"""Runs commands in turns, so that a busy machine is busy for all of them, and prints ratios."""

from __future__ import annotations

import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def in_turns(
    jobs: Mapping[str, Callable[[], object]], runs: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each job by a clock, `runs` times, one after another; the first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for run in range(runs + 1):
        for name, job in jobs.items():
            start = clock()
            job()
            if run:
                seconds[name].append(clock() - start)
    return seconds


def command(*words: str) -> Callable[[], object]:
    """A job that runs a command and fails if the command does."""
    return lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def table(title: str, seconds: Mapping[str, list[float]], base: str) -> None:
    """Print minimum, median and the ratio of medians to the base job's."""
    print(f"\n{title}\n{'':32}{'min':>10}{'median':>10}{'ratio':>8}")
    reference = statistics.median(seconds[base])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:32}{min(values) * 1000:8.1f}ms{middle * 1000:8.1f}ms{middle / reference:8.2f}")


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How much `ys` grow with each `xs`, by least squares; 0 where that cannot be told."""
    if len(set(xs)) < 2:
        return 0.0
    return statistics.linear_regression(xs, ys).slope


def children(process: int) -> list[int]:
    """The living children of a process, on Linux.

    Read from every process's parent: a list by thread is incomplete when a thread ends while it is read.
    """
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # that process has ended meanwhile
            text = status.read_text(encoding="utf-8", errors="replace")
            # The name stands between parentheses and may contain blanks and parentheses: proc(5).
            if int(text.rpartition(")")[2].split()[1]) == process:
                found.append(int(status.parent.name))
    return found
