"""Runs of this machine that were killed: their work is saved where the next cycle finds it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ForgeError, JournalError, RemoteUnavailableError, WorkspaceError
from orchestrator.core.events import CallStatus, Proposed, ToolCallEnded, Warned, WorkSaved
from orchestrator.core.spent import Spent
from orchestrator.cycle.earlier import State, conversation, pages_of, read_pages, trimmed_events
from orchestrator.cycle.let_go import WORKING_LABEL
from orchestrator.cycle.result import Outcome
from orchestrator.cycle.salvage import PATCH_NAME, write_private
from orchestrator.guard.outgoing import places_of_secrets
from orchestrator.journal.folders import JOURNAL_FILE
from orchestrator.journal.open_runs import MOST_RUNS, close_run, hold, is_open, open_runs
from orchestrator.journal.reader import read_run
from orchestrator.workspace.claims import ClaimRecord, Lease
from orchestrator.workspace.sweep import sweep
from orchestrator.workspace.wip import drop_wip, load_wip

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event, TaskTaken
    from orchestrator.forge.base import Forge
    from orchestrator.journal.folders import Home
    from orchestrator.journal.open_runs import OpenRun
    from orchestrator.workspace.claims import Claims
    from orchestrator.workspace.clone import Clone
    from orchestrator.workspace.records import Records

CRASHED = "crashed"
_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Repairs what runs of one repository left when they were killed.

    Attributes:
        repository: what the user named; runs on others are not touched.
        forge: where the label of a task that is worked on is taken off.
        temporary: where clones are made.
        reopen: opens the clone of a dead run again; raises `WorkspaceError` where it cannot be used.
        run: who repairs, for the saved work's record.
        redact: a text without secrets; `holds_secret` says whether one has any.
    """

    home: Home
    repository: str
    forge: Forge
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
            The names of the runs that are known to be dead or over, whose claims are free. One that another
            process is just repairing is not among them: it needs the claim to save the work.

        Raises:
            RemoteUnavailableError: nothing can be saved now; everything stays for the next start.
            WorkspaceError: the remote refused.
        """
        dead = [run for run in open_runs(self.home) if run.start and run.start.repository == self.repository]
        names = _ended(self.home)
        for run in dead:
            with suppress(JournalError), hold(run.folder):  # else another process is at it
                if is_open(run.folder):
                    self._repair(run, [run.id])
                names.append(run.id)
        others = [Path(run.clone_folder) for run in open_runs(self.home) if run.clone_folder]
        over = {*names, *_ended(self.home)}
        sweep(self.temporary, keep=others, is_over=over.__contains__, clock=self.clock)
        return names

    def _repair(self, run: OpenRun, dead: list[str]) -> None:
        result: dict[str, Any] = {"outcome": str(Outcome.INTERRUPTED), "error": "the process was killed"}
        if run.task is not None:
            shown = self.claims.show(run.task.key)
            is_ours = shown is not None and shown.run == run.id and shown.state == "held"
            # In the dead run's name, so that the next start finds it so if this one does not get to the end.
            taken = self.claims.take(run.task.key, run.id, dead_runs=dead) if is_ours else shown
            if isinstance(taken, Lease):
                result |= self._settle(run, run.task, taken)
            else:
                result |= self._told_by(run, taken)
        close_run(run.folder, {**result, "run": run.id}, self.clock, self.redact)
        if result.get("saved") or result.get("patch"):
            self.emit(WorkSaved(result.get("patch") or "", result.get("saved") or ""))

    def _told_by(self, run: OpenRun, record: ClaimRecord | str | None) -> dict[str, Any]:
        """What a run came to that has no claim any more: it let go of it, or somebody else has had the task since."""
        # A person who takes a task away leaves the run's name on the claim, and the clone where it is.
        there = bool(run.clone_folder) and Path(run.clone_folder).exists()
        if isinstance(record, ClaimRecord) and record.run == run.id and not there:
            outcome = record.outcome.partition(" ")[0] or str(Outcome.INTERRUPTED)
            return (
                {"outcome": outcome, "error": None} if outcome == Outcome.PROPOSED else {"outcome": outcome}
            )
        clone = self._reopened(run)
        if clone is None:
            return {}
        with clone:
            patch = self._patch(run, clone)
        return {"patch": patch, "error": "the process was killed, and had lost its claim on the task"}

    def _settle(self, run: OpenRun, task: TaskTaken, lease: Lease) -> dict[str, Any]:
        """Save what the run left, let go of its claim, and say what it came to."""
        before, proposed = lease.previous, run.proposed
        journal = read_run(run.folder)
        events = journal.events
        result: dict[str, Any] = {}
        if _was_done(events):
            outcome = str(Outcome.PROPOSED)
            result = {"outcome": outcome, "error": None}
            if found := load_wip(self.records, task.key):
                drop_wip(self.records, task.key, found.commit, lease)
        else:
            result = self._save(run, lease, events)
            asked = str(Outcome.QUESTION) if run.question else CRASHED
            outcome = asked if result.get("saved") else str(Outcome.INTERRUPTED)
        if proposed is not None:
            result["pull_request"] = {
                "number": proposed.number,
                "title": proposed.title,
                "url": proposed.url,
            }
        number = proposed.number if proposed else before.pull if before else None
        minutes = (journal.records[-1].at - journal.records[0].at).total_seconds() / _SECONDS_A_MINUTE
        spent = Spent(run.usd, run.usage.total_tokens, max(minutes, 0.0), run.rounds)
        total = (run.claim.spent_before if run.claim else Spent()) + spent
        # Its heartbeats have told a part of this already, and more where requests broke off.
        lease.release(outcome, number, total.at_least(before.spent) if before else total)
        if task.number is not None:
            with suppress(ForgeError):  # it only shows what the claim says
                self.forge.remove_label(task.number, WORKING_LABEL)
        return result

    def _save(self, run: OpenRun, lease: Lease, events: tuple[Event, ...]) -> dict[str, Any]:
        """Where the work is now: on the remote, or where that refuses it, in the run's folder."""
        clone = self._reopened(run)
        if clone is None:
            return {}
        with clone:
            try:
                return {"saved": self._saved(run, lease, clone, clone.changed_paths(), events)}
            except RemoteUnavailableError:
                clone.leave()
                raise
            except WorkspaceError as error:
                self.emit(Warned(f"the work of run {run.id} could not be saved on the remote: {error}"))
                return {"patch": self._patch(run, clone)}

    def _reopened(self, run: OpenRun) -> Clone | None:
        if not run.clone_folder:
            return None
        try:
            return self.reopen(Path(run.clone_folder))
        except WorkspaceError as error:
            self.emit(Warned(f"the files of run {run.id}, which was killed, cannot be used: {error}"))
            return None

    def _patch(self, run: OpenRun, clone: Clone) -> str | None:
        """The file in the run's folder that has its changes; where it cannot be written, the clone is kept."""
        target = run.folder / PATCH_NAME
        try:
            patch = clone.pending_patch(clone.changed_paths(), include_commands=False)
            if not patch:
                return None
            write_private(target, patch)
        except FileExistsError:
            return str(target)
        except (OSError, WorkspaceError) as error:
            clone.keep()
            self.emit(Warned(f"the changes of run {run.id} are kept at {clone.tree}: {error}"))
            return None
        return str(target)

    def _saved(
        self, run: OpenRun, lease: Lease, clone: Clone, touched: set[str], events: tuple[Event, ...]
    ) -> str:
        found = load_wip(self.records, lease.record.task)
        # A run that went on with earlier work has not told its journal what was said before.
        resumed = run.resumed is not None and run.resumed.turns > 0
        pages = read_pages(found.pages) if resumed and found is not None and found.fault is None else None
        said = [*(pages[1] if pages else ()), *conversation(events)]
        if pages and pages[0].run == run.id:  # killed after it had saved all that itself
            said = list(pages[1])
        state = State(
            run=run.id,
            why=str(Outcome.QUESTION) if run.question else CRASHED,
            model=run.start.model if run.start else "",
            contract=run.start.contract if run.start else "",
            profile=run.start.profile if run.start else "",
            touched=tuple(sorted(touched)),
            question=run.question.question if run.question else "",
            question_url=(run.question.url or "") if run.question else "",
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


def _ended(home: Home) -> list[str]:
    """Runs that came to their end. A claim that one of them could not let go of is nobody's."""
    try:
        folders = sorted(home.runs.iterdir())[-MOST_RUNS:]
    except OSError:
        return []
    ended = []
    for folder in folders:
        with suppress(JournalError):
            if (folder / JOURNAL_FILE).is_file() and not is_open(folder):
                ended.append(folder.name)
    return ended


def _was_done(events: tuple[Event, ...]) -> bool:
    """Whether all was proposed, and the model said so: `finish` is refused once where anything is left."""
    calls = [event for event in events if isinstance(event, ToolCallEnded)]
    refused = any(call.name == "finish" and call.status is not CallStatus.OK for call in calls)
    finished = bool(calls) and calls[-1].name == "finish" and not refused
    return finished and any(isinstance(event, Proposed) and event.commit for event in events)
