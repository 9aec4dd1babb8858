"""The probes of `doctor` for the queues of fleets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestrator.app.doctor.findings import Group, Probe, failed, ok, skipped, warned
from orchestrator.app.terminal import known_secrets
from orchestrator.bot.suggestions import install_command
from orchestrator.core.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.app.doctor.findings import ProbeFinding
    from orchestrator.app.wiring import BuildContext
    from orchestrator.core.clock import Clock


def fleet_probes(context: BuildContext) -> Iterator[Group]:
    """Yield the probe of the queues on this machine, and of the shared one, if there are any."""
    urls = [f"sqlite:///{path}" for path in sorted(context.home.fleets.glob("*.db"))]
    urls += [context.keys.database] if context.keys.database else []
    if urls:
        yield Group("Fleet", (Probe("fleet", lambda: _fleets(urls, context.clock), "see docs/fleet.md"),))


def _fleets(urls: Sequence[str], clock: Clock) -> ProbeFinding:
    """Check that every row of the queues on this machine, and of the shared one, can be read."""
    try:
        from orchestrator.plugins.fleet.control import read_snapshot
        from orchestrator.plugins.fleet.store import FleetStore
    except ModuleNotFoundError as error:
        return skipped(f"the package {error.name} is not installed: {install_command('fleet')}")
    damaged: list[str] = []
    for url in urls:
        store = FleetStore(url, clock, redactor=known_secrets(os.environ))
        try:
            store.open()
            damaged += [f"{store.place}: {row.words}" for row in read_snapshot(store).unreadable]
        except FleetError as error:
            return failed(str(error), "look with pullwright fleet status")
        finally:
            store.close()
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        return warned(damaged[0] + more, "look with pullwright fleet status; correct or delete the row")
    return ok("every row can be read")
