"""Who this worker is to others, and the hidden refs by which workers know of each other."""

from __future__ import annotations

import re
import secrets
import socket
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.journal.kept import KeptWork
from orchestrator.core.errors import ForgeUnavailableError, RemoteUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.forge import Site
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock

_SECONDS_A_MINUTE = 60.0
_BEATS_A_LEASE = 4
_SKEW_SECONDS = 600.0
_NONCE_BYTES = 8
_OWNER_CHARACTERS = 60


def lease_times(settings: Settings) -> LeaseTimes:
    """How long claims hold. Clocks may differ by ten minutes, or by half of a lease that is shorter."""
    lease = settings.claim_minutes * _SECONDS_A_MINUTE
    return LeaseTimes(lease, lease / _BEATS_A_LEASE, min(_SKEW_SECONDS, lease / 2))


def owner_name(environ: Mapping[str, str]) -> str:
    """One word for people who look at claims: the job of a workflow, or this machine."""
    job = environ.get("GITHUB_RUN_ID", "")
    name = f"actions-{job}" if environ.get("GITHUB_ACTIONS") == "true" and job else socket.gethostname()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:_OWNER_CHARACTERS].strip("-.") or "worker"


def open_hidden_refs(site: Site, clock: Clock, stop: Stop) -> Records:
    """The hidden refs of a site's repository. Nothing is contacted before the first use."""

    def sleep(seconds: float) -> None:
        try:
            stop.sleep(seconds)
        except ForgeUnavailableError as error:  # what saves work counts on the errors of a workspace
            raise RemoteUnavailableError("interrupted while waiting for the repository") from error

    return Records(
        Path(gettempdir()),
        site.source().url,
        site.credential,
        clock=clock,
        sleep=sleep,
        cancelled=stop.now,
    )


def kept_work(home: Home, records: Records) -> KeptWork:
    """What this machine has of the repository's unfinished work, by the address that the remote has."""
    return KeptWork(home.unfinished / address_key(records.remote.url))


def new_nonce() -> str:
    """A text that was never made before, on any machine."""
    return secrets.token_hex(_NONCE_BYTES)


def make_claims(
    records: Records, owner: str, settings: Settings, clock: Clock, nonce: Callable[[], str] = new_nonce
) -> Claims:
    """The claims among them."""
    return Claims(records, owner, clock, lease_times(settings), nonce)
