"""For programs that drive a session themselves: profiles with their model, ready for `Session`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.assembly.model import ChosenModel, Connection, connected
from orchestrator.assembly.naming import KEY_OF
from orchestrator.assembly.web import tools_for
from orchestrator.config import ApiKeys
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.models.catalog import OFFICIAL_URLS, ModelRef, Provider, facts
from orchestrator.profiles.anthropic import anthropic
from orchestrator.profiles.gemini import gemini
from orchestrator.profiles.minimal import minimal
from orchestrator.profiles.openai import openai

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.models.base import Model, OnWait
    from orchestrator.profiles.base import Profile

READ_SECONDS = 600.0


def openai_profile(model: str | Model, **options: Any) -> Profile:
    """The tools and words for OpenAI's models: patches in the v4a format.

    Example::

        session = Session(profile=openai_profile(model="gpt-5.2-codex"), environment=LocalEnvironment("."))

    Args:
        model: its name at the vendor, `PROVIDER:NAME` for another protocol, or a `Model`.
        options: `api_url` (another address than the vendor's), `api_key` (the vendor's variable in the
            environment if left out), `on_wait` (told before each wait), `web` (a `WebAccess`, for the
            web tools), and what `orchestrator.profiles.openai.openai` takes, such as `custom` tools.

    Raises:
        ConfigurationError: the key is missing, or the address makes no sense.
    """
    return _profile(openai, Provider.OPENAI, model, options)


def anthropic_profile(model: str | Model, **options: Any) -> Profile:
    """The tools and words for Anthropic's models: edits by `old_string` and `new_string`.

    Example::

        profile = anthropic_profile(model="claude-sonnet-4-5", beta_headers=["context-1m-2025-08-07"])

    Args:
        model: see `openai_profile`.
        options: the same, and what `orchestrator.profiles.anthropic.anthropic` takes.

    Raises:
        ConfigurationError: see `openai_profile`.
    """
    return _profile(anthropic, Provider.ANTHROPIC, model, options)


def gemini_profile(model: str | Model, **options: Any) -> Profile:
    """The tools and words for Google's models.

    Example::

        profile = gemini_profile(model="gemini-3-pro-preview", grounding=True)

    Args:
        model: see `openai_profile`.
        options: the same, and what `orchestrator.profiles.gemini.gemini` takes.

    Raises:
        ConfigurationError: see `openai_profile`.
    """
    return _profile(gemini, Provider.GEMINI, model, options)


def minimal_profile(model: str | Model, **options: Any) -> Profile:
    """One tool call a step, for any model.

    Example::

        profile = minimal_profile(model="openai-chat:qwen2.5-coder", api_url="http://localhost:8080/v1", submit=True)

    Args:
        model: see `openai_profile`.
        options: the same, and what `orchestrator.profiles.minimal.minimal` takes.

    Raises:
        ConfigurationError: see `openai_profile`.
    """
    return _profile(minimal, Provider.OPENAI_CHAT, model, options)


def _profile(
    make: Callable[..., Profile], provider: Provider, model: str | Model, options: dict[str, Any]
) -> Profile:
    api_url, api_key = options.pop("api_url", None), options.pop("api_key", None)
    on_wait, web = options.pop("on_wait", None), options.pop("web", None)
    if web is not None:
        options["web"] = tools_for(provider.value, web)
    if not isinstance(model, str):
        return make(model=model, **options)
    if not model.strip():
        raise ConfigurationError("the name of the model is empty: pass one that the vendor knows")
    chosen = _chosen(provider, model, api_url, api_key, on_wait)
    ref = chosen.ref
    known = facts(chosen.api_url, ref.name if ref else model)
    options.setdefault("context_window", known.known_window)
    options.setdefault("knowledge_cutoff", known.knowledge_cutoff)
    profile = make(model=chosen.model, **options)
    return profile.priced(chosen.price, _others(chosen))


def _chosen(
    provider: Provider, model: str, api_url: str | None, api_key: str | None, on_wait: OnWait | None
) -> ChosenModel:
    prefix, _, rest = model.partition(":")
    ref = ModelRef(Provider(prefix), rest) if prefix in set(Provider) and rest else ModelRef(provider, model)
    url = api_url or OFFICIAL_URLS.get(ref.provider, "")
    official = _host(url) == _host(OFFICIAL_URLS.get(ref.provider, ""))
    if ref.provider is Provider.OPENAI:
        ref = ModelRef(Provider.OPENAI_RESPONSES if official else Provider.OPENAI_CHAT, ref.name)
    connection = Connection(url, api_key or _key(ref, official=official), READ_SECONDS)
    return connected(ref, connection, SystemClock(), on_wait)


def _key(ref: ModelRef, *, official: bool) -> str | None:
    """The vendor's key for the vendor's address; no key of a vendor's for any other."""
    keys = ApiKeys.of(os.environ)
    if not official:
        return keys.other
    name = KEY_OF.get(ref.provider, "openai")
    key: str | None = getattr(keys, name)
    if key is None:
        raise ConfigurationError(f"no key for {ref}: set {name.upper()}_API_KEY, or pass api_key or api_url")
    return key


def _others(chosen: ChosenModel) -> Callable[[str], tuple[Model, Callable[[Any], float | None]]] | None:
    if chosen.other is None:
        return None
    connect = chosen.other

    def other(name: str) -> tuple[Model, Callable[[Any], float | None]]:
        found = connect(name)
        return found.model, found.price

    return other


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
