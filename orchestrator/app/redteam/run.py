"""Plays attacks: against the user's configuration, and as a proof in their own settings without their defence."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import multiprocessing
import os
import random
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.app.redteam.judge import judge
from orchestrator.app.redteam.secrets import draw
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.redteam.attack import Attack
    from orchestrator.app.redteam.judge import Verdict
    from orchestrator.app.redteam.secrets import Drawn

MakeUser: TypeAlias = "Callable[[], Configured]"
"""Reads the user's configuration. It is sent to other processes, so it is a function of a module."""

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


@dataclass(frozen=True, slots=True)
class Proof:
    """An attack in its own settings, with its defences and without them.

    Attributes:
        held: with them.
        fell: without them.
    """

    held: Verdict
    fell: Verdict

    @property
    def holds(self) -> bool:
        """Whether the defences make the difference."""
        return self.held.stopped and not self.fell.stopped


def chosen(attacks: Sequence[Attack], names: Iterable[str]) -> list[Attack]:
    """The attacks of these names, or all where none is named.

    Raises:
        ConfigurationError: there is no attack of a name.
    """
    by_name = {attack.name: attack for attack in attacks}
    wanted = list(names)
    for name in wanted:
        if name not in by_name:
            near = _nearest(name, by_name)
            raise ConfigurationError(f"there is no attack {name!r}; the nearest is {near!r}")
    return [by_name[name] for name in wanted] or list(attacks)


def play_all(
    attacks: Sequence[Attack], make_user: MakeUser, *, with_proof: bool, processes: int | None = None
) -> Iterator[tuple[Verdict, Proof | None]]:
    """Play attacks in several processes, because each gives its process another environment.

    Args:
        attacks: what is played; the results come in this order.
        make_user: see there.
        with_proof: play each attack in its own settings as well, with and without its defences.
        processes: how many; by default one for each processor, and 8 at most.

    Raises:
        ConfigurationError: the configuration, or the settings of an attack, are not valid.
        WorkspaceError: git is missing or refused.
    """
    processes = min(processes or _processors(), len(attacks))
    if processes <= 1:
        player = _Player(make_user(), draw(random.SystemRandom()))
        yield from (player.play(attack, with_proof=with_proof) for attack in attacks)
        return
    with ProcessPoolExecutor(processes, _start_method(), _begin, (make_user,)) as pool:
        try:
            yield from pool.map(_play, attacks, [with_proof] * len(attacks))
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


def _begin(make_user: MakeUser) -> None:
    """Begin a process of `play_all`. Ctrl+C is for the first process: the attack under way still tidies up."""
    global _player  # noqa: PLW0603  what a pool's process keeps between its tasks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _player = _Player(make_user(), draw(random.SystemRandom()))
    gc.freeze()  # what was imported stays: nothing is gained by looking through it again and again


def _play(attack: Attack, with_proof: bool) -> tuple[Verdict, Proof | None]:  # noqa: FBT001  `map` gives no names
    assert _player is not None  # noqa: S101  `_begin` ran
    return _player.play(attack, with_proof=with_proof)


@dataclass(frozen=True, slots=True)
class _Player:
    """Plays attacks, one after another, with the same configuration and secrets."""

    user: Configured
    drawn: Drawn

    def play(self, attack: Attack, *, with_proof: bool) -> tuple[Verdict, Proof | None]:
        return asyncio.run(self._played(attack, with_proof=with_proof))

    async def _played(self, attack: Attack, *, with_proof: bool) -> tuple[Verdict, Proof | None]:
        verdict = await try_attack(attack, self.user, self.drawn)
        return verdict, await prove(attack, self.user, self.drawn) if with_proof else None


async def try_attack(attack: Attack, user: Configured, drawn: Drawn) -> Verdict:
    """Play an attack against the user's configuration."""
    from orchestrator.app.redteam.stage import (
        play,  # the whole program, which the first process does not need
    )

    return judge(attack, await play(attack, user, drawn))


async def prove(attack: Attack, user: Configured, drawn: Drawn) -> Proof:
    """Play an attack in its own settings, with its defences and without them.

    Raises:
        ConfigurationError: its settings are not valid.
    """
    from orchestrator.app.redteam.stage import play

    settings = _own_settings(attack, user)
    own = dataclasses.replace(user, settings=settings)
    held = judge(attack, await play(attack, own, drawn))
    fell = judge(attack, await play(attack, own, drawn, frozenset(attack.defence)))
    return Proof(held, fell)


def _own_settings(attack: Attack, user: Configured) -> Any:
    """The user's contract, model and profile, everything else as this attack needs it.

    Under `whole-file` a model can call nothing but what the host calls for it, which would stop every other attack
    before a defence sees it. So those are tried under `json-plan`.
    """
    kind = type(user.settings)
    kept = {name: getattr(user.settings, name) for name in ("contract", "profile", "model")}
    if kept["contract"] == "whole-file":
        kept["contract"] = "json-plan"
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in attack.settings.items()
    }
    try:
        return kind(**{**kept, **values})
    except ValueError as error:
        raise ConfigurationError(f"the settings of attack {attack.name!r} are not valid: {error}") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    names: Iterator[str] = iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.0))
    return next(names, "")
