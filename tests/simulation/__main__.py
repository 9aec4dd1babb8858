"""Searches worlds for what does not hold, and prints the table of worlds.

Run: python -m tests.simulation FIRST LAST, or python -m tests.simulation SEED for what happens in one world.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.simulation.plan import Plan, draw
from tests.simulation.search import live, shrink
from tests.simulation.worlds import unknown


def story(seed: int) -> None:
    """Print what happens in one world, and the smallest world with the same failure."""
    plan = draw(seed)
    world, found = live(plan)
    sys.stdout.write(f"{plan}\n" + "".join(f"{line}\n" for line in world.trace))
    sys.stdout.write("".join(f"FAILED {line}\n" for line in found))
    if found:
        name = found[0].partition(":")[0]
        small = shrink(plan, lambda one: any(line.startswith(name) for line in live(one)[1]))
        sys.stdout.write(f"smallest: {small}\n")


def search(first: int, last: int) -> int:
    """Run the worlds of some seeds, and print how many there were, what went wrong in them and what was found."""
    start, used = time.monotonic(), time.process_time()
    incidents: Counter[str] = Counter()
    deeds: Counter[str] = Counter()
    failed: dict[int, list[str]] = {}
    known = 0
    for seed in range(first, last):
        plan: Plan = draw(seed)
        world, found = live(plan)
        incidents.update(str(incident.kind) for incident in world.struck)
        deeds.update(str(deed.act) for deed in plan.deeds)
        if new := unknown(found):
            failed[seed] = new
            sys.stdout.write(f"seed {seed}: {new[0]}\n")
        known += bool(found) and not new
    count, seconds = last - first, time.monotonic() - start
    rows = [("worlds", count), *sorted(incidents.items()), *sorted(deeds.items())]
    rows += [("worlds with a known fault", known), ("worlds with another one", len(failed))]
    sys.stdout.write("".join(f"{name:<28}{number:>8}\n" for name, number in rows))
    cpu = time.process_time() - used
    sys.stdout.write(
        f"{seconds:.0f} s, {cpu:.0f} s of them on the processor, {count / seconds * 60:.0f} worlds a minute\n"
    )
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    """Do what the arguments say."""
    if len(arguments) == 1:
        story(int(arguments[0]))
        return 0
    first, last = map(int, arguments)
    return search(first, last)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
