from __future__ import annotations

import itertools
import json
import math
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.budget import REF, Caps, Refused, RepositoryLedger
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.messages import Spent
from tests.unit.bot.coordination.records_rig import bare, opened, put
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
CAP = Caps(usd=5.0)
_COUNT = itertools.count()


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.remote = folder, bare(folder)

    def ledger(self, at: datetime = NOON) -> RepositoryLedger:
        records = opened(self.remote, self.folder)
        return RepositoryLedger(records, ManualClock(at), lambda: f"n{next(_COUNT)}")

    def reserve(self, run: str, usd: float, at: datetime = NOON, cap: Caps = CAP) -> Caps | Refused:
        return self.ledger(at).reserve(run, cap, Caps(usd=usd), Caps())

    def settle(self, run: str, usd: float | None) -> None:
        self.ledger().settle(run, Spent(usd, 1, 1.0, 1))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def granted(usd: float) -> Caps:
    return Caps(usd=usd)


def test_reservations_and_what_was_spent_count(rig: Rig) -> None:
    assert rig.reserve("a", 2.0) == granted(2.0)
    assert rig.reserve("b", 2.0) == granted(2.0)
    assert rig.reserve("c", 2.0) == granted(1.0)
    assert isinstance(rig.reserve("d", 2.0), Refused)
    rig.settle("a", 0.5)
    assert rig.reserve("d", 2.0) == granted(1.5)


def test_a_run_that_asks_again_holds_one_reservation(rig: Rig) -> None:
    for _ in range(3):
        assert rig.reserve("a", 4.0) == granted(4.0)
    assert rig.reserve("b", 4.0) == granted(1.0)


def test_settling_twice_counts_once_and_without_a_reservation_not_at_all(rig: Rig) -> None:
    rig.reserve("a", 4.0)
    rig.settle("a", 2.0)
    rig.settle("a", 2.0)
    rig.settle("never", 2.0)
    assert rig.reserve("b", 5.0) == granted(3.0)


def test_an_unknown_cost_is_the_most_that_it_can_be(rig: Rig) -> None:
    rig.reserve("a", 4.0)
    rig.settle("a", None)
    assert rig.reserve("b", 5.0) == granted(1.0)


def test_who_never_settles_counts_for_that_day_only(rig: Rig) -> None:
    rig.reserve("a", 5.0)
    assert isinstance(rig.reserve("b", 1.0), Refused)
    assert rig.reserve("b", 5.0, NOON + timedelta(days=1)) == granted(5.0)


def test_a_clock_that_is_ahead_does_not_end_the_day_of_others(rig: Rig) -> None:
    late = NOON.replace(hour=23, minute=55)
    rig.reserve("a", 5.0, late)
    assert rig.reserve("b", 4.0, late + timedelta(minutes=10)) == granted(4.0)
    assert isinstance(rig.reserve("c", 1.0, late), Refused)


def test_old_days_are_dropped(rig: Rig) -> None:
    rig.reserve("a", 1.0)
    rig.reserve("b", 1.0, NOON + timedelta(days=2))
    days = json.loads(git(rig.remote, "log", "-1", "--format=%b", REF))["days"]
    assert list(days) == ["2026-01-04"]


def test_of_many_at_once_nobody_gets_more_than_there_is(rig: Rig) -> None:
    answers: list[Caps | Refused] = []

    def race(number: int) -> None:
        answers.append(rig.reserve(f"run-{number}", 2.0))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.usd or 0 for one in answers if isinstance(one, Caps)) == [1.0, 2.0, 2.0]


def test_a_reservation_that_comes_in_between_is_seen(rig: Rig) -> None:
    meanwhile = iter([4.0])

    def nonce() -> str:  # made after the ledger was read, before it is written
        for usd in meanwhile:
            rig.reserve("b", usd)
        return f"n{next(_COUNT)}"

    ledger = RepositoryLedger(opened(rig.remote, rig.folder), ManualClock(NOON), nonce)
    assert ledger.reserve("a", CAP, Caps(usd=4.0), Caps()) == granted(1.0)


def forged(usd: object = 0, day: str = "2026-01-02", **reservations: object) -> str:
    spent = {"usd": usd, "tokens": 0, "minutes": 0, "rounds": 0}
    return json.dumps({"version": 1, "days": {day: {"spent": spent, "open": reservations}}, "nonce": ""})


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not JSON",
        "{}",
        '{"version": 2, "days": {}, "nonce": ""}',
        forged(-9),
        forged(math.nan),
        forged("much"),
        forged(a={"usd": -9}),
        forged(a={"usd": -9, "tokens": None, "minutes": None, "rounds": None}),
        forged(day="soon"),
    ],
)
def test_a_ledger_that_cannot_be_read_is_no_money_to_spend(rig: Rig, body: str) -> None:
    before = put(rig.remote, REF, f"pullwright: what was spent\n\n{body}\n")
    with pytest.raises(WorkspaceError, match="delete that reference"):
        rig.reserve("a", 1.0)
    assert git(rig.remote, "rev-parse", REF).strip() == before


def test_a_forged_day_without_a_cost_is_no_money_to_spend(rig: Rig) -> None:
    put(rig.remote, REF, f"x\n\n{forged(None)}")
    assert isinstance(rig.reserve("a", 1.0), Refused)
    put(rig.remote, REF, f"x\n\n{forged(4.0)}")
    assert rig.reserve("a", 3.0) == granted(1.0)


def test_every_kind_of_spending_is_kept(rig: Rig) -> None:
    """Tokens, minutes and rounds of an ended run are read again by the next, not only the cost."""
    cap, wants = Caps(tokens=100, minutes=10.0, rounds=5), Caps(tokens=90, minutes=9.0, rounds=4)
    assert rig.ledger().reserve("a", cap, wants, Caps()) == wants
    rig.ledger().settle("a", Spent(0.0, 30, 4.0, 2))
    assert rig.ledger().reserve("b", cap, wants, Caps()) == Caps(tokens=70, minutes=6.0, rounds=3)
