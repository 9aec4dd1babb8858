"""What is fixed when a session starts, so that the bytes of every request begin alike: prompt, tools, form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.models.base import Request
from orchestrator.engine.profiles.orientation import orient
from orchestrator.engine.profiles.system_prompt import system_prompt
from orchestrator.engine.session.ask import Ask
from orchestrator.engine.session.calls import Workbench
from orchestrator.engine.session.worst_case import DEFAULT_REPLY_TOKENS, fixed_bytes
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolDefinition, Usage
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Price, Profile
    from orchestrator.engine.session.config import Host, SessionConfig
    from orchestrator.engine.session.limits import Budget
    from orchestrator.engine.tools.base import Tool


SUBMIT = "submit"
"""The tool by which alone a one-step session ends, where its profile has it."""


_FIXED = ("user_instructions", "max_subagent_depth")
"""Settings from which the beginning of every request is made: changing it would undo the provider's cache."""


def usual_contract(profile: Profile) -> Contract:
    """Function calling; one call a step for a profile that wants it so."""
    if profile.supports_parallel_tool_calls:
        return Native()
    return SingleStep(ends_by=SUBMIT if profile.tools.get(SUBMIT) else None)


def unknown_price(_usage: Usage) -> float | None:
    """Where nobody knows what the model costs."""
    return None


@dataclass(frozen=True, slots=True)
class Setting:
    """What a session is made of, beside its model."""

    profile: Profile
    environment: ExecutionEnvironment
    contract: Contract
    config: SessionConfig
    host: Host
    clock: Clock


@dataclass(frozen=True, slots=True)
class Talk:
    """A session that has started: what is fixed, and how it asks with what may change between two rounds."""

    system: str
    bench: Workbench
    _setting: Setting
    _shown: tuple[ToolDefinition, ...]
    _request: Request
    _fixed_bytes: int

    def ask(self, model: Model, price: Price, config: SessionConfig) -> Ask:
        """How the next round asks."""
        profile = self._setting.profile
        own = profile.is_made_for(model)
        request = replace(
            self._request,
            reasoning_effort=config.reasoning_effort if profile.supports_reasoning or not own else None,
            max_output_tokens=config.max_output_tokens or (profile.max_output_tokens if own else None),
            temperature=self._temperature(config, own=own),
            top_p=config.top_p,
        )
        return Ask(
            model=model,
            contract=self._setting.contract,
            tools=self._shown,
            request=request,
            stream=config.stream and (profile.supports_streaming or not own),
            price=price,
            fixed_bytes=self._fixed_bytes,
            context_window=profile.context_window_size if own else None,
            parallel=profile.supports_parallel_tool_calls,
            reply_tokens=config.reply_tokens or DEFAULT_REPLY_TOKENS,
        )

    def _temperature(self, config: SessionConfig, *, own: bool) -> float | None:
        """The session's, or else the profile's until a call fails: after that the likeliest reply was the wrong one."""
        if config.temperature is not None or not own or self.bench.failures:
            return config.temperature
        return self._setting.profile.temperature

    def change(self, config: SessionConfig) -> None:
        """Take other settings for the calls from now on.

        Raises:
            ConfigurationError: one differs that the system prompt or the tools shown were made from.
        """
        for name in _FIXED:
            if getattr(config, name) != getattr(self._setting.config, name):
                raise ConfigurationError(
                    f"{name} is part of the prompt, which is fixed once the session has started: start a new "
                    "session with it, or tell the model with steer()"
                )
        self.bench.times = config.command_times(self._setting.profile)
        self.bench.limits = config.output_limits


async def begin(
    setting: Setting, model_name: str, emit: Emit, more_tools: Iterable[Tool], budget: Budget
) -> Talk:
    """Build the system prompt and the tools. The environment is ready.

    Args:
        setting: what the session is made of.
        model_name: what the prompt calls the model.
        emit: takes the events of the tools.
        more_tools: come after the profile's.
        budget: counts the calls that are refused.
    """
    profile, config, host = setting.profile, setting.config, setting.host
    tools = ToolRegistry.unchecked([*profile.tools, *more_tools])
    shown = tuple(tool.definition for tool in tools if host.shows(tool))
    system = host.system(shown) if host.system else await _system(setting, model_name, shown)
    request = Request(
        system=system,
        messages=(),
        parallel_tool_calls=None if profile.supports_parallel_tool_calls else False,
        provider_options=profile.provider_options,
    )
    bench = Workbench(
        tools,
        host.gate,
        setting.environment,
        host.ledger,
        emit,
        config.command_times(profile),
        config.output_limits,
        shows=host.shows,
        budget=budget,
        clean=host.clean,
    )
    request = setting.contract.shape(request, shown)
    return Talk(system, bench, setting, shown, request, fixed_bytes(request))


async def _system(setting: Setting, model_name: str, shown: tuple[ToolDefinition, ...]) -> str:
    profile = setting.profile
    orientation = await orient(
        setting.environment,
        documents=profile.documents,
        from_root=profile.documents_from_root,
        clock=setting.clock,
        model_name=model_name,
        knowledge_cutoff=profile.knowledge_cutoff,
    )
    prompt = system_prompt(
        profile,
        contract_words=setting.contract.describe(shown),
        orientation=orientation,
        user_instructions=setting.config.user_instructions,
    )
    return setting.host.clean("the system prompt", prompt)
