"""The contract and the profile of a cycle: what suits the model, or what the user chose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.app.wiring.web import tools_for
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.models.catalog import Provider, facts
from orchestrator.engine.models.known_models import family_of, thinks
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests

if TYPE_CHECKING:
    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.bot.cycle.parts import MayFinish, Propose, RunTests
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.web.base import WebAccess

_FAMILY_OF_PROVIDER = {
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gemini",
}


def choose_contract(settings: Settings) -> Contract:
    """The contract that the settings name. A cycle's session ends by `finish`, also one call a step."""
    match settings.contract:
        case "native":
            return Native()
        case "single-step":
            return SingleStep(ends_by="finish")
        case _:
            return JsonPlan()


def profile_name(settings: Settings, chosen: ChosenModel) -> str:
    """The profile that the settings name, or the one that suits contract and model.

    A model that is known to be small has a profile of its own. Else one JSON plan goes with the planner, one call a step with the one-step profile, function calling
    with the profile of the model's vendor; models of nobody that is known get the planner's tools.
    """
    if settings.profile:
        return settings.profile
    if chosen.is_small:
        return "small"
    if settings.contract == "json-plan" or chosen.ref is None:
        return "planner"
    if settings.contract == "single-step":
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
