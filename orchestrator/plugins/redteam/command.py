"""`pullwright redteam`: tests whether the configuration stops known attacks."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, given_settings
from orchestrator.app.cli.output import open_console
from orchestrator.app.config.settings import load_settings
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean, counted, short_line
from orchestrator.plugins.redteam.attack import read_corpus
from orchestrator.plugins.redteam.run import choose_attacks, play_all, try_attack
from orchestrator.plugins.redteam.stage import Configured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from rich.console import OverflowMethod

    from orchestrator.plugins.redteam.judge import AttackVerdict

_PROOF_CHARS = 110
_ATTACK_CHARS = 36
_ATTACK_HEAD = f"{'':9}  {'attack':{_ATTACK_CHARS}}  {'place':14}  {'stopped by':15}  evidence"


def redteam(options: argparse.Namespace) -> int:
    """Run the attacks offline, in temporary folders."""
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
    """Return the user's configuration, with a function that reads it for another folder."""
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
