"""`pullwright dashboard`: serves the runs of this machine, and its fleet, as a page for a browser."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import DONE, given_settings
from orchestrator.app.config.keys import ApiKeys
from orchestrator.app.config.settings import load_settings
from orchestrator.app.words import environment_redactor
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_HOST = "127.0.0.1"
_SQLITE = "sqlite:///"


def dashboard(options: argparse.Namespace) -> int:
    """Serve the page until a person ends it.

    Raises:
        ConfigurationError: an option is wrong, or the port is in use.
    """
    from orchestrator.app.dashboard.actions import FleetActions, TaskActions
    from orchestrator.app.dashboard.overview import DayCap, RunStore
    from orchestrator.app.dashboard.pages import Pages
    from orchestrator.app.dashboard.server import Dashboard, guarded
    from orchestrator.app.dashboard.serving import BrowserSecrets, listen, serve

    home, clock, flags = Home.of(os.environ), SystemClock(), given_settings(options)
    settings = load_settings(flags, os.environ, Path.cwd()).settings
    known = BrowserSecrets()
    page = Dashboard(
        RunStore(home),
        TaskActions(home, flags, os.environ, Path.cwd(), clock),
        Pages(known.form, str(home.runs), environment_redactor().redact),
        known,
        clock,
        DayCap(settings.max_usd_per_day, settings.max_usd_per_repo),
        FleetActions(partial(find_fleet, options.config, os.environ), clock),
    )
    with listen(_HOST, options.port) as bound:
        port = bound.getsockname()[1]
        print(f"http://{_HOST}:{port}/?token={known.token}", flush=True)
        print(
            f"shows the runs in {home.runs}; Ctrl+C ends the page, not the runs", file=sys.stderr, flush=True
        )
        try:
            asyncio.run(serve(guarded(page, port), bound, page.stopping))
        finally:
            page.fleet.close()
    return DONE


def find_fleet(config: str | None, environ: Mapping[str, str]) -> str:
    """Return the database URL of the fleet that this machine belongs to.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    from orchestrator.app.cli.fleet import database_url

    if url := ApiKeys.of(environ).database:
        return url
    url = database_url(None, environ, Path(config or "fleet.toml").expanduser())
    if Path(url.removeprefix(_SQLITE)).is_file():
        return url
    if config is not None:
        raise ConfigurationError(
            f"{config} has no queue on this machine yet: start a worker with pullwright fleet run --config {config}"
        )
    # The queue of a dry run is not shown.
    found = [one for one in Home.of(environ).fleets.glob("*.db") if not one.stem.endswith("-dry-run")]
    if len(found) == 1:
        return f"{_SQLITE}{found[0]}"
    if found:
        raise ConfigurationError(
            f"there are {len(found)} fleets on this machine: start pullwright dashboard --config FILE, "
            "with the file of one of them"
        )
    raise ConfigurationError(
        "there is no fleet here yet: write fleet.toml, and start a worker with pullwright fleet run"
    )
