from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.assembly.around import Around
from orchestrator.assembly.model import choose_model
from orchestrator.config import ApiKeys, load
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Usage
from orchestrator.cycle.parts import Stop
from orchestrator.journal.folders import Home
from tests.doubles.model_server import MODEL, ModelServer

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "http://127.0.0.1:9/v1"
KEY = {"OPENAI_API_KEY": "sk-made-up-0123456789"}
OTHER = {"PULLWRIGHT_API_KEY": "other-made-up-0123456789"}


def around(folder: Path, environ: dict[str, str], **flags: Any) -> Around:
    environ = {**environ, "PULLWRIGHT_HOME": str(folder)}
    loaded = load(flags, environ, folder)
    return Around(loaded, ApiKeys.of(environ), Home(folder), ManualClock(), lambda _event: None, Stop())


@pytest.mark.parametrize(
    ("flags", "environ", "name"),
    [
        ({"model": "openai-chat:gpt-5.2"}, KEY, "openai-chat:gpt-5.2"),
        ({"model": "openai-chat:qwen2.5:7b", "api_url": LOCAL}, {}, "openai-chat:qwen2.5:7b"),
        ({"model": "openai:gpt", "api_url": LOCAL}, {}, "openai-chat:gpt"),
        ({"model": "qwen2.5-coder:7b", "api_url": LOCAL}, {}, "openai-chat:qwen2.5-coder:7b"),
        ({"model": "openai-chat:x"}, {**KEY, "PULLWRIGHT_API_URL": LOCAL}, "openai-chat:x"),
        ({"model": "openai:gpt-5.2"}, KEY, "openai-responses:gpt-5.2"),
        ({"model": "openai:x", "api_url": "https://api.openai.com/v1"}, KEY, "openai-responses:x"),
        ({"model": "anthropic:claude"}, {"ANTHROPIC_API_KEY": "k" * 20}, "anthropic:claude"),
        (
            {"model": "claude", "api_url": "https://api.anthropic.com"},
            {"ANTHROPIC_API_KEY": "k" * 20},
            "anthropic:claude",
        ),
        ({"model": "anthropic:any", "api_url": LOCAL}, {}, "anthropic:any"),
        ({"model": "gemini:gemini-3-pro"}, {"GEMINI_API_KEY": "k" * 20}, "gemini:gemini-3-pro"),
    ],
)
def test_which_model_answers(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], name: str
) -> None:
    assert choose_model(around(tmp_path, environ, **flags)).model.name == name


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        ({}, KEY, "no model is named"),
        ({"model": "openai-chat:gpt-5.2"}, {}, "set OPENAI_API_KEY"),
        ({"model": "openai-chat:gpt-5.2"}, OTHER, "set OPENAI_API_KEY"),
        ({"model": "openai:gpt-5.2"}, {}, "set OPENAI_API_KEY"),
        ({"model": "anthropic:claude"}, KEY, "set ANTHROPIC_API_KEY"),
        ({"model": "gemini:gemini-3-pro"}, KEY, "set GEMINI_API_KEY"),
        ({"model": "opnai:x"}, {}, "did you mean openai"),
        ({"model": "openai-chat:x", "api_url": LOCAL, "max_usd": "1"}, {}, "--max-usd cannot be kept"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        choose_model(around(tmp_path, environ, **flags))


def sent_key(model: object) -> str:
    return str(vars(model)["_key"])


@pytest.mark.parametrize(
    ("api_url", "environ", "key"),
    [
        (None, {**KEY, **OTHER}, KEY["OPENAI_API_KEY"]),
        ("https://example.com/v1", KEY, KEY["OPENAI_API_KEY"]),
        ("https://example.com/v1", {**KEY, **OTHER}, OTHER["PULLWRIGHT_API_KEY"]),
        (LOCAL, KEY, KEY["OPENAI_API_KEY"]),
        ("http://example.com/v1", KEY, ""),
        ("http://example.com/v1", OTHER, OTHER["PULLWRIGHT_API_KEY"]),
        ("https://api.openai.com.example.com/v1", {**KEY, **OTHER}, OTHER["PULLWRIGHT_API_KEY"]),
    ],
)
def test_which_key_goes_where(tmp_path: Path, api_url: str | None, environ: dict[str, str], key: str) -> None:
    flags = {"model": "openai-chat:x"} | ({"api_url": api_url} if api_url else {})
    assert sent_key(choose_model(around(tmp_path, environ, **flags)).model) == key


def test_no_key_goes_to_an_address_that_a_repository_may_have_brought(tmp_path: Path) -> None:
    (tmp_path / "pullwright.toml").write_text('api_url = "https://example.com/v1"\n')
    with pytest.raises(ConfigurationError, match="--api-url"):
        choose_model(around(tmp_path, KEY, model="openai-chat:x"))


def test_an_address_without_a_model_means_the_only_one_there(tmp_path: Path) -> None:
    with ModelServer() as server:
        assert choose_model(around(tmp_path, {}, api_url=server.url)).model.name == f"openai-chat:{MODEL}"
    with pytest.raises(ConfigurationError, match="could not be asked"):
        choose_model(around(tmp_path, {}, api_url=LOCAL))


def test_a_vendors_model_has_a_price_and_a_local_one_has_none(tmp_path: Path) -> None:
    usage = Usage(1_000_000, 1_000_000)
    vendor = choose_model(around(tmp_path, KEY, model="openai-chat:gpt-4o-mini", max_usd="1")).price(usage)
    assert vendor == pytest.approx(0.75)
    assert (
        choose_model(around(tmp_path, {}, model="openai-chat:gpt-4o-mini", api_url=LOCAL)).price(usage)
        is None
    )
