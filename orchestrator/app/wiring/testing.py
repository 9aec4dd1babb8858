"""How the tests of a repository are run: as the person said, or with `auto` as the repository has it."""

from __future__ import annotations

import os
import random
import shlex
from typing import TYPE_CHECKING

from orchestrator.app.config import LOCAL_FILE
from orchestrator.app.options import AUTO
from orchestrator.app.wiring.guards import told_of_refusals
from orchestrator.bot.cycle.verify import tell_runs
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.verification.runs import HostRuns, RunOptions
from orchestrator.bot.verification.suggest import suggest
from orchestrator.core.events import Warned
from orchestrator.engine.environments.local import LocalEnvironment, conditions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.bot.verification.suggest import SuggestedCommand
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.confinement import Sandbox

_MOST_BYTES = 1_000_000
_KEY_CHARS = 16
"""Programs write the folder's path into first lines of scripts and names of sockets, which must be short."""


def make_verifier(program: Program, settings: Settings, clone: Clone) -> Verifier | None:
    """Who runs the tests of a clone; None where nothing says how.

    Args:
        program: with what the person chose.
        settings: the same, and what the repository's own file adds.
        clone: of the cycle; `auto` looks at what was cloned.

    Raises:
        WorkspaceError: git failed.
    """
    found = next(iter(proposals(clone)), None) if settings.test_command == AUTO else None
    options = run_options(settings, found, program.sandbox)
    if options is None:
        program.bus(Warned("no tests are run: nothing in the files says how; name it with --test-command"))
        return None
    if program.settings.test_command == AUTO:
        after = f", after {options.setup}" if options.setup else ""
        source = found.source if found else f"{LOCAL_FILE} on the default branch"
        program.bus(Warned(f"the tests are run by {options.command}{after} (from {source})"))
    key = address_key(program.site.source().url)
    return host_runs(clone, options, program.home, key, program.sandbox, program.clock, program.bus)


def host_runs(  # noqa: PLR0913, PLR0917  what is run, then where
    clone: Clone, options: RunOptions, home: Home, key: str, sandbox: Sandbox | None, clock: Clock, emit: Emit
) -> HostRuns:
    """Runs tests of a clone on this machine.

    Args:
        clone: holds their base.
        options: what is run.
        home: what is made for them is kept below it, under `key`.
        key: the repository's.
        sandbox: where they run; None for without one.
        clock: the time.
        emit: is told of each run, and of refused connections.
    """

    def environment(tree: Path) -> LocalEnvironment:
        return LocalEnvironment(
            tree,
            clock=clock,
            sandbox=sandbox or "off",
            on_refused=told_of_refusals(emit),
            own_repository=True,
        )

    return HostRuns(
        clone.trees,
        clone.base_commit,
        options,
        home=home.cache / "tests" / key[:_KEY_CHARS],
        environment=environment,
        source=random.SystemRandom(),
        watch=tell_runs(emit, options.command),
    )


def proposals(clone: Clone) -> list[SuggestedCommand]:
    """How the tests of the commit that was cloned may be run, the best first. Nothing is run.

    Raises:
        WorkspaceError: git failed.
    """
    trees, tree = clone.trees, clone.trees.tree_of(clone.base_commit)
    return suggest(trees.entries(tree), lambda path: trees.text(tree, path, most_bytes=_MOST_BYTES))


def run_options(
    settings: Settings, found: SuggestedCommand | None, sandbox: Sandbox | None
) -> RunOptions | None:
    """What is run; None where that is not known.

    Args:
        settings: what they name stands before what was proposed.
        found: what `auto` stands for.
        sandbox: where it runs; None for without one.
    """
    command, setup, report = settings.test_command, settings.setup_command, settings.test_report
    if command in {None, AUTO}:
        if found is None:
            return None
        command, setup, report = found.command, setup or found.setup, report or found.report
    return RunOptions(
        command or "",
        setup or "",
        report or "",
        settings.test_minutes,
        settings.test_paths,
        sandbox=sandbox.name if sandbox else "none",
        conditions=conditions(sandbox, os.environ),
    )


def missing_hosts(settings: Settings, hosts: Iterable[str]) -> list[str]:
    """Those of the hosts that commands may not reach."""
    return [host for host in hosts if not any(_covers(allowed, host) for allowed in settings.allow_host)]


def _covers(allowed: str, host: str) -> bool:
    """Whether one is the other, or is below it: of `*.example.com` mostly one host is meant."""
    one, other = allowed.removeprefix("*"), host.removeprefix("*")
    return (
        allowed == host
        or (allowed.startswith("*.") and other.endswith(one))
        or (host.startswith("*.") and one.endswith(other))
    )


def allowing(hosts: Iterable[str]) -> str:
    """The flags that let commands reach these hosts."""
    return " ".join(f"--allow-host {shlex.quote(host)}" for host in hosts)


def as_flags(proposal: SuggestedCommand, hosts: Iterable[str]) -> str:
    """A proposal as a person types it, with the hosts that have to be allowed for it."""
    named = {
        "test-command": proposal.command,
        "setup-command": proposal.setup,
        "test-report": proposal.report,
    }
    flags = (f"--{name} {shlex.quote(value)}" for name, value in named.items() if value)
    return " ".join((*flags, allowing(hosts))).strip()
