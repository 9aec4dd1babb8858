"""Recovers killed runs of this machine: saves their work, releases their claims, closes their journals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.claim_record import ClaimRecord
from orchestrator.bot.coordination.claims import Lease
from orchestrator.bot.coordination.saved_work import drop_wip, load_wip, save_wip, wip_ref, wip_subject
from orchestrator.bot.cycle.choice import WORKING_LABEL, tell_waiting
from orchestrator.bot.cycle.claimer import HEADS, OUR_BRANCHES
from orchestrator.bot.cycle.earlier import (
    MOST_ATTEMPTS,
    UnfinishedState,
    conversation,
    files_to_keep,
    pages_of,
    read_kept,
    read_saved,
    trimmed_events,
)
from orchestrator.bot.cycle.finish import write_private
from orchestrator.bot.cycle.parts import Outcome
from orchestrator.bot.cycle.task_state import CRASHED, WAITS
from orchestrator.bot.cycle.tasks import issue_of, key_of
from orchestrator.bot.git.folders import find_clone, sweep
from orchestrator.bot.journal.folders import PATCH_NAME
from orchestrator.bot.journal.reader import (
    DeadRuns,
    close_run,
    is_open,
    lock_run,
    open_runs,
    recovery_of,
    why_killed,
)
from orchestrator.bot.policy.change_checks import places_of_secrets
from orchestrator.bot.suggestions import Commands
from orchestrator.core.cycle_events import (
    CycleStarted,
    Phase,
    TaskTaken,
    WorkSaved,
)
from orchestrator.core.errors import (
    BaseConflictError,
    ForgeError,
    JournalError,
    RemoteUnavailableError,
    WorkspaceError,
)
from orchestrator.core.events import Warned
from orchestrator.core.messages import Spent
from orchestrator.engine.session.history import TurnKind, history_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.coordination.saved_work import UnfinishedWork
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import Home, KeptWork
    from orchestrator.bot.journal.reader import Run
    from orchestrator.bot.journal.run_facts import RunFacts
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.policy.secrets import Redactor


_KILLED = "the process was killed"


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovers the killed runs of one repository: saves their files, or their conversation alone.

    Attributes:
        repository: its name in journals; runs on others are not touched.
        own_run: the run that recovers, for the record.
        temporary: the folder in which clones are made.
        records: the hidden refs of the remote.
        kept: stores the work on this machine if the remote refuses it.
        reopen: opens the clone of a dead run again; raises `WorkspaceError` if the clone cannot be used.
        open_clone: makes a new clone, for a run whose own is gone.
    """

    home: Home
    repository: str
    own_run: str
    forge: Forge
    temporary: Path
    records: Records
    claims: Claims
    kept: KeptWork
    reopen: Callable[[Path], Clone]
    open_clone: Callable[[], Clone]
    clock: Clock
    emit: Emit
    redactor: Redactor

    def recover(self) -> DeadRuns:
        """Save the work of each dead run, close its journal, and remove the clones of dead processes.

        Returns:
            The runs that are known to be dead or over, whose claims are free. A run that another process is
            recovering right now is not included: that process needs the claim to save the work.

        Raises:
            WorkspaceError: the remote refused, or nothing can be saved now. Everything stays for the next
                start.
        """
        dead = [run for run in open_runs(self.home) if self._is_here(run)]
        names = []
        for run in dead:
            with suppress(JournalError), lock_run(run.folder):  # else another process recovers this run
                if is_open(run.folder):
                    with recovery_of(run.folder) as died:
                        if died < MOST_ATTEMPTS:
                            self._repair(run, [run.id])
                        else:
                            self._leave(run, died)
                names.append(run.id)
        others = [folder for run in open_runs(self.home) if (folder := self._clone_folder(run)) is not None]
        over = DeadRuns(self.home) | names
        sweep(self.temporary, keep=others, is_over=over.__contains__, clock=self.clock)
        return over

    def _is_here(self, run: Run) -> bool:
        """Return whether a run was on this repository. If its journal lost the beginning, a claim here names it."""
        if run.facts.start is not None or not run.damage:
            return run.is_about(self.repository)
        return self._claim_of(run) is not None

    def _claim_of(self, run: Run) -> ClaimRecord | None:
        return next((claim for claim in self.claims.list() if claim.run == run.id), None)

    def _task_of(self, run: Run) -> TaskTaken | None:
        """Return the task of a run. If its journal lost it, the claim that names the run has its key."""
        task = run.facts.task
        if task is not None or not run.damage:
            return task
        claim, taken = self._claim_of(run), run.facts.claim
        key = claim.task if claim else taken.task if taken else None
        return None if key is None else TaskTaken(key, "", "", "", issue_of(key))

    def _leave(self, run: Run, died: int) -> None:
        """Let the task of a run wait for a person, because the program dies while it saves the run's work.

        The run stays open, so its clone stays where it is.
        """
        task = self._task_of(run)
        shown = None if task is None else self.claims.show(task.key)
        if task is None or shown is None or shown.run != run.id or shown.state != "held":
            return
        lease = self.claims.take(task.key, run.id, dead_runs=[run.id])
        if isinstance(lease, Lease):
            why = f"the program died {died} times while it saved the work of run {run.id}"
            self.emit(
                Warned(f"{task.key} waits for a person: {why}, which stays at {self._clone_folder(run)}")
            )
            with suppress(ForgeError):  # the claim says it, too
                retry = Commands(self.repository).retry(task.key)
                tell_waiting(self.forge, task.number, why, self.own_run, retry)
                if task.number is not None:
                    self.forge.remove_label(task.number, WORKING_LABEL)
            lease.release(WAITS, deaths=lease.record.died, why=why)

    def _repair(self, run: Run, dead: list[str]) -> None:
        if run.damage:
            more = f" (and {len(run.damage) - 1} more)" if len(run.damage) > 1 else ""
            found = f"{run.damage[0]}{more}; what can be read of it counts"
            self.emit(Warned(f"the journal of run {run.id}, which was killed, is damaged: {found}"))
        result: dict[str, Any] = {
            "outcome": str(Outcome.INTERRUPTED),
            "error": why_killed(run.folder) or _KILLED,
        }
        task = self._task_of(run)
        if task is not None:
            shown = self.claims.show(task.key)
            is_ours = shown is not None and shown.run == run.id and shown.state == "held"
            # Taken in the dead run's name: if this recovery is killed too, the next start can repeat it.
            taken = self.claims.take(task.key, run.id, dead_runs=dead) if is_ours else shown
            if isinstance(taken, Lease):
                result |= self._save_and_release(run, task, taken)
            else:
                result |= self._result_without_claim(run, taken)
        close_run(run.folder, {**result, "run": run.id}, self.redactor, self.clock)
        if result.get("saved") or result.get("patch"):
            self.emit(WorkSaved(result.get("patch") or "", result.get("saved") or ""))

    def _result_without_claim(self, run: Run, record: ClaimRecord | str | None) -> dict[str, Any]:
        """Return the result of a run that released its claim, or lost it to another worker."""
        # If a person released the claim, it still names this run, and the clone is still there.
        folder = self._clone_folder(run)
        has_clone = folder is not None and folder.exists()
        if isinstance(record, ClaimRecord) and record.run == run.id and not has_clone:
            outcome = record.outcome.partition(" ")[0] or str(Outcome.INTERRUPTED)
            return {"outcome": outcome, **({"error": None} if outcome == Outcome.PROPOSED else {})}
        found = self._as_patch(run)
        why = {"error": f"{why_killed(run.folder) or _KILLED}, and had lost its claim on the task"}
        return found | why if found else {}

    def _save_and_release(self, run: Run, task: TaskTaken, lease: Lease) -> dict[str, Any]:
        """Save the work that the run left, release its claim, and return its result."""
        facts, before = run.facts, lease.previous
        proposed, claim = facts.pull, facts.claim
        result: dict[str, Any] = {}
        if not run.damage and facts.is_completed:
            outcome = str(Outcome.PROPOSED)
            result = {"outcome": outcome, "error": None}
            if found := load_wip(self.records, task.key):
                drop_wip(self.records, task.key, found.commit, lease)
        else:
            result = self._save(run, lease)
            asked = str(Outcome.QUESTION) if facts.question else CRASHED
            outcome = asked if result.get("saved") else str(Outcome.INTERRUPTED)
        if proposed is not None:
            result["pull_request"] = {
                "number": proposed.number,
                "title": proposed.title,
                "url": proposed.url,
            }
        number = proposed.number if proposed else before.pull if before else None
        spent = replace(facts.spent_at_most, minutes=facts.spent.minutes)
        total = (claim.spent_before if claim else Spent()) + spent
        # Not less than the heartbeats recorded: they include requests that broke off.
        lease.release(
            outcome,
            number,
            total.at_least(before.spent) if before else total,
            deaths=0 if outcome == Outcome.PROPOSED else lease.record.died,
            why=""
            if outcome == Outcome.PROPOSED
            else self.redactor.redact(why_killed(run.folder) or _KILLED),
        )
        if task.number is not None:
            with suppress(ForgeError):  # the label only shows the claim's state
                self.forge.remove_label(task.number, WORKING_LABEL)
        return result

    def _save(self, run: Run, lease: Lease) -> dict[str, Any]:
        """Save a dead run's work on the remote; if the remote refuses it, on this machine and as a patch for people.

        Saved work is replaced only by work that contains it. A run that died before it took up what is saved has
        nothing newer.

        Args:
            run: the dead run, locked by the caller.
            lease: the run's claim, taken by the caller.

        Returns:
            The key `saved` or `patch` of a cycle's result; empty if there is nothing to save.
        """
        key = lease.record.task
        before = _Before.of(load_wip(self.records, key), read_kept(self.kept.read(key)), run)
        if before.is_newest:
            return {} if before.work is None else {"saved": wip_ref(key)}
        before = replace(before, tip=self._branch_tip(key))
        clone = self._reopened(run)
        if clone is None:
            return self._save_conversation(run, lease, before)
        with clone:
            try:
                return {"saved": self._save_on_remote(run, lease, clone, before)}
            except WorkspaceError as error:
                if self._is_temporary(error):
                    clone.leave()
                    raise
                self.emit(Warned(f"the work of run {run.id} could not be saved on the remote: {error}"))
                return {"patch": self._write_patch(run, clone)}

    def _save_conversation(self, run: Run, lease: Lease, before: _Before) -> dict[str, Any]:
        """Save the conversation of a run whose files are gone: it is in the journal, and was paid for.

        The calls that wrote the files are not repeated: without secrets, the effects of commands, and perhaps
        on another base, the result could differ from what the model wrote. It sees its earlier calls instead.
        """
        if not run.unbroken.facts.replies or _reached_finish(run.facts):
            return {}
        with self.open_clone() as clone:
            try:
                if not before.is_in_branch:
                    before.restore(clone, wip_ref(lease.record.task))
                return {"saved": self._save_on_remote(run, lease, clone, before, files_lost=True)}
            except WorkspaceError as error:
                if self._is_temporary(error):
                    raise
                self.emit(
                    Warned(f"the conversation of run {run.id} is only in its journal, not saved: {error}")
                )
                return {}

    def _is_temporary(self, error: WorkspaceError) -> bool:
        """Return whether saving may succeed at the next start."""
        return isinstance(error, RemoteUnavailableError) or self.records.remote.cancelled()

    def _as_patch(self, run: Run) -> dict[str, Any]:
        """Save only the changes, as a patch in the run's folder.

        Returns:
            The key `patch`, whose value may be None; empty if the files are gone.
        """
        clone = self._reopened(run)
        if clone is None:
            return {}
        with clone:
            return {"patch": self._write_patch(run, clone)}

    def _clone_folder(self, run: Run) -> Path | None:
        """Return the place of a run's clone, which may be gone; None if it made none."""
        cloned = run.facts.cloned
        if cloned is None and run.damage:
            return find_clone(self.temporary, run.id)
        return Path(cloned.folder) if cloned is not None and cloned.folder else None

    def _reopened(self, run: Run) -> Clone | None:
        folder = self._clone_folder(run)
        if folder is None:
            return None
        try:
            return self.reopen(folder)
        except WorkspaceError as error:
            self.emit(Warned(f"the files of run {run.id}, which was killed, cannot be used: {error}"))
            return None

    def _write_patch(self, run: Run, clone: Clone) -> str | None:
        """Write the changes to a file in the run's folder, and return its path. The clone is kept if that fails."""
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

    def _save_on_remote(
        self, run: Run, lease: Lease, clone: Clone, before: _Before, *, files_lost: bool = False
    ) -> str:
        try:
            clone.leave_rewritten_base(clone.changed_paths(), include_commands=False)
        except BaseConflictError as error:
            raise WorkspaceError(str(error)) from error
        key, touched = lease.record.task, clone.changed_paths()
        # The journal of a run that continued earlier work lacks the earlier conversation.
        continued = before.state if before.has_turns else None
        kept = [*(before.events if continued else ()), *conversation(run.unbroken.events)]
        start, question = run.facts.start, run.facts.question
        state = UnfinishedState(
            run=run.id,
            why=str(Outcome.QUESTION) if question else CRASHED,
            model=start.model if start else "",
            contract=start.contract if start else "",
            profile=start.profile if start else "",
            touched=tuple(sorted(touched)),
            question=question.question if question else "",
            question_url=(question.url or "") if question else "",
            attempts=(continued.attempts if continued else 0) + 1,
            files_lost=files_lost,
            tip=before.tip,
            said=(*(before.state.said if before.state else ()), *_messages_of_person(start, run.events)),
        )
        pages = pages_of(state, trimmed_events(kept), self.redactor)
        replaces = before.contained
        try:
            saved = save_wip(
                clone,
                key,
                pages,
                touched=touched,
                include_commands=False,
                continues=replaces,
                saved_at=self.clock.now(),
                stamp=f"{run.id} recovered by {self.own_run}",
                find_secrets=self._secrets,
                redact=self.redactor.redact,
                lease=lease,
            )
        except WorkspaceError as error:
            if not self._is_temporary(error):
                self._keep_on_this_machine(key, clone, touched, pages, replaces)
            raise
        if before.kept is not None:
            self.kept.remove(key)
        return saved.ref

    def _branch_tip(self, key: str) -> str | None:
        """Return the commit of the task's branch; empty if there is none, None if there are several.

        Nobody of us can have moved it while the claim named the dead run, so the run knew it or pushed it.
        """
        heads = self.records.tips(OUR_BRANCHES)
        tips = [commit for ref, commit in heads.items() if key_of(ref.removeprefix(HEADS)) == key]
        return None if len(tips) > 1 else "".join(tips)

    def _keep_on_this_machine(
        self, key: str, clone: Clone, touched: set[str], pages: Mapping[str, bytes], replaces: str | None
    ) -> None:
        try:
            made = clone.snapshot(
                touched,
                wip_subject(key),
                include_commands=False,
                find_secrets=self._secrets,
                redact=self.redactor.redact,
            )
            self.kept.write(key, files_to_keep(clone.pack(made), pages, replaces))
        except (JournalError, WorkspaceError) as error:
            message = "the work could not be stored on this machine; the next cycle starts without it"
            self.emit(Warned(f"{message}: {error}"))

    def _secrets(self, diff: str) -> list[str]:
        return places_of_secrets(diff, self.redactor.holds_secret)


@dataclass(frozen=True, slots=True)
class _Before:
    """What was saved of a dead run's task before, and what the run did with it.

    Attributes:
        work: what the hidden ref has; None if there is no ref.
        kept: what this machine had, if the run took that up; else None.
        state, events: the state and conversation that count; None and empty if there are none that can be read.
        is_newest: whether the dead run has nothing that they lack.
        contained: the ref's commit, if the run's work contains it or it cannot be read; else None.
        has_turns: whether the run continued the conversation.
        tip: the commit of the task's branch now, as `UnfinishedState.tip`.
    """

    work: UnfinishedWork | None
    kept: Earlier | None
    state: UnfinishedState | None
    events: tuple[Event, ...]
    is_newest: bool
    contained: str | None
    has_turns: bool
    tip: str | None = None

    @classmethod
    def of(cls, work: UnfinishedWork | None, kept: tuple[Earlier, str | None] | None, run: Run) -> _Before:
        """Compare what was saved with the journal of a dead run.

        Args:
            kept: as returned by `read_kept`.
        """
        resumed = run.facts.resumed
        # A damaged journal may have lost them.
        has_replies = run.facts.replies > 0 or bool(run.damage)
        commit = None if work is None else work.commit
        if kept is not None:
            here, replaces = kept
            taken_up = [event for event in resumed if event.run == here.state.run]
            if taken_up or not has_replies:
                contained = commit if commit == replaces else None
                has_turns = any(event.turns > 0 for event in taken_up)
                return cls(work, here, here.state, here.events, not taken_up, contained, has_turns)
        pages = read_saved(work)
        if work is None or pages is None:
            return cls(work, None, None, (), is_newest=False, contained=commit, has_turns=False)
        state, events = pages
        # Older versions did not record the commit.
        taken_up = [
            event for event in resumed if (event.saved == commit if event.saved else event.run == state.run)
        ]
        is_newest = state.run == run.id or not (taken_up or has_replies)
        has_turns = any(event.turns > 0 for event in taken_up)
        return cls(work, None, state, events, is_newest, commit if taken_up else None, has_turns)

    @property
    def is_in_branch(self) -> bool:
        """Whether its files are not needed: they cannot be read, or the dead run pushed a commit that has them."""
        return self.state is None or bool(self.tip and not self.state.knows(self.tip))

    def restore(self, clone: Clone, reference: str) -> None:
        """Restore its files onto a fresh clone."""
        found, packed = (self.work, None) if self.kept is None else (self.kept, self.kept.objects)
        if found is None or found.work is None:
            return
        applied = clone.apply_work(found.work, reference=None if packed else reference, packed=packed)
        if applied.conflicts:
            raise WorkspaceError("the work saved by the cycle before it conflicts with the base")


def _messages_of_person(start: CycleStarted | None, events: tuple[Event, ...]) -> tuple[str, ...]:
    """Return what a person wrote in a run that was a conversation about a task; empty for other runs."""
    is_conversation = start is not None and start.door
    return tuple(turn.said for turn in history_of(events) if is_conversation and turn.kind is TurnKind.USER)


def _reached_finish(facts: RunFacts) -> bool:
    """Return whether a run had reached its last phase with a proposed commit. Then it saved its work itself."""
    return facts.phase is Phase.FINISH and facts.has_proposed
