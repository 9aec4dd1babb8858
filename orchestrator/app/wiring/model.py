"""Which models answer, and what their replies cost: the first, those that stand in for it, or a recorded run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.app.wiring.naming import first_named, stand_in_named, wire_of
from orchestrator.bot.journal.reader import find_run, read_run, replay_of
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import WaitStarted, Warned
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.catalog import (
    DEFAULT_OUTPUT_TOKENS,
    ModelRef,
    Provider,
    facts,
    flat_price,
    price_usd,
)
from orchestrator.engine.models.known_models import family_of, is_small, parameters_named
from orchestrator.engine.models.listing import parameters_served

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.around import Around
    from orchestrator.app.wiring.naming import Addressed
    from orchestrator.bot.cycle.verify import RecordedTests
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Usage
    from orchestrator.engine.models.base import Model, OnWait
    from orchestrator.engine.models.fallback import Switch


CAPS_IN_USD = ("max_usd", "max_usd_per_task", "max_usd_per_day", "max_usd_per_repo")


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model, and what its replies cost: USD, or None where that is not known.

    With fallback models, `price` of a reply's own `Usage` object is that of the model which gave the
    reply; of any other `Usage`, as in a worst case before a request, it is the highest of all.

    Attributes:
        ref: its provider and name; None for prepared replies. The first one's, where there are fallbacks.
        api_url: where it is asked.
        other: makes another model of the same provider, by name.
        reply_tokens: the longest reply, as far as the catalog knows it; the longest of all with fallbacks.
        reasoning: it takes a reasoning effort, as far as that is known; with fallbacks, one of all does.
        streaming: its replies can be had in pieces; with fallbacks, those of all.
        is_small: it is known to have few parameters; with fallbacks, all of them are.
        tests: of a recorded run, what was said of the tests in it.
    """

    model: Model
    price: Callable[[Usage], float | None]
    ref: ModelRef | None = None
    api_url: str = ""
    other: Callable[[str], ChosenModel] | None = None
    reply_tokens: int = DEFAULT_OUTPUT_TOKENS
    reasoning: bool | None = None
    streaming: bool = True
    is_small: bool = False
    tests: RecordedTests | None = None


def choose_model(around: Around) -> ChosenModel:
    """Build the model that the configuration names, and those that stand in for it.

    Raises:
        ConfigurationError: no model is named, a key is missing, or a cap in USD is set for a model whose
            price is unknown.
        JournalError: `replay:RUN` names no run.
    """
    named = first_named(around)
    if named.ref.provider is Provider.REPLAY:
        return replayed(named.ref.name, around.home)
    first = _ask(around, named)
    if around.settings.price is not None:
        first = replace(first, price=flat_price(around.settings.price))
    _check_price(around.settings, first, f"{named.ref}", "say it with --price IN/OUT, such as --price 3/15")
    others = _fallbacks(around, first, named)
    return _in_order(around, [first, *others]) if others else first


def _ask(around: Around, named: Addressed) -> ChosenModel:
    def on_wait(seconds: float, error: ModelError) -> None:
        around.emit(WaitStarted(seconds, str(error)))

    connection = Connection(named.api_url, named.key, around.settings.request_timeout_seconds)
    chosen = connected(named.ref, connection, around.clock, on_wait)
    return replace(chosen, is_small=_is_small(around.settings, named))


def _is_small(settings: Settings, named: Addressed) -> bool:
    """Whether the model is known to be small; a server on this machine is asked where the name does not say."""
    name, address = named.ref.name, named.api_url
    is_known = bool(settings.profile or family_of(name) or parameters_named(name))
    if is_known or not is_loopback(urlsplit(address).hostname or ""):
        return is_small(name)
    return is_small(name, parameters_served(address, named.key, name))


def _fallbacks(around: Around, first: ChosenModel, at: Addressed) -> list[ChosenModel]:
    """The models that stand in for the first, each with its own key."""
    found: list[ChosenModel] = []
    for text in around.settings.fallback_model:
        try:
            found.append(_fallback(around, stand_in_named(around, text, at), [first, *found]))
        except ConfigurationError as error:
            raise ConfigurationError(f"--fallback-model {text}: {error}") from None
    return found


def _fallback(around: Around, named: Addressed, before: list[ChosenModel]) -> ChosenModel:
    if any((named.ref, named.api_url) == (one.ref, one.api_url) for one in before):
        raise ConfigurationError("the same model is named before it")
    chosen = _ask(around, named)
    _check_price(around.settings, chosen, f"{named.ref}", "leave it out")
    return chosen


def _in_order(around: Around, models: list[ChosenModel]) -> ChosenModel:
    from orchestrator.engine.models.fallback import FallbackModel, PricedModel

    def on_switch(switch: Switch) -> None:
        until = f", until {switch.until:%Y-%m-%d %H:%M} UTC" if switch.until else " for this request"
        how_long = " from now on" if switch.is_for_good else until
        around.emit(
            Warned(f"{switch.left} cannot answer; {switch.to} is asked instead{how_long}: {switch.error}")
        )

    model = FallbackModel(
        [PricedModel(one.model, one.price) for one in models], clock=around.clock, on_switch=on_switch
    )
    return replace(
        models[0],
        model=model,
        price=model.price,
        reply_tokens=max(one.reply_tokens for one in models),
        reasoning=any(one.reasoning is not False for one in models),
        streaming=all(one.streaming for one in models),
        is_small=all(one.is_small for one in models),
    )


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a provider. `read_seconds` is the longest silence."""

    api_url: str
    key: str | None = field(repr=False)
    read_seconds: float


def connected(ref: ModelRef, connection: Connection, clock: Clock, on_wait: OnWait | None) -> ChosenModel:
    """A model behind its provider's protocol. Nothing is opened before the first request."""
    from orchestrator.engine.models.transport import HttpModel, HttpOptions

    model = HttpModel(
        str(ref),
        wire_of(ref, connection.api_url),
        api_key=connection.key,
        clock=clock,
        random=random.random,
        on_wait=on_wait,
        options=HttpOptions(read_seconds=connection.read_seconds),
    )
    known = facts(connection.api_url, ref.name)
    return ChosenModel(
        model,
        partial(price_usd, connection.api_url, ref.name),
        ref,
        connection.api_url,
        lambda name: connected(ModelRef(ref.provider, name), connection, clock, on_wait),
        known.output_tokens,
        known.reasoning,
        known.streaming,
    )


def replayed(run: str, home: Home) -> ChosenModel:
    """A model that repeats the replies of a recorded run, at no cost.

    Raises:
        JournalError: there is no such run, or it has no replies.
    """
    from orchestrator.bot.cycle.verify import RecordedTests
    from orchestrator.engine.models.replay import ReplayModel

    record = read_run(find_run(home, run))
    replies = [Response(reply.message, reply.finish, reply.usage, reply.model) for reply in replay_of(record)]
    tests = RecordedTests(record.events)
    return ChosenModel(ReplayModel(f"replay:{record.id}", replies), lambda _usage: 0.0, tests=tests)


def _check_price(settings: Settings, chosen: ChosenModel, name: str, remedy: str) -> None:
    cap = next((key for key in CAPS_IN_USD if getattr(settings, key) is not None), None)
    if cap is None:
        return
    from orchestrator.core.messages import Usage

    if chosen.price(Usage(input_tokens=1000, output_tokens=1000)) is None:
        flag = "--" + cap.replace("_", "-")
        instead = flag.replace("usd", "tokens")
        raise ConfigurationError(
            f"{flag} cannot be kept: the price of {name} is unknown; {remedy}, or use {instead} instead"
        )
