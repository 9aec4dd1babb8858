"""Whole worlds in virtual time: the real worker, cycle, claims, recovery and saved work, over doubles that fail.

A failure names its seed: `python -m tests.simulation SEED` tells the world's story and makes it small.
`PULLWRIGHT_TEST_CHAOS=full` plays 20,000 worlds instead of 5,000.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.places import places
from tests.simulation.plan import Incident, Kind, Plan, Task, draw
from tests.simulation.search import live, shrink
from tests.simulation.worlds import KNOWN, MENDED, deadly, denied, refused, windows

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(600)

WORLDS = 100
SHARES = 5
MANY = 20_000 if os.environ.get("PULLWRIGHT_TEST_CHAOS") == "full" else 5_000
MANY_SHARES = 40
"""So many that the processes of pytest-xdist end at about the same time."""


def play(seeds: range) -> None:
    """Run drawn worlds; a failure names the seeds, and the smallest plan of the first."""
    failed = {seed: found for seed in seeds if (found := live(draw(seed))[1])}
    if failed:
        seed, found = next(iter(failed.items()))
        small = shrink(draw(seed), lambda plan: bool(live(plan)[1]))
        pytest.fail(f"seeds {list(failed)}; {seed}: {found}\nsmallest: {small}\nshows: {live(small)[1]}")


@pytest.mark.parametrize("share", range(SHARES))
def test_a_hundred_worlds(share: int) -> None:
    play(range(share, WORLDS, SHARES))


@pytest.mark.slow(reason="5,000 worlds take eight minutes of a processor")
@pytest.mark.parametrize("share", range(MANY_SHARES))
def test_many_worlds(share: int) -> None:
    play(range(WORLDS + share, MANY, MANY_SHARES))


def test_the_crash_windows() -> None:
    """Before a request is sent, and after the other side took it and before we know."""
    failed = {}
    for name, plan in windows().items():
        world, found = live(plan)
        assert len(world.struck) == 1, name
        if found:
            failed[name] = found
    assert failed == {}


def whole(slots: tuple[int, ...]) -> Plan:
    """Two tasks, of which one goes on in a second cycle."""
    return Plan((Task(2), Task(1)), slots, flags=(("max_rounds", 2),))


@pytest.mark.slow(reason="a world for each request and each record of a cycle, and for each kind of death")
@pytest.mark.parametrize("kind", [Kind.KILLED_BEFORE, Kind.KILLED, Kind.LOST, Kind.UNANSWERED])
@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_a_death_at_every_place(kind: Kind, slots: tuple[int, ...]) -> None:
    """The place is a request or a record of the program."""
    failed = {}
    for nth in places(whole(slots))[kind]:
        world, found = live(replace(whole(slots), incidents=(Incident(kind, "", nth),)))
        if found or not world.struck:
            failed[nth] = found
    assert failed == {}


def test_the_places_of_deaths_are_all_where_something_changed_or_another_process_is() -> None:
    """Each record, each request that changes the server, each reply, and what is written on a disk between them."""
    counts = live(whole((0,)))[0].counts
    records = sum(count for name, count in counts.items() if name.startswith("record "))
    found = {kind: set(numbers) for kind, numbers in places(whole((0,))).items()}
    assert len(found[Kind.UNANSWERED]) == sum(counts.values()) - records
    assert len(found[Kind.KILLED]) > records
    changes = ("git push", "forge ensure_", "forge remove_", "model", "record CycleStarted")
    changing = sum(count for name, count in counts.items() if name.startswith(changes))
    assert len(found[Kind.LOST]) > changing > len(found[Kind.KILLED_BEFORE]) > counts["git push claims"]
    counts = live(whole((0, 1)))[0].counts
    both = places(whole((0, 1)))
    assert len(both[Kind.KILLED]) == len(both[Kind.LOST]) == sum(counts.values())


@pytest.mark.parametrize("name", list(MENDED))
def test_what_was_mended_holds(name: str) -> None:
    world, found = live(MENDED[name])
    assert len(world.struck) == len(world.plan.incidents)
    assert found == []


@pytest.mark.parametrize("worlds", [deadly, refused, denied])
def test_a_task_that_only_a_person_can_help_waits_for_one(worlds: Callable[[], dict[str, Plan]]) -> None:
    """The others are done, nothing is paid without end, and the reason is where people look."""
    failed = {name: found for name, plan in worlds().items() if (found := live(plan)[1])}
    assert failed == {}


@pytest.mark.parametrize("name", list(KNOWN))
def test_a_known_fault(request: pytest.FixtureRequest, name: str) -> None:
    known = KNOWN[name]
    request.applymarker(pytest.mark.xfail(reason=known.why, strict=True))
    found = live(known.plan)[1]
    assert not any(line.startswith(known.breaks) for line in found), found


@cache
def sound(plan: Plan) -> list[str]:
    """Return what does not hold in a world of the program as it is."""
    return live(plan)[1]


@pytest.mark.parametrize("name", list(MUTATIONS))
def test_each_sentence_fails_for_a_program_that_breaks_it(name: str) -> None:
    mutation = MUTATIONS[name]
    assert sound(mutation.plan) == []
    found = live(mutation.plan, mutation.program)[1]
    assert any(line.startswith(mutation.breaks) for line in found), found


def test_the_same_plan_is_the_same_world() -> None:
    first, second = (live(draw(12))[0] for _ in range(2))
    assert first.struck
    assert first.trace == second.trace
    assert first.counts == second.counts


def test_a_failure_shrinks() -> None:
    mutation = MUTATIONS["a pull request is created without a look"]
    noise = (Incident(Kind.SLOW, "forge", 3), *mutation.plan.incidents, Incident(Kind.JUMP, "record", 9))
    plan = Plan((Task(2), Task(1)), (0,), noise, pace=7)

    def fails(one: Plan) -> bool:
        return any(line.startswith(mutation.breaks) for line in live(one, mutation.program)[1])

    assert fails(plan)
    assert shrink(plan, fails) == mutation.plan
