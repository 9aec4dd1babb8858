from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from orchestrator.app.config.settings import load_settings
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.model import CAPS_IN_USD, ChosenModel, choose_model
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import AuthenticationError, ConfigurationError
from orchestrator.core.events import Warned
from orchestrator.core.messages import Message, Usage
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.fallback import FallbackModel
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.model_server import MODEL, NO_OTHERS, ModelServer, fail, reply

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event
    from orchestrator.engine.models.base import Model

LOCAL = "http://127.0.0.1:9/v1"
KEY = {"OPENAI_API_KEY": "sk-made-up-0123456789"}
OTHER = {"PULLWRIGHT_API_KEY": "other-made-up-0123456789"}


def build_context(folder: Path, environ: dict[str, str], **flags: Any) -> BuildContext:
    environ = {**NO_OTHERS, **environ, "PULLWRIGHT_HOME": str(folder)}
    loaded = load_settings(flags, environ, folder)
    return BuildContext(
        loaded,
        ApiKeys.of(environ),
        Home(folder),
        ManualClock(),
        lambda _event: None,
        Stop(),
        Redactor(),
        environ,
    )


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
        ({"model": "OpenAI-Chat:qwen3:8b", "api_url": LOCAL}, {}, "openai-chat:qwen3:8b"),
        ({"model": "openai-chat:opnai:fake", "api_url": LOCAL}, {}, "openai-chat:opnai:fake"),
        (
            {"model": "anthropic.claude-3-5-sonnet-20241022-v2:0", "api_url": LOCAL},
            {},
            "openai-chat:anthropic.claude-3-5-sonnet-20241022-v2:0",
        ),
        ({"model": "openai:ft:gpt-4o:org::id"}, KEY, "openai-responses:ft:gpt-4o:org::id"),
        ({"model": "gemini:gemini-3-pro"}, {"GEMINI_API_KEY": "k" * 20}, "gemini:gemini-3-pro"),
    ],
)
def test_which_model_answers(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], name: str
) -> None:
    assert choose_model(build_context(tmp_path, environ, **flags)).model.name == name


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        ({}, KEY, "no model is named: pass --model"),
        ({"model": "openai-chat:gpt-5.2"}, {}, "set OPENAI_API_KEY"),
        ({"model": "openai-chat:gpt-5.2"}, OTHER, "set OPENAI_API_KEY"),
        ({"model": "openai:gpt-5.2"}, {}, "set OPENAI_API_KEY"),
        ({"model": "anthropic:claude"}, KEY, "set ANTHROPIC_API_KEY"),
        ({"model": "gemini:gemini-3-pro"}, KEY, "set GEMINI_API_KEY"),
        ({"model": "opnai:x"}, {}, "did you mean openai"),
        ({"model": "opnai:fake", "api_url": LOCAL}, {}, "did you mean openai:fake"),
        (
            {"model": "qwen3:8b"},
            KEY,
            "unknown model provider 'qwen3'; known are .*--api-url.*just as 'qwen3:8b'",
        ),
        ({"model": "qwen3:8b", "api_url": "https://api.openai.com/v1"}, KEY, "unknown model provider"),
        (
            {"model": "qwen3:8b", "api_url": LOCAL, "fallback_model": ("gemni:flash",)},
            {},
            "did you mean gemini:flash",
        ),
        (
            {"model": "openai-chat:x", "api_url": LOCAL, "max_usd": "1"},
            {},
            "--max-usd cannot be kept.*--price",
        ),
        (
            {"model": "openai-chat:x", "api_url": LOCAL, "max_usd_per_day": "1"},
            {},
            "--max-usd-per-day cannot be kept.*--max-tokens-per-day",
        ),
        ({"model": "openai-chat:x", "api_url": LOCAL, "max_usd_per_task": "1"}, {}, "--max-usd-per-task"),
        ({"model": "openai-chat:x", "api_url": LOCAL, "max_usd_per_repo": "1"}, {}, "--max-usd-per-repo"),
        (
            {"model": "openai:gpt-5.2", "fallback_model": ("anthropic:claude-sonnet-4-5",)},
            KEY,
            "--fallback-model anthropic:claude-sonnet-4-5: no key .* set ANTHROPIC_API_KEY",
        ),
        ({"model": "openai:x", "fallback_model": ("gpt-5",)}, KEY, "--fallback-model gpt-5: .*PROVIDER:NAME"),
        ({"model": "openai:x", "fallback_model": ("replay:last",)}, KEY, "cannot be a fallback"),
        ({"model": "openai:x", "fallback_model": ("openai:x",)}, KEY, "named before"),
        ({"model": "openai:x", "fallback_model": ("openai:y", "openai-responses:y")}, KEY, "named before"),
        (
            {"model": "openai:gpt-5.2", "max_usd": "1", "fallback_model": ("openai:made-up",)},
            KEY,
            "--fallback-model openai:made-up: --max-usd cannot be kept.*leave it out",
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        choose_model(build_context(tmp_path, environ, **flags))


def sent_key(model: object) -> str:
    return str(vars(model)["_connection"].key)


@pytest.mark.parametrize(
    ("api_url", "bound", "environ", "key"),
    [
        (None, (), {**KEY, **OTHER}, KEY["OPENAI_API_KEY"]),
        ("https://eu.api.openai.com/v1", (), {**KEY, **OTHER}, KEY["OPENAI_API_KEY"]),
        ("https://example.com/v1", (), KEY, ""),
        ("https://example.com/v1", ("openai=example.com",), {**KEY, **OTHER}, KEY["OPENAI_API_KEY"]),
        ("https://example.com/v1", (), {**KEY, **OTHER}, OTHER["PULLWRIGHT_API_KEY"]),
        (LOCAL, (), KEY, ""),
        (LOCAL, ("openai=127.0.0.1:9",), KEY, KEY["OPENAI_API_KEY"]),
        ("http://example.com/v1", (), KEY, ""),
        ("http://example.com/v1", (), OTHER, OTHER["PULLWRIGHT_API_KEY"]),
        ("https://api.openai.com.example.com/v1", (), {**KEY, **OTHER}, OTHER["PULLWRIGHT_API_KEY"]),
    ],
)
def test_which_key_goes_where(
    tmp_path: Path, api_url: str | None, bound: tuple[str, ...], environ: dict[str, str], key: str
) -> None:
    flags: dict[str, Any] = {"model": "openai-chat:x", "key_host": bound}
    flags |= {"api_url": api_url} if api_url else {}
    assert sent_key(choose_model(build_context(tmp_path, environ, **flags)).model) == key


async def ask_once(model: Model) -> None:
    try:
        await model.complete(Request("", (Message.user("hi"),)))
    finally:
        await model.aclose()


def test_a_key_that_stays_here_is_told_where_the_server_wants_one(tmp_path: Path) -> None:
    with ModelServer([fail(401)]) as server:
        context = build_context(tmp_path, KEY, model=f"openai-chat:{MODEL}", api_url=server.url)
        with pytest.raises(AuthenticationError) as caught:
            asyncio.run(ask_once(choose_model(context).model))
        (request,) = server.requests
    place = urlsplit(server.url).netloc
    assert str(caught.value).endswith(
        f"; set PULLWRIGHT_API_KEY to the key of {place} (OPENAI_API_KEY goes to its vendor only; "
        f"--key-host openai={place} lets it go there)"
    )
    assert KEY["OPENAI_API_KEY"] not in str(request)


def test_no_key_goes_to_an_address_that_a_repository_may_have_brought(tmp_path: Path) -> None:
    (tmp_path / "pullwright.toml").write_text('api_url = "https://example.com/v1"\n')
    with pytest.raises(ConfigurationError, match="--api-url"):
        choose_model(build_context(tmp_path, KEY, model="openai-chat:x"))


def test_an_address_without_a_model_means_the_only_one_there(tmp_path: Path) -> None:
    with ModelServer() as server:
        assert (
            choose_model(build_context(tmp_path, {}, api_url=server.url)).model.name == f"openai-chat:{MODEL}"
        )
    with pytest.raises(ConfigurationError, match="could not be asked"):
        choose_model(build_context(tmp_path, {}, api_url=LOCAL))


def test_a_vendors_model_has_a_price_and_a_local_one_has_none(tmp_path: Path) -> None:
    usage = Usage(1_000_000, 1_000_000)
    vendor = choose_model(build_context(tmp_path, KEY, model="openai-chat:gpt-4o-mini", max_usd="1")).price(
        usage
    )
    assert vendor == pytest.approx(0.75)
    assert (
        choose_model(build_context(tmp_path, {}, model="openai-chat:gpt-4o-mini", api_url=LOCAL)).price(usage)
        is None
    )


@pytest.mark.parametrize("cap", CAPS_IN_USD)
def test_a_price_that_is_given_makes_a_cap_possible_and_wins(tmp_path: Path, cap: str) -> None:
    usage = Usage(1_000_000, 1_000_000, cached_input_tokens=500_000)
    local = {"model": "openai-chat:x", "api_url": LOCAL, "price": "2/10", cap: "1"}
    assert choose_model(build_context(tmp_path, {}, **local)).price(usage) == 12.0
    vendor = choose_model(build_context(tmp_path, KEY, model="openai-chat:gpt-4o-mini", price="2/10"))
    assert vendor.price(usage) == 12.0


def asked(chosen: ChosenModel) -> list[tuple[str, str, str]]:
    """Name, address and key of each model, in order."""
    model = chosen.model
    models = [one.model for one in model._models] if isinstance(model, FallbackModel) else [model]
    return [(one.name, urlsplit(vars(one)["_wire"].url).netloc, sent_key(one)) for one in models]


KEYS = {**KEY, "ANTHROPIC_API_KEY": "a" * 20, **OTHER}
LOCAL_HOST = "127.0.0.1:9"


@pytest.mark.parametrize(
    ("flags", "second"),
    [
        ({"model": "openai:x"}, ("anthropic:c", "api.anthropic.com", "a" * 20)),
        ({"model": "openai:x"}, ("openai-chat:y", "api.openai.com", KEY["OPENAI_API_KEY"])),
        ({"model": "openai:x"}, ("openai:y", "api.openai.com", KEY["OPENAI_API_KEY"])),
        ({"model": "x", "api_url": LOCAL}, ("y", LOCAL_HOST, OTHER["PULLWRIGHT_API_KEY"])),
        ({"model": "x", "api_url": LOCAL}, ("openai:y", LOCAL_HOST, OTHER["PULLWRIGHT_API_KEY"])),
        ({"model": "x", "api_url": LOCAL}, ("openai-chat:y", LOCAL_HOST, OTHER["PULLWRIGHT_API_KEY"])),
        ({"model": "x", "api_url": LOCAL}, ("openai-responses:y", "api.openai.com", KEY["OPENAI_API_KEY"])),
        ({"model": "x", "api_url": LOCAL}, ("anthropic:c", "api.anthropic.com", "a" * 20)),
        (
            {"model": "anthropic:c", "api_url": LOCAL},
            ("anthropic:d", LOCAL_HOST, OTHER["PULLWRIGHT_API_KEY"]),
        ),
        ({"model": "anthropic:c", "api_url": LOCAL}, ("openai:y", "api.openai.com", KEY["OPENAI_API_KEY"])),
    ],
)
def test_where_a_fallback_is_asked_and_with_which_key(
    tmp_path: Path, flags: dict[str, str], second: tuple[str, str, str]
) -> None:
    named, host, key = second
    chosen = choose_model(build_context(tmp_path, KEYS, **flags, fallback_model=(named,)))
    name, found_host, found_key = asked(chosen)[1]
    assert name.rpartition(":")[2] == named.rpartition(":")[2]
    assert (found_host, found_key) == (host, key)


async def test_a_fallback_answers_and_it_is_said(tmp_path: Path) -> None:
    told: list[Event] = []
    with ModelServer([fail(402), reply("hello")]) as server:
        place = replace(
            build_context(tmp_path, {}, model="one", api_url=server.url, fallback_model=("two",)),
            emit=told.append,
        )
        chosen = choose_model(place)
        response = await chosen.model.complete(Request("Be brief.", (Message.user("Hello"),)))
        await chosen.model.aclose()
    assert response.text == "hello"
    assert [request.body["model"] for request in server.requests] == ["one", "two"]
    (event,) = told
    assert isinstance(event, Warned)
    assert "openai-chat:two is asked instead, until 2026-01-01 00:10 UTC" in event.message


def test_with_fallbacks_a_plan_is_priced_by_the_dearest_and_the_longest_reply(tmp_path: Path) -> None:
    flags = {"model": "openai-chat:gpt-4o-mini", "max_usd": "1"}
    alone = choose_model(build_context(tmp_path, KEYS, **flags))
    dear = choose_model(build_context(tmp_path, KEYS, model="anthropic:claude-opus-4-1"))
    both = choose_model(build_context(tmp_path, KEYS, **flags, fallback_model=("anthropic:claude-opus-4-1",)))
    usage = Usage(1_000_000, 1_000_000)
    assert alone.reply_tokens < dear.reply_tokens == both.reply_tokens == 32_000
    assert both.price(usage) == dear.price(usage)
    assert both.ref == alone.ref


@pytest.mark.parametrize("name", ["gpt-5", "claude-sonnet-4-5", "qwen2.5-coder:1.5b"])
def test_a_server_is_not_asked_for_the_size_of_a_model_whose_name_says_it(tmp_path: Path, name: str) -> None:
    with ModelServer([]) as server:
        choose_model(build_context(tmp_path, {}, model=f"openai-chat:{name}", api_url=server.url))
        assert server.connections == 0
        choose_model(build_context(tmp_path, {}, model="openai-chat:coder", api_url=server.url))
        assert server.connections == 1


@pytest.mark.parametrize(("second", "small"), [("qwen2.5-coder:3b", True), ("qwen2.5-coder:32b", False)])
def test_a_small_model_with_a_large_one_behind_it_has_no_small_ones_limits(
    tmp_path: Path, second: str, *, small: bool
) -> None:
    flags = {"model": "qwen2.5-coder:1.5b", "api_url": LOCAL}
    assert choose_model(build_context(tmp_path, {}, **flags)).is_small
    assert choose_model(build_context(tmp_path, {}, **flags, fallback_model=(second,))).is_small is small


@pytest.mark.parametrize(
    ("flags", "window"),
    [
        ({"model": "openai-chat:gpt-4"}, 8_192),
        ({"model": "openai-chat:gpt-5.2", "fallback_model": ("openai-chat:gpt-4",)}, 8_192),
        ({"model": "openai-chat:made-up-17", "api_url": LOCAL}, None),
    ],
)
def test_the_window_is_the_smallest_that_is_known_of_all(
    tmp_path: Path, flags: dict[str, Any], window: int | None
) -> None:
    chosen = choose_model(build_context(tmp_path, KEY, **flags))
    assert chosen.window == window


def test_an_echo_needs_no_key_and_costs_nothing(tmp_path: Path) -> None:
    chosen = choose_model(build_context(tmp_path, {}, model="echo", max_usd=1.0))
    assert (chosen.model.name, chosen.ref, chosen.price(Usage(5, 5))) == ("echo:offline", None, 0.0)
    with pytest.raises(ConfigurationError, match="an echo cannot be a fallback"):
        choose_model(
            build_context(
                tmp_path,
                {"ANTHROPIC_API_KEY": "k"},
                model="anthropic:claude-sonnet-4-5",
                fallback_model=["echo"],
            )
        )


def test_without_a_model_those_of_this_machine_are_offered(tmp_path: Path) -> None:
    with ModelServer() as server:
        server.listed = ("qwen3:8b",)
        environ = {"OLLAMA_HOST": server.url.removesuffix("/v1")}
        offered = f"Ollama at {server.url} has qwen3:8b: pass --api-url {server.url}"
        with pytest.raises(ConfigurationError, match=offered):
            choose_model(build_context(tmp_path, environ))
