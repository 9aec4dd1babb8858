from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Usage
from orchestrator.models.catalog import (
    ModelRef,
    Provider,
    context_window,
    detect_provider,
    parse_model,
    price_usd,
)

USAGE = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_input_tokens=500_000)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("text", ["", "gpt-4o", "openai:", "openai: ", ":"])
def test_what_names_no_model(text: str) -> None:
    with pytest.raises(ConfigurationError, match="PROVIDER:NAME"):
        parse_model(text)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    modules = "catalog, http, openai_chat, replay"
    code = f"import sys; from orchestrator.models import {modules}; print([m for m in sys.modules if m in ('httpx2', 'genai_prices', 'pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
