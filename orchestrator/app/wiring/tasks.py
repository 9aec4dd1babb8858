"""The tasks of a repository, for a person who looks at them or decides about one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.app.config import ApiKeys, load
from orchestrator.app.wiring.around import Around
from orchestrator.app.wiring.cycle_parts import (
    kept_work,
    lease_times,
    make_claims,
    open_hidden_refs,
    owner_name,
)
from orchestrator.app.wiring.forge import choose_site, commands_for
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import HOME_VARIABLE, Home
from orchestrator.bot.journal.open_runs import close_run, ended_runs, hold, open_runs
from orchestrator.bot.journal.tasks import Decision, note_decision, tasks_taken
from orchestrator.bot.worker.by_hand import ByHand
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import EmptyRepositoryError, ForgeNotFoundError, JournalError
from orchestrator.core.repositories import same_repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any, Protocol

    from orchestrator.app.wiring.forge import Site
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.forge.base import Repository
    from orchestrator.bot.worker.by_hand import Decided
    from orchestrator.bot.worker.task_states import TaskState
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event

    class ListedRepository(Protocol):
        """Knows its repository."""

        def repository(self) -> Repository:
            """The repository."""


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
    around = Around(loaded, ApiKeys.of(environ), home, clock, _unheard, stop, in_workflow)
    site = choose_site(repository, around, writes=writes)
    with open_hidden_refs(site, clock, stop) as records:
        yield TaskDesk(make_by_hand(site, records, around, environ), home, site.label, clock)


def make_by_hand(site: Site, records: Records, around: Around, environ: Mapping[str, str]) -> ByHand:
    """What a person sees of the tasks of a site, and may decide about them."""
    words = {key: task.body or task.title for key, task in tasks_taken(around.home, site.label).items()}
    dead = ended_runs(around.home)
    dead += [
        run.id
        for run in open_runs(around.home)
        if run.start and same_repository(run.start.repository, site.label)
    ]
    return ByHand(
        records,
        make_claims(records, owner_name(environ), around.settings, around.clock),
        site.forge,
        lease_times(around.settings),
        around.clock,
        commands_for(site, around.loaded),
        dead,
        words,
        kept_work(around.home, records),
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
