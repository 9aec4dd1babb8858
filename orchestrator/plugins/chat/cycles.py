"""The cycles of a conversation: one that proposes its changes, and one whose task a person continues.

A `ConfigurationError` says why a task or a change cannot be taken: it cannot be claimed, the claim was lost, or the
files have changed since the draft; a `ToolError` why a proposal was refused. Other `PullwrightError`s are those of
git and the forge.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.app.wiring.cycle_parts import RunParts, TaskRequest
from orchestrator.app.wiring.program import Program, RunRequest, select_task, typed_repository
from orchestrator.app.wiring.repository import (
    choose_site,
    commands_for,
    commands_here,
    place_of,
    proposal_place,
)
from orchestrator.bot.cycle.folder_operator import FolderOperator
from orchestrator.bot.cycle.parts import Outcome, Stop
from orchestrator.bot.git.work import ChangeBase, find_base
from orchestrator.bot.journal.reader import find_run, is_alive, read_run
from orchestrator.bot.journal.records import EventBus
from orchestrator.bot.suggestions import PROGRAM, Commands
from orchestrator.bot.worker.backlog import TaskSelection
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.core.event_loop import in_thread
from orchestrator.engine.session.history import history_of, todos_of
from orchestrator.plugins.chat.conversation import begun_in
from orchestrator.plugins.chat.operators import TaskOperator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.cycle_parts import Safeguards
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.repository import OnDisk, Site
    from orchestrator.bot.cycle.act import CycleSession, Operator
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.work import FolderChange
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.cycle_events import TaskTaken
    from orchestrator.core.events import Emit
    from orchestrator.engine.session.session import Session
    from orchestrator.plugins.chat.conversation import Conversation, EarlierConversation
    from orchestrator.plugins.chat.operators import TaskChange

_SHORT = 10
ChangeT = TypeVar("ChangeT", "FolderChange", "TaskChange")


@dataclass(frozen=True, slots=True)
class PullDraft:
    """A pull request as it is shown to a person before anything is pushed.

    Attributes:
        where: the repository.
        branch: the branch that the pull request is to be merged into.
        note: a further note for the person; empty if there is none.
        everything: whether the person's own changes are included.
        insists: whether the same change was refused before.
        commands: the commands named in messages.
    """

    title: str
    body: str
    where: str
    branch: str
    change: FolderChange | TaskChange
    note: str
    everything: bool
    insists: bool
    commands: Commands


@dataclass(frozen=True, slots=True)
class CycleMaker:
    """Creates programs for a cycle in which a person takes the place of the model's loop."""

    context: BuildContext
    chosen: ChosenModel
    safeguards: Safeguards
    view: Emit
    dry_run: bool = False
    door: str = ""

    def commands(self, site: Site) -> Commands:
        """Return the commands about the site's tasks that messages name."""
        return commands_for(site)

    def make(self, site: Site, wanted: TaskSelection, operator: Operator, bus: EventBus) -> Program:
        """Create the program. Its events go to the bus."""
        shared = RunParts(
            replace(self.context, emit=bus, stop=Stop()),
            site,
            self.chosen,
            self.safeguards,
            TaskRequest(wanted, dry_run=self.dry_run, commands=self.commands(site)),
            operator=operator,
            door=self.door,
        )
        return Program(shared, bus)


@dataclass(slots=True)
class FolderProposals:
    """Proposes a conversation's changes in a folder, by a cycle without a model.

    Args:
        folder: folder of the conversation.
        clone: the clone that the folder belongs to, if it is one of ours.
        named: the repository that a person named when the program started.
    """

    maker: CycleMaker
    folder: Path
    clone: Clone | None = None
    named: str | None = None
    _refused: str = ""
    _target: tuple[Site, ChangeBase] | None = None

    async def draft(
        self, conversation: Conversation, title: str, *, everything: bool, repository: str | None
    ) -> PullDraft:
        """Create a pull request draft for the person to look at. Nothing is pushed.

        Args:
            title: title of the pull request; if empty, the model writes title and text.
            everything: whether to include the person's own changes.
            repository: target as `--repo` names it; None for the folder's own repository.
        """
        site, here = await in_thread(self._site, repository)
        branch = (await asyncio.to_thread(site.source)).branch
        is_here = site.is_local and site.label == here.label
        base = await asyncio.to_thread(self._base, branch, is_here=is_here)
        make = partial(conversation.parts.checkpoints.proposal, base, everything=everything)
        change, title, body = await _with_title(conversation, title, make)
        self._target = site, base
        loaded = self.maker.context.loaded
        commands = await in_thread(commands_here, self.maker.commands(site), loaded, self.folder)
        note = ""
        if base.commit != base.head:
            note = f"on top of {base.commit[:_SHORT]}: your commits after that are not on {branch}"
        return PullDraft(
            title,
            body,
            site.label,
            branch,
            change,
            note,
            everything,
            change.tree == self._refused,
            commands,
        )

    def _site(self, repository: str | None) -> tuple[Site, OnDisk]:
        """Return where the change is proposed, and the folder's own repository."""
        context, here = self.maker.context, place_of(self.folder)
        where = repository or self.named or proposal_place(here, context.settings)
        return choose_site(where, context, writes=not self.maker.dry_run), here

    def _base(self, branch: str, *, is_here: bool) -> ChangeBase:
        clone = self.clone
        if clone is None:
            return find_base(self.folder, branch, is_here=is_here)
        return ChangeBase(
            clone.base_commit, clone.base_commit, clone.tree, "", clone.git.git_dir, clone.index
        )

    async def propose(self, conversation: Conversation, draft: PullDraft) -> CycleResult:
        """Propose the draft that the person saw."""
        if self._target is None:
            raise AssertionError("the person was shown something")
        (site, base), parts = self._target, conversation.parts
        again = partial(parts.checkpoints.proposal, base, everything=draft.everything)
        change = await asyncio.to_thread(again)
        _require_same(change.tree, draft)
        events = begun_in(self.maker.context.home, parts.run).events
        spent = conversation.spent_in_all
        is_whole = draft.everything or parts.checkpoints.is_whole
        operator = FolderOperator(
            parts.run, change, draft.title, draft.body, spent, events, is_whole, draft.insists
        )
        wanted = TaskSelection(conversation=(conversation.first_run, draft.title))
        chosen = replace(self.maker.chosen, model=conversation.session.model)
        maker = replace(self.maker, chosen=chosen)
        bus = EventBus(self.maker.view, self.maker.context.redactor)
        bus.observers = self.maker.context.observers.follow(self.maker.chosen.api_url)
        program = maker.make(site, wanted, operator, bus)
        try:
            result = await _run_to_end(program)
        finally:
            await program.close_records()
        self._refused = change.tree if operator.refusal else ""
        url = (result.pull_request.url or "") if result.pull_request else ""
        if url or operator.refusal:
            conversation.proposed(url, operator.refusal)
        return result


async def _with_title(
    conversation: Conversation, title: str, make: Callable[[], ChangeT]
) -> tuple[ChangeT, str, str]:
    """Make a change, and return it with its title and text. The model writes both if there is no title."""
    change = await asyncio.to_thread(make)
    if title:
        return change, title, ""
    title, body = await conversation.describe(change.diff)
    return await asyncio.to_thread(make), title, body  # the model may have changed something


def _require_same(tree: str, draft: PullDraft) -> None:
    if tree != draft.change.tree:
        raise ConfigurationError(
            "the files have changed since you saw the proposal: type /pr to see it again"
        )


async def _run_to_end(program: Program) -> CycleResult:
    """Run a cycle. If the caller is cancelled, end the cycle, which still releases what it holds."""
    cycle = asyncio.ensure_future(program.cycle())
    try:
        return await asyncio.shield(cycle)
    except asyncio.CancelledError:
        program.stop.at_once()
        cycle.cancel()
        await asyncio.wait([cycle])
        raise


@dataclass(frozen=True, slots=True)
class RunToTake:
    """A run whose task a person can continue.

    Attributes:
        repository: the repository as `--repo` names it.
        begun: the conversation of the run.
    """

    run: str
    repository: str
    task: TaskTaken
    begun: EarlierConversation


def find_run_to_take(home: Home, name: str) -> RunToTake:
    """Find the run of a cycle that made no pull request.

    Raises:
        JournalError: there is no such run, it is damaged, or it has no conversation.
        ConfigurationError: the run is in progress, or has nothing to continue; the message says what to do.
    """
    folder = find_run(home, name)
    facts = read_run(folder).facts
    start, task, result = facts.start, facts.task, facts.result or {}
    if is_alive(folder):
        raise ConfigurationError(
            f"run {folder.name} is in progress: wait for its end, or stop it with Ctrl+C"
        )
    if start is None or task is None:
        remedy = (
            f"{PROGRAM} chat --resume {folder.name}"
            if start and start.door
            else "name one that worked on a task"
        )
        raise ConfigurationError(f"run {folder.name} has no task to continue: {remedy}")
    again = f"let a new cycle work: {Commands(start.repository).retry(task.key)}"
    if result.get("outcome") == "planned":
        raise ConfigurationError(f"run {folder.name} was a dry run, which keeps nothing: {again}")
    if result.get("outcome") == "proposed":
        pull = result.get("pull_request") or {}
        url = str(pull.get("url"))
        address = url if url.startswith("http") else f"#{pull.get('number')}"
        raise ConfigurationError(
            f"run {folder.name} is over with its pull request {address}: comment there, or {again}"
        )
    begun = begun_in(home, folder.name)
    return RunToTake(folder.name, typed_repository(start.repository), task, begun)


class TaskProposals:
    """A cycle whose task a person continues. It holds the claim and the clone until the person leaves.

    Attributes:
        taken: the run that is continued.
    """

    def __init__(
        self,
        maker: CycleMaker,
        taken: RunToTake,
        bus: EventBus,
        converse: Callable[[CycleSession], Awaitable[Conversation]],
    ) -> None:
        self.taken = taken
        self._operator = TaskOperator(converse, taken.begun.events)
        site = choose_site(taken.repository, maker.context, writes=True)
        request = RunRequest(taken.repository, text=taken.task.key)
        wanted = select_task(request, maker.context.home, site.label)
        self._program = maker.make(site, wanted, self._operator, bus)
        self._commands = maker.commands(site)
        self._cycle: asyncio.Future[CycleResult] | None = None
        self._change: TaskChange | None = None

    @property
    def begun(self) -> EarlierConversation:
        """The conversation so far, as the last cycle on the task left it. `taken` may be an earlier cycle."""
        session, begun = self._operator.session, self.taken.begun
        if session is None:
            return begun
        earlier, begun = session.earlier, replace(begun, files=len(session.restored.paths))
        if earlier is None or not earlier.events:
            return begun
        return replace(begun, turns=tuple(history_of(earlier.events)), todos=todos_of(earlier.events))

    def said(self, session: Session, words: str) -> None:
        """Record a message of the person in this session."""
        self._operator.record_message(session, words)

    async def begin(self) -> Conversation:
        """Claim the task, restore its unfinished work, and return the conversation when it is ready."""
        if self._cycle is None:
            self._cycle = asyncio.ensure_future(self._program.cycle())
        ready = asyncio.ensure_future(self._operator.ready())
        waited: list[asyncio.Future[Any]] = [self._cycle, ready]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.end(at_once=True)
            raise
        if self._cycle.done():
            ready.cancel()
            result = self._cycle.result()
            raise ConfigurationError(result.error or result.reason or f"the cycle ended: {result.outcome}")
        return ready.result()

    @property
    def words(self) -> str:
        """The introduction that is shown before the first message."""
        session, task = self._operator.session, self.taken.task
        asked = self._operator.question
        lines = [f"You continue {task.key}: {task.title}", *([f"It had asked: {asked}"] if asked else [])]
        if session and (paths := session.attempt.sanitizer.paths(session.restored.paths)):
            lines.append(f"Changed so far: {', '.join(paths)}")
        if session:
            lines.append(f"The files are in {session.clone.tree} as long as you talk.")
        return "\n".join(lines)

    async def draft(
        self, conversation: Conversation, title: str, *, everything: bool, repository: str | None
    ) -> PullDraft:
        """Create the draft of the task's own pull request. See `FolderProposals.draft`."""
        if repository is not None:
            raise ConfigurationError(
                "the task's pull request goes to the task's repository: leave --repo out"
            )
        make = partial(self._operator.change, everything=everything)
        change, title, body = await _with_title(conversation, title, make)
        self._change, session = change, self._operator.session
        if session is None:
            raise AssertionError("the person has a session")
        task = session.attempt.task
        note = f"for {task.key}" if task.pull is None else f"updates {task.pull.address}"
        return PullDraft(
            title,
            body,
            self._program.shared.site.label,
            session.clone.base_branch,
            change,
            note,
            everything,
            change.insists,
            self._commands,
        )

    async def propose(self, conversation: Conversation, draft: PullDraft) -> CycleResult:
        """Propose the draft that the person saw, as the task's pull request."""
        change = await asyncio.to_thread(self._operator.change, everything=draft.everything)
        _require_same(change.tree, draft)
        try:
            result = await self._operator.propose(
                draft.title, draft.body, replace(change, insists=draft.insists)
            )
        except ToolError as error:
            conversation.proposed("", str(error))
            raise
        conversation.proposed((result.pull_request.url or "") if result.pull_request else "", "")
        return result

    async def end(self, *, at_once: bool = False) -> list[str]:
        """End the cycle, and return lines that the person should see.

        Args:
            at_once: whether to stop waiting for answers of other machines.
        """
        cycle = self._cycle
        if cycle is None:
            return []
        self._operator.leave()
        if at_once:
            self._program.stop.at_once()
            cycle.cancel()
        await asyncio.wait([cycle])
        await self._program.close_records()
        if cycle.cancelled() or (result := cycle.result()).outcome is Outcome.PROPOSED:
            return []
        key = self.taken.task.key
        lines = [f"Failed: {result.error}"] if result.error else []
        if result.saved or result.patch:
            lines.append(f"The changes are saved in {result.saved or result.patch}.")
        command = f"{PROGRAM} run --repo {quote(self.taken.repository)} --task {quote(key)}"
        return [
            *lines,
            f"{command} continues in a cycle.",
            f"{PROGRAM} chat --run {result.run} continues here.",
        ]
