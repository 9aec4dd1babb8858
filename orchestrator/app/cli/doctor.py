"""`pullwright doctor` and `redteam`: test what a run needs, and whether the configuration stops known attacks."""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, given_settings
from orchestrator.app.cli.output import open_console, print_line, text_columns
from orchestrator.app.doctor import diagnose
from orchestrator.app.doctor.findings import ProbeState
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean, counted, short_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import OverflowMethod

    from orchestrator.app.doctor.findings import Result
    from orchestrator.app.redteam.judge import AttackVerdict
    from orchestrator.app.redteam.run import Configured


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
_PROOF_CHARS = 110
_ATTACK_CHARS = 36
_ATTACK_HEAD = f"{'':9}  {'attack':{_ATTACK_CHARS}}  {'place':14}  {'stopped by':15}  evidence"


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


def redteam(options: argparse.Namespace) -> int:
    """Run the attacks offline, in temporary folders.

    Raises:
        ConfigurationError: the configuration or an attack is not valid.
        WorkspaceError: git is missing.
    """
    from orchestrator.app.redteam.attack import read_corpus
    from orchestrator.app.redteam.run import choose_attacks, play_all, try_attack

    make_user = partial(configured, given_settings(options), dict(os.environ), Path.cwd())
    make_user()  # so that a mistake in the configuration shows before the first attack
    attacks = choose_attacks(read_corpus(), [options.only] if options.only else ())
    show = _attack_writer(as_json=options.json)
    verdicts: list[AttackVerdict] = []
    for verdict in play_all(attacks, make_user, try_attack):
        verdicts.append(verdict)
        show(verdict)
    if not options.json:
        sys.stdout.write("\n".join(_attack_summary(verdicts)) + "\n")
    return DONE if all(verdict.stopped for verdict in verdicts) else FAILED


def configured(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Configured:
    """Return the user's configuration, with a function that reads it for another folder.

    Raises:
        ConfigurationError: the configuration is not valid.
    """
    from orchestrator.app.config.settings import load_settings
    from orchestrator.app.redteam.run import Configured

    environ = dict(environ)

    def read(folder: Path) -> Any:
        return load_settings(flags, environ, folder).settings

    return Configured(load_settings(flags, environ, cwd).settings, read)


def _attack_writer(*, as_json: bool) -> Callable[[AttackVerdict], None]:
    """Return a function that prints an attack as one line, in colour and cut to its width on a terminal."""
    if as_json:
        return lambda verdict: print_json(_attack_json(verdict))
    console = open_console()
    is_cut = console.is_terminal

    def write(line: str, style: str) -> None:
        overflow: OverflowMethod = "ellipsis" if is_cut else "ignore"
        console.print(line, style=style, no_wrap=True, overflow=overflow, crop=is_cut)

    write(_ATTACK_HEAD, "dim")
    return lambda verdict: write(_attack_line(verdict), "" if verdict.stopped else "bold red")


def _attack_summary(verdicts: list[AttackVerdict]) -> list[str]:
    """Return how many attacks were stopped, and what to change about the others."""
    stopped = sum(verdict.stopped for verdict in verdicts)
    lines = ["", f"{counted(len(verdicts), 'attack')}, {stopped} stopped"]
    for attack in (verdict.attack for verdict in verdicts if not verdict.stopped):
        names = ", ".join(attack.defence)
        usual = f"your configuration switches off what stops it ({names}): see pullwright config"
        lines.append(f"  {attack.name}: {attack.advice or usual}")
    return lines


def _attack_line(verdict: AttackVerdict) -> str:
    attack = verdict.attack
    state = "stopped  " if verdict.stopped else "SUCCEEDED"
    defence = verdict.defence if verdict.stopped else "-"
    words = short_line(clean(verdict.proof), _PROOF_CHARS)
    return f"{state}  {attack.name:{_ATTACK_CHARS}}  {attack.place:14}  {defence:15}  {words}"


def _attack_json(verdict: AttackVerdict) -> dict[str, Any]:
    attack = verdict.attack
    return {
        "attack": attack.name,
        "title": attack.title,
        "incidents": attack.incidents,
        "place": str(attack.place),
        "stopped": verdict.stopped,
        "defence": str(verdict.defence) if verdict.stopped else None,
        "success": verdict.success or None,
        "evidence": verdict.proof,
    }
