"""The program with one thing broken, for each sentence that holds: its world must show that it does not hold any more."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.budget import Caps
from orchestrator.bot.coordination.claims import Claims
from orchestrator.bot.cycle.claimer import Claimer
from orchestrator.bot.git.base import Snapshot
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.reader import DeadRuns
from tests.simulation import invariants
from tests.simulation.plan import SECRET, Act, Deed, Incident, Kind, Plan, Task
from tests.simulation.world import SimulatedProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.choice import Candidate
    from orchestrator.bot.forge.base import Proposal


@dataclass(frozen=True, slots=True)
class Mutation:
    """A defect, the sentence that it breaks, and a world in which that shows."""

    breaks: str
    program: type[SimulatedProgram]
    plan: Plan


def _broken(change: Callable[[Any], Any]) -> type[SimulatedProgram]:
    """Return the program with changed parts."""

    class Broken(SimulatedProgram):
        def parts(self, run: str, folder: Path, settings: Settings, only: str) -> CycleParts:
            parts: CycleParts = change(super().parts(run, folder, settings, only))
            return parts

    return Broken


def _as(kind: Any, found: Any) -> Any:
    """Return a copy of a dataclass's instance as one of a subclass."""
    made = kind.__new__(kind)
    for one in fields(found):
        setattr(made, one.name, getattr(found, one.name))
    return made


class _Over:
    """An object that is another one in all but a few methods."""

    def __init__(self, under: Any) -> None:
        self._under = under

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


class _Creating(_Over):
    """Creates a pull request without a look whether there is one."""

    def ensure_pull_request(self, proposal: Proposal) -> Any:
        return self._under.create_pull_request(proposal)


def _creates_pull_requests(parts: CycleParts) -> CycleParts:
    forge: Any = _Creating(parts.forge)
    return replace(parts, forge=forge)


def _empty_saves(parts: CycleParts) -> CycleParts:
    def opened(parent: Path) -> Any:
        clone: Any = parts.open_clone(parent)
        whole = clone.snapshot

        def snapshot(*words: Any, **options: Any) -> Snapshot:
            return Snapshot(None, clone.start, ()) if clone.applied else whole(*words, **options)

        clone.snapshot = snapshot
        return clone

    return replace(parts, open_clone=opened)


class _Forgetful(Claimer):
    def take(self, task: Any) -> Any:
        taken = super().take(task)
        self.earlier.clear()
        return taken


def _forgets_saved_work(parts: CycleParts) -> CycleParts:
    return replace(parts, claimer=_as(_Forgetful, parts.claimer))


def _recovers_nothing(parts: CycleParts) -> CycleParts:
    return replace(parts, recover=lambda: DeadRuns(Home(parts.folder / "nowhere")))


class _First(_Over):
    """Offers one task only."""

    def candidates(self, fingerprint: str) -> Iterator[Candidate]:
        return (one for one in self._under.candidates(fingerprint) if one.task.key == "issue-1")


class _Keeping(Claims):
    def take(self, *words: Any, **options: Any) -> Any:
        lease: Any = super().take(*words, **options)
        if hasattr(lease, "release"):
            lease.release = lambda *_words, **_options: True
        return lease


def _never_releases(parts: CycleParts) -> CycleParts:
    claimer: Any = parts.claimer
    claims = _as(_Keeping, claimer.claims)
    claims.times = replace(claims.times, lease_seconds=1e6)
    return replace(parts, claimer=replace(claimer, claims=claims))


class _Generous(_Over):
    """Grants everything."""

    async def open(self, *words: Any) -> Caps:
        await self._under.open(*words)
        return Caps()


def _grants_all(parts: CycleParts) -> CycleParts:
    claimer: Any = parts.claimer
    claimer.why_over_budget = lambda _spent: None
    budget: Any = _Generous(parts.budget)
    return replace(parts, budget=budget)


class _Sticky(_Over):
    """Removes no label."""

    def remove_label(self, *_arguments: object) -> None:
        return None


def _removes_no_label(parts: CycleParts) -> CycleParts:
    sticky: Any = _Sticky(parts.forge)
    tasks: Any = parts.tasks
    tasks.forge = sticky
    return replace(parts, forge=sticky)


class _Unread(_Over):
    """Reads no feedback."""

    def feedback(self, _number: int) -> list[Any]:
        return []


def _reads_no_reviews(parts: CycleParts) -> CycleParts:
    tasks: Any = parts.tasks
    tasks.forge = _Unread(tasks.forge)
    return parts


class _Blind(_Over):
    """Sees no check that fails."""

    def checks(self, _commit: str) -> list[Any]:
        return []


def _reads_no_checks(parts: CycleParts) -> CycleParts:
    tasks: Any = parts.tasks
    tasks.forge = _Blind(tasks.forge)
    return parts


class _Credulous(_Over):
    """Does not look at a task again once it is claimed."""

    def confirm(self, candidate: Candidate, _lease: object) -> Candidate:
        return candidate


def _takes_all_again(parts: CycleParts) -> CycleParts:
    claimer: Any = parts.claimer
    claimer.named = True
    tasks: Any = _Credulous(parts.tasks)
    return replace(parts, tasks=tasks)


class _Silent(_Over):
    """Comments on nothing."""

    def ensure_comment(self, *_words: object) -> str:
        return ""


def _tells_nobody(parts: CycleParts) -> CycleParts:
    silent: Any = _Silent(parts.forge)
    return replace(parts, forge=silent)


class _Curious(_Over):
    """Asks for the same issue again and again."""

    def open_issues(self, label: str) -> Any:
        for _ in range(200):
            self._under.issue(1)
        return self._under.open_issues(label)


def _asks_much(parts: CycleParts) -> CycleParts:
    tasks: Any = parts.tasks
    tasks.forge = _Curious(tasks.forge)
    return parts


class _Faulty(_Over):
    """Has a defect."""

    def notices(self) -> list[Any]:
        raise KeyError("notices")


_ROUND_BY_ROUND = (("max_rounds", 1),)


class _Deaf(_Over):
    """Tasks that are wanted for ever."""

    def why_unwanted(self, task: Task) -> None:
        del task


def _stays_on_its_base(parts: CycleParts) -> CycleParts:
    def opened(parent: Path) -> Any:
        clone: Any = parts.open_clone(parent)
        clone.moved_base = lambda: None
        return clone

    return replace(parts, open_clone=opened)


MUTATIONS: dict[str, Mutation] = {
    "nobody looks whether a task is still wanted": Mutation(
        invariants.WANTED,
        _broken(lambda parts: replace(parts, tasks=_Deaf(parts.tasks))),
        Plan((Task(3),), (0,), (), (Deed(Act.STOP, 1, 1.2),)),
    ),
    "nobody looks whether the base is the same": Mutation(
        invariants.ON_BASE,
        _broken(_stays_on_its_base),
        Plan((Task(3),), (0,), (), (Deed(Act.REWRITE, 1, 1.2),)),
    ),
    "a pull request is created without a look": Mutation(
        invariants.ONE_PULL,
        _broken(_creates_pull_requests),
        Plan((Task(1),), incidents=(Incident(Kind.UNANSWERED, "forge create_pull_request", 1),)),
    ),
    "what is taken up is not saved again": Mutation(
        invariants.KEPT, _broken(_empty_saves), Plan((Task(2),), flags=_ROUND_BY_ROUND)
    ),
    "saved work is not taken up": Mutation(
        invariants.PAID_ONCE, _broken(_forgets_saved_work), Plan((Task(2),), flags=_ROUND_BY_ROUND)
    ),
    "dead runs are not recovered": Mutation(
        invariants.PAID_ONCE,
        _broken(_recovers_nothing),
        Plan((Task(2),), incidents=(Incident(Kind.KILLED, "record ToolCallEnded", 1),)),
    ),
    "only the first task is offered": Mutation(
        invariants.SERVED,
        _broken(lambda parts: replace(parts, tasks=_First(parts.tasks))),
        Plan((Task(1), Task(1))),
    ),
    "no review is read": Mutation(
        invariants.SERVED, _broken(_reads_no_reviews), Plan((Task(1),), deeds=(Deed(Act.REVIEW, 1, 10.0),))
    ),
    "no check is read": Mutation(
        invariants.SERVED, _broken(_reads_no_checks), Plan((Task(1),), deeds=(Deed(Act.CHECKS, 1, 10.0),))
    ),
    "no claim is released": Mutation(invariants.RELEASED, _broken(_never_releases), Plan((Task(1),))),
    "the cap of a cycle is not looked at": Mutation(
        invariants.CAPPED, _broken(_grants_all), Plan((Task(2),), flags=_ROUND_BY_ROUND)
    ),
    "the cap of a task is not looked at": Mutation(
        invariants.CAPPED,
        _broken(_grants_all),
        Plan((Task(6),), flags=(("max_rounds_per_task", 4),)),
    ),
    "no label is removed": Mutation(
        invariants.SHOWN,
        _broken(_removes_no_label),
        Plan((Task(1),)),
    ),
    "a task that was given up is taken again": Mutation(
        invariants.AT_REST, _broken(_takes_all_again), Plan((Task(1, gives_up=True),))
    ),
    "a task that waits for a person is taken again": Mutation(
        invariants.GIVEN_UP, _broken(_takes_all_again), Plan((Task(1, refused=SECRET),))
    ),
    "nobody is told that a task waits": Mutation(
        invariants.GIVEN_UP, _broken(_tells_nobody), Plan((Task(1, refused=SECRET),))
    ),
    "an issue is read again and again": Mutation(invariants.BOUNDED, _broken(_asks_much), Plan((Task(1),))),
    "a step has a defect": Mutation(
        invariants.NO_DEFECT,
        _broken(lambda parts: replace(parts, tasks=_Faulty(parts.tasks))),
        Plan((Task(1),)),
    ),
}
