"""Providers and models: names, addresses, prices and abilities. It does no I/O.

The vendors' published data about their main models were read on 2026-11-21.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from orchestrator.core.addresses import SCHEME_PORTS, is_loopback, server_of
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PriceList

    from orchestrator.core.messages import Usage

DEFAULT_CONTEXT_TOKENS = 32_768
"""Assumed context window of an unknown model: current small models read at least this many tokens."""

DEFAULT_OUTPUT_TOKENS = 8_192
"""Assumed output limit of an unknown model: current small models write at least this many tokens."""

Family: TypeAlias = Literal["openai", "anthropic", "gemini"]

_START = r"(?:^|[/.:@])"  # start of a name, or of its last part: `openrouter/openai/gpt-5`, `us.anthropic.claude-...`
_FAMILIES: tuple[tuple[Family, re.Pattern[str]], ...] = (
    (
        "openai",
        re.compile(
            _START
            + r"(chatgpt-|codex-|gpt-?\d|gpt-(oss|audio|realtime|chat|([a-z]+-)*latest)|o[1-9](?![\w.]))"
        ),
    ),
    ("anthropic", re.compile(_START + r"claude(?!\w)")),
    ("gemini", re.compile(_START + r"gemini(?!\w)")),
)


def family_of(model: str) -> Family | None:
    """Return the vendor family of a model by its name; None for all others.

    The spellings of gateways and clouds are known: `anthropic/claude-sonnet-4.5`, `models/gemini-3-flash`,
    `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `claude-opus-4-1@20250805`, `ft:gpt-4.1:company`.
    """
    name = model.strip().lower()
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), None)


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
_FINE_TUNED = "ft"
_OFFLINE = "offline"
"""The model's name if the provider has only one model."""
_SUGGESTED = 0.6
_TYPO = 0.8
"""Similarity by `difflib`: from `_SUGGESTED` on a name is suggested, from `_TYPO` on it counts as a typo."""

_TYPO_CHARS = 2
"""Largest difference in length of a typo: `openchat:7b` is a model, not a misspelt `openai-chat`."""

_OFFICIAL_HOSTS = (
    # With data residency: https://developers.openai.com/api/docs/guides/your-data
    (re.compile(r"(?:[a-z]{2}\.)?api\.openai\.com"), Provider.OPENAI),
    (re.compile(r"api\.anthropic\.com"), Provider.ANTHROPIC),
    (re.compile(r"generativelanguage\.googleapis\.com"), Provider.GEMINI),
)
_OTHER_VENDOR_HOSTS = (
    # Vertex AI: https://docs.cloud.google.com/vertex-ai/docs/general/locations
    (re.compile(r"(?:[a-z]{2,20}-[a-z]{2,20}[0-9]{1,2}-)?aiplatform\.googleapis\.com"), Provider.GEMINI),
    (re.compile(r"aiplatform\.[a-z]{2,4}\.rep\.googleapis\.com"), Provider.GEMINI),
)


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as the user names it."""

    provider: Provider
    name: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


def provider_in(text: str) -> Provider | None:
    """Return the provider that `PROVIDER:NAME` begins with; None if the text begins with none and a colon."""
    prefix, colon, _ = text.partition(":")
    word = prefix.strip().lower()
    return Provider(word) if colon and word in set(Provider) else None


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
    meant = family_of(text)
    if colon and prefix and name and not meant:
        near = difflib.get_close_matches(prefix.lower(), list(Provider), n=1, cutoff=_SUGGESTED)
        hint = f"did you mean {near[0]}?; " if near else ""
        raise ConfigurationError(
            f"unknown model provider {prefix!r}; {hint}known are {_KNOWN}. For a server of your own pass "
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
        official: whether the server is the vendor's own.

    Raises:
        ConfigurationError: the name is empty, or begins with an unknown provider.
    """
    name = text.strip()
    prefix, colon, rest = (part.strip() for part in name.partition(":"))
    if provider_in(name) or prefix.lower() == Provider.ECHO:
        return parse_model(name)
    if not name or (colon and not (prefix and rest)):
        raise ConfigurationError(f"the name of the model is empty: {text!r}; pass one that the server knows")
    near = difflib.get_close_matches(prefix.lower(), list(Provider), n=1, cutoff=_TYPO)
    is_misspelt = colon and near and abs(len(near[0]) - len(prefix)) <= _TYPO_CHARS
    if is_misspelt or (colon and official and prefix != _FINE_TUNED):
        hint = f"did you mean {near[0]}:{rest}?; " if near else ""
        raise ConfigurationError(
            f"unknown model provider {prefix!r}; {hint}known are {_KNOWN}. "
            f"If {name!r} is the whole name of the model, write {provider}:{name}"
        )
    return ModelRef(provider, name)


def detect_provider(api_url: str) -> Provider:
    """Return the provider whose protocol an address uses; unknown hosts use Chat Completions.

    The whole host name is compared. Searching the address for `api.openai.com`, which is common, would also
    accept `https://api.openai.com.example.org`, or a path with that text, as the vendor.
    """
    return _at_host(_host(api_url), _OFFICIAL_HOSTS) or Provider.OPENAI_CHAT


def is_official(api_url: str) -> bool:
    """Return whether the address is a vendor's own server."""
    return _at_host(_host(api_url), _OFFICIAL_HOSTS) is not None


def vendor_of(api_url: str) -> Provider | None:
    """Return the vendor whose key an address may get because it is the vendor's own server; None for all others.

    It is OpenAI's (also in a region, as `eu.api.openai.com`), Anthropic's or Google's whole host name, over
    https and at its usual port.
    """
    place = server_of(api_url)
    if place is None or (place.scheme, place.port) != ("https", SCHEME_PORTS["https"]):
        return None
    return _at_host(place.host, (*_OFFICIAL_HOSTS, *_OTHER_VENDOR_HOSTS))


def _at_host(host: str, hosts: Iterable[tuple[re.Pattern[str], Provider]]) -> Provider | None:
    return next((provider for pattern, provider in hosts if pattern.fullmatch(host)), None)


def price_usd(where: str, model: str, usage: Usage, *, now: datetime | None = None) -> float | None:
    """Return the price of these tokens in USD, or None if it is unknown; an unknown price is never 0.

    Args:
        where: the address of the requests, or a `Provider` for its official address.
        model: the provider's name of the requested model; it counts if the price of `Usage.answered_by` is unknown.
        usage: tokens of any number of requests.
        now: the time of the requests, because some prices change over the day; None is the present.
    """
    answered = usage.answered_by
    price = _list_price(where, answered, usage, now) if answered else None
    return _list_price(where, model, usage, now) if price is None else price


_HOUR_WRITE = 2.0
_WRITE = 1.25
"""Prices of writing into Anthropic's cache for an hour and for five minutes, as multiples of the price of input.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching#pricing
"""


def _list_price(where: str, model: str, usage: Usage, now: datetime | None) -> float | None:
    hour = min(usage.hour_write_tokens, usage.cache_write_tokens)
    price = _price_without_hours(where, model, usage, now)
    if not hour or price is None:
        return price
    plain = _price_without_hours(
        where, model, replace(usage, cache_write_tokens=usage.cache_write_tokens - hour), now
    )
    if plain is None:
        return price
    input_price = (price - plain) / (_WRITE - 1.0)  # of these tokens
    return plain + input_price * (_HOUR_WRITE - 1.0)


def _price_without_hours(where: str, model: str, usage: Usage, now: datetime | None) -> float | None:
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
    known = context_window(where, model) or (row.context_tokens if row else DEFAULT_CONTEXT_TOKENS)
    return ModelFacts(
        known,
        row.output_tokens if row else min(DEFAULT_OUTPUT_TOKENS, known),
        images=_reads_images(model),
        reasoning=accepts_effort(model),
        knowledge_cutoff=row.knowledge_cutoff if row else "",
        streaming=_NOT_STREAMING.match(_plain(model)) is None,
    )


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One row of the table.

    Attributes:
        pattern: matched from the start of the name that `_plain` returns.
        knowledge_cutoff: `YYYY-MM`; empty if no source was found.
    """

    pattern: str
    context_tokens: int
    output_tokens: int
    knowledge_cutoff: str
    source: str


_OPENAI = "https://developers.openai.com/api/docs/models"
_CLAUDE = "https://platform.claude.com/docs/en/about-claude/models/overview"
_BEDROCK = "https://docs.aws.amazon.com/bedrock/latest/userguide/model-card-anthropic-claude-opus-4-7.html"
_GEMINI = "https://ai.google.dev/gemini-api/docs/models"
_MODELS_DEV = "https://github.com/anomalyco/models.dev"

_OTHER_KINDS = re.compile(r"-(chat|image|tts|live|audio|realtime|transcribe|embedding|search)")

# The first match counts. All of these models read images, reason and call tools. The last row
# of a vendor is its current standard, for models that are newer than this table.
KNOWN = (
    KnownModel(r"gpt-5\.3-codex-spark", 128_000, 32_000, "2025-08", _MODELS_DEV),
    KnownModel(r"gpt-5-pro", 400_000, 272_000, "2024-09", _MODELS_DEV),
    KnownModel(r"gpt-5-(mini|nano)", 400_000, 128_000, "2024-05", _MODELS_DEV),
    KnownModel(r"gpt-5(\.1)?(?![.\d])", 400_000, 128_000, "2024-09", _OPENAI + "/gpt-5-codex"),
    KnownModel(r"gpt-5\.[23](?!\d)", 400_000, 128_000, "2025-08", _MODELS_DEV),
    KnownModel(r"gpt-5\.4-(mini|nano)", 400_000, 128_000, "", _OPENAI),
    KnownModel(r"gpt-5\.4(?!\d)", 1_050_000, 128_000, "2025-08", _OPENAI + "/gpt-5.4"),
    KnownModel(r"gpt-5\.5(?!\d)", 1_050_000, 128_000, "2025-12", _MODELS_DEV),
    KnownModel(r"gpt-5\.6(-sol|$)", 1_050_000, 128_000, "2026-02", _OPENAI + "/gpt-5.6-sol"),
    KnownModel(r"gpt-6-sol", 1_050_000, 128_000, "2026-05", _MODELS_DEV),
    KnownModel(r"gpt-(5\.[6-9]|[6-9])", 1_050_000, 128_000, "", _OPENAI),
    KnownModel(r"o3(?!-mini)|o4-mini", 200_000, 100_000, "2024-05", _MODELS_DEV),
    KnownModel(r"claude-opus-4\.[01]", 200_000, 32_000, "2025-03", _MODELS_DEV),
    KnownModel(r"claude-sonnet-4\.0", 200_000, 64_000, "2025-03", _MODELS_DEV),
    KnownModel(r"claude-sonnet-4\.5", 200_000, 64_000, "2025-07", _MODELS_DEV),
    KnownModel(r"claude-haiku-4\.5", 200_000, 64_000, "2025-02", _CLAUDE),
    KnownModel(r"claude-opus-4\.5", 200_000, 64_000, "2025-05", _CLAUDE),
    KnownModel(r"claude-opus-4\.6", 1_000_000, 128_000, "2025-05", _CLAUDE),
    KnownModel(r"claude-sonnet-4\.6", 1_000_000, 128_000, "2025-08", _CLAUDE),
    KnownModel(r"claude-opus-4\.7", 1_000_000, 128_000, "2026-01", _BEDROCK),
    KnownModel(r"claude-sonnet-5\.0", 1_000_000, 128_000, "2026-01", _CLAUDE),
    KnownModel(r"claude-opus-5\.0", 1_000_000, 128_000, "2026-05", _CLAUDE),
    KnownModel(r"claude-(opus|haiku)-5\.5|claude-fable-5\.1", 1_000_000, 128_000, "2026-06", _CLAUDE),
    KnownModel(r"claude-\w+-(4\.[89]|[5-9]|preview|latest)", 1_000_000, 128_000, "", _CLAUDE),
    KnownModel(r"gemini-(2\.5|3(\.[15])?)-(pro|flash)", 1_048_576, 65_536, "2025-01", _GEMINI),
    KnownModel(r"gemini-3\.8-flash(?!-)", 1_048_576, 65_536, "2026-03", _MODELS_DEV),
    KnownModel(r"gemini-([3-9]|(pro|flash|flash-lite)-latest)", 1_048_576, 65_536, "", _GEMINI),
)


_NOT_REASONING = re.compile(
    r"(chat)?gpt-(3\.?5|4)|gpt-5-chat"
    r"|claude-(instant|v?[12](?!\d)|\w+-3\.[0-5])"
    r"|gemini-(1\.|2\.0(?!.*thinking)|(pro|flash)-1\.5|pro(-vision)?$)"
)
"""Older models of the vendors, which refuse a request with a reasoning effort."""

_NOT_STREAMING = re.compile(r"o1-pro|gpt-5-pro")
"""Models without streaming: `supports_native_streaming` is false in https://github.com/BerriAI/litellm."""


SMALL_PARAMETERS = 4.5e9
"""Number of parameters below which a model needs whole files in place of edits, and few tools.

Measured with a model of 1.5 billion (`python -m tests.evaluation`); the exact limit was not measured.
"""

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,9})x)?(?:(\d+(?:\.\d+)?)b|(\d{3})m)(?![a-z0-9])", re.ASCII)
"""A number of parameters in a name. `1m` does not match: it is a context of a million tokens."""


def parameters_named(model: str) -> float | None:
    """Return the number of parameters that a model's name states; None if it states none.

    Examples: `qwen2.5-coder:1.5b`, `Llama-3.2-3B-Instruct`, `smollm2:360m`. `qwen3-30b-a3b` gives the total,
    and `mixtral-8x7b` the product.
    """
    sizes = [
        int(times or 1) * (float(billions) * 1e9 if billions else float(millions) * 1e6)
        for times, billions, millions in _SIZE.findall(model.strip().lower())
    ]
    return max(sizes, default=None)


def is_small(model: str, parameters: float | None = None) -> bool:
    """Return whether a model is known to be small, by its name or by its server's data."""
    count = parameters_named(model) or parameters
    return family_of(model) is None and count is not None and count < SMALL_PARAMETERS


_THINKING = re.compile(r"qwen3|-r1|thinking|reason")


def is_reasoning_model(model: str) -> bool:
    """Return whether a model outside the vendors' families reasons before it answers, by its name.

    The replies of such models are long.
    """
    return _THINKING.search(model.strip().lower()) is not None


def accepts_effort(model: str) -> bool | None:
    """Return whether a model reasons and accepts a reasoning effort; None if unknown."""
    if _NOT_REASONING.match(_plain(model)):
        return False
    return True if known_model(model) else None


_READS_IMAGES = re.compile(
    r"(chatgpt-4o|gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-4\.5|o1(?!-mini|-preview)|o3-pro|claude-|gemini-)"
    r"|.*(?<![a-z])(vl|vision|llava|pixtral|multimodal|omni|moondream|gemma-?[34]|llama-?4|mistral-small-?3\.[12])(?![a-z])"
)
_NO_IMAGES = re.compile(
    r"gpt-5\.3-codex-spark|gpt-4o-(audio|realtime|transcribe|mini-tts)|claude-(instant|v?[12](?!\d))"
)


def _reads_images(model: str) -> bool:
    """Return whether a model of the table, an older one or one of some other makers is known to read images."""
    name = _plain(model)
    if _NO_IMAGES.match(name):
        return False
    return known_model(model) is not None or _READS_IMAGES.match(name) is not None


def known_model(model: str) -> KnownModel | None:
    """Return the row of a model, however a gateway or cloud spells its name."""
    name = _plain(model)
    if _OTHER_KINDS.search(name):
        return None
    return next((row for row in KNOWN if re.match(row.pattern, name)), None)


def _plain(model: str) -> str:
    """Return the name without the reseller's prefix; Claude's as `claude-TIER-MAJOR.MINOR`.

    The order of the parts of Claude's names has changed over time.
    """
    name = model.strip().lower()
    family = next((found for _, pattern in _FAMILIES if (found := pattern.search(name))), None)
    if family is None:
        return name
    name = name[family.start() :].lstrip("/.:@")
    tier = re.search(r"opus|sonnet|haiku|fable|mythos", name)
    version = re.search(r"-(\d)(?:[.-](\d)(?!\d))?(?!\d)", name)
    if not name.startswith("claude") or not tier or not version:
        return name
    return f"claude-{tier[0]}-{version[1]}.{version[2] or 0}"


def _find(where: str, model: str) -> tuple[PriceList, ModelInfo] | None:
    url = OFFICIAL_URLS.get(Provider(where), "") if where in set(Provider) else where
    host = _host(url)
    if not host or not model or is_loopback(host):  # this machine's models are on no vendor's list
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
