"""Runs of this machine that were killed: their work is saved where the next cycle finds it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import JournalError, WorkspaceError
from orchestrator.core.events import Phase, PhaseEntered, Warned, WorkSaved
from orchestrator.core.spent import Spent
from orchestrator.cycle.earlier import State, conversation, pages_of, read_pages, trimmed_events
from orchestrator.cycle.result import Outcome
from orchestrator.guard.outgoing import places_of_secrets
from orchestrator.journal.open_runs import close_run, hold, is_open, open_runs
from orchestrator.journal.reader import read_run
from orchestrator.workspace.claims import Lease
from orchestrator.workspace.sweep import sweep
from orchestrator.workspace.wip import load_wip

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.journal.folders import Home
    from orchestrator.journal.open_runs import OpenRun
    from orchestrator.workspace.claims import Claims
    from orchestrator.workspace.clone import Clone
    from orchestrator.workspace.records import Records

CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Recovery:
    """Repairs what runs of one repository left when they were killed.

    Attributes:
        repository: what the user named; runs on others are not touched.
        temporary: where clones are made.
        reopen: opens the clone of a dead run again; raises `WorkspaceError` where it cannot be used.
        run: who takes the dead runs' claims over.
        redact: a text without secrets; `holds_secret` says whether one has any.
    """

    home: Home
    repository: str
    temporary: Path
    records: Records
    claims: Claims
    reopen: Callable[[Path], Clone]
    run: str
    clock: Clock
    emit: Emit
    redact: Callable[[str], str]
    holds_secret: Callable[[str], bool]

    def recover(self) -> list[str]:
        """Save the work of each dead run, close its journal, and sweep the clones of dead processes.

        Returns:
            The names of the runs that are known to be dead, whose claims are free.

        Raises:
            RemoteUnavailableError: nothing can be saved now; everything stays for the next start.
            WorkspaceError: the remote refused.
        """
        dead = [run for run in open_runs(self.home) if run.start and run.start.repository == self.repository]
        names = [run.id for run in dead]
        for run in dead:
            with suppress(JournalError), hold(run.folder):  # else another process is at it
                if is_open(run.folder):
                    self._repair(run, names)
        others = [Path(run.clone_folder) for run in open_runs(self.home) if run.clone_folder]
        sweep(self.temporary, keep=others, clock=self.clock)
        return names

    def _repair(self, run: OpenRun, dead: list[str]) -> None:
        saved, error = "", "the process was killed"
        if run.task is not None:
            taken = self.claims.take(run.task.key, self.run, dead_runs=dead)
            if isinstance(taken, Lease):
                before = taken.previous.spent if taken.previous else Spent()
                saved = self._save(run, taken)
                spent = before + Spent(run.usd, run.usage.total_tokens, 0.0, run.rounds)
                taken.release(CRASHED if saved else str(Outcome.INTERRUPTED), spent=spent)
            else:
                error = f"{error}, and another worker holds the task"
        result = {"outcome": str(Outcome.INTERRUPTED), "error": error, "saved": saved or None, "run": run.id}
        close_run(run.folder, result, self.clock, self.redact)
        if saved:
            self.emit(WorkSaved("", saved))

    def _save(self, run: OpenRun, lease: Lease) -> str:
        """The hidden ref that holds the work now; empty where there was nothing to save."""
        if not run.clone_folder:
            return ""
        try:
            clone = self.reopen(Path(run.clone_folder))
        except WorkspaceError as error:
            self.emit(Warned(f"the files of run {run.id}, which was killed, cannot be used: {error}"))
            return ""
        events = read_run(run.folder).events
        with clone:
            touched = clone.changed_paths()
            if _has_ended(events) and run.proposed is not None and run.proposed.commit:
                return ""
            return self._saved(run, lease, clone, touched, events)

    def _saved(
        self, run: OpenRun, lease: Lease, clone: Clone, touched: set[str], events: tuple[Event, ...]
    ) -> str:
        found = load_wip(self.records, lease.record.task)
        # A run that went on with earlier work has not told its journal what was said before.
        resumed = run.resumed is not None and run.resumed.turns > 0
        pages = read_pages(found.pages) if resumed and found is not None and found.fault is None else None
        said = [*(pages[1] if pages else ()), *conversation(events)]
        state = State(
            run=run.id,
            why=CRASHED,
            model=run.start.model if run.start else "",
            contract=run.start.contract if run.start else "",
            profile=run.start.profile if run.start else "",
            touched=tuple(sorted(touched)),
            attempts=(pages[0].attempts if pages else 0) + 1,
        )
        return clone.save_wip(
            lease.record.task,
            pages_of(state, trimmed_events(said), self.redact),
            touched=touched,
            include_commands=False,
            expected=found.commit if found else None,
            saved_at=self.clock.now(),
            stamp=f"{run.id} recovered by {self.run}",
            find_secrets=lambda diff: places_of_secrets(diff, self.holds_secret),
            lease=lease,
        ).ref


def _has_ended(events: tuple[Event, ...]) -> bool:
    return any(isinstance(event, PhaseEntered) and event.phase is Phase.FINISH for event in events)
