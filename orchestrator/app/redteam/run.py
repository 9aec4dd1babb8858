"""Plays attacks, each against the user's configuration, in several processes."""

from __future__ import annotations

import asyncio
import difflib
import gc
import multiprocessing
import os
import random
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orchestrator.app.redteam.judge import judge_attack
from orchestrator.app.redteam.secrets import draw
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.redteam.attack import Attack
    from orchestrator.app.redteam.judge import AttackVerdict
    from orchestrator.app.redteam.secrets import Drawn

T = TypeVar("T")
MakeUser: TypeAlias = "Callable[[], Configured]"
"""Reads the user's configuration. It is sent to other processes, so it is a function of a module."""
PlayOne: TypeAlias = "Callable[[Attack, Configured, Drawn], Coroutine[Any, Any, T]]"
"""Plays one attack. It is sent to other processes as well."""

_MOST_PROCESSES = 8


@dataclass(frozen=True, slots=True)
class Configured:
    """The user's configuration.

    Attributes:
        settings: as it is where the program is started.
        read: the same, as it would be in another folder; raises `ConfigurationError`.
    """

    settings: Settings
    read: Callable[[Path], Settings]


def choose_attacks(attacks: Sequence[Attack], names: Iterable[str]) -> list[Attack]:
    """Return the attacks of these names, or all where none is named.

    Raises:
        ConfigurationError: there is no attack of a name.
    """
    by_name = {attack.name: attack for attack in attacks}
    wanted = list(names)
    for name in wanted:
        if name not in by_name:
            [near] = difflib.get_close_matches(name, list(by_name), n=1, cutoff=0.0) or [""]
            raise ConfigurationError(f"there is no attack {name!r}; the nearest is {near!r}")
    return [by_name[name] for name in wanted] or list(attacks)


async def try_attack(attack: Attack, user: Configured, drawn: Drawn) -> AttackVerdict:
    """Play an attack against the user's configuration."""
    # The whole program, which the first process does not need.
    from orchestrator.app.redteam.stage import play

    return judge_attack(attack, await play(attack, user, drawn))


def play_all(
    attacks: Sequence[Attack], make_user: MakeUser, play_one: PlayOne[T], *, processes: int | None = None
) -> Iterator[T]:
    """Play attacks in several processes, because each gives its process another environment.

    Args:
        attacks: what is played; the results come in this order.
        play_one: `try_attack`, or another such function.
        processes: how many; by default one for each processor, and 8 at most.

    Raises:
        ConfigurationError: the configuration is not valid.
        WorkspaceError: git is missing or refused.
    """
    processes = min(processes or _processors(), len(attacks))
    if processes <= 1:
        player = _Player(make_user(), draw(random.SystemRandom()), play_one)
        yield from map(player.play, attacks)
        return
    with ProcessPoolExecutor(processes, _start_method(), _begin, (make_user, play_one)) as pool:
        try:
            yield from pool.map(_play, attacks)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _processors() -> int:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(usable, _MOST_PROCESSES)


def _start_method() -> multiprocessing.context.BaseContext:
    # A server of forks imports the program once; elsewhere than on Linux libraries may not be forked.
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orchestrator.app.redteam.stage"])
    return context


_player: _Player | None = None


def _begin(make_user: MakeUser, play_one: PlayOne[Any]) -> None:
    """Begin a process of `play_all`. Ctrl+C is for the first process: the attack under way still tidies up."""
    global _player  # noqa: PLW0603  what a pool's process keeps between its tasks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _player = _Player(make_user(), draw(random.SystemRandom()), play_one)
    gc.freeze()  # what was imported stays: nothing is gained by looking through it again and again


def _play(attack: Attack) -> Any:
    assert _player is not None  # noqa: S101  `_begin` ran
    return _player.play(attack)


@dataclass(frozen=True, slots=True)
class _Player:
    """Plays attacks, one after another, with the same configuration and secrets."""

    user: Configured
    drawn: Drawn
    play_one: PlayOne[Any]

    def play(self, attack: Attack) -> Any:
        return asyncio.run(self.play_one(attack, self.user, self.drawn))
