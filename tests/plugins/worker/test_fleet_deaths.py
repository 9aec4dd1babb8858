"""A worker that dies, a database that restarts: no task is done twice, and none is forgotten."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import SystemClock
from orchestrator.plugins.fleet.store import FleetStore
from tests.doubles.model_server import gated
from tests.plugins.worker.test_fleet_queue import PROPOSE, WRITE, end, results, worker
from tests.scenarios.stage import FINISH, Stage, add_commit, branches, do, git, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step
    from tests.doubles.postgres import PostgresServer

pytestmark = pytest.mark.slow(reason="workers in processes of their own, and a lease")


@pytest.fixture
def file(stage: Stage, tmp_path: Path) -> Path:
    """A fleet of one repository with one task, and a short lease."""
    add_commit(make_repository(tmp_path / "one"), {"BACKLOG.md": "- [ ] Task of one\n"}, "Plan")
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[fleet]\nlease_seconds = 6\n[defaults]\nmodel = "openai-chat:scripted-1"\n'
        f'api_url = "{stage.model.url}"\n[[repository]]\nname = "./one"\n'
    )
    return file


class Hanging:
    """A reply of the model that comes when the test says so."""

    def __init__(self) -> None:
        self.asked, self.gate = threading.Event(), threading.Event()

    def __call__(self, _request: RecordedRequest) -> Step:
        self.asked.set()
        return gated(do(FINISH).text, self.gate)


@pytest.mark.parametrize("machine", ["the same", "another"])
def test_what_a_killed_worker_did_goes_on_elsewhere_under_the_next_number_of_its_claim(
    stage: Stage,
    file: Path,
    fleet_database: str,
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, hanging = fleet_database, Hanging()
    stage.script(do(WRITE), hanging, PROPOSE)
    with worker(file, url) as (first, *_):
        assert hanging.asked.wait(60)
        if machine == "another":
            monkeypatch.setenv("PULLWRIGHT_HOME", str(file.parent / "another"))
        if url.startswith("sqlite"):  # a file has one worker at a time
            first.kill()
            first.wait()
        with worker(file, url) as (second, out, _):
            first.kill()
            hanging.gate.set()
            done = results(out, 2)
            end(second)
    assert [one["outcome"] for one in done] == ["proposed", "no_task"]
    assert done[0]["task"]["title"] == "Task of one"
    assert len(branches(file.parent / "one")) == 1
    claim = git(file.parent / "one", "for-each-ref", "--format=%(contents)", "refs/pullwright/claims/")
    assert '"number":2' in claim.replace(" ", "")


def test_a_database_that_restarts_while_a_cycle_ends_costs_waiting_only(
    stage: Stage, file: Path, postgres: PostgresServer
) -> None:
    url, hanging = postgres.new_database(), Hanging()
    stage.script(do(WRITE, ("create_pull_request", {"title": "Write a", "body": ""})), hanging)
    with worker(file, url) as (first, out, _):
        assert hanging.asked.wait(60)  # before there is another one, which could have taken the turn
        with worker(file, url) as (second, *_):
            postgres.stop()
            hanging.gate.set()  # the cycle ends while nobody can write that down
            postgres.start()  # for how long it was away is tried in test_fleet_away.py
            done = results(out, 1)
            end(second)
            end(first)
    assert [one["outcome"] for one in done] == ["proposed"]
    assert len(branches(file.parent / "one")) == 1
    assert len(stage.model.requests) == 2


def test_a_worker_of_an_older_version_ends_what_it_runs_and_takes_nothing_more(
    stage: Stage, file: Path, fleet_database: str
) -> None:
    hanging = Hanging()
    stage.script(do(WRITE), hanging, PROPOSE)
    store = FleetStore(fleet_database, SystemClock())
    with worker(file, fleet_database) as (process, out, err):
        assert hanging.asked.wait(60)
        store.open()
        store.client._sys_db.create_application_version("99.0")
        said = err.readline()
        hanging.gate.set()
        (ended,) = results(out, 1)
        assert process.wait(60) == 130
    assert "workers of version 99.0 take the turns now" in said
    assert ended["outcome"] == "interrupted"
    assert ended["saved"].startswith("refs/pullwright/wip/")
    assert [one.state for one in store.queued()] == ["queued"]
    assert not store.workers()
    store.close()
