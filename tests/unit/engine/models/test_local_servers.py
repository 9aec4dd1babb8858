from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.listing import MODEL_PORTS, local_servers, only_model, places_in_words
from tests.doubles.model_server import NO_OTHERS, ModelServer


def at(server: ModelServer) -> dict[str, str]:
    """Ollama's own variable for the place where it listens."""
    return {**NO_OTHERS, "OLLAMA_HOST": urlsplit(server.url).netloc}


def of_ollama(environ: dict[str, str]) -> list[tuple[tuple[str, ...], str]]:
    """The models that are found, and how each is asked for."""
    return [(one.models, one.flags) for one in local_servers(environ)]


def test_a_server_with_one_model_needs_only_its_address() -> None:
    with ModelServer() as server:
        server.listed = ("nomic-embed-text:latest", "qwen3:8b")
        assert of_ollama(at(server)) == [(("qwen3:8b",), f"--api-url {server.url}")]
        assert only_model(server.url, None) == "qwen3:8b"


def test_with_several_models_one_is_named() -> None:
    with ModelServer() as server:
        server.listed = ("qwen3:8b", "devstral:24b")
        (found,) = of_ollama(at(server))
        assert found == (server.listed, f"--api-url {server.url} --model qwen3:8b")
        with pytest.raises(ConfigurationError, match="has qwen3:8b, devstral:24b"):
            only_model(server.url, None)


@pytest.mark.parametrize("listed", [(), ("all-minilm:22m",), ("a\x1b[31mb",), ("n" * 400,)])
def test_a_server_without_a_usable_model_is_none(listed: tuple[str, ...]) -> None:
    with ModelServer() as server:
        server.listed = listed
        assert of_ollama(at(server)) == []


@pytest.mark.parametrize("host", ["example.org:{}", "192.0.2.1:{}", "127.0.0.1:x", "0.0.0.0:{}"])
def test_no_other_machine_is_asked(host: str) -> None:
    with ModelServer() as server:
        port = urlsplit(server.url).port
        of_ollama({**NO_OTHERS, "OLLAMA_HOST": host.format(port)})
        assert server.connections == 0


def test_a_proxy_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:9")
    with ModelServer() as server:
        assert of_ollama(at(server))


def test_the_ports_may_be_named() -> None:
    with ModelServer() as server:
        port = urlsplit(server.url).port
        assert [one.api_url for one in local_servers({MODEL_PORTS: f"1, {port}"})] == [server.url]
        assert local_servers(NO_OTHERS) == ()
    assert places_in_words(NO_OTHERS) == "none"
    assert places_in_words({MODEL_PORTS: "1234,81"}) == "LM Studio 1234, a server 81"
    assert places_in_words({}).startswith("Ollama 11434, ")


@pytest.mark.parametrize(
    "ports", ["all", "0", "65536", "80,", "-1", "8080 1234", ",".join(["80"] * 21), "9" * 5000]
)
def test_what_is_no_list_of_ports_is_refused(ports: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{MODEL_PORTS} must be none, or at most 20 ports"):
        local_servers({MODEL_PORTS: ports})
