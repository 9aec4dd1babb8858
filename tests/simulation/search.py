"""Runs worlds, and makes the plan of a failure as small as it can be."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.invariants import Watch, check
from tests.simulation.plan import Task
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.plan import Kind, Plan
    from tests.simulation.world import Life, SimulatedProgram

_MEMORY = Path("/dev/shm")  # noqa: S108  a private folder is made in it


def live(
    plan: Plan,
    program: type[SimulatedProgram] | None = None,
    on_moment: Callable[[Life, Kind], None] | None = None,
) -> tuple[World, list[str]]:
    """Run a world, and return it with what does not hold in it.

    Args:
        on_moment: as of `World`.
    """
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="pullwright-world-", dir=parent))
    with _on_one_core():
        return _lived(plan, folder, program, on_moment)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts, on the core where it runs now.

    The threads of a world take turns: on one core none waits until another core wakes up for its turn.
    """
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {ctypes.CDLL(None).sched_getcpu()})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lived(
    plan: Plan,
    folder: Path,
    program: type[SimulatedProgram] | None,
    on_moment: Callable[[Life, Kind], None] | None,
) -> tuple[World, list[str]]:
    try:
        world = World(plan, folder, program=program)
        world.on_moment = on_moment or world.on_moment
        watch = Watch(world)
        world.observers.append(watch)
        try:
            world.run()
        except Exception as error:  # noqa: BLE001  a defect of the simulation is told like one of the program
            return world, [f"the world breaks: {type(error).__name__}: {error}"]
        return world, [*watch.found, *check(world)]
    finally:
        shutil.rmtree(folder)


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return a plan of which nothing can be left out without that it stops to fail."""
    while True:
        smaller = next((one for one in _smaller(plan) if fails(one)), None)
        if smaller is None:
            return plan
        plan = smaller


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that are a little simpler, the much simpler ones first."""
    for name in ("incidents", "deeds", "flags", "slots", "tasks"):
        listed = getattr(plan, name)
        least = 1 if name in {"slots", "tasks"} else 0
        for at in range(len(listed) if len(listed) > least else 0):
            yield _without(plan, name, at)
    for at, task in enumerate(plan.tasks):
        simpler = (Task(1), Task(task.steps), replace(task, steps=max(task.steps - 1, 1)))
        yield from (_with(plan, "tasks", at, one) for one in simpler if one != task)
    for at, incident in enumerate(plan.incidents):
        for nth in (1, incident.nth // 2, incident.nth - 1):
            if 0 < nth < incident.nth:
                yield _with(plan, "incidents", at, replace(incident, nth=nth))
    if plan.pace:
        yield replace(plan, pace=0)
    if plan.cycles is not None:
        yield replace(plan, cycles=None)


def _without(plan: Plan, name: str, at: int) -> Plan:
    listed = getattr(plan, name)
    changes: dict[str, Any] = {name: listed[:at] + listed[at + 1 :]}
    if name == "tasks":  # those behind it move up
        kept = [one for one in plan.deeds if one.task != at + 1]
        changes["deeds"] = tuple(replace(one, task=one.task - (one.task > at + 1)) for one in kept)
    return replace(plan, **changes)


def _with(plan: Plan, name: str, at: int, value: object) -> Plan:
    listed = getattr(plan, name)
    changes: dict[str, Any] = {name: (*listed[:at], value, *listed[at + 1 :])}
    return replace(plan, **changes)
