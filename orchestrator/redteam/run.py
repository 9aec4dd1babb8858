"""Every attack, one after another: against the user's configuration, and as a proof without its defence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError
from orchestrator.redteam.judge import judge
from orchestrator.redteam.stage import play

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

    from orchestrator.redteam.attack import Attack
    from orchestrator.redteam.judge import Verdict
    from orchestrator.redteam.stage import Configured


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


async def try_attack(attack: Attack, user: Configured, source: random.Random) -> Verdict:
    """Play an attack against the user's configuration."""
    return judge(attack, await play(attack, user, source))


async def prove(attack: Attack, user: Configured, source: random.Random) -> Proof:
    """Play an attack in its own settings, with its defences and without them.

    Raises:
        ConfigurationError: its settings are not valid.
    """
    settings = _own_settings(attack, user)
    own = dataclasses.replace(user, settings=settings)
    held = judge(attack, await play(attack, own, source))
    fell = judge(attack, await play(attack, own, source, frozenset(attack.defence)))
    return Proof(held, fell)


def _own_settings(attack: Attack, user: Configured) -> Any:
    """The user's contract, model and profile, everything else as this attack needs it."""
    kind = type(user.settings)
    kept = {name: getattr(user.settings, name) for name in ("contract", "profile", "model")}
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
