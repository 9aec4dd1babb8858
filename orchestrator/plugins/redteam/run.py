"""Plays attacks against the user's configuration, in several processes."""

from __future__ import annotations

import difflib
import gc
import multiprocessing
import os
import random
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.redteam.judge import judge_attack
from orchestrator.plugins.redteam.planted import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from orchestrator.plugins.redteam.attack import Attack
    from orchestrator.plugins.redteam.judge import AttackVerdict
    from orchestrator.plugins.redteam.planted import Drawn
    from orchestrator.plugins.redteam.stage import Configured

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
        "orchestrator.plugins.agents.told",
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
