"""`pullwright retry`, `close` and `forget`: what a person decides about one task."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import given_settings
from orchestrator.app.cli.exit_codes import DONE, NOTHING
from orchestrator.app.cli.text import as_json_text, clean
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import TextIO

    from orchestrator.app.wiring.tasks import TaskDesk
    from orchestrator.bot.worker.task_states import Decided

_YES = frozenset({"y", "yes"})


def retry(options: argparse.Namespace) -> int:
    """Let the next cycle take a task again.

    Raises:
        ConfigurationError: no repository or no task is named.
        ForgeError: the forge failed.
        WorkspaceError: the remote cannot be reached, or did not take it.
    """
    return _decide(options, lambda desk: desk.by_hand.retry(desk.by_hand.find(options.task)))


def close(options: argparse.Namespace) -> int:
    """Close a pull request of ours without merging it.

    Raises:
        ConfigurationError: no repository is named, or the pull request is not ours.
        ForgeError: the forge failed.
        WorkspaceError: the remote cannot be reached.
    """
    return _decide(options, lambda desk: desk.by_hand.close(options.number))


def forget(options: argparse.Namespace) -> int:
    """Drop what is kept of a task.

    Raises:
        ConfigurationError: no repository or no task is named, or nobody said yes to what would be lost.
        ForgeError: the forge failed.
        WorkspaceError: the remote cannot be reached, or did not take it.
    """
    return _decide(options, lambda desk: _forget(desk, options))


def _forget(desk: TaskDesk, options: argparse.Namespace) -> Decided:
    by_hand = desk.by_hand
    state = by_hand.find(options.task)
    lost = by_hand.would_lose(state)
    if lost and not options.yes and not _agreed(f"{state.key}: this drops {lost}"):
        again = f"{by_hand.commands.forget(state.key)} --yes"
        raise ConfigurationError(f"{state.key} was not forgotten: this drops {lost}; to do so: {again}")
    decided = by_hand.forget(state)
    if decided.changed:
        desk.close_dead_runs(state.key)
    return decided


def _agreed(question: str) -> bool:
    """Ask the person, where there is one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{clean(question)}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in _YES


def _decide(options: argparse.Namespace, decide: Callable[[TaskDesk], Decided]) -> int:
    from orchestrator.app.wiring.tasks import open_tasks

    if not options.repo:
        raise ConfigurationError("no repository is named: pass --repo owner/name or --repo PATH")
    with open_tasks(options.repo, given_settings(options), os.environ, Path.cwd(), writes=True) as desk:
        decided = decide(desk)
        if decided.changed:
            desk.note(decided)
    write(decided, options.command, sys.stdout, as_json=options.json)
    return DONE if decided.changed else NOTHING


def write(decided: Decided, command: str, out: TextIO, *, as_json: bool) -> None:
    """One line, without anything that a terminal obeys or that is secret."""
    from orchestrator.app.config import secret_values
    from orchestrator.engine.policy.secrets import Redactor

    redactor, after = Redactor(secret_values(os.environ)), decided.after
    if not as_json:
        print(redactor.redact(clean(decided.words)), file=out)
        return
    fields: dict[str, Any] = {
        "kind": command,
        "task": after.key,
        "changed": decided.changed,
        "state": str(after.kind),
        "pull": after.pull.number if after.pull is not None else None,
        "said": decided.words,
    }
    print(as_json_text(redactor.redact_value(fields)), file=out)
