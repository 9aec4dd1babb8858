"""Builds a conversation at a terminal from the command line's options, in a folder or a repository's clone.

What a person asks for and cannot be done raises a `PullwrightError`, as in `app.wiring`.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.plugins import lacks_of
from orchestrator.app.terminal import known_secrets
from orchestrator.app.wiring import NO_OBSERVERS, BuildContext, Observers
from orchestrator.app.wiring.cycle_parts import (
    Safeguards,
    foreign_tools,
    open_clone_of,
    smallest_request,
)
from orchestrator.app.wiring.foreign_tools import ForeignSources, open_foreign_tools
from orchestrator.app.wiring.guards import (
    GuardMaker,
    choose_sandbox,
    gatekeeper,
    make_environment,
    refuse_tracing,
    rules_in_words,
)
from orchestrator.app.wiring.memory import open_session_memory
from orchestrator.app.wiring.model import choose_model
from orchestrator.app.wiring.program import tell_notices
from orchestrator.app.wiring.repository import choose_site, label_of, place_of, scope_caps
from orchestrator.app.wiring.session_parts import (
    chat_config,
    chat_contract,
    chat_profile_name,
    known_of,
    no_tools,
    open_added_tools,
    profile_completions,
    profile_sources,
)
from orchestrator.bot.coordination.budget import Caps, CycleBudget, Refused
from orchestrator.bot.cycle.finish import write_private
from orchestrator.bot.cycle.parts import Sanitizer
from orchestrator.bot.git.checkpoints import Checkpoints, remove_old
from orchestrator.bot.git.hostgit import end_git_when
from orchestrator.bot.git.opening import remove_clone
from orchestrator.bot.journal.folders import PATCH_NAME, create_run_folder, new_run_id
from orchestrator.bot.journal.reader import is_alive
from orchestrator.bot.journal.records import EventBus
from orchestrator.core.cycle_events import Cloned, CycleEnded, CycleStarted, WorkSaved
from orchestrator.core.errors import BudgetExhaustedError, ConfigurationError, WorkspaceError
from orchestrator.core.event_loop import in_thread
from orchestrator.core.events import Warned
from orchestrator.core.messages import Spent
from orchestrator.core.watchdog import time_limit
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.budget import check_price
from orchestrator.engine.session.config import recalls_nothing
from orchestrator.engine.tools.control import submit
from orchestrator.plugins.chat.conversation import (
    Approvals,
    Conversation,
    ConversationParts,
    with_checkpoints,
)
from orchestrator.plugins.chat.cycles import CycleMaker, FolderProposals, TaskProposals, find_run_to_take
from orchestrator.plugins.chat.operators import TaskOperator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring.memory import SessionMemory
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.repository import OnDisk
    from orchestrator.app.wiring.session_parts import MakeTools
    from orchestrator.bot.cycle.act import CycleSession
    from orchestrator.bot.cycle.attempt import MakeForeignTools
    from orchestrator.bot.cycle.parts import CycleResult, Guards, ProfileSources
    from orchestrator.bot.git.clone import Clone
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import Message
    from orchestrator.engine.environments.base import ExecutionEnvironment, Sandbox
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.loop import SessionEnd
    from orchestrator.engine.tools.base import ForeignTools, Tool
    from orchestrator.plugins.chat.conversation import ApprovalAnswer, EarlierConversation
    from orchestrator.plugins.chat.cycles import PullDraft, RunToTake
    from orchestrator.plugins.mcp.elicitation import PersonAtTerminal

_ASKS = "; you are asked about what needs more"


@dataclass(slots=True)
class ChatProgram:
    """Holds consecutive conversations. The first message of each opens its journal.

    Attributes:
        label: name of the repository or folder in journals.
        folder: the folder where the model works; None until the clone of another repository exists.
        memory: what the conversations remember; None without the plug-in for it.
        servers: creates the tools of other programs, or those of a replayed run.
        begun: the conversation that the next one continues.
        cycles: creates the cycles that propose changes.
        named: the repository that the person named, of which `folder` is a clone.
        task: the cycle whose task the person continues; None in a conversation about a folder.
        draft: the pull request last shown to the person.
        last_end: the end of the last reply; None before the first.
        submits: whether only a call of `submit` ends a reply.
        next_run: the id of the next conversation's run; empty for a new one.
    """

    context: BuildContext
    chosen: ChosenModel
    guards: Guards
    sandbox: Sandbox | None
    bus: EventBus
    door: str
    label: str
    folder: Path | None
    clone_of: Callable[[str], Clone] | None = None
    ask: Callable[[str, str, str], Awaitable[ApprovalAnswer]] | None = None
    added_tools: MakeTools = no_tools
    memory: SessionMemory | None = None
    servers: MakeForeignTools | None = None
    begun: EarlierConversation | None = None
    cycles: CycleMaker | None = None
    named: str | None = None
    task: TaskProposals | None = None
    draft: PullDraft | None = None
    conversation: Conversation | None = None
    clone: Clone | None = None
    last_end: SessionEnd | None = None
    submits: bool = False
    next_run: str = ""
    _stack: ExitStack = field(default_factory=ExitStack)
    _foreign: ForeignTools | None = None
    _proposals: FolderProposals | None = None

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.context.settings

    @property
    def _asks(self) -> bool:
        return self.ask is not None and self.settings.permission == "safe"

    @property
    def model_name(self) -> str:
        """The name of the current model."""
        return self.conversation.session.model.name if self.conversation else self.chosen.model.name

    @property
    def effort(self) -> str | None:
        """The reasoning effort; None for the provider's default."""
        chosen = self.conversation.session if self.conversation else self.settings
        return chosen.reasoning_effort

    @property
    def window(self) -> int | None:
        """The model's context window in tokens; None if it is not known."""
        return self.settings.context_window or self._profile().context_window_size

    @property
    def rules(self) -> str:
        """A one-line summary of what may run."""
        return f"{rules_in_words(self.settings, self.sandbox)}{_ASKS if self._asks else ''}"

    def profile_sources(self, warn: Callable[[str], None]) -> ProfileSources:
        """Return what the profile of the conversation may be completed with."""
        clean = Sanitizer(self.guards, self.bus).text
        return profile_sources(self.clone or self.folder, self.settings.base, clean, warn)

    async def change_model(self, name: str) -> None:
        """Change to another model of the same provider, from the next request on."""
        if self.chosen.other is None:
            raise ConfigurationError("the replies are those of a recorded run: no other model can give them")
        session = (await self.opened()).session
        other = self.chosen.other(name)
        if session.config.max_usd is not None:
            check_price(session.budget, other.price, other.model.name)
        session.model, session.price = other.model, other.price

    async def say(self, message: str | Message) -> SessionEnd:
        """Send a message to the model, and wait for the end of its answer."""
        conversation = await self.opened()
        with time_limit(self.settings.max_minutes):
            self.last_end = await conversation.say(message)
        return self.last_end

    async def draft_pull(self, title: str, *, everything: bool, repository: str | None) -> PullDraft:
        """Create a pull request draft for the person to look at: see `FolderProposals.draft`."""
        self.draft, conversation = None, await self.opened()
        self.draft = await self._makes_pulls.draft(
            conversation, title, everything=everything, repository=repository
        )
        return self.draft

    async def propose(self) -> CycleResult:
        """Propose the draft that was last shown to the person."""
        draft, self.draft = self.draft, None
        if draft is None:
            raise ConfigurationError("type /pr first: it shows what would be proposed")
        return await self._makes_pulls.propose(await self.opened(), draft)

    @property
    def _makes_pulls(self) -> FolderProposals | TaskProposals:
        if self.task is not None:
            return self.task
        if self._proposals is None:
            if self.cycles is None or self.folder is None:
                raise AssertionError("a conversation has a folder")
            self._proposals = FolderProposals(self.cycles, self.folder, self.clone, self.named)
        return self._proposals

    async def opened(self) -> Conversation:
        """Return the conversation. Open it and its journal if necessary."""
        end_git_when(self.context.stop.now_unless_saving)
        if self.task is not None:
            self.conversation = await self.task.begin()
        if self.conversation is None:
            run = self.next_run or new_run_id(self.context.clock.now(), random.SystemRandom())
            self.next_run = ""
            folder = create_run_folder(self.context.home, run)
            with ExitStack() as stack:
                stack.enter_context(self.context.recording(self.bus, folder))
                self.bus(self._first_event(run))
                try:
                    self.conversation = await self._begin(run, folder)
                except BaseException as error:
                    await self._end_servers()
                    self.bus(CycleEnded({"outcome": "failed", "run": run, "error": str(error)}))
                    raise
                self._stack = stack.pop_all()
        return self.conversation

    async def end(self, error: BaseException | None = None) -> CycleResult | None:
        """End the conversation and its journal, and return its result; None if nothing was said.

        The next message opens another conversation.

        Args:
            error: the error that ended the conversation, if any.
        """
        conversation, self.conversation, self.begun, self.draft = self.conversation, None, None, None
        self._proposals = None
        if conversation is None or self.task is not None:
            return None
        with self._stack:
            try:
                await conversation.close()
            finally:
                await self._end_servers()
                result = conversation.result(self.last_end, error)
                self.last_end = None
                self.bus(CycleEnded(result.to_json()))
        return result

    async def close(self) -> list[str]:
        """End the conversation, close connections, remove the clone, and return lines for the person."""
        conversation = self.conversation
        with self.context.stop.saving():
            patch = await self._keep_changes(conversation) if conversation else None
        await self.end()
        lines = await self.task.end() if self.task else []
        await self.chosen.model.aclose()
        if self.memory is not None:
            await self.memory.aclose()
        if self.clone is not None:
            await remove_clone(self.clone, lines.append, ends=self.context.stop.now())
        if patch:
            lines.append(f"The changes in the clone are saved in {patch} (apply them with git apply).")
        return lines

    async def _end_servers(self) -> None:
        foreign, self._foreign = self._foreign, None
        if foreign is not None:
            await foreign.close()

    async def _keep_changes(self, conversation: Conversation) -> Path | None:
        """Save the changes in the clone as a patch in the run's folder, and return its path.

        Without changes, return None.
        """
        if self.clone is None:
            return None
        changed = await asyncio.to_thread(self.clone.changed_paths)
        patch = await asyncio.to_thread(
            self.clone.pending_patch, changed, include_commands=True, pushed=False
        )
        if not patch.strip():
            return None
        path = self.context.home.runs / conversation.parts.run / PATCH_NAME
        await asyncio.to_thread(write_private, path, patch)
        self.bus(WorkSaved(str(path)))
        return path

    def _first_event(self, run: str) -> CycleStarted:
        settings = self.settings
        return CycleStarted(
            run,
            self.label,
            self.chosen.model.name,
            chat_contract(settings, submits=self.submits).name,
            self.rules,
            self._profile_name,
            door=self.door,
        )

    async def _begin(self, run: str, folder: Path) -> Conversation:
        context, settings = self.context, self.settings
        budget = CycleBudget(context.home, context.clock, scope_caps(settings))
        granted = await budget.open(folder, Spent(), self.bus, smallest_request(settings, self.chosen))
        if isinstance(granted, Refused):
            raise BudgetExhaustedError(granted.reason)
        work = await self._open_folder(run)
        own = self.clone is not None
        environment = make_environment(context, self.sandbox, work, own_repository=own)
        await environment.initialize()
        parts = await self._parts(run, work, environment, granted)
        return Conversation(parts, self.begun)

    async def _parts(
        self, run: str, work: Path, environment: ExecutionEnvironment, caps: Caps
    ) -> ConversationParts:
        """Create the parts of a conversation in a folder."""
        context, settings = self.context, self.settings
        if self.servers is not None:
            clean = Sanitizer(self.guards, self.bus).text
            self._foreign = self.servers(work, clean, self.bus)
        foreign = await self._foreign.open() if self._foreign else ()
        stores = context.home.cache / "checkpoints"
        earlier = [stores / name for name in self.begun.runs] if self.begun else []
        checkpoints = await asyncio.to_thread(
            Checkpoints, work, stores / run, lambda text: self.bus(Warned(text)), earlier
        )
        # The checkpoints of earlier conversations may exceed the available room.
        with suppress(WorkspaceError):
            await asyncio.to_thread(remove_old, stores, lambda run: is_alive(context.home.runs / run))
        return ConversationParts(
            run=run,
            model=self.chosen.model,
            price=self.chosen.price,
            profile=with_checkpoints(await self._complete(self._profile(foreign)), checkpoints),
            contract=chat_contract(settings, submits=self.submits),
            environment=environment,
            config=chat_config(settings, self.chosen, caps),
            guards=self.guards,
            clock=context.clock,
            emit=self.bus,
            checkpoints=checkpoints,
            approve=Approvals(self.ask, self.bus) if self.ask else None,
            recall=self.memory.recall(self._profile_name) if self.memory else recalls_nothing,
        )

    async def converse(self, session: CycleSession) -> Conversation:
        """Open the conversation about the task that the person continues, on the clone of its cycle."""
        task, attempt, limits = self.task, session.attempt, session.attempt.parts.limits
        if task is None:
            raise AssertionError("a task was taken up")
        self.folder, self.guards = session.clone.tree, attempt.parts.guards
        caps = Caps(limits.usd, limits.tokens, limits.minutes, limits.rounds)
        parts = await self._parts(attempt.parts.run, self.folder, session.environment, caps)
        told = "\n\n".join(filter(None, (parts.config.user_instructions, TaskOperator.situation(session))))
        own = replace(
            parts,
            config=replace(parts.config, user_instructions=told),
            emit=attempt.emit,
            ledger=session.ledger,
            on_say=task.said,
            owns_environment=False,
        )
        return Conversation(own, task.begun)

    async def _open_folder(self, run: str) -> Path:
        """Return the folder to work in. At the first call, clone the repository if one is named."""
        if self.clone_of is not None and self.clone is None:
            clone = self.clone = await in_thread(
                partial(self.clone_of, run), undo=lambda clone: clone.close()
            )
            files = await asyncio.to_thread(clone.tracked_files)
            self.bus(Cloned(clone.base_commit, clone.base_branch, len(files)))
            self.folder = clone.tree
        if self.folder is None:
            raise AssertionError("a conversation has a folder")
        return self.folder

    @property
    def _profile_name(self) -> str:
        return chat_profile_name(self.settings, self.chosen)

    async def _complete(self, profile: Profile) -> Profile:
        """Return the profile with what plug-ins add to it."""
        completions, warnings = profile_completions(self.settings), list[str]()
        if completions:
            sources = await asyncio.to_thread(self.profile_sources, warnings.append)
            for complete in completions:
                profile = await asyncio.to_thread(complete, profile, sources)
        for warning in warnings:
            self.bus(Warned(warning))
        return profile

    def _profile(self, foreign: tuple[Tool, ...] = ()) -> Profile:
        name = self._profile_name
        memory = self.memory.tools(name, attended=self.ask is not None) if self.memory else ()
        custom = (*memory, *self.added_tools(name), *foreign)
        if self.submits:
            custom = (*custom, submit())
        return known_of(make_profile(name, custom=custom), self.chosen)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The subject of a conversation. For attributes with the same name see `ChatProgram`.

    Attributes:
        repository: the repository that is named; empty in the folder where the person is.
        here: that folder.
        taken: the run whose task is continued.
    """

    label: str
    repository: str = ""
    here: OnDisk | None = None
    folder: Path | None = None
    clone_of: Callable[[str], Clone] | None = None
    taken: RunToTake | None = None


def _subject(context: BuildContext, cwd: Path, repository: str | None, run: str | None) -> _Subject:
    if run is not None:
        taken = find_run_to_take(context.home, run)
        return _Subject(taken.repository, taken.repository, taken=taken)
    if repository is not None:
        site = choose_site(repository, context, writes=False)

        def clone_of(run: str) -> Clone:
            return open_clone_of(site, context, run, Path(tempfile.gettempdir()), with_git=True)

        return _Subject(site.label, site.label, clone_of=clone_of)
    here = place_of(cwd)
    return _Subject(here.label, here=here, folder=cwd)


def _proposals(program: ChatProgram, cycles: CycleMaker, taken: RunToTake) -> TaskProposals:
    """Create the cycle of a continued task, in which a person works by a conversation."""
    form = {
        "contract": program.settings.contract or "native",
        "profile": chat_profile_name(program.settings, program.chosen),
    }
    loaded = replace(program.context.loaded, settings=program.settings.model_copy(update=form))
    cycles = replace(cycles, context=replace(program.context, loaded=loaded), door=program.door)
    return TaskProposals(cycles, taken, program.bus, program.converse)


def build_chat(  # noqa: PLR0913, PLR0917  what a person gave, where, and who looks on
    door: str,
    repository: str | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    view: Emit,
    *,
    ask: Callable[[str, str, str], Awaitable[ApprovalAnswer]] | None = None,
    person: PersonAtTerminal | None = None,
    run: str | None = None,
    dry_run: bool = False,
    observers: Observers = NO_OBSERVERS,
) -> ChatProgram:
    """Read the configuration and build what a conversation needs.

    No other machine is contacted.

    Args:
        door: `chat` or `ask`.
        repository: value of `--repo`, to work in a clone of it; None to work in `cwd`.
        ask: asks the person about calls above the permission level; None if nobody can be asked.
        person: shows pages and questions of MCP servers; None if nobody is there.
        run: the run whose task is continued, in its repository; None for a conversation without a task.
        dry_run: whether proposals are only shown, not pushed.
        observers: see the events of every run of this process.
    """
    redactor = known_secrets(environ)
    bus = EventBus(view, redactor)
    named = partial(label_of, repository or str(cwd))
    context = BuildContext.of(
        flags, environ, cwd, emit=bus, observers=observers, redactor=redactor, named=named
    )
    settings, chosen = context.settings, choose_model(context)
    bus.observers = observers.follow(chosen.api_url)
    foreign = open_foreign_tools(context, person) if chosen.foreign is None else ForeignSources()

    def guards_for(settings: Settings) -> Guards:
        keeper = replace(gatekeeper(settings, redactor.holds_secret), asks=ask is not None)
        return replace(GuardMaker(redactor)(settings), gate=keeper, shows=keeper.shows)

    lacks = lacks_of(chat_profile_name(settings, chosen))
    tell_notices(context, (*foreign.notices, *lacks))
    asks_without_sandbox = settings.sandbox == "off" and ask is not None
    refuse_tracing(settings, others=asks_without_sandbox or foreign.runs_unconfined)
    subject = _subject(context, cwd, repository, run)
    sandbox = choose_sandbox(settings)
    cycles = CycleMaker(context, chosen, Safeguards(redactor, guards_for, sandbox), view, dry_run)
    program = ChatProgram(
        context=context,
        chosen=chosen,
        guards=guards_for(settings),
        sandbox=sandbox,
        bus=bus,
        door=door,
        label=subject.label,
        folder=subject.folder,
        clone_of=subject.clone_of,
        ask=ask,
        added_tools=open_added_tools(context),
        memory=open_session_memory(context, subject.repository, subject.here),
        servers=foreign_tools(chosen, foreign),
        cycles=cycles,
        named=repository,
    )
    if subject.taken is not None:
        program.task = _proposals(program, cycles, subject.taken)
    return program
