"""`pullwright dashboard`: the runs of this machine as a page in a browser."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import DONE, given_settings
from orchestrator.app.config.settings import load_settings
from orchestrator.app.words import environment_redactor
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock

if TYPE_CHECKING:
    import argparse

_HOST = "127.0.0.1"


def dashboard(options: argparse.Namespace) -> int:
    """Serve the page until a person ends it.

    Raises:
        ConfigurationError: an option is wrong, or the port is taken.
    """
    from orchestrator.app.dashboard.desk import Desk
    from orchestrator.app.dashboard.gate import BrowserSecrets
    from orchestrator.app.dashboard.overview import DayCap
    from orchestrator.app.dashboard.pages import Pages
    from orchestrator.app.dashboard.runs import RunStore
    from orchestrator.app.dashboard.server import Dashboard, guarded
    from orchestrator.app.dashboard.serving import listen, serve

    home, clock, flags = Home.of(os.environ), SystemClock(), given_settings(options)
    settings = load_settings(flags, os.environ, Path.cwd()).settings
    known = BrowserSecrets()
    page = Dashboard(
        RunStore(home),
        Desk(home, flags, os.environ, Path.cwd(), clock),
        Pages(known.form, str(home.runs), environment_redactor().redact),
        known,
        clock,
        DayCap(settings.max_usd_per_day, settings.max_usd_per_repo),
    )
    with listen(_HOST, options.port) as bound:
        port = bound.getsockname()[1]
        print(f"http://{_HOST}:{port}/?token={known.token}", flush=True)
        print(f"the runs in {home.runs}; Ctrl+C ends the page, and no run", file=sys.stderr, flush=True)
        asyncio.run(serve(guarded(page, port), bound, page.stopping))
    return DONE
