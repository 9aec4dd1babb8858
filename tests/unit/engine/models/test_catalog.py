from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Usage
from orchestrator.engine.models.catalog import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_OUTPUT_TOKENS,
    KNOWN,
    ModelFacts,
    ModelRef,
    Provider,
    accepts_effort,
    context_window,
    detect_provider,
    facts,
    family_of,
    flat_price,
    known_model,
    model_at,
    parse_model,
    price_usd,
)
from tests.tables import table

USAGE = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_input_tokens=500_000)


@table(
    ("text", "ref"),
    [
        ("openai-chat:gpt-4o", ModelRef(Provider.OPENAI_CHAT, "gpt-4o")),
        ("openai-chat:qwen2.5-coder:7b", ModelRef(Provider.OPENAI_CHAT, "qwen2.5-coder:7b")),
        ("openai:meta-llama/Llama-3:free", ModelRef(Provider.OPENAI, "meta-llama/Llama-3:free")),
        (" Anthropic:claude ", ModelRef(Provider.ANTHROPIC, "claude")),
        ("replay:2026-01-01-abc", ModelRef(Provider.REPLAY, "2026-01-01-abc")),
    ],
)
def test_models_by_name(text: str, ref: ModelRef) -> None:
    assert parse_model(text) == ref
    assert parse_model(str(ref)) == ref


@table("text", ["", "gpt-4o", "openai:", "openai: ", ":"])
def test_what_names_no_model(text: str) -> None:
    with pytest.raises(ConfigurationError, match="PROVIDER:NAME"):
        parse_model(text)


@table(
    ("text", "near"),
    [
        ("antropic:x", "anthropic"),
        ("open-ai-chat:x", "openai-chat"),
        ("Gemni:x", "gemini"),
        ("openapi:x", "openai"),
    ],
)
def test_an_unknown_provider_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean {near}\\?.*openai-responses.*replay"):
        parse_model(text)


@table(
    ("url", "provider"),
    [
        ("https://api.anthropic.com/v1", Provider.ANTHROPIC),
        ("https://api.openai.com", Provider.OPENAI),
        ("HTTPS://API.OpenAI.com:443/v1", Provider.OPENAI),
        ("api.openai.com/v1", Provider.OPENAI),
        ("https://generativelanguage.googleapis.com/v1beta", Provider.GEMINI),
        ("http://localhost:1234/v1", Provider.OPENAI_CHAT),
        ("https://api.openai.com.example.org/v1", Provider.OPENAI_CHAT),
        ("https://proxy.example.org/api.anthropic.com/v1", Provider.OPENAI_CHAT),
        ("https://api.openai.com@example.org/", Provider.OPENAI_CHAT),
        ("http://[::1", Provider.OPENAI_CHAT),
        ("", Provider.OPENAI_CHAT),
    ],
)
def test_providers_by_address(url: str, provider: Provider) -> None:
    assert detect_provider(url) is provider


def test_a_known_price_by_address_and_by_provider() -> None:
    price = price_usd("https://api.openai.com/v1", "gpt-4o-mini", USAGE)
    assert price is not None
    assert 0.01 < price < 10
    assert price_usd(Provider.OPENAI, "gpt-4o-mini", USAGE) == price
    assert price_usd(Provider.OPENAI_CHAT, "gpt-4o-mini", USAGE) == price


def test_a_price_of_a_model_as_gemini_spells_it() -> None:
    price = price_usd(Provider.GEMINI, "models/gemini-2.5-pro", USAGE)
    assert price is not None
    assert price == price_usd(Provider.GEMINI, "gemini-2.5-pro", USAGE)


def test_cached_tokens_are_cheaper() -> None:
    dear = price_usd("openai", "gpt-4o-mini", Usage(1_000_000, 0))
    cheap = price_usd("openai", "gpt-4o-mini", Usage(1_000_000, 0, 1_000_000))
    assert dear is not None
    assert cheap is not None
    assert cheap < dear


def test_counts_that_contradict_each_other_still_have_a_price() -> None:
    assert (
        price_usd("openai", "gpt-4o-mini", Usage(10, 1, cached_input_tokens=50, cache_write_tokens=50))
        is not None
    )


@table(
    ("where", "model"),
    [
        ("http://127.0.0.1:8080/v1", "gpt-4o"),
        ("http://localhost:11434", "gpt-4o"),
        ("https://models.example.org/v1", "gpt-4o"),
        ("https://api.openai.com/v1", "no-such-model"),
        ("https://api.cerebras.ai/v1", "qwen-3-coder-480b"),  # listed without a price
        (Provider.REPLAY, "gpt-4o"),
        ("", "gpt-4o"),
        ("https://api.openai.com/v1", ""),
    ],
)
def test_an_unknown_price_is_none(where: str, model: str) -> None:
    assert price_usd(where, model, USAGE) is None


def test_models_called_free_cost_nothing() -> None:
    assert price_usd("https://openrouter.ai/api/v1", "google/gemma-3-27b-it:free", USAGE) == 0.0


def test_context_windows() -> None:
    assert context_window(Provider.OPENAI, "gpt-4o") == 128_000
    assert context_window("http://127.0.0.1:8080/v1", "gpt-4o") is None
    assert context_window("https://api.openai.com/v1", "no-such-model") is None


@table(
    ("where", "model", "known"),
    [
        ("openai", "gpt-5.2-codex", ModelFacts(400_000, 128_000, True, True, True, "2025-08")),
        ("openai", "gpt-5", ModelFacts(400_000, 128_000, True, True, True, "2024-09")),
        ("openai", "gpt-5-mini-2025-08-07", ModelFacts(400_000, 128_000, True, True, True, "2024-05")),
        ("anthropic", "claude-opus-4-1-20250805", ModelFacts(200_000, 32_000, True, True, True, "2025-03")),
        ("anthropic", "claude-haiku-4-5", ModelFacts(200_000, 64_000, True, True, True, "2025-02")),
        ("anthropic", "claude-opus-4-6", ModelFacts(1_000_000, 128_000, True, True, True, "2025-05")),
        ("gemini", "gemini-2.5-pro", ModelFacts(1_048_576, 65_536, True, True, True, "2025-01")),
        (
            "gemini",
            "models/gemini-3.1-pro-preview",
            ModelFacts(1_048_576, 65_536, True, True, True, "2025-01"),
        ),
        (
            "https://gateway.test/v1",
            "openai/gpt-5.4",
            ModelFacts(1_050_000, 128_000, True, True, True, "2025-08"),
        ),
        ("http://localhost:8080/v1", "qwen2.5-coder:7b", ModelFacts()),
        ("", "", ModelFacts()),
    ],
)
def test_facts(where: str, model: str, known: ModelFacts) -> None:
    assert facts(where, model) == known


def test_facts_of_models_of_which_the_price_list_alone_knows() -> None:
    assert facts("openai", "gpt-4o") == ModelFacts(
        128_000, DEFAULT_OUTPUT_TOKENS, images=True, reasoning=False
    )
    assert facts("openai", "gpt-4").output_tokens == 8_192


@table(
    "model, does",
    [
        ("gpt-5", True),
        ("openai/gpt-4o-mini", True),
        ("gpt-3.5-turbo", False),
        ("gpt-5.3-codex-spark", False),
        ("o1-mini", False),
        ("o1", True),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", True),
        ("claude-2.1", False),
        ("models/gemini-1.5-flash", True),
        ("qwen2.5-vl:7b", True),
        ("qwen3-coder:30b", False),
        ("Llama-3.2-11B-Vision-Instruct", True),
        ("llama3.3:70b", False),
        ("llava:13b", True),
        ("gemma-3-12b-it", True),
        ("gemma-2-9b", False),
        ("devlin-7b", False),
        ("", False),
    ],
)
def test_which_models_read_images(model: str, *, does: bool) -> None:
    assert facts("http://localhost:8080/v1", model).images is does


def test_what_is_assumed_of_unknown_models() -> None:
    assert ModelFacts() == ModelFacts(
        DEFAULT_CONTEXT_TOKENS,
        DEFAULT_OUTPUT_TOKENS,
        images=False,
        reasoning=None,
        tools=True,
        streaming=True,
    )


def test_the_price_list_and_the_table_agree() -> None:
    for model in ("gpt-5.2", "gpt-5.3-codex", "gpt-5.4", "gpt-5.4-mini", "gpt-5-pro", "o3", "gpt-6-sol"):
        row = known_model(model)
        assert row is not None
        assert row.context_tokens == context_window(Provider.OPENAI, model)
    for model in (
        "claude-opus-4-5",
        "claude-opus-4-6",
        "claude-sonnet-4-6",
        "claude-opus-4-0",
        "claude-haiku-5-5",
    ):
        row = known_model(model)
        assert row is not None
        assert row.context_tokens == context_window(Provider.ANTHROPIC, model)


@table(
    ("model", "alike"),
    [
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5-20250929"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("claude-opus-4-1@20250805", "claude-opus-4-1"),
        ("claude-4-sonnet", "claude-sonnet-4-20250514"),
        ("google/gemini-3-flash-preview", "gemini-3-flash-preview"),
        ("publishers/google/models/gemini-2.5-flash-lite", "gemini-2.5-flash-lite"),
        ("openai.gpt-5.6-sol", "GPT-5.6-SOL"),
        ("openai/o3:free", "o3-2025-04-16"),
        ("~anthropic/claude-opus-latest", "claude-mythos-preview"),
    ],
)
def test_spellings_of_one_model(model: str, alike: str) -> None:
    assert known_model(model) == known_model(alike)
    assert known_model(model) is not None


@table(
    "model",
    [
        "gpt-4o",
        "gpt-5-chat-latest",
        "gpt-5-image",
        "gemini-2.5-flash-image",
        "gemini-2.0-flash",
        "o3-mini",
        "claude-2",
    ],
)
def test_what_is_not_in_the_table(model: str) -> None:
    assert known_model(model) is None


def test_every_row_can_be_found_and_has_a_source() -> None:
    for row in KNOWN:
        assert row.source.startswith("https://")
        assert row.output_tokens <= row.context_tokens
        assert row.knowledge_cutoff == "" or row.knowledge_cutoff[4] == "-"


@table(
    ("model", "family"),
    [
        ("gpt-5.2-codex", "openai"),
        ("o3", "openai"),
        ("openai/o3:free", "openai"),
        ("o4-mini-2025-04-16", "openai"),
        ("codex-mini-latest", "openai"),
        ("chatgpt-4o-latest", "openai"),
        ("ft:gpt-4.1:company", "openai"),
        ("openai.gpt-oss-120b-1:0", "openai"),
        ("anthropic/claude-sonnet-4.5", "anthropic"),
        ("eu.anthropic.claude-opus-4-5-20251101-v1:0", "anthropic"),
        ("claude-opus-4-1@20250805", "anthropic"),
        ("publishers/anthropic/models/claude-sonnet-4", "anthropic"),
        ("Claude-Sonnet-5", "anthropic"),
        ("models/gemini-3-flash-preview", "gemini"),
        ("google/gemini-2.5-pro", "gemini"),
        ("gemini-flash-latest", "gemini"),
        ("qwen2.5-coder:7b", None),
        ("someone/qwen3-8b-claude-distill", None),
        ("~openai/gpt-mini-latest", "openai"),
        ("openai/gpt-chat-latest", "openai"),
        ("EleutherAI/gpt-neox-20b", None),
        ("claudette", None),
        ("phi-4", None),
        ("gemma-3-27b-it", None),
        ("", None),
    ],
)
def test_families(model: str, family: str | None) -> None:
    assert family_of(model) == family


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    names = ("catalog", "gemini", "openai_chat", "replay", "transport")
    modules = ", ".join(f"orchestrator.engine.models.{name}" for name in names)
    code = f"import sys, {modules}; print([m for m in sys.modules if m in ('httpx2', 'genai_prices', 'pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_list_of_prices_is_loaded_for_a_model_on_this_machine() -> None:
    code = (
        "import sys; from orchestrator.engine.models.catalog import facts\n"
        "for url in 'http://localhost:11434/v1', 'http://127.0.0.1:1', 'http://[::1]:8080': facts(url, 'gpt-5')\n"
        "print('genai_prices' in sys.modules)\n"
        "facts('https://api.openai.com/v1', 'gpt-5')\n"
        "print('genai_prices' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@table(("text", "usd"), [("3/15", 18.0), ("0.25/1.5", 1.75), ("0/0", 0.0)])
def test_a_price_that_a_person_gives(text: str, usd: float) -> None:
    assert flat_price(text)(Usage(1_000_000, 1_000_000, cached_input_tokens=900_000)) == usd


@table("text", ["", "3", "3/", "a/b", "1/2/3", "-1/2", "nan/1", "1/inf"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ConfigurationError, match="such as 3/15"):
        flat_price(text)


@table(
    ("model", "does"),
    [
        *(
            (name, True)
            for name in ("gpt-5.2", "o3", "claude-sonnet-4-5", "gemini-2.5-pro", "openai/gpt-6-sol")
        ),
        *(
            (name, False)
            for name in ("gpt-4o", "gpt-4.1-mini", "chatgpt-4o-latest", "gpt-3.5-turbo", "gpt-4")
        ),
        *(
            (name, False)
            for name in ("ft:gpt-4o-mini:company::abc", "openai/gpt-4o:extended", "gpt-5-chat-latest")
        ),
        *((name, False) for name in ("claude-3-5-sonnet-20241022", "claude-3-opus-latest", "claude-2.1")),
        *((name, False) for name in ("anthropic.claude-3-5-haiku-20241022-v1:0", "claude-instant-1.2")),
        *((name, False) for name in ("gemini-1.5-pro", "gemini-2.0-flash", "models/gemini-2.0-flash-lite")),
        *(
            (name, None)
            for name in ("claude-3-7-sonnet-latest", "gemini-2.0-flash-thinking-exp", "qwen3:8b", "")
        ),
        *((name, None) for name in ("gpt-oss-120b", "llama3.3:70b", "o1-preview", "deepseek-reasoner")),
    ],
)
def test_which_models_take_an_effort(model: str, *, does: bool | None) -> None:
    assert accepts_effort(model) is does
    assert facts("", model).reasoning is does


@table(
    ("model", "does"),
    [
        ("o1-pro", False),
        ("openai/o1-pro-2025-03-19", False),
        ("gpt-5-pro", False),
        ("o1", True),
        ("gpt-5", True),
    ],
)
def test_which_models_give_their_reply_in_pieces(model: str, *, does: bool) -> None:
    assert facts("https://api.openai.com/v1", model).streaming is does


@table(
    "name",
    [
        *(
            "qwen3:8b",
            "qwen2.5-coder:7b-instruct-q4_K_M",
            "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
        ),
        *("anthropic.claude-3-5-sonnet-20241022-v2:0", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        *("ft:gpt-4o:org::id", "openchat:7b", "gemma3:4b", "gemma:2b", "gpt-oss:20b", "openthinker:32b"),
        *("meta-llama/Llama-3:free", "openai/gpt-4o:extended", "anthropic/claude-3.7-sonnet:thinking"),
        *("google/gemini-2.5-pro:free", "registry.local:5000/library/qwen3:8b", "gpt-4o", "a:b:c"),
    ],
)
def test_a_name_with_colons_at_a_server_of_ones_own_is_a_name(name: str) -> None:
    assert model_at(Provider.OPENAI_CHAT, name, official=False) == ModelRef(Provider.OPENAI_CHAT, name)
    for provider in Provider:  # and so it is behind any protocol that is named
        assert model_at(Provider.OPENAI_CHAT, f"{provider}:{name}", official=False) == ModelRef(
            provider, name
        )
        assert parse_model(f"{provider.upper()}:{name}") == ModelRef(provider, name)


@table("official", [True, False])
@table(
    ("text", "near"),
    [
        ("opnai:fake", "openai:fake"),
        ("antropic:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("Antrophic:x", "anthropic:x"),
        ("gemni:flash", "gemini:flash"),
        ("open-ai:gpt-5", "openai:gpt-5"),
        ("openai_chat:qwen3:8b", "openai-chat:qwen3:8b"),
        ("openai-response:gpt-5", "openai-responses:gpt-5"),
        ("repaly:last", "replay:last"),
    ],
)
def test_a_misspelt_provider_is_refused_and_the_name_can_still_be_said(
    text: str, near: str, *, official: bool
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        model_at(Provider.OPENAI_CHAT, text, official=official)
    assert f"did you mean {near}?; known are openai, openai-chat" in str(refused.value)
    assert f"is the whole name of the model, write openai-chat:{text}" in str(refused.value)
    assert parse_model(f"openai-chat:{text}").name == text


@table("text", ["opnai:fake", "qwen3:8b", "ollama:qwen3", "azure:gpt-5", "x:y"])
def test_at_a_vendors_own_address_no_name_has_a_colon(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown model provider .* known are openai,"):
        model_at(Provider.OPENAI, text, official=True)


def test_a_fine_tuned_model_of_the_vendor_has_colons() -> None:
    named = ModelRef(Provider.OPENAI, "ft:gpt-4o-mini:company::abc")
    assert model_at(Provider.OPENAI, "ft:gpt-4o-mini:company::abc", official=True) == named


@table(
    ("text", "meant"),
    [
        ("gpt-5.2", "openai:gpt-5.2"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("gemini-3-pro-preview", "gemini:gemini-3-pro-preview"),
        ("ft:gpt-4o:org::id", "openai:ft:gpt-4o:org::id"),
    ],
)
def test_a_known_model_without_its_provider_is_told_the_whole_name(text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean {meant}\\?"):
        parse_model(text)


@table("text", ["", " ", ":", ":x", "qwen3:", "openai:", " openai : "])
def test_what_names_no_model_at_a_server_either(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"PROVIDER:NAME|the name of the model is empty"):
        model_at(Provider.OPENAI_CHAT, text, official=False)
