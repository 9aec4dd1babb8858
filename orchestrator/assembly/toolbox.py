"""The contract and the profile of a cycle: what suits the model, or what the user chose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.assembly.web import tools_for
from orchestrator.contracts.json_plan import JsonPlan
from orchestrator.contracts.native import Native, SingleStep
from orchestrator.contracts.whole_file import WholeFile
from orchestrator.core.prompts import render
from orchestrator.models.catalog import Provider, facts
from orchestrator.models.known_models import family_of, thinks
from orchestrator.profiles.anthropic import anthropic
from orchestrator.profiles.gemini import gemini
from orchestrator.profiles.minimal import minimal
from orchestrator.profiles.openai import openai
from orchestrator.profiles.planner import planner
from orchestrator.profiles.small import small
from orchestrator.tools.control import ask_question, create_pull_request, finish, run_tests
from orchestrator.tools.edit import edit_file
from orchestrator.tools.files import read_file, write_file
from orchestrator.tools.registry import ToolRegistry
from orchestrator.tools.search import glob, grep, list_dir
from orchestrator.tools.shell import run_shell_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.assembly.model import ChosenModel
    from orchestrator.config import Settings
    from orchestrator.contracts.base import Contract
    from orchestrator.cycle.parts import MayFinish, Propose, RunTests
    from orchestrator.profiles.base import Profile
    from orchestrator.tools.base import Tool
    from orchestrator.web.base import WebAccess

_VENDORS: dict[str, Callable[..., Profile]] = {
    "openai": openai,
    "anthropic": anthropic,
    "gemini": gemini,
    "minimal": minimal,
}
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
    if name == "planner":
        profile = planner(ToolRegistry.unchecked((*_planner_tools(), *online, *controls)))
    elif name == "small":
        able = (proposing, finish(may_finish))  # nobody could answer what it would ask
        thinking = chosen.ref is not None and thinks(chosen.ref.name)
        profile = small(ToolRegistry.unchecked((*_small_tools(), *online, *able)), thinks=thinking)
    else:
        profile = _VENDORS[name](web=online, custom=controls, dangerous=dangerous)
        profile = replace(profile, base_prompt=f"{profile.base_prompt}\n\n{render('cycle/role')}")
    if chosen.ref is None:
        return profile
    known = facts(chosen.api_url, chosen.ref.name)
    known = replace(known, reasoning=chosen.reasoning, streaming=chosen.streaming)
    return profile.for_model(chosen.model, known)


def _small_tools() -> tuple[Tool, ...]:
    whole, part = write_file("small/write_file", keeps_tail=True), edit_file("small/edit_file")
    return (whole, read_file(), part, run_shell_command())


def _planner_tools() -> tuple[Tool, ...]:
    return (read_file(), list_dir(), grep(), glob(), edit_file(), write_file(), run_shell_command())
