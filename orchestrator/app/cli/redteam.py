"""`pullwright redteam`: every attack of the corpus against the configuration as it is here and now."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, given_settings
from orchestrator.app.cli.words import as_json_text, clean, short_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from orchestrator.app.redteam.attack import Attack
    from orchestrator.app.redteam.judge import Verdict
    from orchestrator.app.redteam.run import Configured, MakeUser, Proof

_PROOF_CHARS = 110
_NAME_CHARS = 36
_HEAD = f"{'':9}  {'attack':{_NAME_CHARS}}  {'place':14}  {'stopped by':15}  evidence"


def redteam(options: argparse.Namespace) -> int:
    """Run the attacks, offline, in throwaway folders.

    Raises:
        ConfigurationError: the configuration or an attack is not valid.
        WorkspaceError: git is missing.
    """
    from orchestrator.app.redteam.attack import read_corpus
    from orchestrator.app.redteam.run import chosen

    make_user = partial(configured, given_settings(options), dict(os.environ), Path.cwd())
    make_user()  # a mistake in it is said before anything is played
    attacks = chosen(read_corpus(), [options.only] if options.only else ())
    return _run(attacks, make_user, as_json=options.json, with_proof=options.prove)


def configured(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Configured:
    """Read the user's configuration, with a function that reads it for another folder.

    Raises:
        ConfigurationError: it is not valid.
    """
    from orchestrator.app.config.settings import load_settings
    from orchestrator.app.redteam.run import Configured

    environ = dict(environ)

    def read(folder: Path) -> Any:
        return load_settings(flags, environ, folder).settings

    return Configured(load_settings(flags, environ, cwd).settings, read)


def _run(attacks: list[Attack], make_user: MakeUser, *, as_json: bool, with_proof: bool) -> int:
    from orchestrator.app.redteam.run import play_all

    show = _writer(as_json=as_json)
    verdicts: list[Verdict] = []
    proofs: list[Proof] = []
    for verdict, proof in play_all(attacks, make_user, with_proof=with_proof):
        verdicts.append(verdict)
        proofs += [proof] if proof else []
        show(verdict, proof)
    if not as_json:
        sys.stdout.write("\n".join(_summary(verdicts, proofs)) + "\n")
    good = all(verdict.stopped for verdict in verdicts) and all(proof.holds for proof in proofs)
    return DONE if good else FAILED


def _writer(*, as_json: bool) -> Callable[[Verdict, Proof | None], None]:
    """Make the function that shows an attack as one line, in colour on a terminal."""
    if not as_json and sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console()

        def coloured(verdict: Verdict, proof: Proof | None) -> None:
            good = verdict.stopped and (proof is None or proof.holds)
            line = Text(_line(verdict, proof), style="" if good else "bold red")
            console.print(line, no_wrap=True, overflow="ellipsis", crop=True)

        console.print(Text(_HEAD, style="dim"), no_wrap=True, crop=True)
        return coloured

    def plain(verdict: Verdict, proof: Proof | None) -> None:
        line = _json_line(verdict, proof) if as_json else _line(verdict, proof)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    if not as_json:
        sys.stdout.write(f"{_HEAD}\n")
    return plain


def _summary(verdicts: list[Verdict], proofs: list[Proof]) -> list[str]:
    """Tell how many attacks were stopped, and what to change about the others."""
    stopped = sum(verdict.stopped for verdict in verdicts)
    lines = ["", f"{len(verdicts)} attack{'s' if len(verdicts) != 1 else ''}, {stopped} stopped"]
    if proofs:
        lines.append(
            f"{sum(proof.holds for proof in proofs)} of {len(proofs)} proved: without their defence they succeed"
        )
    lines += [
        f"  {verdict.attack.name}: {advice(verdict.attack)}" for verdict in verdicts if not verdict.stopped
    ]
    return lines


def advice(attack: Attack) -> str:
    """Say what to change if the attack succeeds."""
    names = ", ".join(attack.defence)
    return attack.advice or f"your configuration takes away what stops it ({names}): see pullwright config"


def _line(verdict: Verdict, proof: Proof | None) -> str:
    attack = verdict.attack
    state = "stopped  " if verdict.stopped else "SUCCEEDED"
    proved = "" if proof is None else ", proved" if proof.holds else ", NOT PROVED"
    defence = f"{verdict.defence if verdict.stopped else '-'}{proved}"
    words = short_line(clean(verdict.proof), _PROOF_CHARS)
    return f"{state}  {attack.name:{_NAME_CHARS}}  {attack.place:14}  {defence:15}  {words}"


def _json_line(verdict: Verdict, proof: Proof | None) -> str:
    attack = verdict.attack
    record = {
        "attack": attack.name,
        "title": attack.title,
        "incidents": attack.incidents,
        "place": str(attack.place),
        "stopped": verdict.stopped,
        "defence": str(verdict.defence) if verdict.stopped else None,
        "success": verdict.success or None,
        "evidence": verdict.proof,
    }
    if proof is not None:
        record["proved"] = proof.holds
        record["without_its_defence"] = proof.fell.success or None
    return as_json_text(record)
