"""Builds the objects of one cycle from its effective settings: tools, tasks, claims, budget, clone."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from orchestrator.app.wiring.foreign_tools import ForeignSources
from orchestrator.app.wiring.guards import (
    chosen_tests,
    host_runs,
    make_environment,
    rules_in_words,
    runs_commands,
)
from orchestrator.app.wiring.memory import CycleSources
from orchestrator.app.wiring.repository import backlog_rules, kept_work, make_claims, new_nonce, scope_caps
from orchestrator.app.wiring.session_parts import (
    cycle_contract,
    cycle_profile,
    cycle_profile_name,
    first_text,
    no_tools,
    profile_completions,
    same_named,
    session_config,
)
from orchestrator.bot.coordination.budget import Caps, CycleBudget, RepositoryLedger
from orchestrator.bot.cycle.attempt import CycleParts
from orchestrator.bot.cycle.claimer import Claimer
from orchestrator.bot.cycle.parts import CycleOptions
from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.folders import address_key
from orchestrator.bot.git.opening import open_clone, reopen_clone
from orchestrator.bot.journal.folders import RefusedIssues
from orchestrator.bot.journal.notes import kept_answer
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker.backlog import Backlog, ConversationTasks, LastSearch, TaskSelection
from orchestrator.bot.worker.recovery import Recovery
from orchestrator.bot.worker.task_rules import TaskAuthorization, as_lines, filter_answers
from orchestrator.core.cycle_events import CycleStarted
from orchestrator.core.events import Warned
from orchestrator.engine.session.budget import MIN_REPLY_TOKENS, Limits, Need

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.foreign_tools import ForeignSource
    from orchestrator.app.wiring.memory import SessionMemory
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.repository import Site
    from orchestrator.app.wiring.session_parts import MakeTools
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.act import Operator
    from orchestrator.bot.cycle.attempt import CycleMemory, MakeForeignTools
    from orchestrator.bot.cycle.parts import Guards
    from orchestrator.bot.forge.base import AttachmentPlace
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.changes import FileChange
    from orchestrator.core.messages import Message
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import Sandbox
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.calls import ToolRunner
    from orchestrator.engine.session.loop import Inputs, SessionEnd
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.tools.control import MayFinish, Propose, RunTests


LEAST_INPUT_TOKENS = 1_000
"""Lower bound for the tokens of a first request, with system prompt, tools and task."""


@dataclass(frozen=True, slots=True)
class Safeguards:
    """The protections shared by the cycles of a run.

    Attributes:
        guards: creates the checks for settings.
        sandbox: sandbox for commands; None if no command can run, or with `--sandbox off`.
        setup_sandbox: sandbox for the set-up of tests if that may reach more hosts than other commands; else
            None.
    """

    redactor: Redactor
    guards: Callable[[Settings], Guards]
    sandbox: Sandbox | None
    setup_sandbox: Sandbox | None = None


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """The request of a person.

    Attributes:
        wanted: the task, if one was named.
        only: key of the only task that a cycle may take; empty for any. Set by a scheduler, unlike `wanted`.
        thread: number of the only issue or pull request that a cycle may take; None for any. Set by an event.
        answer: the person's answer to the question that the task waits with.
        dry_run: whether to push nothing and write nothing to the forge.
        commands: the commands named in messages.
    """

    wanted: TaskSelection = TaskSelection()  # noqa: RUF009  a frozen value
    answer: str | None = None
    dry_run: bool = False
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    only: str = ""
    thread: int | None = None


@dataclass(slots=True)
class BacklogMemory:
    """The knowledge of a process about a backlog, kept between two cycles.

    Attributes:
        attempted: keys of the tasks that it has tried.
        idle: result of the last search, used while nothing has changed.
        refused: issues that nobody with the permission asked for.
    """

    attempted: set[str] = field(default_factory=set)
    idle: LastSearch = field(default_factory=LastSearch)
    refused: RefusedIssues | None = None

    def forget(self) -> None:
        """Allow the next cycle to try again what was tried before."""
        self.attempted.clear()
        self.idle = LastSearch(warned=self.idle.warned)


class WorkerProgram(Protocol):
    """A program that works on tasks in place of the model's loop, under the settings of one cycle."""

    @property
    def name(self) -> str:
        """Its name in messages and journals."""

    def profile(
        self,
        propose: Propose,
        may_finish: MayFinish,
        tests: RunTests | None = None,
        foreign: tuple[Tool, ...] = (),
    ) -> Profile:
        """Create the profile with the tools that the host has for it."""

    async def work(
        self,
        protect: Callable[[FileChange], str | None],
        message: Message,
        inputs: Inputs,
        runner: ToolRunner,
    ) -> SessionEnd:
        """Work on an input: see `Worker`. `protect` returns why the change to a file waits for a person, or None."""


MakeWorker: TypeAlias = "Callable[[Settings], WorkerProgram]"
"""Prepares a program for the settings of one cycle; raises `ConfigurationError` if it cannot work under them."""


@dataclass(frozen=True, slots=True)
class RunParts:
    """The objects shared by the cycles of one run.

    Attributes:
        added_tools: makes the tools of the plug-ins.
        foreign: creates the tools that other programs run.
        long_term: what the sessions remember; None without it.
        operator: a person who takes the place of the model's loop; None without one.
        worker: prepares the program that works in place of the model's loop; None lets the loop work.
        door: see `CycleStarted`.
    """

    context: BuildContext
    site: Site
    chosen: ChosenModel
    safeguards: Safeguards
    request: TaskRequest = TaskRequest()
    added_tools: MakeTools = no_tools
    memory: BacklogMemory = field(default_factory=BacklogMemory)
    long_term: SessionMemory | None = None
    foreign: ForeignSource = ForeignSources()  # noqa: RUF009  a frozen value
    operator: Operator | None = None
    worker: MakeWorker | None = None
    door: str = ""

    @property
    def settings(self) -> Settings:
        """The settings that the person chose."""
        return self.context.settings


def first_event(shared: RunParts, run: str) -> CycleStarted:
    """Return the first event of a cycle."""
    settings, chosen, site = shared.settings, shared.chosen, shared.site
    worker = shared.worker(settings) if shared.worker else None
    return CycleStarted(
        run,
        site.label,
        chosen.model.name,
        _contract(settings, chosen, worker).name,
        rules_in_words(settings, shared.safeguards.sandbox),
        _profile_name(settings, chosen, worker),
        site.origin,
        shared.door,
        shared.context.loaded.typed,
    )


def _clone_opener(shared: RunParts, run: str) -> Callable[[Path], Clone]:
    # A person may allow commands that the settings do not grant, and other programs look for a repository.
    with_git = True if shared.operator or shared.worker else None
    return partial(open_clone_of, shared.site, shared.context, run, with_git=with_git)


def make_parts(
    shared: RunParts, open_records: Callable[[], Records], run: str, folder: Path, settings: Settings
) -> CycleParts:
    """Create the parts of the cycle `run`.

    Args:
        open_records: opens the remote's hidden refs. A dry run only reads them.
    """
    context, site, chosen = shared.context, shared.site, shared.chosen
    hidden = None if shared.request.dry_run else _hidden_refs(open_records(), context)
    worker = shared.worker(settings) if shared.worker else None
    profile, guards = _profile_name(settings, chosen, worker), shared.safeguards.guards(settings)
    budget = _make_budget(hidden.records if hidden else None, context, settings)
    claimer = _make_claimer(shared, hidden, run, settings, guards, budget) if hidden else None
    backlog = _make_backlog(shared, settings, guards, claimer)
    return CycleParts(
        run=run,
        folder=folder,
        repository=site.label,
        forge=site.forge,
        model=chosen.model,
        contract=_contract(settings, chosen, worker),
        open_clone=_clone_opener(shared, run),
        environment=partial(make_environment, context, shared.safeguards.sandbox),
        profile=worker.profile if worker else _profile_maker(shared, profile),
        guards=guards,
        profile_name=profile,
        limits=Limits(settings.max_rounds, settings.max_tokens, settings.max_usd, settings.max_minutes),
        price=chosen.price,
        options=_options(settings, site, chosen, dry_run=shared.request.dry_run),
        records=hidden.records if hidden else None,
        statements=context.home.statements,
        kept=hidden.kept if hidden else None,
        clock=context.clock,
        emit=context.emit,
        stop=context.stop,
        tasks=backlog,
        claimer=claimer,
        recover=_make_recovery(shared, hidden, run).recover if hidden else None,
        budget=budget,
        least=smallest_request(settings, chosen),
        verifier=_verifier_maker(shared, settings) if settings.test_command else None,
        recorded_tests=chosen.tests,
        memory=_memory_of_cycle(shared, guards, backlog, claimer, open_records, profile),
        foreign_tools=foreign_tools(chosen, shared.foreign),
        download=_download,
        completions=profile_completions(settings),
        operator=shared.operator,
        worker=partial(worker.work, guards.protect) if worker else None,
    )


def _contract(settings: Settings, chosen: ChosenModel, worker: WorkerProgram | None) -> Contract:
    """Return the contract of the session; a program that works in place of the loop calls tools by itself."""
    from orchestrator.engine.contracts.native import Native

    return Native() if worker else cycle_contract(settings, chosen)


def _profile_name(settings: Settings, chosen: ChosenModel, worker: WorkerProgram | None) -> str:
    return f"agent-{worker.name}" if worker else cycle_profile_name(settings, chosen)


def _verifier_maker(shared: RunParts, settings: Settings) -> Callable[[Clone], Verifier | None]:
    site, context, guarded = shared.site, shared.context, shared.safeguards

    def verifier(clone: Clone) -> Verifier | None:
        options = chosen_tests(context, guarded.sandbox, settings, clone)
        if options is None:
            return None
        setup = guarded.setup_sandbox
        return host_runs(site, context, guarded.sandbox, options, clone, setup_sandbox=setup)

    return verifier


def _make_budget(records: Records | None, context: BuildContext, settings: Settings) -> CycleBudget:
    ledger = RepositoryLedger(records, context.clock, new_nonce) if records else None
    return CycleBudget(context.home, context.clock, scope_caps(settings), ledger)


def _hidden_refs(records: Records, context: BuildContext) -> _Hidden:
    return _Hidden(records, make_claims(records, context), kept_work(context.home, records))


def _profile_maker(shared: RunParts, name: str) -> Callable[..., Profile]:
    def added_tools(profile: str) -> tuple[Tool, ...]:
        remembering = shared.long_term.tools(profile) if shared.long_term else ()
        return *remembering, *shared.added_tools(profile)

    return partial(cycle_profile, name, shared.chosen, added_tools=added_tools)


async def _download(place: AttachmentPlace, credential: str, most_bytes: int) -> tuple[int, bytes]:
    """Download an attachment from the forge."""
    from orchestrator.bot.forge.public_web import PublicWeb

    web = PublicWeb(allowed_private=place.private)
    return await web.download(place.url, place.hosts, bearer=credential, max_bytes=most_bytes)


def foreign_tools(chosen: ChosenModel, source: ForeignSource) -> MakeForeignTools:
    """Return the source of the tools of other programs: that of the plug-ins, or the record of the replayed run."""
    recorded = chosen.foreign
    return source if recorded is None else lambda _tree, _clean, _emit: recorded


def _make_backlog(shared: RunParts, settings: Settings, guards: Guards, claimer: Claimer | None) -> Backlog:
    forge, request, memory = shared.site.forge, shared.request, shared.memory
    is_narrow = bool(request.only) or request.thread is not None
    claimed: dict[str, Any] = {}
    if claimer is not None:
        claimed = {
            "is_claiming": True,
            "in_flight": claimer.held_by_others,
            "retry_request": claimer.retry_request,
            "unfinished": claimer.unfinished,
        }
    if memory.refused is None and not shared.site.is_local:
        who = f"{shared.site.label} {settings.label} {sorted(settings.allow_actor)}"
        memory.refused = RefusedIssues(shared.context.home.cache / "refused" / f"{address_key(who)}.json")
    kind = Backlog if request.wanted.conversation is None else ConversationTasks
    return kind(
        forge,
        request.wanted,
        settings.label,
        memory.attempted,
        # The result of a search for one task says nothing about the others.
        last_search=LastSearch(warned=memory.idle.warned) if is_narrow else memory.idle,
        only=request.only,
        thread=request.thread,
        refused=memory.refused,
        **backlog_rules(shared.site, settings, (guards.words, guards.names), guards.redactor.redact),
        commands=request.commands,
        clock=shared.context.clock,
        **claimed,
    )


def _memory_of_cycle(  # noqa: PLR0913, PLR0917  what the run has, then what its cycle has
    shared: RunParts,
    guards: Guards,
    backlog: Backlog,
    claimer: Claimer | None,
    open_records: Callable[[], Records],
    profile: str,
) -> CycleMemory | None:
    """Return what the cycle remembers; None without a memory."""
    if shared.long_term is None:
        return None
    return shared.long_term.in_cycle(
        CycleSources(
            profile,
            shared.site.forge,
            open_records,
            backlog.seen,
            lambda: claimer.memory if claimer else None,
            lambda text: guards.redactor.redact(guards.words(text).text),
            is_local=shared.site.is_local,
            writes=not shared.request.dry_run,
        )
    )


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The hidden refs of a repository that workers share, and the unfinished work on this machine."""

    records: Records
    claims: Claims
    kept: KeptWork


def _make_claimer(  # noqa: PLR0913, PLR0917  what the run has, then what its cycle has
    shared: RunParts,
    hidden: _Hidden,
    run: str,
    settings: Settings,
    guards: Guards,
    budget: CycleBudget,
) -> Claimer:
    forge, request, emit = shared.site.forge, shared.request, shared.context.emit
    return Claimer(
        hidden.records,
        hidden.claims,
        forge,
        run,
        (),
        named=request.wanted != TaskSelection(),
        may=TaskAuthorization(forge, settings.label, settings.allow_actor).may_cause_work,
        clean=filter_answers(as_lines(guards.words, guards.redactor.redact), emit),
        why_over_budget=partial(budget.why_not, needs=smallest_request(settings, shared.chosen)),
        kept=hidden.kept,
        warn=lambda text: emit(Warned(text)),
        tell=emit,
        commands=request.commands,
        answer=request.answer,
        kept_answer=partial(kept_answer, shared.context.home),
        base=settings.base,
        author_email=settings.author_email,
        attended=shared.operator is not None,
    )


def _make_recovery(shared: RunParts, hidden: _Hidden, run: str) -> Recovery:
    context, site, redactor = shared.context, shared.site, shared.safeguards.redactor
    temporary = Path(tempfile.gettempdir())
    return Recovery(
        context.home,
        site.label,
        run,
        site.forge,
        temporary,
        hidden.records,
        hidden.claims,
        hidden.kept,
        partial(_reopen, site, context),
        partial(open_clone_of, site, context, run, temporary),
        context.clock,
        context.emit,
        redactor,
    )


def smallest_request(settings: Settings, chosen: ChosenModel) -> Caps:
    """Return the maximum cost of the smallest first request. With less budget left, no cycle is started."""
    reply = min(settings.max_output_tokens or chosen.reply_tokens, MIN_REPLY_TOKENS)
    need = Need(LEAST_INPUT_TOKENS, reply, chosen.price)
    return Caps(need.usd(reply), LEAST_INPUT_TOKENS + reply, rounds=1)


def _reopen(site: Site, context: BuildContext, folder: Path) -> Clone:
    """Open the clone of a dead process in a folder."""
    return reopen_clone(
        folder,
        site.source().url,
        credential=site.credential,
        identity=_identity(context.settings),
        clock=context.clock,
        cancelled=context.stop.now,
    )


def open_clone_of(
    site: Site, context: BuildContext, run: str, parent: Path, *, with_git: bool | None = None
) -> Clone:
    """Clone a site's repository into a new folder below `parent`.

    Args:
        with_git: whether the files get their own repository, for commands; None if the model can run some.
    """
    source, settings = site.source(), context.settings
    far = "://" in source.url and not source.url.startswith("file:")
    return open_clone(
        source.url,
        branch=source.branch,
        credential=site.credential,
        parent=parent,
        with_git=runs_commands(settings) if with_git is None else with_git,
        identity=_identity(settings),
        clock=context.clock,
        cancelled=context.stop.now,
        mirror=context.home.cache / "mirrors" if far and settings.mirror else None,
        run=run,
        note=lambda text: context.emit(Warned(text)),
    )


def _identity(settings: Settings) -> Identity:
    return Identity(settings.author_name, settings.author_email)


def _options(settings: Settings, site: Site, chosen: ChosenModel, *, dry_run: bool) -> CycleOptions:
    return CycleOptions(
        **same_named(CycleOptions, settings),
        session=session_config(settings, chosen, cycle_profile_name(settings, chosen)),
        dry_run=dry_run,
        context_characters=first_text(settings.context_window or chosen.window, settings.context_chars),
        other_base=settings.base is not None,
        respects_ai_policy=settings.ai_policy == "respect",
        starts_no_checks=site.forge.token_kind() is TokenKind.WORKFLOW,
    )
