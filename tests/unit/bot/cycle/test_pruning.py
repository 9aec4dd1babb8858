"""Tombstones of tasks that are long over are removed, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.claims import KEPT_DAYS, Lease, remove_tombstones
from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.claimer import MOST_AT_ONCE, Claimer, Pruning
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.bot.forge.base import Issue, Proposal, PullRequest, PullRequestState
from orchestrator.bot.forge.memory import MemoryForge
from orchestrator.bot.journal.kept import KeptWork
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ClaimLostError, ForgeUnavailableError
from tests.unit.bot.coordination.records_rig import Worker, bare, put
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from pathlib import Path

DAY_SECONDS = 24 * 3600
LONG_SECONDS = (KEPT_DAYS + 1) * DAY_SECONDS
HIDDEN = "refs/pullwright/"


class Forge(MemoryForge):
    """A forge whose issues and pull requests tests close."""

    def __init__(self, path: Path) -> None:
        super().__init__("octo/calc", str(path), lambda _branch: "1" * 40)
        self.closed: set[int] = set()
        self.looked: list[int] = []

    def issue(self, number: int) -> Issue:
        self.looked.append(number)
        found = super().issue(number)
        return replace(found, is_open=found.is_open and number not in self.closed)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        return [
            replace(pull, state=PullRequestState.CLOSED) if pull.number in self.closed else pull
            for pull in super().our_pull_requests(branch_prefix)
        ]


class Place:
    """A remote with a forge, and a worker on it."""

    def __init__(self, folder: Path) -> None:
        self.path = bare(folder)
        self.forge = Forge(self.path)
        self.clock = ManualClock()
        self.worker = Worker(self.path, folder, clock=self.clock)

    def issue(self, *, closed: bool) -> str:
        """A new issue's key."""
        number = self.forge.add_issue("Broken", "It fails.", author="ada")
        if closed:
            self.forge.closed.add(number)
        return f"issue-{number}"

    def pull(self, key: str, *, closed: bool) -> int:
        """A new pull request's number."""
        pull, _ = self.forge.ensure_pull_request(
            Proposal(f"pullwright/{key}-x", "main", "T", "B", draft=False)
        )
        if closed:
            self.forge.closed.add(pull.number)
        return pull.number

    def tombstone(self, key: str, pull: int | None = None, outcome: str = "proposed") -> None:
        self.worker.take(task=key).release(outcome, pull)

    def prune(self, run: str = "run") -> list[str]:
        seen = self.worker.records.list(HIDDEN)
        claims = self.worker.claims.list(seen)
        return Pruning(self.worker.records, self.forge, run).prune(claims, seen, self.clock.now())

    def tasks(self) -> set[str]:
        return {record.task for record in self.worker.claims.list()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_task_that_is_over_is_forgotten_after_some_months(place: Place) -> None:
    key = place.issue(closed=True)
    place.tombstone(key, place.pull(key, closed=True))
    place.clock.advance(KEPT_DAYS * DAY_SECONDS)
    assert place.prune() == []
    assert place.forge.looked == [], "nothing is asked for what is not old"
    place.clock.advance(1)
    assert place.prune() == [key]
    assert place.tasks() == set()
    assert place.prune() == []


def test_what_is_not_over_stays(place: Place) -> None:
    still_open, proposed, unlisted, unfinished, held, gone = (
        *(place.issue(closed=closed) for closed in (False, True, True, True, True)),
        "issue-99",
    )
    place.tombstone(still_open, outcome="failed 0123456789ab")
    place.tombstone(proposed, place.pull(proposed, closed=False))
    place.tombstone(unlisted, 77)
    place.tombstone(unfinished, outcome="limit 0123456789ab")
    put(place.path, wip_ref(unfinished), "work")
    place.worker.take(task=held)
    place.tombstone(gone)
    item, text = "item-0a1b2c3d", from_text("Fix it").key
    place.tombstone(item, outcome="failed")
    place.tombstone(text, place.pull(text, closed=False))
    put(place.path, f"{HIDDEN}claims/{place.issue(closed=True)}", "no record")
    place.clock.advance(LONG_SECONDS)
    before = place.tasks()
    for run in range(6):
        assert place.prune(f"run-{run}") == []
    assert place.tasks() == before


def test_what_was_proposed_and_closed_is_over_without_an_issue(place: Place) -> None:
    item = "item-0a1b2c3d"
    place.tombstone(item, place.pull(item, closed=True))
    place.clock.advance(LONG_SECONDS)
    assert place.prune() == [item]


def test_a_pull_request_that_is_open_again_under_another_number_keeps_it(place: Place) -> None:
    key = place.issue(closed=True)
    place.tombstone(key, place.pull(key, closed=True))
    place.pull(key, closed=False)
    place.clock.advance(LONG_SECONDS)
    assert place.prune() == []


def test_an_issue_that_is_gone_holds_up_no_other(place: Place) -> None:
    key = place.issue(closed=True)
    for task in ("issue-99", key, "issue-98"):
        place.tombstone(task, outcome="no_task")
    place.clock.advance(LONG_SECONDS)
    assert place.prune() == [key]


def test_a_few_at_once_and_others_the_next_time(place: Place) -> None:
    keys = {place.issue(closed=True) for _ in range(MOST_AT_ONCE + 2)}
    for key in keys:
        place.tombstone(key, outcome="no_task")
    place.clock.advance(LONG_SECONDS)
    first = place.prune()
    assert len(first) == len(place.forge.looked) == MOST_AT_ONCE
    assert sorted([*first, *place.prune()]) == sorted(keys)


@pytest.mark.parametrize("atomic", [True, False])
def test_what_somebody_took_meanwhile_stays(place: Place, tmp_path: Path, *, atomic: bool) -> None:
    git(place.path, "config", "receive.advertiseAtomic", str(atomic).lower())
    keys = [place.issue(closed=True) for _ in range(2)]
    for key in keys:
        place.tombstone(key, outcome="no_task")
    place.clock.advance(LONG_SECONDS)
    seen = place.worker.records.list(HIDDEN)
    rival = Worker(place.path, tmp_path, "b", clock=place.clock).take(task=keys[1])
    found = {key: seen[f"{HIDDEN}claims/{key}"] for key in keys}
    assert not remove_tombstones(place.worker.records, found)
    assert keys[1] in place.tasks()
    rival.renew()


def test_a_forge_or_a_server_that_fails_ends_nothing(place: Place) -> None:
    place.tombstone(place.issue(closed=True))
    place.clock.advance(LONG_SECONDS)
    hook = place.path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert place.prune() == []

    class Down(Forge):
        def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
            raise ForgeUnavailableError(f"down: {branch_prefix}")

    place.forge = Down(place.path)
    assert place.prune() == []
    assert len(place.tasks()) == 1


def test_a_zombie_is_refused_although_its_number_is_given_again(place: Place, tmp_path: Path) -> None:
    key = place.issue(closed=True)
    zombie = Worker(place.path, tmp_path, "z", clock=ManualClock()).take(task=key)
    assert zombie.record.number == 1
    place.clock.advance(LONG_SECONDS)
    place.tombstone(key, outcome="no_task")
    place.clock.advance(LONG_SECONDS)
    assert place.prune() == [key]
    with pytest.raises(ClaimLostError, match="somebody removed it"):
        zombie.renew()
    zombie = _like(zombie, place, tmp_path)
    after = place.worker.take(task=key)
    assert (after.record.number, after.previous) == (1, None)
    with pytest.raises(ClaimLostError, match="held by host-a, run run-a, number 1"):
        zombie.renew()
    assert not zombie.release("proposed", 7)
    assert after.renew().number == 1


def _like(lost: Lease, place: Place, tmp_path: Path) -> Lease:
    """The same lease in a process that has not noticed yet."""
    other = Worker(place.path, tmp_path, "y", clock=ManualClock())
    return Lease(
        other.records,
        lost._commit,
        lost.record,
        None,
        other.clock,
        other.claims._times,
        lambda: "y",
    )


def test_whoever_takes_a_task_tidies_up(place: Place) -> None:
    key = place.issue(closed=True)
    place.tombstone(key, outcome="no_task")
    again = from_text("Two")
    place.tombstone(again.key, place.pull(again.key, closed=True))
    place.clock.advance(LONG_SECONDS)
    claimer = Claimer(
        place.worker.records,
        place.worker.claims,
        place.forge,
        "run-a",
        (),
        named=False,
        may=lambda _who: True,
        clean=lambda text, _who: text,
        spent_up=lambda _spent: None,
        kept=KeptWork(place.path.with_name("unfinished")),
        tell=lambda _text: None,
    )
    assert isinstance(claimer.take(from_text("One")), Lease)
    assert key in place.tasks(), "nobody has listed the claims yet"
    claimer.held_by_others()
    lease = claimer.take(again)
    assert isinstance(lease, Lease)
    lease.renew()
    assert key not in place.tasks()
