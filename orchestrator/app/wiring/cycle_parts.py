"""The rooms' objects of one cycle, made for the settings that hold in it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from orchestrator.app.wiring.claiming import kept_work
from orchestrator.app.wiring.guards import rules_in_words, runs_commands, told_of_refusals
from orchestrator.app.wiring.testing import make_verifier
from orchestrator.app.wiring.toolbox import choose_contract, cycle_profile, profile_name
from orchestrator.bot.cycle.parts import CycleParts, Manner
from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.opening import open_clone, reopen_clone
from orchestrator.core.events import Warned
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.session.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.git.clone import Clone
    from orchestrator.engine.environments.base import ExecutionEnvironment


def make_parts(
    program: Program, run: str, folder: Path, settings: Settings, records: Records | None
) -> CycleParts:
    """What the cycle `run` works with, under these settings. Nothing is opened or contacted.

    Args:
        program: what outlives the cycle.
        run: its name.
        folder: the run's.
        settings: the program's, or stricter ones.
        records: the hidden refs, if they are open already.
    """
    profile = profile_name(settings, program.chosen)
    return CycleParts(
        run=run,
        folder=folder,
        repository=program.repository,
        origin=program.site.origin,
        forge=program.site.forge,
        model=program.chosen.model,
        contract=choose_contract(settings, program.chosen),
        open_clone=partial(_open_clone, program, run),
        environment=partial(_environment, program),
        profile=partial(
            cycle_profile, profile, program.chosen, dangerous=runs_commands(settings), web=program.web
        ),
        guards=program.guards(settings),
        rules=rules_in_words(settings, program.sandbox),
        profile_name=profile,
        limits=Limits(settings.max_rounds, settings.max_tokens, settings.max_usd, settings.max_minutes),
        price=program.chosen.price,
        reply_tokens=program.chosen.reply_tokens,
        manner=_manner(program, settings),
        records=records,
        kept=kept_work(program.home, records) if records else None,
        clock=program.clock,
        emit=program.relay,
        stop=program.stop,
        verifier=partial(make_verifier, program, settings) if settings.test_command else None,
        recorded_tests=program.chosen.tests,
    )


def reopen(program: Program, folder: Path) -> Clone:
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


def _manner(program: Program, settings: Settings) -> Manner:
    return Manner(
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
        note=lambda text: program.relay(Warned(text)),
    )


def _identity(program: Program) -> Identity:
    return Identity(program.settings.author_name, program.settings.author_email)


def _environment(program: Program, tree: Path, submodules: list[str]) -> ExecutionEnvironment:
    return LocalEnvironment(
        tree,
        clock=program.clock,
        submodules=submodules,
        sandbox=program.sandbox or ("off" if program.settings.sandbox == "off" else "auto"),
        on_refused=told_of_refusals(program.relay),
        own_repository=True,
    )
