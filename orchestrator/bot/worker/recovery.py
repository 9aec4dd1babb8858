"""Runs of this machine that were killed: what they left is saved, their claims and journals come to an end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.claim_record import ClaimRecord
from orchestrator.bot.coordination.claims import Lease
from orchestrator.bot.coordination.saved_work import drop_wip, load_wip
from orchestrator.bot.cycle.claim import WORKING_LABEL
from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.git.folders import sweep
from orchestrator.bot.journal.open_runs import close_run, ended_runs, hold, is_open, open_runs
from orchestrator.bot.journal.reader import read_run
from orchestrator.bot.worker.remains import CRASHED
from orchestrator.core.errors import ForgeError, JournalError
from orchestrator.core.events import CallStatus, Proposed, ToolCallEnded, WorkSaved
from orchestrator.core.repositories import same_repository
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.open_runs import OpenRun
    from orchestrator.bot.worker.remains import Remains
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event, TaskTaken

_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Repairs what runs of one repository left when they were killed.

    Attributes:
        repository: as journals name it; runs on others are not touched.
        forge: where the label of a task that is worked on is taken off.
        temporary: where clones are made.
        remains: saves what a run left.
        redact: a text without secrets.
    """

    home: Home
    repository: str
    forge: Forge
    temporary: Path
    records: Records
    claims: Claims
    remains: Remains
    clock: Clock
    emit: Emit
    redact: Callable[[str], str]

    def recover(self) -> list[str]:
        """Save the work of each dead run, close its journal, and sweep the clones of dead processes.

        Returns:
            The names of the runs that are known to be dead or over, whose claims are free. One that another
            process is just repairing is not among them: it needs the claim to save the work.

        Raises:
            WorkspaceError: the remote refused, or nothing can be saved now: everything stays for the next start.
        """
        dead = [
            run
            for run in open_runs(self.home)
            if run.start and same_repository(run.start.repository, self.repository)
        ]
        names = ended_runs(self.home)
        for run in dead:
            with suppress(JournalError), hold(run.folder):  # else another process is at it
                if is_open(run.folder):
                    self._repair(run, [run.id])
                names.append(run.id)
        others = [Path(run.clone_folder) for run in open_runs(self.home) if run.clone_folder]
        over = {*names, *ended_runs(self.home)}
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
        found = self.remains.as_patch(run)
        why = {"error": "the process was killed, and had lost its claim on the task"}
        return found | why if found else {}

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
            result = self.remains.save(run, lease, events)
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
        spent = Spent(run.usd, run.usage.total_tokens, max(minutes, 0.0), run.rounds) + run.uncertain
        total = (run.claim.spent_before if run.claim else Spent()) + spent
        # Its heartbeats have told a part of this already, and more where requests broke off.
        lease.release(outcome, number, total.at_least(before.spent) if before else total)
        if task.number is not None:
            with suppress(ForgeError):  # it only shows what the claim says
                self.forge.remove_label(task.number, WORKING_LABEL)
        return result


def _was_done(events: tuple[Event, ...]) -> bool:
    """Whether all was proposed, and the model said so: `finish` is refused once where anything is left."""
    calls = [event for event in events if isinstance(event, ToolCallEnded)]
    refused = any(call.name == "finish" and call.status is not CallStatus.OK for call in calls)
    finished = bool(calls) and calls[-1].name == "finish" and not refused
    return finished and any(isinstance(event, Proposed) and event.commit for event in events)
