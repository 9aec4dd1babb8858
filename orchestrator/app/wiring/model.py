"""Chooses the models, with their addresses, keys and prices."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.app.options import flag_of
from orchestrator.bot.journal.reader import find_run, read_run, replay_of
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import WaitStarted, Warned
from orchestrator.core.messages import Usage
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.catalog import (
    OFFICIAL_URLS,
    UNCONNECTED,
    ModelRef,
    Provider,
    detect_provider,
    family_of,
    flat_price,
    is_official,
    is_small,
    model_at,
    parameters_named,
    parse_model,
)
from orchestrator.engine.models.connect import KEY_OF, AddressedModel, ConnectedModel, connected, echo_model
from orchestrator.engine.models.keys import OTHER_KEY, ServerKey, key_for_server

if TYPE_CHECKING:
    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.foreign_tools import RecordedTools
    from orchestrator.bot.cycle.parts import RecordedTests
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.errors import ModelError
    from orchestrator.engine.models.base import Switched


def first_named(context: BuildContext) -> AddressedModel:
    """Return the first model to ask. For a recorded run, `ref` has the run's name."""
    settings = context.settings
    if settings.model is None and settings.api_url is None:
        from orchestrator.engine.models.listing import local_servers

        if found := local_servers(context.environ):
            offered = "; ".join(f"{server}: pass {server.flags}" for server in found)
            raise ConfigurationError(f"no model is named: on this machine {offered}")
    ref = _reference(settings)
    if ref.provider in UNCONNECTED:
        return AddressedModel(ref, "", None)
    api_url = settings.api_url or OFFICIAL_URLS[ref.provider]
    granted = _key(context, ref, api_url)
    if not ref.name:
        from orchestrator.engine.models.listing import only_model

        ref = ModelRef(ref.provider, only_model(api_url, granted.key))
    return AddressedModel(ref, api_url, granted.key, granted.refusal)


def fallback_named(context: BuildContext, text: str, first: AddressedModel) -> AddressedModel:
    """Return the model of one `--fallback-model`. A model of the first one's provider uses the same address."""
    provider, at = first.ref.provider, first.api_url
    is_addressed = bool(context.settings.api_url)
    ref = model_at(provider, text, official=is_official(at)) if is_addressed else parse_model(text)
    if ref.provider in UNCONNECTED:
        raise ConfigurationError("a recorded run or an echo cannot be a fallback: name a model")
    if ref.provider is Provider.OPENAI:
        other_server = detect_provider(at) is not Provider.OPENAI
        chats_there = provider is Provider.OPENAI_CHAT and other_server
        ref = ModelRef(Provider.OPENAI_CHAT if chats_there else Provider.OPENAI_RESPONSES, ref.name)
    api_url = at if provider is ref.provider else OFFICIAL_URLS[ref.provider]
    granted = _key(context, ref, api_url)
    return AddressedModel(ref, api_url, granted.key, granted.refusal)


def name_in_journals(settings: Settings) -> str | None:
    """Return the name of the first model in journals; None if only its server knows the name."""
    ref = _reference(settings)
    return f"{ref}" if ref.name and ref.provider is not Provider.REPLAY else None


def _reference(settings: Settings) -> ModelRef:
    """Return the model's provider and name. `openai` is replaced by the protocol of the address."""
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


def _key(context: BuildContext, ref: ModelRef, api_url: str) -> ServerKey:
    found = key_for_server(context.keys, api_url, context.settings.key_host, KEY_OF[ref.provider])
    if found.key is None and found.variable != OTHER_KEY:
        raise ConfigurationError(
            f"no key for {ref}: set {found.variable}, or name a server that needs none with --api-url"
        )
    return found


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


CAPS_IN_USD = ("max_usd", "max_usd_per_task", "max_usd_per_day", "max_usd_per_repo")


def usd_cap_flag(settings: Settings) -> str:
    """Return the flag of the first limit in US dollars that is set; empty if none is."""
    return next((flag_of(key) for key in CAPS_IN_USD if getattr(settings, key) is not None), "")


@dataclass(frozen=True, slots=True)
class ChosenModel(ConnectedModel):
    """The model that was chosen for a run.

    Attributes:
        tests: recorded test results, for a recorded run.
        foreign: recorded foreign tools and their results, for a recorded run.
    """

    tests: RecordedTests | None = None
    foreign: RecordedTools | None = None

    @classmethod
    def of(cls, model: ConnectedModel) -> ChosenModel:
        """Return a connected model as one that was chosen."""
        return cls(**{one.name: getattr(model, one.name) for one in fields(ConnectedModel)})


def choose_model(context: BuildContext) -> ChosenModel:
    """Create the configured model, with its fallbacks.

    Raises:
        ConfigurationError: no model is named, a key is missing, or a limit in US dollars is set for a model
            whose price is unknown.
        JournalError: `replay:RUN` names no run.
    """
    named = first_named(context)
    if named.ref.provider is Provider.REPLAY:
        return replayed(named.ref.name, context.home)
    if named.ref.provider is Provider.ECHO:
        return ChosenModel.of(echo_model())
    first = _ask(context, named)
    if context.settings.price is not None:
        first = replace(first, price=flat_price(context.settings.price))
    _check_price(context.settings, first, "say it with --price IN/OUT, such as --price 3/15")
    others = _fallbacks(context, first, named)
    return _in_order(context, [first, *others]) if others else first


def _ask(context: BuildContext, named: AddressedModel) -> ChosenModel:
    def on_wait(seconds: float, error: ModelError) -> None:
        context.emit(WaitStarted(seconds, str(error)))

    seconds = context.settings.request_timeout_seconds
    chosen = connected(named, seconds, context.clock, on_wait, context.redactor)
    return replace(ChosenModel.of(chosen), is_small=_is_small(context.settings, named))


def _is_small(settings: Settings, named: AddressedModel) -> bool:
    """Return whether the model is known to be small.

    If its name does not show it, a server on this machine is asked.
    """
    from orchestrator.engine.models.listing import parameters_served

    name = named.ref.name
    is_known = bool(settings.profile or family_of(name) or parameters_named(name))
    if is_known or not is_loopback(_host(named.api_url)):
        return is_small(name)
    return is_small(name, parameters_served(named.api_url, named.key, name))


def _fallbacks(context: BuildContext, first: ChosenModel, at: AddressedModel) -> list[ChosenModel]:
    """Create the fallback models, each with its own key."""
    found: list[ChosenModel] = []
    for text in context.settings.fallback_model:
        try:
            found.append(_checked_fallback(context, fallback_named(context, text, at), [first, *found]))
        except ConfigurationError as error:
            raise ConfigurationError(f"--fallback-model {text}: {error}") from None
    return found


def _checked_fallback(context: BuildContext, named: AddressedModel, before: list[ChosenModel]) -> ChosenModel:
    if any((named.ref, named.api_url) == (one.ref, one.api_url) for one in before):
        raise ConfigurationError("the same model is named before: leave it out here")
    chosen = _ask(context, named)
    _check_price(context.settings, chosen, "leave it out")
    return chosen


def _in_order(context: BuildContext, models: list[ChosenModel]) -> ChosenModel:
    from orchestrator.engine.models.fallback import FallbackModel, PricedModel

    def on_switch(switch: Switched) -> None:
        until = f", until {switch.until:%Y-%m-%d %H:%M} UTC" if switch.until else " for this request"
        how_long = " from now on" if switch.is_for_good else until
        context.emit(
            Warned(f"{switch.left} cannot answer; {switch.to} is asked instead{how_long}: {switch.error}")
        )

    model = FallbackModel(
        [PricedModel(one.model, one.price) for one in models], clock=context.clock, on_switch=on_switch
    )
    return replace(
        models[0],
        model=model,
        price=model.price,
        reply_tokens=max(one.reply_tokens for one in models),
        reasoning=any(one.reasoning is not False for one in models),
        streaming=all(one.streaming for one in models),
        images=all(one.images for one in models),
        window=min((one.window for one in models if one.window), default=None),
        is_small=all(one.is_small for one in models),
    )


def replayed(run: str, home: Home) -> ChosenModel:
    """Create a model that repeats the replies of a recorded run, at no cost."""
    from orchestrator.app.wiring.foreign_tools import RecordedTools
    from orchestrator.bot.cycle.parts import RecordedTests
    from orchestrator.engine.models.replay import ReplayModel

    record = read_run(find_run(home, run))
    replies = [Response(reply.message, reply.finish, reply.usage, reply.model) for reply in replay_of(record)]
    return ChosenModel(
        ReplayModel(f"replay:{record.id}", replies),
        lambda _usage: 0.0,
        tests=RecordedTests(record.events),
        foreign=RecordedTools(record.events),
    )


def _check_price(settings: Settings, chosen: ChosenModel, remedy: str) -> None:
    flag = usd_cap_flag(settings)
    if not flag:
        return
    if chosen.price(Usage(input_tokens=1000, output_tokens=1000)) is None:
        instead = flag.replace("usd", "tokens")
        raise ConfigurationError(
            f"{flag} cannot be kept: the price of {chosen.ref} is unknown; {remedy}, or use {instead} instead"
        )
