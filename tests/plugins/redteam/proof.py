"""Proves the attacks of `pullwright redteam`: each one is stopped, and succeeds without its defence.

`python -m tests.plugins.redteam.proof [NAME ...]` plays all of them, or those that are named, in throwaway folders. It prints
a line for each, and ends with status 1 if one does not hold. An attack that never succeeds proves nothing.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.redteam.attack import read_corpus
from orchestrator.plugins.redteam.command import choose_attacks, configured, play_all
from tests.plugins.redteam.careless import Proof, prove


def line(proof: Proof) -> str:
    """What became of one attack."""
    if not proof.held.stopped:
        return f"SUCCEEDED   {proof.held.attack.name}: with its defence: {proof.held.success}: {proof.held.proof}"
    if proof.fell.stopped:
        return f"NOT PROVED  {proof.held.attack.name}: without its defence nothing came of it: {proof.fell.proof}"
    return f"proved      {proof.held.attack.name}: without {proof.held.defence}: {proof.fell.proof}"


def main(names: list[str]) -> int:
    """Play the attacks of these names, or all."""
    here = Path.cwd()
    make_user = partial(
        configured, {}, {"PULLWRIGHT_CONFIG": "", "HOME": os.environ.get("HOME", str(here))}, here
    )
    try:
        attacks = choose_attacks(read_corpus(), names)
    except ConfigurationError as error:
        sys.exit(str(error))
    holding = 0
    for proof in play_all(attacks, make_user, prove):
        sys.stdout.write(f"{line(proof)}\n")
        sys.stdout.flush()
        holding += proof.holds
    sys.stdout.write(f"{holding} of {len(attacks)} proved: without their defence they succeed\n")
    return 0 if holding == len(attacks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
