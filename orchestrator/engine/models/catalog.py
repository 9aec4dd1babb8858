"""Providers and models: names, addresses, prices, context windows. It does no I/O."""

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
"""Assumed context window of an unknown model: current small models read at least this many tokens."""

DEFAULT_OUTPUT_TOKENS = 8_192
"""Assumed output limit of an unknown model: current small models write at least this many tokens."""


class Provider(StrEnum):
    """The `PROVIDER` part of `PROVIDER:NAME`."""

    OPENAI = "openai"  # Responses at the vendor's address, else Chat Completions
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    REPLAY = "replay"
    ECHO = "echo"  # no model: echoes the input


UNCONNECTED = frozenset({Provider.REPLAY, Provider.ECHO})
"""Providers that need no server."""

OFFICIAL_URLS = {
    Provider.OPENAI: "https://api.openai.com/v1",
    Provider.OPENAI_CHAT: "https://api.openai.com/v1",
    Provider.OPENAI_RESPONSES: "https://api.openai.com/v1",
    Provider.ANTHROPIC: "https://api.anthropic.com/v1",
    Provider.GEMINI: "https://generativelanguage.googleapis.com/v1beta",
}
"""The default address of each provider. `replay` and `echo` have none."""

_KNOWN = ", ".join(Provider)
_FAMILY_PROVIDERS = {
    "openai": Provider.OPENAI,
    "anthropic": Provider.ANTHROPIC,
    "gemini": Provider.GEMINI,
}
_FINE_TUNED = "ft"
_OFFLINE = "offline"
"""The model's name if the provider has only one model."""
_SUGGESTED = 0.6
_TYPO = 0.8
"""Similarity by `difflib`: from `_SUGGESTED` on a name is suggested, from `_TYPO` on it counts as a typo."""

_TYPO_CHARS = 2
"""Largest difference in length of a typo: `openchat:7b` is a model, not a misspelt `openai-chat`."""

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
    """Parse `PROVIDER:NAME`; the name may contain colons and slashes.

    Raises:
        ConfigurationError: there is no colon, the name is empty, or the provider is unknown.
    """
    prefix, colon, name = (part.strip() for part in text.partition(":"))
    if prefix.lower() == Provider.ECHO and not name:
        return ModelRef(Provider.ECHO, _OFFLINE)
    if prefix.lower() in set(Provider) and name:
        return ModelRef(Provider(prefix.lower()), name)
    meant = _FAMILY_PROVIDERS.get(family_of(text) or "")
    if colon and prefix and name and not meant:
        near = difflib.get_close_matches(prefix.lower(), list(Provider), n=1, cutoff=_SUGGESTED)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigurationError(
            f"unknown model provider {prefix!r}; {hint}Known are {_KNOWN}. For a server of your own pass "
            f"--api-url, and the model just as {text.strip()!r}"
        )
    hint = f"did you mean {meant}:{text.strip()}? " if meant and prefix not in set(Provider) else ""
    raise ConfigurationError(
        f"a model is named PROVIDER:NAME, not {text!r}; {hint}PROVIDER is one of {_KNOWN}"
    )


def model_at(provider: Provider, text: str, *, official: bool) -> ModelRef:
    """Parse `PROVIDER:NAME`, or a bare name for a server whose protocol is known.

    The part before a colon is a protocol only if it is a known one. Otherwise it belongs to the name, as in
    `qwen3:8b`. It is refused if it looks like a misspelt protocol. It is also refused at a vendor's own
    address, where names have no colon except the `ft:` of fine-tuned models.

    Args:
        provider: the server's protocol.
        text: the user's text.
        official: whether the server is the vendor's own.

    Raises:
        ConfigurationError: the name is empty, or begins with an unknown provider.
    """
    name = text.strip()
    prefix, colon, rest = (part.strip() for part in name.partition(":"))
    if prefix.lower() in set(Provider) and (colon or prefix.lower() == Provider.ECHO):
        return parse_model(name)
    if not name or (colon and not (prefix and rest)):
        raise ConfigurationError(f"the name of the model is empty: {text!r}; pass one that the server knows")
    near = difflib.get_close_matches(prefix.lower(), list(Provider), n=1, cutoff=_TYPO)
    is_misspelt = colon and near and abs(len(near[0]) - len(prefix)) <= _TYPO_CHARS
    if is_misspelt or (colon and official and prefix != _FINE_TUNED):
        hint = f"did you mean {near[0]}:{rest}? " if near else ""
        raise ConfigurationError(
            f"unknown model provider {prefix!r}; {hint}Known are {_KNOWN}. "
            f"If {name!r} is the whole name of the model, write {provider}:{name}"
        )
    return ModelRef(provider, name)


def detect_provider(api_url: str) -> Provider:
    """Return the provider whose protocol an address uses; unknown hosts use Chat Completions.

    The whole host name is compared. Searching the address for `api.openai.com`, which is common, would also
    accept `https://api.openai.com.example.org`, or a path with that text, as the vendor.
    """
    return _PROVIDER_BY_HOST.get(_host(api_url), Provider.OPENAI_CHAT)


def is_official(api_url: str) -> bool:
    """Return whether the address is a vendor's own server."""
    return _host(api_url) in _PROVIDER_BY_HOST


def price_usd(where: str, model: str, usage: Usage, *, now: datetime | None = None) -> float | None:
    """Return the price of these tokens in USD, or None if it is unknown; an unknown price is never 0.

    Args:
        where: the address of the requests, or a `Provider` for its official address.
        model: the provider's name of the model.
        usage: tokens of any number of requests.
        now: the time of the requests, because some prices change over the day; None is the present.
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
    except (ValueError, LookupError):  # no price, or none for these kinds of tokens
        return None
    # The list gives 0 for models without a price; only those named `:free` are free.
    is_known = price > 0 or usage.total_tokens == 0 or model.endswith(":free")
    return price if is_known else None


def flat_price(text: str) -> Callable[[Usage], float]:
    """Return the price function for `IN/OUT`, in USD for a million tokens: `3/15`.

    All input has the same price, cached or not.

    Raises:
        ConfigurationError: the text does not have this form.
    """
    try:
        in_usd, out_usd = (float(number) for number in text.split("/"))
    except ValueError:
        in_usd = out_usd = math.nan
    if not (0 <= in_usd < math.inf and 0 <= out_usd < math.inf):
        raise ConfigurationError(
            f"a price must be US dollars per million tokens of input and output, such as 3/15; not {text!r}"
        )
    return lambda usage: (usage.input_tokens * in_usd + usage.output_tokens * out_usd) / 1_000_000


def context_window(where: str, model: str) -> int | None:
    """Return how many tokens the model can read; None if unknown (see `DEFAULT_CONTEXT_TOKENS`).

    Args:
        where: the address of the requests, or a `Provider` for its official address.
        model: the provider's name of the model.
    """
    found = _find(where, model)
    return found[1].context_window if found else None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The known abilities of a model; the defaults are for unknown models.

    Attributes:
        context_tokens: tokens that it can read and write in one request.
        output_tokens: tokens that it can write of those.
        images: whether it is known to read images.
        reasoning: whether it reasons before it answers, and accepts an effort; None if unknown.
        tools: whether it supports function calling.
        knowledge_cutoff: the month up to which its knowledge reaches, as `YYYY-MM`; empty if unknown.
        streaming: whether its reply can be streamed.
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
        """`context_tokens`, or None if that is only the default: no warning is based on a guess."""
        return None if self.context_tokens == DEFAULT_CONTEXT_TOKENS else self.context_tokens


def facts(where: str, model: str) -> ModelFacts:
    """Return the abilities of a model. The window is that of `context_window` if known, as providers differ.

    Args:
        where: the address of the requests, or a `Provider` for its official address.
        model: the provider's name of the model.
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
        # Gemini's own addresses have names with `models/`.
        return get_snapshot().find_provider_model(model.removeprefix("models/"), None, None, url)
    except LookupError:
        return None


def _host(url: str) -> str:
    try:
        return urlsplit(url.strip() if "://" in url else f"https://{url.strip()}").hostname or ""
    except ValueError:
        return ""
