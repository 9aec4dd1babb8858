"""Profiles with their model, for programs that drive a `Session` themselves.

Each function of a profile raises what `openai_profile` raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from orchestrator.core.checks import check_callable, check_flag, check_kind, check_methods, is_whole
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.base import MODEL_METHODS
from orchestrator.engine.models.catalog import (
    OFFICIAL_URLS,
    ModelRef,
    Provider,
    detect_provider,
    facts,
    is_official,
    model_at,
)
from orchestrator.engine.models.connect import KEY_OF, AddressedModel, ConnectedModel, connected, echo_model
from orchestrator.engine.models.keys import OTHER_KEY, ApiKeys, key_for_server, secret_values
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.profiles.catalog import (
    anthropic,
    gemini,
    make_profile,
    minimal,
    openai,
)
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.models.base import Model, OnWait
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.tools.base import ProfileTools, Tool


READ_SECONDS = 600.0


class ProfileOptions(TypedDict, total=False):
    """The keywords of all profile functions.

    Attributes:
        api_url: address of a server other than the vendor's; None for the vendor's.
        api_key: key; by default the vendor's variable in the environment, for another address
            `PULLWRIGHT_API_KEY`.
        on_wait: called with the seconds and the error before each wait.
        web: makes the web tools, such as `HttpWeb` of the plug-in `web`. Without a search engine there is no search tool.
        custom: tools of the host, after the others; a tool with a known name replaces that tool.
        dangerous: whether the profile has dangerous tools (the default).
        context_window_size: context window in tokens, for an unknown model.
        knowledge_cutoff: end of the model's training data, for an unknown model.
    """

    api_url: str | None
    api_key: str | None
    on_wait: OnWait | None
    web: ProfileTools | None
    custom: Iterable[Tool]
    dangerous: bool
    context_window_size: int | None
    knowledge_cutoff: str | None


def openai_profile(model: str | Model, **options: Unpack[ProfileOptions]) -> Profile:
    """Return a profile with the tools and prompts for OpenAI's models: patches in the v4a format.

    Example::

        session = Session(profile=openai_profile(model="gpt-5.2-codex"), environment=LocalEnvironment("."))

    Args:
        model: the vendor's name of the model, `PROVIDER:NAME` for another protocol, or an object with `name`,
            `complete`, `stream` and `aclose` (`orchestrator.engine.models.base.Model`). With `api_url` a name
            may have colons, such as `qwen3:8b`.
        options: see `ProfileOptions`.

    Raises:
        ConfigurationError: the model has no name or an unknown provider, the key is missing, or an argument
            has the wrong type.
        TypeError: a keyword is unknown.
    """
    given = _Given(model, **options)
    return given.ready(Provider.OPENAI, openai(**given.parts("openai")))


def anthropic_profile(
    model: str | Model, *, beta_headers: Sequence[str] | str = (), **options: Unpack[ProfileOptions]
) -> Profile:
    """Return a profile with the tools and prompts for Anthropic's models: edits of exact strings.

    Example::

        profile = anthropic_profile(model="claude-sonnet-4-5", beta_headers=["context-1m-2025-08-07"])

    Args:
        model: see `openai_profile`.
        beta_headers: names of beta features, sent with each request; a single name may be a `str`.
        options: see `ProfileOptions`.
    """
    given = _Given(model, **options)
    return given.ready(Provider.ANTHROPIC, anthropic(**given.parts("anthropic"), beta_headers=beta_headers))


def gemini_profile(
    model: str | Model,
    *,
    safety_settings: Sequence[JsonObject] | None = None,
    grounding: bool = False,
    **options: Unpack[ProfileOptions],
) -> Profile:
    """Return a profile with the tools and prompts for Google's models.

    Example::

        profile = gemini_profile(model="gemini-3-pro-preview", grounding=True)

    Args:
        model: see `openai_profile`.
        safety_settings: the vendor's list of categories and thresholds; None for its defaults.
        grounding: whether the model may search the web by itself.
        options: see `ProfileOptions`.
    """
    given = _Given(model, **options)
    profile = gemini(**given.parts("gemini"), safety_settings=safety_settings, grounding=grounding)
    return given.ready(Provider.GEMINI, profile)


def minimal_profile(
    model: str | Model, *, submit: bool = False, **options: Unpack[ProfileOptions]
) -> Profile:
    """Return a profile with one tool call per step, for any model.

    Example::

        profile = minimal_profile(model="qwen2.5-coder:7b", api_url="http://localhost:11434/v1", submit=True)

    Args:
        model: see `openai_profile`.
        submit: whether only a call of `submit` ends the session.
        options: see `ProfileOptions`.
    """
    given = _Given(model, **options)
    return given.ready(Provider.OPENAI_CHAT, minimal(**given.parts("minimal"), submit=submit))


def assistant_profile(model: str | Model, **options: Unpack[ProfileOptions]) -> Profile:
    """Return a profile for work in a person's folder, for any model.

    It has tools for files, commands, to-do lists, PDF documents and subagents in the background. Those for a memory
    and for indices of documents are a plug-in's (`orchestrator.plugins.memory.tools`): pass them as `custom`.

    Example::

        profile = assistant_profile(model="gpt-5.2", web=HttpWeb())

    Args:
        model: see `openai_profile`.
        options: see `ProfileOptions`.
    """
    given = _Given(model, **options)
    return given.ready(Provider.OPENAI, make_profile("assistant", **given.parts("assistant")))


def explorer_profile(model: str | Model, **options: Unpack[ProfileOptions]) -> Profile:
    """Return a profile with read-only tools, for any model. Each reply begins with a hypothesis.

    Example::

        profile = explorer_profile(model="echo")  # without a model, to try a program out

    Args:
        model: see `openai_profile`.
        options: see `ProfileOptions`.
    """
    given = _Given(model, **options)
    return given.ready(Provider.OPENAI, make_profile("explorer", **given.parts("explorer")))


@dataclass(frozen=True, slots=True)
class _Given:
    """The checked arguments of a profile function."""

    model: str | Model
    api_url: str | None = None
    api_key: str | None = None
    on_wait: OnWait | None = None
    web: ProfileTools | None = None
    custom: Iterable[Tool] = ()
    dangerous: bool = True
    context_window_size: int | None = None
    knowledge_cutoff: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            check_methods("model", self.model, MODEL_METHODS, "a name or an object that answers")
        for name in ("api_url", "api_key"):
            if (text := getattr(self, name)) is not None:
                check_kind(name, text, str, "a text")
                if not text.strip():
                    raise ConfigurationError(f"{name} is empty: leave it out, or pass one")
        if self.on_wait is not None:
            check_callable("on_wait", self.on_wait)
        size = self.context_window_size
        if size is not None and not (is_whole(size) and size > 0):
            raise ConfigurationError(f"context_window_size must be a number of tokens, not {size!r}")
        if self.knowledge_cutoff is not None:
            check_kind("knowledge_cutoff", self.knowledge_cutoff, str, "a text")
        check_flag("dangerous", self.dangerous)
        if self.web is not None:
            check_methods("web", self.web, ("tools",), "web tools of the plug-in web, such as HttpWeb()")
        check_kind("custom", self.custom, Iterable, "tools")

    def parts(self, profile: str) -> dict[str, Any]:
        """Return the arguments for the function that creates the profile."""
        online = self.web.tools(profile) if self.web is not None else ()
        return {"custom": (*online, *self.custom)}

    def ready(self, provider: Provider, profile: Profile) -> Profile:
        """Return the profile with its model. The host's data about the model have precedence over the catalog's."""
        if not self.dangerous:
            safe = (tool for tool in profile.tools if not tool.dangerous)
            profile = replace(profile, tools=ToolRegistry.unchecked(safe))
        if isinstance(self.model, str):
            chosen = self._connected(provider, self.model)
            known = facts(chosen.api_url, chosen.ref.name if chosen.ref else self.model)
            profile = profile.for_model(chosen.model, known)
            profile = replace(profile, price=chosen.price, other_model=_others(chosen))
        else:
            profile = profile.for_model(self.model)
        size, cutoff = self.context_window_size, self.knowledge_cutoff
        return replace(
            profile,
            context_window_size=profile.context_window_size if size is None else size,
            knowledge_cutoff=profile.knowledge_cutoff if cutoff is None else cutoff,
        )

    def _connected(self, provider: Provider, model: str) -> ConnectedModel:
        ref = model_at(provider, model, official=self.api_url is None or is_official(self.api_url))
        if ref.provider is Provider.ECHO:
            return echo_model()
        if ref.provider is Provider.REPLAY:
            raise ConfigurationError(
                f"{ref} is for the program; pass a ReplayModel (orchestrator.engine.models.replay) to repeat a run here"
            )
        url = self.api_url or OFFICIAL_URLS[ref.provider]
        official = detect_provider(url) is Provider.OPENAI
        if ref.provider is Provider.OPENAI:
            ref = ModelRef(Provider.OPENAI_RESPONSES if official else Provider.OPENAI_CHAT, ref.name)
        addressed = AddressedModel(ref, url, self.api_key or _key(ref, url))
        return connected(
            addressed, READ_SECONDS, SystemClock(), self.on_wait, Redactor(secret_values(os.environ))
        )


def _key(ref: ModelRef, url: str) -> str | None:
    found = key_for_server(ApiKeys.of(os.environ), url, (), KEY_OF[ref.provider])
    if found.key is None and found.variable != OTHER_KEY:
        raise ConfigurationError(f"no key for {ref}: set {found.variable}, or pass api_key or api_url")
    return found.key


def _others(chosen: ConnectedModel) -> Callable[[str], tuple[Model, Callable[[Any], float | None]]] | None:
    if chosen.other is None:
        return None
    connect = chosen.other

    def other(name: str) -> tuple[Model, Callable[[Any], float | None]]:
        found = connect(name)
        return found.model, found.price

    return other
