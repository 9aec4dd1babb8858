"""A profile: the tools, the prompt and the defaults that suit a family of models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.prompts import prompts_folder, render

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.messages import JsonObject, Usage
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.models.catalog import ModelFacts
    from orchestrator.engine.skills import Skills
    from orchestrator.engine.tools.registry import ToolRegistry


UNIVERSAL_DOCUMENT = "AGENTS.md"

SKILL_BYTES = 20_480
"""Size of a skill: about the 5,000 tokens that the specification of skills recommends."""

ReplyPrice: TypeAlias = "Callable[[Usage], float | None]"
"""Returns the cost of a reply in USD, or None if the model's price is unknown."""

OtherModel: TypeAlias = "Callable[[str], tuple[Model, ReplyPrice]]"
"""Returns the model of this name at the same provider, and its price. May raise `ConfigurationError`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Tools and prompts for a family of models, independent of the protocol.

    Attributes:
        name: one of `profile_names()`.
        tools: all tools, dangerous ones included; the gate and the prompt omit those in safe mode. A host may
            add its own; of two tools with one name the later one is used.
        base_prompt: the first part of the system prompt, already rendered.
        documents: the project's instruction files to read, by path below a folder.
        documents_from_root: whether they are searched from the root of the file system, instead of only from
            the root of the git repository.
        command_timeout_ms: default time-out of a command; None uses the session's.
        supports_parallel_tool_calls: whether a reply may have several calls, which then run concurrently.
            Otherwise one call is requested, and several run one after the other.
        subagents: whether the session adds the tools for subagents.
        subagents_in_background: whether these are `subagent` and `subagent_status`, without further levels of
            subagents, instead of the tools that start and steer them.
        provider_options: see `Request.provider_options`.
        model: the model for which the profile was created; a session may use another one.
        supports_reasoning: whether that model accepts a reasoning effort; if not, none is sent to it.
        supports_streaming: whether it can stream replies; if not, whole replies are requested.
        supports_images: whether it reads images; if not, it gets a note in their place.
        context_window_size: tokens that it can read; None if unknown, so that no warning is given.
        is_brief: whether its models get only necessary information.
        skill_bytes: the default size of a skill's text for its models.
        has_role: whether its prompt explains how a task is done and proposed; if not, the bot adds that.
        max_output_tokens: the default limit of a reply; None leaves it to the server.
        temperature: the default temperature until a call has failed since the last change; None sends none.
        price: computes the cost of a reply of that model in USD; returns None if it is unknown.
        other_model: creates another model of the same provider by name, with its price; for subagents.
        knowledge_cutoff: the end of that model's knowledge, as its vendor words it; empty if unknown.
    """

    name: str
    tools: ToolRegistry
    base_prompt: str
    documents: tuple[str, ...] = (UNIVERSAL_DOCUMENT,)
    documents_from_root: bool = False
    command_timeout_ms: int | None = None
    supports_parallel_tool_calls: bool = True
    subagents: bool = False
    subagents_in_background: bool = False
    provider_options: Mapping[str, JsonObject] = field(default_factory=dict)
    model: Model | None = None
    supports_reasoning: bool = True
    supports_streaming: bool = True
    supports_images: bool = True
    context_window_size: int | None = None
    knowledge_cutoff: str = ""
    is_brief: bool = False
    skill_bytes: int = SKILL_BYTES
    has_role: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    price: ReplyPrice | None = None
    other_model: OtherModel | None = None

    def for_model(self, model: Model | None, facts: ModelFacts | None = None) -> Profile:
        """Return a copy for a model and its known abilities."""
        if facts is None:
            return replace(self, model=model)
        return replace(
            self,
            model=model,
            supports_reasoning=facts.reasoning is not False,
            supports_streaming=facts.streaming,
            supports_images=facts.images,
            context_window_size=facts.known_window,
            knowledge_cutoff=facts.knowledge_cutoff,
        )

    def is_made_for(self, model: Model) -> bool:
        """Return whether the profile's data about its model applies to this model."""
        return self.model is None or self.model is model


def base_prompt(profile_name: str, tools: ToolRegistry, *, dangerous: bool) -> str:
    """Render `prompts/profiles/<profile_name>.md`, which names only the tools that the model is shown."""
    shown = tools.definitions(dangerous=dangerous)
    return render(f"profiles/{profile_name}", tools=[tool.name for tool in shown], definitions=shown)


def profile_names() -> tuple[str, ...]:
    """Return the names of all profiles."""
    return tuple(sorted(path.stem for path in (prompts_folder() / "profiles").glob("*.md")))


def with_skills(profile: Profile, skills: Skills) -> Profile:
    """Return a copy with a tool that reads skills, and with the text of the chosen skills.

    A brief profile gets only the chosen ones.
    """
    from orchestrator.engine.tools.control import use_skill
    from orchestrator.engine.tools.registry import ToolRegistry

    most = skills.limit(profile.skill_bytes)
    tools, words = profile.tools, [profile.base_prompt]
    if skills.all and not profile.is_brief:
        tools = ToolRegistry.unchecked([*profile.tools, use_skill(skills, most)])
    if skills.chosen:
        words.append(render("agent/skills_chosen", skills=[skill.words(most) for skill in skills.chosen]))
    return replace(profile, tools=tools, base_prompt="\n\n".join(words))
