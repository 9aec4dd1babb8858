"""`pullwright dashboard`: serves the page of this machine's runs."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import DONE, given_settings
from orchestrator.app.config.settings import load_settings
from orchestrator.app.terminal import known_secrets
from orchestrator.bot.journal.folders import Home
from orchestrator.core import event_loop
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.plugins.dashboard.actions import FleetActions, TaskActions
from orchestrator.plugins.dashboard.overview import DayCap, RunStore
from orchestrator.plugins.dashboard.pages import Pages
from orchestrator.plugins.dashboard.server import Dashboard, guarded
from orchestrator.plugins.dashboard.serving import BrowserSecrets, listen_for_browsers, serve

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_SQLITE = "sqlite:///"


def dashboard(options: argparse.Namespace) -> int:
    """Serve the page until a person ends it."""
    home, clock, flags = Home.of(os.environ), SystemClock(), given_settings(options)
    settings = load_settings(flags, os.environ, Path.cwd()).settings
    known = BrowserSecrets()
    page = Dashboard(
        RunStore(home),
        TaskActions(home, flags, os.environ, Path.cwd(), clock),
        Pages(known.form, str(home.runs), known_secrets(os.environ).redact),
        known,
        clock,
        DayCap(settings.max_usd_per_day, settings.max_usd_per_repo),
        FleetActions(partial(find_fleet, options.config, os.environ), clock),
    )
    with ExitStack() as stack:
        stack.callback(page.fleet.close)
        bound = [stack.enter_context(one) for one in listen_for_browsers(options.port)]
        app = guarded(page, bound[0].getsockname()[1])
        print(app.address, flush=True)
        print(
            f"shows the runs in {home.runs}\nCtrl+C ends the page, not the runs", file=sys.stderr, flush=True
        )
        event_loop.run(serve(app, bound, page.stopping))
    return DONE


def find_fleet(config: str | None, environ: Mapping[str, str]) -> str:
    """Return the database URL of the fleet that this machine belongs to."""
    from orchestrator.plugins.fleet.command import database_url

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
