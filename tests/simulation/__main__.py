"""Searches worlds for what does not hold, and prints the table of worlds.

Run: python -m tests.simulation FIRST LAST, or python -m tests.simulation SEED for what happens in one world.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.simulation.plan import ODDITIES, Kind, Plan, draw, size_of
from tests.simulation.search import live, shrink
from tests.simulation.worlds import KNOWN, MENDED


def story(seed: int) -> None:
    """Print what happens in one world, and the smallest world with the same failure."""
    plan = draw(seed)
    world, found = live(plan)
    sys.stdout.write(f"{plan}\n" + "".join(f"{line}\n" for line in world.trace))
    sys.stdout.write("".join(f"FAILED {line}\n" for line in found))
    if found:
        small = shrink_failure(plan, found[0])
        sys.stdout.write(f"smallest, {size_of(small)} steps instead of {size_of(plan)}: {small}\n")


def shrink_failure(plan: Plan, failure: str) -> Plan:
    """Return the smallest plan that breaks the same sentence."""
    name = failure.partition(":")[0]
    return shrink(plan, lambda one: any(line.startswith(name) for line in live(one)[1]))


def search(first: int, last: int) -> int:
    """Run the worlds of some seeds, and print the table: how many, what went wrong in them, and what was found."""
    start, used = time.monotonic(), time.process_time()
    incidents: Counter[str] = Counter()
    deeds: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    failed: dict[int, str] = {}
    for seed in range(first, last):
        plan = draw(seed)
        world, found = live(plan)
        incidents.update(str(incident.kind) for incident in world.struck)
        deeds.update(str(deed.act) for deed in plan.deeds)
        odd.update(name for task in plan.tasks for name in ODDITIES if getattr(task, name))
        odd.update({"strangers": plan.strangers} if plan.strangers else {})
        if found:
            failed[seed] = found[0]
            sys.stdout.write(f"seed {seed}: {found[0]}\n")
            sys.stdout.flush()
    seconds, cpu = time.monotonic() - start, time.process_time() - used
    count = last - first
    write_rows("worlds", [("drawn", count), ("in which something does not hold", len(failed))])
    write_rows("what went wrong", [(str(kind), incidents[str(kind)]) for kind in Kind])
    write_rows("what people did", sorted(deeds.items()))
    write_rows("odd tasks, and issues of strangers", sorted(odd.items()))
    rate = f"{count / seconds * 60:.0f} worlds a minute, {count / cpu * 60:.0f} a minute of a processor"
    sys.stdout.write(f"{seconds:.0f} s, {cpu:.0f} s of a processor: {rate}\n")
    for seed, failure in failed.items():
        plan = draw(seed)
        small = shrink_failure(plan, failure)
        sys.stdout.write(f"seed {seed}, {size_of(plan)} steps, shrunk to {size_of(small)}: {small}\n")
    write_rows("steps of the worlds with a name, shrunk", [(name, size_of(MENDED[name])) for name in MENDED])
    write_rows("steps of known faults, shrunk", [(name, size_of(KNOWN[name].plan)) for name in KNOWN])
    return 1 if failed else 0


def write_rows(title: str, rows: list[tuple[str, int]]) -> None:
    """Print a part of the table; nothing if it has no rows."""
    if rows:
        sys.stdout.write(f"{title}\n" + "".join(f"  {name:<72}{number:>8}\n" for name, number in rows))


def main(arguments: list[str]) -> int:
    """Do what the arguments say."""
    if len(arguments) == 1:
        story(int(arguments[0]))
        return 0
    first, last = map(int, arguments)
    return search(first, last)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
