"""The vendors' published data about their main models, by name. Read on 2026-11-21."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

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


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One row of the table.

    Attributes:
        pattern: matched from the start of the name that `_plain` returns.
        knowledge_cutoff: `YYYY-MM`; empty if no source was found.
        source: the source of the numbers; the date is in the module's docstring.
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

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(?:(\d+(?:\.\d+)?)b|(\d{3})m)(?![a-z0-9])")
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


def thinks(model: str) -> bool:
    """Return whether a model outside the vendors' families reasons before it answers, by its name.

    The replies of such models are long.
    """
    return _THINKING.search(model.strip().lower()) is not None


def reasons(model: str) -> bool | None:
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


def reads_images(model: str) -> bool:
    """Return whether a model is known to read images, by its name.

    Known are the models of the table, older ones, and some of other makers.
    """
    name = _plain(model)
    if _NO_IMAGES.match(name):
        return False
    return known_model(model) is not None or _READS_IMAGES.match(name) is not None


def streams(model: str) -> bool:
    """Return whether this model can stream its replies, as almost every model can."""
    return _NOT_STREAMING.match(_plain(model)) is None


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
