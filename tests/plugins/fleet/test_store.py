"""The fleet's database, on SQLite and on PostgreSQL: who is at which turn, pauses, money, workers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from orchestrator.bot.journal.run_facts import Pause
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.core.errors import ConfigurationError, FleetError
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.fleet.database import make_engine
from orchestrator.plugins.fleet.store import KEPT_TURNS, FleetStore
from orchestrator.plugins.fleet.turns import Following, RepositoryTurn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dbos import DBOSClient

A, B = "github.com/o/a", "github.com/o/b"


@pytest.fixture
def store(fleet_database: str) -> Iterator[FleetStore]:
    opened = FleetStore(fleet_database, SystemClock())
    opened.open()
    yield opened
    opened.close()


def now() -> datetime:
    return datetime.now(UTC)


def test_no_value_of_the_database_holds_a_secret(tmp_path: Path) -> None:
    secret, file = "zebraquartzmellowfinch", tmp_path / "fleet.db"
    store = FleetStore(f"sqlite:///{file}", SystemClock(), redactor=Redactor([secret]))
    store.open()
    try:
        store.begin(A, "quota", now(), Pause(now() + timedelta(hours=1), f"the server said {secret}"))
        assert store.pause(A, f"because {secret}")
        (state,) = store.repositories()
    finally:
        store.close()
    assert (state.repository, state.paused) == (A, f"because {REPLACEMENT}")
    assert all(secret.encode() not in one.read_bytes() for one in tmp_path.iterdir())


def cycle_after(turn: RepositoryTurn, key: str = "issue-1", kind: str = "new") -> RepositoryTurn:
    return RepositoryTurn(turn.repository, turn.number + 1, key, 1, kind, "Title", key)


def begun(store: FleetStore, *names: str) -> list[RepositoryTurn]:
    for name in names:
        store.begin(name, "quota", now())
    return [one.turn for one in store.queued()]


def test_workers_that_start_at_once_on_a_new_database_make_its_tables_together(fleet_database: str) -> None:
    at_once = threading.Barrier(8)

    def opened() -> None:
        store = FleetStore(fleet_database, SystemClock())
        at_once.wait()
        store.open()
        store.close()

    with ThreadPoolExecutor(8) as pool:
        for one in [pool.submit(opened) for _ in range(8)]:
            one.result()


def test_a_repository_gets_one_turn_however_many_workers_begin(store: FleetStore) -> None:
    assert begun(store, A, B, A) == [RepositoryTurn(A, 1, renewed=True), RepositoryTurn(B, 1, renewed=True)]


def test_a_turn_moves_on_once(store: FleetStore) -> None:
    (look,) = begun(store, A)
    cycle = cycle_after(look)
    assert store.advance(look, Following(cycle, now()), "found", None)
    assert not store.advance(look, Following(cycle_after(look, "issue-9"), now()), "found", None)
    # The old look is still there until its workflow ends: the engine does that where it runs.
    assert [one.turn for one in store.queued() if one.turn.number == 2] == [cycle]


def test_what_comes_first_is_in_front_and_what_is_for_later_at_the_end(store: FleetStore) -> None:
    first, second = begun(store, A, B)
    store.advance(first, Following(cycle_after(first), now()), "found", None)
    store.advance(second, Following(cycle_after(second, "issue-2", "review"), now()), "found", None)
    store.begin("github.com/o/c", "quota", now() + timedelta(hours=1))
    listed = [
        (one.turn.task or one.turn.repository, one.state)
        for one in store.queued()
        if one.turn.number > 1 or one.state == "delayed"
    ]
    assert listed == [("issue-2", "queued"), ("issue-1", "queued"), ("github.com/o/c", "delayed")]


def test_who_knows_of_something_new_ends_the_wait(store: FleetStore) -> None:
    store.begin(A, "quota", now() + timedelta(hours=1))
    (waiting,) = store.queued()
    assert waiting.at is not None
    assert waiting.at > now() + timedelta(minutes=59)
    assert store.wake(A)
    (woken,) = store.queued()
    assert woken.at is None or woken.at <= now()
    assert not store.wake("github.com/o/unknown")


def test_who_knows_of_something_new_while_a_look_goes_on_is_heard_after_it(store: FleetStore) -> None:
    (look,) = begun(store, A)
    assert store.limits.start_cycle(look, "w", "run", 0.0, None)
    store.wake(A)
    later = Following(look.look(renewed=True), now() + timedelta(hours=1))
    store.advance(look, later, "no_task", None)
    (follows,) = [one for one in store.queued() if one.turn.number == 2]
    assert follows.state == "queued"


def test_a_servers_pause_is_kept_also_by_who_knows_of_something_new(store: FleetStore) -> None:
    (look,) = begun(store, A)
    until = now() + timedelta(hours=1)
    store.advance(look, Following(look.look(), until, Pause(until, "busy")), "paused", None)
    store.wake(A)
    (follows,) = [one for one in store.queued() if one.turn.number == 2]
    assert follows.at is not None
    assert abs(follows.at - until) < timedelta(seconds=2)
    (state,) = store.repositories()
    assert state.pause is not None
    assert state.pause.reason == "busy"


def test_a_pause_of_a_quota_is_known_to_all_and_never_gets_shorter(store: FleetStore) -> None:
    late, soon = now() + timedelta(hours=2), now() + timedelta(hours=1)
    store.limits.pause_quota("model at address", Pause(late, "spent"))
    store.limits.pause_quota("model at address", Pause(soon, "burst"))
    pause = store.limits.pause_of("model at address")
    assert pause is not None
    assert pause.reason == "spent"
    assert store.limits.pause_of("another") is None


def test_what_all_may_spend_in_a_day_is_set_aside_before_it_is_spent(store: FleetStore) -> None:
    first, second = begun(store, A, B)
    one, other = cycle_after(first), cycle_after(second)
    assert store.limits.start_cycle(one, "w", "run-1", 2.0, 3.0)
    assert not store.limits.start_cycle(other, "w", "run-2", 2.0, 3.0)
    store.advance(one, Following(one.look(), now()), "proposed", 0.5)
    assert store.limits.spent_today() == pytest.approx(0.5)
    assert store.limits.start_cycle(other, "w", "run-3", 2.0, 3.0)
    assert store.limits.spent_today() == pytest.approx(2.5)


def test_a_person_names_what_is_tried_next(store: FleetStore) -> None:
    begun(store, A)
    assert store.ask(A, "issue-5")
    (asked,) = store.queued()
    assert (asked.turn.task, asked.turn.priority.name, asked.workflow) == (
        "issue-5",
        "ASKED",
        f"{A}:issue-5:0:2",
    )
    assert not store.ask(B, "issue-5")


def test_what_is_cancelled_is_not_tried_again_before_the_schedules_time(store: FleetStore) -> None:
    (look,) = begun(store, A)
    cycle = cycle_after(look)
    assert store.ask(A, cycle.task)
    assert store.cancel(A)
    (follows,) = store.queued()
    assert follows.turn == RepositoryTurn(A, 3, attempted=("issue-1",))
    assert not store.advance(cycle, Following(cycle.look(), now()), "interrupted", 0.1)
    assert not store.cancel(B)


def test_who_is_paused_by_hand_has_no_next_turn_until_somebody_resumes_it(store: FleetStore) -> None:
    (look,) = begun(store, A)
    assert store.pause(A, "release week")
    assert store.advance(look, Following(look.look(), now()), "no_task", None)
    store.begin(A, "quota", now())
    assert [one.turn.number for one in store.queued()] == [1]
    assert [one.paused for one in store.repositories()] == ["release week"]
    assert store.resume(A)
    assert [one.turn.number for one in store.queued()] == [1, 3]
    assert not store.pause(B, "unknown")
    assert not store.resume(B)


def test_who_needed_a_person_goes_on_when_a_person_says_so(store: FleetStore) -> None:
    (look,) = begun(store, A)
    store.advance(look, Following(None, now(), halted="no key"), "failed", None)
    assert [one.halted for one in store.repositories()] == ["no key"]
    store.limits.pause_quota("quota", Pause(now() + timedelta(hours=1), "spent"))
    assert store.resume(A)
    assert [one.halted for one in store.repositories()] == [None]
    assert store.limits.pause_of("quota") is None


def test_a_worker_that_starts_has_nothing_to_do_for_who_has_a_turn_and_needs_nobody(
    store: FleetStore,
) -> None:
    first, _ = begun(store, A, B)
    assert store.ready() == {A: "quota", B: "quota"}
    store.advance(first, Following(None, now(), halted="no key"), "failed", None)
    assert store.ready() == {B: "quota"}


def test_a_worker_is_asked_to_end(store: FleetStore) -> None:
    store.add_worker("m-1", "1.0", 1)
    assert store.drain("m-1")
    assert store.beat("m-1") is True
    assert not store.drain("m-2")


def test_a_delivery_of_a_webhook_is_used_once(store: FleetStore) -> None:
    store.begin(A, "quota", now() + timedelta(hours=1))
    assert store.receive("digest", A)
    (woken,) = store.queued()
    assert woken.at is None or woken.at <= now()
    assert not store.receive("digest", A)


def test_workers_come_live_and_go(store: FleetStore) -> None:
    store.add_worker("m-1", "1.0", 2)
    assert store.beat("m-1") is False
    (worker,) = store.workers()
    assert (worker.worker, worker.version, worker.parallel, worker.beats) == ("m-1", "1.0", 2, 1)
    store.remove_worker("m-1")
    assert store.beat("m-1") is None
    assert not store.workers()


def run_at(store: FleetStore, worker: str, turn: RepositoryTurn) -> None:
    """Let a worker run a turn, as far as the engine's table goes."""
    table = "dbos.workflow_status" if store.is_shared else "workflow_status"
    with store.engine.begin() as connection:
        changed = sa.text(
            f"UPDATE {table} SET status = 'PENDING', executor_id = :worker WHERE workflow_uuid = :id"  # noqa: S608
        )
        connection.execute(changed, {"worker": worker, "id": turn.id})


def test_what_a_dead_worker_ran_is_taken_over_and_what_others_run_is_not(store: FleetStore) -> None:
    first, second = begun(store, A, B)
    run_at(store, "dead", first)
    run_at(store, "alive", second)
    store.add_worker("alive", "1.0", 1)
    assert store.heartbeats() == {"dead": -1, "alive": 0}  # the dead one is known by what it left
    assert store.take_over("dead") == [first.after_death("")]
    assert [(one.turn, one.worker) for one in store.queued()] == [
        (second, "alive"),
        (first.after_death(""), ""),
    ]
    assert store.heartbeats() == {"alive": 0}


def test_a_repository_whose_looks_end_their_workers_waits_for_a_person(store: FleetStore) -> None:
    first, other = begun(store, A, B)
    turn = first
    for deaths in (1, 2):
        run_at(store, "dead", turn)
        (turn,) = store.take_over("dead")
        assert turn.deaths == deaths
    delayed = next(one for one in store.queued() if one.turn == turn)
    assert delayed.state == "delayed"
    run_at(store, "dead", turn)
    assert store.take_over("dead") == []
    assert [one.turn for one in store.queued()] == [other]
    state = next(one for one in store.repositories() if one.repository == A)
    assert state.paused == "3 workers in a row died while they looked at it: find out why, then resume it"
    assert store.resume(A)
    assert [one.turn.deaths for one in store.queued() if one.turn.repository == A] == [0]


def test_what_waits_for_a_person_is_shown_until_it_is_taken_or_not_seen_any_more(store: FleetStore) -> None:
    def waiting() -> list[tuple[str, str, str]]:
        return [(one.repository, one.task, one.why) for one in store.waiting()]

    store.note_waiting(A, {"issue-1": "it died", "issue-2": "no"}, gone=())
    store.note_waiting(B, {"issue-1": "no"}, gone=())
    store.note_waiting(A, {"issue-1": "it died again"}, gone={"issue-2"})
    assert waiting() == [(A, "issue-1", "it died again"), (B, "issue-1", "no")]
    store.note_waiting(A, {}, gone=None)
    assert waiting() == [(B, "issue-1", "no")]


class KilledClient:
    """The engine's client of a worker that is killed as soon as it has cancelled something."""

    def __init__(self, client: DBOSClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def cancel_workflow(self, workflow: str) -> None:
        self._client.cancel_workflow(workflow)
        raise FleetError("killed")


def test_who_dies_while_it_takes_over_leaves_the_dead_run_known(
    store: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (look,) = begun(store, A)
    cycle = cycle_after(look)
    store.advance(look, Following(cycle, now()), "found", None)
    run_at(store, "dead", cycle)
    assert store.limits.start_cycle(cycle, "dead", "run-1", 0.0, None)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_client", KilledClient(store.client))
        with pytest.raises(FleetError, match="killed"):
            store.take_over("dead")
    store.take_over("dead")
    store.restart_lost()
    assert [one.turn for one in store.queued() if one.turn.number > 2] == [cycle.after_death("run-1")]


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
def test_a_repository_whose_turn_was_removed_by_other_tools_gets_a_look(store: FleetStore, how: str) -> None:
    first, second = begun(store, A, B)
    client = store.client
    (client.cancel_workflow if how == "cancelled" else client.delete_workflow)(first.id)
    store.restart_lost()
    assert [one.turn for one in store.queued()] == [second, RepositoryTurn(A, 2, renewed=True)]


@pytest.mark.usefixtures("store")
def test_a_pickled_value_is_never_read() -> None:
    from dbos._serialization import DBOSDefaultSerializer

    with pytest.raises(FleetError, match="pickled"):
        DBOSDefaultSerializer.deserialize("gASVBQAAAAAAAACMAWGULg==")


@pytest.mark.parametrize("url", ["mysql://h/db", "nonsense"])
def test_another_kind_of_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="postgresql://USER@HOST/NAME"):
        make_engine(url)


def test_a_database_that_is_away_is_one_line_without_the_password() -> None:
    away = FleetStore("postgresql://fleet:hunter2-secret@127.0.0.1:9/none", SystemClock())
    with pytest.raises(FleetError) as raised:
        away.open()
    assert "127.0.0.1/none" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)
    away.close()


def test_what_ended_long_ago_is_removed(store: FleetStore, fleet_database: str) -> None:
    begun(store, A)
    assert store.cancel(A)
    begun(store, B)
    later = ManualClock(now() + KEPT_TURNS + timedelta(hours=1))
    other = FleetStore(fleet_database, later)
    other.open()
    assert len(other.client.list_workflows()) == 3
    other.prune()
    assert {one.status for one in other.client.list_workflows()} == {"ENQUEUED"}
    other.close()
