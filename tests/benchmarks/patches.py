"""What many tiny hunks cost to put in. Aim: twice the hunks on twice the text, at most 2.5 times as long.

Run: python -m tests.benchmarks.patches
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from orchestrator.engine.tools.patches.formats import parse_unified, parse_v4a
from orchestrator.engine.tools.patches.hunks import apply_chunks
from tests.benchmarks.measure import in_turns, table

if TYPE_CHECKING:
    from collections.abc import Callable

HUNKS = 5_000
AIM_RATIO = 2.5
LINES = {"all lines the same": "same", "each line once": "line {}"}


def put_in(hunks: int, line: str, *, numbered: bool, indented: str = "") -> Callable[[], object]:
    """Put hunks of one line into every second line of a text; they have line numbers or none.

    With `indented` the hunks have these blanks before each line, and the text has none.
    """
    text = "".join(line.format(at) + "\n" for at in range(2 * hunks))
    bodies = [f"-{indented}{line.format(at)}\n+{indented}new {at}\n" for at in range(0, 2 * hunks, 2)]
    if numbered:
        headed = (f"@@ -{2 * at + 1} +{2 * at + 1} @@\n{body}" for at, body in enumerate(bodies))
        (change,) = parse_unified("--- a/f\n+++ b/f\n" + "".join(headed))
    else:
        patch = "".join(f"@@\n{body}" for body in bodies)
        (change,) = parse_v4a(f"*** Begin Patch\n*** Update File: f\n{patch}*** End Patch")
    return lambda: apply_chunks("f", text, change.chunks)


def growth() -> None:
    cases = [(title, numbered, "") for title in LINES for numbered in (True, False)]
    for title, numbered, indented in (*cases, ("each line once", False, "    ")):
        jobs = {
            f"{count:,} hunks": put_in(count, LINES[title], numbered=numbered, indented=indented)
            for count in (HUNKS, 2 * HUNKS)
        }
        seconds = in_turns(jobs, runs=5)
        how = f"{'with' if numbered else 'without'} line numbers{', indented too much' if indented else ''}"
        table(f"{title}, {how}", seconds, base=next(iter(jobs)))
        once, twice = (statistics.median(values) for values in seconds.values())
        print(f"2x the hunks: {twice / once:.2f} times, {'met' if twice < AIM_RATIO * once else 'MISSED'}")


if __name__ == "__main__":
    growth()
