"""The fleet on the page: what its database says, what can be done there, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from lxml import html

from orchestrator.bot.suggestions import install_command
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.dashboard.actions import FleetActions
from orchestrator.plugins.dashboard.command import find_fleet
from tests.plugins.dashboard.scene import make_scene
from tests.plugins.dashboard.test_server import ATTACK, Streaming, page
from tests.plugins.fleet.fleets import SPENT, busy_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.plugins.fleet.store import FleetStore
    from tests.plugins.dashboard.scene import DashboardScene

OCTO = "github.com/octo"


@pytest.fixture
def fleet(fleet_database: str) -> Iterator[FleetStore]:
    store = busy_fleet(fleet_database, title=ATTACK)
    yield store
    store.close()


def rows(tree: html.HtmlElement, name: str) -> dict[str, str]:
    """The rows of a table, by what their first cell begins with."""
    return {
        row[0].text.strip().removeprefix(f"{OCTO}/"): " ".join(
            " ".join(cell.text_content().split()) for cell in row
        )
        for row in tree.xpath(f"//div[@aria-label='{name}']//tbody/tr")
    }


async def test_who_works_and_what_waits_for_whom(fleet: FleetStore, tmp_path: Path) -> None:
    scene = make_scene(tmp_path, fleet.url)
    answer = await scene.get("/fleet")
    tree = page(answer)
    workers, queue = rows(tree, "Workers"), rows(tree, "Queue")
    assert "works 1.4.0 2" in workers["build-1-4f2a9c10"]
    assert "draining" in workers["build-2-99ab12cd"]
    assert "runs on build-1-4f2a9c10 new task" in queue["ledger"]
    assert "waits starts within seconds review or failed check" in queue["atlas"]
    assert SPENT in queue["harbour"]
    assert "paused by a person: release week look" in queue["quarry"]
    assert "later waits for the next time of its schedule" in queue["mill"]
    members = rows(tree, "Repositories")
    assert " 1 $2.00 10 $8.10 " in members["ledger"]
    assert "needs you the token may not write contents" in members["beacon"]
    assert "waits until" in members["harbour"]
    requests = " ".join(tree.xpath("//div[@aria-label='Requests to forges']")[0].text_content().split())
    assert "installation 4711 core 3,120 5,000" in requests
    assert "token 1f3a9c22 used up core 0 5,000" in requests
    assert tree.xpath("//svg[contains(@aria-label, 'Cost a day')]//text[@class='cap']/text()") == [
        "cap $20.00"
    ]
    # Seven repositories, and in each figure the days of one.
    assert len(tree.xpath("//div[@class='plots small']//svg")) == 4
    assert not tree.xpath("//script[not(@src)] | //img | //*[@onerror]")
    await scene.dashboard.fleet.do("fleet-resume", {"repository": f"{OCTO}/quarry"})
    for name in ("build-1-4f2a9c10", "build-2-99ab12cd"):
        fleet.remove_worker(name)
    scene.dashboard.fleet.forget()
    waiting = rows(page(await scene.get("/fleet")), "Queue")
    assert "no worker runs: start one with pullwright fleet run" in waiting["quarry"]
    scene.dashboard.fleet.close()


async def test_each_verb_is_confirmed_and_does_what_the_command_does(
    fleet: FleetStore, tmp_path: Path
) -> None:
    scene = make_scene(tmp_path, fleet.url)

    async def pressed(verb: str, **fields: str) -> tuple[str, int, str]:
        """The command that is shown, and what is said when it is done."""
        query = "&".join(f"{name}={value}" for name, value in {"verb": f"fleet-{verb}", **fields}.items())
        shown = page(await scene.get(f"/confirm?{query}")).xpath("//pre")[0].text_content().strip()
        done = await scene.post("/do", {"verb": f"fleet-{verb}", **fields})
        notice = html.document_fromstring(done.text).xpath("//p[contains(@class, 'notice')]")
        return shown, done.status_code, notice[0].text_content()

    mill, worker = f"{OCTO}/mill", "build-1-4f2a9c10"
    assert await pressed("pause", repository=mill) == (
        f"pullwright fleet pause {mill} '--reason=by hand'",
        200,
        f"{mill} is paused; a running turn continues to its end",
    )
    assert (await pressed("resume", repository=mill))[2] == f"{mill} continues"
    assert await pressed("add", repository=mill, task="issue-3") == (
        f"pullwright fleet add {mill} issue-3",
        200,
        f"{mill} tries issue-3 next",
    )
    assert "continues with another task" in (await pressed("cancel", repository=mill))[2]
    assert (await pressed("add", repository=mill))[2] == f"{mill} is looked at now"
    assert (await pressed("drain", worker=worker))[
        2
    ] == f"{worker} ends after the current rounds of its cycles"
    assert {one.worker: one.draining for one in fleet.workers()}[worker]
    unknown = await pressed("pause", repository="github.com/o/none")
    assert unknown[1:] == (
        409,
        "github.com/o/none is unknown to the fleet: start a worker with pullwright fleet run",
    )
    assert (await pressed("drain", worker="nobody"))[1] == 409
    assert (await pressed("add", repository=mill, task="../x"))[1] == 409
    forged = await scene.post("/do", {"verb": "fleet-pause", "repository": mill, "form": "forged"})
    assert forged.status_code == 403
    events = Streaming(scene).read("/fleet/stream")
    _, first = await anext(events)
    assert "draining" in str(first["parts"])
    await events.aclose()
    scene.dashboard.fleet.close()


async def test_without_a_fleet_a_line_says_so_and_the_rest_is_there(tmp_path: Path) -> None:
    said = "there is no fleet here"
    answers = await both(make_scene(tmp_path))
    assert said in answers
    away = "postgresql://fleet:hunter2-secret@127.0.0.1:9/none"
    scene = make_scene(tmp_path, away)
    shown = await both(scene)
    assert "the fleet's database 127.0.0.1/none: " in shown
    assert "hunter2" not in shown
    done = await scene.post("/do", {"verb": "fleet-pause", "repository": "github.com/o/r"})
    assert done.status_code == 409
    assert "127.0.0.1/none" in done.text


async def both(scene: DashboardScene) -> str:
    """The page of the fleet, where the overview is there as well."""
    assert "pullwright run --demo" in page(await scene.get("/")).text_content()
    return str(page(await scene.get("/fleet")).xpath("//main")[0].text_content())


async def test_a_database_that_does_not_answer_holds_nothing_up(tmp_path: Path) -> None:
    gate = threading.Event()

    def waits() -> str:
        gate.wait()
        raise ConfigurationError("too late")

    scene = make_scene(tmp_path)
    scene.dashboard.fleet = FleetActions(waits, SystemClock(), answer_seconds=0.1)
    try:
        for _ in range(3):
            assert "does not answer" in await both(scene)
        assert [one.name for one in threading.enumerate()].count("fleet") == 1
    finally:
        gate.set()


def test_the_fleets_database_is_found_as_the_command_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    environ = {"PULLWRIGHT_HOME": str(home)}
    url = "postgresql://fleet@db.example/fleet"
    assert find_fleet(None, {**environ, "PULLWRIGHT_DATABASE_URL": url}) == url
    with pytest.raises(ConfigurationError, match=r"write fleet\.toml, and start a worker"):
        find_fleet(None, environ)
    only = home / "fleets" / "a.db"
    only.touch()
    only.with_name("a-dry-run.db").touch()
    assert find_fleet(None, environ) == f"sqlite:///{only}"
    with pytest.raises(ConfigurationError, match=r"fleet run --config other\.toml"):
        find_fleet("other.toml", environ)
    (home / "fleets" / "b.db").touch()
    with pytest.raises(ConfigurationError, match="there are 2 fleets on this machine"):
        find_fleet(None, environ)


WITHOUT = """
import asyncio, sys
sys.modules["dbos"] = None
from orchestrator.plugins.dashboard.command import find_fleet
from orchestrator.plugins.dashboard import server
from orchestrator.plugins.dashboard.actions import FleetActions
from orchestrator.core.clock import SystemClock
assert "sqlalchemy" not in sys.modules
print(asyncio.run(FleetActions(lambda: "sqlite:///x", SystemClock()).view()).error)
"""


def test_without_the_extra_the_page_says_what_to_install_and_nothing_is_loaded_before() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (
        f"the page of the fleet needs the package dbos: {install_command('fleet')}\n",
        "",
    )
