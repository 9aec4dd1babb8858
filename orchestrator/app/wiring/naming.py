"""Which model a configuration names: its provider and name, where it is asked, and the key that goes there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.catalog import (
    OFFICIAL_URLS,
    ModelRef,
    Provider,
    detect_provider,
    is_official,
    model_at,
    parse_model,
)

if TYPE_CHECKING:
    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.around import Around
    from orchestrator.engine.models.wire import Wire

KEY_OF = {
    Provider.OPENAI: "openai",
    Provider.OPENAI_CHAT: "openai",
    Provider.OPENAI_RESPONSES: "openai",
    Provider.ANTHROPIC: "anthropic",
    Provider.GEMINI: "gemini",
}


@dataclass(frozen=True, slots=True)
class Addressed:
    """A model that the configuration names, where it is asked, and the key that goes there."""

    ref: ModelRef
    api_url: str
    key: str | None = field(repr=False)

    @property
    def wire(self) -> Wire:
        """Its protocol."""
        return wire_of(self.ref, self.api_url)


def first_named(around: Around) -> Addressed:
    """The first model that is asked. The name of a recorded run is that of its `ref`.

    Raises:
        ConfigurationError: no model is named, or a key is missing.
    """
    ref = _reference(around.settings)
    return Addressed(ref, "", None) if ref.provider is Provider.REPLAY else _addressed(around, ref)


def stand_in_named(around: Around, text: str, first: Addressed) -> Addressed:
    """The model that a `--fallback-model` names.

    Raises:
        ConfigurationError: it names none, or a key is missing.
    """
    ref, api_url = _stand_in(text, first.ref, first.api_url, around.settings.api_url)
    return Addressed(ref, api_url, _key(around, ref, api_url))


def name_in_journals(settings: Settings) -> str | None:
    """What journals call the first model; None where it is not known before a server is asked.

    Raises:
        ConfigurationError: no model is named.
    """
    ref = _reference(settings)
    return f"{ref}" if ref.name and ref.provider is not Provider.REPLAY else None


def _addressed(around: Around, ref: ModelRef) -> Addressed:
    api_url = around.settings.api_url or OFFICIAL_URLS[ref.provider]
    key = _key(around, ref, api_url)
    if not ref.name:
        from orchestrator.engine.models.listing import only_model

        ref = ModelRef(ref.provider, only_model(api_url, key))
    return Addressed(ref, api_url, key)


def _stand_in(text: str, first: ModelRef, at: str, api_url: str | None) -> tuple[ModelRef, str]:
    """Which model a fallback is, and where it is asked: of the same provider where the first one is."""
    ref = model_at(first.provider, text, official=is_official(at)) if api_url else parse_model(text)
    if ref.provider is Provider.REPLAY:
        raise ConfigurationError("a recorded run cannot stand in for a model")
    if ref.provider is Provider.OPENAI:
        other_server = _host(at) != _host(OFFICIAL_URLS[Provider.OPENAI])
        chats_there = first.provider is Provider.OPENAI_CHAT and other_server
        ref = ModelRef(Provider.OPENAI_CHAT if chats_there else Provider.OPENAI_RESPONSES, ref.name)
    return ref, at if first.provider is ref.provider else OFFICIAL_URLS[ref.provider]


def wire_of(ref: ModelRef, api_url: str) -> Wire:
    """The protocol that a model speaks at an address."""
    match ref.provider:
        case Provider.ANTHROPIC:
            from orchestrator.engine.models.anthropic.encode import AnthropicWire

            return AnthropicWire.at(api_url, ref.name)
        case Provider.GEMINI:
            from orchestrator.engine.models.gemini.encode import GeminiWire

            return GeminiWire.at(api_url, ref.name)
        case Provider.OPENAI_RESPONSES:
            from orchestrator.engine.models.openai_responses.encode import ResponsesWire

            return ResponsesWire.at(api_url, ref.name)
        case _:
            from orchestrator.engine.models.openai_chat.encode import ChatWire

            return ChatWire.at(api_url, ref.name)


def _reference(settings: Settings) -> ModelRef:
    """The model's provider and name; `openai` becomes the protocol that the address speaks."""
    model, api_url = settings.model, settings.api_url
    if model is None and api_url is None:
        raise ConfigurationError(
            "no model is named: pass --model PROVIDER:NAME, for example --model anthropic:claude-sonnet-4-5, "
            "or --api-url with a server of yours, for example http://localhost:11434/v1"
        )
    detected = detect_provider(api_url) if api_url else Provider.OPENAI
    if model is None:
        ref = ModelRef(detected, "")
    elif api_url:
        ref = model_at(detected, model, official=is_official(api_url))
    else:
        ref = parse_model(model)
    if ref.provider is Provider.OPENAI:
        official = detected is Provider.OPENAI
        ref = ModelRef(Provider.OPENAI_RESPONSES if official else Provider.OPENAI_CHAT, ref.name)
    return ref


def _key(around: Around, ref: ModelRef, api_url: str) -> str | None:
    """The key for this address: the vendor's at its own address, else the one for other servers.

    `OPENAI_API_KEY` also goes to another server that the user named, as with the vendor's own
    client, but never over a plain connection to another machine.
    """
    official = _host(api_url) == _host(OFFICIAL_URLS[ref.provider])
    vendor: str | None = getattr(around.keys, KEY_OF[ref.provider])
    if official:
        if vendor is None:
            raise ConfigurationError(
                f"no key for {ref}: set {KEY_OF[ref.provider].upper()}_API_KEY, "
                "or name a server that needs none with --api-url"
            )
        return vendor
    safe = urlsplit(api_url).scheme == "https" or is_loopback(_host(api_url))
    return around.keys.other or (vendor if safe else None)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
