"""`pullwright redteam`: every attack of the corpus against the configuration as it is here and now."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, given_settings
from orchestrator.app.cli.output import open_console
from orchestrator.app.words import as_json_text, clean, counted, short_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from rich.console import OverflowMethod

    from orchestrator.app.redteam.attack import Attack
    from orchestrator.app.redteam.judge import AttackVerdict
    from orchestrator.app.redteam.run import Configured, MakeUser

_PROOF_CHARS = 110
_NAME_CHARS = 36
_HEAD = f"{'':9}  {'attack':{_NAME_CHARS}}  {'place':14}  {'stopped by':15}  evidence"


def redteam(options: argparse.Namespace) -> int:
    """Run the attacks offline, in temporary folders.

    Raises:
        ConfigurationError: the configuration or an attack is not valid.
        WorkspaceError: git is missing.
    """
    from orchestrator.app.redteam.attack import read_corpus
    from orchestrator.app.redteam.run import choose_attacks

    make_user = partial(configured, given_settings(options), dict(os.environ), Path.cwd())
    make_user()  # so that a mistake in the configuration shows before the first attack
    attacks = choose_attacks(read_corpus(), [options.only] if options.only else ())
    return _run(attacks, make_user, as_json=options.json)


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


def _run(attacks: list[Attack], make_user: MakeUser, *, as_json: bool) -> int:
    from orchestrator.app.redteam.run import play_all, try_attack

    show = _writer(as_json=as_json)
    verdicts: list[AttackVerdict] = []
    for verdict in play_all(attacks, make_user, try_attack):
        verdicts.append(verdict)
        show(verdict)
    if not as_json:
        sys.stdout.write("\n".join(_summary(verdicts)) + "\n")
    return DONE if all(verdict.stopped for verdict in verdicts) else FAILED


def _writer(*, as_json: bool) -> Callable[[AttackVerdict], None]:
    """Return a function that prints an attack as one line, in colour and cut to its width on a terminal."""
    console = open_console()

    def write(line: str, style: str) -> None:
        is_cut = console.is_terminal and not as_json
        overflow: OverflowMethod = "ellipsis" if is_cut else "ignore"
        console.print(line, style=style, no_wrap=True, overflow=overflow, crop=is_cut)

    def show(verdict: AttackVerdict) -> None:
        if as_json:
            write(_json_line(verdict), "")
        else:
            write(_line(verdict), "" if verdict.stopped else "bold red")

    if not as_json:
        write(_HEAD, "dim")
    return show


def _summary(verdicts: list[AttackVerdict]) -> list[str]:
    """Return how many attacks were stopped, and what to change about the others."""
    stopped = sum(verdict.stopped for verdict in verdicts)
    lines = ["", f"{counted(len(verdicts), 'attack')}, {stopped} stopped"]
    for attack in (verdict.attack for verdict in verdicts if not verdict.stopped):
        names = ", ".join(attack.defence)
        usual = f"your configuration switches off what stops it ({names}): see pullwright config"
        lines.append(f"  {attack.name}: {attack.advice or usual}")
    return lines


def _line(verdict: AttackVerdict) -> str:
    attack = verdict.attack
    state = "stopped  " if verdict.stopped else "SUCCEEDED"
    defence = verdict.defence if verdict.stopped else "-"
    words = short_line(clean(verdict.proof), _PROOF_CHARS)
    return f"{state}  {attack.name:{_NAME_CHARS}}  {attack.place:14}  {defence:15}  {words}"


def _json_line(verdict: AttackVerdict) -> str:
    attack = verdict.attack
    return as_json_text(
        {
            "attack": attack.name,
            "title": attack.title,
            "incidents": attack.incidents,
            "place": str(attack.place),
            "stopped": verdict.stopped,
            "defence": str(verdict.defence) if verdict.stopped else None,
            "success": verdict.success or None,
            "evidence": verdict.proof,
        }
    )
