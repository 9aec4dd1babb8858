"""Finds the places of a world where it matters that something goes wrong."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from tests.simulation.plan import Kind
from tests.simulation.search import live
from tests.simulation.world import read_disk

if TYPE_CHECKING:
    from tests.simulation.plan import Plan
    from tests.simulation.scheduler import Thread
    from tests.simulation.world import Life

_LONG_SECONDS = 60.0
"""After so long the time alone may make another death."""


def places(plan: Plan) -> dict[Kind, list[int]]:
    """Return the places of the incidents that differ, by kind, counted from 1.

    Every request may get no answer. Of the deaths of a process that is alone those are left out between which nothing
    changed that anybody can find later: one that dies after a read leaves what it would have left before it, because the
    server, the forge and its disk are as they were. Without its disk this is so after most records, too. Where another
    process is there, each death changes which of them is first later.
    """
    looks = _Looks()
    live(plan, on_moment=looks)
    return looks.places


class _Looks:
    """Looks at each moment at which a process may die, and notes those with something new to find."""

    def __init__(self) -> None:
        kinds = (Kind.KILLED_BEFORE, Kind.KILLED, Kind.LOST, Kind.UNANSWERED)
        self.places: dict[Kind, list[int]] = {kind: [] for kind in kinds}
        self._begun: dict[Thread, int] = {}
        self._found: dict[bool, object] = {}
        self._at, self._long_waits = 0.0, 0

    def __call__(self, life: Life, kind: Kind) -> None:
        """Look before a request, or after a request or a record."""
        world = life.world
        place = sum(world.counts.values())
        if kind is Kind.KILLED_BEFORE:
            self._begun[world.scheduler.current] = place
            self.places[Kind.UNANSWERED].append(place)
        else:
            place = self._begun.pop(world.scheduler.current, place)
        self._long_waits += world.scheduler.now - self._at > _LONG_SECONDS
        self._at = world.scheduler.now
        shared = (dict(world.server.refs), world.forge.contents(), [astuple(paid) for paid in world.paid])
        there = (life.machine.name, life.run_id, self._long_waits, shared)
        for loses_disk in (False, True) if kind is Kind.KILLED else (False,):
            found = there if loses_disk else (there, read_disk(life.machine.root))
            if found != self._found.get(loses_disk) or len(world.plan.slots) > 1:
                self._found[loses_disk] = found
                self.places[Kind.LOST if loses_disk else kind].append(place)
