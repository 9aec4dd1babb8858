"""What `verify-pr` says of real commits: without a report, with the program's own, and with each lie in it.

    python -m tests.evaluation.claims [BUNDLE...] [--commits 10] [--older-than ID] [--python PROGRAM] [--sandbox auto|off]

Each BUNDLE is a git history (`git bundle create NAME.bundle --all`). Its newest commits that change code and tests
together are verified as branches against their parents, as anybody's pull request: first without a report, then with
the report that the program makes of them, by a second verification. What is refuted there is said wrongly. Then each
field of that report is changed, and the change compared with what the second verification found: a lie that is not
refuted is listed. A commit whose parent's or own tests do not run here, or fail, is listed and not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring import ignore_event
from orchestrator.bot.verification.page import find_block, report
from orchestrator.plugins.verify_pr.claims import (
    Standing,
    lines_of_commits,
    lines_of_digests,
    lines_of_runs,
    read_claims,
)
from orchestrator.plugins.verify_pr.program import build_verification
from tests.evaluation.histories import Row, commits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.plugins.verify_pr.pull_request import PullRequestEvidence
    from tests.evaluation.histories import Subject

_LOOKED_AT = 4
"""Times the commits that are wanted: so many are looked at, of which some do not run here."""


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each single value of a block."""
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from fields(item, (*path, key))
    else:
        yield path


def lie(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if len(value) in {40, 64}:
            return "".join("0" if letter != "0" else "1" for letter in value)
        case str():
            return {"FAILED": "PASSED", "WARNED": "PASSED", "PASSED": "FAILED"}.get(value, f"{value}x")
        case list():
            return [*value, "t.py::test_made_up"]
        case _:
            return {"sha256": "0" * 64}


def with_lie(statement: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """A copy of a block with a lie in one field."""
    changed = copy.deepcopy(statement)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = lie(place[path[-1]])
    return changed


def is_refuted(statement: dict[str, Any], found: PullRequestEvidence) -> bool:
    """Whether a block does not hold against what a verification found."""
    claims = read_claims(statement)
    verdict, commits_found = found.verdict, found.commits
    if isinstance(claims, str) or verdict is None or commits_found is None:
        return True
    before = verdict.runs.before
    lines = (
        *lines_of_commits(claims, commits_found),
        *lines_of_digests(claims, verdict.runs.tree, before.tree if before else ""),
        *lines_of_runs(claims, verdict),
    )
    return any(line.standing is Standing.REFUTED for line in lines)


@dataclass(slots=True)
class Figures:
    """What was counted."""

    without: Counter[str] = field(default_factory=Counter)
    with_report: Counter[str] = field(default_factory=Counter)
    not_run: int = 0
    lies: int = 0
    refuted: int = 0
    not_refuted: Counter[str] = field(default_factory=Counter)

    def take_lies(self, text: str, found: PullRequestEvidence) -> None:
        """Try each lie in a report."""
        statement = find_block(text).statement
        assert statement is not None
        for path in fields(statement):
            if path[0] in {"_type", "predicateType"}:  # then it is no report
                continue
            self.lies += 1
            if is_refuted(with_lie(statement, path), found):
                self.refuted += 1
            else:
                self.not_refuted[".".join(str(key) for key in path if not isinstance(key, int))] += 1


async def verify(subject: Subject, number: int, text: str | None, sandbox: str) -> PullRequestEvidence:
    """Verify a commit as a branch."""
    flags = {
        "test_command": subject.options.command,
        "test_minutes": "3",
        "sandbox": sandbox,
        "base": f"base-{number}",
    }
    program = build_verification(
        f"head-{number}", str(subject.repository), text, flags, os.environ, subject.repository, ignore_event
    )
    return await program.run()


def _name(subject: Subject, number: int) -> None:
    """Give the two commits branches."""
    for name, commit in (("base", subject.base), ("head", subject.head)):
        words = ["git", "-C", str(subject.repository), "update-ref", f"refs/heads/{name}-{number}", commit]
        subprocess.run(words, check=True)


async def measure(subject: Subject, number: int, figures: Figures, sandbox: str) -> None:
    """Verify a commit without a report, and with its own."""
    await asyncio.to_thread(_name, subject, number)
    first = await verify(subject, number, None, sandbox)
    why = Row(subject, first.verdict).not_run if first.verdict else "no runs"
    if why or first.verdict is None:
        figures.not_run += 1
        print(f"{'not run':10}{'':10}{subject.name:80.80} {why[:100]}", flush=True)
        return
    text = report(first.verdict, subject.head)
    second = await verify(subject, number, text, sandbox)
    figures.without[first.outcome] += 1
    figures.with_report[second.outcome] += 1
    figures.take_lies(text, second)
    print(f"{first.outcome:10}{second.outcome:10}{subject.name:80.80}", flush=True)
    for line in (*first.lines, *second.lines):
        if line.standing in {Standing.REFUTED, Standing.UNKNOWN}:
            print(
                f"{'':20}{line.level}: {line.subject}: {line.claimed} | {line.found} {line.note}"[:240],
                flush=True,
            )


def print_figures(figures: Figures) -> None:
    """The table."""
    total = sum(figures.without.values())
    print(f"\n{'':44}{'holds':>8}{'refuted':>9}{'unknown':>9}")
    for words, counts in (
        ("without a report", figures.without),
        ("with the program's report", figures.with_report),
    ):
        print(f"{words:44}{counts['holds']:>8}{counts['refuted']:>9}{counts['unknown']:>9}")
    print(f"\ncommits: {total}, and {figures.not_run} whose tests do not run here")
    print(f"lies in one field: {figures.refuted} of {figures.lies} refuted")
    for name, number in sorted(figures.not_refuted.items()):
        print(f"    not refuted: {name} ({number})")


async def _all(arguments: argparse.Namespace, folder: Path) -> Figures:
    figures = Figures()
    for bundle in arguments.bundles:
        done = 0
        listed = commits(bundle, folder, arguments.python, arguments.older_than)
        for number, subject in enumerate(islice(listed, arguments.commits * _LOOKED_AT)):
            before = figures.not_run
            await measure(subject, number, figures, arguments.sandbox)
            done += figures.not_run == before
            if done >= arguments.commits:
                break
    return figures


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.evaluation.claims", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("bundles", nargs="+", type=lambda text: Path(text).resolve(strict=True))
    parser.add_argument(
        "--commits", type=int, default=10, help="of each history, counted where the tests run"
    )
    parser.add_argument("--older-than", default="HEAD", help="begin with this commit")
    parser.add_argument("--python", default=sys.executable, help="what runs the tests")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="off")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="claims-") as folder:
        os.environ |= {"PULLWRIGHT_HOME": f"{folder}/home", "PULLWRIGHT_CONFIG": ""}
        print_figures(asyncio.run(_all(arguments, Path(folder))))


if __name__ == "__main__":
    main()
