"""A dashboard on journals that were written for the test, asked as a browser asks."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx2

from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.dashboard.actions import FleetActions, TaskActions
from orchestrator.plugins.dashboard.overview import DayCap, RunStore
from orchestrator.plugins.dashboard.pages import Pages
from orchestrator.plugins.dashboard.server import Dashboard, guarded
from orchestrator.plugins.dashboard.serving import BrowserSecrets
from tests.doubles.journals import Journals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from starlette.types import ASGIApp

NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)
PORT = 8799
NAME = "the-name.localhost"
ORIGIN = f"http://{NAME}:{PORT}"


@dataclass(slots=True)
class DashboardScene:
    home: Home
    journals: Journals
    dashboard: Dashboard

    @property
    def app(self) -> ASGIApp:
        return guarded(self.dashboard, PORT)

    def browser(self, *, knows_the_token: bool = True, host: str = f"{NAME}:{PORT}") -> httpx2.AsyncClient:
        cookies = {"pullwright": self.dashboard.secrets.session} if knows_the_token else {}
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.app), base_url=f"http://{host}", cookies=cookies
        )

    async def get(self, path: str) -> httpx2.Response:
        async with self.browser() as browser:
            return await browser.get(path)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
        form = {"form": self.dashboard.secrets.form, **fields}
        async with self.browser() as browser:
            return await browser.post(path, data=form, headers={"Origin": ORIGIN, **headers})


def no_fleet() -> str:
    raise ConfigurationError("there is no fleet here")


def make_scene(
    folder: Path, database: str = "", redact: Callable[[str], str] = str, state: Path | None = None
) -> DashboardScene:
    home = Home(state or folder / "home")
    clock = ManualClock(NOW)
    known = BrowserSecrets(NAME, "the-token", "the-session")
    environ = {**os.environ, "PULLWRIGHT_HOME": str(home.root), "PULLWRIGHT_CONFIG": ""}
    page = Dashboard(
        RunStore(home),
        TaskActions(home, {}, environ, folder, clock, begin_seconds=60.0),
        Pages(known.form, str(home.runs), redact, zone=UTC),
        known,
        clock,
        DayCap(3.0),
        FleetActions(lambda: database, SystemClock()) if database else FleetActions(no_fleet, clock),
    )
    return DashboardScene(home, Journals(home), page)


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The events of a stream, each with its id: as the specification says, split at empty lines.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(":")
        if line == "" and "data" in fields:
            yield fields.get("id", ""), json.loads(fields["data"])
            fields = {}
        elif name in {"id", "data"}:
            fields[name] = value.removeprefix(" ")
