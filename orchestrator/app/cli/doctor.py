"""`pullwright doctor`: tests what a run needs."""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import DONE, FAILED, given_settings
from orchestrator.app.cli.output import open_console, print_line, text_columns
from orchestrator.app.doctor import diagnose
from orchestrator.app.doctor.findings import ProbeState
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean, short_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from orchestrator.app.doctor.findings import Result


_LOOKS = {
    ProbeState.OK: ("✔", "+", "green", "ok"),
    ProbeState.WARNING: ("!", "!", "yellow", "to look at"),
    ProbeState.FAILED: ("✘", "x", "bold red", "failed"),
    ProbeState.SKIPPED: ("·", "-", "dim", "not tried"),
}
"""Display of each state: its sign, its sign in ASCII, its style of `rich`, and its name in the summary."""
_NAME_CHARS = 15
_STYLED_CHARS = 4 + _NAME_CHARS
"""The characters of a line that are in colour: the sign and the name."""
_MOST_TEXT_CHARS = 600
_MOST_TYPED_CHARS = 4_000


def doctor(options: argparse.Namespace) -> int:
    """Run the probes, print the results, and return 1 if a probe failed, else 0."""
    results: list[Result] = []
    show = _json if options.json else _writer()
    found = diagnose(
        options.repo,
        given_settings(options),
        os.environ,
        Path.cwd(),
        writes=options.write,
        runs=options.run_tests,
    )
    for result in found:
        show(result, results[-1].group if results else "")
        results.append(result)
    if not options.json:
        sys.stdout.write(f"\n{_summary(results)}\n")
    return FAILED if any(result.finding.state is ProbeState.FAILED for result in results) else DONE


def _summary(results: list[Result]) -> str:
    counts = Counter(result.finding.state for result in results)
    parts = [f"{counts[state]} {_LOOKS[state][3]}" for state in ProbeState if counts[state]]
    return ", ".join(parts) or "nothing tried"


def lines(result: Result, columns: int, *, plain_signs: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of a result, each with a style of `rich`. The fix follows the finding."""
    finding = result.finding
    indent = " " * (4 + _NAME_CHARS + 1)
    sign, plain, style, _ = _LOOKS[finding.state]
    first = f"  {plain if plain_signs else sign} {result.probe:{_NAME_CHARS}} "
    for line in _wrapped(finding.found, first, indent, columns):
        yield line, style if line.startswith(first[:4]) else ""
    if finding.fix:
        yield from ((line, "") for line in _wrapped(finding.fix, f"{indent}fix: ", f"{indent}     ", columns))
    if finding.typed:
        yield f"{indent}{clean(short_line(finding.typed, _MOST_TYPED_CHARS))}", ""


def _wrapped(text: str, first: str, later: str, columns: int) -> list[str]:
    wrapped = textwrap.wrap(
        short_line(text, _MOST_TEXT_CHARS),
        columns,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    # Wrapping may have moved a log command to the beginning of a line, where a CI system executes it.
    return [clean(line) for line in wrapped] or [first.rstrip()]


def _writer() -> Callable[[Result, str], None]:
    """Return a function that prints a result, in colour on a terminal."""
    console, columns = open_console(), text_columns()
    plain_signs = not (sys.stdout.encoding or "ascii").lower().startswith("utf")

    def show(result: Result, before: str) -> None:
        if result.group != before:
            if before:
                print_line(console, "")
            print_line(console, short_line(result.group), "bold")
        for line, style in lines(result, columns, plain_signs=plain_signs):
            print_line(console, line, style, slice(_STYLED_CHARS))

    return show


def _json(result: Result, _before: str) -> None:
    record = {
        "group": result.group,
        "probe": result.probe,
        "state": str(result.finding.state),
        "found": result.finding.found,
        "fix": " ".join(filter(None, (result.finding.fix, result.finding.typed))) or None,
    }
    print_json(record)
