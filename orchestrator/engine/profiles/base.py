"""What a profile is, which ones there are, and how one is made by its name.

A profile is a prompt, `prompts/profiles/NAME.md`, with the planner's tools. Where it has others, a module NAME beside
this one makes it, by a function of that name that takes the arguments of `planner`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.prompts import prompts_folder, render
from orchestrator.engine import tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.messages import JsonObject, Usage
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.models.catalog import ModelFacts
    from orchestrator.engine.skills import Skills
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.tools.registry import ToolRegistry
    from orchestrator.engine.web.base import WebAccess


UNIVERSAL_DOCUMENT = "AGENTS.md"

SKILL_BYTES = 20_480
"""Of a skill: about the 5,000 tokens that its specification advises."""

ReplyPrice: TypeAlias = "Callable[[Usage], float | None]"
"""What a reply cost in USD, or None where the model's price is unknown."""

OtherModel: TypeAlias = "Callable[[str], tuple[Model, ReplyPrice]]"
"""The model of this name at the same provider. May raise `ConfigurationError`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Tools and words that suit a family of models, whatever protocol carries them.

    Attributes:
        name: one of `profile_names()`.
        tools: all tools, dangerous ones included; the gate and the prompt leave those out in
            safe mode. A host registers its own over them; the latest of a name wins.
        base_prompt: the first part of the system prompt, already rendered.
        documents: the project's instruction files that are read, by path below a folder.
        documents_from_root: they are looked for from the root of the file system, not only from
            that of the git repository.
        command_timeout_ms: how long a command may run where the model does not say; None leaves it
            to the session.
        supports_parallel_tool_calls: a reply may have several calls, which then run at the same time; else
            one call is asked for, and several run one after the other.
        subagents: whether the session adds the tools for subagents.
        subagents_in_background: these are `subagent` and `subagent_status`, and there are none below a subagent; else
            the tools that start and steer them.
        provider_options: see `Request.provider_options`.
        model: the model that the profile was made for; a session may be given another one.
        supports_reasoning: that model takes a reasoning effort; else none is sent to it.
        supports_streaming: its replies can be had in pieces; else they are asked for whole.
        supports_images: it reads pictures; else it is told of them in words.
        context_window_size: how many tokens it can read; None where that is not known, and no warning is due.
        is_brief: its models are given no more than they need.
        skill_bytes: how much of a skill's text its models are given, where nobody says otherwise.
        has_role: its prompt tells how a task is done and proposed; else the bot adds that.
        max_output_tokens: the longest reply, where the session sets none; None leaves it to the server.
        temperature: what suits the models of this profile, where the session sets none and no call
            failed since something was changed; None sends none.
        price: what a reply of that model cost in USD, None where it is not known.
        other_model: makes another model of the same provider with its price, by name; for subagents.
        knowledge_cutoff: up to when that model knows the world, as its vendor words it; empty if unknown.
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
        """The same profile, made for a model and with what is known of it."""
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
        """Whether what the profile says of its model is true of this one."""
        return self.model is None or self.model is model

    def priced(self, price: ReplyPrice, other_model: OtherModel | None) -> Profile:
        """The same profile, knowing what its model costs and how to reach others."""
        return replace(self, price=price, other_model=other_model)


def base_prompt(profile_name: str, tools: ToolRegistry, *, dangerous: bool) -> str:
    """Render `prompts/profiles/<profile_name>.md`, which names only those of the tools that the model is shown."""
    shown = tools.definitions(dangerous=dangerous)
    return render(f"profiles/{profile_name}", tools=[tool.name for tool in shown], definitions=shown)


_HAS_PROFILES = re.compile(r"^PROFILES\b", re.MULTILINE)


def profile_names() -> tuple[str, ...]:
    """The names of all profiles."""
    return tuple(sorted(path.stem for path in (prompts_folder() / "profiles").glob("*.md")))


def make_profile(
    name: str, *, web: tuple[Tool, ...] = (), custom: tuple[Tool, ...] = (), dangerous: bool
) -> Profile:
    """Make a profile, one of `profile_names()`, with the tools that name it in their own files.

    Args:
        web: the web tools as this profile names them; none if the session has no web.
        custom: tools of the host, after the others; of two with one name the host's is taken.
        dangerous: whether the model is shown dangerous tools.
    """
    own = _has_module(name)
    module = name if own else "planner"  # which imports this module
    make = getattr(import_module(f"{__package__}.{module}"), module)
    named = {} if own else {"name": name}
    made: Profile = make(web=(*web, *_added_tools(name)), custom=custom, dangerous=dangerous, **named)
    return made


def with_skills(profile: Profile, skills: Skills) -> Profile:
    """The same profile, with a tool that reads skills and with the words of those that were chosen.

    A brief profile has the chosen ones alone.
    """
    from orchestrator.engine.tools.registry import ToolRegistry
    from orchestrator.engine.tools.use_skill import use_skill

    most = profile.skill_bytes if skills.most_bytes is None else skills.most_bytes
    tools, words = profile.tools, [profile.base_prompt]
    if skills.all and not profile.is_brief:
        tools = ToolRegistry.unchecked([*profile.tools, use_skill(skills, most)])
    if skills.chosen:
        words.append(render("agent/skills_chosen", skills=[skill.words(most) for skill in skills.chosen]))
    return replace(profile, tools=tools, base_prompt="\n\n".join(words))


def web_tools_of(profile: str, access: WebAccess) -> tuple[Tool, ...]:
    """Make the web tools of a profile: by `NAME_web_tools` of its module, if there is one, else the planner's."""
    from orchestrator.engine.tools.web import web_tools

    module = import_module(f"{__package__}.{profile}") if _has_module(profile) else None
    made: tuple[Tool, ...] = getattr(module, f"{profile}_web_tools", web_tools)(access)
    return made


def _has_module(profile: str) -> bool:
    return find_spec(f"{__package__}.{profile}") is not None


def _added_tools(profile: str) -> tuple[Tool, ...]:
    """The tools of all modules in `tools` whose `PROFILES` name this profile, in the order of the modules' names.

    Such a module is called like its tool, and has a function of that name that makes it, or a tuple of several.
    """
    added: list[Tool] = []
    for name in _modules_with_profiles():
        module = import_module(f"{tools.__name__}.{name}")
        if profile in module.PROFILES:
            made = getattr(module, name)()
            added += made if isinstance(made, tuple) else (made,)
    return tuple(added)


@cache
def _modules_with_profiles() -> tuple[str, ...]:
    """The modules in `tools` that have `PROFILES`, by their text: to import all of them would slow each start."""
    paths = sorted(path for folder in tools.__path__ for path in Path(folder).glob("*.py"))
    return tuple(path.stem for path in paths if _HAS_PROFILES.search(path.read_text("utf-8")))
