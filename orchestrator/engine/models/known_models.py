"""What the vendors say of their main models, by name. Read on 2026-11-21."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Family: TypeAlias = Literal["openai", "anthropic", "gemini"]

_START = (
    r"(?:^|[/.:@])"  # of a name, or of its last part: `openrouter/openai/gpt-5`, `us.anthropic.claude-...`
)
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
    """The vendor family of a model, by its name; None for all others.

    Spellings of gateways and clouds are known: `anthropic/claude-sonnet-4.5`, `models/gemini-3-flash`,
    `us.anthropic.claude-sonnet-4-5-20250929-v1:0`, `claude-opus-4-1@20250805`, `ft:gpt-4.1:company`.
    """
    name = model.strip().lower()
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), None)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One row of the table.

    Attributes:
        pattern: matched from the start of the name that `_plain` makes.
        knowledge_cutoff: `YYYY-MM`; empty where no source was found.
        source: where the numbers are from; the date is in the module's docstring.
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

_OTHERS = re.compile(
    r"-(chat|image|tts|live|audio|realtime|transcribe|embedding|search)"
)  # another kind of model

# The first that matches counts. All of them read images, think and call tools. The last row
# of a vendor is its present standard, for models that are newer than this table.
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
"""The vendors' older models: a request with an effort is refused by them."""

_NOT_STREAMING = re.compile(r"o1-pro|gpt-5-pro")
"""`supports_native_streaming` is false of these in https://github.com/BerriAI/litellm."""


SMALL_PARAMETERS = 4.5e9
"""Below this a model is better asked for whole files than for edits, and lost among many tools. Measured with one of
1.5 billion (`python -m tests.evaluation`); where it ends was not measured."""

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(?:(\d+(?:\.\d+)?)b|(\d{3})m)(?![a-z0-9])")
"""`1m` is a context of a million tokens."""


def parameters_named(model: str) -> float | None:
    """How many parameters a model's name says that it has; None where it says nothing.

    `qwen2.5-coder:1.5b`, `Llama-3.2-3B-Instruct`, `smollm2:360m`; of `qwen3-30b-a3b` the whole, and
    of `mixtral-8x7b` the product.
    """
    sizes = [
        int(times or 1) * (float(billions) * 1e9 if billions else float(millions) * 1e6)
        for times, billions, millions in _SIZE.findall(model.strip().lower())
    ]
    return max(sizes, default=None)


def is_small(model: str, parameters: float | None = None) -> bool:
    """Whether a model is known to be small: by its name, or by what its server says of it."""
    count = parameters_named(model) or parameters
    return family_of(model) is None and count is not None and count < SMALL_PARAMETERS


_THINKING = re.compile(r"qwen3|-r1|thinking|reason")


def thinks(model: str) -> bool:
    """Whether a model, of no vendor of the table, thinks before it answers, by its name: its replies are long ones."""
    return _THINKING.search(model.strip().lower()) is not None


def reasons(model: str) -> bool | None:
    """Whether a model thinks before it answers and takes an effort; None where that is not known."""
    if _NOT_REASONING.match(_plain(model)):
        return False
    return True if known_model(model) else None


_SEEING = re.compile(
    r"(chatgpt-4o|gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-4\.5|o1(?!-mini|-preview)|o3-pro|claude-|gemini-)"
    r"|.*(?<![a-z])(vl|vision|llava|pixtral|multimodal|omni|moondream|gemma-?[34]|llama-?4|mistral-small-?3\.[12])(?![a-z])"
)
_NOT_SEEING = re.compile(
    r"gpt-5\.3-codex-spark|gpt-4o-(audio|realtime|transcribe|mini-tts)|claude-(instant|v?[12](?!\d))"
)


def reads_images(model: str) -> bool:
    """Whether a model is known to read pictures, by its name: those of the table, older ones, and some of no vendor."""
    name = _plain(model)
    if _NOT_SEEING.match(name):
        return False
    return known_model(model) is not None or _SEEING.match(name) is not None


def streams(model: str) -> bool:
    """Whether a reply of this model can be had in pieces, as almost every one can."""
    return _NOT_STREAMING.match(_plain(model)) is None


def known_model(model: str) -> KnownModel | None:
    """The row of a model, however a gateway or cloud spells its name."""
    name = _plain(model)
    if _OTHERS.search(name):
        return None
    return next((row for row in KNOWN if re.match(row.pattern, name)), None)


def _plain(model: str) -> str:
    """The name without who offers it; Claude's as `claude-TIER-MAJOR.MINOR`, whose order has changed over time."""
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
