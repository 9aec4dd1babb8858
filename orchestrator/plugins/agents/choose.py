"""Chooses the agent program of a run: the hook of the wiring, and what a doctor says about it.

What cannot be used raises a `ConfigurationError`.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from orchestrator.app.config.settings import SourceKind
from orchestrator.app.options import flag_of
from orchestrator.app.wiring.model import first_named
from orchestrator.bot.suggestions import install_command
from orchestrator.core.errors import ConfigurationError, SandboxMissingError
from orchestrator.core.events import Warned
from orchestrator.engine.models.catalog import DEFAULT_CONTEXT_TOKENS, UNCONNECTED
from orchestrator.plugins.agents.known import agent_named, find_installed

if TYPE_CHECKING:
    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.app.doctor.findings import Group, ProbeFinding
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.engine.models.connect import AddressedModel
    from orchestrator.plugins.agents.known import AgentKind, Installed
    from orchestrator.plugins.agents.work import AgentProgram

_NOT_FOR_AGENTS = (
    "contract", "profile", "temperature", "reasoning_effort", "fallback_model", "web", "max_subagents",
    "subagent_timeout_seconds",
)  # fmt: skip
"""Options that only the model's own loop has."""
_PROBE_SECONDS = 60.0
_USUAL_OUTPUT_TOKENS = 16_000
"""The longest reply that an agent may ask for, if no other limit is set: one asks for 64,000, and each must fit."""


@dataclass(frozen=True, slots=True)
class ChosenAgent:
    """The agent program of a run. Called with a cycle's settings, it returns the program under them."""

    program: AgentProgram

    def __call__(self, settings: Settings) -> AgentProgram:
        """Return the program under these settings, which the repository's own rules may have tightened."""
        if settings.permission == "read-only":
            raise ConfigurationError(
                f"{self.program.kind.title} cannot be kept from changing files: --agent needs --permission safe or "
                "dangerous"
            )
        return replace(self.program, level=settings.permission)


def choose_agent(context: BuildContext, chosen: ChosenModel) -> ChosenAgent | None:
    """Return the agent program that the settings name; None if they name none.

    Raises:
        ConfigurationError: it is not installed, or cannot work with these settings, this model or on this machine.
    """
    settings, name = context.settings, getattr(context.settings, "agent", None)
    if name is None:
        return None
    kind, found, named, other_version = _look_for(context, name)
    if other_version:
        context.emit(Warned(other_version))
    from orchestrator.engine.models.transport import HttpOptions
    from orchestrator.plugins.agents.box import sandbox_for_agents
    from orchestrator.plugins.agents.relay import Upstream
    from orchestrator.plugins.agents.work import AgentProgram

    options = HttpOptions(read_seconds=settings.request_timeout_seconds, without_key=named.refusal)
    program = AgentProgram(
        kind,
        found,
        "safe",
        Upstream.of(named, price=chosen.price, options=options),
        min(settings.max_output_tokens or _USUAL_OUTPUT_TOKENS, chosen.reply_tokens),
        settings.context_window or chosen.window or DEFAULT_CONTEXT_TOKENS,
        sandbox_for_agents(context.environ, found.readable),
        context.redactor,
        context.clock,
        context.environ,
        random.random,
        lambda: secrets.token_urlsafe(32),
        settings.system_prompt or "",
    )
    return ChosenAgent(program)


def agent_probes(context: BuildContext) -> list[Group]:
    """Return what `doctor` looks at: whether the named agent is installed and can work here."""
    from orchestrator.app.doctor.findings import Group, Probe, ok, warned
    from orchestrator.plugins.agents.box import sandbox_for_agents

    name = getattr(context.settings, "agent", None)
    if name is None:
        return []

    def look() -> ProbeFinding:
        kind, found, named, other_version = _look_for(context, name)
        sandbox_for_agents(context.environ, found.readable)
        if other_version:
            return warned(other_version, f"npm install {kind.install}")
        return ok(f"{kind.title} {found.version}".strip() + f" works with {named.ref}, in its box")

    return [Group("Agent", (Probe(name, look, "see above", _PROBE_SECONDS),))]


def check_agents_installed() -> None:
    """Check that the library of the protocol is there."""
    if find_spec("acp") is None:
        raise ConfigurationError(
            f"--agent needs the package agent-client-protocol: {install_command('agents')}"
        )


def _look_for(context: BuildContext, name: str) -> tuple[AgentKind, Installed, AddressedModel, str]:
    """Find an agent and its model. The text says that it is there in a version that was not tried."""
    import platformdirs

    check_agents_installed()
    kind, settings = agent_named(name), context.settings
    _refuse_what_does_not_apply(kind, context.loaded)
    # Those of Pullwright alone: one in its state, and one that npm installs into.
    places = (context.home.root, platformdirs.user_data_path("pullwright", appauthor=False))
    found = find_installed(kind, [one / "agents" for one in places], context.environ.get("PATH", ""))
    found = replace(found, readable=tuple(dict.fromkeys((*found.readable, *settings.sandbox_read))))
    if settings.sandbox != "auto":
        raise SandboxMissingError(
            f"{kind.title} runs only in this machine's own sandbox: leave out --sandbox {settings.sandbox}"
        )
    named = first_named(context)
    if named.ref.provider in UNCONNECTED or named.ref.provider not in kind.protocols:
        raise ConfigurationError(
            f"{kind.title} asks its model in the protocol {' or '.join(kind.protocols)}, and {named.ref} has another one: name a model with "
            "--model PROVIDER:NAME, or its server with --api-url"
        )
    version = found.version or "unknown"
    other_version = f"{kind.title} is there in version {version}; {kind.version} is the one that was tried"
    return kind, found, named, other_version if kind.version not in {"", found.version} else ""


def _refuse_what_does_not_apply(kind: AgentKind, loaded: Loaded) -> None:
    """Refuse options that have no effect on an agent, so that nobody relies on them."""
    for key in _NOT_FOR_AGENTS:
        origin = loaded.origin.get(key)  # None if the plug-in with this option is not there
        if origin is not None and origin.kind is not SourceKind.DEFAULT:
            raise ConfigurationError(
                f"{origin.names(key)} does not apply to {kind.title}, which has its own way to ask its model: leave it out "
                f"with {flag_of('agent')}"
            )
