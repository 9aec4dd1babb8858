"""Providers and models: names, addresses, prices, context windows. No I/O."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.known_models import family_of, known_model, reads_images, reasons, streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PriceList

    from orchestrator.core.messages import Usage

DEFAULT_CONTEXT_TOKENS = 32_768
"""Assumed where nothing is known: what current small models can read at least."""

DEFAULT_OUTPUT_TOKENS = 8_192
"""Assumed where nothing is known: what current small models can write at least."""


class Provider(StrEnum):
    """The PROVIDER of `PROVIDER:NAME`."""

    OPENAI = "openai"  # Responses at the vendor's address, Chat Completions at any other
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    REPLAY = "replay"
    ECHO = "echo"  # no model: what was said comes back


UNCONNECTED = frozenset({Provider.REPLAY, Provider.ECHO})
"""These ask no server."""

OFFICIAL_URLS = {
    Provider.OPENAI: "https://api.openai.com/v1",
    Provider.OPENAI_CHAT: "https://api.openai.com/v1",
    Provider.OPENAI_RESPONSES: "https://api.openai.com/v1",
    Provider.ANTHROPIC: "https://api.anthropic.com/v1",
    Provider.GEMINI: "https://generativelanguage.googleapis.com/v1beta",
}
"""Where a provider's requests go if no other address is configured. `replay` and `echo` have none."""

_KNOWN = ", ".join(Provider)
_FAMILY_PROVIDERS = {
    "openai": Provider.OPENAI,
    "anthropic": Provider.ANTHROPIC,
    "gemini": Provider.GEMINI,
}
_FINE_TUNED = "ft"
_OFFLINE = "offline"
"""What stands for the name of the model of which there is one."""
_NEAR = 0.6
_MISSPELT = 0.8
"""How alike two words are, as `difflib` counts it: near enough to be named, and to be taken for a slip."""

_MISSPELT_CHARS = 2
"""A slip leaves out or adds no more; `openchat:7b` is a model and no misspelt `openai-chat`."""

_PROVIDER_BY_HOST = {
    "api.anthropic.com": Provider.ANTHROPIC,
    "api.openai.com": Provider.OPENAI,
    "generativelanguage.googleapis.com": Provider.GEMINI,
}


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as the user names it."""

    provider: Provider
    name: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


def parse_model(text: str) -> ModelRef:
    """Read `PROVIDER:NAME`; the name may contain colons and slashes.

    Raises:
        ConfigurationError: no colon, an empty name, or an unknown provider.
    """
    prefix, colon, name = (part.strip() for part in text.partition(":"))
    if prefix.lower() == Provider.ECHO and not name:
        return ModelRef(Provider.ECHO, _OFFLINE)
    if prefix.lower() in set(Provider) and name:
        return ModelRef(Provider(prefix.lower()), name)
    meant = _FAMILY_PROVIDERS.get(family_of(text) or "")
    if colon and prefix and name and not meant:
        near = difflib.get_close_matches(prefix.lower(), list(Provider), n=1, cutoff=_NEAR)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigurationError(
            f"unknown model provider {prefix!r}; {hint}Known are {_KNOWN}. A server of your own is named with "
            f"--api-url, and its model then just {text.strip()!r}"
        )
    hint = f"did you mean {meant}:{text.strip()}? " if meant and prefix not in set(Provider) else ""
    raise ConfigurationError(
        f"a model is named PROVIDER:NAME, not {text!r}; {hint}PROVIDER is one of {_KNOWN}"
    )


def model_at(provider: Provider, text: str, *, official: bool) -> ModelRef:
    """Read `PROVIDER:NAME`, or the name alone of a model at a server whose protocol is known.

    A part before a colon is a protocol only if it is one of the known ones. Else it belongs to the name,
    as in `qwen3:8b`; but it is refused where it looks like a misspelt protocol, and at a vendor's own address,
    whose names have no colon but for the `ft:` of a fine-tuned model.

    Args:
        provider: what the server speaks.
        text: what somebody wrote.
        official: it is the vendor's own server.

    Raises:
        ConfigurationError: the name is empty, or begins with what is no known provider.
    """
    name = text.strip()
    prefix, colon, rest = (part.strip() for part in name.partition(":"))
    if prefix.lower() in set(Provider) and (colon or prefix.lower() == Provider.ECHO):
        return parse_model(name)
    if not name or (colon and not (prefix and rest)):
        raise ConfigurationError(f"the name of the model is empty: {text!r}; pass one that the server knows")
    near = difflib.get_close_matches(prefix.lower(), list(Provider), n=1, cutoff=_MISSPELT)
    is_misspelt = colon and near and abs(len(near[0]) - len(prefix)) <= _MISSPELT_CHARS
    if is_misspelt or (colon and official and prefix != _FINE_TUNED):
        hint = f"did you mean {near[0]}:{rest}? " if near else ""
        raise ConfigurationError(
            f"unknown model provider {prefix!r}; {hint}Known are {_KNOWN}. "
            f"A model of the whole name is written {provider}:{name}"
        )
    return ModelRef(provider, name)


def detect_provider(api_url: str) -> Provider:
    """Which provider's protocol is spoken at an address; unknown hosts speak Chat Completions.

    The whole host name is compared: searching the address for `api.openai.com`, as is often done,
    would also take `https://api.openai.com.example.org` or a path for the vendor.
    """
    return _PROVIDER_BY_HOST.get(_host(api_url), Provider.OPENAI_CHAT)


def is_official(api_url: str) -> bool:
    """Whether a vendor's own server is at an address."""
    return _host(api_url) in _PROVIDER_BY_HOST


def price_usd(where: str, model: str, usage: Usage, *, now: datetime | None = None) -> float | None:
    """What these tokens cost in USD, or None where that is not known; unknown is never 0.

    Args:
        where: the address that was asked, or a `Provider` for its official address.
        model: the name that the provider knows.
        usage: tokens of any number of requests.
        now: some prices change over the day; None is the present.
    """
    found = _find(where, model)
    if found is None:
        return None
    from genai_prices import Usage as PricedUsage

    prices, info = found
    cached = min(usage.cached_input_tokens, usage.input_tokens)
    priced = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=min(usage.cache_write_tokens, usage.input_tokens - cached),
    )
    try:
        price = float(info.calc_price(priced, prices, genai_request_timestamp=now).total_price)
    except (ValueError, LookupError):  # the price list has no price, or not for these kinds of tokens
        return None
    # Models without a price in the list come out as 0; only those called free are free.
    is_known = price > 0 or usage.total_tokens == 0 or model.endswith(":free")
    return price if is_known else None


def flat_price(text: str) -> Callable[[Usage], float]:
    """The price that `IN/OUT` says, in USD a million tokens: `3/15`.

    All input costs the same, whether a cache had it or not.

    Raises:
        ConfigurationError: the text is not of this form.
    """
    try:
        in_usd, out_usd = (float(number) for number in text.split("/"))
    except ValueError:
        in_usd = out_usd = math.nan
    if not (0 <= in_usd < math.inf and 0 <= out_usd < math.inf):
        raise ConfigurationError(
            f"a price is US dollars a million tokens, in and out, such as 3/15; not {text!r}"
        )
    return lambda usage: (usage.input_tokens * in_usd + usage.output_tokens * out_usd) / 1_000_000


def context_window(where: str, model: str) -> int | None:
    """How many tokens the model can read, or None where that is not known (see `DEFAULT_CONTEXT_TOKENS`).

    Args:
        where: the address that is asked, or a `Provider` for its official address.
        model: the name that the provider knows.
    """
    found = _find(where, model)
    return found[1].context_window if found else None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model can do, as far as it is known; the defaults are for those of which nothing is.

    Attributes:
        context_tokens: what it can read and write in one request.
        output_tokens: what it can write of that.
        images: it is known to read pictures.
        reasoning: it thinks before it answers, and takes an effort; None if unknown.
        tools: it can be given functions to call.
        knowledge_cutoff: the month up to which it knows the world, as `YYYY-MM`; empty if unknown.
        streaming: its reply can be had in pieces.
    """

    context_tokens: int = DEFAULT_CONTEXT_TOKENS
    output_tokens: int = DEFAULT_OUTPUT_TOKENS
    images: bool = False
    reasoning: bool | None = None
    tools: bool = True
    knowledge_cutoff: str = ""
    streaming: bool = True

    @property
    def known_window(self) -> int | None:
        """`context_tokens`, or None where that is only the default: no warning is due on a guess."""
        return None if self.context_tokens == DEFAULT_CONTEXT_TOKENS else self.context_tokens


def facts(where: str, model: str) -> ModelFacts:
    """What a model can do. The window is that of `context_window` if that is known, as providers differ.

    Args:
        where: the address that is asked, or a `Provider` for its official address.
        model: the name that the provider knows.
    """
    row = known_model(model)
    window = context_window(where, model)
    if row is None:
        context = window or DEFAULT_CONTEXT_TOKENS
        least = min(DEFAULT_OUTPUT_TOKENS, context)
        return ModelFacts(
            context,
            least,
            images=reads_images(model),
            reasoning=reasons(model),
            streaming=streams(model),
        )
    return ModelFacts(
        window or row.context_tokens,
        row.output_tokens,
        images=reads_images(model),
        reasoning=reasons(model),
        knowledge_cutoff=row.knowledge_cutoff,
        streaming=streams(model),
    )


def _find(where: str, model: str) -> tuple[PriceList, ModelInfo] | None:
    url = OFFICIAL_URLS.get(Provider(where), "") if where in set(Provider) else where
    host = _host(url)
    if not host or not model:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        # `models/` is how Gemini's own addresses spell a name.
        return get_snapshot().find_provider_model(model.removeprefix("models/"), None, None, url)
    except LookupError:
        return None


def _host(url: str) -> str:
    try:
        return urlsplit(url.strip() if "://" in url else f"https://{url.strip()}").hostname or ""
    except ValueError:
        return ""
