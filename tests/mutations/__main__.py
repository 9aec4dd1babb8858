"""Draws small mutations of modules and plays the tests on each: which mistakes would no test notice?

`python -m tests.mutations orchestrator.bot.policy --draw 100` names modules or packages with dots. A drawn mutation is
killed when a test of the default tier that reaches its place fails, in this process or in a program that the test
starts. Those that survive are printed as diffs. A mutation that changes nothing that anybody can see is named with its
reason in `tests/data/harmless_mutations.toml`.

First each test is played without a mutation, to know which places it reaches: `--map FILE` keeps that, and the next
time only the tests are played that changed, or that reach a module that changed. Nothing is written to the tree: the
tests run in a copy whose modules hold all mutations, and a forked process that has collected the tests plays one. Only
a mutation of what runs at import alone (a constant, a default, a function that makes one) imports them anew.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations.play import Map, Played, Run, copy_tree
from tests.mutations.sites import draw, harmless, is_named, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.mutations.sites import Source

ROOT = Path(__file__).parents[2]


def _is_in(module: str, names: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{name}.") for name in names)


def _report(kept: Map, by: dict[str, Source], names: Sequence[str], played: list[Played]) -> float:
    """Print the survivors and the table; return which part was killed or is named."""
    for each in played:
        if each.end in {"survived", "hung"}:
            print(f"\n{each.site.module}:{each.site.line}: {each.end}, {each.tests or 'no'} tests reach it")  # noqa: T201
            print("\n".join(by[each.site.module].mutant(each.site)[1]))  # noqa: T201
    for name in sorted(name for name, ran in kept.ran.items() if not ran.passed):
        print(f"fails without a mutation, so it was not asked: {name}")  # noqa: T201
    ends = ("killed", "hung", "named", "survived")
    print(f"\n{'':44}{'drawn':>9}" + "".join(f"{end:>9}" for end in ends))  # noqa: T201
    total: Counter[str] = Counter()
    for name in names:
        counted = Counter(e.end for e in played if _is_in(e.site.module, [name]))
        total += counted
        print(f"{name:44}{counted.total():9}" + "".join(f"{counted[end]:9}" for end in ends))  # noqa: T201
    print(f"{'all':44}{total.total():9}" + "".join(f"{total[end]:9}" for end in ends))  # noqa: T201
    share = 1 - total["survived"] / max(1, total.total())
    print(f"{share:.1%} killed or named")  # noqa: T201
    return share


def main(arguments: list[str]) -> int:
    """Print what survived; return 1 if fewer were killed or are named than there should be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a module or package, with dots")
    parser.add_argument("--draw", type=int, default=50, help="how many mutations (50)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument(
        "--only", nargs="+", metavar="MODULE[:LINE]", help="of those that were drawn, play these"
    )
    parser.add_argument("--map", type=Path, metavar="FILE", help="where it is kept which test reaches what")
    parser.add_argument(
        "--tests", nargs="+", default=["tests"], metavar="PATH", help="the tests (those of the default tier)"
    )
    parser.add_argument("-n", type=int, default=os.cpu_count() or 1, help="how many processes (one a core)")
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long the tests of one mutation may take (20)"
    )
    parser.add_argument("--at-least", type=float, default=95, help="percent to be killed or named (95)")
    parser.add_argument("--copy", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.copy:
        return _run(options, options.copy)
    if options.map:
        arguments = [*arguments, "--map", str(options.map.resolve())]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        scratch = Path(folder).resolve()
        copy_tree(ROOT, scratch / "tree")
        command = [sys.executable, "-m", "tests.mutations", *arguments, "--copy", str(scratch)]
        return subprocess.run(command, cwd=scratch / "tree", check=False).returncode


def _run(options: argparse.Namespace, scratch: Path) -> int:
    """Play the mutations, in a process that started in the copy of the tree."""
    kept: Map = pickle.loads(options.map.read_bytes()) if options.map and options.map.exists() else Map()  # noqa: S301  our own
    found = sources(scratch / "tree", options.modules)
    by = {source.module: source for source in found}
    drawn = [
        site
        for site in draw(found, options.draw, options.seed)
        if options.only is None
        or _is_in(site.module, options.only)
        or f"{site.module}:{site.line}" in options.only
    ]
    named = harmless(scratch / "tree")
    asked = [site for site in drawn if not is_named(by[site.module], site, named)]
    played = [Played(site, "named", 0) for site in drawn if site not in set(asked)]
    run = Run(
        scratch,
        at_once=options.n,
        seconds=options.seconds,
        sources=found,
        paths=options.tests,
        kept=kept,
        keep=options.map,
    )
    with os.fdopen(os.dup(2), "w", buffering=1) as progress:  # the forked processes have no other output
        played += run.play(asked, lambda text: print(text, file=progress))
    played.sort(key=lambda each: (each.site.module, each.site.line))
    share = _report(run.map, by, options.modules, played)
    return int(share * 100 < options.at_least)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
