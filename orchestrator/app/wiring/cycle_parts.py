"""The objects of one cycle, made for the settings that hold in it: tools, tasks, claims, budget, clone."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring.guards import (
    as_lines,
    make_verifier,
    report_refusals,
    rules_in_words,
    runs_commands,
)
from orchestrator.app.wiring.repository import kept_work, make_claims, new_nonce
from orchestrator.app.wiring.skills import skill_options
from orchestrator.bot.coordination.budget import Caps, CycleBudget, RepositoryLedger, ScopeCaps
from orchestrator.bot.cycle.claimer import Claimer
from orchestrator.bot.cycle.parts import CycleOptions, CycleParts
from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.opening import open_clone, reopen_clone
from orchestrator.bot.worker.backlog import Backlog, ConversationTasks, LastSearch, TaskSelection
from orchestrator.bot.worker.candidates import filter_answers
from orchestrator.bot.worker.recovery import DeadRunSaver, Recovery
from orchestrator.bot.worker.task_rules import ReviewLimits, TaskAuthorization
from orchestrator.core.events import CycleStarted, Warned
from orchestrator.core.prompts import render
from orchestrator.core.repositories import Commands
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.catalog import DEFAULT_CONTEXT_TOKENS, Provider, facts
from orchestrator.engine.models.known_models import family_of, thinks
from orchestrator.engine.profiles.base import make_profile, web_tools_of
from orchestrator.engine.session.budget import MIN_REPLY_TOKENS, Limits, Need
from orchestrator.engine.session.context import compaction_of
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.mcp import McpMaker
    from orchestrator.app.wiring.memory import LazyMemory
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.parts import (
        Guards,
        MakeForeignTools,
        MayFinish,
        Operator,
        Propose,
        RunTests,
    )
    from orchestrator.bot.forge.base import AttachmentPlace
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.bot.worker.lessons import Lessons
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment, Sandbox
    from orchestrator.engine.memory.memory import LongTermMemory
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.context import CompactionPolicy
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.web.base import WebAccess


LEAST_INPUT_TOKENS = 1_000
"""Fewer than the shortest first request has, with system prompt, tools and task."""

DOCUMENT_PROFILES = frozenset({"assistant"})
"""Those that have the tools of documents and recall documents with each message."""


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What keeps the cycles of a run harmless.

    Attributes:
        guards: makes the checks for settings.
        sandbox: holds commands; None where none can run, or without one.
        setup_sandbox: holds the set-up of tests, where that may reach more hosts than other commands; else None.
    """

    redactor: Redactor
    guards: Callable[[Settings], Guards]
    sandbox: Sandbox | None
    setup_sandbox: Sandbox | None = None


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What a person asked for.

    Attributes:
        wanted: the task, if one was named.
        only: the key of the only task that a cycle may take; empty for any. Unlike `wanted` it is nobody's wish.
        answer: the person's words on the question that the task waits with.
        dry_run: nothing is pushed and nothing is written to the forge.
        commands: what a message tells a person to type.
    """

    wanted: TaskSelection = TaskSelection()  # noqa: RUF009  a frozen value
    answer: str | None = None
    dry_run: bool = False
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    only: str = ""


@dataclass(slots=True)
class BacklogMemory:
    """What a process remembers of a backlog between two cycles.

    Attributes:
        attempted: the keys of tasks that it has tried.
        idle: what it knows of a backlog in which nothing has changed.
    """

    attempted: set[str] = field(default_factory=set)
    idle: LastSearch = field(default_factory=LastSearch)

    def forget(self) -> None:
        """Let the next cycle try again what was tried before."""
        self.attempted.clear()
        self.idle = LastSearch(told=self.idle.told)


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the cycles of one run share.

    Attributes:
        operator: a person who works in the place of the model's loop.
        door: see `CycleStarted`.
    """

    context: BuildContext
    site: Site
    chosen: ChosenModel
    safeguards: Safeguards
    request: TaskRequest = TaskRequest()
    web: WebAccess | None = None
    memory: BacklogMemory = field(default_factory=BacklogMemory)
    long_term: LazyMemory | None = None
    mcp: McpMaker | None = None
    operator: Operator | None = None
    door: str = ""

    @property
    def settings(self) -> Settings:
        """The settings that the person chose."""
        return self.context.settings


def first_event(shared: RunParts, run: str) -> CycleStarted:
    """Return what is known of a cycle before it begins."""
    settings, chosen, site = shared.settings, shared.chosen, shared.site
    return CycleStarted(
        run,
        site.label,
        chosen.model.name,
        choose_contract(settings, chosen).name,
        rules_in_words(settings, shared.safeguards.sandbox),
        profile_name(settings, chosen),
        site.origin,
        shared.door,
    )


def _clone_opener(shared: RunParts, run: str) -> Callable[[Path], Clone]:
    # A person may allow commands that the settings do not grant.
    with_git = True if shared.operator else None
    return partial(open_clone_of, shared.site, shared.context, run, with_git=with_git)


def make_parts(
    shared: RunParts, open_records: Callable[[], Records], run: str, folder: Path, settings: Settings
) -> CycleParts:
    """Make what the cycle `run` works with. `open_records` gives the remote's hidden refs, in a dry run to be read only."""
    context, site, chosen = shared.context, shared.site, shared.chosen
    hidden = None if shared.request.dry_run else _hidden_refs(open_records(), context)
    profile, guards = profile_name(settings, chosen), shared.safeguards.guards(settings)
    budget = _make_budget(hidden.records if hidden else None, context, settings)
    claimer = _make_claimer(shared, hidden, run, settings, guards, budget) if hidden else None
    backlog = _make_backlog(shared, settings, guards, claimer)
    return CycleParts(
        run=run,
        folder=folder,
        repository=site.label,
        forge=site.forge,
        model=chosen.model,
        contract=choose_contract(settings, chosen),
        open_clone=_clone_opener(shared, run),
        environment=partial(_environment, context, shared.safeguards.sandbox),
        profile=_profile_maker(shared, settings, profile),
        guards=guards,
        profile_name=profile,
        limits=Limits(settings.max_rounds, settings.max_tokens, settings.max_usd, settings.max_minutes),
        price=chosen.price,
        reply_tokens=chosen.reply_tokens,
        options=_options(settings, site, chosen, dry_run=shared.request.dry_run),
        records=hidden.records if hidden else None,
        kept=hidden.kept if hidden else None,
        clock=context.clock,
        emit=context.emit,
        stop=context.stop,
        tasks=backlog,
        claimer=claimer,
        recovery=_make_recovery(shared, hidden, run) if hidden else None,
        budget=budget,
        least=smallest_request(settings, chosen),
        verifier=_verifier_maker(shared, settings) if settings.test_command else None,
        recorded_tests=chosen.tests,
        memory=_make_lessons(shared, settings, guards, backlog, claimer, open_records, profile),
        foreign_tools=_foreign_tools(shared),
        download=_download,
        skills=skill_options(settings),
        operator=shared.operator,
    )


def _verifier_maker(shared: RunParts, settings: Settings) -> Callable[[Clone], Verifier | None]:
    guarded = shared.safeguards
    return partial(
        make_verifier,
        shared.site,
        shared.context,
        guarded.sandbox,
        settings,
        setup_sandbox=guarded.setup_sandbox,
    )


def _make_budget(records: Records | None, context: BuildContext, settings: Settings) -> CycleBudget:
    ledger = RepositoryLedger(records, context.clock, new_nonce) if records else None
    return CycleBudget(context.home, context.clock, scope_caps(settings), ledger)


def _hidden_refs(records: Records, context: BuildContext) -> _Hidden:
    return _Hidden(records, make_claims(records, context), kept_work(context.home, records))


def _profile_maker(shared: RunParts, settings: Settings, name: str) -> Callable[..., Profile]:
    memory = shared.long_term() if shared.long_term and settings.memory else None
    return partial(
        cycle_profile,
        name,
        shared.chosen,
        dangerous=runs_commands(settings),
        web=shared.web,
        memory=memory,
    )


def choose_web(context: BuildContext) -> WebAccess | None:
    """Make the access to the web, if the settings allow it.

    Raises:
        ConfigurationError: the engine's key is missing.
    """
    engine = context.settings.web
    if engine is None:
        return None
    from orchestrator.engine.web.client import HttpWeb

    key: str | None = getattr(context.keys, engine)
    return HttpWeb(engine=engine, api_key=key)


async def _download(place: AttachmentPlace, credential: str, most_bytes: int) -> tuple[int, bytes]:
    """Fetch an attachment from where the forge keeps it."""
    from orchestrator.engine.web.client import HttpWeb

    web = HttpWeb(allowed_private=place.private)
    return await web.download(place.url, place.hosts, bearer=credential, max_bytes=most_bytes)


def _foreign_tools(shared: RunParts) -> MakeForeignTools | None:
    """Who runs the tools of others: MCP servers, or the record of the run that is replayed."""
    recorded = shared.chosen.foreign
    if recorded is not None:
        return lambda _tree, _clean, _emit: recorded
    return shared.mcp


def _make_backlog(shared: RunParts, settings: Settings, guards: Guards, claimer: Claimer | None) -> Backlog:
    forge, request, memory = shared.site.forge, shared.request, shared.memory
    claimed: dict[str, Any] = {}
    if claimer is not None:
        claimed = {
            "in_flight": claimer.held_by_others,
            "asked_again": claimer.asked_again,
            "unfinished": claimer.unfinished,
        }
    kind = Backlog if request.wanted.conversation is None else ConversationTasks
    return kind(
        forge,
        request.wanted,
        settings.label,
        memory.attempted,
        allow_actors=settings.allow_actor,
        comments_policy=settings.comments,
        clean=as_lines(guards.words, guards.redact),
        clean_name=as_lines(guards.names, guards.redact),
        limits=ReviewLimits(
            settings.max_open_prs,
            settings.max_prs_per_day,
            sys.maxsize if shared.site.is_local else settings.max_unreviewed,
            settings.review_rounds,
            settings.quiet_minutes,
        ),
        commands=request.commands,
        has_conflict=forge.has_conflict,
        clock=shared.context.clock,
        # What is known of one task says nothing of the others.
        last_search=LastSearch(told=memory.idle.told) if request.only else memory.idle,
        only=request.only,
        **claimed,
    )


def _make_lessons(  # noqa: PLR0913, PLR0917  what the run has, then what its cycle has
    shared: RunParts,
    settings: Settings,
    guards: Guards,
    backlog: Backlog,
    claimer: Claimer | None,
    open_records: Callable[[], Records],
    profile: str,
) -> Lessons | None:
    """Make what the cycle learns and recalls; None if all of it is switched off. In a folder nobody reviews."""
    context, shares = shared.context, settings.repository_memory and not shared.site.is_local
    if shared.long_term is None or not (shares or settings.memory):
        return None
    from orchestrator.bot.coordination.repository_memory import RepositoryMemory
    from orchestrator.bot.worker.lessons import Lessons

    return Lessons(
        RepositoryMemory(open_records(), context.clock, new_nonce) if shares else None,
        shared.long_term,
        settings.memory,
        settings.memory and profile in DOCUMENT_PROFILES,
        shared.site.forge,
        backlog.seen,
        lambda: claimer.memory if claimer else None,
        lambda text: guards.redact(guards.words(text).text),
        context.clock,
        context.emit,
        writes=not shared.request.dry_run,
    )


@dataclass(frozen=True, slots=True)
class _Hidden:
    """What workers share by the hidden refs of a repository, and what one machine has kept of it."""

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
        clean=filter_answers(
            as_lines(guards.words, guards.redact), as_lines(guards.names, guards.redact), emit
        ),
        spent_up=partial(budget.why_not, needs=smallest_request(settings, shared.chosen)),
        kept=hidden.kept,
        tell=lambda text: emit(Warned(text)),
        commands=request.commands,
        answer=request.answer,
        base=settings.base,
        author_email=settings.author_email,
        attended=shared.operator is not None,
    )


def _make_recovery(shared: RunParts, hidden: _Hidden, run: str) -> Recovery:
    context, site, redactor = shared.context, shared.site, shared.safeguards.redactor
    temporary = Path(tempfile.gettempdir())
    remains = DeadRunSaver(
        hidden.records,
        hidden.kept,
        partial(_reopen, site, context),
        partial(open_clone_of, site, context, run, temporary),
        run,
        context.clock,
        context.emit,
        redactor.redact,
        redactor.holds_secret,
    )
    return Recovery(
        context.home,
        site.label,
        site.forge,
        temporary,
        hidden.records,
        hidden.claims,
        remains,
        context.clock,
        context.emit,
        redactor.redact,
    )


def scope_caps(settings: Settings) -> ScopeCaps:
    """Return the caps that `--max-usd`, `--max-tokens-per-day` and similar options set."""

    def caps(suffix: str) -> Caps:
        return Caps(
            *(getattr(settings, f"max_{what}{suffix}") for what in ("usd", "tokens", "minutes", "rounds"))
        )

    return ScopeCaps(caps(""), caps("_per_task"), caps("_per_day"), caps("_per_repo"))


def smallest_request(settings: Settings, chosen: ChosenModel) -> Caps:
    """Return the most that the smallest first request can cost. With less left, no cycle is worth a clone."""
    reply = min(settings.max_output_tokens or chosen.reply_tokens, MIN_REPLY_TOKENS)
    need = Need(LEAST_INPUT_TOKENS, reply, chosen.price)
    return Caps(need.usd(reply), LEAST_INPUT_TOKENS + reply, rounds=1)


def _reopen(site: Site, context: BuildContext, folder: Path) -> Clone:
    """Open the clone that a dead process left in a folder.

    Raises:
        WorkspaceError: it cannot be used.
    """
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
        with_git: the files get a repository of their own, for commands; None where the model can run some.

    Raises:
        WorkspaceError: git failed.
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


def _environment(
    context: BuildContext, sandbox: Sandbox | None, tree: Path, submodules: list[str]
) -> ExecutionEnvironment:
    return LocalEnvironment(
        tree,
        clock=context.clock,
        submodules=submodules,
        sandbox=sandbox or ("off" if context.settings.sandbox == "off" else "auto"),
        on_refused=report_refusals(context.emit),
        own_repository=True,
    )


_PROMPT_TOKENS = 5_000
"""Of a small window, for the system prompt, the tools and a reply."""
_TEXT_SHARE = 5 / 8
"""Characters of file text a token of the rest: the project's instructions, the task, what is attached to it and the map
may be as long each, and code has about three characters a token."""
_LEAST_CHARACTERS = 500


def first_text(window: int | None, most: int) -> int:
    """How many characters of file text the first prompt may have, so that all of it fits into a model's window.

    Args:
        window: how many tokens the model can read; None where that is not known.
        most: as the settings have it.
    """
    if window is None:
        return most
    return min(most, max(int((window - _PROMPT_TOKENS) * _TEXT_SHARE), _LEAST_CHARACTERS))


def policy_of(settings: Settings, chosen: ChosenModel, profile: str) -> CompactionPolicy | None:
    """Return when a conversation is made shorter; None in a replay, whose replies do not depend on what was said."""
    return None if chosen.tests is not None else compaction_of(profile, settings.compact_at)


def _options(settings: Settings, site: Site, chosen: ChosenModel, *, dry_run: bool) -> CycleOptions:
    window = settings.context_window
    return CycleOptions(
        dry_run=dry_run,
        draft=settings.draft,
        stream=settings.stream,
        context_characters=first_text(window or chosen.window, settings.context_chars),
        author_email=settings.author_email,
        author_name=settings.author_name,
        temperature=settings.temperature,
        max_output_tokens=settings.max_output_tokens,
        reasoning_effort=settings.reasoning_effort,
        require_tests=settings.require_tests,
        other_base=settings.base is not None,
        signoff=settings.signoff,
        trailer=settings.trailer,
        respects_ai_policy=settings.ai_policy == "respect",
        starts_no_checks=site.forge.token_kind() is TokenKind.WORKFLOW,
        context_window=window,
        compaction=policy_of(settings, chosen, profile_name(settings, chosen)),
        system_prompt=settings.system_prompt or "",
        max_subagents=settings.max_subagents,
        subagent_timeout_seconds=settings.subagent_timeout_seconds,
    )


FAMILY_OF_PROVIDER = {
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gemini",
}


def choose_contract(settings: Settings, chosen: ChosenModel) -> Contract:
    """Make the contract that the settings name, or the one that suits the model.

    A cycle's session ends by `finish`, also one call a step.
    """
    match contract_name(settings, chosen):
        case "native":
            from orchestrator.engine.contracts.native import Native

            return Native()
        case "single-step":
            from orchestrator.engine.contracts.native import SingleStep

            return SingleStep(ends_by="finish")
        case "whole-file":
            from orchestrator.engine.contracts.whole_file import WholeFile

            return WholeFile()
        case _:
            return JsonPlan()


def contract_name(settings: Settings, chosen: ChosenModel) -> str:
    """Return the contract that the settings name; else whole files for a small model, or JSON plans.

    Where nothing may be written, a small model has JSON plans, too.
    """
    writes_files = chosen.is_small and settings.permission != "read-only"
    return settings.contract or ("whole-file" if writes_files else "json-plan")


def profile_name(settings: Settings, chosen: ChosenModel) -> str:
    """Return the profile that the settings name, or the one that suits contract and model.

    A model that is known to be small has a profile of its own, and so have replies that are whole files. Else one JSON
    plan goes with the planner, one call a step with the one-step profile, function calling with the profile of the
    model's vendor; models of nobody that is known get the planner's tools.
    """
    if settings.profile:
        return settings.profile
    contract = contract_name(settings, chosen)
    if chosen.is_small or contract == "whole-file":
        return "small"
    if contract == "json-plan" or chosen.ref is None:
        return "planner"
    if contract == "single-step":
        return "minimal"
    return family_of(chosen.ref.name) or FAMILY_OF_PROVIDER.get(chosen.ref.provider, "planner")


def cycle_profile(  # noqa: PLR0913, PLR0917  what the user chose, then what the cycle brings
    name: str,
    chosen: ChosenModel,
    propose: Propose,
    may_finish: MayFinish,
    tests: RunTests | None = None,
    foreign: tuple[Tool, ...] = (),
    *,
    dangerous: bool,
    web: WebAccess | None = None,
    memory: LongTermMemory | None = None,
) -> Profile:
    """Make a profile with the tools that end a cycle, and with the words about its job.

    Without `tests` no tool runs them.
    """
    online = web_tools_of(name, web) if web else ()
    running = () if tests is None else (run_tests(tests),)
    proposing = create_pull_request(propose, is_timed=tests is None)
    controls = (
        *_memory_tools(memory, name),
        *foreign,
        *running,
        proposing,
        ask_question(),
        finish(may_finish),
    )
    profile = make_profile(name, web=online, custom=controls, dangerous=dangerous)
    if not profile.has_role:
        profile = replace(profile, base_prompt=f"{profile.base_prompt}\n\n{render('cycle/role')}")
    return known_of(profile, chosen)


def _memory_tools(memory: LongTermMemory | None, profile: str) -> tuple[Tool, ...]:
    if memory is None:
        return ()
    from orchestrator.engine.tools.documents import document_tools
    from orchestrator.engine.tools.memory import memory_tools

    return memory_tools(memory) + (document_tools(memory) if profile in DOCUMENT_PROFILES else ())


def known_of(profile: Profile, chosen: ChosenModel) -> Profile:
    """Make a profile for the chosen model, with what is known of that."""
    if chosen.ref is None:
        return profile
    if thinks(chosen.ref.name):
        # It needs room for its thoughts, and comes to repeat itself where they are the likeliest ones.
        profile = replace(profile, max_output_tokens=None, temperature=None)
    known = facts(chosen.api_url, chosen.ref.name)
    known = replace(
        known,
        reasoning=chosen.reasoning,
        streaming=chosen.streaming,
        images=chosen.images,
        context_tokens=chosen.window or DEFAULT_CONTEXT_TOKENS,
    )
    return profile.for_model(chosen.model, known)
