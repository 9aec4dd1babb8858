"""`pullwright redteam`: plays known attacks against the configuration, in several processes, and says which it stops."""

from __future__ import annotations

import difflib
import gc
import multiprocessing
import os
import random
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orchestrator.app.cli.arguments import DONE, FAILED, given_settings
from orchestrator.app.cli.output import open_console
from orchestrator.app.config.settings import load_settings
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean, counted, short_line
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.redteam.attack import read_corpus
from orchestrator.plugins.redteam.judge import judge_attack
from orchestrator.plugins.redteam.planted import draw
from orchestrator.plugins.redteam.stage import Configured

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from rich.console import OverflowMethod

    from orchestrator.plugins.redteam.attack import Attack
    from orchestrator.plugins.redteam.judge import AttackVerdict
    from orchestrator.plugins.redteam.planted import Drawn


T = TypeVar("T")
MakeUser: TypeAlias = "Callable[[], Configured]"
"""Reads the user's configuration. It is sent to other processes, so it must be a function of a module."""
PlayOne: TypeAlias = "Callable[[Attack, Configured, Drawn], Coroutine[Any, Any, T]]"
"""Plays one attack. It must be a function of a module, too."""

_MOST_PROCESSES = 8
_PRELOADED = [
    "orchestrator.plugins.redteam.stage",
    "orchestrator.plugins.redteam.servers",
    *("orchestrator.plugins.dashboard.server", "orchestrator.plugins.worker.serving"),
    *("orchestrator.plugins.verify_pr.program", "orchestrator.plugins.mcp.servers"),
    *(
        "orchestrator.plugins.redteam.agents",
        "orchestrator.plugins.agents.client",
        "orchestrator.plugins.agents.work",
    ),
    # What the program imports at its first use, and most attacks use. The packages of extras may be missing.
    *("jinja2", "jsonschema", "markdown_it", "mcp.client"),
]
"""Modules that all processes share. Those that are missing are left out."""


def choose_attacks(attacks: Sequence[Attack], names: Iterable[str]) -> list[Attack]:
    """Return the attacks with these names; all attacks without names."""
    by_name = {attack.name: attack for attack in attacks}
    wanted = list(names)
    for name in wanted:
        if name not in by_name:
            [near] = difflib.get_close_matches(name, list(by_name), n=1, cutoff=0.0) or [""]
            raise ConfigurationError(f"there is no attack {name!r}; the nearest is {near!r}")
    return [by_name[name] for name in wanted] or list(attacks)


async def try_attack(attack: Attack, user: Configured, drawn: Drawn) -> AttackVerdict:
    """Play an attack against the user's configuration."""
    # The first process does not need the whole program.
    from orchestrator.plugins.redteam.stage import play

    return judge_attack(attack, await play(attack, user, drawn))


def play_all(
    attacks: Sequence[Attack], make_user: MakeUser, play_one: PlayOne[T], *, processes: int | None = None
) -> Iterator[T]:
    """Play attacks in several processes, because each attack changes the environment of its process.

    Args:
        attacks: the attacks; their results have the same order.
        play_one: `try_attack` or a similar function.
        processes: number of processes; by default one more than processors, at most 8, because an attack also
            waits for the disk and for programs that end.
    """
    processes = min(processes or min(_processors() + 1, _MOST_PROCESSES), len(attacks))
    if processes <= 1:
        yield from map(_player(make_user, play_one), attacks)
        return
    with ProcessPoolExecutor(processes, _start_method(), _begin, (make_user, play_one)) as pool:
        try:
            yield from pool.map(_play, attacks)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _start_method() -> multiprocessing.context.BaseContext:
    # A fork server imports the program once. Libraries of other systems do not support forks.
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _player(make_user: MakeUser, play_one: PlayOne[T]) -> Callable[[Attack], T]:
    """Return a function that plays attacks with the same configuration and secrets."""
    user, drawn = make_user(), draw(random.SystemRandom())
    return lambda attack: event_loop.run(play_one(attack, user, drawn))


_play_here: Callable[[Attack], Any] | None = None


def _begin(make_user: MakeUser, play_one: PlayOne[Any]) -> None:
    """Initialize a process of `play_all`. Only the first process handles Ctrl+C; a running attack still cleans up."""
    global _play_here  # noqa: PLW0603  what a pool's process keeps between its tasks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _play_here = _player(make_user, play_one)
    gc.freeze()  # the imported modules stay, so the collector need not examine them


def _play(attack: Attack) -> Any:
    assert _play_here is not None  # noqa: S101  `_begin` ran
    return _play_here(attack)


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
