"""Chooses the parts of a session from the settings and the model: contract, profile, tools and memory."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.app.options import all_options
from orchestrator.app.plugins import Point, added
from orchestrator.bot.cycle.parts import ProfileSources
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.models.catalog import (
    DEFAULT_CONTEXT_TOKENS,
    Provider,
    facts,
    family_of,
    is_reasoning_model,
)
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.config import SessionConfig, compaction_of
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _typeshed import DataclassInstance

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.bot.coordination.budget import Caps
    from orchestrator.bot.cycle.parts import CompleteProfile
    from orchestrator.bot.git.clone import Clone
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.contracts.native import Native
    from orchestrator.engine.models.catalog import ModelRef
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.config import CompactionPolicy
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.tools.control import MayFinish, Propose, RunTests


MakeTools: TypeAlias = "Callable[[str], tuple[Tool, ...]]"
"""Makes the tools that the plug-ins add to a session, from the name of its profile."""


def no_tools(_profile: str) -> tuple[Tool, ...]:
    """Make no tools."""
    return ()


def open_added_tools(context: BuildContext) -> MakeTools:
    """Return what makes the tools that the plug-ins add (`Point.TOOLS`)."""
    makers = [make for prepare in added(Point.TOOLS) if (make := prepare(context)) is not None]
    return lambda profile: tuple(tool for make in makers for tool in make(profile))


_PROMPT_TOKENS = 5_000
"""Tokens of a small window that are reserved for the system prompt, the tools and a reply."""
_TEXT_SHARE = 5 / 8
"""Characters of file text per token of the rest of the window.

Project instructions, task, attachments and map may each be as long, and code has about three characters per
token.
"""
_LEAST_CHARACTERS = 500


def first_text(window: int | None, most: int) -> int:
    """Return how many characters of file text fit into the first prompt of a model with this window.

    Args:
        window: context window in tokens; None if it is not known.
        most: maximum of the settings.
    """
    if window is None:
        return most
    return min(most, max(int((window - _PROMPT_TOKENS) * _TEXT_SHARE), _LEAST_CHARACTERS))


def policy_of(settings: Settings, chosen: ChosenModel, profile: str) -> CompactionPolicy | None:
    """Return when to compact a conversation; None in a replay, whose replies are fixed."""
    return None if chosen.tests is not None else compaction_of(profile, settings.compact_at)


_FAMILY_OF_PROVIDER = {
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gemini",
}


def cycle_contract(settings: Settings, chosen: ChosenModel) -> Contract:
    """Create the contract of the settings, or the one that suits the model.

    A cycle's session ends by `finish`, even with one call per step.
    """
    match cycle_contract_name(settings, chosen):
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


def cycle_contract_name(settings: Settings, chosen: ChosenModel) -> str:
    """Return the contract of the settings, else whole files for a small model, else JSON plans.

    If nothing may be written, a small model gets JSON plans too.
    """
    writes_files = chosen.is_small and settings.permission != "read-only"
    return settings.contract or ("whole-file" if writes_files else "json-plan")


def cycle_profile_name(settings: Settings, chosen: ChosenModel) -> str:
    """Return the profile of the settings, or the one that suits contract and model.

    Small models and whole-file replies have their own profile. Otherwise JSON plans use the planner, one call
    per step uses the one-step profile, and function calling uses the profile of the model's vendor; models of
    an unknown vendor get the planner's tools.
    """
    if settings.profile:
        return settings.profile
    contract = cycle_contract_name(settings, chosen)
    if chosen.is_small or contract == "whole-file":
        return "small"
    if contract == "json-plan" or chosen.ref is None:
        return "planner"
    if contract == "single-step":
        return "minimal"
    return _family_or(chosen.ref, "planner")


def chat_profile_name(settings: Settings, chosen: ChosenModel) -> str:
    """Return the profile of the settings, else that of the model's family, else the general one."""
    if settings.profile:
        return settings.profile
    return "chat" if chosen.is_small or chosen.ref is None else _family_or(chosen.ref, "assistant")


def _family_or(ref: ModelRef, other: str) -> str:
    return family_of(ref.name) or _FAMILY_OF_PROVIDER.get(ref.provider, other)


def chat_contract(settings: Settings, *, submits: bool = False) -> Native:
    """Create the contract of a conversation: one call per step if the settings say so, else native calls.

    JSON plans and whole files are for tasks, because a conversation needs text.

    Args:
        submits: whether only a call of `submit` ends a reply; then it is one call per step.
    """
    from orchestrator.engine.contracts.native import Native, SingleStep

    if submits:
        return SingleStep(ends_by="submit")
    return SingleStep() if settings.contract == "single-step" else Native()


def same_named(kind: type[DataclassInstance], settings: Settings) -> dict[str, Any]:
    """Return the values of the options that are fields of this class, by the one name that both have.

    So an option reaches its user without a copy of its name on the way.
    """
    return {one.name: getattr(settings, one.name) for one in fields(kind) if one.name in all_options()}


def session_config(settings: Settings, chosen: ChosenModel, profile: str) -> SessionConfig:
    """Return the options of a session under a profile. Its limits are those of one cycle as the settings have them."""
    return SessionConfig(
        **same_named(SessionConfig, settings),
        reply_tokens=chosen.reply_tokens,
        compaction=policy_of(settings, chosen, profile),
        user_instructions=settings.system_prompt or "",
    )


def chat_config(settings: Settings, chosen: ChosenModel, caps: Caps) -> SessionConfig:
    """Return the options of a conversation. Tokens and US dollars are limits of the whole, rounds and minutes of each reply.

    A number of rounds should not end a conversation.
    """
    return replace(
        session_config(settings, chosen, chat_profile_name(settings, chosen)),
        max_tool_rounds_per_input=caps.rounds or 0,
        max_tokens=caps.tokens,
        max_usd=caps.usd,
        max_minutes=caps.minutes,
    )


def cycle_profile(  # noqa: PLR0913, PLR0917  what the user chose, then what the cycle brings
    name: str,
    chosen: ChosenModel,
    propose: Propose,
    may_finish: MayFinish,
    tests: RunTests | None = None,
    foreign: tuple[Tool, ...] = (),
    *,
    added_tools: MakeTools = no_tools,
) -> Profile:
    """Create a profile with the tools that end a cycle, and with the instructions for a cycle.

    Without `tests`, no tool runs the tests.
    """
    running = () if tests is None else (run_tests(tests),)
    proposing = create_pull_request(propose)
    controls = (
        *added_tools(name),
        *foreign,
        *running,
        proposing,
        ask_question(),
        finish(may_finish),
    )
    profile = make_profile(name, custom=controls)
    if not profile.has_role:
        profile = profile.with_words(lambda shown: render("cycle/role", tools=shown))
    return known_of(profile, chosen)


def known_of(profile: Profile, chosen: ChosenModel) -> Profile:
    """Return the profile with the known properties of the chosen model."""
    if chosen.ref is None:
        return profile
    if is_reasoning_model(chosen.ref.name):
        # A reasoning model needs room for its reasoning, and tends to repeat itself at a low temperature.
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


def profile_completions(settings: Settings) -> tuple[CompleteProfile, ...]:
    """Return what completes the profile of each session (`Point.PROFILE`)."""
    made = (prepare(settings) for prepare in added(Point.PROFILE))
    return tuple(complete for complete in made if complete is not None)


def profile_sources(
    place: Path | Clone | None,
    base: str | None,
    clean: Callable[[str, str], str],
    warn: Callable[[str], None],
) -> ProfileSources:
    """Return what the profile of a conversation may be completed with.

    No file is reviewed outside of a repository, or if a branch other than the default one was cloned.

    Args:
        place: folder of the conversation, in a repository or not; or a clone; None if there is neither yet.
        base: the branch that was named for a clone; None for the default branch.
    """
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.local import LocalRepository, locate

    sources = ProfileSources(clean, warn)
    if isinstance(place, Clone):
        return sources if base else replace(sources, trees=place.trees, commit=place.base_commit)
    try:
        found = locate(place) if place else None
        if found is None or not (found.top / ".git").exists():
            return sources
        repository = LocalRepository(found.top)
        commit = repository.reviewed_commit()
        return replace(sources, trees=repository.trees(), commit=commit) if commit else sources
    except WorkspaceError as error:
        warn(f"the files of the default branch cannot be read: {error}")
        return sources
