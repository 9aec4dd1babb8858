"""The tasks of a repository, for a person who looks at them or decides about one."""

from __future__ import annotations

import re
import secrets
import socket
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.config import ApiKeys, load
from orchestrator.app.wiring.context import BuildContext
from orchestrator.app.wiring.forge import choose_site, commands_for
from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.journal.digest import Decision, note_decision
from orchestrator.bot.journal.folders import HOME_VARIABLE, Home, KeptWork
from orchestrator.bot.journal.index import tasks_taken
from orchestrator.bot.journal.open_runs import close_run, ended_runs, hold, open_runs
from orchestrator.bot.worker.task_states import ByHand
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import (
    EmptyRepositoryError,
    ForgeNotFoundError,
    ForgeUnavailableError,
    JournalError,
    RemoteUnavailableError,
)
from orchestrator.core.repositories import same_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Protocol

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.forge import Site
    from orchestrator.bot.forge.base import Repository
    from orchestrator.bot.worker.task_states import Decided, TaskState
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event

    class ListedRepository(Protocol):
        """Knows its repository."""

        def repository(self) -> Repository:
            """The repository."""


_SECONDS_A_MINUTE = 60.0
_BEATS_A_LEASE = 4
_SKEW_SECONDS = 600.0
_NONCE_BYTES = 8
_OWNER_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class TaskDesk:
    """The tasks of one repository, and where decisions about them are written down on this machine."""

    by_hand: ByHand
    home: Home
    label: str
    clock: Clock

    def note(self, decided: Decided) -> None:
        """Write a decision down for the digest.

        Raises:
            JournalError: it cannot be written.
        """
        after = decided.after
        saved = after.wip is not None
        reference = f"refs/pullwright/wip/{after.key}" if saved else ""
        note_decision(
            self.home, Decision(self.clock.now(), self.label, after.key, str(after.kind), reference)
        )

    def close_dead_runs(self, key: str) -> None:
        """Let the next start leave alone what a run that was killed here left of a task."""
        for run in open_runs(self.home):
            ours = run.start is not None and same_repository(run.start.repository, self.label)
            if ours and run.task is not None and run.task.key == key:
                with suppress(JournalError), hold(run.folder):  # else another process is at it
                    end = {
                        "outcome": "interrupted",
                        "run": run.id,
                        "error": "the process was killed; forgotten",
                    }
                    close_run(run.folder, end, self.clock)


@contextmanager
def open_tasks(
    repository: str, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, *, writes: bool
) -> Iterator[TaskDesk]:
    """The tasks of a repository, until the block ends.

    Args:
        repository: what the person typed.
        flags: the settings that were typed, by key.
        environ: the environment.
        cwd: the current folder, which may hold a configuration.
        writes: whether something may be changed.

    Raises:
        ConfigurationError: the repository cannot be what was typed, or there is no token to write with.
        ForgeError: the forge does not say where the repository is.
        WorkspaceError: git does not accept the address.
    """
    loaded, clock, stop, home = load(flags, environ, cwd), SystemClock(), Stop(), Home.of(environ)
    in_workflow = environ.get("GITHUB_ACTIONS") == "true"
    context = BuildContext(loaded, ApiKeys.of(environ), home, clock, _unheard, stop, in_workflow)
    site = choose_site(repository, context, writes=writes)
    with open_hidden_refs(site, clock, stop) as records:
        yield TaskDesk(make_by_hand(site, records, context, environ), home, site.label, clock)


def make_by_hand(site: Site, records: Records, context: BuildContext, environ: Mapping[str, str]) -> ByHand:
    """What a person sees of the tasks of a site, and may decide about them."""
    words = {key: task.body or task.title for key, task in tasks_taken(context.home, site.label).items()}
    dead = ended_runs(context.home)
    dead += [
        run.id
        for run in open_runs(context.home)
        if run.start and same_repository(run.start.repository, site.label)
    ]
    return ByHand(
        records,
        make_claims(records, owner_name(environ), context.settings, context.clock),
        site.forge,
        lease_times(context.settings),
        context.clock,
        commands_for(site, context.loaded),
        dead,
        words,
        kept_work(context.home, records),
    )


def states_on_disk(
    forge: ListedRepository, *, home: Home, environ: Mapping[str, str], cwd: Path
) -> list[TaskState] | None:
    """What has become of the tasks of a local repository; None where it is gone or empty.

    Args:
        forge: the folder that plays GitHub for it.
        home: where the runs are.
        environ: the environment.
        cwd: the current folder, which may hold a configuration.

    Raises:
        WorkspaceError: the repository cannot be read.
    """
    try:
        path = forge.repository().clone_url
        with open_tasks(path, {}, {**environ, HOME_VARIABLE: str(home.root)}, cwd, writes=False) as desk:
            return desk.by_hand.states()
    except (ForgeNotFoundError, EmptyRepositoryError):
        return None


def _unheard(_event: Event) -> None:
    """Nobody listens: a look at tasks is no run."""


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
        Path(tempfile.gettempdir()),
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
