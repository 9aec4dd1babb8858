"""The objects of one cycle, made for the settings that hold in it: tools, tasks, claims, budget, clone."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.wiring.guards import as_lines, rules_in_words, runs_commands, told_of_refusals
from orchestrator.app.wiring.library import tools_for
from orchestrator.app.wiring.tasks import kept_work, make_claims, new_nonce, owner_name
from orchestrator.app.wiring.testing import make_verifier
from orchestrator.bot.coordination.budget import Caps, CycleBudget, RepositoryLedger, ScopeCaps
from orchestrator.bot.cycle.claimer import Claimer
from orchestrator.bot.cycle.parts import CycleOptions, CycleParts
from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.opening import open_clone, reopen_clone
from orchestrator.bot.worker.admission import Admission
from orchestrator.bot.worker.backlog import Backlog, Wanted
from orchestrator.bot.worker.manners import Manners
from orchestrator.bot.worker.reading import screen_answers
from orchestrator.bot.worker.recovery import Recovery
from orchestrator.bot.worker.remains import Remains
from orchestrator.core.events import CycleStarted, Warned
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.contracts.whole_file import WholeFile
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.catalog import Provider, facts
from orchestrator.engine.models.known_models import family_of, thinks
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.limits import Limits
from orchestrator.engine.session.worst_case import MIN_REPLY_TOKENS, Need
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.coordination.claims import Claims
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.parts import Guards, MayFinish, Propose, RunTests
    from orchestrator.bot.git.clone import Clone
    from orchestrator.core.spent import Spent
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.web.base import WebAccess


LEAST_INPUT_TOKENS = 1_000
"""The shortest first request is longer: its system prompt, the tools and the task."""


def first_event(program: Program, run: str) -> CycleStarted:
    """What is known of a cycle before it begins."""
    settings, chosen = program.settings, program.chosen
    return CycleStarted(
        run,
        program.repository,
        chosen.model.name,
        choose_contract(settings, chosen).name,
        rules_in_words(settings, program.sandbox),
        profile_name(settings, chosen),
        program.site.origin,
    )


def make_parts(program: Program, run: str, folder: Path, settings: Settings) -> CycleParts:
    """What the cycle `run` works with, under these settings.

    Args:
        program: what outlives the cycle.
        run: its name.
        folder: the run's.
        settings: the program's, or stricter ones.

    Raises:
        ForgeError: the address of the repository could not be asked.
    """
    profile, chosen, guards = profile_name(settings, program.chosen), program.chosen, program.guards(settings)
    records = program.hidden_refs()
    ledger = RepositoryLedger(records, program.clock, new_nonce) if records else None
    budget = CycleBudget(program.home, program.clock, scope_caps(settings), ledger)
    least = smallest_request(settings, chosen)
    claimer = recovery = None
    if records is not None:
        claims = make_claims(records, owner_name(program.environ), program.settings, program.clock)
        spent_up = partial(budget.why_not, needs=least)
        claimer = _make_claimer(program, run, settings, guards, claims, records, spent_up)
        recovery = _make_recovery(program, run, claims, records)
    return CycleParts(
        run=run,
        folder=folder,
        repository=program.repository,
        forge=program.site.forge,
        model=chosen.model,
        contract=choose_contract(settings, chosen),
        open_clone=partial(_open_clone, program, run),
        environment=partial(_environment, program),
        profile=partial(cycle_profile, profile, chosen, dangerous=runs_commands(settings), web=program.web),
        guards=guards,
        profile_name=profile,
        limits=Limits(settings.max_rounds, settings.max_tokens, settings.max_usd, settings.max_minutes),
        price=chosen.price,
        reply_tokens=chosen.reply_tokens,
        options=_options(program, settings),
        records=records,
        kept=kept_work(program.home, records) if records else None,
        clock=program.clock,
        emit=program.bus,
        stop=program.stop,
        tasks=_make_backlog(program, settings, guards, claimer),
        claimer=claimer,
        recovery=recovery,
        budget=budget,
        least=least,
        verifier=partial(make_verifier, program, settings) if settings.test_command else None,
        recorded_tests=chosen.tests,
    )


def _make_backlog(program: Program, settings: Settings, guards: Guards, claimer: Claimer | None) -> Backlog:
    manners = Manners(
        settings.max_open_prs,
        settings.max_prs_per_day,
        sys.maxsize if program.site.is_local else settings.max_unreviewed,
        settings.review_rounds,
        settings.quiet_minutes,
    )
    made = partial(
        Backlog,
        program.site.forge,
        program.wanted,
        settings.label,
        program.attempted,
        allow_actors=settings.allow_actor,
        comments_policy=settings.comments,
        clean=as_lines(guards.words, guards.redact),
        clean_name=as_lines(guards.names, guards.redact),
        manners=manners,
        commands=program.commands,
        has_conflict=program.site.forge.has_conflict,
        clock=program.clock,
        idle=program.idle,
    )
    if claimer is None:
        return made()
    return made(
        in_flight=claimer.held_by_others, asked_again=claimer.asked_again, unfinished=claimer.unfinished
    )


def _make_claimer(  # noqa: PLR0913, PLR0917  what outlives the cycle, then what it has
    program: Program,
    run: str,
    settings: Settings,
    guards: Guards,
    claims: Claims,
    records: Records,
    spent_up: Callable[[Spent], str | None],
) -> Claimer:
    forge = program.site.forge
    return Claimer(
        records,
        claims,
        forge,
        run,
        (),
        named=program.wanted != Wanted(),
        may=Admission(forge, settings.label, settings.allow_actor).may,
        clean=screen_answers(
            as_lines(guards.words, guards.redact), as_lines(guards.names, guards.redact), program.bus
        ),
        spent_up=spent_up,
        kept=kept_work(program.home, records),
        tell=lambda text: program.bus(Warned(text)),
        commands=program.commands,
        answer=program.answer,
        base=settings.base,
        author_email=settings.author_email,
    )


def _make_recovery(program: Program, run: str, claims: Claims, records: Records) -> Recovery:
    temporary = Path(tempfile.gettempdir())
    remains = Remains(
        records,
        kept_work(program.home, records),
        partial(_reopen, program),
        partial(_open_clone, program, run, temporary),
        run,
        program.clock,
        program.bus,
        program.redactor.redact,
        program.redactor.holds_secret,
    )
    return Recovery(
        program.home,
        program.repository,
        program.site.forge,
        temporary,
        records,
        claims,
        remains,
        program.clock,
        program.bus,
        program.redactor.redact,
    )


def scope_caps(settings: Settings) -> ScopeCaps:
    """What `--max-usd`, `--max-tokens-per-day` and their kin say."""

    def caps(suffix: str) -> Caps:
        return Caps(
            *(getattr(settings, f"max_{what}{suffix}") for what in ("usd", "tokens", "minutes", "rounds"))
        )

    return ScopeCaps(caps(""), caps("_per_task"), caps("_per_day"), caps("_per_repo"))


def smallest_request(settings: Settings, chosen: ChosenModel) -> Caps:
    """What a first request may cost at most, if it is as small as can be: with less left, none is worth a clone."""
    reply = min(settings.max_output_tokens or chosen.reply_tokens, MIN_REPLY_TOKENS)
    need = Need(LEAST_INPUT_TOKENS, reply, chosen.price)
    return Caps(need.usd(reply), LEAST_INPUT_TOKENS + reply, rounds=1)


def _reopen(program: Program, folder: Path) -> Clone:
    """The clone that a dead process left in a folder.

    Raises:
        WorkspaceError: it cannot be used.
    """
    return reopen_clone(
        folder,
        program.site.source().url,
        credential=program.site.credential,
        identity=_identity(program),
        clock=program.clock,
        cancelled=program.stop.now,
    )


def _options(program: Program, settings: Settings) -> CycleOptions:
    return CycleOptions(
        dry_run=program.dry_run,
        draft=settings.draft,
        stream=settings.stream,
        context_characters=settings.context_chars,
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
        starts_no_checks=program.site.forge.token_kind() is TokenKind.WORKFLOW,
    )


def _open_clone(program: Program, run: str, parent: Path) -> Clone:
    source, settings = program.site.source(), program.settings
    far = "://" in source.url and not source.url.startswith("file:")
    return open_clone(
        source.url,
        branch=source.branch,
        credential=program.site.credential,
        parent=parent,
        with_git=runs_commands(settings),
        identity=_identity(program),
        clock=program.clock,
        cancelled=program.stop.now,
        mirror=program.home.cache / "mirrors" if far and settings.mirror else None,
        run=run,
        note=lambda text: program.bus(Warned(text)),
    )


def _identity(program: Program) -> Identity:
    return Identity(program.settings.author_name, program.settings.author_email)


def _environment(program: Program, tree: Path, submodules: list[str]) -> ExecutionEnvironment:
    return LocalEnvironment(
        tree,
        clock=program.clock,
        submodules=submodules,
        sandbox=program.sandbox or ("off" if program.settings.sandbox == "off" else "auto"),
        on_refused=told_of_refusals(program.bus),
        own_repository=True,
    )


_FAMILY_OF_PROVIDER = {
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gemini",
}


def choose_contract(settings: Settings, chosen: ChosenModel) -> Contract:
    """The contract that the settings name, or the one that suits the model.

    A cycle's session ends by `finish`, also one call a step.
    """
    match contract_name(settings, chosen):
        case "native":
            return Native()
        case "single-step":
            return SingleStep(ends_by="finish")
        case "whole-file":
            return WholeFile()
        case _:
            return JsonPlan()


def contract_name(settings: Settings, chosen: ChosenModel) -> str:
    """The contract that the settings name; else whole files for a model that is known to be small, or JSON plans.

    Where nothing may be written, a small model has JSON plans, too.
    """
    writes_files = chosen.is_small and settings.permission != "read-only"
    return settings.contract or ("whole-file" if writes_files else "json-plan")


def profile_name(settings: Settings, chosen: ChosenModel) -> str:
    """The profile that the settings name, or the one that suits contract and model.

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
    return family_of(chosen.ref.name) or _FAMILY_OF_PROVIDER.get(chosen.ref.provider, "planner")


def cycle_profile(  # noqa: PLR0913  what the user chose, then what the cycle brings
    name: str,
    chosen: ChosenModel,
    propose: Propose,
    may_finish: MayFinish,
    tests: RunTests | None = None,
    *,
    dangerous: bool,
    web: WebAccess | None = None,
) -> Profile:
    """A profile with the tools by which a cycle gets somewhere, and with the words about its job.

    Without `tests` no tool runs them.
    """
    online = tools_for(name, web) if web else ()
    running = () if tests is None else (run_tests(tests),)
    proposing = create_pull_request(propose, is_timed=tests is None)
    controls = (*running, proposing, ask_question(), finish(may_finish))
    profile = make_profile(name, web=online, custom=controls, dangerous=dangerous)
    if not profile.has_role:
        profile = replace(profile, base_prompt=f"{profile.base_prompt}\n\n{render('cycle/role')}")
    if chosen.ref is None:
        return profile
    if thinks(chosen.ref.name):
        # It needs room for its thoughts, and comes to repeat itself where they are the likeliest ones.
        profile = replace(profile, max_output_tokens=None, temperature=None)
    known = facts(chosen.api_url, chosen.ref.name)
    known = replace(known, reasoning=chosen.reasoning, streaming=chosen.streaming)
    return profile.for_model(chosen.model, known)
